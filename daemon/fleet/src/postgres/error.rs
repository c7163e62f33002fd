//! Errors of a database and of the way to it.

use std::io;
use std::{fmt, str};

use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::ErrorFields;

/// Why an operation failed. After [`PgError::Server`] the session goes on; after the others it is to be
/// opened anew, and a batch was carried out or not.
#[derive(Debug)]
#[non_exhaustive]
pub enum PgError {
    /// The server refused; of a batch nothing was done.
    Server(Box<ServerError>),
    /// The server ended the session, for this reason.
    Closed(Box<ServerError>),
    /// The connection failed.
    Io(io::Error),
    /// The deadline passed.
    TimedOut,
    /// The batch is on the disk of the server it was sent to, and perhaps of no other: the wait for
    /// a synchronous standby was ended by an operator.
    InDoubt,
    /// The server sent something that this client does not expect.
    Unexpected(&'static str),
    /// It asks for a password, and the address has none; or for one in clear, on a connection that
    /// is not encrypted; or in a way that this client does not know.
    Authentication(String),
    /// No encrypted connection.
    Tls(String),
    /// No host of the address takes writes; with the reason of each.
    NoneWritable(String),
}

impl PgError {
    /// The code of a refusal (SQLSTATE).
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Server(error) | Self::Closed(error) => Some(&error.code),
            Self::Io(_)
            | Self::TimedOut
            | Self::InDoubt
            | Self::Unexpected(_)
            | Self::Authentication(_)
            | Self::Tls(_)
            | Self::NoneWritable(_) => None,
        }
    }
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) | Self::Closed(error) => error.fmt(f),
            Self::Io(error) => write!(f, "the connection to the database failed: {error}"),
            Self::TimedOut => f.write_str("the database did not answer in time"),
            Self::InDoubt => f.write_str(
                "the database ended its wait for a synchronous standby: the write is perhaps lost in a failover",
            ),
            Self::Unexpected(what) => write!(f, "the database sent {what}, which was not expected"),
            Self::Authentication(why) | Self::Tls(why) => f.write_str(why),
            Self::NoneWritable(why) => write!(f, "no host of the database takes writes: {why}"),
        }
    }
}

impl std::error::Error for PgError {}

impl From<io::Error> for PgError {
    fn from(error: io::Error) -> Self {
        // The handshake of TLS takes place in reads and writes.
        if let Some(why) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Self::Tls(format!("no encrypted connection to the database: {why}"));
        }
        // A socket whose time limit passes says either.
        if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) {
            Self::TimedOut
        } else {
            Self::Io(error)
        }
    }
}

/// A refusal of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerError {
    /// Five characters (SQLSTATE), `23505` for example.
    pub code: String,
    /// Its text.
    pub message: String,
    /// More about it; empty where there is nothing.
    pub detail: String,
    /// Advice; empty where there is nothing.
    pub hint: String,
}

impl ServerError {
    /// Reads the fields of a message; fields that are no text are left out.
    pub(super) fn of(fields: ErrorFields<'_>) -> Self {
        let mut error = Self::default();
        let mut fields = fields;
        while let Ok(Some(field)) = fields.next() {
            let place = match field.type_() {
                b'C' => &mut error.code,
                b'M' => &mut error.message,
                b'D' => &mut error.detail,
                b'H' => &mut error.hint,
                _ => continue,
            };
            if let Ok(text) = str::from_utf8(field.value_bytes()) {
                text.clone_into(place);
            }
        }
        error
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the database refuses: {} ({})", self.message, self.code)?;
        for more in [&self.detail, &self.hint] {
            if !more.is_empty() {
                write!(f, "; {more}")?;
            }
        }
        Ok(())
    }
}
