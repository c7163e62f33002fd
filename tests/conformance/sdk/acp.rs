//! The official ACP client against the example agent and an agent of its own SDK, alone and behind
//! the supervisor.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use ceased_tests::binary;

use super::install::Client;
use super::processes::{self, MARK_VARIABLE, Sweep};
use super::server::{read, text};
use super::{SCRIPT_WITHIN, Summary, install};

/// Checks of the script.
const CHECKS: [&str; 7] = [
    "streams",
    "cancel_request",
    "session_cancel",
    "permission",
    "cascade_of_cancel_request",
    "cascade_of_session_cancel",
    "unknown_method",
];
/// Checks of turns that no cancel ends.
const STUBBORN: [&str; 2] = ["stubborn_session_cancel", "stubborn_cancel_request"];
/// Checks of version 2.
const VERSION_2: [&str; 6] = [
    "streams",
    "session_cancel",
    "stubborn_session_cancel",
    "late_cancel",
    "cancel_of_one_terminal",
    "background_outlasts_a_cancel",
];

/// The supervisor in front of a command.
fn supervised(command: Vec<OsString>) -> Vec<OsString> {
    let options = ["wrap", "--acp", "--cancel-grace=500ms", "--kill-grace=300ms", "--"];
    let words = options.into_iter().map(OsString::from);
    [binary::ceased().into()].into_iter().chain(words).chain(command).collect()
}

/// The agent of the SDK, in a script beside the client.
fn agent_of_the_sdk(client: &Client, script: &str) -> Vec<OsString> {
    vec![client.program.clone().into(), client.script.with_file_name(script).into()]
}

/// Runs the client with an agent.
fn run(client: &Client, agent: &[OsString], checks: &[&str]) {
    let folder = tempfile::Builder::new().prefix("ceased-acp-").tempdir().expect("a folder");
    let path = text(folder.path());
    let mark = path.rsplit('/').next().expect("a path has a last part");
    let _sweep = Sweep(mark.to_owned());
    let mut command = Command::new(&client.program);
    command.arg(&client.script).args(agent).env(MARK_VARIABLE, mark);
    if checks.contains(&STUBBORN[0]) {
        command.env("ACP_STUBBORN", "1");
    }
    let log: &Path = &folder.path().join("client.log");
    let ended = processes::run(&mut command, log, SCRIPT_WITHIN);
    let said = read(log);
    let summary = said.lines().rev().find_map(|line| serde_json::from_str::<Summary>(line).ok());
    let status = ended.unwrap_or_else(|why| panic!("{why}:\n{said}"));
    let summary = summary.unwrap_or_else(|| panic!("{status}:\n{said}"));
    assert!(status.success() && summary.failures == 0, "{status}:\n{said}");
    assert_eq!(summary.done, checks, "the script and this test know different checks");
    assert!(processes::marked(mark).is_empty(), "left behind: {:?}", processes::marked(mark));
}

/// ACP-01, ACP-05, ACP-06, ACP-12: a prompt turn is cancelled both ways, together with its
/// question.
#[test]
fn acp_typescript_over_stdio() {
    let Some(client) = install::acp() else { return };
    run(&client, &[binary::acp_agent().into()], &CHECKS);
}

/// SUP-01: the supervisor changes nothing for the official client and the example agent.
#[test]
fn acp_typescript_with_the_supervised_example() {
    let Some(client) = install::acp() else { return };
    run(&client, &supervised(vec![binary::acp_agent().into()]), &CHECKS);
}

/// SUP-01, SUP-02: nor for the official client and an agent of its own SDK, but that turns end
/// which no cancel ends.
#[test]
fn acp_typescript_with_a_supervised_agent_of_its_own() {
    let Some(client) = install::acp() else { return };
    let agent = agent_of_the_sdk(&client, "acp_agent.mjs");
    run(&client, &agent, &CHECKS);
    let checks = [&CHECKS[..], &STUBBORN[..]].concat();
    run(&client, &supervised(agent), &checks);
}

/// SUP-01, SUP-02, SUP-04, SUP-05, SUP-06: the same in version 2, with the cancel of one terminal of two
/// and background work.
#[test]
fn acp_typescript_of_version_2_supervised() {
    let Some(client) = install::acp_version_2() else { return };
    let agent = agent_of_the_sdk(&client, "acp_v2_agent.mjs");
    run(&client, &supervised(agent), &VERSION_2);
}
