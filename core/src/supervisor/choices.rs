//! Mode, model and options of a session: those that its client shows, or those that hold in a fresh
//! agent.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::supervisor::texts;
use crate::upstream::rewrite::{elements, member, quoted, text_member, text_of};

/// A thing that can be chosen in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChoiceTopic {
    Mode,
    Model,
    /// A configuration option, by its id.
    Option(Box<str>),
}

impl ChoiceTopic {
    /// Method that chooses it, and the member of the params that has the value.
    const fn request(&self) -> (&'static str, &'static str) {
        match self {
            Self::Mode => ("session/set_mode", "modeId"),
            Self::Model => ("session/set_model", "modelId"),
            Self::Option(_) => ("session/set_config_option", "value"),
        }
    }
}

/// One thing that can be chosen, with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) topic: ChoiceTopic,
    /// JSON text; a string in its one spelling.
    pub(super) value: Box<str>,
    /// Params of the request of the client that chose it.
    params: Option<Box<str>>,
    /// Type of an option, as the agent declares it.
    kind: Option<Box<str>>,
    /// Whether the client or the agent chose it after the session was opened.
    pub(super) is_chosen: bool,
}

impl Choice {
    /// The choice of a request of the client.
    pub(super) fn of_request(method: &str, params: &str) -> Option<Self> {
        let topic = match method {
            "session/set_mode" => ChoiceTopic::Mode,
            "session/set_model" => ChoiceTopic::Model,
            "session/set_config_option" => ChoiceTopic::Option(text_member(params, "configId")?),
            _ => return None,
        };
        let value = member(params, topic.request().1)?;
        Some(Self { params: Some(params.into()), ..Self::told(topic, value, true) })
    }

    fn told(topic: ChoiceTopic, value: &str, is_chosen: bool) -> Self {
        let value = text_of(value).map_or_else(|| value.into(), |text| quoted(&text).into());
        Self { topic, value, params: None, kind: None, is_chosen }
    }

    /// One element of `configOptions`; nothing for an option without a value.
    fn of_option(option: &str) -> Option<Self> {
        let id = text_member(option, "id").or_else(|| text_member(option, "configId"))?;
        let value = member(option, "currentValue")?;
        let kind = text_member(option, "type");
        Some(Self { kind, ..Self::told(ChoiceTopic::Option(id), value, false) })
    }

    /// Method and params of the request that chooses it again.
    pub(super) fn request(&self, session: &str, version: u64) -> (&'static str, Box<str>) {
        let (method, name) = self.topic.request();
        if let Some(params) = &self.params {
            return (method, params.clone());
        }
        let (id, kind) = match (&self.topic, self.kind.as_deref()) {
            (ChoiceTopic::Mode | ChoiceTopic::Model, _) => (None, None),
            // Version 1 has no type beside the value of a list; version 2 has this one.
            (ChoiceTopic::Option(id), Some("select") | None) => {
                (Some(id), (version >= 2).then_some("id"))
            }
            (ChoiceTopic::Option(id), kind) => (Some(id), kind),
        };
        (method, texts::choosing(session, id.map(|id| &**id), kind, name, &self.value))
    }

    /// Its topic and value, for an error.
    pub(super) fn name(&self) -> String {
        match &self.topic {
            ChoiceTopic::Mode => alloc::format!("mode {}", self.value),
            ChoiceTopic::Model => alloc::format!("model {}", self.value),
            ChoiceTopic::Option(id) => alloc::format!("option {id:?} = {}", self.value),
        }
    }

    fn bytes(&self) -> usize {
        let id = match &self.topic {
            ChoiceTopic::Mode | ChoiceTopic::Model => 0,
            ChoiceTopic::Option(id) => id.len(),
        };
        let of = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + id + self.value.len() + of(&self.params) + of(&self.kind)
    }
}

/// The mode, model and options of one session, in the order of their latest change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choices {
    all: Vec<Choice>,
    /// Mode that the session began in.
    first_mode: Option<Box<str>>,
}

impl Choices {
    pub(super) fn bytes(&self) -> usize {
        self.all.iter().map(Choice::bytes).sum::<usize>()
            + self.first_mode.as_ref().map_or(0, |mode| mode.len())
    }

