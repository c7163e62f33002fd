//! Records by key: the tables that may have a million entries.
//!
//! A record stays where it is; an index of eight bytes for each says where that is. To find one
//! takes a line of the index from memory and then the record itself, and nobody waits for a million
//! of them to be moved: the index is made of many parts, each of which grows by itself.
//!
//! Keys are hashed with a seed of their engine's own, so that no peer can pick ids that collide.
//! Nothing sees the order of the hashes: whoever walks the records gets them sorted by key (DET-01).

use alloc::boxed::Box;
use alloc::vec::{self, Vec};
use core::array;
use core::hint::black_box;

use crate::id::{JobId, TaskId};
use crate::slab::{Place, Slab};
use crate::table::Seed;

/// Parts of an index.
const PARTS: usize = 64;
/// Marks that a part which is used has at least.
const MARKS_MIN: usize = 8;
/// Marks that [`Records::near`] looks at before it looks elsewhere.
const NEAR: usize = 8;

/// What knows its own key.
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
    index: [Part; PARTS],
    seed: Seed,
    /// The one that was put in or taken to be changed last: mostly it is asked for next.
    last: Option<Place>,
}

impl<T: Record> Records<T> {
    pub(crate) fn new(seed: Seed) -> Self {
        let index = array::from_fn(|_| Part::default());
        Self { all: Slab::default(), index, seed, last: None }
    }

    pub(crate) const fn len(&self) -> usize {
        self.all.len()
    }

    /// The part of the index and the tag of a key.
    #[inline]
    fn spot(&self, key: &T::Key) -> (usize, u32) {
        let hash = self.seed.hash(key.number());
        ((hash >> 32) as usize % PARTS, hash as u32)
    }

    /// Where a record is, and the record.
    #[inline]
    fn find(&self, key: &T::Key) -> Option<(Place, &T)> {
        if let Some(place) = self.last {
            let record = self.all.get(place);
            if record.key() == key {
                return Some((place, record));
            }
        }
        self.look_up(key)
    }

    /// As [`Records::get`], but what was asked for last is found no faster than all else.
    pub(crate) fn get_evenly(&self, key: &T::Key) -> Option<&T> {
        self.look_up(key).map(|(_, record)| record)
    }

    fn look_up(&self, key: &T::Key) -> Option<(Place, &T)> {
        let (part, tag) = self.spot(key);
        let marks = &self.index[part].marks;
        let last = marks.len().wrapping_sub(1);
        let mut at = tag as usize & last;
        loop {
            let mark = marks.get(at)?;
            let place = mark.place?;
            if mark.tag == tag {
                let record = self.all.get(place);
                if record.key() == key {
                    return Some((place, record));
                }
            }
            at = (at + 1) & last;
        }
    }

    /// Brings the records of these keys, or those near where they would be, into the cache. The
    /// memory is asked for all of them before the first has come, so to look them up one after the
    /// other takes less time then, and does nothing else that it would not have done.
    pub(crate) fn fetch(&self, keys: &[T::Key]) {
        for key in keys {
            let (part, tag) = self.spot(key);
            let part = &self.index[part];
            black_box(part.marks.get(part.step(tag, 0)).map(|mark| mark.tag));
        }
        for key in keys {
            let found = self.get_evenly(key).or_else(|| self.near(key));
            black_box(found.is_some());
        }
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

    /// The record at a place, which is its own until it is taken out.
    pub(crate) fn at(&self, place: Place) -> &T {
        self.all.get(place)
    }

    /// As [`Records::at`], to be changed.
    pub(crate) fn at_mut(&mut self, place: Place) -> &mut T {
        self.all.get_mut(place)
    }

    /// Some record, if there is any, from about where the one of this key would be.
    pub(crate) fn near(&self, key: &T::Key) -> Option<&T> {
        let (part, tag) = self.spot(key);
        let (before, from) = self.index.split_at(part);
        let place = from.iter().chain(before).find_map(|part| part.near(tag))?;
        Some(self.at(place))
    }

    /// Puts a record in. Its key must not be there.
    #[inline]
    pub(crate) fn insert(&mut self, record: T) -> Place {
        let (part, tag) = self.spot(record.key());
        let place = self.all.insert(record);
        self.index[part].insert(Mark { tag, place: Some(place) });
        self.last = Some(place);
        place
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: &T::Key) -> Option<T> {
        let (place, _) = self.find(key)?;
        self.last = self.last.filter(|last| *last != place);
        let (part, tag) = self.spot(key);
        self.index[part].remove(Mark { tag, place: Some(place) });
        Some(self.all.remove(place))
    }

    /// Everything, sorted by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&T::Key, &T)> {
        self.into_iter()
    }

