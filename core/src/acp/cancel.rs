//! Cancellation of incoming requests in protocols that answer a cancelled request exactly once.

use crate::acp::capabilities::note_served;
use crate::action::{AuditEvent, Cancel};
use crate::engine::Engine;
use crate::event::Outcome;
use crate::ids::{ConnId, JobId, RequestId};
use crate::jobs::Jobs;
use crate::jobs::job::{Job, JobState, Purpose};
use crate::outbox::Outbox;
use crate::outbox::requests::{Settled, Work};
use crate::protocol::revision::{AfterCancel, Dialect};
use crate::reason::StopReason;
use crate::rpc::error::ErrorObject;
use crate::rpc::error::code;
use crate::rpc::params::Params;
use crate::tasks::durable::TaskOutcome;

impl Engine {
    /// A peer cancels a request of its own (ACP-01).
    pub(crate) fn on_service_cancelled(
        &mut self,
        conn: ConnId,
        method: &str,
        params: Option<&Params<'_>>,
    ) {
        let dialect = self.outbox.dialect(conn);
        let Some((request, method)) = named_request(dialect, method, params) else {
            // CAN-14: a malformed cancel is counted and ignored.
            self.outbox.counters_mut().cancels_malformed += 1;
            return self.outbox.note(AuditEvent::CancelIgnored { conn });
        };
        let Some(id) = self.cancellable(conn, &request) else {
            self.outbox.counters_mut().cancels_ignored += 1;
            return self.outbox.note(AuditEvent::CancelIgnored { conn });
        };
        self.outbox.counters_mut().cancelled += 1;
        if let (Some(connection), Some(job)) = (self.outbox.connection(conn), self.jobs.get_mut(id))
        {
            let (by, of) = (connection.identity.clone(), Some(request));
            let cancel = Cancel { by, conn, request: of, reason: None };
            job.note_cancel(cancel.clone());
            let of = (job.tool.name.clone(), Some(id));
            self.outbox.note(AuditEvent::call_cancelled(cancel, of, method));
        }
        self.cancel_with_response(id, StopReason::Requested);
    }

    /// Job of a request that its peer may cancel and has not cancelled yet.
    fn cancellable(&self, conn: ConnId, request: &RequestId) -> Option<JobId> {
        let connection = self.outbox.connection(conn)?;
        // ACP-10: without the declared capability a cancel is ignored.
        connection.acp.filter(|party| party.accepts_cancels(connection.dialect))?;
        // ACP-08: a cancel of an unknown or answered request is ignored.
        let id = match connection.requests.work(request)? {
            Work::Job(id) => *id,
            Work::Task(..)
            | Work::Listen(_)
            | Work::Survey(_)
            | Work::Upstream(_)
            | Work::Lookup(_)
            | Work::Question(_) => return None,
        };
        let job = self.jobs.get(id)?;
        // ACP-04: protected requests cannot be cancelled.
        let protected = connection.dialect.protected.contains(&&*job.tool.name);
        let cancelled = match job.state() {
            JobState::Held(_) | JobState::Queued(_) | JobState::Running | JobState::Lingering => {
                false
            }
            JobState::Stopping { why, .. } => !why.is_no_cancel(),
        };
        (!protected && !cancelled).then_some(id)
    }

    /// Cancels a job whose request is answered nevertheless: at once if the job has not begun, else
    /// with the job's outcome while it is being stopped (ACP-06, ACP-07).
    pub(crate) fn cancel_with_response(&mut self, id: JobId, why: StopReason) {
        let Some(job) = self.jobs.get(id) else {
            self.outbox.counters_mut().late_reports += 1;
            return;
        };
        match job.state() {
            // The host does not know of this job.
            JobState::Held(_) => self.outbox.counters_mut().late_reports += 1,
            JobState::Queued(_) => {
                self.outbox.counters_mut().jobs_never_started += 1;
                if let Some(job) = self.remove_job(id) {
                    self.deliver_outcome(id, &job, Outcome::Stopped, Some(why));
                }
            }
            JobState::Running | JobState::Lingering | JobState::Stopping { .. } => {
                self.stop(id, why);
            }
        }
    }
}

