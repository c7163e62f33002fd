//! HTTP connections: accepting and reading them, and their deadlines.

use std::io;
use std::sync::Arc;
use std::thread;

use ceased_core::event::Event;
use ceased_core::identity::{Identity, Rights};
use ceased_core::ids::ConnId;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::time::{Instant, Now};
use ceased_transports::http::{HttpLimits, Response, Status};
use ceased_transports::{Flow, Link, Transport};

use super::mailbox::Report;
use super::server::Server;
use super::state::auth;
use super::state::connections::Sending;
use super::state::party::{Party, oldest_of_most};
use super::state::read_scheduler::Cost;
use super::state::record_limiter::RecordKind;
use super::state::shutdown::Stopping;
use crate::access::Entry;
use crate::http::access::{Caller, HttpRules};
use crate::http::endpoint::Due;
use crate::http::pages::Serves;
use crate::http::peer::{HttpPeer, Overdue};
use crate::peer_identity::InspectedPeer;

/// Requests of one connection that are taken in one turn.
const REQUESTS_MAX: usize = 64;
/// Name of the limit on connections of one address.
const PER_ADDRESS: &str = "connections_per_address";

/// Accepting.
impl Server {
    /// Accepts an HTTP peer; identities are of its requests. One on a Unix socket whose process may
    /// be inside a job is inspected first (SEC-05).
    pub(super) fn let_in_http(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        rules: Arc<HttpRules>,
    ) -> io::Result<()> {
        match rules.access.decide(transport.peer()) {
            Entry::As(identity @ Identity::User(_)) if rules.serves == Serves::Endpoint => {
                self.admit_user_of_http(now, transport, identity, rules)
            }
            Entry::As(_) | Entry::Authenticate(_) | Entry::Refuse(_) => {
                self.admit_http(now, transport, rules, None)
            }
        }
    }

    /// Adds an HTTP connection. While none of its heads is accepted it has a place among the
    /// unauthenticated ones, which it takes from the oldest of the party with most of them.
    pub(super) fn admit_http(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        rules: Arc<HttpRules>,
        inspected: Option<InspectedPeer>,
    ) -> io::Result<()> {
        let max = self.handshake_limits().authenticating;
        if self.http.fresh_count() >= max
            && let Some(oldest) = oldest_of_most(self.http.fresh(), max)
        {
            tracing::debug!(conn = %oldest, "closed: without a request for longest");
            self.drop_peer(now, oldest);
        }
        self.add_http(now, transport, rules, inspected, None)
    }

    /// Counts a connection as one of the caller whose head it sent, if need be in the place of one
    /// that waits between two requests; or the response, if there is no place.
    fn seat_http(&mut self, now: Now, conn: ConnId, caller: &Caller) -> Result<(), Response> {
        let Some(peer) = self.http.peer(conn) else { return Ok(()) };
        if peer.serves_numbers() {
            // It stays among the connections without an identity, for which places are reserved.
            return Ok(());
        }
        let (rules, origin) = (Arc::clone(&peer.rules), peer.origin.clone());
        let party = Party::of(&caller.identity, &origin);
        if peer.is_seated_as(&party) {
            return Ok(());
        }
        let limits = self.settings.limits;
        let own = self.http.count_of(&party);
        let address = (PER_ADDRESS, rules.connections_per_address, Status::TooManyRequests);
        let share = ("connections_per_identity", limits.connections_per_identity_max, address.2);
        let bound = match &caller.identity {
            Identity::Anonymous => address,
            Identity::User(_) if address.1 <= share.1 => address,
            Identity::User(_) | Identity::Token(_) | Identity::Subject(_) => share,
        };
        let engine = self.engine.occupancy().connections;
        let all = self.http.seated() + engine.saturating_sub(self.http.engine_count());
        let (limit, replaced) = if own >= bound.1 {
            (bound, self.http.longest_kept(Some(&party)))
        } else if all >= limits.connections_max {
            let limit = ("connections", limits.connections_max, Status::Unavailable);
            (limit, self.http.longest_kept(None))
        } else {
            self.seat_as(conn, party);
            return Ok(());
        };
        let operators = &self.settings.operators;
        let is_operator = caller.rights == Rights::Full && operators.contains(&caller.identity);
        if let Some(kept) = replaced.filter(|kept| *kept != conn) {
            tracing::debug!(conn = %kept, limit = limit.0, "closed: between two requests");
            self.drop_peer(now, kept);
        } else if !is_operator || own >= limits.operator_connections {
            let (name, max, status) = limit;
            let why = format!("limit reached: {name} = {max}: close a connection, or try again");
            let kind = RecordKind::Limit(name);
            self.record_refusal(now, Some(conn), caller.identity.clone(), &origin, kind, &why);
            return Err(Response::text(status, &why).header("retry-after", "1"));
        }
        self.seat_as(conn, party);
        Ok(())
    }

