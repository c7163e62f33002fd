//! Deaths of the daemon, a guard, the keeper and the supervisor.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use ceased::process::{Cgroup, Ending, Isolation, Order, Orphans, Report, Stopped};
use rustix::process::{Pid, Signal, kill_process};

use crate::process_kit::{
    Rig, TIME_LIMIT, Tier, assert_none_left, carriers, children, eventually, marker,
};
use crate::{alone, argument, rig, rig_with, run_alone};

/// A tool with a descendant in its own session that ignores SIGTERM and has an empty environment.
const STRAY: &str = "(env -i setsid sh -c 'trap \"\" TERM HUP; sleep $0' $1 &) & \
                     trap '' TERM; wait; echo 1 >&3; sleep $1; sleep $1";
/// Processes of the stray tool that carry the marker.
const STRAY_PROCESSES: usize = 4;

fn kill(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// Starts a daemon process that runs the stray tool; returns its control group.
fn daemon(tier: Tier, marker: &str) -> Option<(Child, Option<PathBuf>)> {
    daemon_runs(tier, marker, STRAY)
}

/// Starts a daemon process that runs a script with this marker.
pub(crate) fn daemon_runs(
    tier: Tier,
    marker: &str,
    script: &str,
) -> Option<(Child, Option<PathBuf>)> {
    let mut daemon =
        alone("guard_death::daemon_that_runs_until_killed", &format!("{tier:?} {marker} {script}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        if let Some((_, base)) = line.split_once("READY ") {
            return Some((daemon, (!base.is_empty()).then(|| base.into())));
        }
    }
    // This machine has no control groups.
    assert!(daemon.wait().unwrap().success());
    None
}

#[test]
#[ignore = "runs in a process of its own, and is killed there"]
fn daemon_that_runs_until_killed() {
    let Some(argument) = argument() else { return };
    let (tier, rest) = argument.split_once(' ').unwrap();
    let (marker, script) = rest.split_once(' ').unwrap();
    let tier = if tier == "Cgroup" { Tier::Cgroup } else { Tier::Guard };
    let Some(mut rig) = rig_with(tier, Orphans::Adopt) else { return };
    let job = rig.shell(script, marker);
    rig.wait_ready(job);
    let base = rig.base.clone().unwrap_or_default();
    println!("READY {}", base.display());
    std::io::stdout().flush().unwrap();
    let report = rig.reports.recv();
    panic!("the job ended by itself: {report:?}");
}

// STOP-01
fn daemon_is_killed(tier: Tier) {
    let marker = marker();
    let Some((mut daemon, base)) = daemon(tier, &marker) else { return };
    eventually("the tool has started", || carriers(&marker).len() == STRAY_PROCESSES);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    eventually("the tool is gone", || carriers(&marker).is_empty());
    if let Some(base) = base {
        eventually("the control groups are removed", || !base.exists());
    }
}

#[test]
fn killed_daemon_leaves_no_process_with_control_groups() {
    daemon_is_killed(Tier::Cgroup);
}

#[test]
fn killed_daemon_leaves_no_process_with_guards() {
    daemon_is_killed(Tier::Guard);
}

/// Guards of a job, or the keeper, among the children of this process.
pub(crate) fn guards(label: &str) -> Vec<i32> {
    let mine = children();
    let named = carriers("ceased-guard").into_iter();
    let is_called = |pid: i32, args: &str| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        args.trim_end().ends_with(label) || name.trim_end() == label
    };
    named
        .filter(|(pid, args)| mine.contains(pid) && is_called(*pid, args))
        .map(|(pid, _)| pid)
        .collect()
}

#[test]
fn guard_ignores_signals() {
    run_alone("guard_death::guard_under_signals", "1");
}

