//! An optional boxed value; 8 bytes while empty.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, btree_set};
use core::ops::{Deref, DerefMut};

/// A value that has nothing to say most of the time, as which it takes eight bytes.
#[derive(Debug)]
pub(crate) struct Rare<T>(Option<Box<T>>);

/// What there can be nothing of.
pub(crate) trait Nothing: Default + 'static {
    /// A value with nothing in it.
    const NOTHING: &'static Self;

    /// Whether that is all.
    fn is_nothing(&self) -> bool;
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Nothing> Rare<T> {
    /// Takes the value out.
    pub(crate) fn take(&mut self) -> T {
        self.0.take().map_or_else(T::default, |value| *value)
    }

    /// Gives the room back if there is nothing in it any more.
    pub(crate) fn tidy(&mut self) {
        if self.0.as_ref().is_some_and(|value| value.is_nothing()) {
            self.0 = None;
        }
    }

    /// The value to be changed, if it says anything.
    pub(crate) fn some(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: Nothing> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::NOTHING)
    }
}

impl<T: Nothing> DerefMut for Rare<T> {
    /// Makes room for a value that says something.
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<K: 'static, V: 'static> Nothing for BTreeMap<K, V> {
    const NOTHING: &'static Self = &Self::new();

    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl<T: 'static> Nothing for BTreeSet<T> {
    const NOTHING: &'static Self = &Self::new();

    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Ord + 'static> Rare<BTreeSet<T>> {
    /// Takes an entry out; makes no room for there being none.
    pub(crate) fn remove(&mut self, entry: &T) {
        if let Some(entries) = self.some() {
            entries.remove(entry);
        }
    }
}

impl<T: 'static> IntoIterator for Rare<BTreeSet<T>> {
    type Item = T;
    type IntoIter = btree_set::IntoIter<T>;

    fn into_iter(mut self) -> Self::IntoIter {
        self.take().into_iter()
    }
}
