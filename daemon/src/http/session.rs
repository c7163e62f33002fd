//! One session of 2025-03-26 to 2025-11-25: its streams, and events for clients that come back
//! (HTTP-04, HTTP-06).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::identity::{Identity, Rights};
use ceased_core::ids::{ConnId, RequestId};
use ceased_core::policy::account::{Account, Charge};
use ceased_core::time::Instant;
use ceased_transports::http::sse::{EventBuffer, EventId};
use uuid::Uuid;

use super::access::{Caller, HttpRules};
use super::signed::SignedToken;
use crate::token_file::Token;

/// Time that the events of an ended stream are kept for a client that lost its connection.
const REPLAY_FOR: Duration = Duration::from_secs(60);
/// Time between two looks for such events: each takes time by the number of kept events.
const FORGET_INTERVAL: Duration = Duration::from_secs(1);
/// Ends of streams that were resumed, beyond twice the number of streams, before they are dropped.
const ENDED_SLACK: usize = 8;
/// Maximum number of GET streams of a session; a further one ends the oldest.
pub(super) const GET_STREAMS_MAX: usize = 8;
/// Maximum bytes of messages that wait for the first GET stream.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// Id of a session, which a client cannot guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId(u128);

impl SessionId {
    pub(crate) fn new() -> Self {
        Self(Uuid::new_v4().as_u128())
    }

    /// Reads an id as this server writes it, behind the name of a node or alone.
    pub(super) fn read(text: &str) -> Option<Self> {
        let text = text.rsplit_once('.').map_or(text, |(_, id)| id);
        if text.len() != 32 {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().as_chunks().0) {
            let [high, low] = *digits;
            *byte = digit(high)? << 4 | digit(low)?;
        }
        Some(Self(u128::from_be_bytes(bytes)))
    }
}

/// Value of a hexadecimal digit in lower case.
const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A session.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// Name of the node in front of the id, for load balancers.
    node: Option<Arc<str>>,
    pub(crate) identity: Identity,
    pub(crate) rights: Rights,
    pub(crate) token: Option<Arc<Token>>,
    /// Profile in the path of its endpoint.
    pub(crate) profile: Option<Box<str>>,
    /// Signed token of its latest request.
    pub(crate) signed: Option<Arc<SignedToken>>,
    pub(crate) rules: Arc<HttpRules>,
    /// Revision that `initialize` settled; `None` before its answer.
    pub(crate) revision: Option<&'static str>,
    pub(super) streams: BTreeMap<u64, Stream>,
    next_stream: u64,
    /// Streams of open requests.
    pub(super) requests: BTreeMap<RequestId, u64>,
    replay: EventBuffer,
    /// Bytes of kept events and messages, charged to the identity in an account of the HTTP
    /// sessions: decisions of the engine depend on nothing but its events.
    pub(super) charge: Charge,
    /// Bytes that the engine holds for the identity, and how many both may hold.
    held: (Account, usize),
    /// Number of streams with a connection.
    attached: usize,
    /// Ends of streams whose events are kept, in order. Streams that were resumed since may be among
    /// them.
    ended: VecDeque<(Instant, u64)>,
    /// Messages of no request, from before the first GET stream.
    waiting: VecDeque<Box<[u8]>>,
    waiting_bytes: usize,
    last_use: Instant,
    /// The connection of its last open stream was lost, and the client has opened none since.
    is_lost: bool,
    /// A cancel arrived: streams whose requests are gone are to be ended (HTTP-07).
    pub(crate) had_cancel: bool,
    /// Bytes of bodies received and of frames sent.
    pub(crate) bytes: (u64, u64),
    /// Its entry among the deadlines.
    pub(super) due: Option<Instant>,
}

/// A stream: the response of a POST with requests, or of a GET.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) kind: StreamKind,
    /// HTTP connection that it is sent on; `None` while the client is disconnected.
    pub(super) peer: Option<ConnId>,
    /// Whether a client knows an event of it.
    pub(super) started: bool,
    next_place: u64,
    ended: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    Post { requests: Vec<RequestId>, is_batch: bool, is_initialize: bool },
    Get,
}

impl Session {
    /// The id as its client gets it: behind the name of the node in a fleet, so that a load balancer finds
    /// the node without a table.
    pub(crate) fn shown_id(&self) -> String {
        match &self.node {
            Some(node) => format!("{node}.{}", self.id),
            None => self.id.to_string(),
        }
    }

