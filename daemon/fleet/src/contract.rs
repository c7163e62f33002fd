//! The contract of a table that several daemons share, and the rules that every implementation keeps.
//!
//! A *node* is one start of a daemon; its [`Epoch`] is drawn from the table and never used twice. Every
//! batch of writes is carried out whole or not at all, and only while its node is a member (FLT-02):
//! the batch renews the node's lease by the same statement. An end is taken only by a task that has
//! none, so that a task has one end, whichever node told it.

use std::fmt;
use std::time::{Duration, Instant};

use ceased_core::ids::TaskId;
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;

/// A start of a daemon, numbered by the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

/// A state of a task; grows with every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub i64);

/// A node that wants to be a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// Random, kept in the state directory: earlier starts with this key have ended.
    pub key: [u8; 16],
    /// Its name, for people.
    pub name: String,
    /// How long it is a member after each batch.
    pub lease: Duration,
    /// Version of its program, for people.
    pub version: String,
}

/// The outcome of a call: the JSON text of a result, or of a JSON-RPC error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A result.
    Result(String),
    /// An error.
    Error(String),
}

impl Outcome {
    /// Its JSON text.
    #[must_use]
    pub fn json(&self) -> &str {
        match self {
            Self::Result(json) | Self::Error(json) => json,
        }
    }
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Its last status.
    pub status: Ended,
    /// Its `statusMessage`.
    pub message: Option<String>,
    /// The answer of `tasks/result`.
    pub outcome: Outcome,
    /// The end of its processes, as JSON, where that has come.
    pub receipt: Option<String>,
}

/// A status that stays (TSK-26).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// [`Status::Completed`].
    Completed,
    /// [`Status::Failed`].
    Failed,
    /// [`Status::Cancelled`].
    Cancelled,
}

impl From<Ended> for Status {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Completed => Self::Completed,
            Ended::Failed => Self::Failed,
            Ended::Cancelled => Self::Cancelled,
        }
    }
}

/// A task that no peer was told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// Its id.
    pub id: TaskId,
    /// Its owner, as the fleet writes identities.
    pub identity: String,
    /// The tool that is called.
    pub tool: String,
    /// Its `statusMessage`.
    pub message: Option<String>,
    /// How long it is kept.
    pub ttl: Duration,
    /// Its end, where it has ended by now.
    pub end: Option<End>,
}

/// The most that one identity may have in the whole fleet (FLT-06).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Tasks without an end.
    pub live: u32,
    /// Tasks with an end.
    pub stored: u32,
    /// Bytes of results; the one that passes it is taken.
    pub bytes: u64,
}

/// A limit of [`Quota`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// [`Quota::live`].
    Live,
    /// [`Quota::stored`].
    Stored,
    /// [`Quota::bytes`].
    Bytes,
}

/// One write of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetWrite {
    /// A task of this node, if its owner has room.
    New {
        /// The task.
        task: NewTask,
        /// The room.
        quota: Quota,
    },
    /// A task of this node waits for input, or works on.
    Change {
        /// The task.
        task: TaskId,
        /// True while it waits for input.
        input_required: bool,
        /// Its `statusMessage`.
        message: Option<String>,
        /// The questions, as JSON.
        asks: Option<String>,
    },
    /// A task of this node has ended.
    End {
        /// The task.
        task: TaskId,
        /// The end.
        end: End,
    },
    /// A task of this identity on any node is cancelled, unless it has ended.
    Cancel {
        /// The task.
        task: TaskId,
        /// The identity that asks.
        viewer: String,
        /// The end.
        end: End,
    },
    /// The end of the processes of a task that has ended.
    Receipt {
        /// The task.
        task: TaskId,
        /// The receipt, as JSON.
        receipt: String,
    },
    /// A task of this node is removed, whether it has ended or not.
    Delete(TaskId),
    /// This node wants a hint when the task changes. A read comes after it.
    Watch(TaskId),
    /// It does not any more.
    Unwatch(TaskId),
    /// A message to the node that runs a task of this identity, while few wait for that task.
    Send {
        /// The task.
        task: TaskId,
        /// The identity that sends it.
        viewer: String,
        /// A number that its reader knows.
        kind: i16,
        /// Its content.
        body: Vec<u8>,
    },
    /// Messages to this node that it has taken; exactly these, since numbers become visible in
    /// another order than they grow.
    Taken(Vec<i64>),
    /// This node takes no further work, which others are shown.
    Drain,
    /// Claims the idempotency key of a call, unless a call of any node has it.
    Claim {
        /// The key.
        key: CallKey,
        /// Digest of the call: the same key must not mean another one.
        wish: [u8; 32],
        /// The room for keys.
        quota: KeyQuota,
    },
    /// The call of a key that this node claimed has come so far.
    Keyed {
        /// The key.
        key: CallKey,
        /// The change.
        change: KeyChange,
    },
}

