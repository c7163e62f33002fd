//! How much an engine holds.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::engine::Engine;
use crate::jobs::job::JobState;
use crate::outgoing::remote_task::RemoteTaskView;

impl Engine {
    /// Numbers of each server, for monitoring (TSK-38).
    #[must_use]
    pub fn server_stats(&self) -> Vec<ServerStats> {
        self.upstreams.server_stats()
    }

    /// Numbers of each agent, for monitoring (TSK-38).
    #[must_use]
    pub fn agent_stats(&self) -> Vec<AgentStats> {
        self.agents.stats(&self.settings)
    }

    /// All followed tasks at peers, with their requests (TSK-42).
    pub fn remote_tasks(&self) -> impl Iterator<Item = RemoteTaskView<'_>> {
        self.outgoing.peers().flat_map(|(conn, peer)| {
            peer.remote_tasks().map(|(_, remote)| RemoteTaskView {
                conn: *conn,
                task: &remote.id,
                caller: remote.caller,
                method: &remote.call.method,
                label: remote.call.label.as_deref(),
                status: remote.status,
            })
        })
    }

    /// How many connections, jobs, tasks and timers there are.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        Sizes {
            connections: self.outbox.connections().len(),
            requests: self.requests(),
            jobs: self.jobs.len(),
            tasks: self.tasks.len(),
            timers: self.timers.len(),
            held: self.tasks.held(),
            unpersisted: self.tasks.writes().owed(),
        }
    }

    /// Whether there are jobs, or ends that are not written yet.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let writes = self.tasks.writes();
        self.jobs.len() > 0
            || writes.has_fresh()
            || writes.owed() > 0
            || !writes.none_on_their_way()
    }

    /// How full it is. Costs nothing.
    #[must_use]
    pub fn occupancy(&self) -> Load {
        let (running, queued) = (self.jobs.pools().running_own(), self.jobs.pools().waiting());
        Load { connections: self.outbox.admitted(), running, queued }
    }

    /// How much there is of everything that monitoring asks for (TSK-38). Linear in connections
    /// and jobs.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let cancelling = self.cancelling();
        let relayed = self.jobs.sum(|job| usize::from(job.is_at_server()));
        Gauges {
            // Those to servers and agents are no peers.
            connections: self.outbox.peers(),
            requests: self.requests(),
            running: self.jobs.pools().running() - cancelling - relayed,
            relayed,
            queued: self.jobs.pools().waiting(),
            cancelling,
            tasks: self.tasks.counts().map(|(status, count)| (status.as_str(), count)).collect(),
        }
    }

    /// Requests that wait for an answer.
    fn requests(&self) -> usize {
        self.outbox.connections().sum(|connection| connection.requests.len())
    }

    /// Jobs that were told to stop and have not ceased.
    pub(crate) fn cancelling(&self) -> usize {
        self.jobs.sum(|job| usize::from(matches!(job.state(), JobState::Stopping { .. })))
    }
}

/// How full an engine is, where that is bounded for all peers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Connections that count towards the limits.
    pub connections: usize,
    /// Jobs that take up a worker, also those that are being stopped.
    pub running: usize,
    /// Jobs that wait for one.
    pub queued: usize,
}

/// Numbers for monitoring (TSK-38).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gauges {
    /// Connections not closed yet.
    pub connections: usize,
    /// Requests that wait for an answer.
    pub requests: usize,
    /// Jobs of own tools that run.
    pub running: usize,
    /// Requests at servers, which use no worker.
    pub relayed: usize,
    /// Jobs that wait for their turn.
    pub queued: usize,
    /// Jobs that were told to stop and have not ceased.
    pub cancelling: usize,
    /// Tasks by status.
    pub tasks: Vec<(&'static str, usize)>,
}

/// How much an engine holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Connections not closed yet.
    pub connections: usize,
    /// Requests that wait for an answer.
    pub requests: usize,
    /// Jobs queued, running or stopping.
    pub jobs: usize,
    /// Tasks not deleted yet.
    pub tasks: usize,
    /// Timers armed.
    pub timers: usize,
    /// Of the requests, those that wait for the store (DUR-01).
    pub held: usize,
    /// Tasks, or the end of tasks, the store did not take and will be told of again (DUR-01).
    pub unpersisted: usize,
}

/// Numbers of one server behind the engine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerStats {
    /// Its name.
    pub server: Box<str>,
    /// Instances that are there, starting and ending ones included.
    pub instances: usize,
    /// Instances that were started.
    pub starts: u64,
    /// Of those, instances that took the place of one that died, was replaced or restarted.
    pub restarts: u64,
    /// Instances that died by themselves.
    pub deaths: u64,
    /// Instances that were replaced because they ignored a cancel (UPS-06).
    pub replaced: u64,
    /// Processes that cancelled requests left and that were ended (UPS-05).
    pub strays_ended: u64,
    /// Requests that were sent.
    pub calls: u64,
}

/// Numbers of one agent of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AgentStats {
    /// Its name.
    pub agent: Box<str>,
    /// Connections that have it.
    pub clients: usize,
    /// Its processes, starting and ending ones included.
    pub processes: usize,
    /// Requests and turns that it works on.
    pub requests: usize,
    /// Processes that were started.
    pub starts: u64,
    /// Processes that ended by themselves, or did not start.
    pub deaths: u64,
    /// Processes that were ended because they ignored a cancel (SUP-02).
    pub replaced: u64,
    /// Turns and other requests that were stopped, each with a receipt.
    pub stops: u64,
}
