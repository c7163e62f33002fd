//! JSON with comments, read into values with byte ranges.

use std::borrow::Cow;
use std::ops::Range;

use jsonc_parser::ast::{Object, Value};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::error::HostFileError;

/// The byte order mark that some editors put first.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// JSON with comments and trailing commas, and no other extension.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// A text of the same length as `text` that the parser takes: without the byte order mark, and with
/// U+FFFD for halves of surrogate pairs, which programs in JavaScript write when they cut a string.
pub(super) fn readable(text: &str) -> Cow<'_, str> {
    let marked = text.starts_with(BYTE_ORDER_MARK);
    let halves = lone_surrogates(text);
    if !marked && halves.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut readable = text.to_owned();
    if marked {
        readable.replace_range(..BYTE_ORDER_MARK.len_utf8(), "   ");
    }
    for at in halves {
        readable.replace_range(at..at + 4, "fffd");
    }
    Cow::Owned(readable)
}

/// Positions of the four digits of each escape that is half of a surrogate pair without the other.
fn lone_surrogates(text: &str) -> Vec<usize> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(next) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += next;
        let pair = (unit(at), unit(at + 6));
        at += match pair {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                found.push(at + 2);
                6
            }
            // The escaped character can be a backslash.
            _ => {
                1 + text
                    .get(at + 1..)
                    .and_then(|rest| rest.chars().next())
                    .map_or(0, char::len_utf8)
            }
        };
    }
    found
}

/// Parses a [`readable`] text, whose outermost value is an object.
///
/// # Errors
/// If it is not JSON, is nested deeper than 512 levels, or is no object.
pub(super) fn parse(readable: &str) -> Result<Object<'_>, HostFileError> {
    let parsed = parse_to_ast(readable, &CollectOptions::default(), &OPTIONS).map_err(|error| {
        let what = format!("this is not valid JSON: {}", error.kind());
        HostFileError::new(error.line_display(), what, "comments and trailing commas are allowed")
    })?;
    match parsed.value {
        Some(Value::Object(object)) => Ok(object),
        Some(_) | None => {
            let what = "the file has no JSON object";
            Err(HostFileError::new(0, what, "name the file in which the host keeps its servers"))
        }
    }
}

/// Byte range of a value.
pub(super) fn span(value: &impl jsonc_parser::common::Ranged) -> Range<usize> {
    value.start()..value.end()
}

/// A string of JSON, quoted.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
