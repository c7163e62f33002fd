//! Delivery of the engine's frames: each goes to exactly one stream (HTTP-06).
//!
//! Frames of a request go to the stream of its POST, the others to a GET stream.

use ceased_core::ids::{ConnId, RequestId};
use ceased_core::time::Instant;
use ceased_transports::http::sse::EventId;
use ceased_transports::http::{Head, Response, Status};

use super::endpoint::Endpoint;
use super::envelope::{self, FrameKind};
use super::peer::{HttpPeer, Subject};
use super::session::{Session, StreamKind};
use crate::conn_map::ConnMap;

/// Header with the id of a session.
const SESSION: &str = "mcp-session-id";

type Peers = ConnMap<Box<HttpPeer>>;

/// Result of delivering frames.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// Frames that were taken, by their request.
    pub(crate) taken: Vec<(Option<RequestId>, usize)>,
    /// HTTP connections with new output.
    pub(crate) touched: Vec<ConnId>,
    /// Some frames stay, because their connections do not read.
    pub(crate) is_blocked: bool,
    /// `initialize` failed: the session ends.
    pub(crate) failed: bool,
}

impl Delivered {
    fn count(&mut self, request: Option<&RequestId>) {
        match self.taken.iter_mut().find(|(of, _)| of.as_ref() == request) {
            Some((_, count)) => *count += 1,
            None => self.taken.push((request.cloned(), 1)),
        }
    }

    fn touch(&mut self, conn: ConnId) {
        if self.touched.last() != Some(&conn) {
            self.touched.push(conn);
        }
    }
}

/// Delivery to HTTP connections.
impl Endpoint {
    /// Delivers frames of an engine connection as far as their HTTP connections have room.
    /// `revision`: that of the session, if it has one by now.
    pub(crate) fn deliver<'a>(
        &mut self,
        engine: ConnId,
        revision: Option<&'static str>,
        frames: impl Iterator<Item = (Option<&'a RequestId>, &'a [u8])>,
        now: Instant,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        if let Some(conn) = self.stateless.get(engine).copied() {
            let Some(peer) = self.peers.get_mut(conn) else { return delivered };
            for (request, frame) in frames {
                if !peer.has_room() {
                    delivered.is_blocked = true;
                    break;
                }
                peer.take_stateless(request, frame);
                delivered.count(request);
                delivered.touch(conn);
            }
            return delivered;
        }
        let Self { peers, sessions, .. } = self;
        let Some(session) = sessions.get_mut(engine) else { return delivered };
        session.revision = session.revision.or(revision);
        let mut full: Vec<Option<RequestId>> = Vec::new();
        for (request, frame) in frames {
            if full.iter().any(|of| of.as_ref() == request) {
                continue;
            }
            let target = session.target(request, frame);
            let has_room = |conn: ConnId| peers.get(conn).is_none_or(|peer| peer.has_room());
            if target.and_then(|number| session.peer_of(number)).is_some_and(|it| !has_room(it)) {
                // The order of the frames of a stream is kept.
                full.push(request.cloned());
                delivered.is_blocked = true;
                continue;
            }
            session.bytes.1 += frame.len() as u64;
            delivered.count(request);
            match target {
                Some(number) => session.write(number, frame, now, peers, &mut delivered),
                None if FrameKind::of(frame) == FrameKind::Other => session.keep_waiting(frame),
                // The answer to no request that waits.
                None => {}
            }
        }
        delivered
    }

    /// Begins the stream of events of a connection that has waited for its answer.
    pub(crate) fn start_events(&mut self, conn: ConnId) {
        let Self { peers, sessions, .. } = self;
        let Some(peer) = peers.get_mut(conn) else { return };
        match peer.exchange().map(|exchange| exchange.subject.clone()) {
            Some(Subject::Stream { session, stream }) => {
                if let Some(session) = sessions.get_mut(session) {
                    session.begin(stream, peer);
                }
            }
            Some(Subject::Stateless { .. } | Subject::View { .. }) => peer.start_events(None, None),
            None => {}
        }
    }

    /// HTTP-07: ends the streams of a session whose requests are gone without an answer: they were
    /// cancelled.
    pub(crate) fn end_cancelled(
        &mut self,
        key: ConnId,
        now: Instant,
        is_open: impl Fn(&RequestId) -> bool,
    ) -> Vec<ConnId> {
        let Self { peers, sessions, .. } = self;
        let mut touched = Vec::new();
        let Some(session) = sessions.get_mut(key) else { return touched };
        for (number, requests) in session.waiting_posts() {
            if requests.iter().any(&is_open) {
                continue;
            }
            let conn = session.peer_of(number);
            if let Some(peer) = conn.and_then(|conn| peers.get_mut(conn)) {
                if peer.accepts_events() || peer.is_streaming() {
                    session.begin(number, peer);
                    peer.end_events();
                } else {
                    peer.respond(Response::new(Status::NoContent));
                }
            }
            touched.extend(conn);
            session.end(number, now);
        }
        touched
    }

    /// Answers a GET with a stream of the session: a new one, or one that the client has lost.
    /// Returns the HTTP connections with new output; `None` when the lost stream is not known.
    pub(crate) fn open_get(
        &mut self,
        key: ConnId,
        conn: ConnId,
        head: &Head,
        last: Option<EventId>,
        now: Instant,
    ) -> Option<Vec<ConnId>> {
        let Self { peers, sessions, .. } = self;
        let session = sessions.get_mut(key)?;
        session.touch(now);
        let mut touched = vec![conn];
        let mut end = |conn: ConnId, peers: &mut Peers| {
            if let Some(peer) = peers.get_mut(conn) {
                peer.end_events();
                touched.push(conn);
            }
        };
        let Some(last) = last else {
            let (stream, oldest) = session.add_get(conn);
            if let Some(oldest) = oldest {
                let before = session.peer_of(oldest);
                before.into_iter().for_each(|before| end(before, peers));
                session.end(oldest, now);
            }
            let peer = peers.get_mut(conn)?;
            peer.begin_exchange(head, Subject::Stream { session: key, stream });
            session.begin(stream, peer);
            for frame in session.take_waiting() {
                let id = session.note_event(stream, &frame);
                peer.write_event(id, &frame);
            }
            return Some(touched);
        };
        let (stream, before, is_over) = session.resume(last, conn)?;
        before.filter(|before| *before != conn).into_iter().for_each(|it| end(it, peers));
        let peer = peers.get_mut(conn)?;
        peer.begin_exchange(head, Subject::Stream { session: key, stream });
        peer.start_events(None, None);
        for (id, frame) in session.events_after(last) {
            peer.write_event(Some(id), frame);
        }
        if is_over {
            peer.end_events();
        }
        Some(touched)
    }
}

