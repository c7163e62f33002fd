//! Admission of connections: the limit of all, the share of each identity, and operators' places.
//!
//! Operators have to reach the daemon when it is full, because they alone can cancel the jobs
//! that fill it. Each has a few connections beside the limits; when these are taken, a new
//! connection replaces the idle one that has made no request for longest.

use alloc::borrow::ToOwned as _;

use crate::action::AuditEvent;
use crate::connection::{Connection, ConnectionEnd, Counterpart};
use crate::engine::Engine;
use crate::identity::{Identity, Rights};
use crate::ids::ConnId;
use crate::limits::ConnectionLimit;
use crate::outgoing::call::{Caller, Refusal};
use crate::protocol::role::Role;
use crate::reason::CloseReason;
use crate::rpc::error::limit_error;

impl Engine {
    pub(crate) fn on_opened(
        &mut self,
        conn: ConnId,
        (identity, rights): (Identity, Rights),
        role: Role,
    ) {
        let mut connection = Connection::new(identity, self.seed);
        connection.rights = rights;
        self.admit_connection(conn, connection, role);
        let is_admitted = self.outbox.connection(conn).is_some_and(|it| it.is_admitted);
        let sole = self.settings.agents.first().filter(|_| self.settings.agent_only).cloned();
        if let Some(agent) = sole.filter(|_| is_admitted) {
            self.supervisor().supervise(conn, &agent);
        }
    }

    pub(crate) fn admit_connection(
        &mut self,
        conn: ConnId,
        mut connection: Connection,
        role: Role,
    ) {
        connection.since = self.now.at;
        let account = self.accounts.of(&connection.identity);
        connection.requests.charge_to(&account);
        connection.last_request = self.now.at;
        let full = self.make_place(&connection.identity, connection.rights);
        connection.is_admitted = full.is_none();
        connection.is_lone = role == Role::Stateless;
        self.outbox.insert(conn, connection);
        match (full, role) {
            (None, Role::Server | Role::Stateless) => {}
            (None, Role::Client(role)) => {
                let (outbox, timers) = (&mut self.outbox, &mut self.timers);
                self.outgoing.begin_session(outbox, timers, conn, role);
            }
            (Some(_), Role::Client(role)) => {
                self.outgoing().refuse_call(Caller::Host(role.ask), Refusal::TooMany);
                self.outbox.close(conn, CloseReason::TooMany);
            }
            (Some(limit), Role::Server | Role::Stateless) => {
                self.outbox.counters_mut().refused += 1;
                let identity = self.outbox.identity_of(conn);
                self.outbox.note(AuditEvent::Refused { conn, identity, limit: limit.name });
                self.outbox.refuse_unreadable(conn, &limit.error(), None);
                self.outbox.close(conn, CloseReason::TooMany);
            }
        }
    }

    /// The limit that keeps one more connection of an identity out. A host that asks
    /// first can refuse a peer without opening a connection for it.
    #[must_use]
    pub fn connection_limit(&self, identity: &Identity, rights: Rights) -> Option<ConnectionLimit> {
        let is_operator = self.outbox.has_operator_rights(identity, rights);
        let places = self.settings.limits.operator_connections;
        let full = self.full(identity)?;
        if is_operator
            && (self.outbox.admitted_of(identity) < places || self.longest_idle(identity).is_some())
        {
            return None;
        }
        Some(full)
    }

    /// Finds a place for one more connection of an identity, if need be by closing another of an
    /// operator; or the limit that is reached.
    fn make_place(&mut self, identity: &Identity, rights: Rights) -> Option<ConnectionLimit> {
        let full = self.full(identity)?;
        if let Some(limit) = self.connection_limit(identity, rights) {
            return Some(limit);
        }
        if self.outbox.admitted_of(identity) < self.settings.limits.operator_connections {
            return None;
        }
        let Some(idle) = self.longest_idle(identity) else { return Some(full) };
        // Its place is free from now on, though it is still told why it was closed.
        self.outbox.displace(idle);
        let message = "closed: idle for longest, and a new connection needs its place".to_owned();
        self.outbox.refuse_unreadable(idle, &limit_error(full.name, full.max, message), None);
        self.outbox.close(idle, CloseReason::Displaced);
        None
    }

    fn full(&self, identity: &Identity) -> Option<ConnectionLimit> {
        let limits = &self.settings.limits;
        let (max, share) = (limits.connections_max, limits.connections_per_identity_max);
        if self.outbox.admitted() >= max {
            Some(ConnectionLimit { name: "connections", max })
        } else if self.outbox.admitted_of(identity) >= share {
            Some(ConnectionLimit { name: "connections_per_identity", max: share })
        } else {
            None
        }
    }

    /// The connection of an identity that waits for nothing and has made no request for longest;
    /// one that never made any before all others, and one with an agent after them, because it
    /// loses the agent.
    fn longest_idle(&self, identity: &Identity) -> Option<ConnId> {
        let is_idle = |conn: ConnId, peer: &Connection| {
            peer.identity == *identity
                && peer.is_admitted
                && !matches!(peer.ending, ConnectionEnd::Closing(_))
                && self.agents.waiting_requests(&self.outbox, conn) == 0
                && self.outgoing.has_no_calls(conn)
        };
        let longest = self.outbox.connections().least(|conn, peer| {
            let has_agent = peer.counterpart() != Counterpart::Peer;
            let rank = (has_agent, peer.requests_made > 0, peer.last_request, *conn);
            is_idle(*conn, peer).then_some(rank)
        });
        longest.map(|(.., conn)| conn)
    }
}
