//! Tasks: work that outlives the request that asked for it.

mod cursor;
mod survey;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use uuid::Uuid;

use crate::durable::{LoadId, RecordedOutcome, TaskOutcome, TaskRecord};
use crate::event::Identity;
use crate::id::{ConnId, JobId, RequestId, TaskId};
use crate::journal::{Disk, Told};
use crate::limits::Limits;
pub use crate::status::{Change, Status};
use crate::records::Records;
use crate::table::Seed;
use crate::time::{Instant, Now, Wall};
use crate::timer::Armed;
use crate::write::Writer;

/// How a task shows itself.
pub(crate) struct View<'a> {
    pub(crate) status: Status,
    pub(crate) status_message: Option<&'a str>,
    pub(crate) updated: Wall,
}

/// One task.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) owner: Identity,
    /// Its place in the owner's list; grows, never reused.
    pub(crate) position: u64,
    pub(crate) status: Status,
    pub(crate) status_message: Option<Box<str>>,
    pub(crate) created: Wall,
    pub(crate) updated: Wall,
    /// The ttl as promised (TSK-34).
    pub(crate) ttl: Duration,
    pub(crate) created_at: Instant,
    /// When its timer is due.
    pub(crate) timer: Option<Armed>,
    /// Past its ttl and let finish (TSK-35).
    pub(crate) overdue: bool,
    /// The job behind it, until nothing of that is left.
    pub(crate) job: Option<JobId>,
    /// The session it was created in; told of status changes while it lives (TSK-18).
    pub(crate) creator: Option<ConnId>,
    /// Requests that wait for its end (TSK-15), or for what may be said of it (DUR-01).
    pub(crate) waiters: BTreeSet<(ConnId, RequestId)>,
    /// Subscriptions that are told of every change (MOD-08).
    pub(crate) listeners: BTreeSet<(ConnId, RequestId)>,
    /// There exactly when the status is terminal.
    pub(crate) outcome: RecordedOutcome,
    /// The name of its tool.
    pub(crate) tool: Arc<str>,
    pub(crate) disk: Disk,
    /// The load that will bring its outcome.
    pub(crate) load: Option<LoadId>,
    /// When it was last asked for, since it can be asked for too often (TSK-41).
    pub(crate) polled: Option<Instant>,
    /// As what it is counted.
    pub(crate) counted: Status,
}

impl Task {
    /// How it shows itself: as it is, or as it was while its end is not on disk (DUR-01).
    pub(crate) fn view(&self) -> View<'_> {
        match &self.disk {
            Disk::Settled | Disk::Creating(_) => View {
                status: self.status,
                status_message: self.status_message.as_deref(),
                updated: self.updated,
            },
            Disk::Ending(_, before) | Disk::Owed(before) => View {
                status: before.status,
                status_message: before.status_message.as_deref(),
                updated: before.updated,
            },
        }
    }

    /// The flat task object (TSK-12, TSK-34).
    pub(crate) fn write(&self, id: TaskId, poll_interval: Duration, json: &mut Writer<'_>) {
        let view = self.view();
        json.raw("{\"taskId\":\"").uuid(id.uuid()).raw("\",\"status\":\"");
        json.raw(view.status.as_str()).raw("\",");
        if let Some(message) = view.status_message {
            json.member("statusMessage", message).raw(",");
        }
        json.stamp("createdAt", self.created).raw(",");
        json.stamp("lastUpdatedAt", view.updated);
        json.raw(",\"ttl\":").millis(self.ttl);
        json.raw(",\"pollInterval\":").millis(poll_interval).raw("}");
    }
}

/// Places there are in the lists; more than could ever be given.
const PLACES: u64 = 1 << 62;

/// Every task, by id and by owner.
#[derive(Debug)]
pub(crate) struct Tasks {
    by_id: Records<TaskId, Task>,
    owners: BTreeMap<Identity, Owner>,
    /// How many there are in each status.
    counts: [usize; Status::ALL.len()],
    next_position: u64,
    /// Drawn at start, so that a cursor from before a restart is recognised (TSK-22).
    cursor_key: [u8; 16],
}

