//! Errors of the client, one variant per cause.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::call_id::CallId;

/// Failure of a call or of its connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No server could be connected to.
    Unreachable {
        /// The attempted address: `unix:/run/ceased/ceased.sock`.
        endpoint: String,
        /// Error of the system.
        why: io::Error,
    },
    /// The peer violated the protocol. The text describes the violation and quotes the message.
    Protocol(String),
    /// The server answered the request with a JSON-RPC error.
    Rpc(RpcError),
    /// No answer within this time.
    TimedOut(Duration),
    /// A signal came, or [`Trigger::fire`](crate::Trigger::fire) was called.
    Interrupted,
    /// The server closed the connection.
    Closed,
    /// The client rejected an invalid message without sending it.
    Refused(Refusal),
    /// A system call on the connection failed.
    Io(io::Error),
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct RpcError {
    /// The code, such as -32602 for invalid parameters.
    pub code: i64,
    /// Text of the server. Untrusted: escape it before printing it on a terminal.
    #[serde(default)]
    pub message: String,
    /// Additional data of the server.
    #[serde(default)]
    pub data: Option<Value>,
}

/// JSON-RPC: the method does not exist or is not available.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: the parameters are invalid; for tasks: the task does not exist (TSK-27).
pub const INVALID_PARAMS: i64 = -32602;

/// Why the client rejected a message: a protocol rule forbids it, or a bound is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The call was answered, cancelled or never made: there is nothing to cancel (CAN-02, CAN-03).
    NotInProgress(CallId),
    /// The call creates a task, which only `tasks/cancel` may stop (CAN-05).
    CreatesTask(CallId),
    /// `initialize` is sent once, by the connection, and cannot be cancelled (CAN-04).
    Initialize,
    /// The server did not declare this capability (TSK-02).
    NotOffered(&'static str),
    /// The message exceeds the line limit.
    TooLong {
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The limit of unanswered calls is reached.
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

impl Error {
    /// The error object that the server answered with.
    #[must_use]
    pub const fn rpc(&self) -> Option<&RpcError> {
        match self {
            Self::Rpc(error) => Some(error),
            Self::Unreachable { .. }
            | Self::Protocol(_)
            | Self::TimedOut(_)
            | Self::Interrupted
            | Self::Closed
            | Self::Refused(_)
            | Self::Io(_) => None,
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
                write!(f, "the message has {bytes} bytes; the limit is {limit}; send less")
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
