//! Scanner of JSON text from peers: finds the ends of values in one pass, without a value tree.
//!
//! The scanner accepts the whole grammar: any number, white space, valid escapes, unpaired
//! surrogates, duplicate names. It gives no reason for a rejected text: serde_json rejects the same
//! texts and words the error.
//!
//! Each function takes the bytes of a text and an offset, and returns the offset behind the value
//! there; `None` for an invalid value or too deep nesting.

use alloc::borrow::Cow;
use alloc::string::String;
use core::ops::Range;

use memchr::memchr;

/// Deepest nesting that the scanner can follow: one bit of a `u128` for each level.
pub(crate) const DEPTH_MAX: usize = u128::BITS as usize;

/// Scans an object at the start of a text; calls `member` with each raw name (between its quotes)
/// and the range of its value.
#[inline]
pub(crate) fn object<'a>(
    text: &'a [u8],
    depth_max: usize,
    mut member: impl FnMut(&'a [u8], Range<usize>) -> Option<()>,
) -> Option<usize> {
    object_at(text, 0, depth_max, |name, at, depth_max| {
        let end = value(text, at, depth_max)?;
        member(name, at..end)?;
        Some(end)
    })
}

/// Scans an object; calls `member` with each raw name, the offset of its value and the nesting that
/// the value may have. `member` returns the end of the value.
#[inline]
pub(crate) fn object_at<'a>(
    text: &'a [u8],
    at: usize,
    depth_max: usize,
    mut member: impl FnMut(&'a [u8], usize, usize) -> Option<usize>,
) -> Option<usize> {
    let inner = depth_max.checked_sub(1)?;
    let mut at = space(text, expect(text, at, b'{')?);
    if text.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    loop {
        let (name, value) = key(text, at)?;
        at = space(text, member(name, value, inner)?);
        match text.get(at)? {
            b',' => at = space(text, at + 1),
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

/// Scans an array; calls `item` with the offset of each item and the nesting it may have. `item`
/// returns the end of the item.
pub(crate) fn array_at(
    text: &[u8],
    at: usize,
    depth_max: usize,
    mut item: impl FnMut(usize, usize) -> Option<usize>,
) -> Option<usize> {
    let inner = depth_max.checked_sub(1)?;
    let mut at = space(text, expect(text, at, b'[')?);
    if text.get(at) == Some(&b']') {
        return Some(at + 1);
    }
    loop {
        at = space(text, item(at, inner)?);
        match text.get(at)? {
            b',' => at = space(text, at + 1),
            b']' => return Some(at + 1),
            _ => return None,
        }
    }
}

/// Calls `find` with a raw name, and again with its escapes resolved if it has any.
#[inline]
pub(crate) fn named<T>(name: &[u8], mut find: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    find(name).or_else(|| {
        memchr(b'\\', name)?;
        let name = core::str::from_utf8(name).ok()?;
        find(unescaped(name)?.as_bytes())
    })
}

/// One piece of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextPiece<'a> {
    /// Characters without an escape.
    Plain(&'a str),
    /// Character of an escape.
    Char(char),
    /// Surrogate without its other half: no character.
    Lone(u16),
}

/// Calls `take` with the pieces of a validated string, given as the text between its quotes.
pub(crate) fn pieces<'a>(inner: &'a str, mut take: impl FnMut(TextPiece<'a>)) {
    let mut rest = inner;
    while let Some((plain, escape)) = rest.split_once('\\') {
        take(TextPiece::Plain(plain));
        let mut letters = escape.chars();
        let letter = letters.next().unwrap_or('\\');
        rest = letters.as_str();
        take(match letter {
            'b' => TextPiece::Char('\u{8}'),
            'f' => TextPiece::Char('\u{c}'),
            'n' => TextPiece::Char('\n'),
            'r' => TextPiece::Char('\r'),
            't' => TextPiece::Char('\t'),
            'u' => {
                let (piece, after) = unicode(rest);
                rest = after;
                piece
            }
            itself => TextPiece::Char(itself),
        });
    }
    take(TextPiece::Plain(rest));
}

/// Resolves the escape with these digits, or a pair of escapes, and returns the rest of the text.
fn unicode(digits: &str) -> (TextPiece<'_>, &str) {
    let (first, after) = unit(digits);
    let pair = after.strip_prefix("\\u").map(unit);
    if let Some((second, behind)) = pair
        && let Some(Ok(pair)) = char::decode_utf16([first, second]).next()
        && pair.len_utf16() == 2
    {
        return (TextPiece::Char(pair), behind);
    }
    let alone = char::from_u32(u32::from(first));
    (alone.map_or(TextPiece::Lone(first), TextPiece::Char), after)
}

fn unit(digits: &str) -> (u16, &str) {
    let (digits, after) = digits.split_at_checked(4).unwrap_or((digits, ""));
    (u16::from_str_radix(digits, 16).unwrap_or_default(), after)
}

/// Resolves the escapes of a validated string; `None` for an unpaired surrogate.
pub(crate) fn unescaped(inner: &str) -> Option<Cow<'_, str>> {
    let mut lone = false;
    let text = unescaped_with(inner, |_, _| lone = true);
    (!lone).then_some(text)
}

/// Resolves the escapes of a validated string; `lone` appends the replacement of an unpaired
/// surrogate.
pub(crate) fn unescaped_with(inner: &str, mut lone: impl FnMut(&mut String, u16)) -> Cow<'_, str> {
    if memchr(b'\\', inner.as_bytes()).is_none() {
        return Cow::Borrowed(inner);
    }
    let mut text = String::with_capacity(inner.len());
    pieces(inner, |piece| match piece {
        TextPiece::Plain(plain) => text.push_str(plain),
        TextPiece::Char(character) => text.push(character),
        TextPiece::Lone(unit) => lone(&mut text, unit),
    });
    Cow::Owned(text)
}

/// Scans one value of any type.
pub(crate) fn value(text: &[u8], mut at: usize, depth_max: usize) -> Option<usize> {
    // Which open brackets are braces; the lowest bit is the innermost.
    let (mut braces, mut depth) = (0_u128, 0);
    loop {
        match text.get(at)? {
            b'"' => at = string(text, at)?,
            bracket @ (b'{' | b'[') => {
                depth += 1;
                if depth > depth_max.min(DEPTH_MAX) {
                    return None;
                }
                braces = braces << 1 | u128::from(*bracket == b'{');
                at = space(text, at + 1);
                // `]` and `}` are each two code points behind their opening bracket.
                if text.get(at) != Some(&(bracket + 2)) {
                    if *bracket == b'{' {
                        at = key(text, at)?.1;
                    }
                    continue;
                }
            }
            b'-' | b'0'..=b'9' => at = number(text, at)?,
            b't' => at = word(text, at, b"true")?,
            b'f' => at = word(text, at, b"false")?,
            b'n' => at = word(text, at, b"null")?,
            _ => return None,
        }
        // Closes the brackets whose last item this value is.
        loop {
            if depth == 0 {
                return Some(at);
            }
            at = space(text, at);
            match (text.get(at)?, braces & 1) {
                (b'}', 1) | (b']', 0) => {
                    at += 1;
                    depth -= 1;
                    braces >>= 1;
                }
                (b',', brace) => {
                    at = space(text, at + 1);
                    if brace == 1 {
                        at = key(text, at)?.1;
                    }
                    break;
                }
                _ => return None,
            }
        }
    }
}

/// Scans a name and the colon; returns the raw name and the offset of the value.
#[inline]
pub(crate) fn key(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = string(text, at)?;
    let name = text.get(at + 1..end - 1)?;
    Some((name, space(text, expect(text, space(text, end), b':')?)))
}

/// A whole number in its usual spelling, short enough to be in range, at the end of a member;
/// returns its value and end.
#[inline]
pub(crate) fn short_number(text: &[u8], at: usize) -> Option<(i64, usize)> {
    let (mut number, mut end) = (0, at);
    while let Some(digit) = text.get(end).map(|byte| byte.wrapping_sub(b'0'))
        && digit < 10
    {
        number = i64::wrapping_add(i64::wrapping_mul(number, 10), i64::from(digit));
        end += 1;
    }
    let usual = match end - at {
        1 => true,
        2..=18 => text.get(at) != Some(&b'0'),
        _ => false,
    };
    (usual && matches!(text.get(end), Some(b',' | b'}'))).then_some((number, end))
}

/// True for JSON white space.
#[inline]
pub(crate) const fn is_space(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b' ' | b'\n' | b'\r' | b'\t'))
}

