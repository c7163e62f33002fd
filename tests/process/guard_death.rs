//! Deaths of those who watch: the daemon, a guard, the keeper, the supervisor itself.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use ceased::process::{Cgroup, Ending, Isolation, Order, Orphans, Report, Stopped};
use rustix::process::{Pid, Signal, kill_process};

use crate::process_kit::{
    PATIENCE, Rig, Tier, assert_none_left, carriers, children, eventually, marker,
};
use crate::{alone, argument, rig, rig_with, run_alone};

/// A tool with a descendant in its own session that ignores SIGTERM and knows nothing of us.
const STRAY: &str = "(env -i setsid sh -c 'trap \"\" TERM HUP; sleep $0' $1 &) & \
                     trap '' TERM; wait; echo 1 >&3; sleep $1; sleep $1";
/// How many processes of the stray tool carry the marker.
const STRAY_PROCESSES: usize = 4;

fn kill(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// Starts a daemon in a process of its own that runs the stray tool; returns its control group.
fn daemon(tier: Tier, marker: &str) -> Option<(Child, Option<PathBuf>)> {
    daemon_runs(tier, marker, STRAY)
}

/// Starts a daemon in a process of its own that runs a script with this marker.
pub(crate) fn daemon_runs(
    tier: Tier,
    marker: &str,
    script: &str,
) -> Option<(Child, Option<PathBuf>)> {
    let mut daemon = alone(
        "guard_death::daemon_that_waits_for_its_death",
        &format!("{tier:?} {marker} {script}"),
    )
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
    // No control groups on this machine.
    assert!(daemon.wait().unwrap().success());
    None
}

#[test]
#[ignore = "runs in a process of its own, and is killed there"]
fn daemon_that_waits_for_its_death() {
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
    eventually("the tool is at large", || carriers(&marker).len() == STRAY_PROCESSES);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    eventually("the tool is gone", || carriers(&marker).is_empty());
    if let Some(base) = base {
        eventually("its groups are gone", || !base.exists());
    }
}

#[test]
fn the_daemon_is_killed_with_control_groups() {
    daemon_is_killed(Tier::Cgroup);
}

#[test]
fn the_daemon_is_killed_with_guards() {
    daemon_is_killed(Tier::Guard);
}

/// The guards of a job among our children, or the keeper.
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
fn a_guard_heeds_nobody_else() {
    run_alone("guard_death::guard_under_signals", "1");
}

/// Signals to a guard, by accident or by a kill of everything with its name, change nothing.
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
    eventually("the tool is at large", || carriers(&marker).len() == STRAY_PROCESSES);
    rig.order(Order::Terminate(job));
    rig.order(Order::Kill(job));
    let exit = rig.wait_exit(job);
    assert_eq!((exit.signal, exit.stopped), (Some(9), Stopped::Killed));
    assert_none_left(&marker);
}

#[test]
fn a_guard_is_killed() {
    run_alone("guard_death::guard_killed_with_adoption", "1");
}

/// STOP-01, when somebody kills the guard and orphans come to the daemon.
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
    eventually("the tool is at large", || carriers(&marker).len() == STRAY_PROCESSES);
    let other = rig.run(&["sleep", "1000"]);
    eventually("the other is guarded", || guards(&other.to_string()).len() == 1);
    let [guard] = guards(&job.to_string()).try_into().unwrap();
    kill(guard, Signal::KILL);
    let exit = rig.wait_exit(job);
    assert_eq!((exit.code, exit.signal, exit.stopped), (None, None, Stopped::Killed));
    assert_none_left(&marker);
    // The other job did not notice.
    rig.order(Order::Terminate(other));
    assert_eq!(rig.wait_exit(other).signal, Some(15));
    let (mut left, mut spare) = (children(), guards("spare"));
    left.sort_unstable();
    spare.sort_unstable();
    assert_eq!(left, spare, "nobody but the guard of the next command, and what it is a copy of");
    assert_eq!(spare.len(), 2);
}

/// To start a guard takes longer than most commands take: all but the first are copies of one. They
/// are where that was put in memory, which the system chooses anew for each program it starts.
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
        eventually("it is guarded", || guards(&job.to_string()).len() == 1);
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
fn guards_are_copies() {
    run_alone("guard_death::copies", "1");
}

#[test]
fn what_guards_are_copies_of_dies() {
    run_alone("guard_death::no_original", "1");
}

/// Whether a process waits for somebody, as a guard does that is wholly there.
fn sleeps(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" S"))
}

/// What guards are copies of is killed, or stopped: commands run on and are guarded, and the next
/// ones are, too.
#[test]
#[ignore = "runs in a process of its own"]
fn no_original() {
    if argument().is_none() {
        return;
    }
    let mut rig = rig(Tier::Guard).unwrap();
    for signal in [Signal::KILL, Signal::STOP, Signal::KILL] {
        let before = rig.run(&["sleep", "1000"]);
        eventually("it is guarded", || guards(&before.to_string()).len() == 1);
        eventually("the next guard is there", || guards("spare").len() == 3);
        let busy = guards(&before.to_string());
        // One that dies while it is copied would be replaced at once.
        eventually("nobody is copied", || guards("spare").into_iter().all(sleeps));
        for pid in guards("spare").into_iter().filter(|pid| !busy.contains(pid)) {
            kill(pid, signal);
        }
        if signal == Signal::KILL {
            eventually("they are dead", || guards("spare") == busy);
        }
        for _ in 0..3 {
            let marker = marker();
            let job = rig.shell(STRAY, &marker);
            rig.wait_ready(job);
            eventually("it is guarded", || guards(&job.to_string()).len() == 1);
            rig.order(Order::Kill(job));
            assert_eq!(rig.wait_exit(job).stopped, Stopped::Killed);
            assert_none_left(&marker);
        }
        rig.order(Order::Terminate(before));
        assert_eq!(rig.wait_exit(before).signal, Some(15));
    }
    assert!(rig.supervisor.shutdown(PATIENCE));
    assert_eq!(children(), [] as [i32; 0]);
}

