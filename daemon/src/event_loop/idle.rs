//! Checks at the end of a turn: the service manager and its watchdog, files that others may remove,
//! memory to release, and the idle exit.
//!
//! inotify does not report the important removals (an unmounted file system, a renamed parent
//! directory), so the files are polled.

use super::server::Server;
use super::state::constants::LAST_KILL;
use super::state::shutdown::Stopping;

use std::time::Duration;

use ceased_core::action::OperatorOrder;
use ceased_core::event::Event;
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::time::{Instant, Now};

use crate::observability::audit::Happening;
use crate::service_manager::{Due, Notifier, Watchdog};
use crate::store::directory::Phase;

/// Interval of the file checks. One takes some microseconds.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Connections and sessions that must have ended, and half of all, before their memory is released.
/// Ends that take longer than [`AFTER_CROWD`] are several crowds, and the last of them keeps its
/// memory if it is smaller.
const CROWD: usize = 256;
/// After this the records of these disconnects are written, and their buffers are free.
const AFTER_CROWD: Duration = Duration::from_secs(1);

impl Server {
    /// Sets the notifier and the watchdog of the service manager.
    pub(crate) fn report_to(&mut self, notifier: Notifier, watchdog: Option<Watchdog>) {
        self.upkeep.notifier = notifier;
        self.upkeep.watchdog = watchdog;
    }

    /// Sets the function to call after the startup, and a moment after many peers have
    /// disconnected.
    pub(crate) const fn release_memory_with(&mut self, act: fn()) {
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
        self.check_retired(now);
        self.check_files_when_due(now);
        self.release_memory(now.at);
    }

    /// Returns unused memory to the system, if the daemon is idle.
    fn release_memory(&mut self, now: Instant) {
        let Some(act) = self.upkeep.release_memory else { return };
        // Sessions of HTTP have no connection of their own.
        let here = self.connections.len() + self.http.session_count();
        if let Some(most) = &mut self.upkeep.crowd {
            *most = here.max(*most);
            if here + CROWD > *most || here * 2 > *most {
                self.upkeep.check_crowd_at = None;
                return;
            }
            if now < *self.upkeep.check_crowd_at.get_or_insert(now + AFTER_CROWD) {
                return;
            }
            // If busy, wait for another such moment.
            self.upkeep.check_crowd_at = None;
        }
        if self.timeout() != Some(Duration::ZERO) {
            self.observer.audit.trim();
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
        self.listeners.retry_all(now.at);
        self.take_peers(now);
        if self.is_idle() {
            tracing::info!(after = ?exit, "idle: exiting");
            self.shut_down(now);
        } else {
            self.upkeep.idle_since = None;
        }
    }

    /// Ends the daemon that takes no further work once its work has ended, or its time is over.
    fn check_retired(&mut self, now: Now) {
        let Some(by) = self.upkeep.retires_until else { return };
        let has_ended = !self.engine.has_work() && self.endings.is_empty();
        if self.stopping != Stopping::No {
            self.upkeep.retires_until = None;
        } else if has_ended || by <= now.at {
            tracing::info!(has_ended, "drained");
            self.shut_down(now);
        }
    }

    /// Takes no further work, and ends when the running work has ended.
    fn retire(&mut self, now: Now) {
        if self.upkeep.retires_until.is_some() || self.stopping != Stopping::No {
            return;
        }
        self.upkeep.retires_until = Some(now.at + self.upkeep.drain);
        self.http.health.note_draining();
        self.engine.handle(now, Event::Retire, &mut self.actions);
    }

    /// Sets how long the running work may go on once no further work is taken, and puts the name of a node in
    /// front of the ids of sessions, as far as a header can have it.
    pub(crate) fn be_node(&mut self, node: Option<&str>, drain: Duration) {
        self.upkeep.drain = drain;
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        let as_header = |letter| if plain(letter) { letter } else { '-' };
        self.http.node =
            node.map(|node| node.chars().take(64).map(as_header).collect::<String>().into());
    }

    /// Whether the daemon is unused: no peer, no job, and no result that would be lost.
    fn is_idle(&self) -> bool {
        // Instances of servers that wait for a call are no use of the daemon.
        let of_servers = self.upstreams.connections() + self.remotes.connections();
        if self.connections.len() > of_servers || self.http.has_sessions() {
            return false;
        }
        let sizes = self.engine.sizes();
        let has_ended = sizes.jobs == 0 && self.endings.is_empty();
        has_ended && (sizes.tasks == 0 || self.store.is_some())
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
            OperatorOrder::Drain => self.retire(now),
            OperatorOrder::ShutDown => self.shut_down(now),
            // The engine has done it.
            OperatorOrder::Restart | OperatorOrder::Approve => {}
        }
    }

    /// Extends the stop timeout of the service manager to the configured shutdown time.
    pub(super) fn now_stopping(&self) {
        self.note_phase(Phase::Ending);
        self.upkeep.notifier.stopping(self.shutdown_grace + 2 * LAST_KILL);
    }

    /// Checks the files when due.
    fn check_files_when_due(&mut self, now: Now) {
        let has_files = self.listeners.has_files() || self.store_has_files();
        if !has_files || self.stopping != Stopping::No {
            self.upkeep.check_files_at = None;
            return;
        }
        let due: Instant = *self.upkeep.check_files_at.get_or_insert(now.at + FILE_CHECK_INTERVAL);
        if due <= now.at {
            self.check_files(now);
        }
    }

    /// Checks the socket files and the store, and recreates missing sockets.
    pub(super) fn check_files(&mut self, now: Now) {
        self.upkeep.check_files_at = Some(now.at + FILE_CHECK_INTERVAL);
        self.renew_socket_files(now);
        self.verify_store();
    }
}
