//! Reading of frames: the envelope, the session they name, the request a cancel names.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use crate::ids::RequestId;
use crate::json::scan;
use crate::rpc::message::{Members, Message};
use crate::rpc::params::Params;
use crate::upstream::rewrite::text_member;

/// Names of a cancel of a request.
const CANCELS: [&str; 2] = ["$/cancel_request", "$/cancelRequest"];

/// A frame, as far as supervision is concerned.
#[derive(Debug)]
pub(super) enum FrameHead<'a> {
    Request {
        id: RequestId,
        token: &'a str,
        method: Cow<'a, str>,
        params: Option<Params<'a>>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<Params<'a>>,
    },
    Response {
        id: Option<RequestId>,
        outcome: Result<&'a str, &'a str>,
    },
    /// Batches and invalid messages, which the other side judges.
    Other,
    /// A text that is not JSON.
    NotJson,
}

/// Reads a frame. `members` must be empty.
pub(super) fn read<'a>(frame: &'a [u8], members: &'a mut Members<'a>) -> FrameHead<'a> {
    match Message::parse(frame, scan::DEPTH_MAX, members) {
        // Some writers put an id into every message, `null` where there is none.
        Message::Request { id, method, params }
            if id.id == RequestId::Null && is_notification(&method) =>
        {
            FrameHead::Notification { method, params }
        }
        Message::Request { id, method, params } => {
            FrameHead::Request { id: id.id, token: id.token, method, params }
        }
        Message::Notification { method, params } => FrameHead::Notification { method, params },
        Message::Response { id, outcome } => {
            let outcome = outcome.map(|it| it.get()).map_err(|it| it.get());
            FrameHead::Response { id, outcome }
        }
        Message::Batch(_) => FrameHead::Other,
        Message::Invalid { .. } => match serde_json::from_slice::<serde::de::IgnoredAny>(frame) {
            Ok(_) => FrameHead::Other,
            Err(_) => FrameHead::NotJson,
        },
    }
}

fn is_notification(method: &str) -> bool {
    method.starts_with("$/") || matches!(method, "session/cancel" | "session/update")
}

/// Whether a notification cancels a request.
pub(super) fn is_cancel(method: &str) -> bool {
    CANCELS.contains(&method)
}

/// The request that a cancel names, in every spelling (ACP-01).
pub(super) fn named_request(params: Option<Params<'_>>) -> Option<RequestId> {
    let params = params?;
    params.request_named("requestId", true).or_else(|| params.request_named("id", true))
}

/// The session that params name.
pub(super) fn session_of(params: Option<Params<'_>>) -> Option<Box<str>> {
    text_member(params?.get(), "sessionId")
}
