//! A session that is opened again in a fresh agent, with the mode, model and options that its client
//! shows.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::supervisor::choices::{Choice, ChoiceTopic, Choices};
use crate::supervisor::effect::SupervisionEffect;
use crate::supervisor::session::SupervisedSession;
use crate::supervisor::texts;
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
    pub(super) asked: Option<Choice>,
    /// The choices that it is asked for next, the first at the end.
    pub(super) left: Vec<Choice>,
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
    pub(super) fn open(&mut self, result: &str, shown: &Choices) {
        self.found.note_opened(result);
        self.note_options(result);
        self.left = shown.missing_in(&self.found).rev().cloned().collect();
    }

    /// The agent answers the request for a choice.
    pub(super) fn take_answer(&mut self, choice: Choice, outcome: Result<&str, &str>) {
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

    /// Has the client show the choices that hold; an error tells those that no update can tell.
    pub(super) fn tell(self, session: &mut SupervisedSession, out: &mut Vec<SupervisionEffect>) {
        let Self { session: id, found, options, refused, .. } = self;
        let shown = &mut session.choices;
        let mut untold = String::new();
        for (choice, why) in refused {
            let now = found.value(&choice.topic);
            let is_told = match choice.topic {
                ChoiceTopic::Mode => now.or(shown.first_mode()).is_some(),
                ChoiceTopic::Option(_) => options.is_some(),
                ChoiceTopic::Model => false,
            };
            if now != Some(&choice.value) && choice.is_chosen && !is_told {
                shown.forget(&choice.topic);
                untold.push_str(&alloc::format!("; it refused {}: {why}", choice.name()));
            }
        }
        session.untold = (!untold.is_empty()).then(|| untold.into());
        if let Some(before) = shown.value(&ChoiceTopic::Mode) {
            // A fresh agent that does not tell its mode, and takes no other, is in its first one.
            let now = found.value(&ChoiceTopic::Mode).or(shown.first_mode());
            if let Some(now) = now.filter(|now| *now != before) {
                let now = String::from(now);
                out.push(SupervisionEffect::ToClient(texts::mode_update(&id, &now)));
                shown.note_mode(&now);
            }
        }
        if let Some(list) = options.filter(|_| shown.differs_in_options(&found)) {
            out.push(SupervisionEffect::ToClient(texts::options_update(&id, &list)));
            shown.note_options(&list);
        }
    }
}
