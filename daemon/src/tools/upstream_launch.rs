//! The way to start an upstream: payload of an
//! [`UpstreamServer`](ceased_core::upstream::server::UpstreamServer).

use std::any::Any;
use std::sync::Arc;

use ceased_core::upstream::server::UpstreamServer;
use ceased_process::Launch;

use crate::config::RunAs;

/// The command of an upstream server.
#[derive(Debug, Clone)]
pub struct UpstreamLaunch {
    /// Command, directory, environment and isolation of each instance, and the copy of its standard
    /// error. Its number, pipes, user and other output are chosen when an instance starts.
    pub launch: Launch,
    /// User of the instances; as of a tool.
    pub run_as: Option<RunAs>,
}

impl UpstreamLaunch {
    /// As the payload of a server.
    #[must_use]
    pub fn into_payload(self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(self))
    }

    /// The payload of a server, if it is one.
    pub(crate) fn of(server: &UpstreamServer) -> Option<&Self> {
        server.payload.as_ref()?.downcast_ref()
    }
}
