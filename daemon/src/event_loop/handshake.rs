//! Connections before authentication, and rejected ones. Bounded in number, input and lifetime.
//!
//! Unauthenticated connections share their places by party: a new one evicts the oldest of the
//! party with most. After some wrong tokens of a party, answers to further ones are delayed, and
//! their number per party is bounded; other parties are not affected.

use super::peer::Peer;

use super::constants::LAST_FLUSH;
use super::peer::{Backlog, Held, Sending, Stage};
use super::server::Server;
use super::shutdown::Stopping;

use std::io;

use ceased_core::event::Event;
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::limits::ConnectionLimit;
use ceased_core::limits::FrameLimits;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::rpc::frame::Frame;
use ceased_core::time::Now;
use ceased_transports::{Flow, Link, Peer as Origin, Sent, Transport};

use super::auth::{self, TokenHandshake, Verdict};
use super::origin::{self, Party};
use super::repeats::Kind;
use crate::access::{Entry, TokenAccess};
use crate::scarcity;

/// Reason of rejecting a peer that may not use the listener.
const NOT_ALLOWED: &str = "not allowed on this listener";
/// Reason of evicting an unauthenticated peer.
const WAITED_LONGEST: &str = "evicted while waiting for a token";

impl Server {
    /// Accepts a peer, requests authentication, or rejects it.
    pub(super) fn let_in(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        entry: Entry,
    ) -> io::Result<()> {
        match entry {
            Entry::As(identity) => self.admit_user(now, transport, identity),
            Entry::Authenticate(access) => self.ask(now, transport, access),
            Entry::Refuse(why) => {
                let identity = match transport.peer() {
                    Origin::Unix { uid, .. } | Origin::Stdio { uid } => Identity::User(*uid),
                    Origin::Tcp { .. } | Origin::Child { .. } => Identity::Anonymous,
                };
                let error = ErrorObject::new(code::FORBIDDEN, why);
                self.refuse(now, transport, identity, Kind::Refuse(NOT_ALLOWED), &error)
            }
        }
    }

    /// Rejects a peer because of a limit on connections.
    pub(super) fn refuse_connection(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        limit: ConnectionLimit,
    ) -> io::Result<()> {
        self.refuse(now, transport, identity, Kind::Limit(limit.name), &limit.error())
    }

    fn ask(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        access: TokenAccess,
    ) -> io::Result<()> {
        let max = self.settings.limits.connections_max;
        if self.engine.occupancy().connections >= max {
            let limit = ConnectionLimit { name: "connections", max };
            return self.refuse_connection(now, transport, Identity::Anonymous, limit);
        }
        self.make_place_at_gate(now);
        let limits = if access.anonymous {
            self.settings.limits.frames
        } else {
            FrameLimits { frame_bytes_max: auth::BYTES_MAX }
        };
        let until = now.at + self.authenticate_within;
        let link = Link::new(transport, limits);
        let conn = self.watch(
            link,
            false,
            Stage::Authenticating(Box::new(TokenHandshake { access, until })),
        )?;
        self.strangers.insert((until, conn));
        Ok(())
    }

    /// Evicts the oldest unauthenticated connection of the party with most of them if the limit is
    /// reached, so that no other party loses a place.
    fn make_place_at_gate(&mut self, now: Now) {
        let gated = self.strangers_that(|stage| matches!(stage, Stage::Authenticating(_)));
        let gated = gated.map(|(conn, peer)| (Party::from(peer.link.peer()), conn)).collect();
        let Some(oldest) = origin::oldest_of_most(gated, self.bounds().authenticating) else {
            return;
        };
        let Some(peer) = self.links.get(&oldest) else { return };
        let origin = peer.link.peer().clone();
        let message = "closed: too many connections have not presented a token, and this one \
                       waited longest";
        let error = ErrorObject::new(code::LIMIT_REACHED, message);
        let (anonymous, kind) = (Identity::Anonymous, Kind::Refuse(WAITED_LONGEST));
        self.record_refusal(now, Some(oldest), anonymous, &origin, kind, message);
        self.dismiss(now, oldest, &auth::error_answer("null", &error));
    }

