//! Requests that wait for what only the host knows.

use alloc::boxed::Box;

use crate::ids::{ConnId, RequestId};

/// A request that waits for what only the host knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostRequest {
    pub(crate) conn: ConnId,
    pub(crate) request: RequestId,
    pub(crate) form: HostForm,
}

/// What such a request is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostForm {
    Status,
    Logs,
    Resources,
    /// The resource of this URI.
    Resource(Box<str>),
}

impl HostForm {
    /// The method that asks for it.
    pub(crate) const fn method(&self) -> &'static str {
        match self {
            Self::Status => "ceased/status",
            Self::Logs => "ceased/logs",
            Self::Resources => "resources/list",
            Self::Resource(_) => "resources/read",
        }
    }
}
