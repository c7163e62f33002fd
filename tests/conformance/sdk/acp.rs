//! The official ACP client against the example agent.

use std::process::Command;

use ceased_tests::binary;

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

/// ACP-01, ACP-05, ACP-06, ACP-12: a prompt turn is cancelled both ways, together with its
/// question.
#[test]
fn acp_typescript_over_stdio() {
    let Some(client) = install::acp() else { return };
    let folder = tempfile::Builder::new().prefix("ceased-acp-").tempdir().expect("a folder");
    let path = text(folder.path());
    let mark = path.rsplit('/').next().expect("a path has a last part");
    let _sweep = Sweep(mark.to_owned());
    let mut command = Command::new(&client.program);
    command.arg(&client.script).arg(binary::acp_agent()).env(MARK_VARIABLE, mark);
    let log = folder.path().join("client.log");
    let ended = processes::run(&mut command, &log, SCRIPT_WITHIN);
    let said = read(&log);
    let summary = said.lines().rev().find_map(|line| serde_json::from_str::<Summary>(line).ok());
    let status = ended.unwrap_or_else(|why| panic!("{why}:\n{said}"));
    let summary = summary.unwrap_or_else(|| panic!("{status}:\n{said}"));
    assert!(status.success() && summary.failures == 0, "{status}:\n{said}");
    assert_eq!(summary.done, CHECKS, "the script and this test know different checks");
    assert!(processes::marked(mark).is_empty(), "left behind: {:?}", processes::marked(mark));
}
