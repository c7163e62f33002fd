//! One response from bytes.

use std::collections::VecDeque;
use std::mem::replace;

use super::error::ResponseError;
use super::events::{Event, EventReader};
use super::head::{self, ResponseHead};
use super::limits::ClientLimits;
use crate::http::body::{Body, Bounds, Framing};

/// A part of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The whole body; there is none of no bytes.
    Body(Vec<u8>),
    /// An event of a body that is a stream of them.
    Event(Event),
}

/// Reads one response. Bytes may be cut anywhere: the result is the same.
#[derive(Debug)]
pub struct ResponseReader {
    limits: ClientLimits,
    to_head: bool,
    /// Bytes received and not read yet.
    bytes: Vec<u8>,
    /// Bytes that a head may still have: interim responses take a part.
    head_room: usize,
    head: Option<ResponseHead>,
    state: State,
    /// The reader of events of a stream that has ended.
    ended: Option<Box<EventReader>>,
    parts: VecDeque<Part>,
}

#[derive(Debug)]
enum State {
    Head,
    Body(Body, Content),
    Whole {
        /// The end of the body was told without the end of the connection.
        is_framed: bool,
    },
    Failed(ResponseError),
}

/// Content of a body.
#[derive(Debug)]
enum Content {
    Plain(Vec<u8>),
    Events(Box<EventReader>),
}

impl ResponseReader {
    /// A response of which nothing was received, to a HEAD request or another.
    #[must_use]
    pub const fn new(limits: ClientLimits, to_head: bool) -> Self {
        Self {
            limits,
            to_head,
            bytes: Vec::new(),
            head_room: limits.head_bytes,
            head: None,
            state: State::Head,
            ended: None,
            parts: VecDeque::new(),
        }
    }

    /// The head, once it is there.
    #[must_use]
    pub const fn head(&self) -> Option<&ResponseHead> {
        self.head.as_ref()
    }

    /// The next part of the body that was not taken yet.
    pub fn next_part(&mut self) -> Option<Part> {
        self.parts.pop_front()
    }

    /// The reader of events of a body that is a stream of them, also after its end.
    #[must_use]
    pub fn events(&self) -> Option<&EventReader> {
        match &self.state {
            State::Body(_, Content::Events(events)) => Some(events),
            State::Body(_, Content::Plain(_))
            | State::Head
            | State::Whole { .. }
            | State::Failed(_) => self.ended.as_deref(),
        }
    }

