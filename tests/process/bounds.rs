//! Bounds of the resources of a job, in every containment and as every user.

use std::collections::BTreeSet;

use ceased::process::guard::Program;
use ceased::process::{Bounds, Containment, Controller, Exit, Isolation, Launch, Orphans};

use crate::process_kit::{Rig, Tier};
use crate::{argument, run_alone, run_ordinary};

const TIERS: [Tier; 3] = [Tier::Cgroup, Tier::Guard, Tier::Groups];
const ALL: [Controller; 3] = [Controller::Memory, Controller::Pids, Controller::Cpu];

/// The containment of a tier, and the controllers that it does not have.
fn containment(tier: Tier) -> Option<(Containment, BTreeSet<Controller>)> {
    let program = Program::named(ceased_tests::binary::ceased()).unwrap();
    let mut containment = tier.containment(program)?;
    let missing = containment.enable(&ALL.into_iter().collect());
    for it in &missing {
        let text = it.to_string();
        assert!(text.starts_with(&format!("{} has no effect here: ", it.controller.bound())));
    }
    Some((containment, missing.into_iter().map(|it| it.controller).collect()))
}

/// A rig whose jobs have these controllers; `None` with a printed line if the machine does not.
fn rig_with(wanted: Controller) -> Option<Rig> {
    let (containment, missing) = containment(Tier::Cgroup)?;
    let is_must = std::env::var_os("CEASED_TEST_NEEDS_CONTROLLERS").is_some();
    if missing.contains(&wanted) {
        assert!(!is_must, "the controller of {} is needed", wanted.bound());
        eprintln!("SKIPPED: {} cannot be enforced here", wanted.bound());
        return None;
    }
    Some(Rig::new(containment, Orphans::Leave))
}

fn run(rig: &mut Rig, bounds: Bounds, isolation: Isolation, script: &str) -> Exit {
    let launch = rig.command(&["sh", "-c", script]);
    let job = rig.launch(Launch { bounds, isolation, ..launch });
    rig.wait_exit(job)
}

/// The isolations that this machine has.
fn isolations(containment: &Containment) -> Vec<Isolation> {
    let isolated = containment.check_isolation().is_ok();
    if !isolated {
        eprintln!("SKIPPED in a pid namespace: there is none here");
    }
    [Isolation::None, Isolation::Pid].into_iter().take(1 + usize::from(isolated)).collect()
}

/// The niceness of the shell that reads it.
const NICENESS: &str = "read -r line < /proc/self/stat; set -- ${line##*) }; echo ${17}";

fn niceness_is_raised() {
    for tier in TIERS {
        let Some((containment, _)) = containment(tier) else { continue };
        let is_root = rustix::process::geteuid().is_root();
        let isolations = isolations(&containment);
        let mut rig = Rig::new(containment, Orphans::Leave);
        for isolation in isolations {
            for user in [None, Some(1)].into_iter().filter(|user| user.is_none() || is_root) {
                for (nice, shown) in [(None, "0"), (Some(3), "3"), (Some(19), "19")] {
                    let launch = rig.command(&["sh", "-c", NICENESS]);
                    let bounds = Bounds { nice, ..Bounds::default() };
                    let job = rig.launch(Launch { bounds, user, isolation, ..launch });
                    let exit = rig.wait_exit(job);
                    assert_eq!(exit.stdout.text().trim(), shown, "{tier:?} {user:?} {isolation:?}");
                }
            }
        }
    }
}

#[test]
fn nice_lowers_the_priority_in_every_containment() {
    run_alone("bounds::niceness_is_raised_alone", "");
    run_ordinary("bounds::niceness_is_raised_alone", "");
}

#[test]
#[ignore = "changes the priority of its process"]
fn niceness_is_raised_alone() {
    if argument().is_some() {
        niceness_is_raised();
        // One that is larger already stays.
        rustix::process::setpriority_process(None, 11).unwrap();
        let (containment, _) = containment(Tier::Guard).unwrap();
        let mut rig = Rig::new(containment, Orphans::Leave);
        let bounds = Bounds { nice: Some(5), ..Bounds::default() };
        let exit = run(&mut rig, bounds, Isolation::None, NICENESS);
        assert_eq!(exit.stdout.text().trim(), "11");
    }
}

