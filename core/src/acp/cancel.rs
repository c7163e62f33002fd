//! Answers to incoming requests in protocols that answer a cancelled request exactly once.

use crate::acp::capabilities::note_served;
use crate::event::Outcome;
use crate::ids::{ConnId, JobId};
use crate::jobs::Jobs;
use crate::jobs::job::{Job, Purpose};
use crate::outbox::Outbox;
use crate::outbox::requests::Settled;
use crate::protocol::revision::{AfterCancel, Dialect};
use crate::reason::StopReason;
use crate::rpc::error::{ErrorObject, code};
use crate::tasks::durable::TaskOutcome;

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
