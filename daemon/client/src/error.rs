//! Errors between this client and its server, one variant a cause.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::call_id::CallId;

/// Why a call, or the connection under it, did not do what was asked.
#[derive(Debug)]
pub enum Error {
    /// Nothing that could be connected to.
    Unreachable {
        /// The attempted address, in words: `unix:/run/ceased/ceased.sock`.
        endpoint: String,
        /// What the operating system said.
        why: io::Error,
    },
    /// The peer broke the protocol. The text says how and shows what it sent.
    Protocol(String),
    /// The server answered the request with a JSON-RPC error.
    Rpc(RpcError),
    /// No answer within this time.
    TimedOut(Duration),
    /// A signal came, or [`Trigger::fire`](crate::Trigger::fire) was called.
    Interrupted,
    /// The server closed the connection.
    Closed,
    /// This client refused to send something the protocol forbids; nothing was sent.
    Refused(Refusal),
    /// The operating system failed the connection.
    Io(io::Error),
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RpcError {
    /// The code, such as -32602 for parameters the server did not accept.
    pub code: i64,
    /// One sentence by the server. Untrusted text: escape it before a terminal sees it.
    #[serde(default)]
    pub message: String,
    /// Whatever else the server had to say.
    #[serde(default)]
    pub data: Option<Value>,
}

/// JSON-RPC: the method does not exist or is not available.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: the parameters are wrong; for tasks: there is no such task (TSK-27).
pub const INVALID_PARAMS: i64 = -32602;

/// What this client does not send, because a rule forbids it or a bound is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The call was answered, cancelled or never made: there is nothing to cancel (CAN-02, CAN-03).
    NotInProgress(CallId),
    /// A task is being created by this call; only `tasks/cancel` may stop it (CAN-05).
    CreatesTask(CallId),
    /// `initialize` belongs to the connection; it is sent once and never cancelled (CAN-04).
    Initialize,
    /// The server did not declare this capability (TSK-02).
    NotOffered(&'static str),
    /// The message is longer than a line may be.
    TooLong {
        /// Its size in bytes.
        bytes: usize,
        /// The most a line may have.
        limit: usize,
    },
    /// So many calls are unanswered that one more is not sent.
    TooManyCalls(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { endpoint, why } => write!(f, "cannot reach {endpoint}: {why}"),
            Self::Protocol(how) => write!(f, "the server broke the protocol: {how}"),
            Self::Rpc(error) => error.fmt(f),
            Self::TimedOut(after) => {
                write!(f, "no answer within {}", humantime::format_duration(*after))
            }
            Self::Interrupted => f.write_str("interrupted"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Io(why) => write!(f, "the connection failed: {why}"),
        }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (error {})", self.message, self.code)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInProgress(id) => {
                write!(f, "call {id} is not in progress, so there is nothing to cancel")
            }
            Self::CreatesTask(id) => {
                write!(f, "call {id} creates a task: wait for its id, then use tasks/cancel")
            }
            Self::Initialize => f.write_str("initialize is sent once, by the connection itself"),
            Self::NotOffered(what) => write!(f, "the server does not offer {what}"),
            Self::TooLong { bytes, limit } => {
                write!(f, "the message has {bytes} bytes, a line may have {limit}; send less")
            }
            Self::TooManyCalls(limit) => {
                write!(f, "{limit} calls are unanswered; wait for some of them first")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { why, .. } | Self::Io(why) => Some(why),
            Self::Rpc(error) => Some(error),
            Self::Refused(refusal) => Some(refusal),
            Self::Protocol(_) | Self::TimedOut(_) | Self::Interrupted | Self::Closed => None,
        }
    }
}

impl std::error::Error for RpcError {}
impl std::error::Error for Refusal {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
