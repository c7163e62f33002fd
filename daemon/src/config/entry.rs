//! A key of a table as written, with its name and its position.

use serde::de::DeserializeOwned;
use toml::Spanned;

use super::check::{Checker, Key};
use super::json::Ordered;
use super::kinds::Kind;
use super::table::{Part, Table};

/// A key as written.
#[derive(Debug)]
pub(super) struct Entry<T> {
    key: Key,
    value: Option<Spanned<T>>,
}

impl<T: DeserializeOwned> Part for Entry<T> {
    fn take_from(table: &mut Table<'_, '_>, name: &'static str) -> Self {
        Self { key: table.key(name), value: table.take(name) }
    }

    fn places(&self, name: &'static str, places: &mut Vec<(&'static str, usize)>) {
        places.extend(self.at().map(|at| (name, at)));
    }
}

impl<T> Entry<T> {
    /// The key, for messages.
    pub(super) const fn key(&self) -> Key {
        self.key
    }

    /// The value with its position, if the key is written.
    pub(super) const fn as_ref(&self) -> Option<&Spanned<T>> {
        self.value.as_ref()
    }

    /// Whether the key is written.
    pub(super) const fn is_some(&self) -> bool {
        self.value.is_some()
    }

    /// The position of the value.
    pub(super) fn at(&self) -> Option<usize> {
        self.value.as_ref().map(|value| value.span().start)
    }

    /// The value.
    pub(super) fn into_inner(self) -> Option<T> {
        self.value.map(Spanned::into_inner)
    }

    /// The value as one of a kind; `None` if it is not written, or wrong, which is reported.
    pub(super) fn read<V>(
        &self,
        kind: &impl Kind<V, Written = T>,
        check: &mut Checker<'_>,
    ) -> Option<V> {
        kind.parse(self.key, self.value.as_ref()?, check)
    }

    /// The value as one of a kind, else `default`.
    pub(super) fn or<V>(
        &self,
        default: V,
        kind: &impl Kind<V, Written = T>,
        check: &mut Checker<'_>,
    ) -> V {
        self.read(kind, check).unwrap_or(default)
    }
}

impl<T> Entry<Vec<T>> {
    /// The elements of the list; none if it is not written.
    pub(super) fn elements(&self) -> impl Iterator<Item = &T> {
        self.value.iter().flat_map(|list| list.get_ref())
    }
}

impl<T> Entry<Ordered<T>> {
    /// The keys of the table and their values; none if it is not written.
    pub(super) fn pairs(&self) -> impl Iterator<Item = &(Spanned<String>, T)> {
        self.value.iter().flat_map(|table| &table.get_ref().0)
    }
}
