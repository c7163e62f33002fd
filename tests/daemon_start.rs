//! Daemons that cannot start: what they say, how they exit, that they leave nothing behind.

use std::fs;

use ceased_tests::daemon::{Config, Home, Program, Ran, wait_until_no_group_of};

/// A home whose daemon has these further tables.
fn home(tables: &str) -> Home {
    let home = Home::new();
    home.configure(&Config { tools: tables, ..Config::default() });
    home
}

/// A run that is wrong use: what it said. It must leave no control group, which the next daemon
/// would take for one of a daemon that was killed.
fn refused(home: &Home, args: &[&str], tier: Option<&str>) -> Ran {
    let mut command = home.command(args);
    command.env("CEASED_CONTAINMENT", tier.unwrap_or_default());
    let program = Program::start(home, command);
    let pid = program.pid();
    let ran = program.wait();
    assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
    assert!(ran.out.is_empty(), "{ran:?}");
    wait_until_no_group_of(pid);
    ran
}

/// The line of a run that is not a log's.
fn complaint(ran: &Ran) -> String {
    let said: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("ceased: ")).collect();
    assert_eq!(said.len(), 1, "{ran:?}");
    said.concat()
}

/// An audit log that cannot be written to is a wrong configuration.
#[test]
fn an_audit_log_that_cannot_be() {
    let home = home("[log]\naudit = \"nowhere/a.jsonl\"\n");
    let path = home.path().join("nowhere/a.jsonl");
    let said = complaint(&refused(&home, &["serve"], None));
    assert!(said.contains(&format!("the audit log {} cannot be used", path.display())), "{said}");
    assert!(said.contains("No such file") && said.contains("`audit` in [log]"), "{said}");
    for args in [&["stdio"][..], &["call", "echo", "text=x"]] {
        assert_eq!(complaint(&refused(&home, args, None)), said, "{args:?}");
    }
}

/// A recording writes over nothing, and says which option wanted it.
#[test]
fn a_recording_that_cannot_be_made() {
    let home = home("");
    let there = home.path().join("recording");
    fs::write(&there, "precious").expect("a file of our own");
    let nowhere = home.path().join("nowhere/recording");
    for (path, why) in [(&there, "File exists"), (&nowhere, "No such file")] {
        let path = path.to_str().expect("a path of letters");
        for command in ["serve", "stdio"] {
            let said = complaint(&refused(&home, &[command, "--record", path], None));
            assert!(said.contains(&format!("{path} (--record): {why}")), "{said}");
        }
    }
    assert_eq!(fs::read_to_string(&there).expect("it is there"), "precious");
}

/// A start that fails late, as one that fails early, takes its control group with it: by whichever
/// way it got one.
#[test]
fn a_failed_start_leaves_no_control_group() {
    let home = home("");
    let path = home.path().join("recording");
    fs::write(&path, "").expect("a file of our own");
    let path = path.to_str().expect("a path of letters");
    for tier in [None, Some("cgroup")] {
        refused(&home, &["serve", "--record", path], tier);
    }
    fs::remove_file(path).expect("ours");
    home.configure_as(&home.config_text().replace("d.sock", "config.toml/d.sock"));
    refused(&home, &["serve"], None);
}
