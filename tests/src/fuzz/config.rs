//! Text to a configuration: whatever it says, it is taken or refused with a reason.

use std::path::Path;

use ceased::config::Config;

/// Reads it, and describes what was read.
///
/// # Panics
/// When reading does, or when a refusal says nothing.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::parse(text, Path::new("config.toml")) {
        Ok(config) => assert!(!config.describe().is_empty(), "a configuration says nothing"),
        Err(error) => assert!(!error.to_string().is_empty(), "a refusal says nothing"),
    }
}
