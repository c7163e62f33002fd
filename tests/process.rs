//! Commands as jobs, with real processes: what is started, what is reported, what is left.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

#[path = "process/accounts.rs"]
mod accounts;
#[path = "process/blind.rs"]
mod blind;
#[path = "process/deaths.rs"]
mod deaths;
#[path = "process/frozen.rs"]
mod frozen;
#[path = "process/heirs.rs"]
mod heirs;
#[path = "process/place.rs"]
mod place;
mod process_kit;
#[path = "process/tool.rs"]
mod tool;
#[path = "process/zoo.rs"]
mod zoo;

use std::env;
use std::process::Command;

use ceased::process::Orphans;
use ceased::process::guard::Program;
use process_kit::{Rig, Tier};

/// The environment variable by which a test finds out that it runs in a process of its own.
const ALONE: &str = "CEASED_TEST_ALONE";

/// A supervisor of a tier, if this machine has it.
fn rig(tier: Tier) -> Option<Rig> {
    rig_with(tier, Orphans::Leave)
}

fn rig_with(tier: Tier, orphans: Orphans) -> Option<Rig> {
    let program = Program::named(ceased_tests::binary::ceased()).unwrap();
    tier.containment(program).map(|containment| Rig::new(containment, orphans))
}

/// A test of this binary, to be run in a process of its own.
fn alone(test: &str, argument: &str) -> Command {
    as_test(Command::new(env::current_exe().unwrap()), test, argument)
}

/// A command that starts this binary, as one that runs this test.
fn as_test(mut command: Command, test: &str, argument: &str) -> Command {
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ALONE, argument);
    command
}

/// Runs a test of this binary in a process of its own and passes its failure on.
fn run_alone(test: &str, argument: &str) {
    run_as_test(Command::new(env::current_exe().unwrap()), test, argument);
}

/// As [`run_alone`], with a command that starts this binary.
fn run_as_test(command: Command, test: &str, argument: &str) {
    let output = as_test(command, test, argument).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let is_run = said.contains("test result: ok. 1 passed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && is_run, "{test}:\n{said}\n{errors}");
}

/// What [`alone`] was given; `None` in a test that was started in another way.
fn argument() -> Option<String> {
    env::var(ALONE).ok()
}
