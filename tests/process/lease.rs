//! The deadline of jobs, by which their keeper and guards end them without the supervisor.

use std::time::Duration;

use ceased::process::daemon_support::boot_time;
use ceased::process::{Order, Orphans};

use crate::process_kit::{Tier, assert_none_left, carriers, eventually, marker};
use crate::{argument, rig_with, run_alone, run_ordinary};

/// FLT-04: of root and of an ordinary user, in each containment tier that promises it.
#[test]
fn jobs_past_their_deadline_are_ended_by_keeper_and_guards() {
    for tier in ["Cgroup", "Guard"] {
        run_alone("lease::past_its_deadline", tier);
        run_ordinary("lease::past_its_deadline", tier);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn past_its_deadline() {
    let Some(given) = argument() else { return };
    let tier = if given == "Guard" { Tier::Guard } else { Tier::Cgroup };
    let Some(mut rig) = rig_with(tier, Orphans::Leave) else { return };
    let (marked, other) = (marker(), marker());
    let tree = "trap '' TERM; setsid sleep \"$1\" & (sleep \"$1\" &) ; sleep \"$1\" & wait";
    let job = rig.shell(tree, &marked);
    let beside = rig.shell("sleep \"$1\"; :", &other);
    eventually("they run", || carriers(&marked).len() == 4 && carriers(&other).len() == 2);
    // A later deadline is in the place of an earlier one.
    for after in [3600, 7200] {
        let until = Some(boot_time() + Duration::from_secs(after));
        rig.order(Order::Lease { until, jobs: vec![job, beside] });
    }
    let until = boot_time() + Duration::from_millis(100);
    rig.order(Order::Lease { until: Some(until), jobs: vec![job] });
    rig.wait_exit(job);
    assert!(boot_time() >= until, "it ended early");
    assert_none_left(&marked);
    assert_eq!(carriers(&other).len(), 2, "its deadline was taken back");
    rig.order(Order::Kill(beside));
    rig.wait_exit(beside);
}
