//! The official client of 2026-07-28, with its companion for the tasks extension.

use super::server::{TOOLS, Way};
use super::{drive_through, install};

/// Checks of the script.
const CHECKS: [&str; 15] = [
    "connect",
    "tools_list",
    "echo",
    "progress",
    "silent_tool",
    "abort",
    "input_required",
    "refusals",
    "listen",
    "task",
    "task_cancel",
    "task_input",
    "task_listen",
    "no_errors",
    "close",
];

/// A tool that asks for input before it runs.
const ASKS: &str = r#"
[[tool]]
name = "asks"
task_support = "optional"
confirm = "Really {what}?"
command = ["echo", "{what}"]
[tool.input.what]
type = "string"
required = true
"#;

fn drive(way: Way, further: &[&'static str]) {
    let checks = CHECKS.iter().chain(further).copied().collect();
    drive_through(install::modern(), way, &format!("{TOOLS}{ASKS}"), checks);
}

/// MOD-01 to MOD-04, MOD-07, MOD-08, EXT-01 to EXT-05: with the requests of the official client.
#[test]
fn modern_typescript_over_stdio() {
    drive(Way::Stdio, &[]);
}

/// The same over a daemon, with a reload reported to a subscription (MOD-08).
#[test]
fn modern_typescript_over_connect() {
    drive(Way::Connect, &["reload"]);
}
