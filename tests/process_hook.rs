//! A program that embeds the library and becomes its own guard by a call at the start of its
//! `main`.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

#[allow(dead_code, reason = "the other suite uses the rest")]
#[path = "process/process_kit/mod.rs"]
mod process_kit;

use ceased::process::guard::{self, Program};
use ceased::process::{Containment, Order, Orphans, Stopped};
use process_kit::{Rig, Tier, assert_none_left, carriers, marker};

// STOP-01
fn main() {
    assert!(Program::this().is_none(), "no guard before the call");
    guard::init();
    let this = Program::this().expect("a guard after the call");
    this.check().unwrap();
    for tier in [Tier::Guard, Tier::Cgroup] {
        let Some(containment) = tier.containment(this.clone()) else { continue };
        let mut rig = Rig::new(containment, Orphans::Leave);
        let marker = marker();
        let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep $0' $1 & echo 1 >&3; wait";
        let job = rig.shell(script, &marker);
        rig.wait_ready(job);
        assert!(!carriers(&marker).is_empty());
        rig.order(Order::Terminate(job));
        rig.order(Order::Kill(job));
        assert_eq!(rig.wait_exit(job).stopped, Stopped::Killed);
        assert_none_left(&marker);
        let base = rig.base.clone();
        assert!(rig.supervisor.shutdown(process_kit::TIME_LIMIT));
        assert!(base.is_none_or(|base| !base.exists()));
    }
    assert!(Containment::detect(Some(this)).unwrap().weakness().is_none());
    assert!(process_kit::children().is_empty());
    println!("test process_hook ... ok");
}
