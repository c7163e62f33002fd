//! Commands as jobs with real processes: start, reports, and absence of leftovers.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

mod accounts;
mod attacks;
mod births;
mod bounds;
mod evidence;
mod guard_death;
mod lasting;
mod lease;
mod orphans;
mod place;
mod proc_unreadable;
mod process_kit;
mod process_trees;
mod stopped;
mod tool;
mod unseen;

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use ceased::process::guard::Program;
use ceased::process::{Cgroup, Containment, Controller, Orphans};
use process_kit::{Rig, TIME_LIMIT, Tier};

/// Uid of an ordinary user without processes.
const ORDINARY: u32 = 64_321;

/// Environment variable that marks a test running in its own process.
const ALONE: &str = "CEASED_TEST_ALONE";

/// A supervisor of a tier, if this machine supports the tier.
fn rig(tier: Tier) -> Option<Rig> {
    rig_with(tier, Orphans::Leave)
}

fn rig_with(tier: Tier, orphans: Orphans) -> Option<Rig> {
    let program = Program::named(ceased_tests::binary::ceased()).unwrap();
    tier.containment(program).map(|containment| Rig::new(containment, orphans))
}

/// Command that runs a test of this binary in its own process.
fn alone(test: &str, argument: &str) -> Command {
    as_test(Command::new(env::current_exe().unwrap()), test, argument)
}

/// Completes a command that starts this binary so that it runs this test.
fn as_test(mut command: Command, test: &str, argument: &str) -> Command {
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ALONE, argument);
    command
}

/// Runs a test of this binary in its own process and propagates its failure.
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

/// Runs a test of this binary in its own process as an ordinary user, with a delegated control
/// group if possible. False with a printed line if this process may not change its user.
fn run_ordinary(test: &str, argument: &str) -> bool {
    let id = ORDINARY.to_string();
    let test_binary = env::current_exe().unwrap();
    // The binary is built before, as the current user.
    let _ = ceased_tests::binary::ceased();
    let group = Delegated::make();
    let procs = group.as_ref().map_or("/dev/null".into(), |group| group.0.join("cgroup.procs"));
    let become_them = |command: &std::path::Path| {
        let mut shell = Command::new("sh");
        shell.args(["-c", ORDINARILY]).arg(&procs).arg(&id).arg(command);
        shell.env_remove("CARGO").env("HOME", "/").current_dir("/");
        shell
    };
    let mut tried = become_them(&test_binary);
    let tried = tried.arg("--list").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("SKIPPED: cannot run this as another user");
        return false;
    }
    run_as_test(become_them(&test_binary), test, argument);
    true
}

/// Enters the control group whose `cgroup.procs` is `$0`, becomes the user `$1`, and runs the rest.
const ORDINARILY: &str = "echo $$ > \"$0\"; id=\"$1\"; shift; \
                          exec setpriv --reuid \"$id\" --regid \"$id\" --clear-groups -- \"$@\"";

/// A control group owned by the ordinary user, below the group of this process.
struct Delegated(PathBuf);

impl Delegated {
    fn make() -> Option<Self> {
        // A trial group tells the parent of new groups.
        let trial = Cgroup::create().ok()?;
        let path = trial.path().parent()?.join(format!("ordinary-{}", std::process::id()));
        // The new group has the controllers that its parent offers then.
        let mut trial = Containment::Cgroup { group: trial, keeper: None };
        let all = [Controller::Memory, Controller::Pids, Controller::Cpu];
        drop(trial.enable(&all.into_iter().collect()));
        drop(trial);
        std::fs::create_dir(&path).ok()?;
        let group = Self(path);
        let owner = Some(ORDINARY);
        std::os::unix::fs::chown(&group.0, owner, owner).ok()?;
        for file in ["cgroup.procs", "cgroup.subtree_control"] {
            std::os::unix::fs::chown(group.0.join(file), owner, owner).ok()?;
        }
        Some(group)
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let until = Instant::now() + TIME_LIMIT;
        while !remove_groups(&self.0) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Removes a control group and those below it, if all are empty.
fn remove_groups(path: &std::path::Path) -> bool {
    let below = std::fs::read_dir(path).into_iter().flatten().flatten();
    below.filter(|entry| entry.path().is_dir()).for_each(|it| _ = remove_groups(&it.path()));
    std::fs::remove_dir(path).is_ok()
}

/// Argument given to [`alone`]; `None` in a test that was started otherwise.
fn argument() -> Option<String> {
    env::var(ALONE).ok()
}
