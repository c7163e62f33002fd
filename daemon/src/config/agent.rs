//! `[[agent]]`: an ACP agent that the daemon starts for each client that asks for it.

use std::ffi::OsString;
use std::time::Duration;

use ceased_core::policy::allow::Allow;
use ceased_core::upstream::server::{OnIgnoredCancel, Watchdogs};

use super::launch::Launch;
use super::server::{Server, runs};

/// `[[agent]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// Name: 1 to 64 of `A-Z a-z 0-9 _ . -`, and no server has it.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// The start of its processes.
    pub launch: Launch,
    /// From the start of a process to its answer to `initialize`.
    pub start_timeout: Duration,
    /// Clients that have the agent at once, each with a process of its own.
    pub max_instances: usize,
    /// Of those, clients of one identity.
    pub max_instances_per_identity: usize,
    /// Time limits of a turn.
    pub watchdogs: Watchdogs,
    /// Time for each step of a cancel before enforcement (SUP-02).
    pub cancel_grace: Duration,
    /// Time from SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    /// How long an agent that ignored a cancel works on turns of other sessions.
    pub drain: Duration,
    /// Treatment of an agent that goes on with a cancelled turn.
    pub on_ignored_cancel: OnIgnoredCancel,
    /// Identities that may use it.
    pub allow: Allow,
}

impl Agent {
    /// Program and arguments, for people.
    #[must_use]
    pub fn runs(&self) -> String {
        runs(&self.command)
    }
}

/// A name that two agents have, or an agent and a server: `ceased logs NAME` could mean either.
pub(super) fn clash(agents: &[Agent], servers: &[Server]) -> Option<(String, &'static str)> {
    agents.iter().enumerate().find_map(|(at, agent)| clash_of(agent, agents, at, servers))
}

/// The clash of the agent at this position with those before it, or with a server.
pub(super) fn clash_of(
    agent: &Agent,
    agents: &[Agent],
    at: usize,
    servers: &[Server],
) -> Option<(String, &'static str)> {
    let name = &agent.name;
    if agents.iter().take(at).any(|before| before.name == *name) {
        return Some((format!("there is a second agent named {name:?}"), "rename one"));
    }
    let is_server = servers.iter().any(|server| server.name == *name);
    is_server.then(|| (format!("the agent {name:?} has the name of a server"), "rename one"))
}
