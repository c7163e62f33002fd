//! A store that injects failures in front of another store, for tests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::contract::{Due, Store, StoreError};
use ceased_core::tasks::durable::{RecordKey, StoreWrite, TaskOutcome, TaskRecord};

/// The failure to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// No failure.
    #[default]
    None,
    /// No room for new tasks; owed writes succeed.
    Full,
    /// No room for any write.
    FullForAll,
    /// Every write fails without being stored.
    Broken,
    /// Every write is stored and then reported as failed.
    Unknown,
    /// The durability of writes is unknown.
    Lost,
    /// The store's thread panics.
    Panic,
    /// Every write takes this long.
    Slow(Duration),
}

/// Selects the failure from another thread. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Fault>>);

impl Faults {
    /// Sets the failure to inject.
    pub fn set(&self, fault: Fault) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// The failure being injected.
    #[must_use]
    pub fn get(&self) -> Fault {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store in front of another that injects failures.
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
    is_broken: bool,
}

impl<S: Store> Faulty<S> {
    /// Wraps `inner`; `faults` selects the failure.
    pub const fn new(inner: S, faults: Faults) -> Self {
        Self { inner, faults, is_broken: false }
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.is_broken {
            return Err(StoreError::Broken("it was not reopened".into()));
        }
        Ok(())
    }
}

impl<S: Store> Store for Faulty<S> {
    fn restore(
        &mut self,
        resident: usize,
        each: &mut dyn FnMut(TaskRecord),
    ) -> Result<(), StoreError> {
        self.check()?;
        self.inner.restore(resident, each)
    }

    fn commit(&mut self, writes: &[StoreWrite], due: Due) -> Result<(), StoreError> {
        self.check()?;
        match (self.faults.get(), due) {
            (Fault::None, _) | (Fault::Full, Due::Owed) => self.inner.commit(writes, due),
            (Fault::Full, Due::New) | (Fault::FullForAll, _) => Err(StoreError::Full),
            (Fault::Broken, _) => {
                self.is_broken = true;
                Err(StoreError::Broken("a write failed on purpose".into()))
            }
            (Fault::Unknown, _) => {
                self.is_broken = true;
                self.inner.commit(writes, due)?;
                Err(StoreError::Broken("a write failed on purpose after it was done".into()))
            }
            (Fault::Lost, _) => Err(StoreError::Lost("a sync failed on purpose".into())),
            (Fault::Panic, _) => panic!("the store panics on purpose"),
            (Fault::Slow(pause), _) => {
                std::thread::sleep(pause);
                self.inner.commit(writes, due)
            }
        }
    }

    fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, StoreError> {
        self.check()?;
        self.inner.load(key)
    }

    fn tidy(&mut self) -> Result<bool, StoreError> {
        self.check()?;
        self.inner.tidy()
    }

    fn needs_tidying(&self) -> bool {
        self.inner.needs_tidying()
    }

    fn bytes(&self) -> Option<u64> {
        self.inner.bytes()
    }

    fn verify(&mut self) -> Result<(), StoreError> {
        match self.faults.get() {
            Fault::Broken | Fault::Unknown => {
                self.is_broken = true;
                Err(StoreError::Broken("a check failed on purpose".into()))
            }
            Fault::None
            | Fault::Full
            | Fault::FullForAll
            | Fault::Lost
            | Fault::Panic
            | Fault::Slow(_) => self.inner.verify(),
        }
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        match self.faults.get() {
            Fault::Broken | Fault::Unknown => Err(StoreError::Broken("still broken".into())),
            Fault::None
            | Fault::Full
            | Fault::FullForAll
            | Fault::Lost
            | Fault::Panic
            | Fault::Slow(_) => {
                self.inner.reopen()?;
                self.is_broken = false;
                Ok(())
            }
        }
    }
}
