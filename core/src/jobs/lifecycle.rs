//! Jobs: starting, hearing from, stopping and ending them.

use crate::tool::KILL_AGAIN;
use alloc::vec::Vec;
use core::time::Duration;

use alloc::boxed::Box;
use alloc::string::String;

use crate::acp::cancel::{answer_of_service, end_grace};
use crate::action::{Action, AuditEvent, Receipt};
use crate::collections::timer_queue::Timer;
use crate::connection::Ending;
use crate::engine::Engine;
use crate::event::Outcome;
use crate::identity::Identity;
use crate::ids::{ConnId, JobId, TaskId};
use crate::jobs::Jobs;
use crate::jobs::job::{Job, JobEffect, JobInput, JobState, Purpose};
use crate::jobs::messages::show_held_progress;
use crate::jobs::result::into_answer;
use crate::json::raw::Json;
use crate::limits::Limits;
use crate::outbox::requests::Settled;
use crate::protocol::revision::{AfterCancel, Results};
use crate::reason::StopReason;
use crate::tasks::durable::TaskOutcome;
use crate::tasks::task::Change;
use crate::time::Instant;
use crate::tool::StopStep;
use crate::upstream::rewrite::{member, with_member};

/// How long the rest of a job may outlive its first process before it is stopped.
const LINGER: Duration = Duration::from_millis(100);

