//! Admission of peers: accepted, asked for a token, or rejected.
//!
//! Unauthenticated connections share their places by party: a new one evicts the oldest of the
//! party with most. After some wrong tokens of a party, answers to further ones are delayed, and
//! their number per party is bounded; other parties are not affected.

use std::io;

use ceased_core::event::Event;
use ceased_core::identity::{Identity, Rights};
use ceased_core::ids::ConnId;
use ceased_core::limits::{ConnectionLimit, FrameLimits};
use ceased_core::protocol::role::Role;
use ceased_core::rpc::error::{ErrorObject, code};
use ceased_core::rpc::frame::Frame;
use ceased_core::time::Now;
use ceased_transports::{Flow, Link, Peer as Origin, Transport};

use super::server::Server;
use super::state::auth::{self, Verdict};
use super::state::client_directory;
use super::state::handshakes::{Input, Overdue};
use super::state::party::Party;
use super::state::record_limiter::RecordKind;
use crate::access::{Entry, TokenAccess};
use crate::peer_identity::InspectedPeer;
use crate::scarcity;
use crate::tools::catalog::{Payload, PayloadRun};

/// Reason of rejecting a peer that may not use the listener.
const NOT_ALLOWED: &str = "not allowed on this listener";
/// Reason of evicting an unauthenticated peer.
const WAITED_LONGEST: &str = "evicted while waiting for a token";
/// Bytes read from an unauthenticated peer in one turn.
const HANDSHAKE_READ: usize = auth::BYTES_MAX;

/// Accepting.
impl Server {
    /// Accepts a peer.
    pub(super) fn admit(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        sole: bool,
    ) -> io::Result<()> {
        let peer = InspectedPeer { identity, rights: Rights::Full, job: None };
        self.admit_from(now, transport, peer, sole)
    }

    /// As [`Server::admit`], for a peer whose process was inspected.
    pub(super) fn admit_from(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        peer: InspectedPeer,
        sole: bool,
    ) -> io::Result<()> {
        let InspectedPeer { identity, rights, job } = peer;
        let link = Link::new(transport, self.settings.limits.frames);
        let origin = link.peer().clone();
        let conn = self.add_connection(link, sole)?;
        self.record_connect(now, conn, &identity, &origin, job, None);
        self.open(now, conn, identity, rights);
        Ok(())
    }

    /// Adds a connection, which the engine does not know yet.
    pub(super) fn add_connection(&mut self, link: Link, sole: bool) -> io::Result<ConnId> {
        let directory = self.has_tools_in_client_directories();
        let directory = directory.then(|| client_directory::of_process(link.peer())).flatten();
        let conn = self.connections.insert(self.poll.registry(), link, sole)?;
        self.note_connection();
        if let Some(directory) = directory {
            let max = 2 * self.settings.limits.connections_max;
            let connections = &self.connections;
            let is_open = |conn| connections.contains(conn);
            self.client_directories.note(conn, directory, max, is_open);
        }
        Ok(conn)
    }

    /// Adds a connection that has no identity yet, unless the kernel names its user.
    pub(super) fn add_stranger(&mut self, link: Link) -> io::Result<ConnId> {
        let is_stranger = matches!(link.peer(), Origin::Tcp { .. });
        let conn = self.add_connection(link, false)?;
        self.connections.set_stranger(conn, is_stranger);
        Ok(conn)
    }

    /// Whether a tool runs where its client is.
    fn has_tools_in_client_directories(&self) -> bool {
        self.settings.catalog.iter().any(|tool| {
            Payload::of(tool).is_some_and(|payload| match &payload.run {
                PayloadRun::Command { command, .. } => command.client_roots.is_some(),
                PayloadRun::Handler(_) => false,
            })
        })
    }

    /// Reports a peer to the engine.
    fn open(&mut self, now: Now, conn: ConnId, identity: Identity, rights: Rights) {
        if let Some(peer) = self.connections.origin(conn) {
            tracing::debug!(%conn, %peer, %identity, "connected");
        }
        let opened = Event::Opened { conn, identity, rights, role: Role::Server };
        self.engine.handle(now, opened, &mut self.actions);
    }

