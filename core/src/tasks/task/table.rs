//! Tasks as a table has them that several engines share (FLT-02).

use alloc::boxed::Box;

use super::record::{Changing, QUEUED, Task, TaskEnd, nanos};
use super::{Status, Tasks};
use crate::collections::lazy_box::LazyBox;
use crate::collections::small_set::SmallSet;
use crate::ids::{ConnId, JobId, RequestId, TaskId};
use crate::tasks::durable::{RecordedOutcome, Seq, TaskRecord};
use crate::tasks::persistence::{DiskInput, LastVisible};
use crate::time::{Instant, Now, Wall};

impl Tasks {
    /// Takes a record of the table in, for the requests that are answered with it. Its id must be free.
    pub(crate) fn visit(&mut self, record: TaskRecord, now: Now) {
        let owner = self.owner_place(&record.owner);
        let position = self.new_position();
        let mut task = Task {
            id: record.id,
            owner,
            status: Status::Working,
            counted: Status::Working,
            queued: false,
            overdue: false,
            aside: LazyBox::default(),
            created: record.created,
            updated: record.created,
            ttl: nanos(record.ttl),
            next_poll: Instant::ZERO,
            end: None,
            position,
            created_at: now.at,
            tool: record.tool.clone(),
            job: None,
            creator: None,
            timer: None,
        };
        task.aside.visiting = true;
        take_state(&mut task, record);
        task.counted = task.status;
        self.put(task);
    }

    /// Brings a visiting task to its state in the table; whether that changed it.
    pub(crate) fn visit_again(&mut self, record: TaskRecord) -> bool {
        // FLT-02: a look from before its end is older than that.
        let lives = |task: &&mut Task| task.is_visiting() && !task.status.is_terminal();
        let Some(task) = self.by_id.get_mut(&record.id).filter(lives) else { return false };
        let changes = task.status != record.status
            || task.aside.asks != record.asks
            || task.message() != record.status_message.as_deref().filter(|_| !task.queued);
        let id = record.id;
        take_state(task, record);
        self.recount(id);
        changes
    }

    /// A task of this engine that has not ended is in this state in the table: the state that it has here,
    /// or the one before, while the write is on its way.
    pub(crate) fn meet_own(&mut self, record: &TaskRecord) {
        let own = |task: &&mut Task| !task.is_visiting() && task.status == record.status;
        if let Some(task) = self.by_id.get_mut(&record.id).filter(own)
            && let Some(aside) = task.aside.some()
            && let Some(changing) = &mut aside.changing
        {
            changing.before.status = record.status;
            self.recount(record.id);
        }
    }

    /// A task has changed without an end. It was sent with this write, or the store is owed it.
    pub(crate) fn note_change_sent(&mut self, id: TaskId, seq: Option<Seq>, before: LastVisible) {
        if let Some(task) = self.by_id.get_mut(&id) {
            task.aside.changing = Some(Box::new(Changing { seq, before }));
            self.recount(id);
        }
    }

    /// A task of this engine was written at these times, by the clock of the table.
    pub(crate) fn stamp(&mut self, id: TaskId, stamp: Wall, creates: bool) {
        let Some(task) = self.by_id.get_mut(&id) else { return };
        if creates {
            task.created = stamp;
        }
        task.updated = stamp.max(task.created);
    }

    /// Gives a task the end that it has in the table, in place of the one that it may have here: no peer
    /// was told of that. Returns its job; `None` where nothing changes.
    pub(crate) fn adopt(&mut self, record: TaskRecord) -> Option<Option<JobId>> {
        let id = record.id;
        let task = self.by_id.get_mut(&id)?;
        let told = task.is_settled() && task.status.is_terminal();
        if told || task.is_being_created() || !record.status.is_terminal() {
            return None;
        }
        let owner = self.owners.get_mut(task.owner);
        owner.live -= usize::from(!task.status.is_terminal());
        owner.stored_bytes -= task.outcome().bytes();
        owner.stored_bytes += record.outcome.bytes();
        take_state(task, record);
        task.aside.forget_change();
        task.persist(DiskInput::Stored);
        let job = task.job;
        self.writes.forgive(id);
        Some(job)
    }

    /// The table did not take the end of a task that another engine runs, which goes on. Returns the requests
    /// that wait for it.
    pub(crate) fn revive(&mut self, id: TaskId) -> SmallSet<(ConnId, RequestId)> {
        let Some(task) = self.by_id.get_mut(&id) else { return SmallSet::default() };
        let owner = self.owners.get_mut(task.owner);
        owner.live += 1;
        owner.stored_bytes -= task.outcome().bytes();
        let LastVisible { status, queued, updated } = task.last_visible();
        (task.status, task.queued, task.updated, task.end) = (status, queued, updated, None);
        let waiters = core::mem::take(&mut task.aside.waiters);
        task.persist(DiskInput::Stored);
        self.recount(id);
        waiters
    }

    /// Keeps the outcome that a record has, where only its size is known here; whether that is so.
    pub(crate) fn take_outcome(&mut self, record: TaskRecord) -> bool {
        let Some(task) = self.by_id.get_mut(&record.id) else { return false };
        let is_known = !matches!(record.outcome, RecordedOutcome::Stored { .. });
        let takes = is_known && matches!(task.outcome(), RecordedOutcome::Stored { .. });
        if takes {
            let owner = self.owners.get_mut(task.owner);
            owner.stored_bytes -= task.outcome().bytes();
            owner.stored_bytes += record.outcome.bytes();
            task.keep(record.outcome);
            // One that is on its way is not needed any more.
            if let Some(aside) = task.aside.some() {
                aside.load = None;
            }
            task.aside.shrink();
        }
        takes
    }

    /// Whether a subscription may be told of a task: that depends on the outcome (EXT-03), which the next
    /// look at a shared table brings.
    pub(crate) fn is_tellable(&self, id: TaskId) -> bool {
        self.get(id).is_some_and(|task| {
            let is_partial = matches!(task.outcome(), RecordedOutcome::Stored { .. });
            task.is_settled() && !(self.shared && is_partial && task.status != Status::Cancelled)
        })
    }

    /// The task whose state becomes visible with this write.
    pub(crate) fn awaiting(&self, seq: Seq) -> Option<&Task> {
        let key = self.writes.key_of(seq)?;
        self.get(key.task).filter(|task| task.disk().awaits(seq) || task.is_changing(seq))
    }
}

/// Status, message, outcome and time of a record.
fn take_state(task: &mut Task, record: TaskRecord) {
    task.status = record.status;
    task.updated = record.updated.max(record.created);
    task.created = record.created;
    task.queued = false;
    task.aside.forget_line();
    if task.aside.asks != record.asks {
        task.aside.asks = record.asks;
    }
    if task.aside.work != record.work {
        task.aside.work = record.work;
    }
    if record.status.is_terminal() {
        let (message, outcome) = (record.status_message, record.outcome);
        task.end = Some(Box::new(TaskEnd { message, outcome }));
    } else if record.status_message.as_deref() == Some(QUEUED) {
        task.queued = true;
    } else if record.status_message.is_some() {
        task.aside.line = record.status_message;
    }
}
