//! Processes that a plain search misses: those whose first thread has exited, and those that have
//! left the control group of their job.

use std::fs;
use std::path::{Path, PathBuf};

use ceased::process::JobId;
use ceased::process::{Order, Orphans, Stopped};
use ceased_tests::c_tool::{CTool, LEADERLESS};

use crate::guard_death::daemon_runs;
use crate::process_kit::{Rig, Tier, assert_none_left, carriers, eventually, marker};
use crate::{argument, rig_with, run_alone, run_ordinary};

const TIERS: [Tier; 3] = [Tier::Cgroup, Tier::Guard, Tier::Groups];

fn tier(name: &str) -> Tier {
    TIERS.into_iter().find(|tier| format!("{tier:?}") == name).unwrap()
}

/// STOP-01, checked against the process table: the kernel may remove a moved dead process late.
fn assert_killed(rig: &Rig, job: JobId, marker: &str) {
    rig.order(Order::Terminate(job));
    rig.order(Order::Kill(job));
    let exit = rig.wait_exit(job);
    assert_none_left(marker);
    assert_ne!(exit.stopped, Stopped::No);
}

// ---------------------------------------------------------------- first thread has exited

// STOP-01
#[test]
fn process_whose_first_thread_exited_is_ended() {
    for tier in TIERS {
        run_alone("unseen::leaderless", &format!("{tier:?}"));
        run_ordinary("unseen::leaderless", &format!("{tier:?}"));
    }
}

/// SIGTERM reaches the process, SIGKILL ends it, and its job lasts until then.
#[test]
#[ignore = "runs in a process of its own"]
fn leaderless() {
    let Some(name) = argument() else { return };
    let Some(mut rig) = rig_with(tier(&name), Orphans::Adopt) else { return };
    let Some(tool) = CTool::build(LEADERLESS, 0o755) else { return };
    let path = tool.path();
    let path = path.to_str().unwrap();
    // The command itself, a child of it, and a child that outlives it; with SIGTERM and without.
    for script in
        ["exec \"$1\" \"$2\" $3", "\"$1\" \"$2\" $3 & wait", "\"$1\" \"$2\" $3 & exec sleep \"$2\""]
    {
        for deaf in ["", "deaf"] {
            let marker = marker();
            let job = rig.run(&["sh", "-c", script, "sh", path, &marker, deaf]);
            rig.wait_ready(job);
            if deaf.is_empty() {
                rig.order(Order::Terminate(job));
                let exit = rig.wait_exit(job);
                assert_none_left(&marker);
                assert_eq!(exit.stopped, Stopped::Terminated, "{script}");
                assert!(exit.signalled >= 1, "{script}: {exit:?}");
            } else {
                assert_killed(&rig, job, &marker);
            }
        }
    }
}

/// The process also ends with the daemon.
#[test]
fn process_whose_first_thread_exited_dies_with_the_daemon() {
    let Some(tool) = CTool::build(LEADERLESS, 0o755) else { return };
    let path = tool.path();
    let script = format!("{} $1 deaf & wait", path.display());
    for tier in [Tier::Cgroup, Tier::Guard] {
        let marker = marker();
        let Some((mut daemon, base)) = daemon_runs(tier, &marker, &script) else { continue };
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        eventually("the tool is gone", || carriers(&marker).is_empty());
        assert!(base.is_none_or(|base| gone(&base)), "control groups are left");
    }
}

fn gone(base: &Path) -> bool {
    eventually("the control groups are removed", || !base.exists());
    true
}

/// The next start ends the leftovers of a daemon and its keeper, including a process whose first
/// thread has exited.
#[test]
fn process_whose_first_thread_exited_is_ended_by_the_next_start() {
    let Some(tool) = CTool::build(LEADERLESS, 0o755) else { return };
    let Some(rig) = rig_with(Tier::Cgroup, Orphans::Leave) else { return };
    let parent = rig.base.as_deref().and_then(Path::parent).unwrap().to_owned();
    let mut dead = std::process::Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let left = parent.join(format!("ceased-{}-0123456789ac", dead.id()));
    fs::create_dir_all(left.join("g1")).unwrap();
    let marker = marker();
    let procs = left.join("g1/cgroup.procs");
    // The shell moves itself: a process whose first thread has exited cannot be moved by its pid.
    let mut stray = std::process::Command::new("sh")
        .args(["-c", "echo $$ > \"$1\"; exec \"$2\" \"$3\" deaf", "sh"])
        .args([procs.as_path(), tool.path().as_path(), Path::new(&marker)])
        .spawn()
        .unwrap();
    let stat = format!("/proc/{}/stat", stray.id());
    eventually("the first thread has exited", || {
        fs::read_to_string(&stat).unwrap().contains(") Z")
    });
    let next = ceased::process::Cgroup::create().unwrap();
    stray.wait().unwrap();
    assert_none_left(&marker);
    eventually("the control groups are removed", || !left.exists());
    drop(next);
}

// ---------------------------------------------------------------- outside of its control group

