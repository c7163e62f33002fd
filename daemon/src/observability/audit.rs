//! The audit log: every action on a task and its actor, and the outcome of every cancel (TSK-41,
//! CAN-12).
//!
//! Records are rendered by the thread that causes them. The loop passes those of a turn together
//! through a bounded queue to a writer thread, so a slow disk cannot block the loop. Records that
//! do not fit or cannot be written are dropped and counted; the log reports that, and the file as
//! soon as it is writable.

mod line;
mod proof;
mod queue;
mod record;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use ceased_core::time::Wall;

pub(crate) use proof::facts_of;
use queue::{Shared, TOGETHER_BYTES};
pub(crate) use record::{CancelRecord, Happening, call_told};
use writer::{Sink, Writer};

use crate::start_error::StartError;

/// The way to the audit log; without a file, records go nowhere.
pub(crate) struct Audit {
    /// Records not queued yet.
    fresh: Vec<u8>,
    /// Cache of the formatted time: many records share it.
    stamp: (Wall, String),
    shared: Arc<Shared>,
    /// The writer of the file; `None` without one.
    thread: Option<JoinHandle<()>>,
}

impl Audit {
    /// Starts writing to `path`; without one, nothing is recorded.
    ///
    /// # Errors
    /// If the file cannot be opened or is not a regular file, or the thread cannot be
    /// created.
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

    /// Buffers a record for the next [`Audit::hand_over`]; never blocks.
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

    /// Queues the buffered records; never blocks.
    pub(crate) fn hand_over(&mut self) {
        if !self.fresh.is_empty() {
            self.shared.push(&mut self.fresh);
        }
    }

    /// Frees the memory of a burst.
    pub(crate) fn trim(&mut self) {
        self.fresh.shrink_to_fit();
        self.shared.queue().waiting.lines.shrink_to_fit();
    }

    /// Reopens the file after the records so far; on failure the old file stays in use.
    pub(crate) fn reopen(&mut self) {
        if !self.is_on() {
            return;
        }
        self.hand_over();
        let mut queue = self.shared.queue();
        queue.waiting.reopen = Some(queue.waiting.lines.len());
        self.shared.wake(queue);
    }

    /// Number of records dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Audit {
    /// Writes the queued records.
    fn drop(&mut self) {
        self.hand_over();
        self.shared.queue().closed = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Checks that [`Audit::start`] would succeed with this path; changes nothing.
///
/// # Errors
/// Those of [`Audit::start`].
pub(crate) fn probe(path: &Path) -> Result<(), StartError> {
    writer::probe(path).map_err(|error| StartError::Audit { path: path.to_owned(), error })
}
