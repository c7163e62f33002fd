//! Requests that wait for data of the host.

use alloc::boxed::Box;

use crate::ids::{ConnId, RequestId};

/// A request that waits for data of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostRequest {
    pub(crate) conn: ConnId,
    pub(crate) request: RequestId,
    pub(crate) form: HostForm,
}

/// Form of the answer to such a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostForm {
    Status,
    Logs,
    View,
    Login,
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
            Self::View => "ceased/view",
            Self::Login => "ceased/login",
            Self::Resources => "resources/list",
            Self::Resource(_) => "resources/read",
        }
    }
}
