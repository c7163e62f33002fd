//! The server of ceased in the table of the field.

use std::collections::BTreeSet;
use std::process::Command;

use ceased_tests::binary::ceased;
use ceased_tests::workspace;
use serde_json::Value;

use super::{document, with};

fn probe(tool: &str, only: &str) -> Value {
    let output = Command::new(ceased())
        .args(["probe", "--json", "-", "--window", "700ms", "--timeout", "4s"])
        .args(["--tool", tool, "--args", "{\"seconds\": 60}", "--only", only])
        .args(["--brief-args", "{\"seconds\": 1}", "--"])
        .arg(ceased())
        .args(["stdio", "--config"])
        .arg(workspace::root().join("tests/conformance/field/ceased.toml"))
        .output()
        .unwrap();
    document(&output)
}

/// EXT-02: a server may run a call without a task, which deviates from nothing.
#[test]
fn call_without_a_task_is_unknown_to_the_checks_of_the_extension() {
    let found = probe("stubborn", "extension-cancel");
    let unknown = BTreeSet::from(["extension-cancel".to_owned()]);
    assert_eq!(with(&found, "unknown"), unknown, "{found:#}");
}

/// The row of ceased has no deviation.
#[test]
fn nothing_is_found_in_the_row_of_ceased() {
    let found = probe("sleep", "cancel,id,extension,task-cancel,eof,killed,sigterm");
    assert_eq!(with(&found, "deviates"), BTreeSet::new(), "{found:#}");
    assert!(with(&found, "holds").contains("extension-cancel"), "{found:#}");
}
