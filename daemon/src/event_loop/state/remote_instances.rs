//! Instances of servers by URL: their connections to the engine and to the server, and their
//! deadlines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, InstanceId};
use ceased_core::time::Instant;

use crate::remote::{Bearer, Endpoint, Remote, SlotId};

/// The instances of servers by URL.
#[derive(Debug, Default)]
pub(crate) struct Remotes {
    instances: BTreeMap<InstanceId, Entry>,
    /// Instances by their connection of the engine, which has no link.
    by_engine: BTreeMap<ConnId, InstanceId>,
    by_conn: BTreeMap<ConnId, (InstanceId, SlotId)>,
    due: BTreeSet<(Instant, InstanceId)>,
    /// Names that are looked up.
    lookups: Arc<AtomicUsize>,
    /// Tokens that are asked for.
    tokens: Arc<AtomicUsize>,
}

/// One instance.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its connection of the engine.
    pub(crate) conn: ConnId,
    pub(crate) endpoint: Arc<Endpoint>,
    /// The identity that it works for.
    pub(crate) owner: Option<Identity>,
    pub(crate) remote: Remote,
    slots: BTreeMap<SlotId, Route>,
    due: Option<Instant>,
}

/// The way of one connection to the server.
#[derive(Debug, Default)]
struct Route {
    conn: Option<ConnId>,
    /// Further addresses, if the ones before them cannot be reached.
    addresses: VecDeque<SocketAddr>,
}

impl Remotes {
    /// Count of names that are looked up.
    pub(crate) const fn lookups(&self) -> &Arc<AtomicUsize> {
        &self.lookups
    }

    /// Count of tokens that are asked for.
    pub(crate) const fn tokens(&self) -> &Arc<AtomicUsize> {
        &self.tokens
    }

    pub(crate) fn insert(
        &mut self,
        id: InstanceId,
        conn: ConnId,
        (endpoint, owner): (Arc<Endpoint>, Option<Identity>),
        message_bytes: usize,
    ) {
        let bearer = endpoint.bearer(owner.as_ref());
        let remote = Remote::new(Arc::clone(&endpoint), bearer, message_bytes);
        let entry = Entry { conn, endpoint, owner, remote, slots: BTreeMap::new(), due: None };
        self.instances.insert(id, entry);
        self.by_engine.insert(conn, id);
    }

    pub(crate) fn remove(&mut self, id: InstanceId) -> Option<Entry> {
        let entry = self.instances.remove(&id)?;
        self.by_engine.remove(&entry.conn);
        if let Some(at) = entry.due {
            self.due.remove(&(at, id));
        }
        Some(entry)
    }

    pub(crate) fn get_mut(&mut self, id: InstanceId) -> Option<&mut Entry> {
        self.instances.get_mut(&id)
    }

    /// The instances that use a token.
    pub(crate) fn with_token(&self, bearer: &Bearer) -> Vec<InstanceId> {
        let uses = |entry: &Entry| entry.remote.uses(bearer);
        self.instances.iter().filter(|(_, entry)| uses(entry)).map(|(id, _)| *id).collect()
    }

    /// The instance behind a connection of the engine.
    pub(crate) fn of_engine(&self, conn: ConnId) -> Option<InstanceId> {
        self.by_engine.get(&conn).copied()
    }

    /// The instance and slot of a connection to a server.
    pub(crate) fn of_conn(&self, conn: ConnId) -> Option<(InstanceId, SlotId)> {
        self.by_conn.get(&conn).copied()
    }

    /// The connection of the engine that the bytes of this connection belong to.
    pub(crate) fn engine_of(&self, conn: ConnId) -> Option<ConnId> {
        let (id, _) = self.of_conn(conn)?;
        self.instances.get(&id).map(|entry| entry.conn)
    }

    /// Whether a connection is one to a server and has output.
    pub(crate) fn has_output(&self, conn: ConnId) -> bool {
        let instance = |id| self.instances.get(&id);
        self.of_conn(conn).is_some_and(|(id, slot)| {
            instance(id).is_some_and(|entry| entry.remote.has_output(slot))
        })
    }

    /// Number of connections to servers.
    pub(crate) fn connections(&self) -> usize {
        self.by_conn.len()
    }

    /// A slot has these addresses to try. False if it is gone.
    pub(crate) fn note_addresses(
        &mut self,
        (id, slot): (InstanceId, SlotId),
        found: Vec<SocketAddr>,
    ) -> bool {
        let Some(entry) = self.instances.get_mut(&id) else { return false };
        let is_open = entry.remote.is_fresh(slot);
        if is_open {
            entry.slots.entry(slot).or_default().addresses = found.into();
        }
        is_open
    }

    /// The next address of a slot.
    pub(crate) fn next_address(&mut self, (id, slot): (InstanceId, SlotId)) -> Option<SocketAddr> {
        self.instances.get_mut(&id)?.slots.get_mut(&slot)?.addresses.pop_front()
    }

    /// A slot has a connection.
    pub(crate) fn connect(&mut self, (id, slot): (InstanceId, SlotId), conn: ConnId) {
        if let Some(entry) = self.instances.get_mut(&id) {
            entry.slots.entry(slot).or_default().conn = Some(conn);
            self.by_conn.insert(conn, (id, slot));
        }
    }

    pub(crate) fn conn_of(&self, id: InstanceId, slot: SlotId) -> Option<ConnId> {
        self.instances.get(&id)?.slots.get(&slot)?.conn
    }

    /// A connection of a slot is gone. The slot stays, if another address is to be tried.
    pub(crate) fn forget_conn(&mut self, conn: ConnId) {
        if let Some((id, slot)) = self.by_conn.remove(&conn)
            && let Some(route) =
                self.instances.get_mut(&id).and_then(|entry| entry.slots.get_mut(&slot))
        {
            route.conn = None;
        }
    }

    /// A slot is closed. Returns its connection.
    pub(crate) fn close(&mut self, id: InstanceId, slot: SlotId) -> Option<ConnId> {
        let conn = self.instances.get_mut(&id)?.slots.remove(&slot)?.conn?;
        self.by_conn.remove(&conn);
        Some(conn)
    }

    /// Notes the next deadline of an instance.
    pub(crate) fn schedule(&mut self, id: InstanceId) {
        let Some(entry) = self.instances.get_mut(&id) else { return };
        let due = entry.remote.deadline();
        if due != entry.due {
            if let Some(before) = entry.due {
                self.due.remove(&(before, id));
            }
            self.due.extend(due.map(|at| (at, id)));
            entry.due = due;
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The instances whose deadline has passed.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<InstanceId> {
        self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }
}
