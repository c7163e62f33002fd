//! Messages that the supervisor itself writes.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::acp::protocol::AcpForm;
use crate::json::scan;
use crate::json::writer::Writer;
use crate::reason::StopReason;
use crate::rpc::error::{ErrorObject, code};
use crate::supervisor::piece_kind::PieceKind;

/// ACP-06: the request was cancelled.
pub(super) const CANCELLED: i64 = -32800;

/// Reason for the end of a process that an operator replaces.
pub(super) const OUTDATED: &str = "an operator restarted it";

fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

/// An answer with an error.
pub(super) fn error(token: &str, error: &ErrorObject) -> Vec<u8> {
    written(|json| {
        json.raw("{\"jsonrpc\":\"2.0\",\"id\":").raw(token).raw(",\"error\":").error(error);
        json.raw("}");
    })
}

/// An answer with a result.
pub(super) fn result(token: &str, result: &str) -> Vec<u8> {
    written(|json| {
        json.raw("{\"jsonrpc\":\"2.0\",\"id\":").raw(token).raw(",\"result\":").raw(result);
        json.raw("}");
    })
}

/// A request.
pub(super) fn request(token: &str, method: &str, params: &str) -> Vec<u8> {
    written(|json| {
        json.raw("{\"jsonrpc\":\"2.0\",\"id\":").raw(token).raw(",\"method\":").string(method);
        json.raw(",\"params\":").raw(params).raw("}");
    })
}

/// `session/cancel`
pub(super) fn cancel_session(session: &str) -> Vec<u8> {
    written(|json| {
        json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{");
        json.member("sessionId", session).raw("}}");
    })
}

/// A cancel of a request, in the form that the receiver knows (ACP-01).
pub(super) fn cancel_request(form: AcpForm, token: &str) -> Vec<u8> {
    let (method, name) = match form {
        AcpForm::Published => ("$/cancel_request", "requestId"),
        AcpForm::Proposed => ("$/cancelRequest", "id"),
    };
    written(|json| {
        json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"").raw(method).raw("\",\"params\":{\"");
        json.raw(name).raw("\":").raw(token).raw("}}");
    })
}

