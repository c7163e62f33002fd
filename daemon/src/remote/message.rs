//! Messages as far as HTTP is concerned: which kind one is, and the headers that repeat its members.

use ceased_core::upstream::mirror::Mirror;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json_text::{member, members, string};
use crate::mcp_headers;
use crate::request_params::StatelessParams;

/// Kind of a message of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request with this id.
    Call { id: u64, is_initialize: bool },
    /// `notifications/initialized`
    Initialized,
    /// The cancel of the request with this id.
    Cancel { id: u64 },
    /// Another notification, or an answer.
    Notice,
}

impl Kind {
    pub(crate) const fn is_initialize(self) -> bool {
        matches!(self, Self::Call { is_initialize: true, .. })
    }
}

/// A message of the engine.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) kind: Kind,
    pub(crate) body: Vec<u8>,
    /// Revision, method and name of a request without a session, for headers.
    pub(crate) described: Option<Described>,
    /// Whether it was refused without a good token, and is sent again with another one.
    pub(crate) is_repeated: bool,
}

/// The members of a request without a session that its headers repeat.
#[derive(Debug, Clone)]
pub(crate) struct Described {
    pub(crate) version: String,
    pub(crate) method: String,
    pub(crate) name: Option<String>,
    /// Headers that repeat arguments of a call.
    pub(crate) parameters: Vec<(String, String)>,
}

impl Outgoing {
    /// The tool that a request without a session calls.
    pub(crate) fn tool(&self) -> Option<&str> {
        let described = self.described.as_ref().filter(|it| it.method == "tools/call")?;
        described.name.as_deref()
    }

    /// Has headers repeat arguments of the call (`Mcp-Param-*`).
    pub(crate) fn mirror(&mut self, mirrors: &[Mirror]) {
        let Some(described) = self.described.as_mut().filter(|_| !mirrors.is_empty()) else {
            return;
        };
        let text = str::from_utf8(&self.body).ok();
        let arguments = text.and_then(|text| member(member(text, "params")?, "arguments"));
        let value = |mirror: &Mirror| {
            let found = mirror.path.iter().try_fold(arguments?, |at, name| member(at, name))?;
            // A number keeps its spelling: another one can be another number to the server.
            let text = match found.as_bytes().first()? {
                b'"' => mcp_headers::encode(&string(found)?).into_owned(),
                b'{' | b'[' | b'n' => return None,
                _ => found.to_owned(),
            };
            Some((format!("mcp-param-{}", mirror.header), text))
        };
        described.parameters = mirrors.iter().filter_map(value).collect();
    }

    /// The id of a request.
    pub(crate) const fn call(&self) -> Option<u64> {
        match self.kind {
            Kind::Call { id, .. } => Some(id),
            Kind::Initialized | Kind::Cancel { .. } | Kind::Notice => None,
        }
    }

    /// Reads a message of the engine; `None` for a text that is none.
    pub(crate) fn read(frame: &[u8]) -> Option<Self> {
        let text = str::from_utf8(frame.trim_ascii()).ok()?;
        let [id, method, params] = members(text, ["id", "method", "params"])?;
        let (method, id) = (method.and_then(string), id.and_then(number));
        let params = params.unwrap_or("{}");
        let kind = match (method.as_deref(), id) {
            (Some(method), Some(id)) => Kind::Call { id, is_initialize: method == "initialize" },
            (Some("notifications/initialized"), None) => Kind::Initialized,
            (Some("notifications/cancelled"), None) => {
                match member(params, "requestId").and_then(number) {
                    Some(id) => Kind::Cancel { id },
                    None => Kind::Notice,
                }
            }
            (Some(_), None) | (None, _) => Kind::Notice,
        };
        let described = method.and_then(|method| described(method, params));
        Some(Self { kind, body: text.as_bytes().to_vec(), described, is_repeated: false })
    }
}

