//! Members of a JSON object, and the error for what cannot be read.

use crate::error::Error;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The members of a JSON object, unread. Keeps `null` apart from absent, which a derived struct
/// with options does not, and takes no array for an object.
pub(crate) fn members(json: &str) -> Result<BTreeMap<String, &RawValue>, serde_json::Error> {
    serde_json::from_str(json)
}

/// The error for a line that cannot be what it should be; shows how the line begins.
pub(crate) fn broken(what: &str, line: &[u8]) -> Error {
    const SHOWN_BYTES: usize = 80;
    let start = line.get(..SHOWN_BYTES).unwrap_or(line);
    let dots = if start.len() < line.len() { "…" } else { "" };
    Error::Protocol(format!("{what}: {}{dots}", start.escape_ascii()))
}