/// Skips white space.
#[inline]
pub(crate) fn space(text: &[u8], mut at: usize) -> usize {
    while is_space(text.get(at)) {
        at += 1;
    }
    at
}

#[inline]
pub(crate) fn expect(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    (*text.get(at)? == byte).then_some(at + 1)
}

fn word(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    text.get(at..)?.starts_with(word).then_some(at + word.len())
}

/// Scans a number with sign, fraction and exponent.
pub(crate) fn number(text: &[u8], at: usize) -> Option<usize> {
    let sign = text.get(at) == Some(&b'-');
    let start = at + usize::from(sign);
    let mut at = digits(text, start)?;
    // RFC 8259: a leading zero is followed by no digit.
    if at - start > 1 && text.get(start) == Some(&b'0') {
        return None;
    }
    if text.get(at) == Some(&b'.') {
        at = digits(text, at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        let sign = matches!(text.get(at + 1), Some(b'+' | b'-'));
        at = digits(text, at + 1 + usize::from(sign))?;
    }
    Some(at)
}

/// Scans one or more digits.
fn digits(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    (at > start).then_some(at)
}

/// Scans a string with its quotes.
#[inline]
pub(crate) fn string(text: &[u8], at: usize) -> Option<usize> {
    let mut at = expect(text, at, b'"')?;
    loop {
        at = special(text, at);
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at = escape(text, at)?,
            // RFC 8259: control characters must be escaped.
            _ => return None,
        }
    }
}

