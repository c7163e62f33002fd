//! Torn writes: whatever part of the log reached the disk, the store holds a whole number of
//! commits.

use std::fs::{self, OpenOptions};
use std::path::Path;

use ceased::store::{Due, Sqlite, Store};
use ceased_core::tasks::durable::StoreWrite;
use ceased_tests::rng::Rng;
use ceased_tests::wal;

use crate::sample::{completed, delete, failed, put, working};
use crate::{Contents, contents, copy, open};

/// A store after some commits, as left by a crash.
struct Crashed {
    dir: tempfile::TempDir,
    /// Length of the log and content of the store after each commit since the log was empty.
    commits: Vec<(u64, Contents)>,
}

fn batch(rng: &mut Rng) -> Vec<StoreWrite> {
    let count = 1 + rng.below(5);
    (0..count)
        .map(|_| {
            let number = rng.below(20) as u64;
            match rng.below(4) {
                0 => put(working(number)),
                1 => put(completed(number, rng.below(12_000))),
                2 => put(failed(number)),
                _ => delete(number),
            }
        })
        .collect()
}

/// End of the log's content; the file may be longer.
fn log_bytes(dir: &Path) -> u64 {
    let log = fs::read(dir.join("tasks.db-wal")).unwrap();
    wal::valid_bytes(&log).unwrap_or(0) as u64
}

fn crashed(rng: &mut Rng) -> Crashed {
    let (life, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut store = open(life.path());
    for _ in 0..rng.below(6) {
        store.commit(&batch(rng), Due::New).unwrap();
    }
    // Starts the log anew, so that its length is the end of its content.
    drop(store);
    let mut store = open(life.path());
    let mut commits = vec![(0, contents(&mut store).unwrap())];
    for _ in 0..1 + rng.below(12) {
        store.commit(&batch(rng), Due::New).unwrap();
        commits.push((log_bytes(life.path()), contents(&mut store).unwrap()));
    }
    copy(life.path(), dir.path());
    Crashed { dir, commits }
}

/// DUR-01: a synced commit is present completely; an unsynced one is absent.
#[test]
fn truncated_log_holds_a_whole_number_of_commits() {
    let mut rng = Rng::new(1);
    for _ in 0..12 {
        let Crashed { dir, commits } = crashed(&mut rng);
        let whole = log_bytes(dir.path());
        assert!(whole > 0, "the log is empty");
        for _ in 0..12 {
            let cut = rng.below(usize::try_from(whole).unwrap() + 1) as u64;
            let torn = tempfile::tempdir().unwrap();
            copy(dir.path(), torn.path());
            let log = OpenOptions::new().write(true).open(torn.path().join("tasks.db-wal"));
            log.unwrap().set_len(cut).unwrap();
            let found = contents(&mut open(torn.path())).unwrap();
            let (_, expected) = commits.iter().rev().find(|(end, _)| *end <= cut).unwrap();
            assert_eq!(&found, expected, "cut at {cut} of {whole}");
        }
    }
}

/// DUR-01: a commit in progress behind the synced ones is absent.
#[test]
fn torn_tail_changes_nothing() {
    let mut rng = Rng::new(3);
    for _ in 0..12 {
        let Crashed { dir, commits } = crashed(&mut rng);
        let path = dir.path().join("tasks.db-wal");
        let (end, expected) = commits.last().unwrap();
        // The test's own log reader agrees with SQLite, so the cut is plausible.
        let valid = wal::valid_bytes(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(valid as u64, *end);
        for _ in 0..12 {
            let torn = tempfile::tempdir().unwrap();
            copy(dir.path(), torn.path());
            wal::tear(&torn.path().join("tasks.db-wal"), &mut rng).unwrap();
            assert_eq!(&contents(&mut open(torn.path())).unwrap(), expected);
        }
    }
}

/// Bytes that never reached the disk read as other bytes: the store shows an earlier state.
#[test]
fn log_with_a_wrong_byte_gives_an_earlier_state() {
    let mut rng = Rng::new(2);
    for _ in 0..8 {
        let Crashed { dir, commits } = crashed(&mut rng);
        let log = fs::read(dir.path().join("tasks.db-wal")).unwrap();
        for _ in 0..12 {
            let torn = tempfile::tempdir().unwrap();
            copy(dir.path(), torn.path());
            let mut log = log.clone();
            let from = rng.below(log.len());
            let until = (from + 1 + rng.below(512)).min(log.len());
            log[from..until].iter_mut().for_each(|byte| *byte ^= 0x5a);
            fs::write(torn.path().join("tasks.db-wal"), log).unwrap();
            let found = contents(&mut open(torn.path())).unwrap();
            assert!(commits.iter().any(|(_, state)| *state == found), "byte {from}");
        }
    }
}

/// A half-created store is created again after a power failure; a complete one is not.
#[test]
fn half_created_store_is_created_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tasks.db.new"), "half of it").unwrap();
    let mut store = Sqlite::open(dir.path(), 0).unwrap();
    store.commit(&[put(working(1))], Due::New).unwrap();
    drop(store);
    fs::write(dir.path().join("tasks.db.new"), "half of it").unwrap();
    assert_eq!(contents(&mut open(dir.path())).unwrap().len(), 1);
}
