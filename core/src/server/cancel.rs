//! Cancels of calls: `notifications/cancelled` stops the work and says nothing, `ceased/cancel` has its
//! request answered.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::action::{AuditEvent, Cancel, RequestOutcome};
use crate::collections::timer_queue::Timer;
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::{ConnId, JobId, RequestId};
use crate::jobs::job::{Job, JobState, Purpose};
use crate::json::raw::Raw;
use crate::json::whole::WholeNumber;
use crate::outbox::Outbox;
use crate::outbox::cancelling::Cancellation;
use crate::outbox::requests::{CancelledRequest, Reply, RequestWork, TaskView};
use crate::protocol::revision::AfterCancel;
use crate::reason::StopReason;
use crate::rpc::error::ErrorObject;
use crate::rpc::params;
use crate::rpc::params::Params;
use crate::rpc::send_queue::Handle;
use crate::server::suspended_calls::SuspendedWork;
use crate::tasks::audit_events::note_job_cancelled;
use crate::tasks::durable::RecordKey;
use crate::tasks::task::Task;
use crate::upstream::awaited::AwaitedAnswer;

impl Engine {
    pub(crate) fn on_cancelled(&mut self, conn: ConnId, params: Option<&Params<'_>>) {
        let Some(cancellation) = self.outbox.read_cancellation(params) else {
            // CAN-14
            self.outbox.counters_mut().cancels_malformed += 1;
            return self.outbox.note(AuditEvent::CancelIgnored { conn });
        };
        let stopped = self.recall(conn, &cancellation);
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        // CAN-05 holds for sessions: elsewhere this is the only cancel without a handle (MOD-04).
        let creates_task = |reply: &Reply, work: &RequestWork| {
            // CAN-04
            matches!(work, RequestWork::Upstream(AwaitedAnswer::Initialize))
                || matches!(work, RequestWork::Task(_, TaskView::Handle))
                    && !matches!(reply.dialect.after_cancel, AfterCancel::Recall)
        };
        let cancelled = connection.requests.cancel(&cancellation.request, creates_task);
        let Some(CancelledRequest { work, batch, traced }) = cancelled else {
            if stopped {
                return;
            }
            // CAN-09, CAN-05: unknown, answered, or the creating request of a task, which was or
            // will be answered with the task. CAN-04: initialize is answered as soon as it is read.
            self.outbox.counters_mut().cancels_ignored += 1;
            return self.outbox.note(AuditEvent::CancelIgnored { conn });
        };
        let (identity, method) = (connection.identity.clone(), connection.dialect.cancel_method);
        self.outbox.counters_mut().cancelled += 1;
        // CAN-08: a batch waits no longer for this response.
        if let Some(batch) = batch {
            self.outbox.settle_in_batch(conn, batch, |_| {});
        }
        let Cancellation { request, reason } = cancellation;
        if let Some(dialect) = self.outbox.dialect_read(conn) {
            self.outbox.end_span(conn, &request, dialect, traced, RequestOutcome::Cancelled);
        }
        let cancel = Cancel { by: identity, conn, request: Some(request), reason };
        let (job, tool) = self.stop_work(work, &cancel);
        let note = AuditEvent::call_cancelled(cancel, (tool, job), method);
        self.outbox.note(note);
        if let Some(job) = job {
            self.job_machine().release_job_claim(job, StopReason::Requested);
        }
        self.outbox.close_if_finished(conn);
    }

