//! How many jobs of each identity wait until their task is on disk (DUR-01).

use alloc::vec::Vec;

use crate::event::Identity;

/// Jobs that are held: they wait as those in the queue do, but have no turn yet.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Sorted. No count is 0 but the last one there was, which is kept for whoever comes next.
    counts: Vec<(Identity, usize)>,
    len: usize,
}

impl Held {
    /// One more.
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

    /// One less.
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
            // Mostly there is one peer.
            [(of, _)] if of == owner => Ok(0),
            counts => counts.binary_search_by(|(of, _)| of.cmp(owner)),
        }
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// How many of one identity.
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
    fn everybody_is_counted() {
        let mut held = Held::default();
        let (ann, bob) = (Identity::User(1), Identity::User(2));
        held.remove(&ann);
        held.add(&bob);
        held.add(&ann);
        held.add(&bob);
        assert_eq!((held.len(), held.len_of(&ann), held.len_of(&bob)), (3, 1, 2));
        held.remove(&bob);
        held.remove(&bob);
        held.remove(&ann);
        assert_eq!((held.len(), held.len_of(&ann), held.len_of(&bob)), (0, 0, 0));
        assert_eq!(held.counts.len(), 1, "room is kept for whoever comes next");
        held.add(&bob);
        assert_eq!((held.len(), held.len_of(&ann), held.len_of(&bob)), (1, 0, 1));
    }
}
