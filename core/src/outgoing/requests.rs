//! Outgoing requests: sending, answers, cancels, and input that a task needs from its requestor.

use alloc::vec::Vec;

use crate::acp::capabilities::note_answered;
use crate::acp::protocol;
use crate::action::Action;
use crate::collections::timer_queue::Timer;
use crate::ids::{AskId, CallId, ConnId, JobId, RequestId, TaskId};
use crate::jobs::job::{JobState, Purpose};
use crate::json::raw::Raw;
use crate::outgoing::call::{
    Answer, AnswerTimeout, CallCause, CallFor, CallWanted, Caller, CancelEffect, OutgoingCall,
    OutgoingRequest, PendingOutgoing, Refusal,
};
use crate::outgoing::calls::OutgoingMachine;
use crate::outgoing::remote_tasks::ToldCaller;
use crate::protocol::request_meta::RequestContext;
use crate::protocol::revision::Methods;
use crate::reason::CloseReason;
use crate::rpc::params::Params;
use crate::rpc::result::ResultText;
use crate::tasks::questions;
use crate::tasks::task::Change;

/// Cancel reason for requests whose job has ended; sent to the peer.
const PARENT_OVER: &str = "the request it was for is over";

impl OutgoingMachine<'_> {
    /// A job makes a request. Without a named peer, it goes to the receiver of the job's outcome
    /// (TSK-28, TSK-30).
    pub(crate) fn on_asked(
        &mut self,
        id: JobId,
        ask: AskId,
        to: Option<ConnId>,
        mut request: OutgoingRequest,
    ) {
        let caller = Caller::Job { job: id, ask };
        let limits = self.settings.limits;
        let max = limits.asks_max;
        let Some(job) = self.jobs.get_mut(id) else {
            return self.refuse_call(caller, Refusal::NoJob);
        };
        let runs = matches!(job.state(), JobState::Running | JobState::Lingering);
        let wanted = runs && !matches!(job.purpose(), Purpose::NoReceiver | Purpose::Orphan);
        assert!(!job.asks.contains_key(&ask), "{id} numbers its requests uniquely");
        // One of two open questions with one key has its number for a key, and so has one whose key
        // is a number.
        let is_taken =
            |key: &str| job.questions().any(|(_, open)| open.key.as_deref() == Some(key));
        request.key = request.key.filter(|key| key.parse::<u64>().is_err() && !is_taken(key));
        // A request for input is never a task itself.
        let by_claim = to.is_none() && matches!(job.terms, RequestContext::Request(_));
        let is_full = job.asks.len() >= max;
        let is_plain = to.is_none() && job.task.is_none();
        let by_answer = by_claim && is_plain;
        // A question of a call that cannot be answered by another connection is not kept for long.
        if is_plain && matches!(job.terms, RequestContext::Session(_)) {
            request.answer_timeout.get_or_insert(AnswerTimeout::fixed(limits.parked_for));
        }
        let (is_asking, owner) = (job.is_asking(), job.owner.clone());
        // A job that waits may keep a thread, so that their number has a bound, too.
        let is_one_too_many = to.is_none()
            && !by_answer
            && !is_asking
            && self.jobs.pools().asking_of(&owner) >= limits.parked_max;
        let refusal = match (wanted, is_full || is_one_too_many) {
            (false, _) => Some(Refusal::NoJob),
            (true, true) => Some(Refusal::TooMany),
            (true, false) => (by_claim && request.task.is_some()).then_some(Refusal::NoTasks),
        };
        if let Some(refusal) = refusal {
            return self.refuse_call(caller, refusal);
        }
        let Some(job) = self.jobs.get_mut(id) else { return };
        match (to, job.task, job.terms) {
            (Some(conn), ..) => match self.send_call(conn, caller, &request, None) {
                Ok(call) => {
                    let job =
                        self.jobs.get_mut(id).expect("a job that makes a request is in the table");
                    job.asks.insert(ask, PendingOutgoing::Sent(conn, call));
                }
                Err(refusal) => self.refuse_call(caller, refusal),
            },
            (None, None, RequestContext::Request(claim)) => {
                self.ask_by_answer(id, ask, request, claim.peer);
            }
            (None, task, _) => {
                job.asks.insert(ask, PendingOutgoing::Waiting(request));
                self.jobs.note_questions(id);
                if let Some(task) = task {
                    self.news().note_questions_of(task, Some(Change::InputNeeded));
                }
                self.put_questions(id, Answer::Refused);
            }
        }
    }

    /// The host makes a request.
    pub(crate) fn on_call(&mut self, conn: ConnId, ask: AskId, request: &OutgoingRequest) {
        let caller = Caller::Host(ask);
        assert!(self.outgoing.host_call(ask).is_none(), "the host numbers its requests uniquely");
        match self.send_call(conn, caller, request, None) {
            Ok(call) => self.outgoing.note_host_call(ask, conn, call),
            Err(refusal) => self.refuse_call(caller, refusal),
        }
    }

    pub(crate) fn refuse_call(&mut self, caller: Caller, refusal: Refusal) {
        self.deliver(caller, Answer::Refused(refusal));
    }

    /// Sends an outgoing request, if the rules allow it; `task` is the one that asks.
    pub(crate) fn send_call(
        &mut self,
        conn: ConnId,
        caller: Caller,
        ask: &OutgoingRequest,
        task: Option<TaskId>,
    ) -> Result<CallId, Refusal> {
        let cause = CallCause { task, request: self.request_behind(conn, caller) };
        let (outbox, timers) = (&mut *self.outbox, &mut *self.timers);
        self.outgoing.send(outbox, timers, conn, CallFor::Caller(caller), ask, &cause)
    }

    /// The peer's own request during which a job makes a call on the same connection.
    fn request_behind(&self, conn: ConnId, caller: Caller) -> Option<RequestId> {
        let Caller::Job { job, .. } = caller else { return None };
        match self.jobs.get(job).filter(|job| job.conn == conn)?.purpose() {
            Purpose::Answer(request) => Some(request.clone()),
            Purpose::Task | Purpose::Retry(_) | Purpose::Orphan | Purpose::NoReceiver => None,
        }
    }

    /// Handles an answer of a peer. CAN-10: an answer without a waiting request is dropped.
    pub(crate) fn on_response(
        &mut self,
        conn: ConnId,
        id: Option<RequestId>,
        answer: Result<ResultText<'_>, Raw<'_>>,
    ) {
        let outcome = answer.map(|result| result.raw());
        let call = id.as_ref().and_then(CallId::named);
        let Some(call) = call.filter(|call| self.outgoing.was_made(*call)) else {
            self.outbox.counters_mut().unasked_responses += 1;
            return;
        };
        let Some(mut taken) = self.outgoing.take(conn, call) else {
            self.outbox.counters_mut().late_responses += 1;
            if let Ok(result) = answer {
                self.gateway().cancel_late_task(conn, &result);
            }
            return;
        };
        if let Ok(result) = outcome
            && &*taken.method == protocol::INITIALIZE
        {
            note_answered(self.outbox, conn, taken.declares, result);
        }
        if taken.with_task {
            let told = self.on_task_call_answered(conn, call, taken, outcome);
            return self.tell_if(told);
        }
        self.timers.disarm(&mut taken.timer, Timer::Call(conn, call));
        let caller = match taken.receiver() {
            CallFor::Caller(caller) => caller,
            CallFor::Poll(id) => {
                let told = self.on_polled(conn, id, outcome);
                return self.tell_if(told);
            }
            CallFor::Fetch(id) => {
                let told = self.on_fetched(conn, id, outcome);
                return self.tell_if(told);
            }
            CallFor::Relayed(_)
            | CallFor::Upstream(_)
            | CallFor::RelayedPoll(_)
            | CallFor::RelayedCancel(_)
            | CallFor::Question => {
                return self.gateway().on_answer(conn, call, &taken, answer);
            }
            CallFor::Elsewhere(task) => {
                let owner = self.outbox.identity_of(conn);
                return questions::pass_answer(self.tasks, (conn, call), (owner, task), outcome);
            }
            CallFor::NoReceiver | CallFor::Cancel => return,
        };
        let session = self.outbox.dialect(conn).methods == Methods::Tools;
        match (&*taken.method, outcome) {
            ("initialize", _) if session => {
                let answer = self.outbox.on_initialize_answered(conn, outcome);
                let has_begun = matches!(answer, Answer::Result(_));
                self.tell(caller, answer);
                if !has_begun {
                    self.outbox.close(conn, CloseReason::NoSession);
                }
                return;
            }
            ("tools/list", Ok(result)) if session => self.outbox.learn_tools(conn, result),
            _ => {}
        }
        self.tell(caller, Answer::of(outcome));
    }

    /// Handles progress of an outgoing request.
    pub(crate) fn on_peer_progress(&mut self, conn: ConnId, params: Option<&Params<'_>>) {
        if let Some(params) = params
            && !self.upstreams.instances.is_empty()
            && self.gateway().on_progress(conn, params)
        {
            return;
        }
        let token = params.and_then(|params| params.find(["progressToken"]));
        let token = token.and_then(|found| found.members[0]);
        let Some(id) = token.and_then(|token| CallId::read(token.get())) else { return };
        let now = self.now.at;
        // The token of a call stays valid while the task it became runs.
        let call = match self.outgoing.remote_mut(conn, id) {
            Some(remote) => Some(&mut remote.call),
            None => self.outgoing.call_mut(conn, id),
        };
        let Some(call) = call else { return };
        let CallFor::Caller(caller) = call.receiver() else { return };
        if let (Some(answer_timeout), Some(cap)) = (call.answer_timeout, call.cap)
            && answer_timeout.extend_on_progress
            && call.wanted() == CallWanted::Yes
        {
            let at = (now + answer_timeout.timeout).min(cap);
            self.timers.arm(&mut call.timer, Timer::Call(conn, id), at);
        }
        if let Some(params) = params {
            let params = params.to_raw();
            self.outbox.push(Action::TellProgress { caller, params });
        }
    }

    /// The answer did not come in time: the peer is told of the cancel.
    pub(crate) fn on_call_timer(&mut self, conn: ConnId, id: CallId) {
        let (mut wanted, mut is_question) = (CallWanted::Yes, false);
        if let Some(call) = self.outgoing.call_mut(conn, id) {
            call.timer = None;
            wanted = call.wanted();
            is_question = call.receiver() == CallFor::Question;
        }
        if let Some(remote) = self.outgoing.remote_mut(conn, id) {
            remote.call.timer = None;
        }
        let session = self.outbox.dialect(conn).methods == Methods::Tools;
        let answer = match wanted {
            CallWanted::Yes | CallWanted::Overdue => Answer::TimedOut,
            CallWanted::Cancelled => Answer::Cancelled,
        };
        let way = self.outgoing.cancel_effect(self.outbox, conn, id);
        let caller = match way {
            CancelEffect::Await => {
                let reason = Some("timed out");
                let (outbox, timers) = (&mut *self.outbox, &mut *self.timers);
                return self.outgoing.await_cancelled(
                    outbox,
                    timers,
                    (conn, id),
                    CallWanted::Overdue,
                    reason,
                );
            }
            CancelEffect::Forget => {
                self.outgoing.cancel(self.outbox, self.timers, conn, id, Some("timed out"))
            }
            CancelEffect::Refuse(_) => self.outgoing.end(self.timers, conn, id),
        };
        if let Some(caller) = caller {
            self.tell(caller, answer);
        } else if is_question {
            self.gateway().on_client_answered(conn, id, answer);
        }
        // CAN-04: `initialize` is not cancelled; without its answer there is no session.
        if session && way == CancelEffect::Refuse(Refusal::Protected) {
            self.outbox.give_up(conn, CloseReason::NoSession);
        }
    }

    /// The caller cancels its request.
    pub(crate) fn on_cancel_call(&mut self, caller: Caller, reason: Option<&str>) {
        let at = match caller {
            Caller::Host(ask) => self.outgoing.host_call(ask),
            Caller::Job { job, ask } => {
                match self.jobs.get(job).and_then(|job| job.asks.get(&ask)) {
                    Some(
                        PendingOutgoing::Sent(conn, call) | PendingOutgoing::Offered(conn, call, _),
                    ) => Some((*conn, *call)),
                    Some(PendingOutgoing::Waiting(_)) => {
                        return self.tell(caller, Answer::Cancelled);
                    }
                    None => None,
                }
            }
        };
        let Some((conn, call)) = at else {
            // CAN-02, CAN-03: no cancel for an unknown or answered request.
            let refusal = Refusal::NotInProgress;
            return self.outbox.push(Action::RefuseCancel { caller, refusal });
        };
        match self.outgoing.cancel_effect(self.outbox, conn, call) {
            CancelEffect::Forget if self.outgoing.cannot_cancel_task(self.outbox, conn, call) => {
                // CAN-05, TSK-02: a task needs `tasks/cancel`, which the peer does not support.
                let refusal = Refusal::NotDeclared;
                self.outbox.push(Action::RefuseCancel { caller, refusal });
            }
            CancelEffect::Forget => {
                self.outgoing.cancel(self.outbox, self.timers, conn, call, reason);
                self.tell(caller, Answer::Cancelled);
            }
            CancelEffect::Await => {
                let (outbox, timers, at) = (&mut *self.outbox, &mut *self.timers, (conn, call));
                self.outgoing.await_cancelled(outbox, timers, at, CallWanted::Cancelled, reason);
            }
            // CAN-04, ACP-03, ACP-04: the request cannot be cancelled.
            CancelEffect::Refuse(refusal) => {
                self.outbox.push(Action::RefuseCancel { caller, refusal });
            }
        }
    }

    fn tell_if(&mut self, told: Option<ToldCaller>) {
        if let Some((caller, answer)) = told {
            self.tell(caller, answer);
        }
    }

    /// Tells the caller the outcome. A task without further requests leaves input_required.
    pub(crate) fn tell(&mut self, caller: Caller, answer: Answer) {
        let (mut asker, mut last) = (None, false);
        match caller {
            Caller::Host(ask) => {
                self.outgoing.forget_host_call(ask);
            }
            Caller::Job { job: id, ask } => {
                let Some(job) = self.jobs.get_mut(id) else { return };
                let needed = job.needs_input();
                if let Some(asks) = job.asks.some() {
                    asks.remove(&ask);
                }
                (asker, last) = (job.task.filter(|_| needed), !job.needs_input());
                self.jobs.note_questions(id);
            }
        }
        let relayed = self.relayed_caller(caller);
        let change = |calls: &mut Self| {
            if let Some(task) = asker {
                calls.news().note_questions_of(task, last.then_some(Change::InputArrived));
            }
        };
        match relayed {
            Some((job, ask)) => {
                change(self);
                self.gateway().on_question_answered(job, ask, answer);
            }
            None => {
                self.outbox.push(Action::Tell { caller, answer });
                change(self);
            }
        }
    }

    /// The question of a relayed job: the engine asks for it, so that no host is told the answer.
    fn relayed_caller(&self, caller: Caller) -> Option<(JobId, AskId)> {
        let Caller::Job { job, ask } = caller else { return None };
        let is_relayed = self.jobs.get(job).is_some_and(|job| job.tool.route.is_some());
        is_relayed.then_some((job, ask))
    }

    /// Gives an answer to its caller.
    pub(crate) fn deliver(&mut self, caller: Caller, answer: Answer) {
        match self.relayed_caller(caller) {
            Some((job, ask)) => {
                self.gateway().on_question_answered(job, ask, answer);
            }
            None => self.outbox.push(Action::Tell { caller, answer }),
        }
    }

    /// Cancels the requests of a job that is being stopped, each in the dialect and with the ids of
    /// its own connection (ACP-05). A peer that answers nevertheless is awaited.
    pub(crate) fn cancel_asks(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id).filter(|job| !job.asks.is_empty()) else { return };
        let sent: Vec<(ConnId, CallId)> = job
            .asks
            .values()
            .filter_map(|asked| match asked {
                PendingOutgoing::Sent(conn, call) | PendingOutgoing::Offered(conn, call, _) => {
                    Some((*conn, *call))
                }
                PendingOutgoing::Waiting(_) => None,
            })
            .collect();
        for (conn, call) in sent {
            match self.outgoing.cancel_effect(self.outbox, conn, call) {
                CancelEffect::Await => {
                    let (outbox, timers) = (&mut *self.outbox, &mut *self.timers);
                    let (at, reason) = ((conn, call), Some(PARENT_OVER));
                    self.outgoing.await_cancelled(
                        outbox,
                        timers,
                        at,
                        CallWanted::Cancelled,
                        reason,
                    );
                }
                CancelEffect::Forget | CancelEffect::Refuse(_) => {}
            }
        }
        self.drop_asks_but(id, |call| call.wanted() != CallWanted::Yes);
    }

    /// Drops the requests of an ended job; no outcome is reported.
    #[cold]
    pub(crate) fn drop_asks(&mut self, id: JobId) {
        self.drop_asks_but(id, |_| false);
    }

    fn drop_asks_but(&mut self, id: JobId, keep: fn(&OutgoingCall) -> bool) {
        let Some(job) = self.jobs.get_mut(id).filter(|job| !job.asks.is_empty()) else { return };
        let task = job.task.filter(|_| job.needs_input());
        for (ask, asked) in job.asks.take() {
            match asked {
                PendingOutgoing::Waiting(_) => {}
                PendingOutgoing::Sent(conn, call) | PendingOutgoing::Offered(conn, call, _)
                    if self.outgoing.call(conn, call).is_some_and(keep) =>
                {
                    if let Some(job) = self.jobs.get_mut(id) {
                        job.asks.insert(ask, asked);
                    }
                    continue;
                }
                PendingOutgoing::Sent(conn, call) | PendingOutgoing::Offered(conn, call, _) => {
                    self.outgoing.cancel(self.outbox, self.timers, conn, call, Some(PARENT_OVER));
                }
            }
            let caller = Caller::Job { job: id, ask };
            self.deliver(caller, Answer::Cancelled);
        }
        self.jobs.note_questions(id);
        if let Some(task) = task {
            self.news().change_task(task, Change::InputArrived);
        }
    }

    /// Ends the requests on a closed connection. A request to a receiver of the outcome goes to the
    /// next receiver (TSK-30).
    pub(crate) fn lose_calls(&mut self, conn: ConnId, calls: Vec<(CallId, OutgoingCall)>) {
        for (id, mut call) in calls {
            self.timers.disarm(&mut call.timer, Timer::Call(conn, id));
            if call.receiver() == CallFor::Question {
                self.gateway().on_client_answered(conn, id, Answer::Lost);
                continue;
            }
            if let CallFor::Elsewhere(task) = call.receiver() {
                self.tasks.lose_offer(task, (conn, id));
                questions::offer(self.outbox, (self.outgoing, self.timers), self.tasks, task);
                continue;
            }
            let CallFor::Caller(caller) = call.receiver() else { continue };
            let Caller::Job { job, ask } = caller else {
                self.tell(caller, Answer::Lost);
                continue;
            };
            let Some(entry) = self.jobs.get_mut(job) else { continue };
            match entry.asks.remove(&ask) {
                Some(PendingOutgoing::Offered(of, number, request))
                    if (of, number) == (conn, id) =>
                {
                    entry.asks.insert(ask, PendingOutgoing::Waiting(request));
                    self.put_questions(job, |_| Answer::Lost);
                }
                Some(PendingOutgoing::Sent(..)) => self.tell(caller, Answer::Lost),
                // The request moved to another receiver.
                Some(asked @ (PendingOutgoing::Offered(..) | PendingOutgoing::Waiting(_))) => {
                    entry.asks.insert(ask, asked);
                }
                // The job was stopped together with the connection.
                None => {}
            }
        }
    }
}
