//! Errors: losing a peer, listening, taking over standard input and output.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a link can carry nothing more in either direction. Not the same as
/// [`Flow::Finished`](crate::Flow::Finished), where the peer still reads.
#[derive(Debug)]
pub enum Lost {
    /// The peer closed everything, died, or the way to it is gone. Holds the error of the system,
    /// if it says more than that the connection is dead.
    Vanished(Option<io::Error>),
    /// Our side failed.
    Broken {
        /// The attempt: "read from", "write to".
        doing: &'static str,
        /// Error of the system.
        error: io::Error,
    },
}

impl Lost {
    pub(crate) fn from_io(doing: &'static str, error: io::Error) -> Self {
        let vanished = matches!(
            error.kind(),
            ErrorKind::BrokenPipe
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::NotConnected
                | ErrorKind::TimedOut
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::NetworkDown
        );
        if vanished { Self::Vanished(Some(error)) } else { Self::Broken { doing, error } }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vanished(None) => f.write_str("the peer has gone"),
            Self::Vanished(Some(error)) => write!(f, "the peer has gone: {error}"),
            Self::Broken { doing, error } => write!(f, "cannot {doing} the peer: {error}"),
        }
    }
}

impl Error for Lost {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Vanished(error) => error.as_ref().map(|error| error as _),
            Self::Broken { error, .. } => Some(error),
        }
    }
}

/// Why there is no listener.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process holds the lock of this socket.
    AlreadyRunning {
        /// The socket.
        path: PathBuf,
        /// The process that wrote its number into the lock file, if one did.
        holder: Option<u32>,
    },
    /// Something that does not hold our lock accepts connections on this socket.
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is not a socket of ours to replace is where the socket should be.
    InTheWay {
        /// The socket.
        path: PathBuf,
        /// Kind of the file there: "a regular file".
        what: &'static str,
    },
    /// The path does not fit into a socket address.
    PathTooLong {
        /// The absolute path.
        path: PathBuf,
        /// Its length in bytes.
        bytes: usize,
        /// The longest a path may be, in bytes.
        bytes_max: usize,
    },
    /// The path is empty or holds a NUL byte.
    PathUnusable {
        /// The path.
        path: PathBuf,
    },
    /// Another program listens on this TCP address.
    PortTaken {
        /// The address.
        addr: SocketAddr,
    },
    /// Standard input accepts no connections; see [`Stdio`](crate::Stdio).
    NotListenable,
    /// A descriptor that was handed over is no listening Unix or TCP stream socket.
    NotAListener {
        /// Its kind: "not a socket".
        what: &'static str,
    },
    /// The system refused a step.
    Os {
        /// The step: "bind".
        doing: &'static str,
        /// Its object: a path or an address.
        subject: String,
        /// Error of the system.
        error: io::Error,
    },
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyRunning { path, holder } => {
                write!(f, "already running, socket {} is served by another", path.display())?;
                match holder {
                    Some(pid) => write!(f, " daemon (lock held by process {pid})")?,
                    None => f.write_str(" daemon (lock held)")?,
                }
                f.write_str("; stop it or choose another path")
            }
            Self::InUse { path } => write!(
                f,
                "socket {} is served by another program, which does not hold its lock; stop it or \
                 choose another path",
                path.display()
            ),
            Self::InTheWay { path, what } => write!(
                f,
                "cannot listen on {}: {what} is there and is left alone; move it away or choose \
                 another path",
                path.display()
            ),
            Self::PathTooLong { path, bytes, bytes_max } => write!(
                f,
                "socket path {} has {bytes} bytes, a socket takes at most {bytes_max}; choose a \
                 shorter path",
                path.display()
            ),
            Self::PathUnusable { path } => write!(
                f,
                "socket path {:?} is empty or holds a NUL byte; choose another path",
                path.display()
            ),
            Self::PortTaken { addr } => write!(
                f,
                "another program listens on tcp {addr}; stop it or choose another address"
            ),
            Self::NotListenable => {
                f.write_str("stdio is one peer that is already there; it cannot be listened on")
            }
            Self::NotAListener { what } => write!(
                f,
                "the inherited descriptor is {what}, wanted a listening unix or tcp stream socket; \
                 check the socket unit"
            ),
            Self::Os { doing, subject, error } => write!(f, "cannot {doing} {subject}: {error}"),
        }
    }
}

impl Error for ListenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Os { error, .. } => Some(error),
            Self::AlreadyRunning { .. }
            | Self::InUse { .. }
            | Self::InTheWay { .. }
            | Self::PathTooLong { .. }
            | Self::PathUnusable { .. }
            | Self::PortTaken { .. }
            | Self::NotListenable
            | Self::NotAListener { .. } => None,
        }
    }
}

/// Why standard input and output cannot be served.
#[derive(Debug)]
#[non_exhaustive]
pub enum StdioError {
    /// It is nothing that can be read from or written to.
    Unsuitable {
        /// "stdin" or "stdout".
        stream: &'static str,
        /// Its kind: "a directory".
        what: &'static str,
    },
    /// The system refused a step.
    Os {
        /// "stdin" or "stdout".
        stream: &'static str,
        /// The step: "inspect".
        doing: &'static str,
        /// Error of the system.
        error: io::Error,
    },
}

impl fmt::Display for StdioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsuitable { stream, what } => {
                write!(f, "{stream} is {what}; start this with a pipe, a socket or a file there")
            }
            Self::Os { stream, doing, error } => write!(f, "cannot {doing} {stream}: {error}"),
        }
    }
}

impl Error for StdioError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Os { error, .. } => Some(error),
            Self::Unsuitable { .. } => None,
        }
    }
}
