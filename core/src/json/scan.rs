//! The one reader of JSON text that a peer sends: finds where values end, in one pass and without
//! building them.
//!
//! It takes every form that the grammar has: any number, any white space, any escape of the right
//! form, surrogates that stand alone, names that are there twice. It does not say why it refuses a
//! text: serde_json, which refuses the same texts, words that error.
//!
//! Each function takes the bytes of a text and a position in it, and returns the position behind the
//! value there; `None` when there is no such value, or it nests too deep.

use alloc::borrow::Cow;
use alloc::string::String;
use core::ops::Range;

use memchr::memchr;

/// The deepest nesting that is followed: a bit for each level.
pub(crate) const DEPTH_MAX: usize = u128::BITS as usize;

/// An object at the start of a text; `member` is handed each key, as it is written between its
/// quotes, and where its value is.
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

/// An object in a text; `member` is handed each key, as it is written between its quotes, and where
/// its value begins, and says where that ends, which nests that deep at most.
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

/// An array in a text; `item` is handed where each item begins, and returns where it ends, which
/// nests that deep at most.
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

/// Calls `find` with the name of a member, and again with its escapes resolved if it has any.
#[inline]
pub(crate) fn named<T>(name: &[u8], mut find: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    find(name).or_else(|| {
        memchr(b'\\', name)?;
        let name = core::str::from_utf8(name).ok()?;
        find(unescaped(name)?.as_bytes())
    })
}

/// A piece of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Characters as they are.
    Plain(&'a str),
    /// A character that was an escape.
    Char(char),
    /// A surrogate without its other half, which stands for no character.
    Lone(u16),
}

/// The pieces of a string that was checked, given as it is written between its quotes.
pub(crate) fn pieces<'a>(inner: &'a str, mut take: impl FnMut(Piece<'a>)) {
    let mut rest = inner;
    while let Some((plain, escape)) = rest.split_once('\\') {
        take(Piece::Plain(plain));
        let mut letters = escape.chars();
        let letter = letters.next().unwrap_or('\\');
        rest = letters.as_str();
        take(match letter {
            'b' => Piece::Char('\u{8}'),
            'f' => Piece::Char('\u{c}'),
            'n' => Piece::Char('\n'),
            'r' => Piece::Char('\r'),
            't' => Piece::Char('\t'),
            'u' => {
                let (piece, after) = unicode(rest);
                rest = after;
                piece
            }
            itself => Piece::Char(itself),
        });
    }
    take(Piece::Plain(rest));
}

/// The character whose escape has these digits, or a pair of escapes, and what follows it.
fn unicode(digits: &str) -> (Piece<'_>, &str) {
    let (first, after) = unit(digits);
    let pair = after.strip_prefix("\\u").map(unit);
    if let Some((second, behind)) = pair
        && let Some(Ok(pair)) = char::decode_utf16([first, second]).next()
        && pair.len_utf16() == 2
    {
        return (Piece::Char(pair), behind);
    }
    let alone = char::from_u32(u32::from(first));
    (alone.map_or(Piece::Lone(first), Piece::Char), after)
}

fn unit(digits: &str) -> (u16, &str) {
    let (digits, after) = digits.split_at_checked(4).unwrap_or((digits, ""));
    (u16::from_str_radix(digits, 16).unwrap_or_default(), after)
}

/// The characters of a string that was checked; `None` where a surrogate stands alone.
pub(crate) fn unescaped(inner: &str) -> Option<Cow<'_, str>> {
    let mut lone = false;
    let text = unescaped_with(inner, |_, _| lone = true);
    (!lone).then_some(text)
}

/// The characters of a string that was checked; `lone` appends what stands for a surrogate alone.
pub(crate) fn unescaped_with(inner: &str, mut lone: impl FnMut(&mut String, u16)) -> Cow<'_, str> {
    if memchr(b'\\', inner.as_bytes()).is_none() {
        return Cow::Borrowed(inner);
    }
    let mut text = String::with_capacity(inner.len());
    pieces(inner, |piece| match piece {
        Piece::Plain(plain) => text.push_str(plain),
        Piece::Char(character) => text.push(character),
        Piece::Lone(unit) => lone(&mut text, unit),
    });
    Cow::Owned(text)
}

/// One value, however much is in it.
pub(crate) fn value(text: &[u8], mut at: usize, depth_max: usize) -> Option<usize> {
    // Which of the open brackets are braces; the bit of the innermost is the lowest.
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
                // Each bracket is followed by its closing one, but for one in between.
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
        // What ends with it: the brackets it is the last in.
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

/// A name as it is written between its quotes, and where its value begins.
#[inline]
pub(crate) fn key(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = string(text, at)?;
    let name = text.get(at + 1..end - 1)?;
    Some((name, space(text, expect(text, space(text, end), b':')?)))
}

/// A whole number of so few digits that it is in range, in its usual spelling and at the end of a
/// member: its value, and where it ends.
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

/// Whether a byte is white space.
#[inline]
pub(crate) const fn is_space(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b' ' | b'\n' | b'\r' | b'\t'))
}

