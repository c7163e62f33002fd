//! Facts about the request of a call, for its span.

use std::time::Instant;

/// Facts about the request of a call.
#[derive(Debug, Clone)]
pub(crate) struct Hop {
    /// When it arrived.
    pub(crate) asked: Instant,
    pub(crate) method: Box<str>,
    /// Id of the request as text.
    pub(crate) request: Option<String>,
    pub(crate) revision: &'static str,
    /// `pipe`, `unix` or `tcp`; empty once the connection is gone.
    pub(crate) transport: &'static str,
}
