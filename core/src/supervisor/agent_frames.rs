//! Frames of the agent.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use crate::acp::protocol::AcpForm;
use crate::action::RequestOutcome;
use crate::ids::RequestId;
use crate::rpc::error::limit_error;
use crate::rpc::message::Members;
use crate::rpc::params::Params;
use crate::supervisor::choices::{Choice, Choices};
use crate::supervisor::effect::SupervisionEffect;
use crate::supervisor::piece_kind::PieceKind;
use crate::supervisor::reading::{FrameHead, is_cancel, named_request, read, session_of};
use crate::supervisor::stop::{CancelForm, StopInput};
use crate::supervisor::supervision::{AgentState, AskedRequest, Preparation, Supervision};
use crate::supervisor::texts;
use crate::supervisor::work::{AgentWork, WorkId};
use crate::time::Instant;
use crate::upstream::rewrite::{member, text_member};

impl Supervision {
    pub(super) fn on_agent_frame(&mut self, now: Instant, frame: &[u8]) {
        if matches!(self.agent, AgentState::Off | AgentState::Starting) {
            return;
        }
        // Answers that were on their way when the end began still count; after works were answered
        // by the supervisor, nothing of this process does.
        if self.is_over || (self.agent == AgentState::Ending && !self.given_up.is_empty()) {
            return;
        }
        let mut members = Members::default();
        match read(frame, &mut members) {
            FrameHead::Request { id, token, params, .. } => {
                self.on_agent_request(now, frame, &WorkId::new(&id, token), params);
            }
            FrameHead::Notification { method, params } if is_cancel(&method) => {
                self.on_agent_cancel(frame, &method, named_request(params));
            }
            FrameHead::Notification { method, params } => {
                let session = session_of(params);
                if method == "session/update" && !self.on_update(now, session.as_deref(), params) {
                    return;
                }
                self.out.push(SupervisionEffect::ForwardToClient);
            }
            FrameHead::Response { id: Some(id), outcome } => {
                self.on_agent_answer(now, frame, &id, outcome);
            }
            // An error without an id answers a frame that the agent could not read.
            FrameHead::Response { id: None, .. } | FrameHead::Other => {
                self.out.push(SupervisionEffect::ForwardToClient);
            }
            FrameHead::NotJson => *self.counts.entry("skipped").or_default() += 1,
        }
    }

    /// The agent asks the client.
    fn on_agent_request(
        &mut self,
        now: Instant,
        frame: &[u8],
        id: &WorkId,
        params: Option<Params<'_>>,
    ) {
        let session = session_of(params);
        if self.sessions.is_muted(session.as_deref()) || self.agent == AgentState::Ending {
            let error = texts::cancelled(crate::reason::StopReason::Requested, None);
            return self.out.push(SupervisionEffect::ToAgent(texts::error(&id.token, &error)));
        }
        let max = self.terms.works_max;
        if self.asked.len() >= max {
            let message = alloc::format!(
                "limit reached: inflight_per_connection = {max} requests wait for the client"
            );
            let error = limit_error("inflight_per_connection", max, message);
            return self.out.push(SupervisionEffect::ToAgent(texts::error(&id.token, &error)));
        }
        self.show_work(now, session.as_deref());
        let taken = |id: &RequestId| {
            self.stale.contains(id) || self.asked.iter().any(|asked| asked.at_client.id == *id)
        };
        // An id that an earlier agent has used must not get the answer meant for that one.
        let at_client = if taken(&id.id) { self.own_id() } else { id.clone() };
        let effect = match at_client == *id {
            true => SupervisionEffect::ForwardToClient,
            false => {
                let old = texts::token_of(frame, "id").unwrap_or_default();
                SupervisionEffect::ToClient(texts::with_id(frame, old, &at_client.token))
            }
        };
        self.asked.push(AskedRequest { id: id.clone(), at_client, session });
        self.out.push(effect);
    }

    /// The agent cancels a request of its own.
    fn on_agent_cancel(&mut self, frame: &[u8], method: &str, id: Option<RequestId>) {
        let asked = self.asked.iter().find(|asked| Some(&asked.id.id) == id.as_ref());
        let Some(asked) = asked else { return };
        let is_spelled = match self.abilities.client_form {
            AcpForm::Published => method == "$/cancel_request",
            AcpForm::Proposed => method == "$/cancelRequest",
        };
        let effect = match is_spelled && asked.id == asked.at_client {
            true => SupervisionEffect::ForwardToClient,
            false => {
                let form = self.abilities.client_form;
                let _ = frame;
                SupervisionEffect::ToClient(texts::cancel_request(form, &asked.at_client.token))
            }
        };
        self.out.push(effect);
    }