    pub(crate) fn new(
        (id, node): (SessionId, Option<Arc<str>>),
        caller: Caller,
        rules: Arc<HttpRules>,
        now: Instant,
    ) -> Self {
        let Caller { identity, rights, token, view: _, profile, signed } = caller;
        let replay = EventBuffer::new(rules.replay_bytes);
        Self {
            id,
            node,
            identity,
            rights,
            token,
            profile,
            signed,
            rules,
            revision: None,
            streams: BTreeMap::new(),
            next_stream: 0,
            requests: BTreeMap::new(),
            replay,
            charge: Charge::default(),
            held: (Account::default(), usize::MAX),
            attached: 0,
            ended: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            last_use: now,
            is_lost: false,
            had_cancel: false,
            bytes: (0, 0),
            due: None,
        }
    }

    /// Whether its revision begins streams with an event that a client can resume at.
    fn primes(&self) -> bool {
        self.revision == Some("2025-11-25")
    }

    /// Adds a stream on this HTTP connection; returns its number.
    fn add(&mut self, kind: StreamKind, peer: ConnId) -> u64 {
        let number = self.next_stream;
        self.next_stream += 1;
        let stream = Stream { kind, peer: Some(peer), started: false, next_place: 0, ended: None };
        self.streams.insert(number, stream);
        self.note_attached();
        number
    }

    /// Adds the stream of a POST with these requests.
    pub(crate) fn add_post(
        &mut self,
        requests: Vec<RequestId>,
        is_batch: bool,
        is_initialize: bool,
        peer: ConnId,
    ) -> u64 {
        for id in &requests {
            self.requests.insert(id.clone(), self.next_stream);
        }
        self.add(StreamKind::Post { requests, is_batch, is_initialize }, peer)
    }

    /// Adds the stream of a GET. Returns its number, and the oldest GET stream if it has to make
    /// room.
    pub(crate) fn add_get(&mut self, peer: ConnId) -> (u64, Option<u64>) {
        let open = self.streams.iter().filter(|(_, it)| it.is_open_get());
        let open: Vec<u64> = open.map(|(number, _)| *number).collect();
        let oldest = open.first().copied().filter(|_| open.len() >= GET_STREAMS_MAX);
        (self.add(StreamKind::Get, peer), oldest)
    }

    /// Whether a request with this id waits for its answer.
    pub(crate) fn has_request(&self, id: &RequestId) -> bool {
        self.requests.contains_key(id)
    }

    /// The HTTP connection of a stream.
    pub(crate) fn peer_of(&self, stream: u64) -> Option<ConnId> {
        self.streams.get(&stream)?.peer
    }

    /// Connections of all open streams.
    pub(crate) fn peers(&self) -> Vec<ConnId> {
        self.streams.values().filter_map(|stream| stream.peer).collect()
    }

    /// Whether the client has an open stream or waits for a response.
    pub(crate) const fn is_attached(&self) -> bool {
        self.attached > 0
    }

    /// A stream has a connection.
    const fn note_attached(&mut self) {
        self.attached += 1;
        self.is_lost = false;
    }

    pub(crate) const fn last_use(&self) -> Instant {
        self.last_use
    }

    pub(crate) const fn touch(&mut self, now: Instant) {
        self.last_use = now;
    }

    /// The HTTP connection of a stream is gone. A disconnect is no cancel (HTTP-07): the stream
    /// goes on for a client that comes back, if the client knows an event of it.
    pub(crate) fn detach(&mut self, stream: u64, now: Instant) {
        self.touch(now);
        let Some(gone) = self.streams.get_mut(&stream) else { return };
        if gone.peer.take().is_some() {
            self.attached -= 1;
            self.is_lost = self.attached == 0;
        }
        match &gone.kind {
            StreamKind::Get if !gone.started => drop(remove(&mut self.streams, &stream)),
            StreamKind::Get => {
                gone.ended = Some(now);
                self.note_end(stream, now);
            }
            StreamKind::Post { .. } => {}
        }
    }

