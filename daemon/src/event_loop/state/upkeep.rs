//! Maintenance: reload, idle exit, watchdog.

use super::reload::{Read, Reloads};

use crate::service_manager::{Notifier, Watchdog};
use ceased_core::time::Instant;
use std::time::Duration;

/// Whether it is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reading {
    #[default]
    No,
    Yes,
    /// And a further reload was requested since that began.
    Stale,
}

/// State of maintenance: reload, idle exit, watchdog.
#[derive(Default)]
pub(crate) struct Upkeep {
    pub(crate) notifier: Notifier,
    pub(crate) watchdog: Option<Watchdog>,
    /// Time without use after which the daemon ends; `None`: never.
    pub(crate) idle_exit: Option<Duration>,
    /// How long the running work may go on once no further work is taken.
    pub(crate) drain: Duration,
    /// No further work is taken, and the daemon ends by then.
    pub(crate) retires_until: Option<Instant>,
    /// End of the membership in a fleet.
    pub(crate) lease: Option<std::time::Instant>,
    /// Start of the time without use.
    pub(crate) idle_since: Option<Instant>,
    /// Gives memory back that is not needed at rest.
    pub(crate) release_memory: Option<fn()>,
    /// The most connections there were since that was called; `None`: it never was.
    pub(crate) crowd: Option<usize>,
    /// When the files are looked at that others may remove.
    pub(crate) check_files_at: Option<Instant>,
    /// Many connections have closed: time of the next release of memory.
    pub(crate) check_crowd_at: Option<Instant>,
    pub(crate) reading: Reading,
    /// Reloads that are over, and why the latest one changed nothing.
    pub(crate) reloads: Reloads,
    /// The configuration that was read and applies from the next turn on.
    pub(crate) read: Option<Read>,
}

impl Upkeep {
    /// When to call [`Server::run_idle_checks`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let idle = self.idle_since.zip(self.idle_exit).map(|(since, exit)| since + exit);
        let watchdog = self.watchdog.as_ref().and_then(Watchdog::deadline);
        let own = [idle, watchdog, self.check_crowd_at, self.check_files_at, self.retires_until];
        own.into_iter().flatten().min()
    }
}
