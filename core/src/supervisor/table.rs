//! The supervisions of an engine, by connection and by agent process.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::collections::timer_queue::Armed;
use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId};
use crate::supervisor::supervision::Supervision;
use crate::upstream::server::UpstreamServer;

/// Side of a supervision that a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    /// The agent of this client.
    Agent(ConnId),
}

/// A client with its agent.
#[derive(Debug)]
pub(crate) struct Supervised {
    pub(crate) server: Arc<UpstreamServer>,
    pub(crate) identity: Identity,
    pub(crate) supervision: Supervision,
    /// The agent process, and its connection once it runs.
    pub(crate) instance: Option<InstanceId>,
    pub(crate) conn: Option<ConnId>,
    pub(crate) timer: Option<Armed>,
}

/// All supervisions.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    /// By the connection of the client.
    pub(crate) clients: BTreeMap<ConnId, Supervised>,
    /// Client of each connection of an agent.
    pub(crate) by_conn: BTreeMap<ConnId, ConnId>,
    /// Client of each agent process.
    pub(crate) by_instance: BTreeMap<InstanceId, ConnId>,
}

impl Agents {
    /// Side of a connection, if it belongs to a supervision.
    pub(crate) fn side_of(&self, conn: ConnId) -> Option<Side> {
        if self.clients.is_empty() {
            None
        } else if self.clients.contains_key(&conn) {
            Some(Side::Client)
        } else {
            self.by_conn.get(&conn).map(|client| Side::Agent(*client))
        }
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
