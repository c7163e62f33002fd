//! The end of a daemon: by one signal, by two, by SIGKILL; no process is left in any case.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ceased_tests::daemon::{
    Config, Daemon, Home, Peer, Signal, assert_none_left, carriers, marker, wait_until,
    wait_until_no_group_of,
};
use serde_json::Value;

const SHUTTING_DOWN: i64 = -31005;
/// A tool that ignores SIGTERM and reports its start.
const DEAF: &str = r#"
[[tool]]
name = "deaf"
command = ["sh", "-c", 'trap "" TERM; echo 1 >&3; while :; do sleep "$1"; done', "deaf", "{t}"]
task_support = "optional"
kill_grace = "10m"
[tool.input.t]
type = "string"
required = true
"#;

fn with(mark: &str) -> String {
    format!(r#"{{"t":"{mark}"}}"#)
}

fn task(id: &str) -> String {
    format!(r#"{{"taskId":"{id}"}}"#)
}

/// A call of `tool` that has started.
fn begun(peer: &mut Peer, tool: &str, mark: &str) -> u64 {
    let id = peer.call(tool, &with(mark));
    peer.wait_started(&[id]);
    id
}

/// Tiers to test; control groups only if the machine has them.
pub(crate) fn tiers() -> Vec<&'static str> {
    let home = Home::new();
    home.configure(&Config::default());
    let tried = home.command(&["stdio"]).env("CEASED_CONTAINMENT", "cgroup").output();
    let has_cgroup = tried.expect("the binary runs").status.success();
    if !has_cgroup {
        let is_must = std::env::var_os("CEASED_TEST_NEEDS_CGROUP").is_some();
        assert!(!is_must, "control groups are required");
        eprintln!("SKIPPED: no control groups here");
    }
    if has_cgroup { vec!["cgroup", "guard"] } else { vec!["guard"] }
}

fn start_with(tier: &str, config: &Config<'_>) -> Daemon {
    let home = Home::new();
    home.configure(config);
    let mut command = home.command(&["serve"]);
    command.env("CEASED_CONTAINMENT", tier);
    Daemon::start_with(home, command)
}

/// STOP-01: every request is answered, every job is stopped, exit code 0, in time.
#[test]
fn sigterm_answers_and_stops_everything() {
    for tier in tiers() {
        for signal in [Signal::TERM, Signal::INT] {
            let config =
                Config { daemon: "shutdown_grace = \"20s\"", tcp: true, ..Config::default() };
            let mut daemon = start_with(tier, &config);
            let (plain, durable) = (marker(), marker());
            let mut peer = daemon.peer();
            let mut calls =
                vec![begun(&mut peer, "family", &plain), peer.call("hang", &with(&plain))];
            calls.extend((0..3).map(|_| peer.call("sleep", r#"{"ms":86400000}"#)));
            let mut other = daemon.tcp_peer();
            let theirs = begun(&mut other, "family", &plain);
            let id = peer.create_task("family", &with(&durable));
            wait_until("the task runs", || carriers(&durable).len() >= 3);
            calls.push(peer.request("tasks/result", &task(&id)));
            peer.result("ping", "{}");
            let idle = daemon.peer();

            let start = Instant::now();
            daemon.signal(signal);
            for call in calls {
                assert_eq!(peer.answer(call)["error"]["code"], SHUTTING_DOWN);
            }
            assert_eq!(other.answer(theirs)["error"]["code"], SHUTTING_DOWN);
            for mut peer in [peer, other, idle] {
                assert!(peer.rest().iter().all(|message| message["id"].is_null()));
            }
            assert_eq!(daemon.wait().code(), Some(0), "{tier}");
            // Process trees are killed after 200 ms; the rest is a slow machine.
            assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
            assert_none_left(&plain);
            assert_none_left(&durable);
            assert!(!daemon.socket().exists(), "the socket file is left");
            wait_until_no_group_of(daemon.pid());
        }
    }
}

/// RPC-03: answers are sent to a slow reader as long as the shutdown's time is not over.
#[test]
fn slow_reader_gets_every_answer() {
    let config = Config { daemon: "shutdown_grace = \"60s\"", ..Config::default() };
    let mut daemon = Daemon::start(&config);
    let mut peer = daemon.peer();
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(50_000));
    let calls: Vec<u64> = (0..40).map(|_| peer.call("echo", &text)).collect();
    let answered = |status: &Value| status["counters"]["answers"].as_u64() >= Some(41);
    wait_until("all requests are answered", || answered(&daemon.status()));
    daemon.signal(Signal::TERM);
    for call in calls {
        // Slow reads: more than a second in total.
        std::thread::sleep(Duration::from_millis(40));
        assert!(peer.answer(call)["result"].is_object());
    }
    assert_eq!(daemon.wait().code(), Some(0));
}

/// During a shutdown no job starts.
#[test]
fn no_job_starts_during_a_shutdown() {
    let config = Config { daemon: "shutdown_grace = \"8s\"", tools: DEAF, ..Config::default() };
    let mut daemon = Daemon::start(&config);
    let (mark, late) = (marker(), marker());
    let mut peer = daemon.peer();
    let deaf = begun(&mut peer, "deaf", &mark);
    daemon.signal(Signal::TERM);
    assert_eq!(peer.answer(deaf)["error"]["code"], SHUTTING_DOWN);
    let call = peer.call("hang", &with(&late));
    assert_eq!(peer.answer(call)["error"]["code"], SHUTTING_DOWN);
    assert!(UnixStream::connect(daemon.socket()).is_err(), "a new peer was accepted");
    // A tool that ignores SIGTERM is killed within the shutdown's time, whatever its kill_grace.
    let start = Instant::now();
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    assert_none_left(&mark);
    assert_none_left(&late);
}

/// A second signal ends the daemon at once, and no process survives.
#[test]
fn second_signal_ends_at_once() {
    for tier in tiers() {
        let config =
            Config { daemon: "shutdown_grace = \"10m\"", tools: DEAF, ..Config::default() };
        let mut daemon = start_with(tier, &config);
        let mark = marker();
        let mut peer = daemon.peer();
        let deaf = begun(&mut peer, "deaf", &mark);
        daemon.signal(Signal::TERM);
        assert_eq!(peer.answer(deaf)["error"]["code"], SHUTTING_DOWN);
        assert!(!carriers(&mark).is_empty(), "the tool obeyed SIGTERM");
        daemon.signal(Signal::TERM);
        // The kill_grace would take ten minutes.
        assert_eq!(daemon.wait().code(), Some(0), "{tier}");
        assert_none_left(&mark);
        assert!(!daemon.socket().exists(), "the socket file is left");
        wait_until_no_group_of(daemon.pid());
    }
}

/// Peers that do not read cannot delay a shutdown.
#[test]
fn peer_that_does_not_read_does_not_delay_shutdown() {
    let mut daemon = Daemon::start(&Config::default());
    let mut peer = daemon.peer();
    let text = "x".repeat(1 << 20);
    for _ in 0..4 {
        peer.call("echo", &format!(r#"{{"text":"{text}"}}"#));
    }
    wait_until("unsent answers wait", || daemon.status()["counters"]["answers"].as_u64() > Some(4));
    let start = Instant::now();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
}

/// STOP-01 for a killed daemon: its tools end too.
#[test]
fn tools_end_with_a_killed_daemon() {
    for tier in tiers() {
        let daemon = start_with(tier, &Config { tools: DEAF, ..Config::default() });
        let (plain, durable, deaf) = (marker(), marker(), marker());
        let mut peer = daemon.peer();
        begun(&mut peer, "family", &plain);
        begun(&mut peer, "deaf", &deaf);
        peer.create_task("family", &with(&durable));
        wait_until("all processes of the task run", || carriers(&durable).len() >= 5);
        let home = daemon.kill();
        for mark in [plain, durable, deaf] {
            wait_until("no process survives the daemon", || carriers(&mark).is_empty());
        }
        assert!(peer.rest().iter().all(|message| message["id"].is_null()));
        // The next daemon replaces the stale socket.
        assert!(home.socket().exists(), "{tier}");
        let mut next = Daemon::start_in(home);
        assert_eq!(next.status()["connections"], 1);
        next.signal(Signal::TERM);
        assert_eq!(next.wait().code(), Some(0));
    }
}

/// A daemon that was stopped for a while continues.
#[test]
fn stopped_daemon_continues() {
    let daemon = Daemon::start(&Config::default());
    let mut peer = daemon.peer();
    daemon.signal(Signal::STOP);
    let sleep = peer.call("sleep", r#"{"ms":10}"#);
    assert!(peer.is_silent());
    daemon.signal(Signal::CONT);
    assert_eq!(peer.answer(sleep)["result"]["content"][0]["text"], "slept 10 ms");
}

/// A standard error without a reader does not delay shutdown.
#[test]
fn closed_standard_error_does_not_delay_shutdown() {
    let home = Home::new();
    home.configure(&Config::default());
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = home.command(&["serve"]).stderr(writer).spawn().unwrap();
    wait_until("it listens", || UnixStream::connect(home.socket()).is_ok());
    drop(reader);
    let stream = UnixStream::connect(home.socket()).unwrap();
    let mut peer = Peer::of_socket(stream.into());
    peer.initialize();
    for _ in 0..50 {
        let sleep = peer.call("sleep", r#"{"ms":86400000}"#);
        // Causes a log line.
        peer.cancel(sleep);
    }
    assert_eq!(peer.result("ping", "{}"), serde_json::json!({}));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    wait_until("it ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// An unknown containment is refused with the names of the known ones.
#[test]
fn unknown_containment_is_refused() {
    let home = Home::new();
    home.configure(&Config::default());
    let output = home
        .command(&["serve"])
        .env("CEASED_CONTAINMENT", "hope")
        .stderr(std::process::Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("\"hope\"") && said.contains("cgroup, guard or groups"), "{said}");
}
