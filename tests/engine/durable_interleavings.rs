//! Random walks over durable tasks: the process is killed again and again, and whatever any client
//! was told stays true (DUR-01).

use ceased_simulator::durable_walk::walk;

/// DUR-01: nothing that was told is lost, and nothing is contradicted, wherever the process is
/// killed and however the store behaves. `CEASED_SEEDS` says how many walks.
#[test]
fn what_was_told_stays_true() {
    let (mut kills, mut held, mut ended) = (0, 0, 0);
    let seeds = std::env::var("CEASED_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(160) {
        let done = std::panic::catch_unwind(|| walk(seed, 400));
        let Ok(done) = done else {
            panic!(
                "again: cargo run -p ceased-simulator --bin sim -- --store --seed {seed} --steps 400"
            )
        };
        kills += done.kills;
        held = held.max(done.held);
        ended += done.ended;
    }
    println!("{kills} kills, {held} held at once, {ended} ends told");
    assert!(kills > 500 && held > 5 && ended > 2000, "{kills} {held} {ended}: too tame");
}
