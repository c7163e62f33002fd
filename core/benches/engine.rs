//! Costs of the engine alone for each of its operations, with many others under way: time, and
//! allocations. Every number includes the driver.
//!
//! `cargo bench -p ceased-core --bench engine`, with a part of a name behind it for some of them;
//! the quickest run says most, since other load of the machine only adds time.

#![allow(clippy::disallowed_types, reason = "nobody walks the table that is measured")]

mod driver;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

use divan::{AllocProfiler, Bencher, black_box};
use driver::Driver;

/// Calls in the engine meanwhile.
const CALLS: [usize; 2] = [1_000, 100_000];
/// Tasks that live meanwhile.
const TASKS: [usize; 2] = [1_000, 1_000_000];
/// How often a thing is done in one run, of which the quickest counts.
const TIMES: u32 = 1_000;
/// Runs.
const RUNS: u32 = 31;
/// How far the next task that is asked for is from the last: so each of all has its turn, and
/// hardly anything of it is in the cache by then.
const STEP: usize = 7_919;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

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
    let mut driver = Driver::with_room(count);
    (0..count).for_each(|_| driver.start_task());
    driver.said();
    driver
}

#[divan::bench(args = CALLS, sample_size = TIMES, sample_count = RUNS)]
fn ping(bencher: Bencher<'_, '_>, beside: usize) {
    let mut driver = with_calls(beside);
    bencher.bench_local(|| driver.ping());
}

#[divan::bench(args = CALLS, sample_size = TIMES, sample_count = RUNS)]
fn call_and_answer(bencher: Bencher<'_, '_>, beside: usize) {
    let mut driver = with_calls(beside);
    bencher.bench_local(|| driver.call());
}

#[divan::bench(args = CALLS, sample_size = TIMES, sample_count = RUNS)]
fn call_and_cancel(bencher: Bencher<'_, '_>, beside: usize) {
    let mut driver = with_calls(beside);
    bencher.bench_local(|| driver.cancelled_call());
}

/// `tasks/get` of so many, again and again.
fn get(bencher: Bencher<'_, '_>, beside: usize, asked: usize) {
    let driver = RefCell::new(with_tasks(beside));
    let turn = Cell::new(0);
    bencher
        .with_inputs(|| {
            // Input of the peer is not fetched from a list of a million ids during the measurement.
            turn.set((turn.get() + STEP) % asked);
            driver.borrow().tasks[turn.get() * (beside / asked)]
        })
        .bench_local_values(|id| driver.borrow_mut().get_named_task(id));
}

#[divan::bench(args = TASKS, sample_size = TIMES, sample_count = RUNS)]
fn get_of_1000(bencher: Bencher<'_, '_>, beside: usize) {
    get(bencher, beside, 1_000);
}

#[divan::bench(args = TASKS, sample_size = TIMES, sample_count = RUNS)]
fn get_of_all(bencher: Bencher<'_, '_>, beside: usize) {
    get(bencher, beside, beside);
}

/// The least cost of finding one of so many: a hash table that says where a record of 128
/// bytes is, and a number out of that record; each of all in turn.
#[divan::bench(args = TASKS, sample_size = TIMES, sample_count = RUNS)]
fn look_up_alone(bencher: Bencher<'_, '_>, beside: usize) {
    let key = |which: usize| {
        let number = (which as u64 + 1).wrapping_mul(6_364_136_223_846_793_005);
        u128::from(number) << 64 | u128::from(number.rotate_left(29))
    };
    let places: HashMap<u128, usize> = (0..beside).map(|which| (key(which), which)).collect();
    let mut records = vec![[1_u64; 16]; beside];
    let mut turn = 0;
    bencher.bench_local(|| {
        turn = (turn + STEP) % beside;
        // The next is looked up when this one is known, as by a peer that waits for an answer.
        let record = &mut records[places[&black_box(key(turn))]];
        record[3] += 1;
        turn += black_box(record[8] as usize) - 1;
    });
}

#[divan::bench(args = TASKS, sample_size = TIMES, sample_count = RUNS)]
fn list_page_1(bencher: Bencher<'_, '_>, beside: usize) {
    let mut driver = with_tasks(beside);
    bencher.bench_local(|| driver.list_tasks());
}

#[divan::bench(args = [TASKS[1]], sample_size = TIMES, sample_count = RUNS)]
fn list_page_1000(bencher: Bencher<'_, '_>, beside: usize) {
    let mut driver = with_tasks(beside);
    let cursor = driver.cursor_after(999);
    bencher.bench_local(|| driver.list_tasks_after(&cursor));
}

/// Tasks that were created just now are cancelled: the others stay as many.
#[divan::bench(args = TASKS, sample_size = TIMES, sample_count = RUNS)]
fn cancel(bencher: Bencher<'_, '_>, beside: usize) {
    let driver = RefCell::new(with_tasks(beside));
    let stopping = Cell::new(0);
    bencher
        .with_inputs(|| {
            let mut driver = driver.borrow_mut();
            (0..stopping.take()).for_each(|_| driver.stop_last());
            driver.start_task();
            driver.tasks.len() - 1
        })
        .bench_local_values(|which| {
            stopping.set(stopping.get() + 1);
            driver.borrow_mut().cancel_task(which)
        });
}

#[divan::bench(args = TASKS, sample_size = TIMES, sample_count = RUNS)]
fn result(bencher: Bencher<'_, '_>, beside: usize) {
    let mut driver = with_tasks(beside);
    // Those that were created first have run for longest.
    let ended = beside.min(1_000);
    (0..ended).for_each(|_| driver.finish_job());
    driver.said();
    let mut which = 0;
    bencher.bench_local(|| {
        which = (which + 1) % ended;
        driver.task_result(which)
    });
}

/// The ticks of everything expiring at once, of which the slowest counts.
#[divan::bench(args = TASKS, sample_size = 1, sample_count = 7_500)]
fn tick_of_expiry(bencher: Bencher<'_, '_>, beside: usize) {
    let expiring = || {
        let mut driver = with_tasks(beside);
        driver.wait(Duration::from_secs(601));
        driver
    };
    let driver = RefCell::new(expiring());
    bencher
        .with_inputs(|| {
            let mut driver = driver.borrow_mut();
            driver.said();
            if !driver.is_due() {
                *driver = expiring();
            }
        })
        .bench_local_values(|()| driver.borrow_mut().tick());
}
