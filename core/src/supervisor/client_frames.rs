//! Frames of the client.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::acp::protocol::AcpForm;
use crate::ids::RequestId;
use crate::protocol::trace_context::TraceContext;
use crate::rpc::error::limit_error;
use crate::rpc::message::Members;
use crate::rpc::params::{self, Params};
use crate::supervisor::choices::Choices;
use crate::supervisor::effect::SupervisionEffect;
use crate::supervisor::held::Held;
use crate::supervisor::piece_kind::PieceKind;
use crate::supervisor::reading::{FrameHead, is_cancel, named_request, read, session_of};
use crate::supervisor::stop::{CancelForm, TurnStop};
use crate::supervisor::supervision::{AgentState, AskedRequest, Crossing, Supervision};
use crate::supervisor::texts;
use crate::supervisor::work::{AgentWork, WorkId};
use crate::time::Instant;

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// To the agent.
    Pass,
    /// It waits.
    Hold,
    /// It waits for its session to be reopened.
    Reopen,
    /// It is a prompt in a session of which the client shows a choice that does not hold.
    Refuse,
}

impl Supervision {
    pub(super) fn on_client_frame(&mut self, now: Instant, frame: &[u8]) {
        // A cancel keeps its place before later frames.
        self.flush_crossing(now);
        let mut members = Members::default();
        match read(frame, &mut members) {
            FrameHead::Request { id, token, method, params } => {
                let held = Held {
                    frame: Vec::new(),
                    job: None,
                    since: now,
                    id: Some(WorkId::new(&id, token)),
                    method: method.as_ref().into(),
                    session: session_of(params),
                };
                let max = self.terms.works_max;
                if self.works.len() >= max {
                    let message = alloc::format!(
                        "limit reached: inflight_per_connection = {max} requests wait for the agent"
                    );
                    let error = limit_error("inflight_per_connection", max, message);
                    return self.out.push(SupervisionEffect::ToClient(texts::error(token, &error)));
                }
                match self.way_of(&held, false) {
                    Direction::Pass => {
                        self.begin_work(now, held, params);
                        self.out.push(SupervisionEffect::ForwardToAgent);
                    }
                    Direction::Refuse => {
                        let session = held.session.clone().unwrap_or_default();
                        self.refuse_untold(&held, &session);
                    }
                    Direction::Hold | Direction::Reopen => {
                        self.hold(Held { frame: frame.to_vec(), ..held });
                        self.start();
                        self.release(now);
                    }
                }
            }
            FrameHead::Notification { method, params } if method == "session/cancel" => {
                self.on_session_cancel(now, frame, session_of(params));
            }
            FrameHead::Notification { method, params } if is_cancel(&method) => {
                self.on_request_cancel(frame, &method, named_request(params));
            }
            FrameHead::Notification { method, params } => {
                let (method, session) = (method.as_ref().into(), session_of(params));
                self.pass_or_hold(now, frame, method, session);
            }
            FrameHead::Response { id: Some(id), .. } => self.on_client_answer(now, frame, &id),
            FrameHead::Response { id: None, .. } | FrameHead::Other | FrameHead::NotJson => {
                self.pass_or_hold(now, frame, "".into(), None);
            }
        }
    }

    /// Passes a frame that needs no answer, unless something before it waits.
    fn pass_or_hold(
        &mut self,
        now: Instant,
        frame: &[u8],
        method: Box<str>,
        session: Option<Box<str>>,
    ) {
        let passes = match self.agent {
            AgentState::Live | AgentState::Draining(_) => self.held.is_empty(),
            // Nothing is started for a frame without an answer.
            AgentState::Off | AgentState::Ending if self.process > 0 => return,
            AgentState::Off
            | AgentState::Starting
            | AgentState::Preparing { .. }
            | AgentState::Ending => false,
        };
        if passes {
            self.out.push(SupervisionEffect::ForwardToAgent);
        } else {
            let (frame, since) = (frame.to_vec(), now);
            self.hold(Held { frame, job: None, since, id: None, method, session });
        }
    }

