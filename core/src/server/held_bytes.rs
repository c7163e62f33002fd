//! Bytes held for an identity: the share that a request may still take, and the cut of unsent
//! frames.

use alloc::boxed::Box;
use alloc::format;

use crate::ids::ConnId;
use crate::outbox::Outbox;
use crate::outbox::requests::Reply;
use crate::policy::account::{CAPABILITY_BYTES_MAX, ChargedText, NAME_BYTES_MAX};
use crate::protocol::request_meta;
use crate::protocol::revision::{self, Methods};
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};

/// Keeps the capabilities of a client, and its name and version, for servers behind this one. Where
/// they are longer than is kept, or the share of the identity is used up, the capabilities are kept
/// as flags alone.
pub(crate) fn keep_description(
    outbox: &mut Outbox,
    conn: ConnId,
    declared: Option<Box<str>>,
    info: Option<&str>,
) {
    let share = outbox.settings().limits.held_bytes_per_identity_max;
    let Some(connection) = outbox.connection_mut(conn) else { return };
    let account = connection.account().clone();
    let kept = |text: Box<str>| {
        let bytes = text.len();
        let has_room =
            bytes <= CAPABILITY_BYTES_MAX && account.own().saturating_add(bytes) <= share;
        has_room.then(|| ChargedText::new(&account, text, 0))
    };
    connection.aside.declared = declared.and_then(kept);
    let info = info.filter(|info| info.starts_with('{'));
    if connection.aside.client_info.as_deref() != info {
        connection.aside.client_info = info.map(Into::into).and_then(kept);
    }
}

/// Whether a request of this method takes memory until it is answered. Those that begin a
/// session, that look or that cancel are answered however much is held.
fn takes_memory(method: &str) -> bool {
    let begins = matches!(method, "initialize" | "server/discover");
    let looks = matches!(method, "ping" | "tasks/get" | "tasks/list" | "tasks/cancel");
    let is_own = method.starts_with("ceased/") && method != "ceased/run";
    !(begins || looks || is_own)
}

/// The first text of a request that is longer than a name may be.
fn overlong(reply: &Reply, method: &str, params: Option<&Params<'_>>) -> Option<ErrorObject> {
    let is_long = |bytes: usize| bytes > NAME_BYTES_MAX;
    let message = |what: &str| format!("{what} is longer than {NAME_BYTES_MAX} bytes");
    let invalid = |what: &str| Some(ErrorObject::new(code::INVALID_REQUEST, message(what)));
    if is_long(reply.id.bytes()) || reply.token().is_some_and(|token| is_long(token.len())) {
        return invalid("the id");
    }
    if is_long(method.len()) {
        return invalid("the name of the method");
    }
    let token = params::any_members(params).meta.as_ref().and_then(|meta| meta.progress_token);
    if token.is_some_and(|token| is_long(token.get().len())) {
        return Some(ErrorObject::invalid_params(message("params._meta.progressToken")));
    }
    let member = match method {
        _ if method.ends_with("/list") => "cursor",
        _ if method.starts_with("resources/") => "uri",
        _ => return None,
    };
    let [text] = params::find(params, [member]).ok()?;
    let is_overlong = text.is_some_and(|text| is_long(text.get().len()));
    is_overlong.then(|| ErrorObject::invalid_params(message(&format!("params.{member}"))))
}

/// A request that is refused before it is looked at is answered in the form it claims, so that
/// its cancel takes that back (MOD-04).
#[cold]
pub(crate) fn as_claimed(mut reply: Reply, params: Option<&Params<'_>>) -> Reply {
    if reply.dialect.methods == Methods::Tools && request_meta::of(params).is_some() {
        reply.dialect = &revision::MCP_2026_07_28;
    }
    reply
}

/// Gives back the reply of a request whose names are short enough, and that its identity has
/// room for (TSK-36).
pub(crate) fn affordable(
    outbox: &mut Outbox,
    reply: Reply,
    method: &str,
    params: Option<&Params<'_>>,
) -> Option<Reply> {
    if let Some(error) = overlong(&reply, method, params) {
        let reply = as_claimed(reply, params);
        outbox.fail(reply, &error);
        return None;
    }
    let Some(connection) = outbox.connection(reply.conn) else { return Some(reply) };
    let limits = &outbox.settings().limits;
    let (most, share) = (limits.held_bytes_max, limits.held_bytes_per_identity_max);
    let account = connection.account();
    let more = reply.name_bytes() + params.map_or(0, |params| params.get().len());
    let is_past_share = account.own().saturating_add(more) > share;
    let is_past = is_past_share || account.all().saturating_add(more) > most;
    if !is_past || !takes_memory(method) || account.is_unowned() {
        return Some(reply);
    }
    // Operators have their shares however much others hold.
    if !is_past_share && outbox.has_operator_rights(&connection.identity, connection.rights) {
        return Some(reply);
    }
    let reply = as_claimed(reply, params);
    if is_past_share {
        let what = "bytes are held for you: let calls finish, cancel some, or read answers";
        outbox.refuse(reply, "held_bytes_per_identity", share, what);
    } else {
        outbox.refuse(reply, "held_bytes", most, "bytes are held already: try again later");
    }
    None
}
