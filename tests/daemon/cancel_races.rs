//! Storms: a hundred thousand calls cancelled as fast as they are made leave nothing behind.

use std::thread;

use ceased_tests::daemon::peer::{call, cancel};
use ceased_tests::daemon::{Config, Daemon, Peer, assert_none_left, carriers, marker, wait_until};

/// Peers that storm at once.
const PEERS: usize = 4;
/// Resident memory that a storm may leave, in KiB: what an allocator keeps, and nothing that
/// grows with the number of calls (a byte per call would be a hundred).
const LEFT_KIB_MAX: usize = 32 * 1024;

/// Runs the same on several connections at once.
fn everybody(daemon: &Daemon, storm: impl Fn(&mut Peer, usize) + Sync) {
    thread::scope(|scope| {
        for number in 0..PEERS {
            let storm = &storm;
            scope.spawn(move || storm(&mut daemon.peer(), number));
        }
    });
}

fn counter(daemon: &Daemon, name: &str) -> u64 {
    daemon.status()["counters"][name].as_u64().expect("a counter of that name")
}

/// CAN-06, CAN-08: a cancel in the same read as its call beats the start, and nothing is said.
#[test]
fn cancelled_in_the_same_write() {
    const BURSTS: u64 = 50;
    const CALLS: u64 = 500;
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    daemon.wait_idle();
    let before = daemon.vitals();
    let hang = format!(r#"{{"t":"{mark}"}}"#);
    everybody(&daemon, |peer, _| {
        for _ in 0..BURSTS {
            // Less than the daemon reads from one peer in a turn, and each pair in one piece.
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
            // The first thing said since the last ping.
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

/// STOP-01: families of processes, some deaf to SIGTERM, cancelled once they run.
#[test]
fn cancelled_after_the_start() {
    const BURSTS: usize = 8;
    const CALLS: usize = 16;
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    daemon.wait_idle();
    let before = daemon.vitals();
    let arguments = format!(r#"{{"t":"{mark}"}}"#);
    everybody(&daemon, |peer, _| {
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
    // The daemon says that nothing is left; this is the moment at which it must be true.
    assert_none_left(&mark);
    before.wait_back(daemon.pid());
    let calls = (PEERS * BURSTS * CALLS) as u64;
    assert_eq!(counter(&daemon, "cancelled"), calls);
    let left = daemon.vitals().memory_kib.saturating_sub(before.memory_kib);
    assert!(left < LEFT_KIB_MAX, "{left} KiB were kept");
}

/// Handlers that run see their token, and their threads go once there is nothing to do.
#[test]
fn handlers_cancelled_after_the_start() {
    const BURSTS: usize = 40;
    const CALLS: usize = 16;
    let daemon = Daemon::start(&Config::default());
    daemon.wait_idle();
    let before = daemon.vitals();
    everybody(&daemon, |peer, _| {
        for _ in 0..BURSTS {
            let calls: Vec<u64> =
                (0..CALLS).map(|_| peer.call("sleep", r#"{"ms":86400000}"#)).collect();
            // Answered in a later turn than the one that started them.
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

/// A storm of peers that leave in the middle of everything.
#[test]
fn connections_that_come_and_go() {
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

/// Tasks by the hundred, cancelled while they run.
#[test]
fn tasks_cancelled() {
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    daemon.wait_idle();
    let before = daemon.vitals();
    let arguments = format!(r#"{{"t":"{mark}"}}"#);
    everybody(&daemon, |peer, _| {
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
