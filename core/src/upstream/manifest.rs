//! Manifests: description and lists of a server, kept to answer clients while it starts.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::upstream::rewrite::{member, text_member};

/// Identity and lists of a server, as JSON text that it wrote itself (UPS-09).
///
/// The host keeps it across restarts. Lists hold every page, one JSON object an element.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Revision that the server speaks, such as `2025-11-25`.
    pub revision: Box<str>,
    /// Result of `initialize` or of `server/discover`: the JSON text of an object.
    pub identity: Box<str>,
    /// The clients that it was told to, such as `session uid:1000`; empty for all.
    #[serde(default)]
    pub audience: Box<str>,
    /// Elements of `tools/list`.
    #[serde(default)]
    pub tools: Vec<Box<str>>,
    /// Elements of `prompts/list`.
    #[serde(default)]
    pub prompts: Vec<Box<str>>,
    /// Elements of `resources/list`.
    #[serde(default)]
    pub resources: Vec<Box<str>>,
    /// Elements of `resources/templates/list`.
    #[serde(default)]
    pub templates: Vec<Box<str>>,
    /// How long each list may be cached, in the order of the members above.
    #[serde(default)]
    pub freshness: [Freshness; 4],
    /// Elements of `skills/list`.
    #[serde(default)]
    pub skills: Vec<Box<str>>,
}

impl Manifest {
    /// How long a list may be cached. Skills are never fresh: no notification tells their changes.
    pub(crate) fn freshness_of(&self, at: usize) -> Freshness {
        self.freshness.get(at).copied().unwrap_or(Freshness { ttl_ms: Some(0), is_public: false })
    }

    /// Capabilities of the server, as JSON text.
    pub(crate) fn capabilities(&self) -> &str {
        member(&self.identity, "capabilities").unwrap_or("{}")
    }
}

/// How long clients may cache a list, as its server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Freshness {
    /// `ttlMs`: milliseconds for which it is fresh; `None` if the server does not say.
    pub ttl_ms: Option<u64>,
    /// Whether `cacheScope` is `public`: one client may be given the list of another.
    pub is_public: bool,
}

impl Freshness {
    /// The freshness that a result states.
    pub(crate) fn of(result: &str) -> Self {
        let ttl_ms = member(result, "ttlMs").and_then(|ttl| ttl.parse().ok());
        let scope = text_member(result, "cacheScope");
        Self { ttl_ms, is_public: scope.as_deref() == Some("public") }
    }

    /// The freshness of two parts of one answer.
    pub(crate) fn with(self, other: Self) -> Self {
        let ttl_ms = self.ttl_ms.into_iter().chain(other.ttl_ms).min();
        Self { ttl_ms, is_public: self.is_public && other.is_public }
    }
}
