//! Texts of violated schemas, which have a limited length whatever the input.

use std::fmt::{self, Write as _};

/// Maximum length of an error text in characters.
pub(super) const ERROR_CHARS_MAX: usize = 512;
/// Maximum number of schema violations in an error text.
pub(super) const VIOLATIONS_MAX: usize = 3;
/// Maximum length of one violation, so that all of them fit.
const VIOLATION_CHARS_MAX: usize = ERROR_CHARS_MAX / VIOLATIONS_MAX - 2;

/// A violation of a schema: the path of the offending value, as a JSON pointer, and the reason.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Violation {
    pub(super) path: String,
    reason: String,
}

impl Violation {
    /// Formats a reason. It holds the offending value, possibly megabytes, so it is cut meanwhile.
    pub(super) fn new(path: impl fmt::Display, reason: impl fmt::Display) -> Self {
        let cut = |text: &dyn fmt::Display| {
            let mut cut = Capped { text: String::new(), left: VIOLATION_CHARS_MAX };
            if write!(cut, "{text}").is_err() {
                cut.text.push('…');
            }
            cut.text
        };
        Self { path: cut(&path), reason: cut(&reason) }
    }

    /// The violation of a value with this name, shortened.
    pub(super) fn under(&self, root: &str) -> String {
        let mut text = Capped { text: String::new(), left: VIOLATION_CHARS_MAX };
        if write!(text, "{root}{}: {}", self.path, self.reason).is_err() {
            text.text.push('…');
        }
        text.text
    }
}

/// Truncates `text` to the limit of an error text.
pub(super) fn capped(text: &str) -> String {
    let mut out = Capped { text: String::new(), left: ERROR_CHARS_MAX - 1 };
    if out.write_str(text).is_err() {
        out.text.push('…');
    }
    out.text
}

/// Writer that fails after a number of characters.
struct Capped {
    text: String,
    left: usize,
}

impl fmt::Write for Capped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            // Keep the text on one line and free of terminal control characters.
            self.text.push(if c.is_control() { ' ' } else { c });
        }
        Ok(())
    }
}
