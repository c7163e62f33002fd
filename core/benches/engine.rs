//! What the engine alone takes for each thing it does, with many others under way: time, and
//! pieces of the heap.
//!
//! `cargo bench -p ceased-core --bench engine`
//!
//! A harness of its own: the usual ones depend on the crate that the daemon reads its command line
//! with, and would switch on features of it that the daemon does not have.

#![allow(clippy::disallowed_methods, reason = "a benchmark asks for the time")]

mod driver;

use std::env;
use std::hint::black_box;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use driver::Driver;

/// Calls or tasks in the engine meanwhile.
const CROWDS: [usize; 2] = [1_000, 100_000];
/// Runs of which the quickest counts: what else the machine does only ever takes longer.
const RUNS: usize = 31;
/// How often a thing is done in one run.
const TIMES: usize = 1_000;

fn main() {
    // `cargo test` runs it too; there is nothing to time then.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("{:20} {:>9} {:>12} {:>12}", "", "beside", "ns each", "allocations");
    for crowd in CROWDS {
        let mut calls = with_calls(crowd);
        show("ping", crowd, || _ = black_box(calls.ping()));
        show("call and answer", crowd, || _ = black_box(calls.call()));
        show("call and cancel", crowd, || _ = black_box(calls.cancelled_call()));
        let mut tasks = with_tasks(crowd);
        let mut turn = 0;
        show("tasks/get", crowd, || {
            turn = (turn + 7919) % crowd;
            _ = black_box(tasks.get_task(turn));
        });
        show("tasks/list page", crowd, || _ = black_box(tasks.list_tasks()));
        expire(crowd);
    }
}

fn with_calls(count: usize) -> Driver {
    let mut driver = Driver::new();
    for _ in 0..count {
        driver.start_call();
    }
    driver.said();
    driver
}

fn with_tasks(count: usize) -> Driver {
    let mut driver = Driver::new();
    for _ in 0..count {
        driver.start_task();
    }
    driver
}

fn show(name: &str, crowd: usize, mut thing: impl FnMut()) {
    let mut quickest = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        (0..TIMES).for_each(|_| thing());
        quickest = quickest.min(start.elapsed());
    }
    let each = quickest.as_nanos() / TIMES as u128;
    println!("{name:20} {crowd:>9} {each:>12} {:>12}", measure(&mut thing).count_total);
}

/// A tick when everything expires at once, the middle one of all.
fn expire(crowd: usize) {
    let mut driver = with_tasks(crowd);
    driver.wait(Duration::from_secs(601));
    let mut ticks = Vec::new();
    while driver.is_due() {
        let start = Instant::now();
        driver.tick();
        ticks.push(start.elapsed());
    }
    ticks.sort_unstable();
    let middle = ticks.get(ticks.len() / 2).map_or(0, Duration::as_nanos);
    println!("{:20} {crowd:>9} {middle:>12} {:>12} ticks", "tick of expiry", ticks.len());
}
