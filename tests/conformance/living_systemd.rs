//! The packaged units under a live systemd, booted in namespaces of the test: activation, traffic,
//! reload, kill, hang and stop.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

use std::path::Path;
use std::process::Command;

use ceased_tests::binary::ceased;

const STEPS: [&str; 10] = [
    "activated by its socket",
    "watchdog fed",
    "reloaded",
    "killed and restarted",
    "hung and ended by the watchdog",
    "stopped",
    "activated again, with its tasks",
    "open to members of the group only",
    "a tool of the peer unit is its caller, without a right of the daemon",
    "processes of another user end",
];

/// Exit status of `outside` on a machine that cannot boot systemd this way.
const CANNOT: i32 = 77;

#[test]
fn units_work_under_systemd() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("bash");
    command.arg(tests.join("systemd/outside")).arg(ceased());
    let output = command.arg(tests.join("../daemon/packaging")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(CANNOT) {
        return eprintln!("{said}");
    }
    let why = format!("{}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{why}");
    let done: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
    assert_eq!(done, STEPS, "{why}");
}
