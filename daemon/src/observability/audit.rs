//! The audit log: who did what to which task, and what became of every cancel (TSK-41, CAN-12).
//!
//! Records are put into words where they happen, and go through a bounded queue, those of a turn of
//! the loop together, to a thread of their own that writes them, so that no disk can hold the loop
//! up. What does not fit, or cannot be written, is dropped, counted, and said: in the log, and in
//! the file itself as soon as it can be written to again.

mod line;
mod queue;
mod record;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use ceased_core::time::Wall;

use queue::{Shared, TOGETHER_BYTES};
pub(crate) use record::{CancelRecord, Happening};
use writer::{Sink, Writer};

use crate::start_error::StartError;

/// The way to the audit log; without a file, records go nowhere.
pub(crate) struct Audit {
    /// Records that were not handed over.
    fresh: Vec<u8>,
    /// A moment and how it is written: many records have the same.
    stamp: (Wall, String),
    shared: Arc<Shared>,
    /// The writer of the file; `None` without one.
    thread: Option<JoinHandle<()>>,
}

impl Audit {
    /// Starts writing to `path`; without one, nothing is recorded.
    ///
    /// # Errors
    /// When the file cannot be opened, is no regular file, or there is no thread for it.
    pub(crate) fn start(path: Option<PathBuf>) -> Result<Self, StartError> {
        let shared = Arc::new(Shared::default());
        let thread = match path.map(Sink::file).transpose()? {
            Some(sink) => {
                let writer = Writer::new(sink, Arc::clone(&shared));
                let name = "ceased-audit".into();
                Some(thread::Builder::new().name(name).spawn(move || writer.run())?)
            }
            None => None,
        };
        let first = Wall::from_millis(0);
        let (fresh, stamp) = (Vec::new(), (first, first.to_iso8601()));
        Ok(Self { fresh, stamp, shared, thread })
    }

    /// Whether records go anywhere.
    const fn is_on(&self) -> bool {
        self.thread.is_some()
    }

    /// Takes a record for the next [`Audit::hand_over`]; never waits.
    pub(crate) fn record(&mut self, time: Wall, happening: &Happening) {
        if !self.is_on() {
            return;
        }
        if self.stamp.0 != time {
            self.stamp = (time, time.to_iso8601());
        }
        happening.write(&mut self.fresh, &self.stamp.1);
        if self.fresh.len() >= TOGETHER_BYTES {
            self.hand_over();
        }
    }

    /// Hands over what was recorded; never waits.
    pub(crate) fn hand_over(&mut self) {
        if !self.fresh.is_empty() {
            self.shared.push(&mut self.fresh);
        }
    }

    /// Gives back the room that a burst took.
    pub(crate) fn trim(&mut self) {
        self.fresh.shrink_to_fit();
        self.shared.queue().waiting.lines.shrink_to_fit();
    }

    /// Opens the file again, behind what was recorded so far; the old one stays in use if that
    /// fails.
    pub(crate) fn reopen(&mut self) {
        if !self.is_on() {
            return;
        }
        self.hand_over();
        let mut queue = self.shared.queue();
        queue.waiting.reopen = Some(queue.waiting.lines.len());
        self.shared.wake(queue);
    }

    /// Records that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Audit {
    /// Writes what waits.
    fn drop(&mut self) {
        self.hand_over();
        self.shared.queue().closed = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether [`Audit::start`] would find nothing wrong with this path; makes and changes nothing.
///
/// # Errors
/// As there.
pub(crate) fn probe(path: &Path) -> Result<(), StartError> {
    writer::probe(path).map_err(|error| StartError::Audit { path: path.to_owned(), error })
}
