//! What clients were told of their tasks, and whether that is what they find.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ceased_tests::daemon::{Peer, wait_until};
use serde_json::Value;

/// What a client was told of a task.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) at: Instant,
    pub(crate) created: Value,
    /// A status that never changes, if it was told one.
    pub(crate) last: Option<Value>,
    /// What `tasks/result` answered, if it did.
    pub(crate) outcome: Option<Value>,
}

/// Everything told of each task.
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

/// Whether the store says that it takes or gives nothing now, which is no word on a task.
pub(crate) fn is_unstored(answer: &Value) -> bool {
    answer["error"]["code"] == -31006
}

/// As [`ask`], again and again while the store gives nothing: there is room for it now.
fn ask_stored(peer: &mut Peer, method: &str, task: &str) -> Result<Value, String> {
    let mut answer = Value::Null;
    wait_until("the store gives what it has", || {
        answer = ask(peer, method, &of_task(task)).unwrap_or_default();
        !is_unstored(&answer)
    });
    if answer.is_null() { Err("the daemon is gone".to_owned()) } else { Ok(answer) }
}

/// Whether a task is what a client was told it is; otherwise what it is instead.
pub(crate) fn compare(peer: &mut Peer, task: &str, told: &Told) -> Result<(), String> {
    let state = ask_stored(peer, "tasks/get", task)?;
    let found = &state["result"];
    let differs = |what: &str, found: &Value| Err(format!("{what} of {task}, {told:?}: {found}"));
    if found["createdAt"] != told.created {
        return differs("existence", &state);
    }
    // After a restart there is no job left that it could be working on.
    if !is_last(&found["status"]) || told.last.as_ref().is_some_and(|last| found["status"] != *last)
    {
        return differs("status", &state);
    }
    let Some(outcome) = &told.outcome else { return Ok(()) };
    let found = ask_stored(peer, "tasks/result", task)?;
    if found == *outcome { Ok(()) } else { differs("outcome", &found) }
}
