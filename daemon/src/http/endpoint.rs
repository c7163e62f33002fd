//! All HTTP connections and sessions of the daemon, and their deadlines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::policy::account::Accounts;
use ceased_core::time::Instant;
use ceased_transports::http::HttpDate;

use super::access::{Caller, HttpRules};
use super::pages::Health;
use super::peer::{HttpPeer, Overdue, Subject};
use super::session::{Session, SessionId};
use super::view::passes::Passes;
use crate::conn_map::ConnMap;
use crate::event_loop::state::party::{Party, oldest_of_most};
use crate::token_file::Token;

/// HTTP connections, sessions, and the engine connections of both.
#[derive(Default)]
pub(crate) struct Endpoint {
    pub(super) peers: ConnMap<Box<HttpPeer>>,
    /// Number of connections of each party that had a head accepted.
    parties: BTreeMap<Party, usize>,
    /// Number of all of them.
    seated: usize,
    /// Number of connections that are beyond a limit.
    rejected: usize,
    pub(super) sessions: ConnMap<Box<Session>>,
    by_id: BTreeMap<SessionId, ConnId>,
    /// Number of sessions of each identity.
    owners: BTreeMap<Identity, usize>,
    /// Bytes that sessions keep for clients that come back.
    kept: Accounts,
    /// HTTP connections by the engine connection of their requests of 2026-07-28.
    pub(super) stateless: ConnMap<ConnId>,
    due: BTreeSet<(Instant, ConnId)>,
    /// HTTP connections that wait for the keys of an issuer.
    held: BTreeSet<ConnId>,
    /// Engine connections whose frames wait, as the engine was told.
    blocked: BTreeSet<ConnId>,
    /// Engine connections that end after their frames.
    closing: BTreeSet<ConnId>,
    /// Engine connections whose start is in the audit log.
    recorded: BTreeSet<ConnId>,
    /// Date of responses.
    pub(crate) date: Arc<HttpDate>,
    /// Name of this node in a fleet, in front of the ids of sessions.
    pub(crate) node: Option<Arc<str>>,
    /// Passes of the live view.
    pub(crate) passes: Arc<Mutex<Passes>>,
    /// Whether the daemon takes calls.
    pub(crate) health: Arc<Health>,
    /// Rules for peers whose process is being inspected, by ticket.
    inspected: BTreeMap<u64, Arc<HttpRules>>,
}

/// A deadline that has passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Peer(ConnId, Overdue),
    /// The session ends: its client was away for `session_idle`, or for `gone` (HTTP-04).
    Idle(ConnId),
}

/// An HTTP connection that was removed.
pub(crate) struct Removed {
    /// Engine connection of its requests of 2026-07-28.
    pub(crate) stateless: Option<(ConnId, Caller)>,
}

/// HTTP connections.
impl Endpoint {
    pub(crate) fn insert(&mut self, conn: ConnId, peer: HttpPeer) {
        if peer.is_rejected() {
            self.rejected += 1;
        }
        self.peers.insert(conn, Box::new(peer));
    }

    pub(crate) fn contains(&self, conn: ConnId) -> bool {
        self.peers.contains(conn)
    }

    pub(crate) fn peer(&self, conn: ConnId) -> Option<&HttpPeer> {
        self.peers.get(conn).map(|peer| &**peer)
    }

    pub(crate) fn peer_mut(&mut self, conn: ConnId) -> Option<&mut HttpPeer> {
        self.peers.get_mut(conn).map(|peer| &mut **peer)
    }

    /// Number of connections without the rejected ones of which no head was accepted.
    pub(crate) fn fresh_count(&self) -> usize {
        self.peers.len() - self.rejected - self.seated
    }

    /// Those connections with their parties; smaller ids are older.
    pub(crate) fn fresh(&self) -> Vec<(Party, ConnId)> {
        let fresh = |peer: &HttpPeer| peer.seat.is_none() && !peer.is_rejected();
        let all = self.peers.iter().filter(|(_, peer)| fresh(peer));
        all.map(|(conn, peer)| (Party::from(&peer.origin), conn)).collect()
    }

    /// Number of connections that had a head accepted.
    pub(crate) const fn seated(&self) -> usize {
        self.seated
    }

    /// Counts a connection as one of this party, whose head was accepted.
    pub(crate) fn seat(&mut self, conn: ConnId, party: Party) {
        let Some(peer) = self.peers.get_mut(conn) else { return };
        *self.parties.entry(party.clone()).or_default() += 1;
        match peer.seat.replace(party) {
            Some(before) => uncount(&mut self.parties, &before),
            None => self.seated += 1,
        }
    }

