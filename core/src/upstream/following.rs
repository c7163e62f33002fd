//! Following of the tasks that a server without sessions makes of relayed calls.
//!
//! The server decides which calls become tasks, where the engine declares the extension: for a
//! client that declares it, and for any other client once the server has refused the call without
//! it. The task is followed to its end. A client that knows tasks gets a handle of the engine
//! (UPS-15), every other one the result.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::collections::timer_queue::Timer;
use crate::event::Outcome;
use crate::ids::{CallId, ConnId, JobId};
use crate::json::raw::Raw;
use crate::outgoing::call::{CallFor, OutgoingCall, OutgoingRequest};
use crate::outgoing::remote_task::{POLL_MIN, read_put_off};
use crate::protocol::request_meta::RequestContext;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::result::ResultText;
use crate::upstream::check::CheckInput;
use crate::upstream::effect::GatewayEffect;
use crate::upstream::gateway::Gateway;
use crate::upstream::inputs::read_request;
use crate::upstream::rewrite::{error_of, member, members, text_member};
use crate::upstream::server_task::{ServerTask, interval, is_handle, needs_tasks, with_tasks};

impl Gateway<'_> {
    /// Whether a relayed call tells a server without sessions that it may become a task: the
    /// client has said so, and the engine has made no task of it.
    pub(crate) fn declare_tasks(&mut self, job: JobId, method: &str) -> bool {
        let entry = self.jobs.get(job);
        let says = entry.is_some_and(|job| {
            let says = matches!(&job.terms, RequestContext::Request(claim) if claim.tasks);
            says && job.task.is_none() && method == "tools/call"
        });
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return false };
        relayed.declares_tasks |= says;
        relayed.declares_tasks
    }

    /// Sends a call once more that the server has refused, unstarted, because it runs as a task
    /// only. False for every other error, and where the client itself can declare tasks.
    pub(crate) fn retry_as_task(&mut self, job: JobId, error: &ErrorObject) -> bool {
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return false };
        let is_kept = relayed.params.is_some() && !relayed.declares_tasks;
        if !is_kept || !needs_tasks(error) {
            return false;
        }
        relayed.declares_tasks = true;
        relayed.sent = None;
        self.send_again(job);
        true
    }

    /// The server has made a task of a relayed call.
    pub(crate) fn follow_server_task(&mut self, job: JobId, handle: &str) {
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        let Some(task) = ServerTask::read(handle) else {
            let error = ErrorObject::new(code::INTERNAL_ERROR, "the server names no taskId");
            return self.end_relayed(job, Outcome::Error(error));
        };
        relayed.task = Some(Box::new(task));
        // CAN-05: it was cancelled before it had an id.
        if relayed.check.is_some() {
            self.cancel_server_task(job);
            return;
        }
        self.effect(GatewayEffect::Escalate(job));
        match text_member(handle, "status").as_deref() {
            Some("working") => self.poll_later(job, interval(handle)),
            Some(_) | None => self.poll_server_task(job),
        }
    }

    fn poll_later(&mut self, job: JobId, wait: Duration) {
        let at = self.now.at + wait;
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        if let Some(task) = relayed.task.as_mut().filter(|task| task.poll.is_none()) {
            self.timers.arm(&mut task.timer, Timer::ServerTask(job), at);
        }
    }

    pub(crate) fn on_server_task_timer(&mut self, job: JobId) {
        if let Some(relayed) = self.upstreams.jobs.get_mut(&job)
            && let Some(task) = &mut relayed.task
        {
            task.timer = None;
        }
        self.poll_server_task(job);
    }

    fn poll_server_task(&mut self, job: JobId) {
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        let Some(task) = relayed.task.as_mut().filter(|task| task.poll.is_none()) else { return };
        self.timers.disarm(&mut task.timer, Timer::ServerTask(job));
        let poll = self.ask_about_task(job, "tasks/get", "", CallFor::RelayedPoll(job));
        if let Some(relayed) = self.upstreams.jobs.get_mut(&job)
            && let Some(task) = &mut relayed.task
        {
            task.poll = poll;
        }
    }

    /// Sends a request about the task of a job; `more` is further members of its params.
    fn ask_about_task(
        &mut self,
        job: JobId,
        method: &str,
        more: &str,
        whom: CallFor,
    ) -> Option<CallId> {
        let relayed = self.upstreams.jobs.get(&job)?;
        let id = relayed.task.as_ref()?.id.clone();
        let client = self.jobs.get(job).map(|job| job.conn);
        let meta = self.claim_meta(&relayed.capabilities, client);
        let conn = self.upstreams.instances.get(&relayed.instance?)?.conn?;
        Some(self.write_about_task(conn, (&id, &meta), method, more, whom))
    }

    fn write_about_task(
        &mut self,
        conn: ConnId,
        (id, meta): (&str, &str),
        method: &str,
        more: &str,
        whom: CallFor,
    ) -> CallId {
        let method: Box<str> = method.into();
        let request =
            OutgoingRequest { key: None, method, params: None, answer_timeout: None, task: None };
        let number =
            self.outgoing.insert(conn, OutgoingCall::new(whom, &request, (None, false), None));
        self.outbox.send_urgent(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"id\":").display(number.get()).raw(",");
            json.member("method", &request.method).raw(",\"params\":{\"_meta\":").raw(meta);
            json.raw(",").member("taskId", id).raw(more).raw("}}");
        });
        number
    }

    /// The server has told the state of a task.
    pub(crate) fn on_server_task_polled(&mut self, job: JobId, outcome: Result<Raw<'_>, Raw<'_>>) {
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        let is_checked = relayed.check.is_some();
        let Some(task) = &mut relayed.task else { return };
        task.poll = None;
        let told = match outcome {
            Ok(told) => told.get(),
            Err(error) => match read_put_off(error) {
                Some(wait) => {
                    let wait = task.interval.max(wait);
                    return self.poll_later(job, wait);
                }
                None => {
                    let why = error_of(error.get());
                    let message = format!("the task of the server was lost: {}", why.message);
                    return self.end_server_task(job, lost(message));
                }
            },
        };
        task.interval = interval(told);
        // A cancel is looked after more closely.
        let wait = if is_checked { POLL_MIN } else { task.interval };
        match text_member(told, "status").as_deref() {
            Some("working") => self.poll_later(job, wait),
            Some("input_required") => {
                if !is_checked {
                    self.ask_for_task(job, member(told, "inputRequests").unwrap_or("{}"));
                }
                self.poll_later(job, wait);
            }
            Some("completed") => {
                let result = member(told, "result").unwrap_or("{}");
                let outcome = Outcome::Result(self.relayed_result(job, ResultText::of(result)));
                self.end_server_task(job, outcome);
            }
            Some("failed") => {
                let error = member(told, "error").map(error_of);
                let outcome = error.map_or_else(|| lost("the task failed".into()), Outcome::Error);
                self.end_server_task(job, outcome);
            }
            Some("cancelled") => {
                self.end_server_task(job, lost("the server has cancelled the task".into()));
            }
            Some(_) | None => {
                self.end_server_task(job, lost("the state of the task cannot be read".into()));
            }
        }
    }

    /// A task has ended at its server: so has the job, whose cancel may be the reason.
    fn end_server_task(&mut self, job: JobId, outcome: Outcome) {
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        relayed.task = None;
        match relayed.check.is_some() {
            true => self.advance_check(job, CheckInput::Answered),
            false => self.end_relayed(job, outcome),
        }
    }

    /// Asks the client for the inputs of a task, each once (EXT-05). So many at a time: the others
    /// when the server has taken some of these.
    fn ask_for_task(&mut self, job: JobId, wanted: &str) {
        let max = self.settings.limits.asks_max;
        let wanted = members(wanted);
        let keys: BTreeSet<&str> = wanted.iter().map(|(key, _)| *key).collect();
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        let Some(task) = &mut relayed.task else { return };
        task.asked.retain(|key| keys.contains(&**key));
        for (key, request) in wanted {
            let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
            let Some(task) = &mut relayed.task else { return };
            if task.asked.len() < max
                && task.asked.insert(key.into())
                && let Some(request) = read_request(request)
            {
                self.ask_for_input(job, key, request);
            }
        }
    }

    /// The client has answered for an input of a task. False if the job has no task.
    pub(crate) fn update_server_task(&mut self, job: JobId, key: &str, response: &str) -> bool {
        if self.upstreams.jobs.get(&job).is_none_or(|relayed| relayed.task.is_none()) {
            return false;
        }
        let responses = format!(",\"inputResponses\":{{\"{key}\":{response}}}");
        self.ask_about_task(job, "tasks/update", &responses, CallFor::Cancel);
        self.poll_later(job, POLL_MIN);
        true
    }

    /// Cancels the task of a relayed job. False if it has none.
    pub(crate) fn cancel_server_task(&mut self, job: JobId) -> bool {
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return false };
        let Some(task) = &mut relayed.task else { return false };
        if !core::mem::replace(&mut task.is_cancelled, true) {
            self.ask_about_task(job, "tasks/cancel", "", CallFor::RelayedCancel(job));
        }
        true
    }

    /// A server answers a request without a receiver by a task: it is cancelled, or it would go on.
    pub(crate) fn cancel_late_task(&mut self, conn: ConnId, result: &ResultText<'_>) {
        if self.outbox.instance(conn).is_none() || !is_handle(result) {
            return;
        }
        let Some(id) = text_member(result.get(), "taskId") else { return };
        let meta = self.claim_meta(&with_tasks("{}"), None);
        let cancel = self.write_about_task(conn, (&id, &meta), "tasks/cancel", "", CallFor::Cancel);
        // No job waits for the answer. A server that repeats its answers, and answers no cancel,
        // fills no table.
        self.outgoing.take(conn, cancel);
    }

    /// The server has acknowledged `tasks/cancel`, which says nothing of the work: its state does.
    /// False if the job has no such task.
    pub(crate) fn on_server_task_cancelled(&mut self, job: JobId) -> bool {
        let has_task = self.upstreams.jobs.get(&job).is_some_and(|relayed| relayed.task.is_some());
        if has_task {
            self.poll_server_task(job);
        }
        has_task
    }

    /// A relayed job ends before the task of its server, which has no receiver any more.
    pub(crate) fn abandon_server_task(&mut self, job: JobId) {
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        let Some(task) = &mut relayed.task else { return };
        self.timers.disarm(&mut task.timer, Timer::ServerTask(job));
        let (poll, is_cancelled) = (task.poll, task.is_cancelled);
        let conn = self.conn_of_relayed(job);
        if let Some((conn, poll)) = conn.zip(poll) {
            self.outgoing.take(conn, poll);
        }
        if !is_cancelled && conn.is_some() {
            self.ask_about_task(job, "tasks/cancel", "", CallFor::Cancel);
        }
        if let Some(relayed) = self.upstreams.jobs.get_mut(&job) {
            relayed.task = None;
        }
    }

    /// The connection of the instance that works on a relayed job.
    fn conn_of_relayed(&self, job: JobId) -> Option<ConnId> {
        let instance = self.upstreams.jobs.get(&job)?.instance?;
        self.upstreams.instances.get(&instance)?.conn
    }
}

fn lost(message: String) -> Outcome {
    Outcome::Error(ErrorObject::new(code::INTERNAL_ERROR, message))
}
