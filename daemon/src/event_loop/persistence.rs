//! The store from the loop's side: passes the engine's writes to the store's thread, and its
//! reports to the engine (DUR-01).

use super::server::Server;

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use ceased_core::event::Event;
use ceased_core::identity::Identity;
use ceased_core::ids::JobId;
use ceased_core::tasks::durable::{TaskRecord, Unstored};
use ceased_core::tasks::shared::{Lookup, SharedEvent};
use ceased_core::time::{Instant, Now, Wall};

use crate::observability::metrics::StoreStatus;
use crate::process_ids::to_process;
use crate::store::orders::{News, Order, Report};
use crate::store::thread::StoreThread;

use crate::store::StoreError;

/// A peer is alone if no other peer has sent anything for this long.
const ALONE: Duration = Duration::from_millis(50);

impl Server {
    /// Restores the tasks of the previous daemon in the engine.
    pub(super) fn restore(&mut self, records: Vec<TaskRecord>) {
        let now = self.clock.now();
        let count = records.len();
        for record in records {
            self.engine.handle(now, Event::Restored { record }, &mut self.actions);
        }
        if count > 0 {
            tracing::info!(tasks = count, "restored");
        }
    }

    pub(super) fn order_store(&mut self, order: Order) {
        let Some(store) = &mut self.store else {
            tracing::error!(?order, "the engine ordered a write, but there is no store");
            return;
        };
        store.order(order);
    }

    /// Asks the table that several daemons share.
    #[cfg(feature = "fleet")]
    pub(super) fn look_up(&mut self, lookup: Box<Lookup>) {
        match &self.reader {
            Some(reader) => reader.look_up(lookup),
            None => tracing::error!(?lookup, "the engine asks a table that is not there"),
        }
    }

    #[cfg(not(feature = "fleet"))]
    pub(super) fn look_up(&mut self, lookup: Box<Lookup>) {
        tracing::error!(?lookup, "the engine asks a table, and this build has none");
    }

    /// Hands the orders of the turn to the store as one batch.
    pub(super) fn hand_over_to_store(&mut self, now: Now) {
        let is_free = self.has_nothing_else_to_do(now);
        if let Some(Err(gone)) = self.store.as_mut().map(|store| store.hand_over(is_free)) {
            // The store has usually reported the cause.
            self.failed.get_or_insert_with(|| StoreError::Lost(gone.to_string()));
        }
    }

    /// Whether the store has files that others can remove.
    pub(super) const fn store_has_files(&self) -> bool {
        self.store_location.path.is_some()
    }

    /// Starts a check that the files still exist.
    pub(super) fn verify_store(&mut self) {
        if self.store_has_files()
            && let Some(Err(gone)) = self.store.as_mut().map(StoreThread::verify)
        {
            self.failed.get_or_insert_with(|| StoreError::Lost(gone.to_string()));
        }
    }

    /// Whether a quick batch would delay only the one active peer, which most likely waits for it.
    fn has_nothing_else_to_do(&mut self, now: Now) -> bool {
        let is_idle = self.connections.nothing_to_read() && self.actions.is_empty();
        let silent = |since: Instant| now.at >= since + ALONE;
        let is_alone =
            self.connections.len() <= 1 || self.connections.alone_since().is_some_and(silent);
        is_alone && is_idle && self.pool.quick().is_empty() && !self.engine.wants_turn()
    }

    pub(super) fn take_store_report(&mut self, now: Now, report: Report) {
        let event = match report {
            Report::Durable(upto) => {
                if let Some(store) = &mut self.store {
                    store.heard(upto);
                }
                Event::Durable { upto }
            }
            Report::Unstored(seq, why) => Event::Unstored { seq, why },
            Report::Ailing(why) => Event::StoreFailed { why },
            Report::Loaded(load, outcome) => Event::Loaded { load, outcome },
            Report::Judged(seq, verdict) => Event::Shared(SharedEvent::Verdict { seq, verdict }),
            Report::Shared(event) => Event::Shared(event),
            Report::News(news) => Event::Shared(match news {
                News::Joined { cursor_key } => SharedEvent::Joined { cursor_key },
                News::Renewed { until, end } => {
                    self.upkeep.lease = end;
                    self.pass_lease_on();
                    SharedEvent::Renewed { until: until.map(|until| self.clock.at(until)) }
                }
                News::Fenced => SharedEvent::Fenced,
            }),
            Report::Fleet(survey, fleet) => return self.survey_processes(now, survey, fleet),
            Report::Failed(error) => {
                tracing::error!(%error, "the store failed for good");
                self.failed = Some(error);
                return;
            }
        };
        self.engine.handle(now, event, &mut self.actions);
    }

    /// FLT-04: the keeper and the guards end the processes of tasks at the end of the lease, also while this
    /// process is stopped.
    pub(super) fn pass_lease_on(&self) {
        let Some(end) = self.upkeep.lease else { return };
        let is_of_task = |job: &JobId| self.engine.origin(*job).is_some_and(|(_, it)| it.is_some());
        let jobs: Vec<_> =
            self.jobs.commands().into_iter().filter(is_of_task).map(to_process).collect();
        let left = end.saturating_duration_since(std::time::Instant::now());
        let until = Some(ceased_process::daemon_support::boot_time() + left);
        self.order(ceased_process::Order::Lease { until, jobs });
    }

    /// Status of the store for a viewer; `None` is an operator, which alone sees paths and failures
    /// (TSK-39).
    pub(super) fn store_status(&self, viewer: Option<&Identity>) -> StoreStatus {
        let Some(store) = &self.store else { return StoreStatus::in_memory() };
        let health = store.health();
        let trouble = self.observer.store_trouble;
        let state = match trouble.map(|(why, _)| why) {
            None => "open",
            Some(Unstored::Full) => "full",
            Some(Unstored::Broken) => "broken",
        };
        let stamp = |wall: Wall| wall.to_iso8601();
        let mut status = StoreStatus {
            kept: if self.store_location.path.is_some() { "disk" } else { "embedded" },
            state,
            since: trouble.map(|(_, since)| stamp(since)),
            tasks: Some(self.engine.sizes().tasks),
            bytes: health.bytes(),
            busy_ms: u64::try_from(health.stuck_for().as_millis()).unwrap_or(u64::MAX),
            ..StoreStatus::in_memory()
        };
        if viewer.is_none() {
            let shown = |path: &PathBuf| path.display().to_string();
            status.path = self.store_location.path.as_ref().map(shown);
            status.set_aside = self.store_location.set_aside.as_ref().map(shown);
            if let Some(last) = health.last_error() {
                let since = last.at.duration_since(UNIX_EPOCH).unwrap_or_default();
                let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
                status.last_error = Some(last.message);
                status.last_error_at = Some(stamp(Wall::from_millis(millis)));
            }
        }
        status
    }
}