fn number(id: &str) -> Option<u64> {
    id.parse().ok()
}

fn described(method: String, params: &str) -> Option<Described> {
    let StatelessParams { version, name, .. } = StatelessParams::read(&method, params)?;
    Some(Described { version: version?, method, name, parameters: Vec::new() })
}

#[derive(Deserialize)]
struct Read<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Begun {
    #[serde(default, rename = "protocolVersion")]
    version: Option<String>,
}

/// A message of a server.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// One line.
    pub(crate) frame: Vec<u8>,
    /// The request that it answers; `None` for another message.
    pub(crate) answers: Option<u64>,
    pub(crate) is_error: bool,
    /// The revision of an answer to `initialize`.
    pub(crate) version: Option<String>,
}

/// The messages in a body or event. A text that is no message is left out.
pub(crate) fn incoming(text: &[u8]) -> Vec<Incoming> {
    let text = text.trim_ascii();
    if !text.starts_with(b"[") {
        return one(text).into_iter().collect();
    }
    let batch: Vec<&RawValue> = serde_json::from_slice(text).unwrap_or_default();
    batch.into_iter().filter_map(|it| one(it.get().as_bytes())).collect()
}

fn one(text: &[u8]) -> Option<Incoming> {
    let read: Read<'_> = serde_json::from_slice(text).ok()?;
    let is_answer = read.method.is_none() && (read.result.is_some() || read.error.is_some());
    let begun = read.result.and_then(|result| serde_json::from_str::<Begun>(result.get()).ok());
    let line = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
    Some(Incoming {
        frame: text.iter().map(line).collect(),
        answers: read.id.filter(|_| is_answer).and_then(|id| number(id.get())),
        is_error: is_answer && read.error.is_some(),
        version: begun.and_then(|begun| begun.version),
    })
}

/// An answer with an error, in one line.
pub(crate) fn error_answer(id: u64, code: i64, message: &str) -> Vec<u8> {
    let answer = serde_json::json!({
        "jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message},
    });
    answer.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrored(arguments: &str) -> Vec<(String, String)> {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let params = format!(r#"{{"name":"t","arguments":{arguments},{meta}}}"#);
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let mirror = |header: &str, path: &[&str]| Mirror {
            header: header.into(),
            path: path.iter().map(|name| (*name).into()).collect(),
        };
        let mut message = Outgoing::read(text.as_bytes()).unwrap();
        message.mirror(&[mirror("n", &["n"]), mirror("in", &["o", "s"])]);
        message.described.unwrap().parameters
    }

    /// A number is repeated as it is written, and a member of no meaning here hides no other.
    #[test]
    fn headers_repeat_arguments_as_they_are_written() {
        let deep = "[".repeat(100) + &"]".repeat(100);
        for (arguments, n, inner) in [
            (r#"{"n":5,"o":{"s":"x"}}"#.to_owned(), Some("5"), Some("x")),
            (r#"{"n":12345678901234567890123}"#.to_owned(), Some("12345678901234567890123"), None),
            (
                r#"{"n":1.0,"big":1e400,"o":{"s":"\u00fc"}}"#.to_owned(),
                Some("1.0"),
                Some("=?base64?w7w=?="),
            ),
            (
                format!(r#"{{"deep":{deep},"n":true,"o":{{"s":"\ud83d"}}}}"#),
                Some("true"),
                Some("=?base64?77+9?="),
            ),
            (r#"{"n":null,"o":{"s":[1]}}"#.to_owned(), None, None),
            (r#"{"n":{"a":1},"o":1}"#.to_owned(), None, None),
        ] {
            let header = |name: &str, value: Option<&str>| {
                value.map(|value| (format!("mcp-param-{name}"), value.to_owned()))
            };
            let expected: Vec<_> = header("n", n).into_iter().chain(header("in", inner)).collect();
            assert_eq!(mirrored(&arguments), expected, "{arguments}");
        }
    }
}
