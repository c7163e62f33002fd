//! What the engine alone takes for each thing it does, with many others under way: time, and
//! pieces of the heap.
//!
//! `cargo bench -p ceased-core --bench engine`
//!
//! A harness of its own: the usual ones depend on the crate that the daemon reads its command line
//! with, and would switch on features of it that the daemon does not have.

#![allow(clippy::disallowed_methods, reason = "a benchmark asks for the time")]
#![allow(clippy::disallowed_types, reason = "nobody walks the table that is measured")]

mod driver;

use std::collections::HashMap;
use std::env;
use std::hint::black_box;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use driver::Driver;

/// Calls in the engine meanwhile.
const CALLS: [usize; 2] = [1_000, 100_000];
/// Tasks that live meanwhile.
const TASKS: [usize; 2] = [1_000, 1_000_000];
/// Runs of which the quickest counts: what else the machine does only ever takes longer.
const RUNS: usize = 31;
/// How often a thing is done in one run.
const TIMES: usize = 1_000;
/// What the client of a task hands in, in bytes: its arguments.
const PAYLOAD: usize = r#"{"text":"t"}"#.len();

fn main() {
    // `cargo test` runs it too; there is nothing to time then.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("{:26} {:>9} {:>12} {:>12}", "", "beside", "ns each", "allocations");
    for crowd in CALLS {
        let mut calls = with_calls(crowd);
        show("ping", crowd, || _ = black_box(calls.ping()));
        show("call and answer", crowd, || _ = black_box(calls.call()));
        show("call and cancel", crowd, || _ = black_box(calls.cancelled_call()));
    }
    for crowd in TASKS {
        look_up(crowd);
        tasks_beside(crowd);
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

/// What is done with tasks while so many live, what one takes, and how all of them expire.
fn tasks_beside(crowd: usize) {
    let more = (RUNS + 2) * TIMES;
    let mut driver = Driver::with_room(crowd + more);
    let held = measure(|| (0..crowd).for_each(|_| driver.start_task())).bytes_current;
    let each = held / i64::try_from(crowd).expect("so many fit") - PAYLOAD as i64;
    println!("{:26} {crowd:>9} {each:>12} bytes", "a live task");
    // So many that are asked for again and again, all over the table; and all of them in turn, of
    // which hardly anything is in the cache when its turn comes.
    // Some are read at once by the host, as from a peer that asks before it is answered.
    for (name, asked, at_once) in [
        ("tasks/get of 1,000", 1_000, 1),
        ("tasks/get of all", crowd, 1),
        ("tasks/get of all, by 16", crowd, 16),
        ("tasks/get of all, by 128", crowd, 128),
    ] {
        let mut turn = 0;
        let mut quickest = Duration::MAX;
        for _ in 0..RUNS {
            // What the peer writes is not fetched from a list of a million ids while time is taken.
            let ids: Vec<_> = (0..TIMES)
                .map(|_| {
                    turn = (turn + 7_919) % asked;
                    driver.tasks[turn * (crowd / asked)]
                })
                .collect();
            let pieces: Vec<_> = ids
                .chunks(at_once)
                .map(|ids| (ids, ids.iter().map(|id| Driver::get_request(*id)).collect::<String>()))
                .collect();
            let start = Instant::now();
            for (ids, bytes) in &pieces {
                driver.foresee(bytes);
                ids.iter().for_each(|id| _ = black_box(driver.get_named_task(*id)));
            }
            quickest = quickest.min(start.elapsed());
        }
        let each = quickest.as_nanos() / TIMES as u128;
        let takes = measure(|| _ = black_box(driver.get_task(turn))).count_total;
        println!("{name:26} {crowd:>9} {each:>12} {takes:>12}");
    }
    show("tasks/list, page 1", crowd, || _ = black_box(driver.list_tasks()));
    if crowd > 1_000 * 100 {
        let cursor = driver.cursor_after(999);
        show("tasks/list, page 1,000", crowd, || _ = black_box(driver.list_tasks_after(&cursor)));
    }
    cancel(&mut driver, crowd);
    // Those that were created first have run for longest.
    (0..TIMES.min(crowd)).for_each(|_| driver.finish_job());
    driver.said();
    let mut which = 0;
    show("tasks/result", crowd, || {
        which = (which + 1) % TIMES.min(crowd);
        _ = black_box(driver.task_result(which));
    });
}

/// Cancels tasks that were created before, newest first: the others stay as many.
fn cancel(driver: &mut Driver, crowd: usize) {
    let mut quickest = Duration::MAX;
    for _ in 0..RUNS {
        (0..TIMES).for_each(|_| driver.start_task());
        let start = Instant::now();
        (0..TIMES).for_each(|at| _ = black_box(driver.cancel_task(driver.tasks.len() - 1 - at)));
        quickest = quickest.min(start.elapsed());
        (0..TIMES).for_each(|_| driver.stop_last());
    }
    let each = quickest.as_nanos() / TIMES as u128;
    println!("{:26} {crowd:>9} {each:>12}", "tasks/cancel");
}

/// What it takes at least to find one of so many: a hash table that says where a record of 128
/// bytes is, and a number out of that record; each of all in turn.
fn look_up(crowd: usize) {
    let key = |which: usize| {
        let number = (which as u64 + 1).wrapping_mul(6_364_136_223_846_793_005);
        u128::from(number) << 64 | u128::from(number.rotate_left(29))
    };
    let places: HashMap<u128, usize> = (0..crowd).map(|which| (key(which), which)).collect();
    let mut records = vec![[1_u64; 16]; crowd];
    let (mut turn, mut quickest) = (0, Duration::MAX);
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..TIMES {
            turn = (turn + 7_919) % crowd;
            // The next is looked up when this one is known, as by who waits for an answer.
            let record = &mut records[places[&black_box(key(turn))]];
            record[3] += 1;
            turn += black_box(record[8] as usize) - 1;
        }
        quickest = quickest.min(start.elapsed());
    }
    let each = quickest.as_nanos() / TIMES as u128;
    println!("{:26} {crowd:>9} {each:>12}", "a look-up alone, of all");
}

fn show(name: &str, crowd: usize, mut thing: impl FnMut()) {
    let mut quickest = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        (0..TIMES).for_each(|_| thing());
        quickest = quickest.min(start.elapsed());
    }
    let each = quickest.as_nanos() / TIMES as u128;
    println!("{name:26} {crowd:>9} {each:>12} {:>12}", measure(&mut thing).count_total);
}

/// Ticks when everything expires at once: the middle one and the slowest. The engine does the same
/// in every run, so a tick took what it took in the quickest: the rest was the machine's.
fn expire(crowd: usize) {
    let mut quickest: Vec<Duration> = Vec::new();
    for _ in 0..5 {
        let mut driver = Driver::with_room(crowd);
        (0..crowd).for_each(|_| driver.start_task());
        driver.wait(Duration::from_secs(601));
        for at in 0.. {
            if !driver.is_due() {
                break;
            }
            let start = Instant::now();
            driver.tick();
            let took = start.elapsed();
            driver.said();
            match quickest.get_mut(at) {
                Some(quickest) => *quickest = took.min(*quickest),
                None => quickest.push(took),
            }
        }
    }
    quickest.sort_unstable();
    let nanos = |at: usize| quickest.get(at).map_or(0, Duration::as_nanos);
    let (middle, slowest) = (nanos(quickest.len() / 2), nanos(quickest.len().saturating_sub(1)));
    println!("{:26} {crowd:>9} {middle:>12} of {} ticks", "tick of expiry", quickest.len());
    println!("{:26} {crowd:>9} {slowest:>12}", "the slowest tick");
}