    /// Accepts a peer, requests authentication, or rejects it.
    pub(super) fn let_in(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        entry: Entry,
    ) -> io::Result<()> {
        match entry {
            Entry::As(identity) => self.admit_user(now, transport, identity),
            Entry::Authenticate(access) => self.begin_handshake(now, transport, access),
            Entry::Refuse(why) => {
                let identity = match transport.peer() {
                    Origin::Unix { uid, .. } | Origin::Stdio { uid } => Identity::User(*uid),
                    Origin::Tcp { .. } | Origin::Child { .. } => Identity::Anonymous,
                };
                let error = ErrorObject::new(code::FORBIDDEN, why);
                self.refuse(now, transport, identity, RecordKind::Refuse(NOT_ALLOWED), &error)
            }
        }
    }

    pub(super) fn handshake_limits(&self) -> scarcity::HandshakeLimits {
        scarcity::handshake_limits(&self.settings.limits)
    }

    fn begin_handshake(
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
        self.make_room_for_handshake(now);
        let limits = if access.anonymous {
            self.settings.limits.frames
        } else {
            FrameLimits { frame_bytes_max: auth::BYTES_MAX }
        };
        let until = now.at + self.authenticate_within;
        let link = Link::new(transport, limits);
        let party = Party::from(link.peer());
        let conn = self.add_stranger(link)?;
        self.handshakes.begin(conn, party, access, until);
        Ok(())
    }

    fn make_room_for_handshake(&mut self, now: Now) {
        let max = self.handshake_limits().authenticating;
        let Some(oldest) = self.handshakes.to_evict(max) else { return };
        let Some(origin) = self.connections.origin(oldest).cloned() else { return };
        let message = "closed: too many connections have not presented a token, and this one \
                       waited longest";
        let error = ErrorObject::new(code::LIMIT_REACHED, message);
        let (anonymous, kind) = (Identity::Anonymous, RecordKind::Refuse(WAITED_LONGEST));
        self.record_refusal(now, Some(oldest), anonymous, &origin, kind, message);
        self.reject(now, oldest, &auth::error_answer("null", &error));
    }
}

/// Rejecting.
impl Server {
    /// Rejects a peer because of a limit on connections.
    pub(super) fn refuse_connection(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        limit: ConnectionLimit,
    ) -> io::Result<()> {
        self.refuse(now, transport, identity, RecordKind::Limit(limit.name), &limit.error())
    }

    /// Rejects a peer. It is sent the reason, unless too many rejected peers are pending.
    pub(super) fn refuse(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        kind: RecordKind,
        error: &ErrorObject,
    ) -> io::Result<()> {
        let origin = transport.peer().clone();
        let conn = if self.handshakes.rejected() >= self.handshake_limits().rejected {
            None
        } else {
            let link = Link::new(transport, FrameLimits { frame_bytes_max: auth::BYTES_MAX });
            Some(self.add_stranger(link)?)
        };
        let why = &error.message;
        let is_news = self.record_refusal(now, conn, identity, &origin, kind, why);
        if is_news && kind.limit().is_none() {
            tracing::warn!(peer = %origin, %why, "refused");
        }
        if let Some(conn) = conn {
            self.reject(now, conn, &auth::error_answer("null", error));
        }
        Ok(())
    }

    /// Sends a final message to a connection and gives it a moment to read it; closes it at once if
    /// the limit of such connections is reached.
    fn reject(&mut self, now: Now, conn: ConnId, answer: &[u8]) {
        let max = self.handshake_limits().rejected;
        let Some(party) = self.connections.origin(conn).map(Party::from) else { return };
        if !self.handshakes.reject(conn, party, now.at, max) {
            return self.drop_peer(now, conn);
        }
        self.connections.greet(conn, answer);
    }
}

