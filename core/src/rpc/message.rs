//! JSON-RPC envelopes: the kind of message in a frame, before its method is looked at.
//!
//! Parsing is total: every byte string gives one variant of [`Message`]. One pass of the scanner
//! (`json::scan`) reads every form of an envelope and of its params; serde_json only words the
//! error for a text that is not JSON.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use serde::de::IgnoredAny;

use crate::ids::RequestId;
use crate::json::raw::Raw;
use crate::json::scan;
use crate::rpc::error::{ErrorObject, code};

pub use crate::rpc::params::{Members, Params};
use crate::rpc::result::HopMembers;
pub use crate::rpc::result::ResultText;

/// An id with its original token, so that an answer can echo it byte for byte (RPC-01).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireId<'a> {
    /// The parsed id.
    pub id: RequestId,
    /// JSON token of the id.
    pub token: &'a str,
}

impl<'a> WireId<'a> {
    #[cfg(test)]
    pub(crate) const fn of(id: RequestId) -> Self {
        Self { id, token: "" }
    }

    /// The token, if the id has other spellings too.
    pub(crate) fn odd_token(&self) -> Option<&'a str> {
        let is_odd = match self.id {
            // A decimal point and an exponent are not digits, and a zero may have a sign.
            RequestId::Number(_) => {
                self.token == "-0" || self.token.bytes().any(|byte| byte > b'9' || byte == b'.')
            }
            RequestId::Text(_) => self.token.contains('\\'),
            RequestId::Canonical(_) => true,
            RequestId::Null => false,
        };
        is_odd.then_some(self.token)
    }
}

/// Content of one frame.
#[derive(Debug)]
pub enum Message<'a> {
    /// A request, which needs an answer.
    Request {
        /// Id chosen by the peer; [`RequestId::Null`] is an id in some dialects only.
        id: WireId<'a>,
        /// Name of the method.
        method: Cow<'a, str>,
        /// The `params` member.
        params: Option<Params<'a>>,
    },
    /// A notification, which gets no answer.
    Notification {
        /// Name of the method.
        method: Cow<'a, str>,
        /// The `params` member.
        params: Option<Params<'a>>,
    },
    /// The answer to an outgoing request.
    Response {
        /// Id of the outgoing request; `None` when the peer could not read it.
        id: Option<RequestId>,
        /// The `result` member, or the `error` member.
        outcome: Result<ResultText<'a>, Raw<'a>>,
    },
    /// Several messages in one frame, each as JSON text; revision 2025-03-26 only.
    Batch(Vec<&'a str>),
    /// An invalid message.
    Invalid {
        /// The id, if it is readable.
        id: Option<WireId<'a>>,
        /// Error of the answer.
        error: ErrorObject,
    },
}

impl<'a> Message<'a> {
    /// Parses one frame. Rejects nesting deeper than `depth_max` without following it. `seen` must
    /// be empty; it receives the members of the params.
    #[must_use]
    pub fn parse(frame: &'a [u8], depth_max: usize, seen: &'a mut Members<'a>) -> Self {
        match core::str::from_utf8(frame) {
            Ok(text) => Self::parse_text(text, depth_max, seen),
            Err(_) => Self::invalid(None, code::PARSE_ERROR, "the frame is not UTF-8"),
        }
    }

    /// As [`Message::parse`], for a frame that is known to be UTF-8.
    pub(crate) fn parse_text(text: &'a str, depth_max: usize, seen: &'a mut Members<'a>) -> Self {
        let depth_max = depth_max.min(scan::DEPTH_MAX);
        let start = scan::space(text.as_bytes(), 0);
        let message = match text.as_bytes().get(start) {
            Some(b'[') => batch(text, start, depth_max),
            _ => MessageEnvelope::read(text, start, depth_max, seen),
        };
        message.unwrap_or_else(|| unreadable(text, depth_max))
    }

    /// Parses one message of a batch that [`Message::parse`] returned.
    #[must_use]
    pub fn parse_one(text: &'a str, seen: &'a mut Members<'a>) -> Self {
        MessageEnvelope::read(text, 0, scan::DEPTH_MAX, seen)
            .unwrap_or_else(|| unreadable(text, scan::DEPTH_MAX))
    }

    fn invalid(id: Option<WireId<'a>>, code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid { id, error: ErrorObject::new(code, message) }
    }
}

/// Parses the messages of an array that ends with the text.
fn batch(text: &str, start: usize, depth_max: usize) -> Option<Message<'_>> {
    let (bytes, mut messages) = (text.as_bytes(), Vec::new());
    let end = scan::array_at(bytes, start, depth_max, |at, depth_max| {
        let end = scan::value(bytes, at, depth_max)?;
        messages.push(text.get(at..end)?);
        Some(end)
    })?;
    (scan::space(bytes, end) == bytes.len()).then_some(Message::Batch(messages))
}

