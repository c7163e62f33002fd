//! Upkeep: reloads, the service manager and its watchdog, and the idle exit.

use super::constants::LAST_KILL;
use super::reload::{Read, Reloaded, Reloads};
use super::server::Server;
use super::shutdown::Stopping;
use super::upkeep_state::Reading;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ceased_core::action::OperatorOrder;
use ceased_core::event::Event;
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::time::{Instant, Now};

use crate::event_loop::mailbox::Report;
use crate::observability::audit::Happening;
use crate::service_manager::{Due, Notifier, Watchdog};
use crate::store::directory::Phase;
use ceased_process::daemon_support::block_signals;

/// So many connections must have gone, and half of all, before it is looked for what they left.
const CROWD: usize = 1024;
/// By then the records of these disconnects are written, and their buffers are free.
const AFTER_CROWD: Duration = Duration::from_secs(1);

impl Server {
    /// Sets the notifier and the watchdog of the service manager.
    pub(crate) fn report_to(&mut self, notifier: Notifier, watchdog: Option<Watchdog>) {
        self.upkeep.notifier = notifier;
        self.upkeep.watchdog = watchdog;
    }

    /// Sets the function to call after the startup, and a moment after many peers have
    /// disconnected.
    pub(crate) const fn give_back_by(&mut self, act: fn()) {
        self.upkeep.release_memory = Some(act);
    }

    /// Ends the daemon after this time without connections and retained data.
    pub(crate) const fn exit_when_idle_for(&mut self, idle: Duration) {
        self.upkeep.idle_exit = Some(idle);
    }

    /// Reports that startup is complete.
    pub(super) fn now_ready(&mut self) {
        if self.stopping == Stopping::No {
            self.note_phase(Phase::Serving);
        }
        if self.upkeep.notifier.is_active() {
            self.upkeep.notifier.ready(&self.in_short());
        }
    }

    fn note_phase(&self, phase: Phase) {
        if let Some(dir) = &self.state_dir {
            dir.note_phase(phase);
        }
    }

    /// The status in one line, for `systemctl status`.
    fn in_short(&self) -> String {
        let sizes = self.engine.sizes();
        let (connections, jobs, tasks) = (sizes.connections, sizes.jobs, sizes.tasks);
        format!("{connections} connections, {jobs} jobs, {tasks} tasks")
    }

    /// Runs the periodic checks at the end of a turn.
    pub(super) fn run_idle_checks(&mut self, now: Now) {
        self.feed_watchdog(now.at);
        self.check_idle_exit(now);
        self.look_at_files_when_due(now);
        self.release_memory(now.at);
    }

    /// Returns unused memory to the system, if the daemon is idle.
    fn release_memory(&mut self, now: Instant) {
        let Some(act) = self.upkeep.release_memory else { return };
        let here = self.links.len();
        if let Some(most) = &mut self.upkeep.crowd {
            *most = here.max(*most);
            if here + CROWD > *most || here * 2 > *most {
                self.upkeep.look_at = None;
                return;
            }
            if now < *self.upkeep.look_at.get_or_insert(now + AFTER_CROWD) {
                return;
            }
            // If busy, wait for another such moment.
            self.upkeep.look_at = None;
        }
        if self.timeout() != Some(Duration::ZERO) {
            self.trail.audit.trim();
            act();
            self.upkeep.crowd = Some(here);
        }
    }

    fn feed_watchdog(&mut self, now: Instant) {
        let Some(watchdog) = &mut self.upkeep.watchdog else { return };
        let store = self.store.as_ref().map(|store| ("store", store.health().stuck_for()));
        let workers = ("workers", self.pool.stuck_for(now));
        match watchdog.look(now, store.into_iter().chain([workers])) {
            Due::NotYet => {}
            Due::Alive => {
                let probe = watchdog.ask();
                // If the supervisor has ended, the probe stays unanswered as intended.
                let _ = self.supervisor.probe(Box::new(move || probe.answer()));
                self.upkeep.notifier.alive(&self.in_short());
            }
            Due::Silent(thread) => {
                tracing::error!(thread, "thread makes no progress; not sending WATCHDOG=1");
            }
        }
    }

    fn check_idle_exit(&mut self, now: Now) {
        let Some(exit) = self.upkeep.idle_exit else { return };
        if self.stopping != Stopping::No || !self.is_idle() {
            self.upkeep.idle_since = None;
            return;
        }
        let since = *self.upkeep.idle_since.get_or_insert(now.at);
        if now.at < since + exit {
            return;
        }
        // Accept a peer that is connecting right now.
        self.doors.iter_mut().for_each(|door| door.again = Some(now.at));
        self.take_peers(now);
        if self.is_idle() {
            tracing::info!(after = ?exit, "idle: exiting");
            self.shut_down(now);
        } else {
            self.upkeep.idle_since = None;
        }
    }

    /// Whether the daemon is unused: no peer, no job, and no result that would be lost.
    fn is_idle(&self) -> bool {
        if !self.links.is_empty() {
            return false;
        }
        let sizes = self.engine.sizes();
        sizes.jobs == 0 && (sizes.tasks == 0 || self.store.is_some())
    }

    /// Carries out the order of an operator.
    pub(super) fn operate(
        &mut self,
        now: Now,
        conn: ConnId,
        identity: Identity,
        order: OperatorOrder,
    ) {
        tracing::info!(%conn, %identity, method = order.method(), "order of an operator");
        self.audit(now, &Happening::Operate { identity, conn, order });
        match order {
            OperatorOrder::Reload => self.reload(),
            OperatorOrder::ShutDown => self.shut_down(now),
        }
    }

    pub(super) const fn reloads(&self) -> &Reloads {
        &self.upkeep.reloads
    }

    /// SIGHUP: what the configuration says now holds as soon as it is read, or nothing of it.
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
            set_level,
            needs_restart,
        } = reloaded;
        if let Some(listen) = listen {
            self.change_doors(now, listen)?;
        }
        set_level();
        self.shutdown_grace = shutdown_grace;
        self.eof_grace = eof_grace;
        self.authenticate_within = authenticate_within;
        self.guards = guards;
        self.trail.warn_at(thresholds);
        tracing::info!(tools = settings.catalog.iter().count(), "reloaded");
        for key in needs_restart {
            tracing::warn!(key, "changed key takes effect only after a restart of the daemon");
        }
        self.settings = Arc::clone(&settings);
        self.engine.handle(now, Event::Configured { settings }, &mut self.actions);
        Ok(())
    }

    /// Extends the stop timeout of the service manager to the configured shutdown time.
    pub(super) fn now_stopping(&self) {
        self.note_phase(Phase::Ending);
        self.upkeep.notifier.stopping(self.shutdown_grace + 2 * LAST_KILL);
    }
}