    /// Ends the work of a request that `identity` has cancelled. Returns its job, which is still to be
    /// released, and its name in the audit log.
    fn stop_work(&mut self, work: RequestWork, cancel: &Cancel) -> (Option<JobId>, Arc<str>) {
        let (conn, request) = (cancel.conn, || cancel.request.clone().unwrap_or(RequestId::Null));
        match work {
            RequestWork::Job(id) => {
                let job = self.jobs.get_mut(id);
                let tool = job.map(|job| {
                    job.note_cancel(cancel.clone());
                    job.tool.name.clone()
                });
                (Some(id), tool.unwrap_or_default())
            }
            // CAN-15: the wait ends, the task goes on.
            RequestWork::Task(id, form) => {
                if let Some(task) = self.tasks.get_mut(id) {
                    task.aside.forget_waiter(&(conn, request()));
                }
                if form == TaskView::Handle {
                    self.task_machine().abandon_unknown(id, cancel.clone());
                }
                self.outgoing().offer_inputs(id);
                (None, form.method().into())
            }
            RequestWork::Listen(listening) => {
                self.unlisten(conn, &request(), &listening);
                (None, "subscriptions/listen".into())
            }
            RequestWork::Upstream(awaited) => {
                self.upstreams.waiters.remove(&(conn, request()));
                (None, awaited.method().into())
            }
            // Servers cancel by another way.
            RequestWork::Question(of) => {
                self.gateway().withdraw_question(of, cancel.reason.as_deref());
                (None, "".into())
            }
            RequestWork::Lookup(asked) => (None, asked.method.name().into()),
            RequestWork::Survey(read) => {
                let form = self.surveys.get(&read).map(|request| request.form.method());
                (None, form.unwrap_or("ceased/status").into())
            }
        }
    }

    /// Removes the unsent frames of a request (MOD-04), and stops the task or suspended call that was
    /// to be named by it; whether there was anything to stop. Of requests of a session there is
    /// nothing to take back.
    fn recall(&mut self, conn: ConnId, by: &Cancellation) -> bool {
        let Some(connection) = self.outbox.connection_mut(conn) else { return false };
        let Some(queue) = connection.send_queue.some() else { return false };
        let handles = queue.recall(&by.request);
        if queue.is_empty()
            && let Some(aside) = connection.aside.some()
        {
            // Nothing is left that the peer could fail to take.
            self.timers.disarm(&mut aside.stall_timer, Timer::Stall(conn));
        }
        !handles.is_empty() && self.stop_unnamed(conn, by, handles)
    }

    /// A request was answered with an id that only its requestor could have used, had that not been
    /// taken back: it is cancelled with the request (MOD-04, CAN-06). Whether there was anything.
    #[cold]
    fn stop_unnamed(&mut self, conn: ConnId, by: &Cancellation, handles: Vec<Handle>) -> bool {
        let mut stopped = false;
        for handle in handles {
            stopped |= match handle {
                Handle::Task(key) => self.stop_unnamed_task(conn, key, by.reason.clone()),
                Handle::Call(state) => match self.suspended.unsuspend(&mut self.timers, state) {
                    Some(SuspendedWork::Job(id)) => self.stop_unnamed_call(conn, id, by),
                    Some(SuspendedWork::Outcome(_)) | None => false,
                },
            };
        }
        self.outbox.counters_mut().cancelled += u64::from(stopped);
        stopped
    }

    /// Skips a task that an idempotency key or a blocked `tasks/result` still refers to.
    fn stop_unnamed_task(
        &mut self,
        conn: ConnId,
        key: RecordKey,
        reason: Option<Box<str>>,
    ) -> bool {
        let id = key.task;
        let unnamed = |task: &Task| {
            let waits = !task.aside.waiters.is_empty();
            task.record_key() == key && !task.status().is_terminal() && !waits
        };
        if !self.tasks.get(id).is_some_and(unnamed) || self.keyed.of_task(id).is_some() {
            return false;
        }
        let method = self.outbox.dialect(conn).cancel_method;
        self.task_machine().cancel_live_task(conn, id, method, reason);
        true
    }

