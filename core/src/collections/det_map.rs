//! Hash tables with deterministic order; finding, adding and removing take constant time.
//!
//! Hashes are keyed with a seed of the engine, so that a peer cannot choose ids that collide.
//! Iteration sorts by key, so that the hash order is never visible (DET-01).

use alloc::vec::{self, Vec};
use core::hash::{BuildHasher, Hash, Hasher};
use core::mem;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use siphasher::sip::SipHasher24;
use uuid::Uuid;

/// Bits without a pattern: those of pi.
const MIX: u64 = 0x243f_6a88_85a3_08d3;

/// Seed of an engine's hashes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seed(u64);

impl Seed {
    /// Derives the seed from a random id.
    pub(crate) fn drawn(uuid: Uuid) -> Self {
        // Peers may see the id itself, or values derived from it.
        let mut hasher = SipHasher24::new_with_key(&uuid.into_bytes());
        hasher.write(b"tables");
        Self(hasher.finish())
    }

    /// Hash of a number: both halves combined with the seed, multiplied and folded.
    #[inline]
    pub(crate) const fn hash(self, number: u128) -> u64 {
        let (low, high) = (number as u64, (number >> 64) as u64);
        let product = (low ^ self.0) as u128 * (high ^ self.0.rotate_left(32) ^ MIX) as u128;
        product as u64 ^ (product >> 64) as u64
    }
}

/// A hash table. Growth moves the whole table at once; tables of up to a million entries are
/// [`Records`](crate::collections::slot_map::Records) instead.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    entries: HashTable<(K, V)>,
    seed: Seed,
}

impl<K: Hash + Ord, V> Table<K, V> {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { entries: HashTable::new(), seed }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let hash = hash(self.seed, key);
        let (_, value) = self.entries.find(hash, |(k, _)| k == key)?;
        Some(value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let hash = hash(self.seed, key);
        let (_, value) = self.entries.find_mut(hash, |(k, _)| k == key)?;
        Some(value)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Inserts a value; returns the previous value of the key.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let seed = self.seed;
        let hash = hash(seed, &key);
        match self.entries.entry(hash, |(k, _)| *k == key, |(k, _)| self::hash(seed, k)) {
            Entry::Occupied(mut entry) => Some(mem::replace(&mut entry.get_mut().1, value)),
            Entry::Vacant(entry) => {
                entry.insert((key, value));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let hash = hash(self.seed, key);
        let ((_, value), _) = self.entries.find_entry(hash, |(k, _)| k == key).ok()?.remove();
        Some(value)
    }

    /// Frees memory when a small part of it is used. The removals before pay for the move.
    pub(crate) fn shrink(&mut self) {
        let seed = self.seed;
        if self.len() * 16 <= self.entries.capacity() {
            self.entries.shrink_to(self.len() * 2, |(key, _)| hash(seed, key));
        }
    }

    /// Iterates over entries, sorted by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.into_iter()
    }

    /// Iterates over keys, sorted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Iterates over values, sorted by key.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Sum of a number of each value; independent of the order.
    pub(crate) fn sum(&self, of: impl Fn(&V) -> usize) -> usize {
        self.entries.iter().map(|(_, value)| of(value)).sum()
    }

    /// Least value that `of` returns; independent of the order.
    pub(crate) fn least<T: Ord>(&self, of: impl Fn(&K, &V) -> Option<T>) -> Option<T> {
        self.entries.iter().filter_map(|(key, value)| of(key, value)).min()
    }

    /// Removes all entries and returns them, sorted by key.
    pub(crate) fn take(&mut self) -> Vec<(K, V)> {
        let mut all: Vec<(K, V)> = mem::take(&mut self.entries).into_iter().collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        all
    }
}

impl<'a, K: Hash + Ord, V> IntoIterator for &'a Table<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = vec::IntoIter<Self::Item>;

    /// Iterates over entries, sorted by key.
    fn into_iter(self) -> Self::IntoIter {
        let mut all: Vec<(&K, &V)> = self.entries.iter().map(|(key, value)| (key, value)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter()
    }
}

fn hash<K: Hash>(seed: Seed, key: &K) -> u64 {
    FixedState::with_seed(seed.0).hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    /// An emptied table frees its memory.
    #[test]
    fn emptied_table_frees_memory() {
        let mut table: Table<u64, u64> = Table::new(Seed::default());
        for key in 0..10_000 {
            table.insert(key, key);
        }
        for key in 10..10_000 {
            assert_eq!(table.remove(&key), Some(key));
            table.shrink();
            assert!(table.entries.capacity() <= 64 + table.len() * 20, "{} left", table.len());
        }
        assert!(table.keys().copied().eq(0..10));
    }

    /// DET-01: a table behaves as an ordered map, whatever the seed.
    #[test]
    fn table_behaves_as_an_ordered_map() {
        for seed in 0..8 {
            let mut table: Table<u64, u64> = Table::new(Seed::drawn(Uuid::from_u128(seed.into())));
            let mut map = BTreeMap::new();
            let mut key: u64 = seed;
            for turn in 0..20_000 {
                key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                let key = (key >> 33) % 500;
                if turn % 3 == 0 {
                    assert_eq!(table.remove(&key), map.remove(&key));
                } else {
                    assert_eq!(table.insert(key, turn), map.insert(key, turn));
                }
                assert_eq!(table.get(&key), map.get(&key));
                assert_eq!(table.contains_key(&key), map.contains_key(&key));
                assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
                let odd = |key: &u64, value: &u64| (value % 2 == 1).then_some((*value, *key));
                let least = map.iter().filter_map(|(key, value)| odd(key, value)).min();
                assert!(turn % 100 > 0 || table.least(odd) == least);
                if let (Some(ours), Some(theirs)) = (table.get_mut(&key), map.get_mut(&key)) {
                    *ours += 1;
                    *theirs += 1;
                }
                table.shrink();
            }
            assert!(table.iter().eq(map.iter()) && table.keys().eq(map.keys()));
            assert!(table.values().eq(map.values()));
            assert_eq!(table.sum(|value| *value as usize) as u64, map.values().sum::<u64>());
            assert!(table.take().into_iter().eq(map));
            assert!(table.is_empty() && table.iter().next().is_none());
            table.shrink();
            assert_eq!(table.entries.capacity(), 0);
        }
    }
}
