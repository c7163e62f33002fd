//! Values of the headers that repeat members of a message (`Mcp-Name`): a text is written in Base64
//! where a header cannot have it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A text as the value of a header: in Base64 where it has other than visible ASCII characters, or
/// looks as if it were encoded.
pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let stands = text.bytes().all(is_plain) && text.trim() == text && !text.starts_with("=?");
    match stands && !text.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("=?base64?{}?=", STANDARD.encode(text))),
    }
}

/// Value of a header, decoded if it is written as `=?base64?…?=`; `None` when it is not decodable.
pub(crate) fn decode(value: &str) -> Option<String> {
    let encoded = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    match encoded {
        None => Some(value.to_owned()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        for (value, decoded) in [
            ("plain", Some("plain")),
            ("", Some("")),
            ("=?base64?aGk=?=", Some("hi")),
            ("=?base64?aGlqaw==?=", Some("hijk")),
            ("=?base64?w7w=?=", Some("ü")),
            ("=?base64??=", Some("")),
            ("=?base64?aGk?=", None),
            ("=?base64?aGl=?=", None),
            ("=?base64?a===?=", None),
            ("=?base64?/w==?=", None),
            ("=?base64?a_b-?=", None),
        ] {
            assert_eq!(decode(value).as_deref(), decoded, "{value}");
        }
    }

    #[test]
    fn texts_come_back() {
        for text in ["", "plain", " edge ", "ü", "=?base64?x?=", "a\nb"] {
            let value = encode(text);
            assert!(value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{value}");
            assert_eq!(decode(&value).as_deref(), Some(text));
        }
    }
}
