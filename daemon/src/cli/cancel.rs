//! Cancelling, and waiting for the end of the cancelled work.
//!
//! MCP sends no answer to a cancelled request, so the end of the work is read from `ceased/status`,
//! an extension. Its result has `connection`, the asking one, and `jobs`, each with `job`, `tool`,
//! `state`, `connection`, `requestId`, and `task` if it belongs to one; and `agents`, whose requests
//! have numbers among the jobs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Io;
use ceased_client::{CallId, Client, Error, METHOD_NOT_FOUND};

/// Polling interval.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time limit of waiting; well above a tool's default `kill_grace`.
const GONE_WITHIN: Duration = Duration::from_secs(15);
/// Time after which remaining jobs are reported.
const SAY_AFTER: Duration = Duration::from_secs(2);

/// Reason for not knowing the end of work.
const NODE_LOST: &str = "the node that ran it was lost, where its keeper ends it";

/// Selection of the jobs to wait for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whose<'a> {
    /// Those of this connection without a task: this program makes one call at a time. If the
    /// server does not name the asking connection, those with the id of this call.
    Call(CallId),
    /// Those of a task.
    Task(&'a str),
    /// Those of these numbers.
    Jobs(&'a [u64]),
}

/// Result of waiting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// No job is left.
    Yes,
    /// These jobs are left at the time limit.
    StillThere(String),
    /// The server does not provide the status.
    Unknown,
    /// The user does not want to wait.
    Left,
    /// The connection failed.
    Lost(String),
}

/// Waits until no job of `whose` is left.
pub(super) fn wait_until_gone(client: &mut Client, whose: Whose<'_>, io: &mut Io<'_>) -> Gone {
    let start = Instant::now();
    let mut is_said = false;
    loop {
        let time = GONE_WITHIN.saturating_sub(start.elapsed());
        let mut left = match ask(client, "ceased/status", json!({}), time) {
            Ok(status) => jobs(&status, whose),
            Err(Error::Rpc(error)) if error.code == METHOD_NOT_FOUND => return Gone::Unknown,
            Err(Error::Interrupted) => return Gone::Left,
            Err(error) => return Gone::Lost(error.to_string()),
        };
        if let (true, Whose::Task(id)) = (left.is_empty(), whose) {
            // It may run at another node, or have been lost with it.
            match ask(client, "tasks/get", json!({"taskId": id}), time).map(|task| work(&task)) {
                Ok(Some("ending")) => left.push(format!("task {id} at another node")),
                Ok(Some("lost")) => return Gone::Lost(NODE_LOST.to_owned()),
                Ok(_) | Err(Error::Rpc(_)) => {}
                Err(Error::Interrupted) => return Gone::Left,
                Err(error) => return Gone::Lost(error.to_string()),
            }
        }
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

/// How far the work of a cancelled or failed task is, as `_meta["ceased/work"]` says.
pub(super) fn work(task: &Value) -> Option<&'static str> {
    let said = task["_meta"]["ceased/work"].as_str();
    ["ending", "ceased", "lost"].into_iter().find(|word| said == Some(*word))
}

/// Sends a request and waits for its result. One that fails is not cancelled: the program exits afterwards.
fn ask(client: &mut Client, method: &str, params: Value, time: Duration) -> Result<Value, Error> {
    let id = client.send(method, params)?;
    let result = client.wait(id, Some(time.max(LOOK_EVERY)), &mut |_| {})?;
    serde_json::from_str(result.get())
        .map_err(|why| Error::Protocol(format!("cannot parse the result of {method} ({why})")))
}

/// The jobs of `whose`.
pub(super) fn jobs_of<'a>(status: &'a Value, whose: Whose<'_>) -> Vec<&'a Value> {
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
    let mut all: Vec<&Value> = jobs.iter().filter(is_meant).collect();
    if let Whose::Jobs(_) = whose {
        all.extend(agent_requests(status).map(|(_, request)| request).filter(is_meant));
    }
    all
}

/// The requests that agents work on, each with its client.
pub(super) fn agent_requests(status: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    let agents = status["agents"].as_array().into_iter().flatten();
    let clients = agents.flat_map(|agent| agent["clients"].as_array().into_iter().flatten());
    clients.flat_map(|client| {
        let requests = client["requests"].as_array().into_iter().flatten();
        requests.map(move |request| (client, request))
    })
}

/// Descriptions of the jobs of `whose`.
fn jobs(status: &Value, whose: Whose<'_>) -> Vec<String> {
    let in_words = |job: &Value| {
        let text =
            |key: &str| job[key].as_str().map_or_else(|| job[key].to_string(), str::to_owned);
        let tool = if job["tool"].is_null() { text("method") } else { text("tool") };
        format!("job {} ({tool}, {})", text("job"), text("state"))
    };
    jobs_of(status, whose).into_iter().map(in_words).collect()
}

/// Reports that a cancellation has started (CAN-13).
pub(super) fn announce(what: &str, reason: &str, io: &mut Io<'_>) {
    io.say(&format!("cancelling {what}: {reason} (Ctrl-C again to exit at once)"));
}

/// Cancels a plain call and waits for the end of its work.
pub(super) fn stop_call(client: &mut Client, call: CallId, reason: &str, io: &mut Io<'_>) -> Gone {
    match client.cancel(call, Some(reason)) {
        Ok(()) => wait_until_gone(client, Whose::Call(call), io),
        Err(Error::Interrupted) => Gone::Left,
        Err(error) => Gone::Lost(error.to_string()),
    }
}

/// Reports the result to the user.
pub(super) fn report(gone: &Gone, client: &Client, io: &mut Io<'_>) {
    match gone {
        Gone::Yes => io.say("cancelled; the tool's processes are gone"),
        Gone::Unknown => io.say("cancelled; this server does not report when the work has stopped"),
        Gone::StillThere(left) => io.say(&format!(
            "cancelled, but still running after {}: {left}; see `ceased status`",
            humantime::format_duration(GONE_WITHIN)
        )),
        Gone::Left => {
            // The following exit may take a moment if the server is in this process.
            if let Some(interrupts) = client.interrupts() {
                interrupts.exit_at_next();
            }
            io.say("exiting without waiting; the cancelled work is still being stopped");
        }
        Gone::Lost(why) => io.say(&format!("cannot determine whether the work has stopped: {why}")),
    }
}
