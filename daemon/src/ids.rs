//! Random ids from the operating system's generator (TSK-08), drawn in batches: the system call
//! takes as long as all other work for one id.

use ceased_core::ids::IdSource;
use rustix::rand::{GetRandomFlags, getrandom};
use uuid::{Builder, Uuid};

/// Bytes of one id.
const ID_BYTES: usize = size_of::<uuid::Bytes>();
/// Number of ids drawn at a time.
const DRAWN: usize = 32;

/// Generator of unguessable ids.
pub(crate) struct RandomIds {
    drawn: [u8; DRAWN * ID_BYTES],
    /// Bytes at the start of the buffer that are not used yet.
    left: usize,
}

impl RandomIds {
    pub(crate) const fn new() -> Self {
        Self { drawn: [0; DRAWN * ID_BYTES], left: 0 }
    }

    /// Returns bytes that are used only once.
    fn draw(&mut self) -> Option<uuid::Bytes> {
        if self.left < ID_BYTES {
            self.left = getrandom(&mut self.drawn, GetRandomFlags::empty()).unwrap_or(0);
        }
        let (rest, bytes) = self.drawn.get(..self.left)?.split_last_chunk()?;
        self.left = rest.len();
        Some(*bytes)
    }
}

impl IdSource for RandomIds {
    fn uuid(&mut self) -> Uuid {
        self.draw().map_or_else(Uuid::new_v4, |bytes| Builder::from_random_bytes(bytes).into_uuid())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// TSK-08: ids are UUIDs of version 4 and never repeat.
    #[test]
    fn ids_are_random_and_unique() {
        let mut ids = RandomIds::new();
        let many: HashSet<Uuid> = (0..10 * DRAWN).map(|_| ids.uuid()).collect();
        assert_eq!(many.len(), 10 * DRAWN);
        assert!(many.iter().all(|id| id.get_version_num() == 4));
    }

    /// Buffered bytes are used once, even after a short read of the generator.
    #[test]
    fn buffered_bytes_are_used_once() {
        let mut ids = RandomIds::new();
        ids.drawn = std::array::from_fn(|at| u8::try_from(at / ID_BYTES).unwrap());
        ids.left = 2 * ID_BYTES + 5;
        assert_eq!(ids.draw().map(|bytes| bytes[15]), Some(2));
        assert_eq!(ids.draw().map(|bytes| bytes[15]), Some(1));
        assert_eq!(ids.left, 5);
        assert!(ids.draw().is_some());
        assert_eq!(ids.left, (DRAWN - 1) * ID_BYTES);
    }
}
