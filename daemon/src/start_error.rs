//! Why a daemon cannot start, in words for who started it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use ceased_core::tool::BadTool;
use ceased_transports::ListenError;

use crate::store::contract::StoreError;
use crate::store::directory::StateDirError;
use crate::token_file::TokenFileError;

/// Why a daemon cannot start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(ListenError),
    /// A tool cannot be offered.
    Tool(BadTool),
    /// A token file cannot be used.
    Tokens(TokenFileError),
    /// The service manager handed something over that nothing is to be done with.
    Inherited(String),
    /// The audit log cannot be written to.
    Audit {
        /// Where it was to be.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The file of the recording cannot be made.
    Record {
        /// Where it was to be.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// No command can be run here.
    Containment(io::Error),
    /// Something the system did not give.
    Io(io::Error),
    /// The state directory cannot be used.
    StateDir(StateDirError),
    /// The store in it cannot be used.
    Store(StoreError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(error) => error.fmt(f),
            Self::Tool(error) => error.fmt(f),
            Self::Tokens(error) => error.fmt(f),
            Self::Inherited(why) => f.write_str(why),
            Self::Audit { path, error } => write!(
                f,
                "the audit log {} cannot be used: {error}; set `audit` in [log] to a file of your \
                 own, in a directory that is there",
                path.display()
            ),
            Self::Record { path, error } => write!(
                f,
                "cannot record into {} (--record): {error}; name a new file, in a directory that \
                 is there",
                path.display()
            ),
            Self::Containment(error) => write!(
                f,
                "cannot start: {error}; a newer kernel, or a sandbox that allows these system calls, \
                 is needed"
            ),
            Self::Io(error) => match ceased_process::limit_hint(error) {
                Some(remedy) => write!(f, "cannot start: {error}; {remedy}"),
                None => write!(f, "cannot start: {error}"),
            },
            Self::StateDir(error) => error.fmt(f),
            Self::Store(error) => write!(f, "cannot use the store: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<BadTool> for StartError {
    fn from(error: BadTool) -> Self {
        Self::Tool(error)
    }
}

impl From<TokenFileError> for StartError {
    fn from(error: TokenFileError) -> Self {
        Self::Tokens(error)
    }
}

impl From<StateDirError> for StartError {
    fn from(error: StateDirError) -> Self {
        Self::StateDir(error)
    }
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        Self::Listen(error)
    }
}
