//! Turns of jobs, and their ends: the outcome goes to its receiver.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::acp::cancel::answer_of_service;
use crate::action::AuditEvent;
use crate::collections::timer_queue::Timer;
use crate::connection::ConnectionEnd;
use crate::engine::Engine;
use crate::event::Outcome;
use crate::ids::JobId;
use crate::jobs::job::{Job, JobInput, JobState, Purpose};
use crate::jobs::lifecycle::receipt;
use crate::jobs::messages::show_held_progress;
use crate::jobs::result::into_answer;
use crate::json::raw::Json;
use crate::outbox::requests::Settled;
use crate::protocol::revision::{AfterCancel, Results};
use crate::reason::StopReason;
use crate::tasks::durable::TaskOutcome;
use crate::tasks::task::Change;
use crate::tool::{KILL_AGAIN, StopStep};
use crate::upstream::rewrite::{member, with_member};

impl Engine {
    /// Everything of this turn was handed in: starts as many jobs as there is room for.
    pub(crate) fn on_turn(&mut self) {
        self.supervisor().flush();
        self.suspend_asking_calls();
        self.task_machine().hand_over_begun();
        while let Some(id) = self.jobs.take_turn() {
            self.job_machine().advance_job(id, JobInput::Turn);
        }
        self.task_machine().hand_over_waiting();
        if self.upstreams.starts_eager || !self.upstreams.passing.is_empty() {
            self.gateway().end_turn();
        }
    }

    /// The timer of a job is due: its timeout, or the next step of its stop policy.
    pub(crate) fn on_job_timer(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.timer = None;
        self.job_machine().advance_job(id, JobInput::TimerDue);
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

    pub(crate) fn on_done(&mut self, id: JobId, outcome: Outcome) {
        let removed = self.job_machine().remove_job(id);
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
                    self.tasks.note_receipt(job, why, Some((step, self.now.at - since)));
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
                let ends = connection.ending != ConnectionEnd::Open;
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
                self.suspended.keep_outcome(*state, with_hints(job, answer));
            }
        }
    }

    fn end_task_of(&mut self, id: JobId, job: &Job, outcome: Outcome, why: Option<StopReason>) {
        let Some(task) = job.task else { return };
        show_held_progress(&mut self.outbox, &mut self.tasks, id, job);
        let outcome = into_answer(outcome, why, job.tool.timeout, job.terms.dialect());
        let failure = crate::jobs::result::failure(&outcome).map(|text| self.outbox.clean(&text));
        let (change, message) = match failure {
            None => (Change::Complete, None),
            Some(text) => (Change::Fail, Some(text.into_boxed_str())),
        };
        self.task_machine().end_task(task, change, message, outcome);
    }

    /// Kills running jobs without waiting for their stop sequence; for the end of a shutdown.
    pub(crate) fn kill_everything(&mut self) {
        let ids: Vec<_> = self.jobs.iter().map(|(id, _)| *id).collect();
        for id in ids {
            if self.job_machine().advance_job(id, JobInput::KillNow) {
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
        self.job_machine().free_task(job.task, id, job.conn);
        if *job.purpose() != Purpose::NoReceiver {
            self.deliver_outcome(id, &job, outcome, Some(why));
        }
        self.jobs.put_back(job);
    }
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
