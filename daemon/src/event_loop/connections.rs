//! Peers: accepting, reading, sending, closing.

use super::constants::ACCEPTS_MAX;
use super::peer::Peer;

use super::constants::{ACCEPT_REST, PROBE};
use super::peer::{Backlog, Sending, Stage};
use super::read_scheduler::Cost;
use super::server::Server;
use super::shutdown::Stopping;

use std::io;
use std::time::Duration;

use ceased_core::action::Action;
use ceased_core::event::{AfterInput, Event};
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::protocol::role::Role;
use ceased_core::rpc::frame::Frame;
use ceased_core::time::Now;
use ceased_transports::{Accept, Flow, Link, Lost, Peer as Origin, Sent, Sink, Transport};
use memchr::memmem;
use mio::{Events, Token};

use super::client_directory;
use super::origin::Party;
use super::read_scheduler::{self};
use super::repeats::Kind;
use crate::record::Recorded;
use crate::tools::catalog::{Payload, PayloadRun};

/// Bytes read from one peer at once: what is written together is read together, so that a cancel
/// that follows its call at once beats its start (CAN-08).
const READ_BUDGET: usize = 256 * 1024;
/// Connections sent to before the loop looks around.
const SENDS: usize = 8;
/// Bytes read ahead from one peer.
const AHEAD_BYTES: usize = 4 * 1024;
/// Bytes read ahead from all of them, about.
const AHEAD_BYTES_MAX: usize = 1024 * 1024;

/// Why a peer is refused that leaves before it is identified.
const WENT: &str = "it went before it said who it is";

/// Hands what a peer says to the engine.
struct Heard<'a> {
    now: Now,
    conn: ConnId,
    engine: &'a mut Recorded,
    actions: &'a mut Vec<Action>,
}

impl Sink for Heard<'_> {
    fn frame(&mut self, frame: Frame<'_>) {
        let conn = self.conn;
        let event = match frame {
            Frame::Line(frame) => Event::Frame { conn, frame },
            Frame::TooLong => Event::TooLong { conn },
            Frame::NotJsonRpc(bytes) => Event::NotJsonRpc { conn, bytes },
        };
        self.engine.handle(self.now, event, self.actions);
    }
}

impl Server {
    /// Lets in who waits at the listeners.
    pub(super) fn take_peers(&mut self, now: Now) {
        for number in 0..self.doors.len() {
            for _ in 0..ACCEPTS_MAX {
                let Some(door) = self.doors.get_mut(number) else { break };
                if door.again.is_none_or(|at| at > now.at) {
                    break;
                }
                match door.listener.accept() {
                    Accept::Peer(transport) => {
                        let entry = door.access.judge(transport.peer());
                        if let Err(error) = self.let_in(now, transport, entry) {
                            tracing::warn!(%error, "a peer could not be watched and was let go");
                        }
                    }
                    Accept::Drained => door.again = None,
                    Accept::Exhausted { error, refused } => {
                        door.again = Some(now.at + ACCEPT_REST);
                        let nobody = Party::Identity(Identity::Anonymous);
                        if self.is_news(now, nobody, Kind::NoRoom) {
                            tracing::warn!(%error, refused, "no room for another peer; resting");
                        }
                    }
                    Accept::Failed(error) => {
                        tracing::error!(%error, address = %door.listener.address(), "not listening any more");
                        door.again = None;
                    }
                }
            }
        }
    }

    /// Takes a new peer in.
    pub(super) fn admit(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        sole: bool,
    ) -> io::Result<()> {
        self.admit_from(now, transport, identity, sole, None)
    }

    /// As [`Server::admit`], for a peer that is part of this job.
    pub(super) fn admit_from(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        sole: bool,
        job: Option<JobId>,
    ) -> io::Result<()> {
        let link = Link::new(transport, self.settings.limits.frames);
        let peer = link.peer().clone();
        let conn = self.watch(link, sole, Stage::Open(None))?;
        self.record_connect(now, conn, &identity, &peer, job);
        self.open(now, conn, identity);
        Ok(())
    }

