//! Outgoing requests, and tasks that run at peers.
//!
//! `OutgoingRequests` holds every outgoing request that waits for an answer and every followed task at a
//! peer. Its methods are all the transitions; each returns the consequence, which the
//! machine of outgoing requests carries out (`calls.rs`, `requests.rs`, `remote_tasks.rs`).
//!
//! ```text
//!            ┌─ take ──────► answered, timed out, or cancelled: the caller gets one outcome
//!   insert ──┼─ note_cancelled ──► cancelled, the peer's answer is due ──take──► outcome
//!            ├─ cancel_before_task_id ──► cancelled, task id not known ──take──► task cancelled
//!            ├─ follow ────► a task at the peer ──take_remote──► outcome
//!            └─ lose ──────► the connection ended
//! ```

pub mod call;
pub(crate) mod calls;
pub(crate) mod questions;
pub mod remote_task;
pub(crate) mod remote_tasks;
pub(crate) mod requests;
pub(crate) mod sending;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

use crate::collections::timer_queue::Armed;
use crate::ids::{AskId, CallId, ConnId};
use crate::outgoing::call::{CallFor, CallWanted, Caller, OutgoingCall};
use crate::outgoing::remote_task::RemoteTask;

/// Outgoing requests on all connections.
#[derive(Debug)]
pub(crate) struct OutgoingRequests {
    /// Only connections with waiting requests.
    peers: BTreeMap<ConnId, OnConnection>,
    /// Requests of the host.
    host_calls: BTreeMap<AskId, (ConnId, CallId)>,
    next: u64,
}

/// Outgoing requests on one connection.
#[derive(Debug, Default)]
pub(crate) struct OnConnection {
    calls: BTreeMap<CallId, OutgoingCall>,
    /// Followed tasks at the peer, by the request that created them.
    remote_tasks: BTreeMap<CallId, RemoteTask>,
}

impl OnConnection {
    /// Requests that wait for an answer, in the order they were made.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&CallId, &OutgoingCall)> {
        self.calls.iter()
    }

    /// Followed tasks, in the order of their requests.
    pub(crate) fn remote_tasks(&self) -> impl Iterator<Item = (&CallId, &RemoteTask)> {
        self.remote_tasks.iter()
    }

    /// Number of tasks at the peer, followed or expected: an unanswered request for a task may
    /// already have created it.
    fn tasks_asked_for(&self) -> usize {
        let asked = |call: &&OutgoingCall| call.with_task && call.receiver() != CallFor::NoReceiver;
        self.remote_tasks.len() + self.calls.values().filter(asked).count()
    }
}

impl OutgoingRequests {
    pub(crate) const fn new() -> Self {
        Self { peers: BTreeMap::new(), host_calls: BTreeMap::new(), next: 1 }
    }

    /// Id of the next request.
    pub(crate) const fn next_id(&self) -> CallId {
        CallId::new(self.next)
    }

    /// Inserts a request that is about to be sent, with the [next id](OutgoingRequests::next_id).
    pub(crate) fn insert(&mut self, conn: ConnId, call: OutgoingCall) -> CallId {
        let id = self.next_id();
        self.next += 1;
        self.peers.entry(conn).or_default().calls.insert(id, call);
        id
    }

    /// Removes a request that was answered or given up.
    pub(crate) fn take(&mut self, conn: ConnId, id: CallId) -> Option<OutgoingCall> {
        let call = self.peers.get_mut(&conn)?.calls.remove(&id)?;
        self.forget_if_idle(conn);
        Some(call)
    }

    /// CAN-05: a request for a task is cancelled before the task has an id. The request stays
    /// without a caller, so that the task is cancelled when the peer names it. Returns the caller
    /// and the timer, which must be disarmed; `None` for any other request.
    pub(crate) fn cancel_before_task_id(
        &mut self,
        conn: ConnId,
        id: CallId,
    ) -> Option<(Caller, &mut Option<Armed>)> {
        let call = self.peers.get_mut(&conn)?.calls.get_mut(&id)?;
        let caller = call.take_task_caller()?;
        Some((caller, &mut call.timer))
    }

    /// Cancels a request that the peer answers nevertheless (ACP-03). Returns its timer, which must
    /// be armed for that answer.
    fn note_cancelled(
        &mut self,
        conn: ConnId,
        id: CallId,
        wanted: CallWanted,
    ) -> Option<&mut Option<Armed>> {
        let call = self.peers.get_mut(&conn)?.calls.get_mut(&id)?;
        call.note_cancelled(wanted);
        Some(&mut call.timer)
    }

