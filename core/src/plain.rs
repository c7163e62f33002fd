//! The envelope as nearly every peer writes it, read in one pass.
//!
//! No white space between the members, no escapes, no member twice, none but `jsonrpc`, `id`,
//! `method` and `params`: such a message is recognised by its text. Whatever looks any different is
//! left to the reader that takes every form, so this one never has to refuse anything.

use alloc::borrow::Cow;

use crate::id::RequestId;
use crate::message::{Message, WireId};
use crate::params::Params;

/// The request or notification that `text` is; `None` if it is not as plain as that.
pub(crate) fn message(text: &str) -> Option<Message<'_>> {
    let mut rest = text.strip_prefix('{')?;
    let (mut version, mut id, mut method, mut params) = (None, None, None, None);
    loop {
        let was_there = if let Some(after) = rest.strip_prefix(r#""jsonrpc":"2.0""#) {
            rest = after;
            version.replace(()).is_some()
        } else if let Some(value) = rest.strip_prefix(r#""id":"#) {
            let (token, after) = token(value)?;
            rest = after;
            id.replace(token).is_some()
        } else if let Some(value) = rest.strip_prefix(r#""method":"#) {
            let (name, after) = string(value)?;
            rest = after;
            method.replace(name).is_some()
        } else if let Some(value) = rest.strip_prefix(r#""params":"#) {
            let (object, after) = Params::read_object(value)?;
            rest = after;
            params.replace(object).is_some()
        } else {
            return None;
        };
        match (was_there, rest.as_bytes()) {
            (false, [b'}']) => break,
            (false, [b',', ..]) => rest = rest.get(1..)?,
            _ => return None,
        }
    }
    version?;
    let method = Cow::Borrowed(method?);
    let Some(token) = id else { return Some(Message::Notification { method, params }) };
    let id = match token.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(text) => RequestId::Text(text.into()),
        None => RequestId::Number(token.parse().ok()?),
    };
    Some(Message::Request { id: WireId { id, token }, method, params })
}

/// An id that can be written in one way only, and what follows it.
fn token(text: &str) -> Option<(&str, &str)> {
    if text.starts_with('"') {
        let (inner, after) = string(text)?;
        return Some((text.get(..inner.len() + 2)?, after));
    }
    let end = text.bytes().position(|byte| !byte.is_ascii_digit())?;
    let (digits, after) = text.split_at_checked(end)?;
    (digits == "0" || !digits.starts_with('0')).then_some((digits, after))
}

/// The characters of a string without escapes, and what follows it.
fn string(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('"')?;
    let end = inner.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
    let after = inner.get(end..)?.strip_prefix('"')?;
    Some((inner.get(..end)?, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    /// RPC-01, RPC-02: what is read here is read alike by the reader of every form.
    #[test]
    fn both_readers_agree() {
        let ids = ["7", "0", "00", "07", "-1", "-0", "1.0", "1e3", "9223372036854775808", "\"a\""];
        let more_ids =
            ["\"\"", "\"\\u0041\"", "\"\u{e4}\"", "null", "[]", "\"\t\"", " 7", "7 ", ""];
        let params = ["{}", "{\"a\":[{}],\"b\":\"}\"}", "{\"a\":}", "[]", "{} ", "{", "7"];
        let mut plain = 0;
        for id in ids.iter().chain(&more_ids) {
            for params in params {
                for text in [
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m/n","params":{params}}}"#),
                    format!(r#"{{"method":"m","params":{params},"id":{id},"jsonrpc":"2.0"}}"#),
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"id":{id},"method":"m"}}"#),
                    format!(r#"{{"jsonrpc":"2.0","method":"m","params":{params}}}"#),
                    format!(r#"{{"jsonrpc":"2.0","method":"m\n","params":{params}}}"#),
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{params}}}"#),
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","x":{params}}}"#),
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}},"#),
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m",}}"#),
                    format!(r#"{{"jsonrpc":"1.0","id":{id},"method":"m"}}"#),
                    format!(r#"{{"id":{id},"method":"m"}}"#),
                    format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#),
                ] {
                    let Some(read) = message(&text) else { continue };
                    plain += 1;
                    assert_eq!(show(&read), show(&Message::parse_any(&text)), "{text}");
                    // Cut short it is nothing.
                    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
                        assert!(message(text.get(..end).unwrap_or_default()).is_none(), "{text}");
                    }
                }
            }
        }
        assert!(plain > 40, "{plain}");
    }

    fn show(message: &Message<'_>) -> String {
        format!("{message:?}")
    }
}
