//! The store: what is handed to it, what it says, and what comes back from it after a restart
//! (DUR-01).
//!
//! A task's record is written when it is created and when it has ended. Neither is told to
//! anybody before it is on disk; [`reveal`](super::reveal) sees to that.

use crate::tasks::persistence::store_error;
use alloc::boxed::Box;
use core::time::Duration;

use crate::action::{Action, AuditEvent};
use crate::collections::timer_queue::Timer;
use crate::engine::Engine;
use crate::ids::TaskId;
use crate::jobs::job::JobState;
use crate::reason::StopReason;
use crate::rpc::error::ErrorObject;
use crate::rpc::error::code;
use crate::tasks::creation::not_created;
use crate::tasks::durable::{
    LoadId, RecordKey, RecordedOutcome, Seq, StoreWrite, TaskOutcome, TaskRecord, Unstored,
};
use crate::tasks::persistence::{Durability, LastVisible, Outage, Phase, Written};
use crate::tasks::status::Status;
use crate::tasks::task::{Change, Task};

/// Status message of a task that ran when the process went down.
const INTERRUPTED: &str = "interrupted: the daemon was restarted while it ran";

impl Engine {
    // --------------------------------------------------------------------- to the store

    /// Hands a task to the store as it is now, or as gone; `None` when the store takes nothing at
    /// the moment and is owed it.
    fn hand_over(&mut self, key: RecordKey) -> Option<Seq> {
        if self.journal.is_shut() {
            self.journal.owe(key);
            return None;
        }
        Some(self.send_to_store(key))
    }

    fn send_to_store(&mut self, key: RecordKey) -> Seq {
        let write = match self.tasks.get(key.task) {
            Some(task) => StoreWrite::Put(self.record(key.task, task, Written::Whole)),
            None => StoreWrite::Delete(key),
        };
        self.order_write(write, Some(key))
    }

    pub(crate) fn order_write(&mut self, write: StoreWrite, key: Option<RecordKey>) -> Seq {
        let seq = self.journal.number(key);
        self.out.push(Action::Store { seq, write: Box::new(write) });
        seq
    }

    /// The record of a task: as it is, or as it began.
    pub(crate) fn record(&self, id: TaskId, task: &Task, written: Written) -> TaskRecord {
        // A task that is being created has no timer yet.
        let due = task.timer.map_or(task.created_at + task.ttl(), |armed| self.timers.due(armed));
        let (status, updated, status_message, outcome) = match written {
            Written::Begun => (Status::Working, task.created, None, RecordedOutcome::Open),
            Written::Whole => {
                let message = task.message().map(Into::into);
                (task.status, task.updated, message, task.outcome().clone())
            }
        };
        TaskRecord {
            id,
            owner: self.tasks.owner(task).clone(),
            position: task.position,
            tool: task.tool.clone(),
            status,
            status_message,
            created: task.created,
            updated,
            ttl: task.ttl(),
            expires: self.now.wall + (due - self.now.at),
            outcome,
        }
    }

    /// A task has ended. Requests that wait for it are answered once the store has it; without,
    /// now. A task that no peer may know of yet ends for others after its creation.
    pub(crate) fn store_end(&mut self, id: TaskId, before: LastVisible) {
        let Some(task) = self.tasks.get(id) else { return };
        if task.is_being_created() {
            return self.tasks.recount(id);
        }
        if self.journal.is_on() {
            let disk = match self.hand_over(task.record_key()) {
                Some(seq) => Durability::Ending(seq, before),
                None => Durability::Owed(before),
            };
            if let Some(task) = self.tasks.get_mut(id) {
                task.aside.disk = disk;
            }
        }
        self.publish_end(id);
    }

    /// A task is gone.
    pub(crate) fn store_removal(&mut self, key: RecordKey) {
        if self.journal.is_on() {
            self.hand_over(key);
        }
    }

    // --------------------------------------------------------------------- from the store

    pub(crate) fn on_durable(&mut self, upto: Seq) {
        while let Some((seq, key)) = self.journal.pop_upto(upto) {
            let Some(RecordKey { task: id, .. }) = key else { continue };
            let task = self.tasks.get_mut(id).filter(|task| task.aside.disk.awaits(seq));
            match task {
                Some(task) if task.is_being_created() => self.bring_to_life(id),
                Some(task) => {
                    task.aside.settle();
                    self.publish_end(id);
                }
                // It is gone, or written again since.
                None => {}
            }
        }
        self.go_on_trying();
    }

    pub(crate) fn on_unstored(&mut self, seq: Seq, why: Unstored) {
        let Some(key) = self.journal.sent.remove(&seq) else {
            self.counters.late_reports += 1;
            return;
        };
        self.note_trouble(why);
        let Some(key) = key else { return self.go_on_trying() };
        let id = key.task;
        self.counters.unstored += 1;
        let task = self.tasks.get_mut(id);
        match task.map(|task| (task.aside.disk.awaits(seq), task)) {
            Some((true, task)) if task.is_being_created() => {
                // What became of the write is not known: the record is deleted to be sure.
                self.abandon_creation(id, &not_created(why), StopReason::Unstored);
            }
            Some((true, task)) => {
                task.aside.disk = core::mem::take(&mut task.aside.disk).unstored();
                self.journal.owe(key);
                self.publish_end(id);
            }
            // A later write about the task says all there is to say.
            Some((false, _)) => {}
            None => self.journal.owe(key),
        }
        self.go_on_trying();
    }

