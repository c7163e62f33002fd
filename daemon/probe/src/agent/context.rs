//! The context of all checks of an agent.

use std::sync::OnceLock;

use super::options::AgentOptions;
use crate::arena::Arena;
use crate::observed::Departures;
use crate::suite::Subject;

/// The stable version.
pub(super) const V1: u64 = 1;
/// The version in which a prompt is answered before its turn ends.
pub(super) const V2: u64 = 2;

/// Facts about an agent, gathered before the checks.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Name and version.
    pub(super) name: String,
    /// Protocol versions that it speaks, ascending.
    pub(super) versions: Vec<u64>,
}

/// Shared by all checks.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) arena: Arena,
    pub(super) options: AgentOptions,
    facts: OnceLock<Facts>,
    /// Observations that several checks judge.
    pub(super) departures: Departures,
}

impl Context {
    pub(super) fn new(arena: Arena, options: AgentOptions) -> Self {
        Self { arena, options, facts: OnceLock::new(), departures: Departures::default() }
    }

    pub(super) fn learn(&self, facts: Facts) {
        let _ = self.facts.set(facts);
    }

    /// Whether the agent speaks a version.
    pub(super) fn speaks(&self, version: u64) -> bool {
        self.facts.get().is_some_and(|facts| facts.versions.contains(&version))
    }

    /// The version of the checks that hold in each: the stable one if the agent speaks it.
    pub(super) fn version(&self) -> u64 {
        let first = self.facts.get().and_then(|facts| facts.versions.first());
        first.copied().unwrap_or(V1)
    }

    /// The prompt whose turn starts a process.
    pub(super) fn work_prompt(&self) -> &str {
        self.options.work_prompt.as_deref().unwrap_or(&self.options.prompt)
    }
}

impl Subject for Context {
    type Needs = ();

    fn arena(&self) -> &Arena {
        &self.arena
    }
}
