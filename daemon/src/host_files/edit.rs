//! Edits: replacements of byte ranges of a text.

use std::ops::Range;

/// Text to be put in place of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    /// Bytes to be replaced; empty for an insertion.
    pub(crate) span: Range<usize>,
    /// The new text.
    pub(crate) new: String,
}

impl Edit {
    pub(super) fn new(span: Range<usize>, new: impl Into<String>) -> Self {
        Self { span, new: new.into() }
    }
}

/// The text with these edits, which are in order and do not overlap.
pub(crate) fn apply(text: &str, edits: &[Edit]) -> String {
    let (mut new, mut at) = (String::new(), 0);
    for edit in edits {
        new.push_str(text.get(at..edit.span.start).unwrap_or_default());
        new.push_str(&edit.new);
        at = edit.span.end;
    }
    new.push_str(text.get(at..).unwrap_or_default());
    new
}
