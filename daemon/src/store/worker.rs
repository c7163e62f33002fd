//! Carries out the store's orders in batches, on whichever thread holds it.
//!
//! Batches are bounded: the first order of a long turn of the loop would otherwise wait for the
//! last one.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use ceased_core::tasks::durable::{KeyChange, RecordKey, Seq, StoreWrite, TaskOutcome, Unstored};

use super::backing::Backing;
use super::contract::{Due, StoreError};
use super::health::Health;
use super::orders::{Order, Report};

/// Maximum number of writes in a batch; it takes some milliseconds, for which the first one waits.
pub(super) const BATCH_WRITES: usize = 1024;
/// Bytes of results at which a batch is full, for the same reason.
pub(super) const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Capacity of the queue kept after a burst.
pub(super) const ORDERS_KEPT: usize = 1024;
/// Interval of maintenance steps while there is work for them.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// Pause before a broken store is reopened.
const REOPEN_AFTER: Duration = Duration::from_millis(500);

/// A store and its orders. Used by one thread at a time.
pub(super) struct Worker {
    store: Backing,
    report: Box<dyn FnMut(Report) + Send>,
    /// Orders not yet in a batch.
    orders: VecDeque<Order>,
    /// Set while the store is broken: time of the next attempt to reopen it.
    reopen: Option<Instant>,
    untidy: bool,
    /// Maintenance is due before much more is written.
    overdue: bool,
    tidied: Instant,
    health: Health,
    /// The last failure that was logged, until the store is open again; an unchanged failure is
    /// logged once.
    logged: Option<String>,
}

/// The store is permanently unusable.
pub(super) struct Failed(pub(super) StoreError);

/// Writes that are committed together.
#[derive(Default)]
struct Batch {
    seqs: Vec<Seq>,
    writes: Vec<StoreWrite>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, seq: Seq, write: StoreWrite) {
        self.bytes += result_bytes(&write);
        self.seqs.push(seq);
        self.writes.push(write);
    }

    const fn is_full(&self) -> bool {
        self.seqs.len() >= BATCH_WRITES || self.bytes >= BATCH_BYTES
    }

    /// [`Due::Owed`] if all writes are owed.
    fn due(&self) -> Due {
        let is_new = self.writes.iter().any(|write| Due::of(write) == Due::New);
        if is_new { Due::New } else { Due::Owed }
    }

    /// Splits the batch into parts by `kind`, each in order.
    fn parted(self, kind: impl Fn(&StoreWrite) -> usize, parts: usize) -> Vec<Self> {
        let mut parted: Vec<Self> = Vec::new();
        parted.resize_with(parts, Self::default);
        for (seq, write) in self.seqs.into_iter().zip(self.writes) {
            if let Some(part) = parted.get_mut(kind(&write)) {
                part.push(seq, write);
            }
        }
        parted.retain(|part| !part.seqs.is_empty());
        parted
    }

    fn one_by_one(self) -> impl Iterator<Item = Self> {
        self.seqs.into_iter().zip(self.writes).map(|(seq, write)| {
            let mut one = Self::default();
            one.push(seq, write);
            one
        })
    }
}