    /// Counts a connection as one of a party, and reads it as those of known callers from now on.
    fn seat_as(&mut self, conn: ConnId, party: Party) {
        self.http.seat(conn, party);
        self.connections.set_stranger(conn, false);
    }

    /// Gives a connection a place as soon as a head is accepted, before the body has arrived.
    fn seat_early(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.http.peer(conn) else { return };
        let Some(caller) = peer.caller_of_body().cloned() else { return };
        if let Err(response) = self.seat_http(now, conn, &caller)
            && let Some(peer) = self.http.peer_mut(conn)
        {
            peer.refuse_body(&response);
        }
    }

    /// Rejects an HTTP peer on a Unix socket, whose process has no identity here (SEC-05).
    pub(super) fn refuse_http(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        rules: Arc<HttpRules>,
        (identity, kind): (Identity, RecordKind),
        why: &str,
    ) -> io::Result<()> {
        let origin = transport.peer().clone();
        if self.record_refusal(now, None, identity, &origin, kind, why) {
            tracing::warn!(peer = %origin, %why, "refused");
        }
        let rejection = Response::text(Status::Forbidden, why);
        self.add_http(now, transport, rules, None, Some(rejection))
    }

    /// Adds an HTTP connection, which is answered `rejection` at once, if any, and closed.
    fn add_http(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        rules: Arc<HttpRules>,
        inspected: Option<InspectedPeer>,
        rejection: Option<Response>,
    ) -> io::Result<()> {
        if rejection.is_some() && self.http.rejected() >= self.handshake_limits().rejected {
            // Closed without a response, which would cost as much as the limit saves.
            return Ok(());
        }
        let transport = match &rules.secure {
            Some(secure) => secure.accept(transport)?,
            None => transport,
        };
        let origin = transport.peer().clone();
        let limits = HttpLimits {
            body_bytes: self.settings.limits.frames.frame_bytes_max,
            ..HttpLimits::default()
        };
        let link = Link::new(transport, self.settings.limits.frames);
        let conn = self.add_stranger(link)?;
        let shared = (Arc::clone(&self.http.passes), Arc::clone(&self.http.health));
        let dated = (limits, Arc::clone(&self.http.date));
        let peer = HttpPeer::new(rules, origin, inspected, shared, dated, now.at);
        let peer = match rejection {
            Some(response) => peer.reject(response),
            None => peer,
        };
        self.http.insert(conn, peer);
        self.http.schedule(conn, self.settings.limits.write_stall);
        Ok(())
    }
}

/// Reading.
impl Server {
    /// Reads a bounded amount from an HTTP connection; returns its cost.
    pub(super) fn read_http(&mut self, now: Now, conn: ConnId) -> Cost {
        let looked = Cost::reading(1, 0);
        // Requests that were sent ahead.
        self.take_http_requests(now, conn);
        let Some(peer) = self.http.peer_mut(conn) else { return looked };
        if !peer.wants_input() {
            // It is read on after the response that is due.
            self.note_http_output(now, conn);
            return looked;
        }
        let mut sink = |bytes: &[u8]| peer.receive(bytes);
        let received = self.connections.receive_bytes(conn, now.at, &mut self.scratch, &mut sink);
        let Some((flow, cost)) = received else { return looked };
        if peer.take_wrong_token() {
            self.note_wrong_token(now, conn);
        }
        self.read_keys(conn);
        self.seat_early(now, conn);
        self.take_http_requests(now, conn);
        match flow {
            Ok(Flow::Drained) => {}
            Ok(Flow::More) => self.connections.note_readable(conn),
            Ok(Flow::Finished) => self.note_half_close(now, conn),
            Err(lost) => {
                tracing::debug!(%conn, %lost, "lost");
                self.drop_peer(now, conn);
            }
        }
        self.note_partial(now, conn);
        self.note_http_output(now, conn);
        cost
    }

