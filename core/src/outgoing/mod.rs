//! Requests that this side makes, and tasks that run at peers.
//!
//! `Outgoing` holds every request of ours that waits for an answer and every task at a peer
//! that is followed. Its methods are all the transitions there are; each returns what follows,
//! which the engine carries out (`requests.rs`, `remote_tasks.rs`).
//!
//! ```text
//!            ┌─ take ──────► answered, timed out, or cancelled: its caller is told, once
//!   insert ──┼─ await_cancelled ──► cancelled, its one answer is still due ──take──► told
//!            ├─ disown ────► cancelled before its task has an id ──take──► that task is cancelled
//!            ├─ follow ────► a task at the peer ──take_remote──► told
//!            └─ lose ──────► the connection is gone
//! ```

pub mod call;
pub mod remote_task;
pub(crate) mod remote_tasks;
pub(crate) mod requests;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

use crate::collections::timer_queue::Armed;
use crate::ids::{AskId, CallId, ConnId};
use crate::outgoing::call::{Call, CallFor, Caller, Wanted};
use crate::outgoing::remote_task::RemoteTask;

/// Requests of ours on every connection.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Only connections on which something waits.
    peers: BTreeMap<ConnId, OnConnection>,
    /// Calls the host made.
    host_calls: BTreeMap<AskId, (ConnId, CallId)>,
    next: u64,
}

/// Requests of ours on one connection.
#[derive(Debug, Default)]
pub(crate) struct OnConnection {
    calls: BTreeMap<CallId, Call>,
    /// Tasks at the peer that are followed, by the call that created them.
    remote_tasks: BTreeMap<CallId, RemoteTask>,
}

impl OnConnection {
    /// Calls that wait for an answer, in the order they were made.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&CallId, &Call)> {
        self.calls.iter()
    }

    /// Tasks that are followed, in the order of their calls.
    pub(crate) fn remote_tasks(&self) -> impl Iterator<Item = (&CallId, &RemoteTask)> {
        self.remote_tasks.iter()
    }

    /// How many tasks at the peer are followed, or will be: a call that asked for one and has no
    /// answer yet may have created it already.
    fn tasks_asked_for(&self) -> usize {
        let asked = |call: &&Call| call.with_task && call.whom() != CallFor::Nobody;
        self.remote_tasks.len() + self.calls.values().filter(asked).count()
    }
}

impl Outgoing {
    pub(crate) const fn new() -> Self {
        Self { peers: BTreeMap::new(), host_calls: BTreeMap::new(), next: 1 }
    }

    /// The id of the next call.
    pub(crate) const fn next_id(&self) -> CallId {
        CallId::new(self.next)
    }

    /// Takes in a call that is about to be sent, with the [next id](Outgoing::next_id).
    pub(crate) fn insert(&mut self, conn: ConnId, call: Call) -> CallId {
        let id = self.next_id();
        self.next += 1;
        self.peers.entry(conn).or_default().calls.insert(id, call);
        id
    }

    /// Takes a call out: it is answered, given up, or its caller was told.
    pub(crate) fn take(&mut self, conn: ConnId, id: CallId) -> Option<Call> {
        let call = self.peers.get_mut(&conn)?.calls.remove(&id)?;
        self.forget_if_idle(conn);
        Some(call)
    }

    /// A call for a task is cancelled before the task has an id: it stays without a caller, so
    /// that the task is cancelled when the peer names it (CAN-05). Returns whose it was, and its
    /// timer, which is to be disarmed; `None` for every other call.
    pub(crate) fn disown(
        &mut self,
        conn: ConnId,
        id: CallId,
    ) -> Option<(Caller, &mut Option<Armed>)> {
        let call = self.peers.get_mut(&conn)?.calls.get_mut(&id)?;
        let caller = call.disown()?;
        Some((caller, &mut call.timer))
    }

    /// A call is cancelled whose peer answers it nevertheless (ACP-03). Returns its timer, which
    /// is to be armed for that answer.
    pub(crate) fn await_cancelled(
        &mut self,
        conn: ConnId,
        id: CallId,
        wanted: Wanted,
    ) -> Option<&mut Option<Armed>> {
        let call = self.peers.get_mut(&conn)?.calls.get_mut(&id)?;
        call.note_cancelled(wanted);
        Some(&mut call.timer)
    }

