//! The engine's side of the store: which writes are on their way, and what the store is still owed
//! (DUR-01).

use crate::rpc::error::ErrorObject;
use crate::rpc::error::code;
use crate::tasks::durable::Unstored;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::collections::timer_queue::Armed;
use crate::ids::TaskId;
use crate::tasks::durable::LoadId;
use crate::tasks::durable::RecordKey;
use crate::tasks::durable::Seq;
use crate::tasks::status::Status;
use crate::time::Wall;

/// Writes of one try after the store has failed; the next follow when these are on disk.
pub(crate) const TRY_MAX: usize = 64;

/// How a task was, as far as anybody may know while its end is not on disk (DUR-01).
#[derive(Debug)]
pub(crate) struct LastVisible {
    pub(crate) status: Status,
    /// Whether it waited for its turn (TSK-09).
    pub(crate) queued: bool,
    pub(crate) updated: Wall,
}

/// How much of a task is on disk.
///
/// ```text
///    Fresh
///      │ Turn
///      ▼
///   Creating ──Durable──► Settled ──it ends──► Ending ──Durable──► Settled
///      │                     │                 │    ▲
///   Unstored              it ends,        Unstored  │ the store is tried again
///      ▼                 store fails           ▼    │
///     gone                   └──────────────► Owed ─┘
/// ```
#[derive(Debug, Default)]
pub(crate) enum Durability {
    /// All that is to be there.
    #[default]
    Settled,
    /// Its creation is to be handed over, at the latest at the end of the next turn: what its job
    /// comes to by then is written with it.
    Fresh,
    /// Its creation is on its way, or all of it. No peer may know of it yet, nor of its end.
    Creating(Seq, Written),
    /// Its end is on its way.
    Ending(Seq, LastVisible),
    /// The store did not take its end, and will be told again.
    Owed(LastVisible),
}

impl Durability {
    /// Whether this write is the one that will make it settled.
    pub(crate) fn awaits(&self, seq: Seq) -> bool {
        match self {
            Self::Creating(awaited, _) | Self::Ending(awaited, _) => *awaited == seq,
            Self::Fresh | Self::Owed(_) | Self::Settled => false,
        }
    }

    /// The write that has the task with its end, while that is on its way.
    pub(crate) const fn whole(&self) -> Option<Seq> {
        match self {
            Self::Creating(seq, Written::Whole) => Some(*seq),
            Self::Creating(_, Written::Begun)
            | Self::Settled
            | Self::Fresh
            | Self::Ending(..)
            | Self::Owed(_) => None,
        }
    }

    /// After the end was not taken.
    pub(crate) fn unstored(self) -> Self {
        match self {
            Self::Ending(_, before) => Self::Owed(before),
            Self::Settled | Self::Fresh | Self::Creating(..) | Self::Owed(_) => self,
        }
    }

    /// After an end that was owed was sent.
    pub(crate) fn sent_again(self, seq: Seq) -> Self {
        match self {
            Self::Owed(before) => Self::Ending(seq, before),
            Self::Settled | Self::Fresh | Self::Creating(..) | Self::Ending(..) => self,
        }
    }
}

/// How much of a task the write has that creates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// That it is there.
    Begun,
    /// That it is there, and what came of it.
    Whole,
}

/// State between an engine and its store.
#[derive(Debug)]
pub(crate) struct PendingWrites {
    /// Whether there is a store.
    on: bool,
    last: u64,
    last_load: u64,
    /// Tasks whose creation is to be handed over, in the order they were asked for; some of them
    /// may be gone.
    pub(crate) fresh: Vec<TaskId>,
    /// Writes on their way, and their tasks; a probe has none.
    pub(crate) sent: BTreeMap<Seq, Option<RecordKey>>,
    /// Tasks the store has to be told of when it works again: how they are by then, or that they
    /// are gone.
    pub(crate) unpersisted: BTreeMap<TaskId, RecordKey>,
    pub(crate) outage: Option<Outage>,
    /// Loads on their way, and their tasks, which may be gone by now.
    pub(crate) loads: BTreeMap<LoadId, TaskId>,
}

/// The store has failed and has not taken everything it is owed yet.
#[derive(Debug)]
pub(crate) struct Outage {
    /// Why it failed the last time.
    pub(crate) why: Unstored,
    pub(crate) phase: Phase,
}

/// Reaction to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is tried again then.
    Resting {
        /// When.
        timer: Option<Armed>,
        /// Whether it takes what it is owed meanwhile: there is no room for new tasks only.
        takes_owed: bool,
    },
    /// It is tried again.
    Trying {
        /// The last write of the try.
        last: Seq,
        /// Whether one of them failed.
        failed: bool,
        /// Whether it only asks if a new task would be taken.
        probes: bool,
    },
}

impl PendingWrites {
    pub(crate) const fn new(on: bool) -> Self {
        Self {
            on,
            last: 0,
            last_load: 0,
            fresh: Vec::new(),
            sent: BTreeMap::new(),
            unpersisted: BTreeMap::new(),
            outage: None,
            loads: BTreeMap::new(),
        }
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.on
    }

    /// Why the store takes nothing at the moment, if so.
    pub(crate) fn outage(&self) -> Option<Unstored> {
        self.outage.as_ref().map(|outage| outage.why)
    }

    /// The number of the next write, which is about this task.
    pub(crate) fn number(&mut self, key: Option<RecordKey>) -> Seq {
        self.last += 1;
        let seq = Seq::new(self.last);
        self.sent.insert(seq, key);
        seq
    }

    /// Whether the store takes nothing at the moment, not even what it is owed.
    pub(crate) fn is_shut(&self) -> bool {
        self.outage.as_ref().is_some_and(|outage| match outage.phase {
            Phase::Resting { takes_owed, .. } => !takes_owed,
            // It has taken all that it was owed.
            Phase::Trying { probes, .. } => !probes,
        })
    }

    /// The store has to be told of this task when it works again.
    pub(crate) fn owe(&mut self, key: RecordKey) {
        if let Some(Outage { phase: Phase::Resting { takes_owed, .. }, .. }) = &mut self.outage {
            *takes_owed = false;
        }
        self.unpersisted.insert(key.task, key);
    }

    /// The number of the next load, which is of this task.
    pub(crate) fn number_load(&mut self, id: TaskId) -> LoadId {
        self.last_load += 1;
        let load = LoadId::new(self.last_load);
        self.loads.insert(load, id);
        load
    }

    /// Takes out the first write that is on its way, if it is not after `upto`.
    pub(crate) fn pop_upto(&mut self, upto: Seq) -> Option<(Seq, Option<RecordKey>)> {
        let first = self.sent.first_entry().filter(|entry| *entry.key() <= upto)?;
        Some(first.remove_entry())
    }

    /// Takes out the next tasks the store is owed, for one try.
    pub(crate) fn take_owed(&mut self) -> BTreeMap<TaskId, RecordKey> {
        let rest = match self.unpersisted.keys().nth(TRY_MAX).copied() {
            Some(first_left) => self.unpersisted.split_off(&first_left),
            None => BTreeMap::new(),
        };
        core::mem::replace(&mut self.unpersisted, rest)
    }
}

/// Error for a request that needs the store while the store is unavailable.
pub(crate) fn store_error(why: Unstored, consequence: &str) -> ErrorObject {
    let store = match why {
        Unstored::Full => "the task store is full",
        Unstored::Broken => "the task store fails",
    };
    ErrorObject::new(code::STORE_UNAVAILABLE, alloc::format!("{store}: {consequence}"))
        .with_data(alloc::format!("{{\"store\":\"{}\"}}", why.as_str()))
}
