//! Lines for people on standard error.

use std::fmt;

use crate::stderr;

/// One line for whoever watches standard error; one that nobody reads neither ends us nor holds us
/// up.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    stderr::write(format!("ceased: {line}\n").as_bytes());
}
