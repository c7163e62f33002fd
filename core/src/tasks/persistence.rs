//! The engine's side of the store: the writes on their way, and the unpersisted records
//! (DUR-01).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::collections::timer_queue::Armed;
use crate::ids::TaskId;
use crate::rpc::error::{ErrorObject, code};
use crate::tasks::durable::{LoadId, RecordKey, Seq, Unstored};
use crate::tasks::status::Status;
use crate::time::Wall;

/// Writes of one try after the store has failed; the next follow when these are on disk.
const TRY_MAX: usize = 64;

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
pub(crate) enum DiskState {
    /// All that is to be there.
    #[default]
    Settled,
    /// Its creation is handed over at the latest at the end of the next turn: the state that its
    /// job reaches by then is written with it.
    Fresh,
    /// Its creation is on its way, or all of it. No peer may know of it yet, nor of its end.
    Creating(Seq, RecordPart),
    /// Its end is on its way.
    Ending(Seq, LastVisible),
    /// The store did not take its end, and will be told again.
    Owed(LastVisible),
}

impl DiskState {
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
            Self::Creating(seq, RecordPart::Whole) => Some(*seq),
            Self::Creating(_, RecordPart::Begun)
            | Self::Settled
            | Self::Fresh
            | Self::Ending(..)
            | Self::Owed(_) => None,
        }
    }

    /// How much is on disk after `input`. Total: an input that a state has no use for changes
    /// nothing.
    pub(super) fn after(self, input: DiskInput) -> Self {
        match (self, input) {
            (Self::Settled, DiskInput::Created) => Self::Fresh,
            (Self::Fresh, DiskInput::CreationSent(seq, written)) => Self::Creating(seq, written),
            (Self::Settled, DiskInput::EndSent(seq, before)) => Self::Ending(seq, before),
            (Self::Settled, DiskInput::EndOwed(before))
            | (Self::Ending(_, before), DiskInput::NotStored) => Self::Owed(before),
            (Self::Owed(before), DiskInput::SentAgain(seq)) => Self::Ending(seq, before),
            (_, DiskInput::Stored) => Self::Settled,
            (
                state @ (Self::Fresh | Self::Creating(..) | Self::Ending(..) | Self::Owed(_)),
                DiskInput::Created | DiskInput::EndSent(..) | DiskInput::EndOwed(_),
            )
            | (
                state @ (Self::Settled | Self::Creating(..) | Self::Ending(..) | Self::Owed(_)),
                DiskInput::CreationSent(..),
            )
            | (
                state @ (Self::Settled | Self::Fresh | Self::Creating(..) | Self::Owed(_)),
                DiskInput::NotStored,
            )
            | (
                state @ (Self::Settled | Self::Fresh | Self::Creating(..) | Self::Ending(..)),
                DiskInput::SentAgain(_),
            ) => state,
        }
    }
}

/// A change of how much of a task is on disk.
#[derive(Debug)]
pub(crate) enum DiskInput {
    /// The task is being created, and there is a store.
    Created,
    /// Its creation was handed to the store.
    CreationSent(Seq, RecordPart),
    /// Its end was handed to the store.
    EndSent(Seq, LastVisible),
    /// It has ended while the store takes nothing.
    EndOwed(LastVisible),
    /// The store has all records that it was handed, or there is no store.
    Stored,
    /// The store did not carry out the write.
    NotStored,
    /// An end that was owed was handed to the store.
    SentAgain(Seq),
}

/// How much of a task the write has that creates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordPart {
    /// That it is there.
    Begun,
    /// Its existence and its outcome.
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
    fresh: Vec<TaskId>,
    /// Writes on their way, and their tasks; a probe has none.
    sent: BTreeMap<Seq, Option<RecordKey>>,
    /// Tasks the store has to be told of when it works again: how they are by then, or that they
    /// are gone.
    unpersisted: BTreeMap<TaskId, RecordKey>,
    outage: Option<Outage>,
    /// Loads on their way, and their tasks, which may be gone by now.
    loads: BTreeMap<LoadId, TaskId>,
}

/// The store has failed and has not taken everything it is owed yet.
///
/// ```text
///   no outage ──fail──► Resting ──its timer──► Trying ──all went well, nothing owed──► no outage
///                          ▲                    │  ▲ │
///                          └──a write failed────┘  └─┘ all went well, more is owed, or probe
/// ```
#[derive(Debug)]
struct Outage {
    /// Why it failed the last time.
    why: Unstored,
    phase: StorePhase,
}