    /// Takes note that the store would not take a write. It is tried again after a rest.
    pub(crate) fn on_store_failed(&mut self, why: Unstored) {
        if self.journal.is_on() {
            self.note_trouble(why);
        }
    }

    /// The store did not take a write.
    fn note_trouble(&mut self, why: Unstored) {
        match &mut self.journal.outage {
            Some(outage) => {
                outage.why = why;
                if let Phase::Trying { failed, .. } = &mut outage.phase {
                    *failed = true;
                }
            }
            None => {
                let phase = Phase::Resting { timer: None, takes_owed: false };
                self.journal.outage = Some(Outage { why, phase });
                self.rest(false);
                self.note(AuditEvent::StoreFailed { why });
            }
        }
    }

    /// Leaves the store alone for a while, perhaps but for what it is owed.
    fn rest(&mut self, takes_owed: bool) {
        let Some(outage) = &mut self.journal.outage else { return };
        let mut timer = None;
        let at = self.now.at + self.settings.tasks.store_retry;
        self.timers.arm(&mut timer, Timer::Store, at);
        outage.phase = Phase::Resting { timer, takes_owed };
    }

    pub(crate) fn on_store_timer(&mut self) {
        self.try_store();
    }

    /// Hands the store what it is owed, so much at once, and then asks whether a new task would be
    /// taken: one that takes what it is owed may have no room for that.
    fn try_store(&mut self) {
        let mut last = None;
        for (id, key) in self.journal.take_owed() {
            let seq = self.send_to_store(key);
            last = Some(seq);
            if let Some(task) = self.tasks.get_mut(id) {
                task.aside.disk = core::mem::take(&mut task.aside.disk).sent_again(seq);
            }
        }
        let probes = last.is_none();
        let last = last.unwrap_or_else(|| self.order_write(StoreWrite::Probe, None));
        if let Some(outage) = &mut self.journal.outage {
            outage.phase = Phase::Trying { last, failed: false, probes };
        }
    }

    /// A try may be over: the next follows, at once when it went well and not everything was
    /// handed over.
    fn go_on_trying(&mut self) {
        let Some(Outage { phase: Phase::Trying { last, failed, probes }, .. }) =
            self.journal.outage
        else {
            return;
        };
        let open = self.journal.sent.first_key_value().is_some_and(|(first, _)| *first <= last);
        match (open, failed) {
            (true, _) => {}
            (false, true) => self.rest(probes && self.journal.unpersisted.is_empty()),
            (false, false) if probes && self.journal.unpersisted.is_empty() => {
                self.journal.outage = None;
                self.note(AuditEvent::StoreRecovered);
            }
            (false, false) => self.try_store(),
        }
    }

    /// The process is about to end: what the store is owed is tried now or never.
    pub(crate) fn hurry_store(&mut self) {
        if let Some(Outage { phase: Phase::Resting { timer, .. }, .. }) = &mut self.journal.outage {
            self.timers.disarm(timer, Timer::Store);
            self.try_store();
        }
    }

    // --------------------------------------------------------------------- results

    /// Gives up the copy of a large result that is in the store as well, unless somebody is still
    /// to be told it: who waits, or listens and reads slowly.
    pub(crate) fn drop_copy(&mut self, id: TaskId) {
        if !self.journal.is_on() {
            return;
        }
        let max = self.settings.limits.resident_result_bytes;
        let Some(task) = self.tasks.get(id) else { return };
        let bytes = task.outcome().bytes();
        let large = bytes > max && matches!(task.outcome(), RecordedOutcome::Here(_));
        if !large
            || !task.is_settled()
            || !task.aside.waiters.is_empty()
            || self.somebody_is_behind(id, task)
        {
            return;
        }
        if let Some(task) = self.tasks.get_mut(id) {
            task.keep(RecordedOutcome::Stored { bytes });
        }
    }

    /// Asks for a result that is in the store alone.
    pub(crate) fn load(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if task.aside.load.is_none() && matches!(task.outcome(), RecordedOutcome::Stored { .. }) {
            let (load, key) = (self.journal.number_load(id), task.record_key());
            task.aside.load = Some(load);
            self.out.push(Action::Load { load, key });
        }
    }

    pub(crate) fn on_loaded(&mut self, load: LoadId, outcome: Option<TaskOutcome>) {
        let Some(id) = self.journal.loads.remove(&load) else {
            self.counters.late_reports += 1;
            return;
        };
        // It may have expired meanwhile, and its id may be another's by now (TSK-08).
        let task = self.tasks.get_mut(id).filter(|task| task.aside.load == Some(load));
        let Some(task) = task else { return };
        task.aside.load = None;
        match outcome {
            Some(outcome) => {
                let outcome = RecordedOutcome::Here(outcome);
                let kept = task.keep(outcome);
                self.tell_waiters(id);
                if let Some(task) = self.tasks.get_mut(id) {
                    task.keep(kept);
                }
            }
            None => {
                let waiters = core::mem::take(&mut task.aside.waiters);
                self.fail_waiters(waiters, &store_error(Unstored::Broken, NOT_READ));
            }
        }
    }

