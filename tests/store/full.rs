//! A full disk: what is new is refused, what was begun can be ended, and it goes on by itself.

use std::fs;

use ceased::store::{Due, Sqlite, Store, StoreError};
use ceased_tests::disk::SmallDisk;

use crate::contents;
use crate::sample::{completed, delete, id, key, put, working};

const RESERVE: u64 = 2 << 20;

/// DUR-01
#[test]
fn a_full_disk_ends_nothing_that_was_begun() {
    let Some(disk) = SmallDisk::mount(16 << 20) else { return };
    let dir = disk.path().join("tasks");
    fs::create_dir(&dir).unwrap();
    let mut store = Sqlite::open(&dir, RESERVE).unwrap();
    let begun: Vec<_> = (0..20).map(|n| put(working(n))).collect();
    store.commit(&begun, Due::New).unwrap();
    disk.fill();

    // At once, though the log has room for it: that is for how it would end.
    let number = 101;
    assert_eq!(store.commit(&[put(working(number))], Due::New), Err(StoreError::Full));
    let kept = contents(&mut store).unwrap();
    assert!(!kept.contains_key(&id(number)));
    assert_eq!(store.commit(&[put(completed(number, 1 << 20))], Due::New), Err(StoreError::Full));

    // Accepted tasks end, although the disk has been filled up again.
    for n in 0..20 {
        disk.fill();
        store.commit(&[put(completed(n, 10_000))], Due::Owed).unwrap();
    }
    // More than there is room for is refused, and takes nothing with it.
    let huge = put(completed(1000, 8 << 20));
    assert_eq!(store.commit(&[huge], Due::Owed), Err(StoreError::Full));
    store.commit(&[delete(0)], Due::Owed).unwrap();

    // It goes on by itself, and the reserve is there again.
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

/// A store that cannot even be made says that there is no room.
#[test]
fn a_disk_that_is_full_from_the_start() {
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    let dir = disk.path().join("tasks");
    fs::create_dir(&dir).unwrap();
    disk.fill();
    assert_eq!(Sqlite::open(&dir, RESERVE).err(), Some(StoreError::Full));
    disk.free();
    // There is room for the store and none for the reserve: nothing new is begun.
    let mut store = Sqlite::open(&dir, RESERVE).unwrap();
    assert_eq!(fs::metadata(dir.join("tasks.db-wal")).unwrap().len(), 0, "nor kept for the log");
    assert_eq!(store.commit(&[put(working(1))], Due::New), Err(StoreError::Full));
}
