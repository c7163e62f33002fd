//! Calls that ask by their answer (MOD-07): a tool that needs input has its call answered with
//! its questions, and waits, suspended, for the request that brings the input.
//!
//! The retry names the suspended call by a state that only its requestor can know, good once, for
//! the same tool, by the same identity, for a limited time. The job goes on meanwhile, if it does
//! not wait for its answer; its outcome is then kept for the retry.

use alloc::vec::Vec;

use crate::collections::timer_queue::Timer;
use crate::engine::Engine;
use crate::ids::{AskId, JobId, RequestState};
use crate::jobs::job::Purpose;
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outbox::requests::{Reply, RequestWork, Settled};
use crate::outbox::typed_result::ResultType;
use crate::outgoing::call::{Answer, Caller, OutgoingRequest, Refusal};
use crate::protocol::request_meta::{RequestContext, RequestMeta};
use crate::reason::StopReason;
use crate::rpc::error::ErrorObject;
use crate::rpc::send_queue::Handle;
use crate::server::inputs::{self, OpenQuestions};
use crate::server::suspended_calls::{SuspendedCall, SuspendedWork};

/// Content of a retry, without its tool.
pub(crate) struct Retry<'a> {
    /// The state it was given, as it wrote it.
    pub(crate) state: Raw<'a>,
    /// Its input responses.
    pub(crate) responses: Option<Raw<'a>>,
    pub(crate) progress_token: Option<Raw<'a>>,
}

impl Engine {
    /// The turn is over: the calls of jobs that asked something are answered with it.
    pub(crate) fn suspend_asking_calls(&mut self) {
        if !self.suspended.has_asking() {
            return;
        }
        for id in self.suspended.take_asking() {
            self.refuse_undeclared(id);
            let Some(job) = self.jobs.get(id) else { continue };
            // It may have withdrawn its question, or have its answer.
            if job.needs_input() && matches!(job.purpose(), Purpose::Answer(_)) {
                self.suspend(id);
            }
        }
    }

    /// A retry may come from a client that answers less than the one before.
    fn refuse_undeclared(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let RequestContext::Request(RequestMeta { peer, .. }) = job.terms else { return };
        self.refuse_questions(id, Refusal::NotDeclared, |ask| !peer.answers(&ask.method));
    }

    /// Tells a job that some of its questions cannot be asked.
    fn refuse_questions(
        &mut self,
        id: JobId,
        refusal: Refusal,
        which: impl Fn(&OutgoingRequest) -> bool,
    ) {
        let Some(job) = self.jobs.get(id) else { return };
        let refused = |(ask, question): (AskId, &OutgoingRequest)| {
            which(question).then_some(Caller::Job { job: id, ask })
        };
        let callers: Vec<Caller> = job.questions().filter_map(refused).collect();
        for caller in callers {
            self.outgoing().tell(caller, Answer::Refused(refusal));
        }
    }

    /// A state the generator gives twice is noticed, as an id of a task is (TSK-08): it names one
    /// call alone.
    fn fresh_state(&mut self) -> Option<RequestState> {
        for _ in 0..4 {
            let state = RequestState::new(self.id_source.uuid());
            if self.suspended.get(state).is_none() {
                return Some(state);
            }
            self.outbox.counters_mut().id_collisions += 1;
        }
        None
    }

    fn suspend(&mut self, id: JobId) {
        let Some(state) = self.fresh_state() else {
            // Without a state no request can come back: the question cannot be asked.
            return self.refuse_questions(id, Refusal::TooMany, |_| true);
        };
        self.jobs.show_held_progress_of(&mut self.outbox, &mut self.tasks, id);
        let request = self.jobs.suspend(id, state).expect("a call is suspended while it waits");
        let Some(job) = self.jobs.get_mut(id) else { return };
        // The token belonged to the answered request.
        let mut before = job.progress.take_told();
        self.timers.disarm(&mut before.heartbeat, Timer::Heartbeat(id));
        let mut requests = Vec::new();
        inputs::write(&mut Writer::new(&mut requests), job, &job.terms.peer());
        let (owner, tool, conn) = (job.owner.clone(), job.tool.name.clone(), job.conn);
        let mut call = SuspendedCall { owner, tool, timer: None, work: SuspendedWork::Job(id) };
        let at = self.now.at + self.settings.limits.parked_for;
        self.timers.arm(&mut call.timer, Timer::Suspended(state), at);
        self.suspended.suspend(state, call);
        let connection = self.outbox.connection_mut(conn);
        let settled = Settled::Job(id);
        if let Some(reply) = connection.and_then(|c| c.requests.settle(&request, settled)) {
            self.upstreams.answer_as(
                &mut self.outbox,
                ResultType::InputRequired(state),
                reply,
                |json| {
                    json.raw("{\"inputRequests\":").bytes(&requests);
                    json.raw(",\"requestState\":\"").display(state).raw("\"}");
                },
            );
            self.outbox.close_if_finished(conn);
        }
    }

