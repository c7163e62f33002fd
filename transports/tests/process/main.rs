//! Tests that need a process of their own: standard input and output of every kind, limits, umask,
//! pid namespaces. The test binary starts itself again as the child.

mod child;
mod limits;
mod stdio;

use std::panic::catch_unwind;
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long one test may take, children included.
const DEADLINE: Duration = Duration::from_secs(60);

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "child") {
        return child::main(args.get(1..).unwrap_or_default());
    }
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let tests: Vec<Test> = [stdio::TESTS, limits::TESTS].concat();
    if args.iter().any(|arg| arg == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, test) in tests {
        if filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())) {
            let passed = run(test);
            println!("test process::{name} ... {}", if passed { "ok" } else { "FAILED" });
            failed += u32::from(!passed);
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one test; one that hangs fails, too.
fn run(test: fn()) -> bool {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(catch_unwind(test).is_ok()));
    receiver.recv_timeout(DEADLINE).unwrap_or(false)
}

/// This binary as a child doing `mode`.
fn child_command(mode: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
    command.arg("child").args(mode);
    command
}
