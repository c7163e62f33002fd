//! Tools and tasks of a server: lists, task-augmented calls, and their results.

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call_id::CallId;
use crate::client::Client;
use crate::client::Kind;
use crate::decode::{broken, members};
use crate::error::{Error, Refusal};
use crate::task::{Task, Tool};

/// Maximum number of list entries, over all pages.
const LIST_ENTRIES_MAX: usize = 100_000;
/// Maximum number of consecutive empty pages: a server may filter entries of a page.
const EMPTY_PAGES_MAX: usize = 1000;

impl Client {
    /// Lists all tools of the server.
    ///
    /// # Errors
    /// As [`Client::call`]; also [`Error::Protocol`] for an endless list.
    pub fn tools(&mut self) -> Result<Vec<Tool>, Error> {
        let runs_tasks = self.runs_tasks();
        let read = |raw| Tool::read(raw, runs_tasks);
        self.list("tools/list", "tools")?.into_iter().map(read).collect()
    }

    /// Starts a plain call of a tool; its progress names the returned [`CallId`].
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn start_tool(&mut self, name: &str, arguments: &Value) -> Result<CallId, Error> {
        self.request("tools/call", Kind::Plain, |id| tool_call(id, name, arguments))
    }

    /// Starts a call of a tool as a task. The answer contains the task, see [`Task::created`]; its
    /// progress names the returned [`CallId`] until the task ends (TSK-33).
    ///
    /// # Errors
    /// [`Error::Refused`] if the server declared no tasks for tool calls (TSK-02), else as
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

    /// Starts a command of this user as a job of the daemon (`ceased/run`): `params` has `command`,
    /// and optionally `cwd` and `env`. [`Client::wait`] returns its result, as that of a tool.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn start_run(&mut self, params: &Value) -> Result<CallId, Error> {
        self.request("ceased/run", Kind::Plain, |id| with_token(params, id))
    }

    /// As [`Client::start_run`], as a task; see [`Client::start_task`].
    ///
    /// # Errors
    /// As [`Client::start_task`].
    pub fn start_run_task(&mut self, params: &Value) -> Result<CallId, Error> {
        if !self.runs_tasks() {
            return Err(Refusal::NotOffered("tasks for tool calls").into());
        }
        self.request("ceased/run", Kind::CreatesTask, |id| {
            let mut params = with_token(params, id);
            params["task"] = json!({});
            params
        })
    }

    /// Creates a task and waits for its creation.
    ///
    /// # Errors
    /// As [`Client::start_task`]. After [`Error::TimedOut`] or [`Error::Interrupted`] the task may
    /// or may not exist; check with `tasks/list`.
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

    /// Reads the state of a task.
    ///
    /// # Errors
    /// As [`Client::call`]; an unknown task is [`Error::Rpc`] with code -32602 (TSK-27).
    pub fn task(&mut self, id: &str) -> Result<Task, Error> {
        Task::read(&self.call_raw("tasks/get", json!({"taskId": id}))?)
    }

    /// Requests the result of a task: the answer arrives when the task ends (TSK-15). Cancelling
    /// this call ends the wait, not the task (CAN-15).
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn start_task_result(&mut self, id: &str) -> Result<CallId, Error> {
        self.send("tasks/result", json!({"taskId": id}))
    }

    /// Cancels a task (CAN-05). The returned task is `cancelled` (TSK-24) although its work may
    /// need a moment to stop.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server declared no `tasks.cancel` (TSK-02), else as
    /// [`Client::call`]; an unknown or ended task is [`Error::Rpc`] with code -32602.
    pub fn cancel_task(&mut self, id: &str, reason: Option<&str>) -> Result<Task, Error> {
        if !self.server.capabilities["tasks"]["cancel"].is_object() {
            return Err(Refusal::NotOffered("cancelling tasks").into());
        }
        let mut params = json!({"taskId": id});
        if let Some(reason) = reason {
            // The protocol has no member for a reason here.
            params["_meta"] = json!({"ceased/reason": reason});
        }
        Task::read(&self.call_raw("tasks/cancel", params)?)
    }

    /// Lists all tasks visible to this client.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server declared no `tasks.list` (TSK-02), else as
    /// [`Client::tools`].
    pub fn tasks(&mut self) -> Result<Vec<Task>, Error> {
        if !self.server.capabilities["tasks"]["list"].is_object() {
            return Err(Refusal::NotOffered("a list of tasks").into());
        }
        self.list("tasks/list", "tasks")?.iter().map(|raw| Task::read(raw)).collect()
    }

    /// Whether the server declared tasks for tool calls.
    #[must_use]
    pub fn runs_tasks(&self) -> bool {
        self.server.capabilities["tasks"]["requests"]["tools"]["call"].is_object()
    }

    /// Collects all pages of a list.
    fn list(&mut self, method: &str, key: &str) -> Result<Vec<Box<RawValue>>, Error> {
        let mut entries = Vec::new();
        let mut cursor: Option<String> = None;
        let mut empty_pages = 0;
        loop {
            let params = cursor.as_ref().map_or(json!({}), |cursor| json!({"cursor": cursor}));
            let page = self.call_raw(method, params)?;
            let bad = |what: &str| broken(&format!("{method}: {what}"), page.get().as_bytes());
            let members = members(page.get()).map_err(|_| bad("the result is not an object"))?;
            let list = members.get(key).ok_or_else(|| bad("the result has no list"))?;
            let list: Vec<&RawValue> =
                serde_json::from_str(list.get()).map_err(|_| bad("the list is not an array"))?;
            empty_pages = if list.is_empty() { empty_pages + 1 } else { 0 };
            entries.extend(list.into_iter().map(ToOwned::to_owned));
            let next: Option<String> = members
                .get("nextCursor")
                .map_or(Ok(None), |next| serde_json::from_str(next.get()))
                .map_err(|_| bad("nextCursor is not a string"))?;
            if next.is_none() {
                return Ok(entries);
            }
            if next == cursor {
                return Err(bad("nextCursor is the cursor of the same page"));
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

fn with_token(params: &Value, id: CallId) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({"progressToken": id.0});
    params
}

fn tool_call(id: CallId, name: &str, arguments: &Value) -> Value {
    json!({"name": name, "arguments": arguments, "_meta": {"progressToken": id.0}})
}
