//! Times and bounds of a supervision.

use alloc::boxed::Box;
use core::time::Duration;

use crate::upstream::server::OnIgnoredCancel;

/// Times and bounds of a supervision.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Name of the agent, for errors.
    pub(crate) name: Box<str>,
    pub(crate) start_timeout: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) drain: Duration,
    pub(crate) on_ignored: OnIgnoredCancel,
    /// The longest that one turn may take.
    pub(crate) turn_timeout: Option<Duration>,
    /// How long a turn may show no sign of work.
    pub(crate) stall_timeout: Option<Duration>,
    /// Bytes of frames that may wait for the agent.
    pub(crate) held_bytes_max: usize,
    /// Bytes that may be held for the identity of the client.
    pub(crate) identity_bytes_max: usize,
    /// Requests of the client that may wait for an answer.
    pub(crate) works_max: usize,
    /// Whether the host records spans.
    pub(crate) records_spans: bool,
}