    /// Begins the reads of keys that the tokens of a connection need.
    fn read_keys(&mut self, conn: ConnId) {
        let Some(peer) = self.http.peer(conn) else { return };
        let Some(signed) = peer.rules.signed.clone() else { return };
        for read in signed.take_fetches() {
            let reports = self.reports.clone();
            let thread = thread::Builder::new().name("ceased-keys".into());
            let started = thread.spawn(move || {
                read();
                reports.send(Report::KeysRead);
            });
            if let Err(why) = started {
                tracing::warn!(%why, "no thread to read the keys of an issuer");
                self.reports.send(Report::KeysRead);
            }
        }
        self.http.note_held(conn);
    }

    /// Keys of an issuer were read, or could not be: the connections that wait for them go on.
    pub(super) fn take_keys(&mut self, now: Now) {
        for conn in self.http.take_held() {
            let Some(peer) = self.http.peer_mut(conn) else { continue };
            peer.release();
            if peer.take_wrong_token() {
                self.note_wrong_token(now, conn);
            }
            self.read_keys(conn);
            self.seat_early(now, conn);
            self.take_http_requests(now, conn);
            self.connections.note_readable(conn);
            self.note_http_output(now, conn);
        }
    }

    /// Handles the whole requests of a connection, in order.
    pub(super) fn take_http_requests(&mut self, now: Now, conn: ConnId) {
        for _ in 0..REQUESTS_MAX {
            let Some(peer) = self.http.peer_mut(conn) else { return };
            if peer.exchange().is_some() {
                return;
            }
            let Some((request, caller)) = peer.take_request() else { return };
            let expires = caller.signed.as_ref().map(|signed| now.at + signed.valid_for);
            let seat = self.seat_http(now, conn, &caller);
            match (seat, self.http.peer_mut(conn)) {
                (Ok(()), _) => self.on_http_request(now, conn, request, caller),
                (Err(_), None) => return,
                (Err(response), Some(peer)) => {
                    peer.output().close_after_response();
                    peer.answer(&request.head, response);
                }
            }
            let Some(peer) = self.http.peer_mut(conn) else { return };
            peer.expires = expires;
            if self.stopping != Stopping::No {
                peer.output().close_after_response();
            }
            if peer.exchange().is_some() {
                return;
            }
            peer.advance();
            if peer.take_wrong_token() {
                self.note_wrong_token(now, conn);
            }
        }
        self.connections.note_readable(conn);
    }

    /// Delays the answer to a wrong token, as on other listeners, and records it.
    fn note_wrong_token(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.http.peer_mut(conn) else { return };
        let origin = peer.origin.clone();
        let delay = self.wrong_http_tokens.note(now.at, Party::from(&origin));
        peer.held_until = (!delay.is_zero()).then(|| now.at + delay);
        let (identity, kind) = (Identity::Anonymous, RecordKind::Refuse(auth::WRONG_TOKEN));
        if self.record_refusal(now, Some(conn), identity, &origin, kind, auth::WRONG_TOKEN) {
            tracing::warn!(%conn, peer = %origin, "not authenticated: wrong token");
        }
    }

