//! What the server does for itself and for the service manager.

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
    /// And has changed since that began, as somebody said.
    Stale,
}

/// What the server does for itself and for the service manager.
#[derive(Default)]
pub(crate) struct Upkeep {
    pub(crate) notifier: Notifier,
    pub(crate) watchdog: Option<Watchdog>,
    /// How long nobody may need the daemon before it ends; `None`: for ever.
    pub(crate) idle_exit: Option<Duration>,
    /// Since when nobody has needed it.
    pub(crate) idle_since: Option<Instant>,
    /// Gives memory back that is not needed at rest.
    pub(crate) release_memory: Option<fn()>,
    /// The most connections there were since that was called; `None`: it never was.
    pub(crate) crowd: Option<usize>,
    /// When the files are looked at that others may remove.
    pub(crate) check_files_at: Option<Instant>,
    /// A crowd has gone: when to look for what it left.
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
        [idle, watchdog, self.check_crowd_at, self.check_files_at].into_iter().flatten().min()
    }
}
