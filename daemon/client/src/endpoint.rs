//! Addresses of servers, and connecting to them.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::error::Error;

/// Pause between attempts at a listener with a full backlog.
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(10);

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`.
    Tcp(String),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl Endpoint {
    /// Connects and returns a blocking socket. Name resolution is left to the system and not
    /// bounded by `timeout`.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub fn open(&self, timeout: Duration) -> Result<OwnedFd, Error> {
        let unreachable = |why| Error::Unreachable { endpoint: self.to_string(), why };
        self.socket(timeout).map_err(unreachable)
    }

    /// As [`Endpoint::open`], with the error of the system.
    ///
    /// # Errors
    /// When nothing accepts there within `timeout`.
    pub fn socket(&self, timeout: Duration) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(path) => unix(path, timeout),
            Self::Tcp(address) => tcp(address, timeout),
        }
    }
}

/// Connects with a timeout: the standard library's connect blocks forever if the listener's backlog
/// is full, as that of a hanging daemon.
fn unix(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = ceased_transports::unix_socket()?;
    let start = Instant::now();
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::AGAIN) if start.elapsed() < timeout => thread::sleep(FULL_QUEUE_PAUSE),
            Err(Errno::AGAIN) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the server does not accept connections: its backlog is full",
                ));
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

fn tcp(address: &str, timeout: Duration) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for resolved in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&resolved, timeout) {
            Ok(stream) => {
                ceased_transports::tune_tcp(stream.as_fd())?;
                return Ok(stream.into());
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn missing_socket_is_reported_with_the_cause() {
        let error = Endpoint::Unix("/nonexistent/s.sock".into()).open(Duration::ZERO).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("unix:/nonexistent/s.sock") && text.contains("No such"), "{text}");
        let long = Endpoint::Unix("x".repeat(200).into()).open(Duration::ZERO).unwrap_err();
        assert!(matches!(long, Error::Unreachable { .. }), "{long}");
        let wrong = Endpoint::Tcp("no-port".to_owned()).open(Duration::ZERO).unwrap_err();
        assert!(matches!(wrong, Error::Unreachable { .. }), "{wrong}");
    }

    #[test]
    fn hanging_daemon_does_not_block_the_client() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let endpoint = Endpoint::Unix(path);
        let mut queued = Vec::new();
        let full = loop {
            match endpoint.open(Duration::from_millis(30)) {
                Ok(socket) => queued.push(socket),
                Err(error) => break error,
            }
            assert!(queued.len() < 100, "the queue never fills");
        };
        assert!(full.to_string().contains("backlog is full"), "{full}");
    }
}