    /// The peer has made a task of a call: it is followed from now on.
    pub(crate) fn follow(&mut self, conn: ConnId, id: CallId, remote: RemoteTask) {
        self.peers.entry(conn).or_default().remote_tasks.insert(id, remote);
    }

    /// Takes a remote task out: its caller is told. Requests about it are forgotten with it.
    pub(crate) fn take_remote(&mut self, conn: ConnId, id: CallId) -> Option<RemoteTask> {
        let peer = self.peers.get_mut(&conn)?;
        let remote = peer.remote_tasks.remove(&id)?;
        for open in [remote.poll, remote.fetch].into_iter().flatten() {
            peer.calls.remove(&open);
        }
        self.forget_if_idle(conn);
        Some(remote)
    }

    /// Takes out the calls on a connection whose peer answers nothing more.
    pub(crate) fn lose_calls(&mut self, conn: ConnId) -> Vec<(CallId, Call)> {
        let calls = self.peers.get_mut(&conn).map(|peer| mem::take(&mut peer.calls));
        self.forget_if_idle(conn);
        calls.into_iter().flatten().collect()
    }

    /// Takes out the tasks that are followed on such a connection.
    pub(crate) fn lose_remote_tasks(&mut self, conn: ConnId) -> Vec<(CallId, RemoteTask)> {
        let tasks = self.peers.get_mut(&conn).map(|peer| mem::take(&mut peer.remote_tasks));
        self.forget_if_idle(conn);
        tasks.into_iter().flatten().collect()
    }

    /// Notes that the host made a call.
    pub(crate) fn note_host_call(&mut self, ask: AskId, conn: ConnId, id: CallId) {
        self.host_calls.insert(ask, (conn, id));
    }

    /// The host was told how its call ended.
    pub(crate) fn forget_host_call(&mut self, ask: AskId) {
        self.host_calls.remove(&ask);
    }

    /// A call, to be heard from: its timer moves with progress.
    fn call_mut(&mut self, conn: ConnId, id: CallId) -> Option<&mut Call> {
        self.peers.get_mut(&conn)?.calls.get_mut(&id)
    }

    /// A task that is followed, to be moved on by `remote_tasks.rs`.
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

/// Questions about them.
impl Outgoing {
    /// A call that waits for its answer.
    pub(crate) fn call(&self, conn: ConnId, id: CallId) -> Option<&Call> {
        self.peers.get(&conn)?.calls.get(&id)
    }

    /// A task at a peer that is followed.
    pub(crate) fn remote(&self, conn: ConnId, id: CallId) -> Option<&RemoteTask> {
        self.peers.get(&conn)?.remote_tasks.get(&id)
    }

    /// The call the host made with this number.
    pub(crate) fn host_call(&self, ask: AskId) -> Option<(ConnId, CallId)> {
        self.host_calls.get(&ask).copied()
    }

    /// Every call of the host that waits.
    pub(crate) fn host_calls(&self) -> impl Iterator<Item = (&AskId, &(ConnId, CallId))> {
        self.host_calls.iter()
    }

    /// What waits on each connection, sorted by connection.
    pub(crate) fn peers(&self) -> impl Iterator<Item = (&ConnId, &OnConnection)> {
        self.peers.iter()
    }

    /// What waits on one connection.
    pub(crate) fn on(&self, conn: ConnId) -> Option<&OnConnection> {
        self.peers.get(&conn)
    }

    /// Whether no call waits on a connection.
    pub(crate) fn has_no_calls(&self, conn: ConnId) -> bool {
        self.peers.get(&conn).is_none_or(|peer| peer.calls.is_empty())
    }

    /// How many calls wait on a connection, and how many tasks were asked for there.
    pub(crate) fn counts(&self, conn: ConnId) -> (usize, usize) {
        self.peers.get(&conn).map_or((0, 0), |peer| (peer.calls.len(), peer.tasks_asked_for()))
    }

    /// Whether a call of this id was ever made.
    pub(crate) const fn was_made(&self, id: CallId) -> bool {
        id.get() < self.next
    }
}
