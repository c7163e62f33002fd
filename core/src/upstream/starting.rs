//! Requests of clients that wait for an upstream to start.

use crate::ids::ConnId;
use crate::outbox::Outbox;
use crate::outbox::requests::RequestWork;
use crate::upstream::table::Upstreams;

impl Upstreams {
    /// Whether a request of this connection waits for an upstream that still starts. Such a wait is
    /// bounded by `start_timeout`.
    pub(crate) fn awaits_start(&self, outbox: &Outbox, conn: ConnId) -> bool {
        if self.is_empty() {
            return false;
        }
        let Some(connection) = outbox.connection(conn) else { return false };
        connection.requests.iter().any(|(_, _, work)| match work {
            RequestWork::Upstream(_) => true,
            RequestWork::Job(job) => {
                let relayed = self.jobs.get(job);
                let instance = relayed.and_then(|relayed| relayed.instance);
                let instance = instance.and_then(|id| self.instances.get(&id));
                instance.is_some_and(|instance| instance.is_starting())
            }
            RequestWork::Task(..)
            | RequestWork::Listen(_)
            | RequestWork::Survey(_)
            | RequestWork::Question(_)
            | RequestWork::Lookup(_) => false,
        })
    }
}