/// Signals to a guard, by mistake or by a kill of every process of its name, have no effect.
#[test]
#[ignore = "runs in a process of its own"]
fn guard_under_signals() {
    if argument().is_none() {
        return;
    }
    let mut rig = rig(Tier::Guard).unwrap();
    let marker = marker();
    let job = rig.shell(STRAY, &marker);
    rig.wait_ready(job);
    let [guard] = guards(&job.to_string()).try_into().unwrap();
    let all = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::PIPE, Signal::USR1];
    for signal in all {
        kill(guard, signal);
    }
    kill(guard, Signal::STOP);
    eventually("the tool has started", || carriers(&marker).len() == STRAY_PROCESSES);
    rig.order(Order::Terminate(job));
    rig.order(Order::Kill(job));
    let exit = rig.wait_exit(job);
    assert_eq!((exit.signal, exit.stopped), (Some(9), Stopped::Killed));
    assert_none_left(&marker);
}

#[test]
fn killed_guard_leaves_no_process() {
    run_alone("guard_death::guard_killed_with_adoption", "1");
}

/// STOP-01: the guard is killed while orphans go to the daemon.
#[test]
#[ignore = "runs in a process of its own"]
fn guard_killed_with_adoption() {
    if argument().is_none() {
        return;
    }
    let mut rig = rig_with(Tier::Guard, Orphans::Adopt).unwrap();
    let marker = marker();
    let job = rig.shell(STRAY, &marker);
    rig.wait_ready(job);
    eventually("the tool has started", || carriers(&marker).len() == STRAY_PROCESSES);
    let other = rig.run(&["sleep", "1000"]);
    eventually("the other job is guarded", || guards(&other.to_string()).len() == 1);
    let [guard] = guards(&job.to_string()).try_into().unwrap();
    kill(guard, Signal::KILL);
    let exit = rig.wait_exit(job);
    assert_eq!((exit.code, exit.signal, exit.stopped), (None, None, Stopped::Killed));
    assert_none_left(&marker);
    // The other job is unaffected.
    rig.order(Order::Terminate(other));
    assert_eq!(rig.wait_exit(other).signal, Some(15));
    let (mut left, mut spare) = (children(), guards("spare"));
    left.sort_unstable();
    spare.sort_unstable();
    assert_eq!(left, spare, "only the spare guard and its original are left");
    assert_eq!(spare.len(), 2);
}

/// All guards but the first are copies of one process, because starting a guard takes longer than
/// most commands. A copy has the memory layout of its original; a new program gets a random one.
#[test]
#[ignore = "runs in a process of its own"]
fn copies() {
    if argument().is_none() {
        return;
    }
    let mut rig = rig(Tier::Guard).unwrap();
    let jobs = [(); 3].map(|()| rig.run(&["sleep", "1000"]));
    let mut places = std::collections::BTreeSet::new();
    for job in jobs {
        eventually("the job is guarded", || guards(&job.to_string()).len() == 1);
        let [guard] = guards(&job.to_string()).try_into().unwrap();
        let maps = fs::read_to_string(format!("/proc/{guard}/maps")).unwrap();
        places.insert(maps.split('-').next().unwrap().to_owned());
    }
    assert_eq!(places.len(), 1, "{places:?}");
    for job in jobs {
        rig.order(Order::Kill(job));
        rig.wait_exit(job);
    }
}

#[test]
fn guards_are_copies_of_one_process() {
    run_alone("guard_death::copies", "1");
}

#[test]
fn commands_run_on_when_the_original_of_guards_dies() {
    run_alone("guard_death::no_original", "1");
}

/// Whether a process sleeps, as a completely started guard does.
fn sleeps(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" S"))
}

