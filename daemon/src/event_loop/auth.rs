//! The gate: what a peer must say before the engine hears of it (TSK-40).
//!
//! The first frame of a connection may be the request `ceased/authenticate` with a token. It is
//! answered here and goes no further, so that no token is in a log, a recording or an answer. All
//! refusals take the same way and the same time.

use ceased_core::identity::Identity;
use ceased_core::protocol::AUTHENTICATE;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::rpc::frame::Frame;
use ceased_core::rpc::message::{Members, Message, Params};
use ceased_core::time::Instant;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

use crate::access::TokenAccess;
use crate::token_file::Token;

/// Why a peer is refused that presented a token which is none.
pub(super) const WRONG_TOKEN: &str = "wrong token";

/// Bytes read at once, and the longest frame, of a peer that must still say who it is.
pub(super) const BYTES_MAX: usize = 4096;

/// A peer that has not said who it is.
#[derive(Debug)]
pub(super) struct TokenHandshake {
    pub(super) access: TokenAccess,
    /// When its time to do so is over.
    pub(super) until: Instant,
}

/// What the first frame means.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It has a token: the frame was for us, and this is the answer.
    Known { token: Arc<Token>, answer: Vec<u8> },
    /// It has none and may stay: the frame is for the engine.
    Anonymous,
    /// It goes, with this answer; why, for the log.
    Refused { answer: Vec<u8>, why: &'static str },
}

impl TokenHandshake {
    /// Judges the first frame.
    pub(super) fn judge(&self, frame: &Frame<'_>, depth_max: usize) -> Verdict {
        let mut seen = Members::default();
        let message = match frame {
            Frame::Line(line) => Some(Message::parse(line, depth_max, &mut seen)),
            Frame::TooLong | Frame::NotJsonRpc(_) => None,
        };
        match message {
            Some(Message::Request { id, method, params }) if method == AUTHENTICATE => {
                let found = params.and_then(token).and_then(|text| self.access.tokens.find(&text));
                match found {
                    Some(token) => Verdict::Known {
                        token: Arc::clone(token),
                        answer: answer(id.token, "result", "{}"),
                    },
                    None => refused(id.token, WRONG_TOKEN, "this token is not known here"),
                }
            }
            _ if self.access.anonymous => Verdict::Anonymous,
            Some(Message::Request { id, .. }) => refused(id.token, "no token", TOKEN_DUE),
            Some(
                Message::Notification { .. }
                | Message::Response { .. }
                | Message::Batch(_)
                | Message::Invalid { .. },
            )
            | None => refused("null", "no token", TOKEN_DUE),
        }
    }

    /// Its time is over.
    pub(super) fn expire(&self) -> Verdict {
        if self.access.anonymous {
            return Verdict::Anonymous;
        }
        refused("null", "no token in time", TOKEN_DUE)
    }
}

const TOKEN_DUE: &str = "this listener wants a token: the first message has to be the request ceased/authenticate with \
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
pub(super) fn error_answer(id: &str, error: &ErrorObject) -> Vec<u8> {
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
    /// Identity that the engine is told of, if any.
    pub(super) fn identity(&self) -> Option<Identity> {
        match self {
            Self::Known { token, .. } => Some(Identity::Token(Arc::clone(token.name()))),
            Self::Anonymous => Some(Identity::Anonymous),
            Self::Refused { .. } => None,
        }
    }
}