/// Version 2: the foreground work of a session is over; background work goes on (SUP-05).
pub(super) fn idle(
    session: &str,
    stop_reason: Option<&'static str>,
    background: Option<&str>,
) -> Vec<u8> {
    written(|json| {
        json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{");
        json.member("sessionId", session).raw(",\"update\":{");
        json.raw("\"sessionUpdate\":\"state_update\",\"state\":\"idle\"");
        if let Some(reason) = stop_reason {
            json.raw(",").member("stopReason", reason);
        }
        if let Some(background) = background {
            json.raw(",\"background\":").raw(background);
        }
        json.raw("}}}");
    })
}

/// Params that name a piece of a session's work.
pub(super) fn piece(session: &str, name: &'static str, id: &str) -> Box<str> {
    let bytes = written(|json| {
        json.raw("{").member("sessionId", session).raw(",").member(name, id).raw("}");
    });
    String::from_utf8(bytes).unwrap_or_default().into()
}

/// Version 2: a tool call or terminal has ended together with its agent; `None` for work of a kind
/// that no update ends.
pub(super) fn piece_end(session: &str, kind: PieceKind, id: &str) -> Option<Vec<u8>> {
    let (update, end) = match kind {
        PieceKind::ToolCall => ("tool_call_update", "\"status\":\"failed\""),
        PieceKind::Terminal => ("terminal_update", "\"exitStatus\":{}"),
        PieceKind::Other => return None,
    };
    Some(written(|json| {
        json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{");
        json.member("sessionId", session).raw(",\"update\":{");
        json.member("sessionUpdate", update).raw(",").member(kind.id_member(), id);
        json.raw(",").raw(end).raw("}}}");
    }))
}

/// The mode of a session, as a JSON text, is told.
pub(super) fn mode_update(session: &str, mode: &str) -> Vec<u8> {
    update(session, "current_mode_update", "currentModeId", mode)
}

/// The options of a session, as a JSON text, are told.
pub(super) fn options_update(session: &str, options: &str) -> Vec<u8> {
    update(session, "config_option_update", "configOptions", options)
}

fn update(session: &str, kind: &str, name: &str, value: &str) -> Vec<u8> {
    written(|json| {
        json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{");
        json.member("sessionId", session).raw(",\"update\":{");
        json.member("sessionUpdate", kind).raw(",\"").raw(name).raw("\":").raw(value).raw("}}}");
    })
}

/// Params of a request that chooses a mode, a model, or an option, whose id and type are given.
pub(super) fn choosing(
    session: &str,
    option: Option<&str>,
    kind: Option<&str>,
    name: &str,
    value: &str,
) -> Box<str> {
    let bytes = written(|json| {
        json.raw("{").member("sessionId", session).raw(",");
        if let Some(option) = option {
            json.member("configId", option).raw(",");
        }
        if let Some(kind) = kind {
            json.member("type", kind).raw(",");
        }
        json.raw("\"").raw(name).raw("\":").raw(value).raw("}");
    });
    String::from_utf8(bytes).unwrap_or_default().into()
}

/// The error of a request that was cancelled (ACP-06), by the client or by a limit (ACP-07).
pub(super) fn cancelled(why: StopReason, limit: Option<&str>) -> ErrorObject {
    match (why, limit) {
        (_, Some(limit)) => {
            let message = alloc::format!("Request cancelled: {limit}");
            let mut data = Vec::new();
            let mut json = Writer::new(&mut data);
            json.raw("{").member("source", why.as_str()).raw("}");
            ErrorObject::new(CANCELLED, message)
                .with_data(String::from_utf8(data).unwrap_or_default())
        }
        (_, None) => ErrorObject::new(CANCELLED, "Request cancelled"),
    }
}

/// The error of the requests of an agent that has ended (SUP-03).
pub(super) fn death(agent: &str, why: Option<&str>, status: &str, stderr: &str) -> ErrorObject {
    let mut message = match why {
        Some(why) => alloc::format!("agent {agent:?} was ended: {why} ({status})"),
        None => alloc::format!("agent {agent:?} ended: {status}"),
    };
    let last: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    if !last.is_empty() {
        message.push_str("; its last lines: ");
        message.push_str(&last[last.len().saturating_sub(5)..].join(" | "));
    }
    let mut data = Vec::new();
    let mut json = Writer::new(&mut data);
    json.raw("{").member("agent", agent).raw(",").member("status", status).raw(",");
    json.member("stderr", stderr).raw("}");
    ErrorObject::new(code::INTERNAL_ERROR, message)
        .with_data(String::from_utf8(data).unwrap_or_default())
}

/// A frame with another id. `old` is a part of `frame`.
pub(super) fn with_id(frame: &[u8], old: &str, new: &str) -> Vec<u8> {
    let start = (old.as_ptr() as usize).saturating_sub(frame.as_ptr() as usize);
    let end = start + old.len();
    let (Some(before), Some(after)) = (frame.get(..start), frame.get(end..)) else {
        return frame.to_vec();
    };
    [before, new.as_bytes(), after].concat()
}

/// Text of the value of a top-level member of a frame, as a part of the frame.
pub(super) fn token_of<'a>(frame: &'a [u8], name: &str) -> Option<&'a str> {
    let text = core::str::from_utf8(frame).ok()?;
    let start = scan::space(frame, 0);
    let mut found = None;
    scan::object(frame.get(start..)?, scan::DEPTH_MAX, |key, value| {
        if scan::named(key, |key| (key == name.as_bytes()).then_some(())).is_some() {
            found = text.get(start + value.start..start + value.end);
        }
        Some(())
    });
    found
}

/// Params of a request that reopens a session: those that opened it, with its id.
pub(super) fn reopening(params: &str, session: &str) -> Box<str> {
    let mut bytes = Vec::new();
    let mut json = Writer::new(&mut bytes);
    json.raw("{").member("sessionId", session);
    scan::object(params.as_bytes(), scan::DEPTH_MAX, |key, value| {
        let is = |name: &[u8]| scan::named(key, |key| (key == name).then_some(())).is_some();
        // History that the client has is not wanted again.
        if !is(b"sessionId") && !is(b"replayFrom") {
            let (key, value) = (core::str::from_utf8(key).ok()?, params.get(value)?);
            json.raw(",\"").raw(key).raw("\":").raw(value);
        }
        Some(())
    });
    json.raw("}");
    String::from_utf8(bytes).unwrap_or_default().into()
}
