//! Frames: requests and their answers, batches, cancellations.

use std::collections::BTreeMap;

use ceased_core::log_level::LogLevel;
use ceased_core::tool::{StopPolicy, TaskSupport, Tool};
use serde_json::{Value, json};

use super::able::Able;
use super::beats::Beats;
use super::jobs::gates;
use super::modern::{self, Claim};
use super::{Batch, Ended, For, Job, Oracle, Pending, Stage, What, nanos};
use crate::sim::dialects;
use crate::sim::mark::Mark;
use crate::slow::{self, Id, Said};

/// A request on its way to its answer.
pub(super) struct Asked {
    pub(super) conn: u64,
    pub(super) id: Id,
    pub(super) token: String,
    pub(super) batch: Option<u64>,
    /// It speaks for itself (MOD-01).
    pub(super) modern: bool,
}

impl Oracle {
    pub(super) fn frame(&mut self, conn: u64, frame: &[u8], unsent: usize) {
        let crowded = unsent >= self.settings.limits.write_buffer_bytes;
        let Some(entry) = self.conns.get(&conn) else { return };
        if matches!(entry.ended, Ended::Closing { .. }) {
            return;
        }
        if unsent == 0 && !self.recalled_by(conn, frame).is_empty() {
            // Nothing is left that the peer could fail to take.
            self.conns.get_mut(&conn).expect("it was there").stall = None;
        }
        let depth_max = self.settings.limits.depth_max;
        if let Some(skeleton) = slow::deep_skeleton(frame, depth_max) {
            return self.skipped(conn, &skeleton, -32700);
        }
        match slow::classify(frame, depth_max) {
            Said::Batch(messages) => self.batch(conn, &messages, crowded),
            said @ (Said::Request { .. }
            | Said::Notification { .. }
            | Said::Response { .. }
            | Said::Invalid { .. }) => {
                let text = String::from_utf8_lossy(frame);
                self.message(conn, said, &text, None, crowded);
            }
        }
    }

    /// A message that passes a limit, of which the first level is known: a request fails, and an
    /// answer counts as an error.
    pub(super) fn skipped(&mut self, conn: u64, skeleton: &str, code: i64) {
        let Some(entry) = self.conns.get(&conn) else { return };
        if matches!(entry.ended, Ended::Closing { .. }) {
            return;
        }
        match slow::classify(skeleton.as_bytes(), usize::MAX) {
            Said::Request { id, token, .. } if id != Id::Null => {
                self.settle(conn, None, Some(format!("{token}:E {code}")));
            }
            Said::Response { id: Some(id), .. } => {
                let limits = &self.settings.limits;
                let limit = match code {
                    -32600 => {
                        let max = limits.frames.frame_bytes_max;
                        format!("message_bytes = {max}: the message was skipped")
                    }
                    _ => format!("json_depth = {}: the message nests deeper", limits.depth_max),
                };
                let error = json!({"code": -31003, "message": format!("limit reached: {limit}")});
                self.response(conn, Some(id), false, &json!({"error": error}).to_string());
            }
            Said::Request { .. }
            | Said::Notification { .. }
            | Said::Response { .. }
            | Said::Batch(_)
            | Said::Invalid { .. } => self.unreadable(conn, code, None),
        }
    }

    /// The requests whose unsent messages this frame takes back (MOD-04).
    pub fn recalled_by(&self, conn: u64, frame: &[u8]) -> Vec<Id> {
        let text = b"notifications/cancelled";
        let Some(entry) = self.conns.get(&conn) else { return Vec::new() };
        if !frame.windows(text.len()).any(|window| window == text) {
            return Vec::new();
        }
        match slow::classify(frame, self.settings.limits.depth_max) {
            Said::Batch(messages) => {
                let max = self.settings.limits.batch_max;
                let is_read = entry.rules().batches && messages.len() <= max;
                let read = messages.iter().filter(|_| is_read);
                read.filter_map(|message| cancelled_by(&slow::classify_one(message))).collect()
            }
            said @ (Said::Request { .. }
            | Said::Notification { .. }
            | Said::Response { .. }
            | Said::Invalid { .. }) => cancelled_by(&said).into_iter().collect(),
        }
    }

    fn batch(&mut self, conn: u64, messages: &[String], crowded: bool) {
        let max = self.settings.limits.batch_max;
        let entry = self.conns.get_mut(&conn).expect("it was there");
        if !entry.rules().batches || messages.is_empty() || messages.len() > max {
            return self.unreadable(conn, -32600, None);
        }
        let number = entry.batches.last().map_or(0, |last| last.number + 1);
        entry.batches.push(Batch { number, open: messages.len(), answers: Vec::new() });
        self.mark(Mark::Batch);
        for message in messages {
            let said = slow::classify_one(message);
            self.message(conn, said, message, Some(number), crowded);
        }
    }

