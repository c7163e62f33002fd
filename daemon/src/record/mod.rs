//! Recordings: everything an engine was handed and everything it did, so that it can be done again
//! and compared, byte for byte (DET-01).
//!
//! A recording holds all that peers and tools said. It is written with mode 0600 and is meant for
//! finding faults, not for keeping.

mod drawn;
mod format;
mod parts;
mod replay;
mod settings;
mod upstream;

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

use self::drawn::{Drawn, Listened, Watch, texts};
use self::format::{Happened, Line};
use self::settings::Recipe;

pub use self::replay::{ReplayError, Replayed, replay};

/// Creates the file of a recording; one that is there already is not touched.
///
/// # Errors
/// When it exists or cannot be created.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// An engine that may be recorded. Reads go to the engine itself; changes pass
/// [`Recorded::handle`] or [`Recorded::send_queue`], where the recording is written.
pub(crate) struct Recorded {
    engine: Engine,
    tape: Option<Box<Tape>>,
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
        mint: Box<dyn IdSource>,
        file: Option<File>,
    ) -> Self {
        let Some(file) = file else {
            return Self { engine: Engine::new(Arc::clone(settings), mint), tape: None };
        };
        let drawn = Drawn::default();
        let mint = Box::new(Listened { mint, drawn: drawn.clone() });
        let engine = Engine::new(Arc::clone(settings), mint);
        let mut tape =
            Tape { file: Some(BufWriter::new(file)), drawn, watch: Watch::default(), open: None };
        let settings = Box::new(Recipe::new(settings));
        let ids = tape.drawn.take();
        tape.write(&Line::Made { settings, ids });
        Self { engine, tape: Some(Box::new(tape)) }
    }

    /// See [`Engine::handle`].
    pub(crate) fn handle(&mut self, now: Now, event: Event<'_>, actions: &mut Vec<Action>) {
        match &mut self.tape {
            None => self.engine.handle(now, event, actions),
            Some(tape) => tape.handle(&mut self.engine, now, event, actions),
        }
    }

    /// See [`Engine::send_queue`].
    pub(crate) fn send_queue(&mut self, conn: ConnId) -> Option<&mut SendQueue> {
        if let Some(tape) = &mut self.tape {
            tape.settle(&mut self.engine);
            tape.open = Some(conn);
        }
        self.engine.send_queue(conn)
    }
}

/// A recording that is being written.
struct Tape {
    /// Gone once it could not be written to.
    file: Option<BufWriter<File>>,
    drawn: Drawn,
    watch: Watch,
    /// The send queue the host was given last.
    open: Option<ConnId>,
}

impl Tape {
    fn handle(
        &mut self,
        engine: &mut Engine,
        now: Now,
        event: Event<'_>,
        actions: &mut Vec<Action>,
    ) {
        self.settle(engine);
        self.watch.note(&event);
        let happened = Box::new(Happened::new(&event));
        let ends = matches!(event, Event::Turn);
        let before = actions.len();
        engine.handle(now, event, actions);
        let line = Line::Event {
            at: now.at.as_nanos(),
            wall: now.wall.as_millis(),
            event: happened,
            ids: self.drawn.take(),
            actions: texts(actions.get(before..).unwrap_or_default()),
            out: self.watch.fresh(engine),
        };
        self.write(&line);
        if ends && let Some(file) = &mut self.file {
            // A crash loses the turn it came in.
            let _ = file.flush();
        }
    }

    /// Notes the output that the host took from a send queue.
    fn settle(&mut self, engine: &mut Engine) {
        let Some(conn) = self.open.take() else { return };
        let Some(queue) = engine.send_queue(conn) else { return };
        let count = self.watch.note_taken(conn, queue.len());
        if count > 0 {
            self.write(&Line::Taken { conn: conn.get(), count });
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