/// The original of the guards is killed or stopped: running commands continue and stay guarded, and
/// so do later ones.
#[test]
#[ignore = "runs in a process of its own"]
fn no_original() {
    if argument().is_none() {
        return;
    }
    let mut rig = rig(Tier::Guard).unwrap();
    for signal in [Signal::KILL, Signal::STOP, Signal::KILL] {
        let before = rig.run(&["sleep", "1000"]);
        eventually("the job is guarded", || guards(&before.to_string()).len() == 1);
        eventually("the next guard has started", || guards("spare").len() == 3);
        let busy = guards(&before.to_string());
        // An original that dies while it is copied is replaced at once.
        eventually("no copy is in progress", || guards("spare").into_iter().all(sleeps));
        for pid in guards("spare").into_iter().filter(|pid| !busy.contains(pid)) {
            kill(pid, signal);
        }
        if signal == Signal::KILL {
            eventually("the spare guards are dead", || guards("spare") == busy);
        }
        for _ in 0..3 {
            let marker = marker();
            let job = rig.shell(STRAY, &marker);
            rig.wait_ready(job);
            eventually("the job is guarded", || guards(&job.to_string()).len() == 1);
            rig.order(Order::Kill(job));
            assert_eq!(rig.wait_exit(job).stopped, Stopped::Killed);
            assert_none_left(&marker);
        }
        rig.order(Order::Terminate(before));
        assert_eq!(rig.wait_exit(before).signal, Some(15));
    }
    assert!(rig.supervisor.shutdown(TIME_LIMIT));
    assert_eq!(children(), [] as [i32; 0]);
}

/// Copies are killed as soon as they exist, some before they report their start: every copy is
/// reaped.
#[test]
#[ignore = "runs in a process of its own"]
fn short_lived_copies() {
    if argument().is_none() {
        return;
    }
    let mut rig = rig(Tier::Guard).unwrap();
    // The killed process may be the guard of a command, which then does not start.
    let ended = |rig: &mut Rig| assert!(matches!(rig.report(), Report::Ended { .. }));
    for _ in 0..100 {
        // Two successful copies in between, because many failures in a row end copying.
        for _ in 0..2 {
            rig.run(&["true"]);
            ended(&mut rig);
        }
        eventually("no copy is in progress", || {
            let spare = guards("spare");
            spare.len() == 2 && spare.into_iter().all(sleeps)
        });
        let before = children();
        rig.run(&["true"]);
        // Polls without a pause to catch the copy early.
        let until = Instant::now() + TIME_LIMIT;
        let new = loop {
            match children().into_iter().find(|pid| !before.contains(pid)) {
                Some(new) => break new,
                None => assert!(Instant::now() < until, "no new child appeared"),
            }
        };
        kill(new, Signal::KILL);
        ended(&mut rig);
    }
    assert!(rig.supervisor.shutdown(TIME_LIMIT));
    assert_eq!(children(), [] as [i32; 0]);
}

#[test]
fn copies_that_die_at_once_are_reaped() {
    run_alone("guard_death::short_lived_copies", "1");
}

/// Without adoption of orphans, the command's session is ended at least.
#[test]
fn killed_guard_without_adoption_ends_the_session() {
    let mut rig = rig(Tier::Guard).unwrap();
    let marker = marker();
    let job = rig.shell("trap '' TERM HUP; sleep $1 & echo 1 >&3; sleep $1; sleep $1", &marker);
    rig.wait_ready(job);
    let guard = carriers(&marker).iter().find_map(|(pid, _)| guard_of(*pid)).unwrap();
    kill(guard, Signal::KILL);
    assert_eq!(rig.wait_exit(job).stopped, Stopped::Killed);
    assert_none_left(&marker);
}

/// The guard among the ancestors of a tool's process.
pub(crate) fn guard_of(mut pid: i32) -> Option<i32> {
    loop {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let after_name = stat.rsplit_once(')')?.1;
        pid = after_name.split_whitespace().nth(1)?.parse().ok()?;
        let args = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        if args.starts_with("ceased-guard") {
            return Some(pid);
        }
    }
}

#[test]
fn killed_keeper_is_replaced() {
    run_alone("guard_death::keeper_killed", "1");
}

#[test]
#[ignore = "runs in a process of its own"]
fn keeper_killed() {
    if argument().is_none() {
        return;
    }
    let Some(rig) = rig(Tier::Cgroup) else { return };
    eventually("it runs", || !guards("keeper").is_empty());
    let [first] = guards("keeper").try_into().unwrap();
    let started = Instant::now();
    eventually("the keeper is old enough", || started.elapsed().as_millis() > 1100);
    kill(first, Signal::KILL);
    eventually("a new keeper has started", || guards("keeper").iter().any(|pid| *pid != first));
    let base = rig.base.clone().unwrap();
    assert!(rig.supervisor.shutdown(TIME_LIMIT));
    assert!(!base.exists());
    assert_eq!(children(), [] as [i32; 0]);
}

