//! Reload of the configuration: reads it on a thread of its own, then applies all of it or nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use ceased_core::event::Event;
use ceased_core::settings::Settings;
use ceased_core::time::Now;
use ceased_process::daemon_support::block_signals;

use super::mailbox::{OfferChange, Report};
use super::server::Server;
use super::state::reload::{Read, Reloaded, Reloads};
use super::state::shutdown::Stopping;
use super::state::upkeep::Reading;

impl Server {
    pub(super) const fn reloads(&self) -> &Reloads {
        &self.upkeep.reloads
    }

    /// SIGHUP: the new configuration holds as a whole as soon as it is read, or not at all.
    pub(super) fn reload(&mut self) {
        let Some((_, Some(reload))) = &self.signals else {
            let why = "this daemon was started without a configuration to read";
            tracing::warn!("not reloaded: {why}");
            self.upkeep.reloads.note(Err(why.to_owned()));
            return;
        };
        if self.upkeep.reading != Reading::No {
            self.upkeep.reading = Reading::Stale;
            return;
        }
        self.upkeep.notifier.reloading();
        let (reload, reports) = (Arc::clone(reload), self.reports.clone());
        let read = move || {
            block_signals();
            let read = catch_unwind(AssertUnwindSafe(|| reload().map(Box::new)));
            let read =
                read.unwrap_or_else(|_| Err("reading the configuration panicked".to_owned()));
            reports.send(Report::Reloaded(Read(read)));
        };
        match thread::Builder::new().name("ceased-reload".into()).spawn(read) {
            Ok(_) => self.upkeep.reading = Reading::Yes,
            Err(why) => {
                tracing::error!(%why, "not reloaded: the configuration is as it was");
                self.upkeep.reloads.note(Err(why.to_string()));
                self.now_ready();
            }
        }
    }

    /// Stores the configuration that was read. It applies from the next turn on: answers of this
    /// turn are sent before a revoked token closes its connection.
    pub(super) fn has_read(&mut self, read: Read) {
        self.upkeep.read = Some(read);
        self.signalled = true;
    }

    /// Applies the configuration that was read.
    pub(super) fn take_read(&mut self, now: Now) {
        let Some(Read(read)) = self.upkeep.read.take() else { return };
        let reading = std::mem::take(&mut self.upkeep.reading);
        if self.stopping != Stopping::No {
            return;
        }
        if reading == Reading::Stale {
            return self.reload();
        }
        let outcome = read.and_then(|reloaded| self.apply(now, *reloaded));
        if let Err(why) = &outcome {
            tracing::error!(%why, "not reloaded: the configuration is as it was");
        }
        self.upkeep.reloads.note(outcome);
        self.now_ready();
    }

    /// Changes one offer, and tells the clients that its list is another now.
    pub(super) fn change_offers(&mut self, now: Now, change: OfferChange) {
        let before = &*self.settings;
        let (catalog, provider) = (&before.catalog, &before.provider);
        let changed = match change {
            OfferChange::AddTool(tool) => {
                let catalog = catalog.with(*tool).map_err(|error| error.to_string());
                catalog.map(|catalog| (catalog, provider.clone()))
            }
            OfferChange::RemoveTool(name) => Ok((catalog.without(&name), provider.clone())),
            OfferChange::Add(offer) => {
                let provider = provider.with(*offer).map_err(|error| error.to_string());
                provider.map(|provider| (catalog.clone(), provider))
            }
            OfferChange::Remove(kind, id) => Ok((catalog.clone(), provider.without(kind, &id))),
            OfferChange::Updated(uri) => {
                let event = Event::ResourceUpdated { uri: &uri };
                return self.engine.handle(now, event, &mut self.actions);
            }
        };
        match changed {
            Ok((catalog, provider)) => {
                let settings = Arc::new(Settings { catalog, provider, ..before.clone() });
                self.settings = Arc::clone(&settings);
                self.engine.handle(now, Event::Configured { settings }, &mut self.actions);
            }
            Err(why) => tracing::error!(%why, "cannot change the offers: they are as they were"),
        }
    }

    fn apply(&mut self, now: Now, reloaded: Reloaded) -> Result<(), String> {
        // Destructured completely, so that no setting is ignored.
        let Reloaded {
            settings,
            listen,
            shutdown_grace,
            eof_grace,
            authenticate_within,
            guards,
            thresholds,
            on_end,
            set_level,
            needs_restart,
        } = reloaded;
        if let Some(listen) = listen {
            self.change_listeners(now, listen)?;
        }
        set_level();
        self.shutdown_grace = shutdown_grace;
        self.eof_grace = eof_grace;
        self.authenticate_within = authenticate_within;
        self.guards = guards;
        self.observer.alerts.warn_at(thresholds);
        self.endings.change(on_end);
        tracing::info!(tools = settings.catalog.iter().count(), "reloaded");
        for key in needs_restart {
            tracing::warn!(key, "changed key takes effect only after a restart of the daemon");
        }
        self.settings = Arc::clone(&settings);
        self.engine.handle(now, Event::Configured { settings }, &mut self.actions);
        self.load_manifests(now);
        Ok(())
    }
}
