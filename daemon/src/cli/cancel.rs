//! Cancelling, and waiting until what was cancelled is gone.
//!
//! MCP answers no cancelled request, so the end of the work is seen in `ceased/status`, a method of
//! ours. Of its result this looks at `connection`, the one that asks, and at `jobs`, where each has
//! `job`, `tool`, `state`, `connection`, `requestId`, and `task` if it belongs to one.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Io;
use ceased_client::{CallId, Client, Error, INVALID_PARAMS, METHOD_NOT_FOUND};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long to wait. Well above a tool's default `kill_grace`.
const GONE_WITHIN: Duration = Duration::from_secs(15);
/// When to say what is still there.
const SAY_AFTER: Duration = Duration::from_secs(2);

/// Whose jobs are waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whose<'a> {
    /// Those of this connection that are no task's: this program makes one call at a time. When
    /// the server does not say which connection asks, those with the id of this call.
    Call(CallId),
    /// Those of a task.
    Task(&'a str),
    /// Those of these numbers.
    Jobs(&'a [u64]),
}

/// What came of waiting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// No job is left.
    Yes,
    /// These are, and the time is over.
    StillThere(String),
    /// The server cannot tell.
    Unknown,
    /// The user does not want to wait.
    Left,
    /// The connection broke.
    Lost(String),
}

/// Waits until no job of `whose` is left.
pub(super) fn wait_until_gone(client: &mut Client, whose: Whose<'_>, io: &mut Io<'_>) -> Gone {
    let start = Instant::now();
    let mut is_said = false;
    loop {
        let left = match look(client, GONE_WITHIN.saturating_sub(start.elapsed())) {
            Ok(status) => jobs(&status, whose),
            Err(Error::Rpc(error)) if error.code == METHOD_NOT_FOUND => return Gone::Unknown,
            Err(Error::Interrupted) => return Gone::Left,
            Err(error) => return Gone::Lost(error.to_string()),
        };
        if left.is_empty() {
            return Gone::Yes;
        }
        let left = left.join(", ");
        if start.elapsed() >= GONE_WITHIN {
            return Gone::StillThere(left);
        }
        if !is_said && start.elapsed() >= SAY_AFTER {
            io.say(&format!("still stopping: {left}"));
            is_said = true;
        }
        match client.idle(LOOK_EVERY, &mut |_| {}) {
            Ok(()) => {}
            Err(Error::Interrupted) => return Gone::Left,
            Err(error) => return Gone::Lost(error.to_string()),
        }
    }
}

/// What the server is doing. A look given up here is not cancelled: nothing but leaving follows.
fn look(client: &mut Client, time: Duration) -> Result<Value, Error> {
    let id = client.send("ceased/status", json!({}))?;
    let status = client.wait(id, Some(time.max(LOOK_EVERY)), &mut |_| {})?;
    serde_json::from_str(status.get())
        .map_err(|why| Error::Protocol(format!("ceased/status cannot be read ({why})")))
}

/// The jobs of `whose`.
fn jobs_of<'a>(status: &'a Value, whose: Whose<'_>) -> Vec<&'a Value> {
    let jobs = status["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_meant = |job: &&Value| match whose {
        Whose::Task(id) => job["task"].as_str() == Some(id),
        Whose::Jobs(jobs) => job["job"].as_u64().is_some_and(|job| jobs.contains(&job)),
        Whose::Call(_) if !job["task"].is_null() => false,
        Whose::Call(id) if status["connection"].is_null() => {
            job["requestId"].as_u64() == Some(id.get())
        }
        Whose::Call(_) => job["connection"] == status["connection"],
    };
    jobs.iter().filter(is_meant).collect()
}