/// Error for a text that is no message: nested too deeply, not JSON, or not an object.
#[cold]
fn unreadable<'a>(text: &str, depth_max: usize) -> Message<'a> {
    if deeper_than(text.as_bytes(), depth_max) {
        let message = format!("{LIMIT_REACHED}json_depth = {depth_max}: the message nests deeper");
        return Message::invalid(None, code::PARSE_ERROR, message);
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => Message::invalid(None, code::PARSE_ERROR, error.to_string()),
        Ok(IgnoredAny) => {
            Message::invalid(None, code::INVALID_REQUEST, "a message is a JSON object")
        }
    }
}

/// Start of the message of an error for a frame that passes a limit.
pub(crate) const LIMIT_REACHED: &str = "limit reached: ";

/// Message of the error for an invalid id.
pub(crate) const BAD_ID: &str = "the member \"id\" must be a string or an integer";

/// Members of an envelope.
#[derive(Default)]
struct MessageEnvelope<'a> {
    jsonrpc: Option<Raw<'a>>,
    id: Option<Raw<'a>>,
    method: Option<Raw<'a>>,
    params: Option<Raw<'a>>,
    result: Option<Raw<'a>>,
    error: Option<Raw<'a>>,
    /// Members of the result.
    hop: HopMembers,
    /// Value of an id in the usual spelling of a number.
    number: Option<i64>,
    /// True for a method without escapes.
    is_plain: bool,
    /// A member that occurs twice.
    twice: Option<EnvelopeMember>,
}

/// A member of an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EnvelopeMember {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
}

/// The only valid `jsonrpc` value.
const VERSION: &[u8] = b"\"2.0\"";

impl EnvelopeMember {
    /// The member at the start of a text in its usual spelling, and the length of its name with the
    /// colon: one comparison instead of a search for the end of the name.
    #[inline]
    fn usual(text: &[u8]) -> Option<(Self, usize)> {
        // The general path handles white space before the value.
        if text.starts_with(b"\"jsonrpc\":\"") {
            Some((Self::Jsonrpc, 10))
        } else if text.starts_with(b"\"id\":") && !scan::is_space(text.get(5)) {
            Some((Self::Id, 5))
        } else if text.starts_with(b"\"method\":\"") {
            Some((Self::Method, 9))
        } else if text.starts_with(b"\"params\":{") {
            Some((Self::Params, 9))
        } else {
            None
        }
    }

    #[inline]
    const fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"jsonrpc" => Self::Jsonrpc,
            b"id" => Self::Id,
            b"method" => Self::Method,
            b"params" => Self::Params,
            b"result" => Self::Result,
            b"error" => Self::Error,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Jsonrpc => "jsonrpc",
            Self::Id => "id",
            Self::Method => "method",
            Self::Params => "params",
            Self::Result => "result",
            Self::Error => "error",
        }
    }
}

