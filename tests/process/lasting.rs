//! Processes that the supervisor may not kill: it reports them, and the job ends when they do.

use std::fs;

use ceased::process::JobId;
use ceased::process::{Ending, Order, Orphans, Report, Stopped};
use ceased_tests::c_tool::{CTool, ROOTED};

use crate::process_kit::{Rig, Tier, assert_none_left, carriers, marker};
use crate::{argument, rig_with, run_ordinary};

/// STOP-02: a set-uid root program, run by an ordinary user. In a control group it can be killed.
#[test]
fn job_that_cannot_be_killed_is_reported_once_and_ends_by_itself() {
    let Some(tool) = CTool::build(ROOTED, 0o4755) else { return };
    for tier in [Tier::Guard, Tier::Groups] {
        for is_command in [true, false] {
            let argument = format!("{tier:?} {is_command} {}", tool.path().display());
            run_ordinary("lasting::rooted", &argument);
        }
    }
}

/// Sends SIGKILL until the supervisor reports that it has no effect.
fn wait_outlasting(rig: &Rig, job: JobId) -> ceased::process::Exit {
    loop {
        rig.order(Order::Kill(job));
        match rig.reports.recv_timeout(std::time::Duration::from_millis(50)) {
            Ok(Report::Outlasting { job: of, exit }) => {
                assert_eq!(of, job);
                return *exit;
            }
            Ok(Report::Lingering { .. }) | Err(_) => {}
            Ok(other) => panic!("{other:?}"),
        }
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn rooted() {
    let Some(given) = argument() else { return };
    let [tier, is_command, tool] = given.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("until");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let tier = if tier == "Guard" { Tier::Guard } else { Tier::Groups };
    let mut rig = rig_with(tier, Orphans::Adopt).unwrap();
    let marker = marker();
    let job = match is_command {
        "true" => rig.run(&[tool, &marker, file]),
        _ => rig.run(&["sh", "-c", "echo so far; \"$@\" & exit 7", "sh", tool, &marker, file]),
    };
    match rig.report() {
        Report::Progress { .. } if is_command == "true" => {}
        // The shell has not exited yet.
        Report::Progress { .. } => {
            let report = rig.report();
            assert!(matches!(report, Report::Lingering { .. }), "{report:?}");
        }
        Report::Lingering { .. } => rig.wait_ready(job),
        Report::Ended { ending: Ending::Exited(exit), .. } if exit.code == Some(3) => {
            return eprintln!("SKIPPED: set-uid programs have no effect here");
        }
        other @ (Report::Outlasting { .. }
        | Report::Ended { .. }
        | Report::Line { .. }
        | Report::Surveyed { .. }
        | Report::Examined { .. }
        | Report::BornEnded { .. }
        | Report::Located { .. }) => panic!("{other:?}"),
    }
    rig.order(Order::Terminate(job));
    let exit = wait_outlasting(&rig, job);
    assert_eq!((exit.survivors, exit.stopped), (Some(1), Stopped::Killed));
    let (code, out) = if is_command == "true" { (None, "") } else { (Some(7), "so far\n") };
    assert_eq!((exit.code, exit.stdout.text().as_str()), (code, out));
    // Reported once; the job continues.
    rig.order(Order::Kill(job));
    rig.order(Order::Kill(job));
    let other = rig.run(&["true"]);
    assert_eq!(rig.wait_exit(other).code, Some(0));
    assert!(!carriers(&marker).is_empty());
    fs::remove_file(file).unwrap();
    let exit = rig.wait_exit(job);
    assert_eq!(exit.stopped, Stopped::Killed);
    assert_none_left(&marker);
}
