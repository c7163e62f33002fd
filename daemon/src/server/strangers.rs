//! Strangers: peers the engine does not know, because they have not said who they are or were
//! turned away. They are few, read little of, and gone soon.

use std::io;
use std::sync::Arc;

use ceased_core::event::{Event, Identity};
use ceased_core::frame::{Frame, Outbox};
use ceased_core::id::ConnId;
use ceased_core::limits::FrameLimits;
use ceased_core::message::{ErrorObject, code};
use ceased_core::time::{Instant, Now};
use ceased_transports::{Flow, Link, Peer as Origin, Sent, Transport};

use super::gate::{self, Gate, Verdict};
use super::links::Sending;
use super::{LAST_FLUSH, Peer, Server, Stopping};
use crate::access::{Entry, TokenAccess};
use crate::tokens::Token;

/// How far a connection is.
pub(super) enum Stage {
    /// It has to say who it is.
    Gated(Box<Gate>),
    /// The engine knows it; by which token, if by one.
    Open(Option<Arc<Token>>),
    /// It was turned away and is given until then to hear why.
    Dismissed(Instant),
}

impl Stage {
    /// When a stranger has to be through, or gone.
    pub(super) fn until(&self) -> Option<Instant> {
        match self {
            Self::Gated(gate) => Some(gate.until),
            Self::Open(_) => None,
            Self::Dismissed(until) => Some(*until),
        }
    }
}

/// What a peer has still to take, as far as the loop has to do with it.
pub(super) enum Backlog {
    /// What is said to it before the engine has a say.
    Greeting(Outbox),
    /// The engine was told that it does not take what it is sent, when it had taken this many
    /// bytes in all.
    Blocked(u64),
}

/// Peers turned away that may be waited for beside those served; more are closed without a word.
const DISMISSED_MAX: usize = 64;

impl Server {
    /// Lets a peer in, asks who it is, or turns it away.
    pub(super) fn let_in(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        entry: Entry,
    ) -> io::Result<()> {
        match entry {
            Entry::As(identity) => self.admit_user(now, transport, identity),
            Entry::Ask(access) => self.ask(now, transport, access),
            Entry::Refuse(why) => {
                let identity = match transport.peer() {
                    Origin::Unix { uid, .. } | Origin::Stdio { uid } => Identity::User(*uid),
                    Origin::Tcp { .. } => Identity::Anonymous,
                };
                self.refuse(now, transport, identity, why)
            }
        }
    }

    /// Turns away a peer that may not come in.
    pub(super) fn refuse(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        why: String,
    ) -> io::Result<()> {
        tracing::warn!(peer = %transport.peer(), %why, "refused");
        let error = ErrorObject::new(code::FORBIDDEN, why);
        self.turn_away(now, transport, identity, &error)
    }

    fn ask(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        access: TokenAccess,
    ) -> io::Result<()> {
        let max = self.settings.limits.connections_max;
        if self.links.len() - self.dismissed() >= max {
            let message = format!("the daemon serves {max} connections at most");
            let error = ErrorObject::new(code::LIMIT_REACHED, message)
                .with_data(format!("{{\"limit\":\"connections\",\"max\":{max}}}"));
            return self.turn_away(now, transport, Identity::Anonymous, &error);
        }
        let limits = if access.anonymous {
            self.settings.limits.frames
        } else {
            FrameLimits { frame_bytes_max: gate::BYTES_MAX }
        };
        let until = now.at + self.authenticate_within;
        let link = Link::new(transport, limits);
        let conn = self.watch(link, false, Stage::Gated(Box::new(Gate { access, until })))?;
        self.strangers.insert((until, conn));
        Ok(())
    }

    fn turn_away(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        error: &ErrorObject,
    ) -> io::Result<()> {
        if self.links.len() >= self.connections_most() {
            self.record_refusal(now, None, identity, transport.peer(), &error.message);
            return Ok(());
        }
        let link = Link::new(transport, FrameLimits { frame_bytes_max: gate::BYTES_MAX });
        let peer = link.peer().clone();
        let conn = self.watch(link, false, Stage::Dismissed(now.at))?;
        self.record_refusal(now, Some(conn), identity, &peer, &error.message);
        self.dismiss(now, conn, &gate::error_answer("null", error));
        Ok(())
    }

    /// Connections that there may be, those of peers turned away included.
    pub(super) fn connections_most(&self) -> usize {
        self.settings.limits.connections_max.saturating_add(DISMISSED_MAX)
    }

    /// Peers turned away that are still there.
    fn dismissed(&self) -> usize {
        let stages = self.strangers.iter().filter_map(|(_, conn)| self.links.get(conn));
        stages.filter(|peer| matches!(peer.stage, Stage::Dismissed(_))).count()
    }

    /// Says the last words to a peer. It has a moment to read them.
    fn dismiss(&mut self, now: Now, conn: ConnId, answer: &[u8]) {
        let Some(peer) = self.links.get_mut(&conn) else { return };
        let until = now.at + LAST_FLUSH;
        peer.stage = Stage::Dismissed(until);
        peer.greet(answer);
        self.unsent.push((conn, Sending::More));
        self.strangers.insert((until, conn));
    }