    /// The connection between two requests for longest: of this party, or of the party with most
    /// such connections.
    pub(crate) fn longest_kept(&self, party: Option<&Party>) -> Option<ConnId> {
        let kept = self.peers.iter().filter_map(|(conn, peer)| {
            let seat = peer.seat.clone().filter(|seat| party.is_none_or(|party| party == seat))?;
            Some((seat, (peer.kept_since()?, conn)))
        });
        oldest_of_most(kept.collect(), 0).map(|(_, conn)| conn)
    }

    /// Number of connections that are answered that they are beyond a limit.
    pub(crate) const fn rejected(&self) -> usize {
        self.rejected
    }

    pub(crate) fn peer_ids(&self) -> Vec<ConnId> {
        self.peers.ids()
    }

    /// Number of connections of a party that had a head accepted.
    pub(crate) fn count_of(&self, party: &Party) -> usize {
        self.parties.get(party).copied().unwrap_or_default()
    }

    /// Removes a closed connection. Its stream stays for a client that comes back (HTTP-07).
    pub(crate) fn remove(&mut self, conn: ConnId, now: Instant) -> Option<Removed> {
        let peer = self.peers.remove(conn)?;
        self.held.remove(&conn);
        if peer.is_rejected() {
            self.rejected -= 1;
        }
        if let Some(party) = &peer.seat {
            uncount(&mut self.parties, party);
            self.seated -= 1;
        }
        if let Some(at) = peer.due {
            self.due.remove(&(at, conn));
        }
        if let Some(Subject::Stream { session, stream }) = peer.exchange().map(|it| &it.subject) {
            let (key, stream) = (*session, *stream);
            if let Some(session) = self.sessions.get_mut(key)
                && session.peer_of(stream) == Some(conn)
            {
                session.detach(stream, now);
            }
            self.schedule_session(key);
        }
        if let Some((engine, _)) = &peer.stateless {
            self.stateless.remove(*engine);
        }
        Some(Removed { stateless: peer.stateless })
    }

    /// Sets the engine connection of a connection's requests of 2026-07-28.
    pub(crate) fn set_stateless(&mut self, conn: ConnId, engine: ConnId, caller: Caller) {
        let Some(peer) = self.peers.get_mut(conn) else { return };
        if let Some((before, _)) = peer.stateless.replace((engine, caller)) {
            self.stateless.remove(before);
        }
        self.stateless.insert(engine, conn);
    }

    /// The engine connection of a connection's requests of 2026-07-28 has ended.
    pub(crate) fn forget_stateless(&mut self, conn: ConnId) {
        let Some(peer) = self.peers.get_mut(conn) else { return };
        if let Some((engine, _)) = peer.stateless.take() {
            self.stateless.remove(engine);
        }
    }

    /// Notes a peer whose process is inspected before it is accepted.
    pub(crate) fn note_inspection(&mut self, ticket: u64, rules: Arc<HttpRules>) {
        self.inspected.insert(ticket, rules);
    }

    /// The rules for a peer whose process was inspected, if it is one of HTTP.
    pub(crate) fn take_inspection(&mut self, ticket: u64) -> Option<Arc<HttpRules>> {
        self.inspected.remove(&ticket)
    }

    /// Applies the rules of changed listeners: `rules_of` gives those of the listener that had
    /// these, `None` if it is gone.
    pub(crate) fn change_rules(
        &mut self,
        rules_of: impl Fn(&HttpRules) -> Option<Arc<HttpRules>>,
    ) -> Vec<ConnId> {
        let mut retired = Vec::new();
        for (conn, peer) in self.peers.iter_mut() {
            match rules_of(&peer.rules) {
                Some(rules) => peer.rules = rules,
                None => {
                    peer.retire();
                    retired.push(conn);
                }
            }
        }
        retired
    }
}

/// Sessions.
impl Endpoint {
    pub(crate) fn add_session(&mut self, key: ConnId, mut session: Session) {
        session.charge = self.kept.of(&session.identity).charge(0);
        self.by_id.insert(session.id, key);
        *self.owners.entry(session.identity.clone()).or_default() += 1;
        self.sessions.insert(key, Box::new(session));
        self.schedule_session(key);
    }

    pub(crate) fn session(&self, key: ConnId) -> Option<&Session> {
        self.sessions.get(key).map(|session| &**session)
    }

    pub(crate) fn session_mut(&mut self, key: ConnId) -> Option<&mut Session> {
        self.sessions.get_mut(key).map(|session| &mut **session)
    }

