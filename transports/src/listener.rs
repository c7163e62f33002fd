//! A socket that accepts peers, and its behaviour when the system has no room for another.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::sockopt;
use rustix::net::{self, AddressFamily, SocketAddrAny, SocketAddrUnix, SocketType};

use crate::address::{Address, SocketMode};
use crate::error::ListenError;
use crate::socket::Socket;
use crate::system::{self, spare};
use crate::tcp;
use crate::transport::Transport;
use crate::unix::{self, SocketFile};

/// Connections that may fail one after the other before the loop gets a rest.
const FAILED_IN_A_ROW_MAX: usize = 64;

/// How [`Listener::accept`] ended.
#[must_use]
#[derive(Debug)]
pub enum Accept {
    /// A peer. There may be more, and no event will say so: call again.
    Peer(Box<dyn Transport>),
    /// No peer is waiting; an event announces the next.
    Drained,
    /// The system has no descriptor or no memory for another peer. A peer may be waiting, and no
    /// event will say so: call again after a pause (100 ms is fine) or when a peer has gone.
    Exhausted {
        /// Error of the system.
        error: io::Error,
        /// A waiting peer was accepted and closed at once, so that it need not wait for a daemon
        /// that has no room.
        refused: bool,
    },
    /// The listener is of no use any more.
    Failed(io::Error),
}

/// A Unix or TCP socket that accepts peers.
///
/// Dropping it closes the socket and removes the socket file, if the file is still the one it
/// made. TCP connections get `TCP_NODELAY` and keepalive.
#[derive(Debug)]
pub struct Listener {
    // Before the socket: see there.
    file: Option<SocketFile>,
    socket: OwnedFd,
    family: Family,
    address: Address,
    /// Given up for a moment to get rid of a peer when there is no descriptor left.
    reserve: Option<OwnedFd>,
}

#[derive(Debug, Clone, Copy)]
enum Family {
    Unix,
    Tcp,
}

impl Listener {
    /// Listens on `address`.
    ///
    /// For a Unix socket: takes the lock `PATH.lock` (and never removes that file), creates missing
    /// directories with mode 0700, removes a socket without a listener, and binds so that the file
    /// never has more permissions than wanted.
    ///
    /// # Errors
    /// [`ListenError`]; [`ListenError::AlreadyRunning`] when another process holds the lock.
    pub fn bind(address: &Address) -> Result<Self, ListenError> {
        Self::bind_for(address, None)
    }

    /// As [`Listener::bind`]; the file of a Unix socket is given to `group` before anybody can
    /// connect.
    ///
    /// # Errors
    /// As [`Listener::bind`], and when the file cannot be given away.
    pub fn bind_for(address: &Address, group: Option<u32>) -> Result<Self, ListenError> {
        match address {
            Address::Unix { path, mode } => {
                let (socket, file, path) = unix::listen(path, *mode, group)?;
                let address = Address::Unix { path, mode: *mode };
                Ok(Self::new(Some(file), socket, Family::Unix, address))
            }
            Address::Tcp(addr) => {
                let (socket, addr) = tcp::listen(*addr)?;
                Ok(Self::new(None, socket, Family::Tcp, Address::Tcp(addr)))
            }
            Address::Stdio => Err(ListenError::NotListenable),
        }
    }

    /// Serves a listening socket that another process made and owns, such as a service manager: no
    /// lock is taken and its file is not removed.
    ///
    /// Sets close-on-exec, and `O_NONBLOCK` on the description shared with its maker: there is no
    /// other way to accept without blocking, and a process that hands a listener over does not
    /// accept.
    ///
    /// # Errors
    /// [`ListenError::NotAListener`] when it is something else.
    pub fn adopt(socket: OwnedFd) -> Result<Self, ListenError> {
        let not = |what| ListenError::NotAListener { what };
        let kind = sockopt::socket_type(&socket).map_err(|_| not("not a socket"))?;
        if kind != SocketType::STREAM {
            return Err(not("a socket of another type"));
        }
        if !system::listens(&socket).map_err(|_| not("not a socket"))? {
            return Err(not("a socket that does not listen"));
        }
        let failed = |errno: Errno| ListenError::Os {
            doing: "take over",
            subject: "the inherited socket".to_owned(),
            error: errno.into(),
        };
        let name = net::getsockname(&socket).map_err(failed)?;
        let (family, address) = match name.address_family() {
            AddressFamily::UNIX => (Family::Unix, inherited_address(name).map_err(failed)?),
            AddressFamily::INET | AddressFamily::INET6 => {
                (Family::Tcp, Address::Tcp(SocketAddr::try_from(name).map_err(failed)?))
            }
            _ => return Err(not("a socket of another family")),
        };
        fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(failed)?;
        let flags = fcntl_getfl(&socket).map_err(failed)?;
        fcntl_setfl(&socket, flags | OFlags::NONBLOCK).map_err(failed)?;
        Ok(Self::new(None, socket, family, address))
    }

    fn new(file: Option<SocketFile>, socket: OwnedFd, family: Family, address: Address) -> Self {
        Self { file, socket, family, address, reserve: spare() }
    }

