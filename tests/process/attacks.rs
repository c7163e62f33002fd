//! Jobs that attack their guard or the keeper, and jobs in a pid namespace.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ceased::process::JobId;
use ceased::process::guard::Program;
use ceased::process::{Containment, Isolation, Launch, Order, Orphans, Report, Stopped};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::guard_death::daemon_runs;
use crate::guard_death::guard_of;
use crate::process_kit::{Rig, TIME_LIMIT, Tier, assert_none_left, carriers, eventually, marker};
use crate::{argument, rig, rig_with, run_alone, run_as_test};

/// A user without an account and without other processes.
const UNUSED_UID: u32 = 231_847;

/// Runs a test of this binary twice in processes of their own: as root, and as an ordinary user.
fn run_as_both(test: &str, argument: &str) {
    run_alone(test, argument);
    if !geteuid().is_root() {
        eprintln!("SKIPPED as another user: cannot become one");
        return;
    }
    // The ordinary user could not build the binary.
    let _ = ceased_tests::binary::ceased();
    let mut command = Command::new(env::current_exe().unwrap());
    command.uid(UNUSED_UID).gid(UNUSED_UID).current_dir("/").env_remove("CARGO");
    run_as_test(command, test, argument);
}

/// A job that runs this perl program with its marker as first argument. `None` with a printed line
/// if there is no perl.
fn perl(rig: &mut Rig, script: &str, marker: &str) -> Option<JobId> {
    if !Path::new("/usr/bin/perl").exists() {
        eprintln!("SKIPPED: no perl here");
        return None;
    }
    Some(rig.run(&["perl", "-e", script, marker]))
}

fn orphans(argument: &str) -> Orphans {
    if argument == "Adopt" { Orphans::Adopt } else { Orphans::Leave }
}

/// Ends a job that attacks its guard: the report comes in time, and only when every process is
/// gone.
fn end(rig: &Rig, job: JobId, marker: &str) -> Stopped {
    rig.order(Order::Terminate(job));
    rig.order(Order::Kill(job));
    let exit = rig.wait_exit(job);
    assert_none_left(marker);
    exit.stopped
}

fn assert_works(rig: &mut Rig) {
    let next = rig.run(&["echo", "well"]);
    assert_eq!(rig.wait_exit(next).stdout.head(), b"well\n");
}

