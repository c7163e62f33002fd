//! One HTTP connection: bytes in, requests out; responses in, bytes out.
//!
//! ```text
//!            head            body             respond / end_stream
//!   Head ──────────► Body ──────────► Ready ──────────────────────► Head (or closing)
//!     │                │
//!     └── refused ─────┴──► closing: the response is sent, then the connection is closed
//! ```
//!
//! Requests that a client sends ahead (pipelining) wait as bytes until the response before them is
//! written, so that responses keep the order of their requests.

use std::sync::Arc;

use super::body::{Body, BodyError, Bounds};
use super::date::HttpDate;
use super::fields::Version;
use super::head::{self, Head, Method, Parsed};
use super::limits::HttpLimits;
use super::response::{Response, Status};
use crate::link::Output;

/// A whole request.
#[derive(Debug)]
pub struct Request {
    /// Its head.
    pub head: Box<Head>,
    /// Its body, decoded from chunks.
    pub body: Vec<u8>,
}

/// Decides on requests by their heads, before a byte of a body is kept.
pub trait HeadCheck {
    /// Returns the response to a request that is refused, `None` for one whose body may be read.
    fn check(&mut self, head: &Head) -> Option<Response>;

    /// Whether the decision on this head waits for something else: the head is looked at again by
    /// the next [`advance`](HttpConnection::advance) after [`release`](HttpConnection::release).
    fn waits(&mut self, _: &Head) -> bool {
        false
    }
}

/// Progress of a connection, by which a host applies its deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No byte of a request has arrived since the last response.
    Idle,
    /// A head has begun.
    Head,
    /// A body has begun.
    Body,
    /// A request waits for its response, or the response is a stream that has not ended.
    Responding,
    /// The connection ends when its output is sent.
    Closing,
}

#[derive(Debug)]
enum Input {
    Head,
    /// A body, with its bytes so far.
    Body(Box<Head>, Body, Vec<u8>),
    /// A request that the host has not taken yet.
    Whole(Request),
    /// The host is writing the response to a request.
    Response(Exchange),
    Closing,
}

/// A request whose response is not whole yet.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    is_head: bool,
    version: Version,
    keep_alive: bool,
    is_streaming: bool,
}

/// One HTTP connection without its socket.
#[derive(Debug)]
pub struct HttpConnection {
    limits: HttpLimits,
    /// Bytes received and not read yet.
    bytes: Vec<u8>,
    input: Input,
    output: Vec<u8>,
    /// Bytes at the front of `output` that were sent.
    sent: usize,
    /// Date of its responses.
    date: Option<Arc<HttpDate>>,
    /// The decision on a head waits.
    is_held: bool,
}

impl HttpConnection {
    /// A connection on which nothing was received.
    #[must_use]
    pub const fn new(limits: HttpLimits) -> Self {
        Self {
            limits,
            bytes: Vec::new(),
            input: Input::Head,
            output: Vec::new(),
            sent: 0,
            date: None,
            is_held: false,
        }
    }

