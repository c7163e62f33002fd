//! A map by connection. The loop looks the connections of a request up some thirty times.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use ceased_core::ids::ConnId;

/// A map by connection. Finding takes constant time, and the order of iteration is that of the ids.
/// Ids are counted by the loop, so that a peer cannot choose ones that collide.
#[derive(Debug)]
pub(crate) struct ConnMap<V>(HashMap<ConnId, V, ByCount>);

/// Hashes ids that this process counts: a peer cannot choose ones that collide.
pub(crate) type ByCount = BuildHasherDefault<CountHasher>;

/// Capacity of a map that is not made smaller.
const SMALL: usize = 64;

impl<V> Default for ConnMap<V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<V> ConnMap<V> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<&V> {
        self.0.get(&conn)
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut V> {
        self.0.get_mut(&conn)
    }

    pub(crate) fn contains(&self, conn: ConnId) -> bool {
        self.0.contains_key(&conn)
    }

    pub(crate) fn insert(&mut self, conn: ConnId, value: V) {
        self.0.insert(conn, value);
    }

    /// Removes an entry. A map whose crowd has gone frees its room.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<V> {
        let value = self.0.remove(&conn)?;
        if self.0.capacity() > SMALL && self.0.len() * 8 < self.0.capacity() {
            self.0.shrink_to(self.0.len() * 2);
        }
        Some(value)
    }

    /// All connections, in order.
    pub(crate) fn ids(&self) -> Vec<ConnId> {
        let mut ids: Vec<ConnId> = self.0.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Entries in the order of their connections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnId, &V)> {
        self.ids().into_iter().filter_map(|conn| Some((conn, self.0.get(&conn)?)))
    }

    /// Entries in the order of their connections.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut V)> {
        let mut entries: Vec<_> = self.0.iter_mut().map(|(conn, value)| (*conn, value)).collect();
        entries.sort_unstable_by_key(|(conn, _)| *conn);
        entries.into_iter()
    }
}

/// Hash of a counted number: the product with an odd number without a pattern, the golden ratio.
#[derive(Debug, Default)]
pub(crate) struct CountHasher(u64);

impl Hasher for CountHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) ^ self.0);
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The table takes the position from the low bits and a tag from the high ones.
        self.0 = product ^ product >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_the_ids_and_room_is_freed() {
        let mut map = ConnMap::default();
        for id in (0..10_000).rev() {
            map.insert(ConnId::new(id), id);
        }
        let is_sorted = |map: &mut ConnMap<u64>| {
            let ids = map.ids();
            ids.is_sorted()
                && map.iter().map(|(conn, _)| conn).eq(ids.iter().copied())
                && map.iter_mut().map(|(conn, _)| conn).eq(ids.iter().copied())
        };
        assert!(is_sorted(&mut map) && map.len() == 10_000);
        for id in 0..10_000 {
            assert_eq!(map.remove(ConnId::new(id)), Some(id));
            assert_eq!(map.get(ConnId::new(id)), None);
            let room = map.0.capacity();
            assert!(room <= SMALL.max((map.len() + 1) * 16), "{} in {room}", map.len());
        }
        assert!(is_sorted(&mut map) && map.is_empty());
    }
}