    /// Where a request goes. `is_behind`: a frame of its session waits before it.
    fn way_of(&self, held: &Held, is_behind: bool) -> Direction {
        let ends = |work: &AgentWork| work.stop.as_ref().is_some_and(TurnStop::ends_strays);
        // A cancel is for the process that runs, and so is the end of a session in it.
        let is_for_process =
            PieceKind::of_cancel(&held.method).is_some() || &*held.method == "session/close";
        if is_for_process
            && self.abilities.version >= 2
            && matches!(self.agent, AgentState::Live | AgentState::Draining(_))
        {
            return Direction::Pass;
        }
        // Processes of a new request could not be told from those that are being ended.
        let ends_strays = !self.freed.is_empty() || self.works.iter().any(ends);
        if self.agent != AgentState::Live || is_behind || ends_strays {
            return Direction::Hold;
        }
        let session = held.session.as_deref();
        let waits = |before: &Held| before.session.as_deref() == session || session.is_none();
        if held.frame.is_empty() && self.held.frames.iter().any(waits) {
            return Direction::Hold;
        }
        let Some(session) = session else { return Direction::Pass };
        // SUP-04: a prompt waits for the end of the cancelled turn before it.
        let is_stopping = |work: &AgentWork| work.is_of(session) && work.stop.is_some();
        if held.is_prompt() && self.works.iter().any(is_stopping) {
            return Direction::Hold;
        }
        let reopens = !matches!(
            &*held.method,
            "session/load" | "session/resume" | "session/close" | "session/delete"
        );
        match self.sessions.get(session) {
            Some(known) if reopens && known.opened_in != self.process => Direction::Reopen,
            Some(known) if held.is_prompt() && known.untold.is_some() => Direction::Refuse,
            Some(_) | None => Direction::Pass,
        }
    }

    fn hold(&mut self, held: Held) {
        let share = self.terms.identity_bytes_max;
        let is_past = self.held.held_for_identity().saturating_add(held.frame.len()) > share;
        let (limit, max) = match is_past {
            true => ("held_bytes_per_identity", share),
            false => ("write_buffer_bytes", self.terms.held_bytes_max),
        };
        let refused = if is_past { Err(held) } else { self.held.push(held, max) };
        if let Err(Held { id: Some(id), .. }) = refused {
            let message = alloc::format!("limit reached: {limit} = {max} wait for the agent");
            let error = limit_error(limit, max, message);
            self.out.push(SupervisionEffect::ToClient(texts::error(&id.token, &error)));
        }
    }

    /// Sends the frames that need not wait any more, in their order.
    pub(super) fn release(&mut self, now: Instant) {
        let (mut at, mut behind): (usize, Vec<Box<str>>) = (0, Vec::new());
        while let Some(held) = self.held.frames.get(at) {
            if self.agent != AgentState::Live {
                return;
            }
            let is_behind = held.session.as_ref().is_some_and(|it| behind.contains(it));
            let way = match (&held.id, is_behind) {
                (None, false) => Direction::Pass,
                (None, true) => Direction::Hold,
                (Some(_), _) => self.way_of(held, is_behind),
            };
            match way {
                Direction::Pass => {
                    let Some(held) = self.held.remove(at) else { return };
                    self.send_held(now, held);
                }
                Direction::Hold => {
                    behind.extend(held.session.clone());
                    at += 1;
                }
                Direction::Reopen => {
                    let session = held.session.clone().unwrap_or_default();
                    if !self.reopen(now, &session) {
                        let Some(held) = self.held.remove(at) else { return };
                        self.refuse_lost(&held, &session);
                    }
                }
                Direction::Refuse => {
                    let Some(held) = self.held.remove(at) else { return };
                    let session = held.session.clone().unwrap_or_default();
                    self.refuse_untold(&held, &session);
                }
            }
        }
    }

    fn send_held(&mut self, now: Instant, mut held: Held) {
        let frame = core::mem::take(&mut held.frame);
        if held.id.is_some() {
            let mut members = Members::default();
            if let FrameHead::Request { params, .. } = read(&frame, &mut members) {
                self.begin_work(now, held, params);
            }
        }
        self.out.push(SupervisionEffect::ToAgent(frame));
    }

