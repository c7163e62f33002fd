//! A map that usually has no entry or one.

use std::collections::BTreeMap;

/// A sorted map whose only entry takes no memory of its own. Most sessions have one request at a
/// time, and thousands of sessions have none.
#[derive(Debug)]
pub(super) struct SmallMap<K, V> {
    /// The only entry; `many` is empty then.
    one: Option<(K, V)>,
    many: BTreeMap<K, V>,
}

impl<K: Ord, V> SmallMap<K, V> {
    pub(super) const fn new() -> Self {
        Self { one: None, many: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.many.len()
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        match &self.one {
            Some((of, value)) => (of == key).then_some(value),
            None => self.many.get(key),
        }
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match &mut self.one {
            Some((of, value)) => (of == key).then_some(value),
            None => self.many.get_mut(key),
        }
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Adds an entry, unless there is one with this key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.one.is_none() && self.many.is_empty() {
            self.one = Some((key, value));
            return;
        }
        self.many.extend(self.one.take());
        self.many.entry(key).or_insert(value);
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        if self.one.is_some() {
            return self.one.take_if(|(of, _)| of == key).map(|(_, value)| value);
        }
        let value = self.many.remove(key);
        if self.many.is_empty() {
            // An empty map keeps a node.
            self.many = BTreeMap::new();
        }
        value
    }

    /// Entries by key.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.one.iter().map(|(key, value)| (key, value)).chain(&self.many)
    }

    /// Values by key.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It holds the same as a map of the standard library after each of many short histories.
    #[test]
    fn entries_are_those_of_a_map() {
        for history in 0..4_u32.pow(6) {
            let (mut small, mut map) = (SmallMap::new(), BTreeMap::new());
            for step in 0..6 {
                let key = history / 4_u32.pow(step) % 4 / 2;
                if history / 4_u32.pow(step) % 2 == 0 {
                    small.insert(key, step);
                    map.entry(key).or_insert(step);
                } else {
                    assert_eq!(small.remove(&key), map.remove(&key), "{history}");
                }
                assert!(
                    small.iter().eq(&map) && small.iter().rev().eq(map.iter().rev()),
                    "{history}"
                );
                assert!(small.values().eq(map.values()) && small.len() == map.len(), "{history}");
                for key in 0..2 {
                    assert_eq!(small.get(&key), map.get(&key), "{history}");
                    assert_eq!(small.get_mut(&key), map.get_mut(&key), "{history}");
                    assert_eq!(small.contains_key(&key), map.contains_key(&key), "{history}");
                }
            }
        }
    }
}
