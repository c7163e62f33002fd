//! The supervisions of an engine, by connection and by agent process.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::collections::timer_queue::Armed;
use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId};
use crate::supervisor::supervision::{ProcessEnd, Supervision};
use crate::time::Instant;
use crate::upstream::server::UpstreamServer;

/// A client with its agent.
#[derive(Debug)]
pub(crate) struct Supervised {
    pub(crate) server: Arc<UpstreamServer>,
    pub(crate) identity: Identity,
    /// When the client got the agent.
    pub(crate) since: Instant,
    pub(crate) supervision: Supervision,
    /// The agent process, and its connection once it runs.
    pub(crate) instance: Option<InstanceId>,
    pub(crate) conn: Option<ConnId>,
    pub(crate) timer: Option<Armed>,
}

/// Counts of one agent of the configuration, for all its clients.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AgentCounts {
    /// Processes that were started.
    pub(crate) starts: u64,
    /// Processes that ended by themselves, or did not start.
    pub(crate) deaths: u64,
    /// Processes that were ended because they ignored a cancel.
    pub(crate) replaced: u64,
    /// Stops of turns and other requests, each with a receipt.
    pub(crate) stops: u64,
}

impl AgentCounts {
    pub(crate) fn note_end(&mut self, end: ProcessEnd) {
        match end {
            ProcessEnd::Death => self.deaths += 1,
            ProcessEnd::Replaced => self.replaced += 1,
            ProcessEnd::Wanted => {}
        }
    }
}

/// All supervisions.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    /// By the connection of the client.
    pub(crate) clients: BTreeMap<ConnId, Supervised>,
    /// Client of each agent process.
    pub(crate) by_instance: BTreeMap<InstanceId, ConnId>,
    /// Counts by the name of the agent, of those that are configured or have a client.
    pub(crate) counts: BTreeMap<Box<str>, AgentCounts>,
}

impl Agents {
    pub(crate) fn counts_of(&mut self, name: &str) -> &mut AgentCounts {
        self.counts.entry(name.into()).or_default()
    }

    /// Forgets the counts of agents that are neither configured nor in use.
    pub(crate) fn keep_counts(&mut self, configured: &[Arc<UpstreamServer>]) {
        let clients = &self.clients;
        self.counts.retain(|name, _| {
            configured
                .iter()
                .chain(clients.values().map(|it| &it.server))
                .any(|it| it.name == *name)
        });
    }

    /// Clients that have this agent, also those whose agent has not ended yet.
    pub(crate) fn clients_of(&self, name: &str) -> usize {
        self.clients.values().filter(|entry| *entry.server.name == *name).count()
    }

    /// As [`Agents::clients_of`], of one identity.
    pub(crate) fn clients_of_identity(&self, name: &str, identity: &Identity) -> usize {
        let all = self.clients.values();
        all.filter(|it| *it.server.name == *name && it.identity == *identity).count()
    }

    /// Whether an agent process is left.
    pub(crate) fn has_processes(&self) -> bool {
        !self.by_instance.is_empty()
    }

    pub(crate) fn wants_turn(&self) -> bool {
        self.clients.values().any(|entry| entry.supervision.wants_turn())
    }

    pub(crate) fn all(&self) -> Vec<ConnId> {
        self.clients.keys().copied().collect()
    }

    /// Timers that are armed here.
    pub(crate) fn armed(&self) -> usize {
        self.clients.values().filter(|entry| entry.timer.is_some()).count()
    }
}