    /// Reads what a stranger says; once it has said who it is, it is none any more.
    pub(super) fn take_words(&mut self, now: Now, conn: ConnId) {
        let depth = self.settings.limits.depth_max;
        let Some(peer) = self.links.get_mut(&conn) else { return };
        let (mut verdict, mut rest) = (None, Vec::new());
        let (received, until) = match &peer.stage {
            Stage::Open(_) => return,
            Stage::Dismissed(_) => {
                (peer.link.receive(words(&mut self.scratch), WORDS, &mut |_: Frame<'_>| {}), None)
            }
            Stage::Gated(gate) => {
                let received =
                    peer.link.receive(words(&mut self.scratch), WORDS, &mut |frame: Frame<'_>| {
                        if verdict.is_none() {
                            let found = gate.judge(&frame, depth);
                            if matches!(found, Verdict::Anonymous) {
                                rest.push(Said::new(&frame));
                            }
                            verdict = Some(found);
                        } else {
                            rest.push(Said::new(&frame));
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
                // It goes as soon as it was sent our last words.
                Some(Peer { stage: Stage::Dismissed(_), backlog: Some(_), .. }) => {}
                Some(_) | None => self.drop_peer(now, conn),
            },
            Err(_) => self.drop_peer(now, conn),
        }
    }

    /// Does what was found about a peer.
    fn decide(&mut self, now: Now, conn: ConnId, verdict: Verdict, rest: &[Said]) {
        let identity = verdict.identity();
        let Some(peer) = self.links.get_mut(&conn) else { return };
        match (verdict, identity) {
            (Verdict::Known { token, answer }, Some(identity)) => {
                peer.greet(&answer);
                peer.stage = Stage::Open(Some(token));
                let origin = peer.link.peer().clone();
                self.record_connect(now, conn, &identity, &origin, None);
                self.unsent.push((conn, Sending::More));
                self.serve(now, conn, identity, rest);
            }
            (Verdict::Anonymous, Some(identity)) => {
                peer.stage = Stage::Open(None);
                let origin = peer.link.peer().clone();
                self.record_connect(now, conn, &identity, &origin, None);
                self.serve(now, conn, identity, rest);
            }
            (Verdict::Refused { answer, why }, _) => {
                tracing::warn!(%conn, peer = %peer.link.peer(), why, "not authenticated");
                let origin = peer.link.peer().clone();
                self.record_refusal(now, Some(conn), Identity::Anonymous, &origin, why);
                self.dismiss(now, conn, &answer);
            }
            (Verdict::Known { .. } | Verdict::Anonymous, None) => {}
        }
    }

    fn serve(&mut self, now: Now, conn: ConnId, identity: Identity, rest: &[Said]) {
        if let Some(peer) = self.links.get_mut(&conn) {
            peer.link.set_frame_limits(self.settings.limits.frames);
        }
        self.open(now, conn, identity);
        for said in rest {
            self.engine.handle(now, said.event(conn), &mut self.actions);
        }
    }

    /// Lets those go whose time is over.
    pub(super) fn dismiss_overdue(&mut self, now: Now) {
        while let Some((at, conn)) = self.strangers.first().copied().filter(|(at, _)| *at <= now.at)
        {
            self.strangers.remove(&(at, conn));
            let verdict = match self.links.get(&conn).map(|peer| &peer.stage) {
                Some(Stage::Gated(gate)) => gate.expire(),
                Some(Stage::Dismissed(_)) => {
                    self.drop_peer(now, conn);
                    continue;
                }
                Some(Stage::Open(_)) | None => continue,
            };
            self.decide(now, conn, verdict, &[]);
        }
    }

    /// Sends what is said before the engine has a say; true once all of it has gone.
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
        if matches!(peer.stage, Stage::Dismissed(_)) {
            // It reads our words and then the end; closing at once could lose it the words.
            let _ = peer.link.finish();
            if peer.link.is_read_finished() {
                // Here nothing can be lost: it says no more.
                self.drop_peer(now, conn);
                return false;
            }
        }
        true
    }

    /// Closes the connections whose token is none any more.
    pub(super) fn drop_revoked(&mut self, now: Now) {
        if self.stopping != Stopping::No {
            // There are no listeners any more, and whoever is here may still be answered.
            return;
        }
        let revoked: Vec<ConnId> = self
            .links
            .iter()
            .filter(|(_, peer)| match &peer.stage {
                Stage::Open(Some(token)) => !self.doors.iter().any(|door| door.access.keeps(token)),
                Stage::Open(None) | Stage::Gated(_) | Stage::Dismissed(_) => false,
            })
            .map(|(conn, _)| *conn)
            .collect();
        for conn in revoked {
            tracing::warn!(%conn, "closed: its token was taken back");
            self.drop_peer(now, conn);
        }
    }
}

impl Peer {
    /// Has something said to it before the engine has a say.
    fn greet(&mut self, answer: &[u8]) {
        let mut greeting = Outbox::new();
        greeting.line(answer);
        self.backlog = Some(Box::new(Backlog::Greeting(greeting)));
    }
}

/// Bytes read from a stranger in one turn.
const WORDS: usize = gate::BYTES_MAX;

fn words(scratch: &mut [u8]) -> &mut [u8] {
    let end = WORDS.min(scratch.len());
    scratch.get_mut(..end).unwrap_or_default()
}

/// A frame that came with the first one.
enum Said {
    Line(Vec<u8>),
    Overlong,
    Alien(Vec<u8>),
}

impl Said {
    fn new(frame: &Frame<'_>) -> Self {
        match frame {
            Frame::Line(line) => Self::Line(line.to_vec()),
            Frame::Overlong => Self::Overlong,
            Frame::Alien(bytes) => Self::Alien(bytes.to_vec()),
        }
    }

    fn event(&self, conn: ConnId) -> Event<'_> {
        match self {
            Self::Line(frame) => Event::Frame { conn, frame },
            Self::Overlong => Event::Overlong { conn },
            Self::Alien(bytes) => Event::Alien { conn, bytes },
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
    use crate::tokens::Tokens;

    /// Who goes before its time is over is not remembered until then: however many come and go,
    /// there are no more strangers than connections.
    #[test]
    fn a_stranger_that_has_gone_is_forgotten() {
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
