//! One request and its response, on a connection of its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use ceased_client::LINE_BYTES_MAX;
use ceased_transports::Output as _;
use ceased_transports::http::client::{ClientLimits, HttpClient, Part, ResponseHead};
use rustix::event::PollFlags;
use serde_json::Value;

use ceased_client::web::{HttpServer, Wire, is_later};

/// More than a connection holds below TLS, so that a read leaves nothing that a poll does not tell.
const PIECE_BYTES: usize = 64 * 1024;

/// An exchange.
#[derive(Debug)]
pub(crate) struct Exchange {
    wire: Box<dyn Wire>,
    client: HttpClient,
    /// Id of the request.
    pub(crate) id: Option<Value>,
    pub(crate) is_initialize: bool,
    /// Whether the request was cancelled.
    pub(crate) is_cancelled: bool,
    /// Whether the request is answered.
    pub(crate) is_answered: bool,
    pub(crate) begun: Instant,
    /// The reason for which nothing more comes.
    pub(crate) failure: Option<String>,
}

impl Exchange {
    /// Connects, and sends these bytes.
    pub(crate) fn begin(server: &HttpServer, bytes: Vec<u8>, until: Instant) -> io::Result<Self> {
        let wire = server.connect(until)?;
        let (body_bytes, event_bytes) = (LINE_BYTES_MAX, LINE_BYTES_MAX);
        let limits = ClientLimits { body_bytes, event_bytes, ..ClientLimits::default() };
        let mut client = HttpClient::new(limits);
        client.send_raw(bytes).map_err(io::Error::other)?;
        let mut exchange = Self {
            wire,
            client,
            id: None,
            is_initialize: false,
            is_cancelled: false,
            is_answered: false,
            begun: Instant::now(),
            failure: None,
        };
        exchange.write();
        Ok(exchange)
    }

    /// The events to wait for.
    pub(crate) fn interest(&self) -> PollFlags {
        match self.client.pending().is_empty() && !self.wire.wants_room() {
            true => PollFlags::IN,
            false => PollFlags::IN | PollFlags::OUT,
        }
    }

    /// Whether nothing more comes.
    pub(crate) const fn is_over(&self) -> bool {
        self.client.is_over() || self.failure.is_some()
    }

    /// Whether the request is sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.client.pending().is_empty() && !self.wire.holds_output()
    }

    /// The head of the response, once it is there.
    pub(crate) fn head(&self) -> Option<&ResponseHead> {
        self.client.head()
    }

    /// The status of the response; 0 before its head is there.
    pub(crate) fn status(&self) -> u16 {
        self.head().map_or(0, |head| head.status)
    }

    /// The texts received since the last call: the body, or the data of each event.
    pub(crate) fn take_texts(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(part) = self.client.next_part() {
            let bytes = match part {
                Part::Body(body) => body,
                Part::Event(event) => event.data,
            };
            if !bytes.is_empty() {
                texts.push(String::from_utf8(bytes).unwrap_or_else(|why| {
                    // A mark that makes it no JSON.
                    format!("\u{fffd}{}", String::from_utf8_lossy(why.as_bytes()))
                }));
            }
        }
        texts
    }

    /// Sends and receives as far as possible; the number of received bytes.
    pub(crate) fn turn(&mut self) -> usize {
        self.write();
        self.read()
    }

    fn write(&mut self) {
        while !self.client.pending().is_empty() {
            match self.wire.write(self.client.pending()) {
                Ok(count) => self.client.note_sent(count),
                Err(why) if is_later(&why) => return,
                // A server may answer and close before it has read everything.
                Err(_) => self.client.clear(),
            }
        }
    }

    fn read(&mut self) -> usize {
        let mut piece = vec![0; PIECE_BYTES];
        let (count, taken) = match self.wire.read(&mut piece) {
            Ok(0) => (0, self.client.finish()),
            Ok(count) => (count, self.client.receive(piece.get(..count).unwrap_or_default())),
            Err(why) if is_later(&why) => return 0,
            Err(why) => {
                self.failure = Some(why.to_string());
                return 0;
            }
        };
        self.failure = taken.err().map(|why| why.to_string());
        count
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}
