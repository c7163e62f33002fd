//! What is asked for most takes nothing from the heap.

#[path = "../benches/driver/mod.rs"]
mod driver;

use allocation_counter::measure;
use driver::Driver;

/// Allocations of `work` once what is kept for reuse is there: the third time, since who polls a
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
fn a_ping_takes_nothing() {
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
fn a_cancel_takes_nothing() {
    let mut driver = busy();
    // Started in order, cancelled in order: the tables only shrink.
    for _ in 0..10 {
        let id = driver.start_call();
        assert_eq!(measure(|| driver.cancel_call(id)).count_total, 0);
        driver.stop_last();
    }
}