// STOP-01
#[test]
fn guard_that_is_stopped_in_a_loop_is_replaced() {
    for orphans in ["Adopt", "Leave"] {
        run_as_both("attacks::stopped_in_a_loop", orphans);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn stopped_in_a_loop() {
    let Some(orphans) = argument().as_deref().map(orphans) else { return };
    let mut rig = rig_with(Tier::Guard, orphans).unwrap();
    let marker = marker();
    let script = "my $guard = getppid(); $SIG{TERM} = 'IGNORE'; \
                  for (1..4) { next if fork; setpgrp(0, 0); while (1) { kill 'STOP', $guard } } \
                  open(P, '>&=3'); syswrite(P, \"1\\n\"); \
                  while (1) { kill 'STOP', $guard }";
    let Some(job) = perl(&mut rig, script, &marker) else { return };
    rig.wait_ready(job);
    eventually("all processes run", || carriers(&marker).len() == 5);
    assert_eq!(end(&rig, job, &marker), Stopped::Killed);
    assert_works(&mut rig);
}

// STOP-01
#[test]
fn guard_that_is_traced_is_replaced() {
    run_as_both("attacks::traced", "Adopt");
    run_as_both("attacks::traced", "Leave");
}

/// The tool reports whether the trace succeeded: the kernel denies it to an ordinary user.
#[test]
#[ignore = "runs in a process of its own"]
fn traced() {
    let Some(orphans) = argument().as_deref().map(orphans) else { return };
    let number = match env::consts::ARCH {
        "x86_64" => "101",
        "aarch64" => "117",
        other => return eprintln!("SKIPPED: system call number of ptrace is unknown: {other}"),
    };
    let mut rig = rig_with(Tier::Guard, orphans).unwrap();
    let marker = marker();
    let script = "my $guard = getppid(); $SIG{TERM} = 'IGNORE'; \
                  my $seized = syscall(NUMBER, 0x4206, $guard, 0, 0) == 0; \
                  syscall(NUMBER, 0x4207, $guard, 0, 0) if $seized; \
                  open(P, '>&=3'); syswrite(P, $seized ? \"1\\n\" : \"2\\n\"); sleep 1000 while 1";
    let Some(job) = perl(&mut rig, &script.replace("NUMBER", number), &marker) else { return };
    let Report::Progress { progress, .. } = rig.report() else { panic!("no progress report") };
    let is_traced = (progress - 1.0).abs() < 0.5;
    assert_eq!(is_traced, geteuid().is_root(), "only root may trace a guard");
    end(&rig, job, &marker);
    assert_works(&mut rig);
}

/// Takes the right to descriptors from the guard by `prlimit`, and leaves orphans in sessions of their
/// own that ignore SIGTERM.
const BLINDS: &str = "use POSIX; my $guard = getppid(); $SIG{TERM} = $SIG{HUP} = 'IGNORE'; \
                      for (1..3) { next if fork; setsid(); exit if fork; sleep 1000 while 1 } \
                      my $limit = pack('QQ', LEFT, LEFT); \
                      my $set = syscall(NUMBER, $guard, 7, $limit, 0) == 0; \
                      open(P, '>&=3'); syswrite(P, $set ? \"1\\n\" : \"2\\n\"); sleep 1000 while 1";

/// The attack with this number of descriptors that are left, for this architecture.
fn blinds(left: &str) -> Option<String> {
    let number = match env::consts::ARCH {
        "x86_64" => "302",
        "aarch64" => "261",
        _ => return None,
    };
    Some(BLINDS.replace("NUMBER", number).replace("LEFT", left))
}

// STOP-01
#[test]
fn guard_without_descriptors_ends_its_job() {
    for left in ["0", "1", "5"] {
        run_as_both("attacks::without_descriptors", left);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn without_descriptors() {
    let Some(left) = argument() else { return };
    let Some(script) = blinds(&left) else { return eprintln!("SKIPPED on this architecture") };
    for orphans in [Orphans::Adopt, Orphans::Leave] {
        let mut rig = rig_with(Tier::Guard, orphans).unwrap();
        let marker = marker();
        let Some(job) = perl(&mut rig, &script, &marker) else { return };
        let Report::Progress { progress, .. } = rig.report() else { panic!("no progress report") };
        assert!((progress - 1.0).abs() < 0.5, "the limits of the guard were lowered");
        eventually("the orphans run", || carriers(&marker).len() == 4);
        assert_eq!(end(&rig, job, &marker), Stopped::Killed);
        assert_works(&mut rig);
    }
}

/// The guard ends its job as well when its daemon is dead.
#[test]
fn guard_without_descriptors_ends_its_job_after_the_daemon() {
    let Some(script) = blinds("0") else { return eprintln!("SKIPPED on this architecture") };
    if !Path::new("/usr/bin/perl").exists() {
        return eprintln!("SKIPPED: no perl here");
    }
    let marker = marker();
    let script = format!("exec perl -e '{}' $1", script.replace('\'', "'\\''"));
    let Some((mut daemon, _)) = daemon_runs(Tier::Guard, &marker, &script) else { return };
    eventually("the orphans run", || carriers(&marker).len() >= 4);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    eventually("the job is gone", || carriers(&marker).is_empty());
}

// STOP-01
#[test]
fn fork_chains_are_ended_when_their_guard_is_killed() {
    run_as_both("attacks::chains_without_guard", "1");
}

/// Two chains of forks kill their guard; one of them changes its session at every step.
#[test]
#[ignore = "runs in a process of its own"]
fn chains_without_guard() {
    if argument().is_none() {
        return;
    }
    for _ in 0..5 {
        let mut rig = rig_with(Tier::Guard, Orphans::Adopt).unwrap();
        let marker = marker();
        // The command dies with its guard, so a child has to kill the guard.
        let script = "use POSIX; my $guard = getppid(); $SIG{TERM} = 'IGNORE'; \
                      if (fork == 0) { while (1) { exit if fork } } \
                      if (fork == 0) { while (1) { exit if fork; setsid() } } \
                      for (1..5) { next if fork; setsid(); sleep 1000 while 1 } \
                      open(P, '>&=3'); syswrite(P, \"1\\n\"); \
                      if (fork == 0) { select(undef, undef, undef, 0.05); kill 'KILL', $guard } \
                      sleep 1000 while 1";
        let Some(job) = perl(&mut rig, script, &marker) else { return };
        let exit = rig.wait_exit(job);
        assert_none_left(&marker);
        assert_eq!((exit.code, exit.stopped), (None, Stopped::Killed));
        assert_works(&mut rig);
        assert!(rig.supervisor.shutdown(TIME_LIMIT));
    }
}

/// A job in its own pid namespace; `None` with a printed line if the machine allows none.
fn isolated(rig: &mut Rig, argv: &[&str]) -> Option<JobId> {
    let program = Program::named(ceased_tests::binary::ceased()).unwrap();
    if let Err(error) = program.check_isolation() {
        eprintln!("SKIPPED: no pid namespaces here: {error}");
        return None;
    }
    let launch = rig.command(argv);
    Some(rig.launch(Launch { isolation: Isolation::Pid, ..launch }))
}

// STOP-01
#[test]
fn isolated_job_sees_and_reaches_only_its_own_processes() {
    for tier in [Tier::Cgroup, Tier::Guard] {
        run_as_both("attacks::in_a_namespace", &format!("{tier:?}"));
    }
}

fn tier(name: &str) -> Tier {
    if name == "Cgroup" { Tier::Cgroup } else { Tier::Guard }
}

#[test]
#[ignore = "runs in a process of its own"]
fn in_a_namespace() {
    let Some(tier) = argument().as_deref().map(tier) else { return };
    let Some(mut rig) = rig_with(tier, Orphans::Adopt) else { return };
    let script = "echo $$; cat /proc/self/stat | cut -d' ' -f4; echo /proc/[0-9]*; \
                  kill -STOP 1; kill -KILL 1; kill -KILL $1 2>/dev/null || echo unreached; \
                  cat /proc/1/comm; id -u; exit 7";
    let me = std::process::id().to_string();
    let Some(job) = isolated(&mut rig, &["sh", "-c", script, "sh", &me]) else { return };
    let exit = rig.wait_exit(job);
    let text = exit.stdout.text();
    let lines: Vec<&str> = text.lines().collect();
    let [own, parent, all, unreached, guard, uid] = lines.as_slice() else { panic!("{exit:?}") };
    assert_eq!((exit.code, exit.survivors), (Some(7), Some(0)), "{text}");
    assert_eq!((*own, *parent, *unreached), ("2", "2", "unreached"), "{text}");
    assert!(all.split(' ').count() < 5, "foreign processes are visible: {all}");
    assert_eq!((*guard, *uid), (job.to_string().as_str(), geteuid().as_raw().to_string().as_str()));
    // Each step ends the job and all its processes.
    for order in [Order::Terminate, Order::Kill] {
        let marker = marker();
        let script = "(setsid sleep $1 & setsid sleep $1 &) & echo 1 >&3; sleep $1";
        let job = isolated(&mut rig, &["sh", "-c", script, "sh", &marker]).unwrap();
        rig.wait_ready(job);
        eventually("all processes run", || carriers(&marker).len() == 4);
        rig.order(order(job));
        let exit = rig.wait_exit(job);
        let by = if exit.stopped == Stopped::Killed { 9 } else { 15 };
        assert_eq!(exit.signal, Some(by), "{exit:?}");
        assert_none_left(&marker);
    }
    assert_works(&mut rig);
    assert!(rig.supervisor.shutdown(TIME_LIMIT));
}

// STOP-01
#[test]
fn isolated_job_ends_with_its_guard() {
    for orphans in ["Adopt", "Leave"] {
        run_as_both("attacks::guard_of_a_namespace_killed", orphans);
    }
}

/// A guard can be killed or stopped from outside; the kernel then ends the namespace.
#[test]
#[ignore = "runs in a process of its own"]
fn guard_of_a_namespace_killed() {
    let Some(orphans) = argument().as_deref().map(orphans) else { return };
    let mut rig = rig_with(Tier::Guard, orphans).unwrap();
    for signal in [Signal::KILL, Signal::STOP] {
        let marker = marker();
        let script = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep $0' $1 &) & \
                      echo 1 >&3; sleep $1; sleep $1";
        let Some(job) = isolated(&mut rig, &["sh", "-c", script, "sh", &marker]) else { return };
        rig.wait_ready(job);
        eventually("all processes run", || carriers(&marker).len() >= 4);
        let guard = carriers(&marker).iter().find_map(|(pid, _)| guard_of(*pid)).unwrap();
        kill_process(Pid::from_raw(guard).unwrap(), signal).unwrap();
        if signal == Signal::STOP {
            rig.order(Order::Kill(job));
        }
        assert_eq!(rig.wait_exit(job).stopped, Stopped::Killed);
        assert_none_left(&marker);
    }
    assert_works(&mut rig);
}

/// Without namespaces the command does not run, and the report gives the reason.
#[test]
fn unavailable_isolation_is_reported() {
    let mut rig = Rig::new(Containment::Groups, Orphans::Leave);
    let launch = rig.command(&["true"]);
    let job = rig.launch(Launch { isolation: Isolation::Pid, ..launch });
    let ceased::process::Ending::NotStarted(reason) = rig.wait_ending(job) else {
        panic!("it ran")
    };
    assert!(reason.contains("isolation = \"pid\" needs a guard program"), "{reason}");
}

#[test]
fn keeper_that_dies_early_is_replaced() {
    run_alone("attacks::keepers_killed", "1");
}

/// Each keeper is killed as soon as it has started, and a new one always follows.
#[test]
#[ignore = "runs in a process of its own"]
fn keepers_killed() {
    if argument().is_none() {
        return;
    }
    let Some(mut rig) = rig(Tier::Cgroup) else { return };
    let mut last = 0;
    let begun = Instant::now();
    for _ in 0..4 {
        let mut keeper = None;
        eventually("a new keeper has started", || {
            keeper = crate::guard_death::guards("keeper").into_iter().find(|pid| *pid != last);
            keeper.is_some()
        });
        last = keeper.unwrap();
        kill_process(Pid::from_raw(last).unwrap(), Signal::KILL).unwrap();
    }
    assert!(begun.elapsed() < TIME_LIMIT);
    eventually("and another", || {
        crate::guard_death::guards("keeper").iter().any(|pid| *pid != last)
    });
    assert_works(&mut rig);
    let base = rig.base.clone().unwrap();
    assert!(rig.supervisor.shutdown(TIME_LIMIT));
    assert!(!base.exists());
}
