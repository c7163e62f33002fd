//! A full disk: new tasks are refused, accepted ones can end, and writing resumes once there is
//! space.

use std::fs;

use ceased::store::{Due, Sqlite, Store, StoreError};
use ceased_tests::disk::SmallDisk;

use crate::contents;
use crate::sample::{completed, delete, id, key, put, working};

const RESERVE: u64 = 2 << 20;

/// DUR-01
#[test]
fn full_disk_ends_no_accepted_task() {
    let Some(disk) = SmallDisk::mount(16 << 20) else { return };
    let dir = disk.path().join("tasks");
    fs::create_dir(&dir).unwrap();
    let mut store = Sqlite::open(&dir, RESERVE).unwrap();
    let begun: Vec<_> = (0..20).map(|n| put(working(n))).collect();
    store.commit(&begun, Due::New).unwrap();
    disk.fill();

    // Refused at once although the log has space: that space is reserved for results.
    let number = 101;
    assert_eq!(store.commit(&[put(working(number))], Due::New), Err(StoreError::Full));
    let kept = contents(&mut store).unwrap();
    assert!(!kept.contains_key(&id(number)));
    assert_eq!(store.commit(&[put(completed(number, 1 << 20))], Due::New), Err(StoreError::Full));

    // Accepted tasks end, although the disk is full again.
    for n in 0..20 {
        disk.fill();
        store.commit(&[put(completed(n, 10_000))], Due::Owed).unwrap();
    }
    // A write that exceeds the space is refused and leaves earlier writes intact.
    let huge = put(completed(1000, 8 << 20));
    assert_eq!(store.commit(&[huge], Due::Owed), Err(StoreError::Full));
    store.commit(&[delete(0)], Due::Owed).unwrap();

    // The store resumes by itself and restores the reserve.
    disk.free();
    store.commit(&[put(working(2000))], Due::New).unwrap();
    assert_eq!(fs::metadata(dir.join("reserve")).unwrap().len(), RESERVE);
    let kept = contents(&mut store).unwrap();
    drop(store);
    let mut store = Sqlite::open(&dir, RESERVE).unwrap();
    assert_eq!(contents(&mut store).unwrap(), kept);
    assert!((1..20).all(|n| matches!(store.load(key(n)), Ok(Some(Ok(_))))));
    assert!(!kept.contains_key(&id(0)) && kept.contains_key(&id(2000)));
}

/// Creating a store on a full disk reports that there is no space.
#[test]
fn creating_a_store_on_a_full_disk_fails() {
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    let dir = disk.path().join("tasks");
    fs::create_dir(&dir).unwrap();
    disk.fill();
    assert_eq!(Sqlite::open(&dir, RESERVE).err(), Some(StoreError::Full));
    disk.free();
    // There is space for the store but not for the reserve: new tasks are refused.
    let mut store = Sqlite::open(&dir, RESERVE).unwrap();
    assert_eq!(
        fs::metadata(dir.join("tasks.db-wal")).unwrap().len(),
        0,
        "no space kept for the log"
    );
    assert_eq!(store.commit(&[put(working(1))], Due::New), Err(StoreError::Full));
}
