//! Files of a store that are removed, renamed or replaced while it is open (DUR-01).

use std::fs;
use std::path::Path;

use ceased::store::{Due, Sqlite, Store, StoreError};
use ceased_core::tasks::durable::StoreWrite;

use super::{contents, open, sample};

fn put(store: &mut Sqlite, number: u64) -> Result<(), StoreError> {
    store.commit(&[StoreWrite::New(sample::completed(number, 5000))], Due::New)
}

/// Changes the files of a store in this directory.
type Harm = fn(&Path);

/// Every way to take files away from a store, with a description.
const HARMS: [(&str, Harm); 8] = [
    ("the directory is removed", |dir| fs::remove_dir_all(dir).unwrap()),
    ("the directory is renamed", |dir| fs::rename(dir, dir.with_extension("old")).unwrap()),
    ("the files are removed", |dir| {
        for entry in fs::read_dir(dir).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }),
    ("the database is removed", |dir| fs::remove_file(dir.join("tasks.db")).unwrap()),
    ("the database is renamed", |dir| {
        fs::rename(dir.join("tasks.db"), dir.join("tasks.bak")).unwrap();
    }),
    ("the database has another name as well, and is removed", |dir| {
        fs::hard_link(dir.join("tasks.db"), dir.join("tasks.link")).unwrap();
        fs::remove_file(dir.join("tasks.db")).unwrap();
    }),
    ("the log is removed", |dir| fs::remove_file(dir.join("tasks.db-wal")).unwrap()),
    ("the log is renamed", |dir| {
        fs::rename(dir.join("tasks.db-wal"), dir.join("wal.bak")).unwrap();
    }),
];

/// Creates the directory again, as the owner of the state directory does before it reopens a store.
fn make(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
}

/// DUR-01: after files are removed, writes and reads fail; the reopened store has every write, and
/// so has the next process.
#[test]
fn removed_files_fail_the_write_and_are_created_again() {
    for ((what, harm), looks) in HARMS.into_iter().flat_map(|harm| [(harm, false), (harm, true)]) {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("tasks");
        make(&dir);
        let mut store = open(&dir);
        for number in 0..50 {
            put(&mut store, number).unwrap();
        }
        store.tidy().unwrap();
        put(&mut store, 50).unwrap();
        store.verify().unwrap();
        let before = contents(&mut store).unwrap();
        harm(&dir);
        let found = if looks { store.verify() } else { put(&mut store, 51) };
        match found {
            Err(StoreError::Broken(why)) => assert!(why.contains("was removed"), "{what}: {why}"),
            other => panic!("{what}: {other:?}"),
        }
        make(&dir);
        store.reopen().unwrap();
        store.verify().unwrap();
        let after = contents(&mut store).unwrap();
        assert!(before.iter().all(|(id, record)| after.get(id) == Some(record)), "{what}");
        put(&mut store, 52).unwrap();
        let all = contents(&mut store).unwrap();
        // As after a kill of this process: `forget` skips the writes of `drop`.
        let copied = tempfile::tempdir().unwrap();
        super::copy(&dir, copied.path());
        assert_eq!(contents(&mut open(copied.path())).unwrap(), all, "{what}");
        drop(store);
        assert_eq!(contents(&mut open(&dir)).unwrap(), all, "{what}");
    }
}

/// DUR-01: files removed shortly before the store is closed are created again on close.
#[test]
fn removed_files_are_created_again_on_close() {
    for (what, harm) in HARMS {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("tasks");
        make(&dir);
        let mut store = open(&dir);
        put(&mut store, 1).unwrap();
        let all = contents(&mut store).unwrap();
        harm(&dir);
        make(&dir);
        drop(store);
        assert_eq!(contents(&mut open(&dir)).unwrap(), all, "{what}");
    }
}

/// DUR-01: a foreign file under the name of a store file is neither written nor removed; once it is
/// moved away, the store continues.
#[test]
fn foreign_file_in_the_place_of_a_store_file_is_left_alone() {
    for name in ["tasks.db", "tasks.db-wal"] {
        let home = tempfile::tempdir().unwrap();
        let mut store = open(home.path());
        put(&mut store, 1).unwrap();
        let path = home.path().join(name);
        fs::rename(&path, home.path().join("kept")).unwrap();
        fs::write(&path, "foreign content").unwrap();
        for _ in 0..2 {
            let why = put(&mut store, 2).unwrap_err().to_string();
            assert!(why.contains("was replaced"), "{why}");
            let why = store.reopen().unwrap_err().to_string();
            assert!(why.contains(&format!("mv {}", path.display())), "{why}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "foreign content");
        }
        fs::rename(&path, home.path().join("moved")).unwrap();
        store.reopen().unwrap();
        put(&mut store, 3).unwrap();
        let all = contents(&mut store).unwrap();
        assert!(all.contains_key(&sample::id(1)) && all.contains_key(&sample::id(3)));
        drop(store);
        assert_eq!(contents(&mut open(home.path())).unwrap(), all);
    }
}
