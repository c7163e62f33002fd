//! JSON texts of programs that no value tree can hold: halves of surrogate pairs, deep nesting.

use std::borrow::Cow;

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
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(depth(r#"{"a":["[[\"[",{}],"b":[[]]}"#), 3);
        assert_eq!(depth("1"), 0);
    }
}
