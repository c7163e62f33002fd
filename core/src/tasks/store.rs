//! The store: records handed to it, its reports, and the tasks restored from it after a restart
//! (DUR-01).
//!
//! A task's record is written when it is created and when it has ended. Peers see neither before it
//! is on disk ([`persistence`](crate::tasks::persistence)).

use alloc::vec::Vec;
use core::time::Duration;

use crate::action::{Action, AuditEvent};
use crate::collections::timer_queue::Timer;
use crate::engine::Engine;
use crate::ids::TaskId;
use crate::jobs::job::JobState;
use crate::outbox::Outbox;
use crate::outbox::requests::Settled;
use crate::reason::StopReason;
use crate::rpc::error::{ErrorObject, code};
use crate::tasks::creation::not_created;
use crate::tasks::durable::{
    LoadId, RecordKey, RecordedOutcome, Seq, StoreWrite, TaskOutcome, TaskRecord, Unstored,
};
use crate::tasks::machine::TaskMachine;
use crate::tasks::persistence::{
    DiskState, LastVisible, RecordPart, StoreStep, store_error, untold,
};
use crate::tasks::questions;
use crate::tasks::task::{Change, NotStored, Stored, Task, Tasks};

/// Status message of a task that ran when the process went down.
const INTERRUPTED: &str = "interrupted: the daemon was restarted while it ran";

