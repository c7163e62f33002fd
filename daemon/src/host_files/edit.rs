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
    apply_within(text, 0..text.len(), edits)
}

/// Part of a text with the edits in it.
pub(super) fn apply_within(text: &str, part: Range<usize>, edits: &[Edit]) -> String {
    let (mut new, mut at) = (String::new(), part.start);
    for edit in edits {
        new.push_str(text.get(at..edit.span.start).unwrap_or_default());
        new.push_str(&edit.new);
        at = edit.span.end;
    }
    new.push_str(text.get(at..part.end).unwrap_or_default());
    new
}
