//! The most frequent requests allocate nothing; an idle connection takes next to nothing.

#[path = "../benches/driver/mod.rs"]
mod driver;

use allocation_counter::measure;
use ceased_core::ids::ConnId;
use driver::Driver;

/// Allocations of `work` once the reused buffers exist: the third time, since a peer that polls a
/// second time within the interval is watched from then on (TSK-41).
fn allocations(mut work: impl FnMut()) -> u64 {
    work();
    work();
    measure(work).count_total
}

fn busy() -> Driver {
    let mut driver = Driver::new();
    for _ in 0..100 {
        driver.start_call();
        driver.start_task();
    }
    driver.said();
    driver
}

#[test]
fn ping_takes_nothing() {
    let mut driver = busy();
    assert_eq!(allocations(|| assert!(driver.ping() > 0)), 0);
}

/// TSK-12
#[test]
fn tasks_get_takes_nothing() {
    let mut driver = busy();
    assert_eq!(allocations(|| assert!(driver.get_task(7) > 0)), 0);
}

/// CAN-08. Also not for the note that goes to the log.
#[test]
fn cancel_takes_nothing() {
    let mut driver = busy();
    // Started in order, cancelled in order: the tables only shrink.
    for _ in 0..10 {
        let id = driver.start_call();
        assert_eq!(measure(|| driver.cancel_call(id)).count_total, 0);
        driver.stop_last();
    }
}

/// Heap of a task that lives and of its job, without its arguments, in bytes. Sixteen of them are
/// its entry in the account of its identity.
const TASK_BYTES_MAX: u64 = 528;

#[test]
fn live_task_takes_little() {
    let (tasks, arguments) = (1_000, r#"{"text":"t"}"#.len() as u64);
    let mut driver = Driver::with_room(tasks as usize);
    let taken = measure(|| (0..tasks).for_each(|_| driver.start_task())).bytes_current;
    let each = u64::try_from(taken).expect("they take some") / tasks - arguments;
    assert!(each <= TASK_BYTES_MAX, "{each} bytes for each");
}

/// Heap of an idle connection, in bytes: 152 for itself, 40 for its share of a table that may be
/// half empty, at most 256 and its head for the buffer of its last answer, the empty table of its
/// requests, and its entry in the account of its identity.
const IDLE_BYTES_MAX: u64 = 928;
/// As many as leave that table half empty.
const IDLERS: u64 = 1000;

/// Heap that may be left of all of them, in bytes: an index that has grown by chance, and less than
/// any allocation for each would be.
const LEFT_BYTES_MAX: u64 = 4096;

/// Heap of each idle connection, and then the rest of all when they have gone.
fn idle(calls: bool) -> (u64, u64) {
    let mut driver = busy();
    driver.let_idler_in(ConnId::new(99), calls);
    let idlers = || (100..100 + IDLERS).map(ConnId::new);
    let taken = measure(|| idlers().for_each(|conn| driver.let_idler_in(conn, calls)));
    let given_back = measure(|| idlers().for_each(|conn| driver.let_go(conn)));
    let (taken, given_back) = (taken.bytes_current, given_back.bytes_current);
    let left = u64::try_from(taken + given_back).expect("no more is given back than was taken");
    (u64::try_from(taken).expect("they take some") / IDLERS, left)
}

#[test]
fn initialized_connection_takes_little() {
    let (each, left) = idle(false);
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes for each");
    assert!(left <= LEFT_BYTES_MAX, "{left} bytes are left");
}

#[test]
fn connection_after_its_calls_takes_no_more() {
    let (each, left) = idle(true);
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes for each");
    assert!(left <= LEFT_BYTES_MAX, "{left} bytes are left");
}
