//! Files of every version: each released format stays readable.

use std::fs;
use std::path::{Path, PathBuf};

use ceased::store::{Due, Store};
use ceased_core::tasks::durable::StoreWrite;

use crate::sample::{completed, failed, key, put, working};
use crate::{Contents, contents, open};

/// Version that this build writes.
const VERSION: u32 = 2;

fn file(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("store/v{version}.db"))
}

/// Content of the files of versions 1 and 2.
fn first() -> Vec<StoreWrite> {
    (0..30)
        .map(|n| match n % 5 {
            0 | 1 => put(working(n)),
            2 => put(completed(n, 300)),
            3 => put(completed(n, 9_000)),
            _ => put(failed(n)),
        })
        .collect()
}

fn as_contents(writes: Vec<StoreWrite>) -> Contents {
    let records = writes.iter().filter_map(StoreWrite::record);
    records.map(|record| (record.id, format!("{record:?}"))).collect()
}

/// DUR-01: a file of each version is read completely and accepts writes.
#[test]
fn files_of_every_version_are_read() {
    let every: Vec<(u32, Vec<StoreWrite>)> = vec![(1, first()), (2, first())];
    assert_eq!(every.len(), usize::try_from(VERSION).unwrap());
    for (version, writes) in every {
        let dir = tempfile::tempdir().unwrap();
        fs::copy(file(version), dir.path().join("tasks.db")).unwrap();
        let mut store = open(dir.path());
        let expected = as_contents(writes);
        assert_eq!(contents(&mut store).unwrap(), expected, "version {version}");
        assert!(matches!(store.load(key(3)), Ok(Some(Ok(_)))));
        store.commit(&[put(working(900))], Due::New).unwrap();
        drop(store);
        assert_eq!(contents(&mut open(dir.path())).unwrap().len(), expected.len() + 1);
    }
}

/// A change of the format needs a new version, a migration, and a sample file of the old version.
/// This build writes the format of its sample file.
#[test]
fn format_matches_its_sample_file() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let schema = |path: &Path| {
        let connection = rusqlite::Connection::open(path).unwrap();
        let sql = "SELECT group_concat(sql, ';') FROM sqlite_schema";
        let schema: String = connection.query_row(sql, [], |row| row.get(0)).unwrap();
        let version: u32 =
            connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        (version, schema)
    };
    // Works on a copy, because reading a database writes beside it.
    let copy = dir.path().join("copy.db");
    fs::copy(file(VERSION), &copy).unwrap();
    let now = schema(&dir.path().join("tasks.db"));
    assert_eq!(now.0, VERSION, "a new version needs a file in tests/store");
    assert_eq!(now, schema(&copy));
}

/// Writes the sample file of this version; run it by hand when adding a version.
#[test]
#[ignore = "writes into the repository"]
fn write_the_file_of_this_version() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    store.commit(&first(), Due::New).unwrap();
    while store.tidy().unwrap() {}
    drop(store);
    fs::copy(dir.path().join("tasks.db"), file(VERSION)).unwrap();
}
