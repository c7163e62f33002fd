//! Tasks: work that outlives the request that asked for it.

mod cursor;
mod record;
mod survey;
mod table;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use uuid::Uuid;

pub(crate) use self::record::{Aside, Task};
use self::record::{QUEUED, TaskEnd, nanos};
use crate::collections::det_map::Seed;
use crate::collections::lazy_box::LazyBox;
use crate::collections::slab::{Slab, SlabPlace};
use crate::collections::slot_map::Records;
use crate::identity::Identity;
use crate::ids::{CallId, ConnId, JobId, TaskId};
use crate::limits::Limits;
use crate::tasks::durable::{
    LoadId, RecordKey, RecordedOutcome, Seq, StoreWrite, TaskOutcome, TaskRecord,
};
use crate::tasks::persistence::{DiskInput, LastVisible, PendingWrites, RecordPart};
pub use crate::tasks::status::{Change, Status};
use crate::time::{Instant, Now, Wall};

/// Places there are in the lists; more than could ever be given.
const PLACES: u64 = 1 << 62;

/// Every task, by id and by owner.
#[derive(Debug)]
pub(crate) struct Tasks {
    by_id: Records<Task>,
    owners: Slab<TaskOwner>,
    by_identity: BTreeMap<Identity, SlabPlace>,
    /// How many there are in each status.
    counts: [usize; Status::ALL.len()],
    next_position: u64,
    /// Writes that are on their way to the store, and those it is owed.
    writes: PendingWrites,
    /// Drawn at start, so that a cursor from before a restart is recognised (TSK-22); the one of the
    /// table where several engines share it.
    cursor_key: [u8; 16],
    /// Whether they are kept in a table that several engines share.
    shared: bool,
    /// Questions of tasks that other engines run, put to connections here that wait for the task: by task and
    /// key. One that was refused stays, as long as its connection waits.
    pub(super) offered: BTreeMap<(TaskId, Box<str>), (ConnId, CallId)>,
    /// Writes that are no records, to be told to the table.
    pub(super) news: Vec<StoreWrite>,
}

/// Tasks of one identity.
#[derive(Debug)]
pub(crate) struct TaskOwner {
    identity: Identity,
    order: BTreeMap<u64, SlabPlace>,
    pub(crate) live: usize,
    pub(crate) stored_bytes: usize,
}

impl TaskOwner {
    pub(crate) fn stored(&self) -> usize {
        self.order.len() - self.live
    }
}

/// Subject of a write that is on disk.
pub(super) enum Stored {
    /// A task, which exists from now on.
    Creation(TaskId),
    /// All there is of a task.
    End(TaskId),
    /// A task without an end, as it is.
    Change(TaskId),
    /// A removal, a probe, or a task that was written again since.
    Nothing,
}

/// Subject of a write that was not carried out.
pub(super) enum NotStored {
    /// A question whether a new task would be taken.
    Probe,
    /// A task, which does not come to be.
    Creation(TaskId),
    /// The end of a task, which the store is owed now.
    End(TaskId),
    /// The end of a task that another engine runs, which does not come to be.
    Visit(TaskId),
    /// A task without an end, as it is; the store is owed it now.
    Change,
    /// A removal, which the store is owed now.
    Removal,
    /// A task that a later write is about.
    Superseded,
}

/// A page of `tasks/list`.
#[derive(Debug)]
pub(crate) struct TaskPage {
    pub(crate) tasks: Vec<TaskId>,
    pub(crate) next: Option<String>,
}

impl Tasks {
    /// No tasks, with or without a store.
    pub(crate) fn new(cursor_key: Uuid, seed: Seed, durable: bool, shared: bool) -> Self {
        Self {
            by_id: Records::new(seed),
            owners: Slab::default(),
            by_identity: BTreeMap::new(),
            counts: [0; Status::ALL.len()],
            next_position: 0,
            writes: PendingWrites::new(durable),
            cursor_key: cursor_key.into_bytes(),
            shared: durable && shared,
            offered: BTreeMap::new(),
            news: Vec::new(),
        }
    }