/// An idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallKey {
    /// The identity that gave it, as the fleet writes identities.
    pub identity: String,
    /// The key.
    pub key: String,
    /// Number of the claim at this node, never used twice there.
    pub claim: i64,
}

/// The most keys that one identity may have in the whole fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyQuota {
    /// Keys.
    pub keys: u32,
    /// Bytes of answers; the one that passes it is taken.
    pub bytes: u64,
}

/// A change of a call with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// It is this task, with which its key goes.
    Task(TaskId),
    /// It is over, and this is its answer for so long.
    Over(Outcome, Duration),
    /// Its key is free again.
    Free,
}

/// A call that a key was found to name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFound {
    /// The one of the claim: it is to be carried out.
    Claimed,
    /// One with another digest.
    Another,
    /// One that runs.
    UnderWay,
    /// One whose node was lost.
    Lost,
    /// This task.
    Task(TaskId),
    /// One that is over, with its answer.
    Over(Outcome),
    /// None: the identity has no room for one more.
    Full {
        /// Whether it is the size of the answers.
        bytes: bool,
    },
}

impl FleetWrite {
    /// The task that other nodes have to look at after it.
    #[must_use]
    pub const fn changed(&self) -> Option<TaskId> {
        match self {
            Self::Change { task, .. }
            | Self::End { task, .. }
            | Self::Cancel { task, .. }
            | Self::Send { task, .. }
            | Self::Receipt { task, .. } => Some(*task),
            Self::New { .. }
            | Self::Delete(_)
            | Self::Watch(_)
            | Self::Unwatch(_)
            | Self::Taken(_)
            | Self::Claim { .. }
            | Self::Keyed { .. }
            | Self::Drain => None,
        }
    }

    /// The task it is about.
    #[must_use]
    pub const fn task(&self) -> Option<TaskId> {
        match self {
            Self::New { task, .. } => Some(task.id),
            Self::Change { task, .. }
            | Self::End { task, .. }
            | Self::Cancel { task, .. }
            | Self::Receipt { task, .. }
            | Self::Send { task, .. }
            | Self::Delete(task)
            | Self::Watch(task)
            | Self::Unwatch(task) => Some(*task),
            Self::Taken(_) | Self::Drain | Self::Claim { .. } | Self::Keyed { .. } => None,
        }
    }
}

/// The result of one write of a batch that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is in the table.
    Stored {
        /// The task's new version.
        version: Version,
        /// `lastUpdatedAt`, by the clock of the table.
        stamp: Wall,
        /// The task's place in the list of its owner.
        position: i64,
    },
    /// The task has an end, or is another node's: the task as it is.
    Overtaken(Box<TaskRow>),
    /// There is no such task (any more), or its node has no room for a message.
    Gone,
    /// The owner has no room.
    Full(Limit),
    /// It was carried out, and changed no task.
    Done,
    /// A key was claimed.
    Key(KeyFound),
}