    /// Rejects a peer. It is sent the reason, unless too many rejected peers are pending.
    pub(super) fn refuse(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        kind: Kind,
        error: &ErrorObject,
    ) -> io::Result<()> {
        let peer = transport.peer().clone();
        let conn = if self.dismissed() >= self.bounds().rejected {
            None
        } else {
            let link = Link::new(transport, FrameLimits { frame_bytes_max: auth::BYTES_MAX });
            Some(self.watch(link, false, Stage::Rejected(now.at))?)
        };
        let why = &error.message;
        let is_news = self.record_refusal(now, conn, identity, &peer, kind, why);
        if is_news && kind.limit().is_none() {
            tracing::warn!(%peer, %why, "refused");
        }
        if let Some(conn) = conn {
            self.dismiss(now, conn, &auth::error_answer("null", error));
        }
        Ok(())
    }

    pub(super) fn bounds(&self) -> scarcity::HandshakeLimits {
        scarcity::handshake_limits(&self.settings.limits)
    }

    /// Connections in these stages; always few.
    fn strangers_that(&self, is: impl Fn(&Stage) -> bool) -> impl Iterator<Item = (ConnId, &Peer)> {
        let known = self.strangers.iter().filter_map(|(_, conn)| {
            let peer = self.links.get(conn)?;
            Some((*conn, peer.as_ref()))
        });
        known.filter(move |(_, peer)| is(&peer.stage))
    }

    /// Number of pending rejected peers.
    fn dismissed(&self) -> usize {
        self.strangers_that(|stage| matches!(stage, Stage::Rejected(_))).count()
    }

    /// Whether the limit of delayed answers of a party is reached, so that its next token must
    /// wait.
    fn is_held_up(&self, party: &Party) -> bool {
        let (mut all, mut own) = (0, 0);
        for (_, peer) in self.strangers_that(|stage| matches!(stage, Stage::Held(_))) {
            all += 1;
            own += usize::from(Party::from(peer.link.peer()) == *party);
        }
        let max = self.bounds().delayed;
        own >= max / 2 || all >= max
    }

    /// After an answer of a party was sent: checks the waiting tokens.
    pub(super) fn go_on_judging(&mut self, party: &Party) {
        let gated = self.strangers_that(|stage| matches!(stage, Stage::Authenticating(_)));
        let own = gated.filter(|(_, peer)| Party::from(peer.link.peer()) == *party);
        let waiting: Vec<ConnId> = own.map(|(conn, _)| conn).collect();
        waiting.into_iter().for_each(|conn| self.note_ready(conn));
    }

    /// Delays the rejection of a peer, longer for each recent one of its party.
    fn hold_back(&mut self, now: Now, conn: ConnId, answer: Vec<u8>) {
        let Some(peer) = self.links.get_mut(&conn) else { return };
        let delay = self.guesses.note(now.at, Party::from(peer.link.peer()));
        if delay.is_zero() {
            return self.dismiss(now, conn, &answer);
        }
        let until = now.at + delay;
        peer.stage = Stage::Held(Box::new(Held { until, answer }));
        self.strangers.insert((until, conn));
    }

    /// Sends a final message to a peer and gives it a moment to read it; closes it at once if the
    /// limit of such peers is reached.
    fn dismiss(&mut self, now: Now, conn: ConnId, answer: &[u8]) {
        let is_crowded = self.dismissed() >= self.bounds().rejected;
        let Some(peer) = self.links.get_mut(&conn) else { return };
        if let Some(until) = peer.stage.until() {
            self.strangers.remove(&(until, conn));
        }
        let until = now.at + LAST_FLUSH;
        peer.stage = Stage::Rejected(until);
        if is_crowded {
            return self.drop_peer(now, conn);
        }
        peer.greet(answer);
        self.unsent.push((conn, Sending::More));
        self.strangers.insert((until, conn));
    }

