//! Asking peers: requests of ours, their answers, and what a task needs from its requestor.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Engine;
use crate::action::Action;
use crate::call::{Answer, Ask, Asked, Call, Caller, Refusal};
use crate::claim::Terms;
use crate::connection::{Ending, Phase};
use crate::id::{AskId, CallId, ConnId, JobId, RequestId, TaskId};
use crate::job::{JobState, Purpose};
use crate::meta::{RELATED_TASK, write_with_meta};
use crate::params;
use crate::task::Change;
use crate::timer::Timer;

impl Engine {
    /// A job asks its peer something. For a plain call that is whoever made it; for a task whoever
    /// waits for its result (TSK-28, TSK-30).
    pub(super) fn on_asked(&mut self, id: JobId, ask: AskId, request: Ask) {
        let caller = Caller::Job { job: id, ask };
        let max = self.settings.limits.asks_max;
        let Some(job) = self.jobs.get_mut(&id) else {
            return self.refuse_call(caller, Refusal::NoJob);
        };
        let wanted = match (&job.state, &job.purpose) {
            (
                JobState::Running | JobState::Lingering,
                Purpose::Answer(_) | Purpose::Task | Purpose::Retry(_),
            ) => true,
            (JobState::Queued(_) | JobState::Stopping { .. }, _) | (_, Purpose::Nobody) => false,
        };
        assert!(!job.asks.contains_key(&ask), "{id} numbers its questions");
        let refusal = match (wanted, job.asks.len() >= max) {
            (false, _) => Some(Refusal::NoJob),
            (true, true) => Some(Refusal::TooMany),
            (true, false) => None,
        };
        if let Some(refusal) = refusal {
            return self.refuse_call(caller, refusal);
        }
        match (job.task, job.terms) {
            (None, Terms::Claim(claim)) => self.ask_by_answer(id, ask, request, claim.peer),
            (None, Terms::Session(_)) => {
                let conn = job.conn;
                match self.send_call(conn, caller, &request, None) {
                    Ok(call) => {
                        let job = self.jobs.get_mut(&id).expect("a job that asks is in the table");
                        job.asks.insert(ask, Asked::Sent(conn, call));
                    }
                    Err(refusal) => self.refuse_call(caller, refusal),
                }
            }
            (Some(task), _) => {
                job.asks.insert(ask, Asked::Waiting(request));
                if !self.change_task(task, Change::InputNeeded) {
                    self.tell_of_task(task);
                }
                self.offer_inputs(task);
            }
        }
    }

    /// The host asks a peer something.
    pub(super) fn on_call(&mut self, conn: ConnId, ask: AskId, request: &Ask) {
        let caller = Caller::Host(ask);
        assert!(!self.host_calls.contains_key(&ask), "the host numbers its calls");
        match self.send_call(conn, caller, request, None) {
            Ok(call) => {
                self.host_calls.insert(ask, (conn, call));
            }
            Err(refusal) => self.refuse_call(caller, refusal),
        }
    }

    pub(super) fn refuse_call(&mut self, caller: Caller, refusal: Refusal) {
        self.out.push(Action::Tell { caller, answer: Answer::Refused(refusal) });
    }

    /// Sends a request of ours, if the rules allow it.
    fn send_call(
        &mut self,
        conn: ConnId,
        caller: Caller,
        ask: &Ask,
        task: Option<TaskId>,
    ) -> Result<CallId, Refusal> {
        let max = self.settings.limits.calls_max;
        let connection = self.connections.get_mut(&conn).ok_or(Refusal::NoConnection)?;
        match (connection.ending, connection.phase) {
            // A peer that has closed its side cannot answer.
            (Ending::Finished(_) | Ending::Closing(_), _) => return Err(Refusal::NoConnection),
            (Ending::Open, Phase::Fresh) => return Err(Refusal::NotInitialized),
            (Ending::Open, Phase::Ready) => {}
        }
        if !connection.peer.answers(&ask.method) {
            return Err(Refusal::NotDeclared);
        }
        if connection.calls.len() >= max {
            return Err(Refusal::TooMany);
        }
        let id = CallId::new(self.next_call);
        self.next_call += 1;
        let mut call = Call {
            caller,
            method: ask.method.clone(),
            patience: ask.patience,
            cap: ask.patience.map(|patience| self.now.at + patience.cap),
            timer: None,
        };
        if let Some(patience) = ask.patience {
            let at = self.now.at + patience.timeout.min(patience.cap);
            self.timers.arm(&mut call.timer, Timer::Call(conn, id), at);
        }
        connection.calls.insert(id, call);
        self.write_call(conn, id, ask, task);
        Ok(id)
    }

