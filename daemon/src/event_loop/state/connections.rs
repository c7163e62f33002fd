//! Connections: their links, the order of reading them, and the output that waits.

use std::io;
use std::sync::Arc;

use ceased_core::ids::ConnId;
use ceased_core::limits::FrameLimits;
use ceased_core::rpc::frame::Frame;
use ceased_core::rpc::send_queue::SendQueue;
use ceased_core::time::Instant;
use ceased_transports::{Flow, Link, Lost, Output, Peer as Origin, Sent};
use mio::{Registry, Token as EventToken};

use super::constants::FIRST_CONN;
use super::read_scheduler::{Cost, ReadScheduler};
use crate::conn_map::ConnMap;
use crate::token_file::Token;

/// Bytes read from one peer at once: a cancel written together with its call is read with it, and
/// prevents its start (CAN-08).
const READ_BUDGET: usize = 256 * 1024;

/// Every connection of the loop, authenticated or not.
pub(crate) struct Connections {
    open: ConnMap<Box<Connection>>,
    next_id: u64,
    reads: ReadScheduler,
    /// Connections with output to be sent in this turn.
    unsent: Vec<(ConnId, Sending)>,
}

struct Connection {
    link: Link,
    /// The end of its input ends the server.
    sole: bool,
    /// Closed as soon as its output is sent.
    closing: bool,
    /// It has no identity yet, and is read after those that have one.
    is_stranger: bool,
    /// The audit log has a record of its start, and gets one of its end.
    recorded: bool,
    /// Token that it authenticated with.
    token: Option<Arc<Token>>,
    /// Boxed because few connections have one.
    backlog: Option<Box<Backlog>>,
    /// Its position in the order of reading.
    place: Cost,
}

/// Output that the system did not accept yet.
enum Backlog {
    /// A message of the daemon from before the engine knew the connection.
    Greeting(SendQueue),
    /// The engine was told that the peer does not read; bytes sent in all at that time.
    Blocked(u64),
}

/// Reason of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The engine has written to an empty queue.
    First,
    /// There may be room for more of the queue, or the connection is to close after it.
    More,
}

/// Result of a read.
pub(crate) struct Received {
    pub(crate) flow: Result<Flow, Lost>,
    pub(crate) cost: Cost,
}

/// Result of sending a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Greeted {
    /// No greeting is left.
    Done,
    /// The greeting was the last output of a rejected peer, which has closed its side.
    Finished,
    /// The peer does not accept all of it yet.
    Waiting,
    /// The peer is gone: read it.
    Lost,
}

/// Result of sending a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The peer accepted at least one byte.
    pub(crate) progress: bool,
    pub(crate) then: AfterSend,
}

/// Consequence of sending a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterSend {
    /// The queue is empty. `was_blocked`: the engine believes that the peer does not read.
    Empty { was_blocked: bool },
    /// The peer does not read. `is_news`: the engine does not know that yet.
    Blocked { is_news: bool },
    /// The peer is gone: read it.
    Lost,
}

/// A connection that was removed.
pub(crate) struct Closed {
    pub(crate) link: Link,
    pub(crate) sole: bool,
    pub(crate) recorded: bool,
}

/// An incomplete message of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partial {
    pub(crate) bytes: usize,
    /// Start of the message, for a peer with a time limit.
    pub(crate) since: Option<Instant>,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            open: ConnMap::default(),
            next_id: FIRST_CONN,
            reads: ReadScheduler::default(),
            unsent: Vec::new(),
        }
    }
}

/// Opening and closing.
impl Connections {
    /// Registers a link with the poll and adds it. It counts as readable until a read blocks.
    ///
    /// # Errors
    /// If the poll does not accept it.
    pub(crate) fn insert(
        &mut self,
        registry: &Registry,
        mut link: Link,
        sole: bool,
    ) -> io::Result<ConnId> {
        let conn = ConnId::new(self.next_id);
        let token = EventToken(usize::try_from(conn.get()).unwrap_or(usize::MAX));
        link.register(registry, token)?;
        self.next_id += 1;
        let connection = Connection {
            link,
            sole,
            closing: false,
            is_stranger: false,
            recorded: false,
            token: None,
            backlog: None,
            place: self.reads.front(),
        };
        self.open.insert(conn, Box::new(connection));
        self.note_readable(conn);
        Ok(conn)
    }

