//! Messages as far as HTTP is concerned: which kind one is, and the headers that repeat its members.

use std::borrow::Cow;

use ceased_core::upstream::mirror::Mirror;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::mcp_headers;

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId")]
    request_id: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Cow<'a, str>>,
}

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
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let arguments = body.get("params").and_then(|params| params.get("arguments"));
        let value = |mirror: &Mirror| {
            let found = mirror.path.iter().try_fold(arguments?, |at, name| at.get(&**name))?;
            let text = match found {
                Value::String(text) => mcp_headers::encode(text).into_owned(),
                Value::Bool(_) | Value::Number(_) => found.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
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
        let frame = frame.trim_ascii();
        let written: Written<'_> = serde_json::from_slice(frame).ok()?;
        let params = written.params.map_or("{}", RawValue::get);
        let params: Params<'_> = serde_json::from_str(params).unwrap_or_default();
        let id = written.id.and_then(number);
        let kind = match (written.method.as_deref(), id) {
            (Some(method), Some(id)) => Kind::Call { id, is_initialize: method == "initialize" },
            (Some("notifications/initialized"), None) => Kind::Initialized,
            (Some("notifications/cancelled"), None) => match params.request_id.and_then(number) {
                Some(id) => Kind::Cancel { id },
                None => Kind::Notice,
            },
            (Some(_), None) | (None, _) => Kind::Notice,
        };
        let described = written.method.and_then(|method| described(&method, &params));
        Some(Self { kind, body: frame.to_vec(), described, is_repeated: false })
    }
}

fn number(id: &RawValue) -> Option<u64> {
    id.get().parse().ok()
}

fn described(method: &str, params: &Params<'_>) -> Option<Described> {
    let meta: Meta<'_> = serde_json::from_str(params.meta?.get()).ok()?;
    let name = match method {
        "tools/call" | "prompts/get" => params.name,
        "resources/read" => params.uri,
        _ => params.task_id,
    };
    let name = name.and_then(|name| serde_json::from_str(name.get()).ok());
    let (version, method) = (meta.version?.into_owned(), method.to_owned());
    Some(Described { version, method, name, parameters: Vec::new() })
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
        answers: read.id.filter(|_| is_answer).and_then(number),
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