/// The jobs of `whose`, in words.
fn jobs(status: &Value, whose: Whose<'_>) -> Vec<String> {
    let in_words = |job: &Value| {
        let text =
            |key: &str| job[key].as_str().map_or_else(|| job[key].to_string(), str::to_owned);
        format!("job {} ({}, {})", text("job"), text("tool"), text("state"))
    };
    jobs_of(status, whose).into_iter().map(in_words).collect()
}

/// Says that something is being cancelled (CAN-13).
pub(super) fn announce(what: &str, reason: &str, io: &mut Io<'_>) {
    io.say(&format!("cancelling {what}: {reason} (Ctrl-C again to leave at once)"));
}

/// Cancels a plain call and waits until it is gone.
pub(super) fn stop_call(client: &mut Client, call: CallId, reason: &str, io: &mut Io<'_>) -> Gone {
    match client.cancel(call, Some(reason)) {
        Ok(()) => wait_until_gone(client, Whose::Call(call), io),
        Err(Error::Interrupted) => Gone::Left,
        Err(error) => Gone::Lost(error.to_string()),
    }
}

/// Stops a plain call whose answer is still wanted, since it holds what the tool has said so far,
/// and waits until it is gone. A request that is cancelled is not answered; one whose job is stopped
/// by its number (`ceased/cancel`) is. A server without that is told in MCP's own way.
pub(super) fn stop_for_answer(
    client: &mut Client,
    call: CallId,
    reason: &str,
    io: &mut Io<'_>,
) -> (Option<Box<RawValue>>, Gone) {
    match stop_jobs(client, call, reason) {
        Ok(()) => {}
        Err(Error::Rpc(_)) => return (None, stop_call(client, call, reason, io)),
        Err(Error::Interrupted) => return (None, Gone::Left),
        Err(error) => return (None, Gone::Lost(error.to_string())),
    }
    let answer = match client.wait(call, Some(SAY_AFTER), &mut |_| {}) {
        Err(Error::TimedOut(_)) => {
            io.say("still stopping");
            client.wait(call, Some(GONE_WITHIN.saturating_sub(SAY_AFTER)), &mut |_| {})
        }
        answer => answer,
    };
    match answer {
        Ok(answer) => (Some(answer), wait_until_gone(client, Whose::Call(call), io)),
        // What ends without having said anything.
        Err(Error::Rpc(_)) => (None, wait_until_gone(client, Whose::Call(call), io)),
        Err(Error::TimedOut(_)) => (None, stop_call(client, call, reason, io)),
        Err(Error::Interrupted) => (None, Gone::Left),
        Err(error) => (None, Gone::Lost(error.to_string())),
    }
}

/// Has every job of a call stopped by its number. One that is unknown has just ended.
fn stop_jobs(client: &mut Client, call: CallId, reason: &str) -> Result<(), Error> {
    let status = look(client, GONE_WITHIN)?;
    for job in jobs_of(&status, Whose::Call(call)) {
        let params = json!({"job": job["job"], "reason": reason});
        let id = client.send("ceased/cancel", params)?;
        match client.wait(id, Some(GONE_WITHIN), &mut |_| {}) {
            Err(Error::Rpc(error)) if error.code == INVALID_PARAMS => {}
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// Tells the user what came of it.
pub(super) fn report(gone: &Gone, client: &Client, io: &mut Io<'_>) {
    match gone {
        Gone::Yes => io.say("cancelled; the tool's processes are gone"),
        Gone::Unknown => io.say("cancelled; this server does not tell when it has stopped"),
        Gone::StillThere(left) => io.say(&format!(
            "cancelled, but after {} this is still there: {left}; `ceased status` shows it",
            humantime::format_duration(GONE_WITHIN)
        )),
        Gone::Left => {
            // What follows may still take a moment, when the server is in this process.
            if let Some(interrupts) = client.interrupts() {
                interrupts.leave_at_next();
            }
            io.say("left without waiting; what was cancelled is still being stopped");
        }
        Gone::Lost(why) => io.say(&format!("cannot see whether it has stopped: {why}")),
    }
}
