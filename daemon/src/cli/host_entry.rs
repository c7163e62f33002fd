//! Errors and entries of hosts' files, in words.

use std::path::Path;

use super::{Exit, Failure};
use crate::host_files::{Entry, HostFileError};

/// Failure of a command that reads a host's file.
pub(super) fn failure(path: &Path, error: &HostFileError) -> Failure {
    let place = match error.line {
        0 => String::new(),
        line => format!("{}:{line}: ", path.display()),
    };
    Failure::new(Exit::Usage, format!("{place}{}\n{}", error.what, error.hint))
}

/// Name of an entry for people, with its project.
pub(super) fn label(entry: &Entry) -> String {
    match &entry.project {
        Some(project) => format!("{} of {project} (line {})", entry.name, entry.line),
        None => format!("{} (line {})", entry.name, entry.line),
    }
}
