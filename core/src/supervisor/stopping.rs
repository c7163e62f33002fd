//! Cancels of the client and of watchdogs, carried out (SUP-02, SUP-04).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::acp::protocol::AcpForm;
use crate::action::{Cancel, RequestOutcome};
use crate::ids::{JobId, RequestId};
use crate::reason::StopReason;
use crate::supervisor::effect::{StopReceipt, SupervisionEffect};
use crate::supervisor::held::Held;
use crate::supervisor::stop::{CancelForm, StopInput, TurnStop, TurnStopStep};
use crate::supervisor::supervision::{AgentState, AnsweredRequest, Crossing, Supervision};
use crate::supervisor::texts;
use crate::supervisor::work::AgentWork;
use crate::time::Instant;
use crate::upstream::interface::Proof;

/// Requests of ended agents that are remembered at most until the client answers them.
const STALE_MAX: usize = 4096;

impl Supervision {
    /// Passes on the cancels whose works are still live.
    pub(super) fn flush_crossing(&mut self, now: Instant) {
        for Crossing { frame, works, form, cancel } in core::mem::take(&mut self.crossing) {
            let live: Vec<u64> = works
                .into_iter()
                .filter(|number| self.works.iter().any(|work| work.number == *number))
                .collect();
            if live.is_empty() {
                // SUP-04: the turn that it was for is over.
                continue;
            }
            self.out.push(SupervisionEffect::ToAgent(frame));
            for number in live {
                self.begin_stop_for(now, number, form, StopReason::Requested, cancel.clone());
            }
        }
    }

    /// A person cancels a request: the agent is told in the method for it. `session/cancel` is for
    /// all turns of a session. A request that waits is answered at once.
    pub(super) fn on_cancel(&mut self, now: Instant, job: JobId, cancel: Cancel) {
        if let Some(held) = self.held.take_job(job) {
            return self.cancel_held(now, held, cancel);
        }
        if self.cancel_piece(now, job, &cancel) {
            return;
        }
        let is_it = |work: &&AgentWork| work.job == Some(job) && work.stop.is_none();
        let Some(work) = self.works.iter().find(is_it) else { return };
        let (frame, works, form) = match (&work.session, &work.id) {
            (Some(session), _) if work.is_turn() => {
                let turns = self.works.iter().filter(|it| it.is_turn() && it.is_of(session));
                let turns = turns.map(|it| it.number).collect();
                (texts::cancel_session(session), turns, CancelForm::Session)
            }
            (_, Some(id)) => {
                let frame = texts::cancel_request(self.abilities.agent_form, &id.token);
                (frame, alloc::vec![work.number], CancelForm::Request)
            }
            (_, None) => return,
        };
        // SUP-04: the answer may be in the pipe.
        self.crossing.push(Crossing { frame, works, form, cancel: Some(Box::new(cancel)) });
    }

    /// Answers a request that the agent never gets, and lets those behind it pass.
    fn cancel_held(&mut self, now: Instant, held: Held, cancel: Cancel) {
        let Some(id) = &held.id else { return };
        let answer = match held.is_prompt() {
            true => self.cancelled_prompt(&id.token, CancelForm::Session),
            false => texts::error(&id.token, &texts::cancelled(StopReason::Requested, None)),
        };
        self.out.push(SupervisionEffect::ToClient(answer));
        self.out.push(SupervisionEffect::Receipt(StopReceipt {
            job: held.job,
            request: Some(id.id.clone()),
            method: held.method,
            why: StopReason::Requested,
            cancel: Some(Box::new(cancel)),
            since: now,
            proof: Proof::Unsent,
            object: None,
        }));
        self.release(now);
    }

    /// Begins to stop a work, unless that is under way. Its first cancel was sent.
    pub(super) fn begin_stop(
        &mut self,
        now: Instant,
        number: u64,
        form: CancelForm,
        why: StopReason,
    ) {
        self.begin_stop_for(now, number, form, why, None);
    }

    /// As [`Supervision::begin_stop`], with the cancel if it is not of the client.
    fn begin_stop_for(
        &mut self,
        now: Instant,
        number: u64,
        form: CancelForm,
        why: StopReason,
        cancel: Option<Box<Cancel>>,
    ) {
        let (grace, on_ignored) = (self.terms.cancel_grace, self.terms.on_ignored);
        let Some(work) = self.works.iter_mut().find(|work| work.number == number) else { return };
        if work.stop.is_some() {
            return;
        }
        let by_client = why == StopReason::Requested && cancel.is_none();
        let mut stop = TurnStop::new(now, why, form, grace, on_ignored);
        stop.cancel = cancel;
        work.stop = Some(stop);
        if by_client {
            let (request, method) = (work.id.clone().map(|of| of.id), work.method.clone());
            let said = match form {
                CancelForm::Session => "session/cancel",
                CancelForm::Request => "$/cancel_request",
            };
            self.note_cancel(request, method, said);
        }
    }

