//! Durable tasks: the record of a task in a store, and the agreement of an engine and its store on
//! the records on disk (DUR-01).

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use crate::identity::Identity;
use crate::ids::{TaskId, numbered};
use crate::json::raw::Json;
use crate::rpc::error::ErrorObject;
use crate::tasks::status::Status;
use crate::time::Wall;

numbered! {
    /// The number of a write. Counted by the engine from 1; a store carries writes out in this
    /// order.
    Seq, "s"
}

numbered! {
    /// The number of a load. Counted by the engine, never used twice.
    LoadId, "l"
}

/// The keys of a record in a store. Neither is given to two tasks that are in one store at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    /// The record's task.
    pub task: TaskId,
    /// The record's [position](TaskRecord::position): grows from one task to the next, so that a
    /// store which keeps records by it has records that are written together in one place.
    pub position: u64,
}

/// Everything about a task that outlives the process. Written when the task is created and when it
/// has ended, once where it has ended by the time it is created; changes in between are lost
/// with the process, as the work is.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskRecord {
    /// Id of the task.
    pub id: TaskId,
    /// Identity that the task belongs to (TSK-39).
    pub owner: Identity,
    /// Its place in the owner's list; grows with every task of any owner (TSK-19).
    pub position: u64,
    /// The tool that was called, for views.
    pub tool: Arc<str>,
    /// Where it stands.
    pub status: Status,
    /// Its `statusMessage` (TSK-43).
    pub status_message: Option<Box<str>>,
    /// `createdAt` (TSK-12).
    pub created: Wall,
    /// `lastUpdatedAt` (TSK-12).
    pub updated: Wall,
    /// The ttl as promised (TSK-34).
    pub ttl: Duration,
    /// When it may be deleted, by the wall clock (TSK-35).
    pub expires: Wall,
    /// Its outcome: present, in one of two forms, exactly when the status is terminal.
    pub outcome: RecordedOutcome,
    /// Its open questions by their keys, a JSON object, where several engines share its table.
    pub asks: Option<Box<str>>,
    /// How far the work of an ended task is, where several engines share its table; from there, and in an
    /// end that is written.
    pub work: Option<Work>,
}

/// How far the work behind a task is that was cancelled or has failed: `_meta["ceased/work"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Work {
    /// It is being stopped.
    Ending,
    /// Nothing of it is left.
    Ceased,
    /// The process that ran it was lost, and with it the word of its end.
    Lost,
}

impl Work {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ending => "ending",
            Self::Ceased => "ceased",
            Self::Lost => "lost",
        }
    }
}

impl TaskRecord {
    /// Its keys in a store.
    #[must_use]
    pub const fn key(&self) -> RecordKey {
        RecordKey { task: self.id, position: self.position }
    }
}

/// The answer to the request behind a task: the JSON text of an object, or an
/// error (TSK-14).
pub type TaskOutcome = Result<Json, ErrorObject>;

impl StoreWrite {
    /// The record it brings.
    #[must_use]
    pub const fn record(&self) -> Option<&TaskRecord> {
        match self {
            Self::New(record) | Self::Put(record) | Self::Change(record) | Self::Cancel(record) => {
                Some(record)
            }
            Self::Delete(_)
            | Self::Probe
            | Self::Watch(_)
            | Self::Unwatch(_)
            | Self::Input { .. }
            | Self::Taken(_)
            | Self::Receipt { .. }
            | Self::Claim { .. }
            | Self::Keyed(..)
            | Self::Retire => None,
        }
    }
}

/// Outcome of a recorded task.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum RecordedOutcome {
    /// Nothing yet.
    Open,
    /// Answer that its request would have had (TSK-14).
    Here(TaskOutcome),
    /// It is in the store already, and too large to be held in memory as well: to be asked for by
    /// [`Action::Load`](crate::action::Action::Load). Never part of a write; a store may say it
    /// of a task it restores.
    Stored {
        /// Its size in bytes.
        bytes: usize,
    },
}

impl RecordedOutcome {
    /// How much of its owner's room for results it takes (TSK-36), in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Open => 0,
            Self::Here(Ok(result)) => result.get().len(),
            Self::Here(Err(error)) => {
                error.message.len() + error.data.as_ref().map_or(0, |data| data.len())
            }
            Self::Stored { bytes } => *bytes,
        }
    }

    /// True while nothing came of it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

/// One change of the store.
#[derive(Debug, Clone)]
pub enum StoreWrite {
    /// The record of a task that no peer was told of yet; one that is over by now has its outcome.
    New(TaskRecord),
    /// The record takes the place of the one with its key.
    Put(TaskRecord),
    /// The record is not needed any more.
    Delete(RecordKey),
    /// Nothing changes: would a new task be taken? Asked of a store that has failed.
    Probe,
    /// A task that another engine runs gets this end, unless it has one. With
    /// [`TaskPolicy::shared`](crate::limits::TaskPolicy::shared) alone, as the following ones.
    Cancel(TaskRecord),
    /// A request here waits for a task that another engine runs.
    Watch(TaskId),
    /// None does any more.
    Unwatch(TaskId),
    /// A task of this engine waits for input, or works on.
    Change(TaskRecord),
    /// Answers to questions of a task that another engine runs.
    Input {
        /// The task.
        task: TaskId,
        /// Its owner.
        owner: Identity,
        /// `inputResponses`: the JSON text of an object.
        responses: Box<str>,
    },
    /// Answers with this number were taken.
    Taken(i64),
    /// This engine takes no further work, which the others are shown.
    Retire,
    /// The work of a task that was stopped has ceased.
    Receipt {
        /// The task.
        task: TaskId,
        /// Why, by which step and how long after it was told, as JSON.
        receipt: Box<str>,
    },
    /// Asks for the idempotency key of a call; its verdict is a
    /// [`KeyVerdict`](crate::tasks::shared::KeyVerdict).
    Claim {
        /// The key.
        key: ClaimedKey,
        /// The content of the call: the same key must not mean another call.
        wish: Box<str>,
    },
    /// The call of a claimed key has come so far.
    Keyed(ClaimedKey, KeyChange),
}

/// An idempotency key in a table that several engines share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedKey {
    /// The identity that gave it.
    pub owner: Identity,
    /// The key.
    pub key: Box<str>,
    /// Number of the write that claimed it.
    pub claim: Seq,
}

/// A change of a call with an idempotency key.
#[derive(Debug, Clone)]
pub enum KeyChange {
    /// It is this task.
    Task(TaskId),
    /// It is over, and this came of it.
    Over(TaskOutcome),
    /// It is as though it had never been made.
    Forgotten,
}

/// Why a write was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Unstored {
    /// There is no room for it.
    Full,
    /// The store answers with errors.
    Broken,
}

impl Unstored {
    /// A word for logs and for `data` of the error.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Broken => "broken",
        }
    }
}
