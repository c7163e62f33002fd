//! Processes of a cancelled turn.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::agent::context::Context;
use crate::agent::session::{Session, Turn};
use crate::finding::{Finding, SessionError};
use crate::text::listed;

/// Time between two lists of the processes.
pub(super) const EVERY: Duration = Duration::from_millis(200);

/// Names by process id.
pub(super) type Names = BTreeMap<i32, String>;

pub(super) fn processes(session: &Session<'_>) -> Names {
    session.job.processes().into_iter().map(|it| (it.pid, it.name)).collect()
}

pub(super) fn without(all: Names, known: &Names) -> Names {
    all.into_iter().filter(|(pid, _)| !known.contains_key(pid)).collect()
}

/// Begins a turn that works, and waits for its first process.
pub(super) fn begin<'a>(
    context: &'a Context,
    within: Duration,
) -> Result<(Session<'a>, Turn, Names, Names), SessionError> {
    let mut session = Session::start(context)?;
    let name = session.open()?;
    session.permit();
    session.watch(EVERY)?;
    let before = processes(&session);
    let turn = session.begin(&name, context.work_prompt())?;
    let until = Instant::now() + within;
    loop {
        let started = without(processes(&session), &before);
        let is_over = session.end(&turn).is_some() || until <= Instant::now();
        if !started.is_empty() || is_over {
            return Ok((session, turn, before, started));
        }
        session.watch(EVERY)?;
    }
}

/// ACP-05, STOP-01.
pub(crate) fn processes_end(context: &Context) -> Result<Finding, SessionError> {
    let (mut session, turn, before, started) = begin(context, context.options.timeout)?;
    if started.is_empty() {
        return Ok(Finding::unknown(
            "the turn starts no process; give a prompt that does with --work-prompt",
        ));
    }
    if let Some(end) = session.end(&turn) {
        return Ok(Finding::unknown(format!("the turn ends by itself with {}", end.told())));
    }
    session.cancel(&turn)?;
    let until = Instant::now() + session.timeout();
    loop {
        let alive = without(processes(&session), &before);
        if alive.is_empty() {
            return Ok(Finding::holds(format!("gone: {}", listed(started.into_values()))));
        }
        if until <= Instant::now() {
            let alive = listed(alive.into_values());
            return Ok(Finding::deviates(format!("alive after the cancel: {alive}")));
        }
        session.watch(EVERY)?;
    }
}
