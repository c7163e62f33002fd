//! Reload: what a SIGHUP replaces while the daemon runs, and what has to wait for a restart.

use std::sync::Arc;
use std::time::Duration;

use ceased_core::event::Event;
use ceased_core::settings::Settings;
use ceased_core::time::Now;
use ceased_transports::Address;

use super::Server;
use crate::access::Access;

/// Loads what is to hold from now on, for a reload.
pub(crate) type Reload = Box<dyn FnMut() -> Result<Reloaded, String> + Send>;

/// What a reload replaces.
pub(crate) struct Reloaded {
    pub(crate) settings: Arc<Settings>,
    /// Who may come in where. Listeners themselves come and go with the daemon.
    pub(crate) doors: Vec<(Address, Access)>,
    pub(crate) authenticate_within: Duration,
}

impl Server {
    /// What was read anew holds from now on.
    pub(super) fn take_over(&mut self, now: Now, reloaded: Reloaded) {
        let Reloaded { settings, doors, authenticate_within } = reloaded;
        tracing::info!(tools = settings.catalog.iter().count(), "reloaded");
        self.settings = Arc::clone(&settings);
        self.authenticate_within = authenticate_within;
        self.engine.handle(now, Event::Configured { settings }, &mut self.actions);
        for door in &mut self.listeners {
            match doors.iter().find(|(address, _)| *address == door.wanted) {
                Some((_, access)) => door.access = access.clone(),
                None => tracing::warn!(
                    address = %door.wanted,
                    "still listening here, as before the reload: a restart changes that"
                ),
            }
        }
        for (address, _) in &doors {
            if *address != Address::Stdio
                && !self.listeners.iter().any(|door| door.wanted == *address)
            {
                tracing::warn!(%address, "not listening here yet: a restart changes that");
            }
        }
        self.drop_revoked(now);
    }
}