    /// Whether the decision on a head waits.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.is_held
    }

    /// The decision on a head can be made; [`advance`](Self::advance) is due.
    pub const fn release(&mut self) {
        self.is_held = false;
    }

    /// The same with this date in its responses.
    #[must_use]
    pub fn with_date(mut self, date: Arc<HttpDate>) -> Self {
        self.date = Some(date);
        self
    }

    /// Takes in bytes of the client.
    pub fn receive(&mut self, bytes: &[u8], check: &mut dyn HeadCheck) {
        if matches!(self.input, Input::Closing) {
            return;
        }
        self.bytes.extend_from_slice(bytes);
        if self.may_have_more(bytes) {
            self.advance(check);
        }
    }

    /// Whether these new bytes can complete something. A head that arrives byte by byte is not
    /// read again for each byte, which would take time in the square of its length.
    fn may_have_more(&self, new: &[u8]) -> bool {
        if self.is_held {
            return false;
        }
        let is_head = matches!(self.input, Input::Head);
        let length = self.bytes.len();
        !is_head || length <= START || length >= self.limits.head_bytes || new.contains(&b'\n')
    }

    /// Reads on in the bytes that arrived; due after a response, for requests sent ahead.
    pub fn advance(&mut self, check: &mut dyn HeadCheck) {
        let mut read = 0;
        loop {
            let rest = self.bytes.get(read..).unwrap_or_default();
            let next = match std::mem::replace(&mut self.input, Input::Head) {
                Input::Head if rest.is_empty() || self.is_held => break,
                Input::Head => match head::parse(rest, &self.limits) {
                    Parsed::Partial => break,
                    Parsed::Refused(response) => self.refuse(&response),
                    Parsed::Whole(head, _) if check.waits(&head) => {
                        self.is_held = true;
                        break;
                    }
                    Parsed::Whole(head, length) => {
                        read += length;
                        self.begin_body(head, check, read)
                    }
                },
                Input::Body(head, mut body, mut bytes) => {
                    match body.take(&self.bytes, &mut read, &mut bytes) {
                        Ok(true) => Input::Whole(Request { head, body: bytes }),
                        Ok(false) => {
                            self.input = Input::Body(head, body, bytes);
                            break;
                        }
                        Err(why) => self.refuse(&refusal(&why)),
                    }
                }
                waiting @ (Input::Whole(_) | Input::Response(_) | Input::Closing) => {
                    self.input = waiting;
                    break;
                }
            };
            self.input = next;
        }
        self.bytes.drain(..read);
        let is_large = self.bytes.is_empty() && self.bytes.capacity() > KEPT;
        if is_large || matches!(self.input, Input::Closing) {
            self.bytes = Vec::new();
        }
    }

    /// The input state behind a head that was read up to `read`.
    fn begin_body(&mut self, head: Box<Head>, check: &mut dyn HeadCheck, read: usize) -> Input {
        if let Some(response) = check.check(&head) {
            return self.refuse_head(&head, &response);
        }
        let bounds =
            Bounds { body: self.limits.body_bytes as u64, trailers: self.limits.head_bytes };
        match Body::new(head.framing, bounds) {
            Ok(body) => {
                let body_is_here = self.bytes.len() > read;
                if head.expects_continue && !body_is_here && head.announced_length() != Some(0) {
                    self.output.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                Input::Body(head, body, Vec::new())
            }
            Err(why) => self.refuse(&refusal(&why)),
        }
    }

    /// Refuses a request by its head. A request without a body leaves the connection usable.
    fn refuse_head(&mut self, head: &Head, response: &Response) -> Input {
        if head.announced_length() != Some(0) {
            return self.refuse(response);
        }
        let exchange = Exchange::of(head);
        self.write_whole(exchange, response, &response.body);
        if exchange.keep_alive { Input::Head } else { Input::Closing }
    }

    fn refuse(&mut self, response: &Response) -> Input {
        let exchange = Exchange {
            is_head: false,
            version: Version::Http11,
            keep_alive: false,
            is_streaming: false,
        };
        self.write_whole(exchange, response, &response.body);
        Input::Closing
    }

    /// The next whole request. The host owes it a response: [`respond`](Self::respond) or
    /// [`start_stream`](Self::start_stream).
    pub fn take_request(&mut self) -> Option<Request> {
        match std::mem::replace(&mut self.input, Input::Head) {
            Input::Whole(request) => {
                self.input = Input::Response(Exchange::of(&request.head));
                Some(request)
            }
            input @ (Input::Head | Input::Body(..) | Input::Response(_) | Input::Closing) => {
                self.input = input;
                None
            }
        }
    }

    /// Answers the request that was taken. Does nothing when no request waits, or its response is
    /// a stream. [`advance`](Self::advance) is due afterwards.
    pub fn respond(&mut self, response: &Response) {
        self.respond_with(response, &response.body);
    }

    /// As [`respond`](Self::respond), with this body instead of that of the response.
    pub fn respond_with(&mut self, response: &Response, body: &[u8]) {
        let Input::Response(exchange @ Exchange { is_streaming: false, .. }) = self.input else {
            return;
        };
        self.write_whole(exchange, response, body);
        self.input = if exchange.keep_alive { Input::Head } else { Input::Closing };
    }

    /// Begins a response whose body follows in parts, until [`end_stream`](Self::end_stream).
    pub fn start_stream(&mut self, head: &Response) {
        let Input::Response(exchange) = &mut self.input else { return };
        if exchange.is_streaming {
            return;
        }
        exchange.is_streaming = true;
        if exchange.version == Version::Http10 {
            // HTTP/1.0 has no chunks: the end of the connection is the end of the body.
            exchange.keep_alive = false;
        }
        let exchange = *exchange;
        self.write_head(head);
        if exchange.version == Version::Http11 {
            self.output.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        self.end_head(exchange);
    }

    /// Writes a part of the stream. Returns false when there is no stream.
    pub fn write_stream(&mut self, part: &[u8]) -> bool {
        let Input::Response(exchange @ Exchange { is_streaming: true, .. }) = self.input else {
            return false;
        };
        if part.is_empty() || exchange.is_head {
            return true;
        }
        if exchange.version == Version::Http11 {
            self.output.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        }
        self.output.extend_from_slice(part);
        if exchange.version == Version::Http11 {
            self.output.extend_from_slice(b"\r\n");
        }
        true
    }

    /// Writes an interim response, which a client ignores: on a connection whose client has closed
    /// its side it shows whether that client still reads. Does nothing once a response has begun,
    /// and for HTTP/1.0, which has no interim responses. Returns whether something was written.
    pub fn probe(&mut self) -> bool {
        let Input::Response(exchange) = self.input else { return false };
        if exchange.is_streaming || exchange.version == Version::Http10 {
            return false;
        }
        self.output.extend_from_slice(b"HTTP/1.1 102 Processing\r\n\r\n");
        true
    }

    /// Closes the connection after the response that is due, whatever the client asked for.
    pub const fn close_after_response(&mut self) {
        if let Input::Response(exchange) = &mut self.input {
            exchange.keep_alive = false;
        }
    }

    /// Ends the stream. [`advance`](Self::advance) is due afterwards.
    pub fn end_stream(&mut self) {
        let Input::Response(exchange @ Exchange { is_streaming: true, .. }) = self.input else {
            return;
        };
        if exchange.version == Version::Http11 && !exchange.is_head {
            self.output.extend_from_slice(b"0\r\n\r\n");
        }
        self.input = if exchange.keep_alive { Input::Head } else { Input::Closing };
    }

    /// Sends this response to a client whose request did not arrive in time, and closes.
    pub fn give_up(&mut self, response: &Response) {
        if matches!(self.input, Input::Head | Input::Body(..)) {
            self.input = self.refuse(response);
        }
    }

    /// Closes the connection when its output is sent; a stream that has not ended stays without an
    /// end, by which the client can tell that something is missing.
    pub fn close(&mut self) {
        self.input = Input::Closing;
        self.bytes = Vec::new();
    }

    /// Whether a byte may be received. False while the client has sent more ahead than the limit.
    #[must_use]
    pub const fn wants_input(&self) -> bool {
        match self.input {
            Input::Head | Input::Body(..) => !self.is_held,
            Input::Whole(_) | Input::Response(_) => self.bytes.len() < self.limits.pipelined_bytes,
            Input::Closing => false,
        }
    }

    /// Bytes held of requests that are not taken yet.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let body = match &self.input {
            Input::Body(_, _, bytes) => bytes.len(),
            Input::Whole(request) => request.body.len(),
            Input::Head | Input::Response(_) | Input::Closing => 0,
        };
        self.bytes.len() + body
    }

    /// Bytes to send.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or_default()
    }

    /// Notes that the first `count` of the [pending](Self::pending) bytes were sent.
    pub fn note_sent(&mut self, count: usize) {
        self.sent = self.output.len().min(self.sent + count);
        if self.sent == self.output.len() {
            self.sent = 0;
            if self.output.capacity() > KEPT {
                self.output = Vec::new();
            } else {
                self.output.clear();
            }
        } else if self.sent > KEPT && self.sent * 2 > self.output.len() {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Whether the connection is to be closed now.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.input, Input::Closing) && self.pending().is_empty()
    }

    /// Progress of the connection.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match &self.input {
            Input::Head if self.bytes.is_empty() => Phase::Idle,
            Input::Head => Phase::Head,
            Input::Body(..) => Phase::Body,
            Input::Whole(_) | Input::Response(_) => Phase::Responding,
            Input::Closing => Phase::Closing,
        }
    }

    /// Whether a response is a stream that has not ended.
    #[must_use]
    pub const fn is_streaming(&self) -> bool {
        matches!(self.input, Input::Response(Exchange { is_streaming: true, .. }))
    }

    /// Writes a head without the headers of the framing.
    fn write_head(&mut self, response: &Response) {
        response.write_head(&mut self.output);
        if let Some(date) = &self.date {
            date.write(&mut self.output);
        }
    }

    fn write_whole(&mut self, exchange: Exchange, response: &Response, body: &[u8]) {
        self.write_head(response);
        if !response.status.is_bodiless() {
            self.output.extend_from_slice(b"content-length: ");
            write_number(&mut self.output, body.len());
            self.output.extend_from_slice(b"\r\n");
        }
        self.end_head(exchange);
        if !exchange.is_head && !response.status.is_bodiless() {
            self.output.extend_from_slice(body);
        }
    }

    fn end_head(&mut self, exchange: Exchange) {
        let connection = match (exchange.keep_alive, exchange.version) {
            (false, _) => "connection: close\r\n",
            (true, Version::Http10) => "connection: keep-alive\r\n",
            (true, Version::Http11) => "",
        };
        self.output.extend_from_slice(connection.as_bytes());
        self.output.extend_from_slice(b"\r\n");
    }
}

