//! The source of ids of a simulated world.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ceased_core::ids::IdSource;
use uuid::Uuid;

/// Ids made of the number of the call they are for, so that leaving one call out of a history
/// does not rename the tasks of the others.
pub(super) struct Numbered {
    pub(super) hint: Arc<AtomicU64>,
    pub(super) again: u64,
    pub(super) last: (u64, u64),
    pub(super) collides: bool,
}

impl IdSource for Numbered {
    fn uuid(&mut self) -> Uuid {
        let hint = self.hint.load(Ordering::Relaxed);
        let id =
            |number: u64| Uuid::from_u128(0xced0_0000_0000_4000_8000 << 48 | u128::from(number));
        // TSK-08: every fifth id is the one before it, once.
        if self.collides && hint.is_multiple_of(5) && self.again != hint {
            self.again = hint;
            return id(self.last.0 * 16 + self.last.1);
        }
        self.last = if self.last.0 == hint { (hint, self.last.1 + 1) } else { (hint, 0) };
        id(hint * 16 + self.last.1)
    }
}
