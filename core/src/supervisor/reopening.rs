//! A session that is opened again in a fresh agent, with the mode, model and options that its client
//! shows.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::rpc::error::{ErrorObject, code};
use crate::supervisor::choices::{Choice, Choices, Topic};
use crate::supervisor::effect::Effect;
use crate::supervisor::held::Held;
use crate::supervisor::session::Session;
use crate::supervisor::supervision::{Preparation, Supervision};
use crate::supervisor::texts;
use crate::time::Instant;
use crate::upstream::rewrite::{member, text_member};

/// The course of one `session/resume` or `session/load`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reopening {
    pub(super) session: Box<str>,
    /// Whether the agent replays the history first.
    replays: bool,
    /// The choices that hold in the fresh agent, by its own word.
    found: Choices,
    /// `configOptions` as the fresh agent has told them last.
    options: Option<Box<str>>,
    /// The choice that the agent is asked for now; none before it has the session.
    asked: Option<Choice>,
    /// The choices that it is asked for next, the first at the end.
    left: Vec<Choice>,
    /// Refused choices, with the words of the agent.
    refused: Vec<(Choice, Box<str>)>,
}

impl Reopening {
    pub(super) fn new(session: &str, replays: bool) -> Self {
        Self {
            session: session.into(),
            replays,
            found: Choices::default(),
            options: None,
            asked: None,
            left: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Whether an update of the session is no news for the client: history, or a choice that may not
    /// last.
    pub(super) fn absorbs(&mut self, kind: Option<&str>, update: &str) -> bool {
        let tells_choice = Choices::are_told_by(kind);
        if tells_choice {
            self.found.note_update(update);
            self.note_options(update);
        }
        tells_choice || (self.replays && self.asked.is_none())
    }

    fn note_options(&mut self, of: &str) {
        if let Some(list) = member(of, "configOptions").filter(|list| list.starts_with('[')) {
            self.options = Some(list.into());
        }
    }

    /// The agent has the session.
    fn open(&mut self, result: &str, shown: &Choices) {
        self.found.note_opened(result);
        self.note_options(result);
        self.left = shown.missing_in(&self.found).rev().cloned().collect();
    }

    /// The agent answers the request for a choice.
    fn take_answer(&mut self, choice: Choice, outcome: Result<&str, &str>) {
        match outcome {
            Ok(result) => {
                self.found.note(choice);
                if let Some(list) = member(result, "configOptions") {
                    self.found.note_options(list);
                }
                self.note_options(result);
            }
            Err(error) => {
                let why = text_member(error, "message").unwrap_or_default();
                self.refused.push((choice, why));
            }
        }
    }

    /// Has the client show the choices that hold; what no update can tell is left for an error.
    fn tell(self, session: &mut Session, out: &mut Vec<Effect>) {
        let Self { session: id, found, options, refused, .. } = self;
        let shown = &mut session.choices;
        let mut untold = String::new();
        for (choice, why) in refused {
            let now = found.value(&choice.topic);
            let is_told = match choice.topic {
                Topic::Mode => now.or(shown.first_mode()).is_some(),
                Topic::Option(_) => options.is_some(),
                Topic::Model => false,
            };
            if now != Some(&choice.value) && choice.is_chosen && !is_told {
                shown.forget(&choice.topic);
                untold.push_str(&alloc::format!("; it refused {}: {why}", choice.name()));
            }
        }
        session.untold = (!untold.is_empty()).then(|| untold.into());
        if let Some(before) = shown.value(&Topic::Mode) {
            // A fresh agent that does not tell its mode, and takes no other, is in its first one.
            let now = found.value(&Topic::Mode).or(shown.first_mode());
            if let Some(now) = now.filter(|now| *now != before) {
                let now = String::from(now);
                out.push(Effect::ToClient(texts::mode_update(&id, &now)));
                shown.note_mode(&now);
            }
        }
        if let Some(list) = options.filter(|_| shown.differs_in_options(&found)) {
            out.push(Effect::ToClient(texts::options_update(&id, &list)));
            shown.note_options(&list);
        }
    }
}

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
        self.out.push(Effect::ToClient(texts::error(&id.token, &error)));
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
        self.out.push(Effect::ToClient(texts::error(&id.token, &error)));
    }
}
