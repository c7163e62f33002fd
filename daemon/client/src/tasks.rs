//! Tools and tasks as a client sees them: lists, task-augmented calls, and what they return.

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call_id::CallId;
use crate::client::Client;
use crate::client::Kind;
use crate::decode::{broken, members};
use crate::error::{Error, Refusal};
use crate::task::{Task, Tool};

/// Most entries of a list this client collects, over all its pages.
const LIST_ENTRIES_MAX: usize = 100_000;
/// Most pages in a row with nothing on them: a server may leave out what is not for this client.
const EMPTY_PAGES_MAX: usize = 1000;

impl Client {
    /// All tools of the server.
    ///
    /// # Errors
    /// As [`Client::call`]; also [`Error::Protocol`] for a list that does not end.
    pub fn tools(&mut self) -> Result<Vec<Tool>, Error> {
        let runs_tasks = self.runs_tasks();
        let read = |raw| Tool::read(raw, runs_tasks);
        self.list("tools/list", "tools")?.into_iter().map(read).collect()
    }

    /// Starts a plain call of a tool; its progress comes with the [`CallId`] returned.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn start_tool(&mut self, name: &str, arguments: &Value) -> Result<CallId, Error> {
        self.request("tools/call", Kind::Plain, |id| tool_call(id, name, arguments))
    }

    /// Starts a call of a tool as a task. The answer holds the task, see [`Task::created`]; its
    /// progress comes with the [`CallId`] returned until the task ends (TSK-33).
    ///
    /// # Errors
    /// [`Error::Refused`] when the server declared no tasks for tool calls (TSK-02), else as
    /// [`Client::send`].
    pub fn start_task(
        &mut self,
        name: &str,
        arguments: &Value,
        ttl: Option<Duration>,
    ) -> Result<CallId, Error> {
        if !self.runs_tasks() {
            return Err(Refusal::NotOffered("tasks for tool calls").into());
        }
        let task = match ttl {
            Some(ttl) => json!({"ttl": u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)}),
            None => json!({}),
        };
        self.request("tools/call", Kind::CreatesTask, |id| {
            let mut params = tool_call(id, name, arguments);
            params["task"] = task;
            params
        })
    }

    /// Creates a task and waits for it to exist, not for it to end.
    ///
    /// # Errors
    /// As [`Client::start_task`]. After [`Error::TimedOut`] or [`Error::Interrupted`] it is not
    /// known whether the task exists; `tasks/list` tells.
    pub fn create_task(
        &mut self,
        name: &str,
        arguments: &Value,
        ttl: Option<Duration>,
    ) -> Result<Task, Error> {
        let id = self.start_task(name, arguments, ttl)?;
        let timeout = Some(self.options.timeout);
        Task::created(&self.wait(id, timeout, &mut |_| {})?)
    }

    /// How a task stands now.
    ///
    /// # Errors
    /// As [`Client::call`]; an unknown task is [`Error::Rpc`] with code -32602 (TSK-27).
    pub fn task(&mut self, id: &str) -> Result<Task, Error> {
        Task::read(&self.call_raw("tasks/get", json!({"taskId": id}))?)
    }

    /// Starts waiting for what a task returns: the answer comes when the task ends (TSK-15).
    /// Cancelling this call ends the wait, never the task (CAN-15).
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn start_task_result(&mut self, id: &str) -> Result<CallId, Error> {
        self.send("tasks/result", json!({"taskId": id}))
    }

    /// Cancels a task (CAN-05). The task returned is `cancelled` (TSK-24) although its work may
    /// need a moment more to stop.
    ///
    /// # Errors
    /// [`Error::Refused`] when the server declared no `tasks.cancel` (TSK-02), else as
    /// [`Client::call`]; a task that is unknown or has ended is [`Error::Rpc`] with code -32602.
    pub fn cancel_task(&mut self, id: &str, reason: Option<&str>) -> Result<Task, Error> {
        if !self.server.capabilities["tasks"]["cancel"].is_object() {
            return Err(Refusal::NotOffered("cancelling tasks").into());
        }
        let mut params = json!({"taskId": id});
        if let Some(reason) = reason {
            // The protocol has no place for a reason here.
            params["_meta"] = json!({"ceased/reason": reason});
        }
        Task::read(&self.call_raw("tasks/cancel", params)?)
    }

    /// All tasks this client may see.
    ///
    /// # Errors
    /// [`Error::Refused`] when the server declared no `tasks.list` (TSK-02), else as
    /// [`Client::tools`].
    pub fn tasks(&mut self) -> Result<Vec<Task>, Error> {
        if !self.server.capabilities["tasks"]["list"].is_object() {
            return Err(Refusal::NotOffered("a list of tasks").into());
        }
        self.list("tasks/list", "tasks")?.iter().map(|raw| Task::read(raw)).collect()
    }

    /// True when the server declared that tool calls may be tasks.
    #[must_use]
    pub fn runs_tasks(&self) -> bool {
        self.server.capabilities["tasks"]["requests"]["tools"]["call"].is_object()
    }

    /// All pages of a list.
    fn list(&mut self, method: &str, key: &str) -> Result<Vec<Box<RawValue>>, Error> {
        let mut entries = Vec::new();
        let mut cursor: Option<String> = None;
        let mut empty_pages = 0;
        loop {
            let params = cursor.as_ref().map_or(json!({}), |cursor| json!({"cursor": cursor}));
            let page = self.call_raw(method, params)?;
            let bad = |what: &str| broken(&format!("{method}: {what}"), page.get().as_bytes());
            let members = members(page.get()).map_err(|_| bad("the result is no object"))?;
            let list = members.get(key).ok_or_else(|| bad("the result has no list"))?;
            let list: Vec<&RawValue> =
                serde_json::from_str(list.get()).map_err(|_| bad("the list is no array"))?;
            empty_pages = if list.is_empty() { empty_pages + 1 } else { 0 };
            entries.extend(list.into_iter().map(ToOwned::to_owned));
            let next: Option<String> = members
                .get("nextCursor")
                .map_or(Ok(None), |next| serde_json::from_str(next.get()))
                .map_err(|_| bad("nextCursor is no string"))?;
            if next.is_none() {
                return Ok(entries);
            }
            if next == cursor {
                return Err(bad("nextCursor is the cursor of this very page"));
            }
            if empty_pages > EMPTY_PAGES_MAX {
                return Err(bad(&format!("{EMPTY_PAGES_MAX} pages in a row are empty")));
            }
            if entries.len() > LIST_ENTRIES_MAX {
                return Err(bad(&format!("the list has more than {LIST_ENTRIES_MAX} entries")));
            }
            cursor = next;
        }
    }
}

fn tool_call(id: CallId, name: &str, arguments: &Value) -> Value {
    json!({"name": name, "arguments": arguments, "_meta": {"progressToken": id.0}})
}
