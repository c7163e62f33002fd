//! One connection to a server: requests in, bytes out; bytes in, responses out.

use super::error::ResponseError;
use super::head::ResponseHead;
use super::limits::ClientLimits;
use super::request::{ClientRequest, RequestError};
use super::response::{Part, ResponseReader};
use crate::link::Output;

/// One connection to a server without its socket, with one request at a time.
#[derive(Debug)]
pub struct HttpClient {
    limits: ClientLimits,
    output: Vec<u8>,
    /// Bytes at the front of `output` that were sent.
    sent: usize,
    /// The response to the last request.
    response: Option<Box<ResponseReader>>,
    /// The request permits another one after it.
    keep_alive: bool,
    is_over: bool,
}

impl HttpClient {
    /// A connection on which nothing was sent.
    #[must_use]
    pub const fn new(limits: ClientLimits) -> Self {
        Self {
            limits,
            output: Vec::new(),
            sent: 0,
            response: None,
            keep_alive: true,
            is_over: false,
        }
    }

    /// Begins a request. The response before it is forgotten.
    ///
    /// # Errors
    /// When the request is wrong, or the connection is not [idle](Self::is_idle).
    pub fn send(&mut self, request: &ClientRequest<'_>) -> Result<(), RequestError> {
        if !self.is_idle() {
            return Err(RequestError::Busy);
        }
        request.write(&mut self.output)?;
        self.begin(request.method == "HEAD", request.keep_alive);
        Ok(())
    }

    /// Begins a request with bytes as they are, which may be wrong on purpose. No other follows it.
    ///
    /// # Errors
    /// When the connection is not [idle](Self::is_idle).
    pub fn send_raw(&mut self, bytes: Vec<u8>) -> Result<(), RequestError> {
        if !self.is_idle() {
            return Err(RequestError::Busy);
        }
        let to_head = bytes.starts_with(b"HEAD ");
        self.output = bytes;
        self.begin(to_head, false);
        Ok(())
    }

    fn begin(&mut self, to_head: bool, keep_alive: bool) {
        self.response = Some(Box::new(ResponseReader::new(self.limits, to_head)));
        self.keep_alive = keep_alive;
    }

    /// Takes bytes of the server.
    ///
    /// # Errors
    /// When the response cannot be read; the connection is over then.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ResponseError> {
        let result = match &mut self.response {
            Some(response) => response.receive(bytes),
            // Nothing was asked: a proxy says why it closes.
            None => {
                self.is_over |= !bytes.is_empty();
                Ok(())
            }
        };
        self.end_with(result)
    }

    /// The server has closed its half of the connection.
    ///
    /// # Errors
    /// When a response is missing or cut; the connection is over in any case.
    pub fn finish(&mut self) -> Result<(), ResponseError> {
        self.is_over = true;
        let result = self.response.as_mut().map_or(Ok(()), |response| response.finish());
        self.end_with(result)
    }

    fn end_with(&mut self, result: Result<(), ResponseError>) -> Result<(), ResponseError> {
        self.is_over |= result.is_err();
        let is_whole = self.response.as_ref().is_some_and(|response| response.is_whole());
        // A response before the end of its request: the rest of the request is not sent for it.
        let may_go_on = self.keep_alive && self.pending().is_empty();
        if is_whole && !(may_go_on && self.response().is_some_and(ResponseReader::keeps_alive)) {
            self.is_over = true;
        }
        result
    }

    /// The response to the last request.
    #[must_use]
    pub fn response(&self) -> Option<&ResponseReader> {
        self.response.as_deref()
    }

    /// The head of the response to the last request, once it is there.
    #[must_use]
    pub fn head(&self) -> Option<&ResponseHead> {
        self.response().and_then(ResponseReader::head)
    }

    /// The next part of the response to the last request.
    pub fn next_part(&mut self) -> Option<Part> {
        self.response.as_mut().and_then(|response| response.next_part())
    }

    /// Whether the connection takes a request now.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.is_over
            && self.pending().is_empty()
            && self.response().is_none_or(ResponseReader::keeps_alive)
    }

    /// Whether the connection is to be closed: nothing more comes on it.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
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
            (self.output, self.sent) = (Vec::new(), 0);
        }
    }
}

impl Output for HttpClient {
    fn pending(&self) -> &[u8] {
        self.pending()
    }

    fn advance(&mut self, count: usize) {
        self.note_sent(count);
    }

    /// Drops the rest of a request: a server may answer and close before it has read everything.
    fn clear(&mut self) {
        self.note_sent(self.output.len());
    }
}
