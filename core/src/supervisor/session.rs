//! Sessions of a client, and the data that reopens one in a fresh agent.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::supervisor::choices::Choices;

/// Sessions that are remembered at most; a session beyond is passed on, and lost with its agent.
const SESSIONS_MAX: usize = 1024;
/// Bytes of params that are remembered of a session at most.
const PARAMS_MAX: usize = 1024 * 1024;

/// Bytes of choices that are remembered of a session at most. An agent with a hundred options has a
/// tenth of it.
const CHOICES_MAX: usize = 64 * 1024;

/// One session of the client.
#[derive(Debug)]
pub(super) struct SupervisedSession {
    /// Params of the request that opened it.
    pub(super) params: Box<str>,
    /// Number of the agent process in which it is open.
    pub(super) opened_in: u64,
    /// Why it cannot be reopened.
    pub(super) lost: Option<Box<str>>,
    /// Mode, model and options that its client shows.
    pub(super) choices: Choices,
    /// Choices that a fresh agent has refused and no update can tell, for the next prompt.
    pub(super) untold: Option<Box<str>>,
    /// Whether its agent gave no end to a turn: nothing of it reaches the client any more.
    pub(super) is_muted: bool,
    /// Whether the agent reports foreground work (version 2).
    pub(super) is_running: bool,
    /// Background work that the agent has listed last, as JSON text (version 2).
    pub(super) background: Option<Box<str>>,
}

/// The sessions by their id.
#[derive(Debug, Default)]
pub(super) struct Sessions(BTreeMap<Box<str>, SupervisedSession>);

impl Sessions {
    /// Notes a session that was opened in an agent process.
    pub(super) fn open(&mut self, id: &str, params: &str, choices: Choices, process: u64) {
        let is_known = self.0.contains_key(id);
        if params.len() > PARAMS_MAX || (!is_known && self.0.len() >= SESSIONS_MAX) {
            return;
        }
        let session = SupervisedSession {
            params: params.into(),
            opened_in: process,
            lost: None,
            choices,
            untold: None,
            is_muted: false,
            is_running: self.0.get(id).is_some_and(|session| session.is_running),
            background: self.0.get(id).and_then(|session| session.background.clone()),
        };
        self.0.insert(id.into(), session);
        self.choose(id, |_| {});
    }

    /// Changes the choices of a session. One with too many cannot be reopened as its client shows it,
    /// and is lost with its agent.
    pub(super) fn choose(&mut self, id: &str, change: impl FnOnce(&mut Choices)) {
        let Some(session) = self.0.get_mut(id) else { return };
        change(&mut session.choices);
        let bytes = session.choices.bytes();
        if bytes > CHOICES_MAX {
            session.choices = Choices::default();
            let why = alloc::format!(
                "its mode, model and options took {bytes} bytes, of which {CHOICES_MAX} are kept"
            );
            session.lost = Some(why.into());
        }
    }

    pub(super) fn close(&mut self, id: &str) {
        self.0.remove(id);
    }

    pub(super) fn get(&self, id: &str) -> Option<&SupervisedSession> {
        self.0.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut SupervisedSession> {
        self.0.get_mut(id)
    }

    pub(super) fn is_muted(&self, id: Option<&str>) -> bool {
        id.and_then(|id| self.0.get(id)).is_some_and(|session| session.is_muted)
    }

    /// The agent process is gone, and nothing of it is under way any more.
    pub(super) fn agent_ended(&mut self) {
        for session in self.0.values_mut() {
            (session.is_muted, session.is_running) = (false, false);
        }
    }
}
