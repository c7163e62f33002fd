//! The store's thread: takes whatever has been queued, writes it as one batch, says how far it got.
//!
//! The loop hands over what a turn brought all at once: of orders that came one by one, the first
//! would go to the disk alone while the others wait for it. A batch has a bound all the same, or
//! whoever is first in a very long turn would wait for the last.
//!
//! The queue has no bound of its own: what is in it the engine holds answers back for, and those
//! its limits bound ([`Limits`](ceased_core::limits::Limits)).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use ceased_core::durable::{LoadId, Seq, StoreWrite, TaskOutcome, Unstored};
use ceased_core::id::TaskId;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::durable::RecordedOutcome;
use super::health::Health;
use super::{Due, Store, StoreError};

/// Writes that go into one batch: so many take some milliseconds, for which the first waits.
const BATCH_WRITES: usize = 1024;
/// Bytes of results at which a batch is long enough, for the same reason.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// How often the store is tidied while there is something to tidy.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// How long a store that broke is left alone before it is opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(500);
/// How long a write may take before that is worth saying.
const SLOW: Duration = Duration::from_secs(5);

/// What the thread is told to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Carry out a write.
    Write { seq: Seq, write: StoreWrite },
    /// Read what came of a task.
    Load { load: LoadId, task: TaskId },
}

/// What the thread tells.
#[derive(Debug)]
pub(crate) enum Report {
    /// Everything up to here is on disk, but for what was reported otherwise.
    Durable(Seq),
    /// This is not.
    Unstored(Seq, Unstored),
    /// What came of a task; `None` when that cannot be said.
    Loaded(LoadId, Option<TaskOutcome>),
    /// It has ended, with orders left undone, and nothing of this process can be stored any more.
    Failed(StoreError),
}

/// The thread has ended, so that nobody hears the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreGone;

impl fmt::Display for StoreGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store's thread has ended; no task can be kept any more")
    }
}

/// The thread, from outside.
#[derive(Debug)]
pub(crate) struct StoreThread {
    /// What this turn has brought.
    fresh: Vec<Order>,
    orders: Sender<Vec<Order>>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    sent: Seq,
    /// The first write that was not answered, or a later one, and since when.
    waiting: Option<(Seq, Instant)>,
    is_slow: bool,
    health: Health,
}

impl StoreThread {
    /// Starts it. `report` is called on it and may block as long as the loop is alive.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(
        store: Box<dyn Store>,
        report: Box<dyn FnMut(Report) + Send>,
    ) -> io::Result<Self> {
        let (orders, inbox) = unbounded();
        let (alive, ended) = bounded(0);
        let health = Health::default();
        let noted = health.clone();
        let mut worker = Worker {
            store,
            report,
            inbox,
            orders: VecDeque::new(),
            reopen: None,
            untidy: true,
            health: noted,
        };
        // What can be tidied at once is, so that a daemon nobody uses does not wake up for it.
        worker.tidy().map_err(|Failed(error)| io::Error::other(error.to_string()))?;
        thread::Builder::new().name("ceased-store".into()).spawn(move || {
            crate::sys::block_signals();
            worker.run();
            drop(alive);
        })?;
        let (fresh, sent) = (Vec::new(), Seq::default());
        Ok(Self { fresh, orders, ended, sent, waiting: None, is_slow: false, health })
    }

    /// Takes an order for the next [`StoreThread::hand_over`].
    pub(crate) fn order(&mut self, order: Order) {
        if let Order::Write { seq, .. } = &order {
            self.sent = *seq;
            self.waiting.get_or_insert_with(|| (*seq, Instant::now()));
        }
        self.fresh.push(order);
    }

    /// Hands the thread what it was ordered; returns at once.
    pub(crate) fn hand_over(&mut self) -> Result<(), StoreGone> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        self.orders.send(mem::take(&mut self.fresh)).map_err(|_| StoreGone)
    }

    /// Hears that everything up to here was answered.
    pub(crate) fn heard(&mut self, upto: Seq) {
        if self.waiting.is_some_and(|(first, _)| first <= upto) {
            self.waiting = (upto < self.sent).then(|| (self.sent, Instant::now()));
            if mem::take(&mut self.is_slow) {
                tracing::info!("the store answers again");
            }
        }
    }

    /// How it is doing.
    pub(crate) const fn health(&self) -> &Health {
        &self.health
    }

    /// When [`Self::watch`] is due.
    pub(crate) fn slow_in(&self) -> Option<Duration> {
        let (_, since) = self.waiting.filter(|_| !self.is_slow)?;
        Some(SLOW.saturating_sub(since.elapsed()))
    }

    /// Says so when the store has not answered for long.
    pub(crate) fn watch(&mut self) {
        if self.slow_in() == Some(Duration::ZERO) {
            self.is_slow = true;
            tracing::warn!(after = ?SLOW, "the store has not answered: is the disk busy?");
        }
    }

    /// Has it carry out what it was told and end; false when that takes too long.
    pub(crate) fn finish(mut self, within: Duration) -> bool {
        // A thread that has ended has said so.
        let _ = self.hand_over();
        drop(self.orders);
        self.ended.recv_timeout(within) != Err(RecvTimeoutError::Timeout)
    }
}

