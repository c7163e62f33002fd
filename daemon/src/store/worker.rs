//! What carries out the store's orders, a batch at a time, whichever thread that is.
//!
//! A batch has a bound, or whoever is first in a very long turn of the loop would wait for the last.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use ceased_core::tasks::durable::{RecordKey, Seq, StoreWrite, TaskOutcome, Unstored};

use super::contract::{Due, Store, StoreError};
use super::health::Health;
use super::orders::{Order, Report};

/// Writes that go into one batch: so many take some milliseconds, for which the first waits.
pub(super) const BATCH_WRITES: usize = 1024;
/// Bytes of results at which a batch is long enough, for the same reason.
pub(super) const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Orders that room is kept for.
pub(super) const ORDERS_KEPT: usize = 1024;
/// How often the store is tidied while there is something to tidy.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// How long a store that broke is left alone before it is opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(500);

/// A store, and what it was ordered to do. Used by one thread at a time.
pub(super) struct Worker {
    store: Box<dyn Store>,
    report: Box<dyn FnMut(Report) + Send>,
    /// Orders that are in no batch yet.
    orders: VecDeque<Order>,
    /// The store broke; when it may be opened again.
    reopen: Option<Instant>,
    untidy: bool,
    /// It must be tidied before much more is written.
    overdue: bool,
    tidied: Instant,
    health: Health,
    /// Last failure that was logged, until the store is open again: one that stays the same is
    /// logged once.
    logged: Option<String>,
}

/// The store cannot be used any more.
pub(super) struct Failed(pub(super) StoreError);

/// Writes that are carried out together.
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

    /// Whether all of it is owed.
    fn due(&self) -> Due {
        let is_new = self.writes.iter().any(|write| Due::of(write) == Due::New);
        if is_new { Due::New } else { Due::Owed }
    }

    /// The parts it falls into by `kind`, each in order.
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

/// Bytes of a write that its task's result takes.
pub(super) fn result_bytes(write: &StoreWrite) -> usize {
    write.record().map_or(0, |record| record.outcome.bytes())
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Worker {
    /// With a store that has been tidied: a daemon that nobody uses does not wake up for it.
    pub(super) fn new(
        store: Box<dyn Store>,
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

    /// Takes orders, behind those that it has.
    pub(super) fn take(&mut self, orders: &mut VecDeque<Order>) {
        if self.orders.is_empty() {
            std::mem::swap(&mut self.orders, orders);
        } else {
            self.orders.append(orders);
        }
    }

    /// Whether there are orders left that were not carried out.
    pub(super) fn is_done(&self) -> bool {
        self.orders.is_empty()
    }

    pub(super) fn report(&mut self, report: Report) {
        (self.report)(report);
    }

    /// When [`Worker::tidy`] is due; `None` while there is nothing to tidy.
    pub(super) fn tidy_at(&self) -> Option<Instant> {
        let rest = if self.overdue { Duration::ZERO } else { TIDY_EVERY };
        self.untidy.then(|| self.tidied + rest)
    }

    /// Carries out what it was ordered, as one batch; how many writes that were.
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
        // Room for a burst is given back.
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
        Ok(writes)
    }

    /// Looks whether the store has failed unnoticed.
    fn verify(&mut self) -> Result<(), Failed> {
        if self.reopen.is_some() {
            // That is known, and it is opened again when there is something to write.
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

    /// Writes what can be written of a batch and reports what cannot.
    fn settle(&mut self, batch: Batch) -> Result<(), Failed> {
        if !self.is_open()? {
            self.unstored(&batch, Unstored::Broken);
            return Ok(());
        }
        let due = batch.due();
        match self.health.step(|| self.store.commit(&batch.writes, due)) {
            Ok(()) => Ok(()),
            Err(StoreError::Full) => match (due, batch.seqs.len()) {
                (_, 1) => {
                    self.unstored(&batch, Unstored::Full);
                    Ok(())
                }
                // What gives room back comes first, what is owed next.
                (Due::New, _) if batch.writes.iter().any(|write| Due::of(write) == Due::Owed) => {
                    self.settle_all(batch.parted(|write| (Due::of(write) == Due::New).into(), 2))
                }
                (Due::New, _) => {
                    self.unstored(&batch, Unstored::Full);
                    Ok(())
                }
                (Due::Owed, _) => {
                    let parts = batch.parted(
                        |write| match write {
                            StoreWrite::Delete(_) => 0,
                            StoreWrite::New(_) | StoreWrite::Put(_) | StoreWrite::Probe => 1,
                        },
                        2,
                    );
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
                tracing::error!(%why, "the store cannot keep a record");
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
                tracing::error!(task = %key.task, %error, "a result cannot be read");
                Ok(None)
            }
            Err(error) => self.broke(error).map(|()| None),
        }
    }

    pub(super) fn tidy(&mut self) -> Result<(), Failed> {
        (self.tidied, self.overdue) = (Instant::now(), false);
        if self.reopen.is_some() {
            self.untidy = false;
            return Ok(());
        }
        let tidied = self.health.step(|| self.store.tidy());
        self.health.measured(self.store.bytes());
        match tidied {
            Ok(is_more) => {
                self.untidy = is_more;
                Ok(())
            }
            Err(error @ (StoreError::Full | StoreError::Refused(_))) => {
                tracing::warn!(%error, "the store cannot be tidied");
                self.untidy = false;
                Ok(())
            }
            Err(error) => self.broke(error),
        }
    }

    /// What broke is opened again later; what is worse than broken ends this.
    fn broke(&mut self, error: StoreError) -> Result<(), Failed> {
        match error {
            StoreError::Full | StoreError::Refused(_) | StoreError::Broken(_) => {
                let text = error.to_string();
                if self.logged.as_ref() == Some(&text) {
                    tracing::debug!(%error, "the store fails as before");
                } else {
                    tracing::error!(%error, "the store failed; it will be opened again");
                    self.logged = Some(text);
                }
                self.reopen = Some(Instant::now() + REOPEN_AFTER);
                Ok(())
            }
            StoreError::Unusable(_) | StoreError::Lost(_) => Err(Failed(error)),
        }
    }

    /// Whether the store can be used, after opening it again if that is due.
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
