//! Random walks over durable tasks: the process is killed again and again, and whatever any client
//! was told stays true (DUR-01).

use ceased_tests::durable_walk::walk;

/// Walks that once failed, and run for ever: seed and steps.
const KEPT: [(u64, usize); 1] = [
    // The place of a task that had expired while nobody ran was given to another one.
    (800_017, 2000),
];

/// DUR-01: nothing that was told is lost, and nothing is contradicted, wherever the process is
/// killed and however the store behaves. `CEASED_SEEDS` says how many walks.
#[test]
fn what_was_told_stays_true() {
    let (mut kills, mut held, mut ended) = (0, 0, 0);
    let seeds = std::env::var("CEASED_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let fresh = (0..seeds.unwrap_or(150)).map(|seed| (seed, 400));
    for (seed, steps) in KEPT.into_iter().chain(fresh) {
        let Ok(done) = std::panic::catch_unwind(|| walk(seed, steps)) else {
            let again = format!("--store --seed {seed} --steps {steps}");
            panic!("again: cargo run -p ceased-tests --bin sim -- {again}")
        };
        kills += done.kills;
        held = held.max(done.held);
        ended += done.ended;
    }
    println!("{kills} kills, {held} held at once, {ended} ends told");
    assert!(kills > 500 && held > 5 && ended > 2000, "{kills} {held} {ended}: too tame");
}
