//! The store's thread, and carrying out a batch on another thread.
//!
//! The loop hands over all orders of a turn at once: if handed over singly, the first would be
//! committed alone while the others wait. Only the holder of the [`Worker`] carries out orders, in
//! order; this keeps the order of writes regardless of the thread.
//!
//! Waking this thread and being woken by it takes about as long as a small commit. So while the
//! disk is quick, an idle thread may carry out a small batch itself.
//!
//! The queue needs no bound: each order in it holds back a response of the engine, and the engine
//! bounds those ([`Limits`](ceased_core::limits::Limits)).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ceased_core::tasks::durable::Seq;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

use super::backing::Backing;
use super::contract::StoreError;
use super::health::Health;
use super::orders::{Order, Report};
use super::worker::{Failed, ORDERS_KEPT, Worker, result_bytes};

/// Duration of a write at which a warning is logged.
const SLOW: Duration = Duration::from_secs(5);
/// Duration below which a batch counts as quick.
const QUICK: Duration = Duration::from_millis(1);
/// Consecutive quick batches required before another thread may carry one out.
const TRUSTED: u32 = 8;
/// Maximum number of writes in a batch of another thread. Larger batches are better carried out in
/// parallel with the loop.
const FEW: usize = 32;
/// Maximum number of bytes of results in such a batch.
const FEW_BYTES: usize = 64 * 1024;

/// The store failed for good, so that the order is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreGone;

impl fmt::Display for StoreGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store has failed; tasks can no longer be stored")
    }
}

/// The loop's handle of the store.
#[derive(Debug)]
pub(crate) struct StoreThread {
    /// Orders of the current turn.
    fresh: Vec<Order>,
    shared: Arc<Shared>,
    /// Set if the loop is to carry out the orders itself.
    turn: Option<Turn>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    sent: Seq,
    /// A write without an acknowledgement, and since when: the first such write, or a later one.
    waiting: Option<(Seq, Instant)>,
    is_slow: bool,
    health: Health,
}

impl StoreThread {
    /// Starts the thread. `report` is called on the thread that carries out an order, and may block
    /// as long as the loop is alive.
    ///
    /// # Errors
    /// If the thread cannot be created.
    pub(crate) fn start(
        store: impl Into<Backing>,
        report: Box<dyn FnMut(Report) + Send>,
    ) -> io::Result<Self> {
        let (alive, ended) = bounded(0);
        let health = Health::default();
        let worker = Worker::new(store.into(), report, health.clone())
            .map_err(|Failed(error)| io::Error::other(error.to_string()))?;
        let shared = Arc::new(Shared::new(worker));
        let served = Arc::clone(&shared);
        thread::Builder::new().name("ceased-store".into()).spawn(move || {
            ceased_process::daemon_support::block_signals();
            while let Some(mut turn) = served.next_turn() {
                turn.carry_out();
                turn.tidy_when_due();
            }
            let worker = served.state().worker.take();
            drop(worker);
            drop(alive);
        })?;
        let (fresh, turn, sent) = (Vec::new(), None, Seq::new(0));
        Ok(Self { fresh, shared, turn, ended, sent, waiting: None, is_slow: false, health })
    }

    /// Buffers an order for the next [`StoreThread::hand_over`].
    pub(crate) fn order(&mut self, order: Order) {
        if let Order::Write { seq, .. } = &order {
            self.sent = *seq;
            self.waiting.get_or_insert_with(|| (*seq, Instant::now()));
        }
        self.fresh.push(order);
    }

    /// Hands the buffered orders over without blocking. If the caller `is_free`, it may have to
    /// carry them out: then [`StoreThread::turn`] returns the right to.
    pub(crate) fn hand_over(&mut self, is_free: bool) -> Result<(), StoreGone> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let mut state = self.shared.state();
        if state.has_failed {
            return Err(StoreGone);
        }
        let is_quick = is_free && is_small(&self.fresh) && state.is_quick();
        state.orders.extend(self.fresh.drain(..));
        self.fresh.shrink_to(ORDERS_KEPT);
        if is_quick {
            self.turn = self.shared.take_turn(&mut state);
        } else {
            self.shared.call_own(state);
        }
        Ok(())
    }

    /// Requests a check by the store's thread, unless writes are pending, which check as well.
    pub(crate) fn verify(&mut self) -> Result<(), StoreGone> {
        if self.waiting.is_some() {
            return Ok(());
        }
        self.fresh.push(Order::Verify);
        self.hand_over(false)
    }

    /// The orders that the caller is to carry out.
    pub(crate) const fn turn(&mut self) -> Option<Turn> {
        self.turn.take()
    }

    /// Resets the count of quick batches.
    pub(crate) fn distrust(&self) {
        self.shared.state().quick = 0;
    }

    /// Acknowledges all writes up to this one.
    pub(crate) fn heard(&mut self, upto: Seq) {
        if self.waiting.is_some_and(|(first, _)| first <= upto) {
            self.waiting = (upto < self.sent).then(|| (self.sent, Instant::now()));
            if mem::take(&mut self.is_slow) {
                tracing::info!("the store responds again");
            }
        }
    }

    /// Health of the store.
    pub(crate) const fn health(&self) -> &Health {
        &self.health
    }

    /// Time until [`Self::watch`] is due.
    pub(crate) fn slow_in(&self) -> Option<Duration> {
        let (_, since) = self.waiting.filter(|_| !self.is_slow)?;
        Some(SLOW.saturating_sub(since.elapsed()))
    }

    /// Logs a warning if the store has not acknowledged a write for long.
    pub(crate) fn watch(&mut self) {
        if self.slow_in() == Some(Duration::ZERO) {
            self.is_slow = true;
            tracing::warn!(after = ?SLOW, "the store has not completed a write; check whether the disk is overloaded");
        }
    }

    /// Waits until all orders are carried out and the thread has ended; false on timeout.
    pub(crate) fn finish(mut self, within: Duration) -> bool {
        // A failed store has already reported its failure.
        let _ = self.hand_over(false);
        self.close();
        self.ended.recv_timeout(within) != Err(RecvTimeoutError::Timeout)
    }

    fn close(&mut self) {
        drop(self.turn.take());
        let mut state = self.shared.state();
        state.is_closed = true;
        self.shared.call_own(state);
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether these orders may be carried out by a thread other than the store's.
fn is_small(orders: &[Order]) -> bool {
    let bytes = |order: &Order| match order {
        Order::Write { write, .. } => Some(result_bytes(write)),
        // Reads take an unknown time, depending on the location on disk.
        Order::Load { .. } | Order::Verify => None,
    };
    let total = orders.iter().try_fold(0, |total, order| Some(total + bytes(order)?));
    orders.len() <= FEW && total.is_some_and(|total| total <= FEW_BYTES)
}

/// State shared by the threads that carry out orders.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the store's own thread.
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    /// Orders not carried out yet.
    orders: VecDeque<Order>,
    /// `None` while a thread carries out orders.
    worker: Option<Box<Worker>>,
    /// Consecutive quick batches.
    quick: u32,
    own: ThreadState,
    /// No further orders will follow.
    is_closed: bool,
    /// The store has failed; orders are dropped.
    has_failed: bool,
}