/// Scans an escape. A surrogate may be unpaired: the reader of the text decides.
#[inline(never)]
fn escape(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => {
            let digits = text.get(at + 2..at + 6)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(at + 6)
        }
        _ => None,
    }
}

/// Offset of the first quote, backslash or control character from `at` on; else the length of the
/// text.
#[inline]
pub(crate) fn special(text: &[u8], mut at: usize) -> usize {
    for _ in 0..8 {
        let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk) else { break };
        let found = specials(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    far_special(text, at)
}

/// As [`special`], for a distant byte or near the end of the text.
#[inline(never)]
fn far_special(text: &[u8], at: usize) -> usize {
    let is_special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    // No early exit in the inner loop, so that the compiler vectorizes it.
    let is_plain = |piece: &[u8; 64]| !piece.iter().fold(false, |any, byte| any | is_special(byte));
    let rest = text.get(at..).unwrap_or_default();
    let plain = rest.as_chunks::<64>().0.iter().take_while(|piece| is_plain(piece)).count() * 64;
    let mut at = at + plain;
    while let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let found = specials(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let last = text.get(at..).unwrap_or_default();
    // Missing bytes of the last word are zeros, which count as control characters.
    let word = match text.last_chunk() {
        Some(word) => u64::from_le_bytes(*word).checked_shr(64 - last.len() as u32 * 8),
        None => Some(last.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))),
    };
    at + specials(word.unwrap_or_default()).trailing_zeros() as usize / 8
}

