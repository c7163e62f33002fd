//! The simulator over many seeds: every run succeeds, and together the runs reach every mark.
//!
//! `CEASED_SIM_SEEDS` is the number of seeds (default 20,000), `CEASED_SIM_FIRST` the first one.

use std::collections::BTreeSet;
use std::env;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ceased_simulator::agent_walk;
use ceased_simulator::durable_walk;
use ceased_simulator::fleet_walk;
use ceased_simulator::piece_walk;
use ceased_simulator::sim::fault::Faults;
use ceased_simulator::sim::mark::Mark;
use ceased_simulator::sim::{Outcome, Run, run};
use ceased_simulator::upstream_walk::{self, Walked};
use ceased_simulator::workspace;

const SEEDS: u64 = 20_000;
const STEPS: usize = 500;
/// Time after which no further seed starts.
const BUDGET: Duration = Duration::from_secs(20);

fn number(name: &str, usual: u64) -> u64 {
    let given = env::var(name).ok();
    given.map_or(usual, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}"))
    })
}

/// Runs one seed; on failure prints the shortest failing history.
fn must(one: Run, failed: &AtomicBool) -> Outcome {
    match run(one) {
        Ok((outcome, _)) => outcome,
        Err(failure) => {
            failed.store(true, Ordering::Relaxed);
            let short = failure.minimised();
            for step in &short.steps {
                eprintln!("{}", serde_json::to_string(step).expect("a step is JSON"));
            }
            panic!("seed {}: {failure}\n\nin short: {}", one.seed, short.why);
        }
    }
}

/// RPC-03, TSK-10, TSK-21, TSK-24, TSK-26, CAN-08, CAN-11, DET-01: in every order of events.
#[test]
fn every_history_agrees_with_the_oracle() {
    let first = number("CEASED_SIM_FIRST", 1);
    let seeds = number("CEASED_SIM_SEEDS", SEEDS);
    let start = Instant::now();
    let (next, events, done) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let marks = Mutex::new(BTreeSet::new());
    let work = || {
        while start.elapsed() < BUDGET && !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return;
            }
            // Most runs inject every kind of fault; some inject none, because faults hide plain
            // histories. Some validate frames against the schemas.
            let faults = if seed.is_multiple_of(16) { Faults::NONE } else { Faults::ALL };
            let validate = if seed.is_multiple_of(64) { 7 } else { 0 };
            let one = Run { seed, steps: STEPS, faults, validate };
            let outcome = must(one, &failed);
            events.fetch_add(outcome.events, Ordering::Relaxed);
            done.fetch_add(1, Ordering::Relaxed);
            marks.lock().unwrap_or_else(PoisonError::into_inner).extend(outcome.marks);
        }
    };
    thread::scope(|scope| {
        let others = thread::available_parallelism().map_or(1, usize::from).min(8);
        let threads: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let done = done.into_inner();
    println!(
        "{done} seeds of {STEPS} steps, {} events, {:?}",
        events.into_inner(),
        start.elapsed()
    );
    let marks = marks.into_inner().unwrap_or_else(PoisonError::into_inner);
    let missing: Vec<Mark> = Mark::ALL.into_iter().filter(|mark| !marks.contains(mark)).collect();
    assert!(missing.is_empty() || done < 2000, "{done} seeds never reached {missing:?}");
}

/// A seed that failed once stays in the list.
#[test]
fn seeds_that_failed_once_pass() {
    let path = workspace::root().join("tests/simulator/seeds.txt");
    let text = std::fs::read_to_string(path).expect("the seeds can be read");
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut count = 0;
    for line in lines.filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (seed, steps, faults) = (words.next(), words.next(), words.next());
        let seed = seed.and_then(|word| word.parse().ok()).expect("a seed is a number");
        let steps = steps.and_then(|word| word.parse().ok()).expect("steps are a number");
        count += 1;
        if faults == Some("store") {
            eprintln!(
                "reproduce: cargo run -p ceased-simulator --bin sim -- --store --seed {seed} --steps {steps}"
            );
            assert!(durable_walk::walk(seed, steps).kills > 0, "too tame");
            continue;
        }
        let faults = Faults::parse(faults.unwrap_or("all")).expect("faults have names");
        must(Run { seed, steps, faults, validate: 0 }, &AtomicBool::new(false));
    }
    assert!(count > 0, "there is no seed in tests/simulator/seeds.txt");
}

