//! Audit events of tasks.

use crate::action::AuditEvent;
use crate::ids::{ConnId, JobId, TaskId};
use crate::jobs::Jobs;
use crate::outbox::Outbox;
use crate::policy::abuse::AbusePattern;
use crate::tasks::task::Tasks;

/// A job was cancelled by its number.
pub(crate) fn note_job_cancelled(outbox: &mut Outbox, jobs: &Jobs, conn: ConnId, id: JobId) {
    let (Some(identity), Some(job)) = (outbox.identity(conn).cloned(), jobs.get(id)) else {
        return;
    };
    let reason = job.cancel().and_then(|cancel| cancel.reason);
    let tool = job.tool.name.clone();
    outbox.note(AuditEvent::JobCancelled { conn, identity, job: id, tool, reason });
}

impl Tasks {
    /// A task was created, and will not be undone.
    pub(crate) fn note_creation(&mut self, outbox: &mut Outbox, jobs: &Jobs, id: TaskId) {
        // The job of a call that becomes a task may have ended by now.
        let early = self.get_mut(id).and_then(|task| task.aside.take_maker());
        let Some(task) = self.get(id) else { return };
        let works = || task.job.and_then(|id| jobs.get(id).map(|job| (id, job.conn)));
        let Some((job, conn)) = early.or_else(works) else { return };
        let (identity, tool) = (self.owner(task).clone(), task.tool.clone());
        let live = self.live_beside(task);
        outbox.note(AuditEvent::TaskCreated { conn, identity, task: id, job, tool, live });
    }

    /// The outcome of a task is about to be handed out, if it has one.
    pub(crate) fn note_retrieval(
        &self,
        outbox: &mut Outbox,
        conn: ConnId,
        id: TaskId,
        method: &'static str,
    ) {
        let Some(identity) = outbox.identity(conn).cloned() else { return };
        let ended = self.get(id).filter(|task| task.view().status.is_terminal());
        let Some(tool) = ended.map(|task| task.tool.clone()) else { return };
        outbox.note(AuditEvent::TaskRetrieved { conn, identity, task: id, tool, method });
    }

    /// A task was asked for: too early, if its `pollInterval` has not passed since the last time.
    /// Once it has ended there is no reason to ask again.
    pub(crate) fn note_poll(&mut self, outbox: &mut Outbox, conn: ConnId, id: TaskId) {
        let (now, interval) = (outbox.now(), outbox.settings().tasks.poll_interval);
        let Some(task) = self.get_mut(id) else { return };
        let early = now < core::mem::replace(&mut task.next_poll, now + interval);
        if early {
            outbox.suspect(conn, AbusePattern::FastPolls);
        }
    }
}
