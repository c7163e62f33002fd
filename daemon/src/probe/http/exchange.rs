//! One request and its response, on a connection of its own.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use serde_json::Value;

use super::response::Response;
use super::url::Url;

const PIECE_BYTES: usize = 64 * 1024;

/// Connects, until then.
pub(crate) fn connect(url: &Url, until: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (url.host.as_str(), url.port).to_socket_addrs()? {
        let within = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, within) {
            Ok(stream) => return Ok(stream),
            Err(why) => failed = why,
        }
    }
    Err(failed)
}

/// An exchange.
#[derive(Debug)]
pub(crate) struct Exchange {
    stream: TcpStream,
    unsent: Vec<u8>,
    pub(crate) response: Response,
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
    pub(crate) fn begin(url: &Url, bytes: Vec<u8>, until: Instant) -> io::Result<Self> {
        let stream = connect(url, until)?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut exchange = Self {
            stream,
            unsent: bytes,
            response: Response::default(),
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
        if self.unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// Whether nothing more comes.
    pub(crate) const fn is_over(&self) -> bool {
        self.response.is_over() || self.failure.is_some()
    }

    /// Whether the request is sent.
    pub(crate) const fn is_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends and receives as far as possible; the number of received bytes.
    pub(crate) fn turn(&mut self) -> usize {
        if !self.unsent.is_empty() {
            self.write();
        }
        self.read()
    }

    fn write(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(why) if is_later(&why) => return,
                // A server may answer and close before it has read everything.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    fn read(&mut self) -> usize {
        let mut piece = vec![0; PIECE_BYTES];
        let count = match self.stream.read(&mut piece) {
            Ok(count) => count,
            Err(why) if is_later(&why) => return 0,
            Err(why) => {
                self.response.close();
                self.failure = Some(why.to_string());
                return 0;
            }
        };
        let taken = match count {
            0 => {
                self.response.close();
                Ok(())
            }
            _ => self.response.take(piece.get(..count).unwrap_or_default()),
        };
        self.failure = taken.err();
        count
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn is_later(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