impl TaskMachine<'_> {
    // --------------------------------------------------------------------- to the store

    /// A task has ended. Requests that wait for it are answered once the store has it; without,
    /// now. A task that no peer may know of yet ends for others after its creation.
    pub(crate) fn store_end(&mut self, id: TaskId, before: LastVisible) {
        let Some(task) = self.tasks.get(id) else { return };
        if task.is_being_created() {
            return self.tasks.recount(id);
        }
        if self.tasks.writes().is_on() {
            let sent = self.tasks.hand_over(
                self.outbox,
                (self.jobs, self.timers, self.now),
                task.record_key(),
            );
            self.tasks.note_end_sent(id, sent, before);
        }
        self.publish_end(id);
    }

    /// A task is gone.
    pub(crate) fn store_removal(&mut self, key: RecordKey) {
        if self.tasks.writes().is_on() {
            self.tasks.hand_over(self.outbox, (self.jobs, self.timers, self.now), key);
        }
    }

    // --------------------------------------------------------------------- from the store

    /// Answers the requests that wait for writes up to this one, or for this one alone, which failed.
    pub(super) fn answer_written(&mut self, upto: Seq, failed: Option<Unstored>) {
        self.lookups.note_told(upto, failed.is_some());
        if let Some((why, (lookup, claimed))) =
            failed.and_then(|why| Some((why, self.lookups.take_claim(upto)?)))
        {
            // Whether it was claimed is unknown.
            self.keyed.give_back(Some(claimed));
            if let Some((reply, _)) = self.lookups.take_request(self.outbox, lookup) {
                let conn = reply.conn;
                self.outbox.fail(reply, &untold(why));
                self.outbox.close_if_finished(conn);
            }
        }
        for lookup in self.lookups.written(upto, failed.is_some()) {
            let Some((conn, request)) = self.lookups.take(lookup) else { continue };
            let Some(connection) = self.outbox.connection_mut(conn) else { continue };
            let Some(reply) = connection.requests.settle(&request, Settled::Lookup(lookup)) else {
                continue;
            };
            match failed {
                Some(why) => self.outbox.fail(reply, &untold(why)),
                None => self.upstreams.answer(self.outbox, reply, |json| _ = json.raw("{}")),
            }
            self.outbox.close_if_finished(conn);
        }
    }

    pub(crate) fn on_durable(&mut self, upto: Seq) {
        while let Some(stored) = self.tasks.take_stored(upto) {
            match stored {
                Stored::Creation(id) => self.bring_to_life(id),
                Stored::End(id) => self.publish_end(id),
                Stored::Change(id) => {
                    let creator = self.tasks.get(id).and_then(|task| task.creator);
                    self.news().announce(creator, id);
                }
                Stored::Nothing => {}
            }
        }
        self.answer_written(upto, None);
        self.go_on_trying();
    }

    pub(crate) fn on_unstored(&mut self, seq: Seq, why: Unstored) {
        self.answer_written(seq, Some(why));
        let Some(not_stored) = self.tasks.take_unstored(seq) else {
            self.outbox.counters_mut().late_reports += 1;
            return;
        };
        self.note_trouble(why);
        match not_stored {
            NotStored::Probe => return self.go_on_trying(),
            // The result of the write is unknown: the record is deleted to be sure.
            NotStored::Creation(id) => {
                self.outbox.counters_mut().unstored += 1;
                self.abandon_creation(id, &not_created(why), StopReason::Unstored);
            }
            NotStored::Visit(id) => {
                self.outbox.counters_mut().unstored += 1;
                let waiters = self.tasks.revive(id);
                self.fail_waiters(id, waiters, &untold(why));
                self.part(id);
            }
            NotStored::End(id) => {
                self.outbox.counters_mut().unstored += 1;
                self.publish_end(id);
            }
            NotStored::Change | NotStored::Removal | NotStored::Superseded => {
                self.outbox.counters_mut().unstored += 1;
            }
        }
        self.go_on_trying();
    }

    /// Takes note that the store would not take a write. It is tried again after a rest.
    pub(crate) fn on_store_failed(&mut self, why: Unstored) {
        if self.tasks.writes().is_on() {
            self.note_trouble(why);
        }
    }

    /// The store did not take a write.
    fn note_trouble(&mut self, why: Unstored) {
        if self.tasks.writes_mut().fail(why) {
            self.rest(false);
            self.outbox.note(AuditEvent::StoreFailed { why });
        }
    }

    /// Stops writes to the store for a while, perhaps except those of existing tasks.
    fn rest(&mut self, takes_owed: bool) {
        let at = self.now.at + self.settings.tasks.store_retry;
        if let Some(timer) = self.tasks.writes_mut().rest(takes_owed) {
            self.timers.arm(timer, Timer::Store, at);
        }
    }

    pub(crate) fn on_store_timer(&mut self) {
        self.try_store();
    }

    /// Hands the store the unpersisted records in parts, and then asks whether a new task would
    /// be taken: one that takes records of existing tasks may have no room for that.
    fn try_store(&mut self) {
        let mut last = None;
        for (id, key) in self.tasks.writes_mut().take_owed() {
            let seq =
                self.tasks.send_to_store(self.outbox, (self.jobs, self.timers, self.now), key);
            last = Some(seq);
            self.tasks.note_sent_again(id, seq);
        }
        let probes = last.is_none();
        let last = last.unwrap_or_else(|| {
            let seq = self.tasks.writes_mut().number(None);
            self.outbox.store(seq, StoreWrite::Probe);
            seq
        });
        self.tasks.writes_mut().begin_try(last, probes);
    }

    /// A try may be over: the next follows, at once when it went well and not everything was
    /// handed over.
    fn go_on_trying(&mut self) {
        match self.tasks.writes_mut().next_step() {
            StoreStep::Wait => {}
            StoreStep::Rest { takes_owed } => self.rest(takes_owed),
            StoreStep::Try => self.try_store(),
            StoreStep::Recovered => {
                self.outbox.note(AuditEvent::StoreRecovered);
                let untold = self.lookups.take_untold();
                untold.into_iter().for_each(|write| self.tell_table(write));
            }
        }
    }

    /// The process is about to end: this is the last try to write the unpersisted records.
    pub(crate) fn hurry_store(&mut self) {
        if let Some(timer) = self.tasks.writes_mut().rest_timer() {
            self.timers.disarm(timer, Timer::Store);
            self.try_store();
        }
    }

    // --------------------------------------------------------------------- results

    pub(crate) fn on_loaded(&mut self, load: LoadId, outcome: Option<TaskOutcome>) {
        let Some(id) = self.tasks.writes_mut().take_load(load) else {
            self.outbox.counters_mut().late_reports += 1;
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
                self.fail_waiters(id, waiters, &store_error(Unstored::Broken, NOT_READ));
            }
        }
    }

    // --------------------------------------------------------------------- a shared table

    /// Forgets a task that the table has, unless a request here waits for it: then the table tells of
    /// its changes.
    pub(crate) fn part(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id).filter(|_| self.tasks.is_shared()) else { return };
        let ended = task.status().is_terminal();
        if !task.is_settled() || !(ended || task.is_visiting()) || self.lookups.held.contains(&id) {
            return;
        }
        let awaited = !task.aside.waiters.is_empty() || !task.aside.listeners.is_empty();
        if awaited {
            // A look may have seen the end first, without the outcome that a subscription is told.
            let over = ended && self.tasks.is_tellable(id);
            let watched = self.lookups.awaited.entry(id).or_insert(false);
            if !over && !core::mem::replace(watched, true) {
                self.tell_table(StoreWrite::Watch(id));
            }
            return;
        }
        if let Some((mut task, _)) = self.tasks.remove(id) {
            self.timers.disarm(&mut task.timer, Timer::Task(id));
        }
        self.keyed.part_with_task(id);
        questions::offer(self.outbox, (self.outgoing, self.timers), self.tasks, id);
        if self.lookups.awaited.remove(&id) == Some(true) {
            self.tell_table(StoreWrite::Unwatch(id));
        }
    }

    /// Takes no further work from now on; answers about the work that there is go on.
    pub(crate) fn on_retire(&mut self) {
        if !core::mem::replace(self.retires, true) && self.tasks.is_shared() {
            self.tell_table(StoreWrite::Retire);
        }
    }

    /// Tells the table something that is no record; again after an outage of it.
    pub(super) fn tell_table(&mut self, write: StoreWrite) {
        self.lookups.tell(self.outbox, self.tasks, write);
    }

    /// Has the table watch the tasks again that requests here wait for, and know that this engine
    /// drains: it is another member.
    pub(super) fn watch_again(&mut self) {
        let lives = |id: &TaskId| self.tasks.get(*id).is_some_and(|it| !it.status().is_terminal());
        let watched: Vec<TaskId> = self.lookups.watched().filter(lives).collect();
        watched.into_iter().for_each(|id| self.tell_table(StoreWrite::Watch(id)));
        if *self.retires {
            self.tell_table(StoreWrite::Retire);
        }
    }

    // --------------------------------------------------------------------- restart

    /// A task from before a restart. One whose work was cut off has failed.
    pub(crate) fn on_restored(&mut self, record: TaskRecord) {
        let id = record.id;
        // Whatever becomes of it here, its place is the store's until that has removed it, which
        // may take several attempts.
        self.tasks.pass_over(record.position);
        if self.tasks.contains(id) {
            self.outbox.counters_mut().late_reports += 1;
            return;
        }
        // The wall clock is all there is to tell how long we were gone, and it may have been set.
        let most = record.ttl.max(self.settings.tasks.late_result);
        let left = record.expires.since(self.now.wall).min(most);
        if left == Duration::ZERO {
            self.outbox.counters_mut().tasks_expired += 1;
            return self.store_removal(record.key());
        }
        let task = self.tasks.restore(record, self.now);
        let ended = task.status().is_terminal();
        self.timers.arm(&mut task.timer, Timer::Task(id), self.now.at + left);
        if ended {
            self.tasks.drop_copy(self.outbox, id);
        } else {
            let error = ErrorObject::new(code::INTERRUPTED, INTERRUPTED);
            self.end_task(id, Change::Fail, Some(INTERRUPTED.into()), Err(error));
        }
    }
}