    fn stop_unnamed_call(&mut self, conn: ConnId, id: JobId, by: &Cancellation) -> bool {
        let identity = self.outbox.identity_of(conn);
        let Some(job) = self.jobs.get_mut(id) else { return false };
        let (of, reason) = (Some(by.request.clone()), by.reason.clone());
        let cancel = Cancel { by: identity, conn, request: of, reason };
        job.note_cancel(cancel.clone());
        let (of, method) =
            ((job.tool.name.clone(), Some(id)), self.outbox.dialect(conn).cancel_method);
        let note = AuditEvent::call_cancelled(cancel, of, method);
        self.outbox.note(note);
        self.job_machine().release_job_claim(id, StopReason::Requested);
        true
    }
}

/// `ceased/cancel`: stops a job by its number, whatever asked for it. The protocols let a peer take back
/// its own requests and cancel its tasks; this is for the person in front of a list of jobs, which may
/// contain a call of another connection.
impl Engine {
    /// Stops a job of one's own, or as an operator any job. Its request is answered nevertheless,
    /// since its requestor has not cancelled it. A task is cancelled as by `tasks/cancel`, and a
    /// request to an agent by the methods of its protocol.
    pub(crate) fn cancel_any_job(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let (job, reason) = match read_job(params) {
            Ok(read) => read,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let (id, conn) = (JobId::new(job), reply.conn);
        let reason = reason.and_then(Raw::cleaned_string);
        let reason = reason.map(|reason| self.outbox.clean(&reason).into());
        let seen = self.jobs.get(id).filter(|job| may_see(&self.outbox, conn, job));
        let (Some(job), Some(by)) = (seen, self.outbox.identity(conn).cloned()) else {
            return match self.supervisor().cancel(conn, id, reason) {
                Ok(()) => self.upstreams.answer(&mut self.outbox, reply, |json| {
                    json.raw("{}");
                }),
                Err(error) => self.outbox.fail(reply, &error),
            };
        };
        let (purpose, task) = (job.purpose().clone(), job.task);
        match (purpose, task) {
            (Purpose::Task, Some(task)) => {
                self.task_machine().cancel_live_task(conn, task, "ceased/cancel", reason);
            }
            // It is being stopped already.
            (Purpose::NoReceiver, _) => {}
            (Purpose::Answer(_) | Purpose::Retry(_) | Purpose::Orphan | Purpose::Task, _) => {
                if let Some(job) = self.jobs.get_mut(id) {
                    job.note_cancel(Cancel { by, conn, request: None, reason });
                }
                note_job_cancelled(&mut self.outbox, &self.jobs, conn, id);
                self.cancel_with_response(id, StopReason::Requested);
            }
        }
        self.upstreams.answer(&mut self.outbox, reply, |json| {
            json.raw("{}");
        });
    }
}

/// Whether the peer of a connection may know of a job (TSK-39). Anonymous
/// peers share an identity, so none may know the jobs of another (TSK-40).
pub(crate) fn may_see(outbox: &Outbox, conn: ConnId, job: &Job) -> bool {
    let own = match outbox.identity(conn) {
        None => false,
        Some(Identity::Anonymous) => job.conn == conn,
        Some(viewer @ (Identity::User(_) | Identity::Token(_) | Identity::Subject(_))) => {
            job.owner == *viewer
        }
    };
    // No peer may know of a task that is being created (DUR-01).
    let exists = !matches!(job.state(), JobState::Held(_));
    exists && (own || outbox.is_operator(conn))
}

/// Reads the number of the job to stop, and why. The job alone decides: a reason that cannot be
/// read is dropped.
fn read_job<'a>(params: Option<&Params<'a>>) -> Result<(u64, Option<Raw<'a>>), ErrorObject> {
    let members = match params.map(|params| params.find(["job", "reason"])) {
        Some(None) => return Err(ErrorObject::invalid_params("params must be an object")),
        Some(Some(found)) => found.members,
        None => [None; 2],
    };
    let [job, reason] = members;
    let number = WholeNumber::read(params::required("job", job)?.get());
    let number = number.as_ref().and_then(WholeNumber::to_u64_saturating);
    let message = "params.job must be the number of a job";
    Ok((number.ok_or_else(|| ErrorObject::invalid_params(message))?, reason))
}
