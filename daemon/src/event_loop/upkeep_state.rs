//! What the server does for itself and for the service manager.

use super::reload::{Read, Reloads};

use crate::service_manager::{Notifier, Watchdog};
use ceased_core::time::Instant;
use std::time::Duration;

/// Whether it is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Reading {
    #[default]
    No,
    Yes,
    /// And has changed since that began, as somebody said.
    Stale,
}

/// What the server does for itself and for the service manager.
#[derive(Default)]
pub(super) struct Upkeep {
    pub(super) notifier: Notifier,
    pub(super) watchdog: Option<Watchdog>,
    /// How long nobody may need the daemon before it ends; `None`: for ever.
    pub(super) idle_exit: Option<Duration>,
    /// Since when nobody has needed it.
    pub(super) idle_since: Option<Instant>,
    /// Gives memory back that is not needed at rest.
    pub(super) release_memory: Option<fn()>,
    /// The most connections there were since that was called; `None`: it never was.
    pub(super) crowd: Option<usize>,
    /// When the files are looked at that others may remove.
    pub(super) look_at_files: Option<Instant>,
    /// A crowd has gone: when to look for what it left.
    pub(super) look_at: Option<Instant>,
    pub(super) reading: Reading,
    /// Reloads that are over, and why the latest one changed nothing.
    pub(super) reloads: Reloads,
    /// The configuration that was read and applies from the next turn on.
    pub(super) read: Option<Read>,
}

impl Upkeep {
    /// When to call [`Server::run_idle_checks`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        let idle = self.idle_since.zip(self.idle_exit).map(|(since, exit)| since + exit);
        let watchdog = self.watchdog.as_ref().and_then(Watchdog::deadline);
        [idle, watchdog, self.look_at, self.look_at_files].into_iter().flatten().min()
    }
}
