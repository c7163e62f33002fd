//! State of the stall watchdog.

use core::time::Duration;

use crate::time::Instant;

/// State of the stall watchdog.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    /// When the next look is due.
    pub(super) next: Option<Instant>,
    /// CPU time of the tree, and when it was read.
    pub(super) cpu: Option<(Instant, Duration)>,
}
