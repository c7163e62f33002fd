//! Much input, many calls, and output that is not read.

use std::fs;
use std::time::{Duration, Instant};

use ceased_process::Process;
use serde_json::json;

use crate::context::Context;
use crate::finding::{Finding, SessionError};
use crate::session::{Session, cancel};

/// Storms in a row, the calls of each, and those at once over HTTP.
const STORMS: usize = 4;
const STORM: usize = 250;
const WAVE: usize = 25;
/// One descriptor for so many calls or sessions is no leak: the count swings.
const PER_DESCRIPTOR: usize = 10;
/// Time without a change after which the number of descriptors is settled, and between two counts.
const LEVEL: Duration = Duration::from_secs(2);
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// Requests without reading: so many that their answers fill every buffer between both sides, within
/// these limits.
const UNREAD: [usize; 2] = [120, 6000];
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
pub(crate) fn storm(context: &Context) -> Result<Finding, SessionError> {
    let mut session = Session::start(context)?;
    session.check_alive()?;
    // Processes of calls are left to another check.
    let processes = session.processes();
    let mut counts = vec![descriptors(&processes)];
    let mut took = Duration::ZERO;
    for _ in 0..STORMS {
        let start = Instant::now();
        let former = counts.last().copied().unwrap_or_default();
        let passed = unleash(&mut session, context);
        took += start.elapsed();
        match passed.and_then(|()| settled(&mut session, &processes, former, STORM)) {
            Ok(count) => counts.push(count),
            Err(SessionError(why)) => return Ok(Finding::deviates(why)),
        }
    }
    let seen = format!("{} calls in {} ms", STORMS * STORM, took.as_millis());
    Ok(match processes.is_empty() {
        true => Finding::holds(format!("{seen}, and a ping is answered after each {STORM}")),
        false => judge_growth(&counts, STORM, &seen),
    })
}

/// A finding about the descriptors before the first round and after each, of so many calls or
/// sessions. A server may keep something for itself in the first round; a leak grows with each.
pub(super) fn judge_growth(counts: &[usize], each: usize, seen: &str) -> Finding {
    let after = counts.windows(2).skip(1);
    let growth = after.filter_map(|it| Some(it.last()?.saturating_sub(*it.first()?)));
    let told: Vec<String> = counts.iter().skip(1).map(usize::to_string).collect();
    let before = counts.first().copied().unwrap_or_default();
    let seen =
        format!("{seen}; descriptors {before} before, {} after each {each}", told.join(", "));
    Finding::of(growth.min().is_none_or(|least| least <= each / PER_DESCRIPTOR), seen)
}

/// A storm, and a ping.
fn unleash(session: &mut Session<'_>, context: &Context) -> Result<(), SessionError> {
    let is_http = context.options.target.is_http();
    let wave = if is_http { WAVE } else { STORM };
    for _ in 0..STORM / wave {
        let lines = storm_lines(session, context, wave);
        session.say(&lines)?;
    }
    session.check_alive()?;
    if is_http {
        // Responses that do not end after a cancel are left to another check.
        session.http()?.hang_up_all();
    }
    Ok(())
}

/// The number of descriptors after a round of so many calls or sessions, once it is near the former
/// one or does not change for a while.
pub(super) fn settled(
    session: &mut Session<'_>,
    processes: &[Process],
    former: usize,
    each: usize,
) -> Result<usize, SessionError> {
    let until = session.until();
    let (mut count, mut since) = (descriptors(processes), Instant::now());
    while count > former + each / PER_DESCRIPTOR
        && since.elapsed() < LEVEL
        && Instant::now() < until
    {
        session.watch(Instant::now() + COUNT_EVERY)?;
        let now = descriptors(processes);
        if now != count {
            (count, since) = (now, Instant::now());
        }
    }
    Ok(count)
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
pub(crate) fn behind_input(context: &Context) -> Result<Finding, SessionError> {
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
        Err(SessionError(why)) => Finding::deviates(why),
    })
}

/// CAN-11: a client that does not read for a while.
pub(crate) fn no_reader(context: &Context) -> Result<Finding, SessionError> {
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
        Err(SessionError(why)) => Finding::deviates(why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict::{Deviates, Holds};

    #[test]
    fn leak_grows_with_each_round() {
        let verdict = |counts: &[usize]| judge_growth(counts, STORM, "").verdict;
        assert_eq!(verdict(&[10, 260, 510, 760, 1010]), Deviates);
        // A pool, and connections that close late.
        assert_eq!(verdict(&[10, 300, 300, 301, 299]), Holds);
        assert_eq!(verdict(&[10, 20, 90, 70, 130]), Holds);
        assert_eq!(judge_growth(&[10, 20, 30, 40, 50], 10, "").verdict, Deviates);
    }
}
