//! One request and its whole response, until a deadline.

use std::io;
use std::time::Instant;

use crate::io::poll;
use ceased_transports::Output as _;
use ceased_transports::http::client::{ClientLimits, HttpClient, Part, ResponseHead};
use rustix::event::{PollFd, PollFlags};

use super::server::{HttpServer, Wire, is_later};

/// More than a connection holds below TLS, so that a read leaves nothing that a poll does not tell.
const PIECE_BYTES: usize = 64 * 1024;

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Fetch<'a> {
    /// Method, such as `GET`.
    pub method: &'a str,
    /// Headers beside those that every request has.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body; an empty one is left out.
    pub body: &'a str,
    /// Bytes of a response that are read; a longer one is an error.
    pub body_bytes: usize,
    /// Moment at which the wait ends.
    pub until: Instant,
}

/// A response.
#[derive(Debug)]
pub struct Fetched {
    /// Status and headers.
    pub head: ResponseHead,
    /// Body, without its framing.
    pub body: Vec<u8>,
}

impl Fetch<'_> {
    /// Sends the request to a server on a connection of its own, and reads the whole response.
    ///
    /// # Errors
    /// If it cannot be connected to, is no HTTP, is too long, or has not answered in time.
    pub fn from(&self, server: &HttpServer) -> io::Result<Fetched> {
        let mut client = self
            .run(server, |client| client.response().is_some_and(|response| response.is_whole()))?;
        let head = client.head().cloned().ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Fetched { head, body: body_of(&mut client) })
    }

    /// As [`Self::from`], up to the head of the response: its body may be a stream without an end.
    ///
    /// # Errors
    /// As [`Self::from`].
    pub fn head_from(&self, server: &HttpServer) -> io::Result<ResponseHead> {
        let client = self.run(server, |client| client.head().is_some())?;
        Ok(client.head().cloned().ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    fn run(
        &self,
        server: &HttpServer,
        is_enough: impl Fn(&HttpClient) -> bool,
    ) -> io::Result<HttpClient> {
        let bytes = server.request(self.method, self.headers, self.body);
        let mut wire = server.connect(self.until)?;
        let body_bytes = self.body_bytes;
        let limits =
            ClientLimits { body_bytes, event_bytes: body_bytes, ..ClientLimits::default() };
        let mut client = HttpClient::new(limits);
        client.send_raw(bytes.map_err(io::Error::other)?).map_err(io::Error::other)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            write(&mut client, &mut *wire);
            let taken = match wire.read(&mut piece) {
                Ok(0) => client.finish(),
                Ok(count) => client.receive(piece.get(..count).unwrap_or_default()),
                Err(why) if is_later(&why) => Ok(()),
                Err(why) => return Err(why),
            };
            taken.map_err(io::Error::other)?;
            if is_enough(&client) {
                return Ok(client);
            }
            if Instant::now() >= self.until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time"));
            }
            let interest = match client.pending().is_empty() && !wire.wants_room() {
                true => PollFlags::IN,
                false => PollFlags::IN | PollFlags::OUT,
            };
            poll(&mut [PollFd::new(&wire, interest)], Some(self.until))?;
        }
    }
}

fn write(client: &mut HttpClient, wire: &mut dyn Wire) {
    while !client.pending().is_empty() {
        match wire.write(client.pending()) {
            Ok(count) => client.note_sent(count),
            Err(why) if is_later(&why) => return,
            // A server may answer and close before it has read everything.
            Err(_) => client.clear(),
        }
    }
}

fn body_of(client: &mut HttpClient) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(part) = client.next_part() {
        match part {
            Part::Body(bytes) => body.extend(bytes),
            Part::Event(_) => {}
        }
    }
    body
}
