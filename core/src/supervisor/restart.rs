//! Start and restart of the agent: the handshake of the client again.

use crate::supervisor::effect::SupervisionEffect;
use crate::supervisor::supervision::{AgentState, Preparation, Supervision};
use crate::supervisor::terms::Terms;
use crate::supervisor::texts;
use crate::time::Instant;

impl Supervision {
    /// Has another process take the place of the agent. It finishes the turns that it has within
    /// `drain`; later requests wait for the other one, which the first of them starts.
    pub(super) fn restart(&mut self, now: Instant, terms: Terms) {
        self.terms = terms;
        match self.agent {
            AgentState::Off | AgentState::Ending => {}
            AgentState::Starting | AgentState::Preparing { .. } => {
                self.is_outdated = true;
                self.end(texts::OUTDATED);
            }
            AgentState::Live => {
                self.is_outdated = true;
                self.agent = AgentState::Draining(now + self.terms.drain);
            }
            // It ends anyway.
            AgentState::Draining(_) => {}
        }
    }

    /// Has the host start the agent, unless one runs.
    pub(super) fn start(&mut self) {
        if self.agent == AgentState::Off && !self.is_over {
            self.agent = AgentState::Starting;
            self.process += 1;
            self.out.push(SupervisionEffect::Start);
        }
    }

    /// The agent runs. A successor gets the handshake of the client first.
    pub(super) fn on_started(&mut self, now: Instant) {
        if self.agent != AgentState::Starting {
            return;
        }
        // A client that begins anew does so itself.
        let greets = self.held.frames.front().is_some_and(|held| &*held.method == "initialize");
        match self.initialize.clone().filter(|_| !greets) {
            Some(params) => self.prepare(now, Preparation::Initialize, "initialize", &params),
            None => {
                self.agent = AgentState::Live;
                self.release(now);
            }
        }
    }

    /// Sends a request of the supervisor, and has everything wait for its answer.
    pub(super) fn prepare(&mut self, now: Instant, step: Preparation, method: &str, params: &str) {
        let own = self.own_id();
        self.out.push(SupervisionEffect::ToAgent(texts::request(&own.token, method, params)));
        self.start_by = Some(now + self.terms.start_timeout);
        self.agent = AgentState::Preparing { own: own.id, step };
    }

    /// The agent answers a request of the supervisor.
    pub(super) fn on_prepared(
        &mut self,
        now: Instant,
        step: Preparation,
        outcome: Result<&str, &str>,
    ) {
        self.start_by = None;
        match (step, outcome) {
            (Preparation::Initialize, Ok(result)) => {
                self.abilities.read_result(result);
                self.is_greeted = true;
                if let Some((method, params)) = self.login.clone() {
                    return self.prepare(now, Preparation::Login, &method, &params);
                }
            }
            (Preparation::Initialize, Err(_)) => {
                return self.end("its successor refused initialize");
            }
            // An agent that wants another login says so to the next request.
            (Preparation::Login, _) => {}
            (Preparation::Reopen(reopening), outcome) => {
                if self.on_reopened(now, reopening, outcome) {
                    return;
                }
            }
        }
        // A turn that was given up meanwhile means the end of this agent, too.
        self.agent = match self.given_up.is_empty() {
            true => AgentState::Live,
            false => AgentState::Draining(now + self.terms.drain),
        };
        self.release(now);
    }
}
