//! Process trees that are hard to end. After each, no process of it is left in the process table.

use std::fs;

use ceased::process::JobId;
use ceased::process::{Exit, Order, Report, Stopped};

use crate::process_kit::{Rig, Tier, assert_none_left, carriers, eventually, marker};
use crate::rig;

/// Runs each scenario on every tier that promises STOP-01.
macro_rules! on_every_tier {
    ($($scenario:ident),+ $(,)?) => {
        mod cgroup {
            $(#[test] fn $scenario() { super::run(super::Tier::Cgroup, super::$scenario); })+
        }
        mod guard {
            $(#[test] fn $scenario() { super::run(super::Tier::Guard, super::$scenario); })+
        }
    };
}

on_every_tier!(
    obeys,
    ignores_sigterm,
    leaves_a_background_job,
    changes_session_and_clears_its_environment,
    forks_in_a_chain,
    forks_in_a_chain_of_sessions,
    forks_in_a_chain_at_full_speed,
    is_stopped,
    holds_the_pipes_after_its_leader_exited,
    writes_without_end,
    closes_all_descriptors,
    has_two_hundred_children,
    makes_zombies,
    lets_its_leader_exit_first,
    launches_like_npx,
    changes_its_name,
    is_listed_in_a_status,
);

// STOP-01
fn run(tier: Tier, scenario: fn(&mut Rig, &str)) {
    let Some(mut rig) = rig(tier) else { return };
    let marker = marker();
    scenario(&mut rig, &marker);
    assert_none_left(&marker);
    let base = rig.base.clone();
    assert!(rig.supervisor.shutdown(crate::process_kit::TIME_LIMIT));
    assert!(base.is_none_or(|base| !base.exists()), "the control group is left");
}

/// Sends SIGTERM and SIGKILL and returns the exit; no process may be alive at its report.
fn terminate_and_kill(rig: &Rig, job: JobId, marker: &str) -> Exit {
    rig.order(Order::Terminate(job));
    rig.order(Order::Kill(job));
    let exit = rig.wait_exit(job);
    assert_none_left(marker);
    exit
}

fn obeys(rig: &mut Rig, marker: &str) {
    let job = rig.run(&["sleep", marker]);
    eventually("it runs", || !carriers(marker).is_empty());
    let group = rig.group_of(carriers(marker)[0].0);
    assert!(group.as_ref().is_none_or(|group| group.exists()), "{group:?}");
    rig.order(Order::Terminate(job));
    let exit = rig.wait_exit(job);
    assert_eq!((exit.code, exit.signal), (None, Some(15)));
    assert_eq!((exit.stopped, exit.signalled), (Stopped::Terminated, 1));
    eventually("the control group is removed", || {
        group.as_ref().is_none_or(|group| !group.exists())
    });
}

/// A status request lists every process of the job with its parent, including the detached one.
fn is_listed_in_a_status(rig: &mut Rig, marker: &str) {
    let job = rig.shell("setsid sleep $1 & sleep $1 & echo 1 >&3; wait", marker);
    rig.wait_ready(job);
    eventually("three processes run", || carriers(marker).len() == 3);
    let never = JobId::new(9999);
    let mut found = Vec::new();
    // The last process has already called exec.
    eventually("each process is listed by its name", || {
        rig.order(Order::Survey { ticket: 7, jobs: vec![job, never] });
        let Report::Surveyed { ticket, mut processes, usage } = rig.report() else {
            panic!("no survey")
        };
        assert_eq!((ticket, processes.len()), (7, 1));
        let (of, told) = processes.remove(0);
        assert_eq!(of, job);
        found = told;
        let [(of, usage)] = usage[..] else { panic!("{usage:?}") };
        assert_eq!(of, job);
        // Three processes have some memory, and some CPU time at least one tick of it or none.
        assert!(usage.memory.is_some_and(|bytes| bytes > 64 * 1024), "{usage:?}");
        assert!(usage.cpu.is_some() && usage.cpus.is_some_and(f64::is_finite), "{usage:?}");
        let mut names: Vec<&str> = found.iter().map(|process| process.name.as_str()).collect();
        names.sort_unstable();
        names == ["sh", "sleep", "sleep"]
    });
    let shell = found.iter().find(|process| process.name == "sh").unwrap();
    assert!(found.iter().any(|process| process.parent == shell.pid), "{found:?}");
    terminate_and_kill(rig, job, marker);
}

fn ignores_sigterm(rig: &mut Rig, marker: &str) {
    let job = rig.shell("trap '' TERM HUP INT; echo 1 >&3; sleep $1; sleep $1", marker);
    rig.wait_ready(job);
    let exit = terminate_and_kill(rig, job, marker);
    assert_eq!((exit.signal, exit.stopped), (Some(9), Stopped::Killed));
}

fn leaves_a_background_job(rig: &mut Rig, marker: &str) {
    let job = rig.shell("sleep $1 & sleep $1 & echo 1 >&3; wait", marker);
    rig.wait_ready(job);
    eventually("three processes run", || carriers(marker).len() == 3);
    rig.order(Order::Terminate(job));
    let exit = rig.wait_exit(job);
    assert_eq!((exit.signal, exit.signalled), (Some(15), 3));
}

fn changes_session_and_clears_its_environment(rig: &mut Rig, marker: &str) {
    // Detached twice: the middle process exits, so the last one is an orphan in another session.
    let script = "(env -i setsid sh -c 'trap \"\" TERM HUP; sleep $0 & sleep $0' $1 &) & \
                  wait; echo 1 >&3; sleep $1";
    let job = rig.shell(script, marker);
    rig.wait_ready(job);
    eventually("the process has detached itself", || carriers(marker).len() >= 5);
    let exit = terminate_and_kill(rig, job, marker);
    assert_eq!(exit.stopped, Stopped::Killed);
}

/// Either step may end a chain: SIGTERM succeeds if it reaches the only link before that forks. In
/// both cases no process may be left.
fn end_chain(rig: &Rig, job: JobId, marker: &str) {
    let exit = terminate_and_kill(rig, job, marker);
    assert!(matches!(exit.stopped, Stopped::Terminated | Stopped::Killed), "{:?}", exit.stopped);
}

const CHAIN: &str = "echo 1 >&3; sh -c \"$0\" \"$0\" \"$1\" & exit 0";
const CHAIN_OF_SESSIONS: &str = "echo 1 >&3; setsid sh -c \"$0\" \"$0\" \"$1\" & exit 0";

fn chain(rig: &mut Rig, script: &str, marker: &str) {
    let job = rig.run(&["sh", "-c", script, script, marker]);
    rig.wait_ready(job);
    end_chain(rig, job, marker);
}

fn forks_in_a_chain(rig: &mut Rig, marker: &str) {
    chain(rig, CHAIN, marker);
}

fn forks_in_a_chain_of_sessions(rig: &mut Rig, marker: &str) {
    chain(rig, CHAIN_OF_SESSIONS, marker);
}

fn forks_in_a_chain_at_full_speed(rig: &mut Rig, marker: &str) {
    let script = "use POSIX; open(P, '>&=3'); syswrite(P, \"1\\n\"); \
                  while (1) { exit 0 if fork; POSIX::setsid() }";
    if std::process::Command::new("perl").arg("-v").output().is_err() {
        eprintln!("SKIPPED: no perl here");
        return;
    }
    let job = rig.run(&["perl", "-e", script, marker]);
    rig.wait_ready(job);
    end_chain(rig, job, marker);
}

fn is_stopped(rig: &mut Rig, marker: &str) {
    let job = rig.shell("sleep $1 & kill -STOP $!; echo 1 >&3; kill -STOP $$; sleep $1", marker);
    rig.wait_ready(job);
    let is_stopped = |pid: i32| {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "))
    };
    eventually("both processes are stopped", || {
        let carriers = carriers(marker);
        carriers.len() == 2 && carriers.iter().all(|(pid, _)| is_stopped(*pid))
    });
    rig.order(Order::Terminate(job));
    let exit = rig.wait_exit(job);
    assert_eq!((exit.signal, exit.stopped), (Some(15), Stopped::Terminated));
}

fn holds_the_pipes_after_its_leader_exited(rig: &mut Rig, marker: &str) {
    let script = "setsid sh -c 'trap \"\" TERM; echo held; sleep $0' $1 & echo out; exit 3";
    let job = rig.shell(script, marker);
    assert_eq!(rig.report(), Report::Lingering { job });
    eventually("the child holds the pipes", || {
        carriers(marker).iter().any(|(_, a)| a.starts_with("sleep"))
    });
    let exit = terminate_and_kill(rig, job, marker);
    assert_eq!((exit.code, exit.signal), (Some(3), None));
    let mut lines: Vec<String> = exit.stdout.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["held", "out"]);
}

fn writes_without_end(rig: &mut Rig, marker: &str) {
    const GIB: u64 = 1 << 30;
    let mut launch = rig.command(&["sh", "-c", "head -c 1073741824 /dev/zero", "sh", marker]);
    launch.output = ceased::process::OutputOptions::kept(1024 * 1024);
    let job = rig.launch(launch);
    let exit = rig.wait_exit(job);
    let kept = exit.stdout.head().len() + exit.stdout.tail().len();
    assert_eq!((exit.code, kept), (Some(0), 1024 * 1024));
    assert_eq!(exit.stdout.cut(), GIB - kept as u64);
    // A second writer is stopped in the middle.
    let job = rig.run(&["sh", "-c", "echo 1 >&3; cat /dev/zero >&2", "sh", marker]);
    rig.wait_ready(job);
    let exit = terminate_and_kill(rig, job, marker);
    assert!(exit.stderr.head().len() + exit.stderr.tail().len() <= 64 * 1024);
}

fn closes_all_descriptors(rig: &mut Rig, marker: &str) {
    let job = rig.shell("echo 1 >&3; exec 0<&- 1>&- 2>&- 3>&-; exec sleep $1", marker);
    rig.wait_ready(job);
    eventually("it sleeps", || carriers(marker).iter().any(|(_, args)| args.starts_with("sleep")));
    rig.order(Order::Terminate(job));
    assert_eq!(rig.wait_exit(job).signal, Some(15));
}

fn has_two_hundred_children(rig: &mut Rig, marker: &str) {
    let script = "i=0; while [ $i -lt 200 ]; do sleep $1 & i=$((i+1)); done; echo 1 >&3; wait";
    let job = rig.shell(script, marker);
    rig.wait_ready(job);
    rig.order(Order::Terminate(job));
    let exit = rig.wait_exit(job);
    assert_eq!((exit.signal, exit.signalled), (Some(15), 201));
}

fn makes_zombies(rig: &mut Rig, marker: &str) {
    let script = "i=0; while [ $i -lt 20 ]; do sh -c 'exit 0' & i=$((i+1)); done; \
                  echo 1 >&3; exec sleep $1";
    let job = rig.shell(script, marker);
    rig.wait_ready(job);
    eventually("it sleeps", || carriers(marker).iter().any(|(_, args)| args.starts_with("sleep")));
    rig.order(Order::Terminate(job));
    let exit = rig.wait_exit(job);
    assert_eq!(exit.signal, Some(15));
}

fn lets_its_leader_exit_first(rig: &mut Rig, marker: &str) {
    let job = rig.shell("sleep $1 & sleep $1 & exit 0", marker);
    assert_eq!(rig.report(), Report::Lingering { job });
    eventually("two processes are left", || carriers(marker).len() == 2);
    rig.order(Order::Terminate(job));
    let exit = rig.wait_exit(job);
    assert_eq!((exit.code, exit.stopped), (Some(0), Stopped::Terminated));
    assert_eq!(exit.signalled, 2);
}

fn launches_like_npx(rig: &mut Rig, marker: &str) {
    // A launcher waits for a launcher that waits for the tool, and each dies of SIGTERM.
    let script =
        "sh -c 'sh -c \"trap : TERM; echo 1 >&3; while :; do sleep $0; done\" $0; :' $1; :";
    let job = rig.shell(script, marker);
    rig.wait_ready(job);
    let exit = terminate_and_kill(rig, job, marker);
    assert_eq!(exit.stopped, Stopped::Killed);
}

fn changes_its_name(rig: &mut Rig, marker: &str) {
    let script = "trap '' TERM; echo innocent > /proc/$$/comm; echo 1 >&3; sleep $1; sleep $1";
    let job = rig.shell(script, marker);
    rig.wait_ready(job);
    let exit = terminate_and_kill(rig, job, marker);
    assert_eq!(exit.signal, Some(9));
}