    fn message(&mut self, conn: u64, said: Said, text: &str, batch: Option<u64>, crowded: bool) {
        match said {
            // Some put an id into every message, null where there is none.
            Said::Request { id: Id::Null, method, params, .. }
                if self.is_notification(conn, &method) =>
            {
                return self.message(
                    conn,
                    Said::Notification { method, params },
                    text,
                    batch,
                    crowded,
                );
            }
            // RPC-02
            Said::Request { id: Id::Null, .. } if self.party(conn).is_none() => {
                return self.unreadable(conn, -32600, batch);
            }
            Said::Request { id, token, method, params } => {
                let asked = Asked { conn, id, token, batch, modern: false };
                return self.request(asked, &method, params.as_deref(), crowded);
            }
            Said::Invalid { token: Some(token), code } => {
                return self.settle(conn, batch, Some(format!("{token}:E {code}")));
            }
            Said::Invalid { token: None, code } => return self.unreadable(conn, code, batch),
            Said::Notification { method, params } => {
                if self.party(conn).is_some() {
                    self.notified_acp(conn, &method, params.as_deref());
                } else if method == "notifications/cancelled" {
                    self.cancelled(conn, params.as_deref());
                } else {
                    self.notified(conn, &method, params.as_deref());
                }
            }
            Said::Response { id, result } => self.response(conn, id, result, text),
            Said::Batch(_) => {}
        }
        self.settle_silently(conn, batch);
    }

    /// Whether a method is one of a notification for certain.
    fn is_notification(&self, conn: u64, method: &str) -> bool {
        match self.party(conn) {
            Some(_) => matches!(method, "$/cancel_request" | "$/cancelRequest"),
            None => method.starts_with("notifications/"),
        }
    }

    fn notified(&mut self, conn: u64, method: &str, params: Option<&str>) {
        match method {
            "notifications/progress" => self.peer_progress(conn, params),
            "notifications/tasks/status" => self.hinted(conn, params),
            "notifications/tools/list_changed" => self.forget_tools(conn),
            _ => {}
        }
    }

    fn settle_silently(&mut self, conn: u64, batch: Option<u64>) {
        if batch.is_some() {
            self.settle(conn, batch, None);
        }
    }

    /// A request has its answer, or will never have one.
    pub(super) fn settle(&mut self, conn: u64, batch: Option<u64>, answer: Option<String>) {
        let Some(number) = batch else {
            if let Some(answer) = answer {
                self.tell(conn, answer);
            }
            return;
        };
        let Some(entry) = self.conns.get_mut(&conn) else { return };
        let Some(at) = entry.batches.iter().position(|batch| batch.number == number) else {
            return;
        };
        let batch = &mut entry.batches[at];
        batch.answers.extend(answer);
        batch.open -= 1;
        if batch.open == 0 {
            let mut batch = entry.batches.remove(at);
            batch.answers.sort();
            if !batch.answers.is_empty() {
                self.tell(conn, format!("[{}]", batch.answers.join(", ")));
            }
        }
    }

    pub(super) fn unreadable(&mut self, conn: u64, code: i64, batch: Option<u64>) {
        let Some(entry) = self.conns.get(&conn) else { return };
        let null = entry.rules().null_id && !(entry.rules.is_none() && entry.stateless);
        let token = if null { "null" } else { "-" };
        self.settle(conn, batch, Some(format!("{token}:E {code}")));
    }

    pub(super) fn alien(&mut self, conn: u64, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let readable = bytes.iter().all(|byte| (0x20..0x7f).contains(byte));
        let verb = text.split(' ').next().unwrap_or_default();
        let browser = text.contains("HTTP/")
            || (verb.len() >= 3 && verb.chars().all(|c| c.is_ascii_uppercase()));
        if readable && !browser {
            self.unreadable(conn, -32700, None);
        }
        self.mark(Mark::Alien);
        self.close(conn, "Alien", true);
    }

    /// Answers a request, once.
    pub(super) fn answer(&mut self, asked: &Asked, what: &str) {
        // MOD-02
        let complete = asked.modern
            && !["E ", "task ", "input_required "].iter().any(|start| what.starts_with(start));
        let kind = if complete { "complete " } else { "" };
        let text = format!("{}:{kind}{what}", asked.token);
        match asked.batch {
            None if asked.modern => self.tell_for(asked.conn, text, Some(&asked.id)),
            batch => self.settle(asked.conn, batch, Some(text)),
        }
    }

