//! The outbox: connections with their send queues, and everything that leaves the engine.
//!
//! Every group of methods looks connections up, answers requests and appends actions. The outbox
//! owns all of that and calls none of them: a consequence beyond it, such as the end of a server
//! that does not read, is handed to the engine by [`Outbox::take_unread`].

mod answering;
pub(crate) mod cancelling;
pub(crate) mod requests;
mod sending;
pub(crate) mod typed_result;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use crate::action::{Action, AuditEvent};
use crate::collections::det_map::{Seed, Table};
use crate::collections::tally::Tally;
use crate::connection::{Connection, ConnectionEnd, Counterpart};
use crate::counters::Counters;
use crate::identity::{Identity, Rights};
use crate::ids::{ConnId, InstanceId};
use crate::outbox::typed_result::server_info;
use crate::policy::abuse::{AbuseDetector, AbusePattern};
use crate::policy::access::Caller;
use crate::policy::allow::Grants;
use crate::protocol::revision::{Dialect, ToolMembers};
use crate::settings::Settings;
use crate::tasks::durable::{Seq, StoreWrite};
use crate::time::Instant;
use crate::upstream::scope::Scope;

/// The connection that a message comes from, as it was when the message was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) conn: ConnId,
    pub(crate) counterpart: Counterpart,
    pub(crate) dialect: &'static Dialect,
}

/// Bytes of the buffer in which objects are written that room is kept for.
const SCRATCH_KEPT: usize = 16 * 1024;

/// Connections, the actions of the event at hand, and counters.
#[derive(Debug)]
pub(crate) struct Outbox {
    settings: Arc<Settings>,
    now: Instant,
    connections: Table<ConnId, Box<Connection>>,
    /// Admitted connections of each identity.
    admitted: Tally,
    actions: Vec<Action>,
    counters: Counters,
    /// Name and version of this server, as JSON (MOD-02).
    server_info: Arc<[u8]>,
    /// Whether finished connections stay open.
    keeps_finished: bool,
    /// Counts of suspicious requests by identity (TSK-41).
    watch: AbuseDetector,
    /// Servers and agents that read too little. The engine ends them.
    unread: Vec<ConnId>,
    /// Buffer of the most frequent answers; empty between events.
    scratch: Vec<u8>,
}

impl Outbox {
    /// An outbox without connections.
    pub(crate) fn new(settings: Arc<Settings>, seed: Seed) -> Self {
        Self {
            server_info: server_info(&settings.server, ToolMembers::Iconed),
            settings,
            now: Instant::ZERO,
            connections: Table::new(seed),
            admitted: Tally::default(),
            actions: Vec::new(),
            counters: Counters::default(),
            keeps_finished: false,
            watch: AbuseDetector::default(),
            unread: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Applies other settings from now on.
    pub(crate) fn configure(&mut self, settings: Arc<Settings>) {
        self.server_info = server_info(&settings.server, ToolMembers::Iconed);
        self.settings = settings;
    }

    /// The time of the event at hand.
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// End of the time for which the answer to a call with a key is kept, if it ends now.
    pub(crate) fn keys_until(&self) -> Instant {
        self.now + self.settings.limits.keys_for
    }

    /// The settings that apply.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Name and version of this server, as JSON.
    pub(crate) fn server_info(&self) -> Arc<[u8]> {
        Arc::clone(&self.server_info)
    }

    /// Takes the buffer of the most frequent answers.
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        mem::take(&mut self.scratch)
    }

    /// Takes a buffer back; not the room that something large has needed.
    pub(crate) fn keep_scratch(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        buffer.shrink_to(SCRATCH_KEPT);
        self.scratch = buffer;
    }

    /// Hands a numbered write to the store.
    pub(crate) fn store(&mut self, seq: Seq, write: StoreWrite) {
        self.push(Action::Store { seq, write: Box::new(write) });
    }

    /// Begins an event at this time, whose actions are appended to `actions`.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.now = now;
        mem::swap(&mut self.actions, actions);
    }

