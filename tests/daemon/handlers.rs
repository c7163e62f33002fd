//! Handlers of an embedding program: on worker threads, which share the calls and tell together.

use std::borrow::Cow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ceased::{CancelToken, Daemon, DaemonHandle, HandlerTool, Job, StartError, Tool, ToolResult};
use ceased_core::tool::ArgumentCheck;
use ceased_tests::daemon::Peer;
use ceased_tests::daemon::peer::{call, cancel};

/// A tool that is quick, one that waits until the test lets it go on, and one that panics.
fn daemon() -> (DaemonHandle, Sender<()>) {
    let (release, gate): (Sender<()>, Receiver<()>) = channel();
    let gate = Mutex::new(gate);
    let tools = [
        HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done"))),
        HandlerTool::new("gate", move |_: &Job| {
            let _ = gate.lock().expect("nobody panics with it").recv();
            Ok(ToolResult::text("open"))
        }),
        HandlerTool::new("panics", |_: &Job| panic!("as the test wants it")),
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

/// What a program gets wrong about its tools it is told before anybody can call them.
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
    let built = |name| tool(name).build().expect("a good tool");
    let why = refused([built("same"), built("same")]);
    assert_eq!(why, r#"the tool "same": there is another of this name: rename one of them"#);
    let why = refused([built("good"), Tool { payload: None, ..built("empty") }]);
    assert_eq!(why, r#"the tool "empty": it has no handler: create it with `HandlerTool`"#);
}

/// What panics, and panics again when it is dropped, as often as it likes.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Self);
    }
}

/// RPC-03: what a panic carries is the handler's as well. It costs neither the answer nor a worker.
#[test]
fn a_panic_with_something_that_panics_is_one_answer() {
    let bomb = HandlerTool::new("bomb", |_: &Job| std::panic::panic_any(Bomb));
    let quick = HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done")));
    let daemon = [bomb, quick]
        .into_iter()
        .fold(Daemon::new(), |daemon, tool| daemon.tool(tool.build().expect("a good tool")))
        .start()
        .expect("it starts");
    let mut peer = Peer::of(&daemon);
    for _ in 0..3 {
        let id = peer.call("bomb", "{}");
        assert_eq!(peer.answer(id)["error"]["code"], -32603);
        let id = peer.call("quick", "{}");
        assert_eq!(peer.text(id), "done");
    }
    daemon.shut_down().expect("the loop is as it was");
}

/// Connections that have something to say when the loop looks again.
const CROWD: u64 = 60;

/// A check of arguments that runs on the loop's own thread.
struct OnTheLoop<F>(F);

impl<F: Fn(&str) + Send + Sync> ArgumentCheck for OnTheLoop<F> {
    fn check<'a>(&self, arguments: &'a str) -> Result<Cow<'a, str>, String> {
        (self.0)(arguments);
        Ok(Cow::Borrowed(arguments))
    }
}

/// A tool whose arguments are checked by `check`.
fn checked(name: &str, text: &'static str, check: impl Fn(&str) + Send + Sync + 'static) -> Tool {
    let tool = HandlerTool::new(name, move |_: &Job| Ok(ToolResult::text(text)));
    let tool = tool.input_schema(r#"{"type":"object"}"#).build().expect("a good tool");
    Tool { check: Some(Box::new(OnTheLoop(check))), ..tool }
}

/// A loop that is held up until the test lets it go on, and what it sees with each call then.
struct Held {
    daemon: DaemonHandle,
    hold: Peer,
    release: Sender<()>,
    /// The token of the call that waits for its cancel.
    token: CancelToken,
    waiter: Peer,
    /// Of every call in turn: its number, and whether that token was cancelled then.
    looks: Receiver<(u64, bool)>,
}

impl Held {
    /// With a crowd of peers that say nothing yet.
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
            let _ = gate.lock().expect("nobody panics with it").recv();
        });
        let looks_at = checked("looks", "looked", move |arguments| {
            let token = said.lock().expect("nobody panics with it");
            let is_cancelled = token.as_ref().is_some_and(CancelToken::is_cancelled);
            let number = arguments.trim_matches(|c: char| !c.is_ascii_digit());
            let _ = say_look.send((number.parse().expect("a number"), is_cancelled));
        });
        let daemon = [waits.build().expect("a good tool"), holds, looks_at]
            .into_iter()
            .fold(Daemon::new(), Daemon::tool)
            .start()
            .expect("it starts");
        let crowd = (0..CROWD).map(|_| Peer::of(&daemon)).collect();
        let (mut waiter, mut hold) = (Peer::of(&daemon), Peer::of(&daemon));
        waiter.send(&call(7000, "waits", "{}", ""));
        let given = tokens.recv().expect("it runs");
        *token.lock().expect("nobody panics with it") = Some(given.clone());
        hold.send(&call(7001, "holds", "{}", ""));
        held.recv().expect("it runs");
        (Self { daemon, hold, release, token: given, waiter, looks }, crowd)
    }

    /// Lets the loop go on.
    fn release(&mut self) {
        self.release.send(()).expect("it waits");
        assert_eq!(self.hold.text(7001), "goes on");
    }
}

fn look(number: u64) -> String {
    call(8000, "looks", &format!("{{\"number\":{number}}}"), "")
}

/// CAN-06: however many connections have said something before it, a cancel is carried out first.
#[test]
fn a_cancel_comes_before_the_calls_of_others() {
    let (mut held, mut crowd) = Held::new();
    for (number, peer) in (0..).zip(&mut crowd) {
        peer.send(&look(number));
    }
    held.waiter.send(&cancel(7000));
    held.release();
    let looks: Vec<(u64, bool)> = (0..CROWD).map(|_| held.looks.recv().expect("all")).collect();
    assert!(looks.iter().all(|(_, is_cancelled)| *is_cancelled), "{looks:?}");
    held.daemon.shut_down().expect("in order");
}

/// And who cancels all the time does not come before the others all the time.
#[test]
fn cancels_without_end_starve_nobody() {
    let (mut held, mut crowd) = Held::new();
    let cancels = (cancel(9999) + "\n").repeat(500);
    for (number, peer) in (0..).zip(&mut crowd) {
        if number > 0 {
            peer.try_send(cancels.as_bytes()).expect("there is room");
        }
        peer.send(&look(number));
    }
    held.release();
    let looks: Vec<u64> = (0..CROWD).map(|_| held.looks.recv().expect("all").0).collect();
    let place = looks.iter().position(|number| *number == 0).expect("it ran");
    assert!(place < looks.len() / 2, "{looks:?}");
    assert!(!held.token.is_cancelled());
    held.daemon.shut_down().expect("in order");
}
