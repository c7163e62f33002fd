//! Random ids from the operating system's generator (TSK-08), drawn many at a time: asking it takes as
//! long as all else that is done for one.

use ceased_core::ids::IdSource;
use rustix::rand::{GetRandomFlags, getrandom};
use uuid::{Builder, Uuid};

/// Bytes of one id.
const ID_BYTES: usize = size_of::<uuid::Bytes>();
/// Ids drawn at a time.
const DRAWN: usize = 32;

/// Ids that nobody can guess.
pub(crate) struct RandomIds {
    drawn: [u8; DRAWN * ID_BYTES],
    /// Bytes of those, from the beginning, that are in no id yet.
    left: usize,
}

impl RandomIds {
    pub(crate) const fn new() -> Self {
        Self { drawn: [0; DRAWN * ID_BYTES], left: 0 }
    }

    /// Random bytes that are given out once.
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

    /// TSK-08: of version 4, and never twice, whatever is drawn when.
    #[test]
    fn ids_are_random() {
        let mut ids = RandomIds::new();
        let many: HashSet<Uuid> = (0..10 * DRAWN).map(|_| ids.uuid()).collect();
        assert_eq!(many.len(), 10 * DRAWN);
        assert!(many.iter().all(|id| id.get_version_num() == 4));
    }

    /// Nothing of what is kept is given out again, also when the system gave less than was wanted.
    #[test]
    fn what_was_drawn_is_given_out_once() {
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
