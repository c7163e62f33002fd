//! Replaying a recording with a fresh engine.

use std::fmt;
use std::io::{self, BufRead};
use std::sync::Arc;

use ceased_core::engine::Engine;
use ceased_core::ids::{ConnId, IdSource};
use ceased_core::time::{Instant, Now, Wall};
use uuid::Uuid;

use super::drawn::{Drawn, Watch, texts};
use super::format::Line;

/// Result of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Events handed in.
    pub events: u64,
    /// Bytes the engine wrote, all as they were recorded.
    pub bytes: u64,
}

/// Why a recording could not be replayed, or where it went another way.
#[derive(Debug)]
pub enum ReplayError {
    /// It cannot be read.
    Io(io::Error),
    /// A line is none of a recording, or stands where it cannot.
    Line {
        /// Which, from 1.
        number: usize,
        /// The mistake.
        why: String,
    },
    /// The engine did something else than it did then (DET-01).
    Differs {
        /// At which line, from 1.
        number: usize,
        /// The recorded actions.
        recorded: String,
        /// The action of the replay.
        came: String,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the recording cannot be read: {error}"),
            Self::Line { number, why } => write!(f, "line {number} of the recording: {why}"),
            Self::Differs { number, recorded, came } => {
                write!(
                    f,
                    "line {number} of the recording went another way\n  then {recorded}\n  now  {came}"
                )
            }
        }
    }
}

impl std::error::Error for ReplayError {}

/// The ids of the recording again.
struct Recalled(Drawn);

impl IdSource for Recalled {
    fn uuid(&mut self) -> Uuid {
        // A surplus action counts as a different one.
        self.0.pop().unwrap_or_default()
    }
}

struct Again {
    engine: Engine,
    ids: Drawn,
    watch: Watch,
    done: Replayed,
}

/// Hands every recorded event to a fresh engine and compares its actions with the recorded
/// ones. A last line without its end, as a crash leaves it, is passed over.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(recording: impl BufRead) -> Result<Replayed, ReplayError> {
    let mut again: Option<Again> = None;
    let mut lines = recording.split(b'\n').enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let (number, line) = (at + 1, line.map_err(ReplayError::Io)?);
        let bad = |why: String| ReplayError::Line { number, why };
        let line: Line = match serde_json::from_slice(&line) {
            Ok(line) => line,
            Err(error) if error.is_eof() && lines.peek().is_none() && number > 1 => break,
            Err(error) => return Err(bad(error.to_string())),
        };
        match (&mut again, line) {
            (None, Line::Made { settings, ids: drawn }) => {
                let ids = Drawn::default();
                drawn.into_iter().for_each(|id| ids.push(id));
                let settings = Arc::new(settings.get().map_err(bad)?);
                let engine = Engine::new(settings, Box::new(Recalled(ids.clone())));
                let (watch, done) = (Watch::default(), Replayed::default());
                again = Some(Again { engine, ids, watch, done });
            }
            (Some(again), Line::Taken { conn, count }) => again.take(conn, count).map_err(bad)?,
            (Some(again), line @ Line::Event { .. }) => again.event(number, &line)?,
            (Some(_), Line::Made { .. }) => return Err(bad("a second beginning".to_owned())),
            (None, Line::Taken { .. } | Line::Event { .. }) => {
                return Err(bad("the settings must come first".to_owned()));
            }
        }
    }
    let empty = || ReplayError::Line { number: 1, why: "there is nothing".to_owned() };
    again.map(|again| again.done).ok_or_else(empty)
}

impl Again {
    fn take(&mut self, conn: u64, count: usize) -> Result<(), String> {
        let conn = ConnId::new(conn);
        let queue = self.engine.send_queue(conn).ok_or_else(|| format!("{conn} is not open"))?;
        if count > queue.len() {
            return Err(format!("{count} bytes were taken of {}", queue.len()));
        }
        queue.advance(count);
        self.watch.note_taken(conn, queue.len());
        Ok(())
    }

    fn event(&mut self, number: usize, line: &Line) -> Result<(), ReplayError> {
        let Line::Event { at, wall, event, ids, actions, out } = line else { return Ok(()) };
        let event = event.get().map_err(|why| ReplayError::Line { number, why })?;
        ids.iter().for_each(|id| self.ids.push(*id));
        self.watch.note(&event);
        let now = Now { at: Instant::from_nanos(*at), wall: Wall::from_millis(*wall) };
        let mut came = Vec::new();
        self.engine.handle(now, event, &mut came);
        self.done.events += 1;
        let came = (texts(&came), self.watch.fresh(&mut self.engine), self.ids.take());
        let recorded = (actions, out, Vec::<Uuid>::new());
        if (&came.0, &came.1, &came.2) != (recorded.0, recorded.1, &recorded.2) {
            let (recorded, came) = (format!("{recorded:?}"), format!("{came:?}"));
            return Err(ReplayError::Differs { number, recorded, came });
        }
        let bytes = out.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        self.done.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        Ok(())
    }
}
