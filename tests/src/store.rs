//! A store for a world (DUR-01): what it is told to write waits until a test says that it is on
//! disk, or that it is not; and a world can be made anew of what is on disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ceased_core::ids::TaskId;
use ceased_core::settings::Settings;
use ceased_core::tasks::durable::{RecordedOutcome, Seq, StoreWrite, TaskRecord, Unstored};
use uuid::Uuid;

use crate::trace::Input;
use crate::world::{Rigged, World};

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub struct Store {
    /// Records on disk.
    pub records: BTreeMap<TaskId, TaskRecord>,
    /// Writes that are not on disk yet.
    pub waiting: VecDeque<(Seq, StoreWrite)>,
    /// How often a world was made of it.
    generation: u128,
    /// Bytes of the largest result that is handed out with its task.
    resident: usize,
}

impl Store {
    /// A world whose tasks are those on disk.
    ///
    /// Writes not on disk are lost, as when the process is killed. The clock goes on from zero.
    #[must_use]
    pub fn world(&mut self, settings: &Arc<Settings>) -> World {
        let mut world = self.empty_world(settings);
        self.restore(&mut world);
        world
    }

    /// As [`Store::world`], with nothing restored yet: for a test that sets the clock first.
    #[must_use]
    pub fn empty_world(&mut self, settings: &Arc<Settings>) -> World {
        self.waiting.clear();
        self.generation += 1;
        self.resident = settings.limits.resident_result_bytes;
        World::made_of(Arc::clone(settings), self.mint())
    }

    /// The ids of the latest world, which no other one draws.
    #[must_use]
    pub fn mint(&self) -> Rigged {
        let number = |count: u128| (self.generation << 80) | (0x4000_8000 << 48) | count;
        Rigged::new((0..2000).map(|count| Uuid::from_u128(number(count))))
    }

    /// So many writes reach the disk, and the engine is not told: the process is about to end.
    pub fn arrive(&mut self, count: usize) {
        for (_, write) in self.waiting.drain(..count).collect::<Vec<_>>() {
            self.apply(write);
        }
    }

    /// Hands a world everything that is on disk. Results that would not be held are left here.
    pub fn restore(&mut self, world: &mut World) {
        for record in self.records.values() {
            let mut record = record.clone();
            let bytes = record.outcome.bytes();
            if bytes > self.resident {
                record.outcome = RecordedOutcome::Stored { bytes };
            }
            world.feed(Input::Restored(record));
        }
        self.take(world);
    }

    /// Takes what the engine wants written.
    ///
    /// # Panics
    /// When that is not numbered in order.
    pub fn take(&mut self, world: &mut World) {
        for (seq, write) in world.stored.drain(..) {
            let last = self.waiting.back().map_or(0, |(last, _)| last.get());
            assert!(seq.get() > last, "writes are numbered in order");
            if let Some(record) = write.record() {
                let ended = record.status.is_terminal();
                assert_eq!(ended, !record.outcome.is_open(), "an end has an outcome");
                let here = !matches!(record.outcome, RecordedOutcome::Stored { .. });
                assert!(here, "what is written is written whole");
            }
            self.waiting.push_back((seq, write));
        }
    }

    /// So many writes are on disk now, and the engine is told.
    pub fn commit(&mut self, world: &mut World, count: usize) {
        self.take(world);
        let mut upto = None;
        for _ in 0..count {
            let Some((seq, write)) = self.waiting.pop_front() else { break };
            self.apply(write);
            upto = Some(seq);
        }
        if let Some(upto) = upto {
            world.feed(Input::Durable(upto));
            world.feed(Input::Turn);
        }
        self.take(world);
    }

    /// Everything is on disk, also what the engine wants written when it hears that.
    pub fn commit_all(&mut self, world: &mut World) {
        self.take(world);
        while !self.waiting.is_empty() {
            self.commit(world, self.waiting.len());
        }
    }

    /// The oldest write is not carried out, or says so although it was.
    ///
    /// # Panics
    /// When there is none.
    pub fn refuse(&mut self, world: &mut World, why: Unstored, yet_done: bool) {
        self.take(world);
        let (seq, write) = self.waiting.pop_front().expect("there is something to refuse");
        if yet_done {
            self.apply(write);
        }
        world.feed(Input::Unstored(seq, why));
        world.feed(Input::Turn);
        self.take(world);
    }

    fn apply(&mut self, write: StoreWrite) {
        match write {
            StoreWrite::New(record) => {
                let (key, records) = (record.key(), &self.records);
                assert!(!records.contains_key(&key.task), "{key:?} is new and there already");
                self.put(record);
            }
            StoreWrite::Put(record) => {
                let (key, records) = (record.key(), &self.records);
                assert!(records.contains_key(&key.task), "{key:?} takes the place of nothing");
                self.put(record);
            }
            StoreWrite::Delete(key) => {
                let before = self.records.remove(&key.task);
                assert!(before.is_none_or(|before| before.key() == key), "{key:?} has moved");
            }
            StoreWrite::Probe => {}
        }
    }

    fn put(&mut self, record: TaskRecord) {
        let key = record.key();
        let others = self.records.values().filter(|other| other.id != key.task);
        let is_free = others.into_iter().all(|other| other.position != key.position);
        assert!(is_free, "{key:?} is given twice");
        let before = self.records.insert(key.task, record);
        assert!(before.is_none_or(|before| before.key() == key), "{key:?} has moved");
    }

    /// Brings what the engine asked for; nothing when the store cannot read.
    pub fn load(&mut self, world: &mut World, readable: bool) {
        for (load, key) in std::mem::take(&mut world.loads) {
            let record = self.records.get(&key.task).filter(|record| record.key() == key);
            let outcome = record.map(|record| record.outcome.clone());
            let outcome = match outcome {
                Some(RecordedOutcome::Here(outcome)) if readable => Some(outcome),
                Some(_) | None => None,
            };
            world.feed(Input::Loaded(load, outcome));
        }
    }
}
