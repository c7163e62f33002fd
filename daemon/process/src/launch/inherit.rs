//! The variables of this process that a command gets.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Variables of this process that a command gets. By default these are `PATH`, `HOME`, `LANG`,
/// `LC_*`, `TMPDIR`, `XDG_*`, `USER`, `LOGNAME` and `SHELL`.
///
/// A command that runs as another user gets `HOME`, `USER`, `LOGNAME`, `SHELL` and
/// `XDG_RUNTIME_DIR` of that user, and no other `XDG_*` and no `TMPDIR` unless they are named here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inherit {
    /// Whether it gets every variable but those that speak to this process alone.
    pub everything: bool,
    /// Names of further variables; one that ends in `*` stands for all that begin like it.
    pub also: Vec<String>,
}

impl Inherit {
    pub(crate) fn names(&self, name: &OsStr) -> bool {
        self.also.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.as_bytes().starts_with(prefix.as_bytes()),
            None => name == OsStr::new(pattern),
        })
    }
}