/// Sets the highest bit of the first special byte; bits above it are arbitrary.
const fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // With bit 1 inverted, control characters and the quote are exactly the bytes below `!`.
    let low = word ^ (ONES * 0x02);
    let backslash = word ^ (ONES * b'\\' as u64);
    // A borrow affects only the bytes above its own, so the lowest bit set is right.
    let found =
        low.wrapping_sub(ONES * b'!' as u64) & !low | backslash.wrapping_sub(ONES) & !backslash;
    found & (ONES * 0x80)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;
    use serde_json::value::RawValue;

    /// Replacements: pieces of valid JSON, and pieces that JSON must not contain.
    const PIECES: [&str; 48] = [
        "",
        "{",
        "}",
        "[",
        "]",
        "\"",
        ":",
        ",",
        " ",
        "\n",
        "\t",
        "\r",
        "\\",
        "\\\"",
        "\\u",
        "\\u00e4",
        "\\ud800",
        "\\uDbFf\\udc00",
        "\\u12g4",
        "\\x",
        "\\/",
        "0",
        "-",
        "-0",
        "01",
        "1.",
        "1.5",
        ".5",
        "1e999",
        "1E+2",
        "1e",
        "2e-",
        "1.e1",
        "+1",
        "123456789012345678901234567890",
        "true",
        "nul",
        "null",
        "falsex",
        "NaN",
        "\u{0}",
        "\u{1f}",
        "\u{7f}",
        "ä",
        "🦀",
        "\u{2028}",
        "{\"a\":[]}",
        "\"id\":1,",
    ];

    /// Calls `heed` with variants of a text in which a few places are replaced, the same in every
    /// run.
    pub(crate) fn mutants(text: &str, count: usize, mut check: impl FnMut(&str)) {
        let mut random = text.len() as u64;
        let mut below = |end: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (random >> 33) as usize % end
        };
        for _ in 0..count {
            let mut mutant = String::from(text);
            for _ in 0..=below(3) {
                let at = mutant.floor_char_boundary(below(mutant.len() + 1));
                let end = mutant.floor_char_boundary((at + below(4)).min(mutant.len())).max(at);
                let piece = PIECES[below(PIECES.len())];
                mutant.replace_range(at..end, piece);
            }
            check(&mutant);
        }
    }

    /// Whether the scanner reads a text as one value; asserts that serde_json agrees.
    fn is_value(text: &str) -> bool {
        let bytes = text.as_bytes();
        let start = space(bytes, 0);
        let end = value(bytes, start, DEPTH_MAX).filter(|end| space(bytes, *end) == bytes.len());
        let found = end.and_then(|end| text.get(start..end));
        let general = serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get);
        assert_eq!(found, general, "{text:?}");
        found.is_some()
    }

    #[test]
    fn scanner_accepts_the_texts_of_serde_json() {
        for text in PIECES {
            is_value(text);
        }
        for text in [
            r#"{"a":[1,-2.5e3,true,false,null,"x\n\u00e4"],"a":{"b":{}},"c":[[],[{}]]}"#,
            r#"[0,-0,10,1.0,0.5,1e999,-1E-9,123456789012345678901234567890]"#,
            r#""a text that is longer than eight words of eight bytes and than two pieces of sixty-four, which takes some more words""#,
            r#" { "a" : [ 1 , { } ] , "" : "\\\"\/\b\f\n\r\t\ud800" } "#,
        ] {
            assert!(is_value(text));
            let mut valid = 0;
            mutants(text, 20_000, |text| valid += usize::from(is_value(text)));
            assert!((100..19_900).contains(&valid), "{valid}");
        }
    }

    /// The first special byte is found from every start offset.
    #[test]
    fn first_special_byte_is_found() {
        let naive = |text: &[u8], at: usize| {
            let special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
            at + text[at..].iter().take_while(|byte| !special(byte)).count()
        };
        for length in (0..80).chain(120..200) {
            mutants(&"abcd\u{e9}\u{1f}!\"#[\\]".repeat(20), 40, |text| {
                let end = text.floor_char_boundary(length);
                let text = &text.as_bytes()[..end];
                for at in 0..=end {
                    assert_eq!(special(text, at), naive(text, at), "{text:?} from {at}");
                }
            });
            let plain = "plain text\u{7f}".repeat(20);
            let plain = &plain.as_bytes()[..length];
            assert!((0..=length).all(|at| special(plain, at) == length));
        }
    }

    #[test]
    fn string_ends_at_its_closing_quote() {
        for length in 0..150 {
            let plain: String =
                core::iter::repeat_n(['a', 'ä', '~', ' '], length).flatten().collect();
            for special in ["\"", "\\n\"", "\\", "\u{1f}", "\u{0}", ""] {
                let text = alloc::format!("\"{plain}{special}");
                is_value(&text);
                is_value(&alloc::format!("{text}, more behind it"));
            }
            let bytes = [plain.as_bytes(), b"\"\\\x01 aaaaaaaa"].concat();
            assert_eq!(special(&bytes, 0), plain.len());
        }
    }

    /// Strings are resolved as serde_json resolves them; unpaired surrogates are reported.
    #[test]
    fn escapes_are_resolved() {
        let text = r#""a\"\\\/\b\f\n\r\t\u00e4\u20AC\uD83E\udd80\ud800\u0041x""#;
        mutants(text, 40_000, |text| {
            let bytes = text.as_bytes();
            if string(bytes, 0) != Some(bytes.len()) {
                return;
            }
            let inner = &text[1..text.len() - 1];
            let general = serde_json::from_str::<String>(text).ok();
            assert_eq!(unescaped(inner).as_deref(), general.as_deref(), "{text}");
            let cleaned = unescaped_with(inner, |text, _| text.push('?'));
            if let Some(general) = general {
                assert_eq!(cleaned, general);
            }
        });
        let halves = r"a\ud83eb\udd80\ud83e\ud83e\udd80\ud83e\u0041";
        let shown = unescaped_with(halves, |text, unit| *text += &alloc::format!("<{unit:x}>"));
        assert_eq!(shown, "a<d83e>b<dd80><d83e>\u{1f980}<d83e>A");
        assert_eq!(unescaped(halves), None);
    }

    #[test]
    fn depth_is_bounded() {
        let nest = |depth: usize| {
            let pieces: Vec<&str> =
                core::iter::repeat_n("[", depth).chain(core::iter::repeat_n("]", depth)).collect();
            pieces.concat()
        };
        for depth in 1..200 {
            for max in [1, 2, 127, 128, 1000] {
                let text = nest(depth);
                let found = value(text.as_bytes(), 0, max).is_some();
                assert_eq!(found, depth <= max.min(DEPTH_MAX), "{depth} of {max}");
            }
        }
        assert!(is_value(&nest(DEPTH_MAX)));
    }
}