    /// Takes an update of a session; false if the client does not get it.
    fn on_update(
        &mut self,
        now: Instant,
        session: Option<&str>,
        params: Option<Params<'_>>,
    ) -> bool {
        let Some(session) = session else { return true };
        let update = params.and_then(|params| member(params.get(), "update")).unwrap_or("{}");
        let kind = text_member(update, "sessionUpdate");
        let told = kind.as_deref().unwrap_or_default();
        // SUP-05: background work goes on beside a turn that was given up.
        let is_spared = self.pieces.is_about_background(session, told, update);
        self.note_pieces(now, session, told, update);
        if self.sessions.is_muted(Some(session)) {
            return is_spared;
        }
        // The client has the history that an agent replays when it reopens a session.
        if let AgentState::Preparing { step: Preparation::Reopen(reopening), .. } = &mut self.agent
            && *reopening.session == *session
            && reopening.absorbs(kind.as_deref(), update)
        {
            return false;
        }
        self.show_work(now, Some(session));
        if Choices::are_told_by(kind.as_deref()) {
            match self.works.iter_mut().find(|work| work.opens(session)) {
                Some(opening) => opening.choices.note_update(update),
                None => self.sessions.choose(session, |choices| choices.note_update(update)),
            }
        }
        if self.abilities.version >= 2
            && kind.as_deref() == Some("state_update")
            && let Some(state) = text_member(update, "state")
        {
            self.on_state(now, session, &state);
        }
        true
    }

    /// Version 2: the agent reports whether the session has foreground work.
    fn on_state(&mut self, now: Instant, session: &str, state: &str) {
        let runs = state != "idle";
        if let Some(known) = self.sessions.get_mut(session) {
            known.is_running = runs;
        }
        for work in self.works.iter_mut().filter(|work| work.is_turn() && work.is_of(session)) {
            work.is_settled = true;
        }
        if runs {
            let is_known = self.works.iter().any(|work| work.is_turn() && work.is_of(session));
            if !is_known {
                // Work that the agent has begun by itself can be cancelled as well.
                self.last_work += 1;
                self.begin_watch(now, true);
                self.works.push(AgentWork {
                    number: self.last_work,
                    job: None,
                    id: None,
                    method: "session/prompt".into(),
                    session: Some(session.into()),
                    params: None,
                    choices: Choices::default(),
                    since: now,
                    trace: None,
                    is_alone: false,
                    is_settled: true,
                    active: now,
                    stop: None,
                });
            }
            return;
        }
        let over = self.take_turns(session);
        self.pieces.rest(session);
        for mut work in over {
            self.end_span(&mut work, RequestOutcome::Answered);
            self.end_stop(now, work, StopInput::Answered);
        }
        self.release(now);
    }

    /// Takes the turns of a session whose prompts were answered when they were inserted.
    fn take_turns(&mut self, session: &str) -> Vec<AgentWork> {
        let is_it =
            |work: &mut AgentWork| work.is_turn() && work.is_of(session) && work.id.is_none();
        self.works.extract_if(.., is_it).collect()
    }

    /// An agent has closed a session, perhaps without the end of its turn, which comes before the
    /// answer. Returns the place of the answered work.
    fn close_turns(&mut self, now: Instant, at: usize, is_done: bool) -> usize {
        let AgentWork { number, method, session, .. } = &self.works[at];
        let closes = is_done && matches!(&**method, "session/close" | "session/delete");
        let (number, Some(session)) = (*number, session.clone().filter(|_| closes)) else {
            return at;
        };
        for mut work in self.take_turns(&session) {
            self.say_idle(&work, Some("cancelled"));
            self.end_span(&mut work, RequestOutcome::Cancelled);
            self.end_stop(now, work, StopInput::Answered);
        }
        // A prompt that waits here was not inserted.
        for id in self.held.take_prompts(&session).into_iter().filter_map(|held| held.id) {
            self.out.push(SupervisionEffect::ToClient(
                self.cancelled_prompt(&id.token, CancelForm::Request),
            ));
        }
        self.works.iter().position(|work| work.number == number).unwrap_or(at)
    }

