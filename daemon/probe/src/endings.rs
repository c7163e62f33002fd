//! The end of a subject in the middle of its work: end of file, SIGTERM, and the death of its
//! client.

use std::time::{Duration, Instant};

use super::arena::Job;
use super::finding::{Finding, SessionError};
use super::observed::{Departed, Departures};
use super::suite::Subject;
use super::text::listed;

/// Time that processes have after their command has exited.
const AFTER_EXIT: Duration = Duration::from_secs(1);

/// Cause of the end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cause {
    Eof,
    Sigterm,
    ClientKilled,
}

/// A context whose subject can be ended.
pub(crate) trait Mortal: Subject {
    /// Kind of the subject.
    const PARTY: &str;

    /// The observations.
    fn departures(&self) -> &Departures;

    /// Time in which a subject exits.
    fn timeout(&self) -> Duration;

    /// Ends a subject in the middle of its work.
    fn depart(&self, cause: Cause) -> Result<Departed, SessionError>;
}

/// Sends SIGTERM to a command.
pub(crate) fn terminate(job: &mut Job<'_>) -> Result<(), SessionError> {
    match job.terminate() {
        true => Ok(()),
        false => Err(SessionError("the process of the command is not found".to_owned())),
    }
}

/// Waits for the end of a command that has just got a cause for it.
pub(crate) fn departure(job: &mut Job<'_>, within: Duration) -> Departed {
    let start = Instant::now();
    let exited = job.exits(start + within);
    let millis = start.elapsed().as_millis();
    let mut survivors = Vec::new();
    if exited && !job.is_gone(Instant::now() + AFTER_EXIT) {
        survivors = job.record_survivors();
    }
    Departed { exited, millis, survivors }
}

fn departed<C: Mortal>(context: &C, cause: Cause) -> Result<&Departed, SessionError> {
    let all = context.departures();
    let cell = match cause {
        Cause::Eof => &all.at_eof,
        Cause::Sigterm => &all.at_sigterm,
        Cause::ClientKilled => &all.at_kill,
    };
    cell.get(context.arena(), || context.depart(cause))
}

fn exit<C: Mortal>(context: &C, cause: Cause) -> Result<Finding, SessionError> {
    let departed = departed(context, cause)?;
    Ok(match departed.exited {
        true => Finding::holds(format!("exits after {} ms", departed.millis)),
        false => Finding::deviates(format!("runs on after {:?}", context.timeout())),
    })
}

fn tree<C: Mortal>(context: &C, cause: Cause) -> Result<Finding, SessionError> {
    let departed = departed(context, cause)?;
    if !departed.exited {
        return Err(SessionError(format!("the {} has not exited", C::PARTY)));
    }
    Ok(match departed.survivors.is_empty() {
        true => Finding::holds("no process is left"),
        false => Finding::deviates(format!("left behind: {}", listed(&departed.survivors))),
    })
}

/// UPS-07, SUP-03.
pub(crate) fn eof_exit<C: Mortal>(context: &C) -> Result<Finding, SessionError> {
    exit(context, Cause::Eof)
}

/// STOP-01.
pub(crate) fn eof_tree<C: Mortal>(context: &C) -> Result<Finding, SessionError> {
    tree(context, Cause::Eof)
}

/// UPS-07, SUP-03.
pub(crate) fn sigterm_exit<C: Mortal>(context: &C) -> Result<Finding, SessionError> {
    exit(context, Cause::Sigterm)
}

/// STOP-01.
pub(crate) fn sigterm_tree<C: Mortal>(context: &C) -> Result<Finding, SessionError> {
    tree(context, Cause::Sigterm)
}

/// UPS-07, SUP-03.
pub(crate) fn killed_exit<C: Mortal>(context: &C) -> Result<Finding, SessionError> {
    exit(context, Cause::ClientKilled)
}

/// STOP-01.
pub(crate) fn killed_tree<C: Mortal>(context: &C) -> Result<Finding, SessionError> {
    tree(context, Cause::ClientKilled)
}
