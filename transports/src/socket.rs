//! A connected stream socket, Unix or TCP.
//!
//! Every call asks not to block for itself instead of setting `O_NONBLOCK`, so a socket that
//! another process shares (an inherited one, a clone) is left as it was. `MSG_NOSIGNAL` keeps a
//! host that does not ignore `SIGPIPE` alive.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix};

use crate::system::{self, PeerIds, QUIET};
use crate::tcp;
use crate::transport::{Peer, Transport};

/// A connected stream socket with its peer.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    peer: Peer,
}

impl Socket {
    /// Serves an already connected Unix socket: one end of a pair, or an accepted one.
    ///
    /// # Errors
    /// When the system does not tell the credentials of the peer.
    pub fn from_unix(stream: UnixStream) -> io::Result<Self> {
        Self::unix(stream.into())
    }

    /// Serves an already connected TCP socket; see [`Listener`](crate::Listener) for the options
    /// it gets.
    ///
    /// # Errors
    /// When the peer has gone already.
    pub fn from_tcp(stream: TcpStream) -> io::Result<Self> {
        let addr = stream.peer_addr()?;
        Self::tcp(stream.into(), addr)
    }

    /// Begins to connect to a TCP address, without waiting for it. Until it is connected, reads and
    /// writes would block, and room to write is the event to wait for; if it cannot be, they fail with
    /// the reason.
    ///
    /// # Errors
    /// When the system refuses at once.
    pub fn connect_tcp(addr: SocketAddr) -> io::Result<Self> {
        let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = system::stream_socket(family)?;
        match net::connect(&fd, &addr) {
            Ok(()) | Err(Errno::INPROGRESS) => Self::tcp(fd, addr),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Connects to a Unix socket, without waiting for it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the listener has no room for another connection now;
    /// the error of the system.
    pub fn connect_unix(path: &Path) -> io::Result<Self> {
        let fd = system::stream_socket(AddressFamily::UNIX)?;
        net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        Self::unix(fd)
    }

    pub(crate) fn unix(fd: OwnedFd) -> io::Result<Self> {
        let PeerIds { uid, gid, pid } = system::peer_ids(&fd)?;
        system::quiet(fd.as_fd())?;
        Ok(Self { fd, peer: Peer::Unix { uid, gid, pid } })
    }

    pub(crate) fn tcp(fd: OwnedFd, addr: SocketAddr) -> io::Result<Self> {
        tcp::tune(fd.as_fd())?;
        system::quiet(fd.as_fd())?;
        Ok(Self { fd, peer: Peer::Tcp { addr } })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Transport for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        receive(self.fd.as_fd(), buf)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.fd.as_fd(), bytes)
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.fd.as_raw_fd()), token, Interest::READABLE)
    }

    /// A Unix socket tells of room whenever its peer has taken something, which is with each
    /// answer, and a loop that waits for the next request would be woken twice for it.
    fn await_room(&mut self, registry: &Registry, token: Token, awaited: bool) -> io::Result<()> {
        let interests = match awaited {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        registry.reregister(&mut SourceFd(&self.fd.as_raw_fd()), token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut SourceFd(&self.fd.as_raw_fd()))
    }

    fn finish(&mut self) -> io::Result<()> {
        finish(self.fd.as_fd())
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn peer_process(&self) -> io::Result<Option<OwnedFd>> {
        if !matches!(self.peer, Peer::Unix { .. }) {
            return Ok(None);
        }
        system::peer_process(&self.fd)
    }
}

/// Reads from a socket without blocking, whatever its description says.
pub(crate) fn receive(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    Ok(net::recv(fd, buf, RecvFlags::DONTWAIT)?.0)
}

/// Writes to a socket without blocking, whatever its description says, and without a signal for a
/// peer that is gone. Returns the number of bytes it took.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] without room; the error of the system if the peer is gone.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(net::send(fd, bytes, SendFlags::DONTWAIT | QUIET)?)
}

/// Ends our output; no error if the peer is gone already.
pub(crate) fn finish(fd: BorrowedFd<'_>) -> io::Result<()> {
    match net::shutdown(fd, Shutdown::Write) {
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
