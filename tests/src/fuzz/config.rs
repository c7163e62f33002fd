//! Text to a configuration: any text is accepted, or rejected with a reason.

use std::path::Path;

use ceased::config::Config;

/// Parses a text and describes the configuration.
///
/// # Panics
/// When parsing panics, or when a description or error is empty.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::parse(text, Path::new("config.toml")) {
        Ok(config) => assert!(!config.describe().is_empty(), "the description is empty"),
        Err(error) => assert!(!error.to_string().is_empty(), "the error is empty"),
    }
}