    /// A number for a connection of the engine that has no link of its own.
    pub(crate) const fn next_id(&mut self) -> ConnId {
        let conn = ConnId::new(self.next_id);
        self.next_id += 1;
        conn
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, registry: &Registry, conn: ConnId) -> Option<Closed> {
        let mut gone = self.open.remove(conn)?;
        // Fails only if the descriptor is already deregistered.
        let _ = gone.link.deregister(registry);
        self.reads.remove(conn, gone.place, gone.is_stranger);
        let Connection { link, sole, recorded, .. } = *gone;
        Some(Closed { link, sole, recorded })
    }

    /// Lets a connection send frames of the usual size once it is authenticated.
    pub(crate) fn authenticate(
        &mut self,
        conn: ConnId,
        token: Option<Arc<Token>>,
        limits: FrameLimits,
    ) {
        if let Some(connection) = self.open.get_mut(conn) {
            connection.token = token;
            connection.link.set_frame_limits(limits);
        }
        self.set_stranger(conn, false);
    }

    /// Marks a connection whose start is in the audit log.
    pub(crate) fn note_recorded(&mut self, conn: ConnId) {
        if let Some(connection) = self.open.get_mut(conn) {
            connection.recorded = true;
        }
    }

    /// Closes the sending side of a connection.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(crate) fn finish(&mut self, conn: ConnId) -> io::Result<()> {
        self.open.get_mut(conn).map_or(Ok(()), |connection| connection.link.finish())
    }

    /// Closes a connection after its output. Returns false if it is gone.
    pub(crate) fn close_after_output(&mut self, conn: ConnId) -> bool {
        let Some(connection) = self.open.get_mut(conn) else { return false };
        connection.closing = true;
        self.unsent.push((conn, Sending::More));
        true
    }
}

/// Queries.
impl Connections {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn contains(&self, conn: ConnId) -> bool {
        self.open.contains(conn)
    }

    pub(crate) fn ids(&self) -> Vec<ConnId> {
        self.open.ids()
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.open.iter().map(|(_, connection)| &connection.link)
    }

    /// The other end of a connection.
    pub(crate) fn origin(&self, conn: ConnId) -> Option<&Origin> {
        self.open.get(conn).map(|connection| connection.link.peer())
    }

    pub(crate) fn is_sole(&self, conn: ConnId) -> bool {
        self.open.get(conn).is_some_and(|connection| connection.sole)
    }

    pub(crate) fn is_closing(&self, conn: ConnId) -> bool {
        self.open.get(conn).is_some_and(|connection| connection.closing)
    }

    pub(crate) fn bytes_received(&self, conn: ConnId) -> u64 {
        self.open.get(conn).map_or(0, |connection| connection.link.bytes_received())
    }

    pub(crate) fn bytes_sent(&self, conn: ConnId) -> u64 {
        self.open.get(conn).map_or(0, |connection| connection.link.bytes_sent())
    }

    /// Connections with a token that `is_revoked`.
    pub(crate) fn with_token(&self, is_revoked: impl Fn(&Token) -> bool) -> Vec<ConnId> {
        let revoked = self.open.iter().filter(|(_, connection)| {
            connection.token.as_ref().is_some_and(|token| is_revoked(token))
        });
        revoked.map(|(conn, _)| conn).collect()
    }

    /// The incomplete message of a connection. TCP peers have a time limit for it.
    pub(crate) fn partial(&mut self, conn: ConnId, now: Instant) -> Option<Partial> {
        let link = &mut self.open.get_mut(conn)?.link;
        let is_timed = matches!(link.peer(), Origin::Tcp { .. });
        let since = is_timed.then(|| link.mid_frame_since(now)).flatten();
        Some(Partial { bytes: link.partial_bytes(), since })
    }
}

