//! The shutdown of the engine: every job is stopped, every request answered, and the store hurried.

use alloc::vec::Vec;

use crate::acp::cancel::cut_off;
use crate::action::Action;
use crate::collections::timer_queue::Timer;
use crate::engine::{Drain, Engine};
use crate::ids::JobId;
use crate::jobs::result;
use crate::outbox::requests::RequestWork;
use crate::reason::StopReason;
use crate::tasks::task::Change;
use crate::time::Instant;

impl Engine {
    /// Shuts down: every running job is stopped and every request is answered at once. A
    /// second call brings the end forward.
    pub(crate) fn on_drain(&mut self, by: Instant) {
        let end_timer = self.drain.as_ref().and_then(|drain| drain.end_timer);
        let earlier = end_timer.map(|armed| self.timers.due(armed));
        let by = earlier.map_or(by, |earlier| earlier.min(by));
        let grace = by - self.now.at;
        // The last quarter is for the SIGKILL to do its work.
        let kill_at = self.now.at + grace / 4 * 3;
        let drain = self.drain.get_or_insert_with(Drain::default);
        if drain.exit_said {
            return;
        }
        self.outbox.keep_finished(true);
        self.timers.arm(&mut drain.kill_timer, Timer::DrainKill, kill_at);
        self.timers.arm(&mut drain.end_timer, Timer::DrainEnd, by);
        self.task_machine().abandon_creations(&result::shutting_down());
        self.interrupt_tasks();
        self.answer_all_requests();
        self.keyed.forget_all(&mut self.timers);
        let ids: Vec<JobId> = self.jobs.iter().map(|(id, _)| *id).collect();
        for id in ids {
            self.job_machine().release_job_claim(id, StopReason::Shutdown);
        }
        self.gateway().end_all_instances();
        self.supervisor().shut_down();
        self.suspended.unsuspend_all(&mut self.timers);
        self.outbox.keep_finished(false);
        self.task_machine().hurry_store();
    }

    /// Tasks whose work is cut off have failed, and say why; their waiters are told.
    fn interrupt_tasks(&mut self) {
        let live: Vec<_> = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.status().is_terminal())
            .map(|(id, _)| *id)
            .collect();
        for id in live {
            let error = result::shutting_down();
            self.task_machine().end_task(
                id,
                Change::Fail,
                Some(error.message.as_ref().into()),
                Err(error),
            );
        }
    }

    fn answer_all_requests(&mut self) {
        let conns: Vec<_> = self.outbox.connections().keys().copied().collect();
        for conn in conns {
            self.end_subscriptions(conn);
            let Some(connection) = self.outbox.connection_mut(conn) else { continue };
            for (_, reply, work) in connection.requests.take_all() {
                match work {
                    RequestWork::Job(job) => _ = self.jobs.release(job),
                    RequestWork::Task(task, _) => {
                        if let Some(task) = self.tasks.get_mut(task) {
                            task.aside.forget_waiter(&(conn, reply.id.clone()));
                        }
                    }
                    RequestWork::Upstream(_) => {
                        self.upstreams.waiters.remove(&(conn, reply.id.clone()));
                    }
                    RequestWork::Question(of) => self.gateway().withdraw_question(of, None),
                    RequestWork::Listen(_) | RequestWork::Survey(_) | RequestWork::Lookup(_) => {}
                }
                let error = match cut_off(&self.outbox, conn, StopReason::Shutdown) {
                    Some(error) => error,
                    None => result::shutting_down(),
                };
                self.outbox.fail(reply, &error);
            }
        }
    }

    /// While shutting down: says when nothing is left to wait for, or no time to wait. The store
    /// has all records by then (DUR-01).
    pub(crate) fn exit_if_drained(&mut self) {
        // Nothing that comes to pass here ends a job that outlasts SIGKILL.
        let idle = self.jobs.len() == self.jobs.outlasting()
            && self.tasks.writes().none_on_their_way()
            && self.upstreams.instances.is_empty()
            && !self.agents.has_processes();
        if let Some(drain) = &mut self.drain
            && (idle || drain.over)
            && !drain.exit_said
        {
            drain.exit_said = true;
            self.timers.disarm(&mut drain.kill_timer, Timer::DrainKill);
            self.timers.disarm(&mut drain.end_timer, Timer::DrainEnd);
            self.outbox.push(Action::Exit);
        }
    }

    /// The shutdown's time is over: whatever is left is the host's to end with itself.
    pub(crate) fn end_drain(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.end_timer = None;
            drain.over = true;
        }
    }
}
