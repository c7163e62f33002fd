//! Revisions in which servers are spoken to, as settings and as kinds of handshake.

use alloc::boxed::Box;

use crate::protocol::revision::{ALL, Dialect, MCP_2026_07_28};

/// Revision in which a server is spoken to, as the configuration writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Revision {
    /// That of the only client of an instance, as far as the server speaks it.
    #[default]
    Auto,
    /// 2026-07-28, and no other.
    Stateless,
    /// A session: `initialize` in the client's revision, or in the newest that has it.
    Session,
    /// A session of this revision.
    Exactly(Box<str>),
}

impl Revision {
    /// The revision that a word of the configuration means: `auto`, `session`, or a revision.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self::Auto),
            "session" => Some(Self::Session),
            _ if Dialect::claimed(word).is_some() => Some(Self::Stateless),
            _ => Dialect::find(word).map(|dialect| Self::Exactly(dialect.revision.into())),
        }
    }

    /// Its word in the configuration.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Auto => "auto",
            Self::Stateless => MCP_2026_07_28.revision,
            Self::Session => "session",
            Self::Exactly(revision) => revision,
        }
    }

    /// Every word that [`of`](Self::of) knows.
    pub fn words() -> impl Iterator<Item = &'static str> {
        ["auto", "session"].into_iter().chain(ALL.iter().rev().map(|dialect| dialect.revision))
    }
}

/// Kind of handshake, and of everything after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpokenEra {
    /// `initialize`
    Session,
    /// `server/discover`
    Modern,
}
