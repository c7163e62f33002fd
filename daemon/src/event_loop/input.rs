//! Input: reads connections in a fair order, cancels first, and hands their frames to the engine.

use std::io;
use std::time::Duration;

use ceased_core::action::Action;
use ceased_core::event::{AfterInput, Event};
use ceased_core::ids::ConnId;
use ceased_core::rpc::frame::{Frame, LongLine};
use ceased_core::time::Now;
use ceased_transports::{Flow, Lost, Peer as Origin, Sink};
use mio::Events;

use super::server::Server;
use super::state::connections::{Received, Sending};
use super::state::constants::PROBE;
use super::state::read_scheduler::{self, Cost};
use crate::http::peer::HttpPeer;
use crate::record::Recorded;

/// Hands the frames of a connection to the engine.
struct EngineSink<'a> {
    now: Now,
    conn: ConnId,
    engine: &'a mut Recorded,
    actions: &'a mut Vec<Action>,
}

impl Sink for EngineSink<'_> {
    fn frame(&mut self, frame: Frame<'_>) {
        let conn = self.conn;
        let event = match frame {
            Frame::Line(frame) => Event::Frame { conn, frame },
            Frame::TooLong => Event::TooLong { conn },
            Frame::NotJsonRpc(bytes) => Event::NotJsonRpc { conn, bytes },
        };
        self.engine.handle(self.now, event, self.actions);
    }

    fn long_line(&mut self, frame: LongLine) {
        let event = Event::LongFrame { conn: self.conn, frame };
        self.engine.handle(self.now, event, self.actions);
    }
}

impl Server {
    /// There may be input that no event announces.
    pub(super) fn note_readable(&mut self, conn: ConnId) {
        self.connections.note_readable(conn, self.could_cancel(conn));
    }

    /// Whether the next input of a connection may be a cancel: for a request of 2026-07-28 over
    /// HTTP, the end of the connection is one.
    fn could_cancel(&self, conn: ConnId) -> bool {
        self.engine.has_open_requests(conn)
            || self.http.peer(conn).is_some_and(|peer| peer.exchange().is_some())
    }

    pub(super) fn note_event(&mut self, conn: ConnId, event: &mio::event::Event) {
        self.connections.note_event(conn, event, self.could_cancel(conn));
        if self.http.peer(conn).is_some_and(HttpPeer::has_output) {
            self.connections.note_output(conn, Sending::More);
        }
    }

    /// Reads pending input, fairly by recent work per peer; cancels first.
    pub(super) fn take_bytes(&mut self, now: Now, events: &mut Events) {
        self.connections.reads().skip_few();
        self.read_urgent(now);
        let (mut turn, mut slice) = (read_scheduler::TURN, read_scheduler::SLICE);
        while !turn.is_none()
            && let Some(conn) = self.connections.reads().next()
        {
            let work = self.read_unless_paused(now, conn);
            (turn, slice) = (turn.less(work), slice.less(work));
            if slice.is_none() && !self.connections.nothing_to_read() {
                self.poll_midturn(now, events);
                slice = read_scheduler::SLICE;
            }
        }
    }

    /// Polls for new input in the middle of a turn and handles cancels.
    pub(super) fn poll_midturn(&mut self, now: Now, events: &mut Events) {
        // An error recurs at the poll of the turn.
        if self.poll.poll(events, Some(Duration::ZERO)).is_ok() {
            self.note_events(now, events);
            self.read_urgent(now);
        }
    }

    /// Reads pending cancels and sets their flags.
    fn read_urgent(&mut self, now: Now) {
        let (allowed, mut done) = (self.connections.reads().allowance(), Cost::default());
        for _ in 0..read_scheduler::GLANCES {
            let is_more = self.look_ahead();
            let before = done;
            while done < allowed
                && let Some(conn) = self.connections.reads().next_urgent()
            {
                done = done.plus(self.read_unless_paused(now, conn));
            }
            if done != before {
                self.act(now);
            }
            if !is_more {
                break;
            }
        }
        self.connections.reads().overdraw(done.less(allowed));
    }

    /// Searches for cancels in the next input of some waiting peers; returns whether others remain.
    fn look_ahead(&mut self) -> bool {
        for _ in 0..read_scheduler::GLANCE {
            let Some(conn) = self.connections.reads().fresh() else { return false };
            if !self.handshakes.is_pending(conn) {
                self.connections.peek(conn, &mut self.scratch);
            }
        }
        true
    }

    /// Reads a bounded amount from one peer, unless the receiver of its frames does not keep up.
    fn read_unless_paused(&mut self, now: Now, conn: ConnId) -> Cost {
        if self.engine.is_paused(conn) {
            self.upstreams.paused.insert(conn);
            return Cost::reading(0, 0);
        }
        self.read(now, conn)
    }

    /// Reads paused peers again whose receivers have caught up.
    pub(super) fn resume_paused(&mut self) {
        if self.upstreams.paused.is_empty() {
            return;
        }
        for conn in std::mem::take(&mut self.upstreams.paused) {
            if self.engine.is_paused(conn) {
                self.upstreams.paused.insert(conn);
            } else {
                self.note_readable(conn);
            }
        }
    }

    /// Reads a bounded amount from one peer; returns its cost.
    pub(super) fn read(&mut self, now: Now, conn: ConnId) -> Cost {
        let looked = Cost::reading(0, 0);
        if self.handshakes.is_pending(conn) {
            self.connections.charge(conn, looked);
            self.read_handshake(now, conn);
            self.note_partial(now, conn);
            return looked;
        }
        if self.http.contains(conn) {
            return self.read_http(now, conn);
        }
        let (engine, actions) = (&mut self.engine, &mut self.actions);
        let mut sink = EngineSink { now, conn, engine, actions };
        let received = self.connections.receive(conn, now.at, &mut self.scratch, &mut sink);
        let Some(Received { flow, cost }) = received else { return looked };
        match flow {
            Ok(Flow::Drained) => {}
            Ok(Flow::More) => self.note_readable(conn),
            Ok(Flow::Finished) => self.finished(now, conn),
            Err(lost) => {
                tracing::debug!(%conn, %lost, "lost");
                if let (true, Lost::Broken { doing, error }) =
                    (self.connections.is_sole(conn), lost)
                {
                    self.lost_stdio = Some(io::Error::other(format!("{doing} stdio: {error}")));
                }
                self.drop_peer(now, conn);
            }
        }
        self.note_partial(now, conn);
        cost
    }

    /// Handles end of file of a peer.
    pub(super) fn finished(&mut self, now: Now, conn: ConnId) {
        if self.end_upstream_of(now, conn) {
            return;
        }
        let Some(origin) = self.connections.origin(conn) else { return };
        let then = match origin {
            _ if self.connections.is_sole(conn) => AfterInput::AnswerWithin(self.eof_grace),
            // A half-close cannot be told from a disconnect.
            Origin::Tcp { .. } => AfterInput::AnswerAndProbe(PROBE),
            Origin::Unix { .. } | Origin::Stdio { .. } | Origin::Child { .. } => AfterInput::Answer,
        };
        self.engine.handle(now, Event::Finished { conn, then }, &mut self.actions);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use ceased_transports::Socket;
    use mio::Token;

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
            server.serve_peer(Box::new(Socket::from_unix(theirs).unwrap()), false).unwrap();
            let conn = server.connections.ids().pop().expect("the peer was just added");
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
        while !server.connections.nothing_to_read() {
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
        let order: Vec<_> = std::iter::from_fn(|| server.connections.reads().fresh()).collect();
        assert_eq!(order, [peers[2].1, peers[0].1, peers[1].1]);
        drop(end);
    }
}
