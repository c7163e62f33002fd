//! Orders to the thread of a store, and its reports.

use std::time::Instant;

use super::contract::StoreError;
use ceased_core::tasks::durable::{LoadId, RecordKey, Seq, StoreWrite, TaskOutcome, Unstored};
use ceased_core::tasks::shared::{SharedEvent, Verdict};
use serde_json::value::RawValue;

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

/// News of the membership in a shared table.
#[derive(Debug, Clone, Copy)]
pub(crate) enum News {
    /// This daemon is a member from now on.
    #[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "only a fleet has members"))]
    Joined { cursor_key: [u8; 16] },
    /// It is one until then, and its jobs are ended at the `end`; `None` where jobs go on without the table.
    #[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "only a fleet has members"))]
    Renewed { until: Option<Instant>, end: Option<Instant> },
    /// It is none any more.
    #[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "only a fleet has members"))]
    Fenced,
}

/// A report of the store.
#[derive(Debug)]
pub(crate) enum Report {
    /// Everything up to here is on disk, except writes that were reported otherwise.
    Durable(Seq),
    /// This is not.
    Unstored(Seq, Unstored),
    /// The verdict of a shared table on this write.
    Judged(Seq, Verdict),
    /// News of the membership in a shared table.
    News(News),
    /// An answer or a change of a shared table.
    #[cfg_attr(not(feature = "fleet"), expect(dead_code, reason = "a fleet alone has news"))]
    Shared(SharedEvent),
    /// The nodes of a fleet and the tasks there, for the status of this number; `None` when it cannot be told.
    #[cfg_attr(not(feature = "fleet"), expect(dead_code, reason = "a fleet alone has nodes"))]
    Fleet(u64, Option<Box<RawValue>>),
    /// Outcome of a task; `None` when it is unknown.
    Loaded(LoadId, Option<TaskOutcome>),
    /// The store was found to have failed, by no write.
    Ailing(Unstored),
    /// Orders are left undone, and nothing of this process can be stored any more.
    Failed(StoreError),
}