    /// Notes a request that the agent gets now.
    fn begin_work(&mut self, now: Instant, held: Held, params: Option<Params<'_>>) {
        let text = params.as_ref().map(Params::get);
        self.last_work += 1;
        let keeps = matches!(
            &*held.method,
            "initialize"
                | "authenticate"
                | "auth/login"
                | "session/new"
                | "session/load"
                | "session/resume"
                | "session/fork"
                | "session/set_mode"
                | "session/set_model"
                | "session/set_config_option"
        );
        if &*held.method == "initialize" {
            self.start_by = Some(now + self.terms.start_timeout);
            self.abilities.read_params(text.unwrap_or("{}"));
        }
        if let Some(piece) = self.pieces.named(&held.method, text.unwrap_or("{}"))
            && piece.can_cancel
        {
            let (number, request) = (piece.number, held.id.as_ref().map(|of| of.id.clone()));
            self.begin_piece_stop(now, number, request, None);
        }
        if &*held.method == "session/prompt" && self.floor_of != self.process {
            (self.floor, self.floor_of) = (now, self.process);
        }
        let trace = self.terms.records_spans.then(|| {
            let meta = params::any_members(params.as_ref()).meta.as_ref();
            meta.and_then(|meta| TraceContext::of_members(meta.trace))
        });
        let mut work = AgentWork {
            number: self.last_work,
            job: held.job,
            id: held.id,
            method: held.method,
            session: held.session,
            params: text.filter(|_| keeps).map(Into::into),
            choices: Choices::default(),
            since: now,
            trace: trace.flatten(),
            is_alone: true,
            is_settled: false,
            active: now,
            stop: None,
        };
        if work.may_start_processes() {
            for other in self.works.iter_mut().filter(|other| other.may_start_processes()) {
                (other.is_alone, work.is_alone) = (false, false);
            }
        }
        self.begin_watch(now, work.is_turn());
        self.works.push(work);
    }

    /// SUP-04: applies to the turns that are live now, and to no later one.
    fn on_session_cancel(&mut self, now: Instant, frame: &[u8], session: Option<Box<str>>) {
        let Some(session) = session else {
            return self.pass_or_hold(now, frame, "session/cancel".into(), None);
        };
        for held in self.held.take_prompts(&session) {
            let Some(id) = held.id else { continue };
            self.note_cancel(Some(id.id), held.method, "session/cancel");
            let answer = self.cancelled_prompt(&id.token, CancelForm::Session);
            self.out.push(SupervisionEffect::ToClient(answer));
        }
        let live = self.works.iter().filter(|work| work.is_turn() && work.is_of(&session));
        let works: Vec<u64> = live.map(|work| work.number).collect();
        if !works.is_empty() {
            let frame = frame.to_vec();
            self.crossing.push(Crossing { frame, works, form: CancelForm::Session, cancel: None });
        }
    }

    fn on_request_cancel(&mut self, frame: &[u8], method: &str, id: Option<RequestId>) {
        let Some(id) = id else { return };
        if let Some(held) = self.held.take_request(&id) {
            let Some(of) = held.id else { return };
            self.note_cancel(Some(of.id), held.method, "$/cancel_request");
            let error = texts::cancelled(crate::reason::StopReason::Requested, None);
            return self.out.push(SupervisionEffect::ToClient(texts::error(&of.token, &error)));
        }
        let is_it = |work: &&AgentWork| work.id.as_ref().is_some_and(|of| of.id == id);
        // ACP-04: `initialize` cannot be cancelled. ACP-08: nor can an answered request.
        let Some(work) = self.works.iter().find(is_it).filter(|it| &*it.method != "initialize")
        else {
            return;
        };
        let is_spelled = match self.abilities.agent_form {
            AcpForm::Published => method == "$/cancel_request",
            AcpForm::Proposed => method == "$/cancelRequest",
        };
        let token = work.id.as_ref().map_or("null", |of| &of.token);
        let frame = match is_spelled {
            true => frame.to_vec(),
            false => texts::cancel_request(self.abilities.agent_form, token),
        };
        let works = alloc::vec![work.number];
        self.crossing.push(Crossing { frame, works, form: CancelForm::Request, cancel: None });
    }

    /// The client answers a request of the agent.
    fn on_client_answer(&mut self, now: Instant, frame: &[u8], id: &RequestId) {
        let exact = self.asked.iter().position(|asked| asked.at_client.id == *id);
        let has_digits = |asked: &AskedRequest| id.is_digits_of(&asked.at_client.id);
        let at = exact.or_else(|| self.asked.iter().position(has_digits));
        match at.map(|at| self.asked.swap_remove(at)) {
            Some(asked) if exact.is_some() && asked.id == asked.at_client => {
                self.out.push(SupervisionEffect::ForwardToAgent);
            }
            Some(asked) => {
                let old = texts::token_of(frame, "id").unwrap_or_default();
                self.out.push(SupervisionEffect::ToAgent(texts::with_id(
                    frame,
                    old,
                    &asked.id.token,
                )));
            }
            // SUP-02: an answer to an ended agent is none to its successor.
            None if self.stale.remove(id) => {}
            None => self.pass_or_hold(now, frame, "".into(), None),
        }
    }
}