/// Dropping a supervisor kills its jobs (STOP-01).
#[test]
fn dropping_the_supervisor_kills_its_jobs() {
    for tier in [Tier::Cgroup, Tier::Guard] {
        let Some(mut rig) = rig(tier) else { continue };
        let marker = marker();
        let job = rig.shell(STRAY, &marker);
        rig.wait_ready(job);
        let base = rig.base.clone();
        drop(rig.supervisor);
        assert_none_left(&marker);
        assert!(base.is_none_or(|base| !base.exists()));
        match rig.reports.recv_timeout(TIME_LIMIT).unwrap() {
            Report::Ended { job: ended, ending: Ending::Exited(exit) } => {
                assert_eq!((ended, exit.stopped), (job, Stopped::Killed));
            }
            other @ (Report::Ended { .. }
            | Report::Outlasting { .. }
            | Report::Progress { .. }
            | Report::Line { .. }
            | Report::Surveyed { .. }
            | Report::Examined { .. }
            | Report::BornEnded { .. }
            | Report::Located { .. }
            | Report::Lingering { .. }) => {
                panic!("{other:?}")
            }
        }
    }
}

/// A panic in the report callback ends the supervisor and its jobs.
#[test]
fn panic_of_the_supervisor_ends_its_jobs() {
    for tier in [Tier::Cgroup, Tier::Guard, Tier::Groups] {
        let program =
            ceased::process::guard::Program::named(ceased_tests::binary::ceased()).unwrap();
        let Some(containment) = tier.containment(program) else { continue };
        let report = Box::new(|report| panic!("on purpose: {report:?}"));
        let supervisor =
            ceased::process::Supervisor::start(containment, Orphans::Leave, report).unwrap();
        let marker = marker();
        let launch = ceased::process::Launch {
            job: ceased::process::JobId::new(1),
            argv: ["sh", "-c", "trap '' TERM; echo 1 >&3; sleep $1; sleep $1", "sh", &marker]
                .iter()
                .map(Into::into)
                .collect(),
            cwd: None,
            env: Vec::new(),
            inherit: ceased::process::Inherit::default(),
            stdin: None,
            pipes: None,
            user: None,
            isolation: Isolation::None,
            bounds: ceased::process::Bounds::default(),
            output: ceased::process::OutputOptions::default(),
        };
        supervisor.order(Order::Launch(Box::new(launch))).unwrap();
        eventually("it notices", || {
            supervisor.order(Order::Kill(ceased::process::JobId::new(9))).is_err()
        });
        eventually("the tool is gone", || carriers(&marker).is_empty());
        assert!(!supervisor.shutdown(TIME_LIMIT));
    }
}

/// After the daemon and its keeper were killed, the next daemon ends their leftovers.
#[test]
fn next_daemon_ends_leftovers() {
    let Some(rig) = rig(Tier::Cgroup) else { return };
    let parent = rig.base.as_deref().and_then(Path::parent).unwrap().to_owned();
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let left = parent.join(format!("ceased-{}-0123456789ab", dead.id()));
    fs::create_dir_all(left.join("j1/deeper")).unwrap();
    let marker = marker();
    let mut stray = Command::new("sleep").arg(&marker).spawn().unwrap();
    fs::write(left.join("j1/deeper/cgroup.procs"), stray.id().to_string()).unwrap();
    let next = Cgroup::create().unwrap();
    stray.wait().unwrap();
    assert_none_left(&marker);
    eventually("the control groups are removed", || !left.exists());
    assert!(rig.base.as_ref().unwrap().exists(), "the control group of a live daemon stays");
    fs::remove_dir(next.path()).unwrap();
}
