//! Tasks that several engines share in one table: questions to it, its verdicts and its news (FLT-02).
//!
//! The table is the host's. An engine with [`TaskPolicy::shared`](crate::limits::TaskPolicy::shared)
//! keeps only the tasks that it runs, and those that requests of its peers wait for.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::identity::Identity;
use crate::ids::{TaskId, numbered};
use crate::tasks::durable::{Seq, TaskOutcome, TaskRecord};
use crate::time::{Instant, Wall};

numbered! {
    /// A question to the table. Counted by the engine, never used twice.
    LookupId, "f"
}

/// A question to the table, asked after the request that it is for has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// Its number.
    pub id: LookupId,
    /// Identity whose tasks are shown (TSK-39).
    pub viewer: Identity,
    /// The records to read.
    pub wanted: Wanted,
}

/// Records of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// One task.
    Task {
        /// Its id.
        task: TaskId,
        /// Whether its outcome is needed, too.
        whole: bool,
    },
    /// These tasks.
    Tasks(Vec<TaskId>),
    /// Tasks in the order of their positions.
    Page {
        /// The position before the first one.
        after: u64,
        /// The most of them.
        size: usize,
    },
}

/// The answer to a question.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Found {
    /// The records there are.
    Records(Vec<TaskRecord>),
    /// The table cannot be asked now (FLT-05).
    Unreachable,
}

/// A limit of an identity over all engines (FLT-06).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum SharedLimit {
    /// Tasks that have not ended.
    Live,
    /// Tasks that have ended.
    Stored,
    /// Bytes of their results.
    Bytes,
}

/// The judgement of the table on a write that it was handed.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Verdict {
    /// It is carried out.
    Stored {
        /// The time of the change, by the clock of the table.
        stamp: Wall,
    },
    /// The task had an end already: this one.
    Overtaken(Box<TaskRecord>),
    /// There is no such task, or the engine that runs it takes no message.
    Gone,
    /// The owner of the new task has no room.
    Full(SharedLimit),
    /// A key was [claimed](crate::tasks::durable::StoreWrite::Claim).
    Key(KeyVerdict),
}

/// The judgement of the table on a claimed idempotency key.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum KeyVerdict {
    /// It is this claim's: the call is to be carried out.
    Granted,
    /// It means another call.
    Another,
    /// The call runs, on whichever engine.
    UnderWay,
    /// The engine that ran the call was lost.
    Lost,
    /// The call is this task.
    Task(TaskId),
    /// The call is over, and this came of it.
    Over(TaskOutcome),
    /// The identity has no room for one more key: too many, or their answers are too large.
    Full {
        /// Whether it is the size of the answers.
        bytes: bool,
    },
}

/// News of the table.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum SharedEvent {
    /// This engine is a member from now on.
    Joined {
        /// Seals cursors; the same for all members.
        cursor_key: [u8; 16],
    },
    /// It is a member until this time: then the jobs of its tasks stop, before others may call them
    /// lost (FLT-04).
    Renewed {
        /// The time; `None` where jobs go on without the table.
        until: Option<Instant>,
    },
    /// It is no member any more: others have ended its tasks.
    Fenced,
    /// The verdict on one write. Comes before the [`Durable`](crate::event::Event::Durable) that goes
    /// past it.
    Verdict {
        /// Number of the write.
        seq: Seq,
        /// The verdict.
        verdict: Verdict,
    },
    /// The answer to a [`Lookup`]; exactly one.
    Found {
        /// Number of the question.
        lookup: LookupId,
        /// The answer.
        found: Found,
    },
    /// A peer of another engine has answered questions of a task of this one. Handed in again until the
    /// table was told that it is [taken](crate::tasks::durable::StoreWrite::Taken).
    Input {
        /// Number of the message.
        number: i64,
        /// The task.
        task: TaskId,
        /// `inputResponses`: the JSON text of an object.
        responses: Box<str>,
    },
    /// A message with this number is there which this version has no use for.
    Unusable {
        /// Number of the message.
        number: i64,
    },
    /// A task that this engine watches was removed.
    Removed {
        /// The task.
        task: TaskId,
    },
    /// A task of this engine was changed by another one, or one that it
    /// [watches](crate::tasks::durable::StoreWrite::Watch) is so now.
    Changed {
        /// The task with its outcome.
        record: Box<TaskRecord>,
    },
}
