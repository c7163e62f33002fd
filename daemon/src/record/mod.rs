//! Recordings: everything an engine was handed and everything it did, so that it can be done again
//! and compared, byte for byte (DET-01).
//!
//! A recording holds all that peers and tools said. It is written with mode 0600 and is meant for
//! finding faults, not for keeping.

mod replay;
mod watch;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::Event;
use ceased_core::ids::{ConnId, IdSource};
use ceased_core::rpc::send_queue::SendQueue;
use ceased_core::settings::Settings;
use ceased_core::time::Now;
use ceased_core::trace::{Input, Line, Step};

use self::watch::{QueueWatch, RecordedIds, TakenIds, texts};

pub use self::replay::{ReplayError, Replayed, replay};

/// Creates the file of a recording; one that is there already is not touched.
///
/// # Errors
/// When it exists or cannot be created.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// An engine that may be recorded. Reads go to the engine itself; changes pass
/// [`Recorded::handle`] or [`Recorded::send_queue`], where the trace is written.
pub(crate) struct Recorded {
    engine: Engine,
    recorder: Option<Box<Recorder>>,
}

impl Deref for Recorded {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Recorded {
    pub(crate) fn new(
        settings: &Arc<Settings>,
        source: Box<dyn IdSource>,
        file: Option<File>,
    ) -> Self {
        let Some(file) = file else {
            return Self { engine: Engine::new(Arc::clone(settings), source), recorder: None };
        };
        let ids = TakenIds::default();
        let source = Box::new(RecordedIds { source, taken: ids.clone() });
        let engine = Engine::new(Arc::clone(settings), source);
        let file = Some(BufWriter::new(file));
        let mut recorder =
            Recorder { file, ids, watch: QueueWatch::default(), lent: None, now: Now::default() };
        let ids = recorder.ids.take();
        recorder.write(&Line::Engine { settings: Arc::clone(settings), ids });
        Self { engine, recorder: Some(Box::new(recorder)) }
    }

    /// See [`Engine::handle`].
    pub(crate) fn handle(&mut self, now: Now, event: Event<'_>, actions: &mut Vec<Action>) {
        match &mut self.recorder {
            None => self.engine.handle(now, event, actions),
            Some(recorder) => recorder.handle(&mut self.engine, now, event, actions),
        }
    }

    /// See [`Engine::send_queue`].
    pub(crate) fn send_queue(&mut self, conn: ConnId) -> Option<&mut SendQueue> {
        if let Some(recorder) = &mut self.recorder {
            recorder.note_taken(&mut self.engine);
            recorder.lent = Some(conn);
        }
        self.engine.send_queue(conn)
    }
}

/// Writer of a trace.
struct Recorder {
    /// `None` once a write has failed.
    file: Option<BufWriter<File>>,
    ids: TakenIds,
    watch: QueueWatch,
    /// Connection whose send queue the host has.
    lent: Option<ConnId>,
    /// Time of the last event.
    now: Now,
}

impl Recorder {
    fn handle(
        &mut self,
        engine: &mut Engine,
        now: Now,
        event: Event<'_>,
        actions: &mut Vec<Action>,
    ) {
        self.note_taken(engine);
        self.now = now;
        self.watch.note(&event);
        let input = Input::new(&event);
        let ends_turn = matches!(event, Event::Turn);
        let before = actions.len();
        engine.handle(now, event, actions);
        let step = Step {
            now,
            input,
            ids: self.ids.take(),
            actions: texts(actions.get(before..).unwrap_or_default()),
            written: self.watch.written(engine),
        };
        self.write(&Line::Step(Box::new(step)));
        if ends_turn && let Some(file) = &mut self.file {
            // A crash loses the turn in which it happens.
            let _ = file.flush();
        }
    }

    /// Records the bytes that the host took from the send queue that it has.
    fn note_taken(&mut self, engine: &mut Engine) {
        let Some(conn) = self.lent.take() else { return };
        let Some(queue) = engine.send_queue(conn) else { return };
        let count = self.watch.note_taken(conn, queue.len());
        if count > 0 {
            self.write(&Line::Step(Box::new(Step::new(self.now, Input::Taken(conn, count)))));
        }
    }

    fn write(&mut self, line: &Line) {
        let Some(file) = &mut self.file else { return };
        let written = serde_json::to_writer(&mut *file, line)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(b"\n"));
        if let Err(error) = written {
            tracing::error!(%error, "the recording ends here: it cannot be written");
            self.file = None;
        }
    }
}
