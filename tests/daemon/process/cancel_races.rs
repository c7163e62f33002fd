//! Cancel races: a hundred thousand calls, cancelled as fast as they are made, leave nothing
//! behind.

use std::thread;

use ceased_tests::daemon::peer::{call, cancel};
use ceased_tests::daemon::{Config, Daemon, Peer, assert_none_left, carriers, marker, wait_until};

/// Concurrent peers.
const PEERS: usize = 4;
/// Resident memory in KiB that the calls may leave: the allocator's reserve, and no growth with the
/// number of calls (a byte per call would be a hundred).
const LEFT_KIB_MAX: usize = 32 * 1024;

/// Runs `storm` on several connections at once.
fn on_all_peers(daemon: &Daemon, storm: impl Fn(&mut Peer, usize) + Sync) {
    thread::scope(|scope| {
        for number in 0..PEERS {
            let storm = &storm;
            scope.spawn(move || storm(&mut daemon.peer(), number));
        }
    });
}

fn counter(daemon: &Daemon, name: &str) -> u64 {
    daemon.status()["counters"][name].as_u64().expect("the counter exists")
}

/// CAN-06, CAN-08: a cancel in the same read as its call takes effect before the start, and no
/// answer is sent.
#[test]
fn calls_cancelled_in_the_same_write_are_not_answered() {
    const BURSTS: u64 = 50;
    const CALLS: u64 = 500;
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    daemon.wait_idle();
    let before = daemon.vitals();
    let hang = format!(r#"{{"t":"{mark}"}}"#);
    on_all_peers(&daemon, |peer, _| {
        for _ in 0..BURSTS {
            // Less than the daemon reads from one peer in a turn, and each pair in one write.
            for n in 0..CALLS {
                let id = peer.next_id();
                let pair = match n % 2 {
                    0 => call(id, "hang", &hang, ""),
                    _ => call(id, "sleep", r#"{"ms":86400000}"#, ""),
                } + "\n"
                    + &cancel(id)
                    + "\n";
                peer.try_send(pair.as_bytes()).unwrap();
            }
            let ping = peer.request("ping", "{}");
            // The first message since the last ping.
            assert_eq!(peer.message().unwrap()["id"], ping);
        }
    });
    daemon.wait_idle();
    let all = PEERS as u64 * BURSTS * CALLS;
    assert_eq!(counter(&daemon, "cancelled"), all);
    assert_eq!(counter(&daemon, "jobsNeverStarted"), all);
    assert_eq!(counter(&daemon, "jobsStarted"), 0);
    assert_none_left(&mark);
    before.wait_back(daemon.pid());
    let left = daemon.vitals().memory_kib.saturating_sub(before.memory_kib);
    assert!(left < LEFT_KIB_MAX, "{left} KiB were kept");
}

/// STOP-01: process trees, some of which ignore SIGTERM, cancelled while they run.
#[test]
fn process_trees_cancelled_while_running_are_ended() {
    const BURSTS: usize = 8;
    const CALLS: usize = 16;
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    daemon.wait_idle();
    let before = daemon.vitals();
    let arguments = format!(r#"{{"t":"{mark}"}}"#);
    on_all_peers(&daemon, |peer, _| {
        for _ in 0..BURSTS {
            let calls: Vec<u64> = (0..CALLS).map(|_| peer.call("family", &arguments)).collect();
            peer.wait_started(&calls);
            for id in &calls {
                peer.cancel(*id);
            }
            let ping = peer.request("ping", "{}");
            peer.answer(ping);
            assert!(calls.iter().all(|id| !peer.has_answer(*id)), "a cancelled call was answered");
        }
    });
    daemon.wait_idle();
    // The daemon has no job left, so no process may be left.
    assert_none_left(&mark);
    before.wait_back(daemon.pid());
    let calls = (PEERS * BURSTS * CALLS) as u64;
    assert_eq!(counter(&daemon, "cancelled"), calls);
    let left = daemon.vitals().memory_kib.saturating_sub(before.memory_kib);
    assert!(left < LEFT_KIB_MAX, "{left} KiB were kept");
}

/// Running handlers see their token, and idle worker threads end.
#[test]
fn handlers_cancelled_while_running_release_their_threads() {
    const BURSTS: usize = 40;
    const CALLS: usize = 16;
    let daemon = Daemon::start(&Config::default());
    daemon.wait_idle();
    let before = daemon.vitals();
    on_all_peers(&daemon, |peer, _| {
        for _ in 0..BURSTS {
            let calls: Vec<u64> =
                (0..CALLS).map(|_| peer.call("sleep", r#"{"ms":86400000}"#)).collect();
            // Answered in a later turn than the start of the handlers.
            peer.result("ping", "{}");
            for id in &calls {
                peer.cancel(*id);
            }
            peer.result("ping", "{}");
            assert!(calls.iter().all(|id| !peer.has_answer(*id)), "a cancelled call was answered");
        }
    });
    daemon.wait_idle();
    assert_eq!(counter(&daemon, "cancelled"), (PEERS * BURSTS * CALLS) as u64);
    assert!(counter(&daemon, "jobsStarted") > 0);
    assert_eq!(counter(&daemon, "jobsAbandoned"), 0);
    before.wait_back(daemon.pid());
}

/// Peers that disconnect at random moments.
#[test]
fn random_disconnects_leave_nothing() {
    let daemon = Daemon::start(&Config { tcp: true, ..Config::default() });
    let mark = marker();
    daemon.wait_idle();
    let before = daemon.vitals();
    let arguments = format!(r#"{{"t":"{mark}"}}"#);
    thread::scope(|scope| {
        for number in 0..PEERS {
            let (daemon, arguments) = (&daemon, &arguments);
            scope.spawn(move || {
                for round in 0..50 {
                    let mut peer = if number % 2 == 0 { daemon.peer() } else { daemon.tcp_peer() };
                    peer.call("hang", arguments);
                    peer.call("sleep", r#"{"ms":86400000}"#);
                    if round % 2 == 0 {
                        peer.result("ping", "{}");
                    }
                    if round % 3 == 0 {
                        peer.send("{\"half\":");
                    }
                }
            });
        }
    });
    daemon.wait_idle();
    assert_none_left(&mark);
    before.wait_back(daemon.pid());
}

/// Hundreds of tasks, cancelled while they run.
#[test]
fn tasks_cancelled_while_running_are_ended() {
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    daemon.wait_idle();
    let before = daemon.vitals();
    let arguments = format!(r#"{{"t":"{mark}"}}"#);
    on_all_peers(&daemon, |peer, _| {
        for round in 0..4 {
            let tasks: Vec<String> =
                (0..16).map(|_| peer.create_task("hang", &arguments)).collect();
            if round % 2 == 0 {
                wait_until("a task runs", || !carriers(&mark).is_empty());
            }
            for task in &tasks {
                let params = format!(r#"{{"taskId":"{task}"}}"#);
                assert_eq!(peer.result("tasks/cancel", &params)["status"], "cancelled");
            }
        }
    });
    daemon.wait_idle();
    assert_none_left(&mark);
    before.wait_back(daemon.pid());
    let status = daemon.status();
    assert_eq!(status["tasks"]["total"], 256);
    assert_eq!(status["tasks"]["cancelled"], 256);
}
