//! The envelope as nearly every peer writes it, read in one pass.
//!
//! No white space between the members, no escapes, no member twice, none but `jsonrpc`, `id`,
//! `method` and `params`, params that are an object: such a message is recognised by its text.
//! Whatever looks any different is left to the reader that takes every form, so this one never has
//! to say what is wrong.

use alloc::borrow::Cow;

use crate::id::RequestId;
use crate::json::Raw;
use crate::message::{Message, WireId};
use crate::params::{Members, Params};
use crate::scan;

/// The request or notification that `text` is, and in `seen` the members of its params; `None` if it
/// is not as plain as that, or nests deeper than `depth_max`.
pub(crate) fn message<'a>(
    text: &'a str,
    depth_max: usize,
    seen: &'a mut Members<'a>,
) -> Option<Message<'a>> {
    // The envelope is one level itself.
    let depth_max = depth_max.checked_sub(1)?;
    let mut rest = text.strip_prefix('{')?;
    let (mut version, mut id, mut method, mut params) = (None, None, None, None);
    // They are read but once: twice is not plain.
    let mut seen = Some(seen);
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
            let (object, after) = read_params(value, depth_max, seen.take()?)?;
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
    let Some(id) = id else { return Some(Message::Notification { method, params }) };
    Some(Message::Request { id, method, params })
}

/// An id that can be written in one way only, and what follows it.
fn token(text: &str) -> Option<(WireId<'_>, &str)> {
    if text.starts_with('"') {
        let (inner, after) = string(text)?;
        let token = text.get(..inner.len() + 2)?;
        return Some((WireId { id: RequestId::Text(inner.into()), token }, after));
    }
    let (mut number, mut digits) = (0, 0);
    for byte in text.bytes().take_while(u8::is_ascii_digit) {
        number = i64::wrapping_add(i64::wrapping_mul(number, 10), i64::from(byte - b'0'));
        digits += 1;
    }
    let (token, after) = text.split_at_checked(digits)?;
    // So few digits are in range.
    let once = digits == 1 || (2..=18).contains(&digits) && !token.starts_with('0');
    once.then_some((WireId { id: RequestId::Number(number), token }, after))
}

/// The characters of a string without escapes, and what follows it.
fn string(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('"')?;
    let (inner, after) = inner.split_at_checked(scan::special(inner.as_bytes(), 0))?;
    Some((inner, after.strip_prefix('"')?))
}

/// Reads params that are an object and nest that deep at most, and what follows them.
fn read_params<'a>(
    text: &'a str,
    depth_max: usize,
    seen: &'a mut Members<'a>,
) -> Option<(Params<'a>, &'a str)> {
    let (plain, end) = seen.read(text, depth_max)?;
    let (object, after) = text.split_at_checked(end)?;
    Some((Params::seen(Raw::checked(object), plain.then_some(seen)), after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::tests::mutants;
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::String;
    use serde_json::value::RawValue;

    const META: [&str; 6] = [
        "progressToken",
        "ceased/idempotencyKey",
        "ceased/reason",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/logLevel",
    ];

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
                    if !agrees(&text) {
                        continue;
                    }
                    plain += 1;
                    // Cut short it is nothing.
                    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
                        let cut = text.get(..end).unwrap_or_default();
                        let mut seen = Members::default();
                        assert!(message(cut, 64, &mut seen).is_none(), "{text}");
                    }
                }
            }
        }
        assert!(plain > 40, "{plain}");
    }

    /// RPC-01, RPC-02: the same of messages in which something is amiss.
    #[test]
    fn both_readers_agree_on_mutants() {
        let frames = [
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a\"b","n":[1,-2.5e3,true]}}}"#,
            r#"{ "jsonrpc": "2.0", "id": "x", "method": "m", "params": { "taskId": "t", "_meta": {"progressToken": 1} } }"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x"},"io.modelcontextprotocol/clientCapabilities":{},"progressToken":"t","ceased/idempotencyKey":"k"}}}"#,
            r#"{"jsonrpc":"2.0","id":8,"method":"tasks/cancel","params":{"taskId":"t","_meta":{"ceased/reason":"r","io.modelcontextprotocol/logLevel":"info"}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"because"}}"#,
            r#"{"jsonrpc":"2.0","x":{"id":null},"id":0,"method":"ping","params":{"task":{},"task":{},"naẍe":[]}}"#,
        ];
        let mut plain = 0;
        for frame in frames {
            mutants(frame, 20_000, |text| plain += usize::from(agrees(text)));
        }
        assert!(plain > 1_000, "{plain}");
    }

    /// RPC-02: what is there twice, or oddly written, is for the general reader to refuse.
    #[test]
    fn nothing_is_known_of_odd_params() {
        for odd in [
            r#"{"name":"x","name":"x"}"#,
            r#"{"_meta":{"progressToken":1,"progressToken":1}}"#,
            r#"{"_meta":{},"_meta":{}}"#,
            r#"{"_meta":{"progress\u0054oken":1}}"#,
            r#"{"_meta":[]}"#,
            r#"{"x":1}"#,
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{odd}}}"#);
            let mut seen = Members::default();
            let Some(Message::Request { params: Some(params), .. }) = message(&text, 64, &mut seen)
            else {
                panic!("it is a plain request: {text}");
            };
            assert!(params.known().is_none() && params.get() == odd, "{odd}");
        }
    }

    /// Whether a text is read here; if so, the other reader reads it alike.
    fn agrees(text: &str) -> bool {
        let mut seen = Members::default();
        let Some(read) = message(text, 64, &mut seen) else { return false };
        let general = Message::parse_any(text);
        assert_eq!(show(&read), show(&general), "{text}");
        let (Message::Request { params, .. } | Message::Notification { params, .. }) = read else {
            panic!("only these are plain: {text}");
        };
        let known = params.and_then(|params| params.known().map(|known| (params.get(), *known)));
        if let Some((params, mut known)) = known {
            let mut members: BTreeMap<String, &RawValue> =
                serde_json::from_str(params).expect("params are an object");
            let (meta, seen) = (members.remove("_meta"), known.meta.take());
            assert_eq!(meta.is_some(), seen.is_some(), "{text}");
            if let (Some(meta), Some(mut seen)) = (meta, seen) {
                let meta: BTreeMap<String, &RawValue> =
                    serde_json::from_str(meta.get()).expect("_meta is an object");
                for name in META {
                    let seen = seen.slot(name.as_bytes()).and_then(|slot| slot.take());
                    let there = meta.get(name).map(|value| value.get());
                    assert_eq!(seen.map(Raw::get), there, "{name} of {text}");
                }
            }
            for (name, value) in &members {
                let seen = known.slot(name.as_bytes()).and_then(|slot| slot.take());
                assert_eq!(seen.map(Raw::get), Some(value.get()), "{name} of {text}");
            }
            let others = ["name", "arguments", "task", "taskId", "requestId", "reason"];
            let left = others
                .iter()
                .any(|name| known.slot(name.as_bytes()).is_none_or(|slot| slot.is_some()));
            assert!(!left, "what is not there was seen: {text}");
        }
        true
    }

    fn show(message: &Message<'_>) -> String {
        format!("{message:?}")
    }
}