    fn request(&mut self, mut asked: Asked, method: &str, params: Option<&str>, crowded: bool) {
        let entry = &self.conns[&asked.conn];
        // RPC-02
        if entry.pending.iter().any(|pending| pending.id == asked.id) {
            self.mark(Mark::DuplicateId);
            return self.answer(&asked, "E -32600");
        }
        let value = params.map_or(Value::Null, slow::value);
        // MOD-04: a refusal can be taken back as well.
        let claims = entry.acp.is_none() && modern::claim_of(&value).is_some();
        if crowded {
            self.mark(Mark::RefusedUnread);
            asked.modern = claims;
            return self.answer(&asked, "E -31003 write_buffer_bytes");
        }
        if entry.acp.is_some() {
            return self.service(asked, method, Some(params.unwrap_or("{}")));
        }
        let is_server = entry.client.is_some();
        asked.modern = claims;
        if Self::is_rated(method) && self.is_too_often(&asked) {
            return;
        }
        if is_server {
            asked.modern = false;
            return self.request_of_server(asked, method, &value);
        }
        if let Some(claim) = modern::claim_of(&value) {
            return self.stateless_request(asked, method, &value, claim);
        }
        let entry = &self.conns[&asked.conn];
        match (method, entry.rules) {
            ("ping", _) => self.answer(&asked, "{}"),
            ("initialize", None) if asked.batch.is_none() => self.initialize(&asked, &value),
            // MOD-01: these exist outside of sessions alone.
            ("server/discover" | "subscriptions/listen" | "tasks/update", None) => {
                self.answer(&asked, "E -32602");
            }
            // RPC-04
            ("initialize", _) | (_, None) => {
                self.mark(Mark::OutOfTurn);
                self.answer(&asked, "E -32600");
            }
            (_, Some(_)) if self.is_draining() => self.answer(&asked, "E -31005"),
            (_, Some(rules)) => self.method(asked, method, &value, rules.tasks),
        }
    }

    fn method(&mut self, asked: Asked, method: &str, params: &Value, tasks: bool) {
        match method {
            "tools/list" => self.list_tools(&asked, self.conns[&asked.conn].rules().tool_members),
            "tools/call" => self.call(asked, params, tasks),
            "logging/setLevel" => {
                let level = LogLevel::ALL.into_iter().find(|l| params["level"] == l.as_str());
                if let Some(level) = level {
                    self.conns.get_mut(&asked.conn).expect("it asks").level = level;
                }
                self.answer(&asked, if level.is_some() { "{}" } else { "E -32602" });
            }
            "ceased/status" => self.status(&asked),
            "tasks/get" if tasks => self.get_task(&asked, params),
            "tasks/result" if tasks => self.await_task(asked, params),
            "tasks/list" if tasks => self.list_tasks(&asked, params),
            "tasks/cancel" if tasks => self.cancel_task(&asked, params),
            _ => {
                self.mark(Mark::UnknownMethod);
                self.answer(&asked, "E -32601");
            }
        }
    }

    pub(super) fn list_tools(&mut self, asked: &Asked, members: &[&str]) {
        let tools = &self.settings.catalog;
        let typed = tools.iter().any(|tool| tool.output_schema.is_some());
        let has = |member: &&&str| **member != "outputSchema" || typed;
        let members: Vec<&str> = members.iter().filter(has).copied().collect();
        let text = format!("L {} {}", tools.iter().count(), members.join(" "));
        self.answer(asked, &text);
    }

    fn initialize(&mut self, asked: &Asked, params: &Value) {
        let Some(version) = params["protocolVersion"].as_str() else {
            return self.answer(asked, "E -32602");
        };
        let rules = dialects::agreed(version);
        let entry = self.conns.get_mut(&asked.conn).expect("it asks");
        entry.rules = Some(rules);
        // The date is the revision's.
        let elicitation = rules.revision >= "2025-06-18";
        entry.able = Able::of_client(&params["capabilities"], rules.tasks, elicitation);
        // TSK-01, TSK-40
        let tasks = match (rules.tasks, entry.identity.as_str()) {
            (false, _) => "none",
            (true, "anonymous") => "unlisted",
            (true, _) => "listed",
        };
        self.answer(asked, &format!("I {} {tasks}", rules.revision));
    }

