//! Does one thing a number of times: `instructions THING TIMES`. Two runs under a counter of
//! instructions, and the difference of what it counted, say what the thing costs; see
//! `.ci/instructions`.

mod driver;

use std::process::ExitCode;

use driver::Driver;

/// Calls or tasks in the engine meanwhile.
const INFLIGHT: usize = 1000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (thing, times) = match arguments.as_slice() {
        [thing, times] => (thing.as_str(), times.parse().ok()),
        _ => ("", None),
    };
    // `cargo test` and `cargo bench` run it without: there is nothing to do then.
    let Some(times) = times else { return ExitCode::SUCCESS };
    let mut driver = Driver::new();
    for _ in 0..INFLIGHT {
        match thing {
            "get" | "task" | "foreign" | "unknown" => driver.start_task(),
            _ => _ = driver.start_call(),
        }
    }
    driver.said();
    driver.let_stranger_in();
    let step: fn(&mut Driver, usize) = match thing {
        "ping" => |driver, _| _ = driver.ping(),
        "call" => |driver, _| _ = driver.call(),
        "claim" => |driver, _| _ = driver.claiming_call(),
        "cancel" => |driver, _| _ = driver.cancelled_call(),
        "task" => |driver, _| {
            driver.start_task();
            driver.finish_job();
            driver.said();
        },
        "get" => |driver, turn| _ = driver.get_task(turn % INFLIGHT),
        // What is another's costs what one that never was costs (TSK-39).
        "foreign" => |driver, turn| _ = driver.pry_into_task(Some(turn % INFLIGHT)),
        "unknown" => |driver, _| _ = driver.pry_into_task(None),
        other => {
            eprintln!("instructions: {other:?} is unknown; see .ci/instructions");
            return ExitCode::from(2);
        }
    };
    (0..times).for_each(|turn| step(&mut driver, turn));
    ExitCode::SUCCESS
}