    /// Reads input of an unauthenticated peer and checks the first frame.
    pub(super) fn take_words(&mut self, now: Now, conn: ConnId) {
        let depth = self.settings.limits.depth_max;
        let held_up = match self.links.get(&conn) {
            Some(peer) if matches!(peer.stage, Stage::Authenticating(_)) => {
                self.is_held_up(&Party::from(peer.link.peer()))
            }
            Some(_) => false,
            None => return,
        };
        if held_up {
            // It is read when an answer of its party was sent.
            return;
        }
        let Some(peer) = self.links.get_mut(&conn) else { return };
        let (mut verdict, mut rest) = (None, Vec::new());
        let (received, until) = match &peer.stage {
            Stage::Open(_) => return,
            Stage::Held(_) | Stage::Rejected(_) => {
                (peer.link.receive(words(&mut self.scratch), WORDS, &mut |_: Frame<'_>| {}), None)
            }
            Stage::Authenticating(gate) => {
                let received =
                    peer.link.receive(words(&mut self.scratch), WORDS, &mut |frame: Frame<'_>| {
                        if verdict.is_none() {
                            let found = gate.judge(&frame, depth);
                            if matches!(found, Verdict::Anonymous) {
                                rest.push(BufferedFrame::new(&frame));
                            }
                            verdict = Some(found);
                        } else {
                            rest.push(BufferedFrame::new(&frame));
                        }
                    });
                (received, Some(gate.until))
            }
        };
        if let Some(verdict) = verdict {
            if let Some(until) = until {
                self.strangers.remove(&(until, conn));
            }
            self.decide(now, conn, verdict, &rest);
        }
        match received {
            Ok(Flow::Drained) => {}
            Ok(Flow::More) => self.note_ready(conn),
            Ok(Flow::Finished) => match self.links.get(&conn).map(Box::as_ref) {
                Some(Peer { stage: Stage::Open(_), .. }) => self.finished(now, conn),
                // It is closed when the final message was sent.
                Some(
                    Peer { stage: Stage::Held(_), .. }
                    | Peer { stage: Stage::Rejected(_), backlog: Some(_), .. },
                ) => {}
                Some(_) | None => self.drop_peer(now, conn),
            },
            Err(_) => self.drop_peer(now, conn),
        }
    }

    /// Applies the result of checking a peer.
    fn decide(&mut self, now: Now, conn: ConnId, verdict: Verdict, rest: &[BufferedFrame]) {
        let identity = verdict.identity();
        let Some(peer) = self.links.get(&conn) else { return };
        let origin = peer.link.peer().clone();
        if let Some(identity) = &identity
            && let Some(limit) = self.engine.connection_limit(identity)
        {
            let (error, kind) = (limit.error(), Kind::Limit(limit.name));
            self.record_refusal(now, Some(conn), identity.clone(), &origin, kind, &error.message);
            return self.dismiss(now, conn, &auth::error_answer("null", &error));
        }
        match (verdict, identity) {
            (Verdict::Known { token, answer }, Some(identity)) => {
                let Some(peer) = self.links.get_mut(&conn) else { return };
                peer.greet(&answer);
                peer.stage = Stage::Open(Some(token));
                self.record_connect(now, conn, &identity, &origin, None);
                self.unsent.push((conn, Sending::More));
                self.serve(now, conn, identity, rest);
            }
            (Verdict::Anonymous, Some(identity)) => {
                if let Some(peer) = self.links.get_mut(&conn) {
                    peer.stage = Stage::Open(None);
                }
                self.record_connect(now, conn, &identity, &origin, None);
                self.serve(now, conn, identity, rest);
            }
            (Verdict::Refused { answer, why }, _) => {
                let (anonymous, kind) = (Identity::Anonymous, Kind::Refuse(why));
                if self.record_refusal(now, Some(conn), anonymous, &origin, kind, why) {
                    tracing::warn!(%conn, peer = %origin, why, "not authenticated");
                }
                match why {
                    auth::WRONG_TOKEN => self.hold_back(now, conn, answer),
                    _ => self.dismiss(now, conn, &answer),
                }
            }
            (Verdict::Known { .. } | Verdict::Anonymous, None) => {}
        }
    }

    fn serve(&mut self, now: Now, conn: ConnId, identity: Identity, rest: &[BufferedFrame]) {
        if let Some(peer) = self.links.get_mut(&conn) {
            peer.link.set_frame_limits(self.settings.limits.frames);
        }
        self.open(now, conn, identity);
        for said in rest {
            self.engine.handle(now, said.event(conn), &mut self.actions);
        }
    }

    /// Closes connections past their deadline.
    pub(super) fn dismiss_overdue(&mut self, now: Now) {
        while let Some((at, conn)) = self.strangers.first().copied().filter(|(at, _)| *at <= now.at)
        {
            self.strangers.remove(&(at, conn));
            let verdict = match self.links.get_mut(&conn).map(|peer| &mut peer.stage) {
                Some(Stage::Authenticating(gate)) => gate.expire(),
                Some(Stage::Held(held)) => {
                    let answer = std::mem::take(&mut held.answer);
                    let party = self.links.get(&conn).map(|peer| Party::from(peer.link.peer()));
                    self.dismiss(now, conn, &answer);
                    if let Some(party) = party {
                        self.go_on_judging(&party);
                    }
                    continue;
                }
                Some(Stage::Rejected(_)) => {
                    self.drop_peer(now, conn);
                    continue;
                }
                Some(Stage::Open(_)) | None => continue,
            };
            self.decide(now, conn, verdict, &[]);
        }
    }

    /// Sends pending output from before the engine; true when all is sent.
    pub(super) fn send_greeting(&mut self, now: Now, conn: ConnId) -> bool {
        let Some(peer) = self.links.get_mut(&conn) else { return false };
        let Some(Backlog::Greeting(greeting)) = peer.backlog.as_deref_mut() else { return true };
        match peer.link.send(greeting, self.poll.registry()) {
            Sent::Everything => peer.backlog = None,
            Sent::Blocked => return false,
            Sent::Lost => {
                self.note_ready(conn);
                return false;
            }
        }
        if matches!(peer.stage, Stage::Rejected(_)) {
            // It reads the message and then end of file; closing at once could discard the message.
            let _ = peer.link.finish();
            if peer.link.is_read_finished() {
                // Nothing can be lost here: the peer has closed its side.
                self.drop_peer(now, conn);
                return false;
            }
        }
        true
    }

    /// Closes the connections whose token was revoked.
    pub(super) fn drop_revoked(&mut self, now: Now) {
        if self.stopping != Stopping::No {
            // The listeners are closed; remaining peers may still be answered.
            return;
        }
        let revoked: Vec<ConnId> = self
            .links
            .iter()
            .filter(|(_, peer)| match &peer.stage {
                Stage::Open(Some(token)) => {
                    !self.doors.iter().any(|door| door.access.still_accepts(token))
                }
                Stage::Open(None)
                | Stage::Authenticating(_)
                | Stage::Held(_)
                | Stage::Rejected(_) => false,
            })
            .map(|(conn, _)| *conn)
            .collect();
        for conn in revoked {
            tracing::warn!(%conn, "closed: its token was revoked");
            self.drop_peer(now, conn);
        }
    }
}

/// Bytes read from a stranger in one turn.
const WORDS: usize = auth::BYTES_MAX;

fn words(scratch: &mut [u8]) -> &mut [u8] {
    let end = WORDS.min(scratch.len());
    scratch.get_mut(..end).unwrap_or_default()
}

/// A frame received together with the first one.
enum BufferedFrame {
    Line(Vec<u8>),
    Overlong,
    Alien(Vec<u8>),
}

impl BufferedFrame {
    fn new(frame: &Frame<'_>) -> Self {
        match frame {
            Frame::Line(line) => Self::Line(line.to_vec()),
            Frame::TooLong => Self::Overlong,
            Frame::NotJsonRpc(bytes) => Self::Alien(bytes.to_vec()),
        }
    }