/// UPS-01 to UPS-12, UPS-16: many clients and servers of every temper. Ids and tokens never mix,
/// every request is answered once, a cancel reaches the right request before other data, nothing is
/// replayed, and every instance ends.
#[test]
fn relayed_histories_agree_with_the_oracle() {
    let seeds = number("CEASED_SIM_RELAYED", 600);
    let mut walked = Walked::default();
    for seed in 1..=seeds {
        eprintln!(
            "reproduce: cargo run -p ceased-simulator --bin sim -- --upstreams --seed {seed} --steps 400"
        );
        walked = walked.and(upstream_walk::walk(seed, 400));
    }
    println!("{walked:?}");
    let Walked {
        results,
        errors,
        cancels,
        unsent,
        questions,
        refused,
        ended,
        replaced,
        progress,
        tasks,
    } = walked;
    let all =
        [results, errors, cancels, unsent, questions, refused, ended, replaced, progress, tasks];
    assert!(seeds < 100 || all.iter().all(|count| *count > 10), "too tame: {walked:?}");
}

/// SUP-01 to SUP-04: clients with agents of every temper. Every request is answered once, a cancel
/// ends its turn and no other, a prompt reaches one agent once, and every agent ends with its client.
#[test]
fn supervised_histories_agree_with_the_oracle() {
    let seeds = number("CEASED_SIM_SUPERVISED", 600);
    let mut walked = agent_walk::Walked::default();
    for seed in 1..=seeds {
        eprintln!(
            "reproduce: cargo run -p ceased-simulator --bin sim -- --agents --seed {seed} --steps 600"
        );
        walked = walked.and(agent_walk::walk(seed, 600));
    }
    println!("{walked:?}");
    let agent_walk::Walked {
        answers,
        given_up,
        late,
        deaths,
        lost,
        reopened,
        questions,
        replaced,
        strays,
        modes,
        taken_back,
    } = walked;
    let all = [
        answers, given_up, late, deaths, lost, reopened, questions, replaced, strays, modes,
        taken_back,
    ];
    assert!(seeds < 100 || all.iter().all(|count| *count > 10), "too tame: {walked:?}");
}

/// One long history: no table grows with its length.
#[test]
fn one_long_history_succeeds() {
    let steps = usize::try_from(number("CEASED_SIM_LONG", 20_000)).expect("it fits");
    for seed in 1..=3 {
        let outcome =
            must(Run { seed, steps, faults: Faults::ALL, validate: 0 }, &AtomicBool::new(false));
        println!("seed {seed}: {} events, {:016x}", outcome.events, outcome.hash);
    }
}

/// SUP-05, SUP-06: sessions of version 2 whose tool calls, terminals, turns and background work are cancelled
/// or spared. A process ends only with its own work, and each cancelled piece ends.
#[test]
fn pieces_of_sessions_agree_with_the_oracle() {
    let seeds = number("CEASED_SIM_PIECES", 120);
    let mut walked = piece_walk::Walked::default();
    for seed in 1..=seeds {
        eprintln!("seed {seed}: CEASED_SIM_PIECES={seed} runs it last");
        walked = walked.and(piece_walk::walk(seed, 400));
    }
    println!("{walked:?}");
    let piece_walk::Walked { turns, obeyed, enforced, spared, closed, lost } = walked;
    let all = [turns, obeyed, enforced, spared, closed, lost];
    assert!(seeds < 100 || all.iter().all(|count| *count > 10), "too tame: {walked:?}");
}

/// FLT-01 to FLT-06: two to five engines around one table, with nodes that are killed, paused and cut off, jumps
/// of clocks and answers that are lost; every statement is one of the table, and the same seed says the same.
#[test]
fn engines_around_one_table_never_contradict_each_other() {
    let seeds = number("CEASED_SIM_FLEET", 60);
    let mut sum = fleet_walk::Walked::default();
    for seed in number("CEASED_SIM_FLEET_FROM", 0)..seeds {
        eprintln!("fleet: seed {seed}");
        let walked = fleet_walk::walk(seed, 1500);
        for (sum, count) in sum.counts_mut().into_iter().zip(walked.counts()) {
            *sum += count;
        }
        if seed == 0 {
            assert_eq!(fleet_walk::walk(seed, 1500), walked, "DET-01");
        }
    }
    println!("{sum:?}");
    assert!(sum.counts().into_iter().all(|count| count > 5), "too tame: {sum:?}");
}
