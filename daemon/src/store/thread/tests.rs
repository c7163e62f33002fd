//! The store's thread, with a store that records its batches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::TaskId;
use ceased_core::json::raw::Json;
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;
use uuid::Uuid;

use super::super::contract::{Due, Store};
use super::super::worker::{BATCH_BYTES, BATCH_WRITES};
use super::*;
use ceased_core::tasks::durable::{
    LoadId, RecordKey, RecordedOutcome, StoreWrite, TaskOutcome, TaskRecord,
};

/// Test timeout.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A recorded batch: number of writes, and bytes of their results.
type Noted = (usize, usize);

/// Store that records its batches and misbehaves on demand.
struct Noting {
    noted: Sender<Noted>,
    fault: Arc<Mutex<Option<Misdeed>>>,
    tidied: Sender<()>,
    is_overdue: Arc<AtomicBool>,
}

/// Misbehaviour of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misdeed {
    /// Takes longer than `QUICK`.
    Dawdle,
    Panic,
    Lose,
}

impl Store for Noting {
    fn restore(&mut self, _: usize, _: &mut dyn FnMut(TaskRecord)) -> Result<(), StoreError> {
        Ok(())
    }

    fn commit(&mut self, writes: &[StoreWrite], _: Due) -> Result<(), StoreError> {
        let fault = *self.fault.lock().expect("the lock is not poisoned");
        match fault {
            Some(Misdeed::Dawdle) => thread::sleep(QUICK),
            Some(Misdeed::Panic) => panic!("the store panics on purpose"),
            Some(Misdeed::Lose) => return Err(StoreError::Lost("on purpose".into())),
            None => {}
        }
        let bytes = writes.iter().map(result_bytes).sum();
        // The test may have dropped the receiver.
        let _ = self.noted.send((writes.len(), bytes));
        Ok(())
    }

    fn load(&mut self, _: RecordKey) -> Result<Option<TaskOutcome>, StoreError> {
        Ok(None)
    }

    fn tidy(&mut self) -> Result<bool, StoreError> {
        self.is_overdue.store(false, Ordering::SeqCst);
        let _ = self.tidied.send(());
        Ok(false)
    }