/// Authenticating.
impl Server {
    /// Reads input of an unauthenticated connection and checks its first frame.
    pub(super) fn read_handshake(&mut self, now: Now, conn: ConnId) {
        let depth = self.settings.limits.depth_max;
        let scratch = self.scratch.get_mut(..HANDSHAKE_READ).unwrap_or_default();
        let (mut verdict, mut rest) = (None, Vec::new());
        let max = scarcity::handshake_limits(&self.settings.limits).delayed;
        let received = match self.handshakes.input(conn, max) {
            Input::Engine | Input::Postpone => return,
            Input::Discard => {
                self.connections.receive_handshake(conn, scratch, &mut |_: Frame<'_>| {})
            }
            Input::Check(handshake) => {
                self.connections.receive_handshake(conn, scratch, &mut |frame: Frame<'_>| {
                    if verdict.is_none() {
                        let found = handshake.check(&frame, depth);
                        if matches!(found, Verdict::Anonymous) {
                            rest.push(BufferedFrame::new(&frame));
                        }
                        verdict = Some(found);
                    } else {
                        rest.push(BufferedFrame::new(&frame));
                    }
                })
            }
        };
        if let Some(verdict) = verdict {
            self.decide(now, conn, verdict, &rest);
        }
        match received {
            None | Some(Ok(Flow::Drained)) => {}
            Some(Ok(Flow::More)) => self.connections.note_readable(conn),
            Some(Ok(Flow::Finished)) if !self.handshakes.is_pending(conn) => {
                self.finished(now, conn);
            }
            // It is closed when the final message was sent.
            Some(Ok(Flow::Finished)) if self.has_final_message(conn) => {}
            Some(Ok(Flow::Finished) | Err(_)) => self.drop_peer(now, conn),
        }
    }

    /// Whether a connection is to be sent the reason of its rejection, now or after a delay.
    fn has_final_message(&self, conn: ConnId) -> bool {
        self.handshakes.is_delayed(conn)
            || (self.handshakes.is_rejected(conn) && self.connections.has_greeting(conn))
    }

    /// Applies the result of checking a connection.
    fn decide(&mut self, now: Now, conn: ConnId, verdict: Verdict, rest: &[BufferedFrame]) {
        let identity = verdict.identity();
        let Some(origin) = self.connections.origin(conn).cloned() else { return };
        if let Some(identity) = &identity
            && let Some(limit) = self.engine.connection_limit(identity, Rights::Full)
        {
            let (error, kind) = (limit.error(), RecordKind::Limit(limit.name));
            self.record_refusal(now, Some(conn), identity.clone(), &origin, kind, &error.message);
            return self.reject(now, conn, &auth::error_answer("null", &error));
        }
        let limits = self.settings.limits.frames;
        match (verdict, identity) {
            (Verdict::Known { token, answer }, Some(identity)) => {
                self.handshakes.authenticate(conn);
                self.connections.authenticate(conn, Some(token), limits);
                self.connections.greet(conn, &answer);
                self.serve(now, conn, identity, &origin, rest);
            }
            (Verdict::Anonymous, Some(identity)) => {
                self.handshakes.authenticate(conn);
                self.connections.authenticate(conn, None, limits);
                self.serve(now, conn, identity, &origin, rest);
            }
            (Verdict::Refused { answer, why }, _) => {
                let (anonymous, kind) = (Identity::Anonymous, RecordKind::Refuse(why));
                if self.record_refusal(now, Some(conn), anonymous, &origin, kind, why) {
                    tracing::warn!(%conn, peer = %origin, why, "not authenticated");
                }
                let answer = match why {
                    auth::WRONG_TOKEN => self.handshakes.delay(conn, now.at, answer),
                    _ => Some(answer),
                };
                if let Some(answer) = answer {
                    self.reject(now, conn, &answer);
                }
            }
            (Verdict::Known { .. } | Verdict::Anonymous, None) => {}
        }
    }

    fn serve(
        &mut self,
        now: Now,
        conn: ConnId,
        identity: Identity,
        origin: &Origin,
        rest: &[BufferedFrame],
    ) {
        self.record_connect(now, conn, &identity, origin, None, None);
        self.open(now, conn, identity, Rights::Full);
        for frame in rest {
            self.engine.handle(now, frame.event(conn), &mut self.actions);
        }
    }

    /// After an answer of a party was sent: reads its other unauthenticated connections.
    pub(super) fn resume_handshakes(&mut self, party: &Party) {
        for conn in self.handshakes.authenticating_of(party) {
            self.connections.note_readable(conn);
        }
    }

