//! An optional boxed value; 8 bytes while empty.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, btree_set};
use core::ops::{Deref, DerefMut};

/// An optional boxed value that is empty most of the time; 8 bytes while empty.
#[derive(Debug)]
pub(crate) struct LazyBox<T>(Option<Box<T>>);

/// Types that have an empty value.
pub(crate) trait IsEmpty: Default + 'static {
    /// The empty value.
    const EMPTY: &'static Self;

    /// True for the empty value.
    fn is_empty_value(&self) -> bool;
}

impl<T> Default for LazyBox<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: IsEmpty> LazyBox<T> {
    /// Removes and returns the value.
    pub(crate) fn take(&mut self) -> T {
        self.0.take().map_or_else(T::default, |value| *value)
    }

    /// Frees the box of an empty value.
    pub(crate) fn shrink(&mut self) {
        if self.0.as_ref().is_some_and(|value| value.is_empty_value()) {
            self.0 = None;
        }
    }

    /// Mutable access to a value that is not empty.
    pub(crate) fn some(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: IsEmpty> Deref for LazyBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: IsEmpty> DerefMut for LazyBox<T> {
    /// Allocates the box on first use.
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<K: 'static, V: 'static> IsEmpty for BTreeMap<K, V> {
    const EMPTY: &'static Self = &Self::new();

    fn is_empty_value(&self) -> bool {
        self.is_empty()
    }
}

impl<T: 'static> IsEmpty for BTreeSet<T> {
    const EMPTY: &'static Self = &Self::new();

    fn is_empty_value(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Ord + 'static> LazyBox<BTreeSet<T>> {
    /// Removes an entry; allocates nothing if the set is empty.
    pub(crate) fn remove(&mut self, entry: &T) {
        if let Some(entries) = self.some() {
            entries.remove(entry);
        }
    }
}

impl<T: 'static> IntoIterator for LazyBox<BTreeSet<T>> {
    type Item = T;
    type IntoIter = btree_set::IntoIter<T>;

    fn into_iter(mut self) -> Self::IntoIter {
        self.take().into_iter()
    }
}
