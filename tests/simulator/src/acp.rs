//! Shared parts of the ACP suites: initialized peers, and the forms of a cancel.

use ceased_core::acp::protocol::{AcpForm, AcpRole};
use ceased_core::ids::{AskId, ConnId, JobId};
use ceased_core::outgoing::call::{Answer, OutgoingRequest};
use serde_json::{Value, json};

use crate::trace::Input;
use crate::world::{World, raw_json, result_of};

/// Both dialects.
pub const FORMS: [AcpForm; 2] = [AcpForm::Published, AcpForm::Proposed];

/// Capabilities with or without cancellation.
#[must_use]
pub fn supports(cancellation: bool) -> Value {
    if cancellation { json!({"cancellation": {"request": true}}) } else { json!({}) }
}

/// Opens a connection from a client; `we` and `it` say which side declares cancellation.
///
/// # Panics
/// When `initialize` is not answered.
pub fn open_to_client(w: &mut World, form: AcpForm, we: bool, it: bool) -> ConnId {
    let c = w.open_acp(form, AcpRole::Agent);
    let params = json!({"protocolVersion": 1, "clientCapabilities": supports(it)});
    let job = w.request(c, json!("init"), "initialize", params);
    w.end(job, result_of(&json!({"protocolVersion": 1, "agentCapabilities": supports(we)})));
    assert_eq!(w.next(c)["id"], "init");
    c
}

/// Opens a connection to an agent; `we` and `it` say which side declares cancellation.
///
/// # Panics
/// When the caller of `initialize` gets no answer.
pub fn open_to_agent(w: &mut World, form: AcpForm, we: bool, it: bool) -> ConnId {
    let c = w.open_acp(form, AcpRole::Client);
    let params = json!({"protocolVersion": 1, "clientCapabilities": supports(we)});
    let ask = AskId::new(1_000_000 + c.get());
    w.feed(Input::Call(c, ask, asking("initialize", &params)));
    let id = w.next(c)["id"].clone();
    answer(w, c, &id, &json!({"protocolVersion": 1, "agentCapabilities": supports(it)}));
    assert!(matches!(w.told.pop(), Some((_, Answer::Result(_)))));
    c
}

/// A client sends a prompt; its job starts.
#[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
pub fn prompt(w: &mut World, c: ConnId, id: Value) -> JobId {
    w.request(c, id, "session/prompt", json!({"sessionId": "s", "prompt": []}))
}

/// A peer cancels its request, in the published form.
pub fn cancel(w: &mut World, c: ConnId, id: &Value) {
    w.tell(c, "$/cancel_request", json!({"requestId": id}));
}

/// A request to a peer.
#[must_use]
pub fn asking(method: &str, params: &Value) -> OutgoingRequest {
    OutgoingRequest {
        key: None,
        method: method.into(),
        params: Some(raw_json(&params.to_string())),
        answer_timeout: None,
        task: None,
    }
}

/// The question of an agent before an action.
#[must_use]
pub fn permission() -> OutgoingRequest {
    let params = json!({"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": []});
    asking("session/request_permission", &params)
}

/// A peer answers a request of the engine with this result.
pub fn answer(w: &mut World, c: ConnId, id: &Value, result: &Value) {
    w.send(c, &json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string());
}

/// A peer answers a request of the engine as cancelled.
pub fn refuse(w: &mut World, c: ConnId, id: &Value) {
    let error = json!({"code": -32800, "message": "Request cancelled"});
    w.send(c, &json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
}

/// The answer to a cancelled request; `source` is the origin of the cancel, if not its sender.
#[must_use]
pub fn cancelled(form: AcpForm, id: &Value, source: Option<&str>) -> Value {
    let message = match form {
        AcpForm::Published => "Request cancelled",
        AcpForm::Proposed => "Cancelled",
    };
    let mut error = json!({"code": -32800, "message": message});
    if let Some(source) = source {
        error["data"] = json!({"source": source});
    }
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

/// Answers to the callers, as text.
#[must_use]
pub fn told(w: &World) -> Vec<String> {
    w.told_words().into_iter().map(|(_, word)| word).collect()
}

/// Checks that every table except the connections is empty.
///
/// # Panics
/// When a table has an entry.
pub fn nothing_is_left(w: &World) {
    let sizes = w.sizes();
    assert_eq!((sizes.requests, sizes.jobs, sizes.timers), (0, 0, 0));
}
