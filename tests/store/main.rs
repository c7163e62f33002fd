//! The SQLite store compared with the one in memory, and its behaviour after crashes, damage and on
//! a full disk (DUR-01).
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

mod damage;
mod files;
mod format;
mod full;
mod growth;
mod same;
mod sample;
mod torn;

use std::collections::BTreeMap;
use std::path::Path;

use ceased::TaskId;
use ceased::store::{Sqlite, Store, StoreError};

/// Content of a store as text: its records with complete outcomes.
type Contents = BTreeMap<TaskId, String>;

fn contents(store: &mut dyn Store) -> Result<Contents, StoreError> {
    let mut contents = BTreeMap::new();
    store.restore(usize::MAX, &mut |record| {
        contents.insert(record.id, format!("{record:?}"));
    })?;
    Ok(contents)
}

fn open(dir: &Path) -> Sqlite {
    Sqlite::open(dir, 0).unwrap()
}

/// Copies the files of a store in their current state.
fn copy(from: &Path, to: &Path) {
    for name in ["tasks.db", "tasks.db-wal"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}
