//! Connections: accepting, reading, sending, closing.

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

/// Bytes read from one peer at once: a cancel written together with its call is read with it, and
/// prevents its start (CAN-08).
const READ_BUDGET: usize = 256 * 1024;
/// Approximate limit of bytes read ahead from all peers.
const SENDS: usize = 8;
/// Approximate limit of bytes read ahead from all peers.
const AHEAD_BYTES: usize = 4 * 1024;
/// Bytes read ahead from all of them, about.
const AHEAD_BYTES_MAX: usize = 1024 * 1024;

/// Reason of rejecting a peer that disconnected before its inspection.
const WENT: &str = "disconnected before it was identified";

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
    /// Accepts peers waiting at the listeners.
    pub(super) fn take_peers(&mut self, now: Now) {
        for number in 0..self.doors.len() {
            for _ in 0..ACCEPTS_MAX {
                let Some(door) = self.doors.get_mut(number) else { break };
                if door.again.is_none_or(|at| at > now.at) {
                    break;
                }
                match door.listener.accept() {
                    Accept::Peer(transport) => {
                        let entry = door.access.decide(transport.peer());
                        if let Err(error) = self.let_in(now, transport, entry) {
                            tracing::warn!(%error, "cannot register a peer with epoll; closing it");
                        }
                    }
                    Accept::Drained => door.again = None,
                    Accept::Exhausted { error, refused } => {
                        door.again = Some(now.at + ACCEPT_REST);
                        let anonymous = Party::Identity(Identity::Anonymous);
                        if self.is_news(now, anonymous, Kind::NoRoom) {
                            tracing::warn!(%error, refused, "out of resources for another peer; pausing accept");
                        }
                    }
                    Accept::Failed(error) => {
                        tracing::error!(%error, address = %door.listener.address(), "the listener failed; no longer listening");
                        door.again = None;
                    }
                }
            }
        }
    }

    /// Accepts a peer.
    pub(super) fn admit(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        sole: bool,
    ) -> io::Result<()> {
        self.admit_from(now, transport, identity, sole, None)
    }

    /// As [`Server::admit`], for a peer inside this job.
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

    /// Registers a new peer at any stage.
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
        // A new connection counts as readable until a read blocks.
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

    /// Reports a peer to the engine.
    pub(super) fn open(&mut self, now: Now, conn: ConnId, identity: Identity) {
        if let Some(peer) = self.links.get(&conn) {
            tracing::debug!(%conn, peer = %peer.link.peer(), %identity, "connected");
        }
        let opened = Event::Opened { conn, identity, role: Role::Server };
        self.engine.handle(now, opened, &mut self.actions);
    }

    /// There may be input that no event will announce.
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

    /// Reads pending input, fairly by recent work per peer; cancels first.
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

    /// Polls for new input in the middle of a turn and handles cancels.
    fn poll_midturn(&mut self, now: Now, events: &mut Events) {
        // An error recurs at the poll of the turn.
        if self.poll.poll(events, Some(Duration::ZERO)).is_ok() {
            self.note_events(now, events);
            self.read_urgent(now);
        }
    }

    /// Reads pending cancels and sets their flags.
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

    /// Searches for cancels in the next input of some waiting peers; returns whether others remain.
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
            // Common part of all cancelling methods in all protocol revisions.
            if memmem::find(piece, b"cancel").is_some() {
                self.ready.expedite(conn, peer.place);
            }
        }
        true
    }

    /// Reads a bounded amount from one peer; returns its cost.
    pub(super) fn read(&mut self, now: Now, conn: ConnId) -> Cost {
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

    /// Handles end of file of a peer.
    pub(super) fn finished(&mut self, now: Now, conn: ConnId) {
        if self.end_upstream_of(now, conn) {
            return;
        }
        let Some(peer) = self.links.get(&conn) else { return };
        let then = match peer.link.peer() {
            _ if peer.sole => AfterInput::AnswerWithin(self.eof_grace),
            // A half-close cannot be told from a disconnect.
            Origin::Tcp { .. } => AfterInput::AnswerAndProbe(PROBE),
            Origin::Unix { .. } | Origin::Stdio { .. } | Origin::Child { .. } => AfterInput::Answer,
        };
        self.engine.handle(now, Event::Finished { conn, then }, &mut self.actions);
    }

    /// Sends the engine's output, after its writes were handed to the store.
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
                // Its input also causes wake-ups, but only progress of writes counts. Its cancels
                // may have removed all output reported to the engine.
                let sent = peer.link.bytes_sent();
                let before = peer.backlog.replace(Box::new(Backlog::Blocked(sent)));
                let told = |before: &Backlog| matches!(before, Backlog::Blocked(at) if *at == sent);
                if sending == Sending::First || !before.as_deref().is_some_and(told) {
                    self.engine.handle(now, Event::Blocked { conn }, &mut self.actions);
                }
            }
            // A read reports the loss, after the remaining input.
            Sent::Lost => self.note_ready(conn),
        }
    }

    /// Retries to send to a peer that seems not to read: a full socket announces room only when
    /// most of it is free. Returns whether the peer accepted anything.
    pub(super) fn takes_something(&mut self, now: Now, conn: ConnId) -> bool {
        let sent = |server: &Self| server.links.get(&conn).map(|peer| peer.link.bytes_sent());
        let before = sent(self);
        if let Some(peer) = self.links.get_mut(&conn) {
            peer.link.try_again();
        }
        self.send_to(now, conn, Sending::More);
        sent(self) > before
    }

    /// Closes a connection whose final output was sent.
    pub(super) fn drop_if_closing(&mut self, now: Now, conn: ConnId) {
        let empty = self.engine.send_queue(conn).is_none_or(|queue| queue.is_empty());
        if self.links.get(&conn).is_some_and(|peer| peer.closing) && empty {
            self.drop_peer(now, conn);
        }
    }

    pub(super) fn drop_peer(&mut self, now: Now, conn: ConnId) {
        // The engine is told when no process of an upstream is left.
        if self.end_upstream_of(now, conn) {
            return;
        }
        let Some(mut peer) = self.links.remove(&conn) else { return };
        // Fails only if the descriptor is already deregistered.
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
            // Its rejection was recorded before.
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

    /// First messages of a peer, and those of a peer with a call in progress.
    const HELLO: &str = concat!(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
        r#""capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        "\n"
    );
    const CALL: &str =
        concat!(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}"#, "\n");

    /// A connection with a request that it could cancel is read before others, whatever the order
    /// of arrival.
    #[test]
    fn connection_that_could_cancel_is_read_first() {
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
