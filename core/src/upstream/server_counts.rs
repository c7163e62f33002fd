//! Counts of one server, for views and metrics.

use alloc::boxed::Box;

/// Events of one server since the daemon started; a reload keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ServerCounts {
    /// Instances that were started.
    pub(crate) starts: u64,
    /// Of those, instances that took the place of one that died, was replaced or restarted.
    pub(crate) restarts: u64,
    /// Instances that died by themselves.
    pub(crate) deaths: u64,
    /// Instances that were replaced because they ignored a cancel (UPS-06).
    pub(crate) replaced: u64,
    /// Processes that cancelled requests left and that were ended (UPS-05).
    pub(crate) strays_ended: u64,
    /// Requests that were sent.
    pub(crate) calls: u64,
    /// How the latest instance that died did so.
    pub(crate) last_error: Option<Box<str>>,
    /// Instances whose places are empty.
    vacant: u64,
}

impl ServerCounts {
    /// An instance starts.
    pub(crate) const fn note_start(&mut self) {
        self.starts += 1;
        if self.vacant > 0 {
            self.vacant -= 1;
            self.restarts += 1;
        }
    }

    /// An instance has died by itself.
    pub(crate) fn note_death(&mut self, how: &str) {
        self.deaths += 1;
        self.vacant += 1;
        self.last_error = Some(how.into());
    }

    /// An instance ignored a cancel.
    pub(crate) const fn note_replacement(&mut self) {
        self.replaced += 1;
        self.vacant += 1;
    }

    /// An operator restarts an instance.
    pub(crate) const fn note_restart(&mut self) {
        self.vacant += 1;
    }
}
