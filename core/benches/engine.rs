//! What the engine alone takes for each thing it does, with many others under way.
//!
//! `cargo bench -p ceased-core --bench engine`

mod driver;

use std::time::Duration;

use divan::Bencher;
use driver::Driver;

/// How many calls or tasks there are meanwhile.
const CROWDS: [usize; 2] = [1_000, 100_000];

#[global_allocator]
static ALLOCATIONS: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
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

#[divan::bench(args = CROWDS)]
fn ping(bencher: Bencher<'_, '_>, crowd: usize) {
    let mut driver = with_calls(crowd);
    bencher.bench_local(|| driver.ping());
}

#[divan::bench(args = CROWDS)]
fn call_and_answer(bencher: Bencher<'_, '_>, crowd: usize) {
    let mut driver = with_calls(crowd);
    bencher.bench_local(|| driver.call());
}

#[divan::bench(args = CROWDS)]
fn call_and_cancel(bencher: Bencher<'_, '_>, crowd: usize) {
    let mut driver = with_calls(crowd);
    bencher.bench_local(|| driver.cancelled_call());
}

#[divan::bench(args = CROWDS)]
fn tasks_get(bencher: Bencher<'_, '_>, crowd: usize) {
    let mut driver = with_tasks(crowd);
    let mut turn = 0;
    bencher.bench_local(|| {
        turn = (turn + 7919) % crowd;
        driver.get_task(turn)
    });
}

#[divan::bench(args = CROWDS)]
fn tasks_list_page(bencher: Bencher<'_, '_>, crowd: usize) {
    let mut driver = with_tasks(crowd);
    bencher.bench_local(|| driver.list_tasks());
}

/// One tick of many, when everything expires at once.
#[divan::bench(args = CROWDS, sample_count = 20, sample_size = 1)]
fn expiry_tick(bencher: Bencher<'_, '_>, crowd: usize) {
    let mut driver = with_tasks(crowd);
    driver.wait(Duration::from_secs(601));
    bencher.bench_local(|| driver.tick());
}
