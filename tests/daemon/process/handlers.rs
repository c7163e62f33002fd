//! Handlers of an embedding program on worker threads, which take calls and report results in
//! batches.

use std::borrow::Cow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ceased::{CancelToken, Daemon, DaemonHandle, HandlerTool, Job, StartError, Tool, ToolResult};
use ceased_core::tool::ArgumentCheck;
use ceased_tests::daemon::Peer;
use ceased_tests::daemon::peer::{call, cancel};

/// A daemon with a fast tool, one that waits for the test, and one that panics.
fn daemon() -> (DaemonHandle, Sender<()>) {
    let (release, gate): (Sender<()>, Receiver<()>) = channel();
    let gate = Mutex::new(gate);
    let tools = [
        HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done"))),
        HandlerTool::new("gate", move |_: &Job| {
            let _ = gate.lock().expect("no thread panics with the lock").recv();
            Ok(ToolResult::text("open"))
        }),
        HandlerTool::new("panics", |_: &Job| panic!("panic of the test")),
    ];
    let daemon = tools
        .into_iter()
        .fold(Daemon::new(), |daemon, tool| daemon.tool(tool.build().expect("a valid tool")));
    (daemon.start().expect("it starts"), release)
}

/// Results are reported in batches, but never delayed by a blocking call: the thread reports before
/// it, or the loop checks by itself.
#[test]
fn blocking_call_delays_no_result() {
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
            assert!(!peer.has_answer(first + gate), "the call is still blocked");
        }
        release.send(()).expect("it waits");
        release.send(()).expect("it waits");
        assert_eq!(peer.text(first + 1), "open");
        assert_eq!(peer.text(first + 3), "open");
    }
}

#[test]
fn panic_is_answered_once() {
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

/// Invalid tools are refused before the daemon starts.
#[test]
fn bad_tools_are_refused() {
    let tool = |name: &str| HandlerTool::new(name, |_: &Job| Ok(ToolResult::text("done")));
    for (bad, why) in [
        (tool(""), "a tool name consists of 1 to 128 of A-Z a-z 0-9 _ - ."),
        (tool("two words"), "a tool name consists of 1 to 128 of A-Z a-z 0-9 _ - ."),
        (tool("x").input_schema("nope"), "schema: "),
    ] {
        let refused = bad.build().map(|tool| tool.timeout).expect_err(why);
        assert!(refused.why.starts_with(why), "{refused}");
    }
    let refused = |tools: [Tool; 2]| {
        let daemon = tools.into_iter().fold(Daemon::new(), Daemon::tool);
        match daemon.build().map(drop) {
            Err(StartError::Tool(bad)) => bad.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let built = |name| tool(name).build().expect("a valid tool");
    let why = refused([built("same"), built("same")]);
    assert_eq!(why, r#"the tool "same": there is another of this name: rename one of them"#);
    let why = refused([built("good"), Tool { payload: None, ..built("empty") }]);
    let want =
        r#"the tool "empty": it has no handler: create it with `HandlerTool` or `CommandTool`"#;
    assert_eq!(why, want);
}

/// A panic payload that panics again when it is dropped.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        std::panic::panic_any(Self);
    }
}

/// RPC-03: a panic payload may panic too; this costs neither the answer nor the worker.
#[test]
fn panic_with_a_panicking_payload_is_answered_once() {
    let bomb = HandlerTool::new("bomb", |_: &Job| std::panic::panic_any(PanicsOnDrop));
    let quick = HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done")));
    let daemon = [bomb, quick]
        .into_iter()
        .fold(Daemon::new(), |daemon, tool| daemon.tool(tool.build().expect("a valid tool")))
        .start()
        .expect("it starts");
    let mut peer = Peer::of(&daemon);
    for _ in 0..3 {
        let id = peer.call("bomb", "{}");
        assert_eq!(peer.answer(id)["error"]["code"], -32603);
        let id = peer.call("quick", "{}");
        assert_eq!(peer.text(id), "done");
    }
    daemon.shut_down().expect("the loop still runs");
}

/// Connections with pending messages at the next turn.
const CROWD: u64 = 60;

/// A check of arguments that runs on the loop's thread.
struct OnTheLoop<F>(F);

impl<F: Fn(&str) + Send + Sync> ArgumentCheck for OnTheLoop<F> {
    fn check<'a>(&self, arguments: &'a str) -> Result<Cow<'a, str>, String> {
        (self.0)(arguments);
        Ok(Cow::Borrowed(arguments))
    }
}

