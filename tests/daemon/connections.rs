//! Connections that are slow, half closed, reset or gone: what they still get and what they leave.

use std::os::fd::AsFd as _;
use std::time::Duration;

use ceased_tests::daemon::peer::{call, request};
use ceased_tests::daemon::{Config, Daemon, Peer, assert_none_left, carriers, marker, wait_until};
use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;

fn daemon() -> Daemon {
    Daemon::start(&Config { tcp: true, ..Config::default() })
}

/// A shaken hand over either kind of socket.
fn peer(daemon: &Daemon, is_tcp: bool) -> Peer {
    if is_tcp { daemon.tcp_peer() } else { daemon.peer() }
}

fn with(mark: &str) -> String {
    format!(r#"{{"t":"{mark}"}}"#)
}

fn task(id: &str) -> String {
    format!(r#"{{"taskId":"{id}"}}"#)
}

/// Starts something that hangs and waits until it does.
fn hang(peer: &mut Peer, mark: &str) -> u64 {
    let id = peer.call("hang", &with(mark));
    wait_until("it hangs", || !carriers(mark).is_empty());
    id
}

#[test]
fn one_byte_at_a_time() {
    let daemon = daemon();
    for is_tcp in [false, true] {
        let mut peer = peer(&daemon, is_tcp);
        let line = call(900, "echo", r#"{"text":"slow but \u00e4 clear"}"#, "") + "\r\n";
        for byte in line.as_bytes() {
            peer.try_send(&[*byte]).unwrap();
        }
        assert_eq!(peer.answer(900)["result"]["content"][0]["text"], "slow but ä clear");
    }
}

/// A peer that has said everything hears everything, then the end.
#[test]
fn half_closed() {
    let daemon = daemon();
    for is_tcp in [false, true] {
        let mut peer = peer(&daemon, is_tcp);
        let mut asked: Vec<u64> =
            (0..50).map(|n| peer.call("echo", &format!(r#"{{"text":"{n}"}}"#))).collect();
        asked.extend((0..5).map(|_| peer.call("sleep", r#"{"ms":300}"#)));
        asked.extend((0..5).map(|_| peer.call("count", r#"{"n":10}"#)));
        // The last one lacks its line end.
        peer.try_send(request(900, "ping", "{}").as_bytes()).unwrap();
        asked.push(900);
        peer.finish();
        let mut answered: Vec<u64> = peer
            .rest()
            .iter()
            .filter(|message| !message["result"].is_null())
            .map(|answer| answer["id"].as_u64().unwrap())
            .collect();
        answered.sort_unstable();
        asked.sort_unstable();
        assert_eq!(answered, asked);
    }
    daemon.wait_idle();
}

/// Half closed while waiting for a task: the result still comes.
#[test]
fn half_closed_while_waiting_for_a_task() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    let id = peer.create_task("sleep", r#"{"ms":400}"#);
    let wait = peer.request("tasks/result", &task(&id));
    peer.finish();
    assert_eq!(peer.answer(wait)["result"]["content"][0]["text"], "slept 400 ms");
    assert!(peer.rest().iter().all(|message| message["id"].is_null()));
    daemon.wait_idle();
}

/// J3: a peer that is reset away takes its plain calls with it.
#[test]
fn reset() {
    let daemon = daemon();
    let mark = marker();
    let mut peer = daemon.tcp_peer();
    hang(&mut peer, &mark);
    // Closing resets.
    set_socket_linger(peer.fd().as_fd(), Some(Duration::ZERO)).unwrap();
    drop(peer);
    wait_until("its processes are gone", || carriers(&mark).is_empty());
    daemon.wait_idle();
}

/// J3 and TSK-15: a lost connection ends plain calls, with all they started, and no task.
#[test]
fn dropped_in_mid_call() {
    let daemon = daemon();
    for is_tcp in [false, true] {
        let (plain, durable) = (marker(), marker());
        let mut first = peer(&daemon, is_tcp);
        let call = first.call("family", &with(&plain));
        first.wait_started(&[call]);
        let id = first.create_task("hang", &with(&durable));
        wait_until("the task runs", || !carriers(&durable).is_empty());
        drop(first);
        wait_until("the family is gone", || carriers(&plain).is_empty());
        assert_eq!(carriers(&durable).len(), 1, "the task goes on");
        let mut second = peer(&daemon, is_tcp);
        assert_eq!(second.result("tasks/get", &task(&id))["status"], "working");
        assert_eq!(second.result("tasks/cancel", &task(&id))["status"], "cancelled");
        wait_until("the task's process is gone", || carriers(&durable).is_empty());
        drop(second);
        daemon.wait_idle();
    }
}

/// A blocked `tasks/result` whose connection goes leaves no trace, and the task does not mind.
#[test]
fn a_waiter_that_goes() {
    let daemon = daemon();
    let mark = marker();
    let mut owner = daemon.peer();
    let id = owner.create_task("hang", &with(&mark));
    wait_until("the task runs", || !carriers(&mark).is_empty());
    let status = owner.result("ceased/status", "{}");
    let mut round = || {
        for _ in 0..20 {
            let mut waiter = daemon.peer();
            for _ in 0..10 {
                waiter.request("tasks/result", &task(&id));
            }
            // In order: the waits are there once this is answered.
            waiter.result("ping", "{}");
        }
        let mut after = Value::Null;
        wait_until("the waiters are gone", || {
            after = owner.result("ceased/status", "{}");
            after["connections"] == 1
        });
        assert_eq!(after["tasks"], status["tasks"]);
        assert_eq!(after["running"], 1);
    };
    // The first round is for the daemon to get to rest: its process starts on another thread.
    round();
    let before = daemon.vitals();
    round();
    before.wait_back(daemon.pid());
    assert_eq!(owner.result("tasks/cancel", &task(&id))["status"], "cancelled");
    drop(owner);
    daemon.wait_idle();
    assert_none_left(&mark);
}

/// A waiter that takes its request back hears nothing more of it.
#[test]
fn a_waiter_that_gives_up() {
    let daemon = daemon();
    let mark = marker();
    let mut peer = daemon.peer();
    let id = peer.create_task("hang", &with(&mark));
    let wait = peer.request("tasks/result", &task(&id));
    peer.cancel(wait);
    assert_eq!(peer.result("tasks/get", &task(&id))["status"], "working");
    peer.result("tasks/cancel", &task(&id));
    peer.result("ping", "{}");
    assert!(!peer.has_answer(wait), "CAN-15: a cancelled wait was answered");
    wait_until("the task's process is gone", || carriers(&mark).is_empty());
}

/// TSK-40: tasks of peers nobody vouches for can be used by whoever knows their id, are not listed,
/// and live shorter.
#[test]
fn anonymous_tasks() {
    let daemon = daemon();
    let mark = marker();
    let id = daemon.tcp_peer().create_task("hang", &with(&mark));
    let mut owner = daemon.peer();
    let get = owner.request("tasks/get", &task(&id));
    assert_eq!(owner.answer(get)["error"]["code"], -32602, "a user sees an anonymous task");
    let mut stranger = daemon.tcp_peer();
    assert_eq!(stranger.result("tasks/get", &task(&id))["ttl"], 600_000);
    let list = stranger.request("tasks/list", "{}");
    assert_eq!(stranger.answer(list)["error"]["code"], -32601);
    assert_eq!(stranger.result("tasks/cancel", &task(&id))["status"], "cancelled");
    wait_until("the task's process is gone", || carriers(&mark).is_empty());
}
