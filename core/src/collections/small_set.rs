//! Sets that rarely have more than one entry.

use alloc::collections::BTreeSet;

/// A sorted set; a single entry needs no heap memory.
#[derive(Debug, Default)]
pub(crate) enum SmallSet<T> {
    /// Empty.
    #[default]
    None,
    /// One entry.
    One(T),
    /// Two or more entries, or a set that once had as many.
    Many(BTreeSet<T>),
}

impl<T: Ord> SmallSet<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(entries) => entries.len(),
        }
    }

    pub(crate) fn contains(&self, entry: &T) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => one == entry,
            Self::Many(entries) => entries.contains(entry),
        }
    }

    pub(crate) fn insert(&mut self, entry: T) {
        *self = match core::mem::take(self) {
            Self::None => Self::One(entry),
            Self::One(one) if one == entry => Self::One(one),
            Self::One(one) => Self::Many(BTreeSet::from([one, entry])),
            Self::Many(mut entries) => {
                entries.insert(entry);
                Self::Many(entries)
            }
        };
    }

    pub(crate) fn remove(&mut self, entry: &T) {
        match self {
            Self::None => {}
            Self::One(one) => {
                if one == entry {
                    *self = Self::None;
                }
            }
            Self::Many(entries) => {
                entries.remove(entry);
            }
        }
    }

    /// Iterates over entries, sorted.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(one) => (Some(one), None),
            Self::Many(entries) => (None, Some(entries)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Iterates over entries, sorted.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = T> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(one) => (Some(one), None),
            Self::Many(entries) => (None, Some(entries)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The set behaves as a `BTreeSet`, whatever it held before.
    #[test]
    fn small_set_behaves_as_a_set() {
        let (mut few, mut set) = (SmallSet::None, BTreeSet::new());
        let mut random = 1_u64;
        for turn in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let entry = (random >> 33) % 4;
            if random >> 63 == 0 {
                few.insert(entry);
                set.insert(entry);
            } else {
                few.remove(&entry);
                set.remove(&entry);
            }
            assert!(few.iter().eq(&set), "{few:?} {set:?}");
            assert_eq!((few.len(), few.is_empty()), (set.len(), set.is_empty()));
            assert!((0..4).all(|entry| few.contains(&entry) == set.contains(&entry)));
            if turn % 7 == 0 {
                assert!(core::mem::take(&mut few).into_entries().eq(core::mem::take(&mut set)));
            }
        }
    }
}