    /// Ends an event: gives back the actions that [`Outbox::begin`] took, with those of the event.
    #[inline]
    pub(crate) fn end(&mut self, actions: &mut Vec<Action>) {
        mem::swap(&mut self.actions, actions);
    }

    /// Appends an action.
    #[inline]
    pub(crate) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Appends an audit event.
    #[inline]
    pub(crate) fn note(&mut self, note: AuditEvent) {
        self.actions.push(Action::Audit(note));
    }

    #[inline]
    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts an abuse pattern of an identity and reports it once it passes its threshold.
    #[cold]
    pub(crate) fn suspect(&mut self, conn: ConnId, pattern: AbusePattern) {
        match pattern {
            AbusePattern::UnknownTasks => self.counters.unknown_tasks += 1,
            AbusePattern::FastPolls => self.counters.fast_polls += 1,
        }
        let policy = self.settings.limits.suspicion;
        let Some(identity) = self.identity(conn).cloned() else { return };
        if self.watch.count(&identity, pattern, self.now, &policy) {
            self.counters.suspicions += 1;
            let (count, window) = (policy.threshold(pattern), policy.window);
            self.note(AuditEvent::Suspicious { conn, identity, pattern, count, window });
        }
    }

    /// The counters, to count something.
    #[inline]
    pub(crate) const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// All connections.
    #[inline]
    pub(crate) const fn connections(&self) -> &Table<ConnId, Box<Connection>> {
        &self.connections
    }

    #[inline]
    pub(crate) fn connection(&self, conn: ConnId) -> Option<&Connection> {
        self.connections.get(&conn).map(|connection| &**connection)
    }

    #[inline]
    pub(crate) fn connection_mut(&mut self, conn: ConnId) -> Option<&mut Connection> {
        self.connections.get_mut(&conn).map(|connection| &mut **connection)
    }

    /// Adds a connection.
    ///
    /// # Panics
    /// When there is one with this id, which the host gives once.
    pub(crate) fn insert(&mut self, conn: ConnId, connection: Connection) {
        if connection.is_admitted {
            self.admitted.add(&connection.identity);
        }
        let before = self.connections.insert(conn, Box::new(connection));
        assert!(before.is_none(), "a connection id is given once");
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<Box<Connection>> {
        let connection = self.connections.remove(&conn)?;
        if connection.is_admitted {
            self.admitted.remove(&connection.identity);
        }
        self.connections.shrink();
        Some(connection)
    }

    /// Admitted connections.
    pub(crate) const fn admitted(&self) -> usize {
        self.admitted.len()
    }

    /// Admitted connections of an identity.
    pub(crate) fn admitted_of(&self, identity: &Identity) -> usize {
        self.admitted.len_of(identity)
    }

    /// Gives the place of an admitted connection to another one.
    pub(crate) fn displace(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn)
            && mem::replace(&mut connection.is_admitted, false)
        {
            self.admitted.remove(&connection.identity);
        }
    }

    /// The other end of a connection; a peer if it is closed.
    #[inline]
    pub(crate) fn counterpart(&self, conn: ConnId) -> Counterpart {
        self.connections.get(&conn).map_or(Counterpart::Peer, |connection| connection.counterpart())
    }

    /// The instance at the other end of a connection.
    pub(crate) fn instance(&self, conn: ConnId) -> Option<InstanceId> {
        match self.counterpart(conn) {
            Counterpart::Instance(id) => Some(id),
            Counterpart::Peer | Counterpart::AgentClient | Counterpart::Agent(_) => None,
        }
    }

