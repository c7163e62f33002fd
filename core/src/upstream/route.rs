//! Routes: which request of which server a relayed job is.

use alloc::boxed::Box;

/// The request of an upstream behind a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Name of the server.
    pub server: Box<str>,
    /// Method of the request, such as `tools/call`.
    pub method: Box<str>,
    /// Name that the server knows the tool or prompt by; empty where the method has no name.
    pub name: Box<str>,
}