    /// Whether they are kept in a table that several engines share: the tasks here are those that run
    /// here, and those that requests wait for.
    pub(crate) const fn is_shared(&self) -> bool {
        self.shared
    }

    /// The table's key of cursors.
    pub(super) const fn seal_cursors_with(&mut self, key: [u8; 16]) {
        self.cursor_key = key;
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

    /// Whether peers may know the id of a task (DUR-01).
    pub(crate) fn is_visible(&self, id: TaskId) -> bool {
        !self.get(id).is_some_and(Task::is_being_created)
    }

    /// Whether all that can be said of a task may be said.
    pub(crate) fn is_settled(&self, id: TaskId) -> bool {
        self.get(id).is_some_and(Task::is_settled)
    }

    /// Requests that wait for the store.
    pub(crate) fn held(&self) -> usize {
        let waits = |(_, task): (&TaskId, &Task)| {
            let held = !task.is_settled() || task.aside.load.is_some();
            if held { task.aside.waiters.len() } else { 0 }
        };
        self.iter().map(waits).sum()
    }

    /// The limit that keeps `owner` from having one more task, and its value (TSK-36). A table that several
    /// engines share judges itself (FLT-06).
    pub(crate) fn full(&self, owner: &Identity, limits: &Limits) -> Option<(&'static str, usize)> {
        let owner = self.owner_named(owner).filter(|_| !self.shared)?;
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
        (job, tool): (JobId, Arc<str>),
        creator: Option<ConnId>,
    ) -> &mut Task {
        let position = self.new_position();
        let task = Task {
            id,
            owner: self.owner_place(owner),
            status: Status::Working,
            counted: Status::Working,
            queued: false,
            overdue: false,
            aside: LazyBox::default(),
            created: now.wall,
            updated: now.wall,
            ttl: nanos(ttl),
            next_poll: Instant::ZERO,
            end: None,
            position,
            created_at: now.at,
            tool,
            job: Some(job),
            creator,
            timer: None,
        };
        self.put(task)
    }

    /// Takes a task in that was stored before a restart; its id must be free, and its place was
    /// [passed over](Tasks::pass_over). A task without an outcome counts as not ended.
    pub(crate) fn restore(&mut self, record: TaskRecord, now: Now) -> &mut Task {
        let ended = record.status.is_terminal() && !record.outcome.is_open();
        let owner = self.owner_place(&record.owner);
        let order = &self.owners.get(owner).order;
        // A store that was damaged may name a place twice.
        let taken = order.contains_key(&record.position) || record.position >= PLACES;
        let position = if taken { self.new_position() } else { record.position };
        let status = if ended { record.status } else { Status::Working };
        let task = Task {
            id: record.id,
            owner,
            status,
            counted: status,
            queued: !ended && record.status_message.as_deref() == Some(QUEUED),
            overdue: false,
            aside: LazyBox::default(),
            created: record.created,
            updated: record.updated.max(record.created),
            ttl: nanos(record.ttl),
            next_poll: Instant::ZERO,
            end: ended.then(|| {
                Box::new(TaskEnd { message: record.status_message, outcome: record.outcome })
            }),
            position,
            created_at: now.at,
            tool: record.tool,
            job: None,
            creator: None,
            timer: None,
        };
        self.put(task)
    }

    /// A place that no task has had.
    const fn new_position(&mut self) -> u64 {
        let position = self.next_position;
        self.next_position += 1;
        position
    }

    /// Gives this place to no other task: it is one's that was stored before a restart.
    pub(crate) fn pass_over(&mut self, position: u64) {
        if position < PLACES {
            self.next_position = self.next_position.max(position + 1);
        }
    }

    /// Takes a task in, and lists and counts it.
    fn put(&mut self, task: Task) -> &mut Task {
        debug_assert!(!self.contains(task.id), "a task id is given once");
        let (owner, position, bytes) = (task.owner, task.position, task.outcome().bytes());
        let live = !task.status.is_terminal();
        self.counts[task.counted as usize] += 1;
        let place = self.by_id.insert(task);
        let owner = self.owners.get_mut(owner);
        owner.order.insert(position, place);
        owner.live += usize::from(live);
        owner.stored_bytes += bytes;
        self.by_id.at_mut(place)
    }

    /// Where an identity is among the owners, one of which it is now.
    fn owner_place(&mut self, identity: &Identity) -> SlabPlace {
        if let Some(place) = self.by_identity.get(identity) {
            return *place;
        }
        let identity = identity.clone();
        let order = BTreeMap::new();
        let owner = TaskOwner { identity: identity.clone(), order, live: 0, stored_bytes: 0 };
        let place = self.owners.insert(owner);
        self.by_identity.insert(identity, place);
        place
    }

    fn owner_named(&self, identity: &Identity) -> Option<&TaskOwner> {
        let place = self.by_identity.get(identity)?;
        Some(self.owners.get(*place))
    }

    /// Whose a task is.
    pub(crate) fn owner(&self, task: &Task) -> &Identity {
        &self.owners.get(task.owner).identity
    }

    pub(crate) fn get(&self, id: TaskId) -> Option<&Task> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.by_id.get_mut(&id)
    }

