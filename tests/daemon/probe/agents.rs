//! `ceased probe --acp`: each planted fault is found by its check and by no other, and nothing is
//! found in the example agent.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use ceased_tests::binary::{acp_agent, ceased};
use ceased_tests::workspace;

use super::{FAULTY, assert_found, document, output_of, with};

const AGENT: &str = include_str!("agent.py");
/// Most checks wait for something.
const AT_ONCE: [&str; 2] = ["--at-once", "16"];

/// Faults that do not disturb each other, by the ids of their checks.
const FAULTS: [&[&str]; 4] = [
    &[
        "agent-version",
        "agent-cancel-unknown",
        "agent-unknown-method",
        "agent-turn-one-answer",
        "agent-cancel-early",
        "agent-next-turn",
        "agent-eof-exit",
        "agent-sigterm-tree",
        "agent-v2-id-null",
        "agent-v2-terminal-cancel",
    ],
    &[
        "agent-stdout",
        "agent-cancel-answered",
        "agent-parse-error",
        "agent-turn-cancel",
        "agent-request-cancel",
        "agent-cancel-idle",
        "agent-eof-tree",
        "agent-sigterm-exit",
        "agent-v2-tool-call-cancel",
        "agent-v2-background-closed",
    ],
    &[
        "agent-initialize-cancel",
        "agent-cancel-malformed",
        "agent-id-forms",
        "agent-turn-late-updates",
        "agent-cancel-both",
        "agent-other-session",
        "agent-killed-exit",
        "agent-v2-turn-cancel",
    ],
    &[
        "agent-cancel-no-session",
        "agent-cancel-spellings",
        "agent-id-duplicate",
        "agent-question",
        "agent-work-processes",
        "agent-killed-tree",
        "agent-v2-cancel-no-piece",
        "agent-v2-background-spared",
    ],
];

/// Runs a probe of the scripted agent with these faults.
fn run(faults: &[&str], options: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("agent.py");
    fs::write(&script, AGENT).unwrap();
    let mut command = Command::new(ceased());
    command.args(["probe", "--acp", "--json", "-", "--window", "700ms"]);
    command.args(AT_ONCE).args(options);
    command
        .args(["--question-prompt", "ask first", "--background-prompt", "background"])
        .args(["--", "python3", "-S"])
        .arg(script)
        .args(faults);
    output_of(&mut command)
}

fn every_fault_is_found(faults: &[&str]) {
    assert_found(faults, &[], |only| run(faults, &[&FAULTY[..], only].concat()));
}

/// Each fault alone: faults of one group may hide each other.
#[test]
#[ignore = "takes 10 minutes"]
fn each_fault_of_an_agent_alone_is_found_by_its_check() {
    for fault in FAULTS.concat() {
        every_fault_is_found(&[fault]);
    }
}

/// ACP-06, ACP-08, RPC-01, RPC-04: faults of the first group.
#[test]
fn planted_faults_of_an_agent_are_found_by_their_checks_1() {
    every_fault_is_found(FAULTS[0]);
}

#[test]
fn planted_faults_of_an_agent_are_found_by_their_checks_2() {
    every_fault_is_found(FAULTS[1]);
}

#[test]
fn planted_faults_of_an_agent_are_found_by_their_checks_3() {
    every_fault_is_found(FAULTS[2]);
}

#[test]
fn planted_faults_of_an_agent_are_found_by_their_checks_4() {
    every_fault_is_found(FAULTS[3]);
}

/// The ids of all checks but that of the handshake.
fn planted() -> impl Iterator<Item = String> {
    FAULTS.iter().flat_map(|group| group.iter()).map(|fault| (*fault).to_owned())
}

/// The agent without faults, and the list of faults against the list of checks.
#[test]
fn nothing_is_found_in_an_agent_without_faults_and_every_check_has_a_fault() {
    let found = document(&run(&[], &[]));
    assert_eq!(with(&found, "deviates"), BTreeSet::new(), "{found:#}");
    assert_eq!(with(&found, "unknown"), BTreeSet::new(), "{found:#}");
    assert_eq!(found["revision"], "ACP 1, ACP 2");
    let mut planted: BTreeSet<String> = planted().collect();
    planted.insert("agent-handshake".to_owned());
    assert_eq!(with(&found, "holds"), planted);
    // The page has a section for each check.
    let page = fs::read_to_string(workspace::root().join("docs/src/probe-agents.md")).unwrap();
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let ids = found["checks"].as_array().unwrap().iter().map(|check| check["id"].as_str().unwrap());
    assert_eq!(headings, ids.collect::<Vec<_>>());
}

#[test]
fn agent_without_a_handshake_deviates_there_alone() {
    let found = document(&run(&["agent-handshake"], &["--timeout", "1s"]));
    let handshake = BTreeSet::from(["agent-handshake".to_owned()]);
    assert_eq!(with(&found, "deviates"), handshake, "{found:#}");
    assert_eq!(with(&found, "holds"), BTreeSet::new());
}

/// ACP-05, ACP-12: the example agent, which is built on the engine.
#[test]
fn nothing_is_found_in_the_example_agent() {
    let words = "word ".repeat(2000);
    let output = Command::new(ceased())
        .args(["probe", "--acp", "--json", "-", "--window", "700ms", "--prompt", &words])
        .args(AT_ONCE)
        .args(["--question-prompt", &format!("ask {words}"), "--"])
        .arg(acp_agent())
        .output()
        .unwrap();
    let found = document(&output);
    assert_eq!(with(&found, "deviates"), BTreeSet::new(), "{found:#}");
    // It starts no process, and speaks version 1.
    let unknown: BTreeSet<String> =
        planted().filter(|id| id == "agent-work-processes" || id.contains("-v2-")).collect();
    assert_eq!(with(&found, "unknown"), unknown, "{found:#}");
}
