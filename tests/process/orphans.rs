//! Children that a tool leaves to whoever watches it: they are buried, however many they are and
//! however they came.

use std::fs;
use std::process::Command;

use ceased::process::{Orphans, Report};
use rustix::process::{Pid, Signal, kill_process};

use crate::process_kit::{PATIENCE, Tier, children, eventually};
use crate::{argument, rig, rig_with, run_alone};

fn has_perl() -> bool {
    let has = Command::new("perl").arg("-v").output().is_ok();
    if !has {
        eprintln!("SKIPPED, no perl here");
    }
    has
}

/// The state of a process, and its parent.
fn look(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    Some((rest.next()?.chars().next()?, rest.next()?.parse().ok()?))
}

/// STOP-01, the other way round: when nothing of a job is alive that is reported, however many
/// zombies its command leaves at once. The guard is stopped while it does: of all of them it is
/// told by one signal, as on a machine that is too busy to run it.
#[test]
fn more_zombies_than_are_buried_at_once() {
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
    let (_, guard) = look(leader).expect("nobody has buried it");
    eventually("it has left them", || look(leader).is_some_and(|(state, _)| state == 'Z'));
    eventually("the guard is stopped", || look(guard).is_some_and(|(state, _)| state == 'T'));
    kill_process(Pid::from_raw(guard).unwrap(), Signal::CONT).unwrap();
    let exit = rig.wait_exit(job);
    assert_eq!((exit.code, exit.signalled), (Some(0), 0));
}

#[test]
fn siblings_of_a_command_are_buried() {
    for tier in [Tier::Cgroup, Tier::Guard, Tier::Groups] {
        run_alone("orphans::siblings", &format!("{tier:?}"));
    }
}

/// CAN-07: a command can make a process that is not its child but its parent's.
#[test]
#[ignore = "runs in a process of its own"]
fn siblings() {
    let Some(name) = argument() else { return };
    let tiers = [Tier::Cgroup, Tier::Guard, Tier::Groups];
    let tier = tiers.into_iter().find(|tier| format!("{tier:?}") == name).unwrap();
    let clone = match std::env::consts::ARCH {
        "x86_64" => "56",
        "aarch64" => "220",
        other => return eprintln!("SKIPPED, its number for clone is not known: {other}"),
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
        eventually("all are buried", || !children().iter().any(is_zombie));
    }
    assert!(rig.supervisor.shutdown(PATIENCE));
    assert_eq!(children(), [] as [i32; 0]);
}
