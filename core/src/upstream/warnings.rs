//! Warnings about the lists of a server, for its operator.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::upstream::list::LISTS;

/// Names that one warning spells out.
const NAMED_MAX: usize = 5;

/// Faults of the lists of a server, a text for each list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Warnings {
    lists: [Option<Box<str>>; LISTS.len()],
    shadowed: Option<Box<str>>,
    unfit: Option<Box<str>>,
    pins: Option<Box<str>>,
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
        let text = shown(names)
            .map(|names| format!("left out, since an earlier tool has the name: {names}").into());
        renew(&mut self.shadowed, text)
    }

    /// Notes the tools whose arguments no headers can repeat. Returns the warning if it is a new one.
    pub(crate) fn note_unfit(&mut self, tools: &BTreeMap<Box<str>, Box<str>>) -> Option<Box<str>> {
        let told: Vec<Box<str>> =
            tools.iter().map(|(name, why)| format!("{name} ({why})").into()).collect();
        let text = shown(&told).map(|tools| {
            format!("left out for an `x-mcp-header` that cannot be sent: {tools}").into()
        });
        renew(&mut self.unfit, text)
    }

    /// Notes the tools that differ from the approved ones.
    pub(crate) fn note_pins(
        &mut self,
        server: &str,
        is_refused: bool,
        changed: &[Box<str>],
        new: &[Box<str>],
    ) {
        let part = |names: &[Box<str>], what: &str| match names.is_empty() {
            true => String::new(),
            false => format!("{what} {}; ", shown(names).unwrap_or_default()),
        };
        let parts = format!("{}{}", part(changed, "changed:"), part(new, "new:"));
        self.pins = (!parts.is_empty()).then(|| {
            let refused = if is_refused { "refused until approved, " } else { "" };
            format!(
                "tools differ from the approved ones, {refused}{parts}see ceased approve {server}"
            )
            .into()
        });
    }

    /// Whether a list did not end well.
    pub(crate) const fn has_list(&self, at: usize) -> bool {
        self.lists[at].is_some()
    }

    /// Every warning.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.lists
            .iter()
            .chain([&self.shadowed, &self.unfit, &self.pins])
            .flatten()
            .map(|text| &**text)
    }
}

/// The first of some texts, and how many more there are; `None` without one.
fn shown(texts: &[Box<str>]) -> Option<String> {
    let shown = texts[..texts.len().min(NAMED_MAX)].join(", ");
    match texts.len().saturating_sub(NAMED_MAX) {
        _ if texts.is_empty() => None,
        0 => Some(shown),
        more => Some(format!("{shown} and {more} more")),
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
