//! A connection to another host through an HTTP proxy (`CONNECT`).
//!
//! [`Tunnel`] is a [`Transport`] itself. It is opened by reads and writes; bytes that are written
//! meanwhile wait in it and leave once the proxy has opened it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::mem::take;
use std::os::fd::{AsFd, BorrowedFd};

use mio::event::Event;
use mio::{Registry, Token};

use crate::transport::{Peer, Readiness, Transport};

/// Bytes of the head of the proxy's answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes that wait for the tunnel: the first message of a TLS handshake is far shorter.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// Why a proxy has not opened a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelError {
    /// It refuses to.
    Refused {
        /// Status of its answer.
        status: u16,
        /// Host and port that were asked for.
        target: Box<str>,
    },
    /// Its answer is no HTTP, or longer than the limit.
    NotHttp,
    /// It has closed the connection.
    Closed,
}

impl fmt::Display for TunnelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { status: 407, target } => write!(
                f,
                "the proxy wants a user and a password for {target} (HTTP 407); write them into the \
                 variable that names it"
            ),
            Self::Refused { status, target } => write!(
                f,
                "the proxy does not connect to {target}: it answers HTTP {status}; permit the host \
                 there, or name it in NO_PROXY"
            ),
            Self::NotHttp => write!(
                f,
                "the proxy answers CONNECT with other than HTTP of {HEAD_BYTES_MAX} bytes"
            ),
            Self::Closed => f.write_str("the proxy has closed the connection before it was open"),
        }
    }
}

impl std::error::Error for TunnelError {}

/// A connection through a proxy.
#[derive(Debug)]
pub struct Tunnel<T> {
    below: T,
    /// Host and port behind the proxy.
    target: Box<str>,
    is_open: bool,
    /// Bytes of the proxy's answer; behind it, bytes of the host that arrived with it.
    input: Vec<u8>,
    /// Bytes of interim answers, which count in the limit.
    interim: usize,
    /// Bytes on their way: the request, then those that were held.
    output: Vec<u8>,
    /// Bytes that wait until it is open.
    held: Vec<u8>,
    failed: Option<TunnelError>,
}

impl<T: Transport> Tunnel<T> {
    /// Asks the proxy on this connection for a host and port. `authorization` is the value of
    /// `Proxy-Authorization`.
    #[must_use]
    pub fn new(below: T, target: &str, authorization: Option<&str>) -> Self {
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n");
        if let Some(value) = authorization {
            request.push_str(&format!("proxy-authorization: {value}\r\n"));
        }
        request.push_str("\r\n");
        let (output, target) = (request.into_bytes(), target.into());
        let (input, held) = (Vec::new(), Vec::new());
        Self { below, target, is_open: false, input, interim: 0, output, held, failed: None }
    }

    /// Sends bytes on their way as far as there is room; whether nothing is left.
    fn flush(&mut self) -> io::Result<bool> {
        loop {
            if self.output.is_empty() && self.is_open {
                self.output = take(&mut self.held);
            }
            if self.output.is_empty() {
                return Ok(true);
            }
            match self.below.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(why) => return Err(why),
            }
        }
    }

    /// Reads the answer of the proxy.
    fn open(&mut self) -> io::Result<()> {
        let mut piece = [0; 2048];
        while !self.is_open {
            let Some(end) = memchr::memmem::find(&self.input, b"\r\n\r\n") else {
                if self.interim + self.input.len() > HEAD_BYTES_MAX {
                    return Err(self.fail(TunnelError::NotHttp));
                }
                self.flush()?;
                let count = self.below.read(&mut piece)?;
                if count == 0 {
                    return Err(self.fail(TunnelError::Closed));
                }
                self.input.extend_from_slice(piece.get(..count).unwrap_or_default());
                continue;
            };
            let rest = self.input.split_off(end + 4);
            let head = std::mem::replace(&mut self.input, rest);
            match status(&head) {
                Some(200..=299) => self.is_open = true,
                Some(100..=199) => self.interim += head.len(),
                Some(status) => {
                    let target = self.target.clone();
                    return Err(self.fail(TunnelError::Refused { status, target }));
                }
                None => return Err(self.fail(TunnelError::NotHttp)),
            }
        }
        self.flush().map(drop)
    }

    fn fail(&mut self, why: TunnelError) -> io::Error {
        self.failed = Some(why.clone());
        io::Error::other(why)
    }
}