    /// A stream got its last frame.
    pub(super) fn end(&mut self, number: u64, now: Instant) {
        // The end of a stream that nothing reads is no use of the session.
        if !self.is_lost {
            self.touch(now);
        }
        let Some(stream) = self.streams.get_mut(&number) else { return };
        if let StreamKind::Post { requests, .. } = &stream.kind {
            for id in requests {
                if self.requests.get(id) == Some(&number) {
                    remove(&mut self.requests, id);
                }
            }
        }
        self.attached -= usize::from(stream.peer.take().is_some());
        if stream.started {
            stream.ended = Some(now);
            self.note_end(number, now);
        } else {
            remove(&mut self.streams, &number);
        }
    }

    /// The priming event of a stream that begins now, where the revision has one.
    pub(super) fn start(&mut self, number: u64) -> Option<EventId> {
        let primes = self.primes();
        let stream = self.streams.get_mut(&number)?;
        stream.started = true;
        primes.then(|| stream.next_id(number))
    }

    /// Notes an event of a stream; returns its id.
    pub(super) fn note_event(&mut self, number: u64, frame: &[u8]) -> Option<EventId> {
        let id = self.streams.get_mut(&number)?.next_id(number);
        self.replay.push(id, frame);
        self.charge_kept();
        // Beyond the share the session keeps no events: a client that comes back misses some.
        let (engine, share) = &self.held;
        if self.charge.account().own().saturating_add(engine.own()) > *share {
            self.replay.forget(|_| true);
            self.charge_kept();
        }
        Some(id)
    }

    /// Bounds the kept events by `share`, of which the engine holds the bytes in `engine`.
    pub(crate) fn keep_within(&mut self, engine: Account, share: usize) {
        self.held = (engine, share);
    }

    fn charge_kept(&mut self) {
        self.charge.set(self.replay.bytes() + self.waiting_bytes);
    }

    /// Keeps a message of no request for the first GET stream; the oldest make room.
    pub(super) fn keep_waiting(&mut self, frame: &[u8]) {
        self.waiting_bytes += frame.len();
        self.waiting.push_back(frame.into());
        while self.waiting_bytes > WAITING_BYTES_MAX
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.waiting_bytes -= oldest.len();
        }
        self.charge_kept();
    }

    pub(super) fn take_waiting(&mut self) -> VecDeque<Box<[u8]>> {
        self.waiting_bytes = 0;
        self.charge_kept();
        std::mem::take(&mut self.waiting)
    }

    /// The stream of messages that belong to no request: the newest GET stream with a connection,
    /// else the newest one whose client may come back.
    pub(super) fn unrelated(&self) -> Option<u64> {
        let gets = || self.streams.iter().rev().filter(|(_, it)| it.kind == StreamKind::Get);
        let attached = gets().find(|(_, stream)| stream.peer.is_some());
        attached.or_else(|| gets().find(|(_, stream)| stream.started)).map(|(number, _)| *number)
    }

    /// Attaches a connection to the stream of an event that the client got last. Returns the
    /// stream, the connection that it was sent on, and whether the stream has ended; `None` when
    /// the stream is not known any more.
    pub(super) fn resume(
        &mut self,
        last: EventId,
        peer: ConnId,
    ) -> Option<(u64, Option<ConnId>, bool)> {
        let stream = self.streams.get_mut(&last.stream).filter(|stream| stream.started)?;
        let is_over = stream.ended.is_some() && stream.kind != StreamKind::Get;
        let before = stream.peer.take();
        self.attached -= usize::from(before.is_some());
        if !is_over {
            stream.peer = Some(peer);
            stream.ended = None;
            self.note_attached();
        }
        Some((last.stream, before, is_over))
    }

    /// Events of a stream behind this one.
    pub(super) fn events_after(&self, last: EventId) -> impl Iterator<Item = (EventId, &[u8])> {
        self.replay.after(last)
    }

    /// POST streams that wait for requests.
    pub(super) fn waiting_posts(&self) -> Vec<(u64, Vec<RequestId>)> {
        let posts = self.streams.iter().filter(|(_, stream)| stream.ended.is_none());
        let posts = posts.filter_map(|(number, stream)| match &stream.kind {
            StreamKind::Post { requests, .. } => Some((*number, requests.clone())),
            StreamKind::Get => None,
        });
        posts.collect()
    }
}

