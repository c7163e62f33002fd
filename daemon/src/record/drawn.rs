//! Ids that an engine draws, and what it sends, as a recording has them.

use super::format::Bytes;
use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::Event;
use ceased_core::ids::{ConnId, IdSource};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// The ids a generator gave, and has not been asked about.
#[derive(Debug, Clone, Default)]
pub(super) struct Drawn(Arc<Mutex<VecDeque<Uuid>>>);

impl Drawn {
    pub(super) fn push(&self, id: Uuid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(id);
    }

    pub(super) fn pop(&self) -> Option<Uuid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    pub(super) fn take(&self) -> Vec<Uuid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

/// A generator whose ids are noted.
pub(super) struct Listened {
    pub(super) mint: Box<dyn IdSource>,
    pub(super) drawn: Drawn,
}

impl IdSource for Listened {
    fn uuid(&mut self) -> Uuid {
        let id = self.mint.uuid();
        self.drawn.push(id);
        id
    }
}

/// How much waits in every outbox, to tell what is new in it.
#[derive(Debug, Default)]
pub(super) struct Watch(pub(super) BTreeMap<ConnId, usize>);

impl Watch {
    pub(super) fn note(&mut self, event: &Event<'_>) {
        if let Event::Opened { conn, .. } = event {
            self.0.insert(*conn, 0);
        }
    }

    /// Bytes written since the last question.
    pub(super) fn fresh(&mut self, engine: &mut Engine) -> Vec<(u64, Bytes)> {
        let mut fresh = Vec::new();
        self.0.retain(|conn, known| {
            let Some(outbox) = engine.outbox(*conn) else { return false };
            let new = outbox.pending().get(*known..).unwrap_or_default();
            if !new.is_empty() {
                fresh.push((conn.get(), Bytes::new(new)));
            }
            *known = outbox.len();
            true
        });
        fresh
    }
}

pub(super) fn texts(actions: &[Action]) -> Vec<String> {
    actions.iter().map(|action| format!("{action:?}")).collect()
}
