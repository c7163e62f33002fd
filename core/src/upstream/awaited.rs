//! Requests of clients that wait for upstreams to tell of themselves.

use crate::engine::Engine;
use crate::ids::ConnId;
use crate::server::requests::Work;
use crate::upstream::list::LISTS;

/// A request that waits for upstreams to tell of themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// `initialize`, which cannot be cancelled (CAN-04).
    Initialize,
    /// `server/discover`
    Discover,
    /// The list at this position of [`LISTS`].
    List(usize),
}

impl Awaited {
    /// The method of the request, for a log.
    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Discover => "server/discover",
            Self::List(at) => LISTS[at].method,
        }
    }
}

impl Engine {
    /// Whether a request of this connection waits for an upstream that still starts. Such a wait is
    /// bounded by `start_timeout`.
    pub(crate) fn awaits_start(&self, conn: ConnId) -> bool {
        if self.upstreams.is_empty() {
            return false;
        }
        let Some(connection) = self.connections.get(&conn) else { return false };
        connection.requests.iter().any(|(_, _, work)| match work {
            Work::Upstream(_) => true,
            Work::Job(job) => {
                let relayed = self.upstreams.jobs.get(job);
                let instance = relayed.and_then(|relayed| relayed.instance);
                let instance = instance.and_then(|id| self.upstreams.instances.get(&id));
                instance.is_some_and(|instance| instance.is_starting())
            }
            Work::Task(..) | Work::Listen(_) | Work::Survey(_) | Work::Question(_) => false,
        })
    }
}
