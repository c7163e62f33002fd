//! How a task comes to be: handed to the store, known once it is on disk, or never (DUR-01).
//!
//! The job of a task waits until then. That of a tool which changes nothing begins meanwhile, and
//! its outcome by the next turn is written with the task: a short one takes one write
//! instead of two.

use alloc::collections::BTreeSet;

use crate::action::Cancel;
use crate::collections::timer_queue::Timer;
use crate::ids::{JobId, TaskId};
use crate::jobs::job::{Job, JobInput, JobState};
use crate::reason::StopReason;
use crate::rpc::error::ErrorObject;
use crate::tasks::durable::{Seq, StoreWrite, Unstored};
use crate::tasks::machine::TaskMachine;
use crate::tasks::methods::task_cancelled;
use crate::tasks::persistence::{DiskState, LastVisible, RecordPart, store_error};
use crate::tasks::questions;
use crate::tasks::status::Status;
use crate::tasks::task::{Aside, Change, Task, Tasks};

/// When the store is handed a new task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// At once.
    Now,
    /// When its job has had a turn to end, or has to wait.
    WithItsEnd,
}

/// Bytes of a result that is written with its task. A larger one follows it, as the end of a task
/// that was accepted, for which a store keeps room in reserve; for a creation it keeps none.
const WHOLE_BYTES_MAX: usize = 4096;
/// Tasks to be handed over that room is kept for.
const FRESH_KEPT: usize = 256;

/// Error for a call that cannot become a task, because of the store.
pub(crate) fn not_created(why: Unstored) -> ErrorObject {
    let consequence = "no task was created: free or repair it, then try again; calls that are no \
                       task go on";
    store_error(why, consequence)
}

