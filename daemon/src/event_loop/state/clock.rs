//! The clocks of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

use ceased_core::time::{Instant, Now, Wall};

/// The clocks of this machine.
pub(crate) struct Clock {
    pub(crate) zero: std::time::Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { zero: std::time::Instant::now() }
    }

    /// A moment of the system as the engine counts.
    pub(crate) fn at(&self, moment: std::time::Instant) -> Instant {
        let nanos = moment.saturating_duration_since(self.zero).as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// A moment of the engine as the system counts.
    pub(crate) fn to_system(&self, moment: Instant) -> std::time::Instant {
        self.zero + std::time::Duration::from_nanos(moment.as_nanos())
    }

    pub(crate) fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            at: self.at(std::time::Instant::now()),
            wall: Wall::from_millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}
