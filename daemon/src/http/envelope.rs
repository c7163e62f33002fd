//! Bodies of POST requests: which kind of message one holds, and which era it belongs to.

use ceased_core::ids::RequestId;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::message::{Members, Message};
use memchr::memmem;
use serde::Deserialize;

use crate::json_text::{member, string};
use crate::request_params::StatelessParams;

/// Start of the members of `_meta` that tell the era.
const PREFIX: &[u8] = b"io.modelcontextprotocol/";

/// Message of a POST request.
#[derive(Debug)]
pub(crate) enum Envelope {
    /// A request.
    Request(RequestEnvelope),
    /// A notification.
    Notification { method: String },
    /// A response to a request of this side.
    Response,
    /// A batch, with the ids of its requests; 2025-03-26 alone has them.
    Batch { requests: Vec<RequestId>, is_valid: bool },
    /// Not a message, with the error to answer.
    Invalid(ErrorObject),
}

/// Request of a POST request, as far as HTTP is concerned.
#[derive(Debug)]
pub(crate) struct RequestEnvelope {
    pub(crate) id: RequestId,
    /// The id as it was written.
    pub(crate) token: String,
    pub(crate) method: String,
    /// Statements of its params, if it claims to be of a revision without sessions.
    pub(crate) stateless: Option<StatelessParams>,
    /// Its params as JSON text; kept if it is stateless.
    pub(crate) params: Option<String>,
}

impl Envelope {
    /// Reads the body of a POST request.
    pub(crate) fn read(body: &[u8], depth_max: usize) -> Self {
        let mut seen = Members::default();
        match Message::parse(body, depth_max, &mut seen) {
            Message::Request { id, method, params } => {
                let mut request = RequestEnvelope {
                    id: id.id,
                    token: id.token.to_owned(),
                    method: method.into_owned(),
                    stateless: None,
                    params: None,
                };
                if let Some(params) = params {
                    request.read_params(params.get());
                }
                Self::Request(request)
            }
            Message::Notification { method, .. } => {
                Self::Notification { method: method.into_owned() }
            }
            Message::Response { .. } => Self::Response,
            Message::Batch(messages) => {
                let (mut requests, mut is_valid) = (Vec::new(), !messages.is_empty());
                for text in messages {
                    let mut seen = Members::default();
                    match Message::parse_one(text, &mut seen) {
                        Message::Request { id, .. } if id.id != RequestId::Null => {
                            requests.push(id.id);
                        }
                        Message::Notification { .. } | Message::Response { .. } => {}
                        Message::Request { .. } | Message::Batch(_) | Message::Invalid { .. } => {
                            is_valid = false;
                        }
                    }
                }
                Self::Batch { requests, is_valid }
            }
            Message::Invalid { error, .. } => Self::Invalid(error),
        }
    }
}

impl RequestEnvelope {
    /// Whether its `_meta` has the members that a revision without sessions requires.
    pub(crate) fn has_metadata(&self) -> bool {
        self.stateless.as_ref().is_some_and(|params| params.has_metadata)
    }

    /// The value that `Mcp-Name` has to repeat.
    pub(crate) fn name(&self) -> Option<&str> {
        self.stateless.as_ref()?.name.as_deref()
    }

    fn read_params(&mut self, text: &str) {
        if !may_name_era(text) {
            return;
        }
        self.stateless = StatelessParams::read(&self.method, text);
        self.params = self.stateless.is_some().then(|| text.to_owned());
    }
}

/// The name in the params of a request.
pub(crate) fn name_of(body: &[u8]) -> Option<String> {
    string(member(member(str::from_utf8(body).ok()?, "params")?, "name")?)
}

/// Whether a text may have a member of `_meta` that tells the era: its prefix is in the text, or an
/// escape that could spell it. Others need not be read a second time.
fn may_name_era(params: &str) -> bool {
    let params = params.as_bytes();
    memmem::find(params, PREFIX).is_some() || memchr::memchr(b'\\', params).is_some()
}

/// Part of a frame that an answer over HTTP depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// A response with a result.
    Result,
    /// A response with an error of this code.
    Error(i64),
    /// A request or a notification of this side, or a batch.
    Other,
}

