//! Shortened texts of subjects, for evidence.

use serde_json::Value;

/// Characters that are shown of one text.
const SHOWN: usize = 120;

/// The beginning of a text.
pub(crate) fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// The beginning of a message.
pub(crate) fn message(value: &Value) -> String {
    short(&value.to_string())
}