/// The thread, from inside.
struct Worker {
    store: Box<dyn Store>,
    report: Box<dyn FnMut(Report) + Send>,
    inbox: Receiver<Vec<Order>>,
    /// What was taken from there and is in no batch yet.
    orders: VecDeque<Order>,
    /// The store broke; when it may be opened again.
    reopen: Option<Instant>,
    untidy: bool,
    health: Health,
}

/// The store cannot be used any more.
struct Failed(StoreError);

/// Writes that are carried out together.
#[derive(Default)]
struct Batch {
    seqs: Vec<Seq>,
    writes: Vec<StoreWrite>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, seq: Seq, write: StoreWrite) {
        if let StoreWrite::Put(record) = &write
            && let RecordedOutcome::Here(Ok(result)) = &record.outcome
        {
            self.bytes += result.get().len();
        }
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

impl Worker {
    fn run(mut self) {
        let run = catch_unwind(AssertUnwindSafe(|| self.serve()));
        let failed = match run {
            Ok(Ok(())) => return,
            Ok(Err(Failed(error))) => error,
            Err(_) => StoreError::Lost("the store's thread panicked".into()),
        };
        (self.report)(Report::Failed(failed));
    }

    fn serve(&mut self) -> Result<(), Failed> {
        let mut tidied = Instant::now();
        self.health.measured(self.store.bytes());
        loop {
            if !self.wait(tidied) {
                return Ok(());
            }
            self.carry_out()?;
            if self.untidy && tidied.elapsed() >= TIDY_EVERY {
                tidied = Instant::now();
                self.tidy()?;
            }
        }
    }

    /// Waits for orders, or until it is time to tidy; false when there will be none any more.
    fn wait(&mut self, tidied: Instant) -> bool {
        if !self.orders.is_empty() {
            return true;
        }
        let fresh = if self.untidy {
            self.inbox.recv_timeout(TIDY_EVERY.saturating_sub(tidied.elapsed()))
        } else {
            self.inbox.recv().map_err(RecvTimeoutError::from)
        };
        match fresh {
            Ok(fresh) => self.orders.extend(fresh),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    /// The next order there is, without waiting for one.
    fn next_order(&mut self) -> Option<Order> {
        if self.orders.is_empty() {
            self.orders.extend(self.inbox.try_recv().ok()?);
        }
        self.orders.pop_front()
    }

    /// Carries out what is queued, as one batch.
    fn carry_out(&mut self) -> Result<(), Failed> {
        let (mut batch, mut loads) = (Batch::default(), Vec::new());
        while !batch.is_full()
            && loads.len() < BATCH_WRITES
            && let Some(order) = self.next_order()
        {
            match order {
                Order::Write { seq, write } => batch.push(seq, write),
                Order::Load { load, task } => loads.push((load, task)),
            }
        }
        if let Some(upto) = batch.seqs.last().copied() {
            self.untidy = true;
            self.settle(batch)?;
            (self.report)(Report::Durable(upto));
        }
        for (load, task) in loads {
            let outcome = self.load(task)?;
            (self.report)(Report::Loaded(load, outcome));
        }
        Ok(())
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
                            StoreWrite::Put(_) => 1,
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

    fn load(&mut self, task: TaskId) -> Result<Option<TaskOutcome>, Failed> {
        if !self.is_open()? {
            return Ok(None);
        }
        match self.health.step(|| self.store.load(task)) {
            Ok(outcome) => Ok(outcome),
            Err(error @ (StoreError::Full | StoreError::Refused(_))) => {
                tracing::error!(%task, %error, "a result cannot be read");
                Ok(None)
            }
            Err(error) => self.broke(error).map(|()| None),
        }
    }

    fn tidy(&mut self) -> Result<(), Failed> {
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
                tracing::error!(%error, "the store failed; it will be opened again");
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
                self.reopen = None;
                tracing::info!("the store is open again");
                Ok(true)
            }
            Err(error) => self.broke(error).map(|()| false),
        }
    }
}
