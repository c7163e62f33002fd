//! Escaping of foreign text for output.

use std::borrow::Cow;

/// Whether a character controls the terminal or the text layout instead of being visible: control
/// characters, and characters that reorder or hide text.
pub fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Escapes line ends and all control characters: the result is one line.
pub fn clean(text: &str) -> Cow<'_, str> {
    escape(text, |c| !is_steering(c))
}

/// Escapes control characters except line ends and tabs, for a terminal.
pub fn clean_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| matches!(c, '\n' | '\t') || !is_steering(c))
}

fn escape(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_kept) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_kept(c) {
            escaped.push(c);
        } else {
            escaped.extend(c.escape_default());
        }
    }
    Cow::Owned(escaped)
}
