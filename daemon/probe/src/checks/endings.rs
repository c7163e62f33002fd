//! The end of a server in the middle of a call.

use std::time::{Duration, Instant};

use crate::context::Context;
use crate::endings::{Cause, Mortal, departure, terminate};
use crate::finding::SessionError;
use crate::observed::{Departed, Departures};
use crate::session::Session;

/// Time after which a call has begun.
const BEGUN: Duration = Duration::from_millis(500);

impl Mortal for Context {
    const PARTY: &str = "server";

    fn departures(&self) -> &Departures {
        &self.departures
    }

    fn timeout(&self) -> Duration {
        self.options.timeout
    }

    fn depart(&self, cause: Cause) -> Result<Departed, SessionError> {
        let mut session = Session::start(self)?;
        session.check_alive()?;
        if let (Some(call), false) = (&self.facts().long, self.facts().must_be_task) {
            let id = session.next_id();
            let line = session.call(&id, call);
            session.say(&line)?;
            session.watch(Instant::now() + BEGUN)?;
        }
        match cause {
            Cause::Eof => session.channel.close_output(),
            Cause::Sigterm => terminate(session.job()?)?,
            Cause::ClientKilled => session.channel.close(),
        }
        Ok(departure(session.job()?, self.options.timeout))
    }
}