/// Deadlines.
impl Session {
    /// Notes the end of a stream whose events are kept.
    fn note_end(&mut self, number: u64, now: Instant) {
        self.ended.push_back((now, number));
        // A client can resume one stream at any rate.
        if self.ended.len() > 2 * self.streams.len() + ENDED_SLACK {
            let streams = &self.streams;
            let is_last = |(at, number): &(Instant, u64)| {
                streams.get(number).is_some_and(|stream| stream.ended == Some(*at))
            };
            self.ended.retain(is_last);
        }
    }

    /// Time of the next [`forget_old`](Self::forget_old) or of the end of the session.
    pub(crate) fn deadline(&self) -> Instant {
        let forget = self.ended.front().map(|(at, _)| *at + REPLAY_FOR + FORGET_INTERVAL);
        let idle = (!self.is_attached()).then(|| self.last_use + self.away_max());
        // An attached session is looked at again when its stream ends.
        let later = self.last_use + REPLAY_FOR.max(self.rules.session_idle);
        [forget, idle].into_iter().flatten().min().unwrap_or(later)
    }

    /// Drops the events of streams that ended long ago.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        let mut old = BTreeSet::new();
        let is_old = |(at, _): &(Instant, u64)| *at + REPLAY_FOR <= now;
        while let Some((at, number)) = self.ended.front().copied().filter(is_old) {
            self.ended.pop_front();
            // Not one that was resumed.
            if self.streams.get(&number).is_some_and(|stream| stream.ended == Some(at)) {
                remove(&mut self.streams, &number);
                old.insert(number);
            }
        }
        if self.ended.is_empty() {
            self.ended = VecDeque::new();
        }
        if !old.is_empty() {
            self.replay.forget(|stream| old.contains(&stream));
            self.charge_kept();
        }
    }

    /// How long the client may be away. One that kept a stream open and has lost it is likely to
    /// have ended, and comes back soon if it has not.
    fn away_max(&self) -> Duration {
        match self.is_lost {
            true => self.rules.gone.min(self.rules.session_idle),
            false => self.rules.session_idle,
        }
    }

    /// Whether the client was away for `session_idle`, or for `gone` after the loss of its last
    /// connection (HTTP-04).
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        !self.is_attached() && self.last_use + self.away_max() <= now
    }
}

/// Removes an entry. An emptied map keeps a node, so it is replaced: there are thousands of idle
/// sessions.
fn remove<K: Ord, V>(map: &mut BTreeMap<K, V>, key: &K) -> Option<V> {
    let value = map.remove(key);
    if map.is_empty() {
        *map = BTreeMap::new();
    }
    value
}

impl Stream {
    fn is_open_get(&self) -> bool {
        self.kind == StreamKind::Get && self.peer.is_some()
    }

    const fn next_id(&mut self, stream: u64) -> EventId {
        let place = self.next_place;
        self.next_place += 1;
        EventId { stream, place }
    }
}

#[cfg(test)]
mod tests {
    use ceased_transports::Address;

    use super::*;
    use crate::access::Access;

    /// A session that waits for `gone` seconds after a loss, and for 1000 otherwise.
    fn session(gone: u64) -> Session {
        let rules = HttpRules {
            serves: crate::http::pages::Serves::Endpoint,
            address: Address::Stdio,
            access: Access::Anonymous,
            allow_origins: Arc::new([]),
            any_host: true,
            session_idle: Duration::from_secs(1000),
            gone: Duration::from_secs(gone),
            keep_alive: Duration::ZERO,
            sessions_per_identity: 1,
            connections_per_address: 1,
            replay_bytes: 4096,
            view: false,
            signed: None,
            secure: None,
        };
        let caller = Caller::of(Identity::Anonymous);
        Session::new((SessionId::new(), None), caller, Arc::new(rules), Instant::default())
    }

