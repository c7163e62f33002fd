//! Server-sent events: their text, and a bounded buffer of events for clients that come back.

use std::collections::VecDeque;

/// Content type of a stream of events.
pub const CONTENT_TYPE: &str = "text/event-stream";

/// Writes one event with this id, whose data is one line of JSON.
pub fn write_event(out: &mut Vec<u8>, id: Option<&str>, data: &[u8]) {
    if let Some(id) = id {
        for part in [b"id: ", id.as_bytes(), b"\n"] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"data:");
    if !data.is_empty() {
        out.push(b' ');
    }
    for byte in data {
        // A line end would end the event. In JSON it can only be white space.
        out.push(if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte });
    }
    out.extend_from_slice(b"\n\n");
}

/// Writes how long a client waits before it connects again, in milliseconds.
pub fn write_retry(out: &mut Vec<u8>, milliseconds: u64) {
    out.extend_from_slice(format!("retry: {milliseconds}\n\n").as_bytes());
}

/// Writes a comment, which a client ignores: it keeps proxies from closing a silent stream, and
/// shows a client that is gone.
pub fn write_comment(out: &mut Vec<u8>) {
    out.extend_from_slice(b":\n\n");
}

/// Id of an event: the number of its stream and its place in the stream (HTTP-06).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// Number of the stream, unique in its session.
    pub stream: u64,
    /// Place in the stream, from 0.
    pub place: u64,
}

impl EventId {
    /// Reads an id as this server writes it.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (stream, place) = text.split_once('-')?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number)
        };
        Some(Self { stream: number(stream)?, place: number(place)? })
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.stream, self.place)
    }
}

/// Events of a session that a client may ask for again, the oldest first. Bounded in bytes: the
/// oldest events make room for new ones.
#[derive(Debug)]
pub struct EventBuffer {
    events: VecDeque<(EventId, Box<[u8]>)>,
    bytes: usize,
    bytes_max: usize,
}

/// Bytes that an event takes besides its data.
const OVERHEAD: usize = size_of::<(EventId, Box<[u8]>)>();

impl EventBuffer {
    /// An empty buffer of at most this many bytes.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self { events: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Bytes that its events take.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps an event. One that is larger than the whole buffer is not kept.
    pub fn push(&mut self, id: EventId, data: &[u8]) {
        let size = data.len() + OVERHEAD;
        while self.bytes + size > self.bytes_max {
            let Some((_, oldest)) = self.events.pop_front() else { return };
            self.bytes -= oldest.len() + OVERHEAD;
        }
        self.bytes += size;
        self.events.push_back((id, data.into()));
    }

    /// Events of the stream behind this one, in order.
    pub fn after(&self, id: EventId) -> impl Iterator<Item = (EventId, &[u8])> {
        let later = move |of: &EventId| of.stream == id.stream && of.place > id.place;
        let events = self.events.iter().filter(move |(of, _)| later(of));
        events.map(|(of, data)| (*of, &**data))
    }

    /// Drops the events of the streams that `are_gone`.
    pub fn forget(&mut self, are_gone: impl Fn(u64) -> bool) {
        let bytes = &mut self.bytes;
        self.events.retain(|(id, data)| {
            let stays = !are_gone(id.stream);
            *bytes -= if stays { 0 } else { data.len() + OVERHEAD };
            stays
        });
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
    }

    /// Bytes that are kept.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether no event is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
