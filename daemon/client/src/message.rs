//! Messages of a server: answers, requests, and notifications.

use ceased_core::ids::RequestId;
use ceased_core::rpc::error::code::LIMIT_REACHED;
use ceased_core::rpc::frame::Frame;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call_id::CallId;
use crate::decode::{broken, members};
use crate::error::{Error, RpcError};
use crate::task::Task;
use crate::wire::LINE_BYTES_MAX;

/// A notification of the server. All text in it is untrusted.
#[derive(Debug, Clone)]
pub enum Notification {
    /// Progress of a call.
    Progress(Progress),
    /// A log message.
    Log(Log),
    /// A task changed. Only a hint: servers need not send it (TSK-18).
    Task(Box<Task>),
    /// Any other notification.
    Other {
        /// The method.
        method: String,
        /// The params, `null` if absent.
        params: Value,
    },
}

/// Progress of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The call; for a task, the one that created it (TSK-33).
    pub call: CallId,
    /// Current progress, in units of the tool.
    pub done: f64,
    /// Total, if known.
    pub total: Option<f64>,
    /// Description of the current step.
    pub message: Option<String>,
}

/// A log message.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Log {
    /// Level, `debug` to `emergency`.
    pub level: String,
    /// Name of the logger.
    #[serde(default)]
    pub logger: Option<String>,
    /// The message, usually a string.
    pub data: Value,
}

/// A parsed line of a server.
#[derive(Debug)]
pub(crate) enum Message {
    Answer {
        id: CallId,
        outcome: Result<Box<RawValue>, RpcError>,
    },
    Request {
        id: Box<RawValue>,
        method: String,
    },
    /// An error response without an id: the server could not read the id of the request, or not the
    /// request at all.
    Unassigned(RpcError),
    Note(Notification),
}

impl Message {
    /// Parses a frame. `None` for a message without meaning for this client, such as progress with
    /// an unknown token.
    pub(crate) fn read(frame: &Frame<'_>) -> Result<Option<Self>, Error> {
        match frame {
            Frame::Line(line) => {
                let text = std::str::from_utf8(line)
                    .map_err(|why| broken(&format!("a line is not UTF-8 ({why})"), line))?;
                Self::parse(text)
            }
            Frame::TooLong(skeleton) => {
                let message =
                    format!("a line is longer than {LINE_BYTES_MAX} bytes; ask for less at once");
                match Self::parse(skeleton) {
                    Ok(Some(Self::Answer { id, .. })) => {
                        let error = RpcError { code: LIMIT_REACHED, message, data: None };
                        Ok(Some(Self::Answer { id, outcome: Err(error) }))
                    }
                    Ok(_) | Err(_) => Err(Error::Protocol(message)),
                }
            }
            Frame::NotJsonRpc(said) => Err(broken("the server does not speak JSON-RPC", said)),
        }
    }

    fn parse(line: &str) -> Result<Option<Self>, Error> {
        let bad = |what: &str| broken(what, line.as_bytes());
        let members =
            members(line).map_err(|why| bad(&format!("a line is not a message ({why})")))?;
        let id = members.get("id").copied();
        if let Some(method) = members.get("method").filter(|method| method.get() != "null") {
            let method: String =
                serde_json::from_str(method.get()).map_err(|_| bad("a method is not a string"))?;
            return match id {
                Some(id) => Ok(Some(Self::Request { id: id.to_owned(), method })),
                None => Ok(note(method, members.get("params").copied()).map(Self::Note)),
            };
        }
        // Some servers write both members, with `null` for the absent one.
        let error = members.get("error").filter(|error| error.get() != "null");
        let result = members.get("result").filter(|raw| raw.get() != "null" || error.is_none());
        let outcome = match (result, error) {
            (Some(result), None) => Ok((*result).to_owned()),
            (None, Some(error)) => Err(serde_json::from_str::<RpcError>(error.get())
                .map_err(|_| bad("an error has no code or is not an object"))?),
            (Some(_), Some(_)) => return Err(bad("an answer has both result and error")),
            (None, None) => return Err(bad("a message has no method, result or error")),
        };
        match (id.and_then(call_named), outcome) {
            (Some(id), outcome) => Ok(Some(Self::Answer { id, outcome })),
            (None, Err(error)) if id.is_none_or(|id| id.get() == "null") => {
                Ok(Some(Self::Unassigned(error)))
            }
            (None, _) => Err(bad("an answer to a request that was never sent")),
        }
    }
}

/// The call named by an id or a progress token, in any spelling of its number.
fn call_named(token: &RawValue) -> Option<CallId> {
    match RequestId::parse(token.get())? {
        RequestId::Number(number) => u64::try_from(number).ok().map(CallId),
        RequestId::Text(_) | RequestId::Canonical(_) | RequestId::Null => None,
    }
}