fn status(head: &[u8]) -> Option<u16> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    response.parse(head).ok()?;
    response.code
}

impl<T: Transport> Transport for Tunnel<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(why) = &self.failed {
            return Err(io::Error::other(why.clone()));
        }
        if !self.is_open {
            self.open()?;
        }
        // A peer that is gone is told by a read, behind its last words.
        let _ = self.flush();
        if self.input.is_empty() {
            return self.below.read(buf);
        }
        let count = self.input.len().min(buf.len());
        let (to, from) = (buf.iter_mut(), self.input.drain(..count));
        to.zip(from).for_each(|(to, from)| *to = from);
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_flushed = self.flush()?;
        if self.is_open {
            return if is_flushed {
                self.below.write(bytes)
            } else {
                Err(ErrorKind::WouldBlock.into())
            };
        }
        let room = HELD_BYTES_MAX.saturating_sub(self.held.len());
        if room == 0 || !is_flushed {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.held.extend_from_slice(taken);
        Ok(taken.len())
    }

    /// Room is awaited for the life of the connection: the request and held bytes need it.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.below.register(registry, token)?;
        self.below.await_room(registry, token, true)
    }

    fn await_room(&mut self, registry: &Registry, token: Token, _: bool) -> io::Result<()> {
        self.below.await_room(registry, token, true)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.below.deregister(registry)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.below.finish()
    }

    fn peer(&self) -> &Peer {
        self.below.peer()
    }

    fn holds_output(&self) -> bool {
        !(self.is_open && self.output.is_empty() && self.held.is_empty())
    }

    /// Room for bytes on their way is used by a read.
    fn readiness(&self, event: &Event) -> Readiness {
        let below = self.below.readiness(event);
        let readable = below.readable || below.writable && !self.output.is_empty();
        Readiness { readable, ..below }
    }

    fn short_read_drains(&self) -> bool {
        false
    }
}

impl<T: AsFd> AsFd for Tunnel<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.below.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::Socket;

    /// The answer of a proxy may be cut anywhere, and bytes of the host may come with its end.
    #[test]
    fn tunnel_opens_wherever_the_answer_is_cut() {
        const ANSWER: &[u8] = b"HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 200 Go\r\nvia: x\r\n\r\nhello";
        for cut in 0..ANSWER.len() {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut tunnel = Tunnel::new(Socket::from_unix(ours).unwrap(), "h:1", Some("Basic x"));
            assert_eq!(tunnel.write(b"early").unwrap(), 5);
            let (first, second) = ANSWER.split_at(cut);
            let (mut got, mut buf) = (Vec::new(), [0; 64]);
            for piece in [first, second] {
                theirs.write_all(piece).unwrap();
                match tunnel.read(&mut buf) {
                    Ok(count) => got.extend_from_slice(buf.get(..count).unwrap()),
                    Err(why) => assert_eq!(why.kind(), ErrorKind::WouldBlock, "{cut}"),
                }
            }
            assert_eq!(got, b"hello", "{cut}");
            assert!(!tunnel.holds_output());
            drop(tunnel);
            let mut sent = String::new();
            theirs.read_to_string(&mut sent).unwrap();
            let head = "CONNECT h:1 HTTP/1.1\r\nhost: h:1\r\nproxy-authorization: Basic x\r\n\r\n";
            assert_eq!(sent, format!("{head}early"));
        }
    }

    #[test]
    fn proxy_that_does_not_open_a_tunnel_is_told() {
        let long = [b"HTTP/1.1 200 Go\r\n", vec![b'a'; HEAD_BYTES_MAX].as_slice()].concat();
        let waits = b"HTTP/1.1 100 Wait\r\n\r\n".repeat(HEAD_BYTES_MAX / 16);
        for (answer, why) in [
            (&b"HTTP/1.1 403 No\r\n\r\n"[..], "HTTP 403"),
            (b"HTTP/1.1 407 No\r\n\r\n", "a user and a password for h:1"),
            (b"SSH-2.0\r\n\r\n", "other than HTTP"),
            (&long, "other than HTTP"),
            (&waits, "other than HTTP"),
            (b"", "closed the connection"),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut tunnel = Tunnel::new(Socket::from_unix(ours).unwrap(), "h:1", None);
            theirs.write_all(answer).unwrap();
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            let told = [0, 1].map(|_| tunnel.read(&mut [0; 8]).unwrap_err().to_string());
            assert!(told.iter().all(|told| told.contains(why)), "{told:?}");
        }
    }
}
