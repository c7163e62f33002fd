//! The reader of each format.

use super::document::{Format, Node};
use super::error::HostFileError;
use super::{json, toml_text, yaml};

/// Reads a document, whose outermost value is a map.
///
/// # Errors
/// If the text is not of this format, or nested too deeply.
pub(super) fn parse(text: &str, format: Format) -> Result<Node, HostFileError> {
    match format {
        Format::Json => json::parse(text),
        Format::Toml => toml_text::parse(text),
        Format::Yaml => yaml::parse(text),
    }
}
