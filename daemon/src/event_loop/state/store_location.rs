//! The place of the store.

use crate::store::open::OpenedStore;
use std::path::PathBuf;

/// File of the store, and the place of a damaged one before it.
#[derive(Debug, Default)]
pub(crate) struct StoreLocation {
    pub(crate) path: Option<PathBuf>,
    pub(crate) set_aside: Option<PathBuf>,
}

impl StoreLocation {
    pub(crate) fn of(kept: Option<&OpenedStore>) -> Self {
        kept.map_or_else(Self::default, |kept| {
            let (path, set_aside) = (kept.path.clone(), kept.set_aside.clone());
            Self { path, set_aside }
        })
    }
}
