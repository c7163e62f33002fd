//! Bodies of POST requests: which kind of message one holds, and which era it belongs to.

use ceased_core::ids::RequestId;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::message::{Members, Message};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Members of `_meta` by which a request says its revision and its client's capabilities.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

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
    Batch { requests: Vec<RequestId> },
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
    /// Revision that its `_meta` names: the request belongs to no session.
    pub(crate) version: Option<String>,
    /// Value that `Mcp-Name` has to repeat: `name`, `uri` or `taskId`, by the method.
    pub(crate) name: Option<String>,
    /// Its params as JSON text.
    pub(crate) params: Option<String>,
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
}

impl Envelope {
    /// Reads the body of a POST request.
    pub(crate) fn read(body: &[u8], depth_max: usize) -> Self {
        let mut seen = Members::default();
        match Message::parse(body, depth_max, &mut seen) {
            Message::Request { id, method, params } => {
                let params = params.map(|params| params.get().to_owned());
                let mut request = RequestEnvelope {
                    id: id.id,
                    token: id.token.to_owned(),
                    method: method.into_owned(),
                    version: None,
                    name: None,
                    params,
                };
                request.read_params();
                Self::Request(request)
            }
            Message::Notification { method, .. } => {
                Self::Notification { method: method.into_owned() }
            }
            Message::Response { .. } => Self::Response,
            Message::Batch(messages) => {
                let requests = messages.into_iter().filter_map(|text| {
                    let mut seen = Members::default();
                    match Message::parse_one(text, &mut seen) {
                        Message::Request { id, .. } => Some(id.id),
                        Message::Notification { .. }
                        | Message::Response { .. }
                        | Message::Batch(_)
                        | Message::Invalid { .. } => None,
                    }
                });
                Self::Batch { requests: requests.collect() }
            }
            Message::Invalid { error, .. } => Self::Invalid(error),
        }
    }
}

impl RequestEnvelope {
    fn read_params(&mut self) {
        let text = self.params.as_deref().filter(|text| text.starts_with('{'));
        let params: Params<'_> =
            text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let meta: serde_json::Map<String, serde_json::Value> =
            params.meta.and_then(|meta| serde_json::from_str(meta.get()).ok()).unwrap_or_default();
        let string = |raw: Option<&RawValue>| -> Option<String> {
            raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        };
        let version = meta.get(VERSION_KEY).and_then(|version| version.as_str());
        let name = match self.method.as_str() {
            "tools/call" | "prompts/get" => string(params.name),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => string(params.uri),
            method if method.starts_with("tasks/") => string(params.task_id),
            _ => None,
        };
        (self.version, self.name) = (version.map(str::to_owned), name);
    }
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
    /// Kind of a frame that the engine wrote.
    pub(crate) fn of(frame: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Code {
            code: i64,
        }
        let mut seen = Members::default();
        match Message::parse(frame, usize::MAX, &mut seen) {
            Message::Response { outcome: Ok(_), .. } => Self::Result,
            Message::Response { outcome: Err(error), .. } => {
                let code = serde_json::from_str::<Code>(error.get()).map(|error| error.code);
                Self::Error(code.unwrap_or_default())
            }
            Message::Request { .. }
            | Message::Notification { .. }
            | Message::Batch(_)
            | Message::Invalid { .. } => Self::Other,
        }
    }
}
