//! Orphans of a tool: the guard or supervisor reaps them, whatever their number and origin.

use std::fs;
use std::process::Command;

use ceased::process::{Orphans, Report};
use rustix::process::{Pid, Signal, kill_process};

use crate::process_kit::{TIME_LIMIT, Tier, children, eventually};
use crate::{argument, rig, rig_with, run_alone};

fn has_perl() -> bool {
    let has = Command::new("perl").arg("-v").output().is_ok();
    if !has {
        eprintln!("SKIPPED: no perl here");
    }
    has
}

/// State and parent of a process.
fn look(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    Some((rest.next()?.chars().next()?, rest.next()?.parse().ok()?))
}

/// STOP-01: a job without a live process is reported as ended, however many zombies its command
/// leaves at once. The guard is stopped meanwhile, so one SIGCHLD stands for all of them, as on a
/// busy machine.
#[test]
fn more_zombies_than_one_pass_reaps_do_not_delay_the_end() {
    const ZOMBIES: &str = "2500";
    if !has_perl() {
        return;
    }
    let mut rig = rig(Tier::Guard).unwrap();
    let script = "open(P, '>&=3'); syswrite(P, \"$$\\n\"); kill 'STOP', getppid(); \
                  for (1..$ARGV[0]) { my $p = fork; defined $p or die; exit 0 unless $p }";
    let job = rig.run(&["perl", "-e", script, ZOMBIES]);
    let report = rig.report();
    let Report::Progress { message: None, progress: leader, .. } = report else {
        panic!("{report:?}");
    };
    let leader = format!("{leader}").parse().unwrap();
    let (_, guard) = look(leader).expect("the leader is not reaped yet");
    eventually("the leader has exited", || look(leader).is_some_and(|(state, _)| state == 'Z'));
    eventually("the guard is stopped", || look(guard).is_some_and(|(state, _)| state == 'T'));
    kill_process(Pid::from_raw(guard).unwrap(), Signal::CONT).unwrap();
    let exit = rig.wait_exit(job);
    assert_eq!((exit.code, exit.signalled), (Some(0), 0));
}

#[test]
fn siblings_of_a_command_are_reaped() {
    for tier in [Tier::Cgroup, Tier::Guard, Tier::Groups] {
        run_alone("orphans::siblings", &format!("{tier:?}"));
    }
}

/// CAN-07: a command can create a sibling instead of a child (`CLONE_PARENT`).
#[test]
#[ignore = "runs in a process of its own"]
fn siblings() {
    let Some(name) = argument() else { return };
    let tiers = [Tier::Cgroup, Tier::Guard, Tier::Groups];
    let tier = tiers.into_iter().find(|tier| format!("{tier:?}") == name).unwrap();
    let clone = match std::env::consts::ARCH {
        "x86_64" => "56",
        "aarch64" => "220",
        other => return eprintln!("SKIPPED: system call number of clone is unknown: {other}"),
    };
    let Some(mut rig) = rig_with(tier, Orphans::Adopt).filter(|_| has_perl()) else { return };
    let script = "use POSIX; my $CLONE_PARENT = 0x8000; \
                  for (1..20) { \
                    my $p = syscall($ARGV[0], $CLONE_PARENT | 17, 0, 0, 0, 0); \
                    die if $p < 0; POSIX::_exit(0) unless $p \
                  }";
    let script = script.replace("$ARGV[0]", clone);
    for _ in 0..3 {
        let job = rig.run(&["perl", "-e", &script]);
        let exit = rig.wait_exit(job);
        assert_eq!(exit.code, Some(0), "{}", exit.stderr.text());
        let is_zombie = |pid: &i32| look(*pid).is_some_and(|(state, _)| state == 'Z');
        eventually("all zombies are reaped", || !children().iter().any(is_zombie));
    }
    assert!(rig.supervisor.shutdown(TIME_LIMIT));
    assert_eq!(children(), [] as [i32; 0]);
}