impl<'a> MessageEnvelope<'a> {
    /// Parses the message at an offset of a text, which ends with the text; `seen` receives the
    /// members of its params.
    #[inline]
    fn read(
        text: &'a str,
        start: usize,
        depth_max: usize,
        seen: &'a mut Members<'a>,
    ) -> Option<Message<'a>> {
        let (bytes, mut envelope) = (text.as_bytes(), Self::default());
        let inner = depth_max.checked_sub(1)?;
        let mut at = scan::space(bytes, scan::expect(bytes, start, b'{')?);
        let mut ends = bytes.get(at) == Some(&b'}');
        while !ends {
            let (member, value) = match EnvelopeMember::usual(bytes.get(at..)?) {
                Some((member, length)) => (Some(member), at + length),
                None => {
                    let (name, value) = scan::key(bytes, at)?;
                    (scan::named(name, EnvelopeMember::named), value)
                }
            };
            let end = envelope.member(member, text, value, inner, seen)?;
            at = scan::space(bytes, end);
            ends = match bytes.get(at)? {
                b',' => false,
                b'}' => true,
                _ => return None,
            };
            if !ends {
                at = scan::space(bytes, at + 1);
            }
        }
        (scan::space(bytes, at + 1) == bytes.len()).then(|| envelope.classify(seen))
    }

    /// Stores the value of a member; returns the end of the value.
    #[inline]
    fn member(
        &mut self,
        member: Option<EnvelopeMember>,
        text: &'a str,
        at: usize,
        depth_max: usize,
        seen: &mut Members<'a>,
    ) -> Option<usize> {
        let bytes = text.as_bytes();
        let Some(member) = member else { return scan::value(bytes, at, depth_max) };
        let is_again = self.slot(member).is_some();
        let end = match member {
            EnvelopeMember::Params if !is_again => seen.read(text, at, depth_max)?,
            EnvelopeMember::Jsonrpc if bytes.get(at..)?.starts_with(VERSION) => at + VERSION.len(),
            EnvelopeMember::Id => {
                let short = scan::short_number(bytes, at);
                self.number = short.map(|(number, _)| number);
                short.map_or_else(|| scan::value(bytes, at, depth_max), |(_, end)| Some(end))?
            }
            EnvelopeMember::Method => {
                let close = scan::special(bytes, at + 1);
                self.is_plain = bytes.get(at) == Some(&b'"') && bytes.get(close) == Some(&b'"');
                if self.is_plain { close + 1 } else { scan::value(bytes, at, depth_max)? }
            }
            EnvelopeMember::Result if !is_again => self.hop.read(bytes, at, depth_max)?,
            EnvelopeMember::Jsonrpc
            | EnvelopeMember::Params
            | EnvelopeMember::Result
            | EnvelopeMember::Error => scan::value(bytes, at, depth_max)?,
        };
        *self.slot(member) = Some(Raw::checked(text.get(at..end)?));
        if is_again {
            self.twice = Some(member);
        }
        Some(end)
    }

    const fn slot(&mut self, member: EnvelopeMember) -> &mut Option<Raw<'a>> {
        match member {
            EnvelopeMember::Jsonrpc => &mut self.jsonrpc,
            EnvelopeMember::Id => &mut self.id,
            EnvelopeMember::Method => &mut self.method,
            EnvelopeMember::Params => &mut self.params,
            EnvelopeMember::Result => &mut self.result,
            EnvelopeMember::Error => &mut self.error,
        }
    }

    #[inline]
    fn classify(self, members: &'a Members<'a>) -> Message<'a> {
        let id = self.id.map(|raw| match self.number {
            Some(number) => {
                WrittenId::Is(WireId { id: RequestId::Number(number), token: raw.get() })
            }
            None => WrittenId::read(raw),
        });
        let echo = id.as_ref().and_then(WrittenId::echo);
        let invalid = |id: Option<&WireId<'a>>, message: &'static str| {
            Message::invalid(id.cloned(), code::INVALID_REQUEST, message)
        };
        if let Some(member) = self.twice {
            return Message::invalid(
                // With two ids, neither can be echoed.
                echo.filter(|_| member != EnvelopeMember::Id).cloned(),
                code::INVALID_REQUEST,
                format!("the member {:?} stands there twice", member.name()),
            );
        }
        if self.jsonrpc.is_none_or(|version| version.get().as_bytes() != VERSION) {
            return invalid(echo, "the member \"jsonrpc\" must be \"2.0\"");
        }
        let params = self.params.filter(|params| !is_empty(*params));
        let params = params.map(|params| Params::seen(params, members));
        match self.kind() {
            MessageKind::Call(method) => {
                let method = match method.get().get(1..method.get().len() - 1) {
                    Some(plain) if self.is_plain => Some(Cow::Borrowed(plain)),
                    Some(_) | None => method.string(),
                };
                let Some(method) = method else {
                    return invalid(echo, "the member \"method\" must be a string");
                };
                let odd = params.is_some_and(|params| !params.get().starts_with(['{', '[']));
                match id {
                    // A notification is never answered, so the handler of the method judges odd
                    // params (CAN-14).
                    None => Message::Notification { method, params },
                    Some(_) if odd => {
                        invalid(echo, "the member \"params\" must be an object or an array")
                    }
                    Some(WrittenId::Is(id)) => Message::Request { id, method, params },
                    // Whether `null` is an id depends on the dialect.
                    Some(WrittenId::Null) => {
                        let id = WireId { id: RequestId::Null, token: "null" };
                        Message::Request { id, method, params }
                    }
                    Some(WrittenId::Refused) => invalid(None, BAD_ID),
                }
            }
            MessageKind::Response(outcome) => {
                let id = match id {
                    Some(WrittenId::Is(id)) => Some(id.id),
                    Some(WrittenId::Null | WrittenId::Refused) | None => None,
                };
                Message::Response { id, outcome }
            }
            MessageKind::None => {
                invalid(echo, "a message has exactly one of \"method\", \"result\" and \"error\"")
            }
        }
    }

    /// Kind of the message. Some writers put every member into every message, with `null` for the
    /// unused ones; only a response's result may itself be `null`.
    fn kind(&self) -> MessageKind<'a> {
        let given = |member: Option<Raw<'a>>| member.and_then(Raw::non_null);
        match (given(self.method), given(self.result), given(self.error)) {
            (Some(method), None, None) => MessageKind::Call(method),
            (None, Some(result), None) => {
                MessageKind::Response(Ok(ResultText::seen(result, self.hop)))
            }
            (None, None, Some(error)) => MessageKind::Response(Err(error)),
            (None, None, None) => match (self.result, self.error) {
                (Some(null), _) => MessageKind::Response(Ok(ResultText::seen(null, self.hop))),
                (None, Some(null)) => MessageKind::Response(Err(null)),
                (None, None) => MessageKind::None,
            },
            (Some(_), _, _) | (None, Some(_), Some(_)) => MessageKind::None,
        }
    }
}