/// A task as it is in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    /// Its id.
    pub id: TaskId,
    /// Its owner.
    pub identity: String,
    /// Its place in the list of its owner.
    pub position: i64,
    /// The node that runs it, or ran it.
    pub node: Epoch,
    /// Its version.
    pub version: Version,
    /// Where it stands.
    pub status: Status,
    /// The tool that was called.
    pub tool: String,
    /// Its `statusMessage`.
    pub message: Option<String>,
    /// `createdAt`.
    pub created: Wall,
    /// `lastUpdatedAt`.
    pub updated: Wall,
    /// When it may be deleted.
    pub expires: Wall,
    /// Its ttl.
    pub ttl: Duration,
    /// Open questions, as JSON.
    pub asks: Option<String>,
    /// Bytes of its outcome; `None` without one.
    pub outcome_bytes: Option<u64>,
    /// The end of its processes, as JSON.
    pub receipt: Option<String>,
    /// Whether its node is a member.
    pub is_attended: bool,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A task of this identity.
    Task {
        /// The task.
        task: TaskId,
        /// The identity that asks.
        viewer: String,
    },
    /// The outcome of a task of this identity.
    Outcome {
        /// The task.
        task: TaskId,
        /// The identity that asks.
        viewer: String,
    },
    /// Tasks of this identity behind a position, in their order.
    Page {
        /// The identity that asks.
        viewer: String,
        /// The position; 0 for the beginning.
        after: i64,
        /// Most tasks.
        size: u32,
    },
    /// Those of these tasks that are not in this version any more, or are gone.
    Changed {
        /// The tasks.
        known: Vec<(TaskId, Version)>,
        /// Most tasks.
        size: u32,
    },
    /// Messages to a node, the oldest first.
    Inbox {
        /// The node.
        node: Epoch,
        /// Most messages.
        size: u32,
        /// Bytes of their bodies; the message that passes it is the last.
        bytes: u32,
    },
}

/// A node as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Its number.
    pub epoch: Epoch,
    /// Its name.
    pub name: String,
    /// `live`, `left` or `dead`.
    pub state: String,
    /// Its lease.
    pub lease: Duration,
    /// Time until its lease is over, in milliseconds; negative after that.
    pub left_ms: i64,
    /// Its tasks that have not ended.
    pub tasks: u64,
    /// Whether it takes no further work.
    pub drains: bool,
    /// Version of its program.
    pub version: String,
}

/// A task, and the node that runs it, or ran it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedTask {
    /// The task.
    pub row: TaskRow,
    /// Name of its node.
    pub node: String,
    /// Time since it was created, in milliseconds.
    pub age_ms: u64,
}

/// The database, as far as the promises of a fleet rest on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Version of the server.
    pub version: String,
    /// Its name.
    pub name: String,
    /// The role of this connection.
    pub role: String,
    /// `synchronous_standby_names`; empty where no standby confirms a commit.
    pub synchronous: String,
    /// Servers that follow this one.
    pub standbys: u64,
    /// Settings that are off and should be on.
    pub off: Vec<String>,
}

impl Database {
    /// The ways in which acknowledged writes can be lost.
    #[must_use]
    pub fn flaws(&self) -> Vec<String> {
        let off =
            self.off.iter().map(|name| format!("{name} = off: a crash of the server loses tasks"));
        let bare = self.standbys > 0 && self.synchronous.is_empty();
        let bare = bare.then(|| {
            let count = self.standbys;
            format!(
                "{count} standby and synchronous_standby_names = '': a failover to a standby loses tasks"
            )
        });
        off.chain(bare).collect()
    }
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A task; `None` where the identity has no such task.
    Task(Option<Box<TaskRow>>),
    /// An outcome; `None` where there is none.
    Outcome(Option<Outcome>),
    /// Tasks.
    Tasks(Vec<TaskRow>),
    /// Tasks that have changed, and those that are gone.
    Changed(Vec<TaskRow>, Vec<TaskId>),
    /// Messages to this node.
    Inbox(Vec<Message>),
    /// The table has a value there that this version cannot read.
    Unreadable(String),
}

/// Messages about one task that wait for its node at most.
pub const WAITING_MESSAGES_MAX: u32 = 64;
/// Bytes of their bodies; the message that passes it is taken.
pub const WAITING_BYTES_MAX: u32 = 1 << 20;