/// Size of the result, the questions or the answers in a write.
pub(super) fn result_bytes(write: &StoreWrite) -> usize {
    let answers = match write {
        StoreWrite::Input { responses, .. } => responses.len(),
        StoreWrite::Keyed(_, KeyChange::Over(Ok(result))) => result.get().len(),
        StoreWrite::New(_)
        | StoreWrite::Change(_)
        | StoreWrite::Put(_)
        | StoreWrite::Cancel(_)
        | StoreWrite::Delete(_)
        | StoreWrite::Watch(_)
        | StoreWrite::Unwatch(_)
        | StoreWrite::Taken(_)
        | StoreWrite::Receipt { .. }
        | StoreWrite::Claim { .. }
        | StoreWrite::Keyed(..)
        | StoreWrite::Retire
        | StoreWrite::Probe => 0,
    };
    let of_record = write
        .record()
        .map_or(0, |record| record.outcome.bytes() + record.asks.as_deref().map_or(0, str::len));
    answers + of_record
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Worker {
    /// Runs maintenance first, so that an idle daemon does not wake up for it.
    pub(super) fn new(
        store: Backing,
        report: Box<dyn FnMut(Report) + Send>,
        health: Health,
    ) -> Result<Self, Failed> {
        let (orders, tidied) = (VecDeque::new(), Instant::now());
        let (reopen, untidy, overdue) = (None, true, false);
        let logged = None;
        let mut worker =
            Self { store, report, orders, reopen, untidy, overdue, tidied, health, logged };
        worker.tidy()?;
        Ok(worker)
    }

    /// Appends orders.
    pub(super) fn take(&mut self, orders: &mut VecDeque<Order>) {
        if self.orders.is_empty() {
            std::mem::swap(&mut self.orders, orders);
        } else {
            self.orders.append(orders);
        }
    }

    /// Whether all orders have been carried out.
    pub(super) fn is_done(&self) -> bool {
        self.orders.is_empty()
    }

    pub(super) fn report(&mut self, report: Report) {
        (self.report)(report);
    }

    /// Whether the store is behind a network.
    pub(super) const fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    /// Passes news of a shared table on.
    fn tell_news(&mut self) {
        for news in self.store.take_news() {
            (self.report)(Report::News(news));
        }
    }

    /// When [`Worker::tidy`] is due; `None` if there is nothing to do.
    pub(super) fn tidy_at(&self) -> Option<Instant> {
        let rest = if self.overdue { Duration::ZERO } else { TIDY_EVERY };
        self.untidy.then(|| self.tidied + rest)
    }

    /// Carries out one batch; returns the number of its writes.
    pub(super) fn carry_out(&mut self) -> Result<usize, Failed> {
        let (mut batch, mut loads, mut verifies) = (Batch::default(), Vec::new(), false);
        while !batch.is_full()
            && loads.len() < BATCH_WRITES
            && let Some(order) = self.orders.pop_front()
        {
            match order {
                Order::Write { seq, write } => batch.push(seq, write),
                Order::Load { load, key } => loads.push((load, key)),
                Order::Verify => verifies = true,
            }
        }
        // Free the memory of a burst.
        if self.orders.is_empty() {
            self.orders.shrink_to(ORDERS_KEPT);
        }
        let writes = batch.seqs.len();
        if let Some(upto) = batch.seqs.last().copied() {
            self.untidy = true;
            self.settle(batch)?;
            (self.report)(Report::Durable(upto));
            self.overdue = self.store.needs_tidying();
        }
        for (load, key) in loads {
            let outcome = self.load(key)?;
            (self.report)(Report::Loaded(load, outcome));
        }
        if verifies {
            self.verify()?;
        }
        self.tell_news();
        Ok(writes)
    }

    /// Checks whether the store has failed without a failed write.
    fn verify(&mut self) -> Result<(), Failed> {
        if self.reopen.is_some() {
            // The failure is known; the next write reopens the store.
            return Ok(());
        }
        match self.health.step(|| self.store.verify()) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.broke(error)?;
                (self.report)(Report::Ailing(Unstored::Broken));
                Ok(())
            }
        }
    }

    /// Commits as much of a batch as possible and reports the failures.
    fn settle(&mut self, batch: Batch) -> Result<(), Failed> {
        if !self.is_open()? {
            self.unstored(&batch, Unstored::Broken);
            return Ok(());
        }
        let due = batch.due();
        match self.health.step(|| self.store.commit(&batch.writes, due)) {
            Ok(verdicts) => {
                self.tell_news();
                for (place, verdict) in verdicts {
                    if let Some(seq) = batch.seqs.get(place) {
                        (self.report)(Report::Judged(*seq, verdict));
                    }
                }
                Ok(())
            }
            Err(StoreError::Full) => match (due, batch.seqs.len()) {
                (_, 1) => {
                    self.unstored(&batch, Unstored::Full);
                    Ok(())
                }
                // Commit first the writes that free room, then the other owed ones.
                (Due::New, _) if batch.writes.iter().any(|write| Due::of(write) == Due::Owed) => {
                    self.settle_all(batch.parted(|write| (Due::of(write) == Due::New).into(), 2))
                }
                (Due::New, _) => {
                    self.unstored(&batch, Unstored::Full);
                    Ok(())
                }
                (Due::Owed, _) => {
                    let parts = batch
                        .parted(|write| usize::from(!matches!(write, StoreWrite::Delete(_))), 2);
                    let many = parts.len() > 1;
                    for part in parts {
                        match many {
                            true => self.settle(part)?,
                            false => self.settle_all(part.one_by_one())?,
                        }
                    }
                    Ok(())
                }
            },
            Err(StoreError::Refused(why)) if batch.seqs.len() == 1 => {
                tracing::error!(%why, "the store rejected a record");
                self.unstored(&batch, Unstored::Broken);
                Ok(())
            }
            Err(StoreError::Refused(_)) => self.settle_all(batch.one_by_one()),
            Err(error) => {
                self.broke(error)?;
                self.unstored(&batch, Unstored::Broken);
                Ok(())
            }
        }
    }

    fn settle_all(&mut self, parts: impl IntoIterator<Item = Batch>) -> Result<(), Failed> {
        parts.into_iter().try_for_each(|part| self.settle(part))
    }

    fn unstored(&mut self, batch: &Batch, why: Unstored) {
        for seq in &batch.seqs {
            (self.report)(Report::Unstored(*seq, why));
        }
    }

    fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, Failed> {
        if !self.is_open()? {
            return Ok(None);
        }
        match self.health.step(|| self.store.load(key)) {
            Ok(outcome) => Ok(outcome),
            Err(error @ (StoreError::Full | StoreError::Refused(_))) => {
                tracing::error!(task = %key.task, %error, "cannot read a result");
                Ok(None)
            }
            Err(error) => self.broke(error).map(|()| None),
        }
    }

    pub(super) fn tidy(&mut self) -> Result<(), Failed> {
        (self.tidied, self.overdue) = (Instant::now(), false);
        // A membership is renewed, or tried again, without any write.
        let is_open = match self.store.is_remote() {
            true => self.is_open()?,
            false => self.reopen.is_none(),
        };
        if !is_open {
            self.untidy = self.store.is_remote();
            self.tell_news();
            return Ok(());
        }
        let tidied = self.health.step(|| self.store.tidy());
        self.health.measured(self.store.bytes());
        self.tell_news();
        match tidied {
            Ok(is_more) => {
                self.untidy = is_more;
                Ok(())
            }
            Err(error @ (StoreError::Full | StoreError::Refused(_))) => {
                tracing::warn!(%error, "maintenance of the store failed");
                self.untidy = self.store.is_remote();
                Ok(())
            }
            Err(error) => {
                self.broke(error)?;
                if self.store.is_remote() {
                    (self.report)(Report::Ailing(Unstored::Broken));
                }
                Ok(())
            }
        }
    }

    /// Schedules reopening after a recoverable failure; returns a permanent one.
    fn broke(&mut self, error: StoreError) -> Result<(), Failed> {
        match error {
            StoreError::Full | StoreError::Refused(_) | StoreError::Broken(_) => {
                let text = error.to_string();
                if self.logged.as_ref() == Some(&text) {
                    tracing::debug!(%error, "reopening the store failed again");
                } else {
                    tracing::error!(%error, "the store failed; retrying to open it");
                    self.logged = Some(text);
                }
                self.reopen = Some(Instant::now() + REOPEN_AFTER);
                Ok(())
            }
            StoreError::Unusable(_) | StoreError::Lost(_) => Err(Failed(error)),
        }
    }

    /// Whether the store is usable; reopens it if that is due.
    fn is_open(&mut self) -> Result<bool, Failed> {
        let Some(at) = self.reopen else { return Ok(true) };
        if Instant::now() < at {
            return Ok(false);
        }
        match self.health.step(|| self.store.reopen()) {
            Ok(()) => {
                (self.reopen, self.logged) = (None, None);
                tracing::info!("the store is open again");
                Ok(true)
            }
            Err(error) => self.broke(error).map(|()| false),
        }
    }
}