/// The first stop step was not enough: answers the request now, while the stop continues.
pub(crate) fn end_grace(outbox: &mut Outbox, jobs: &mut Jobs, id: JobId, why: StopReason) {
    let Some(job) = jobs.get(id) else { return };
    let (conn, Purpose::Answer(request)) = (job.conn, job.purpose()) else { return };
    let Some(connection) = outbox.connection_mut(conn) else { return };
    let error = match connection.dialect.after_cancel {
        AfterCancel::Answer { .. } if !why.is_no_cancel() => cancelled(connection.dialect, why),
        AfterCancel::Answer { .. } | AfterCancel::Silence | AfterCancel::Recall => return,
    };
    let reply = connection.requests.settle(request, Settled::Job(id));
    jobs.release(id);
    if let (Some(reply), Some(error)) = (reply, error) {
        outbox.fail(reply, &error);
    }
    outbox.close_if_finished(conn);
}

/// Answer to a request whose service ends with this outcome (ACP-06, ACP-07).
pub(crate) fn answer_of_service(
    outbox: &mut Outbox,
    job: &Job,
    outcome: Outcome,
    why: Option<StopReason>,
) -> TaskOutcome {
    let cancel = why.filter(|why| !why.is_no_cancel());
    let cancelled = |why| cancelled(outbox.dialect(job.conn), why);
    let stopped = || ErrorObject::new(code::INTERNAL_ERROR, "the service gave no answer");
    match outcome {
        Outcome::Result(result) => {
            note_served(outbox, job, result.get());
            Ok(result)
        }
        Outcome::Error(error) | Outcome::Refused(error) => {
            Err(cancel.and_then(cancelled).unwrap_or(error))
        }
        Outcome::Stopped => {
            let why = why.filter(|why| *why != StopReason::LeftBehind);
            Err(why.and_then(cancelled).unwrap_or_else(stopped))
        }
    }
}

/// Answer to a request whose job is cut off; `None` where the dialect has none.
pub(crate) fn cut_off(outbox: &Outbox, conn: ConnId, why: StopReason) -> Option<ErrorObject> {
    cancelled(outbox.dialect(conn), why)
}

/// Answer to a cancelled request; `None` where there is none. A cancel by the host states its
/// reason (ACP-07).
fn cancelled(dialect: &Dialect, why: StopReason) -> Option<ErrorObject> {
    let AfterCancel::Answer { code, message } = dialect.after_cancel else { return None };
    let error = ErrorObject::new(code, message);
    let source = match why {
        StopReason::Requested => return Some(error),
        StopReason::TimedOut => "timeout",
        StopReason::Disconnected => "disconnect",
        StopReason::Expired
        | StopReason::LeftBehind
        | StopReason::Unanswered
        | StopReason::Unstored
        | StopReason::Lapsed
        | StopReason::Feature
        | StopReason::Limit
        | StopReason::Host
        | StopReason::Shutdown => why.as_str(),
    };
    Some(error.with_data(alloc::format!("{{\"source\":\"{source}\"}}")))
}

/// The request that a cancel names, in either spelling (ACP-01), and the method's spelling.
fn named_request(
    dialect: &Dialect,
    method: &str,
    params: Option<&Params<'_>>,
) -> Option<(RequestId, &'static str)> {
    let params = params?;
    let (method, _) = dialect.cancel_heard.iter().find(|(heard, _)| *heard == method)?;
    let members = dialect.cancel_heard.iter().filter(|(heard, _)| heard == method);
    // A cancel may have both members, with `null` for the unused one.
    let named =
        |null_ids| members.clone().find_map(|(_, member)| params.request_named(member, null_ids));
    Some((named(false).or_else(|| named(dialect.null_ids))?, method))
}
