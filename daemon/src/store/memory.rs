//! A store in memory; the reference behaviour for all other stores.

use std::collections::BTreeMap;

use super::contract::{Due, Store, StoreError};
use super::record::KeptOutcome;
use ceased_core::tasks::durable::{
    RecordKey, RecordedOutcome, StoreWrite, TaskOutcome, TaskRecord,
};

/// A store in memory. It is never full and never fails.
#[derive(Debug, Default)]
pub struct Memory {
    records: BTreeMap<RecordKey, TaskRecord>,
}

impl Memory {
    /// Returns an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl Store for Memory {
    fn restore(
        &mut self,
        resident: usize,
        each: &mut dyn FnMut(TaskRecord),
    ) -> Result<(), StoreError> {
        for record in self.records.values() {
            let mut record = record.clone();
            if let RecordedOutcome::Here(outcome) = &record.outcome {
                let bytes = KeptOutcome::of(outcome).map_err(StoreError::Refused)?.json.len();
                if bytes > resident {
                    record.outcome = RecordedOutcome::Stored { bytes };
                }
            }
            each(record);
        }
        Ok(())
    }

    fn commit(&mut self, writes: &[StoreWrite], _: Due) -> Result<(), StoreError> {
        for write in writes {
            match write {
                StoreWrite::New(record) | StoreWrite::Put(record) => {
                    drop(self.records.insert(record.key(), record.clone()));
                }
                StoreWrite::Delete(key) => drop(self.records.remove(key)),
                StoreWrite::Cancel(_)
                | StoreWrite::Watch(_)
                | StoreWrite::Unwatch(_)
                | StoreWrite::Change(_)
                | StoreWrite::Input { .. }
                | StoreWrite::Taken(_)
                | StoreWrite::Receipt { .. }
                | StoreWrite::Claim { .. }
                | StoreWrite::Keyed(..)
                | StoreWrite::Retire
                | StoreWrite::Probe => {}
            }
        }
        Ok(())
    }

    fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, StoreError> {
        Ok(self.records.get(&key).and_then(|record| match &record.outcome {
            RecordedOutcome::Here(outcome) => Some(outcome.clone()),
            RecordedOutcome::Open | RecordedOutcome::Stored { .. } => None,
        }))
    }

    fn tidy(&mut self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}
