//! Authentication by token before the engine sees a connection (TSK-40).
//!
//! The first frame of a connection may be the request `ceased/authenticate` with a token. It is
//! answered here and not forwarded, so that no log, recording or response contains a token. All
//! rejections take the same path and time.

use ceased_core::identity::Identity;
use ceased_core::protocol::AUTHENTICATE;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::rpc::frame::Frame;
use ceased_core::rpc::message::{Members, Message, Params};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

use crate::access::TokenAccess;
use crate::token_file::Token;

/// Reason of rejecting an unknown token.
pub(crate) const WRONG_TOKEN: &str = "wrong token";

/// Read size, and maximum frame length, of an unauthenticated peer.
pub(crate) const BYTES_MAX: usize = 4096;

/// A peer that has not authenticated yet.
#[derive(Debug)]
pub(crate) struct TokenHandshake {
    pub(crate) access: TokenAccess,
}

/// Result of checking the first frame.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// A valid token; the frame is consumed, with this answer.
    Known { token: Arc<Token>, answer: Vec<u8> },
    /// No token, and anonymous peers are allowed: the frame is for the engine.
    Anonymous,
    /// Rejected with this answer; the reason is for the log.
    Refused { answer: Vec<u8>, why: &'static str },
}

impl TokenHandshake {
    /// Checks the first frame.
    pub(crate) fn check(&self, frame: &Frame<'_>, depth_max: usize) -> Verdict {
        let mut seen = Members::default();
        let message = match frame {
            Frame::Line(line) => Some(Message::parse(line, depth_max, &mut seen)),
            Frame::TooLong(skeleton) => {
                Some(Message::parse(skeleton.as_bytes(), depth_max, &mut seen))
            }
            Frame::NotJsonRpc(_) => None,
        };
        match message {
            Some(Message::Request { id, method, params }) if method == AUTHENTICATE => {
                let found = params.and_then(token).and_then(|text| self.access.tokens.find(&text));
                match found {
                    Some(token) => Verdict::Known {
                        token: Arc::clone(token),
                        answer: answer(id.token, "result", "{}"),
                    },
                    None => refused(id.token, WRONG_TOKEN, "unknown token"),
                }
            }
            _ if self.access.anonymous => Verdict::Anonymous,
            Some(Message::Request { id, .. }) => refused(id.token, "no token", TOKEN_REQUIRED),
            Some(
                Message::Notification { .. }
                | Message::Response { .. }
                | Message::Batch(_)
                | Message::Invalid { .. },
            )
            | None => refused("null", "no token", TOKEN_REQUIRED),
        }
    }

    /// Handles the deadline.
    pub(crate) fn expire(&self) -> Verdict {
        if self.access.anonymous {
            return Verdict::Anonymous;
        }
        refused("null", "no token in time", TOKEN_REQUIRED)
    }
}

const TOKEN_REQUIRED: &str = "this listener requires a token: the first message must be the request ceased/authenticate with \
     params {\"token\": …}";

fn token(params: Params<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Params {
        token: String,
    }
    serde_json::from_str::<Params>(params.get()).ok().map(|params| params.token)
}

fn refused(id: &str, why: &'static str, message: &'static str) -> Verdict {
    let error = ErrorObject::new(code::UNAUTHENTICATED, message);
    Verdict::Refused { answer: error_answer(id, &error), why }
}

/// An error response to the request with this id, as JSON.
pub(crate) fn error_answer(id: &str, error: &ErrorObject) -> Vec<u8> {
    let mut object = json!({"code": error.code, "message": error.message});
    if let Some(data) = error.data.as_ref().and_then(|data| serde_json::from_str(data).ok())
        && let Some(members) = object.as_object_mut()
    {
        members.insert("data".into(), data);
    }
    answer(id, "error", &object.to_string())
}

fn answer(id: &str, member: &str, value: &str) -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{member}\":{value}}}").into_bytes()
}

impl Verdict {
    /// Identity reported to the engine, if any.
    pub(crate) fn identity(&self) -> Option<Identity> {
        match self {
            Self::Known { token, .. } => Some(Identity::Token(Arc::clone(token.name()))),
            Self::Anonymous => Some(Identity::Anonymous),
            Self::Refused { .. } => None,
        }
    }
}