    pub(super) fn status(&mut self, asked: &Asked) {
        // TSK-39: totals are the viewer's own; of tasks anonymous peers are told nothing (TSK-40).
        let viewer = &self.conns[&asked.conn].identity;
        let is_anonymous = viewer == "anonymous";
        let seen = |job: &&Job| match is_anonymous {
            true => job.conn == asked.conn,
            false => job.owner == *viewer,
        };
        let seen: Vec<&Job> = self.jobs.iter().filter(seen).collect();
        let queued = seen.iter().filter(|job| !job.runs()).count();
        let stopping = seen.iter().filter(|job| job.is_stopping()).count();
        let asking = seen.iter().filter(|job| job.waits()).count();
        let running = seen.len() - queued - stopping - asking;
        let (conns, tasks) = if is_anonymous {
            (1, 0)
        } else {
            let conns = self.conns.values().filter(|conn| conn.identity == *viewer).count();
            (conns, self.tasks.iter().filter(|task| task.owner == *viewer).count())
        };
        let drains = self.is_draining();
        self.answer(asked, &format!("S {running} {queued} {stopping} {conns} {tasks} {drains}"));
    }

    fn call(&mut self, asked: Asked, params: &Value, tasks: bool) {
        let Some(name) = params["name"].as_str() else { return self.answer(&asked, "E -32602") };
        let settings = std::sync::Arc::clone(&self.settings);
        let Some(tool) = settings.catalog.get(name) else { return self.answer(&asked, "E -32602") };
        // TSK-03, TSK-11
        let ttl = params.get("task").filter(|task| tasks && !task.is_null()).map(read_ttl);
        if ttl == Some(None) {
            return self.answer(&asked, "E -32602");
        }
        let misuse = match (tasks, tool.task_support) {
            (true, TaskSupport::Forbidden) => ttl.is_some(),
            (true, TaskSupport::Required) => ttl.is_none(),
            (false, _) | (true, TaskSupport::Optional) => false,
        };
        if misuse {
            // TSK-05, TSK-06
            self.mark(Mark::TaskMisuse);
            return self.answer(&asked, "E -32601");
        }
        self.call_once(asked, tool, params, ttl.flatten(), None);
    }

    /// TOOL-01: from 2025-11-25 on a result that a model can correct, but not for a task that was
    /// asked for.
    pub(super) fn wrong_arguments(&mut self, asked: &Asked, as_task: bool) {
        let tasks = self.conns[&asked.conn].rules().tasks;
        if asked.modern || tasks && !as_task {
            self.mark(Mark::ArgumentsCorrected);
            return self.answer(asked, "R /text must be a string bad");
        }
        self.answer(asked, "E -32602");
    }

    /// A call of a tool that may be called like this; `ttl` is there when it is to be a task.
    pub(super) fn admit(
        &mut self,
        asked: Asked,
        tool: &Tool,
        arguments: &Value,
        meta: &Value,
        ttl: Option<Option<u64>>,
        claim: Option<Claim>,
    ) {
        if tool.check.is_some() && !arguments["text"].is_string() {
            return self.wrong_arguments(&asked, ttl.is_some());
        }
        let limits = &self.settings.limits;
        if self.jobs.len() >= limits.running_max + limits.queued_max {
            self.mark(Mark::QueueFull);
            return self.answer(&asked, "E -31003 queue");
        }
        if self.is_past_share(&asked) {
            return;
        }
        let (wait, command) = match tool.stop_policy {
            StopPolicy::Handler { abandon_after } => (nanos(abandon_after), false),
            StopPolicy::Command { kill_grace } => (nanos(kill_grace), true),
            StopPolicy::Relay => panic!("the simulator has no upstreams"),
        };
        let number = arguments["n"].as_u64().expect("every call of the simulator has a number");
        let mut job = Job {
            nonce: number,
            conn: asked.conn,
            owner: self.conns[&asked.conn].identity.clone(),
            whose: For::Task,
            claim,
            asks: BTreeMap::new(),
            asking: false,
            of_task: false,
            tool: tool.name.to_string(),
            gates: gates(tool, arguments),
            declares: false,
            wait,
            command,
            timeout: tool.timeout.map(nanos),
            on_disconnect: tool.on_disconnect,
            orphan: None,
            stage: Stage::Queued,
            outlasts: false,
            timer: None,
            token: token_of(meta),
            last: None,
            held: None,
            beats: Beats::new(tool.heartbeat.map(nanos), self.now),
        };
        if let Some(ttl) = ttl {
            job.of_task = true;
            return self.create(&asked, job, ttl);
        }
        if self.is_full(&asked) {
            return;
        }
        job.whose = For::Request(asked.id.clone());
        job.nonce = self.name_run(number);
        let nonce = job.nonce;
        self.jobs.push(job);
        self.arm_beat(nonce);
        self.wait_for(asked, What::Job(nonce));
    }

