//! Handlers of an embedding program: on worker threads, which share the calls and tell together,
//! and inline, on the loop itself.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use ceased::{AskError, Daemon, HandlerTool, Job, Running, ToolResult};
use ceased_tests::daemon::Peer;
use ceased_tests::daemon::peer::call;

/// A tool that is quick, one that waits until the test lets it go on, and two inline ones.
fn daemon() -> (Running, Sender<()>) {
    let (release, gate): (Sender<()>, Receiver<()>) = channel();
    let gate = Mutex::new(gate);
    let tools = [
        HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done"))),
        HandlerTool::new("gate", move |_: &Job| {
            let _ = gate.lock().expect("nobody panics with it").recv();
            Ok(ToolResult::text("open"))
        }),
        HandlerTool::new("panics", |_: &Job| panic!("as the test wants it")),
        HandlerTool::new("inline", |job: &Job| {
            job.progress(1.0, Some(2.0), Some("half"));
            Ok(ToolResult::text("here"))
        })
        .inline(),
        HandlerTool::new("asks inline", |job: &Job| {
            let asked = job.ask("roots/list", &serde_json::json!({}));
            assert_eq!(asked, Err(AskError::Inline));
            Ok(ToolResult::text("not asked"))
        })
        .inline(),
    ];
    let daemon = tools
        .into_iter()
        .fold(Daemon::new(), |daemon, tool| daemon.tool(tool.build().expect("a good tool")));
    (daemon.start().expect("it starts"), release)
}

/// Results are told together, but never behind a call that goes on: a thread that does not know
/// yet that the next call blocks has told what it had, or the loop looks by itself.
#[test]
fn a_call_that_blocks_keeps_no_result_back() {
    let (daemon, release) = daemon();
    let mut peer = Peer::of(&daemon);
    for round in 0..3 {
        let first = 1000 + round * 10;
        let line = |id, tool| call(id, tool, "{}", "") + "\n";
        let all = [
            line(first, "quick"),
            line(first + 1, "gate"),
            line(first + 2, "quick"),
            line(first + 3, "gate"),
            line(first + 4, "quick"),
        ];
        peer.try_send(all.concat().as_bytes()).expect("it reads");
        for quick in [0, 2, 4] {
            assert_eq!(peer.text(first + quick), "done");
        }
        for gate in [1, 3] {
            assert!(!peer.has_answer(first + gate), "nobody has opened it");
        }
        release.send(()).expect("it waits");
        release.send(()).expect("it waits");
        assert_eq!(peer.text(first + 1), "open");
        assert_eq!(peer.text(first + 3), "open");
    }
}

#[test]
fn a_panic_is_one_answer() {
    let (daemon, _release) = daemon();
    let mut peer = Peer::of(&daemon);
    let ids: Vec<u64> =
        (0..100).map(|n| peer.call(if n % 10 == 0 { "panics" } else { "quick" }, "{}")).collect();
    for (n, id) in ids.into_iter().enumerate() {
        if n % 10 == 0 {
            assert_eq!(peer.answer(id)["error"]["code"], -32603);
        } else {
            assert_eq!(peer.text(id), "done");
        }
    }
}

/// More than may run at once, in one piece: they make room for each other.
#[test]
fn inline_calls_all_run() {
    let (daemon, _release) = daemon();
    let mut peer = Peer::of(&daemon);
    let lines: String = (1000..1200).map(|id| call(id, "inline", "{}", "") + "\n").collect();
    peer.try_send(lines.as_bytes()).expect("it reads");
    for id in 1000..1200 {
        assert_eq!(peer.text(id), "here");
    }
    // TSK-33: progress comes before its answer, so it has come.
    for id in 1000..1200 {
        let progress = peer.note("notifications/progress");
        assert_eq!(progress["params"]["progressToken"], id);
        assert_eq!(progress["params"]["progress"], 1.0);
    }
}

#[test]
fn an_inline_tool_does_not_wait() {
    let (daemon, _release) = daemon();
    let mut peer = Peer::of(&daemon);
    let id = peer.call("asks inline", "{}");
    assert_eq!(peer.text(id), "not asked");
}
