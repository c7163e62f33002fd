//! Linux.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mio::Interest;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, fchmod};
use rustix::io::{Errno, Result};
use rustix::net::{
    self, AddressFamily, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

use super::peer_ids::PeerIds;

/// Longest path of a socket in bytes: `sun_path` has 108, the last is for the NUL.
pub(crate) const PATH_BYTES_MAX: usize = 107;
/// Interest while no room to write is awaited: the system always tells of a reader that is gone.
pub(crate) const LOSS: Interest = Interest::PRIORITY;
/// A lost reader is an error, and no signal.
pub(crate) const QUIET: SendFlags = SendFlags::NOSIGNAL;

/// A stream socket that never blocks and that is closed at exec.
pub(crate) fn stream_socket(family: AddressFamily) -> Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    net::socket_with(family, SocketType::STREAM, flags, None)
}

/// The next peer of a listening socket.
pub(crate) fn accept(socket: &OwnedFd) -> Result<(OwnedFd, Option<SocketAddrAny>)> {
    net::acceptfrom_with(socket, SocketFlags::CLOEXEC)
}

/// Whether a socket listens.
pub(crate) fn listens(socket: &OwnedFd) -> Result<bool> {
    sockopt::socket_acceptconn(socket)
}

/// A descriptor that costs next to nothing and needs no file system.
pub(crate) fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// Sets the permissions that the file of a socket is made with, less the umask.
pub(crate) fn set_birth_mode(socket: &OwnedFd, mode: u32) -> Result<()> {
    fchmod(socket, Mode::from_raw_mode(mode))
}

/// Whether an error of accept is about a peer without a network.
pub(crate) fn is_without_network(errno: Errno) -> bool {
    errno == Errno::NONET
}

/// The name of a Unix socket without a file.
pub(crate) fn abstract_name(address: &SocketAddrUnix) -> Option<&[u8]> {
    address.abstract_name()
}

/// The peer of a Unix socket, as the system had it when the peer connected.
pub(crate) fn peer_ids(fd: &OwnedFd) -> io::Result<PeerIds> {
    // Not rustix's: it holds the pid as a non-zero number, while the system says 0 for a peer in a
    // pid namespace that is not below ours, such as a container with our socket mounted.
    let ids = getsockopt(fd, PeerCredentials)?;
    let pid = u32::try_from(ids.pid()).ok().filter(|pid| *pid != 0);
    Ok(PeerIds { uid: ids.uid(), gid: ids.gid(), pid })
}

/// A descriptor of the process of a Unix peer, where the system has one.
pub(crate) fn peer_process(fd: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    match getsockopt(fd, PeerPidfd) {
        Ok(process) => Ok(Some(process)),
        Err(nix::Error::ENOPROTOOPT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Sends quietly on this socket from now on; flags do so here.
#[expect(clippy::unnecessary_wraps, reason = "other systems need a call")]
pub(crate) const fn quiet(_: BorrowedFd<'_>) -> Result<()> {
    Ok(())
}

/// Enlarges a pipe to at least this many bytes. The system refuses to above the limit of a user,
/// and for terminals.
pub(crate) fn enlarge(pipe: &File, bytes_min: usize) {
    if fcntl_getpipe_size(pipe.as_fd()).is_ok_and(|bytes| bytes < bytes_min) {
        let _ = fcntl_setpipe_size(pipe, bytes_min);
    }
}
