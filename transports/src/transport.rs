//! The interface of a byte stream, and its peer.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use mio::event::Event;
use mio::{Registry, Token};

/// One bidirectional byte stream to one peer. Never blocks.
///
/// Implementations only move bytes; the meaning of a blocked or lost connection is decided in
/// [`Link`](crate::Link) and above.
pub trait Transport: Send + fmt::Debug {
    /// Reads arrived bytes into `buf`, which is not empty. `Ok(0)` is the end: the peer will
    /// send no more.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has arrived; anything else ends the link.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes as much of `bytes`, which is not empty, as the system takes.
    ///
    /// # Errors
    /// `WouldBlock` when the system takes nothing now; anything else ends the link.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Asks for events under `token`, edge-triggered: readable ones, and writable ones once they
    /// are [awaited](Transport::await_room).
    ///
    /// # Errors
    /// The error of the system, usually that its limit of watched descriptors is reached.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;

    /// Asks for writable events as well from now on, at once if there is room already; or for no
    /// more of them. Under the token of `register`.
    ///
    /// # Errors
    /// The error of the system, for instance that there was no registration.
    fn await_room(&mut self, registry: &Registry, token: Token, awaited: bool) -> io::Result<()>;

    /// Takes `register` back.
    ///
    /// # Errors
    /// The error of the system, for instance that there was no registration.
    fn deregister(&mut self, registry: &Registry) -> io::Result<()>;

    /// Half-closes: nothing more will be written. The peer reads the end after the bytes written so
    /// far, and we can still read. Later writes fail. Dropping the transport closes all of it.
    ///
    /// # Errors
    /// The error of the system.
    fn finish(&mut self) -> io::Result<()>;

    /// The peer.
    fn peer(&self) -> &Peer;

    /// A descriptor of the process that connected, which still stands for that process when its
    /// number was given to another one; `None` where the kernel has none to give (Linux before 6.5)
    /// or the peer is no process of this machine.
    ///
    /// # Errors
    /// When the process has ended.
    fn peer_process(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// True while bytes that a write has taken are still held here, as below TLS. They leave with the
    /// next read or write that the system has room for; before a transport with such bytes is
    /// dropped, one of them is due.
    fn holds_output(&self) -> bool {
        false
    }

    /// Meaning of an event of this transport. For more than one descriptor under one token the
    /// plain reading is wrong and this must be overridden.
    fn readiness(&self, event: &Event) -> Readiness {
        Readiness::of(event)
    }

    /// True when a read that did not fill the buffer has taken everything there was, as it is with
    /// stream sockets and pipes; false where a read gives one line or one packet.
    fn short_read_drains(&self) -> bool {
        true
    }

    /// True when a write that took a part of the bytes has filled the buffer of the system, as it is
    /// with pipes: another one would take nothing, and would wait for a reader in the middle of a
    /// read. Room is [awaited](Transport::await_room) anew then, which notices a buffer with room.
    fn short_write_fills(&self) -> bool {
        false
    }
}

/// A transport of any kind, below another one.
impl Transport for Box<dyn Transport> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (**self).read(buf)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (**self).write(bytes)
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        (**self).register(registry, token)
    }

    fn await_room(&mut self, registry: &Registry, token: Token, awaited: bool) -> io::Result<()> {
        (**self).await_room(registry, token, awaited)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        (**self).deregister(registry)
    }

    fn finish(&mut self) -> io::Result<()> {
        (**self).finish()
    }

    fn peer(&self) -> &Peer {
        (**self).peer()
    }

    fn peer_process(&self) -> io::Result<Option<OwnedFd>> {
        (**self).peer_process()
    }

    fn holds_output(&self) -> bool {
        (**self).holds_output()
    }

    fn readiness(&self, event: &Event) -> Readiness {
        (**self).readiness(event)
    }

    fn short_read_drains(&self) -> bool {
        (**self).short_read_drains()
    }

    fn short_write_fills(&self) -> bool {
        (**self).short_write_fills()
    }
}

/// News about a transport since the last question. Only ever adds knowledge: a flag
/// that is not set says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// There may be something to read.
    pub readable: bool,
    /// There may be room to write.
    pub writable: bool,
    /// The end of the peer's output is in sight: read until it.
    pub read_closed: bool,
    /// The peer is gone and nothing written can reach it.
    pub peer_gone: bool,
}

impl Readiness {
    /// The plain reading of an event of a transport that is one descriptor.
    #[must_use]
    pub fn of(event: &Event) -> Self {
        Self {
            readable: event.is_readable(),
            writable: event.is_writable(),
            read_closed: event.is_read_closed(),
            peer_gone: event.is_write_closed() || event.is_error(),
        }
    }
}

/// The peer of a transport, as far as the system vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process on this machine, as it was when it connected.
    Unix {
        /// Its effective user. Inside a user namespace every user that is not mapped reads as the
        /// overflow user (65534), which must therefore never be authorised.
        uid: u32,
        /// Its effective group.
        gid: u32,
        /// Its process; absent when it lives in a pid namespace that cannot be seen from ours.
        /// For people to read: the number may belong to another process by now.
        pid: Option<u32>,
    },
    /// The holder of the other end of a TCP connection.
    Tcp {
        /// The address it comes from.
        addr: SocketAddr,
    },
    /// The parent of this process.
    Stdio {
        /// The real user of this process.
        uid: u32,
    },
    /// A child of this process, over its standard input and output.
    Child {
        /// Its name in logs.
        name: Box<str>,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { uid, gid, pid: Some(pid) } => {
                write!(f, "unix peer (uid {uid}, gid {gid}, pid {pid})")
            }
            Self::Unix { uid, gid, pid: None } => {
                write!(f, "unix peer (uid {uid}, gid {gid}, in another pid namespace)")
            }
            Self::Tcp { addr } => write!(f, "tcp peer {addr}"),
            Self::Child { name } => write!(f, "child process {name:?}"),
            Self::Stdio { uid } => write!(f, "stdio peer (uid {uid})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_read_well_in_a_log() {
        for (peer, text) in [
            (Peer::Unix { uid: 1, gid: 2, pid: Some(3) }, "unix peer (uid 1, gid 2, pid 3)"),
            (
                Peer::Unix { uid: 1, gid: 2, pid: None },
                "unix peer (uid 1, gid 2, in another pid namespace)",
            ),
            (Peer::Tcp { addr: "[::1]:80".parse().unwrap() }, "tcp peer [::1]:80"),
            (Peer::Stdio { uid: 7 }, "stdio peer (uid 7)"),
        ] {
            assert_eq!(peer.to_string(), text);
        }
    }
}
