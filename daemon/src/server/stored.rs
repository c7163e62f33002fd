//! The store, from the loop's side: what the engine wants kept goes to its thread, and what that
//! reports goes to the engine (DUR-01).

use std::io;

use ceased_core::durable::TaskRecord;
use ceased_core::event::Event;
use ceased_core::time::Now;

use super::Server;
use crate::reports;
use crate::reports::Reports;
use crate::store::thread::{Order, Report, StoreThread};
use crate::store::{Store, StoreError};

/// Starts a store's thread that reports to the loop.
pub(super) fn start(store: Box<dyn Store>, reports: &Reports) -> io::Result<StoreThread> {
    let reports = reports.clone();
    let report = Box::new(move |report| reports.send(reports::Report::Store(report)));
    StoreThread::start(store, report)
}

impl Server {
    /// Hands the engine the tasks of the daemon that was here before.
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
            tracing::error!(?order, "the engine counts on a store, and there is none");
            return;
        };
        store.order(order);
    }

    /// Hands the store what the turn brought, as one batch.
    pub(super) fn hand_over_to_store(&mut self) {
        if let Some(Err(gone)) = self.store.as_mut().map(StoreThread::hand_over) {
            // Usually its thread has said why.
            self.failed.get_or_insert_with(|| StoreError::Lost(gone.to_string()));
        }
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
            Report::Loaded(load, outcome) => Event::Loaded { load, outcome },
            Report::Failed(error) => {
                tracing::error!(%error, "the store failed for good");
                self.failed = Some(error);
                return;
            }
        };
        self.engine.handle(now, event, &mut self.actions);
    }
}