    /// Whether the response is whole.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        matches!(self.state, State::Whole { .. })
    }

    /// Whether the response is whole, no byte follows it, and its connection may carry another.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        let is_framed = matches!(self.state, State::Whole { is_framed: true });
        let keeps = self.head.as_ref().is_some_and(ResponseHead::keeps_alive);
        is_framed && keeps && self.bytes.is_empty()
    }

    /// Bytes that are held of parts that are not whole.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let of_body = match &self.state {
            State::Body(_, Content::Plain(plain)) => plain.len(),
            State::Body(_, Content::Events(events)) => events.held_bytes(),
            State::Head | State::Whole { .. } | State::Failed(_) => 0,
        };
        self.bytes.len() + of_body
    }

    /// Takes bytes of the server. Those behind the response make its connection
    /// [unusable](Self::keeps_alive) and nothing else.
    ///
    /// # Errors
    /// When the response cannot be read. Parts before the error can be taken.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ResponseError> {
        match &self.state {
            State::Failed(why) => return Err(why.clone()),
            State::Whole { .. } => {
                // One byte tells as much as many.
                if self.bytes.is_empty() {
                    self.bytes.extend(bytes.first());
                }
                return Ok(());
            }
            State::Head if !self.may_end_head(bytes) => {
                self.bytes.extend_from_slice(bytes);
                return Ok(());
            }
            State::Head | State::Body(..) => self.bytes.extend_from_slice(bytes),
        }
        self.advance(false)
    }

    /// The server has closed its half of the connection.
    ///
    /// # Errors
    /// When that is no end of the response.
    pub fn finish(&mut self) -> Result<(), ResponseError> {
        if matches!(self.state, State::Head) {
            // A wrong head without a line end was not looked at yet.
            self.advance(true)?;
        }
        let why = match replace(&mut self.state, State::Whole { is_framed: false }) {
            State::Whole { .. } => return Ok(()),
            State::Body(body, content) if body.ends_with_connection() => {
                self.end_body(content);
                return Ok(());
            }
            State::Body(body, _) => ResponseError::CutBody { received: body.taken() },
            State::Head if self.bytes.is_empty() && self.head_room == self.limits.head_bytes => {
                ResponseError::NoResponse
            }
            State::Head => {
                let interim = self.limits.head_bytes - self.head_room;
                ResponseError::CutHead { received: interim + self.bytes.len() }
            }
            State::Failed(why) => why,
        };
        Err(self.fail(why))
    }

    /// Whether these new bytes can complete a head. One that arrives byte by byte is not read again
    /// for each byte, which would take time in the square of its length.
    fn may_end_head(&self, new: &[u8]) -> bool {
        let (before, length) = (self.bytes.len(), self.bytes.len() + new.len());
        let has_begun = before < BEGUN && length >= BEGUN;
        has_begun || length >= self.head_room || memchr::memchr(b'\n', new).is_some()
    }

    /// Reads on in the bytes that arrived, which may be the last ones.
    fn advance(&mut self, is_last: bool) -> Result<(), ResponseError> {
        let mut read = 0;
        let result = self.read_on(&mut read, is_last);
        self.bytes.drain(..read);
        result.map_err(|why| self.fail(why))
    }

    fn fail(&mut self, why: ResponseError) -> ResponseError {
        self.state = State::Failed(why.clone());
        self.bytes = Vec::new();
        why
    }

    fn read_on(&mut self, read: &mut usize, is_last: bool) -> Result<(), ResponseError> {
        while matches!(self.state, State::Head) {
            let rest = self.bytes.get(*read..).unwrap_or_default();
            let is_short = rest.len() < BEGUN && memchr::memchr(b'\n', rest).is_none();
            if rest.is_empty() || is_short && !is_last {
                return Ok(());
            }
            let Some((head, length)) = head::parse(rest, self.head_room, &self.limits)? else {
                return Ok(());
            };
            *read += length;
            if head.status == 101 {
                return Err(ResponseError::Switched);
            }
            if head.is_interim() {
                self.head_room -= length;
                continue;
            }
            self.state = self.begin_body(&head)?;
            self.head = Some(head);
        }
        self.read_body(read)
    }

    fn begin_body(&self, head: &ResponseHead) -> Result<State, ResponseError> {
        let framing = head.framing(self.to_head)?;
        if framing != Framing::Length(0) {
            head.check_encoding()?;
        }
        let is_stream = head.is_event_stream();
        let body = if is_stream { u64::MAX } else { self.limits.body_bytes as u64 };
        let body = Body::new(framing, Bounds { body, trailers: self.limits.head_bytes })?;
        let content = match is_stream {
            true => Content::Events(Box::new(EventReader::new(self.limits.event_bytes))),
            false => Content::Plain(Vec::new()),
        };
        Ok(State::Body(body, content))
    }

    fn read_body(&mut self, read: &mut usize) -> Result<(), ResponseError> {
        let State::Body(body, content) = &mut self.state else { return Ok(()) };
        let is_whole = match content {
            Content::Plain(plain) => body.take(&self.bytes, read, plain)?,
            Content::Events(events) => {
                let mut decoded = Vec::new();
                let taken = body.take(&self.bytes, read, &mut decoded);
                // Events in front of a wrong chunk are events.
                events.receive(&decoded, &mut |event| self.parts.push_back(Part::Event(event)))?;
                taken?
            }
        };
        if is_whole
            && let State::Body(_, content) =
                replace(&mut self.state, State::Whole { is_framed: true })
        {
            self.end_body(content);
        }
        Ok(())
    }

    /// Hands over the whole body. An event without its end is none.
    fn end_body(&mut self, content: Content) {
        match content {
            Content::Plain(plain) if plain.is_empty() => {}
            Content::Plain(plain) => self.parts.push_back(Part::Body(plain)),
            Content::Events(events) => self.ended = Some(events),
        }
    }
}

/// Bytes at the start of a response that tell, without a line end, that a server does not speak HTTP.
const BEGUN: usize = 16;
