//! JSON-RPC envelopes: what one frame says, before anyone asks what it means.
//!
//! Parsing is total: every byte string is one of the variants of [`Message`]. The envelope is read
//! by a visitor of our own, because a derived struct takes an array for an object, loses a `null`
//! result and cannot refuse duplicate keys.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::id::RequestId;
use crate::json::Raw;
pub use crate::params::{Members, Params};

/// JSON-RPC and protocol error codes this engine sends.
pub mod code {
    /// The frame is not JSON (RPC-01).
    pub const PARSE_ERROR: i64 = -32700;
    /// The frame is JSON but no JSON-RPC message, or its id cannot be one (RPC-01, RPC-02).
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method, or not for this tool or session (RPC-01, TSK-05, TSK-06).
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Bad params, an unknown task, a stale cursor (RPC-01, TSK-22, TSK-23, TSK-27).
    pub const INVALID_PARAMS: i64 = -32602;
    /// Trouble on our side (RPC-01).
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The request needs a capability its client did not declare on it (EXT-01).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The request names a revision that is not served that way (MOD-01).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// The task was cancelled; what its `tasks/result` answers (TSK-17). Ours.
    pub const TASK_CANCELLED: i64 = -31001;
    /// The task reached its ttl while somebody waited for its result (TSK-35). Ours.
    pub const TASK_EXPIRED: i64 = -31002;
    /// A limit is reached; the message and `data.limit` name it (TSK-36). Ours.
    pub const LIMIT_REACHED: i64 = -31003;
    /// The tool ran longer than its timeout; `data.timedOut` is true. Ours.
    pub const TIMED_OUT: i64 = -31004;
    /// The daemon is shutting down. Ours.
    pub const SHUTTING_DOWN: i64 = -31005;
    /// The store of tasks does not take or give what the answer needs; `data.store` says whether
    /// it is `full` or `broken` (DUR-01). Ours.
    pub const STORE_UNAVAILABLE: i64 = -31006;
    /// The daemon went down while the task ran; what its `tasks/result` answers (DUR-01). Ours.
    pub const INTERRUPTED: i64 = -31007;
    /// The call with this idempotency key is under way and another request waits for it; try again
    /// later. `data.idempotencyKey` names the key. Ours.
    pub const CALL_UNDER_WAY: i64 = -31008;
    /// The peer has to say who it is, or what it said is not believed (TSK-40). Ours; sent by the
    /// host, before it opens a connection.
    pub const UNAUTHENTICATED: i64 = -31010;
    /// The peer may not do this (TSK-39). Ours; sent by the host.
    pub const FORBIDDEN: i64 = -31011;
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorObject {
    /// One of [`code`], or what a handler chose.
    pub code: i64,
    /// One sentence for a person.
    pub message: Cow<'static, str>,
    /// The `data` member as JSON text, if there is one.
    pub data: Option<Cow<'static, str>>,
}

impl ErrorObject {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The same error with `data`, which must be valid JSON.
    #[must_use]
    pub fn with_data(mut self, json: impl Into<Cow<'static, str>>) -> Self {
        self.data = Some(json.into());
        self
    }

    /// [`code::INVALID_PARAMS`] with this message.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }
}

/// An id as it was read and as it was written, so that it can be echoed byte for byte (RPC-01).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireId<'a> {
    /// What the id means.
    pub id: RequestId,
    /// Its JSON token.
    pub token: &'a str,
}

/// What one frame says.
#[derive(Debug)]
pub enum Message<'a> {
    /// The peer wants an answer.
    Request {
        /// The peer's id for it; [`RequestId::Null`] is one in some dialects only.
        id: WireId<'a>,
        /// The method's name.
        method: Cow<'a, str>,
        /// The `params` member.
        params: Option<Params<'a>>,
    },
    /// The peer tells us something.
    Notification {
        /// The method's name.
        method: Cow<'a, str>,
        /// The `params` member.
        params: Option<Params<'a>>,
    },
    /// The peer answers a request of ours.
    Response {
        /// Our id; `None` when the peer could not read it.
        id: Option<RequestId>,
        /// The `result` member, or the `error` member.
        outcome: Result<&'a RawValue, &'a RawValue>,
    },
    /// Several messages in one frame; only revision 2025-03-26 has them.
    Batch(Vec<&'a RawValue>),
    /// None of these.
    Invalid {
        /// The id, where it could be read.
        id: Option<WireId<'a>>,
        /// What to answer.
        error: ErrorObject,
    },
}

