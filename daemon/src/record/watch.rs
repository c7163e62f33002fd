//! Observation of an engine: the ids that it takes, and the frames that it writes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::Event;
use ceased_core::ids::{ConnId, IdSource};
use ceased_core::trace::Written;
use ceased_core::upstream::interface::UpstreamEvent;
use uuid::Uuid;

/// Ids that an engine has taken, or is to take; shared with its source of ids.
#[derive(Debug, Clone, Default)]
pub(super) struct TakenIds(Arc<Mutex<VecDeque<Uuid>>>);

impl TakenIds {
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

/// A source of ids that notes each of them.
pub(super) struct RecordedIds {
    pub(super) source: Box<dyn IdSource>,
    pub(super) taken: TakenIds,
}

impl IdSource for RecordedIds {
    fn uuid(&mut self) -> Uuid {
        let id = self.source.uuid();
        self.taken.push(id);
        id
    }
}

/// Frames and bytes of every send queue that are known.
#[derive(Debug, Default)]
pub(super) struct QueueWatch(BTreeMap<ConnId, Seen>);

/// State of a send queue at the last look.
#[derive(Debug, Default)]
struct Seen {
    /// Frames written by then.
    frames: u64,
    /// Unsent bytes.
    unsent: usize,
}

impl QueueWatch {
    /// Follows the connection that an event opens.
    pub(super) fn note(&mut self, event: &Event<'_>) {
        if let Event::Opened { conn, .. }
        | Event::OpenedAcp { conn, .. }
        | Event::Upstream(UpstreamEvent::Started { conn, .. }) = event
        {
            self.0.insert(*conn, Seen::default());
        }
    }

    /// Frames written since the last look.
    pub(super) fn written(&mut self, engine: &mut Engine) -> Vec<Written> {
        let mut written = Vec::new();
        self.0.retain(|conn, seen| {
            let Some(queue) = engine.send_queue(*conn) else { return false };
            let mut bytes = Vec::new();
            for frame in queue.frames_from(seen.frames) {
                bytes.extend_from_slice(frame);
                bytes.push(b'\n');
            }
            if !bytes.is_empty() {
                written.push(Written { conn: *conn, bytes });
            }
            *seen = Seen { frames: queue.frames_written(), unsent: queue.len() };
            true
        });
        written
    }

    /// Bytes taken from a queue since the last look, of which `unsent` are left.
    pub(super) fn note_taken(&mut self, conn: ConnId, unsent: usize) -> usize {
        let Some(seen) = self.0.get_mut(&conn) else { return 0 };
        core::mem::replace(&mut seen.unsent, unsent).saturating_sub(unsent)
    }
}

pub(super) fn texts(actions: &[Action]) -> Vec<String> {
    actions.iter().map(|action| format!("{action:?}")).collect()
}
