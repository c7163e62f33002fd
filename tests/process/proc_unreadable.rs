//! A process does not count as gone while file descriptors are exhausted and `/proc` cannot be
//! read.

use std::fs::File;
use std::time::{Duration, Instant};

use ceased::process::JobId;
use ceased::process::{Order, Orphans, Report, Stopped};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};

use crate::process_kit::{Rig, Tier, assert_none_left, carriers, eventually, marker};
use crate::{argument, rig_with, run_alone};

/// Every remaining descriptor of this process.
fn all_descriptors() -> Vec<File> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(128);
    setrlimit(Resource::Nofile, limit).unwrap();
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// Starts a process that ignores SIGTERM and SIGHUP, optionally in its own session; returns the job
/// and the shell that started the process.
fn start(rig: &mut Rig, how: &str, marker: &str) -> (JobId, i32) {
    let script = format!("(trap '' TERM HUP; exec {how} sleep $1) & echo 1 >&3; wait");
    let job = rig.shell(&script, marker);
    rig.wait_ready(job);
    let find = |name: &str| {
        let found = carriers(marker).into_iter().find(|(_, args)| args.starts_with(name));
        found.map(|(pid, _)| pid)
    };
    eventually("it sleeps", || find("sleep").is_some());
    (job, find("sh").unwrap())
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

// STOP-01
#[test]
fn job_does_not_end_while_proc_is_unreadable() {
    run_alone("proc_unreadable::leader_killed", "1");
    run_alone("proc_unreadable::guard_killed", "1");
}

#[test]
#[ignore = "runs in a process of its own"]
fn leader_killed() {
    if argument().is_none() {
        return;
    }
    let (mut rig, marker) = (rig_with(Tier::Groups, Orphans::Leave).unwrap(), marker());
    let (job, leader) = start(&mut rig, "", &marker);
    let taken = all_descriptors();
    kill(leader);
    assert_eq!(rig.report(), Report::Lingering { job });
    drop(taken);
    rig.order(Order::Kill(job));
    assert_eq!(rig.wait_exit(job).stopped, Stopped::Killed);
    assert_none_left(&marker);
}

#[test]
#[ignore = "runs in a process of its own"]
fn guard_killed() {
    if argument().is_none() {
        return;
    }
    let (mut rig, marker) = (rig_with(Tier::Guard, Orphans::Adopt).unwrap(), marker());
    let (_, leader) = start(&mut rig, "setsid", &marker);
    let guard = crate::guard_death::guard_of(leader).unwrap();
    let mut taken = all_descriptors();
    kill(guard);
    // Takes the descriptors that the guard's death frees, so that the supervisor gets none.
    let until = Instant::now() + Duration::from_millis(500);
    let mut early = None;
    while early.is_none() && Instant::now() < until {
        taken.extend(all_descriptors());
        early = rig.reports.try_recv().ok();
    }
    drop(taken);
    let ended = early.unwrap_or_else(|| rig.report());
    assert!(matches!(ended, Report::Ended { .. }), "{ended:?}");
    assert_none_left(&marker);
}
