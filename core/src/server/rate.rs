//! The rate of task requests (TSK-37).

use crate::action::AuditEvent;
use crate::outbox::Outbox;
use crate::outbox::requests::Reply;
use crate::policy::rate::Rates;
use crate::rpc::error::ErrorObject;
use crate::rpc::error::code;
use crate::rpc::params::Params;
use crate::server::held_bytes::as_claimed;

const LIMIT: &str = "task_ops_per_second";

/// Whether a request of this method is about a task and may be refused for coming too often. One
/// that cancels may not: it brings relief.
pub(crate) fn is_rated(method: &str) -> bool {
    matches!(method, "tasks/get" | "tasks/result" | "tasks/list" | "tasks/update")
}

/// Counts a task request of its sender; gives back the reply unless it was too much and was
/// answered so.
pub(crate) fn rated(
    rates: &mut Rates,
    outbox: &mut Outbox,
    reply: Reply,
    params: Option<&Params<'_>>,
) -> Option<Reply> {
    let Some(per_second) = outbox.settings().limits.task_ops_per_second else { return Some(reply) };
    let sender = outbox.identity_of(reply.conn);
    let Err(wait) = rates.take(&sender, per_second, outbox.now()) else {
        return Some(reply);
    };
    outbox.counters_mut().refused += 1;
    outbox.note(AuditEvent::Refused { conn: reply.conn, identity: sender, limit: LIMIT });
    let millis = wait.as_nanos().div_ceil(1_000_000);
    let message = alloc::format!(
        "limit reached: {LIMIT} = {per_second}: that many task requests of yours came within \
         a second: try again in {millis} ms"
    );
    let data =
        alloc::format!("{{\"limit\":\"{LIMIT}\",\"max\":{per_second},\"retryAfterMs\":{millis}}}");
    let reply = as_claimed(reply, params);
    outbox.fail(reply, &ErrorObject::new(code::LIMIT_REACHED, message).with_data(data));
    None
}