    fn write_call(&mut self, conn: ConnId, id: CallId, ask: &Ask, task: Option<TaskId>) {
        let number = format!("{}", id.get());
        let related = task.map(|task| format!("{{\"taskId\":\"{task}\"}}"));
        let mut meta: Vec<(&str, &str)> = Vec::new();
        if let Some(related) = &related {
            meta.push((RELATED_TASK, related));
        }
        if ask.patience.is_some_and(|patience| patience.extend_on_progress) {
            meta.push(("progressToken", &number));
        }
        self.send(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"id\":").raw(&number).raw(",");
            json.member("method", &ask.method);
            match (&ask.params, meta.is_empty()) {
                (None, true) => {}
                (params, _) => {
                    let params = params.as_ref().map_or("{}", |params| params.get());
                    json.raw(",\"params\":");
                    write_with_meta(json, params, &meta);
                }
            }
            json.raw("}");
        });
    }

    /// A peer answers. What nobody waits for any more is dropped (CAN-10).
    pub(super) fn on_response(
        &mut self,
        conn: ConnId,
        id: Option<RequestId>,
        outcome: Result<&RawValue, &RawValue>,
    ) {
        let call = match id {
            Some(RequestId::Number(number)) => u64::try_from(number).ok().map(CallId::new),
            Some(RequestId::Text(_)) | None => None,
        };
        let Some(call) = call.filter(|call| call.get() < self.next_call) else {
            self.counters.unasked_responses += 1;
            return;
        };
        let Some(caller) = self.take_call(conn, call) else {
            self.counters.late_responses += 1;
            return;
        };
        let answer = match outcome {
            Ok(result) => Answer::Result(result.to_owned()),
            Err(error) => Answer::Error(error.to_owned()),
        };
        self.tell(caller, answer);
    }

    /// A peer is still busy with a request of ours.
    pub(super) fn on_peer_progress(&mut self, conn: ConnId, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, rename = "progressToken")]
            token: &'a RawValue,
        }
        let Ok(Params { token }) = params::read::<Params<'_>>(params) else { return };
        let Some(RequestId::Number(number)) = RequestId::parse(token.get()) else { return };
        let id = CallId::new(u64::try_from(number).unwrap_or(0));
        let now = self.now.at;
        let call = self.connections.get_mut(&conn).and_then(|c| c.calls.get_mut(&id));
        let Some(call) = call else { return };
        if let (Some(patience), Some(cap)) = (call.patience, call.cap)
            && patience.extend_on_progress
        {
            let at = (now + patience.timeout).min(cap);
            self.timers.arm(&mut call.timer, Timer::Call(conn, id), at);
        }
        if let Some(params) = params {
            let (caller, params) = (call.caller, params.to_owned());
            self.out.push(Action::TellProgress { caller, params });
        }
    }

    /// The answer did not come in time: the peer is told that nobody waits.
    pub(super) fn on_call_timer(&mut self, conn: ConnId, id: CallId) {
        if let Some(call) = self.connections.get_mut(&conn).and_then(|c| c.calls.get_mut(&id)) {
            call.timer = None;
        }
        if let Some(caller) = self.take_call(conn, id) {
            self.write_cancel(conn, id, Some("timed out"));
            self.tell(caller, Answer::TimedOut);
        }
    }

    /// Whoever made a call does not want its answer any more.
    pub(super) fn on_cancel_call(&mut self, caller: Caller, reason: Option<&str>) {
        let at = match caller {
            Caller::Host(ask) => self.host_calls.get(&ask).copied(),
            Caller::Job { job, ask } => {
                match self.jobs.get(&job).and_then(|job| job.asks.get(&ask)) {
                    Some(Asked::Sent(conn, call) | Asked::Offered(conn, call, _)) => {
                        Some((*conn, *call))
                    }
                    Some(Asked::Waiting(_)) => return self.tell(caller, Answer::Cancelled),
                    None => None,
                }
            }
        };
        let Some((conn, call)) = at else {
            // CAN-02, CAN-03
            let refusal = Refusal::NotInProgress;
            return self.out.push(Action::RefuseCancel { caller, refusal });
        };
        if self.is_protected(conn, call) {
            // CAN-04
            let refusal = Refusal::Protected;
            return self.out.push(Action::RefuseCancel { caller, refusal });
        }
        self.cancel_call(conn, call, reason);
        self.tell(caller, Answer::Cancelled);
    }

    fn is_protected(&self, conn: ConnId, id: CallId) -> bool {
        let Some(connection) = self.connections.get(&conn) else { return false };
        let call = connection.calls.get(&id);
        call.is_some_and(|call| connection.dialect.protected.contains(&&*call.method))
    }

    /// Forgets a call and tells its peer.
    pub(super) fn cancel_call(&mut self, conn: ConnId, id: CallId, reason: Option<&str>) {
        if self.take_call(conn, id).is_some() {
            self.write_cancel(conn, id, reason);
        }
    }

    fn write_cancel(&mut self, conn: ConnId, id: CallId, reason: Option<&str>) {
        let reason = reason.map(|reason| self.clean(reason));
        let method = self.dialect(conn).cancel_method;
        self.send(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",").member("method", method);
            json.raw(",\"params\":{\"requestId\":").display(id.get());
            if let Some(reason) = &reason {
                json.raw(",").member("reason", reason);
            }
            json.raw("}}");
        });
    }

    /// Takes a call out of its connection's table.
    fn take_call(&mut self, conn: ConnId, id: CallId) -> Option<Caller> {
        let mut call = self.connections.get_mut(&conn)?.calls.remove(&id)?;
        self.timers.disarm(&mut call.timer, Timer::Call(conn, id));
        Some(call.caller)
    }

    /// Tells whoever made a call how it ended. A task that has nothing more to ask works on.
    pub(super) fn tell(&mut self, caller: Caller, answer: Answer) {
        let mut answered = None;
        match caller {
            Caller::Host(ask) => {
                self.host_calls.remove(&ask);
            }
            Caller::Job { job, ask } => {
                let Some(job) = self.jobs.get_mut(&job) else { return };
                job.asks.remove(&ask);
                answered = job.task.filter(|_| job.asks.is_empty());
            }
        }
        self.out.push(Action::Tell { caller, answer });
        if let Some(task) = answered {
            self.change_task(task, Change::InputArrived);
        }
    }

    /// A job is told to stop, or is over: what it asked is of no use any more (ACP-05).
    pub(super) fn cancel_asks(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let task = job.task.filter(|_| !job.asks.is_empty());
        for (ask, asked) in core::mem::take(&mut job.asks) {
            match asked {
                Asked::Waiting(_) => {}
                Asked::Sent(conn, call) | Asked::Offered(conn, call, _) => {
                    self.cancel_call(conn, call, Some("the request it was for is over"));
                }
            }
            let caller = Caller::Job { job: id, ask };
            self.out.push(Action::Tell { caller, answer: Answer::Cancelled });
        }
        if let Some(task) = task {
            self.change_task(task, Change::InputArrived);
        }
    }

    /// A connection is gone, and with it the answers that were to come on it. What tasks asked is
    /// offered to the next who waits (TSK-30).
    pub(super) fn lose_calls(&mut self, conn: ConnId, calls: Vec<(CallId, Call)>) {
        for (id, mut call) in calls {
            self.timers.disarm(&mut call.timer, Timer::Call(conn, id));
            let Caller::Job { job, ask } = call.caller else {
                self.tell(call.caller, Answer::Lost);
                continue;
            };
            let Some(entry) = self.jobs.get_mut(&job) else { continue };
            match entry.asks.remove(&ask) {
                Some(Asked::Offered(_, _, request)) => {
                    entry.asks.insert(ask, Asked::Waiting(request));
                    if let Some(task) = entry.task {
                        self.offer_inputs(task);
                    }
                }
                Some(Asked::Sent(..) | Asked::Waiting(_)) => self.tell(call.caller, Answer::Lost),
                // Its job was stopped with the connection, and told so.
                None => {}
            }
        }
    }

    /// Sends what a task asks to whoever waits for its result and can answer (TSK-30).
    pub(super) fn offer_inputs(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.get(task) else { return };
        let (Some(id), waiters) = (entry.job, entry.waiters.iter().map(|(conn, _)| *conn)) else {
            return;
        };
        let waiters: Vec<ConnId> = waiters.collect();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let waiting: Vec<AskId> = job
            .asks
            .iter()
            .filter(|(_, asked)| matches!(asked, Asked::Waiting(_)))
            .map(|(ask, _)| *ask)
            .collect();
        for ask in waiting {
            let Some(job) = self.jobs.get_mut(&id) else { return };
            let Some(Asked::Waiting(request)) = job.asks.remove(&ask) else { continue };
            let caller = Caller::Job { job: id, ask };
            let sent = waiters.iter().find_map(|conn| {
                let call = self.send_call(*conn, caller, &request, Some(task)).ok()?;
                Some((*conn, call))
            });
            let asked = match sent {
                Some((conn, call)) => Asked::Offered(conn, call, request),
                None => Asked::Waiting(request),
            };
            if let Some(job) = self.jobs.get_mut(&id) {
                job.asks.insert(ask, asked);
            }
        }
    }

    /// Moves a task between working and input_required, and says so (TSK-28, TSK-18); whether that
    /// changed anything.
    fn change_task(&mut self, id: TaskId, change: Change) -> bool {
        let Some(task) = self.tasks.change(id, change, self.now.wall) else { return false };
        let creator = task.creator;
        self.announce(creator, id);
        true
    }
}
