//! The end of an agent, wanted or not (SUP-03).

use alloc::vec::Vec;

use crate::action::RequestOutcome;
use crate::reason::StopReason;
use crate::rpc::error::ErrorObject;
use crate::supervisor::effect::SupervisionEffect;
use crate::supervisor::stop::{CancelForm, StopInput};
use crate::supervisor::supervision::{AgentState, Preparation, Supervision};
use crate::supervisor::texts;
use crate::time::Instant;

impl Supervision {
    /// Has the host end the agent, unless it does or there is none.
    pub(super) fn end(&mut self, why: &'static str) {
        if matches!(self.agent, AgentState::Off | AgentState::Ending) {
            return;
        }
        let before = core::mem::replace(&mut self.agent, AgentState::Ending);
        // Replayed history and choices that may not last do not reach the client, and now no end of
        // them will be heard.
        if let AgentState::Preparing { step: Preparation::Reopen(reopening), .. } = before
            && let Some(session) = self.sessions.get_mut(&reopening.session)
        {
            session.is_muted = true;
        }
        self.why.get_or_insert(why);
        self.start_by = None;
        self.out.push(SupervisionEffect::End);
    }

    /// No process of the agent is left: every open request is answered once.
    pub(super) fn on_ended(&mut self, now: Instant, status: &str, stderr: &str) {
        if self.agent == AgentState::Off {
            return;
        }
        let was_ready = self.is_greeted
            && !matches!(self.agent, AgentState::Starting | AgentState::Preparing { .. });
        let ignored = !self.given_up.is_empty();
        let was_outdated = core::mem::take(&mut self.is_outdated);
        let error = texts::death(&self.terms.name, self.why.take(), status, stderr);
        self.agent = AgentState::Off;
        (self.start_by, self.is_greeted) = (None, false);
        self.crossing.clear();
        self.lose_pieces();
        let others = !self.works.is_empty();
        let input = StopInput::AgentEnded { others };
        for work in core::mem::take(&mut self.given_up) {
            self.end_answered(now, work, input);
        }
        self.end_freed(now, None, input);
        self.fail_works(now, &error);
        self.withdraw(|_| true);
        self.sessions.agent_ended();
        *self.counts.entry(if ignored { "replaced" } else { "ended" }).or_default() += 1;
        if self.is_over || self.held.is_empty() {
            return;
        }
        // A process that does not get through its handshake would do no better a second time.
        if was_ready || ignored || was_outdated {
            self.start();
        } else {
            self.fail_held(&error);
        }
    }

    fn fail_works(&mut self, now: Instant, error: &ErrorObject) {
        for mut work in core::mem::take(&mut self.works) {
            self.end_span(&mut work, RequestOutcome::Failed(Some(error.code)));
            if work.stop.is_some() {
                self.answer_stopped(&work);
                self.end_stop(now, work, StopInput::AgentEnded { others: false });
                continue;
            }
            if let Some(id) = &work.id {
                self.out.push(SupervisionEffect::ToClient(texts::error(&id.token, error)));
            }
            self.say_idle(&work, None);
        }
    }

    /// Answers the requests that wait for an agent that cannot be had.
    pub(super) fn fail_held(&mut self, error: &ErrorObject) {
        for held in self.held.take_all() {
            if let Some(id) = held.id {
                self.out.push(SupervisionEffect::ToClient(texts::error(&id.token, error)));
            }
        }
    }

    /// Answers everything, and ends the agent.
    pub(super) fn shut_down(&mut self, now: Instant) {
        let open: Vec<u64> = self.works.iter().map(|work| work.number).collect();
        for number in open {
            self.begin_stop(now, number, CancelForm::Request, StopReason::Shutdown);
        }
        for mut work in core::mem::take(&mut self.works) {
            self.end_span(&mut work, RequestOutcome::Cancelled);
            self.answer_stopped(&work);
            // The agent is ended with its tree; its end is no receipt of a cancel.
            work.stop = None;
        }
        let error = texts::cancelled(StopReason::Shutdown, Some("the supervisor is shutting down"));
        self.fail_held(&error);
        self.is_over = true;
    }
}