    /// Refuses a request above the limit (TSK-36).
    pub(super) fn is_full(&mut self, asked: &Asked) -> bool {
        let full = self.conns[&asked.conn].pending.len() >= self.settings.limits.inflight_max;
        if full {
            self.mark(Mark::TooManyRequests);
            self.answer(asked, "E -31003 inflight_per_connection");
        }
        full
    }

    pub(super) fn wait_for(&mut self, asked: Asked, what: What) {
        let Asked { conn, id, token, batch, modern } = asked;
        let entry = self.conns.get_mut(&conn).expect("it asks");
        entry.pending.push(Pending { id, token, what, batch, modern, listens: None });
    }

    /// Takes a request that waits, to answer or forget it.
    pub(super) fn take_pending(&mut self, conn: u64, id: &Id) -> Option<Asked> {
        let pending = &mut self.conns.get_mut(&conn)?.pending;
        let at = pending.iter().position(|pending| pending.id == *id)?;
        let Pending { id, token, batch, modern, .. } = pending.remove(at);
        Some(Asked { conn, id, token, batch, modern })
    }

    /// CAN-08, CAN-09, CAN-14
    fn cancelled(&mut self, conn: u64, params: Option<&str>) {
        let Some(id) = named_by_cancel(params) else { return self.mark(Mark::MalformedCancel) };
        let stopped = self.stop_unnamed(conn, &id);
        let pending = self.conns[&conn].pending.iter().find(|pending| pending.id == id);
        let Some((what, listens)) = pending.map(|pending| (pending.what, pending.listens.clone()))
        else {
            if !stopped {
                self.mark(Mark::IgnoredCancel);
            }
            return;
        };
        let asked = self.take_pending(conn, &id).expect("it waits");
        self.settle_silently(conn, asked.batch);
        if params.and_then(|text| slow::member(text, "requestId")) != Some(asked.token) {
            self.mark(Mark::CancelRespelled);
        }
        match what {
            What::Job(job) => {
                let queued = self.jobs.iter().any(|other| other.nonce == job && !other.runs());
                self.mark(if queued { Mark::CancelledInQueue } else { Mark::CancelledRunning });
                self.disown(job, "Requested");
            }
            // CAN-15
            What::Task(task) => {
                self.mark(Mark::CancelledWait);
                self.forget_waiter(task, conn, &id);
                self.put_questions(task, None);
            }
            What::Cancel => {
                self.mark(Mark::Unsubscribed);
                self.unlisten(conn, &id, listens);
            }
        }
        self.close_if_finished(conn);
    }
}

/// The token for progress in a `_meta`, if it can be one.
pub(super) fn token_of(meta: &Value) -> Option<String> {
    let token = meta.get("progressToken")?.to_string();
    slow::read_id(&token).map(|_| token)
}

/// The ttl a requestor wants, none for whatever is usual; nothing when it cannot be read (TSK-11).
pub(super) fn read_ttl(task: &Value) -> Option<Option<u64>> {
    let Value::Object(members) = task else { return None };
    match members.get("ttl") {
        None | Some(Value::Null) => Some(None),
        Some(ttl) => match slow::read_id(&ttl.to_string()) {
            Some(Id::Number(millis)) => u64::try_from(millis).ok().filter(|ttl| *ttl > 0).map(Some),
            Some(Id::Text(_) | Id::Canonical(_) | Id::Null) | None => None,
        },
    }
}

/// The request a cancel names, if it is none that is to be ignored (CAN-14).
pub(super) fn named_by_cancel(params: Option<&str>) -> Option<Id> {
    // Neither its reason nor any other member matters.
    slow::member(params?, "requestId").and_then(|id| slow::read_id(&id))
}

/// The request that this message, which is alone or in a batch, cancels.
fn cancelled_by(said: &Said) -> Option<Id> {
    match said {
        Said::Notification { method, params }
        | Said::Request { id: Id::Null, method, params, .. }
            if method == "notifications/cancelled" =>
        {
            named_by_cancel(params.as_deref())
        }
        Said::Notification { .. }
        | Said::Request { .. }
        | Said::Response { .. }
        | Said::Batch(_)
        | Said::Invalid { .. } => None,
    }
}
