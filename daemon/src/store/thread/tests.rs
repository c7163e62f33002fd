//! The store's thread with a store that notes what it is handed at once.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ceased_core::event::Identity;
use ceased_core::json::Json;
use ceased_core::task::Status;
use ceased_core::time::Wall;
use uuid::Uuid;

use super::super::Due;
use super::super::durable::{RecordedOutcome, TaskRecord};
use super::super::worker::{BATCH_BYTES, BATCH_WRITES};
use super::*;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What it was handed at once: how many writes, and the bytes of their results.
struct Noting(Sender<(usize, usize)>);

impl Store for Noting {
    fn restore(&mut self, _: usize, _: &mut dyn FnMut(TaskRecord)) -> Result<(), StoreError> {
        Ok(())
    }

    fn commit(&mut self, writes: &[StoreWrite], _: Due) -> Result<(), StoreError> {
        let bytes = writes.iter().map(|write| match write {
            StoreWrite::Put(record) => record.outcome.bytes(),
            StoreWrite::Delete(_) => 0,
        });
        self.0.send((writes.len(), bytes.sum())).expect("the test listens");
        Ok(())
    }

    fn load(&mut self, _: TaskId) -> Result<Option<TaskOutcome>, StoreError> {
        Ok(None)
    }

    fn tidy(&mut self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn start() -> (StoreThread, Receiver<(usize, usize)>, Receiver<Report>) {
    let (noted, batches) = channel();
    let (report, reports) = channel();
    let report = Box::new(move |told| report.send(told).expect("the test listens"));
    (StoreThread::start(Box::new(Noting(noted)), report).expect("a thread"), batches, reports)
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
    };
    Order::Write { seq: Seq::new(number), write: StoreWrite::Put(record) }
}

/// Hands over these as one turn; the batches they became, and what was reported, in order.
fn carried_out(orders: impl Iterator<Item = Order>) -> (Vec<(usize, usize)>, Vec<Report>) {
    let (mut thread, batches, reports) = start();
    orders.for_each(|order| thread.order(order));
    thread.hand_over(false).expect("it lives");
    assert!(thread.finish(PATIENCE), "it does not end");
    (batches.into_iter().collect(), reports.into_iter().collect())
}

/// The sequence numbers up to which the reports call everything durable.
fn durable(reports: &[Report]) -> Vec<u64> {
    let upto = |report: &Report| match report {
        Report::Durable(upto) => Some(upto.get()),
        Report::Unstored(..) | Report::Loaded(..) | Report::Failed(_) => None,
    };
    reports.iter().filter_map(upto).collect()
}

#[test]
fn a_turn_with_many_writes_is_more_than_one_batch() {
    let count = BATCH_WRITES as u64 * 2 + 100;
    let (batches, reports) = carried_out((1..=count).map(|number| write(number, 2)));
    let writes: Vec<usize> = batches.iter().map(|(writes, _)| *writes).collect();
    assert_eq!(writes, [BATCH_WRITES, BATCH_WRITES, 100]);
    // Whoever waits for the first of them waits for its batch alone.
    let batch = BATCH_WRITES as u64;
    assert_eq!(durable(&reports), [batch, 2 * batch, count]);
}

#[test]
fn a_turn_with_large_results_is_more_than_one_batch() {
    let large = BATCH_BYTES / 4;
    let (batches, reports) = carried_out((1..=9).map(|number| write(number, large)));
    assert_eq!(batches, [(4, BATCH_BYTES), (4, BATCH_BYTES), (1, large)]);
    assert_eq!(durable(&reports), [4, 8, 9]);
}
