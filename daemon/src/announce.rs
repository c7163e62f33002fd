//! Lines for people on standard error.

use std::fmt;

use crate::stderr;

/// One line on standard error. A standard error that is not read neither ends us nor holds us
/// up.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    stderr::write(format!("ceased: {line}\n").as_bytes());
}