/// A tool with this check of its arguments.
fn checked(name: &str, text: &'static str, check: impl Fn(&str) + Send + Sync + 'static) -> Tool {
    let tool = HandlerTool::new(name, move |_: &Job| Ok(ToolResult::text(text)));
    let tool = tool.input_schema(r#"{"type":"object"}"#).build().expect("a valid tool");
    Tool { check: Some(Box::new(OnTheLoop(check))), ..tool }
}

/// A loop blocked until the test releases it, and its observations at each call.
struct Held {
    daemon: DaemonHandle,
    hold: Peer,
    release: Sender<()>,
    waiter: Peer,
    /// For every call in order: its number, and whether the token of the call of `waiter` was
    /// cancelled then.
    looks: Receiver<(u64, bool)>,
}

impl Held {
    /// Starts the daemon with many peers that are busy while the waiter is not.
    fn new() -> (Self, Vec<Peer>) {
        let (say_token, tokens) = channel();
        let (say_look, looks) = channel();
        let (say_held, held) = channel();
        let (release, gate) = channel();
        let token = Arc::new(Mutex::new(None::<CancelToken>));
        let (said, gate) = (Arc::clone(&token), Mutex::new(gate));
        let waits = HandlerTool::new("waits", move |job: &Job| {
            let _ = say_token.send(job.token().clone());
            job.token().sleep(Duration::MAX)?;
            Ok(ToolResult::text("not cancelled"))
        });
        let holds = checked("holds", "goes on", move |_| {
            let _ = say_held.send(());
            let _ = gate.lock().expect("no thread panics with the lock").recv();
        });
        let looks_at = checked("looks", "looked", move |arguments| {
            let token = said.lock().expect("no thread panics with the lock");
            let is_cancelled = token.as_ref().is_some_and(CancelToken::is_cancelled);
            let number = arguments.trim_matches(|c: char| !c.is_ascii_digit());
            let _ = say_look.send((number.parse().expect("a number"), is_cancelled));
        });
        let daemon = [waits.build().expect("a valid tool"), holds, looks_at]
            .into_iter()
            .fold(Daemon::new(), Daemon::tool)
            .start()
            .expect("it starts");
        let mut waiter = Peer::of(&daemon);
        waiter.send(&call(7000, "waits", "{}", ""));
        let given = tokens.recv().expect("it runs");
        *token.lock().expect("no thread panics with the lock") = Some(given);
        let mut crowd: Vec<Peer> = (0..CROWD).map(|_| Peer::of(&daemon)).collect();
        for _ in 0..10 {
            for peer in &mut crowd {
                let ping = peer.request("ping", "{}");
                peer.answer(ping);
            }
        }
        let mut hold = Peer::of(&daemon);
        hold.send(&call(7001, "holds", "{}", ""));
        held.recv().expect("it runs");
        (Self { daemon, hold, release, waiter, looks }, crowd)
    }

    /// Releases the loop.
    fn release(&mut self) {
        self.release.send(()).expect("it waits");
        assert_eq!(self.hold.text(7001), "goes on");
    }
}

/// Calls of `looks` with consecutive numbers.
fn looks(count: u64) -> String {
    (0..count)
        .map(|number| call(8000 + number, "looks", &format!("{{\"number\":{number}}}"), "") + "\n")
        .collect()
}

/// CAN-06: the cancel of a quiet connection waits for one turn of the others' messages at most.
#[test]
fn cancel_of_a_quiet_connection_waits_for_one_turn() {
    const EACH: u64 = 60;
    let (mut held, mut crowd) = Held::new();
    for peer in &mut crowd {
        peer.try_send(looks(EACH).as_bytes()).expect("the socket has space");
    }
    held.waiter.send(&cancel(7000));
    held.release();
    let all = CROWD * EACH;
    let before = (0..all).filter(|_| !held.looks.recv().expect("all").1).count() as u64;
    assert!(before < all / 2, "{before} of {all} messages came before the cancel");
    held.daemon.shut_down().expect("in order");
}
