//! Warnings about the lists of a server, for its operator.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use crate::upstream::list::LISTS;

/// Names that one warning spells out.
const NAMED_MAX: usize = 5;

/// Faults of the lists of a server, a text for each list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Warnings {
    lists: [Option<Box<str>>; LISTS.len()],
    shadowed: Option<Box<str>>,
}

impl Warnings {
    /// Notes how a list ended. Returns the warning if it is a new one.
    pub(crate) fn note_list(&mut self, at: usize, problem: Option<&str>) -> Option<Box<str>> {
        let text = problem.map(|problem| format!("{}: {problem}", LISTS[at].method).into());
        renew(&mut self.lists[at], text)
    }

    /// Notes the names that another server or tool has as well. Returns the warning if it is a new
    /// one.
    pub(crate) fn note_shadowed(&mut self, names: &[Box<str>]) -> Option<Box<str>> {
        let text = (!names.is_empty()).then(|| {
            let shown: String = names[..names.len().min(NAMED_MAX)].join(", ");
            let more = match names.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("left out, since an earlier tool has the name: {shown}{more}").into()
        });
        renew(&mut self.shadowed, text)
    }

    /// Whether a list did not end well.
    pub(crate) const fn has_list(&self, at: usize) -> bool {
        self.lists[at].is_some()
    }

    /// Every warning.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.lists.iter().chain([&self.shadowed]).flatten().map(|text| &**text)
    }
}

/// Replaces a warning. Returns the new one if it differs.
fn renew(place: &mut Option<Box<str>>, text: Option<Box<str>>) -> Option<Box<str>> {
    if *place == text {
        return None;
    }
    place.clone_from(&text);
    text
}