/// Reading.
impl Connections {
    /// The order of reading.
    pub(crate) const fn reads(&mut self) -> &mut ReadScheduler {
        &mut self.reads
    }

    /// Whether no connection has input that no event announces.
    pub(crate) fn nothing_to_read(&self) -> bool {
        self.reads.is_empty()
    }

    /// Since when a single connection has been read from.
    pub(crate) fn alone_since(&self) -> Option<Instant> {
        self.reads.alone_since()
    }

    /// A connection has an identity from now on, or none yet.
    pub(crate) fn set_stranger(&mut self, conn: ConnId, is_stranger: bool) {
        let Some(connection) = self.open.get_mut(conn) else { return };
        let before = std::mem::replace(&mut connection.is_stranger, is_stranger);
        if before != is_stranger && self.reads.remove(conn, connection.place, before) {
            self.reads.insert(conn, &mut connection.place, is_stranger);
        }
    }

    /// There may be input that no event announces.
    pub(crate) fn note_readable(&mut self, conn: ConnId) {
        if let Some(connection) = self.open.get_mut(conn) {
            self.reads.insert(conn, &mut connection.place, connection.is_stranger);
        }
    }

    /// Records an event of the poll.
    pub(crate) fn note_event(&mut self, conn: ConnId, event: &mio::event::Event) {
        let Some(connection) = self.open.get_mut(conn) else { return };
        connection.link.on_event(event);
        if connection.backlog.is_some() {
            self.unsent.push((conn, Sending::More));
        }
        self.reads.insert(conn, &mut connection.place, connection.is_stranger);
    }

