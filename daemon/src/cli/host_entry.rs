//! Errors and entries of hosts' files, in words.

use std::path::Path;

use super::{Exit, Failure};
use crate::host_files::{Entry, HostFileError};
use ceased_client::printable::clean;

/// Failure of a command that reads a host's file.
pub(super) fn failure(path: &Path, error: &HostFileError) -> Failure {
    let place = match error.line {
        0 => format!("{}: ", path.display()),
        line => format!("{}:{line}: ", path.display()),
    };
    let is_named = error.what.contains(&*path.to_string_lossy());
    let place = if error.line == 0 && is_named { String::new() } else { place };
    Failure::new(Exit::Usage, format!("{place}{}\n{}", error.what, error.hint))
}

/// Name of an entry for people, with its project.
pub(super) fn label(entry: &Entry) -> String {
    let name = clean(&entry.name);
    match &entry.project {
        Some(project) => format!("{name} of {} (line {})", clean(project), entry.line),
        None => format!("{name} (line {})", entry.line),
    }
}
