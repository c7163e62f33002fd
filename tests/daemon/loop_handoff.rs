//! Tools that have been quick all along run on the thread of the loop. One that is not, after all,
//! holds up nobody else, whatever it does instead.

use std::fs;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use ceased::{Daemon, DaemonHandle, HandlerTool, Job, ToolResult};
use ceased_tests::daemon::peer::call;
use ceased_tests::daemon::{Config, Daemon as Served, Peer, wait_until};
use serde_json::json;

/// More quick calls than it takes to be trusted, also by who was disappointed once.
const MANY: u64 = 12_000;
/// Calls under way at once.
const BATCH: u64 = 500;

const SCHEMA: &str = r#"{"type":"object","properties":{"does":{"type":"string"}}}"#;

/// A daemon with one tool that does what it is told, and what lets it go on when it waits.
fn daemon() -> (DaemonHandle, Sender<()>) {
    let (release, gate) = channel();
    let gate = Mutex::new(gate);
    let tool = HandlerTool::new("fickle", move |job: &Job| {
        let arguments = job.arguments_json();
        let said = if arguments.contains("wait") {
            let _ = gate.lock().expect("nobody panics with it").recv();
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
    .patience(Duration::from_millis(100));
    let daemon = Daemon::new().tool(tool.build().expect("a good tool"));
    (daemon.start().expect("it starts"), release)
}

/// Sends these calls in one piece.
fn send(peer: &mut Peer, ids: std::ops::Range<u64>) {
    let lines: String = ids.map(|id| call(id, "fickle", "{}", "") + "\n").collect();
    peer.try_send(lines.as_bytes()).expect("it reads");
}

/// Calls the tool until it is trusted; `from` is the first id.
fn earn_trust(peer: &mut Peer, from: u64) {
    for first in (from..from + MANY).step_by(usize::try_from(BATCH).expect("small")) {
        send(peer, first..first + BATCH);
        for id in first..first + BATCH {
            assert_eq!(peer.text(id), "done");
        }
    }
}

/// Everything behind it, everybody else and the connection itself go on; and again, when it was
/// trusted again.
#[test]
fn a_trusted_tool_that_waits_holds_up_nobody() {
    let (daemon, release) = daemon();
    let (mut one, mut other) = (Peer::of(&daemon), Peer::of(&daemon));
    for round in 1..=3 {
        let from = round * 100_000;
        earn_trust(&mut one, from);
        let waits = from + MANY;
        let line = call(waits, "fickle", r#"{"does":"wait"}"#, "") + "\n";
        one.try_send(line.as_bytes()).expect("it reads");
        send(&mut one, waits + 1..waits + 20);
        for id in waits + 1..waits + 20 {
            assert_eq!(one.text(id), "done");
        }
        let _ = one.result("ping", "{}");
        let _ = other.result("ping", "{}");
        assert!(!one.has_answer(waits), "nobody has let it go on");
        release.send(()).expect("it waits");
        assert_eq!(one.text(waits), "waited");
    }
}

/// It can ask and be cancelled like any other.
#[test]
fn a_trusted_tool_can_ask_and_be_cancelled() {
    let (daemon, _release) = daemon();
    let mut peer = Peer::of(&daemon);
    earn_trust(&mut peer, 100_000);
    let asks = peer.call("fickle", r#"{"does":"ask"}"#);
    assert_eq!(peer.text(asks), "refused");
    earn_trust(&mut peer, 200_000);
    let sleeps = peer.call("fickle", r#"{"does":"sleep"}"#);
    // Its turn has come once something behind it is done.
    let quick = peer.call("fickle", "{}");
    assert_eq!(peer.text(quick), "done");
    peer.cancel(sleeps);
    let _ = peer.result("ping", "{}");
    daemon.shut_down().expect("nothing keeps it");
    let late = peer.rest();
    assert!(!late.iter().any(|message| message["id"] == sleeps), "cancelled, so not answered");
}

/// The daemon ends although the thread that has run its loop is in a handler that never returns.
#[test]
fn a_trusted_tool_that_never_returns_does_not_keep_the_daemon() {
    let (daemon, release) = daemon();
    let mut peer = Peer::of(&daemon);
    earn_trust(&mut peer, 100_000);
    let _ = peer.call("fickle", r#"{"does":"wait"}"#);
    let _ = peer.result("ping", "{}");
    daemon.shut_down().expect("it ends");
    drop(release);
}

/// However few calls were quick, the threads that this took end again.
#[test]
fn no_thread_is_left_when_nothing_is_quick_any_more() {
    let daemon = Served::start(&Config::default());
    let mut peer = daemon.peer();
    let before = daemon.vitals();
    let names = || {
        let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("it is alive");
        threads.flatten().map(|thread| fs::read_to_string(thread.path().join("comm")))
    };
    // Many at once: on a busy machine the first ones after a pause are not quick.
    wait_until("the loop is on a thread of its own", || {
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