    // --------------------------------------------------------------------- restart

    /// A task from before a restart. One whose work was cut off has failed.
    pub(crate) fn on_restored(&mut self, record: TaskRecord) {
        let id = record.id;
        // Whatever becomes of it here, its place is the store's until that has removed it, which may
        // take several attempts.
        self.tasks.pass_over(record.position);
        if self.tasks.contains(id) {
            self.counters.late_reports += 1;
            return;
        }
        // The wall clock is all there is to tell how long we were gone, and it may have been set.
        let most = record.ttl.max(self.settings.tasks.late_result);
        let left = record.expires.since(self.now.wall).min(most);
        if left == Duration::ZERO {
            self.counters.tasks_expired += 1;
            return self.store_removal(record.key());
        }
        let task = self.tasks.restore(record, self.now);
        let ended = task.status.is_terminal();
        self.timers.arm(&mut task.timer, Timer::Task(id), self.now.at + left);
        if ended {
            self.drop_copy(id);
        } else {
            let error = ErrorObject::new(code::INTERRUPTED, INTERRUPTED);
            self.end_task(id, Change::Fail, Some(INTERRUPTED.into()), Err(error));
        }
    }
}

const NOT_TOLD: &str = "the task has changed and what it is now cannot be promised yet: ask again";
const NOT_READ: &str = "what came of the task could not be read: ask again";

/// Error for a request about a task whose end the store has not taken.
pub(crate) fn untold(why: Unstored) -> ErrorObject {
    store_error(why, NOT_TOLD)
}

/// Every agreement between tasks, jobs, waiters and the store.
///
/// # Panics
/// When one is broken.
pub(crate) fn check(engine: &Engine) {
    let journal = &engine.journal;
    let mut held_jobs = 0;
    for (id, task) in engine.tasks.iter() {
        let held = task.job.and_then(|job| engine.jobs.get(&job));
        if held.is_some_and(|job| matches!(job.state, JobState::Held(_))) {
            held_jobs += 1;
            assert!(task.is_being_created(), "{id}: held while created");
        }
        let ended = task.status.is_terminal();
        match &task.aside.disk {
            Durability::Settled => {
                let waits = !ended || task.aside.load.is_some();
                assert!(waits || task.aside.waiters.is_empty(), "{id} keeps somebody waiting");
            }
            Durability::Fresh => {
                assert!(task.timer.is_none() && task.aside.listeners.is_empty());
                assert!(journal.fresh.contains(id), "{id} is never written");
            }
            Durability::Creating(seq, written) => {
                assert!(task.timer.is_none() && task.aside.listeners.is_empty());
                assert!(ended || *written == Written::Begun, "{id} has an outcome on disk only");
                let sent = journal.sent.get(seq).copied().flatten();
                assert_eq!(sent, Some(task.record_key()), "{id} waits for no write");
            }
            Durability::Ending(seq, before) => {
                assert!(ended && !before.status.is_terminal(), "{id} ends once");
                let sent = journal.sent.get(seq).copied().flatten();
                assert_eq!(sent, Some(task.record_key()), "{id} waits for no write");
            }
            Durability::Owed(before) => {
                assert!(ended && !before.status.is_terminal(), "{id} ends once");
                assert!(journal.unpersisted.contains_key(id), "{id} is never written");
                assert!(task.aside.waiters.is_empty(), "{id} keeps somebody waiting for ever");
            }
        }
        if let Some(load) = task.aside.load {
            assert_eq!(journal.loads.get(&load), Some(id), "{id} waits for no load");
            assert!(matches!(task.outcome(), RecordedOutcome::Stored { .. }));
        }
    }
    assert_eq!(held_jobs, engine.held_jobs.len(), "jobs that wait for the disk are counted");
    for id in journal.unpersisted.keys() {
        let unpersisted =
            engine.tasks.get(*id).is_none_or(|task| matches!(task.aside.disk, Durability::Owed(_)));
        assert!(unpersisted && journal.outage.is_some(), "{id} is owed to a store that works");
    }
    match journal.outage.as_ref().map(|outage| outage.phase) {
        None => {}
        Some(Phase::Resting { timer, .. }) => assert!(timer.is_some(), "the store is given up"),
        Some(Phase::Trying { last, .. }) => {
            let open = journal.sent.first_key_value().is_some_and(|(first, _)| *first <= last);
            assert!(open, "the store is tried with nothing");
        }
    }
    let idle = journal.sent.is_empty() && journal.outage.is_none() && journal.loads.is_empty();
    assert!(journal.is_on() || idle, "there is no store");
}

/// Whether the store's timer is armed.
pub(crate) fn is_armed(engine: &Engine) -> bool {
    matches!(
        engine.journal.outage,
        Some(Outage { phase: Phase::Resting { timer: Some(_), .. }, .. })
    )
}