/// Scripts whose processes move to the control group `$2`; `$1` is their marker.
const LEAVERS: [&str; 7] = [
    // The command itself, with a child.
    "echo $$ > $2; sleep $1 & echo 1 >&3; wait",
    // A child.
    "(echo 0 > $2; exec sleep $1) & echo 1 >&3; wait",
    // A grandchild whose parent stays.
    "(sh -c 'echo 0 > $1; exec sleep $0' $1 $2 & wait) & echo 1 >&3; wait",
    // An orphan in the same session.
    "((echo 0 > $2; exec sleep $1) &); echo 1 >&3; sleep $1",
    // An orphan in its own session that ignores SIGTERM.
    "(setsid sh -c 'trap \"\" TERM; echo 0 > $1; sleep $0; sleep $0' $1 $2 &); echo 1 >&3; sleep $1",
    // The same without the variable that names the job, as sudo starts it.
    "(env -i setsid sh -c 'trap \"\" TERM; echo 0 > $1; (sleep $0 &); sleep $0; :' $1 $2 &); \
     echo 1 >&3; sleep $1",
    // A process that outlives the command.
    "(env -i setsid sh -c 'echo 0 > $1; sleep $0' $1 $2 &) & echo 1 >&3; sleep 1",
];

fn has_left(rig: &Rig, marker: &str, group: &Path) -> bool {
    let name = rig.base.as_ref().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let inside = group.starts_with(rig.base.as_ref().unwrap());
    carriers(marker).iter().any(|(pid, args)| {
        let at = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let is_out = match inside {
            true => at.trim_end().ends_with(group.file_name().unwrap().to_str().unwrap()),
            false => !at.contains(&name),
        };
        args.starts_with("sleep") && is_out
    })
}

fn leave(rig: &mut Rig, script: &str, marker: &str, group: &Path) -> JobId {
    let procs = group.join("cgroup.procs");
    let job = rig.run(&["sh", "-c", script, "sh", marker, procs.to_str().unwrap()]);
    rig.wait_ready(job);
    eventually("a process has left its group", || has_left(rig, marker, group));
    job
}

// STOP-01
#[test]
fn process_that_left_its_group_is_ended() {
    run_alone("unseen::leavers", "1");
    run_ordinary("unseen::leavers", "1");
}

#[test]
#[ignore = "runs in a process of its own"]
fn leavers() {
    if argument().is_none() {
        return;
    }
    let Some(mut rig) = rig_with(Tier::Cgroup, Orphans::Adopt) else { return };
    let outside: PathBuf = rig.base.as_deref().and_then(Path::parent).unwrap().to_owned();
    for script in LEAVERS {
        let marker = marker();
        let job = leave(&mut rig, script, &marker, &outside);
        assert_killed(&rig, job, &marker);
    }
    // The processes move into the group of another job, which is not affected.
    let other = rig.run(&["sh", "-c", "echo 1 >&3; exec sleep 1000"]);
    rig.wait_ready(other);
    let mut pid = 0;
    eventually("the other job sleeps", || {
        let line = |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let found = crate::process_kit::children().into_iter();
        pid = found.into_iter().find(|pid| line(pid) == b"sleep\x001000\0").unwrap_or(0);
        pid != 0
    });
    let inside = rig.group_of(pid).unwrap();
    for script in &LEAVERS[..5] {
        let marker = marker();
        let job = leave(&mut rig, script, &marker, &inside);
        assert_killed(&rig, job, &marker);
    }
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the other job still runs");
    rig.order(Order::Kill(other));
    assert_eq!(rig.wait_exit(other).signal, Some(9));
}

/// Orphans that exit are reaped while jobs run; foreign children are not.
#[test]
fn orphans_are_reaped_while_their_job_runs() {
    run_alone("unseen::reaped", "1");
}

#[test]
#[ignore = "runs in a process of its own"]
fn reaped() {
    if argument().is_none() {
        return;
    }
    let Some(mut rig) = rig_with(Tier::Cgroup, Orphans::Adopt) else { return };
    let mut own = std::process::Command::new("true").spawn().unwrap();
    let script = "i=0; while [ $i -lt 50 ]; do (sleep 0.01 &); i=$((i+1)); done; \
                  echo 1 >&3; exec sleep 1000";
    let job = rig.run(&["sh", "-c", script]);
    rig.wait_ready(job);
    let zombies = || {
        let all = crate::process_kit::children().into_iter();
        let stat = |pid| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        all.filter(|pid| *pid != own.id().cast_signed() && stat(*pid).contains(") Z")).count()
    };
    eventually("orphans come", || zombies() > 0 || crate::process_kit::children().len() < 4);
    eventually("all orphans are reaped", || zombies() == 0);
    assert!(own.wait().unwrap().success());
    rig.order(Order::Kill(job));
    assert_eq!(rig.wait_exit(job).signal, Some(9));
}

/// The keeper also ends processes that left their group when the daemon is killed.
#[test]
fn process_that_left_its_group_dies_with_the_daemon() {
    let Some(rig) = rig_with(Tier::Cgroup, Orphans::Leave) else { return };
    let outside = rig.base.as_deref().and_then(Path::parent).unwrap().to_owned();
    let outside = outside.join("cgroup.procs");
    for script in LEAVERS.into_iter().take(4) {
        let marker = marker();
        let script = script.replace("$2", outside.to_str().unwrap());
        let Some((mut daemon, base)) = daemon_runs(Tier::Cgroup, &marker, &script) else { return };
        let group = outside.parent().unwrap();
        let probe = |args: &str| args.starts_with("sleep");
        eventually("a process has left", || {
            carriers(&marker).iter().any(|(pid, args)| {
                let at = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
                probe(args) && !at.contains(&format!("ceased-{}", daemon.id()))
            })
        });
        assert!(group.exists());
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        eventually("the tool is gone", || carriers(&marker).is_empty());
        assert!(base.is_none_or(|base| gone(&base)), "control groups are left");
    }
}
