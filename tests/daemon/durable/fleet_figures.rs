//! Figures of a fleet on one machine, for the page "Several machines" of the book.

use std::time::{Duration, Instant};

use ceased_tests::daemon::{Peer, Signal, carriers, marker, wait_for_family, wait_until};
use rustix::process::{Pid, kill_process};

use crate::durable::fleet::{SHORT, alone, created, node, server::Server, status};
use crate::durable::of_task;

/// Prints a figure: the median and the 99th percentile.
fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{what}: p50 {:?}, p99 {:?}, of {}", at(50), at(99), times.len());
}

/// Waits without a pause until none of these processes is there. Those of a stopped parent stay as zombies,
/// which have no command line.
fn wait_for_end(processes: &[(i32, String)]) {
    let line = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    while processes.iter().any(|(pid, _)| !line(*pid).is_empty()) {
        std::thread::yield_now();
    }
}

/// `cargo test -p ceased-tests --test daemon fleet_figures -- --ignored --nocapture`
#[test]
#[ignore = "prints figures, for a quiet machine"]
fn figures() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let limits = "tasks_per_identity = 4000\nstored_tasks_per_identity = 100000";
    let (a, b) = (node(&server, "a", SHORT, limits), node(&server, "b", SHORT, limits));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());

    let task = created(&mut at_a, "sleep", r#"{"ms":600000}"#);
    for (what, peer) in [("a get at its node", &mut at_a), ("a get at another node", &mut at_b)] {
        let ask = |peer: &mut Peer| {
            let begun = Instant::now();
            assert_eq!(status(peer, &task), "working");
            begun.elapsed()
        };
        (0..100).for_each(|_| _ = ask(peer));
        tell(what, (0..1000).map(|_| ask(peer)).collect());
    }

    let (mut answers, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        let t = marker();
        let task = created(&mut at_a, "family", &format!(r#"{{"t":"{t}"}}"#));
        wait_for_family(&t);
        let processes = carriers(&t);
        let begun = Instant::now();
        at_b.result("tasks/cancel", &of_task(&task));
        answers.push(begun.elapsed());
        wait_for_end(&processes);
        ends.push(begun.elapsed());
    }
    tell("a cancel at another node, to its answer", answers);
    tell("a cancel at another node, to the last of the processes", ends);

    let results = (0..30).map(|_| {
        let t = marker();
        let task = created(&mut at_a, "hang", &format!(r#"{{"t":"{t}"}}"#));
        wait_until("it runs", || !carriers(&t).is_empty());
        let waits = at_b.request("tasks/result", &of_task(&task));
        wait_until("it waits", || status(&mut at_b, &task) == "working");
        let processes = carriers(&t);
        let begun = Instant::now();
        for (pid, _) in &processes {
            let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
        }
        at_b.answer(waits);
        begun.elapsed()
    });
    let results = results.collect();
    tell("a result at another node, after the death of the process", results);

    for outstanding in [1, 16] {
        let (begun, count) = (Instant::now(), 1000);
        let call = r#"{"name":"sleep","arguments":{"ms":0},"task":{}}"#;
        let mut waiting = std::collections::VecDeque::new();
        for _ in 0..count {
            if waiting.len() == outstanding {
                let id = waiting.pop_front().unwrap();
                assert!(at_a.answer(id)["result"].is_object());
            }
            waiting.push_back(at_a.request("tools/call", call));
        }
        waiting.into_iter().for_each(|id| _ = at_a.answer(id));
        let rate = f64::from(count) / begun.elapsed().as_secs_f64();
        println!("tasks a second at one node, {outstanding} outstanding: {rate:.0}");
    }

    let t = marker();
    let task = created(&mut at_a, "family", &format!(r#"{{"t":"{t}"}}"#));
    wait_for_family(&t);
    let processes = carriers(&t);
    let begun = Instant::now();
    a.signal(Signal::STOP);
    wait_for_end(&processes);
    println!("the last process of a stopped node of a lease of 10 s: {:?}", begun.elapsed());
    wait_until("the task has failed", || status(&mut at_b, &task) == "failed");
    println!("its task told as failed: {:?}", begun.elapsed());
    std::thread::sleep(Duration::from_secs(30).saturating_sub(begun.elapsed()));
    let begun = Instant::now();
    a.signal(Signal::CONT);
    let again = created(&mut at_a, "sleep", r#"{"ms":600000}"#);
    println!("a member again after three leases: {:?}", begun.elapsed());

    let t = marker();
    created(&mut at_a, "family", &format!(r#"{{"t":"{t}"}}"#));
    wait_for_family(&t);
    let processes = carriers(&t);
    let begun = Instant::now();
    let home = a.kill();
    wait_for_end(&processes);
    println!("the last process of a killed node: {:?}", begun.elapsed());
    wait_until("the task has failed", || status(&mut at_b, &again) == "failed");
    println!("its task told as failed: {:?}", begun.elapsed());
    drop(home);
}