fn note(method: String, params: Option<&RawValue>) -> Option<Notification> {
    let text = params.map_or("null", RawValue::get);
    match method.as_str() {
        "notifications/progress" => progress(text).map(Notification::Progress),
        "notifications/message" => serde_json::from_str(text).ok().map(Notification::Log),
        "notifications/tasks/status" => {
            Task::parse(text).ok().map(|task| Notification::Task(Box::new(task)))
        }
        _ => {
            let params = serde_json::from_str(text).ok()?;
            Some(Notification::Other { method, params })
        }
    }
}

fn progress(params: &str) -> Option<Progress> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(rename = "progressToken", borrow)]
        token: &'a RawValue,
        progress: f64,
        #[serde(default)]
        total: Option<f64>,
        #[serde(default)]
        message: Option<String>,
    }
    let Params { token, progress, total, message } = serde_json::from_str(params).ok()?;
    Some(Progress { call: call_named(token)?, done: progress, total, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Message>, Error> {
        Message::read(&Frame::Line(line.as_bytes()))
    }

    #[test]
    fn null_result_is_an_answer() {
        let message = read(r#"{"jsonrpc":"2.0","id":3,"result":null}"#).unwrap().unwrap();
        let Message::Answer { id: CallId(3), outcome: Ok(result) } = message else {
            panic!("{message:?}")
        };
        assert_eq!(result.get(), "null");
    }

    /// RPC-01: numbers in any spelling, and unknown members, are accepted.
    #[test]
    fn answers_in_other_spellings_are_understood() {
        for line in [
            r#"{"jsonrpc":"2.0","id":3.0,"result":7}"#,
            r#"{"jsonrpc":"2.0","id":30e-1,"result":7,"error":null}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":null,"result":7}"#,
        ] {
            let message = read(line).unwrap().unwrap();
            let Message::Answer { id: CallId(3), outcome: Ok(result) } = message else {
                panic!("{line}: {message:?}")
            };
            assert_eq!(result.get(), "7");
        }
        let refused = r#"{"id":3,"result":null,"error":{"code":1,"message":"no"}}"#;
        let message = read(refused).unwrap().unwrap();
        assert!(matches!(message, Message::Answer { outcome: Err(_), .. }), "{message:?}");
        let progress =
            r#"{"method":"notifications/progress","params":{"progressToken":3.0,"progress":1}}"#;
        let message = read(progress).unwrap().unwrap();
        let Message::Note(Notification::Progress(progress)) = message else {
            panic!("{message:?}")
        };
        assert_eq!(progress.call, CallId(3));
    }

    #[test]
    fn request_id_is_kept_verbatim() {
        let message = read(r#"{"id":"\u0041-1","method":"ping"}"#).unwrap().unwrap();
        let Message::Request { id, method } = message else { panic!("{message:?}") };
        assert_eq!((id.get(), method.as_str()), (r#""\u0041-1""#, "ping"));
    }

    #[test]
    fn invalid_message_is_described_and_quoted() {
        for (line, word) in [
            ("[1]", "not a message"),
            (r#"{"id":1}"#, "no method"),
            (r#"{"id":1,"result":1,"error":{"code":1}}"#, "both"),
            (r#"{"id":1,"error":7}"#, "no code"),
            (r#"{"id":"1","result":1}"#, "never sent"),
            (r#"{"id":1.5,"result":1}"#, "never sent"),
            (r#"{"method":1}"#, "not a string"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        let alien = Message::read(&Frame::NotJsonRpc(b"SSH-2.0-x\x1b[2J")).unwrap_err().to_string();
        assert!(alien.contains("SSH-2.0") && !alien.contains('\x1b'), "{alien}");
    }

    #[test]
    fn error_without_an_id_is_unassigned() {
        for line in [
            r#"{"id":null,"error":{"code":-32700,"message":"what?"}}"#,
            r#"{"error":{"code":-32700,"message":"what?"}}"#,
        ] {
            let message = read(line).unwrap().unwrap();
            let Message::Unassigned(error) = message else { panic!("{message:?}") };
            assert_eq!((error.code, error.message.as_str()), (-32700, "what?"));
        }
        let error = read(r#"{"id":null,"result":1}"#).unwrap_err().to_string();
        assert!(error.contains("never sent"), "{error}");
    }

    #[test]
    fn progress_with_an_unknown_token_is_ignored() {
        let of = |token: &str| {
            let params = format!(r#"{{"progressToken":{token},"progress":1}}"#);
            read(&format!(r#"{{"method":"notifications/progress","params":{params}}}"#))
        };
        assert!(of("7").unwrap().is_some());
        assert!(of(r#""x""#).unwrap().is_none());
        assert!(read(r#"{"method":"notifications/progress","params":[]}"#).unwrap().is_none());
    }
}
