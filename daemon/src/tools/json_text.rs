//! JSON texts of programs that no value tree can hold: halves of surrogate pairs, deep nesting.

use std::borrow::Cow;

/// The text with U+FFFD for each escape of half a surrogate pair. The text must be JSON.
pub(crate) fn without_halves(text: &str) -> Cow<'_, str> {
    let mut clean = String::new();
    let (mut at, mut kept) = (0, 0);
    while let Some(escape) = text.get(at..).and_then(|rest| rest.find('\\')) {
        let start = at + escape;
        // Another escape than that of a unit has two characters.
        let Some(first) = unit(text, start) else {
            at = start + 2;
            continue;
        };
        at = start + UNIT;
        if !(0xd800..0xe000).contains(&first) {
            continue;
        }
        let second = unit(text, at).filter(|second| (0xdc00..0xe000).contains(second));
        if first < 0xdc00 && second.is_some() {
            at += UNIT;
            continue;
        }
        clean.push_str(text.get(kept..start).unwrap_or_default());
        clean.push('\u{fffd}');
        kept = at;
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    clean.push_str(text.get(kept..).unwrap_or_default());
    Cow::Owned(clean)
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
            (r#"{"a":"\ud83d"}"#, "{\"a\":\"\u{fffd}\"}"),
            (r#"{"\ude00":"\ud83d\ud83d\ude00"}"#, "{\"\u{fffd}\":\"\u{fffd}\\ud83d\\ude00\"}"),
            (r#""\\ud83d \u00e4 \ud83d\u0041""#, "\"\\\\ud83d \\u00e4 \u{fffd}\\u0041\""),
            (r#""\ud83d\n""#, "\"\u{fffd}\\n\""),
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
