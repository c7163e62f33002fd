//! Audit events of tasks, and abuse by repeated requests (TSK-41).

use crate::action::AuditEvent;
use crate::engine::Engine;
use crate::ids::{ConnId, JobId, TaskId};
use crate::policy::abuse::AbusePattern;

impl Engine {
    /// A task was created, and will not be undone.
    pub(crate) fn note_creation(&mut self, id: TaskId) {
        // The job of a call that becomes a task may have ended by now.
        let early = self.tasks.get_mut(id).and_then(|task| task.aside.take_maker());
        let Some(task) = self.tasks.get(id) else { return };
        let works = || task.job.and_then(|id| self.jobs.get(id).map(|job| (id, job.conn)));
        let Some((job, conn)) = early.or_else(works) else { return };
        let (identity, tool) = (self.tasks.owner(task).clone(), task.tool.clone());
        let live = self.tasks.live_beside(task);
        self.outbox.note(AuditEvent::TaskCreated { conn, identity, task: id, job, tool, live });
    }

    /// The outcome of a task is about to be handed out, if it has one.
    pub(crate) fn note_retrieval(&mut self, conn: ConnId, id: TaskId, method: &'static str) {
        let Some(identity) = self.outbox.identity(conn).cloned() else { return };
        let ended = self.tasks.get(id).filter(|task| task.view().status.is_terminal());
        let Some(tool) = ended.map(|task| task.tool.clone()) else { return };
        let task = id;
        self.outbox.note(AuditEvent::TaskRetrieved { conn, identity, task, tool, method });
    }

    /// A job was cancelled by its number.
    pub(crate) fn note_job_cancelled(&mut self, conn: ConnId, id: JobId) {
        let Some(identity) = self.outbox.identity(conn).cloned() else { return };
        let Some(job) = self.jobs.get(id) else { return };
        let reason = job.cancel().and_then(|cancel| cancel.reason);
        let tool = job.tool.name.clone();
        self.outbox.note(AuditEvent::JobCancelled { conn, identity, job: id, tool, reason });
    }

    /// A task was asked for: too early, if its `pollInterval` has not passed since the last time.
    /// Once it has ended there is no reason to ask again.
    pub(crate) fn note_poll(&mut self, conn: ConnId, task: TaskId) {
        let (now, interval) = (self.now.at, self.settings.tasks.poll_interval);
        let Some(task) = self.tasks.get_mut(task) else { return };
        let early = now < core::mem::replace(&mut task.next_poll, now + interval);
        if early {
            self.suspect(conn, AbusePattern::FastPolls);
        }
    }

    /// Counts an abuse pattern of an identity and reports it once it passes its threshold.
    #[cold]
    pub(crate) fn suspect(&mut self, conn: ConnId, pattern: AbusePattern) {
        match pattern {
            AbusePattern::UnknownTasks => self.outbox.counters_mut().unknown_tasks += 1,
            AbusePattern::FastPolls => self.outbox.counters_mut().fast_polls += 1,
        }
        let policy = self.settings.limits.suspicion;
        let Some(connection) = self.outbox.connection(conn) else { return };
        let identity = connection.identity.clone();
        if self.watch.count(&identity, pattern, self.now.at, &policy) {
            self.outbox.counters_mut().suspicions += 1;
            let (count, window) = (policy.threshold(pattern), policy.window);
            self.outbox.note(AuditEvent::Suspicious { conn, identity, pattern, count, window });
        }
    }
}