    /// Follows the task that the peer created for a request.
    pub(crate) fn follow(&mut self, conn: ConnId, id: CallId, remote: RemoteTask) {
        self.peers.entry(conn).or_default().remote_tasks.insert(id, remote);
    }

    /// Removes a remote task and the requests about it.
    pub(crate) fn take_remote(&mut self, conn: ConnId, id: CallId) -> Option<RemoteTask> {
        let peer = self.peers.get_mut(&conn)?;
        let remote = peer.remote_tasks.remove(&id)?;
        for open in [remote.poll, remote.fetch].into_iter().flatten() {
            peer.calls.remove(&open);
        }
        self.forget_if_idle(conn);
        Some(remote)
    }

    /// Removes the requests on a closed connection.
    pub(crate) fn lose_calls(&mut self, conn: ConnId) -> Vec<(CallId, OutgoingCall)> {
        let calls = self.peers.get_mut(&conn).map(|peer| mem::take(&mut peer.calls));
        self.forget_if_idle(conn);
        calls.into_iter().flatten().collect()
    }

    /// Removes the followed tasks on a closed connection.
    pub(crate) fn lose_remote_tasks(&mut self, conn: ConnId) -> Vec<(CallId, RemoteTask)> {
        let tasks = self.peers.get_mut(&conn).map(|peer| mem::take(&mut peer.remote_tasks));
        self.forget_if_idle(conn);
        tasks.into_iter().flatten().collect()
    }

    /// Records a request of the host.
    pub(crate) fn note_host_call(&mut self, ask: AskId, conn: ConnId, id: CallId) {
        self.host_calls.insert(ask, (conn, id));
    }

    /// Forgets a request of the host that has ended.
    pub(crate) fn forget_host_call(&mut self, ask: AskId) {
        self.host_calls.remove(&ask);
    }

    /// Mutable access to a request, for progress that moves its timer.
    fn call_mut(&mut self, conn: ConnId, id: CallId) -> Option<&mut OutgoingCall> {
        self.peers.get_mut(&conn)?.calls.get_mut(&id)
    }

    /// Mutable access to a followed task, for `remote_tasks.rs`.
    fn remote_mut(&mut self, conn: ConnId, id: CallId) -> Option<&mut RemoteTask> {
        self.peers.get_mut(&conn)?.remote_tasks.get_mut(&id)
    }

    fn forget_if_idle(&mut self, conn: ConnId) {
        let is_idle = |peer: &OnConnection| peer.calls.is_empty() && peer.remote_tasks.is_empty();
        if self.peers.get(&conn).is_some_and(is_idle) {
            self.peers.remove(&conn);
        }
    }
}

/// Read access.
impl OutgoingRequests {
    /// A request that waits for its answer.
    pub(crate) fn call(&self, conn: ConnId, id: CallId) -> Option<&OutgoingCall> {
        self.peers.get(&conn)?.calls.get(&id)
    }

    /// A followed task at a peer.
    pub(crate) fn remote(&self, conn: ConnId, id: CallId) -> Option<&RemoteTask> {
        self.peers.get(&conn)?.remote_tasks.get(&id)
    }

    /// The request of the host with this number.
    pub(crate) fn host_call(&self, ask: AskId) -> Option<(ConnId, CallId)> {
        self.host_calls.get(&ask).copied()
    }

    /// All waiting requests of the host.
    pub(crate) fn host_calls(&self) -> impl Iterator<Item = (&AskId, &(ConnId, CallId))> {
        self.host_calls.iter()
    }

    /// Waiting requests of each connection, sorted by connection.
    pub(crate) fn peers(&self) -> impl Iterator<Item = (&ConnId, &OnConnection)> {
        self.peers.iter()
    }

    /// Waiting requests of one connection.
    pub(crate) fn on(&self, conn: ConnId) -> Option<&OnConnection> {
        self.peers.get(&conn)
    }

    /// True when no request waits on a connection.
    pub(crate) fn has_no_calls(&self, conn: ConnId) -> bool {
        self.peers.get(&conn).is_none_or(|peer| peer.calls.is_empty())
    }

    /// Number of waiting requests on a connection, and of tasks followed or expected there.
    pub(crate) fn counts(&self, conn: ConnId) -> (usize, usize) {
        self.peers.get(&conn).map_or((0, 0), |peer| (peer.calls.len(), peer.tasks_asked_for()))
    }

    /// Whether a request with this id was ever made.
    pub(crate) const fn was_made(&self, id: CallId) -> bool {
        id.get() < self.next
    }
}