impl<'a> Message<'a> {
    /// Reads one frame. Nesting deeper than `depth_max` is refused without being followed. In
    /// `seen`, which is empty before, its params keep what they remember.
    #[must_use]
    pub fn parse(frame: &'a [u8], depth_max: usize, seen: &'a mut Members<'a>) -> Self {
        let Ok(text) = core::str::from_utf8(frame) else {
            return Self::invalid(None, code::PARSE_ERROR, "the frame is not UTF-8");
        };
        if let Some(message) = crate::plain::message(text, depth_max, seen) {
            return message;
        }
        if deeper_than(frame, depth_max) {
            let message =
                format!("limit reached: json_depth = {depth_max}: the message nests deeper");
            return Self::invalid(None, code::PARSE_ERROR, message);
        }
        if frame.first() == Some(&b'[') {
            return match serde_json::from_str(text) {
                Ok(messages) => Self::Batch(messages),
                Err(error) => Self::invalid(None, code::PARSE_ERROR, error.to_string()),
            };
        }
        Self::parse_any(text)
    }

    /// Reads one message of a batch that was read with [`Message::parse`].
    #[must_use]
    pub fn parse_one(text: &'a str, seen: &'a mut Members<'a>) -> Self {
        crate::plain::message(text, usize::MAX, seen).unwrap_or_else(|| Self::parse_any(text))
    }

    /// Reads one message of whatever form.
    pub(crate) fn parse_any(text: &'a str) -> Self {
        let mut reader = serde_json::Deserializer::from_str(text);
        let envelope = reader.deserialize_map(EnvelopeVisitor);
        match envelope.and_then(|envelope| reader.end().map(|()| envelope)) {
            Ok(envelope) => envelope.classify(),
            // The reader stops at the first thing that is no object; the rest may be no JSON.
            Err(error) if error.is_data() && serde_json::from_str::<IgnoredAny>(text).is_ok() => {
                Self::invalid(None, code::INVALID_REQUEST, "a message is a JSON object")
            }
            Err(error) => Self::invalid(None, code::PARSE_ERROR, error.to_string()),
        }
    }

    fn invalid(id: Option<WireId<'a>>, code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid { id, error: ErrorObject::new(code, message) }
    }
}

/// What is wrong with an id that is none.
pub(crate) const BAD_ID: &str = "the member \"id\" must be a string or a 64-bit integer";

/// The members of an envelope, as raw JSON.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    /// A member that stood there twice.
    duplicate: Option<&'static str>,
}

impl<'a> Envelope<'a> {
    fn classify(self) -> Message<'a> {
        let id = self
            .id
            .and_then(|raw| RequestId::parse(raw.get()).map(|id| WireId { id, token: raw.get() }));
        let invalid =
            |id, message: &'static str| Message::invalid(id, code::INVALID_REQUEST, message);
        if let Some(name) = self.duplicate {
            return Message::invalid(
                // With two ids there is none to echo.
                id.filter(|_| name != "id"),
                code::INVALID_REQUEST,
                format!("the member {name:?} stands there twice"),
            );
        }
        if self.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
            return invalid(id, "the member \"jsonrpc\" must be \"2.0\"");
        }
        match (self.method, self.result, self.error) {
            (Some(method), None, None) => {
                let Some(method) = Raw::from(method).string() else {
                    return invalid(id, "the member \"method\" must be a string");
                };
                let params = self.params.map(|params| Params::of(params.into()));
                let odd = params.is_some_and(|params| !params.get().starts_with(['{', '[']));
                match (self.id, id) {
                    // A notification is never answered, so its reader judges odd params (CAN-14).
                    (None, _) => Message::Notification { method, params },
                    (Some(_), id) if odd => {
                        invalid(id, "the member \"params\" must be an object or an array")
                    }
                    (Some(_), Some(id)) => Message::Request { id, method, params },
                    // Whether that is an id is the dialect's to say.
                    (Some(raw), None) if raw.get() == "null" => {
                        let id = WireId { id: RequestId::Null, token: "null" };
                        Message::Request { id, method, params }
                    }
                    (Some(_), None) => invalid(None, BAD_ID),
                }
            }
            (None, Some(result), None) => {
                Message::Response { id: id.map(|id| id.id), outcome: Ok(result) }
            }
            (None, None, Some(error)) => {
                Message::Response { id: id.map(|id| id.id), outcome: Err(error) }
            }
            (Some(_), _, _) | (None, Some(_), Some(_)) | (None, None, None) => {
                invalid(id, "a message has exactly one of \"method\", \"result\" and \"error\"")
            }
        }
    }
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope::default();
        while let Some(Key(key)) = map.next_key()? {
            let (slot, name) = match key.as_ref() {
                "jsonrpc" => (&mut envelope.jsonrpc, "jsonrpc"),
                "id" => (&mut envelope.id, "id"),
                "method" => (&mut envelope.method, "method"),
                "params" => (&mut envelope.params, "params"),
                "result" => (&mut envelope.result, "result"),
                "error" => (&mut envelope.error, "error"),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if slot.replace(map.next_value()?).is_some() {
                envelope.duplicate = Some(name);
            }
        }
        Ok(envelope)
    }
}

