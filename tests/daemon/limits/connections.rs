//! Connections that are slow, half-closed, reset or lost: the answers they still get and their
//! clean-up.

use std::os::fd::AsFd as _;
use std::time::Duration;

use ceased_tests::daemon::peer::{call, request};
use ceased_tests::daemon::{Config, Daemon, Peer, assert_none_left, carriers, marker, wait_until};
use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;

fn daemon() -> Daemon {
    Daemon::start(&Config { tcp: true, ..Config::default() })
}

/// A peer after the handshake, over either kind of socket.
fn peer(daemon: &Daemon, is_tcp: bool) -> Peer {
    if is_tcp { daemon.tcp_peer() } else { daemon.peer() }
}

fn with(mark: &str) -> String {
    format!(r#"{{"t":"{mark}"}}"#)
}

fn task(id: &str) -> String {
    format!(r#"{{"taskId":"{id}"}}"#)
}

/// Starts an endless tool and waits until it runs.
fn hang(peer: &mut Peer, mark: &str) -> u64 {
    let id = peer.call("hang", &with(mark));
    wait_until("it hangs", || !carriers(mark).is_empty());
    id
}

#[test]
fn message_may_arrive_byte_by_byte() {
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

/// A half-closed peer gets every answer, then the end of the stream.
#[test]
fn half_closed_peer_gets_its_answers() {
    let daemon = daemon();
    for is_tcp in [false, true] {
        let mut peer = peer(&daemon, is_tcp);
        let mut asked: Vec<u64> =
            (0..50).map(|n| peer.call("echo", &format!(r#"{{"text":"{n}"}}"#))).collect();
        asked.extend((0..5).map(|_| peer.call("sleep", r#"{"ms":300}"#)));
        asked.extend((0..5).map(|_| peer.call("count", r#"{"n":10}"#)));
        // The last line lacks its line end.
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

/// A peer that is half-closed while it waits for a task still gets the result.
#[test]
fn half_closed_peer_gets_its_task_result() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    let id = peer.create_task("sleep", r#"{"ms":400}"#);
    let wait = peer.request("tasks/result", &task(&id));
    peer.finish();
    assert_eq!(peer.answer(wait)["result"]["content"][0]["text"], "slept 400 ms");
    assert!(peer.rest().iter().all(|message| message["id"].is_null()));
    daemon.wait_idle();
}

/// J3: a reset connection cancels its plain calls.
#[test]
fn reset_cancels_plain_calls() {
    let daemon = daemon();
    let mark = marker();
    let mut peer = daemon.tcp_peer();
    hang(&mut peer, &mark);
    // Closing with a zero linger time resets the connection.
    set_socket_linger(peer.fd().as_fd(), Some(Duration::ZERO)).unwrap();
    drop(peer);
    wait_until("the processes are gone", || carriers(&mark).is_empty());
    daemon.wait_idle();
}

/// J3 and TSK-15: a lost connection ends its plain calls with all processes, and no task.
#[test]
fn lost_connection_ends_plain_calls_only() {
    let daemon = daemon();
    for is_tcp in [false, true] {
        let (plain, durable) = (marker(), marker());
        let mut first = peer(&daemon, is_tcp);
        let call = first.call("family", &with(&plain));
        first.wait_started(&[call]);
        let id = first.create_task("hang", &with(&durable));
        wait_until("the task runs", || !carriers(&durable).is_empty());
        drop(first);
        wait_until("the processes are gone", || carriers(&plain).is_empty());
        assert_eq!(carriers(&durable).len(), 1, "the task continues");
        let mut second = peer(&daemon, is_tcp);
        assert_eq!(second.result("tasks/get", &task(&id))["status"], "working");
        assert_eq!(second.result("tasks/cancel", &task(&id))["status"], "cancelled");
        wait_until("the task's process is gone", || carriers(&durable).is_empty());
        drop(second);
        daemon.wait_idle();
    }
}

/// A blocked `tasks/result` of a lost connection leaves no state, and the task continues.
#[test]
fn lost_waiter_leaves_no_state() {
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
            // Requests are handled in order, so the waits are registered when this is answered.
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
    // The first round lets the daemon settle, because its process starts on another thread.
    round();
    let before = daemon.vitals();
    round();
    before.wait_back(daemon.pid());
    assert_eq!(owner.result("tasks/cancel", &task(&id))["status"], "cancelled");
    drop(owner);
    daemon.wait_idle();
    assert_none_left(&mark);
}

/// A cancelled `tasks/result` gets no answer.
#[test]
fn cancelled_waiter_gets_no_answer() {
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

/// TSK-40: tasks of anonymous peers are accessible with their id, not listed, and have a shorter
/// ttl.
#[test]
fn anonymous_tasks_are_accessible_by_id_only() {
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
