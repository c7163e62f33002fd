//! Limits and time limits: the refused requests, the texts of the errors, and the unaffected
//! requests.

mod backpressure;
mod connections;
pub(crate) mod fairness;
mod flood;
mod held_bytes;
mod identity_bounds;
mod idle_memory;
mod modern_bounds;
mod tool_bounds;

use std::collections::BTreeMap;
use std::process::Command;

use ceased_tests::daemon::{
    Config, Daemon, Home, Peer, assert_none_left, carriers, marker, wait_until,
};
use serde_json::{Value, json};

const LIMIT_REACHED: i64 = -31003;
const TIMED_OUT: i64 = -31004;
const INTERNAL_ERROR: i64 = -32603;

fn with(mark: &str) -> String {
    format!(r#"{{"t":"{mark}"}}"#)
}

fn task(id: &str) -> String {
    format!(r#"{{"taskId":"{id}"}}"#)
}

fn limited(limits: &str) -> Daemon {
    Daemon::start(&Config { limits, ..Config::default() })
}

/// TSK-36: the error names the limit, in `data` for programs and in the message for people.
fn assert_refused(answer: &Value, limit: &str, max: usize) {
    assert_eq!(answer["error"]["code"], LIMIT_REACHED, "{answer}");
    assert_eq!(answer["error"]["data"], json!({"limit": limit, "max": max}));
    let message = answer["error"]["message"].as_str().expect("a message");
    assert!(message.contains(&max.to_string()), "{message}");
}

#[test]
fn connections_are_limited() {
    let config = Config { limits: "connections = 3", tcp: true, ..Config::default() };
    let daemon = Daemon::start(&config);
    let mut peers: Vec<Peer> = (0..3).map(|_| daemon.tcp_peer()).collect();
    for _ in 0..3 {
        let mut late = daemon.connect_tcp();
        // The connection may be closed already.
        let _ = late.try_send(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
        let said = late.rest();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_refused(&said[0], "connections", 3);
    }
    for peer in &mut peers {
        peer.result("ping", "{}");
    }
    peers.pop();
    // The daemon's own user can still connect.
    wait_until("the connection is closed", || daemon.status()["connections"] == 3);
    // The connection of the status request closes a moment later.
    wait_until("a further peer is connected", || {
        let mut next = daemon.connect_tcp();
        let _ = next.try_send(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
        next.message().is_some_and(|message| message["result"].is_object())
    });
}

/// The command line reports a full daemon, not a missing one.
#[test]
fn command_line_reports_a_full_daemon() {
    let config = Config { limits: "connections = 1", tcp: true, ..Config::default() };
    let daemon = Daemon::start(&config);
    let _first = daemon.tcp_peer();
    let address = daemon.tcp_address().to_string();
    for args in [&["status"][..], &["call", "echo", "text=x"]] {
        let ran = daemon.home.run(&[args, &["--tcp", &address]].concat());
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.starts_with("ceased: access denied by tcp:"), "{ran:?}");
        assert!(ran.err.contains("-31003") && ran.out.is_empty(), "{ran:?}");
        // The daemon's own user is an operator and can still connect.
        let ran = daemon.home.run(args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

#[test]
fn requests_in_flight_are_limited_per_connection() {
    let daemon = limited("inflight_per_connection = 2");
    let mut peer = daemon.peer();
    // A task does not count after its creation is answered. A request that waits for one does.
    let id = peer.create_task("sleep", r#"{"ms":86400000}"#);
    let calls = [peer.call("sleep", r#"{"ms":86400000}"#), peer.call("hang", &with(&marker()))];
    let refused = peer.call("echo", r#"{"text":"x"}"#);
    assert_refused(&peer.answer(refused), "inflight_per_connection", 2);
    let refused = peer.request("tasks/result", &task(&id));
    assert_refused(&peer.answer(refused), "inflight_per_connection", 2);
    // Requests without a place are still served.
    peer.result("ping", "{}");
    peer.result("tools/list", "{}");
    // Each connection has its own limit.
    let mut other = daemon.peer();
    let echo = other.call("echo", r#"{"text":"x"}"#);
    assert!(other.answer(echo)["result"].is_object());
    peer.cancel(calls[0]);
    let echo = peer.call("echo", r#"{"text":"x"}"#);
    assert!(peer.answer(echo)["result"].is_object());
}

#[test]
fn workers_and_queue_are_limited() {
    let config = Config { daemon: "workers = 2\nqueue = 3", ..Config::default() };
    let daemon = Daemon::start(&config);
    let mark = marker();
    let mut peer = daemon.peer();
    let running: Vec<u64> = (0..2).map(|_| peer.call("hang", &with(&mark))).collect();
    wait_until("two run", || carriers(&mark).len() == 2);
    let queued: Vec<u64> = (0..2).map(|_| peer.call("hang", &with(&mark))).collect();
    let id = peer.create_task("hang", &with(&mark));
    let view = peer.result("tasks/get", &task(&id));
    assert_eq!(
        (view["status"].as_str(), view["statusMessage"].as_str()),
        (Some("working"), Some("waiting, 2 ahead"))
    );
    let refused = peer.call("echo", r#"{"text":"x"}"#);
    assert_refused(&peer.answer(refused), "queue", 3);
    let status = peer.result("ceased/status", "{}");
    assert_eq!((&status["running"], &status["queued"]), (&json!(2), &json!(3)));
    assert_eq!(carriers(&mark).len(), 2, "more jobs run than allowed");
    // A queued call is cancelled without a run; its place is free.
    peer.cancel(queued[0]);
    let status = peer.result("ceased/status", "{}");
    assert_eq!((&status["running"], &status["queued"]), (&json!(2), &json!(2)));
    // Workers of ended jobs go to queued jobs in order.
    peer.cancel(running[0]);
    peer.cancel(running[1]);
    wait_until("the task runs", || {
        let status = daemon.status();
        status["running"] == 2 && status["queued"] == 0
    });
    assert!(peer.result("tasks/get", &task(&id))["statusMessage"].is_null());
    peer.cancel(queued[1]);
    peer.result("tasks/cancel", &task(&id));
    drop(peer);
    daemon.wait_idle();
    assert_none_left(&mark);
}

#[test]
fn tasks_of_one_identity_are_limited() {
    let daemon = limited("tasks_per_identity = 2\nstored_tasks_per_identity = 3");
    let mut peer = daemon.peer();
    let sleep = r#"{"name":"sleep","arguments":{"ms":86400000},"task":{}}"#;
    let tasks: Vec<String> =
        (0..2).map(|_| peer.create_task("sleep", r#"{"ms":86400000}"#)).collect();
    // The limit belongs to the user, not to the connection.
    let mut other = daemon.peer();
    for peer in [&mut peer, &mut other] {
        let refused = peer.request("tools/call", sleep);
        assert_refused(&peer.answer(refused), "tasks_per_identity", 2);
    }
    for id in &tasks {
        peer.result("tasks/cancel", &task(id));
    }
    let third = peer.create_task("sleep", r#"{"ms":0}"#);
    peer.result("tasks/result", &task(&third));
    let refused = peer.request("tools/call", sleep);
    assert_refused(&peer.answer(refused), "stored_tasks_per_identity", 3);
    // Plain calls need no record, and stored results remain available.
    let echo = peer.call("echo", r#"{"text":"x"}"#);
    assert!(peer.answer(echo)["result"].is_object());
    for id in tasks.iter().chain([&third]) {
        assert_eq!(peer.result("tasks/get", &task(id))["taskId"], *id);
    }
}

#[test]
fn stored_bytes_are_limited() {
    let tools = r#"
[[tool]]
name = "big"
command = ["sh", "-c", "head -c 400000 /dev/zero | tr '\\0' x"]
text_limit = "1MiB"
task_support = "optional"
"#;
    let daemon = Daemon::start(&Config {
        limits: "stored_bytes_per_identity = \"1MiB\"",
        tools,
        ..Config::default()
    });
    let mut peer = daemon.peer();
    let big = r#"{"name":"big","arguments":{},"task":{"ttl":86400000}}"#;
    let mut stored = 0;
    let refused = loop {
        let id = peer.request("tools/call", big);
        let answer = peer.answer(id);
        let Some(task_id) = answer["result"]["task"]["taskId"].as_str() else { break answer };
        peer.result("tasks/result", &task(task_id));
        stored += 1;
        assert!(stored < 100, "the limit has no effect");
    };
    assert!(stored > 0);
    assert_refused(&refused, "stored_bytes_per_identity", 1 << 20);
}

/// Without a free descriptor, connected peers are served, and new peers are accepted when others
/// disconnect.
#[test]
fn connected_peers_are_served_without_a_free_descriptor() {
    const DESCRIPTORS: usize = 64;
    let home = Home::new();
    home.configure(&Config::default());
    let daemon = Daemon::start_in(home);
    // After the start, because at its start the daemon would lower its limit of connections.
    let files = format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}");
    let set = Command::new("prlimit").arg(format!("--pid={}", daemon.pid())).arg(files).status();
    assert!(set.expect("prlimit is there").success());
    let mut peers: BTreeMap<usize, Peer> = BTreeMap::new();
    let mut first = daemon.peer();
    let before = daemon.vitals();
    // More than can be accepted: some wait in the backlog or are refused.
    for number in 0..DESCRIPTORS {
        peers.insert(number, daemon.connect());
    }
    wait_until("no descriptor is free", || {
        daemon.home.log().contains("out of resources for another peer")
    });
    for _ in 0..20 {
        first.result("ping", "{}");
        let echo = first.call("echo", r#"{"text":"still here"}"#);
        assert!(first.answer(echo)["result"].is_object());
    }
    // A process needs descriptors: only this call is refused.
    let hang = first.call("hang", &with(&marker()));
    let answer = first.answer(hang);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let message = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        message.contains("could not be started") && message.contains("open files"),
        "{message}"
    );
    first.result("ping", "{}");
    // The listener pauses between tries and does not spin.
    assert!(daemon.home.log().matches("out of resources for another peer").count() < 1000);

    drop(peers);
    wait_until("the connections are closed", || {
        first.result("ceased/status", "{}")["connections"] == 1
    });
    let mut late = daemon.peer();
    let count = late.call("count", "{}");
    assert_eq!(late.answer(count)["result"]["content"][0]["text"], "1\n2\n3\n");
    drop((late, first));
    daemon.wait_idle();
    before.wait_back(daemon.pid());
}

/// Without a free thread or process, the calls that need one fail with the reason.
#[test]
fn calls_fail_one_by_one_without_a_free_process() {
    // More than the daemon may have beside its own needs; the limit does not apply to root.
    const PROCESSES: usize = 12;
    let home = Home::new();
    home.configure(&Config::default());
    let Some(command) = home.command_as(0, &["serve"]) else {
        eprintln!("SKIPPED: cannot become another user");
        return;
    };
    let daemon = Daemon::start_with(home, command);
    let mark = marker();
    let mut peer = daemon.peer();
    let mut calls = Vec::new();
    // Processes until there is no room, or room for a guard and not for its command; then threads;
    // then not even a guard can start.
    for (tool, arguments) in
        [("hang", with(&mark)), ("sleep", r#"{"ms":86400000}"#.into()), ("hang", with(&mark))]
    {
        calls.extend((0..PROCESSES).map(|_| peer.call(tool, &arguments)));
        if tool == "hang" {
            // The last call certainly finds no room.
            let answer = peer.answer(*calls.last().unwrap());
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            let message = answer["result"]["content"][0]["text"].as_str().unwrap();
            assert!(message.contains("could not be started"), "{message}");
            assert!(message.contains("Resource temporarily unavailable"), "{message}");
        } else {
            // Calls for threads fail too: running ones continue, the last waits in vain.
            let answer = peer.answer(*calls.last().unwrap());
            assert_eq!(answer["error"]["code"], INTERNAL_ERROR, "{answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("cannot create a thread for the tool"), "{message}");
        }
    }
    assert!(!carriers(&mark).is_empty(), "the started ones run");
    peer.result("ping", "{}");
    // Started jobs are stopped as usual, which frees room.
    for id in calls {
        peer.cancel(id);
    }
    wait_until("all processes are gone", || {
        peer.result("ceased/status", "{}")["jobs"].as_array().is_some_and(Vec::is_empty)
    });
    assert_none_left(&mark);
    // Missing threads must not fill the log.
    let said = daemon.home.log().matches("cannot create a thread").count();
    assert!(said < 100, "said {said} times");
    // After idle threads have ended too.
    wait_until("a process can start", || {
        let count = peer.call("count", r#"{"n":1}"#);
        peer.answer(count)["result"]["structuredContent"]["exitCode"] == 0
    });
    assert_none_left(&mark);
}

const SLOW: &str = r#"
[[tool]]
name = "slow"
command = ["sh", "-c", 'echo so far; echo so bad >&2; sleep "$1" & trap "" TERM; sleep "$1"; wait', "slow", "{t}"]
task_support = "optional"
timeout = "300ms"
kill_grace = "100ms"
[tool.input.t]
type = "string"
required = true

[[tool]]
name = "nap"
builtin = "sleep"
task_support = "optional"
timeout = "300ms"
"#;

/// A command that times out: the result has its output so far and is an error of the tool; no
/// process of it is left.
#[test]
fn command_that_times_out_returns_its_output() {
    let daemon = Daemon::start(&Config { tools: SLOW, ..Config::default() });
    let mark = marker();
    let mut peer = daemon.peer();
    let call = peer.call("slow", &with(&mark));
    let answer = peer.answer(call);
    // The answer comes after the last process has ended.
    assert_none_left(&mark);
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    assert_eq!(result["structuredContent"]["timedOut"], true);
    assert_eq!(result["content"][0]["text"], "so far\nso bad\n");
    let said = result["content"][1]["text"].as_str().unwrap();
    assert_eq!(said, "timed out and was stopped");
}

#[test]
fn handler_that_times_out_is_an_error() {
    let daemon = Daemon::start(&Config { tools: SLOW, ..Config::default() });
    let mut peer = daemon.peer();
    let call = peer.call("nap", r#"{"ms":86400000}"#);
    let answer = peer.answer(call);
    assert_eq!(answer["error"]["code"], TIMED_OUT);
    assert_eq!(answer["error"]["data"], json!({"timedOut": true, "timeoutMs": 300}));
    let nap = peer.call("nap", r#"{"ms":1}"#);
    assert_eq!(peer.answer(nap)["result"]["content"][0]["text"], "slept 1 ms");
}

/// TSK-43: a task that times out has failed, with the reason in its status message.
#[test]
fn task_that_times_out_has_failed() {
    let daemon = Daemon::start(&Config { tools: SLOW, ..Config::default() });
    let mark = marker();
    let mut peer = daemon.peer();
    let slow = peer.create_task("slow", &with(&mark));
    let nap = peer.create_task("nap", r#"{"ms":86400000}"#);
    let result = peer.result("tasks/result", &task(&slow));
    assert_none_left(&mark);
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["timedOut"], true);
    assert_eq!(result["content"][0]["text"], "so far\nso bad\n");
    let wait = peer.request("tasks/result", &task(&nap));
    assert_eq!(peer.answer(wait)["error"]["code"], TIMED_OUT);
    let fail = peer.create_task("fail", "{}");
    peer.result("tasks/result", &task(&fail));
    for (id, why) in [
        (slow, "timed out and was stopped"),
        (nap, "the tool ran longer than 300 ms"),
        (fail, "exited with code 7"),
    ] {
        let view = peer.result("tasks/get", &task(&id));
        assert_eq!(view["status"], "failed");
        assert_eq!(view["statusMessage"], why);
    }
}

/// TSK-35: tasks beyond their ttl.
#[test]
fn task_beyond_its_ttl_finishes_or_is_stopped() {
    let stop = Daemon::start(&Config { tasks: "on_ttl = \"stop\"", ..Config::default() });
    let mark = marker();
    let mut peer = stop.peer();
    let params = format!(r#"{{"name":"family","arguments":{},"task":{{"ttl":500}}}}"#, with(&mark));
    let created = peer.result("tools/call", &params);
    let id = created["task"]["taskId"].as_str().unwrap().to_owned();
    let wait = peer.request("tasks/result", &task(&id));
    assert_eq!(peer.answer(wait)["error"]["code"], -31002);
    wait_until("the processes are gone", || carriers(&mark).is_empty());
    let get = peer.request("tasks/get", &task(&id));
    assert_eq!(peer.answer(get)["error"]["code"], -32602);

    let finish = Daemon::start(&Config { tasks: "late_result = \"1h\"", ..Config::default() });
    let mut peer = finish.peer();
    let params = r#"{"name":"sleep","arguments":{"ms":600},"task":{"ttl":100}}"#;
    let created = peer.result("tools/call", params);
    let id = created["task"]["taskId"].as_str().unwrap().to_owned();
    let result = peer.result("tasks/result", &task(&id));
    assert_eq!(result["content"][0]["text"], "slept 600 ms");
    assert_eq!(peer.result("tasks/get", &task(&id))["status"], "completed");
}
