//! Start and restart of the agent: the handshake and the sessions of the client again.

use alloc::boxed::Box;

use crate::rpc::error::{ErrorObject, code};
use crate::supervisor::effect::Effect;
use crate::supervisor::held::Held;
use crate::supervisor::supervision::{Agent, Preparation, Supervision};
use crate::supervisor::terms::Terms;
use crate::supervisor::texts;
use crate::time::Instant;
use crate::upstream::rewrite::text_member;

impl Supervision {
    /// Has another process take the place of the agent. It finishes the turns that it has within
    /// `drain`; later requests wait for the other one, which the first of them starts.
    pub(super) fn restart(&mut self, now: Instant, terms: Terms) {
        self.terms = terms;
        match self.agent {
            Agent::Off | Agent::Ending => {}
            Agent::Starting | Agent::Preparing { .. } => {
                self.is_outdated = true;
                self.end(texts::OUTDATED);
            }
            Agent::Live => {
                self.is_outdated = true;
                self.agent = Agent::Draining(now + self.terms.drain);
            }
            // It ends anyway.
            Agent::Draining(_) => {}
        }
    }

    /// Has the host start the agent, unless one runs.
    pub(super) fn start(&mut self) {
        if self.agent == Agent::Off && !self.is_over {
            self.agent = Agent::Starting;
            self.process += 1;
            self.out.push(Effect::Start);
        }
    }

    /// The agent runs. A successor gets the handshake of the client first.
    pub(super) fn on_started(&mut self, now: Instant) {
        if self.agent != Agent::Starting {
            return;
        }
        // A client that begins anew does so itself.
        let greets = self.held.frames.front().is_some_and(|held| &*held.method == "initialize");
        match self.initialize.clone().filter(|_| !greets) {
            Some(params) => self.prepare(now, Preparation::Initialize, "initialize", &params),
            None => {
                self.agent = Agent::Live;
                self.release(now);
            }
        }
    }

    fn prepare(&mut self, now: Instant, step: Preparation, method: &str, params: &str) {
        let own = self.own_id();
        self.out.push(Effect::ToAgent(texts::request(&own.token, method, params)));
        self.start_by = Some(now + self.terms.start_timeout);
        self.agent = Agent::Preparing { own: own.id, step };
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
            (Preparation::Reopen { session, .. }, Ok(_)) => {
                let process = self.process;
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.opened_in = process;
                }
            }
            (Preparation::Reopen { session, .. }, Err(error)) => {
                let why = text_member(error, "message").unwrap_or_default();
                self.lose(&session, &alloc::format!("its successor answered: {why}"));
            }
        }
        // A turn that was given up meanwhile means the end of this agent, too.
        self.agent = match self.given_up.is_empty() {
            true => Agent::Live,
            false => Agent::Draining(now + self.terms.drain),
        };
        self.release(now);
    }

    /// Begins to reopen a session; false if it cannot be.
    pub(super) fn reopen(&mut self, now: Instant, session: &str) -> bool {
        let Some(known) = self.sessions.get(session) else { return false };
        if known.lost.is_some() {
            return false;
        }
        let params = texts::reopening(&known.params, session);
        let (method, replays) = match (self.abilities.resumes, self.abilities.loads) {
            (true, _) => ("session/resume", false),
            (false, true) => ("session/load", true),
            (false, false) => {
                let why = "it declares neither session/resume nor session/load";
                self.lose(session, why);
                return false;
            }
        };
        let step = Preparation::Reopen { session: session.into(), replays };
        self.prepare(now, step, method, &params);
        true
    }

    fn lose(&mut self, session: &str, why: &str) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.lost = Some(why.into());
        }
    }

    /// Tells the client that a session, with its conversation, is gone.
    pub(super) fn refuse_lost(&mut self, held: &Held, session: &str) {
        let Some(id) = &held.id else { return };
        let why: Option<Box<str>> = self.sessions.get(session).and_then(|it| it.lost.clone());
        let message = alloc::format!(
            "session {session:?} is lost: agent {:?} was started again, and {}; its conversation \
             cannot go on, open a new session",
            self.terms.name,
            why.as_deref().unwrap_or("it does not know the session"),
        );
        let error = ErrorObject::new(code::RESOURCE_NOT_FOUND, message);
        self.out.push(Effect::ToClient(texts::error(&id.token, &error)));
    }
}
