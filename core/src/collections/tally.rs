//! Counts by identity.

use alloc::vec::Vec;

use crate::identity::Identity;

/// Number of items of each identity.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Sorted. Only the last remaining count may be 0; its allocation is kept for the next
    /// identity.
    counts: Vec<(Identity, usize)>,
    len: usize,
}

impl Tally {
    /// Counts one item more.
    pub(crate) fn add(&mut self, owner: &Identity) {
        match (self.find(owner), self.counts.first_mut()) {
            (Ok(at), _) => self.counts[at].1 += 1,
            (Err(_), Some((of, count))) if self.len == 0 => {
                of.clone_from(owner);
                *count = 1;
            }
            (Err(at), _) => self.counts.insert(at, (owner.clone(), 1)),
        }
        self.len += 1;
    }

    /// Counts one item less.
    pub(crate) fn remove(&mut self, owner: &Identity) {
        let Ok(at) = self.find(owner) else { return };
        self.counts[at].1 -= 1;
        self.len -= 1;
        if self.counts[at].1 == 0 && self.counts.len() > 1 {
            self.counts.remove(at);
        }
    }

    fn find(&self, owner: &Identity) -> Result<usize, usize> {
        match self.counts.as_slice() {
            // Most hosts have a single identity.
            [(of, _)] if of == owner => Ok(0),
            counts => counts.binary_search_by(|(of, _)| of.cmp(owner)),
        }
    }

    /// Number of items of all identities.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Number of items of one identity.
    pub(crate) fn len_of(&self, owner: &Identity) -> usize {
        match self.len {
            0 => 0,
            _ => self.find(owner).map_or(0, |at| self.counts[at].1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_identity_is_counted_separately() {
        let mut tally = Tally::default();
        let (ann, bob) = (Identity::User(1), Identity::User(2));
        tally.remove(&ann);
        tally.add(&bob);
        tally.add(&ann);
        tally.add(&bob);
        assert_eq!((tally.len(), tally.len_of(&ann), tally.len_of(&bob)), (3, 1, 2));
        tally.remove(&bob);
        tally.remove(&bob);
        tally.remove(&ann);
        assert_eq!((tally.len(), tally.len_of(&ann), tally.len_of(&bob)), (0, 0, 0));
        assert_eq!(tally.counts.len(), 1, "one allocation is kept");
        tally.add(&bob);
        assert_eq!((tally.len(), tally.len_of(&ann), tally.len_of(&bob)), (1, 0, 1));
    }
}
