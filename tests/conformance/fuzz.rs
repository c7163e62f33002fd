//! Each fuzz target on its corpus and on seeded mutations of it.
//!
//! `CEASED_FUZZ_RUNS` is the number of mutations per target (default 3,000).

use std::fs;

use ceased_tests::fuzz::{Check, TARGETS, mutated};
use ceased_tests::rng::Rng;
use ceased_tests::workspace;

fn samples(target: &str) -> Vec<Vec<u8>> {
    let folder = workspace::root().join("tests/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("a target has a corpus");
    let mut paths: Vec<_> =
        entries.map(|entry| entry.expect("a corpus entry can be read").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| fs::read(path).expect("a sample can be read")).collect()
}

fn run(target: &str, check: Check) {
    let mut samples = samples(target);
    if target == "config" {
        let example = fs::read(workspace::root().join("config.toml"));
        samples.push(example.expect("the example can be read"));
    }
    samples.iter().for_each(|sample| check(sample));
    let runs = std::env::var("CEASED_FUZZ_RUNS").ok();
    let runs: u64 = runs.map_or(3000, |text| text.parse().expect("CEASED_FUZZ_RUNS is a number"));
    for seed in 0..runs {
        let sample = mutated(&mut Rng::new(seed), &samples);
        let caught = std::panic::catch_unwind(|| check(&sample));
        assert!(caught.is_ok(), "{target}, seed {seed}: {:?}", String::from_utf8_lossy(&sample));
    }
}

/// RPC-01, RPC-02, RPC-03: for arbitrary bytes.
#[test]
fn every_fuzz_target_passes() {
    for (target, check) in TARGETS {
        run(target, check);
    }
}
