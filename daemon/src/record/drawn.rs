//! Ids that an engine draws, and its output, in the form of a recording.

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

/// Frames and bytes of every send queue that are known.
#[derive(Debug, Default)]
pub(super) struct Watch(BTreeMap<ConnId, Seen>);

/// State of a send queue when it was looked at last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Frames written by then.
    pub(super) frames: u64,
    /// Bytes that waited.
    pub(super) waiting: usize,
}

impl Watch {
    pub(super) fn note(&mut self, event: &Event<'_>) {
        if let Event::Opened { conn, .. } | Event::OpenedAcp { conn, .. } = event {
            self.0.insert(*conn, Seen::default());
        }
    }

    /// Frames written since the last question.
    pub(super) fn fresh(&mut self, engine: &mut Engine) -> Vec<(u64, Bytes)> {
        let mut fresh = Vec::new();
        self.0.retain(|conn, seen| {
            let Some(queue) = engine.send_queue(*conn) else { return false };
            let mut new = Vec::new();
            for frame in queue.frames_from(seen.frames) {
                new.extend_from_slice(frame);
                new.push(b'\n');
            }
            if !new.is_empty() {
                fresh.push((conn.get(), Bytes::new(&new)));
            }
            *seen = Seen { frames: queue.frames_written(), waiting: queue.len() };
            true
        });
        fresh
    }

    /// Notes that bytes were taken from a queue; how many.
    pub(super) fn note_taken(&mut self, conn: ConnId, waiting: usize) -> usize {
        let Some(seen) = self.0.get_mut(&conn) else { return 0 };
        core::mem::replace(&mut seen.waiting, waiting).saturating_sub(waiting)
    }
}

pub(super) fn texts(actions: &[Action]) -> Vec<String> {
    actions.iter().map(|action| format!("{action:?}")).collect()
}