impl FrameKind {
    /// Kind of a frame that the engine wrote. The engine writes the members of a response in one
    /// order, so that the frame need not be read to its end.
    pub(crate) fn of(frame: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Failed {
            error: Code,
        }
        #[derive(Deserialize)]
        struct Code {
            code: i64,
        }
        let Some(rest) = frame.strip_prefix(b"{\"jsonrpc\":\"2.0\",") else { return Self::Other };
        let rest = rest.strip_prefix(b"\"id\":").and_then(after_id).unwrap_or(rest);
        if rest.starts_with(b"\"result\":") {
            return Self::Result;
        }
        if rest.starts_with(b"\"error\":") {
            let failed = serde_json::from_slice::<Failed>(frame).map(|failed| failed.error.code);
            return Self::Error(failed.unwrap_or_default());
        }
        Self::Other
    }
}

/// The rest of a text that begins with an id and a comma.
fn after_id(text: &[u8]) -> Option<&[u8]> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return text.get(at + 1..),
            _ => {}
        }
    }
    None
}

/// Ids of the responses in a batch that the engine wrote.
pub(crate) fn answered_ids(frame: &[u8]) -> Vec<RequestId> {
    let mut seen = Members::default();
    let Message::Batch(messages) = Message::parse(frame, usize::MAX, &mut seen) else {
        return Vec::new();
    };
    let ids = messages.into_iter().filter_map(|text| {
        let mut seen = Members::default();
        match Message::parse_one(text, &mut seen) {
            Message::Response { id, .. } => id,
            Message::Request { .. }
            | Message::Notification { .. }
            | Message::Batch(_)
            | Message::Invalid { .. } => None,
        }
    });
    ids.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_engine_are_told_apart() {
        for (frame, kind) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, FrameKind::Result),
            (r#"{"jsonrpc":"2.0","id":"a\",\"b","result":{}}"#, FrameKind::Result),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-7,"message":"x"}}"#, FrameKind::Error(-7)),
            (r#"{"jsonrpc":"2.0","error":{"code":-8,"message":"x"}}"#, FrameKind::Error(-8)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"result"}"#, FrameKind::Other),
            (r#"{"jsonrpc":"2.0","method":"x","params":{"result":1}}"#, FrameKind::Other),
            (r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#, FrameKind::Other),
        ] {
            assert_eq!(FrameKind::of(frame.as_bytes()), kind, "{frame}");
        }
    }

    #[test]
    fn batches_name_their_requests() {
        let frame = br#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}]"#;
        assert_eq!(answered_ids(frame), [RequestId::Number(1), RequestId::Text("x".into())]);
    }

    #[test]
    fn envelope_names_the_era_of_a_request() {
        let body = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{
            "io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        let Envelope::Request(request) = Envelope::read(body, 64) else { panic!("a request") };
        let stateless = request.stateless.unwrap();
        assert_eq!(stateless.version.as_deref(), Some("2026-07-28"));
        assert_eq!(stateless.name.as_deref(), Some("t"));
        assert!(stateless.has_metadata);
        let body = br#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
        let Envelope::Request(request) = Envelope::read(body, 64) else { panic!("a request") };
        assert_eq!(request.stateless, None);
    }

    /// The members of `_meta` may be spelled with escapes.
    #[test]
    fn era_is_found_in_every_spelling() {
        for (meta, is_stateless) in [
            (r#""io.modelcontextprotocol/clientCapabilities":{}"#, true),
            (r#""io.modelcontextprotocol\/clientCapabilities":{}"#, true),
            (r#""\u0069o.modelcontextprotocol/protocolVersion":"2026-07-28""#, true),
            (r#""io.modelcontextprotocol/related-task":{}"#, false),
            (r#""a\n":{}"#, false),
            ("", false),
        ] {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{"_meta":{{{meta}}}}}}}"#
            );
            let Envelope::Request(request) = Envelope::read(body.as_bytes(), 64) else {
                panic!("a request: {body}")
            };
            assert_eq!(request.stateless.is_some(), is_stateless, "{body}");
        }
    }
}
