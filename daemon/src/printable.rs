//! Text that came from somewhere else, as it can be printed.

use std::borrow::Cow;

/// A character that steers a terminal or its reader instead of being seen: controls, and what
/// reorders or hides text.
fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// One line that can only be read: line ends and everything else that steers is escaped.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    escape(text, |c| !is_steering(c))
}

/// Text of several lines for a terminal.
pub(crate) fn clean_lines(text: &str) -> Cow<'_, str> {
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