impl TaskMachine<'_> {
    /// A task is being created. It is once the store has it; without a store, now.
    pub(crate) fn store_creation(&mut self, id: TaskId, hand_over: HandOver) {
        if !self.tasks.writes().is_on() {
            return self.bring_to_life(id);
        }
        self.tasks.begin_creation(id, hand_over == HandOver::WithItsEnd);
        if hand_over == HandOver::Now {
            self.hand_over_creation(id);
        }
    }

    /// Hands the store a task that it has nothing of yet, as it is now.
    fn hand_over_creation(&mut self, id: TaskId) {
        let fresh = |task: &&Task| matches!(task.disk(), DiskState::Fresh);
        let Some(task) = self.tasks.get(id).filter(fresh) else { return };
        if let Some(error) = self.tasks.no_creation() {
            return self.abandon_creation(id, &error, StopReason::Unstored);
        }
        let whole = task.status().is_terminal() && task.outcome().bytes() <= WHOLE_BYTES_MAX;
        let written = if whole { RecordPart::Whole } else { RecordPart::Begun };
        let (key, record) = (
            task.record_key(),
            self.tasks.record((self.jobs, self.timers, self.now), (id, task), written),
        );
        let seq = self.tasks.number_creation(key, written);
        self.outbox.store(seq, StoreWrite::New(record));
    }

    /// Hands over the tasks whose jobs have been begun, or of which nothing is left: they had a
    /// turn to end.
    pub(crate) fn hand_over_begun(&mut self) {
        self.hand_over_fresh(|state| !matches!(state, Some(JobState::Queued(_))));
    }

    /// Hands over the tasks whose jobs have to wait.
    pub(crate) fn hand_over_waiting(&mut self) {
        self.hand_over_fresh(|state| matches!(state, Some(JobState::Queued(_))));
    }

    fn hand_over_fresh(&mut self, is_due: fn(Option<&JobState>) -> bool) {
        if !self.tasks.writes().has_fresh() {
            return;
        }
        let mut fresh = self.tasks.writes_mut().take_fresh();
        fresh.retain(|id| {
            let job = self.tasks.get(*id).and_then(|task| task.job);
            let due = is_due(job.and_then(|job| self.jobs.get(job)).map(Job::state));
            if due {
                self.hand_over_creation(*id);
            }
            !due
        });
        // Room for a burst is given back.
        if fresh.is_empty() {
            fresh.shrink_to(FRESH_KEPT);
        }
        self.tasks.writes_mut().put_back_fresh(fresh);
    }

    /// A task exists: its request is answered, and its job may run, if it does not run already or
    /// has ended.
    pub(crate) fn bring_to_life(&mut self, id: TaskId) {
        let job = self.tasks.get(id).and_then(|task| task.job);
        let would_wait = job.is_some_and(|job| self.jobs.would_wait(job));
        let whole = self.tasks.settle_creation(id);
        let Some(task) = self.tasks.get_mut(id) else { return };
        self.outbox.counters_mut().tasks_created += 1;
        self.keyed.note_life(id);
        let due = task.created_at + task.ttl();
        self.timers.arm(&mut task.timer, Timer::Task(id), due);
        let (job, awaited) = (task.job, !task.aside.waiters.is_empty());
        let state = job.and_then(|job| self.jobs.get(job)).map(Job::state);
        let held = matches!(state, Some(JobState::Held(_)));
        // TSK-09: it begins as working even where it has to wait its turn.
        task.queued = held && would_wait || matches!(state, Some(JobState::Queued(_)));
        self.tasks.note_creation(self.outbox, self.jobs, id);
        let Some(job) = job.filter(|_| held) else { return self.tell_life(id, whole) };
        self.job_machine().advance_job(job, JobInput::Stored);
        if awaited {
            self.tell_waiters(id);
        }
    }

    /// A task exists whose job was begun before: its creator is told of its beginning, of the
    /// messages of the job, and of its end, one after the other (TSK-09, TSK-10). `whole` is the
    /// write that had all of it.
    fn tell_life(&mut self, id: TaskId, whole: Option<Seq>) {
        let Some(task) = self.tasks.get(id) else { return };
        let before = LastVisible { status: Status::Working, queued: false, updated: task.created };
        match whole {
            Some(_) => self.tasks.note_end_sent(id, whole, before),
            None if task.status().is_terminal() => self.store_end(id, before),
            None => {}
        }
        self.tell_waiters(id);
        self.tell_said(id);
        let Some(task) = self.tasks.get(id) else { return };
        if whole.is_some() {
            self.tasks.settle_end(id);
            self.publish_end(id);
        } else if let Some(job) = task.job
            && self.jobs.get(job).is_some_and(Job::needs_input)
            && self.news().change_task(id, Change::InputNeeded)
        {
            // TSK-28: questions from before the task existed are asked now.
            self.outgoing().offer_inputs(id);
        }
    }

    /// Sends its creator the messages of the job from before the task was visible.
    fn tell_said(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let (said, creator) = (task.aside.take_said(), task.creator);
        for message in said {
            if let Some(creator) = creator {
                self.outbox.send(creator, |json| {
                    json.bytes(&message);
                });
            }
        }
    }

    /// A task that no peer was told of is not created. A job that runs for it is stopped, as
    /// a job that could not become a task.
    pub(crate) fn abandon_creation(&mut self, id: TaskId, error: &ErrorObject, why: StopReason) {
        let Some(task) = self.tasks.remove(id) else { return };
        let (key, status) = (task.0.record_key(), task.0.status());
        let was_sent = !matches!(task.0.disk(), DiskState::Fresh);
        let (Task { job, mut aside, .. }, _) = task;
        let Aside { waiters, .. } = aside.take();
        self.keyed.leave_task(self.timers, self.outbox.keys_until(), id);
        if let Some(job) = job {
            self.abandon_job(job, why);
        }
        // A repeated call waits for word of the cancel, which now nothing can contradict.
        let cancelled = task_cancelled();
        let error = if status == Status::Cancelled { &cancelled } else { error };
        self.fail_waiters(id, waiters, error);
        if was_sent {
            self.store_removal(key);
        }
    }

    /// The receiver of a task does not want it now: the task is not created, unless another call
    /// is to be given it.
    pub(crate) fn abandon_unknown(&mut self, id: TaskId, cancel: Cancel) {
        let unknown = |task: &&Task| task.is_being_created() && task.aside.waiters.is_empty();
        let Some(task) = self.tasks.get(id).filter(unknown) else { return };
        if let Some(job) = task.job.and_then(|job| self.jobs.get_mut(job)) {
            job.note_cancel(cancel);
        }
        self.abandon_creation(id, &task_cancelled(), StopReason::Requested);
    }

    /// Forgets a task that is the table's, with an error for those that wait.
    pub(crate) fn lose(&mut self, id: TaskId, error: &ErrorObject) {
        let Some((mut task, _)) = self.tasks.remove(id) else { return };
        self.timers.disarm(&mut task.timer, Timer::Task(id));
        self.tasks.writes_mut().forgive(id);
        if self.lookups.awaited.remove(&id) == Some(true) {
            self.tell_table(StoreWrite::Unwatch(id));
        }
        let aside = task.aside.take();
        questions::offer(self.outbox, (self.outgoing, self.timers), self.tasks, id);
        self.keyed.leave_task(self.timers, self.outbox.keys_until(), id);
        self.outbox.forget_topic(id, aside.listeners);
        if let Some(job) = task.job {
            self.abandon_job(job, StopReason::Lapsed);
        }
        self.fail_waiters(id, aside.waiters, error);
    }

    fn abandon_job(&mut self, id: JobId, why: StopReason) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.task = None;
        if matches!(job.state(), JobState::Held(_)) {
            self.outbox.counters_mut().jobs_never_started += 1;
            self.job_machine().remove_job(id);
        } else {
            self.job_machine().release_job_claim(id, why);
        }
    }

    /// The daemon shuts down: tasks that are being created are dropped.
    pub(crate) fn abandon_creations(&mut self, error: &ErrorObject) {
        let creating = |(_, task): &(&TaskId, &Task)| task.is_being_created();
        let ids: BTreeSet<TaskId> = self.tasks.iter().filter(creating).map(|(id, _)| *id).collect();
        for id in ids {
            self.abandon_creation(id, error, StopReason::Shutdown);
        }
    }
}

impl Tasks {
    /// Why no task can be created at the moment, if so.
    pub(crate) fn no_creation(&self) -> Option<ErrorObject> {
        self.writes().outage().map(not_created)
    }
}
