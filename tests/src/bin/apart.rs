//! `apart`: measures over a real socket whether the time of an answer tells a task of somebody else
//! from one that never was (TSK-39). It measures and judges nothing.

use std::time::Instant;

use ceased_tests::daemon::{Config, Daemon, Peer};
use ceased_tests::rng::Rng;

const USE: &str = "apart [ROUNDS]";
const TASKS: usize = 200;

/// Nanoseconds of one question and its answer.
fn ask(peer: &mut Peer, method: &str, task: &str) -> u64 {
    let begun = Instant::now();
    let id = peer.request(method, &format!(r#"{{"taskId":"{task}"}}"#));
    let answer = peer.answer(id);
    let took = begun.elapsed().as_nanos();
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    u64::try_from(took).unwrap_or(u64::MAX)
}

fn random_id(rng: &mut Rng) -> String {
    let (high, low) = (rng.word(), rng.word());
    let text = format!("{high:016x}{low:016x}");
    let (a, b, c, d) = (&text[..8], &text[8..12], &text[13..16], &text[17..20]);
    format!("{a}-{b}-4{c}-8{d}-{}", &text[20..])
}

/// The mean and the variance of it, of what is left without the slowest twentieth: those were
/// interrupted.
fn mean(samples: &[u64]) -> (f64, f64) {
    let kept = &samples[..samples.len() - samples.len() / 20];
    let count = kept.len() as f64;
    let mean = kept.iter().sum::<u64>() as f64 / count;
    let spread = kept.iter().map(|sample| (*sample as f64 - mean).powi(2)).sum::<f64>();
    (mean, spread / (count - 1.0) / count)
}

fn report(method: &str, mut foreign: Vec<u64>, mut unknown: Vec<u64>) {
    foreign.sort_unstable();
    unknown.sort_unstable();
    for (name, samples) in [("another's", &foreign), ("never was", &unknown)] {
        let at = |percent: usize| samples[samples.len() * percent / 100] as f64 / 1e3;
        let (p10, p50, p90, p99) = (at(10), at(50), at(90), at(99));
        println!(
            "{method:<14}{name:<11}p10 {p10:7.2}  p50 {p50:7.2}  p90 {p90:7.2}  p99 {p99:7.2} µs"
        );
    }
    let ((one, var_one), (other, var_other)) = (mean(&foreign), mean(&unknown));
    let (apart, error) = (one - other, (var_one + var_other).sqrt());
    let sigmas = apart / error;
    println!(
        "{method:<14}means are {apart:+.0} ns apart, standard error {error:.0} ns: {sigmas:+.1} of them"
    );
}

fn main() {
    let rounds = match std::env::args().nth(1).map(|word| word.parse::<usize>()) {
        None => 20_000,
        Some(Ok(rounds)) if rounds >= 100 => rounds,
        Some(_) => {
            eprintln!("at least 100 rounds: {USE}");
            std::process::exit(2);
        }
    };
    let limits = "task_ops_per_second = 1000000\ntasks_per_identity = 1000";
    let config = Config { limits, tcp: true, ..Config::default() };
    let daemon = Daemon::start(&config);
    let (mut owner, mut stranger, mut rng) = (daemon.peer(), daemon.tcp_peer(), Rng::new(1));
    let long = r#"{"ms":86400000}"#;
    let tasks: Vec<String> = (0..TASKS).map(|_| owner.create_task("sleep", long)).collect();
    println!("{rounds} questions of each kind, in random order, {TASKS} tasks of another");
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        let (mut foreign, mut unknown) = (Vec::new(), Vec::new());
        while foreign.len() < rounds || unknown.len() < rounds {
            // Whose turn it is is drawn, and so is the id, or caches would be measured.
            let (samples, id) = match rng.once_in(2) {
                true => (&mut foreign, rng.pick(&tasks).clone()),
                false => (&mut unknown, random_id(&mut rng)),
            };
            samples.push(ask(&mut stranger, method, &id));
        }
        report(method, foreign, unknown);
    }
}
