//! Files of a store that are removed, renamed or replaced while it is open (DUR-01).

use std::fs;
use std::path::Path;

use ceased::store::{Due, Sqlite, Store, StoreError};
use ceased_core::tasks::durable::StoreWrite;

use super::{contents, open, sample};

fn put(store: &mut Sqlite, number: u64) -> Result<(), StoreError> {
    store.commit(&[StoreWrite::New(sample::completed(number, 5000))], Due::New)
}

/// What somebody does to the files of a store in this directory.
type Harm = fn(&Path);

/// Everything that takes files away from a store, with what it is called.
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

/// Makes the directory again, as the state directory's owner does before a store is reopened.
fn make(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
}

/// DUR-01: a write to files that the next process does not find fails, and so does a look; reopened,
/// the store has everything that was ever written, and so has the next process.
#[test]
fn removed_files_fail_the_write_and_are_made_again() {
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
        // As if this process were killed: nothing is written when it is forgotten.
        let copied = tempfile::tempdir().unwrap();
        super::copy(&dir, copied.path());
        assert_eq!(contents(&mut open(copied.path())).unwrap(), all, "{what}");
        drop(store);
        assert_eq!(contents(&mut open(&dir)).unwrap(), all, "{what}");
    }
}

/// DUR-01: files that were removed shortly before the end are made again at the end.
#[test]
fn removed_files_are_made_again_when_the_store_is_closed() {
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

/// DUR-01: a file that came in the place of one of the store's is neither written nor removed; when
/// it is moved away the store goes on with what it has.
#[test]
fn a_file_in_the_place_of_another_is_left_alone() {
    for name in ["tasks.db", "tasks.db-wal"] {
        let home = tempfile::tempdir().unwrap();
        let mut store = open(home.path());
        put(&mut store, 1).unwrap();
        let path = home.path().join(name);
        fs::rename(&path, home.path().join("kept")).unwrap();
        fs::write(&path, "somebody else's").unwrap();
        for _ in 0..2 {
            let why = put(&mut store, 2).unwrap_err().to_string();
            assert!(why.contains("was replaced"), "{why}");
            let why = store.reopen().unwrap_err().to_string();
            assert!(why.contains(&format!("mv {}", path.display())), "{why}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "somebody else's");
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
