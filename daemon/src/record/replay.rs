//! Replaying a recording with a fresh engine.

use std::fmt;
use std::io::{self, BufRead};
use std::sync::Arc;

use ceased_core::engine::Engine;
use ceased_core::ids::{ConnId, IdSource};
use ceased_core::settings::Settings;
use ceased_core::tool::{ArgumentCheck, Tool};
use ceased_core::trace::{Input, Line, Step, restore_checks};
use uuid::Uuid;

use super::watch::{QueueWatch, TakenIds, texts};
use crate::tools::arguments::Arguments;
use crate::tools::catalog;

/// Result of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Events handed in.
    pub events: u64,
    /// Bytes the engine wrote, all as they were recorded.
    pub bytes: u64,
}

/// Why a recording could not be replayed, or the difference of its replay.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// It cannot be read.
    Io(io::Error),
    /// A line that is not part of the format, or not at this place.
    Line {
        /// Number of the line, from 1.
        number: usize,
        /// The mistake.
        why: String,
    },
    /// The engine acted in another way than recorded (DET-01).
    Differs {
        /// Number of the line, from 1.
        number: usize,
        /// Recorded actions, frames and remaining ids.
        recorded: String,
        /// Those of the replay.
        replayed: String,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the recording cannot be read: {error}"),
            Self::Line { number, why } => write!(f, "line {number} of the recording: {why}"),
            Self::Differs { number, recorded, replayed } => {
                write!(
                    f,
                    "the replay differs at line {number}\n  recorded {recorded}\n  replayed {replayed}"
                )
            }
        }
    }
}

impl std::error::Error for ReplayError {}

/// A source of the recorded ids.
struct ReplayedIds(TakenIds);

impl IdSource for ReplayedIds {
    fn uuid(&mut self) -> Uuid {
        // An id beyond the recorded ones shows as a difference.
        self.0.pop().unwrap_or_default()
    }
}

struct Replay {
    engine: Engine,
    ids: TakenIds,
    watch: QueueWatch,
    done: Replayed,
}

/// Hands every recorded input to a fresh engine and compares its actions and frames with the
/// recorded ones. A last line without its end, as a crash leaves it, is ignored.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(recording: impl BufRead) -> Result<Replayed, ReplayError> {
    let mut replay: Option<Replay> = None;
    let mut lines = recording.split(b'\n').enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let (number, line) = (at + 1, line.map_err(ReplayError::Io)?);
        let bad = |why: String| ReplayError::Line { number, why };
        let line: Line = match serde_json::from_slice(&line) {
            Ok(line) => line,
            Err(error) if error.is_eof() && lines.peek().is_none() && number > 1 => break,
            Err(error) => return Err(bad(error.to_string())),
        };
        match (&mut replay, line) {
            (None, Line::Engine { settings, ids }) => {
                replay = Some(Replay::new(settings, ids).map_err(bad)?);
            }
            (Some(replay), Line::Step(step)) => replay.step(number, *step)?,
            (Some(_), Line::Engine { .. }) => {
                return Err(bad("a recording has one engine".to_owned()));
            }
            (None, Line::Step(_)) => {
                return Err(bad("the settings must come first".to_owned()));
            }
        }
    }
    let empty = || ReplayError::Line { number: 1, why: "the recording is empty".to_owned() };
    replay.map(|replay| replay.done).ok_or_else(empty)
}

/// The settings with the checks of their tools, by their schemas.
fn with_checks(mut settings: Arc<Settings>) -> Result<Arc<Settings>, String> {
    let mut check = |tool: &Tool| -> Result<Box<dyn ArgumentCheck>, String> {
        let arguments = Arguments::new(&tool.input_schema).map_err(|why| why.to_string())?;
        Ok(catalog::by_schema(arguments))
    };
    restore_checks(Arc::make_mut(&mut settings), &mut check)?;
    Ok(settings)
}

impl Replay {
    fn new(settings: Arc<Settings>, recorded: Vec<Uuid>) -> Result<Self, String> {
        let ids = TakenIds::default();
        recorded.into_iter().for_each(|id| ids.push(id));
        let engine = Engine::new(with_checks(settings)?, Box::new(ReplayedIds(ids.clone())));
        Ok(Self { engine, ids, watch: QueueWatch::default(), done: Replayed::default() })
    }

    fn step(&mut self, number: usize, step: Step) -> Result<(), ReplayError> {
        let bad = |why| ReplayError::Line { number, why };
        let Step { now, input, ids, actions, written } = step;
        if let Input::Taken(conn, count) = input {
            return self.take(conn, count).map_err(bad);
        }
        let input = if let Input::Configured(settings) = input {
            Input::Configured(with_checks(settings).map_err(bad)?)
        } else {
            input
        };
        let Some(event) = input.event() else { return Ok(()) };
        ids.iter().for_each(|id| self.ids.push(*id));
        self.watch.note(&event);
        let mut replayed = Vec::new();
        self.engine.handle(now, event, &mut replayed);
        self.done.events += 1;
        let replayed = (texts(&replayed), self.watch.written(&mut self.engine), self.ids.take());
        let recorded = (actions, written, Vec::new());
        if replayed != recorded {
            let (recorded, replayed) = (format!("{recorded:?}"), format!("{replayed:?}"));
            return Err(ReplayError::Differs { number, recorded, replayed });
        }
        let bytes = recorded.1.iter().map(|written| written.bytes.len()).sum::<usize>();
        self.done.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        Ok(())
    }

    fn take(&mut self, conn: ConnId, count: usize) -> Result<(), String> {
        let queue = self.engine.send_queue(conn).ok_or_else(|| format!("{conn} is not open"))?;
        if count > queue.len() {
            return Err(format!("{count} bytes were taken of {}", queue.len()));
        }
        queue.advance(count);
        self.watch.note_taken(conn, queue.len());
        Ok(())
    }
}