    /// The task, if `viewer` may know of it (TSK-39): its own, or, for anonymous peers,
    /// one of theirs. A task that is being created is visible to no peer (DUR-01).
    pub(crate) fn visible(&self, id: TaskId, viewer: &Identity) -> Option<&Task> {
        let exists = |task: &&Task| !task.is_being_created();
        self.by_id.get(&id).filter(|task| self.owner(task) == viewer).filter(exists)
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

    /// Ends a task; the task and how it was before, or nothing when it had ended already (TSK-10,
    /// TSK-26).
    pub(crate) fn end(
        &mut self,
        id: TaskId,
        change: Change,
        wall: Wall,
        message: Option<Box<str>>,
        outcome: TaskOutcome,
    ) -> Option<(&mut Task, LastVisible)> {
        let task = self.by_id.get_mut(&id)?;
        let status = task.status.after(change)?;
        assert!(status.is_terminal(), "only an end has an outcome");
        let before = task.last_visible();
        task.aside.forget_change();
        task.status = status;
        // The wall clock may step back; a task's stamps do not (TSK-34).
        task.updated = task.updated.max(wall);
        let outcome = RecordedOutcome::Here(outcome);
        let owner = self.owners.get_mut(task.owner);
        owner.live -= 1;
        owner.stored_bytes += outcome.bytes();
        task.end = Some(Box::new(TaskEnd { message, outcome }));
        Some((task, before))
    }

    /// Deletes a task; gives it back with whose it was.
    pub(crate) fn remove(&mut self, id: TaskId) -> Option<(Task, Identity)> {
        let task = self.by_id.remove(&id)?;
        self.counts[task.counted as usize] -= 1;
        let owner = self.owners.get_mut(task.owner);
        owner.order.remove(&task.position);
        owner.live -= usize::from(!task.status.is_terminal());
        owner.stored_bytes -= task.outcome().bytes();
        if !owner.order.is_empty() {
            let identity = owner.identity.clone();
            return Some((task, identity));
        }
        let TaskOwner { identity, .. } = self.owners.remove(task.owner);
        self.by_identity.remove(&identity);
        Some((task, identity))
    }

    /// The records in the store and the unpersisted ones.
    pub(crate) const fn writes(&self) -> &PendingWrites {
        &self.writes
    }

    /// As [`Tasks::writes`], for the engine's side of the store (`store.rs`).
    pub(super) const fn writes_mut(&mut self) -> &mut PendingWrites {
        &mut self.writes
    }

    /// A task is being created: nothing of it was handed to the store yet. With `at_turn` that is
    /// done at the end of the next turn.
    pub(super) fn begin_creation(&mut self, id: TaskId, at_turn: bool) {
        let Some(task) = self.by_id.get_mut(&id) else { return };
        task.persist(DiskInput::Created);
        if at_turn {
            self.writes.note_fresh(id);
        }
    }

    /// Gives the write a number that creates a task.
    pub(super) fn number_creation(&mut self, key: RecordKey, written: RecordPart) -> Seq {
        let seq = self.writes.number(Some(key));
        if let Some(task) = self.by_id.get_mut(&key.task) {
            task.persist(DiskInput::CreationSent(seq, written));
        }
        seq
    }

    /// Nothing of a task has to be on disk before it exists for its peers. Returns the write that
    /// had its end as well, if there was one.
    pub(super) fn settle_creation(&mut self, id: TaskId) -> Option<Seq> {
        let task = self.by_id.get_mut(&id)?;
        let whole = task.disk().whole();
        task.persist(DiskInput::Stored);
        whole
    }

    /// A task has ended. Its end was sent with this write, or the store is owed it.
    pub(super) fn note_end_sent(&mut self, id: TaskId, sent: Option<Seq>, before: LastVisible) {
        if let Some(task) = self.by_id.get_mut(&id) {
            task.persist(match sent {
                Some(seq) => DiskInput::EndSent(seq, before),
                None => DiskInput::EndOwed(before),
            });
        }
    }

    /// All there is of a task is on disk.
    pub(super) fn settle_end(&mut self, id: TaskId) {
        if let Some(task) = self.by_id.get_mut(&id) {
            task.persist(DiskInput::Stored);
        }
    }

    /// An end that the store was owed was sent again.
    pub(super) fn note_sent_again(&mut self, id: TaskId, seq: Seq) {
        if let Some(task) = self.by_id.get_mut(&id) {
            if let Some(changing) = task.aside.some().and_then(|it| it.changing.as_mut()) {
                changing.seq = Some(seq);
            }
            task.persist(DiskInput::SentAgain(seq));
        }
    }

    /// Takes out the next write up to `upto`, which is on disk.
    pub(super) fn take_stored(&mut self, upto: Seq) -> Option<Stored> {
        let (seq, key) = self.writes.pop_upto(upto)?;
        let id = match key {
            Some(key) => key.task,
            None => return Some(Stored::Nothing),
        };
        let task = self.by_id.get_mut(&id);
        let task = task.filter(|task| task.disk().awaits(seq) || task.is_changing(seq));
        Some(match task {
            Some(task) if task.is_changing(seq) => {
                task.aside.forget_change();
                self.recount(id);
                Stored::Change(id)
            }
            Some(task) if task.is_being_created() => Stored::Creation(id),
            Some(task) => {
                task.persist(DiskInput::Stored);
                Stored::End(id)
            }
            None => Stored::Nothing,
        })
    }

    /// Takes out a write that was not carried out; `None` if there is no such write.
    pub(super) fn take_unstored(&mut self, seq: Seq) -> Option<NotStored> {
        let Some(key) = self.writes.take(seq)? else { return Some(NotStored::Probe) };
        let id = key.task;
        Some(match self.by_id.get_mut(&id) {
            Some(task) if task.is_changing(seq) => {
                if let Some(changing) = &mut task.aside.changing {
                    changing.seq = None;
                }
                self.writes.owe(key);
                NotStored::Change
            }
            Some(task) if !task.disk().awaits(seq) => NotStored::Superseded,
            Some(task) if task.is_being_created() => NotStored::Creation(id),
            Some(task) if task.is_visiting() => NotStored::Visit(id),
            Some(task) => {
                task.persist(DiskInput::NotStored);
                self.writes.owe(key);
                NotStored::End(id)
            }
            None => {
                self.writes.owe(key);
                NotStored::Removal
            }
        })
    }

    /// Gives the load a number that is to bring the outcome of a task, unless one is on its way or
    /// the outcome is here.
    pub(super) fn number_load(&mut self, id: TaskId) -> Option<(LoadId, RecordKey)> {
        let task = self.by_id.get_mut(&id)?;
        let is_due =
            task.aside.load.is_none() && matches!(task.outcome(), RecordedOutcome::Stored { .. });
        let load = is_due.then(|| self.writes.number_load(id))?;
        task.aside.load = Some(load);
        Some((load, task.record_key()))
    }

    /// The page after `cursor`, oldest first, so that tasks created meanwhile come later and
    /// none comes twice (TSK-19, TSK-20). `None` for a cursor that is not ours (TSK-22).
    pub(crate) fn page(
        &self,
        viewer: &Identity,
        cursor: Option<&str>,
        size: usize,
    ) -> Option<TaskPage> {
        let after = match cursor {
            None => 0,
            Some(cursor) => self.read_cursor(viewer, cursor)?,
        };
        let mut page = TaskPage { tasks: Vec::new(), next: None };
        let Some(owner) = self.owner_named(viewer) else { return Some(page) };
        let mut last = after;
        // Tasks that are being created come last, so that none is passed over.
        let tasks = owner.order.range(after..).map(|(at, place)| (at, self.by_id.at(*place)));
        let exist = tasks.filter(|(_, task)| !task.is_being_created());
        for (position, task) in exist {
            if page.tasks.len() == size {
                page.next = Some(self.write_cursor(viewer, last));
                break;
            }
            page.tasks.push(task.id);
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
        for (identity, place) in &self.by_identity {
            let owner = self.owners.get(*place);
            assert_eq!(owner.identity, *identity, "an owner is found by name");
            assert!(!owner.order.is_empty(), "an owner without tasks is forgotten");
            let tasks = || owner.order.values().map(|place| self.by_id.at(*place));
            assert!(tasks().all(|task| task.owner == *place), "a list holds one's own (TSK-39)");
            let ordered = |(at, place): (&u64, &SlabPlace)| self.by_id.at(*place).position == *at;
            assert!(owner.order.iter().all(ordered), "what is listed exists (TSK-21)");
            assert_eq!(tasks().filter(|t| !t.status.is_terminal()).count(), owner.live);
            assert_eq!(
                tasks().map(|task| task.outcome().bytes()).sum::<usize>(),
                owner.stored_bytes
            );
            listed += owner.order.len();
        }
        assert_eq!(listed, self.by_id.len(), "what exists is listed (TSK-21)");
        assert_eq!(self.owners.len(), self.by_identity.len(), "an owner is forgotten whole");
        self.check_counts();
        for (id, task) in &self.by_id {
            assert!(task.updated >= task.created, "{id} was changed before it was made");
            assert_eq!(
                task.status.is_terminal(),
                !task.outcome().is_open(),
                "{id}: an end, an outcome"
            );
            assert!(
                task.timer.is_some() || task.is_being_created() || task.is_visiting(),
                "{id} will be deleted one day"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Tasks {
        Tasks::new(Uuid::from_u128(7), Seed::default(), false, false)
    }

    fn add(tasks: &mut Tasks, number: u128, owner: &Identity) -> TaskId {
        let id = TaskId::new(Uuid::from_u128(number));
        let now = Now::default();
        let job = (JobId::new(1), Arc::from("tool"));
        tasks.insert(id, owner, now, Duration::from_secs(1), job, None);
        id
    }

    /// TSK-19, TSK-20: exact page boundaries, and nothing twice while the list changes.
    #[test]
    fn pages() {
        let owner = Identity::User(1);
        let mut tasks = table();
        let empty = tasks.page(&owner, None, 2).unwrap();
        assert!(empty.tasks.is_empty() && empty.next.is_none());
        let ids: Vec<_> = (0..5).map(|n| add(&mut tasks, n, &owner)).collect();
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
            Tasks::new(Uuid::from_u128(8), Seed::default(), false, false)
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