    pub(super) fn note_cancel(
        &mut self,
        request: Option<RequestId>,
        method: Box<str>,
        said: &'static str,
    ) {
        *self.counts.entry("cancels").or_default() += 1;
        self.out.push(SupervisionEffect::Cancelled { request, method, said });
    }

    /// Hands an input to the stop of a work, and carries out its step.
    pub(super) fn advance_stop(&mut self, now: Instant, number: u64, input: StopInput) {
        let Some(at) = self.works.iter().position(|work| work.number == number) else { return };
        let work = &mut self.works[at];
        let births = self.pieces.births_of_turn(work.session.as_deref(), work.since, self.floor);
        let Some(stop) = &mut work.stop else { return };
        match stop.take(now, input) {
            TurnStopStep::Nothing => {}
            TurnStopStep::SayOther => self.say_other(at),
            TurnStopStep::Examine => {
                self.out.push(SupervisionEffect::Examine { check: number, births });
            }
            TurnStopStep::EndStrays => {
                self.out.push(SupervisionEffect::EndStrays { check: number, births });
            }
            TurnStopStep::GiveUp => self.give_up(now, at),
            TurnStopStep::Over(proof) => {
                let receipt = StopReceipt {
                    job: work.job,
                    request: work.id.clone().map(|of| of.id),
                    method: work.method.clone(),
                    why: stop.why,
                    cancel: stop.cancel.clone(),
                    since: stop.since,
                    proof,
                    object: None,
                };
                self.out.push(SupervisionEffect::Receipt(receipt));
            }
        }
    }

    /// Sends the form of the cancel that was not sent yet.
    fn say_other(&mut self, at: usize) {
        let work = &self.works[at];
        let form = work.stop.as_ref().map_or(CancelForm::Session, |stop| stop.form);
        let known = self.abilities.agent_form;
        let frame = match (form.other(), work.is_turn(), &work.session, &work.id) {
            (CancelForm::Session, true, Some(session), _) => Some(texts::cancel_session(session)),
            (CancelForm::Request, true, _, Some(id)) => {
                Some(texts::cancel_request(known, &id.token))
            }
            // A request beside a turn has one method only, in two spellings.
            (_, false, _, Some(id)) => {
                let other = match known {
                    AcpForm::Published => AcpForm::Proposed,
                    AcpForm::Proposed => AcpForm::Published,
                };
                Some(texts::cancel_request(other, &id.token))
            }
            _ => None,
        };
        self.out.extend(frame.map(SupervisionEffect::ToAgent));
    }

    /// The agent ends a cancelled work by no means: the client is answered, and the agent goes.
    fn give_up(&mut self, now: Instant, at: usize) {
        let mut work = self.works.swap_remove(at);
        self.end_span(&mut work, RequestOutcome::Cancelled);
        self.answer_stopped(&work);
        if let Some(session) = work.session.as_deref().filter(|_| work.is_turn()) {
            if let Some(session) = self.sessions.get_mut(session) {
                session.is_muted = true;
            }
            let session: Box<str> = session.into();
            self.withdraw(|asked| asked.as_deref() == Some(&*session));
        }
        let request = work.id.clone().map(|of| of.id);
        if let Some(stop) = work.stop.take() {
            let AgentWork { number, job, since, method, .. } = work;
            self.given_up.push(AnsweredRequest { number, job, since, stop, request, method });
        }
        // SUP-05: background work has the time that the turns of other sessions have.
        if self.works.is_empty() && !self.pieces.has_background(None) {
            self.end("it ignored a cancel");
        } else if self.agent == AgentState::Live {
            self.agent = AgentState::Draining(now + self.terms.drain);
        }
    }

