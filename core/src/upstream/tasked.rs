//! Tools that a server runs as tasks only: the call becomes a task of the server, which is followed
//! to its end and is cancelled by `tasks/cancel` (UPS-04, UPS-15). The client has a plain call or
//! a task of the engine.

use alloc::boxed::Box;
use alloc::format;

use crate::event::Outcome;
use crate::ids::{AskId, CallId, ConnId, InstanceId, JobId};
use crate::json::raw::Json;
use crate::outgoing::call::{Answer, CallFor, Caller, OutgoingCall, OutgoingRequest};
use crate::rpc::error::{ErrorObject, code};
use crate::tool::TaskSupport;
use crate::upstream::check::CheckInput;
use crate::upstream::gateway::Gateway;
use crate::upstream::rewrite::error_of;
use crate::upstream::table::Upstreams;

/// Number of the task of a relayed job among its questions, which are numbered from 0.
pub(crate) const TASK: AskId = AskId::new(u64::MAX);

impl Upstreams {
    /// The caller of a relayed call that became a task; `None` if the job has ended.
    pub(crate) fn caller_of_relayed(&self, job: JobId) -> Option<Caller> {
        self.jobs.contains_key(&job).then_some(Caller::Job { job, ask: TASK })
    }
}

impl Gateway<'_> {
    /// Whether an instance takes a call of this tool only as a task.
    pub(crate) fn runs_as_task(&self, id: InstanceId, method: &str, name: &str) -> bool {
        let Some(instance) = self.upstreams.instances.get(&id) else { return false };
        let peer = instance.conn.and_then(|conn| self.outbox.connection(conn));
        let augments = peer.is_some_and(|peer| peer.peer.tasks.augments("tools/call"));
        let server = self.upstreams.state(&instance.server.name, instance.audience.as_ref());
        let support = server.and_then(|server| server.support.get(name));
        method == "tools/call" && augments && support == Some(&TaskSupport::Required)
    }

    /// The task of a relayed job has an id. It is cancelled at once if its call was meanwhile.
    pub(crate) fn on_relayed_task(&mut self, conn: ConnId, job: JobId) {
        let relayed = self.upstreams.jobs.get(&job);
        let sent = relayed.filter(|relayed| relayed.check.is_some()).and_then(|of| of.sent);
        if let Some(sent) = sent {
            self.cancel_relayed_task(conn, job, sent.call);
        }
    }

    /// The task of a relayed job has ended, or cannot be followed.
    pub(crate) fn on_relayed_task_answer(&mut self, job: JobId, answer: Answer) {
        let is_checked =
            self.upstreams.jobs.get(&job).is_some_and(|relayed| relayed.check.is_some());
        if is_checked {
            return self.advance_check(job, CheckInput::Answered);
        }
        let lost = |why: &str| {
            let message = format!("the task of the server was lost: {why}");
            Outcome::Error(ErrorObject::new(code::INTERNAL_ERROR, message))
        };
        let outcome = match answer {
            Answer::Result(result) => Outcome::Result(Json::from(result)),
            Answer::Error(error) => Outcome::Error(error_of(error.get())),
            Answer::Unusable(why) => lost(why),
            Answer::Refused(refusal) => lost(&format!("{refusal}")),
            Answer::TimedOut => lost("it was not told of in time"),
            Answer::Cancelled => lost("it was cancelled"),
            // The end of the instance ends the job.
            Answer::Lost => return,
        };
        self.end_relayed(job, outcome);
    }

    /// Cancels the task of a relayed job, ahead of all data that waits for the server. False if
    /// there is none, because the call is no task or its answer is due.
    pub(crate) fn cancel_relayed_task(&mut self, conn: ConnId, job: JobId, call: CallId) -> bool {
        let Some(remote) = self.outgoing.remote(conn, call) else { return false };
        let task = remote.id.clone();
        self.outgoing.give_up_remote(self.outbox, self.timers, conn, call);
        let method: Box<str> = "tasks/cancel".into();
        let request =
            OutgoingRequest { key: None, method, params: None, answer_timeout: None, task: None };
        let cancel = OutgoingCall::new(CallFor::RelayedCancel(job), &request, (None, false), None);
        let number = self.outgoing.insert(conn, cancel);
        self.outbox.send_urgent(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"id\":").display(number.get());
            json.raw(",\"method\":\"tasks/cancel\",\"params\":{").member("taskId", &task);
            json.raw("}}");
        });
        true
    }

    /// The server has answered `tasks/cancel`. A refusal says that the task has ended by itself.
    pub(crate) fn on_relayed_task_cancelled(&mut self, job: JobId) {
        if !self.on_server_task_cancelled(job) {
            self.advance_check(job, CheckInput::Answered);
        }
    }
}
