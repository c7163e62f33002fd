//! JSON strings, numbers and UUIDs as text, many bytes at a time: most characters need no escape.

use alloc::string::String;
use alloc::vec::Vec;

use uuid::Uuid;

use crate::json::scan;

/// Number of bytes at the start of `text` that a JSON string holds without an escape.
#[must_use]
pub fn plain_bytes(text: &[u8]) -> usize {
    scan::special(text, 0)
}

/// Destination of JSON text.
pub trait Out {
    /// Appends a piece unchanged.
    fn push_piece(&mut self, piece: &str);

    /// Appends digits.
    fn push_digits(&mut self, digits: &[u8]);
}

impl Out for String {
    fn push_piece(&mut self, piece: &str) {
        self.push_str(piece);
    }

    fn push_digits(&mut self, digits: &[u8]) {
        self.extend(digits.iter().copied().map(char::from));
    }
}

impl Out for Vec<u8> {
    fn push_piece(&mut self, piece: &str) {
        self.extend_from_slice(piece.as_bytes());
    }

    fn push_digits(&mut self, digits: &[u8]) {
        self.extend_from_slice(digits);
    }
}

/// Appends a whole number.
pub fn write_number(out: &mut impl Out, mut number: u64) {
    // A u64 has twenty digits at most.
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
        start -= 1;
        if number == 0 {
            break;
        }
    }
    out.push_digits(digits.get(start..).unwrap_or_default());
}

/// Length of the text of a UUID in bytes.
pub const UUID_BYTES: usize = 36;

/// The text of a UUID, in lower case and with hyphens, as ASCII.
#[must_use]
pub fn uuid_text(uuid: Uuid) -> [u8; UUID_BYTES] {
    let mut text = [0; UUID_BYTES];
    uuid.hyphenated().encode_lower(&mut text);
    text
}

/// Appends `text` as a JSON string.
pub fn write_string(out: &mut impl Out, text: &str) {
    out.push_piece("\"");
    write_characters(out, text);
    out.push_piece("\"");
}

/// Appends `text` as part of a JSON string.
pub(crate) fn write_characters(out: &mut impl Out, text: &str) {
    let mut rest = text;
    loop {
        // A byte that ends a run is ASCII, so the split is between two characters.
        let (plain, special) = rest.split_at(plain_bytes(rest.as_bytes()));
        out.push_piece(plain);
        let Some(byte) = special.bytes().next() else { break };
        match byte {
            b'"' => out.push_piece("\\\""),
            b'\\' => out.push_piece("\\\\"),
            b'\n' => out.push_piece("\\n"),
            b'\r' => out.push_piece("\\r"),
            b'\t' => out.push_piece("\\t"),
            0x08 => out.push_piece("\\b"),
            0x0c => out.push_piece("\\f"),
            control => {
                let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
                let mut escape = *b"\\u0000";
                escape[4] = digit(control >> 4) as u8;
                escape[5] = digit(control & 0xf) as u8;
                out.push_piece(core::str::from_utf8(&escape).unwrap_or_default());
            }
        }
        rest = special.get(1..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn numbers_are_written_as_json() {
        for number in [0, 7, 10, 909, 1_000_000, u64::MAX] {
            let mut written = Vec::new();
            write_number(&mut written, number);
            assert_eq!(written, number.to_string().into_bytes());
            let mut written = String::new();
            write_number(&mut written, number);
            assert_eq!(written, number.to_string());
        }
    }

    #[test]
    fn uuids_are_written_hyphenated() {
        for number in [0, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let uuid = Uuid::from_u128(number);
            assert_eq!(uuid_text(uuid), uuid.hyphenated().to_string().as_bytes());
        }
    }

    /// The result equals that of serde_json, with a special character at every position.
    #[test]
    fn strings_are_written_as_json() {
        for length in [0, 1, 7, 31, 32, 33, 63, 64, 65, 100] {
            for at in 0..=length {
                for special in (0..=0x7f_u8).map(char::from).chain(['ä', '€', '🦀', '\u{2028}'])
                {
                    let mut text: String = "x".repeat(length);
                    text.insert(at, special);
                    let mut written = String::new();
                    write_string(&mut written, &text);
                    assert_eq!(written, serde_json::to_string(&text).expect("a string serializes"));
                }
            }
        }
    }
}
