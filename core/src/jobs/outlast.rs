//! Jobs that outlast their SIGKILL, and the SIGKILL of a shutdown.

use alloc::vec::Vec;

use crate::action::AuditEvent;
use crate::collections::timer_queue::Timer;
use crate::engine::Engine;
use crate::event::Outcome;
use crate::ids::JobId;
use crate::jobs::job::{Job, JobInput, JobState, Purpose};
use crate::jobs::lifecycle::receipt;
use crate::tool::KILL_AGAIN;

impl Engine {
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
