//! Orders to the thread of a store, and its reports.

use super::contract::StoreError;
use ceased_core::tasks::durable::{LoadId, RecordKey, Seq, StoreWrite, TaskOutcome, Unstored};

/// An order to the store.
#[derive(Debug)]
pub(crate) enum Order {
    /// Carry out a write.
    Write { seq: Seq, write: StoreWrite },
    /// Read the outcome of a task.
    Load { load: LoadId, key: RecordKey },
    /// Check that the next process will find the written records.
    Verify,
}

/// A report of the store.
#[derive(Debug)]
pub(crate) enum Report {
    /// Everything up to here is on disk, except writes that were reported otherwise.
    Durable(Seq),
    /// This is not.
    Unstored(Seq, Unstored),
    /// Outcome of a task; `None` when it is unknown.
    Loaded(LoadId, Option<TaskOutcome>),
    /// The store was found to have failed, by no write.
    Ailing(Unstored),
    /// Orders are left undone, and nothing of this process can be stored any more.
    Failed(StoreError),
}
