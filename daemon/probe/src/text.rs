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

/// Names, each once, with their number.
pub(crate) fn listed<T: AsRef<str> + Ord>(names: impl IntoIterator<Item = T>) -> String {
    let mut names: Vec<T> = names.into_iter().collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    format!("{count} ({})", names.join(", "))
}
