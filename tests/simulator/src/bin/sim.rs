//! `sim`: runs simulated worlds and prints how to reproduce a failure.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use ceased_simulator::agent_walk;
use ceased_simulator::durable_walk;
use ceased_simulator::sim::fault::Faults;
use ceased_simulator::sim::mark::Mark;
use ceased_simulator::sim::step::Step;
use ceased_simulator::sim::swarm::Swarm;
use ceased_simulator::sim::{self, Run};
use ceased_simulator::upstream_walk::{self, Walked};

const USE: &str = "sim --seed N [--seeds COUNT] [--steps N] [--faults all|none|LIST] [--trace] \
                   [--validate EVERY] [--replay FILE]\n\
                   sim --store: tasks are durable, the store is slow, full or broken, and the \
                   process is killed\n\
                   sim --upstreams: clients call servers behind the engine, which die, hang, ask, \
                   and ignore cancels\n\
                   sim --agents: clients with supervised agents, which die, ask, answer late and \
                   ignore cancels";

struct Options {
    run: Run,
    seeds: u64,
    trace: bool,
    store: bool,
    upstreams: bool,
    agents: bool,
    replay: Option<String>,
}

fn options() -> Result<Options, String> {
    let run = Run { seed: 1, steps: 2000, faults: Faults::ALL, validate: 0 };
    let mut options = Options {
        run,
        seeds: 1,
        trace: false,
        store: false,
        upstreams: false,
        agents: false,
        replay: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} requires a value"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match word.as_str() {
            "--seed" => options.run.seed = number(value()?)?,
            "--seeds" => options.seeds = number(value()?)?,
            "--steps" => {
                options.run.steps = usize::try_from(number(value()?)?).unwrap_or(usize::MAX);
            }
            "--faults" => options.run.faults = Faults::parse(&value()?)?,
            "--validate" => options.run.validate = number(value()?)?,
            "--store" => options.store = true,
            "--upstreams" => options.upstreams = true,
            "--agents" => options.agents = true,
            "--trace" => options.trace = true,
            "--replay" => options.replay = Some(value()?),
            _ => return Err(format!("{word:?} is unknown: {USE}")),
        }
    }
    Ok(options)
}

fn print(steps: &[Step]) {
    for step in steps {
        println!("{}", serde_json::to_string(step).expect("a step is JSON"));
    }
}

/// Runs the steps of a file, one JSON object per line, in the world of the seed.
fn replay(run: Run, path: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let steps: Result<Vec<Step>, _> = text.lines().map(serde_json::from_str).collect();
    let steps = steps.map_err(|error| format!("{path}: {error}"))?;
    let hash = sim::replay(&Swarm::new(run.seed, run.faults), &steps)?;
    println!("{} steps, {hash:016x}", steps.len());
    Ok(())
}

fn all(options: &Options) -> bool {
    let start = Instant::now();
    let (mut events, mut marks) = (0, BTreeMap::<Mark, u64>::new());
    for seed in options.run.seed..options.run.seed + options.seeds {
        match sim::run(Run { seed, ..options.run }) {
            Ok((outcome, steps)) => {
                events += outcome.events;
                outcome.marks.iter().for_each(|mark| *marks.entry(*mark).or_default() += 1);
                if options.trace {
                    print(&steps);
                }
            }
            Err(failure) => {
                eprintln!("seed {seed} failed: {failure}\n\nthe shortest history that fails:");
                let short = failure.minimised();
                print(&short.steps);
                eprintln!("\n{}\n\nagain: {}", short.why, short.run);
                return false;
            }
        }
    }
    let took = start.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = events as f64 / took;
    eprintln!(
        "{} seeds of {} steps, {events} events in {took:.1} s, {rate:.0} a second, {} of {} marks",
        options.seeds,
        options.run.steps,
        marks.len(),
        Mark::ALL.len()
    );
    // Least reached marks, with the number of runs that reached each.
    let reached = |mark: &Mark| marks.get(mark).copied().unwrap_or(0);
    let mut least = Mark::ALL;
    least.sort_by_key(reached);
    let least: Vec<String> =
        least.iter().take(40).map(|mark| format!("{mark:?} {}", reached(mark))).collect();
    eprintln!("rarest: {}", least.join(", "));
    true
}

/// Runs worlds with durable tasks. A failure panics with a description.
fn stored(options: &Options) -> bool {
    let (mut kills, mut held, mut ended) = (0, 0, 0);
    for seed in options.run.seed..options.run.seed + options.seeds {
        let steps = options.run.steps;
        let Ok(walked) = std::panic::catch_unwind(|| durable_walk::walk(seed, steps)) else {
            eprintln!(
                "reproduce: cargo run -p ceased-simulator --bin sim -- --store --seed {seed} --steps {steps}"
            );
            return false;
        };
        kills += walked.kills;
        held = held.max(walked.held);
        ended += walked.ended;
    }
    eprintln!(
        "{} seeds: {kills} kills, {held} held at once, {ended} ends announced",
        options.seeds
    );
    true
}

/// Runs worlds with servers behind the engine. A failure panics with a description.
fn relayed(options: &Options) -> bool {
    let mut walked = Walked::default();
    for seed in options.run.seed..options.run.seed + options.seeds {
        let steps = options.run.steps;
        let Ok(one) = std::panic::catch_unwind(|| upstream_walk::walk(seed, steps)) else {
            eprintln!(
                "reproduce: cargo run -p ceased-simulator --bin sim -- --upstreams --seed {seed} --steps {steps}"
            );
            return false;
        };
        walked = walked.and(one);
    }
    eprintln!("{} seeds: {walked:?}", options.seeds);
    true
}

/// Runs worlds with supervised agents. A failure panics with a description.
fn supervised(options: &Options) -> bool {
    let mut walked = agent_walk::Walked::default();
    for seed in options.run.seed..options.run.seed + options.seeds {
        let steps = options.run.steps;
        let Ok(one) = std::panic::catch_unwind(|| agent_walk::walk(seed, steps)) else {
            eprintln!(
                "reproduce: cargo run -p ceased-simulator --bin sim -- --agents --seed {seed} --steps {steps}"
            );
            return false;
        };
        walked = walked.and(one);
    }
    eprintln!("{} seeds: {walked:?}", options.seeds);
    true
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let well = match &options.replay {
        Some(path) => replay(options.run, path).map_err(|why| eprintln!("{why}")).is_ok(),
        None if options.store => stored(&options),
        None if options.upstreams => relayed(&options),
        None if options.agents => supervised(&options),
        None => all(&options),
    };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
