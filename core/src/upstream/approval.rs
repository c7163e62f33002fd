//! Approvals: the texts of tools as they were approved, and their comparison (UPS-19).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::upstream::rewrite::{elements, members, quoted, text_of};

/// Members of a tool that are pinned: everything that a model or a person decides by.
const PINNED: [&str; 6] =
    ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];
/// Depth down to which the order and spelling of a value do not count. Deeper values are compared as
/// they are written; a schema is not that deep.
const DEPTH_MAX: usize = 32;
/// Approved tools of one server, by the name that the server knows; of each the approved texts, the
/// newest last.
pub type ApprovedTools = BTreeMap<Box<str>, Vec<Box<str>>>;

/// The approved tools of a server, as the host keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Approval {
    /// Identity whose first list it is; empty for texts that an operator approved, or the list of
    /// an instance for single calls.
    #[serde(default)]
    pub identity: Box<str>,
    /// The tools.
    pub tools: ApprovedTools,
}

/// A tool that differs from the approved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChange {
    /// Name that the server knows.
    pub tool: Box<str>,
    /// The approved members, as JSON text; `None` for a tool that is new.
    pub before: Option<Box<str>>,
    /// The members as the server lists them now.
    pub after: Box<str>,
}

/// The approvals of one server.
#[derive(Debug, Default)]
pub(crate) struct ServerPins {
    /// By identity; `None`: for all.
    pub(super) by: BTreeMap<Option<Identity>, Arc<ApprovedTools>>,
    /// Whether no list is approved by itself: an earlier approval was not read.
    pub(super) is_closed: bool,
    /// Number of the differences at hand: an approval names those that were shown.
    pub(super) revision: u64,
}

impl ServerPins {
    /// These tools, with the memory of an identity that was told the same, as most are.
    pub(super) fn shared(&self, tools: ApprovedTools) -> Arc<ApprovedTools> {
        let same = self.by.values().find(|known| ***known == tools).cloned();
        same.unwrap_or_else(|| Arc::new(tools))
    }
}

/// The pins of the tools of a server, as its clients of one audience know it.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// Those of its identity, and those for all; `None` before the first list is approved.
    pub(super) approved: Option<[Arc<ApprovedTools>; 2]>,
    /// Tools that differ, by the name that the server knows.
    pub(super) changes: BTreeMap<Box<str>, ToolChange>,
    /// Those that an operator was told of.
    pub(super) told: BTreeMap<Box<str>, ToolChange>,
}

impl Pins {
    /// The difference of an element of `tools/list` from its approved text.
    pub(super) fn change_of(&self, name: &str, element: &str) -> Option<ToolChange> {
        let approved = self.approved.as_ref()?;
        let after = pinned(element);
        let texts = || approved.iter().filter_map(|tools| tools.get(name)).flatten();
        if texts().any(|text| *text == after) {
            return None;
        }
        Some(ToolChange { tool: name.into(), before: texts().next_back().cloned(), after })
    }
}

/// The pinned members of an element of `tools/list`: one spelling for every order of members and
/// every escape.
pub(super) fn pinned(element: &str) -> Box<str> {
    let of = |(key, value)| {
        let key = key_of(key);
        Some((PINNED.iter().position(|name| is_read_as(&key, name))?, key, value))
    };
    let mut found: Vec<(usize, Box<str>, &str)> =
        members(element).into_iter().filter_map(of).collect();
    // Stable: a member that occurs twice is pinned twice, since readers disagree on the one that
    // counts.
    found.sort_by_key(|(at, ..)| *at);
    let mut text = String::from("{");
    for (_, key, value) in found {
        text.push_str(if text.len() == 1 { "" } else { "," });
        text.push_str(&format!("{}:", quoted(&key)));
        spell(value, DEPTH_MAX, &mut text);
    }
    text.push('}');
    text.into()
}

