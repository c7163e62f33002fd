//! The tables of the file: their keys are taken one after the other, so that one misspelt key hides
//! no other problem, and the names taken are those that a hint lists.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error, ValueDeserializer};

use super::check::{Checker, Key};
use super::error::{did_you_mean, shown};

/// The headings of the tables of a file.
const HEADINGS: [&str; 14] = [
    "[daemon]",
    "[[listen]]",
    "[limits]",
    "[tasks]",
    "[log]",
    "[metrics]",
    "[alerts]",
    "[otlp]",
    "[fleet]",
    "[servers]",
    "[[tool]]",
    "[[server]]",
    "[[agent]]",
    "[[profile]]",
];

/// Parses a file and reports unknown tables; nothing is left of one with an error of syntax.
pub(super) fn file<'a>(check: &mut Checker<'a>) -> DeTable<'a> {
    let file = match DeTable::parse(check.text) {
        Ok(file) => file.into_inner(),
        Err(error) => {
            syntax(&error, check);
            return DeTable::new();
        }
    };
    let known = HEADINGS.map(name_in);
    for key in file.keys() {
        let name = key.get_ref().as_ref();
        if !known.contains(&name) {
            let what = format!("unknown table or key `{name}`");
            check.problem(key.span().start, what, did_you_mean(name, "tables", &known));
        }
    }
    file
}

/// The name in a heading.
fn name_in(heading: &str) -> &str {
    heading.trim_matches(['[', ']'])
}

/// A table of the file, of which keys are taken.
pub(super) struct Table<'t, 'c> {
    heading: &'static str,
    /// Its position.
    pub(super) at: usize,
    content: Option<&'t DeTable<'t>>,
    file: &'t DeTable<'t>,
    taken: Vec<&'static str>,
    pub(super) check: &'t mut Checker<'c>,
}

impl<'t, 'c> Table<'t, 'c> {
    /// The table with this heading; empty if the file has none.
    pub(super) fn of(
        file: &'t DeTable<'t>,
        heading: &'static str,
        check: &'t mut Checker<'c>,
    ) -> Self {
        let empty = Self { heading, at: 0, content: None, file, taken: Vec::new(), check };
        match file.get(name_in(heading)) {
            None => empty,
            Some(value) => empty.with(value),
        }
    }

    /// The table with this heading, if the file has it.
    pub(super) fn written(
        file: &'t DeTable<'t>,
        heading: &'static str,
        check: &'t mut Checker<'c>,
    ) -> Option<Self> {
        let table = Self::of(file, heading, check);
        table.content.is_some().then_some(table)
    }

    fn with(self, value: &'t Spanned<DeValue<'t>>) -> Self {
        let at = value.span().start;
        let content = value.get_ref().as_table();
        if content.is_none() {
            let written = written(value.span(), self.check);
            let (what, hint) = match place_of(self.file, "", "the file", at) {
                Some(place) if !value.get_ref().is_array() => {
                    (format!("`{}` in {} is {written}", place.key, place.table), String::new())
                }
                _ => {
                    (format!("{} is {written}", self.heading), format!(", headed {}", self.heading))
                }
            };
            self.check.problem(at, what, format!("it takes a table{hint}"));
        }
        Self { at, content, ..self }
    }

    /// Takes a key; `None` if it is not written, or has another type, which is reported.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Option<T> {
        self.taken.push(name);
        let mut left = self.content?.get(name)?.clone();
        // Each attempt finds one problem: without its key, the next attempt finds another.
        loop {
            let error = match T::deserialize(ValueDeserializer::from(left.clone())) {
                Ok(value) => return Some(value),
                Err(error) => error,
            };
            explain(&error, self.file, left.span(), self.check);
            self.check.partial.push(self.at);
            if !remove_within(left.get_mut(), error.span()?.start, &mut self.check.partial) {
                return None;
            }
        }
    }

    /// Whether a key is written.
    pub(super) fn has(&self, name: &str) -> bool {
        self.content.is_some_and(|content| content.contains_key(name))
    }

    /// A key that was taken, once more; `None` if it is not written, or has another type.
    pub(super) fn again<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let value = self.content?.get(name)?.clone();
        T::deserialize(ValueDeserializer::from(value)).ok()
    }

    /// Reports the keys that were not taken.
    pub(super) fn end(&mut self) {
        for key in self.content.iter().flat_map(|content| content.keys()) {
            let name = key.get_ref().as_ref();
            if !self.taken.contains(&name) {
                let hint = removed(self.heading, name)
                    .map_or_else(|| did_you_mean(name, "keys", &self.taken), str::to_owned);
                let what = format!("unknown key `{name}` in {}", self.heading);
                self.check.problem(key.span().start, what, hint);
                self.check.partial.push(self.at);
            }
        }
    }

    /// A key of the table, for messages.
    pub(super) const fn key(&self, name: &'static str) -> Key {
        Key { table: self.heading, name }
    }
}

/// Takes all keys of each table in the array with this heading, with the position of each.
pub(super) fn items<T: Part>(
    file: &DeTable<'_>,
    heading: &'static str,
    check: &mut Checker<'_>,
) -> Vec<(usize, T)> {
    let name = name_in(heading);
    let Some(value) = file.get(name) else { return Vec::new() };
    let Some(items) = value.get_ref().as_array() else {
        let what = format!("`{name}` is not an array of tables");
        check.problem(value.span().start, what, format!("begin each one with a line {heading}"));
        return Vec::new();
    };
    let mut read = Vec::new();
    for item in items.iter() {
        let check = &mut *check;
        let empty = Table { heading, at: 0, content: None, file, taken: Vec::new(), check };
        let mut table = empty.with(item);
        if table.content.is_some() {
            let part = T::take_from(&mut table, name);
            table.end();
            read.push((table.at, part));
        }
    }
    read
}

