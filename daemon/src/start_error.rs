//! Errors of starting a daemon, with remedies.

use std::fmt;
use std::io;
use std::path::PathBuf;

use ceased_core::provider::BadOffer;
use ceased_core::tool::BadTool;
use ceased_transports::ListenError;

use crate::store::contract::StoreError;
use crate::store::directory::StateDirError;
use crate::token_file::TokenFileError;
use crate::tools::arguments::SchemaError;

/// Why a daemon cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Listening on an address failed.
    Listen(ListenError),
    /// A tool is invalid.
    Tool(BadTool),
    /// A prompt or resource is invalid.
    Offer(BadOffer),
    /// A server of the configuration cannot be used.
    Server(String),
    /// `allow_run` of the configuration needs the feature `schema`.
    AllowRun(SchemaError),
    /// A token file cannot be used.
    Tokens(TokenFileError),
    /// The certificate of a listener cannot be used.
    Tls(String),
    /// The service manager passed descriptors that cannot be used.
    Inherited(String),
    /// The audit log cannot be written.
    Audit {
        /// Its configured path.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The recording file cannot be created.
    Record {
        /// Its configured path.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The collector of `[otlp]` cannot be used.
    Otlp(String),
    /// The database of `[fleet]` cannot be used.
    Fleet(String),
    /// No containment of processes works on this system.
    Containment(io::Error),
    /// Another system call failed.
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
            Self::Offer(error) => error.fmt(f),
            Self::AllowRun(error) => write!(f, "`allow_run` in [daemon]: {error}"),
            Self::Tokens(error) => error.fmt(f),
            Self::Inherited(why)
            | Self::Server(why)
            | Self::Otlp(why)
            | Self::Tls(why)
            | Self::Fleet(why) => f.write_str(why),
            Self::Audit { path, error } => write!(
                f,
                "cannot open the audit log {}: {error}; set `audit` in [log] to a file of your \
                 own, in an existing directory",
                path.display()
            ),
            Self::Record { path, error } => write!(
                f,
                "cannot record into {} (--record): {error}; give the path of a new file, in a directory that \
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
    /// A limit of the system is not the fault of the address.
    fn from(error: ListenError) -> Self {
        if let ListenError::Os { doing, subject, error } = error {
            return match ceased_process::limit_hint(&error) {
                Some(_) => Self::Io(error),
                None => Self::Listen(ListenError::Os { doing, subject, error }),
            };
        }
        Self::Listen(error)
    }
}