/// Delivery to streams.
impl Session {
    /// The stream of a frame.
    fn target(&self, request: Option<&RequestId>, frame: &[u8]) -> Option<u64> {
        match request {
            Some(request) => self.requests.get(request).copied(),
            None if frame.first() == Some(&b'[') => {
                let ids = envelope::answered_ids(frame);
                ids.iter().find_map(|id| self.requests.get(id).copied())
            }
            None if FrameKind::of(frame) == FrameKind::Other => self.unrelated(),
            None => None,
        }
    }

    /// Begins the stream of events of a connection, unless it has begun.
    fn begin(&mut self, number: u64, peer: &mut HttpPeer) {
        if peer.is_streaming() {
            return;
        }
        let names_session = self.names_session(number);
        let priming = self.start(number);
        peer.start_events(names_session.then(|| (SESSION, self.shown_id())), priming);
    }

    /// Whether the response of a stream tells the client the id of the session.
    fn names_session(&self, number: u64) -> bool {
        let kind = self.streams.get(&number).map(|stream| &stream.kind);
        matches!(kind, Some(StreamKind::Post { is_initialize: true, .. }))
    }

    /// Writes a frame to a stream, or keeps it for a client that comes back.
    fn write(
        &mut self,
        number: u64,
        frame: &[u8],
        now: Instant,
        peers: &mut Peers,
        delivered: &mut Delivered,
    ) {
        let Some(stream) = self.streams.get(&number) else { return };
        let (started, is_post) = (stream.started, stream.kind != StreamKind::Get);
        let is_batch = matches!(&stream.kind, StreamKind::Post { is_batch: true, .. });
        let kind = FrameKind::of(frame);
        let is_last = is_post
            && if is_batch { frame.first() == Some(&b'[') } else { kind != FrameKind::Other };
        let conn = stream.peer;
        if self.names_session(number) && matches!(kind, FrameKind::Error(_)) {
            delivered.failed = true;
        }
        let Some((conn, peer)) = conn.and_then(|conn| Some((conn, peers.get_mut(conn)?))) else {
            // A client that knows no event of the stream cannot ask for it.
            if started {
                self.note_event(number, frame);
            }
            if is_last {
                self.end(number, now);
            }
            return;
        };
        delivered.touch(conn);
        if is_last && !peer.is_streaming() && peer.accepts_json() {
            let names_session = self.names_session(number) && !delivered.failed;
            let header = names_session.then(|| (SESSION, self.shown_id()));
            peer.respond_json(Status::Ok, header, frame);
            return self.end(number, now);
        }
        if !is_last && !peer.is_streaming() && !peer.accepts_events() {
            // This client takes nothing but the answer.
            return;
        }
        self.begin(number, peer);
        let id = self.note_event(number, frame);
        peer.write_event(id, frame);
        if is_last {
            peer.end_events();
            self.end(number, now);
        }
    }
}