    fn event(&self, conn: ConnId) -> Event<'_> {
        match self {
            Self::Line(frame) => Event::Frame { conn, frame },
            Self::Overlong => Event::TooLong { conn },
            Self::Alien(bytes) => Event::NotJsonRpc { conn, bytes },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    use ceased_transports::Socket;
    use mio::Events;

    use super::*;
    use crate::Daemon;
    use crate::token_file::Tokens;
    use std::sync::Arc;

    /// A peer that disconnects early is removed at once: the number of unauthenticated entries
    /// never exceeds the number of connections.
    #[test]
    fn disconnected_unauthenticated_peer_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        fs::write(&path, format!("ann {}", "a".repeat(32))).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let tokens = Arc::new(Tokens::load(&path).unwrap());
        let mut server = Daemon::new().build().unwrap();
        let mut events = Events::with_capacity(16);
        for said in ["", "no token\n", "no end"] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let access = TokenAccess { tokens: Arc::clone(&tokens), anonymous: false };
            let theirs = Box::new(Socket::from_unix(theirs).unwrap());
            server.ask(server.clock.now(), theirs, access).unwrap();
            ours.write_all(said.as_bytes()).unwrap();
            drop(ours);
            while !server.links.is_empty() {
                server.turn(&mut events, true).unwrap();
            }
            assert!(server.strangers.is_empty(), "{said:?}: {:?}", server.strangers);
        }
    }
}
