//! Questions of servers to clients, as the tables keep them.

use alloc::boxed::Box;

use crate::ids::{AskId, CallId, ConnId, JobId, RequestId};

/// Place of a server's request at the client that answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskedOf {
    /// A question of the job whose call caused it.
    Job(JobId, AskId),
    /// A request to the only client of the instance.
    Client(ConnId, CallId),
}

/// A question of a relayed job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerQuestion {
    /// The server's own request with this id, which is answered.
    Request(RequestId),
    /// An input under this key that a result of a server without sessions asks for.
    Input(Box<str>),
    /// Whether the tool may run.
    Confirmation,
}