/// Kind of a message.
enum MessageKind<'a> {
    /// Request or notification, with its method.
    Call(Raw<'a>),
    /// Response, with its result or error.
    Response(Result<ResultText<'a>, Raw<'a>>),
    /// None of these, or more than one.
    None,
}

/// The member `id` of an envelope.
enum WrittenId<'a> {
    Is(WireId<'a>),
    Null,
    /// A type that no schema allows for an id; no answer may contain it.
    Refused,
}

impl<'a> WrittenId<'a> {
    fn read(raw: Raw<'a>) -> Self {
        let token = raw.get();
        match RequestId::parse(token) {
            Some(id) => Self::Is(WireId { id, token }),
            None if token == "null" => Self::Null,
            None => Self::Refused,
        }
    }

    /// Id that an error answer echoes.
    const fn echo(&self) -> Option<&WireId<'a>> {
        match self {
            Self::Is(id) => Some(id),
            Self::Null | Self::Refused => None,
        }
    }
}

/// True for params that are `null` or an empty array, which count as absent.
fn is_empty(params: Raw<'_>) -> bool {
    let text = params.get();
    match text.as_bytes().first() {
        Some(b'[') => scan::space(text.as_bytes(), 1) == text.len() - 1,
        Some(b'n') => true,
        Some(_) | None => false,
    }
}

/// True when the frame nests deeper than `depth_max`.
///
/// First counts opening brackets, including those in strings: that is a vector loop, and valid
/// frames rarely have enough of them to need the exact walk.
fn deeper_than(frame: &[u8], depth_max: usize) -> bool {
    let openings = |bytes: &[u8]| -> u8 {
        // The two brackets differ in one bit. A chunk is short enough that the count cannot
        // overflow.
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

    /// RPC-01, RPC-02: every form of an envelope.
    #[test]
    fn every_form_of_an_envelope_is_read() {
        for (text, said) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, "request 1 m -"),
            (
                r#"{"method":"m","params":{"a":1},"id":"\u0041","jsonrpc":"2.0"}"#,
                r#"request "\u0041" m {"a":1}"#,
            ),
            (r#"{"jsonrpc":"2.0","method":"m\/n","params":[1]}"#, "notification m/n [1]"),
            (r#" { "id" : 1 , "jsonrpc" : "2.0" , "m\u0065thod" : "m" } "#, "request 1 m -"),
            (r#"{"jsonrpc":"2.0","method":"m","params":[ ]}"#, "notification m -"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#, "request 1 m -"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#, "request 1 m -"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","result":null,"error":null}"#,
                "request 1 m -",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":null,"result":{},"error":null}"#, "response 1 {}"),
            (r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#, "response 1 null"),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1}}"#,
                r#"response 1 error {"code":1}"#,
            ),
            (r#"{"jsonrpc":"2.0","id":41.0,"method":"m"}"#, "request 41.0 m -"),
            (r#"{"jsonrpc":"2.0","id":4.1e1,"result":{}}"#, "response 41 {}"),
            (
                r#"{"jsonrpc":"2.0","id":18446744073709551616,"method":"m"}"#,
                "request 18446744073709551616 m -",
            ),
            (r#"{"jsonrpc":"2.0","id":"\ud800","method":"m"}"#, r#"request "\ud800" m -"#),
            (r#"{"jsonrpc":"2.0","id":1,"\ud800":2,"method":"m"}"#, "request 1 m -"),
            (r#"{"jsonrpc":"2.0","method":"m","params":7}"#, "notification m 7"),
            (r#"{"jsonrpc":"2.0","method":"m","params":null}"#, "notification m -"),
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
    fn frame_that_is_not_utf8_is_a_parse_error() {
        let mut seen = Members::default();
        let message = Message::parse(b"{\"a\":\"\xff\"}", 64, &mut seen);
        let Message::Invalid { id: None, error } = message else {
            panic!("parsed as a message");
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
