//! Instructions that the engine executes for each thing it does, counted by callgrind: a noisy
//! machine does not change them. A count of more than 5 percent above the committed one fails.
//!
//! `cargo bench -p ceased-core --bench instructions`, or `.ci/instructions`, which also installs
//! what that needs; `.ci/instructions --write` commits to new counts.

#![allow(missing_docs, unused_qualifications, reason = "the macros of the harness do not care")]

mod driver;

use std::env::consts::ARCH;
use std::hint::black_box;
use std::process::Command;

use driver::Driver;
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

/// Calls or tasks in the engine meanwhile.
const BESIDE: usize = 1000;
/// How often a thing is done.
const TIMES: u64 = 1000;
/// Percent of the committed counts that fail.
const FAILS: u64 = 105;
/// What each thing took under the compiler that is named with it.
const COMMITTED: &str = include_str!("instructions.txt");

/// The limit of a thing; none where the counts are of another compiler.
fn limit(thing: &str) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    let compiler = Command::new("rustc").arg("--version").output().map(|output| output.stdout);
    let compiler = String::from_utf8(compiler.unwrap_or_default()).unwrap_or_default();
    let these = format!("# {}, {}", compiler.trim_end(), ARCH);
    if COMMITTED.lines().any(|line| line == these) {
        let count =
            COMMITTED.lines().find_map(|line| line.strip_prefix(thing)?.trim().parse().ok());
        let count: u64 = count.expect("a count is committed for each thing");
        let limit = count * TIMES * FAILS / 100;
        config.tool(Callgrind::default().hard_limits([(EventKind::Ir, limit)]));
    }
    config
}

fn with_calls() -> Driver {
    let mut driver = Driver::new();
    (0..BESIDE).for_each(|_| _ = driver.start_call());
    driver.said();
    driver
}

fn with_tasks() -> Driver {
    let mut driver = Driver::new();
    (0..BESIDE).for_each(|_| driver.start_task());
    driver.said();
    driver
}

/// Does a thing again and again; the driver is given back so that its end is not counted.
fn again(mut driver: Driver, thing: fn(&mut Driver, usize) -> usize) -> Driver {
    for turn in 0..TIMES as usize {
        black_box(thing(&mut driver, turn % BESIDE));
    }
    driver
}

#[library_benchmark(config = limit("ping "))]
#[bench::beside_1000_calls(with_calls())]
fn ping(driver: Driver) -> Driver {
    again(driver, |driver, _| driver.ping())
}

#[library_benchmark(config = limit("call "))]
#[bench::beside_1000_calls(with_calls())]
fn call(driver: Driver) -> Driver {
    again(driver, |driver, _| driver.call())
}

#[library_benchmark(config = limit("claim "))]
#[bench::beside_1000_calls(with_calls())]
fn claim(driver: Driver) -> Driver {
    again(driver, |driver, _| driver.claiming_call())
}

#[library_benchmark(config = limit("cancel "))]
#[bench::beside_1000_calls(with_calls())]
fn cancel(driver: Driver) -> Driver {
    again(driver, |driver, _| driver.cancelled_call())
}

#[library_benchmark(config = limit("task "))]
#[bench::beside_1000_tasks(with_tasks())]
fn task(driver: Driver) -> Driver {
    again(driver, |driver, _| {
        driver.start_task();
        driver.finish_job();
        driver.said()
    })
}

#[library_benchmark(config = limit("get "))]
#[bench::beside_1000_tasks(with_tasks())]
fn get(driver: Driver) -> Driver {
    again(driver, Driver::get_task)
}

library_benchmark_group!(name = engine, benchmarks = [ping, call, claim, cancel, task, get]);

main!(library_benchmark_groups = engine);