    /// Reads a bounded amount from an authenticated peer.
    pub(crate) fn receive(
        &mut self,
        conn: ConnId,
        now: Instant,
        scratch: &mut [u8],
        sink: &mut dyn FnMut(Frame<'_>),
    ) -> Option<Received> {
        let connection = self.open.get_mut(conn)?;
        self.reads.note_read(conn, now);
        let link = &mut connection.link;
        let before = (link.frames_received(), link.bytes_received());
        let flow = link.receive(scratch, READ_BUDGET, sink);
        let frames = link.frames_received() - before.0;
        let cost = Cost::reading(frames, link.bytes_received() - before.1);
        connection.place = connection.place.plus(cost);
        Some(Received { flow, cost })
    }

    /// Reads a bounded amount from a peer whose bytes are no frames.
    pub(crate) fn receive_bytes(
        &mut self,
        conn: ConnId,
        now: Instant,
        scratch: &mut [u8],
        sink: &mut dyn FnMut(&[u8]),
    ) -> Option<(Result<Flow, Lost>, Cost)> {
        let connection = self.open.get_mut(conn)?;
        self.reads.note_read(conn, now);
        let link = &mut connection.link;
        let before = link.bytes_received();
        let flow = link.receive_bytes(scratch, READ_BUDGET, sink);
        let cost = Cost::reading(1, link.bytes_received() - before);
        connection.place = connection.place.plus(cost);
        Some((flow, cost))
    }

    /// Reads at most as much as `scratch` takes from a peer that is not authenticated.
    pub(crate) fn receive_handshake(
        &mut self,
        conn: ConnId,
        scratch: &mut [u8],
        sink: &mut dyn FnMut(Frame<'_>),
    ) -> Option<Result<Flow, Lost>> {
        let budget = scratch.len();
        Some(self.open.get_mut(conn)?.link.receive(scratch, budget, sink))
    }

    /// Moves a connection back in the order of reading.
    pub(crate) fn charge(&mut self, conn: ConnId, cost: Cost) {
        if let Some(connection) = self.open.get_mut(conn) {
            connection.place = connection.place.plus(cost);
        }
    }
}

/// Sending.
impl Connections {
    /// Notes that a connection has output.
    pub(crate) fn note_output(&mut self, conn: ConnId, sending: Sending) {
        self.unsent.push((conn, sending));
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Takes the connections with output.
    pub(crate) fn take_output(&mut self) -> Vec<(ConnId, Sending)> {
        std::mem::take(&mut self.unsent)
    }

    /// Sends a message of the daemon before anything of the engine.
    pub(crate) fn greet(&mut self, conn: ConnId, message: &[u8]) {
        let Some(connection) = self.open.get_mut(conn) else { return };
        let mut greeting = SendQueue::new();
        greeting.line(message);
        connection.backlog = Some(Box::new(Backlog::Greeting(greeting)));
        self.unsent.push((conn, Sending::More));
    }

    /// Whether a greeting is not sent yet.
    pub(crate) fn has_greeting(&self, conn: ConnId) -> bool {
        let backlog = self.open.get(conn).and_then(|connection| connection.backlog.as_deref());
        matches!(backlog, Some(Backlog::Greeting(_)))
    }

    /// Sends a pending greeting. A `rejected` peer gets nothing after it: its output is ended, so
    /// that it reads the message and then end of file; closing at once could discard the message.
    pub(crate) fn send_greeting(
        &mut self,
        registry: &Registry,
        conn: ConnId,
        rejected: bool,
    ) -> Option<Greeted> {
        let connection = self.open.get_mut(conn)?;
        let Some(Backlog::Greeting(greeting)) = connection.backlog.as_deref_mut() else {
            return Some(Greeted::Done);
        };
        match connection.link.send(greeting, registry) {
            Sent::Everything => connection.backlog = None,
            Sent::Blocked => return Some(Greeted::Waiting),
            Sent::Lost => return Some(Greeted::Lost),
        }
        if rejected {
            let _ = connection.link.finish();
            if connection.link.is_read_finished() {
                return Some(Greeted::Finished);
            }
        }
        Some(Greeted::Done)
    }

    /// Sends as much of `queue` as the system accepts.
    pub(crate) fn send(
        &mut self,
        registry: &Registry,
        conn: ConnId,
        queue: &mut SendQueue,
        sending: Sending,
    ) -> Option<Delivery> {
        let connection = self.open.get_mut(conn)?;
        let before = connection.link.bytes_sent();
        let sent = connection.link.send(queue, registry);
        let bytes = connection.link.bytes_sent();
        let then = match sent {
            Sent::Everything => {
                let backlog = connection.backlog.take();
                let was_blocked = matches!(backlog.as_deref(), Some(Backlog::Blocked(_)));
                AfterSend::Empty { was_blocked }
            }
            Sent::Blocked => {
                // Its input also causes wake-ups, but only progress of writes counts. Its cancels
                // may have removed all output reported to the engine.
                let before = connection.backlog.replace(Box::new(Backlog::Blocked(bytes)));
                let told = matches!(before.as_deref(), Some(Backlog::Blocked(at)) if *at == bytes);
                AfterSend::Blocked { is_news: sending == Sending::First || !told }
            }
            Sent::Lost => AfterSend::Lost,
        };
        Some(Delivery { progress: bytes > before, then })
    }

    /// Sends as much of the output of a connection as the system accepts. Returns whether it
    /// accepted anything as well.
    pub(crate) fn send_bytes(
        &mut self,
        registry: &Registry,
        conn: ConnId,
        output: &mut dyn Output,
    ) -> Option<(Sent, bool)> {
        let link = &mut self.open.get_mut(conn)?.link;
        let before = link.bytes_sent();
        let sent = link.send(output, registry);
        Some((sent, link.bytes_sent() > before))
    }

    /// Whether a connection holds bytes back that it has accepted.
    pub(crate) fn holds_output(&self, conn: ConnId) -> bool {
        self.open.get(conn).is_some_and(|connection| connection.link.holds_output())
    }

    /// Lets the next send of a connection try the system again: a full socket announces room only
    /// when most of it is free.
    pub(crate) fn retry_send(&mut self, conn: ConnId) {
        if let Some(connection) = self.open.get_mut(conn) {
            connection.link.try_again();
        }
    }
}
