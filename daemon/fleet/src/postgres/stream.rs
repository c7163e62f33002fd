//! A blocking connection whose every wait has a deadline.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::address::Host;
use super::error::PgError;

/// Bytes that one read takes.
const READ_BYTES: usize = 16 * 1024;

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Connects; each address of a name gets the time that is left.
    pub(super) fn connect(host: &Host, deadline: Instant) -> Result<Self, PgError> {
        match host {
            Host::Unix(path) => Ok(Self::Unix(UnixStream::connect(path)?)),
            Host::Tcp(name, port) => {
                let mut why = io::Error::new(ErrorKind::NotFound, "the name has no address");
                for address in (name.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, left(deadline)?) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Self::Tcp(stream));
                        }
                        Err(error) => why = error,
                    }
                }
                Err(why.into())
            }
        }
    }

    /// True where only this machine sees what is sent.
    pub(super) const fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Sends everything.
    pub(super) fn send(&mut self, mut bytes: &[u8], deadline: Instant) -> Result<(), PgError> {
        while !bytes.is_empty() {
            let wait = Some(left(deadline)?);
            let sent = match self {
                Self::Tcp(stream) => {
                    stream.set_write_timeout(wait).and_then(|()| stream.write(bytes))
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
        Ok(())
    }

    /// Waits for bytes and appends them.
    pub(super) fn receive(
        &mut self,
        input: &mut BytesMut,
        deadline: Instant,
    ) -> Result<(), PgError> {
        let mut read = [0; READ_BYTES];
        loop {
            let wait = Some(left(deadline)?);
            let got = match self {
                Self::Tcp(stream) => {
                    stream.set_read_timeout(wait).and_then(|()| stream.read(&mut read))
                }
                Self::Unix(stream) => {
                    stream.set_read_timeout(wait).and_then(|()| stream.read(&mut read))
                }
            };
            match got {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(count) => {
                    input.extend_from_slice(read.get(..count).unwrap_or_default());
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The time until a deadline, which has not passed.
fn left(deadline: Instant) -> Result<Duration, PgError> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => Ok(left),
        _ => Err(PgError::TimedOut),
    }
}