    /// Every key, sorted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &T::Key> {
        self.iter().map(|(key, _)| key)
    }

    /// Every record, sorted by key.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, record)| record)
    }

    /// The sum of a number of each record; sums do not depend on the order.
    pub(crate) fn sum(&self, of: impl Fn(&T) -> usize) -> usize {
        self.all.iter().map(|(_, record)| of(record)).sum()
    }
}

impl<'a, T: Record> IntoIterator for &'a Records<T> {
    type Item = (&'a T::Key, &'a T);
    type IntoIter = vec::IntoIter<Self::Item>;

    /// Everything, sorted by key.
    fn into_iter(self) -> Self::IntoIter {
        let mut all: Vec<Self::Item> = self.all.iter().map(|(_, r)| (r.key(), r)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter()
    }
}

/// Where records are, by hash: each mark as near as there is room after where its tag wants it.
#[derive(Debug, Default)]
struct Part {
    /// None, or a power of two of them, of which a quarter is free.
    marks: Box<[Mark]>,
    len: usize,
}

/// Where the record of a hash is.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Bits of the hash.
    tag: u32,
    place: Option<Place>,
}

impl Mark {
    const FREE: Self = Self { tag: 0, place: None };
}

impl Part {
    /// The mark that is `steps` after where a tag wants it; none where there are no marks.
    fn step(&self, tag: u32, steps: usize) -> usize {
        (tag as usize).wrapping_add(steps) & self.marks.len().wrapping_sub(1)
    }

    fn near(&self, tag: u32) -> Option<Place> {
        let marks = self.marks.len().min(NEAR);
        (0..marks).find_map(|steps| self.marks[self.step(tag, steps)].place)
    }

    fn insert(&mut self, mark: Mark) {
        if (self.len + 1) * 4 > self.marks.len() * 3 {
            let marks = alloc::vec![Mark::FREE; (self.marks.len() * 2).max(MARKS_MIN)];
            let before = core::mem::replace(&mut self.marks, marks.into_boxed_slice());
            before.iter().filter(|mark| mark.place.is_some()).for_each(|mark| self.put(*mark));
        }
        self.put(mark);
        self.len += 1;
    }

    /// Puts a mark where there is room for it.
    fn put(&mut self, mark: Mark) {
        let mut at = self.step(mark.tag, 0);
        while self.marks[at].place.is_some() {
            at = (at + 1) & (self.marks.len() - 1);
        }
        self.marks[at] = mark;
    }

    /// Takes a mark out, which is there; those after it move up, so that nothing is left behind.
    fn remove(&mut self, mark: Mark) {
        let mut at = self.step(mark.tag, 0);
        while self.marks[at].place != mark.place {
            at = (at + 1) & (self.marks.len() - 1);
        }
        let last = self.marks.len() - 1;
        let mut hole = at;
        loop {
            at = (at + 1) & last;
            let mark = self.marks[at];
            if mark.place.is_none() {
                break;
            }
            let from_home = at.wrapping_sub(mark.tag as usize) & last;
            if from_home >= (at.wrapping_sub(hole) & last) {
                self.marks[hole] = mark;
                hole = at;
            }
        }
        self.marks[hole] = Mark::FREE;
        self.len -= 1;
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

    /// DET-01: they do what an ordered map does, and show the same order whatever the seed.
    #[test]
    fn records_are_an_ordered_map() {
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
                assert_eq!(records.near(&key).is_some(), !map.is_empty());
                records.fetch(&[key, key + 1, 5_000 + key]);
                if let (Some(ours), Some(theirs)) = (records.get_mut(&key), map.get_mut(&key)) {
                    ours.1 += 1;
                    *theirs += 1;
                }
            }
            assert!(records.keys().eq(map.keys()));
            assert!(records.values().map(|(_, turn)| turn).eq(map.values()));
            assert_eq!(records.sum(|(_, turn)| *turn as usize) as u64, map.values().sum::<u64>());
        }
    }
}
