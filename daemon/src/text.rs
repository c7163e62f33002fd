//! JSON strings, many bytes at a time: most texts stand in them as they are.

/// True for bytes that a JSON string holds in escaped form only, and for its end.
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// How many bytes at the start of `text` stand in a JSON string as they are.
pub(crate) fn plain_bytes(text: &[u8]) -> usize {
    // Without a way out of the inner loop, so that it becomes a few vector instructions.
    let is_plain =
        |piece: &[u8; 32]| !piece.iter().fold(false, |found, byte| found | is_special(*byte));
    let plain = text.as_chunks::<32>().0.iter().take_while(|piece| is_plain(piece)).count() * 32;
    let rest = text.get(plain..).unwrap_or_default();
    plain + rest.iter().take_while(|byte| !is_special(**byte)).count()
}

/// Appends `text` as a JSON string.
pub(crate) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    loop {
        // What ends a run is ASCII, so it ends between two characters.
        let (plain, special) = rest.split_at(plain_bytes(rest.as_bytes()));
        out.push_str(plain);
        let Some(byte) = special.bytes().next() else { break };
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            control => {
                let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
                out.push_str("\\u00");
                out.push(digit(control >> 4));
                out.push(digit(control & 0xf));
            }
        }
        rest = special.get(1..).unwrap_or_default();
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever stands where: the same as a general writer's.
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
                    assert_eq!(written, serde_json::to_string(&text).expect("it is JSON"));
                }
            }
        }
    }
}