/// State of the store's own thread.
#[derive(Debug, Clone, Copy)]
enum ThreadState {
    /// Running, or notified.
    Awake,
    /// Sleeping until this time; `None`: until notified.
    Asleep(Option<Instant>),
}

impl Shared {
    fn new(worker: Worker) -> Self {
        let (orders, worker, own) = (VecDeque::new(), Some(Box::new(worker)), ThreadState::Awake);
        let (is_closed, has_failed) = (false, false);
        let state = State { orders, worker, quick: 0, own, is_closed, has_failed };
        Self { state: Mutex::new(state), wake: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the store's own thread if it would sleep past due work.
    fn call_own(&self, mut state: MutexGuard<'_, State>) {
        let ThreadState::Asleep(until) = state.own else { return };
        let ends = state.is_closed || state.has_failed;
        let due = state.due(Instant::now());
        if ends || due.is_some_and(|due| until.is_none_or(|until| due < until)) {
            state.own = ThreadState::Awake;
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Waits for work; `None` when there will be none.
    fn next_turn(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            let due = state.due(now);
            if due.is_some_and(|due| due <= now) {
                return self.take_turn(&mut state);
            }
            if state.worker.is_some() && (state.is_closed || state.has_failed) {
                return None;
            }
            state.own = ThreadState::Asleep(due);
            state = match due {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let waited = self.wake.wait_timeout(state, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.own = ThreadState::Awake;
        }
    }

    /// Takes the worker, unless another thread has it.
    fn take_turn(self: &Arc<Self>, state: &mut State) -> Option<Turn> {
        let mut worker = state.worker.take()?;
        worker.take(&mut state.orders);
        Some(Turn { shared: Arc::clone(self), worker: Some(worker) })
    }
}

impl State {
    /// Whether another thread may carry out the next batch, and no other work is pending.
    fn is_quick(&self) -> bool {
        let now = Instant::now();
        let near = self.worker.as_ref().is_some_and(|worker| !worker.is_remote());
        let rests = near && self.due(now).is_none_or(|due| due > now);
        rests && self.quick >= TRUSTED
    }

    /// Time at which work is due; `None` if there is none, or another thread has the worker.
    fn due(&self, now: Instant) -> Option<Instant> {
        let worker = self.worker.as_ref().filter(|_| !self.has_failed)?;
        if worker.is_done() && self.orders.is_empty() { worker.tidy_at() } else { Some(now) }
    }
}

/// The right to carry out orders. Dropping it leaves the remaining orders to the store's own
/// thread.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    /// `None` only during the drop.
    worker: Option<Box<Worker>>,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

impl Turn {
    /// Carries out a batch.
    pub(crate) fn carry_out(&mut self) {
        let began = Instant::now();
        let Some(writes) = self.step(Worker::carry_out) else { return };
        let is_quick = began.elapsed() < QUICK;
        let mut state = self.shared.state();
        state.quick = match writes {
            0 => state.quick,
            _ if is_quick => state.quick.saturating_add(1),
            1..=FEW => 0,
            // A large batch says nothing about the duration of a small one.
            _ => state.quick,
        };
    }

    fn tidy_when_due(&mut self) {
        let due = self.worker.as_ref().and_then(|worker| worker.tidy_at());
        if due.is_some_and(|due| due <= Instant::now()) {
            self.step(Worker::tidy);
        }
    }

    /// Runs `step` unless the store has failed; `None` if it has.
    fn step<T>(&mut self, step: impl FnOnce(&mut Worker) -> Result<T, Failed>) -> Option<T> {
        let worker = self.worker.as_mut().filter(|_| !self.shared.state().has_failed)?;
        let failed = match catch_unwind(AssertUnwindSafe(|| step(worker))) {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(Failed(error))) => error,
            Err(_) => StoreError::Lost("the store panicked".into()),
        };
        self.shared.state().has_failed = true;
        worker.report(Report::Failed(failed));
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.worker = self.worker.take();
        self.shared.call_own(state);
    }
}
