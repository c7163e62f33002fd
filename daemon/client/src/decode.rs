//! Members of a JSON object, and the error for an invalid one.

use crate::error::Error;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The unparsed members of a JSON object. Distinguishes `null` from absent, and rejects arrays,
/// unlike a derived struct with options.
pub(crate) fn members(json: &str) -> Result<BTreeMap<String, &RawValue>, serde_json::Error> {
    serde_json::from_str(json)
}

/// Error for an invalid line; quotes the beginning of the line.
pub(crate) fn broken(what: &str, line: &[u8]) -> Error {
    const SHOWN_BYTES: usize = 80;
    let start = line.get(..SHOWN_BYTES).unwrap_or(line);
    let dots = if start.len() < line.len() { "…" } else { "" };
    Error::Protocol(format!("{what}: {}{dots}", start.escape_ascii()))
}