    /// The session with this id, if it belongs to the caller: the same identity with the same rights
    /// (HTTP-04).
    pub(crate) fn find_session(&self, id: &str, caller: &Caller) -> Option<ConnId> {
        let key = *self.by_id.get(&SessionId::read(id)?)?;
        let of_caller = (&caller.identity, caller.rights, &caller.profile);
        let session = self.sessions.get(key)?;
        let is_own = (&session.identity, session.rights, &session.profile) == of_caller;
        // Each id has one spelling.
        (is_own && session.shown_id() == id).then_some(key)
    }

    /// The node whose session this id is of, and this node, if they are different ones.
    pub(crate) fn other_node<'a>(&'a self, id: &'a str) -> Option<(&'a str, &'a str)> {
        let (there, _) = id.rsplit_once('.').filter(|_| SessionId::read(id).is_some())?;
        Some((there, self.node.as_deref()?)).filter(|(there, here)| there != here)
    }

    /// The rules of the listener that an engine connection of HTTP came by.
    pub(crate) fn rules_of(&self, engine: ConnId) -> Option<Arc<HttpRules>> {
        if let Some(session) = self.sessions.get(engine) {
            return Some(Arc::clone(&session.rules));
        }
        let peer = self.stateless.get(engine).and_then(|conn| self.peers.get(*conn))?;
        Some(Arc::clone(&peer.rules))
    }

    /// Notes that a connection waits for the keys of an issuer, if it does.
    pub(crate) fn note_held(&mut self, conn: ConnId) {
        if self.peers.get(conn).is_some_and(|peer| peer.is_held()) {
            self.held.insert(conn);
        }
    }

    /// The connections that wait for keys.
    pub(crate) fn take_held(&mut self) -> BTreeSet<ConnId> {
        std::mem::take(&mut self.held)
    }

    pub(crate) fn sessions_of(&self, identity: &Identity) -> usize {
        self.owners.get(identity).copied().unwrap_or_default()
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// The session of an identity whose client has been away longest, among those that `may_end`.
    pub(crate) fn longest_away(
        &self,
        identity: &Identity,
        may_end: impl Fn(ConnId) -> bool,
    ) -> Option<ConnId> {
        let own = self.sessions.iter().filter(|(_, it)| it.identity == *identity);
        let away = own.filter(|(key, session)| !session.is_attached() && may_end(*key));
        away.min_by_key(|(_, session)| session.last_use()).map(|(key, _)| key)
    }

    pub(crate) fn remove_session(&mut self, key: ConnId) -> Option<Box<Session>> {
        let session = self.sessions.remove(key)?;
        self.by_id.remove(&session.id);
        uncount(&mut self.owners, &session.identity);
        if let Some(at) = session.due {
            self.due.remove(&(at, key));
        }
        Some(session)
    }

    pub(crate) fn has_sessions(&self) -> bool {
        !self.sessions.is_empty()
    }
}

/// Engine connections.
impl Endpoint {
    /// Whether an engine connection is one of a session or of requests of 2026-07-28.
    pub(crate) fn is_engine_side(&self, engine: ConnId) -> bool {
        self.sessions.contains(engine) || self.stateless.contains(engine)
    }

    /// HTTP connection of an engine connection of requests of 2026-07-28.
    pub(crate) fn stateless_peer(&self, engine: ConnId) -> Option<ConnId> {
        self.stateless.get(engine).copied()
    }

    /// Number of engine connections of sessions and of requests of 2026-07-28.
    pub(crate) fn engine_count(&self) -> usize {
        self.sessions.len() + self.stateless.len()
    }

    pub(crate) fn engine_ids(&self) -> Vec<ConnId> {
        [self.sessions.ids(), self.stateless.ids()].concat()
    }

    /// Engine connections of sessions and requests that were authenticated by a token that
    /// `is_revoked`.
    pub(crate) fn with_token(&self, is_revoked: impl Fn(&Token) -> bool) -> Vec<ConnId> {
        let sessions = self
            .sessions
            .iter()
            .filter(|(_, session)| session.token.as_ref().is_some_and(|token| is_revoked(token)));
        let peers = self.peers.iter().filter_map(|(_, peer)| {
            let (engine, caller) = peer.stateless.as_ref()?;
            caller.token.as_ref().filter(|token| is_revoked(token)).map(|_| *engine)
        });
        sessions.map(|(key, _)| key).chain(peers).collect()
    }