    /// Watches a new peer, at whatever stage it is.
    pub(super) fn watch(&mut self, mut link: Link, sole: bool, stage: Stage) -> io::Result<ConnId> {
        let conn = ConnId::new(self.next_conn);
        link.register(
            self.poll.registry(),
            Token(usize::try_from(conn.get()).unwrap_or(usize::MAX)),
        )?;
        self.next_conn += 1;
        self.note_connection();
        let (closing, on_record, backlog) = (false, false, None);
        let place = self.ready.front();
        let peer = Peer { link, stage, sole, closing, on_record, backlog, place };
        if self.has_tools_in_client_directories()
            && let Some(dir) = client_directory::of_process(peer.link.peer())
        {
            let max = 2 * self.settings.limits.connections_max;
            let links = &self.links;
            self.client_directories.note(conn, dir, max, |conn| links.contains_key(&conn));
        }
        self.links.insert(conn, Box::new(peer));
        // A new link counts as readable until it was tried.
        self.note_ready(conn);
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

    /// Tells the engine of a peer.
    pub(super) fn open(&mut self, now: Now, conn: ConnId, identity: Identity) {
        if let Some(peer) = self.links.get(&conn) {
            tracing::debug!(%conn, peer = %peer.link.peer(), %identity, "connected");
        }
        let opened = Event::Opened { conn, identity, role: Role::Server };
        self.engine.handle(now, opened, &mut self.actions);
    }

    /// There may be something to read that no event will announce.
    pub(super) fn note_ready(&mut self, conn: ConnId) {
        if let Some(peer) = self.links.get_mut(&conn) {
            self.ready.insert(conn, &mut peer.place, self.engine.has_open_requests(conn));
        }
    }

    pub(super) fn note_event(&mut self, conn: ConnId, event: &mio::event::Event) {
        if let Some(peer) = self.links.get_mut(&conn) {
            peer.link.on_event(event);
            if peer.backlog.is_some() {
                self.unsent.push((conn, Sending::More));
            }
            self.note_ready(conn);
        }
    }

    /// Reads what has arrived, those first for whom least was done lately; and cancels before all.
    pub(super) fn take_bytes(&mut self, now: Now, events: &mut Events) {
        self.ready.skip_few();
        self.read_urgent(now);
        let (mut turn, mut slice) = (read_scheduler::TURN, read_scheduler::SLICE);
        while !turn.is_none()
            && let Some(conn) = self.ready.next()
        {
            let work = self.read(now, conn);
            (turn, slice) = (turn.less(work), slice.less(work));
            if slice.is_none() && !self.ready.is_empty() {
                self.poll_midturn(now, events);
                slice = read_scheduler::SLICE;
            }
        }
    }

    /// In the middle of a turn: who has come meanwhile, and cancels what they want cancelled.
    fn poll_midturn(&mut self, now: Now, events: &mut Events) {
        // What goes wrong here goes wrong again where the turn polls.
        if self.poll.poll(events, Some(Duration::ZERO)).is_ok() {
            self.note_events(now, events);
            self.read_urgent(now);
        }
    }

    /// Reads the cancels that wait, and raises their flags.
    fn read_urgent(&mut self, now: Now) {
        let (allowed, mut done) = (self.ready.allowance(), Cost::default());
        for _ in 0..read_scheduler::GLANCES {
            let is_more = self.look_ahead();
            let before = done;
            while done < allowed
                && let Some(conn) = self.ready.next_urgent()
            {
                done = done.plus(self.read(now, conn));
            }
            if done != before {
                self.act(now);
            }
            if !is_more {
                break;
            }
        }
        self.ready.overdraw(done.less(allowed));
    }

    /// Looks for cancels in what is next from some of those who wait; whether there are others.
    fn look_ahead(&mut self) -> bool {
        for _ in 0..read_scheduler::GLANCE {
            let Some(conn) = self.ready.fresh() else { return false };
            let Some(peer) = self.links.get_mut(&conn) else { continue };
            let is_known = matches!(peer.stage, Stage::Open(_));
            if !is_known || self.ahead_bytes > AHEAD_BYTES_MAX {
                continue;
            }
            let room = self.scratch.get_mut(..AHEAD_BYTES).unwrap_or_default();
            self.ahead_bytes -= peer.link.ahead_bytes();
            let piece = peer.link.read_ahead(room);
            self.ahead_bytes += piece.len();
            // A part of every method that cancels something, in all dialects.
            if memmem::find(piece, b"cancel").is_some() {
                self.ready.expedite(conn, peer.place);
            }
        }
        true
    }

    /// Reads a little from one peer; the work that was.
    fn read(&mut self, now: Now, conn: ConnId) -> Cost {
        let looked = Cost::reading(0, 0);
        let Some(peer) = self.links.get_mut(&conn) else { return looked };
        if !matches!(peer.stage, Stage::Open(_)) {
            peer.place = peer.place.plus(looked);
            self.take_words(now, conn);
            self.note_partial(now, conn);
            return looked;
        }
        self.ready.note_read(conn, now.at);
        let before = (peer.link.frames_received(), peer.link.bytes_received());
        self.ahead_bytes -= peer.link.ahead_bytes();
        let (engine, actions) = (&mut self.engine, &mut self.actions);
        let mut heard = Heard { now, conn, engine, actions };
        let received = peer.link.receive(&mut self.scratch, READ_BUDGET, &mut heard);
        let frames = peer.link.frames_received() - before.0;
        let work = Cost::reading(frames, peer.link.bytes_received() - before.1);
        peer.place = peer.place.plus(work);
        match received {
            Ok(Flow::Drained) => {}
            Ok(Flow::More) => self.note_ready(conn),
            Ok(Flow::Finished) => self.finished(now, conn),
            Err(lost) => {
                tracing::debug!(%conn, %lost, "lost");
                if let (true, Lost::Broken { doing, error }) = (peer.sole, lost) {
                    self.lost_stdio = Some(io::Error::other(format!("{doing} stdio: {error}")));
                }
                self.drop_peer(now, conn);
            }
        }
        self.note_partial(now, conn);
        work
    }

    /// A peer has closed its side.
    pub(super) fn finished(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.links.get(&conn) else { return };
        let then = match peer.link.peer() {
            _ if peer.sole => AfterInput::AnswerUntil(now.at + self.eof_grace),
            // A peer that is gone looks the same as one that has only finished.
            Origin::Tcp { .. } => AfterInput::AnswerAndProbe(PROBE),
            Origin::Unix { .. } | Origin::Stdio { .. } => AfterInput::Answer,
        };
        self.engine.handle(now, Event::Finished { conn, then }, &mut self.actions);
    }

    /// Sends what the engine wants said, after the store has what the engine wants kept.
    pub(super) fn send(&mut self, now: Now, events: &mut Events) {
        self.hand_over_to_store(now);
        for (position, (conn, sending)) in std::mem::take(&mut self.unsent).into_iter().enumerate()
        {
            if position % SENDS == SENDS - 1 {
                self.poll_midturn(now, events);
            }
            self.send_to(now, conn, sending);
        }
    }

    fn send_to(&mut self, now: Now, conn: ConnId, sending: Sending) {
        if !self.send_greeting(now, conn) {
            return;
        }
        let Some(peer) = self.links.get_mut(&conn) else { return };
        let Some(queue) = self.engine.send_queue(conn) else { return };
        let before = peer.link.bytes_sent();
        let sent = peer.link.send(queue, self.poll.registry());
        if peer.link.bytes_sent() > before {
            self.stopping.put_off(now.at);
        }
        match sent {
            Sent::Everything => {
                if let Some(Backlog::Blocked(_)) = peer.backlog.take().as_deref() {
                    self.engine.handle(now, Event::Drained { conn }, &mut self.actions);
                }
                self.drop_if_closing(now, conn);
            }
            Sent::Blocked => {
                // What it says meanwhile wakes us, too, but only what it takes counts. Its cancels
                // may have taken back all that the engine was told of.
                let sent = peer.link.bytes_sent();
                let before = peer.backlog.replace(Box::new(Backlog::Blocked(sent)));
                let told = |before: &Backlog| matches!(before, Backlog::Blocked(at) if *at == sent);
                if sending == Sending::First || !before.as_deref().is_some_and(told) {
                    self.engine.handle(now, Event::Blocked { conn }, &mut self.actions);
                }
            }
            // Reading tells how it was lost, after what the peer said before.
            Sent::Lost => self.note_ready(conn),
        }
    }

    /// Tries once more to send to a peer that seems not to read: a socket that was full says that
    /// there is room only when most of it is. Whether the peer has taken something.
    pub(super) fn takes_something(&mut self, now: Now, conn: ConnId) -> bool {
        let sent = |server: &Self| server.links.get(&conn).map(|peer| peer.link.bytes_sent());
        let before = sent(self);
        if let Some(peer) = self.links.get_mut(&conn) {
            peer.link.try_again();
        }
        self.send_to(now, conn, Sending::More);
        sent(self) > before
    }

    /// Closes a connection whose last words were sent.
    pub(super) fn drop_if_closing(&mut self, now: Now, conn: ConnId) {
        let empty = self.engine.send_queue(conn).is_none_or(|queue| queue.is_empty());
        if self.links.get(&conn).is_some_and(|peer| peer.closing) && empty {
            self.drop_peer(now, conn);
        }
    }

    pub(super) fn drop_peer(&mut self, now: Now, conn: ConnId) {
        let Some(mut peer) = self.links.remove(&conn) else { return };
        // Fails for a descriptor the system has forgotten already, which is as good.
        let _ = peer.link.deregister(self.poll.registry());
        self.ready.remove(conn, peer.place);
        self.ahead_bytes -= peer.link.ahead_bytes();
        self.unended.forget(conn);
        if let Some(until) = peer.stage.until() {
            self.strangers.remove(&(until, conn));
        }
        tracing::debug!(%conn, received = peer.link.bytes_received(), sent = peer.link.bytes_sent(), "closed");
        self.note_close(&peer.link);
        match &peer.stage {
            Stage::Open(_) if peer.on_record => self.record_disconnect(now, conn, &peer.link),
            Stage::Authenticating(_) => {
                let (identity, origin) = (Identity::Anonymous, peer.link.peer());
                self.record_refusal(now, Some(conn), identity, origin, Kind::Refuse(WENT), WENT);
            }
            Stage::Held(_) => self.go_on_judging(&Party::from(peer.link.peer())),
            // Its refusal was recorded when it was turned away.
            Stage::Open(_) | Stage::Rejected(_) => {}
        }
        if matches!(peer.stage, Stage::Open(_)) {
            self.engine.handle(now, Event::Closed { conn }, &mut self.actions);
        }
        if peer.sole && self.stopping == Stopping::No {
            self.shut_down(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use ceased_transports::Socket;

    use super::*;
    use crate::{Daemon, HandlerTool, Job, ToolResult};

    /// What a peer says first, and what one says that has a call under way.
    const HELLO: &str = concat!(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
        r#""capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        "\n"
    );
    const CALL: &str =
        concat!(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}"#, "\n");

    /// A connection with a request under way, which it could cancel, is read before others, whoever
    /// was there first.
    #[test]
    fn whoever_could_cancel_is_looked_at_first() {
        let (end, ends) = channel::<()>();
        let ends = Mutex::new(ends);
        let wait = HandlerTool::new("wait", move |_: &Job| {
            let _ = ends.lock().map(|ends| ends.recv());
            Ok(ToolResult::text("done"))
        });
        let mut server = Daemon::new().tool(wait.build().unwrap()).build().unwrap();
        let mut events = Events::with_capacity(16);
        let mut peers = Vec::new();
        for _ in 0..3 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let conn = ConnId::new(server.next_conn);
            server.serve_peer(Box::new(Socket::from_unix(theirs).unwrap()), false).unwrap();
            peers.push((ours, conn));
        }
        let say = |peers: &[(UnixStream, ConnId)], text: &str| {
            peers.iter().for_each(|(peer, _)| (&*peer).write_all(text.as_bytes()).unwrap());
        };
        say(&peers, HELLO);
        say(&peers[2..], CALL);
        while !server.engine.has_open_requests(peers[2].1) {
            server.turn(&mut events, true).unwrap();
        }
        while !server.ready.is_empty() {
            server.turn(&mut events, true).unwrap();
        }
        say(&peers, "\n");
        let mut unheard: Vec<Token> =
            peers.iter().map(|(_, conn)| Token(conn.get() as usize)).collect();
        while !unheard.is_empty() {
            server.poll.poll(&mut events, None).unwrap();
            unheard.retain(|token| events.iter().all(|event| event.token() != *token));
            server.note_events(Now::default(), &events);
        }
        let order: Vec<_> = std::iter::from_fn(|| server.ready.fresh()).collect();
        assert_eq!(order, [peers[2].1, peers[0].1, peers[1].1]);
        drop(end);
    }
}