    /// A request returns with the input that a suspended call asked for.
    #[inline(never)]
    pub(crate) fn retry_call(
        &mut self,
        reply: Reply,
        tool: &str,
        claim: &RequestMeta,
        retry: &Retry<'_>,
    ) {
        let Some(state) = self.named_call(&reply, tool, retry.state) else {
            // Another's is as unknown as one that never was (TSK-39).
            let message = "params.requestState names no call of this tool that waits for input";
            return self.outbox.fail(reply, &ErrorObject::invalid_params(message));
        };
        let open = match self.suspended.get(state).map(|call| &call.work) {
            Some(SuspendedWork::Job(id)) => self.jobs.open_questions(Some(*id)),
            Some(SuspendedWork::Outcome(_)) | None => OpenQuestions::new(),
        };
        let responses = match inputs::read(retry.responses, &open) {
            Ok(responses) => responses,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        if self.outbox.is_full(reply.conn) {
            return self.outbox.refuse_inflight(reply);
        }
        match self.suspended.unsuspend(&mut self.timers, state) {
            None => self.outbox.forget(reply),
            Some(SuspendedWork::Outcome(outcome)) => {
                self.upstreams.answer_with(&mut self.outbox, reply, outcome);
            }
            Some(SuspendedWork::Job(id)) => {
                self.resume(id, reply, claim, retry.progress_token);
                self.outgoing().take_responses(id, &responses);
            }
        }
    }

    /// The suspended call a retry names, if it is for this tool and of its sender.
    fn named_call(&self, reply: &Reply, tool: &str, state: Raw<'_>) -> Option<RequestState> {
        let state = RequestState::parse(&state.string()?)?;
        let viewer = &self.outbox.connection(reply.conn)?.identity;
        let call = self.suspended.get(state)?;
        (call.owner == *viewer && *call.tool == *tool).then_some(state)
    }

    /// The job behind a retry works for that now. Its unanswered questions are asked again at
    /// the end of the turn.
    fn resume(&mut self, id: JobId, reply: Reply, claim: &RequestMeta, token: Option<Raw<'_>>) {
        let request = reply.id.clone();
        let terms = RequestContext::Request(*claim);
        let Some(job) = self.jobs.answer_now(id, reply.conn, request, terms) else {
            return self.outbox.forget(reply);
        };
        job.progress.tell(token.map(|token| token.get().into()));
        if let Some(connection) = self.outbox.connection_mut(reply.conn) {
            connection.requests.open(reply, RequestWork::Job(id));
        }
        self.jobs.arm_heartbeat(&mut self.timers, self.now.at, id);
        self.suspended.note_asking(id);
    }

    /// The time for the input is over.
    pub(crate) fn on_suspended_timer(&mut self, state: RequestState) {
        self.suspended.note_due(state);
        if let Some(SuspendedWork::Job(id)) = self.suspended.unsuspend(&mut self.timers, state) {
            self.job_machine().release_job_claim(id, StopReason::Unanswered);
        }
    }

    /// The state that names these calls was never sent: no retry will come.
    pub(crate) fn unsuspend_lost(&mut self, handles: Vec<Handle>) {
        for handle in handles {
            if let Handle::Call(state) = handle
                && let Some(SuspendedWork::Job(id)) =
                    self.suspended.unsuspend(&mut self.timers, state)
            {
                self.job_machine().release_job_claim(id, StopReason::Disconnected);
            }
        }
    }
}

/// Every suspended call agrees with its job, and the other way round.
///
/// # Panics
/// When one is not.
pub(crate) fn check(engine: &Engine) {
    for (state, call) in engine.suspended.iter() {
        assert!(call.timer.is_some(), "{state:?} waits for ever (MOD-07)");
        match &call.work {
            SuspendedWork::Outcome(_) => {}
            SuspendedWork::Job(id) => {
                let job = engine.jobs.get(*id).expect("a suspended call has a job");
                assert_eq!(*job.purpose(), Purpose::Retry(state));
                assert_eq!(job.owner, call.owner, "who asked may come back (TSK-39)");
            }
        }
    }
    for (id, job) in engine.jobs.iter() {
        if let Purpose::Retry(state) = job.purpose() {
            let call = engine.suspended.get(*state);
            let waits =
                call.is_some_and(|call| matches!(call.work, SuspendedWork::Job(job) if job == *id));
            assert!(waits, "{id} waits for a retry nobody can make");
            assert!(job.progress.token.is_none(), "{id} has nobody to tell of its progress");
        }
    }
}

/// How many timers are armed here.
pub(crate) fn armed(engine: &Engine) -> usize {
    engine.suspended.iter().filter(|(_, call)| call.timer.is_some()).count()
}