/// Copies are killed the moment there are any, some before they have said that they are there:
/// none of them is left unburied.
#[test]
#[ignore = "runs in a process of its own"]
fn short_lived_copies() {
    if argument().is_none() {
        return;
    }
    let mut rig = rig(Tier::Guard).unwrap();
    // The killed process may be the guard of a command, which then is not started.
    let ended = |rig: &mut Rig| assert!(matches!(rig.report(), Report::Ended { .. }));
    for _ in 0..100 {
        // Two in a row that are copied: many failures in a row would be the end of copying.
        for _ in 0..2 {
            rig.run(&["true"]);
            ended(&mut rig);
        }
        eventually("nobody is copied", || {
            let spare = guards("spare");
            spare.len() == 2 && spare.into_iter().all(sleeps)
        });
        let before = children();
        rig.run(&["true"]);
        // At once, and not when a poll comes by.
        let until = Instant::now() + PATIENCE;
        let new = loop {
            match children().into_iter().find(|pid| !before.contains(pid)) {
                Some(new) => break new,
                None => assert!(Instant::now() < until, "in vain: one is there that was not"),
            }
        };
        kill(new, Signal::KILL);
        ended(&mut rig);
    }
    assert!(rig.supervisor.shutdown(PATIENCE));
    assert_eq!(children(), [] as [i32; 0]);
}

#[test]
fn copies_that_die_at_once() {
    run_alone("guard_death::short_lived_copies", "1");
}

/// Without adoption, at least the command's session is ended.
#[test]
fn a_guard_is_killed_in_an_embedding_program() {
    let mut rig = rig(Tier::Guard).unwrap();
    let marker = marker();
    let job = rig.shell("trap '' TERM HUP; sleep $1 & echo 1 >&3; sleep $1; sleep $1", &marker);
    rig.wait_ready(job);
    let guard = carriers(&marker).iter().find_map(|(pid, _)| guard_of(*pid)).unwrap();
    kill(guard, Signal::KILL);
    assert_eq!(rig.wait_exit(job).stopped, Stopped::Killed);
    assert_none_left(&marker);
}

/// The guard that a process of a tool descends from.
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
fn the_keeper_is_replaced() {
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
    eventually("it lived long enough", || started.elapsed().as_millis() > 1100);
    kill(first, Signal::KILL);
    eventually("there is another", || guards("keeper").iter().any(|pid| *pid != first));
    let base = rig.base.clone().unwrap();
    assert!(rig.supervisor.shutdown(PATIENCE));
    assert!(!base.exists());
    assert_eq!(children(), [] as [i32; 0]);
}

/// Dropping a supervisor kills what it runs (STOP-01).
#[test]
fn the_supervisor_is_dropped() {
    for tier in [Tier::Cgroup, Tier::Guard] {
        let Some(mut rig) = rig(tier) else { continue };
        let marker = marker();
        let job = rig.shell(STRAY, &marker);
        rig.wait_ready(job);
        let base = rig.base.clone();
        drop(rig.supervisor);
        assert_none_left(&marker);
        assert!(base.is_none_or(|base| !base.exists()));
        match rig.reports.recv_timeout(PATIENCE).unwrap() {
            Report::Ended { job: ended, ending: Ending::Exited(exit) } => {
                assert_eq!((ended, exit.stopped), (job, Stopped::Killed));
            }
            other @ (Report::Ended { .. }
            | Report::Outlasting { .. }
            | Report::Progress { .. }
            | Report::Line { .. }
            | Report::Surveyed { .. }
            | Report::Located { .. }
            | Report::Lingering { .. }) => {
                panic!("{other:?}")
            }
        }
    }
}

/// A report that panics ends the supervisor, and what it runs with it.
#[test]
fn the_supervisor_panics() {
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
            user: None,
            isolation: Isolation::None,
            output: ceased::process::OutputOptions::default(),
        };
        supervisor.order(Order::Launch(Box::new(launch))).unwrap();
        eventually("it notices", || {
            supervisor.order(Order::Kill(ceased::process::JobId::new(9))).is_err()
        });
        eventually("the tool is gone", || carriers(&marker).is_empty());
        assert!(!supervisor.shutdown(PATIENCE));
    }
}

/// What a daemon and its keeper left behind when both were killed is ended by the next daemon.
#[test]
fn leftovers_are_ended() {
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
    eventually("its groups are gone", || !left.exists());
    assert!(rig.base.as_ref().unwrap().exists(), "that of a live daemon stays");
    fs::remove_dir(next.path()).unwrap();
}
