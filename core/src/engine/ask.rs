//! Asking peers: requests of ours, their answers, and what a task needs from its requestor.

use alloc::borrow::{Cow, ToOwned as _};
use alloc::format;
use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Engine;
use super::requestor::{label_of, permitted};
use crate::action::{Action, Closing};
use crate::call::{Answer, Ask, AskTask, Asked, Call, CallFor, Caller, Refusal};
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
        // Inputs are never tasks themselves.
        let by_claim = matches!(job.terms, Terms::Claim(_));
        let refusal = match (wanted, job.asks.len() >= max) {
            (false, _) => Some(Refusal::NoJob),
            (true, true) => Some(Refusal::TooMany),
            (true, false) => (by_claim && request.task.is_some()).then_some(Refusal::NoTasks),
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
        permitted(connection, ask)?;
        let full = connection.calls.len() >= max
            || (ask.task.is_some()
                && connection.remote_tasks.len() >= self.settings.limits.remote_tasks_max);
        if full {
            return Err(Refusal::TooMany);
        }
        Ok(self.place_call(conn, CallFor::Caller(caller), ask, task))
    }

    /// Sends a request of ours that may be sent.
    pub(super) fn place_call(
        &mut self,
        conn: ConnId,
        whom: CallFor,
        ask: &Ask,
        task: Option<TaskId>,
    ) -> CallId {
        let id = CallId::new(self.next_call);
        self.next_call += 1;
        let mut call = Call {
            whom,
            method: ask.method.clone(),
            label: (&*ask.method == "tools/call").then(|| label_of(ask)).flatten(),
            with_task: ask.task.is_some(),
            patience: ask.patience,
            cap: ask.patience.map(|patience| self.now.at + patience.cap),
            timer: None,
        };
        if let Some(patience) = ask.patience {
            let at = self.now.at + patience.timeout.min(patience.cap);
            self.timers.arm(&mut call.timer, Timer::Call(conn, id), at);
        }
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.calls.insert(id, call);
        }
        self.write_call(conn, id, ask, task);
        id
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
            match (&ask.params, &ask.task, meta.is_empty()) {
                (None, None, true) => {}
                (params, task, _) => {
                    let params = params.as_ref().map_or("{}", |params| params.get());
                    let params = with_task(params, *task);
                    json.raw(",\"params\":");
                    write_with_meta(json, &params, &meta);
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
        let taken = self.connections.get_mut(&conn).and_then(|c| c.calls.remove(&call));
        let Some(mut taken) = taken else {
            self.counters.late_responses += 1;
            return;
        };
        if taken.with_task {
            return self.on_task_call_answered(conn, call, taken, outcome);
        }
        self.timers.disarm(&mut taken.timer, Timer::Call(conn, call));
        let caller = match taken.whom {
            CallFor::Caller(caller) => caller,
            CallFor::Poll(id) => return self.on_polled(conn, id, outcome),
            CallFor::Fetch(id) => return self.on_fetched(conn, id, outcome),
            CallFor::Nobody | CallFor::Cancel => return,
        };
        match (&*taken.method, outcome) {
            ("initialize", _) => return self.on_initialize_answered(conn, caller, outcome),
            ("tools/list", Ok(result)) => self.learn_tools(conn, result),
            _ => {}
        }
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
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        // The token of a call that became a task stays good until that has ended.
        let call = match connection.calls.get_mut(&id) {
            Some(call) => Some(call),
            None => connection.remote_tasks.get_mut(&id).map(|remote| &mut remote.call),
        };
        let Some(call) = call else { return };
        let CallFor::Caller(caller) = call.whom else { return };
        if let (Some(patience), Some(cap)) = (call.patience, call.cap)
            && patience.extend_on_progress
        {
            let at = (now + patience.timeout).min(cap);
            self.timers.arm(&mut call.timer, Timer::Call(conn, id), at);
        }
        if let Some(params) = params {
            let params = params.to_owned();
            self.out.push(Action::TellProgress { caller, params });
        }
    }

    /// The answer did not come in time: the peer is told that nobody waits.
    pub(super) fn on_call_timer(&mut self, conn: ConnId, id: CallId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if let Some(call) = connection.calls.get_mut(&id) {
            call.timer = None;
        }
        if let Some(remote) = connection.remote_tasks.get_mut(&id) {
            remote.call.timer = None;
        }
        let protected = self.is_protected(conn, id);
        let caller = if protected {
            // CAN-04: it is not cancelled; without an answer there is no session.
            self.take_call(conn, id)
        } else {
            self.cancel_call(conn, id, Some("timed out"))
        };
        if let Some(caller) = caller {
            self.tell(caller, Answer::TimedOut);
        }
        if protected {
            self.close(conn, Closing::NoSession);
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
        if self.is_deaf(conn, call) {
            // CAN-05, TSK-02: only tasks/cancel would be right, and the peer does not take it.
            let refusal = Refusal::NotDeclared;
            return self.out.push(Action::RefuseCancel { caller, refusal });
        }
        self.cancel_call(conn, call, reason);
        self.tell(caller, Answer::Cancelled);
    }

    /// Whether a call is about a task that its peer does not let be cancelled.
    fn is_deaf(&self, conn: ConnId, id: CallId) -> bool {
        let Some(connection) = self.connections.get(&conn) else { return false };
        let with_task = connection.remote_tasks.contains_key(&id)
            || connection.calls.get(&id).is_some_and(|call| call.with_task);
        with_task && !connection.peer.tasks.cancel
    }

    fn is_protected(&self, conn: ConnId, id: CallId) -> bool {
        let Some(connection) = self.connections.get(&conn) else { return false };
        let call = connection.calls.get(&id);
        call.is_some_and(|call| connection.dialect.protected.contains(&&*call.method))
    }

    /// Forgets a call and tells its peer; whose it was.
    pub(super) fn cancel_call(
        &mut self,
        conn: ConnId,
        id: CallId,
        reason: Option<&str>,
    ) -> Option<Caller> {
        let connection = self.connections.get_mut(&conn)?;
        if connection.remote_tasks.contains_key(&id) {
            return self.give_up_remote(conn, id);
        }
        let call = connection.calls.get_mut(&id)?;
        if let (true, CallFor::Caller(caller)) = (call.with_task, call.whom) {
            // CAN-05: there may be a task already, whose id is on its way.
            call.whom = CallFor::Nobody;
            self.timers.disarm(&mut call.timer, Timer::Call(conn, id));
            return Some(caller);
        }
        let caller = self.take_call(conn, id)?;
        self.write_cancel(conn, id, reason);
        Some(caller)
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
        match call.whom {
            CallFor::Caller(caller) => Some(caller),
            CallFor::Nobody | CallFor::Poll(_) | CallFor::Fetch(_) | CallFor::Cancel => None,
        }
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
            let CallFor::Caller(caller) = call.whom else { continue };
            let Caller::Job { job, ask } = caller else {
                self.tell(caller, Answer::Lost);
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
                Some(Asked::Sent(..) | Asked::Waiting(_)) => self.tell(caller, Answer::Lost),
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

/// The params with the wish for a task (TSK-02: only where that is understood).
fn with_task(params: &str, task: Option<AskTask>) -> Cow<'_, str> {
    let (Some(task), Some(rest)) = (task, params.strip_prefix('{')) else {
        return Cow::Borrowed(params);
    };
    let ttl = task.ttl.map_or_else(Default::default, |ttl| format!("\"ttl\":{}", ttl.as_millis()));
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    Cow::Owned(format!("{{\"task\":{{{ttl}}}{comma}{rest}"))
}
