//! Hints between nodes: something that they run, watch or wait for has changed. A hint may be lost; each
//! node looks by itself once a second.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::failure::failure;
use crate::contract::{Epoch, Failure};
use crate::postgres::{Address, Session};

/// Time limit of a sign of life.
const SIGN_WITHIN: Duration = Duration::from_secs(1);

/// The connection of one node that hears and sends hints. Apart from the one of the writes: a transaction
/// with a hint holds a lock of the whole server while it waits for a standby.
#[derive(Debug)]
pub struct PostgresHints {
    session: Session,
}

impl PostgresHints {
    /// Listens for hints to a node.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn open(address: &Address, node: Epoch, deadline: Instant) -> Result<Self, Failure> {
        let listen = format!("SET synchronous_commit = off; LISTEN ceased_{}", node.0);
        let session = Session::open(address, &listen, deadline);
        session.map(|session| Self { session }).map_err(|error| failure(&error))
    }

    /// Sends a hint to each of these nodes.
    ///
    /// # Errors
    /// [`Failure`]; the connection is of no use then.
    pub fn send(&mut self, nodes: &[Epoch], deadline: Instant) -> Result<(), Failure> {
        let mut sql = String::new();
        for node in nodes {
            // A number: nothing to escape. Writing to a text does not fail.
            let _ = write!(sql, "NOTIFY ceased_{};", node.0);
        }
        match sql.is_empty() {
            true => Ok(()),
            false => self.session.script(&sql, deadline).map(drop).map_err(|error| failure(&error)),
        }
    }

    /// Waits for a hint; false at the deadline, once the server has given a sign of life: a connection that only
    /// hears would not notice that the server is gone. Hints that have arrived together are one.
    ///
    /// # Errors
    /// [`Failure`]; the connection is of no use then.
    pub fn wait(&mut self, deadline: Instant) -> Result<bool, Failure> {
        let mut heard =
            self.session.notification(deadline).map_err(|error| failure(&error))?.is_some();
        if !heard {
            let signed = self.session.script("", Instant::now() + SIGN_WITHIN);
            signed.map_err(|error| failure(&error))?;
            heard = self.session.has_notification();
        }
        while heard && self.session.has_notification() {
            self.session.notification(deadline).map_err(|error| failure(&error))?;
        }
        Ok(heard)
    }
}