/// Reaction to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StorePhase {
    /// It is tried again then.
    Resting {
        /// Time of the next try.
        timer: Option<Armed>,
        /// Whether it takes records of existing tasks meanwhile: only new tasks find no room.
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
    pub(super) fn number(&mut self, key: Option<RecordKey>) -> Seq {
        self.last += 1;
        let seq = Seq::new(self.last);
        self.sent.insert(seq, key);
        // It has all that was owed.
        if let Some(key) = key.filter(|key| self.unpersisted.get(&key.task) == Some(key)) {
            self.unpersisted.remove(&key.task);
        }
        seq
    }

    /// Whether the store takes nothing at the moment, not even records of existing tasks.
    pub(crate) fn is_shut(&self) -> bool {
        self.outage.as_ref().is_some_and(|outage| match outage.phase {
            StorePhase::Resting { takes_owed, .. } => !takes_owed,
            // It has taken all that it was owed.
            StorePhase::Trying { probes, .. } => !probes,
        })
    }

    /// The store has to be told of this task when it works again.
    pub(super) fn owe(&mut self, key: RecordKey) {
        if let Some(Outage { phase: StorePhase::Resting { takes_owed, .. }, .. }) = &mut self.outage
        {
            *takes_owed = false;
        }
        self.unpersisted.insert(key.task, key);
    }

    /// The store is owed nothing of this task any more: it has all of it, whatever becomes of the writes on
    /// their way.
    pub(super) fn forgive(&mut self, id: TaskId) {
        self.unpersisted.remove(&id);
        let of_task = |key: &&mut Option<RecordKey>| key.is_some_and(|key| key.task == id);
        self.sent.values_mut().filter(of_task).for_each(|key| *key = None);
    }

    /// The store did not take a write. Returns whether that begins an outage: then the store
    /// [rests](PendingWrites::rest).
    pub(super) fn fail(&mut self, why: Unstored) -> bool {
        match &mut self.outage {
            Some(outage) => {
                outage.why = why;
                if let StorePhase::Trying { failed, .. } = &mut outage.phase {
                    *failed = true;
                }
                false
            }
            None => {
                let phase = StorePhase::Resting { timer: None, takes_owed: false };
                self.outage = Some(Outage { why, phase });
                true
            }
        }
    }

    /// Stops writes to the store, perhaps except those of existing tasks. Returns the timer to arm;
    /// `None` without an outage.
    pub(super) fn rest(&mut self, takes_owed: bool) -> Option<&mut Option<Armed>> {
        let outage = self.outage.as_mut()?;
        outage.phase = StorePhase::Resting { timer: None, takes_owed };
        self.rest_timer()
    }

    /// The timer of a rest; `None` if the store does not rest.
    pub(super) fn rest_timer(&mut self) -> Option<&mut Option<Armed>> {
        match &mut self.outage.as_mut()?.phase {
            StorePhase::Resting { timer, .. } => Some(timer),
            StorePhase::Trying { .. } => None,
        }
    }

    /// The store is tried again, with the writes up to `last`.
    pub(super) fn begin_try(&mut self, last: Seq, probes: bool) {
        if let Some(outage) = &mut self.outage {
            outage.phase = StorePhase::Trying { last, failed: false, probes };
        }
    }

    /// The step after a write, once the writes of a try are through.
    pub(super) fn next_step(&mut self) -> StoreStep {
        let Some(Outage { phase: StorePhase::Trying { last, failed, probes }, .. }) = self.outage
        else {
            return StoreStep::Wait;
        };
        let is_open = self.sent.first_key_value().is_some_and(|(first, _)| *first <= last);
        let owes_nothing = self.unpersisted.is_empty();
        match (is_open, failed) {
            (true, _) => StoreStep::Wait,
            (false, true) => StoreStep::Rest { takes_owed: probes && owes_nothing },
            (false, false) if probes && owes_nothing => {
                self.outage = None;
                StoreStep::Recovered
            }
            (false, false) => StoreStep::Try,
        }
    }

    /// The creation of a task is handed over at the end of the next turn.
    pub(super) fn note_fresh(&mut self, id: TaskId) {
        self.fresh.push(id);
    }

    /// Takes out the tasks whose creation is to be handed over.
    pub(super) fn take_fresh(&mut self) -> Vec<TaskId> {
        core::mem::take(&mut self.fresh)
    }

    /// Puts those back that are not due yet, with room for the next.
    pub(super) fn put_back_fresh(&mut self, fresh: Vec<TaskId>) {
        self.fresh = fresh;
    }

    /// The number of the next load, which is of this task.
    pub(super) fn number_load(&mut self, id: TaskId) -> LoadId {
        self.last_load += 1;
        let load = LoadId::new(self.last_load);
        self.loads.insert(load, id);
        load
    }

    /// Takes out the first write that is on its way, if it is not after `upto`.
    pub(super) fn pop_upto(&mut self, upto: Seq) -> Option<(Seq, Option<RecordKey>)> {
        let first = self.sent.first_entry().filter(|entry| *entry.key() <= upto)?;
        Some(first.remove_entry())
    }

    /// Takes out a write that was not carried out, and its task; `None` if there is no such write.
    pub(super) fn take(&mut self, seq: Seq) -> Option<Option<RecordKey>> {
        self.sent.remove(&seq)
    }

    /// Takes out a load that has come back, and its task, which may be gone.
    pub(super) fn take_load(&mut self, load: LoadId) -> Option<TaskId> {
        self.loads.remove(&load)
    }

    /// Takes out the next tasks the store is owed, for one try.
    pub(super) fn take_owed(&mut self) -> BTreeMap<TaskId, RecordKey> {
        let rest = match self.unpersisted.keys().nth(TRY_MAX).copied() {
            Some(first_left) => self.unpersisted.split_off(&first_left),
            None => BTreeMap::new(),
        };
        core::mem::replace(&mut self.unpersisted, rest)
    }
}

