//! Plain calls whose connection is gone: stopped, running on for a time, or detached as a task.
//!
//! ```text
//!   Answer ──connection gone: on_disconnect─┬─ cancel ─► none (stopped)
//!                                           ├─ grace ──► Orphan ──time over──► none (stopped)
//!                                           └─ detach ─► Task
//! ```

use core::time::Duration;

use crate::collections::timer_queue::Timer;
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::{JobId, TaskId};
use crate::jobs::job::{JobState, Purpose};
use crate::outbox::requests::{Settled, TaskView};
use crate::protocol::request_meta::RequestContext;
use crate::reason::StopReason;
use crate::tasks::creation::HandOver;
use crate::tool::OnDisconnect;

impl Engine {
    /// The connection a plain call came by is gone.
    pub(crate) fn requestor_gone(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let is_stopping = matches!(job.state(), JobState::Stopping { .. });
        let policy = job.tool.on_disconnect;
        match policy {
            OnDisconnect::Grace(time) if !is_stopping => self.orphan(id, time),
            OnDisconnect::Detach if !is_stopping && self.detach(id) => {}
            OnDisconnect::Cancel | OnDisconnect::Grace(_) | OnDisconnect::Detach => {
                self.job_machine().release_job_claim(id, StopReason::Disconnected);
            }
        }
    }

    fn orphan(&mut self, id: JobId, time: Duration) {
        let Some(job) = self.jobs.orphan(id) else { return };
        job.progress.tell(None);
        job.progress.forget_held();
        self.timers.arm(&mut job.orphan_timer, Timer::Orphan(id), self.now.at + time);
    }

    /// The time of a call without its connection is over.
    pub(crate) fn on_orphan_timer(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.orphan_timer = None;
        }
        self.job_machine().release_job_claim(id, StopReason::Disconnected);
    }

    /// The call of a job becomes a task, whose handle is the answer. It stays a plain call where its
    /// client follows no tasks, or there is no room for one.
    pub(crate) fn escalate(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let (owner, tool) = (job.owner.clone(), job.tool.name.clone());
        let RequestContext::Request(claim) = &job.terms else { return };
        let Purpose::Answer(request) = job.purpose().clone() else { return };
        // The server of a relayed call has decided so.
        let may = job.tool.asks_first || job.tool.route.is_some();
        let is_able = claim.tasks && may && !job.needs_input();
        let is_full = self.tasks.full(&owner, &self.settings.limits).is_some();
        if !is_able || is_full || self.tasks.no_creation().is_some() {
            return;
        }
        let conn = job.conn;
        let Some(task) = self.fresh_task_id() else { return };
        let connection = self.outbox.connection_mut(conn);
        let reply = connection.and_then(|of| of.requests.settle(&request, Settled::Job(id)));
        let Some(reply) = reply else { return };
        let ttl = self.default_grant(&owner);
        self.tasks.insert(task, &owner, self.now, ttl, (id, tool), None);
        self.tell_as_task(id, task);
        self.task_machine().store_creation(task, HandOver::Now);
        self.task_machine().respond_with_task(reply, task, TaskView::Handle);
    }

    /// A job works for a task from now on, which tells nothing by itself (EXT-02).
    fn tell_as_task(&mut self, id: JobId, task: TaskId) {
        let Some(job) = self.jobs.become_task(id, task) else { return };
        job.progress.tell(None);
        job.progress.forget_held();
        let mut before = job.progress.take_told();
        if let RequestContext::Request(claim) = &mut job.terms {
            claim.log_level = None;
        }
        self.timers.disarm(&mut before.heartbeat, Timer::Heartbeat(id));
    }

    /// Makes a task of a call; false without room for one or an identity to own it. It goes
    /// on meanwhile: no peer knows a task until it is on disk (DUR-01).
    fn detach(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(id) else { return false };
        let (owner, tool) = (job.owner.clone(), job.tool.name.clone());
        if owner == Identity::Anonymous
            || self.tasks.full(&owner, &self.settings.limits).is_some()
            || self.tasks.no_creation().is_some()
        {
            return false;
        }
        let Some(task) = self.fresh_task_id() else { return false };
        self.tasks.insert(
            task,
            &owner,
            self.now,
            self.settings.tasks.default_ttl,
            (id, tool),
            None,
        );
        if let Some(job) = self.jobs.become_task(id, task) {
            job.progress.tell(None);
            job.progress.forget_held();
            if let RequestContext::Request(claim) = &mut job.terms {
                claim.log_level = None;
            }
        }
        // It may have long to go.
        self.task_machine().store_creation(task, HandOver::Now);
        true
    }
}

/// A job runs on without its connection for a time only.
///
/// # Panics
/// When one does not.
pub(crate) fn check(engine: &Engine) {
    for (id, job) in engine.jobs.iter() {
        let is_orphan = *job.purpose() == Purpose::Orphan;
        assert_eq!(job.orphan_timer.is_some(), is_orphan, "{id} runs on for a time only");
    }
}

/// How many timers are armed here.
pub(crate) fn armed(engine: &Engine) -> usize {
    engine.jobs.iter().map(|(_, job)| job).filter(|job| job.orphan_timer.is_some()).count()
}
