//! A blocking connection whose every wait has a deadline.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use super::address::{Address, Host, TlsMode};
use super::error::PgError;
use super::tls::{self, TlsStream};

/// Bytes that one read takes.
const READ_BYTES: usize = 16 * 1024;

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over TCP, encrypted.
    Tls(TlsStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Connects, and encrypts as the address asks for.
    pub(super) fn connect(
        address: &Address,
        host: &Host,
        deadline: Instant,
    ) -> Result<Self, PgError> {
        let (name, port) = match host {
            Host::Unix(path) => return Ok(Self::Unix(UnixStream::connect(path)?)),
            Host::Tcp(name, port) => (name, *port),
        };
        let mut plain = Self::Tcp(connect(name, port, deadline)?);
        if address.tls == TlsMode::Disable {
            return Ok(plain);
        }
        let mut asked = BytesMut::new();
        frontend::ssl_request(&mut asked);
        plain.send(&asked, deadline)?;
        // One byte, so that nothing is taken as said on the encrypted connection that was said before.
        match (plain.receive_byte(deadline)?, plain) {
            (b'S', Self::Tcp(stream)) => Ok(Self::Tls(tls::encrypt(address, name, stream)?)),
            (b'N', plain) if address.tls == TlsMode::Prefer => Ok(plain),
            (b'N', _) => Err(PgError::Tls(
                "the database takes no encrypted connection; set ssl = on there, or sslmode=disable".to_owned(),
            )),
            _ => Err(PgError::Unexpected("an answer to the question for TLS")),
        }
    }

    /// True where only the server can read the bytes.
    pub(super) const fn is_private(&self) -> bool {
        matches!(self, Self::Unix(_) | Self::Tls(_))
    }

    fn receive_byte(&mut self, deadline: Instant) -> Result<u8, PgError> {
        let mut byte = [0];
        match self.read(&mut byte, deadline)? {
            0 => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            _ => Ok(byte[0]),
        }
    }

    fn read(&mut self, into: &mut [u8], deadline: Instant) -> Result<usize, PgError> {
        loop {
            let wait = Some(left(deadline)?);
            let got = match self {
                Self::Tcp(stream) => stream.set_read_timeout(wait).and_then(|()| stream.read(into)),
                Self::Tls(stream) => {
                    // Its handshake writes, too.
                    let limits = stream.sock.set_read_timeout(wait);
                    let limits = limits.and_then(|()| stream.sock.set_write_timeout(wait));
                    limits.and_then(|()| stream.read(into))
                }
                Self::Unix(stream) => {
                    stream.set_read_timeout(wait).and_then(|()| stream.read(into))
                }
            };
            match got {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                got => return Ok(got?),
            }
        }
    }

    /// Sends everything.
    pub(super) fn send(&mut self, mut bytes: &[u8], deadline: Instant) -> Result<(), PgError> {
        while !bytes.is_empty() {
            let wait = Some(left(deadline)?);
            let sent = match self {
                Self::Tcp(stream) => {
                    stream.set_write_timeout(wait).and_then(|()| stream.write(bytes))
                }
                Self::Tls(stream) => {
                    let limits = stream.sock.set_read_timeout(wait);
                    let limits = limits.and_then(|()| stream.sock.set_write_timeout(wait));
                    limits.and_then(|()| stream.write(bytes))
                }
                Self::Unix(stream) => {
                    stream.set_write_timeout(wait).and_then(|()| stream.write(bytes))
                }
            };
            match sent {
                Ok(0) => return Err(io::Error::from(ErrorKind::WriteZero).into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Encrypted bytes perhaps wait to be sent.
        if let Self::Tls(stream) = self {
            stream.flush()?;
        }
        Ok(())
    }

    /// Waits for bytes and appends them.
    pub(super) fn receive(
        &mut self,
        input: &mut BytesMut,
        deadline: Instant,
    ) -> Result<(), PgError> {
        let mut read = [0; READ_BYTES];
        match self.read(&mut read, deadline)? {
            0 => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            count => {
                input.extend_from_slice(read.get(..count).unwrap_or_default());
                Ok(())
            }
        }
    }
}

/// Connects to a name; one of its addresses that does not answer leaves the others their share of the time.
fn connect(name: &str, port: u16, deadline: Instant) -> Result<TcpStream, PgError> {
    let mut why = io::Error::new(ErrorKind::NotFound, "the name has no address");
    let addresses: Vec<_> = (name, port).to_socket_addrs()?.collect();
    for (address, rest) in addresses.iter().zip((1..=addresses.len()).rev()) {
        match TcpStream::connect_timeout(address, left(share(deadline, rest)?)?) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => why = error,
        }
    }
    Err(why.into())
}

/// A deadline for the first of so many that have the time until this one.
pub(super) fn share(deadline: Instant, count: usize) -> Result<Instant, PgError> {
    let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    Ok(Instant::now() + left(deadline)? / count)
}

/// The time until a deadline, which has not passed.
fn left(deadline: Instant) -> Result<Duration, PgError> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => Ok(left),
        _ => Err(PgError::TimedOut),
    }
}
