//! Routes: which request of which server a relayed job is.

use alloc::boxed::Box;

use crate::limits::ServerPlaces;

/// The request of an upstream behind a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Name of the server.
    pub server: Box<str>,
    /// Requests of the server that are under way at once.
    pub places: ServerPlaces,
    /// Method of the request, such as `tools/call`.
    pub method: Box<str>,
    /// Name that the server knows the tool or prompt by, or the URI that the client knows the
    /// resource by; empty where the method has neither.
    pub name: Box<str>,
    /// URI of a resource, `name`, as the server knows it; `None` for every other name, and for a
    /// URI that clients know by the same text.
    pub own: Option<Box<str>>,
}

impl Route {
    /// The URI that the server knows.
    pub(crate) fn own_uri(&self) -> &str {
        self.own.as_deref().unwrap_or(&self.name)
    }
}