    /// Answers a work that was cancelled, in place of the agent.
    pub(super) fn answer_stopped(&mut self, work: &AgentWork) {
        let Some(stop) = &work.stop else { return };
        let limit = match stop.why {
            StopReason::TimedOut => self
                .terms
                .turn_timeout
                .map(|span| alloc::format!("turn_timeout = {} ms is over", span.as_millis())),
            StopReason::Limit => self.terms.stall_timeout.map(|span| {
                alloc::format!("stall_timeout = {} ms without a sign of work", span.as_millis())
            }),
            StopReason::Shutdown => Some("the supervisor is shutting down".into()),
            StopReason::Requested
            | StopReason::Disconnected
            | StopReason::Expired
            | StopReason::Unanswered
            | StopReason::LeftBehind
            | StopReason::Feature
            | StopReason::Host
            | StopReason::Unstored
            | StopReason::Lapsed => None,
        };
        if let Some(id) = &work.id {
            let answer = match (&limit, work.is_turn()) {
                (None, true) => self.cancelled_prompt(&id.token, stop.form),
                (limit, _) => {
                    texts::error(&id.token, &texts::cancelled(stop.why, limit.as_deref()))
                }
            };
            self.out.push(SupervisionEffect::ToClient(answer));
        }
        self.say_idle(work, Some("cancelled"));
    }

    /// Version 2: tells that the turn of a work is over, if the client was told that it runs.
    pub(super) fn say_idle(&mut self, work: &AgentWork, reason: Option<&'static str>) {
        let Some(session) = work.session.as_deref().filter(|_| work.is_turn()) else { return };
        let known = self.sessions.get(session);
        let runs = known.is_some_and(|session| session.is_running);
        let background = known.and_then(|session| session.background.as_deref());
        if self.abilities.version >= 2 && (runs || work.id.is_none()) {
            self.out.push(SupervisionEffect::ToClient(texts::idle(session, reason, background)));
            if let Some(session) = self.sessions.get_mut(session) {
                session.is_running = false;
            }
        }
    }

    /// The answer of a prompt that was cancelled by a form (ACP-12).
    pub(super) fn cancelled_prompt(&self, token: &str, form: CancelForm) -> Vec<u8> {
        match form {
            CancelForm::Session if self.abilities.version < 2 => {
                texts::result(token, "{\"stopReason\":\"cancelled\"}")
            }
            CancelForm::Session | CancelForm::Request => {
                texts::error(token, &texts::cancelled(StopReason::Requested, None))
            }
        }
    }

    /// Withdraws requests of the agent from the client: their answers have no receiver.
    pub(super) fn withdraw(&mut self, is_of: impl Fn(&Option<Box<str>>) -> bool) {
        let form = self.abilities.client_form;
        let (stale, out) = (&mut self.stale, &mut self.out);
        self.asked.retain(|asked| {
            let goes = is_of(&asked.session);
            if goes {
                stale.insert(asked.at_client.id.clone());
                if stale.len() > STALE_MAX {
                    stale.pop_first();
                }
                out.push(SupervisionEffect::ToClient(texts::cancel_request(
                    form,
                    &asked.at_client.token,
                )));
            }
            !goes
        });
    }

    /// Writes the receipt of a work that was answered or has lost its agent, once its stop is over.
    pub(super) fn end_stop(&mut self, now: Instant, work: AgentWork, input: StopInput) {
        let Some(stop) = work.stop else { return };
        let request = work.id.map(|of| of.id);
        let AgentWork { number, job, since, method, .. } = work;
        self.end_answered(
            now,
            AnsweredRequest { number, job, since, stop, request, method },
            input,
        );
    }

    /// As [`Supervision::end_stop`], for a work that was answered before.
    pub(super) fn end_answered(
        &mut self,
        now: Instant,
        mut work: AnsweredRequest,
        input: StopInput,
    ) {
        // A stop that was left to itself has its receipt.
        if work.stop.is_left() {
            return;
        }
        if let TurnStopStep::Over(proof) = work.stop.take(now, input) {
            let AnsweredRequest { job, request, method, stop, .. } = work;
            let TurnStop { why, cancel, since, .. } = stop;
            let object = None;
            let receipt = StopReceipt { job, request, method, why, cancel, since, proof, object };
            self.out.push(SupervisionEffect::Receipt(receipt));
        } else if work.stop.is_answered() {
            self.freed.push(work);
        }
    }

    /// Hands an input to works whose processes are being ended: to one of them, or to all.
    pub(super) fn end_freed(&mut self, now: Instant, number: Option<u64>, input: StopInput) {
        for work in core::mem::take(&mut self.freed) {
            if number.is_none_or(|number| work.number == number) {
                self.end_answered(now, work, input);
            } else {
                self.freed.push(work);
            }
        }
    }
}
