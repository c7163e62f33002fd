//! Much input, many calls, and output that is not read.

use std::fs;
use std::time::{Duration, Instant};

use ceased_process::Process;
use serde_json::json;

use crate::probe::context::Context;
use crate::probe::finding::Finding;
use crate::probe::session::{Session, Trouble, cancel};

/// Calls of the storm.
const STORM: usize = 1000;
/// Descriptors by which the count may differ after the storm.
const DESCRIPTORS_MORE: usize = 64;
/// Requests without reading.
const UNREAD: usize = 400;
/// Requests of this size before a cancel.
const PADDED: usize = 5;
const PADDING_BYTES: usize = 1024 * 1024;

/// Descriptors of processes.
fn descriptors(processes: &[Process]) -> usize {
    let count = |pid| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    processes.iter().map(|process| count(process.pid)).sum()
}

/// CAN-11, CAN-07.
pub(crate) fn storm(context: &Context) -> Result<Finding, Trouble> {
    let mut session = Session::start(context)?;
    session.check_alive()?;
    // Processes of calls are left to another check.
    let processes = session.job.processes();
    let before = descriptors(&processes);
    let mut lines = Vec::new();
    for _ in 0..STORM {
        let id = session.next_id();
        lines.push(session.call(&id, context.long()));
        lines.push(cancel(&id));
    }
    let start = Instant::now();
    let passed = session.say(&lines.join("\n")).and_then(|()| session.check_alive());
    if let Err(Trouble(why)) = passed {
        return Ok(Finding::deviates(why));
    }
    let took = start.elapsed().as_millis();
    let until = Instant::now() + session.timeout();
    let mut after = descriptors(&processes);
    while after > before + DESCRIPTORS_MORE && Instant::now() < until {
        if let Err(Trouble(why)) = session.watch(Instant::now() + Duration::from_millis(200)) {
            return Ok(Finding::deviates(why));
        }
        after = descriptors(&processes);
    }
    let seen = format!("{STORM} calls in {took} ms; descriptors {before} before, {after} after");
    Ok(Finding::of(after <= before + DESCRIPTORS_MORE, seen))
}

/// CAN-11: a cancel behind much input.
pub(crate) fn behind_input(context: &Context) -> Result<Finding, Trouble> {
    let mut session = Session::start(context)?;
    session.check_alive()?;
    let id = session.next_id();
    let mut lines = vec![session.call(&id, context.long())];
    let padding = "x".repeat(PADDING_BYTES);
    for number in 0..PADDED {
        let params = json!({"_meta": {"example.com/padding": padding}});
        lines.push(session.request(&json!(format!("ping-{number}")), "ping", params));
    }
    lines.push(cancel(&id));
    let start = Instant::now();
    let passed = session.say(&lines.join("\n")).and_then(|()| session.check_alive());
    Ok(match passed {
        Ok(()) => {
            let took = start.elapsed().as_millis();
            Finding::holds(format!("5 MiB and the cancel behind are read in {took} ms"))
        }
        Err(Trouble(why)) => Finding::deviates(why),
    })
}

/// CAN-11: a client that does not read for a while.
pub(crate) fn no_reader(context: &Context) -> Result<Finding, Trouble> {
    let mut session = Session::start(context)?;
    session.check_alive()?;
    let ids: Vec<_> = (0..UNREAD).map(|number| json!(format!("list-{number}"))).collect();
    let lines: Vec<String> =
        ids.iter().map(|id| session.request(id, "tools/list", json!({})) + "\n").collect();
    let bytes = lines.concat().into_bytes();
    let window = context.options.window;
    let rest = session.pipe.send(&bytes, Instant::now() + window, false);
    std::thread::sleep(window);
    let passed = session.say_bytes(rest).and_then(|()| session.check_alive());
    let within = session.timeout();
    let all = |session: &Session<'_>| ids.iter().all(|id| !session.answers(id).is_empty());
    Ok(match passed.and_then(|()| session.watch_for(within, all)) {
        Ok(true) => Finding::holds(format!("{UNREAD} answers, once they are read")),
        Ok(false) => {
            let missing = ids.iter().filter(|id| session.answers(id).is_empty()).count();
            Finding::deviates(format!("{missing} of {UNREAD} requests have no answer"))
        }
        Err(Trouble(why)) => Finding::deviates(why),
    })
}
