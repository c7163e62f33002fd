//! An optional boxed value; 8 bytes while empty.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, btree_set};
use core::ops::{Deref, DerefMut};

/// A value that has nothing to say most of the time, as which it takes eight bytes.
#[derive(Debug)]
pub(crate) struct LazyBox<T>(Option<Box<T>>);

/// What there can be nothing of.
pub(crate) trait IsEmpty: Default + 'static {
    /// A value with nothing in it.
    const NOTHING: &'static Self;

    /// Whether that is all.
    fn is_nothing(&self) -> bool;
}

impl<T> Default for LazyBox<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: IsEmpty> LazyBox<T> {
    /// Takes the value out.
    pub(crate) fn take(&mut self) -> T {
        self.0.take().map_or_else(T::default, |value| *value)
    }

    /// Gives the room back if there is nothing in it any more.
    pub(crate) fn shrink(&mut self) {
        if self.0.as_ref().is_some_and(|value| value.is_nothing()) {
            self.0 = None;
        }
    }

    /// The value to be changed, if it says anything.
    pub(crate) fn some(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: IsEmpty> Deref for LazyBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::NOTHING)
    }
}

impl<T: IsEmpty> DerefMut for LazyBox<T> {
    /// Makes room for a value that says something.
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<K: 'static, V: 'static> IsEmpty for BTreeMap<K, V> {
    const NOTHING: &'static Self = &Self::new();

    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl<T: 'static> IsEmpty for BTreeSet<T> {
    const NOTHING: &'static Self = &Self::new();

    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Ord + 'static> LazyBox<BTreeSet<T>> {
    /// Takes an entry out; makes no room for there being none.
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
