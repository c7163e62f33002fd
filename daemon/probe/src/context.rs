//! The context of all checks of a probe: the arena, the options, and the facts about the subject.

use std::sync::OnceLock;

use serde_json::Value;

use super::arena::Arena;
use super::era::Era;
use super::observed::{Departures, Observation, Worked};
use super::options::{Options, ToolCall};

/// Facts about a subject, gathered before the checks.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) era: Era,
    /// The negotiated revision.
    pub(crate) revision: String,
    /// Name and version.
    pub(crate) name: String,
    pub(crate) capabilities: Value,
    pub(crate) long: Option<ToolCall>,
    pub(crate) brief: Option<ToolCall>,
    /// The reason for which the long call is not used: it fails.
    pub(crate) failed: Option<String>,
    /// Origin of the tool, for the report.
    pub(crate) tool: Option<String>,
    /// Whether session tasks are declared and the tool may be one.
    pub(crate) has_tasks: bool,
    /// Whether the tool must be a task.
    pub(crate) must_be_task: bool,
    /// Whether the tasks extension is declared.
    pub(crate) has_extension: bool,
}

/// Shared by all checks.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) arena: Arena,
    pub(crate) options: Options,
    facts: OnceLock<Facts>,
    /// Observations that several checks judge.
    pub(crate) work: Observation<Worked>,
    pub(crate) stubborn: Observation<Worked>,
    pub(crate) task_work: Observation<Worked>,
    pub(crate) departures: Departures,
}

impl Context {
    pub(crate) fn new(arena: Arena, options: Options) -> Self {
        Self {
            arena,
            options,
            facts: OnceLock::new(),
            work: Observation::default(),
            stubborn: Observation::default(),
            task_work: Observation::default(),
            departures: Departures::default(),
        }
    }

    pub(crate) fn learn(&self, facts: Facts) {
        let _ = self.facts.set(facts);
    }

    /// The facts, which are learned before the checks begin.
    pub(crate) fn facts(&self) -> &Facts {
        self.facts.get().expect("the facts are learned first")
    }

    /// The call that takes long; checks that need one are run only with one.
    pub(crate) fn long(&self) -> &ToolCall {
        self.facts().long.as_ref().expect("the table of checks asks for a tool")
    }

    /// The call that takes a second.
    pub(crate) fn brief(&self) -> &ToolCall {
        self.facts().brief.as_ref().expect("the table of checks asks for brief arguments")
    }
}