    /// The value of a topic.
    pub(super) fn value(&self, topic: &ChoiceTopic) -> Option<&str> {
        self.all.iter().find(|choice| choice.topic == *topic).map(|choice| &*choice.value)
    }

    /// Mode of a session whose agent has not been asked for another.
    pub(super) fn first_mode(&self) -> Option<&str> {
        self.first_mode.as_deref()
    }

    /// The session is new in its agent.
    pub(super) fn begin(&mut self) {
        self.first_mode = self.value(&ChoiceTopic::Mode).map(Into::into);
    }

    /// The choices that a fresh agent is asked for, in the order of their latest change: those that
    /// were made, and those that it tells otherwise. A made choice is asked for even if it holds: a
    /// mode can be an option as well, and one undoes the other.
    pub(super) fn missing_in<'a>(
        &'a self,
        found: &'a Self,
    ) -> impl DoubleEndedIterator<Item = &'a Choice> {
        let differs =
            |choice: &Choice| found.value(&choice.topic).is_some_and(|it| *it != *choice.value);
        self.all.iter().filter(move |choice| choice.is_chosen || differs(choice))
    }

    /// Whether options of the other differ from those here.
    pub(super) fn differs_in_options(&self, other: &Self) -> bool {
        let options = |of: &Self| -> Vec<Choice> {
            let is_option = |choice: &&Choice| matches!(choice.topic, ChoiceTopic::Option(_));
            of.all.iter().filter(is_option).cloned().collect()
        };
        let (here, there) = (options(self), options(other));
        let is_same = |choice: &Choice| other.value(&choice.topic) == Some(&choice.value);
        !here.is_empty() && (here.len() != there.len() || !here.iter().all(is_same))
    }

    pub(super) fn note(&mut self, choice: Choice) {
        if let Some(at) = self.all.iter().position(|known| known.topic == choice.topic) {
            if self.all[at].value == choice.value && choice.params.is_none() {
                return;
            }
            self.all.remove(at);
        }
        self.all.push(choice);
    }

    pub(super) fn forget(&mut self, topic: &ChoiceTopic) {
        self.all.retain(|choice| choice.topic != *topic);
    }

    /// The agent tells the mode, as a JSON text.
    pub(super) fn note_mode(&mut self, mode: &str) {
        self.note(Choice::told(ChoiceTopic::Mode, mode, true));
    }

    /// The agent tells all of its options. One that differs from before was chosen since.
    pub(super) fn note_options(&mut self, list: &str) {
        if !list.starts_with('[') {
            return;
        }
        let told: Vec<Choice> = elements(list).into_iter().filter_map(Choice::of_option).collect();
        self.all.retain(|known| match known.topic {
            ChoiceTopic::Mode | ChoiceTopic::Model => true,
            ChoiceTopic::Option(_) => told.iter().any(|choice| choice.topic == known.topic),
        });
        for choice in told {
            let is_chosen = self.value(&choice.topic).is_some();
            self.note(Choice { is_chosen, ..choice });
        }
    }

    /// Reads the result of a request that opens a session.
    pub(super) fn note_opened(&mut self, result: &str) {
        let inner = |of, name| member(result, of).and_then(|it| member(it, name));
        if let Some(mode) = inner("modes", "currentModeId") {
            self.forget(&ChoiceTopic::Mode);
            self.note(Choice::told(ChoiceTopic::Mode, mode, false));
        }
        if let Some(model) = inner("models", "currentModelId") {
            self.forget(&ChoiceTopic::Model);
            self.note(Choice::told(ChoiceTopic::Model, model, false));
        }
        if let Some(list) = member(result, "configOptions") {
            self.note_options(list);
        }
    }

    /// Whether a `session/update` of this kind tells choices.
    pub(super) fn are_told_by(kind: Option<&str>) -> bool {
        matches!(kind, Some("current_mode_update" | "config_option_update"))
    }

    /// Reads a `session/update` that tells choices.
    pub(super) fn note_update(&mut self, update: &str) {
        if let Some(mode) = member(update, "currentModeId") {
            self.note_mode(mode);
        }
        if let Some(list) = member(update, "configOptions") {
            self.note_options(list);
        }
    }
}