impl Engine {
    /// Everything of this turn was handed in: starts as many jobs as there is room for.
    pub(crate) fn on_turn(&mut self) {
        self.supervisor().flush();
        self.suspend_asking_calls();
        self.hand_over_begun();
        let share = self.settings.limits.running_per_identity_max;
        while self.jobs.has_room(&self.settings.limits) {
            let Some(id) = self.jobs.take_turn(share) else { break };
            self.advance_job(id, JobInput::Turn);
        }
        self.hand_over_waiting();
        if self.upstreams.starts_eager || !self.upstreams.passing.is_empty() {
            self.gateway().end_turn();
        }
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
                self.cancel_asks(id);
                self.take_step(id, step, why);
            }
            JobEffect::Step { step, why, is_first: false } => {
                end_grace(&mut self.outbox, &mut self.jobs, id, why);
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
        let tool = alloc::sync::Arc::clone(&job.tool);
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
            self.unsuspend(state);
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

    /// The timer of a job is due: its timeout, or the next step of its stop policy.
    pub(crate) fn on_job_timer(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.timer = None;
        self.advance_job(id, JobInput::TimerDue);
        let step = self.jobs.get(id).map(Job::state);
        if matches!(step, Some(JobState::Stopping { step: StopStep::Abandon, .. })) {
            self.abandon(id);
        }
    }

    fn abandon(&mut self, id: JobId) {
        self.outbox.counters_mut().jobs_abandoned += 1;
        if let Some(job) = self.jobs.get(id) {
            self.outbox.note(AuditEvent::Abandoned { job: id, tool: job.tool.name.clone() });
        }
        self.on_done(id, Outcome::Stopped);
    }

    /// The first process of a job is gone and others are not. They may be about to go as well, as
    /// the rest of a pipeline does; if not, they are stopped: they have no business left.
    pub(crate) fn on_lingering(&mut self, id: JobId) {
        if !self.advance_job(id, JobInput::MainExited) {
            self.outbox.counters_mut().late_reports += 1;
        }
    }

    pub(crate) fn on_done(&mut self, id: JobId, outcome: Outcome) {
        let removed = self.remove_job(id);
        let Some(job) = &removed else {
            self.outbox.counters_mut().late_reports += 1;
            return;
        };
        let why = match job.state() {
            JobState::Held(_) | JobState::Queued(_) => {
                panic!("{id} ended before it was started")
            }
            JobState::Running | JobState::Lingering => None,
            &JobState::Stopping { step, why, since } => {
                // A thread that was given up goes on: it has not ceased.
                if step != StopStep::Abandon {
                    let mut receipt = receipt(id, job, why, Some(step), since);
                    receipt.upstream = self.upstreams.receipts.remove(&id).map(Box::new);
                    self.outbox.note(AuditEvent::Ceased(receipt));
                }
                Some(why)
            }
        };
        if job.outlasts() {
            return;
        }
        self.deliver_outcome(id, job, outcome, why);
    }

    /// Gives the outcome of a job to its receivers.
    pub(crate) fn deliver_outcome(
        &mut self,
        id: JobId,
        job: &Job,
        outcome: Outcome,
        why: Option<StopReason>,
    ) {
        let stored = job.task.filter(|_| self.tasks.writes().is_on());
        let (timers, until) = (&mut self.timers, self.outbox.keys_until());
        self.keyed.remember_outcome(timers, until, (id, stored), why, || {
            into_answer(outcome.clone(), why, job.tool.timeout, job.terms.dialect())
        });
        match job.purpose() {
            // TSK-26: dropped; that it stopped is all that was wanted of it.
            Purpose::Orphan => {}
            Purpose::NoReceiver => match outcome {
                Outcome::Result(_) | Outcome::Error(_) | Outcome::Refused(_) => {
                    self.outbox.counters_mut().late_reports += 1;
                }
                Outcome::Stopped => {}
            },
            Purpose::Answer(request) => {
                let Some(connection) = self.outbox.connection_mut(job.conn) else { return };
                let ends = connection.ending != Ending::Open;
                if let Some(reply) = connection.requests.settle(request, Settled::Job(id)) {
                    show_held_progress(&mut self.outbox, &mut self.tasks, id, job);
                    let answer = match reply.dialect.after_cancel {
                        AfterCancel::Silence | AfterCancel::Recall => with_hints(
                            job,
                            into_answer(outcome, why, job.tool.timeout, job.terms.dialect()),
                        ),
                        AfterCancel::Answer { .. } => {
                            answer_of_service(&mut self.outbox, job, outcome, why)
                        }
                    };
                    match (&job.tool.route, answer) {
                        (Some(_), Ok(result)) => {
                            self.upstreams.answer_with_relayed(&mut self.outbox, reply, result);
                        }
                        (_, answer) => self.upstreams.answer_with(&mut self.outbox, reply, answer),
                    }
                    if ends {
                        self.outbox.close_if_finished(job.conn);
                    }
                }
            }
            Purpose::Task => self.end_task_of(id, job, outcome, why),
            Purpose::Retry(state) => {
                let answer = into_answer(outcome, why, job.tool.timeout, job.terms.dialect());
                self.keep_outcome(*state, with_hints(job, answer).map(Json::kept));
            }
        }
    }

    fn end_task_of(&mut self, id: JobId, job: &Job, outcome: Outcome, why: Option<StopReason>) {
        let Some(task) = job.task else { return };
        show_held_progress(&mut self.outbox, &mut self.tasks, id, job);
        let outcome = into_answer(outcome, why, job.tool.timeout, job.terms.dialect());
        let outcome = outcome.map(Json::kept);
        let failure = crate::jobs::result::failure(&outcome).map(|text| self.outbox.clean(&text));
        let (change, message) = match failure {
            None => (Change::Complete, None),
            Some(text) => (Change::Fail, Some(text.into_boxed_str())),
        };
        self.end_task(task, change, message, outcome);
    }

    /// Forgets a job: its place, its timer, its room.
    pub(crate) fn remove_job(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.get_mut(id)?;
        if !job.asks.is_empty() {
            self.drop_asks(id);
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

    /// Kills running jobs without waiting for their stop sequence; for the end of a shutdown.
    pub(crate) fn kill_everything(&mut self) {
        let ids: Vec<_> = self.jobs.iter().map(|(id, _)| *id).collect();
        for id in ids {
            if self.advance_job(id, JobInput::KillNow) {
                self.kill_again_before_the_end(id);
            }
        }
    }

    /// While shutting down, SIGKILL is repeated early enough to learn which jobs outlast it.
    fn kill_again_before_the_end(&mut self, id: JobId) {
        let end = self.drain.as_ref().and_then(|drain| drain.end_timer);
        let Some(left) = end.map(|end| self.timers.due(end) - self.now.at) else { return };
        if let Some(job) = self.jobs.get_mut(id)
            && left / 2 < KILL_AGAIN
        {
            self.timers.arm(&mut job.timer, Timer::Job(id), self.now.at + left / 2);
        }
    }

    /// SIGKILL does not end a job. Its requestor does not wait: the request
    /// is answered, and the task ends, with the outcome so far. The job keeps its room.
    pub(crate) fn on_outlasted(&mut self, id: JobId, outcome: Outcome) {
        let stopping = self.jobs.get(id).filter(|job| !job.outlasts()).map(Job::state);
        let Some(JobState::Stopping { step, why, since }) = stopping else {
            self.outbox.counters_mut().late_reports += 1;
            return;
        };
        let (step, why, since) = (*step, *why, *since);
        let Some(mut job) = self.jobs.take_outlasting(id) else { return };
        self.outbox.note(AuditEvent::Outlasted(receipt(id, &job, why, Some(step), since)));
        self.timers.disarm(&mut job.orphan_timer, Timer::Orphan(id));
        self.free_task(job.task, id, job.conn);
        if *job.purpose() != Purpose::NoReceiver {
            self.deliver_outcome(id, &job, outcome, Some(why));
        }
        self.jobs.put_back(job);
    }
}

impl Jobs {
    /// Whether one more job may run.
    pub(crate) fn has_room(&self, limits: &Limits) -> bool {
        self.running() < limits.running_max
    }

    /// Whether one more job of an identity would have to wait.
    pub(crate) fn is_crowded(&self, limits: &Limits, owner: &Identity) -> bool {
        let share = limits.running_per_identity_max;
        let queue = self.queue();
        let own = queue.running_of(owner) + queue.len_of(owner);
        own >= share || self.running() + queue.startable(share) >= limits.running_max
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

/// The answer of a job, with members about caching where a revision has them for its method
/// (`resources/read`) and the answer says nothing about that: no client may keep it.
fn with_hints(job: &Job, answer: TaskOutcome) -> TaskOutcome {
    let method = job.tool.route.as_ref().map_or(&*job.tool.name, |route| &route.method);
    let is_due = method == "resources/read" && job.terms.dialect().results == Results::Typed;
    match answer {
        Ok(result) if is_due && member(result.get(), "contents").is_some() => {
            let (is_bare, mut hinted) = (result.is_bare(), String::from(result.get()));
            for (name, value) in [("ttlMs", "0"), ("cacheScope", "\"private\"")] {
                if member(&hinted, name).is_none() {
                    hinted = with_member(&hinted, name, value);
                }
            }
            Ok(Json::of_result(hinted.into(), is_bare))
        }
        answer => answer,
    }
}
