//! The SQLite store and the one in memory give the same results for random operations.

use ceased::store::{Due, Memory, Store};
use ceased_core::tasks::durable::StoreWrite;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::sample::{completed, delete, failed, key, put, working};
use crate::{contents, open};

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<StoreWrite>),
    Load(u64),
    Restore(usize),
    Tidy,
    Reopen,
    Restart,
}

fn write() -> impl Strategy<Value = StoreWrite> {
    let number = 0..12_u64;
    prop_oneof![
        3 => number.clone().prop_map(|n| put(working(n))),
        3 => (number.clone(), 0..40_000_usize).prop_map(|(n, bytes)| put(completed(n, bytes))),
        2 => number.clone().prop_map(|n| put(failed(n))),
        2 => number.prop_map(delete),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => vec(write(), 1..8).prop_map(Step::Commit),
        3 => (0..12_u64).prop_map(Step::Load),
        2 => prop_oneof![Just(0), Just(1000), Just(usize::MAX)].prop_map(Step::Restore),
        1 => Just(Step::Tidy),
        1 => Just(Step::Reopen),
        1 => Just(Step::Restart),
    ]
}

/// Result of a restore, as text, sorted by id.
fn restored(store: &mut dyn Store, resident: usize) -> Vec<String> {
    let mut records = Vec::new();
    store.restore(resident, &mut |record| records.push((record.id, record))).unwrap();
    records.sort_by_key(|(id, _)| *id);
    records.iter().map(|(_, record)| format!("{record:?}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// DUR-01
    #[test]
    fn sqlite_and_memory_stores_agree(steps in vec(step(), 1..24)) {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, mut memory) = (open(dir.path()), Memory::new());
        for step in steps {
            match step {
                Step::Commit(writes) => {
                    memory.commit(&writes, Due::New).unwrap();
                    disk.commit(&writes, Due::New).unwrap();
                }
                Step::Load(number) => {
                    let (here, there) = (disk.load(key(number)), memory.load(key(number)));
                    prop_assert_eq!(format!("{here:?}"), format!("{there:?}"));
                }
                Step::Restore(resident) => {
                    prop_assert_eq!(restored(&mut disk, resident), restored(&mut memory, resident));
                }
                Step::Tidy => while disk.tidy().unwrap() {},
                Step::Reopen => disk.reopen().unwrap(),
                Step::Restart => {
                    drop(disk);
                    disk = open(dir.path());
                }
            }
        }
        prop_assert_eq!(contents(&mut disk).unwrap(), contents(&mut memory).unwrap());
    }
}