impl Output for HttpConnection {
    fn pending(&self) -> &[u8] {
        self.pending()
    }

    fn advance(&mut self, count: usize) {
        self.note_sent(count);
    }

    fn clear(&mut self) {
        self.close();
        self.note_sent(self.output.len());
    }
}

/// The response to a request whose body cannot be read.
fn refusal(why: &BodyError) -> Response {
    let status = match why {
        BodyError::TooLarge { .. } => Status::ContentTooLarge,
        BodyError::ChunkSize { .. }
        | BodyError::ChunkEnd
        | BodyError::LongLine { .. }
        | BodyError::LineEnd { .. } => Status::BadRequest,
    };
    Response::text(status, &why.to_string())
}

/// Writes a number in decimal digits.
fn write_number(out: &mut Vec<u8>, mut number: usize) {
    let from = out.len();
    loop {
        let digit = u8::try_from(number % 10).unwrap_or_default();
        out.push(b'0' + digit);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.get_mut(from..).unwrap_or_default().reverse();
}

/// Bytes at the start of a connection that are looked at one by one: they tell early that a client
/// does not speak HTTP.
const START: usize = 16;
/// Bytes of room that empty buffers keep: an idle connection holds no more.
const KEPT: usize = 512;

impl Exchange {
    fn of(head: &Head) -> Self {
        Self {
            is_head: head.method == Method::Head,
            version: head.version,
            keep_alive: head.keeps_alive(),
            is_streaming: false,
        }
    }
}