    /// The agent answers a request of the client, or of the supervisor.
    fn on_agent_answer(
        &mut self,
        now: Instant,
        frame: &[u8],
        id: &RequestId,
        outcome: Result<&str, &str>,
    ) {
        let is_own = matches!(&self.agent, AgentState::Preparing { own, .. } if own == id);
        if is_own
            && let AgentState::Preparing { step, .. } =
                mem::replace(&mut self.agent, AgentState::Live)
        {
            return self.on_prepared(now, step, outcome);
        }
        let is_it = |work: &AgentWork| work.id.as_ref().is_some_and(|of| of.id == *id);
        let has_digits =
            |work: &AgentWork| work.id.as_ref().is_some_and(|of| id.is_digits_of(&of.id));
        let exact = self.works.iter().position(is_it);
        // A late answer to a request that was answered already goes nowhere.
        let Some(at) = exact.or_else(|| self.works.iter().position(has_digits)) else { return };
        let at = self.close_turns(now, at, outcome.is_ok());
        self.out.push(match &self.works[at].id {
            Some(own) if exact.is_none() => {
                let old = texts::token_of(frame, "id").unwrap_or_default();
                SupervisionEffect::ToClient(texts::with_id(frame, old, &own.token))
            }
            Some(_) | None => SupervisionEffect::ForwardToClient,
        });
        self.note_answer(now);
        let runs = {
            let work = &self.works[at];
            let session = work.session.as_deref().and_then(|id| self.sessions.get(id));
            let is_running = session.is_some_and(|session| session.is_running);
            // Version 2 answers a prompt when it is inserted, and its turn goes on.
            let goes_on = is_running || !work.is_settled;
            self.abilities.version >= 2 && work.is_turn() && outcome.is_ok() && goes_on
        };
        if runs {
            self.works[at].id = None;
            return;
        }
        let mut work = self.works.swap_remove(at);
        self.end_span(
            &mut work,
            match outcome {
                Ok(_) => RequestOutcome::Answered,
                Err(error) => {
                    RequestOutcome::Failed(member(error, "code").and_then(|it| it.parse().ok()))
                }
            },
        );
        if PieceKind::of_cancel(&work.method).is_some() {
            self.on_piece_answer(work.id.as_ref().map(|of| &of.id), outcome.is_err());
        }
        if let Ok(result) = outcome {
            self.note_result(&mut work, result);
        }
        if &*work.method == "initialize" {
            (self.start_by, self.is_greeted) = (None, outcome.is_ok());
        }
        self.end_stop(now, work, StopInput::Answered);
        self.release(now);
    }

    /// Remembers the data that a fresh agent will need.
    fn note_result(&mut self, work: &mut AgentWork, result: &str) {
        let params: Box<str> = work.params.take().unwrap_or_else(|| "{}".into());
        let mut choices = mem::take(&mut work.choices);
        match (&*work.method, &work.session) {
            ("initialize", _) => {
                self.abilities.read_result(result);
                self.initialize = Some(params);
            }
            ("authenticate" | "auth/login", _) => {
                self.login = Some((work.method.clone(), params));
            }
            ("logout" | "auth/logout", _) => self.login = None,
            ("session/new" | "session/fork", _) => {
                if let Some(session) = text_member(result, "sessionId") {
                    choices.note_opened(result);
                    if &*work.method == "session/new" {
                        choices.begin();
                    }
                    self.sessions.open(&session, &params, choices, self.process);
                }
            }
            ("session/load" | "session/resume", Some(session)) => {
                choices.note_opened(result);
                self.sessions.open(session, &params, choices, self.process);
            }
            ("session/close" | "session/delete", Some(session)) => {
                self.close_pieces(session);
                self.sessions.close(session);
            }
            (method, Some(session)) => {
                let Some(choice) = Choice::of_request(method, &params) else { return };
                self.sessions.choose(session, |choices| {
                    choices.note(choice);
                    if let Some(list) = member(result, "configOptions") {
                        choices.note_options(list);
                    }
                });
                if let Some(known) = self.sessions.get_mut(session) {
                    known.untold = None;
                }
            }
            (_, None) => {}
        }
    }

    fn show_work(&mut self, now: Instant, session: Option<&str>) {
        for work in &mut self.works {
            if session.is_none_or(|session| work.is_of(session)) {
                work.active = now;
            }
        }
    }

    /// An id for a request of the supervisor, or for one of the agent whose id is taken.
    pub(super) fn own_id(&mut self) -> WorkId {
        loop {
            self.last_own += 1;
            let token = alloc::format!("\"ceased-{}\"", self.last_own);
            let Some(id) = RequestId::parse(&token) else { continue };
            let is_taken = self.works.iter().any(|it| it.id.as_ref().is_some_and(|of| of.id == id))
                || self.stale.contains(&id)
                || self.asked.iter().any(|asked| asked.at_client.id == id || asked.id.id == id);
            if !is_taken {
                return WorkId { id, token: token.into() };
            }
        }
    }
}