    /// HTTP-07: events of ended streams are kept for a minute, unless their stream was resumed.
    #[test]
    fn ended_streams_are_forgotten() {
        let now = |seconds| Instant::default() + Duration::from_secs(seconds);
        let mut session = session(1000);
        for number in 0..4 {
            let stream = match number {
                3 => session.add_get(ConnId::new(number)).0,
                _ => {
                    let requests = vec![RequestId::Number(i64::try_from(number).unwrap())];
                    session.add_post(requests, false, false, ConnId::new(number))
                }
            };
            session.start(stream);
            session.note_event(stream, b"{}");
            assert!(session.is_attached());
            match number {
                3 => session.detach(stream, now(number)),
                _ => session.end(stream, now(number)),
            }
            assert!(!session.is_attached());
        }
        let id = |stream| EventId { stream, place: 0 };
        assert_eq!(session.deadline(), now(0) + REPLAY_FOR + FORGET_INTERVAL);
        session.forget_old(now(1) + REPLAY_FOR);
        assert!([0, 1].iter().all(|gone| session.resume(id(*gone), ConnId::new(9)).is_none()));
        assert_eq!(session.deadline(), now(2) + REPLAY_FOR + FORGET_INTERVAL);
        assert!(session.resume(id(2), ConnId::new(9)).is_some_and(|(.., is_over)| is_over));
        assert!(session.resume(id(3), ConnId::new(9)).is_some_and(|(.., is_over)| !is_over));
        assert!(session.is_attached());
        session.forget_old(now(9) + REPLAY_FOR);
        assert!(session.resume(id(2), ConnId::new(10)).is_none());
        let (stream, before, _) = session.resume(id(3), ConnId::new(10)).unwrap();
        assert_eq!((stream, before), (3, Some(ConnId::new(9))));
        assert!(session.is_attached() && session.ended.is_empty());
    }

    /// HTTP-07, HTTP-04: a session whose last connection was lost waits for `gone`, one whose streams
    /// have ended for `session_idle`; a stream that the client opens ends the wait.
    #[test]
    fn lost_sessions_end_sooner_than_idle_ones() {
        let now = |seconds| Instant::default() + Duration::from_secs(seconds);
        let mut session = session(50);
        let post = |session: &mut Session| {
            session.add_post(vec![RequestId::Number(1)], false, false, ConnId::new(1))
        };
        let stream = post(&mut session);
        session.end(stream, now(1));
        assert!(!session.is_idle(now(51)) && session.is_idle(now(1001)));
        let get = session.add_get(ConnId::new(2)).0;
        session.start(get);
        session.note_event(get, b"{}");
        let stream = post(&mut session);
        session.detach(get, now(199));
        assert!(!session.is_idle(now(2000)), "another stream is open");
        session.detach(stream, now(200));
        assert!(!session.is_idle(now(249)) && session.is_idle(now(250)));
        assert_eq!(session.deadline(), now(250));
        // An answer that nothing reads is no sign of the client, and its return is one.
        session.end(stream, now(240));
        assert!(session.is_idle(now(250)));
        session.touch(now(245));
        assert!(!session.is_idle(now(294)) && session.is_idle(now(295)));
        session.resume(EventId { stream: get, place: 0 }, ConnId::new(3)).unwrap();
        assert!(!session.is_idle(now(5000)));
        session.end(get, now(300));
        assert!(!session.is_idle(now(1299)) && session.is_idle(now(1300)));
    }

    /// A stream that is resumed again and again takes no more memory.
    #[test]
    fn ends_of_resumed_streams_are_dropped() {
        let mut session = session(50);
        let stream = session.add_get(ConnId::new(1)).0;
        session.start(stream);
        session.note_event(stream, b"{}");
        for second in 0..50 {
            session.detach(stream, Instant::default() + Duration::from_secs(second));
            assert!(session.ended.len() <= 2 + ENDED_SLACK, "{:?}", session.ended);
            assert!(session.ended.iter().any(|(_, number)| *number == stream));
            let id = EventId { stream, place: 0 };
            assert!(session.resume(id, ConnId::new(2)).is_some());
        }
    }

    /// Each id has one spelling.
    #[test]
    fn session_ids_are_read_as_they_are_written() {
        for _ in 0..100 {
            let id = SessionId::new();
            assert_eq!(SessionId::read(&id.to_string()), Some(id));
        }
        let tagged = format!("build-1.{}", SessionId(7));
        assert_eq!(SessionId::read(&tagged), Some(SessionId(7)));
        let short = SessionId(0xab);
        assert_eq!(SessionId::read(&short.to_string()), Some(short));
        for text in
            ["", "ab", "+00000000000000000000000000000ab", "000000000000000000000000000000AB"]
        {
            assert_eq!(SessionId::read(text), None, "{text}");
        }
    }
}