/// What one identity has.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    order: BTreeMap<u64, TaskId>,
    pub(crate) live: usize,
    pub(crate) stored_bytes: usize,
}

impl Owner {
    pub(crate) fn stored(&self) -> usize {
        self.order.len() - self.live
    }
}

/// A page of `tasks/list`.
pub(crate) struct Page {
    pub(crate) tasks: alloc::vec::Vec<TaskId>,
    pub(crate) next: Option<String>,
}

impl Tasks {
    pub(crate) fn new(cursor_key: Uuid, seed: Seed) -> Self {
        Self {
            by_id: Records::new(seed),
            owners: BTreeMap::new(),
            counts: [0; Status::ALL.len()],
            next_position: 0,
            cursor_key: cursor_key.into_bytes(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TaskId, &Task)> {
        self.by_id.iter()
    }

    pub(crate) fn contains(&self, id: TaskId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// The limit that keeps `owner` from having one more task, and its value (TSK-36).
    pub(crate) fn full(&self, owner: &Identity, limits: &Limits) -> Option<(&'static str, usize)> {
        let owner = self.owners.get(owner)?;
        if owner.live >= limits.live_tasks_max {
            Some(("tasks_per_identity", limits.live_tasks_max))
        } else if owner.stored() >= limits.stored_tasks_max {
            Some(("stored_tasks_per_identity", limits.stored_tasks_max))
        } else if owner.stored_bytes >= limits.stored_bytes_max {
            Some(("stored_bytes_per_identity", limits.stored_bytes_max))
        } else {
            None
        }
    }

    /// Takes a new task in. The id must be free (TSK-08) and the owner not full.
    pub(crate) fn insert(
        &mut self,
        id: TaskId,
        owner: &Identity,
        now: Now,
        ttl: Duration,
        job: JobId,
        creator: Option<ConnId>,
    ) -> &mut Task {
        assert!(!self.contains(id), "a task id is given once");
        let position = self.next_position;
        self.next_position += 1;
        let entry = self.owners.entry(owner.clone()).or_default();
        entry.order.insert(position, id);
        entry.live += 1;
        self.counts[Status::Working as usize] += 1;
        self.put(
            id,
            Task {
                owner: owner.clone(),
                position,
                status: Status::Working,
                status_message: None,
                created: now.wall,
                updated: now.wall,
                ttl,
                created_at: now.at,
                timer: None,
                overdue: false,
                job: Some(job),
                creator,
                waiters: BTreeSet::new(),
                listeners: BTreeSet::new(),
                outcome: RecordedOutcome::Open,
                tool: Arc::default(),
                disk: Disk::Settled,
                load: None,
                polled: None,
                counted: Status::Working,
            },
        )
    }

    /// Takes a task in that was stored before a restart; its id must be free. What has no outcome
    /// is taken for one that had not ended.
    pub(crate) fn restore(&mut self, record: TaskRecord, now: Now) -> &mut Task {
        let ended = record.status.is_terminal() && !record.outcome.is_open();
        let (status, outcome) = match ended {
            true => (record.status, record.outcome),
            false => (Status::Working, RecordedOutcome::Open),
        };
        let entry = self.owners.entry(record.owner.clone()).or_default();
        // A store that was damaged may name a place twice.
        let taken = entry.order.contains_key(&record.position) || record.position >= PLACES;
        let position = if taken { self.next_position } else { record.position };
        self.next_position = self.next_position.max(position + 1);
        entry.order.insert(position, record.id);
        entry.live += usize::from(!ended);
        entry.stored_bytes += outcome.bytes();
        self.counts[status as usize] += 1;
        self.put(
            record.id,
            Task {
                owner: record.owner,
                position,
                status,
                status_message: record.status_message,
                created: record.created,
                updated: record.updated.max(record.created),
                ttl: record.ttl,
                created_at: now.at,
                timer: None,
                overdue: false,
                job: None,
                creator: None,
                waiters: BTreeSet::new(),
                listeners: BTreeSet::new(),
                outcome,
                tool: record.tool,
                disk: Disk::Settled,
                load: None,
                polled: None,
                counted: status,
            },
        )
    }

    fn put(&mut self, id: TaskId, task: Task) -> &mut Task {
        let place = self.by_id.insert(id, task);
        self.by_id.at_mut(place)
    }

    pub(crate) fn get(&self, id: TaskId) -> Option<&Task> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.by_id.get_mut(&id)
    }

    /// The task, if `viewer` may know of it (TSK-39): its own, or, for peers nobody vouches for,
    /// one of theirs. What is only being created nobody may know of (DUR-01).
    pub(crate) fn visible(&self, id: TaskId, viewer: &Identity) -> Option<&Task> {
        let exists = |task: &&Task| !matches!(task.disk, Disk::Creating(_));
        let Some(task) = self.by_id.get(&id) else {
            self.look_at_a_neighbour(id, viewer);
            return None;
        };
        Some(task).filter(|task| task.owner == *viewer).filter(exists)
    }

    /// Does for an id that is unknown what is done for one of somebody else: another owner is
    /// fetched from memory and compared, which takes longer than all else that differs. So the time
    /// of a refusal does not tell which ids exist.
    fn look_at_a_neighbour(&self, id: TaskId, viewer: &Identity) {
        let neighbour = self.by_id.near(&id);
        core::hint::black_box(neighbour.is_some_and(|task| task.owner == *viewer));
    }

    /// Moves a task between its two live states; the task, if that changed anything (TSK-10).
    pub(crate) fn change(&mut self, id: TaskId, change: Change, wall: Wall) -> Option<&Task> {
        let task = self.by_id.get_mut(&id)?;
        let status = task.status.after(change)?;
        assert!(!status.is_terminal(), "an end has an outcome");
        task.status = status;
        task.updated = task.updated.max(wall);
        self.recount(id);
        self.get(id)
    }

    /// Ends a task; how it was before, or nothing when it had ended already (TSK-10, TSK-26).
    pub(crate) fn end(
        &mut self,
        id: TaskId,
        change: Change,
        wall: Wall,
        message: Option<Box<str>>,
        outcome: TaskOutcome,
    ) -> Option<Told> {
        let task = self.by_id.get_mut(&id)?;
        let status = task.status.after(change)?;
        assert!(status.is_terminal(), "only an end has an outcome");
        let before = Told {
            status: core::mem::replace(&mut task.status, status),
            status_message: core::mem::replace(&mut task.status_message, message),
            updated: task.updated,
        };
        // The wall clock may step back; a task's stamps do not (TSK-34).
        task.updated = task.updated.max(wall);
        task.outcome = RecordedOutcome::Here(outcome);
        let owner = self.owners.get_mut(&task.owner).expect("a task's owner has an entry");
        owner.live -= 1;
        owner.stored_bytes += task.outcome.bytes();
        Some(before)
    }

    /// Deletes a task.
    pub(crate) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let task = self.by_id.remove(&id)?;
        self.counts[task.counted as usize] -= 1;
        let owner = self.owners.get_mut(&task.owner).expect("a task's owner has an entry");
        owner.order.remove(&task.position);
        if task.status.is_terminal() {
            owner.stored_bytes -= task.outcome.bytes();
        } else {
            owner.live -= 1;
        }
        if owner.order.is_empty() {
            self.owners.remove(&task.owner);
        }
        Some(task)
    }

    /// The page after `cursor`, oldest first, so that what is created meanwhile comes later and
    /// nothing comes twice (TSK-19, TSK-20). `None` for a cursor that is not ours (TSK-22).
    pub(crate) fn page(
        &self,
        viewer: &Identity,
        cursor: Option<&str>,
        size: usize,
    ) -> Option<Page> {
        let after = match cursor {
            None => 0,
            Some(cursor) => self.read_cursor(viewer, cursor)?,
        };
        let mut page = Page { tasks: alloc::vec::Vec::new(), next: None };
        let Some(owner) = self.owners.get(viewer) else { return Some(page) };
        let mut last = after;
        // What is being created comes after everything else, so that nothing is passed over.
        let exists = |id: &TaskId| {
            self.by_id.get(id).is_some_and(|task| !matches!(task.disk, Disk::Creating(_)))
        };
        for (position, id) in owner.order.range(after..).filter(|(_, id)| exists(id)) {
            if page.tasks.len() == size {
                page.next = Some(self.write_cursor(viewer, last));
                break;
            }
            page.tasks.push(*id);
            last = position + 1;
        }
        Some(page)
    }

    /// Every agreement between the tables, for tests and the simulator.
    ///
    /// # Panics
    /// When one is broken.
    pub(crate) fn check(&self) {
        let mut listed = 0;
        for (identity, owner) in &self.owners {
            assert!(!owner.order.is_empty(), "an owner without tasks is forgotten");
            let tasks = || owner.order.values().filter_map(|id| self.by_id.get(id));
            assert_eq!(tasks().count(), owner.order.len(), "what is listed exists (TSK-21)");
            assert!(tasks().all(|task| task.owner == *identity), "a list holds one's own (TSK-39)");
            assert_eq!(tasks().filter(|t| !t.status.is_terminal()).count(), owner.live);
            assert_eq!(tasks().map(|task| task.outcome.bytes()).sum::<usize>(), owner.stored_bytes);
            listed += owner.order.len();
        }
        assert_eq!(listed, self.by_id.len(), "what exists is listed (TSK-21)");
        self.check_counts();
        for (id, task) in &self.by_id {
            assert!(task.updated >= task.created, "{id} was changed before it was made");
            assert_eq!(
                task.status.is_terminal(),
                !task.outcome.is_open(),
                "{id}: an end, an outcome"
            );
            let creating = matches!(task.disk, Disk::Creating(_));
            assert!(task.timer.is_some() || creating, "{id} will be deleted one day");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Tasks {
        Tasks::new(Uuid::from_u128(7), Seed::default())
    }

    fn add(tasks: &mut Tasks, number: u128, owner: &Identity) -> TaskId {
        let id = TaskId::new(Uuid::from_u128(number));
        let now = Now::default();
        tasks.insert(id, owner, now, Duration::from_secs(1), JobId::new(1), None);
        id
    }

    /// TSK-19, TSK-20: exact page boundaries, and nothing twice while the list changes.
    #[test]
    fn pages() {
        let owner = Identity::User(1);
        let mut tasks = table();
        let empty = tasks.page(&owner, None, 2).unwrap();
        assert!(empty.tasks.is_empty() && empty.next.is_none());
        let ids: alloc::vec::Vec<_> = (0..5).map(|n| add(&mut tasks, n, &owner)).collect();
        add(&mut tasks, 100, &Identity::User(2));
        let first = tasks.page(&owner, None, 2).unwrap();
        assert_eq!(first.tasks, ids[..2]);
        tasks.remove(ids[0]);
        tasks.remove(ids[2]);
        let late = add(&mut tasks, 50, &owner);
        let second = tasks.page(&owner, first.next.as_deref(), 2).unwrap();
        assert_eq!(second.tasks, ids[3..]);
        let third = tasks.page(&owner, second.next.as_deref(), 2).unwrap();
        assert_eq!(third.tasks, [late]);
        assert_eq!(third.next, None);
        assert_eq!(tasks.page(&owner, None, 4).unwrap().next, None, "exactly one page");
    }

    /// TSK-22: a cursor is good for its owner and this run only.
    #[test]
    fn cursors() {
        let (owner, other) = (Identity::User(1), Identity::User(2));
        let mut tasks = table();
        for number in 0..3 {
            add(&mut tasks, number, &owner);
        }
        let cursor = tasks.page(&owner, None, 1).unwrap().next.unwrap();
        assert!(tasks.page(&owner, Some(&cursor), 1).is_some());
        assert!(tasks.page(&other, Some(&cursor), 1).is_none());
        assert!(
            Tasks::new(Uuid::from_u128(8), Seed::default())
                .page(&owner, Some(&cursor), 1)
                .is_none()
        );
        let flipped = cursor.replacen('0', "1", 1);
        for bad in
            ["", "x", &cursor[1..], &flipped, &cursor.to_uppercase(), "ä".repeat(16).as_str()]
        {
            if bad != cursor {
                assert!(tasks.page(&owner, Some(bad), 1).is_none(), "{bad}");
            }
        }
    }
}
