//! The store's thread, and how another thread carries out a batch in its place.
//!
//! The loop hands over what a turn brought all at once: of orders that came one by one, the first
//! would go to the disk alone while the others wait for it. The [`Worker`]'s holder carries out
//! what was ordered, in order, and nobody else can meanwhile: nothing overtakes what came before
//! it, whichever threads carry them out.
//!
//! To wake this thread, and to be woken by it, takes about as long as a small commit. So while
//! the disk is quick, a thread that has nothing else to do may carry out a small batch itself.
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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ceased_core::tasks::durable::Seq;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

use super::contract::{Store, StoreError};
use super::health::Health;
use super::orders::{Order, Report};
use super::worker::{Failed, ORDERS_KEPT, Worker, result_bytes};

/// How long a write may take before that is worth saying.
const SLOW: Duration = Duration::from_secs(5);
/// Batches that take less than this are quick.
const QUICK: Duration = Duration::from_millis(1);
/// So many in a row have to be quick before another thread carries one out.
const TRUSTED: u32 = 8;
/// Writes that another thread may carry out at once. More of them are better carried out while the
/// loop does what comes next.
const FEW: usize = 32;
/// Bytes of results in them.
const FEW_BYTES: usize = 64 * 1024;

/// The store failed for good, so that nobody carries out the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreGone;

impl fmt::Display for StoreGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store failed before; no task can be kept any more")
    }
}

/// The store, from the loop's side.
#[derive(Debug)]
pub(crate) struct StoreThread {
    /// What this turn of the loop has brought.
    fresh: Vec<Order>,
    shared: Arc<Shared>,
    /// There when the loop is to carry out what was handed over.
    turn: Option<Turn>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    sent: Seq,
    /// The first write that was not answered, or a later one, and since when.
    waiting: Option<(Seq, Instant)>,
    is_slow: bool,
    health: Health,
}

impl StoreThread {
    /// Starts it. `report` is called wherever orders are carried out, and may block as long as the
    /// loop is alive.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(
        store: Box<dyn Store>,
        report: Box<dyn FnMut(Report) + Send>,
    ) -> io::Result<Self> {
        let (alive, ended) = bounded(0);
        let health = Health::default();
        let worker = Worker::new(store, report, health.clone())
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

    /// Takes an order for the next [`StoreThread::hand_over`].
    pub(crate) fn order(&mut self, order: Order) {
        if let Order::Write { seq, .. } = &order {
            self.sent = *seq;
            self.waiting.get_or_insert_with(|| (*seq, Instant::now()));
        }
        self.fresh.push(order);
    }

    /// Hands over what it was ordered; returns at once. Only when the caller `is_free` to carry it
    /// out may it have to: then there is a [`StoreThread::turn`].
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

    /// Has the store checked by its own thread, unless writes are on their way, which check it.
    pub(crate) fn verify(&mut self) -> Result<(), StoreGone> {
        if self.waiting.is_some() {
            return Ok(());
        }
        self.fresh.push(Order::Verify);
        self.hand_over(false)
    }

    /// What the caller is to carry out.
    pub(crate) const fn turn(&mut self) -> Option<Turn> {
        self.turn.take()
    }

    /// That it was quick counts no more.
    pub(crate) fn distrust(&self) {
        self.shared.state().quick = 0;
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
        // One that failed has said so.
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

/// Whether these may be carried out by another thread than the store's.
fn is_small(orders: &[Order]) -> bool {
    let bytes = |order: &Order| match order {
        Order::Write { write, .. } => Some(result_bytes(write)),
        // Its place on the disk is unknown.
        Order::Load { .. } | Order::Verify => None,
    };
    let total = orders.iter().try_fold(0, |total, order| Some(total + bytes(order)?));
    orders.len() <= FEW && total.is_some_and(|total| total <= FEW_BYTES)
}

/// What the threads share that carry out orders.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The store's own thread is to look what there is to do.
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    /// What nobody has begun with.
    orders: VecDeque<Order>,
    /// Away while somebody carries out orders.
    worker: Option<Box<Worker>>,
    /// Batches in a row that were quick.
    quick: u32,
    own: Own,
    /// There will be no more orders.
    is_closed: bool,
    /// Nothing is carried out any more.
    has_failed: bool,
}

/// What the store's own thread does.
#[derive(Debug, Clone, Copy)]
enum Own {
    /// It works, or was told to.
    Awake,
    /// It waits until then; `None`: until it is told.
    Asleep(Option<Instant>),
}

impl Shared {
    fn new(worker: Worker) -> Self {
        let (orders, worker, own) = (VecDeque::new(), Some(Box::new(worker)), Own::Awake);
        let (is_closed, has_failed) = (false, false);
        let state = State { orders, worker, quick: 0, own, is_closed, has_failed };
        Self { state: Mutex::new(state), wake: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the store's own thread look, if it would sleep over what there is to do.
    fn call_own(&self, mut state: MutexGuard<'_, State>) {
        let Own::Asleep(until) = state.own else { return };
        let ends = state.is_closed || state.has_failed;
        let due = state.due(Instant::now());
        if ends || due.is_some_and(|due| until.is_none_or(|until| due < until)) {
            state.own = Own::Awake;
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Waits until there is something to do; `None` when there never will be.
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
            state.own = Own::Asleep(due);
            state = match due {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let waited = self.wake.wait_timeout(state, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.own = Own::Awake;
        }
    }

    /// The right to carry out what was ordered, unless somebody has it.
    fn take_turn(self: &Arc<Self>, state: &mut State) -> Option<Turn> {
        let mut worker = state.worker.take()?;
        worker.take(&mut state.orders);
        Some(Turn { shared: Arc::clone(self), worker: Some(worker) })
    }
}

impl State {
    /// Whether another thread may carry out what comes next, and there is nothing else to do.
    fn is_quick(&self) -> bool {
        let now = Instant::now();
        let rests = self.worker.is_some() && self.due(now).is_none_or(|due| due > now);
        rests && self.quick >= TRUSTED
    }

    /// When there is something to do for whoever takes the worker; `None` while there is not, or
    /// another has it.
    fn due(&self, now: Instant) -> Option<Instant> {
        let worker = self.worker.as_ref().filter(|_| !self.has_failed)?;
        if worker.is_done() && self.orders.is_empty() { worker.tidy_at() } else { Some(now) }
    }
}

/// The right to carry out orders. The rest of them, when it is dropped, is the store's
/// own thread's.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    /// There until this is dropped.
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
            // So many say nothing about a few.
            _ => state.quick,
        };
    }

    fn tidy_when_due(&mut self) {
        let due = self.worker.as_ref().and_then(|worker| worker.tidy_at());
        if due.is_some_and(|due| due <= Instant::now()) {
            self.step(Worker::tidy);
        }
    }

    /// Does this unless the store has failed; `None` if it has.
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