/// A part of a table as written: keys and their types.
pub(super) trait Part {
    /// Takes the part; `name` is its key, if it is one.
    fn take_from(table: &mut Table<'_, '_>, name: &'static str) -> Self
    where
        Self: Sized;

    /// Adds the written keys with their positions; `name` is its key, if it is one.
    fn places(&self, name: &'static str, places: &mut Vec<(&'static str, usize)>);

    /// The written keys of the part with their positions.
    fn written(&self) -> Vec<(&'static str, usize)> {
        let mut places = Vec::new();
        self.places("", &mut places);
        places
    }
}

/// Removes the innermost key within a value whose name or value covers the byte at `at`. The starts of
/// the tables around it are added to `partial`.
fn remove_within(value: &mut DeValue<'_>, at: usize, partial: &mut Vec<usize>) -> bool {
    match value {
        DeValue::Table(inner) => remove(inner, at, partial),
        DeValue::Array(items) => {
            items.iter_mut().any(|item| remove_within(item.get_mut(), at, partial))
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => false,
    }
}

fn remove(table: &mut DeTable<'_>, at: usize, partial: &mut Vec<usize>) -> bool {
    let mut covering = None;
    for (key, value) in table.iter_mut() {
        if remove_within(value.get_mut(), at, partial) {
            partial.push(key.span().start);
            return true;
        }
        if key.span().contains(&at) || value.span().contains(&at) {
            covering = Some(key.get_ref().clone().into_owned());
            break;
        }
    }
    covering.is_some_and(|name| table.remove(name.as_str()).is_some())
}

/// Reports a TOML syntax error.
fn syntax(error: &Error, check: &mut Checker<'_>) {
    let at = error.span().map_or(0, |span| span.start);
    let start = check.text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |nl| nl + 1);
    let line =
        shown(check.text.get(start..).unwrap_or_default().lines().next().unwrap_or_default());
    let mut message = error.message().replace('\n', ", ");
    if let Some(key) = error.span().filter(|_| message == "duplicate key") {
        message.push_str(&format!(" `{}`", shown(check.text.get(key).unwrap_or_default())));
    }
    let what = format!("this is not valid TOML: {message}");
    check.problem(at, what, format!("the line reads `{line}`"));
}

/// Hint about a key that was removed.
fn removed(table: &str, key: &str) -> Option<&'static str> {
    match (table, key) {
        ("[[tool]]", "inline") => Some("inline calls were removed: delete this line"),
        _ => None,
    }
}

/// Reports a value of the wrong type.
fn explain(error: &Error, root: &DeTable<'_>, table: Range<usize>, check: &mut Checker<'_>) {
    let span = error.span().unwrap_or(table);
    let place = place_of(root, "", "the file", span.start)
        .unwrap_or_else(|| Place { table: "the file".into(), key: "a value".into() });
    let message = error.message();
    let mut quoted = message.split('`').skip(1).step_by(2);
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let name = quoted.next().unwrap_or(rest);
        let known: Vec<&str> = quoted.collect();
        let hint = removed(&place.table, name)
            .map_or_else(|| did_you_mean(name, "keys", &known), str::to_owned);
        check.problem(span.start, format!("unknown key `{name}` in {}", place.table), hint);
        return;
    }
    let written = written(span.clone(), check);
    let expected = message.rsplit_once(", expected ").map_or(message, |(_, expected)| expected);
    let expected = match expected {
        "u64" => "a whole number from 0 up",
        "a boolean" => "true or false",
        // Type errors of dates, which the parser hands over in a form of its own.
        "floating-point number overflowed" => "a number of a magnitude below 1.8e308",
        "a spanned value" => "a string, number, boolean, array or table",
        "a sequence" => "an array such as [\"first\", \"second\"]",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    let what = format!("`{}` in {} is {written}", place.key, place.table);
    check.problem(span.start, what, format!("it takes {expected}"));
}

/// The text at `span`, as quoted in a message.
fn written(span: Range<usize>, check: &Checker<'_>) -> String {
    shown(check.text.get(span).unwrap_or_default())
}

/// A key and the heading of its table.
struct Place {
    table: String,
    key: String,
}

/// The innermost key below `path` whose name or value covers the byte at `at`.
fn place_of(table: &DeTable<'_>, path: &str, heading: &str, at: usize) -> Option<Place> {
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let here = || Some(Place { table: heading.to_owned(), key: name.to_owned() });
        if key.span().contains(&at) {
            return here();
        }
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        // The span of a table with a header is only the header: search its content through its
        // keys.
        let inner = match value.get_ref() {
            DeValue::Table(inner) => place_of(inner, &path, &format!("[{path}]"), at),
            DeValue::Array(items) => items
                .iter()
                .filter_map(|item| item.get_ref().as_table())
                .find_map(|item| place_of(item, &path, &format!("[[{path}]]"), at)),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => None,
        };
        if inner.is_some() {
            return inner;
        }
        if value.span().contains(&at) {
            return here();
        }
    }
    None
}