    fn needs_tidying(&self) -> bool {
        self.is_overdue.load(Ordering::SeqCst)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A store with its thread, and the reports of it.
struct Rig {
    thread: StoreThread,
    batches: Receiver<Noted>,
    reports: Receiver<Report>,
    tidied: Receiver<()>,
    fault: Arc<Mutex<Option<Misdeed>>>,
    is_overdue: Arc<AtomicBool>,
    written: u64,
}

impl Rig {
    fn start() -> Self {
        let (noted, batches) = channel();
        let (report, reports) = channel();
        let (tidy, tidied) = channel();
        let fault = Arc::<Mutex<Option<Misdeed>>>::default();
        let is_overdue = Arc::<AtomicBool>::default();
        let (its_fault, its_overdue) = (Arc::clone(&fault), Arc::clone(&is_overdue));
        let store = Noting { noted, fault: its_fault, tidied: tidy, is_overdue: its_overdue };
        let report = Box::new(move |told| drop(report.send(told)));
        let thread =
            StoreThread::start(Box::new(store) as Box<dyn Store>, report).expect("a thread");
        tidied.recv_timeout(TIME_LIMIT).expect("it is tidied at the start");
        Self { thread, batches, reports, tidied, fault, is_overdue, written: 0 }
    }

    fn order(&mut self, writes: u64) {
        for _ in 0..writes {
            self.written += 1;
            self.thread.order(write(self.written, 2));
        }
    }

    /// Hands over this many writes; returns the turn, if there is one.
    fn hand_over(&mut self, writes: u64) -> Option<Turn> {
        self.order(writes);
        self.thread.hand_over(true).expect("the store is alive");
        self.thread.turn()
    }

    /// Waits until everything is durable.
    fn hear_all(&self) {
        loop {
            let told = self.reports.recv_timeout(TIME_LIMIT).expect("it reports");
            if durable(&[told]) == [self.written] {
                return;
            }
        }
    }

    /// Writes one by one until the caller gets a turn.
    fn earn_turn(&mut self) -> Turn {
        let since = Instant::now();
        loop {
            if let Some(turn) = self.hand_over(1) {
                return turn;
            }
            assert!(since.elapsed() < TIME_LIMIT, "no batch is quick");
            self.hear_all();
        }
    }

    fn misbehave(&self, how: Option<Misdeed>) {
        *self.fault.lock().expect("the lock is not poisoned") = how;
    }
}

/// The key of a record that does not exist.
fn absent_key() -> RecordKey {
    RecordKey { task: TaskId::new(Uuid::nil()), position: 0 }
}

fn write(number: u64, result_bytes: usize) -> Order {
    let result = format!("\"{}\"", "x".repeat(result_bytes - 2));
    let record = TaskRecord {
        id: TaskId::new(Uuid::from_u128(number.into())),
        owner: Identity::Anonymous,
        position: number,
        tool: "large".into(),
        status: Status::Completed,
        status_message: None,
        created: Wall::from_millis(0),
        updated: Wall::from_millis(0),
        ttl: Duration::from_secs(1),
        expires: Wall::from_millis(1000),
        outcome: RecordedOutcome::Here(Ok(Json::written(result))),
        asks: None,
        work: None,
    };
    Order::Write { seq: Seq::new(number), write: StoreWrite::Put(record) }
}

/// Hands these over as one turn; returns the batches and the reports, in order.
fn carried_out(orders: impl Iterator<Item = Order>) -> (Vec<Noted>, Vec<Report>) {
    let Rig { mut thread, batches, reports, .. } = Rig::start();
    orders.for_each(|order| thread.order(order));
    thread.hand_over(false).expect("the store is alive");
    assert!(thread.finish(TIME_LIMIT), "the thread does not end");
    (batches.into_iter().collect(), reports.into_iter().collect())
}

/// The sequence numbers of the `Durable` reports.
fn durable(reports: &[Report]) -> Vec<u64> {
    let upto = |report: &Report| match report {
        Report::Durable(upto) => Some(upto.get()),
        Report::Unstored(..)
        | Report::Ailing(_)
        | Report::Loaded(..)
        | Report::Judged(..)
        | Report::News(_)
        | Report::Shared(_)
        | Report::Fleet(..)
        | Report::Failed(_) => None,
    };
    reports.iter().filter_map(upto).collect()
}

#[test]
fn many_writes_are_split_into_batches() {
    let count = BATCH_WRITES as u64 * 2 + 100;
    let (batches, reports) = carried_out((1..=count).map(|number| write(number, 2)));
    let writes: Vec<usize> = batches.iter().map(|(writes, _)| *writes).collect();
    assert_eq!(writes, [BATCH_WRITES, BATCH_WRITES, 100]);
    // The first write waits only for its own batch.
    let batch = BATCH_WRITES as u64;
    assert_eq!(durable(&reports), [batch, 2 * batch, count]);
}

#[test]
fn large_results_are_split_into_batches() {
    let large = BATCH_BYTES / 4;
    let (batches, reports) = carried_out((1..=9).map(|number| write(number, large)));
    assert_eq!(batches, [(4, BATCH_BYTES), (4, BATCH_BYTES), (1, large)]);
    assert_eq!(durable(&reports), [4, 8, 9]);
}

/// DUR-01: orders wait while another thread carries out a batch.
#[test]
fn nothing_overtakes_a_turn() {
    let mut rig = Rig::start();
    let mut turn = rig.earn_turn();
    let (first, _) = (rig.written, rig.batches.try_iter().count());
    assert!(rig.hand_over(3).is_none(), "another thread has the turn");
    rig.thread.order(Order::Load { load: LoadId::new(1), key: absent_key() });
    assert!(rig.hand_over(2).is_none(), "another thread has the turn");
    assert_eq!(rig.batches.try_iter().count(), 0);
    turn.carry_out();
    drop(turn);
    let told: Vec<Report> =
        (0..3).filter_map(|_| rig.reports.recv_timeout(TIME_LIMIT).ok()).collect();
    assert_eq!(durable(&told), [first, first + 5]);
    assert!(matches!(told[2], Report::Loaded(..)), "{told:?}");
    let writes: Vec<usize> = rig.batches.try_iter().map(|(writes, _)| writes).collect();
    assert_eq!(writes, [1, 5]);
}

/// Orders that were handed over are carried out even if the turn is dropped.
#[test]
fn dropped_turn_is_carried_out_by_the_thread() {
    let mut rig = Rig::start();
    drop(rig.earn_turn());
    rig.hear_all();
    // A turn that was never taken does not lose its orders either.
    rig.order(1);
    rig.thread.hand_over(true).expect("the store is alive");
    let Rig { thread, reports, written, .. } = rig;
    assert!(thread.finish(TIME_LIMIT), "the thread does not end");
    assert_eq!(durable(&reports.into_iter().collect::<Vec<_>>()), [written]);
}

/// Another thread carries out only small batches without reads, and only if it is idle.
#[test]
fn turn_is_limited_to_small_batches_of_an_idle_caller() {
    let mut rig = Rig::start();
    drop(rig.earn_turn());
    rig.hear_all();
    rig.order(1);
    rig.thread.hand_over(false).expect("the store is alive");
    assert!(rig.thread.turn().is_none(), "the caller is not idle");
    rig.hear_all();
    assert!(rig.hand_over(FEW as u64 + 1).is_none(), "too many");
    rig.hear_all();
    rig.written += 1;
    rig.thread.order(write(rig.written, FEW_BYTES + 1));
    assert!(rig.hand_over(0).is_none(), "too long");
    rig.hear_all();
    rig.thread.order(Order::Load { load: LoadId::new(1), key: absent_key() });
    assert!(rig.hand_over(0).is_none(), "to be read");
    let told = rig.reports.recv_timeout(TIME_LIMIT);
    assert!(matches!(told, Ok(Report::Loaded(..))), "{told:?}");
}

/// After a slow batch or a rest, the store must be quick for long again.
#[test]
fn slow_batch_resets_the_count_of_quick_batches() {
    let mut rig = Rig::start();
    for round in 0..2 {
        let mut turn = rig.earn_turn();
        if round == 0 {
            rig.misbehave(Some(Misdeed::Dawdle));
            turn.carry_out();
            rig.misbehave(None);
        } else {
            rig.thread.distrust();
        }
        drop(turn);
        rig.hear_all();
        for _ in 1..TRUSTED {
            assert!(rig.hand_over(1).is_none(), "too few quick batches");
            rig.hear_all();
        }
    }
}

/// A permanent failure holds for all threads, whichever detected it.
#[test]
fn failure_in_a_turn_ends_the_store() {
    for fault in [Misdeed::Panic, Misdeed::Lose] {
        let mut rig = Rig::start();
        let mut turn = rig.earn_turn();
        rig.misbehave(Some(fault));
        turn.carry_out();
        drop(turn);
        let told = rig.reports.recv_timeout(TIME_LIMIT);
        assert!(matches!(told, Ok(Report::Failed(StoreError::Lost(_)))), "{told:?}");
        rig.order(1);
        assert_eq!(rig.thread.hand_over(true), Err(StoreGone));
        assert!(rig.thread.finish(TIME_LIMIT), "the thread does not end");
        let told = rig.reports.recv_timeout(TIME_LIMIT);
        assert!(told.is_err(), "a report after the failure: {told:?}");
    }
}

/// The shutdown waits for a turn, up to its timeout.
#[test]
fn shutdown_waits_for_a_turn() {
    let mut rig = Rig::start();
    let mut turn = rig.earn_turn();
    let ending = thread::spawn(move || rig.thread.finish(Duration::from_millis(1)));
    assert!(!ending.join().expect("it returns"), "it cannot have been carried out");
    turn.carry_out();
    let mut rig = Rig::start();
    let mut turn = rig.earn_turn();
    rig.order(1);
    let ending = thread::spawn(move || rig.thread.finish(TIME_LIMIT));
    turn.carry_out();
    drop(turn);
    assert!(ending.join().expect("it returns"), "the thread does not end");
    assert_eq!(durable(&rig.reports.into_iter().collect::<Vec<_>>()).last(), Some(&rig.written));
}

/// Overdue maintenance runs on the store's thread after the batch and before the next turn of
/// another thread.
#[test]
fn overdue_maintenance_runs_on_the_thread() {
    let mut rig = Rig::start();
    let mut turn = rig.earn_turn();
    rig.tidied.try_iter().for_each(drop);
    rig.is_overdue.store(true, Ordering::SeqCst);
    turn.carry_out();
    assert!(rig.tidied.try_recv().is_err(), "not in the turn");
    drop(turn);
    rig.tidied.recv_timeout(TIME_LIMIT).expect("it is tidied");
    rig.hear_all();
    drop(rig.earn_turn());
}

/// The thread ends without a report.
#[test]
fn shutdown_during_a_turn_leaves_no_order_undone() {
    let mut rig = Rig::start();
    let turn = rig.earn_turn();
    drop(rig.thread);
    drop(turn);
    let told: Vec<Report> = rig.reports.into_iter().collect();
    assert_eq!(durable(&told).last(), Some(&rig.written), "an order was not carried out");
}

/// A batch without writes does not count as quick.
#[test]
fn loads_do_not_count_as_quick_batches() {
    let mut rig = Rig::start();
    for number in 1..=u64::from(TRUSTED) {
        rig.thread.order(Order::Load { load: LoadId::new(number), key: absent_key() });
        assert!(rig.hand_over(0).is_none());
        let told = rig.reports.recv_timeout(TIME_LIMIT);
        assert!(matches!(told, Ok(Report::Loaded(..))), "{told:?}");
    }
    assert!(rig.hand_over(1).is_none(), "too few quick batches");
}
