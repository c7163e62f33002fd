//! Input: reads connections in a fair order, and hands their frames to the engine.

use std::io;

use ceased_core::event::{AfterInput, Event};
use ceased_core::ids::ConnId;
use ceased_core::rpc::frame::Frame;
use ceased_core::time::Now;
use ceased_transports::{Flow, Lost, Peer as Origin};

use super::server::Server;
use super::state::connections::{Received, Sending};
use super::state::constants::PROBE;
use super::state::read_scheduler::{self, Cost};
use crate::http::peer::HttpPeer;

impl Server {
    pub(super) fn note_event(&mut self, conn: ConnId, event: &mio::event::Event) {
        self.connections.note_event(conn, event);
        let of_http = self.http.peer(conn).is_some_and(HttpPeer::has_output);
        if of_http || self.remotes.has_output(conn) {
            self.connections.note_output(conn, Sending::More);
        }
    }

    /// Reads pending input, fairly by recent work per peer.
    pub(super) fn take_bytes(&mut self, now: Now) {
        let mut turn = read_scheduler::TURN;
        while !turn.is_none()
            && let Some(conn) = self.connections.reads().next()
        {
            turn = turn.less(self.read_unless_paused(now, conn));
        }
    }

    /// Reads connections without an identity, for a bounded time: their number and the cost of their
    /// tokens are the choice of peers that may have no right to either.
    pub(super) fn read_strangers(&mut self, now: Now) {
        let (begun, mut count) = (self.clock.now().at, 0);
        while count < read_scheduler::STRANGERS_MAX
            && (count == 0 || self.clock.now().at - begun < read_scheduler::STRANGERS_TIME)
            && let Some(conn) = self.connections.reads().next_stranger()
        {
            self.read(now, conn);
            count += 1;
        }
        if count > 0 {
            // In this turn: a reload in the next one may close a connection whose token it revokes.
            self.act(now);
            self.send(now);
        }
    }

    /// Reads a bounded amount from one peer, unless the receiver of its frames does not keep up.
    fn read_unless_paused(&mut self, now: Now, conn: ConnId) -> Cost {
        if self.is_paused(conn) {
            self.upstreams.pause(conn);
            return Cost::reading(0, 0);
        }
        self.read(now, conn)
    }

    /// Whether the receiver of the frames of a connection does not keep up.
    fn is_paused(&self, conn: ConnId) -> bool {
        self.engine.is_paused(self.remotes.engine_of(conn).unwrap_or(conn))
    }

    /// Reads paused peers again whose receivers have caught up.
    pub(super) fn resume_paused(&mut self) {
        for conn in self.upstreams.take_paused() {
            if self.is_paused(conn) {
                self.upstreams.pause(conn);
            } else {
                self.connections.note_readable(conn);
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
        if let Some(slot) = self.remotes.of_conn(conn) {
            return self.read_remote(now, conn, slot);
        }
        let (engine, actions) = (&mut self.engine, &mut self.actions);
        let mut sink = |frame: Frame<'_>| {
            let event = match frame {
                Frame::Line(frame) => Event::Frame { conn, frame },
                Frame::TooLong(skeleton) => Event::TooLong { conn, skeleton },
                Frame::NotJsonRpc(bytes) => Event::NotJsonRpc { conn, bytes },
            };
            engine.handle(now, event, actions);
        };
        let received = self.connections.receive(conn, now.at, &mut self.scratch, &mut sink);
        let Some(Received { flow, cost }) = received else { return looked };
        match flow {
            Ok(Flow::Drained) => {}
            Ok(Flow::More) => self.connections.note_readable(conn),
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