/// A member's name, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// True when the frame nests deeper than `depth_max`.
///
/// Opening brackets are counted first, strings included: that is a vector loop, and hardly any
/// honest frame has so many of them that the exact walk is needed.
fn deeper_than(frame: &[u8], depth_max: usize) -> bool {
    let openings = |bytes: &[u8]| -> u8 {
        // The two brackets differ in one bit. So few bytes that the count cannot overflow.
        bytes.iter().map(|byte| u8::from(byte | 0x20 == b'{')).fold(0, u8::wrapping_add)
    };
    let openings: usize = frame.chunks(255).map(|bytes| usize::from(openings(bytes))).sum();
    if openings <= depth_max {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in frame {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > depth_max {
                    return true;
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;

    fn parse(text: &str) -> String {
        match Message::parse(text.as_bytes(), 64, &mut Members::default()) {
            Message::Request { id, method, params } => {
                format!("request {} {method} {}", id.token, params.map_or("-", |p| p.get()))
            }
            Message::Notification { method, params } => {
                format!("notification {method} {}", params.map_or("-", |p| p.get()))
            }
            Message::Response { id, outcome } => format!(
                "response {} {}",
                id.map_or("-".into(), |id| id.to_string()),
                outcome.map_or_else(|e| format!("error {}", e.get()), |r| r.get().to_string())
            ),
            Message::Batch(messages) => format!("batch {}", messages.len()),
            Message::Invalid { id, error } => {
                format!("invalid {} {}", id.map_or("-", |id| id.token), error.code)
            }
        }
    }

    /// RPC-01, RPC-02: every form an envelope can take.
    #[test]
    fn envelopes() {
        for (text, said) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, "request 1 m -"),
            (
                r#"{"method":"m","params":{"a":1},"id":"\u0041","jsonrpc":"2.0"}"#,
                r#"request "\u0041" m {"a":1}"#,
            ),
            (r#"{"jsonrpc":"2.0","method":"m\/n","params":[]}"#, "notification m/n []"),
            (r#"{"jsonrpc":"2.0","method":"m","params":7}"#, "notification m 7"),
            (r#"{"jsonrpc":"2.0","method":"m","params":null}"#, "notification m null"),
            (
                r#"{"jsonrpc":"2.0","id":9007199254740993,"result":null}"#,
                "response 9007199254740993 null",
            ),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#, r#"response - error {"code":1}"#),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","extra":[{}]}"#, "request 1 m -"),
            (r#"[{},{}]"#, "batch 2"),
            (r#"["2.0",1,"m",{},null,null]"#, "batch 6"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, "request null m -"),
            (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, "invalid - -32600"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, "invalid - -32600"),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#, "invalid - -32600"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "invalid - -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, "invalid - -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}"#, "invalid 1 -32600"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "invalid 1 -32600"),
            (r#"{"id":1,"method":"m"}"#, "invalid 1 -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "invalid 1 -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":7}"#, "invalid 1 -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":{}}"#, "invalid 1 -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "invalid 1 -32600"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "invalid 1 -32600"),
            (r#"{}"#, "invalid - -32600"),
            (r#"7"#, "invalid - -32600"),
            (r#"7 x"#, "invalid - -32700"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"} x"#, "invalid - -32700"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"#, "invalid - -32700"),
            (r#"{"jsonrpc":"2.0","id":01,"method":"m"}"#, "invalid - -32700"),
            ("{\"a\":\u{1}}", "invalid - -32700"),
        ] {
            assert_eq!(parse(text), said, "{text}");
        }
    }

    #[test]
    fn what_is_not_text_is_a_parse_error() {
        let mut seen = Members::default();
        let message = Message::parse(b"{\"a\":\"\xff\"}", 64, &mut seen);
        let Message::Invalid { id: None, error } = message else {
            panic!("taken for a message");
        };
        assert_eq!(error.code, code::PARSE_ERROR);
    }

    #[test]
    fn depth_is_bounded_and_brackets_in_strings_do_not_count() {
        let nest = |depth: usize| {
            let params = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#)
        };
        assert!(parse(&nest(63)).starts_with("request"));
        assert_eq!(parse(&nest(64)), "invalid - -32700");
        assert_eq!(parse(&nest(100_000)), "invalid - -32700");
        let quoted = format!(r#"{{"jsonrpc":"2.0","method":"\"{}"}}"#, "[".repeat(1000));
        assert!(parse(&quoted).starts_with("notification"));
        let wide = vec!["[]"; 1000].join(",");
        let wide = format!(r#"{{"jsonrpc":"2.0","method":"m","params":[{wide}]}}"#);
        assert!(parse(&wide).starts_with("notification"));
    }
}