impl Tasks {
    /// Gives up the copy of a large result that is in the store as well, unless a request still
    /// waits for it, or a subscription whose peer reads slowly.
    pub(crate) fn drop_copy(&mut self, outbox: &Outbox, id: TaskId) {
        // Those of a shared table are forgotten whole.
        if !self.writes().is_on() || self.is_shared() {
            return;
        }
        let max = outbox.settings().limits.resident_result_bytes;
        let Some(task) = self.get(id) else { return };
        let bytes = task.outcome().bytes();
        let large = bytes > max && matches!(task.outcome(), RecordedOutcome::Here(_));
        if !large
            || !task.is_settled()
            || !task.aside.waiters.is_empty()
            || outbox.has_subscription_behind(id, task)
        {
            return;
        }
        if let Some(task) = self.get_mut(id) {
            task.keep(RecordedOutcome::Stored { bytes });
        }
    }

    /// Asks for a result that is in the store alone.
    pub(crate) fn load(&mut self, outbox: &mut Outbox, id: TaskId) {
        if let Some((load, key)) = self.number_load(id) {
            outbox.push(Action::Load { load, key });
        }
    }
}

const NOT_READ: &str = "what came of the task could not be read: ask again";

/// Every agreement between tasks, jobs, waiters and the store.
///
/// # Panics
/// When one is broken.
pub(crate) fn check(engine: &Engine) {
    let writes = engine.tasks.writes();
    let mut held_jobs = 0;
    for (id, task) in engine.tasks.iter() {
        let held = task.job.and_then(|job| engine.jobs.get(job));
        if held.is_some_and(|job| matches!(job.state(), JobState::Held(_))) {
            held_jobs += 1;
            assert!(task.is_being_created(), "{id}: held while created");
        }
        let ended = task.status().is_terminal();
        match task.disk() {
            DiskState::Settled => {
                let waits = !ended || task.aside.load.is_some();
                assert!(waits || task.aside.waiters.is_empty(), "{id} keeps somebody waiting");
            }
            DiskState::Fresh => {
                assert!(task.timer.is_none() && task.aside.listeners.is_empty());
                assert!(writes.is_fresh(*id), "{id} is never written");
            }
            DiskState::Creating(seq, written) => {
                assert!(task.timer.is_none() && task.aside.listeners.is_empty());
                assert!(ended || *written == RecordPart::Begun, "{id} has an outcome on disk only");
                let sent = writes.key_of(*seq);
                assert_eq!(sent, Some(task.record_key()), "{id} waits for no write");
            }
            DiskState::Ending(seq, before) => {
                assert!(ended && !before.status.is_terminal(), "{id} ends once");
                let sent = writes.key_of(*seq);
                assert_eq!(sent, Some(task.record_key()), "{id} waits for no write");
            }
            DiskState::Owed(before) => {
                assert!(ended && !before.status.is_terminal(), "{id} ends once");
                assert!(writes.owes(*id), "{id} is never written");
                assert!(task.aside.waiters.is_empty(), "{id} keeps somebody waiting for ever");
            }
        }
        if let Some(load) = task.aside.load {
            assert!(writes.is_load_of(load, *id), "{id} waits for no load");
            assert!(matches!(task.outcome(), RecordedOutcome::Stored { .. }));
        }
    }
    assert_eq!(held_jobs, engine.jobs.held(), "jobs that wait for the disk are counted");
    writes.check(|id| {
        let is_owed = |task: &Task| matches!(task.disk(), DiskState::Owed(_)) || task.owes_change();
        engine.tasks.get(id).is_none_or(is_owed)
    });
}

/// Whether the store's timer is armed.
pub(crate) fn is_armed(engine: &Engine) -> bool {
    engine.tasks.writes().is_armed()
}
