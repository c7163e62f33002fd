//! Much input, many calls, and output that is not read.

use std::fs;
use std::time::{Duration, Instant};

use ceased_process::Process;
use serde_json::json;

use crate::probe::context::Context;
use crate::probe::finding::Finding;
use crate::probe::session::{Session, Trouble, cancel};

/// Calls of the storm, and those at once over HTTP.
const STORM: usize = 1000;
const WAVE: usize = 20;
/// Descriptors by which the count may differ after the storm.
const DESCRIPTORS_MORE: usize = 64;
/// Requests without reading: so many that their answers fill every buffer between both sides, within
/// these limits.
const UNREAD: [usize; 2] = [400, 6000];
const BUFFERED_BYTES: usize = 768 * 1024;
/// Requests of this size before a cancel.
const PADDED: usize = 5;
const PADDING_BYTES: usize = 1024 * 1024;

/// Descriptors of processes.
pub(crate) fn descriptors(processes: &[Process]) -> usize {
    let count = |pid| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    processes.iter().map(|process| count(process.pid)).sum()
}

/// CAN-11, CAN-07.
pub(crate) fn storm(context: &Context) -> Result<Finding, Trouble> {
    let mut session = Session::start(context)?;
    session.check_alive()?;
    // Processes of calls are left to another check.
    let processes = session.processes();
    let before = descriptors(&processes);
    let wave = if context.options.target.is_http() { WAVE } else { STORM };
    let start = Instant::now();
    for _ in 0..STORM / wave {
        let lines = storm_lines(&mut session, context, wave);
        if let Err(Trouble(why)) = session.say(&lines) {
            return Ok(Finding::deviates(why));
        }
    }
    if let Err(Trouble(why)) = session.check_alive() {
        return Ok(Finding::deviates(why));
    }
    let took = start.elapsed().as_millis();
    if context.options.target.is_http() {
        // Responses that do not end after a cancel are left to another check.
        session.http()?.close();
    }
    let until = Instant::now() + session.timeout();
    let mut after = descriptors(&processes);
    while after > before + DESCRIPTORS_MORE && Instant::now() < until {
        if let Err(Trouble(why)) = session.watch(Instant::now() + Duration::from_millis(200)) {
            return Ok(Finding::deviates(why));
        }
        after = descriptors(&processes);
    }
    if processes.is_empty() {
        return Ok(Finding::holds(format!("{STORM} calls in {took} ms, and a ping is answered")));
    }
    let seen = format!("{STORM} calls in {took} ms; descriptors {before} before, {after} after");
    Ok(Finding::of(after <= before + DESCRIPTORS_MORE, seen))
}

/// So many calls, and a cancel of each. Over HTTP each call has a connection of its own, on which
/// it has to arrive before its cancel does on another.
fn storm_lines(session: &mut Session<'_>, context: &Context, calls: usize) -> String {
    let (mut lines, mut cancels) = (Vec::new(), Vec::new());
    for _ in 0..calls {
        let id = session.next_id();
        lines.push(session.call(&id, context.long()));
        match context.options.target.is_http() {
            true => cancels.push(cancel(&id)),
            false => lines.push(cancel(&id)),
        }
    }
    lines.extend(cancels);
    lines.join("\n")
}

/// CAN-11: a cancel behind much input.
pub(crate) fn behind_input(context: &Context) -> Result<Finding, Trouble> {
    let mut session = Session::start(context)?;
    session.check_alive()?;
    let id = session.next_id();
    let mut lines = vec![session.call(&id, context.long())];
    let mut padded = Vec::new();
    let padding = "x".repeat(PADDING_BYTES);
    for number in 0..PADDED {
        let params = json!({"_meta": {"example.com/padding": padding}});
        let id = json!(format!("padded-{number}"));
        lines.push(session.request(&id, "tools/list", params));
        padded.push(id);
    }
    lines.push(cancel(&id));
    let start = Instant::now();
    let within = session.timeout();
    let all = |session: &Session<'_>| padded.iter().all(|id| !session.answers(id).is_empty());
    let passed = session.say(&lines.join("\n")).and_then(|()| session.check_alive());
    Ok(match passed.and_then(|()| session.watch_for(within, all)) {
        Ok(true) => {
            let took = start.elapsed().as_millis();
            Finding::holds(format!("5 MiB and the cancel behind are read in {took} ms"))
        }
        Ok(false) => {
            let missing = padded.iter().filter(|id| session.answers(id).is_empty()).count();
            Finding::deviates(format!("{missing} of {PADDED} requests of 1 MiB have no answer"))
        }
        Err(Trouble(why)) => Finding::deviates(why),
    })
}

/// CAN-11: a client that does not read for a while.
pub(crate) fn no_reader(context: &Context) -> Result<Finding, Trouble> {
    let mut session = Session::start(context)?;
    session.check_alive()?;
    let size = session.ask("tools/list", json!({}))?.to_string().len();
    let [least, most] = UNREAD;
    let unread = (BUFFERED_BYTES / size).clamp(least, most);
    let ids: Vec<_> = (0..unread).map(|number| json!(format!("list-{number}"))).collect();
    let lines: Vec<String> =
        ids.iter().map(|id| session.request(id, "tools/list", json!({})) + "\n").collect();
    let bytes = lines.concat().into_bytes();
    let window = context.options.window;
    let rest = session.channel.send(&bytes, Instant::now() + window, false);
    std::thread::sleep(window);
    let passed = session.say_bytes(rest).and_then(|()| session.check_alive());
    let within = session.timeout();
    let all = |session: &Session<'_>| ids.iter().all(|id| !session.answers(id).is_empty());
    Ok(match passed.and_then(|()| session.watch_for(within, all)) {
        Ok(true) => Finding::holds(format!("{unread} answers, once they are read")),
        Ok(false) => {
            let missing = ids.iter().filter(|id| session.answers(id).is_empty()).count();
            Finding::deviates(format!("{missing} of {unread} requests have no answer"))
        }
        Err(Trouble(why)) => Finding::deviates(why),
    })
}
