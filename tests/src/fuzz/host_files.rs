//! Text to the edits of a host's file, as JSON, TOML and YAML: a file that was adopted is undone byte for byte.

use ceased::fuzzing::host_file_round_trip;

/// Adopts the servers of a file, adopts them again, and undoes it.
///
/// # Panics
/// When an edit panics, the second adoption changes something, or the file does not come back.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for name in ["mcp.json", "config.toml", "config.yaml"] {
        let Some([once, twice, undone]) = host_file_round_trip(name, text) else { continue };
        assert_eq!(once, twice, "{name}: the second adoption changes something");
        assert_eq!(undone, text, "{name}: the file does not come back");
    }
}