/// Whether a reader may take a key for this name: some do not tell cases apart, nor letters that
/// have the same lower case.
pub(super) fn is_read_as(key: &str, name: &str) -> bool {
    let folded = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().map(folded).eq(name.chars().map(folded))
}

/// The text of a key as it is written between its quotes.
pub(super) fn key_of(key: &str) -> Box<str> {
    text_of(&format!("\"{key}\"")).unwrap_or_else(|| key.into())
}

/// Appends a value in its one spelling.
fn spell(value: &str, depth: usize, out: &mut String) {
    let value = value.trim();
    let separate = |out: &mut String, first: bool| out.push_str(if first { "" } else { "," });
    match (value.bytes().next(), depth.checked_sub(1)) {
        (Some(b'{'), Some(depth)) => {
            let all = members(value).into_iter().map(|(name, value)| (key_of(name), value));
            let mut all: Vec<(Box<str>, &str)> = all.collect();
            // Stable: of a member that occurs twice the order stays.
            all.sort_by(|one, other| one.0.cmp(&other.0));
            out.push('{');
            for (at, (name, value)) in all.into_iter().enumerate() {
                separate(out, at == 0);
                out.push_str(&quoted(&name));
                out.push(':');
                spell(value, depth, out);
            }
            out.push('}');
        }
        (Some(b'['), Some(depth)) => {
            out.push('[');
            for (at, value) in elements(value).into_iter().enumerate() {
                separate(out, at == 0);
                spell(value, depth, out);
            }
            out.push(']');
        }
        (Some(b'"'), _) => match text_of(value) {
            Some(text) => out.push_str(&quoted(&text)),
            None => out.push_str(value),
        },
        (Some(_) | None, _) => out.push_str(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UPS-19: members that a model does not read, order, spaces and escapes do not count.
    #[test]
    fn one_text_for_every_spelling() {
        let one = r#"{"name":"t","description":"d\u00e9\n","inputSchema":{"b":[1, 2],"a":{"y":1,"x":"é"}},"_meta":{"k":1}}"#;
        let other = r#"{ "inputSchema" : {"a":{"x":"\u00e9","y":1},"b":[1,2]}, "icons":[], "name":"t","description":"dé\n","execution":{} }"#;
        assert_eq!(pinned(one), pinned(other));
        assert_eq!(
            &*pinned(one),
            r#"{"name":"t","description":"dé\n","inputSchema":{"a":{"x":"é","y":1},"b":[1,2]}}"#
        );
    }

    /// UPS-19: each member that a model or a person decides by counts.
    #[test]
    fn each_pinned_member_counts() {
        let base = r#"{"name":"t","title":"t","description":"d","inputSchema":{"a":[1,2]},"outputSchema":{},"annotations":{"readOnlyHint":true}}"#;
        for (from, to) in [
            (r#""name":"t""#, r#""name":"u""#),
            (r#""title":"t""#, r#""title":"u""#),
            (r#""description":"d""#, r#""description":"d ""#),
            ("[1,2]", "[2,1]"),
            (r#""outputSchema":{}"#, r#""outputSchema":{"a":1}"#),
            ("true", "false"),
            (r#","annotations":{"readOnlyHint":true}"#, ""),
            (r#""title":"#, r#""description":"other","title":"#),
            (r#""title":"#, r#""descr\u0069ption":"other","title":"#),
            (r#""title":"#, r#""Description":"other","title":"#),
            (r#""title":"#, "\"de\u{17f}cription\":\"other\",\"title\":"),
        ] {
            let other = base.replacen(from, to, 1);
            assert_ne!(other, base, "{from}");
            assert_ne!(pinned(base), pinned(&other), "{from}");
        }
        let deep = |leaf: &str| {
            let (open, close) = ("[".repeat(60), "]".repeat(60));
            format!(r#"{{"name":"t","inputSchema":{{"a":{open}{leaf}{close}}}}}"#)
        };
        assert_ne!(pinned(&deep("1")), pinned(&deep("2")));
    }
}
