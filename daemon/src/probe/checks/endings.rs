//! The end of a server: end of file, SIGTERM, and the death of its client.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::probe::context::Context;
use crate::probe::finding::Finding;
use crate::probe::observed::Departed;
use crate::probe::session::{Session, Trouble};

use super::work::listed;

/// Time after which a call has begun.
const BEGUN: Duration = Duration::from_millis(500);
/// Time that processes have after their server has exited.
const AFTER_EXIT: Duration = Duration::from_secs(1);

/// Cause of the end.
#[derive(Debug, Clone, Copy)]
enum Cause {
    Eof,
    Sigterm,
    ClientKilled,
}

/// Ends a server in the middle of a call.
fn depart(context: &Context, cause: Cause) -> Result<Departed, Trouble> {
    let mut session = Session::start(context)?;
    session.check_alive()?;
    if let (Some(call), false) = (&context.facts().long, context.facts().must_be_task) {
        let id = session.next_id();
        let line = session.call(&id, call);
        session.say(&line)?;
        session.watch(Instant::now() + BEGUN)?;
    }
    match cause {
        Cause::Eof => session.channel.close_output(),
        Cause::Sigterm => session.job()?.terminate(),
        Cause::ClientKilled => session.channel.close(),
    }
    let start = Instant::now();
    let until = start + session.timeout();
    let job = session.job()?;
    let exited = job.exits(until);
    let millis = start.elapsed().as_millis();
    let mut survivors = Vec::new();
    if exited && !job.is_gone(Instant::now() + AFTER_EXIT) {
        survivors = job.record_survivors();
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
    if departed.exited {
        return Finding::holds(format!("exits after {} ms", departed.millis));
    }
    Finding::deviates(format!("runs on after {:?}", context.options.timeout))
}

fn judge_tree(departed: &Departed) -> Finding {
    if !departed.exited {
        return Finding::unknown("the server has not exited");
    }
    match departed.survivors.is_empty() {
        true => Finding::holds("no process is left"),
        false => Finding::deviates(format!("left behind: {}", listed(&departed.survivors))),
    }
}

/// UPS-07.
pub(crate) fn eof_exit(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_eof, Cause::Eof).map(|it| judge_exit(context, it))
}

/// STOP-01.
pub(crate) fn eof_tree(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_eof, Cause::Eof).map(judge_tree)
}

/// UPS-07.
pub(crate) fn sigterm_exit(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_sigterm, Cause::Sigterm).map(|it| judge_exit(context, it))
}

/// STOP-01.
pub(crate) fn sigterm_tree(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_sigterm, Cause::Sigterm).map(judge_tree)
}

/// UPS-07.
pub(crate) fn killed_exit(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_kill, Cause::ClientKilled).map(|it| judge_exit(context, it))
}

/// STOP-01.
pub(crate) fn killed_tree(context: &Context) -> Result<Finding, Trouble> {
    departed(context, &context.at_kill, Cause::ClientKilled).map(judge_tree)
}
