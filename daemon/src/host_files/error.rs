//! Errors about the text of a host's file.

use std::fmt;

/// Why the text of a host's file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostFileError {
    /// The line, counted from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    /// The problem.
    pub(crate) what: String,
    /// The remedy.
    pub(crate) hint: String,
    /// Whether the file is one of settings that could have servers, and has none.
    pub(crate) is_without_servers: bool,
}

impl HostFileError {
    pub(super) fn new(line: usize, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { line, what: what.into(), hint: hint.into(), is_without_servers: false }
    }

    /// A file that has none of the keys under which hosts keep servers.
    pub(super) fn no_servers(keys: &str) -> Self {
        let what = format!("the file has no servers: no object {keys}");
        let hint = "name the file in which the host keeps its MCP servers or ACP agents";
        Self { is_without_servers: true, ..Self::new(0, what, hint) }
    }
}

impl fmt::Display for HostFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}\n{}", self.what, self.hint),
            line => write!(f, "line {line}: {}\n{}", self.what, self.hint),
        }
    }
}

/// The line of the byte at `offset`, counted from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}
