//! Secrets of a host's file: values of environment variables and of HTTP headers, which a diff does
//! not show.

use std::borrow::Cow;

use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged as _;

use super::error::HostFileError;
use super::json::{parse, readable};

/// Members whose values are secrets: variables of a command, headers of a remote server.
const SECRET: [&str; 2] = ["env", "headers"];
/// Byte that stands for a byte of a secret; no text of JSON has it.
const MASK: char = '\u{1}';
/// Text shown in place of a secret.
const SHOWN: &str = "•••";

/// A text of the same length, with the same positions, in which secrets are masked. Only
/// [`shown`] makes it fit to be printed.
///
/// # Errors
/// If the text is not JSON.
pub(crate) fn masked(text: &str) -> Result<String, HostFileError> {
    let readable = readable(text);
    let root = parse(&readable)?;
    let mut spans = Vec::new();
    object(&root, false, &mut spans);
    let mut bytes = text.as_bytes().to_vec();
    for (from, to) in spans {
        if let Some(secret) = bytes.get_mut(from..to) {
            secret.fill(MASK as u8);
        }
    }
    // Whole values are masked, so that no character is cut.
    Ok(String::from_utf8(bytes).unwrap_or_default())
}

/// A part of a masked text, for people.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(MASK) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    let mut was_secret = false;
    for c in text.chars() {
        match (c == MASK, was_secret) {
            (true, false) => shown.push_str(SHOWN),
            (true, true) => {}
            (false, _) => shown.push(c),
        }
        was_secret = c == MASK;
    }
    Cow::Owned(shown)
}

fn object(of: &Object<'_>, is_secret: bool, spans: &mut Vec<(usize, usize)>) {
    for member in &of.properties {
        value(&member.value, is_secret || SECRET.contains(&member.name.as_str()), spans);
    }
}

fn value(of: &Value<'_>, is_secret: bool, spans: &mut Vec<(usize, usize)>) {
    match of {
        Value::Object(inner) => object(inner, is_secret, spans),
        Value::Array(array) => array.elements.iter().for_each(|it| value(it, is_secret, spans)),
        // The quotes stay.
        Value::StringLit(text) if is_secret && text.end() > text.start() + 2 => {
            spans.push((text.start() + 1, text.end() - 1));
        }
        Value::NumberLit(number) if is_secret => spans.push((number.start(), number.end())),
        Value::StringLit(_)
        | Value::NumberLit(_)
        | Value::BooleanLit(_)
        | Value::NullKeyword(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_variables_and_headers_are_masked_in_place() {
        let text = r#"{"servers": {"a": {"command": "x", "env": {"A": "s3cret ä", "B": 7, "C": ""}},
            "b": {"url": "u", "headers": {"Authorization": "Bearer t"}}}}"#;
        let hidden = masked(text).unwrap();
        assert_eq!(hidden.len(), text.len());
        let seen = shown(&hidden);
        assert!(seen.contains(r#""env": {"A": "•••", "B": •••, "C": ""}"#), "{seen}");
        assert!(seen.contains(r#""Authorization": "•••""#), "{seen}");
        assert!(seen.contains(r#""command": "x""#), "{seen}");
    }
}