    /// Changes the other end of a connection.
    pub(crate) fn set_counterpart(&mut self, conn: ConnId, counterpart: Counterpart) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.set_counterpart(counterpart);
        }
    }

    /// Connections to peers.
    pub(crate) fn peers(&self) -> usize {
        self.connections.sum(|connection| usize::from(!connection.counterpart().is_behind()))
    }

    /// Identity of the peer of a connection.
    #[inline]
    pub(crate) fn identity(&self, conn: ConnId) -> Option<&Identity> {
        self.connections.get(&conn).map(|connection| &connection.identity)
    }

    /// A copy of the identity of the peer of a connection; anonymous if it is closed.
    pub(crate) fn identity_of(&self, conn: ConnId) -> Identity {
        self.identity(conn).cloned().unwrap_or(Identity::Anonymous)
    }

    /// Dialect of a connection.
    #[inline]
    pub(crate) fn dialect(&self, conn: ConnId) -> &'static Dialect {
        self.connections.get(&conn).map_or(Dialect::UNSETTLED, |connection| connection.dialect)
    }

    /// Dialect of a connection; `None` when nothing of it is read any more.
    #[inline]
    pub(crate) fn dialect_read(&self, conn: ConnId) -> Option<&'static Dialect> {
        let connection = self.connections.get(&conn)?;
        (!matches!(connection.ending, ConnectionEnd::Closing(_))).then_some(connection.dialect)
    }

    /// The sender of a message; `None` when nothing of its connection is read any more. The frames
    /// of a client with an agent are for the supervision to drop.
    #[inline]
    pub(crate) fn sender(&self, conn: ConnId) -> Option<Sender> {
        let connection = self.connections.get(&conn)?;
        let (counterpart, dialect) = (connection.counterpart(), connection.dialect);
        let is_over = matches!(connection.ending, ConnectionEnd::Closing(_))
            && counterpart != Counterpart::AgentClient;
        (!is_over).then_some(Sender { conn, counterpart, dialect })
    }

    /// The scope of a connection, if it does not see everything.
    pub(crate) fn scope_of(&self, conn: ConnId) -> Option<&Scope> {
        self.connections.get(&conn)?.scope.as_deref()
    }

    /// Changes the groups, the scopes and the part that a peer sees.
    pub(crate) fn grant(&mut self, conn: ConnId, grants: Arc<Grants>, profile: Option<Box<str>>) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            let grants = Some(grants).filter(|grants| **grants != *Grants::NONE);
            if connection.aside.grants != grants {
                connection.aside.grants = grants;
            }
            connection.scope = profile.map(|name| Box::new(Scope::Profile(name)));
        }
    }

    /// The peer of a connection, for decisions on access; an anonymous one if it is closed.
    pub(crate) fn caller(&self, conn: ConnId) -> Caller<'_> {
        let Some(peer) = self.connections.get(&conn) else {
            return Caller::new(&Identity::Anonymous, Grants::NONE, &self.settings.profiles);
        };
        let grants = peer.aside.grants.as_deref().unwrap_or(Grants::NONE);
        Caller {
            scope: peer.scope.as_deref(),
            ..Caller::new(&peer.identity, grants, &self.settings.profiles)
        }
    }

    /// Number of open requests of a connection.
    #[inline]
    pub(crate) fn open_requests(&self, conn: ConnId) -> usize {
        self.connections.get(&conn).map_or(0, |connection| connection.requests.len())
    }

    /// Whether as many requests of a connection wait for an answer as may.
    #[inline]
    pub(crate) fn is_full(&self, conn: ConnId) -> bool {
        self.open_requests(conn) >= self.settings.limits.inflight_max
    }

    /// Whether an identity sees and may do everything on a connection with these rights.
    pub(crate) fn has_operator_rights(&self, identity: &Identity, rights: Rights) -> bool {
        // SEC-05: a process inside a job is never an operator.
        rights == Rights::Full && self.settings.operators.contains(identity)
    }

    /// Whether the peer of a connection sees and may do everything.
    pub(crate) fn is_operator(&self, conn: ConnId) -> bool {
        self.connections
            .get(&conn)
            .is_some_and(|peer| self.has_operator_rights(&peer.identity, peer.rights))
    }

    /// A text of a peer, fit for a log and a status message: no control characters, capped
    /// (CAN-12, TSK-43).
    pub(crate) fn clean(&self, text: &str) -> String {
        let max = self.settings.limits.text_bytes_max;
        let mut clean: String =
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(max + 1).collect();
        if clean.len() > max {
            clean.truncate(clean.floor_char_boundary(max.saturating_sub('…'.len_utf8())));
            clean.push('…');
        }
        clean
    }
}
