//! A store for a world (DUR-01): a write waits until a test completes or fails it, and a new world
//! can be created from the records on disk.

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
    /// Number of worlds created from this store.
    generation: u128,
    /// Largest result that is restored with its task.
    resident: usize,
}

impl Store {
    /// A new world with the tasks on disk.
    ///
    /// Incomplete writes are lost, as after a kill. The clock starts at zero.
    #[must_use]
    pub fn world(&mut self, settings: &Arc<Settings>) -> World {
        let mut world = self.empty_world(settings);
        self.restore(&mut world);
        world
    }

    /// As [`Store::world`], without the restore, for a test that sets the clock first.
    #[must_use]
    pub fn empty_world(&mut self, settings: &Arc<Settings>) -> World {
        self.waiting.clear();
        self.generation += 1;
        self.resident = settings.limits.resident_result_bytes;
        World::made_of(Arc::clone(settings), self.id_source())
    }

    /// Ids of the latest world, different from those of other worlds.
    #[must_use]
    pub fn id_source(&self) -> Rigged {
        let number = |count: u128| (self.generation << 80) | (0x4000_8000 << 48) | count;
        Rigged::new((0..2000).map(|count| Uuid::from_u128(number(count))))
    }

    /// Completes writes without a report to the engine, as when the process ends now.
    pub fn arrive(&mut self, count: usize) {
        for (_, write) in self.waiting.drain(..count).collect::<Vec<_>>() {
            self.apply(write);
        }
    }

    /// Hands every record on disk to a world. Results above the limit stay here.
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

    /// Takes the engine's writes.
    ///
    /// # Panics
    /// When they are not numbered in order.
    pub fn take(&mut self, world: &mut World) {
        for (seq, write) in world.stored.drain(..) {
            let last = self.waiting.back().map_or(0, |(last, _)| last.get());
            assert!(seq.get() > last, "writes are numbered in order");
            if let Some(record) = write.record() {
                let ended = record.status.is_terminal();
                assert_eq!(ended, !record.outcome.is_open(), "an end has an outcome");
                let here = !matches!(record.outcome, RecordedOutcome::Stored { .. });
                assert!(here, "a record is incomplete");
            }
            self.waiting.push_back((seq, write));
        }
    }

    /// Completes writes and reports them to the engine.
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

    /// Completes all writes, including those that follow the reports.
    pub fn commit_all(&mut self, world: &mut World) {
        self.take(world);
        while !self.waiting.is_empty() {
            self.commit(world, self.waiting.len());
        }
    }

    /// Fails the oldest write, optionally after carrying it out.
    ///
    /// # Panics
    /// When no write waits.
    pub fn refuse(&mut self, world: &mut World, why: Unstored, yet_done: bool) {
        self.take(world);
        let (seq, write) = self.waiting.pop_front().expect("a write waits");
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
                assert!(!records.contains_key(&key.task), "{key:?} is new and exists already");
                self.put(record);
            }
            StoreWrite::Put(record) => {
                let (key, records) = (record.key(), &self.records);
                assert!(records.contains_key(&key.task), "{key:?} replaces no record");
                self.put(record);
            }
            StoreWrite::Delete(key) => {
                let before = self.records.remove(&key.task);
                assert!(before.is_none_or(|before| before.key() == key), "{key:?} has moved");
            }
            // Those are for a table that several engines share.
            StoreWrite::Probe
            | StoreWrite::Cancel(_)
            | StoreWrite::Watch(_)
            | StoreWrite::Unwatch(_)
            | StoreWrite::Change(_)
            | StoreWrite::Input { .. }
            | StoreWrite::Taken(_)
            | StoreWrite::Receipt { .. }
            | StoreWrite::Claim { .. }
            | StoreWrite::Keyed(..)
            | StoreWrite::Retire => {}
        }
    }

    fn put(&mut self, record: TaskRecord) {
        let key = record.key();
        let others = self.records.values().filter(|other| other.id != key.task);
        let is_free = others.into_iter().all(|other| other.position != key.position);
        assert!(is_free, "{key:?} is used twice");
        let before = self.records.insert(key.task, record);
        assert!(before.is_none_or(|before| before.key() == key), "{key:?} has moved");
    }

    /// Answers the engine's loads, with nothing if the store cannot be read.
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
