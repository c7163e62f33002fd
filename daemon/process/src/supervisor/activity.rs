//! Whether processes of jobs may be alive, as other threads may ask.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The launches that have not ended, and the orphans beside them.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    launches: AtomicUsize,
    has_strangers: AtomicBool,
}

impl Activity {
    /// A launch is about to be ordered.
    pub(crate) fn note_launch(&self) {
        self.launches.fetch_add(1, Ordering::SeqCst);
    }

    /// A launch has ended. Note the orphans that it has left before.
    pub(crate) fn note_end(&self) {
        self.launches.fetch_sub(1, Ordering::SeqCst);
    }

    /// Notes whether there are processes whose job is unknown or has ended.
    pub(crate) fn note_strangers(&self, are_there: bool) {
        self.has_strangers.store(are_there, Ordering::SeqCst);
    }

    /// Whether a process that a job has started may be alive.
    pub(crate) fn has_processes(&self) -> bool {
        self.launches.load(Ordering::SeqCst) > 0 || self.has_strangers.load(Ordering::SeqCst)
    }
}
