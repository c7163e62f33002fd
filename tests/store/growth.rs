//! Bounded files: deleted records free space, and the space is returned to the file system.

use std::fs;
use std::path::Path;

use ceased::store::{Due, Store};

use crate::sample::{completed, delete, put};
use crate::{contents, open};

const TASKS: u64 = 800;
const RESULT_BYTES: usize = 8_000;
/// Initial size of the log file: a thousand pages.
const LOG_BYTES: u64 = 32 + 1000 * 4120;

fn bytes(dir: &Path) -> u64 {
    let len = |name: &str| fs::metadata(dir.join(name)).map_or(0, |found| found.len());
    len("tasks.db") + len("tasks.db-wal")
}

/// DUR-01: rounds of created and deleted tasks leave files as large as after one round, and small
/// files when no task is kept.
#[test]
fn files_stay_bounded_while_tasks_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut peaks = Vec::new();
    for round in 0..8 {
        let first = round * TASKS;
        let numbers: Vec<u64> = (first..first + TASKS).collect();
        for some in numbers.chunks(100) {
            let puts: Vec<_> = some.iter().map(|n| put(completed(*n, RESULT_BYTES))).collect();
            store.commit(&puts, Due::New).unwrap();
            // One maintenance step now and then, as the daemon does under load.
            store.tidy().unwrap();
        }
        peaks.push(bytes(dir.path()));
        // All but the last tenth, whose place the next round takes.
        for some in numbers.chunks(100) {
            let deletes: Vec<_> = some.iter().map(|n| delete(*n)).collect();
            store.commit(&deletes, Due::Owed).unwrap();
        }
    }
    let (first, last) = (peaks[0], *peaks.last().unwrap());
    assert!(last <= first + first / 4, "{peaks:?}");
    while store.tidy().unwrap() {}
    let left = bytes(dir.path()) - LOG_BYTES;
    assert!(left < 2 << 20, "{left} bytes for an empty store; it had {last} when full");
}

/// A log under constant writes is truncated meanwhile.
#[test]
fn log_stays_short_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut longest = 0;
    for n in 0..300 {
        store.commit(&[put(completed(n % 10, 100_000))], Due::New).unwrap();
        let log = fs::metadata(dir.path().join("tasks.db-wal")).map_or(0, |found| found.len());
        longest = longest.max(log);
    }
    // 300 writes of 100 KB are 30 MB.
    assert!(longest < 12 << 20, "{longest}");
}

/// The log file is allocated in advance and overwritten. A longer one is truncated once it is idle,
/// never while in use.
#[test]
fn long_log_is_truncated_once_idle() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let log = || fs::metadata(dir.path().join("tasks.db-wal")).map_or(0, |found| found.len());
    assert_eq!(log(), LOG_BYTES);
    store.commit(&[put(completed(0, 6_000_000))], Due::New).unwrap();
    let long = log();
    assert!(long > 6_000_000, "{long}");
    assert!(store.tidy().unwrap(), "maintenance has more to do");
    assert_eq!(log(), long);
    assert!(!store.tidy().unwrap());
    assert_eq!(log(), LOG_BYTES);
    for n in 10..400 {
        store.commit(&[put(completed(n, 100))], Due::New).unwrap();
        assert_eq!(log(), LOG_BYTES, "the log has grown or was truncated");
    }
    assert!(!store.tidy().unwrap(), "maintenance is complete");
    store.reopen().unwrap();
    assert_eq!(log(), LOG_BYTES);
    assert_eq!(contents(&mut store).unwrap().len(), 391);
}
