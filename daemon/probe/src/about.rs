//! A check in words: its group, its rules with their levels, its method, and the remedy.

use std::collections::BTreeSet;
use std::fmt;

/// Group of checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The first messages of a connection.
    Handshake,
    /// Single messages, apart from a call that runs.
    Messages,
    /// Calls or turns, and their cancels.
    Calls,
    /// The work behind a cancelled call.
    Work,
    /// Many or large messages.
    Load,
    /// The end of the connection, of the subject, or of its peer.
    Endings,
    /// Tasks of a session.
    Tasks,
    /// Tasks of the extension.
    Extension,
    /// HTTP.
    Http,
}

impl Group {
    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Messages => "messages",
            Self::Calls => "calls",
            Self::Work => "work",
            Self::Load => "load",
            Self::Endings => "endings",
            Self::Tasks => "tasks",
            Self::Extension => "extension",
            Self::Http => "http",
        }
    }

    /// Whether its checks observe calls that run and are cancelled.
    pub(crate) const fn observes_calls(self) -> bool {
        match self {
            Self::Calls | Self::Work | Self::Tasks | Self::Extension => true,
            Self::Handshake | Self::Messages | Self::Load | Self::Endings | Self::Http => false,
        }
    }
}

/// Level of a rule, from the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The protocol demands it.
    Must,
    /// The protocol forbids it.
    MustNot,
    /// The protocol recommends it.
    Should,
    /// The protocol advises against it.
    ShouldNot,
    /// The protocol permits it.
    May,
    /// No rule of the protocol: an expectation of ceased.
    Ours,
}

impl Level {
    /// Name in reports, as in the ledger of rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::MustNot => "MUST NOT",
            Self::Should => "SHOULD",
            Self::ShouldNot => "SHOULD NOT",
            Self::May => "MAY",
            Self::Ours => "OURS",
        }
    }
}

/// Rules that are no MUST, by level; a test compares them with the ledger.
const LEVELS: [(Level, &[&str]); 5] = [
    (Level::MustNot, &["CAN-04", "EXT-06", "MOD-04", "SUP-05"]),
    (
        Level::Should,
        &["ACP-12", "CAN-06", "CAN-07", "CAN-08", "CAN-10", "CAN-14", "TSK-19", "TSK-25"],
    ),
    (Level::ShouldNot, &["HTTP-07"]),
    (Level::May, &["ACP-10", "CAN-09", "CAN-15"]),
    (
        Level::Ours,
        &[
            "DUR-01", "HTTP-10", "RPC-02", "RPC-03", "RPC-04", "STOP-01", "SUP-03", "SUP-04",
            "SUP-06", "UPS-05", "UPS-07", "UPS-14",
        ],
    ),
];

fn level_of(rule: &str) -> Level {
    let has_it = |(_, rules): &&(Level, &[&str])| rules.contains(&rule);
    LEVELS.iter().find(has_it).map_or(Level::Must, |(level, _)| *level)
}

/// A check in words.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Id of the check.
    pub id: &'static str,
    /// Its group.
    pub group: Group,
    /// Ids of the rules.
    pub rule: &'static str,
    /// The expectation, which continues "the server".
    pub title: &'static str,
    /// The method of the check, and its preconditions.
    pub method: &'static str,
    /// Remedy for a deviation.
    pub remedy: &'static str,
}

impl About {
    /// Kind of the subject: `server`, `agent` or `client`.
    #[must_use]
    pub fn party(&self) -> &'static str {
        let is =
            |party: &str| self.id.strip_prefix(party).is_some_and(|rest| rest.starts_with('-'));
        ["agent", "client"].into_iter().find(|party| is(party)).unwrap_or("server")
    }

    /// The rules with their levels.
    pub fn rules(&self) -> impl Iterator<Item = (&'static str, Level)> {
        self.rule.split(", ").map(|rule| (rule, level_of(rule)))
    }

    /// The strongest level of its rules.
    #[must_use]
    pub fn level(&self) -> Level {
        self.rules().map(|(_, level)| level).min().unwrap_or(Level::Ours)
    }

    /// The command that prints this text.
    #[must_use]
    pub fn explain(&self) -> String {
        format!("ceased probe --explain {}", self.id)
    }
}

impl fmt::Display for About {
    /// The text of the check, as in the documentation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |(rule, level): (&str, Level)| format!("{rule} {}", level.name());
        let rules: Vec<String> = self.rules().map(named).collect();
        writeln!(f, "{}\n", self.id)?;
        writeln!(f, "The {} {} ({}).\n", self.party(), self.title, rules.join(", "))?;
        writeln!(f, "{}\n", self.method)?;
        writeln!(f, "Remedy: {}.", self.remedy)
    }
}

/// The checks with these ids, or with ids that begin so; an id that is whole names one check.
///
/// # Errors
///
/// The text that names none, with the most similar id.
pub fn named<'a>(
    wanted: &[String],
    known: impl Iterator<Item = &'a About>,
) -> Result<BTreeSet<&'static str>, String> {
    let known: Vec<&'static str> = known.map(|about| about.id).collect();
    let mut found = BTreeSet::new();
    for text in wanted {
        if let Some(id) = known.iter().find(|id| **id == text.as_str()) {
            found.insert(*id);
            continue;
        }
        let mut begun = known.iter().filter(|id| id.starts_with(text.as_str())).peekable();
        if text.is_empty() || begun.peek().is_none() {
            return Err(format!("no check begins with {text:?}\n{}", hint(text, &known)));
        }
        found.extend(begun);
    }
    Ok(found)
}

/// The most similar name, or all of them.
pub(crate) fn hint(name: &str, known: &[&str]) -> String {
    // Up to a third of the letters may differ.
    let tolerated = (name.chars().count() / 3).max(1);
    let distances = known.iter().map(|known| (strsim::damerau_levenshtein(name, known), known));
    match distances.filter(|(distance, _)| *distance <= tolerated).min() {
        Some((_, near)) => format!("did you mean {near:?}?"),
        None => format!("they are {}", known.join(", ")),
    }
}
