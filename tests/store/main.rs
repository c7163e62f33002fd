//! The store on a disk, beside the one in memory: what it keeps, what a crash, damage or a full
//! disk makes of it (DUR-01).
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

/// What a store has, as text: its records, with their outcomes whole.
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

/// Copies the files of a store as they are now.
fn copy(from: &Path, to: &Path) {
    for name in ["tasks.db", "tasks.db-wal"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}