/// A message to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its number, for [`FleetWrite::Taken`].
    pub number: i64,
    /// A number that its reader knows.
    pub kind: i16,
    /// The task it is about.
    pub task: Option<TaskId>,
    /// Its content.
    pub body: Vec<u8>,
}

/// A refusal or failure of the table.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// This node is no member any more: nothing of the batch was done, and nothing of this epoch will
    /// be.
    Fenced,
    /// Nothing of it was done, nor would be if it were sent again. An id that is taken, for example.
    Refused(String),
    /// Nothing of it was done, for a reason that is not in it: a full disk, a server that became read-only.
    Failing(String),
    /// It was carried out or not; [`SharedTable::resolve`] finds out.
    Unknown(String),
    /// The table cannot be used: its format is newer, a right is missing.
    Unusable(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str("this daemon is no member of the fleet any more"),
            Self::Refused(why) | Self::Failing(why) | Self::Unknown(why) | Self::Unusable(why) => {
                f.write_str(why)
            }
        }
    }
}

impl std::error::Error for Failure {}

/// The fate of a batch whose answer was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// Nothing of it was done: it can be sent again.
    NotDone,
    /// It was carried out, with these verdicts as the table tells them now.
    Done(Vec<Verdict>),
}

/// The tasks of a node that was lost are ended by others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reaped {
    /// Nodes that are no members any more by this.
    pub nodes: Vec<Epoch>,
    /// Tasks that have the given end by this.
    pub tasks: Vec<TaskId>,
    /// True when there may be more to do.
    pub more: bool,
}

/// A table of tasks that several nodes share. Used by one thread at a time; every operation ends by its
/// deadline.
pub trait SharedTable: Send {
    /// Becomes a member. Earlier epochs with the same key are ended by this.
    ///
    /// # Errors
    /// [`Failure`].
    fn join(&mut self, node: &NodeInfo, deadline: Instant) -> Result<Epoch, Failure>;

    /// Carries out these writes in order, and renews the lease; an empty batch only renews it. The verdicts on
    /// them.
    ///
    /// # Errors
    /// [`Failure`].
    fn commit(&mut self, writes: &[FleetWrite], deadline: Instant)
    -> Result<Vec<Verdict>, Failure>;

    /// Finds out whether the last batch was carried out, which failed with [`Failure::Unknown`].
    ///
    /// # Errors
    /// [`Failure`].
    fn resolve(&mut self, writes: &[FleetWrite], deadline: Instant) -> Result<Resolved, Failure>;

    /// Answers questions by the table as it is now.
    ///
    /// # Errors
    /// [`Failure`].
    fn fetch(&mut self, wanted: &[Wanted], deadline: Instant) -> Result<Vec<Found>, Failure>;

    /// Nodes other than this one that run or watch one of these tasks, to be hinted. Asked after the change was
    /// carried out: a watch that is stored later is followed by a look that finds the change.
    ///
    /// # Errors
    /// [`Failure`].
    fn concerned(
        &mut self,
        node: Epoch,
        tasks: &[TaskId],
        deadline: Instant,
    ) -> Result<Vec<Epoch>, Failure>;

    /// Gives the tasks of nodes that are no members any more this end, some at a time. If it `buries`, ends the
    /// membership of nodes whose lease is over first (FLT-04).
    ///
    /// # Errors
    /// [`Failure`].
    fn reap(&mut self, end: &End, buries: bool, deadline: Instant) -> Result<Reaped, Failure>;

    /// Deletes tasks whose time is over, some at a time; true when there may be more.
    ///
    /// # Errors
    /// [`Failure`].
    fn expire(&mut self, deadline: Instant) -> Result<bool, Failure>;

    /// Ends the membership of this node, so that no other node waits for its lease.
    ///
    /// # Errors
    /// [`Failure`].
    fn leave(&mut self, deadline: Instant) -> Result<(), Failure>;
}
