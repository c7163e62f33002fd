//! The messages of the scripted server.
//!
//! Its tools `abort` and `timeout` are answered once they are cancelled, or once `echo` is called: too
//! late in both cases.

use std::borrow::Cow;

use ceased_core::protocol::revision::Dialect;
use serde_json::{Value, json};

use crate::era::STATELESS;

/// Name of the tool whose call a client aborts.
pub(super) const ABORT: &str = "abort";
/// Name of the tool whose call runs into the time limit of a client.
pub(super) const TIMEOUT: &str = "timeout";
/// Name of the tool that a client calls at last.
pub(super) const ECHO: &str = "echo";
/// Id of the ping that the server sends during `abort`.
pub(super) const PING: &str = "ceased-probe-ping";

/// A call that waits for its late answer.
#[derive(Debug)]
struct Waiting {
    id: Value,
    is_modern: bool,
    token: Option<Value>,
}

/// The state of one scripted server.
#[derive(Debug)]
pub(super) struct Script {
    /// Answers nothing.
    hangs: bool,
    waiting: Vec<Waiting>,
}

impl Script {
    /// A server that waits for its handshake, or answers nothing.
    pub(super) const fn new(hangs: bool) -> Self {
        Self { hangs, waiting: Vec::new() }
    }

    /// The lines that follow a message.
    pub(super) fn take(&mut self, message: &Value) -> Vec<String> {
        let method = message["method"].as_str();
        match (method, message.get("id")) {
            _ if self.hangs => Vec::new(),
            (Some("notifications/cancelled"), _) => {
                self.answer_late(Some(&message["params"]["requestId"]))
            }
            (Some(method), Some(id)) => self.answer(method, id, &message["params"]),
            _ => Vec::new(),
        }
    }

    fn answer(&mut self, method: &str, id: &Value, params: &Value) -> Vec<String> {
        let is_modern = !params["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null();
        let result = |result: Value| vec![answered(id, result, is_modern)];
        match method {
            "initialize" => result(json!({
                "protocolVersion": session_revision(params),
                "capabilities": {"tools": {}},
                "serverInfo": info(),
            })),
            "server/discover" => result(json!({
                "supportedVersions": [STATELESS],
                "capabilities": {"tools": {}},
                "ttlMs": 0,
                "cacheScope": "private",
            })),
            "ping" => result(json!({})),
            "tools/list" => result(tools(is_modern)),
            "tools/call" => match params["name"].as_str() {
                Some(name @ (ABORT | TIMEOUT)) => {
                    let token = params["_meta"].get("progressToken").cloned();
                    self.waiting.push(Waiting { id: id.clone(), is_modern, token });
                    let pings = name == ABORT && !is_modern;
                    let ping = json!({"jsonrpc": "2.0", "id": PING, "method": "ping"});
                    pings.then(|| ping.to_string()).into_iter().collect()
                }
                Some(ECHO) => {
                    let mut lines = self.answer_late(None);
                    lines.extend(result(content("echo")));
                    lines
                }
                _ => vec![refused(id, -32602, "no such tool")],
            },
            _ => vec![refused(id, -32601, "no such method")],
        }
    }

    /// The progress and the answer of a call that was given up; of every call without an id.
    fn answer_late(&mut self, named: Option<&Value>) -> Vec<String> {
        let is_named = |it: &Waiting| named.is_none_or(|id| is_like(&it.id, id));
        let (late, rest) = std::mem::take(&mut self.waiting).into_iter().partition(is_named);
        self.waiting = rest;
        let late: Vec<Waiting> = late;
        let mut lines = Vec::new();
        for call in late {
            if let Some(token) = &call.token {
                let params = json!({"progressToken": token, "progress": 1});
                let method = "notifications/progress";
                let progress = json!({"jsonrpc": "2.0", "method": method, "params": params});
                lines.push(progress.to_string());
            }
            lines.push(answered(&call.id, content("too late"), call.is_modern));
        }
        lines
    }
}

/// The revision of a session (RPC-04): that of the params of `initialize`, if it has sessions.
pub(super) fn session_revision(params: &Value) -> &'static str {
    Dialect::negotiate(params["protocolVersion"].as_str().unwrap_or_default()).revision
}

/// Whether two ids have one text: `3` and `"3"` do.
pub(super) fn is_like(one: &Value, other: &Value) -> bool {
    text_of(one) == text_of(other)
}

/// The text of an id.
pub(super) fn text_of(id: &Value) -> Cow<'_, str> {
    id.as_str().map_or_else(|| Cow::Owned(id.to_string()), Cow::Borrowed)
}

fn info() -> Value {
    json!({"name": "ceased-probe", "version": env!("CARGO_PKG_VERSION")})
}

fn content(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn tools(is_modern: bool) -> Value {
    let tool = |name: &str, description: &str| {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        json!({"name": name, "description": description, "inputSchema": schema})
    };
    let mut listed = json!({"tools": [
        tool(ABORT, "Takes long; to be aborted after a second"),
        tool(TIMEOUT, "Takes long; to be called with a time limit of a second"),
        tool(ECHO, "Ends at once; to be called at last"),
    ]});
    if is_modern {
        listed["ttlMs"] = json!(0);
        listed["cacheScope"] = json!("private");
    }
    listed
}

fn answered(id: &Value, mut result: Value, is_modern: bool) -> String {
    if is_modern {
        result["resultType"] = json!("complete");
        result["_meta"] = json!({"io.modelcontextprotocol/serverInfo": info()});
    }
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn refused(id: &Value, code: i32, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client may ask by `initialize` for the revision that has none.
    #[test]
    fn initialize_begins_a_session() {
        for (asked, wanted) in
            [("2025-06-18", "2025-06-18"), (STATELESS, "2025-11-25"), ("?", "2025-11-25")]
        {
            let params = json!({"protocolVersion": asked});
            let message =
                json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
            let lines = Script::new(false).take(&message);
            let answer: Value = serde_json::from_str(&lines[0]).unwrap();
            assert_eq!(answer["result"]["protocolVersion"], wanted, "{asked}");
        }
    }
}
