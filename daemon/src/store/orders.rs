//! Orders to the thread of a store, and its reports.

use super::contract::StoreError;
use ceased_core::tasks::durable::{LoadId, RecordKey, Seq, StoreWrite, TaskOutcome, Unstored};

/// What the store is told to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Carry out a write.
    Write { seq: Seq, write: StoreWrite },
    /// Read what came of a task.
    Load { load: LoadId, key: RecordKey },
    /// Check that the next process will find what was written.
    Verify,
}

/// What the store tells.
#[derive(Debug)]
pub(crate) enum Report {
    /// Everything up to here is on disk, but for what was reported otherwise.
    Durable(Seq),
    /// This is not.
    Unstored(Seq, Unstored),
    /// What came of a task; `None` when that cannot be said.
    Loaded(LoadId, Option<TaskOutcome>),
    /// The store was found to have failed, by no write.
    Ailing(Unstored),
    /// Orders are left undone, and nothing of this process can be stored any more.
    Failed(StoreError),
}