    /// Handles the end of a client's input. A client may close only its side, so that the request
    /// goes on until a write shows that the client is gone (HTTP-08).
    fn note_half_close(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.http.peer_mut(conn) else { return };
        if peer.note_end_of_input() {
            return self.drop_peer(now, conn);
        }
        if peer.exchange().is_some() {
            // A client that is gone answers the first write with a reset.
            self.http.start_events(conn);
            let Some(peer) = self.http.peer_mut(conn) else { return };
            peer.probe();
            peer.note_phase(now.at, true);
        }
    }

    /// Notes that an HTTP connection may have output, and its deadline.
    pub(super) fn note_http_output(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.http.peer_mut(conn) else { return };
        peer.note_phase(now.at, false);
        if !peer.awaits_answer() {
            self.connections.note_output(conn, Sending::More);
        }
        self.http.schedule(conn, self.settings.limits.write_stall);
    }
}

/// Deadlines.
impl Server {
    /// Handles HTTP connections and sessions past their deadlines.
    pub(super) fn take_http_time(&mut self, now: Now) {
        let stall = self.settings.limits.write_stall;
        while let Some(due) = self.http.take_due(now.at, stall) {
            match due {
                Due::Peer(conn, Overdue::Close) => self.drop_peer(now, conn),
                Due::Peer(conn, Overdue::StartStream) => {
                    self.http.start_events(conn);
                    self.note_stream_output(now.at, conn);
                }
                Due::Peer(conn, Overdue::Probe) => {
                    if let Some(peer) = self.http.peer_mut(conn) {
                        peer.probe();
                    }
                    self.note_stream_output(now.at, conn);
                }
                Due::Peer(conn, Overdue::Refresh) => self.ask_for_status(now, conn),
                Due::Peer(conn, Overdue::Release) => {
                    if let Some(peer) = self.http.peer_mut(conn) {
                        peer.held_until = None;
                        // The client has the time of a linger from now on.
                        peer.note_phase(now.at, true);
                    }
                    self.note_http_output(now, conn);
                }
                Due::Peer(conn, Overdue::Expire) => self.expire_http(now, conn),
                Due::Peer(_, Overdue::No) => {}
                Due::Idle(session) => {
                    tracing::debug!(%session, "session ended: its client was away for session_idle, or gone");
                    self.end_session(now, session);
                }
            }
        }
    }

    /// Ends the response to a request whose token has expired; its work ends with it, unless a session
    /// goes on.
    fn expire_http(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.http.peer_mut(conn) else { return };
        tracing::debug!(%conn, "the token of a request has expired");
        peer.expire();
        if let Some((engine, _)) = peer.stateless {
            self.http.forget_stateless(conn);
            self.close_engine_side(now, engine, (0, 0));
        }
        self.note_http_output(now, conn);
    }

    /// Asks the engine for the status that the live view on a connection shows next.
    pub(super) fn ask_for_status(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.http.peer_mut(conn) else { return };
        peer.end_unserved_view();
        match peer.next_status_request() {
            Some((engine, frame)) => {
                let event = Event::Frame { conn: engine, frame: frame.as_bytes() };
                self.engine.handle(now, event, &mut self.actions);
            }
            None => return self.finish_http_output(now, conn),
        }
        self.http.schedule(conn, self.settings.limits.write_stall);
    }

    fn note_stream_output(&mut self, now: Instant, conn: ConnId) {
        if let Some(peer) = self.http.peer_mut(conn) {
            peer.note_phase(now, true);
        }
        self.connections.note_output(conn, Sending::More);
        self.http.schedule(conn, self.settings.limits.write_stall);
    }

    /// Answers a peer whose request takes longer than `frame_time`. Returns whether it is an HTTP
    /// connection.
    pub(super) fn give_up_http(&mut self, now: Now, conn: ConnId) -> bool {
        let Some(peer) = self.http.peer_mut(conn) else { return false };
        peer.give_up();
        self.note_http_output(now, conn);
        true
    }
}

/// The text of a limit as an error.
pub(super) fn limit_error(name: &str, max: usize, remedy: &str) -> ErrorObject {
    let message = format!("limit reached: {name} = {max}: {remedy}");
    ErrorObject::new(ceased_core::rpc::error::code::LIMIT_REACHED, message)
}
