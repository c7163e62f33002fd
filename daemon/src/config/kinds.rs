//! Kinds of values: how each is written, its range, and how it is shown.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use toml::Spanned;

use super::check::{Checker, Key};
use super::error::did_you_mean;
use super::table::Table;
use super::units::{parse_duration, parse_size, show_duration, show_size};
use super::values::{Size, Span};

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
    /// The type in the file.
    type Written: DeserializeOwned;

    /// The value as written in the table of `check`; `None` if it is wrong, which is reported.
    fn parse(
        &self,
        key: Key,
        written: &Spanned<Self::Written>,
        check: &mut Checker<'_>,
    ) -> Option<T>;

    /// The value for people; `None` if it needs no row.
    fn show(&self, value: &T) -> Option<String>;

    /// The value that a table has at `name`, else `default`.
    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: T) -> T {
        let written: Option<Spanned<Self::Written>> = table.take(name);
        let value = written.and_then(|written| self.parse(table.key(name), &written, table.check));
        value.unwrap_or(default)
    }
}

/// A number within a range.
pub(super) struct Count(pub(super) RangeInclusive<u64>);

impl<T: TryFrom<u64> + ToString> Kind<T> for Count {
    type Written = u64;

    fn parse(&self, key: Key, written: &Spanned<u64>, check: &mut Checker<'_>) -> Option<T> {
        let number = *written.get_ref();
        let fits = T::try_from(number).ok().filter(|_| self.0.contains(&number));
        if fits.is_none() {
            let hint = format!("it takes {} to {}", self.0.start(), self.0.end());
            check.bad_value(key, written.span().start, &number.to_string(), hint);
        }
        fits
    }

    fn show(&self, value: &T) -> Option<String> {
        Some(value.to_string())
    }
}

/// A number of bytes within a range; a default below it is its start.
pub(super) struct Bytes(pub(super) RangeInclusive<u64>);

impl Kind<usize> for Bytes {
    type Written = Size;

    fn parse(&self, key: Key, written: &Spanned<Size>, check: &mut Checker<'_>) -> Option<usize> {
        let (text, parsed) = match written.get_ref() {
            Size::Text(text) => (format!("{text:?}"), parse_size(text)),
            Size::Bytes(bytes) => (bytes.to_string(), Ok(*bytes)),
        };
        let hint = match parsed.map(|bytes| (bytes, usize::try_from(bytes))) {
            Ok((bytes, Ok(fits))) if self.0.contains(&bytes) => return Some(fits),
            Ok(_) => {
                let (least, most) = (show_size(*self.0.start()), show_size(*self.0.end()));
                format!("it takes {least} to {most}")
            }
            Err(why) => why,
        };
        check.bad_value(key, written.span().start, &text, hint);
        None
    }

    fn show(&self, value: &usize) -> Option<String> {
        Some(show_size(*value as u64))
    }

    fn read(&self, table: &mut Table<'_, '_>, name: &'static str, default: usize) -> usize {
        let written: Option<Spanned<Size>> = table.take(name);
        let value = written.and_then(|written| self.parse(table.key(name), &written, table.check));
        let least = usize::try_from(*self.0.start()).unwrap_or(usize::MAX);
        value.unwrap_or_else(|| default.max(least))
    }
}

/// A duration within a range.
pub(super) struct Time(pub(super) RangeInclusive<Duration>);

impl Kind<Duration> for Time {
    type Written = Span;

    fn parse(
        &self,
        key: Key,
        written: &Spanned<Span>,
        check: &mut Checker<'_>,
    ) -> Option<Duration> {
        let text = &written.get_ref().0;
        let hint = match parse_duration(text) {
            Ok(duration) if self.0.contains(&duration) => return Some(duration),
            Ok(_) => {
                let (least, most) = (show_duration(*self.0.start()), show_duration(*self.0.end()));
                format!("it takes {least} to {most}")
            }
            Err(why) => why,
        };
        check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
        None
    }

    fn show(&self, value: &Duration) -> Option<String> {
        Some(show_duration(*value))
    }
}

/// One of several names.
pub(super) struct Choice<'a, T>(pub(super) &'a [(&'a str, T)]);

impl<T: Clone + PartialEq> Kind<T> for Choice<'_, T> {
    type Written = String;

    fn parse(&self, key: Key, written: &Spanned<String>, check: &mut Checker<'_>) -> Option<T> {
        let text = written.get_ref();
        if let Some((_, choice)) = self.0.iter().find(|(name, _)| name == text) {
            return Some(choice.clone());
        }
        let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        let hint = did_you_mean(text, "values", &names);
        check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
        None
    }

    fn show(&self, value: &T) -> Option<String> {
        let known = self.0.iter().find(|(_, known)| known == value);
        known.map(|(name, _)| (*name).to_owned())
    }
}

/// True or false.
pub(super) struct Flag;

impl Kind<bool> for Flag {
    type Written = bool;

    fn parse(&self, _: Key, written: &Spanned<bool>, _: &mut Checker<'_>) -> Option<bool> {
        Some(*written.get_ref())
    }

    fn show(&self, value: &bool) -> Option<String> {
        Some(value.to_string())
    }
}

/// Any text.
pub(super) struct Words;

impl Kind<String> for Words {
    type Written = String;

    fn parse(&self, _: Key, written: &Spanned<String>, _: &mut Checker<'_>) -> Option<String> {
        Some(written.get_ref().clone())
    }

    fn show(&self, value: &String) -> Option<String> {
        Some(format!("{value:?}"))
    }
}

/// A path, relative to the directory of the file.
pub(super) struct FilePath;

impl Kind<PathBuf> for FilePath {
    type Written = String;

    fn parse(
        &self,
        key: Key,
        written: &Spanned<String>,
        check: &mut Checker<'_>,
    ) -> Option<PathBuf> {
        check.path(key, written)
    }

    fn show(&self, value: &PathBuf) -> Option<String> {
        Some(value.display().to_string())
    }
}

/// A value that is there only if it is written.
pub(super) struct Perhaps<K>(pub(super) K);

impl<T, K: Kind<T>> Kind<Option<T>> for Perhaps<K> {
    type Written = K::Written;

    fn parse(
        &self,
        key: Key,
        written: &Spanned<K::Written>,
        check: &mut Checker<'_>,
    ) -> Option<Option<T>> {
        self.0.parse(key, written, check).map(Some)
    }

    fn show(&self, value: &Option<T>) -> Option<String> {
        value.as_ref().and_then(|value| self.0.show(value))
    }
}
