//! `ceased probe --client`: each planted fault is found by its check and by no other, and nothing is
//! found in a client that has `ceased wrap` in front of its server.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use ceased_tests::binary::ceased;
use ceased_tests::workspace;
use serde_json::Value;

use super::{FAULTY, assert_found, document, output_of, with};

const CLIENT: &str = include_str!("client.py");

/// Faults that do not disturb each other, by the ids of their checks: a client without a handshake
/// has none to cancel and no server that hangs, and one that ends at a late answer comes to no later
/// call.
const FAULTS: [&[&str]; 3] = [
    &[
        "client-stdin",
        "client-abort-id",
        "client-timeout-cancel",
        "client-cancel-answered",
        "client-close-server",
        "client-killed-tree",
    ],
    &[
        "client-initialize-cancel",
        "client-abort-cancel",
        "client-timeout-id",
        "client-ping",
        "client-close-tree",
        "client-hang-tree",
    ],
    &["client-handshake", "client-late-answer"],
];

/// Faults that leave the server alone, all at once.
const NEGLECT: [&str; 4] =
    ["client-close-server", "client-close-tree", "client-killed-tree", "client-hang-tree"];

/// Runs a probe of the scripted client with these faults, before this server.
fn run(options: &[&str], faults: &[&str], server: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("client.py");
    fs::write(&script, CLIENT).unwrap();
    let mut command = Command::new(ceased());
    command.args(["probe", "--client", "--json", "-"]).args(options);
    command.args(["--", "python3", "-S"]).arg(script);
    output_of(command.args(faults).arg("--").args(server))
}

/// The result of such a probe.
fn probe(options: &[&str], faults: &[&str], server: &[&str]) -> Value {
    let output = run(options, faults, server);
    let found = document(&output);
    let is_clean = found["deviates"] == 0;
    assert_eq!(output.status.code(), Some(i32::from(!is_clean)), "{found:#}");
    assert_eq!(found["left"], 0, "{found:#}");
    found
}

fn every_fault_is_found(faults: &[&str]) {
    assert_found(faults, &[], |only| run(&[&FAULTY[..], only].concat(), faults, &["{server}"]));
}

/// CAN-01, CAN-02, CAN-03, UPS-07, STOP-01.
#[test]
fn planted_faults_of_a_client_are_found_by_their_checks_1() {
    every_fault_is_found(FAULTS[0]);
}

/// CAN-01, CAN-02, CAN-04, STOP-01.
#[test]
fn planted_faults_of_a_client_are_found_by_their_checks_2() {
    every_fault_is_found(FAULTS[1]);
}

/// CAN-10, RPC-04.
#[test]
fn planted_faults_of_a_client_are_found_by_their_checks_3() {
    every_fault_is_found(FAULTS[2]);
}

/// Each fault alone: faults of one group may hide each other.
#[test]
#[ignore = "takes 3 minutes"]
fn each_fault_of_a_client_alone_is_found_by_its_check() {
    for fault in FAULTS.concat() {
        every_fault_is_found(&[fault]);
    }
}

#[test]
fn nothing_is_found_in_a_client_without_faults_and_every_check_has_a_fault() {
    let found = probe(&[], &[], &["{server}"]);
    assert_eq!(with(&found, "deviates"), BTreeSet::new(), "{found:#}");
    assert_eq!(with(&found, "unknown"), BTreeSet::new(), "{found:#}");
    let planted: BTreeSet<String> =
        FAULTS.iter().flat_map(|group| group.iter()).map(|fault| (*fault).to_owned()).collect();
    assert_eq!(with(&found, "holds"), planted);
    assert_eq!((&found["name"], &found["revision"]), (&"scripted 1".into(), &"2025-11-25".into()));
    // The page has a section for each check.
    let page = fs::read_to_string(workspace::root().join("docs/src/probe-clients.md")).unwrap();
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let ids = found["checks"].as_array().unwrap().iter().map(|check| check["id"].as_str().unwrap());
    assert_eq!(headings, ids.collect::<Vec<_>>());
}

/// A client that ends nothing of its server, which `ceased wrap` ends.
#[test]
fn nothing_is_found_in_a_client_with_the_wrapper() {
    let wrapper = ceased().to_string_lossy();
    let found = probe(&[], &NEGLECT, &[&wrapper, "wrap", "--", "{server}"]);
    assert_eq!(with(&found, "deviates"), BTreeSet::new(), "{found:#}");
    // The wrapper speaks the revision of its client to the server, which has a ping.
    assert_eq!(with(&found, "unknown"), BTreeSet::new(), "{found:#}");
}

/// The command is a shell in front of the client: a killed shell shows nothing.
#[test]
fn client_behind_a_shell_is_unknown_when_killed() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("client.py");
    fs::write(&script, CLIENT).unwrap();
    let line = format!("python3 -S {} -- $SERVER; exit $?", script.display());
    let shell = format!("eval set -- \"$CEASED_PROBE_SERVER\"; SERVER=\"$*\"; {line}");
    let output = Command::new(ceased())
        .args(["probe", "--client", "--json", "-", "--timeout", "4s"])
        .args(["--only", "client-killed-tree,client-abort", "--", "sh", "-c", &shell])
        .output()
        .unwrap();
    let found = document(&output);
    let unknown = BTreeSet::from(["client-killed-tree".to_owned()]);
    assert_eq!(with(&found, "unknown"), unknown, "{found:#}");
    let holds = ["client-abort-cancel", "client-abort-id"].map(str::to_owned);
    assert_eq!(with(&found, "holds"), holds.into(), "{found:#}");
}

/// A command that starts no server, and one that calls no tool.
#[test]
fn client_that_aborts_nothing_is_unknown() {
    let only = ["probe", "--client", "--json", "-", "--timeout", "2s", "--only", "client-abort"];
    let output = Command::new(ceased()).args(only).args(["--", "true"]).output().unwrap();
    let found = document(&output);
    assert_eq!((&found["unknown"], output.status.code()), (&2.into(), Some(0)), "{found:#}");
}
