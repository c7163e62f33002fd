//! Answers that clients got about their tasks, and the comparison with a later daemon's answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ceased_tests::daemon::{Peer, wait_until};
use serde_json::Value;

/// Answers that a client got about one task.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) at: Instant,
    pub(crate) created: Value,
    /// The terminal status, if the client received one.
    pub(crate) last: Option<Value>,
    /// The answer of `tasks/result`, if there was one.
    pub(crate) outcome: Option<Value>,
}

/// Answers by task.
pub(crate) type Book = BTreeMap<String, Told>;
pub(crate) type SharedBook = Arc<Mutex<Book>>;

pub(crate) fn of_task(task: &str) -> String {
    format!(r#"{{"taskId":"{task}"}}"#)
}

/// The answer without its id; `None` when the daemon is gone.
pub(crate) fn ask(peer: &mut Peer, method: &str, params: &str) -> Option<Value> {
    let id = peer.next_id();
    let line = ceased_tests::daemon::peer::request(id, method, params);
    peer.try_send(format!("{line}\n").as_bytes()).ok()?;
    loop {
        let mut message = peer.message()?;
        if message["id"] == id {
            message["id"] = Value::Null;
            return Some(message);
        }
    }
}

pub(crate) fn is_last(status: &Value) -> bool {
    ["completed", "failed", "cancelled"].iter().any(|last| status == last)
}

/// Whether the answer says that the store cannot read or write now; such an answer says nothing
/// about a task.
pub(crate) fn is_unstored(answer: &Value) -> bool {
    answer["error"]["code"] == -31006
}

/// As [`ask`], repeated until the store can read and write again.
fn ask_stored(peer: &mut Peer, method: &str, task: &str) -> Result<Value, String> {
    let mut answer = Value::Null;
    wait_until("the store gives what it has", || {
        answer = ask(peer, method, &of_task(task)).unwrap_or_default();
        !is_unstored(&answer)
    });
    if answer.is_null() { Err("the daemon is gone".to_owned()) } else { Ok(answer) }
}

/// Compares a task with the earlier answers; an error describes the difference.
pub(crate) fn compare(peer: &mut Peer, task: &str, told: &Told) -> Result<(), String> {
    let state = ask_stored(peer, "tasks/get", task)?;
    let found = &state["result"];
    let differs = |what: &str, found: &Value| Err(format!("{what} of {task}, {told:?}: {found}"));
    if found["createdAt"] != told.created {
        return differs("existence", &state);
    }
    // After a restart no job is left, so the task cannot be `working`.
    if !is_last(&found["status"]) || told.last.as_ref().is_some_and(|last| found["status"] != *last)
    {
        return differs("status", &state);
    }
    let Some(outcome) = &told.outcome else { return Ok(()) };
    let found = ask_stored(peer, "tasks/result", task)?;
    if found == *outcome { Ok(()) } else { differs("outcome", &found) }
}
