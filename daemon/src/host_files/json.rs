//! JSON with comments, read into values with byte ranges.

use std::borrow::Cow;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::document::{Member, Node, Value};
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
fn readable(text: &str) -> Cow<'_, str> {
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

/// Reads a text, whose outermost value is an object.
///
/// # Errors
/// If it is not JSON, is nested deeper than 512 levels, or is no object.
pub(super) fn parse(text: &str) -> Result<Node, HostFileError> {
    let readable = readable(text);
    let parsed =
        parse_to_ast(&readable, &CollectOptions::default(), &OPTIONS).map_err(|error| {
            let what = format!("this is not valid JSON: {}", error.kind());
            HostFileError::new(
                error.line_display(),
                what,
                "comments and trailing commas are allowed",
            )
        })?;
    match parsed.value {
        Some(value @ ast::Value::Object(_)) => Ok(node(&value)),
        Some(_) | None => {
            let what = "the file has no JSON object";
            Err(HostFileError::new(0, what, "name the file in which the host keeps its servers"))
        }
    }
}

fn node(value: &ast::Value<'_>) -> Node {
    let found = match value {
        ast::Value::StringLit(text) => Value::Text(text.value.clone().into_owned()),
        ast::Value::NumberLit(number) => Value::Plain(number.value.to_owned()),
        ast::Value::BooleanLit(flag) => Value::Flag(flag.value),
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::Array(array) => Value::List(array.elements.iter().map(node).collect()),
        ast::Value::Object(object) => Value::Map(object.properties.iter().map(member).collect()),
    };
    Node { span: value.start()..value.end(), value: found }
}

fn member(property: &ast::ObjectProp<'_>) -> Member {
    Member {
        name: property.name.as_str().to_owned(),
        key: property.name.start()..property.name.end(),
        node: node(&property.value),
    }
}
