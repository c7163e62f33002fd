//! Damage: a store reports a changed byte and never returns it as data.

use std::fs;
use std::path::Path;

use ceased::store::{Due, Sqlite, Store, StoreError, Unusable};
use ceased_tests::rng::Rng;

use crate::sample::{completed, failed, id, key, put, working};
use crate::{contents, copy, open};

fn filled(dir: &Path) {
    let mut store = open(dir);
    let writes: Vec<_> = (0..60)
        .map(|n| match n % 3 {
            0 => put(working(n)),
            1 => put(completed(n, 50 * usize::try_from(n * n).unwrap())),
            _ => put(failed(n)),
        })
        .collect();
    store.commit(&writes, Due::New).unwrap();
}

fn why_unusable(dir: &Path) -> Unusable {
    match Sqlite::open(dir, 0).err() {
        Some(StoreError::Unusable(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// DUR-01: a damaged file is reported and left unchanged.
#[test]
fn file_that_is_no_store_is_reported_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tasks.db");
    for bytes in [&b""[..], b"not a database at all", &[0; 8192], &[0xff; 70_000]] {
        fs::write(&file, bytes).unwrap();
        let why = why_unusable(dir.path());
        let text = why.to_string();
        assert!(matches!(why, Unusable::Damaged(_)), "{why:?}");
        assert!(text.contains(&file.display().to_string()), "{text}");
        assert!(fs::read(&file).unwrap() == bytes, "the file was changed");
        let _ = fs::remove_file(dir.path().join("tasks.db-wal"));
    }
}

#[test]
fn log_without_its_database_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tasks.db-wal"), "a log").unwrap();
    assert!(matches!(why_unusable(dir.path()), Unusable::Damaged(_)));
    assert!(!dir.path().join("tasks.db").exists());
}

#[test]
fn newer_format_is_rejected_by_its_version() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let connection = rusqlite::Connection::open(dir.path().join("tasks.db")).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let before = fs::read(dir.path().join("tasks.db")).unwrap();
    let why = why_unusable(dir.path());
    assert!(matches!(why, Unusable::TooNew(_)), "{why:?}");
    assert!(why.to_string().contains("format 99"), "{why}");
    assert!(fs::read(dir.path().join("tasks.db")).unwrap() == before, "the file was changed");
}

/// For a flipped bit anywhere, the store either reports damage or returns the data as written.
#[test]
fn flipped_bits_are_detected() {
    let whole = tempfile::tempdir().unwrap();
    filled(whole.path());
    let good = contents(&mut open(whole.path())).unwrap();
    let bytes = fs::read(whole.path().join("tasks.db")).unwrap();
    let mut rng = Rng::new(3);
    let (mut refused, mut unharmed) = (0, 0);
    for _ in 0..150 {
        let dir = tempfile::tempdir().unwrap();
        copy(whole.path(), dir.path());
        let mut bytes = bytes.clone();
        let at = rng.below(bytes.len());
        bytes[at] ^= 1 << rng.below(8);
        fs::write(dir.path().join("tasks.db"), bytes).unwrap();
        let found = Sqlite::open(dir.path(), 0).and_then(|mut store| contents(&mut store));
        match found {
            Ok(found) => {
                assert_eq!(found, good, "byte {at}");
                unharmed += 1;
            }
            Err(StoreError::Unusable(Unusable::Damaged(what) | Unusable::TooNew(what))) => {
                assert!(what.contains("tasks.db"), "{what}");
                refused += 1;
            }
            Err(other) => panic!("byte {at}: {other:?}"),
        }
    }
    assert!(refused > 75, "{refused} refused, {unharmed} unharmed");
}

/// A result damaged on disk is not returned; the other results are.
#[test]
fn one_damaged_result_leaves_the_others_readable() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let connection = rusqlite::Connection::open(dir.path().join("tasks.db")).unwrap();
    let rot = "UPDATE task SET outcome = replace(outcome, 'n', 'm') WHERE id = ?1";
    assert_eq!(connection.execute(rot, [id(58).uuid().as_bytes()]).unwrap(), 1);
    drop(connection);
    let mut store = open(dir.path());
    let mut count = 0;
    store.restore(0, &mut |_| count += 1).unwrap();
    assert_eq!(count, 60);
    assert!(matches!(store.load(key(58)), Err(StoreError::Refused(_))));
    assert!(matches!(store.load(key(55)), Ok(Some(Ok(_)))));
    assert!(matches!(store.load(key(57)), Ok(None)));
}

/// A damaged database with a log: either the log repairs it, or both files stay unchanged.
#[test]
fn damage_that_the_log_cannot_repair_is_left_alone() {
    let life = tempfile::tempdir().unwrap();
    let mut store = open(life.path());
    let commit = |store: &mut Sqlite, numbers: std::ops::Range<u64>| {
        for n in numbers {
            store.commit(&[put(completed(n, 3_000))], Due::New).unwrap();
        }
    };
    commit(&mut store, 0..20);
    while store.tidy().unwrap() {}
    commit(&mut store, 20..24);
    let good = contents(&mut store).unwrap();
    let pages = fs::metadata(life.path().join("tasks.db")).unwrap().len() / 4096;
    let mut refused = 0;
    for page in 0..usize::try_from(pages).unwrap() {
        let dir = tempfile::tempdir().unwrap();
        copy(life.path(), dir.path());
        let (file, log) = (dir.path().join("tasks.db"), dir.path().join("tasks.db-wal"));
        let mut bytes = fs::read(&file).unwrap();
        bytes[page * 4096..][..100].fill(b'x');
        fs::write(&file, &bytes).unwrap();
        let logged = fs::read(&log).unwrap();
        assert!(!logged.is_empty());
        match Sqlite::open(dir.path(), 0).and_then(|mut store| contents(&mut store)) {
            Ok(found) => assert!(found == good, "page {page}"),
            Err(StoreError::Unusable(Unusable::Damaged(_))) => {
                refused += 1;
                let same = fs::read(&file).unwrap() == bytes && fs::read(&log).unwrap() == logged;
                assert!(same, "page {page}: the file was changed");
            }
            Err(other) => panic!("page {page}: {other:?}"),
        }
    }
    assert!(refused > 0, "no page was damaged");
}
