//! Consistently fast tools run on the loop's thread. A tool that then blocks delays no other call,
//! whatever it does.

use std::fs;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use ceased::{Daemon, DaemonHandle, HandlerTool, Job, ToolResult};
use ceased_tests::daemon::peer::call;
use ceased_tests::daemon::{Config, Daemon as Served, Peer, wait_until};
use serde_json::json;

/// Enough fast calls to return to the loop's thread, even after a slow one.
const MANY: u64 = 12_000;
/// Concurrent calls.
const BATCH: u64 = 500;

const SCHEMA: &str = r#"{"type":"object","properties":{"does":{"type":"string"}}}"#;

/// A daemon with one tool controlled by its arguments, and a channel that releases it.
fn daemon() -> (DaemonHandle, Sender<()>) {
    let (release, gate) = channel();
    let gate = Mutex::new(gate);
    let tool = HandlerTool::new("fickle", move |job: &Job| {
        let arguments = job.arguments_json();
        let said = if arguments.contains("wait") {
            let _ = gate.lock().expect("no thread panics with the lock").recv();
            "waited"
        } else if arguments.contains("ask") {
            if job.ask("roots/list", &json!({})).is_err() { "refused" } else { "asked" }
        } else if arguments.contains("sleep") {
            job.token().sleep(Duration::MAX)?;
            "slept"
        } else {
            "done"
        };
        Ok(ToolResult::text(said))
    })
    .input_schema(SCHEMA)
    .abandon_after(Duration::from_millis(100));
    let daemon = Daemon::new().tool(tool.build().expect("a valid tool"));
    (daemon.start().expect("it starts"), release)
}

/// Sends these calls in one write.
fn send(peer: &mut Peer, ids: std::ops::Range<u64>) {
    let lines: String = ids.map(|id| call(id, "fickle", "{}", "") + "\n").collect();
    peer.try_send(lines.as_bytes()).expect("it reads");
}

/// Calls the tool until it runs on the loop's thread; `from` is the first id.
fn reach_the_loop(peer: &mut Peer, from: u64) {
    for first in (from..from + MANY).step_by(usize::try_from(BATCH).expect("small")) {
        send(peer, first..first + BATCH);
        for id in first..first + BATCH {
            assert_eq!(peer.text(id), "done");
        }
    }
}

/// Later calls, other peers and the same connection are served; and so again after the tool has
/// returned to the loop's thread.
#[test]
fn fast_tool_that_blocks_delays_no_other_call() {
    let (daemon, release) = daemon();
    let (mut one, mut other) = (Peer::of(&daemon), Peer::of(&daemon));
    for round in 1..=3 {
        let from = round * 100_000;
        reach_the_loop(&mut one, from);
        let waits = from + MANY;
        let line = call(waits, "fickle", r#"{"does":"wait"}"#, "") + "\n";
        one.try_send(line.as_bytes()).expect("it reads");
        send(&mut one, waits + 1..waits + 20);
        for id in waits + 1..waits + 20 {
            assert_eq!(one.text(id), "done");
        }
        let _ = one.result("ping", "{}");
        let _ = other.result("ping", "{}");
        assert!(!one.has_answer(waits), "the call is still blocked");
        release.send(()).expect("it waits");
        assert_eq!(one.text(waits), "waited");
    }
}

/// A fast tool can ask, and can be cancelled.
#[test]
fn fast_tool_can_ask_and_be_cancelled() {
    let (daemon, _release) = daemon();
    let mut peer = Peer::of(&daemon);
    reach_the_loop(&mut peer, 100_000);
    let asks = peer.call("fickle", r#"{"does":"ask"}"#);
    assert_eq!(peer.text(asks), "refused");
    reach_the_loop(&mut peer, 200_000);
    let sleeps = peer.call("fickle", r#"{"does":"sleep"}"#);
    // The call has started when a later one is done.
    let quick = peer.call("fickle", "{}");
    assert_eq!(peer.text(quick), "done");
    peer.cancel(sleeps);
    let _ = peer.result("ping", "{}");
    daemon.shut_down().expect("no handler runs");
    let late = peer.rest();
    assert!(!late.iter().any(|message| message["id"] == sleeps), "a cancelled call was answered");
}

/// The daemon ends although the former loop thread is in a handler that never returns.
#[test]
fn fast_tool_that_never_returns_does_not_delay_shutdown() {
    let (daemon, release) = daemon();
    let mut peer = Peer::of(&daemon);
    reach_the_loop(&mut peer, 100_000);
    let _ = peer.call("fickle", r#"{"does":"wait"}"#);
    let _ = peer.result("ping", "{}");
    daemon.shut_down().expect("it ends");
    drop(release);
}

/// Threads end again after few fast calls.
#[test]
fn threads_end_when_no_tool_is_fast_any_more() {
    let daemon = Served::start(&Config::default());
    let mut peer = daemon.peer();
    let before = daemon.vitals();
    let names = || {
        let threads =
            fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("the daemon is alive");
        threads.flatten().map(|thread| fs::read_to_string(thread.path().join("comm")))
    };
    // Many at once, because on a busy machine the first ones after a pause are slow.
    wait_until("the loop has moved to another thread", || {
        let ids: Vec<u64> = (0..100).map(|_| peer.next_id()).collect();
        let lines: String =
            ids.iter().map(|id| call(*id, "echo", r#"{"text":"quick"}"#, "") + "\n").collect();
        peer.try_send(lines.as_bytes()).expect("it reads");
        assert!(ids.iter().all(|id| peer.text(*id) == "quick"));
        names().flatten().any(|name| name.trim() == "ceased-loop")
    });
    before.wait_back(daemon.pid());
    let _ = peer.result("ping", "{}");
}
