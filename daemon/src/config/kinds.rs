//! Kinds of values: how each is read from a table, within its range, and how it is shown.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use super::table::Table;
use super::units::{show_duration, show_size};
use super::values::{Size, Span, Text, Whole};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);
/// Upper bound of durations: beyond any sensible use and far below the range of a clock.
pub(super) const YEAR: Duration = Duration::from_secs(365 * 86_400);
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// The row of a key in a description.
pub(super) type Row = Option<(&'static str, String)>;

/// The row that `row` makes of a table.
pub(super) fn row_of<T>(row: fn(&T) -> Row, table: &T) -> Row {
    row(table)
}

/// A kind of value of a key.
pub(super) trait Kind<T> {
    /// The value that a table has at `name`, else `default`.
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: T) -> T;

    /// The value for people; `None` if it needs no row.
    fn show(&self, value: &T) -> Option<String>;
}

/// A number within a range.
pub(super) struct Count(pub(super) RangeInclusive<u64>);

impl<T: TryFrom<usize> + ToString> Kind<T> for Count {
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: T) -> T {
        let Some(written) = table.take::<Whole>(name) else { return default };
        let number = table.check.whole(table.key(name), Some(&written), 0, self.0.clone());
        T::try_from(number).unwrap_or(default)
    }

    fn show(&self, value: &T) -> Option<String> {
        Some(value.to_string())
    }
}

/// A number of bytes within a range; a default below it is its start.
pub(super) struct Bytes(pub(super) RangeInclusive<u64>);

impl Kind<usize> for Bytes {
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: usize) -> usize {
        let least = usize::try_from(*self.0.start()).unwrap_or(usize::MAX);
        let written: Option<Spanned<Size>> = table.take(name);
        table.check.size(table.key(name), written.as_ref(), default.max(least), self.0.clone())
    }

    fn show(&self, value: &usize) -> Option<String> {
        Some(show_size(*value as u64))
    }
}

/// A duration within a range.
pub(super) struct Time(pub(super) RangeInclusive<Duration>);

impl Kind<Duration> for Time {
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: Duration) -> Duration {
        let written: Option<Spanned<Span>> = table.take(name);
        table.check.duration(table.key(name), written.as_ref(), default, self.0.clone())
    }

    fn show(&self, value: &Duration) -> Option<String> {
        Some(show_duration(*value))
    }
}

/// One of several names.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Clone + PartialEq> Kind<T> for Choice<T> {
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: T) -> T {
        let written: Option<Text> = table.take(name);
        table.check.choice(table.key(name), written.as_ref(), default, self.0)
    }

    fn show(&self, value: &T) -> Option<String> {
        let known = self.0.iter().find(|(_, known)| known == value);
        known.map(|(name, _)| (*name).to_owned())
    }
}

/// True or false.
pub(super) struct Flag;

impl Kind<bool> for Flag {
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: bool) -> bool {
        table.take(name).unwrap_or(default)
    }

    fn show(&self, value: &bool) -> Option<String> {
        Some(value.to_string())
    }
}

/// Any text.
pub(super) struct Words;

impl Kind<String> for Words {
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: String) -> String {
        table.take(name).unwrap_or(default)
    }

    fn show(&self, value: &String) -> Option<String> {
        Some(format!("{value:?}"))
    }
}

/// A path, relative to the directory of the file.
pub(super) struct FilePath;

impl Kind<PathBuf> for FilePath {
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: PathBuf) -> PathBuf {
        let written: Option<Text> = table.take(name);
        let path = written.and_then(|written| table.check.path(table.key(name), &written));
        path.unwrap_or(default)
    }

    fn show(&self, value: &PathBuf) -> Option<String> {
        Some(value.display().to_string())
    }
}

/// A value that is there only if it is written.
pub(super) struct Perhaps<K>(pub(super) K);

impl<T: Default, K: Kind<T>> Kind<Option<T>> for Perhaps<K> {
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: Option<T>) -> Option<T> {
        let value = self.0.read(table, name, T::default());
        if table.has(name) { Some(value) } else { default }
    }

    fn show(&self, value: &Option<T>) -> Option<String> {
        value.as_ref().and_then(|value| self.0.show(value))
    }
}
