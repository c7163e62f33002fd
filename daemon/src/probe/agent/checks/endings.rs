//! The end of an agent: end of file, SIGTERM, and the death of its client.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::work::{begin, listed};
use crate::probe::agent::context::Context;
use crate::probe::finding::Finding;
use crate::probe::observed::Departed;
use crate::probe::session::Trouble;

/// Longest wait for a process of the turn.
const WORKS: Duration = Duration::from_secs(2);
/// Time that processes have after their agent has exited.
const AFTER_EXIT: Duration = Duration::from_secs(1);

/// Cause of the end.
#[derive(Debug, Clone, Copy)]
enum Cause {
    Eof,
    Sigterm,
    ClientKilled,
}

/// Ends an agent in the middle of a turn.
fn depart(context: &Context, cause: Cause) -> Result<Departed, Trouble> {
    let (mut session, ..) = begin(context, WORKS)?;
    match cause {
        Cause::Eof => session.pipe.close_output(),
        Cause::Sigterm => session.job.terminate(),
        Cause::ClientKilled => session.pipe.close(),
    }
    let start = Instant::now();
    let exited = session.job.exits(start + session.timeout());
    let millis = start.elapsed().as_millis();
    let mut survivors = Vec::new();
    if exited && !session.job.is_gone(Instant::now() + AFTER_EXIT) {
        survivors = session.job.record_survivors();
    }
    Ok(Departed { exited, millis, survivors })
}

fn departed<'a>(
    context: &Context,
    cell: &'a OnceLock<Result<Departed, String>>,
    cause: Cause,
) -> Result<&'a Departed, Trouble> {
    let departed = cell.get_or_init(|| depart(context, cause).map_err(|Trouble(why)| why));
    departed.as_ref().map_err(|why| Trouble(why.clone()))
}

fn judge_exit(context: &Context, departed: &Departed) -> Finding {
    match departed.exited {
        true => Finding::holds(format!("exits after {} ms", departed.millis)),
        false => Finding::deviates(format!("runs on after {:?}", context.options.timeout)),
    }
}

fn judge_tree(departed: &Departed) -> Finding {
    if !departed.exited {
        return Finding::unknown("the agent has not exited");
    }
    match departed.survivors.is_empty() {
        true => Finding::holds("no process is left"),
        false => Finding::deviates(format!("left behind: {}", listed(departed.survivors.clone()))),
    }
}

/// SUP-03.
pub(crate) fn eof_exit(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_eof, Cause::Eof).map(|it| judge_exit(context, it))
}

/// STOP-01.
pub(crate) fn eof_tree(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_eof, Cause::Eof).map(judge_tree)
}

/// SUP-03.
pub(crate) fn sigterm_exit(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_sigterm, Cause::Sigterm).map(|it| judge_exit(context, it))
}

/// STOP-01.
pub(crate) fn sigterm_tree(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_sigterm, Cause::Sigterm).map(judge_tree)
}

/// SUP-03.
pub(crate) fn killed_exit(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_kill, Cause::ClientKilled).map(|it| judge_exit(context, it))
}

/// STOP-01.
pub(crate) fn killed_tree(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_kill, Cause::ClientKilled).map(judge_tree)
}
