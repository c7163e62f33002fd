//! Instructions that the engine executes for each operation, counted by callgrind: a noisy machine
//! does not change them. A count of more than 5 percent above the committed one fails.
//!
//! `cargo bench -p ceased-core --bench instructions` starts valgrind once for each operation, and
//! `--profile dev` counts in the build that the tests use. `.ci/instructions --write` commits to new
//! counts.

mod driver;

use std::env;
use std::hint::black_box;
use std::process::{Command, ExitCode};

use driver::Driver;

/// Calls or tasks in the engine meanwhile.
const BESIDE: usize = 1000;
/// Repetitions of an operation.
const TIMES: usize = 1000;
/// Percent of the committed counts that fail.
const FAILS: u64 = 105;
/// Instructions of each operation under the compiler that the file names, in a release build and in
/// one of the profile `dev`.
const COMMITTED: &str = include_str!("instructions.txt");
/// Argument before the name of the operation that this process executes under valgrind.
const EXECUTE: &str = "--execute";

type Operation = fn(&mut Driver, usize) -> usize;

type Start = fn() -> Driver;

/// Name, driver in its starting state, and operation.
const OPERATIONS: [(&str, Start, Operation); 6] = [
    ("ping", with_calls, |driver, _| driver.ping()),
    ("call", with_calls, |driver, _| driver.call()),
    ("claim", with_calls, |driver, _| driver.claiming_call()),
    ("cancel", with_calls, |driver, _| driver.cancelled_call()),
    ("task", with_tasks, |driver, _| {
        driver.start_task();
        driver.finish_job();
        driver.said()
    }),
    ("get", with_tasks, Driver::get_task),
];

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

/// Repeats an operation. Callgrind counts in this function alone, found by its name.
#[inline(never)]
fn counted_repetitions(driver: &mut Driver, operation: Operation) {
    for turn in 0..TIMES {
        black_box(operation(driver, turn % BESIDE));
    }
}

/// Instructions of all repetitions of an operation, executed by this program under valgrind.
fn count(name: &str) -> Result<u64, String> {
    let program = env::current_exe().map_err(|e| format!("path of this program: {e}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=*counted_repetitions*")
        .arg(program)
        .args([EXECUTE, name])
        .output()
        .map_err(|e| format!("cannot start valgrind: {e}; install it"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    count.filter(|count| *count > 0).ok_or_else(|| format!("valgrind counted nothing:\n{said}"))
}

/// Whether the committed counts are of the compiler in use.
fn is_comparable() -> bool {
    let version = Command::new("rustc").arg("--version").output().map(|output| output.stdout);
    let version = String::from_utf8(version.unwrap_or_default()).unwrap_or_default();
    let line = format!("# {}, {}", version.trim_end(), env::consts::ARCH);
    COMMITTED.lines().any(|committed| committed == line)
}

fn committed(name: &str) -> Option<u64> {
    let column = usize::from(cfg!(debug_assertions));
    let line = COMMITTED.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.split(' ').nth(column)?.parse().ok()
}

fn compare() -> Result<bool, String> {
    let mut is_passed = true;
    let is_comparable = is_comparable();
    for (name, ..) in OPERATIONS {
        let count = count(name)? / TIMES as u64;
        let verdict = match committed(name).filter(|_| is_comparable) {
            Some(committed) if count * 100 > committed * FAILS => {
                is_passed = false;
                format!("too many: {committed} are committed")
            }
            Some(committed) => format!("ok: {committed} are committed"),
            None if is_comparable => return Err(format!("no count is committed for {name}")),
            None => "not compared".to_owned(),
        };
        println!("{name} {count} {verdict}");
    }
    Ok(is_passed)
}

fn main() -> ExitCode {
    let mut args = env::args().skip_while(|arg| arg != EXECUTE).skip(1);
    if let Some(name) = args.next() {
        for (_, start, operation) in OPERATIONS.iter().filter(|operation| operation.0 == name) {
            let mut driver = start();
            counted_repetitions(&mut driver, *operation);
        }
        return ExitCode::SUCCESS;
    }
    match compare() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::from(2)
        }
    }
}
