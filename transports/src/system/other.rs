//! Unix systems beside Linux: macOS.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use mio::Interest;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{AcceptConn, LocalPeerCred, LocalPeerPid};
use rustix::event::kqueue::kqueue;
use rustix::io::{Errno, FdFlags, Result, fcntl_setfd, ioctl_fionbio};
use rustix::net::{
    self, AddressFamily, SendFlags, SocketAddrAny, SocketAddrUnix, SocketType, sockopt,
};

use super::peer_ids::PeerIds;

/// Longest path of a socket in bytes: `sun_path` has 104, the last is for the NUL.
pub(crate) const PATH_BYTES_MAX: usize = 103;
/// Interest while no room to write is awaited: only a writer is told of a reader that is gone.
pub(crate) const LOSS: Interest = Interest::WRITABLE;
/// A lost reader is an error by an option of the socket: [`quiet`].
pub(crate) const QUIET: SendFlags = SendFlags::empty();

/// A stream socket that never blocks and that is closed at exec.
pub(crate) fn stream_socket(family: AddressFamily) -> Result<OwnedFd> {
    let fd = net::socket(family, SocketType::STREAM, None)?;
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

/// The next peer of a listening socket.
pub(crate) fn accept(socket: &OwnedFd) -> Result<(OwnedFd, Option<SocketAddrAny>)> {
    let (fd, address) = net::acceptfrom(socket)?;
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok((fd, address))
}

/// Whether a socket listens.
pub(crate) fn listens(socket: &OwnedFd) -> nix::Result<bool> {
    getsockopt(socket, AcceptConn)
}

/// A descriptor that costs next to nothing and needs no file system.
pub(crate) fn spare() -> Option<OwnedFd> {
    kqueue().ok()
}

/// A socket has no permissions before it has a file, which get their mode before it listens.
#[expect(clippy::unnecessary_wraps, reason = "Linux needs a call")]
pub(crate) const fn set_birth_mode(_: &OwnedFd, _: u32) -> Result<()> {
    Ok(())
}

/// Whether an error of accept is about a peer without a network.
pub(crate) const fn is_without_network(_: Errno) -> bool {
    false
}

/// The name of a Unix socket without a file, which only Linux has.
pub(crate) const fn abstract_name(_: &SocketAddrUnix) -> Option<&[u8]> {
    None
}

/// The peer of a Unix socket, as the system had it when the peer connected.
pub(crate) fn peer_ids(fd: &OwnedFd) -> io::Result<PeerIds> {
    let credentials = getsockopt(fd, LocalPeerCred)?;
    let gid = credentials.groups().first().copied().ok_or(io::ErrorKind::InvalidData)?;
    let pid = getsockopt(fd, LocalPeerPid).ok().and_then(|pid| u32::try_from(pid).ok());
    Ok(PeerIds { uid: credentials.uid(), gid, pid: pid.filter(|pid| *pid != 0) })
}

/// No system but Linux has descriptors of processes.
#[expect(clippy::unnecessary_wraps, reason = "Linux needs a call")]
pub(crate) const fn peer_process(_: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    Ok(None)
}

/// Sends quietly on this socket from now on.
pub(crate) fn quiet(fd: BorrowedFd<'_>) -> Result<()> {
    sockopt::set_socket_nosigpipe(fd, true)
}

/// Pipes have the size that the system gives them.
pub(crate) const fn enlarge(_: &File, _: usize) {}