/// White space, if there is any.
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

/// A number with its sign, fraction and exponent.
pub(crate) fn number(text: &[u8], at: usize) -> Option<usize> {
    let sign = text.get(at) == Some(&b'-');
    let start = at + usize::from(sign);
    let mut at = digits(text, start)?;
    // No digit follows a leading zero.
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

/// At least one digit.
fn digits(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    (at > start).then_some(at)
}

/// A string with its quotes.
#[inline]
pub(crate) fn string(text: &[u8], at: usize) -> Option<usize> {
    let mut at = expect(text, at, b'"')?;
    loop {
        at = special(text, at);
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at = escape(text, at)?,
            // A control character.
            _ => return None,
        }
    }
}

/// An escape. A surrogate may stand alone: only a reader of the text can tell what that means.
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

/// Where the first quote, backslash or control character stands, from `at` on; the end of the text
/// if there is none.
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

/// As [`special`], where it is further away or near the end of the text.
#[inline(never)]
fn far_special(text: &[u8], at: usize) -> usize {
    let is_special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    // Without a way out of the inner loop, so that it becomes a few vector instructions.
    let is_plain = |piece: &[u8; 32]| !piece.iter().fold(false, |any, byte| any | is_special(byte));
    let rest = text.get(at..).unwrap_or_default();
    let plain = rest.as_chunks::<32>().0.iter().take_while(|piece| is_plain(piece)).count() * 32;
    let mut at = at + plain;
    while let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let found = specials(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let last = text.get(at..).unwrap_or_default();
    // The missing bytes of a word are zeros, which are control characters: one is found.
    let word = match text.last_chunk() {
        Some(word) => u64::from_le_bytes(*word).checked_shr(64 - last.len() as u32 * 8),
        None => Some(last.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))),
    };
    at + specials(word.unwrap_or_default()).trailing_zeros() as usize / 8
}

/// The highest bit of the first byte that is special; above it, any.
const fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // With that bit turned over, control characters and the quote are what is below `!`.
    let low = word ^ (ONES * 0x02);
    let backslash = word ^ (ONES * b'\\' as u64);
    // Below a byte that borrows there is none that does, so that the first is always right.
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

    /// Replacements: pieces of JSON, and pieces that JSON must not contain.
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

    /// Texts in which a few places of a text are others, the same in every run.
    pub(crate) fn mutants(text: &str, count: usize, mut heed: impl FnMut(&str)) {
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
            heed(&mutant);
        }
    }

    /// Whether a text is one value; the general reader says the same.
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
    fn it_takes_what_the_general_reader_takes() {
        for text in PIECES {
            is_value(text);
        }
        for text in [
            r#"{"a":[1,-2.5e3,true,false,null,"x\n\u00e4"],"a":{"b":{}},"c":[[],[{}]]}"#,
            r#"[0,-0,10,1.0,0.5,1e999,-1E-9,123456789012345678901234567890]"#,
            r#""a text that is longer than four words of eight bytes and than two vectors of thirty-two""#,
            r#" { "a" : [ 1 , { } ] , "" : "\\\"\/\b\f\n\r\t\ud800" } "#,
        ] {
            assert!(is_value(text));
            let mut valid = 0;
            mutants(text, 20_000, |text| valid += usize::from(is_value(text)));
            assert!((100..19_900).contains(&valid), "{valid}");
        }
    }

    /// Wherever one looks from, and whatever was there before.
    #[test]
    fn the_first_special_byte_is_found() {
        let naive = |text: &[u8], at: usize| {
            let special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
            at + text[at..].iter().take_while(|byte| !special(byte)).count()
        };
        for length in 0..80 {
            mutants(&"abcd\u{e9}\u{1f}!\"#[\\]".repeat(9), 40, |text| {
                let end = text.floor_char_boundary(length);
                let text = &text.as_bytes()[..end];
                for at in 0..=end {
                    assert_eq!(special(text, at), naive(text, at), "{text:?} from {at}");
                }
            });
            let plain = "plain text\u{7f}".repeat(9);
            let plain = &plain.as_bytes()[..length];
            assert!((0..=length).all(|at| special(plain, at) == length));
        }
    }

    #[test]
    fn a_string_ends_where_it_ends() {
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

    /// Strings are resolved as serde_json resolves them, and halves of pairs are told.
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
