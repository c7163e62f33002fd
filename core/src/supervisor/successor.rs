//! Sessions of a client in the successor of its agent: reopened one after the other, or lost.

use alloc::boxed::Box;

use crate::rpc::error::{ErrorObject, code};
use crate::supervisor::effect::SupervisionEffect;
use crate::supervisor::held::Held;
use crate::supervisor::reopening::Reopening;
use crate::supervisor::supervision::{Preparation, Supervision};
use crate::supervisor::texts;
use crate::time::Instant;
use crate::upstream::rewrite::text_member;

impl Supervision {
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
        let step = Preparation::Reopen(Box::new(Reopening::new(session, replays)));
        self.prepare(now, step, method, &params);
        true
    }

    /// The agent answers a request of a reopening; true if another one was sent.
    pub(super) fn on_reopened(
        &mut self,
        now: Instant,
        mut reopening: Box<Reopening>,
        outcome: Result<&str, &str>,
    ) -> bool {
        let version = self.abilities.version;
        let Some(session) = self.sessions.get_mut(&reopening.session) else { return false };
        match (reopening.asked.take(), outcome) {
            (Some(choice), outcome) => reopening.take_answer(choice, outcome),
            (None, Ok(result)) => reopening.open(result, &session.choices),
            (None, Err(error)) => {
                let why = text_member(error, "message").unwrap_or_default();
                self.lose(&reopening.session, &alloc::format!("its successor answered: {why}"));
                return false;
            }
        }
        // A turn that was given up meanwhile means the end of this agent, too: the next one gets the
        // choices.
        if !self.given_up.is_empty() {
            return false;
        }
        if let Some(choice) = reopening.left.pop() {
            let (method, params) = choice.request(&reopening.session, version);
            reopening.asked = Some(choice);
            self.prepare(now, Preparation::Reopen(reopening), method, &params);
            return true;
        }
        session.opened_in = self.process;
        reopening.tell(session, &mut self.out);
        false
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
        self.out.push(SupervisionEffect::ToClient(texts::error(&id.token, &error)));
    }

    /// Answers a prompt, in place of a turn, with the choices that the agent has refused. The next
    /// prompt passes.
    pub(super) fn refuse_untold(&mut self, held: &Held, session: &str) {
        let (Some(id), Some(known)) = (&held.id, self.sessions.get_mut(session)) else { return };
        let Some(untold) = known.untold.take() else { return };
        let message = alloc::format!(
            "the prompt was not sent: agent {:?} was started again in session {session:?}{untold}; \
             choose again, or send the prompt again to go on without",
            self.terms.name,
        );
        let error = ErrorObject::new(code::INTERNAL_ERROR, message);
        self.out.push(SupervisionEffect::ToClient(texts::error(&id.token, &error)));
    }
}
