//! A user database that does not answer delays only jobs that run as one of its users.

use std::env;
use std::fs::OpenOptions;
use std::process::Command;

use ceased::process::{Ending, Launch, Order};

use crate::process_kit::Tier;
use crate::stopped::assert_others_run;
use crate::{argument, rig, run_as_test};

/// The user database is a pipe without a writer, for one process and its children.
#[test]
fn unresponsive_user_database_delays_only_its_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("passwd");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let script = "mount --bind \"$0\" /etc/passwd && exec \"$@\"";
    let apart = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", script]).arg(&pipe).arg(command);
        unshare
    };
    if !apart("true").status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: cannot mount here");
        return;
    }
    // Cargo looks up users too, so the binary is built before.
    let _ = ceased_tests::binary::ceased();
    let test = env::current_exe().unwrap();
    let mut command = apart(test.to_str().unwrap());
    command.env_remove("CARGO");
    run_as_test(command, "accounts::with_unresponsive_user_database", pipe.to_str().unwrap());
}

// STOP-01
#[test]
#[ignore = "runs in a process of its own, which has no users"]
fn with_unresponsive_user_database() {
    let Some(pipe) = argument() else { return };
    for tier in [Tier::Cgroup, Tier::Guard, Tier::Groups] {
        let Some(mut rig) = rig(tier) else { continue };
        let launch = rig.command(&["true"]);
        let job = rig.launch(Launch { user: Some(1), ..launch });
        assert_others_run(&mut rig);
        rig.order(Order::Terminate(job));
        let ending = rig.wait_ending(job);
        let Ending::NotStarted(reason) = ending else { panic!("{ending:?}") };
        assert!(reason.contains("was looked up"), "{reason}");

        let launch = rig.command(&["true"]);
        let job = rig.launch(Launch { user: Some(1), ..launch });
        // The database answers at last, with content that is no passwd file.
        drop(OpenOptions::new().write(true).open(&pipe).unwrap());
        let ending = rig.wait_ending(job);
        let Ending::NotStarted(reason) = ending else { panic!("{ending:?}") };
        assert!(reason.contains("uid 1 has no account"), "{reason}");
    }
}
