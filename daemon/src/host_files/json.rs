//! JSON with comments, read into values with byte ranges.

use std::borrow::Cow;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::document::{Member, Node, Value};
use super::error::HostFileError;
use crate::json_text::without_halves;

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
    let mut readable = without_halves(text);
    if text.starts_with(BYTE_ORDER_MARK) {
        readable.to_mut().replace_range(..BYTE_ORDER_MARK.len_utf8(), "   ");
    }
    readable
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
