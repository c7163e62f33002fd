//! Handlers of an embedding program: on worker threads, which share the calls and tell together,
//! and inline, on the loop itself.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ceased::{
    AskError, CancelToken, Daemon, HandlerTool, Job, Limits, Running, StartError, Tool, ToolResult,
};
use ceased_tests::daemon::Peer;
use ceased_tests::daemon::peer::{call, cancel};

/// A tool that is quick, one that waits until the test lets it go on, and two inline ones.
fn daemon() -> (Running, Sender<()>) {
    daemon_of(Limits::default())
}

fn daemon_of(limits: Limits) -> (Running, Sender<()>) {
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
        HandlerTool::new("asks_inline", |job: &Job| {
            let asked = job.ask("roots/list", &serde_json::json!({}));
            assert_eq!(asked, Err(AskError::Inline));
            Ok(ToolResult::text("not asked"))
        })
        .inline(),
    ];
    let daemon = tools
        .into_iter()
        .fold(Daemon::new(), |daemon, tool| daemon.tool(tool.build().expect("a good tool")));
    let daemon = daemon.limits(limits);
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
        (tool(""), "a tool's name takes 1 to 128 of A-Z a-z 0-9 _ - ."),
        (tool("two words"), "a tool's name takes 1 to 128 of A-Z a-z 0-9 _ - ."),
        (tool("x").input_schema("nope"), "schema: "),
        (tool("x").timeout(Duration::from_secs(1)).inline(), "nothing ends a call that runs on"),
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
    assert_eq!(why, r#"the tool "empty": nothing is behind it: make it with `HandlerTool`"#);
}

/// What panics, and panics again when it is dropped, as often as it likes.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Self);
    }
}

/// RPC-03: what a panic carries is the handler's as well. It costs neither the answer nor a worker,
/// and an inline tool not the loop.
#[test]
fn a_panic_with_something_that_panics_is_one_answer() {
    let bombs = ["bomb", "inline_bomb"].map(|name| {
        let tool = HandlerTool::new(name, |_: &Job| std::panic::panic_any(Bomb));
        if name == "bomb" { tool } else { tool.inline() }
    });
    let quick = HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done")));
    let daemon = bombs
        .into_iter()
        .chain([quick])
        .fold(Daemon::new(), |daemon, tool| daemon.tool(tool.build().expect("a good tool")))
        .start()
        .expect("it starts");
    let mut peer = Peer::of(&daemon);
    for _ in 0..3 {
        for name in ["bomb", "inline_bomb"] {
            let id = peer.call(name, "{}");
            assert_eq!(peer.answer(id)["error"]["code"], -32603, "{name}");
        }
        let id = peer.call("quick", "{}");
        assert_eq!(peer.text(id), "done");
    }
    daemon.shut_down().expect("the loop is as it was");
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

/// CAN-08: an inline call that is cancelled in the same breath neither runs nor is answered.
#[test]
fn a_cancel_beats_an_inline_call() {
    let (say, ran) = channel();
    let counts = HandlerTool::new("counts", move |job: &Job| {
        let _ = say.send(job.id());
        Ok(ToolResult::text("ran"))
    });
    let daemon = Daemon::new().tool(counts.inline().build().expect("a good tool")).start();
    let daemon = daemon.expect("it starts");
    let mut peer = Peer::of(&daemon);
    let lines = [call(2000, "counts", "{}", ""), cancel(2000), call(2001, "counts", "{}", "")];
    peer.try_send((lines.join("\n") + "\n").as_bytes()).expect("it reads");
    assert_eq!(peer.text(2001), "ran");
    assert!(!peer.has_answer(2000), "it was cancelled");
    assert_eq!(ran.try_iter().count(), 1, "it ran although it was cancelled");
}

/// The loop is nobody's worker: all of them may be busy.
#[test]
fn an_inline_call_takes_up_no_worker() {
    let (daemon, release) = daemon_of(Limits { running_max: 1, ..Limits::default() });
    let mut peer = Peer::of(&daemon);
    let holds = peer.call("gate", "{}");
    let queued = peer.call("quick", "{}");
    let inline = peer.call("inline", "{}");
    assert_eq!(peer.text(inline), "here");
    assert!(!peer.has_answer(holds) && !peer.has_answer(queued), "there is one worker");
    release.send(()).expect("it waits");
    assert_eq!((peer.text(holds), peer.text(queued)), ("open".into(), "done".into()));
}

#[test]
fn an_inline_tool_does_not_wait() {
    let (daemon, _release) = daemon();
    let mut peer = Peer::of(&daemon);
    let id = peer.call("asks_inline", "{}");
    assert_eq!(peer.text(id), "not asked");
}

/// Connections that have something to say when the loop looks again.
const CROWD: u64 = 60;

/// A loop that is held up until the test lets it go on, and what inline tools see then.
struct Held {
    daemon: Running,
    hold: Peer,
    release: Sender<()>,
    /// The token of the call that waits for its cancel.
    token: CancelToken,
    waiter: Peer,
    /// Of every inline call in turn: its number, and whether that token was cancelled then.
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
        let holds = HandlerTool::new("holds", move |_: &Job| {
            let _ = say_held.send(());
            let _ = gate.lock().expect("nobody panics with it").recv();
            Ok(ToolResult::text("goes on"))
        });
        let looks_at = HandlerTool::new("looks", move |job: &Job| {
            let token = said.lock().expect("nobody panics with it");
            let is_cancelled = token.as_ref().is_some_and(CancelToken::is_cancelled);
            let number = job.arguments_json().trim_matches(|c: char| !c.is_ascii_digit());
            let _ = say_look.send((number.parse().expect("a number"), is_cancelled));
            Ok(ToolResult::text("looked"))
        })
        .input_schema(r#"{"type":"object"}"#);
        let daemon = [waits, holds.inline(), looks_at.inline()]
            .into_iter()
            .fold(Daemon::new(), |daemon, tool| daemon.tool(tool.build().expect("a good tool")))
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
