//! Torn writes: whatever part of the log reached the disk, a whole number of commits is there.

use std::fs::{self, OpenOptions};
use std::path::Path;

use ceased::store::{Due, Sqlite, Store};
use ceased_core::tasks::durable::StoreWrite;
use ceased_tests::rng::Rng;
use ceased_tests::wal;

use crate::sample::{completed, delete, failed, put, working};
use crate::{Contents, contents, copy, open};

/// A store after some commits, as a crash leaves it.
struct Crashed {
    dir: tempfile::TempDir,
    /// After each commit since the log was empty: how long it was, and what was in the store.
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

/// Where the log ends, whose file may be longer.
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
    // A log that is begun anew, so that its length says where it ends.
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

/// DUR-01: a commit that was synced whole is there whole; one that was not is not there at all.
#[test]
fn a_log_cut_anywhere_is_a_whole_number_of_commits() {
    let mut rng = Rng::new(1);
    for _ in 0..12 {
        let Crashed { dir, commits } = crashed(&mut rng);
        let whole = log_bytes(dir.path());
        assert!(whole > 0, "nothing to cut");
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

/// DUR-01: a commit that was being written, behind all that was synced, is not there at all.
#[test]
fn a_torn_tail_changes_nothing() {
    let mut rng = Rng::new(3);
    for _ in 0..12 {
        let Crashed { dir, commits } = crashed(&mut rng);
        let path = dir.path().join("tasks.db-wal");
        let (end, expected) = commits.last().unwrap();
        // The kit's reader of the log agrees with who wrote it, so what it leaves is plausible.
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

/// Bytes that never reached the disk read as something else: what is found is a state that was.
#[test]
fn a_log_with_a_wrong_byte_is_a_state_that_was() {
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

/// A store that was being made when the power went is made again; one that is whole is not.
#[test]
fn a_store_half_made_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tasks.db.new"), "half of it").unwrap();
    let mut store = Sqlite::open(dir.path(), 0).unwrap();
    store.commit(&[put(working(1))], Due::New).unwrap();
    drop(store);
    fs::write(dir.path().join("tasks.db.new"), "half of it").unwrap();
    assert_eq!(contents(&mut open(dir.path())).unwrap().len(), 1);
}
