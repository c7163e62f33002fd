//! Names and defaults of tools, for a configuration and for a program.

use std::time::Duration;

/// How long a client that asked for progress hears nothing at most. Official SDKs give a call up
/// after 60 s without progress.
pub(crate) const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(10);

/// Characters of a tool's name (MCP 2025-11-25).
const NAME_CHARS_MAX: usize = 128;
/// The rule of [`is_name`].
pub(crate) const NAME_HINT: &str = "a tool name consists of 1 to 128 of A-Z a-z 0-9 _ - .";

/// Whether this may be the name of a tool, in a configuration and in a program.
pub(crate) fn is_name(name: &str) -> bool {
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(usual)
}
