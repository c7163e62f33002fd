//! The place of the tasks: a store of this daemon, or a table that several daemons share.

use ceased_core::tasks::durable::{RecordKey, StoreWrite, TaskOutcome};
use ceased_core::tasks::shared::Verdict;

use super::contract::{Due, Store, StoreError};
use super::orders::News;
#[cfg(feature = "fleet")]
use crate::fleet::FleetStore;

/// A store of this daemon, or a table that several daemons share.
pub(crate) enum Backing {
    /// A store of this daemon.
    Own(Box<dyn Store>),
    /// A table that several daemons share.
    #[cfg(feature = "fleet")]
    Shared(Box<FleetStore>),
}

impl From<Box<dyn Store>> for Backing {
    fn from(store: Box<dyn Store>) -> Self {
        Self::Own(store)
    }
}

impl Backing {
    /// Whether it is behind a network, where no batch is quick and a lease is renewed.
    pub(crate) const fn is_remote(&self) -> bool {
        match self {
            Self::Own(_) => false,
            #[cfg(feature = "fleet")]
            Self::Shared(_) => true,
        }
    }

    /// Carries out these writes; the verdicts of a shared table, by the places of the writes.
    pub(super) fn commit(
        &mut self,
        writes: &[StoreWrite],
        due: Due,
    ) -> Result<Vec<(usize, Verdict)>, StoreError> {
        match self {
            Self::Own(store) => store.commit(writes, due).map(|()| Vec::new()),
            #[cfg(feature = "fleet")]
            Self::Shared(fleet) => fleet.commit(writes),
        }
    }

    pub(super) fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, StoreError> {
        match self {
            Self::Own(store) => store.load(key),
            #[cfg(feature = "fleet")]
            Self::Shared(fleet) => fleet.load(key),
        }
    }

    pub(super) fn tidy(&mut self) -> Result<bool, StoreError> {
        match self {
            Self::Own(store) => store.tidy(),
            #[cfg(feature = "fleet")]
            Self::Shared(fleet) => fleet.tend().map(|()| true),
        }
    }

    pub(super) fn needs_tidying(&self) -> bool {
        match self {
            Self::Own(store) => store.needs_tidying(),
            #[cfg(feature = "fleet")]
            Self::Shared(_) => false,
        }
    }

    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Own(store) => store.bytes(),
            #[cfg(feature = "fleet")]
            Self::Shared(_) => None,
        }
    }

    pub(super) fn verify(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Own(store) => store.verify(),
            #[cfg(feature = "fleet")]
            Self::Shared(_) => Ok(()),
        }
    }

    pub(super) fn reopen(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Own(store) => store.reopen(),
            #[cfg(feature = "fleet")]
            Self::Shared(fleet) => fleet.reopen(),
        }
    }

    /// News of a shared table since the last call.
    pub(super) fn take_news(&mut self) -> Vec<News> {
        match self {
            Self::Own(_) => Vec::new(),
            #[cfg(feature = "fleet")]
            Self::Shared(fleet) => fleet.take_news(),
        }
    }
}
