//! JSON texts of programs that no value tree can hold: halves of surrogate pairs, deep nesting, numbers
//! beyond 64 bits.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object with these names, each as JSON text, in one pass; the last of several with
/// one name, as usual readers have it. `None` for a text that is no object.
pub(crate) fn members<'a, const N: usize>(
    text: &'a str,
    names: [&str; N],
) -> Option<[Option<&'a str>; N]> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader.deserialize_map(Named(names)).ok()?;
    reader.end().ok()?;
    Some(found)
}

/// The member of an object with this name.
pub(crate) fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let [found] = members(text, [name])?;
    found
}

/// The text of a JSON string, with U+FFFD for each half of a surrogate pair; `None` for another value.
pub(crate) fn string(text: &str) -> Option<String> {
    serde_json::from_str(&without_halves(text)).ok()
}

/// Members to be found, by name.
struct Named<'n, const N: usize>([&'n str; N]);

impl<'de, const N: usize> Visitor<'de> for Named<'_, N> {
    type Value = [Option<&'de str>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        // A name may have half of a surrogate pair, so that it is read as text too.
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            let at = self.0.iter().position(|name| is_named(key.get(), name));
            if let Some(place) = at.and_then(|at| found.get_mut(at)) {
                *place = Some(value.get());
            }
        }
        Ok(found)
    }
}

/// Whether a key, as it is written with its quotes, is this name.
fn is_named(key: &str, name: &str) -> bool {
    let inner = key.get(1..key.len().saturating_sub(1));
    inner == Some(name)
        || key.contains('\\') && serde_json::from_str::<String>(key).is_ok_and(|key| key == name)
}

/// The text with the escape of U+FFFD for each escape of half a surrogate pair, which programs that
/// count in 16 bits write when they cut a string. It has the same length, so that places in it are
/// those in the text.
pub(crate) fn without_halves(text: &str) -> Cow<'_, str> {
    let (mut clean, mut at) = (Cow::Borrowed(text), 0);
    while let Some(escape) = text.get(at..).and_then(|rest| rest.find('\\')) {
        let start = at + escape;
        at = match (unit(text, start), unit(text, start + UNIT)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => start + 2 * UNIT,
            (Some(0xd800..=0xdfff), _) => {
                clean.to_mut().replace_range(start + 2..start + UNIT, "fffd");
                start + UNIT
            }
            // The escaped character can be a backslash.
            _ => start + 2,
        };
    }
    clean
}

/// Length of the escape of a unit of UTF-16.
const UNIT: usize = 6;

/// The unit of UTF-16 whose escape stands at an offset.
fn unit(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + UNIT)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

/// Nesting of the objects and arrays in a JSON text.
pub(crate) fn depth(text: &str) -> usize {
    let (mut depth, mut most, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match (byte, in_string) {
            _ if is_escaped => is_escaped = false,
            (b'\\', true) => is_escaped = true,
            (b'"', _) => in_string = !in_string,
            (b'{' | b'[', false) => {
                depth += 1;
                most = most.max(depth);
            }
            (b'}' | b']', false) => depth = depth.saturating_sub(1),
            (_, true | false) => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_pairs_are_replaced() {
        for (text, clean) in [
            (r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#),
            (r#"{"\ude00":"\ud83d\ud83d\ude00"}"#, r#"{"\ufffd":"\ufffd\ud83d\ude00"}"#),
            (r#""\\ud83d \u00e4 \ud83d\u0041""#, r#""\\ud83d \u00e4 \ufffd\u0041""#),
            (r#""\ud83d\n""#, r#""\ufffd\n""#),
            ("{}", "{}"),
        ] {
            assert_eq!(without_halves(text), clean, "{text}");
            serde_json::from_str::<serde_json::Value>(clean).expect("a value");
        }
    }

    #[test]
    fn members_are_found_beside_any_others() {
        let deep = "[".repeat(3000) + &"]".repeat(3000);
        let text = format!(
            r#" {{"a":1,"\ud83d":2,"deep":{deep},"big":1e400,"a":12345678901234567890123,"\u0062":"x"}} "#
        );
        let found = members(&text, ["a", "b", "c", "big"]);
        assert_eq!(
            found,
            Some([Some("12345678901234567890123"), Some("\"x\""), None, Some("1e400")])
        );
        for other in ["[1]", "1", "{", "{} x", r#"{"a":}"#] {
            assert_eq!(members(other, ["a"]), None, "{other}");
        }
        assert_eq!(string(r#""a\ud83d""#).as_deref(), Some("a\u{fffd}"));
        assert_eq!(string("1"), None);
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(depth(r#"{"a":["[[\"[",{}],"b":[[]]}"#), 3);
        assert_eq!(depth("1"), 0);
    }
}
