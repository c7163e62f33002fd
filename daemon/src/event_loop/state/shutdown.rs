//! Shutdown: the engine drains, then pending answers are flushed to peers that read.

use super::constants::LAST_FLUSH;

use ceased_core::time::Instant;

/// Phase of the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// No shutdown was requested.
    No,
    /// The engine is draining, until this deadline.
    Draining(Instant),
    /// The engine is drained; pending output is flushed.
    Flushing {
        /// Deadline without progress of writes.
        end: Instant,
        /// Absolute deadline.
        by: Instant,
    },
}

impl Stopping {
    /// Extends the deadline after progress of writes.
    pub(crate) fn put_off(&mut self, now: Instant) {
        if let Self::Flushing { end, by } = self {
            *end = (now + LAST_FLUSH).min(*by).max(*end);
        }
    }
}