    /// Engine connections of browsers that opened a link of the live view.
    pub(crate) fn with_link(&self) -> Vec<ConnId> {
        let callers = self.peers.iter().filter_map(|(_, peer)| peer.stateless.as_ref());
        callers.filter(|(_, caller)| caller.view.is_some()).map(|(engine, _)| *engine).collect()
    }

    /// Notes whether frames of an engine connection wait, as the engine is told. Returns the state
    /// that it was told before.
    pub(crate) fn note_told(&mut self, engine: ConnId, is_blocked: bool) -> bool {
        if is_blocked { !self.blocked.insert(engine) } else { self.blocked.remove(&engine) }
    }

    /// Ends an engine connection after its frames.
    pub(crate) fn note_closing(&mut self, engine: ConnId) {
        self.closing.insert(engine);
    }

    pub(crate) fn is_closing(&self, engine: ConnId) -> bool {
        self.closing.contains(&engine)
    }

    pub(crate) fn note_recorded(&mut self, engine: ConnId) {
        if self.is_engine_side(engine) {
            self.recorded.insert(engine);
        }
    }

    /// Forgets an engine connection that ends. Returns whether its start is in the audit log.
    pub(crate) fn forget_engine_side(&mut self, engine: ConnId) -> bool {
        self.blocked.remove(&engine);
        self.closing.remove(&engine);
        self.recorded.remove(&engine)
    }

    /// The engine connection of the response on a connection, if frames of it wait.
    pub(crate) fn waiting_engine_side(&self, conn: ConnId) -> Option<ConnId> {
        let peer = self.peers.get(conn).filter(|peer| peer.has_room())?;
        let engine = match peer.exchange().map(|exchange| &exchange.subject) {
            Some(Subject::Stream { session, .. }) => *session,
            Some(Subject::Stateless { .. } | Subject::View { .. }) => peer.stateless.as_ref()?.0,
            None => return None,
        };
        self.blocked.contains(&engine).then_some(engine)
    }

    /// HTTP connections whose output holds back frames of an engine connection.
    pub(crate) fn blockers(&self, engine: ConnId) -> Vec<ConnId> {
        let peers = match self.sessions.get(engine) {
            Some(session) => session.peers(),
            None => self.stateless.get(engine).copied().into_iter().collect(),
        };
        let is_full = |conn: &ConnId| self.peers.get(*conn).is_some_and(|peer| !peer.has_room());
        peers.into_iter().filter(is_full).collect()
    }
}

/// Deadlines.
impl Endpoint {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Notes the deadline of a connection anew.
    pub(crate) fn schedule(&mut self, conn: ConnId, write_stall: Duration) {
        let Some(peer) = self.peers.get_mut(conn) else { return };
        let due = peer.deadline(write_stall);
        if is_early(peer.due, due) {
            return;
        }
        if let Some(at) = std::mem::replace(&mut peer.due, due) {
            self.due.remove(&(at, conn));
        }
        self.due.extend(due.map(|at| (at, conn)));
    }

    /// Notes the deadline of a session anew.
    pub(crate) fn schedule_session(&mut self, key: ConnId) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let due = Some(session.deadline());
        if is_early(session.due, due) {
            return;
        }
        if let Some(at) = std::mem::replace(&mut session.due, due) {
            self.due.remove(&(at, key));
        }
        self.due.extend(due.map(|at| (at, key)));
    }

    /// Takes a deadline that has passed.
    pub(crate) fn take_due(&mut self, now: Instant, write_stall: Duration) -> Option<Due> {
        loop {
            let (at, conn) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
            self.due.remove(&(at, conn));
            if let Some(peer) = self.peers.get_mut(conn) {
                peer.due = None;
                let overdue = peer.overdue(now, write_stall);
                if overdue != Overdue::No {
                    return Some(Due::Peer(conn, overdue));
                }
                self.schedule(conn, write_stall);
            } else if let Some(session) = self.sessions.get_mut(conn) {
                session.due = None;
                session.forget_old(now);
                if session.is_idle(now) {
                    return Some(Due::Idle(conn));
                }
                if session.deadline() <= now {
                    session.touch(now);
                }
                self.schedule_session(conn);
            }
        }
    }
}

/// Whether the entry of a deadline may stay, as it is not later than the deadline. Requests put
/// deadlines off; an early entry is looked at once and then moved.
fn is_early(entry: Option<Instant>, due: Option<Instant>) -> bool {
    entry.is_some_and(|entry| due.is_none_or(|due| entry <= due)) || entry == due
}

/// Takes one from the count of a key.
fn uncount<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