    /// Where it listens: an absolute path, and the port the system chose.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Changes the users that may connect to a Unix socket of this listener, by the mode and the
    /// group of its file (without one, the group of this process); does nothing for any other.
    ///
    /// # Errors
    /// [`ListenError::Os`].
    pub fn set_file(&mut self, wanted: SocketMode, group: Option<u32>) -> Result<(), ListenError> {
        let (Some(file), Address::Unix { mode, .. }) = (&self.file, &mut self.address) else {
            return Ok(());
        };
        file.set(wanted, group)?;
        *mode = wanted;
        Ok(())
    }

    /// Whether it has a socket file that others can remove and [`Listener::renew`] makes again.
    #[must_use]
    pub const fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether peers can still find the socket: false once the file of a Unix socket that this
    /// listener has made, or the lock of that, was removed or replaced.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.file.as_ref().is_none_or(SocketFile::is_in_place)
    }

    /// Listens anew where [`Listener::is_in_place`] is false: makes the directory, the lock and the
    /// file again as far as they are missing. The socket is another one then, to be registered and
    /// accepted from; a peer that waits at the old one and was not accepted is turned away. A
    /// socket that another process listens on is left alone.
    ///
    /// # Errors
    /// As [`Listener::bind`]; the listener is as it was.
    pub fn renew(&mut self, group: Option<u32>) -> Result<(), ListenError> {
        let (Some(file), Address::Unix { mode, .. }) = (&mut self.file, &self.address) else {
            return Ok(());
        };
        if let Some((socket, file)) = file.renew(*mode, group)? {
            // The old file knows its own by an inode number that the old socket keeps in use.
            self.file = Some(file);
            self.socket = socket;
        }
        Ok(())
    }

    /// Asks for readable events under `token`, edge-triggered: accept until [`Accept::Drained`].
    ///
    /// # Errors
    /// Error of the system.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.socket.as_raw_fd()), token, Interest::READABLE)
    }

    /// Takes `register` back; to be called before an adopted listener is dropped.
    ///
    /// # Errors
    /// Error of the system.
    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut SourceFd(&self.socket.as_raw_fd()))
    }

    /// Takes the next waiting peer. Peers that have gone again are passed over.
    pub fn accept(&mut self) -> Accept {
        self.reserve = self.reserve.take().or_else(spare);
        for _ in 0..FAILED_IN_A_ROW_MAX {
            match self.accept_one() {
                Ok((fd, addr)) => {
                    let transport = match self.family {
                        Family::Unix => Socket::unix(fd),
                        Family::Tcp => addr
                            .ok_or(Errno::NOTCONN)
                            .and_then(SocketAddr::try_from)
                            .map_err(io::Error::from)
                            .and_then(|addr| Socket::tcp(fd, addr)),
                    };
                    if let Ok(transport) = transport {
                        return Accept::Peer(Box::new(transport));
                    }
                }
                Err(Errno::AGAIN) => return Accept::Drained,
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                    return self.refuse_one(errno);
                }
                Err(errno) if is_of_the_peer(errno) => {}
                Err(errno) => return Accept::Failed(errno.into()),
            }
        }
        Accept::Exhausted { error: Errno::CONNABORTED.into(), refused: false }
    }

    fn accept_one(&self) -> rustix::io::Result<(OwnedFd, Option<SocketAddrAny>)> {
        system::accept(&self.socket)
    }

    /// No room: gives up the reserve to accept one peer and close it.
    fn refuse_one(&mut self, errno: Errno) -> Accept {
        self.reserve = None;
        let refused = self.accept_one();
        let nobody = matches!(refused, Err(Errno::AGAIN));
        let refused = refused.is_ok();
        self.reserve = spare();
        if nobody {
            // The system looks for a descriptor before it looks for a peer.
            return Accept::Drained;
        }
        Accept::Exhausted { error: errno.into(), refused }
    }
}

/// Errors that are about one connection, which accept(2) passes on, and not about the listener.
fn is_of_the_peer(errno: Errno) -> bool {
    let is_listed = matches!(
        errno,
        Errno::CONNABORTED
            | Errno::INTR
            | Errno::PROTO
            | Errno::PERM
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
            | Errno::TIMEDOUT
    );
    is_listed || system::is_without_network(errno)
}

/// The address of a Unix socket that is there already. One without a file shows its abstract name
/// behind an `@`, as other tools write it.
fn inherited_address(name: SocketAddrAny) -> rustix::io::Result<Address> {
    let name = SocketAddrUnix::try_from(name)?;
    let bytes = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let path = match (name.path(), system::abstract_name(&name)) {
        (Some(path), _) => bytes(path.to_bytes()),
        (None, Some(abstract_name)) => bytes(&[b"@".as_slice(), abstract_name].concat()),
        (None, None) => PathBuf::from("@"),
    };
    let mode = std::fs::symlink_metadata(&path)
        .ok()
        .and_then(|found| {
            SocketMode::from_bits(std::os::unix::fs::MetadataExt::mode(&found) & 0o777)
        })
        .unwrap_or_default();
    Ok(Address::Unix { path, mode })
}
