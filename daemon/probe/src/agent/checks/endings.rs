//! The end of an agent in the middle of a turn.

use std::time::Duration;

use super::work::begin;
use crate::agent::context::Context;
use crate::endings::{Cause, Mortal, departure, terminate};
use crate::finding::SessionError;
use crate::observed::{Departed, Departures};

/// Longest wait for a process of the turn.
const WORKS: Duration = Duration::from_secs(2);

impl Mortal for Context {
    const PARTY: &str = "agent";

    fn departures(&self) -> &Departures {
        &self.departures
    }

    fn timeout(&self) -> Duration {
        self.options.timeout
    }

    fn depart(&self, cause: Cause) -> Result<Departed, SessionError> {
        let (mut session, ..) = begin(self, WORKS)?;
        match cause {
            Cause::Eof => session.pipe.close_output(),
            Cause::Sigterm => terminate(&mut session.job)?,
            Cause::ClientKilled => session.pipe.close(),
        }
        Ok(departure(&mut session.job, self.options.timeout))
    }
}
