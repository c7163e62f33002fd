//! The machine of jobs: starts, stops and removes them. It works on top of outgoing requests and the
//! gateway, and calls no method of the engine.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use crate::acp::cancel::end_grace;
use crate::action::{Action, AuditEvent, Receipt};
use crate::collections::det_map::Seed;
use crate::collections::timer_queue::{Timer, TimerQueue};
use crate::ids::{ConnId, JobId, TaskId};
use crate::jobs::Jobs;
use crate::jobs::job::{Job, JobEffect, JobInput, Purpose};
use crate::json::raw::Json;
use crate::lend::lend;
use crate::outbox::Outbox;
use crate::outgoing::OutgoingRequests;
use crate::outgoing::calls::OutgoingMachine;
use crate::reason::StopReason;
use crate::server::keyed_calls::KeyedCalls;
use crate::server::suspended_calls::SuspendedCalls;
use crate::settings::Settings;
use crate::tasks::task::Tasks;
use crate::time::{Instant, Now};
use crate::tool::StopStep;
use crate::upstream::gateway::Gateway;
use crate::upstream::table::Upstreams;

/// How long the rest of a job may outlive its first process before it is stopped.
const LINGER: Duration = Duration::from_millis(100);

/// Jobs that begin, are stopped and removed, with the leaves of the engine that they work on.
pub(crate) struct JobMachine<'a> {
    pub(crate) upstreams: &'a mut Upstreams,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) outgoing: &'a mut OutgoingRequests,
    pub(crate) timers: &'a mut TimerQueue,
    pub(crate) jobs: &'a mut Jobs,
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) suspended: &'a mut SuspendedCalls,
    pub(crate) keyed: &'a mut KeyedCalls,
    pub(crate) settings: &'a Arc<Settings>,
    pub(crate) now: Now,
    pub(crate) seed: Seed,
    /// Whether the daemon shuts down.
    pub(crate) drains: bool,
}

