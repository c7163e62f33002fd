//! How a daemon ends: it drains, and then whoever reads is sent what was answered.

use super::constants::LAST_FLUSH;

use ceased_core::time::Instant;

/// How far the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    /// No shutdown was requested.
    No,
    /// The engine is draining; the time for all of it is over then.
    Draining(Instant),
    /// The engine has nothing left to do; what is in the outboxes may still leave.
    Flushing {
        /// Until then, if nobody takes any of it.
        end: Instant,
        /// And no longer than that.
        by: Instant,
    },
}

impl Stopping {
    /// A peer has taken something: whoever reads is given time.
    pub(super) fn put_off(&mut self, now: Instant) {
        if let Self::Flushing { end, by } = self {
            *end = (now + LAST_FLUSH).min(*by).max(*end);
        }
    }
}