/// The step after a write of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreStep {
    /// Nothing: there is no try, or writes of it are on their way.
    Wait,
    /// The store is left alone for a while.
    Rest {
        /// Whether it takes records of existing tasks meanwhile.
        takes_owed: bool,
    },
    /// The next part of the unpersisted records is sent.
    Try,
    /// It takes everything again.
    Recovered,
}

/// Questions about them.
impl PendingWrites {
    /// Whether the creation of a task is to be handed over.
    pub(crate) const fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Whether no write is on its way.
    pub(crate) fn none_on_their_way(&self) -> bool {
        self.sent.is_empty()
    }

    /// Whether the store has to be told of this task when it works again.
    pub(crate) fn owes(&self, id: TaskId) -> bool {
        self.unpersisted.contains_key(&id)
    }

    /// How many tasks the store has to be told of when it works again.
    pub(crate) fn owed(&self) -> usize {
        self.unpersisted.len()
    }

    /// The task that a write on its way is about.
    pub(super) fn key_of(&self, seq: Seq) -> Option<RecordKey> {
        self.sent.get(&seq).copied().flatten()
    }

    /// Whether the timer of a rest is armed.
    pub(super) fn is_armed(&self) -> bool {
        let phase = self.outage.as_ref().map(|outage| outage.phase);
        matches!(phase, Some(StorePhase::Resting { timer: Some(_), .. }))
    }

    /// Whether the creation of this task is to be handed over.
    pub(super) fn is_fresh(&self, id: TaskId) -> bool {
        self.fresh.contains(&id)
    }

    /// Whether this load is of that task.
    pub(super) fn is_load_of(&self, load: LoadId, id: TaskId) -> bool {
        self.loads.get(&load) == Some(&id)
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub(super) fn check(&self, is_owed: impl Fn(TaskId) -> bool) {
        for id in self.unpersisted.keys() {
            assert!(is_owed(*id) && self.outage.is_some(), "{id} is owed to a store that works");
        }
        match self.outage.as_ref().map(|outage| outage.phase) {
            None => {}
            Some(StorePhase::Resting { timer, .. }) => {
                assert!(timer.is_some(), "the store is given up");
            }
            Some(StorePhase::Trying { last, .. }) => {
                let open = self.sent.first_key_value().is_some_and(|(first, _)| *first <= last);
                assert!(open, "the store is tried with nothing");
            }
        }
        let idle = self.sent.is_empty() && self.outage.is_none() && self.loads.is_empty();
        assert!(self.on || idle, "there is no store");
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

const NOT_TOLD: &str = "the task has changed and what it is now cannot be promised yet: ask again";

/// Error for a request about a task whose end the store has not taken.
pub(crate) fn untold(why: Unstored) -> ErrorObject {
    store_error(why, NOT_TOLD)
}