    /// Handles unauthenticated connections past their deadline.
    pub(super) fn end_overdue_handshakes(&mut self, now: Now) {
        while let Some((conn, overdue)) = self.handshakes.take_overdue(now.at) {
            match overdue {
                Overdue::Authenticating(verdict) => self.decide(now, conn, verdict, &[]),
                Overdue::Delayed(answer, party) => {
                    self.reject(now, conn, &answer);
                    self.resume_handshakes(&party);
                }
                Overdue::Rejected => self.drop_peer(now, conn),
            }
        }
    }
}

/// A frame received together with the first one.
enum BufferedFrame {
    Line(Vec<u8>),
    TooLong(String),
    NotJsonRpc(Vec<u8>),
}

impl BufferedFrame {
    fn new(frame: &Frame<'_>) -> Self {
        match frame {
            Frame::Line(line) => Self::Line(line.to_vec()),
            Frame::TooLong(skeleton) => Self::TooLong((*skeleton).to_owned()),
            Frame::NotJsonRpc(bytes) => Self::NotJsonRpc(bytes.to_vec()),
        }
    }

    fn event(&self, conn: ConnId) -> Event<'_> {
        match self {
            Self::Line(frame) => Event::Frame { conn, frame },
            Self::TooLong(skeleton) => Event::TooLong { conn, skeleton },
            Self::NotJsonRpc(bytes) => Event::NotJsonRpc { conn, bytes },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    use ceased_transports::{Address, Socket};
    use mio::Events;

    use super::super::state::listen_spec::ListenSpec;
    use super::super::state::read_scheduler::STRANGERS_MAX;
    use super::*;
    use crate::Daemon;
    use crate::access::Access;
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
            server.begin_handshake(server.clock.now(), theirs, access).unwrap();
            ours.write_all(said.as_bytes()).unwrap();
            drop(ours);
            while !server.connections.is_empty() {
                server.turn(&mut events, true).unwrap();
            }
            assert_eq!(server.handshakes.deadline(), None, "{said:?}");
        }
    }

    /// AUTH-02: however many strangers connect, a turn answers a known peer and takes few of them; and
    /// none is forgotten.
    #[test]
    fn strangers_are_taken_after_known_peers() {
        let any = "127.0.0.1:0".parse().unwrap();
        let access = Access::Tokens(TokenAccess { tokens: Arc::default(), anonymous: false });
        let address = Address::Tcp(any);
        let mut server = Daemon::new().build().unwrap();
        let spec = ListenSpec { address, group: None, access, http: None };
        let Address::Tcp(bound) = server.listen_for(spec).unwrap() else { panic!("{any}") };
        server.register_listeners(0).unwrap();
        let mut strangers: Vec<TcpStream> = Vec::new();
        for _ in 0..64 {
            let mut stranger = TcpStream::connect(bound).unwrap();
            stranger.write_all(b"no token\n").unwrap();
            stranger.set_nonblocking(true).unwrap();
            strangers.push(stranger);
        }
        let (mut known, theirs) = UnixStream::pair().unwrap();
        server.serve_peer(Box::new(Socket::from_unix(theirs).unwrap()), false).unwrap();
        known.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").unwrap();
        known.set_nonblocking(true).unwrap();
        let mut events = Events::with_capacity(128);
        server.turn(&mut events, true).unwrap();
        let mut answer = [0; 256];
        assert!(known.read(&mut answer).is_ok_and(|count| count > 0));
        assert!(server.connections.len() <= 1 + STRANGERS_MAX, "{}", server.connections.len());
        strangers.retain_mut(|stranger| stranger.read(&mut answer).is_err());
        assert!(strangers.len() >= 64 - STRANGERS_MAX, "{} wait", strangers.len());
        // One at least in each turn.
        for _ in 0..2 * 64 {
            server.turn(&mut events, true).unwrap();
            strangers.retain_mut(|stranger| stranger.read(&mut answer).is_err());
            if strangers.is_empty() {
                return;
            }
        }
        panic!("{} of 64 strangers were not answered", strangers.len());
    }
}
