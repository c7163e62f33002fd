//! Records by key, for tables of up to a million entries.
//!
//! An index of nine bytes for each record holds its place; a lookup reads one cache line of the
//! index and then the record.
//!
//! Hashes are keyed with a seed of the engine, so that a peer cannot choose ids that collide.
//! Iteration sorts by key, so that the hash order is never visible (DET-01).

use alloc::vec::{self, Vec};

use hashbrown::HashTable;

use crate::collections::det_map::Seed;
use crate::collections::slab::{Slab, SlabPlace};
use crate::ids::{JobId, TaskId};

/// Capacity that an index keeps even when it holds few records.
const ROOM_KEPT: usize = 1024;

/// A value that contains its key.
pub(crate) trait Record {
    type Key: Number;

    fn key(&self) -> &Self::Key;
}

/// A key that is a number.
pub(crate) trait Number: Ord {
    fn number(&self) -> u128;
}

impl Number for JobId {
    #[inline]
    fn number(&self) -> u128 {
        self.get().into()
    }
}

impl Number for TaskId {
    #[inline]
    fn number(&self) -> u128 {
        u128::from_ne_bytes(*self.uuid().as_bytes())
    }
}

/// Records by key.
#[derive(Debug)]
pub(crate) struct Records<T> {
    all: Slab<T>,
    index: HashTable<SlotMark>,
    seed: Seed,
    /// Place inserted or mutably accessed last: most often the next one asked for.
    last: Option<SlabPlace>,
}

/// Index entry of a record.
#[derive(Debug, Clone, Copy)]
struct SlotMark {
    /// Upper bits of the hash.
    tag: u32,
    place: SlabPlace,
}

impl SlotMark {
    /// Expands a tag to the hash of the index, which uses bits of both ends.
    #[inline]
    const fn hash(tag: u32) -> u64 {
        (tag as u64) << 32 | tag as u64
    }
}

impl<T: Record> Records<T> {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { all: Slab::default(), index: HashTable::new(), seed, last: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Tag of a key.
    #[inline]
    fn tag(&self, key: &T::Key) -> u32 {
        self.seed.hash(key.number()) as u32
    }

    /// Finds a record and its place.
    #[inline]
    fn find(&self, key: &T::Key) -> Option<(SlabPlace, &T)> {
        if let Some(place) = self.last {
            let record = self.all.get(place);
            if record.key() == key {
                return Some((place, record));
            }
        }
        let tag = self.tag(key);
        let is_it = |mark: &SlotMark| mark.tag == tag && self.all.get(mark.place).key() == key;
        let mark = self.index.find(SlotMark::hash(tag), is_it)?;
        Some((mark.place, self.all.get(mark.place)))
    }

    #[inline]
    pub(crate) fn get(&self, key: &T::Key) -> Option<&T> {
        self.find(key).map(|(_, record)| record)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: &T::Key) -> Option<&mut T> {
        let (place, _) = self.find(key)?;
        self.last = Some(place);
        Some(self.at_mut(place))
    }

    pub(crate) fn contains_key(&self, key: &T::Key) -> bool {
        self.find(key).is_some()
    }

    /// Record at a place; valid until its removal.
    pub(crate) fn at(&self, place: SlabPlace) -> &T {
        self.all.get(place)
    }

    /// As [`Records::at`], mutable.
    pub(crate) fn at_mut(&mut self, place: SlabPlace) -> &mut T {
        self.all.get_mut(place)
    }

    /// Inserts a record. Its key must be absent.
    #[inline]
    pub(crate) fn insert(&mut self, record: T) -> SlabPlace {
        let tag = self.tag(record.key());
        let place = self.all.insert(record);
        let hash = |mark: &SlotMark| SlotMark::hash(mark.tag);
        self.index.insert_unique(SlotMark::hash(tag), SlotMark { tag, place }, hash);
        self.last = Some(place);
        place
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: &T::Key) -> Option<T> {
        let (place, _) = self.find(key)?;
        self.last = self.last.filter(|last| *last != place);
        let hash = SlotMark::hash(self.tag(key));
        if let Ok(mark) = self.index.find_entry(hash, |mark| mark.place == place) {
            mark.remove();
        }
        // Frees the index of a large table. The removals before pay for the move.
        if (ROOM_KEPT..).contains(&self.index.capacity())
            && self.index.len() * 16 <= self.index.capacity()
        {
            self.index.shrink_to(self.index.len() * 2, |mark| SlotMark::hash(mark.tag));
        }
        Some(self.all.remove(place))
    }

    /// Iterates over records, sorted by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&T::Key, &T)> {
        self.into_iter()
    }

    /// Sum of a number of each record; independent of the order.
    pub(crate) fn sum(&self, of: impl Fn(&T) -> usize) -> usize {
        self.all.iter().map(|(_, record)| of(record)).sum()
    }
}

impl<'a, T: Record> IntoIterator for &'a Records<T> {
    type Item = (&'a T::Key, &'a T);
    type IntoIter = vec::IntoIter<Self::Item>;

    /// Iterates over records, sorted by key.
    fn into_iter(self) -> Self::IntoIter {
        let mut all: Vec<Self::Item> = self.all.iter().map(|(_, r)| (r.key(), r)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use uuid::Uuid;

    impl Number for u64 {
        fn number(&self) -> u128 {
            (*self).into()
        }
    }

    impl Record for (u64, u64) {
        type Key = u64;

        fn key(&self) -> &u64 {
            &self.0
        }
    }

    /// DET-01: records behave as an ordered map, whatever the seed.
    #[test]
    fn records_behave_as_an_ordered_map() {
        for seed in 0..8 {
            let mut records: Records<(u64, u64)> =
                Records::new(Seed::drawn(Uuid::from_u128(seed.into())));
            let mut map = BTreeMap::new();
            let mut random: u64 = seed;
            for turn in 0..60_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                let key = (random >> 33) % 5_000;
                assert_eq!(records.contains_key(&key), map.contains_key(&key));
                if turn % 3 == 0 || map.contains_key(&key) {
                    assert_eq!(records.remove(&key).map(|(_, turn)| turn), map.remove(&key));
                } else {
                    let place = records.insert((key, turn));
                    assert_eq!(records.at(place), &(key, turn));
                    map.insert(key, turn);
                }
                assert_eq!(records.get(&key).map(|(_, turn)| turn), map.get(&key));
                assert_eq!(records.len(), map.len());
                if let (Some(ours), Some(theirs)) = (records.get_mut(&key), map.get_mut(&key)) {
                    ours.1 += 1;
                    *theirs += 1;
                }
            }
            assert!(records.iter().map(|(key, (_, turn))| (key, turn)).eq(&map));
            assert_eq!(records.sum(|(_, turn)| *turn as usize) as u64, map.values().sum::<u64>());
        }
    }
}