/// A bound is enforced, or named as one that is not; the command runs in either case.
#[test]
fn bound_without_its_controller_is_named_and_the_command_runs() {
    for tier in TIERS {
        let Some((containment, missing)) = containment(tier) else { continue };
        if tier != Tier::Cgroup {
            assert_eq!(missing, ALL.into_iter().collect(), "{tier:?}");
        }
        let isolations = isolations(&containment);
        let mut rig = Rig::new(containment, Orphans::Leave);
        let bounds = Bounds {
            memory_max: Some(256 << 20),
            pids_max: Some(64),
            cpu_max: Some(100),
            nice: Some(1),
        };
        for isolation in isolations {
            let exit = run(&mut rig, bounds, isolation, "echo ran");
            assert_eq!((exit.code, exit.stdout.text().trim()), (Some(0), "ran"), "{tier:?}");
            assert_eq!(exit.reached, ceased::process::Reached::default());
        }
    }
}

/// Fills memory through the shell's own variables, with a second process that would live on.
const GREEDY: &str = "sleep 1000 & x=0123456789abcdef; while :; do x=$x$x; done";

#[test]
fn job_that_reaches_memory_max_is_killed_as_a_whole() {
    let Some((containment, _)) = containment(Tier::Cgroup) else { return };
    let isolations = isolations(&containment);
    drop(containment);
    for isolation in isolations {
        let Some(mut rig) = rig_with(Controller::Memory) else { return };
        let bounds = Bounds { memory_max: Some(32 << 20), ..Bounds::default() };
        let exit = run(&mut rig, bounds, isolation, GREEDY);
        assert_eq!(exit.reached.memory_max, bounds.memory_max, "{isolation:?} {exit:?}");
        assert_ne!(exit.code, Some(0));
        // Another job of the same supervisor has its own bound.
        let exit = run(&mut rig, bounds, isolation, "echo fine");
        assert_eq!((exit.code, exit.reached.memory_max), (Some(0), None));
    }
}

#[test]
fn job_starts_no_more_processes_than_pids_max() {
    let Some((containment, _)) = containment(Tier::Cgroup) else { return };
    let isolations = isolations(&containment);
    drop(containment);
    for isolation in isolations {
        let Some(mut rig) = rig_with(Controller::Pids) else { return };
        let bounds = Bounds { pids_max: Some(4), ..Bounds::default() };
        let exit = run(&mut rig, bounds, isolation, "sleep 0 & sleep 0 & sleep 0 & wait");
        assert_eq!((exit.code, exit.reached.pids_max), (Some(0), None), "{isolation:?}");
        let script = "for i in 1 2 3 4 5 6; do sleep 1 & done; wait";
        let exit = run(&mut rig, bounds, isolation, script);
        assert_eq!(exit.reached.pids_max, Some(4), "{isolation:?}");
    }
}

#[test]
fn job_gets_no_more_processor_than_cpu_max() {
    let Some(mut rig) = rig_with(Controller::Cpu) else { return };
    let bounds = Bounds { cpu_max: Some(10), ..Bounds::default() };
    // The shell counts until it has used half a second of CPU: five seconds at a tenth of one.
    let busy = "s() { read -r l < /proc/self/stat; set -- ${l##*) }; t=$((${12} + ${13})); }; s; \
                until [ $t -ge 50 ]; do i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; s; done";
    let exit = run(&mut rig, bounds, Isolation::None, busy);
    assert_eq!(exit.code, Some(0));
    assert!(exit.duration.as_secs_f32() > 3.0, "{:?}", exit.duration);
}

/// An ordinary user has the controllers that its group was given, as under systemd.
#[test]
fn ordinary_user_bounds_jobs_in_its_own_group() {
    run_ordinary("bounds::ordinary_bounds", "");
}

#[test]
#[ignore = "runs as another user"]
fn ordinary_bounds() {
    if argument().is_some() {
        bound_without_its_controller_is_named_and_the_command_runs();
        job_starts_no_more_processes_than_pids_max();
    }
}