impl JobMachine<'_> {
    /// The gateway below, for relayed jobs.
    fn gateway(&mut self) -> Gateway<'_> {
        lend!(Gateway, self, self.drains)
    }

    /// The requests of a job.
    fn outgoing(&mut self) -> OutgoingMachine<'_> {
        lend!(OutgoingMachine, self, self.drains)
    }

    /// Applies an input to a job and carries out the consequence; false if it has no meaning for
    /// the job or its state.
    pub(crate) fn advance_job(&mut self, id: JobId, input: JobInput) -> bool {
        let Some(effect) = self.jobs.advance(id, input, self.now.at) else { return false };
        match effect {
            JobEffect::Ignored => return false,
            JobEffect::Enqueue => {}
            JobEffect::Run(arguments) => self.run(id, arguments),
            JobEffect::Linger => {
                if let Some(job) = self.jobs.get_mut(id) {
                    self.timers.arm(&mut job.timer, Timer::Job(id), self.now.at + LINGER);
                }
            }
            JobEffect::Drop => self.outbox.counters_mut().jobs_never_started += 1,
            JobEffect::Step { step, why, is_first: true } => {
                self.outgoing().cancel_asks(id);
                self.take_step(id, step, why);
            }
            JobEffect::Step { step, why, is_first: false } => {
                end_grace(self.outbox, self.jobs, id, why);
                self.take_step(id, step, why);
            }
        }
        true
    }

    /// Has the host run a job, which is noted as running.
    fn run(&mut self, id: JobId, arguments: Json) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if let Some(timeout) = job.tool.timeout {
            self.timers.arm(&mut job.timer, Timer::Job(id), self.now.at + timeout);
        }
        let task = job.task;
        let tool = Arc::clone(&job.tool);
        self.outbox.counters_mut().jobs_started += 1;
        // It runs now: the message of a task that had to wait says so no longer.
        if let Some(task) = task.and_then(|task| self.tasks.get_mut(task)) {
            task.queued = false;
        }
        if tool.route.is_some() {
            return self.gateway().begin_relayed(id, &arguments);
        }
        // A read-only tool has no side effect that could leak the id of a task that is not durable.
        let task = task.filter(|task| tool.read_only || self.tasks.is_visible(*task));
        self.outbox.push(Action::Start { job: id, tool, arguments, task });
    }

    /// Tells a job to stop; one that has not begun is removed.
    pub(crate) fn stop(&mut self, id: JobId, why: StopReason) {
        let begun = self.jobs.get(id).is_some_and(Job::has_begun);
        if self.advance_job(id, JobInput::Stop(why))
            && !begun
            && let Some(job) = self.remove_job(id)
        {
            self.tasks.note_receipt(&job, why, None);
            self.outbox.note(AuditEvent::Ceased(receipt(id, &job, why, None, self.now.at)));
        }
    }

    /// Stops a job whose outcome is no longer wanted.
    pub(crate) fn release_job_claim(&mut self, id: JobId, why: StopReason) {
        self.keyed.forget_job(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        self.timers.disarm(&mut job.orphan_timer, Timer::Orphan(id));
        if let Some(connection) = self.outbox.connection_mut(job.conn) {
            connection.held_progress.remove(&id);
        }
        // CAN-08, TSK-33: whatever the job still hands in or says has no receiver.
        if let Some(Purpose::Retry(state)) = self.jobs.release(id) {
            self.suspended.unsuspend(self.timers, state);
        }
        self.stop(id, why);
    }

    fn take_step(&mut self, id: JobId, step: StopStep, why: StopReason) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.tool.route.is_some() {
            self.timers.disarm(&mut job.timer, Timer::Job(id));
            return self.gateway().stop_relayed(id, why);
        }
        self.outbox.push(Action::Stop { job: id, step, why });
        match job.tool.stop_policy.after(step) {
            Some((wait, _)) => {
                self.timers.arm(&mut job.timer, Timer::Job(id), self.now.at + wait);
            }
            None => self.timers.disarm(&mut job.timer, Timer::Job(id)),
        }
    }

    /// The first process of a job is gone and others are not. They may be about to go as well, as
    /// the rest of a pipeline does; if not, they are stopped: they have no business left.
    pub(crate) fn on_lingering(&mut self, id: JobId) {
        if !self.advance_job(id, JobInput::MainExited) {
            self.outbox.counters_mut().late_reports += 1;
        }
    }

    /// Forgets a job: its place, its timer, its room.
    pub(crate) fn remove_job(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.get_mut(id)?;
        if !job.asks.is_empty() {
            self.outgoing().drop_asks(id);
            return self.remove_job(id);
        }
        self.timers.disarm(&mut job.timer, Timer::Job(id));
        self.timers.disarm(&mut job.orphan_timer, Timer::Orphan(id));
        if let Some(progress) = job.progress.some() {
            self.timers.disarm(&mut progress.heartbeat, Timer::Heartbeat(id));
        }
        // Of a job that has told nothing there is nothing to hold back.
        if job.progress.latest.is_some()
            && let Some(connection) = self.outbox.connection_mut(job.conn)
        {
            connection.held_progress.remove(&id);
        }
        let (task, conn) = (job.task, job.conn);
        self.free_task(task, id, conn);
        // Last, so that it is moved but once.
        self.jobs.remove(id)
    }

    /// A task has no job any more.
    pub(crate) fn free_task(&mut self, task: Option<TaskId>, id: JobId, conn: ConnId) {
        // TSK-08: a generator may give the id of a task that expired while its job was stopping.
        if let Some(task) = task.and_then(|task| self.tasks.get_mut(task))
            && task.job == Some(id)
        {
            task.job = None;
            task.aside.forget_line();
            if task.is_being_created() {
                task.aside.maker = Some((id, conn));
            }
        }
    }
}

/// The receipt of a job that was told to stop.
pub(crate) fn receipt(
    id: JobId,
    job: &Job,
    why: StopReason,
    stage: Option<StopStep>,
    since: Instant,
) -> Box<Receipt> {
    Box::new(Receipt {
        job: id,
        tool: job.tool.name.clone(),
        owner: job.owner.clone(),
        conn: job.conn,
        task: job.task,
        why,
        cancel: job.cancel(),
        stage,
        since,
        trace: job.trace().cloned(),
        upstream: None,
    })
}
