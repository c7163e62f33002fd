//! Limits and time limits: what is refused, in which words, and that everything else goes on.

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

/// TSK-36: the error names the limit, in its data for programs and in its message for people.
fn assert_refused(answer: &Value, limit: &str, max: usize) {
    assert_eq!(answer["error"]["code"], LIMIT_REACHED, "{answer}");
    assert_eq!(answer["error"]["data"], json!({"limit": limit, "max": max}));
    let message = answer["error"]["message"].as_str().expect("a message");
    assert!(message.contains(&max.to_string()), "{message}");
}

#[test]
fn connections() {
    let config = Config { limits: "connections = 3", tcp: true, ..Config::default() };
    let daemon = Daemon::start(&config);
    let mut peers: Vec<Peer> = (0..3).map(|_| daemon.tcp_peer()).collect();
    for _ in 0..3 {
        let mut late = daemon.connect_tcp();
        // It has perhaps been closed already.
        let _ = late.try_send(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
        let said = late.rest();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_refused(&said[0], "connections", 3);
    }
    for peer in &mut peers {
        peer.result("ping", "{}");
    }
    peers.pop();
    // The daemon's own user comes in nevertheless.
    wait_until("it has left", || daemon.status()["connections"] == 3);
    // The connection that asked for the status leaves a moment later.
    wait_until("another has its place", || {
        let mut next = daemon.connect_tcp();
        let _ = next.try_send(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
        next.message().is_some_and(|message| message["result"].is_object())
    });
}

/// The command line says of a full daemon that it is full, not that it is none.
#[test]
fn connections_and_the_command_line() {
    let config = Config { limits: "connections = 1", tcp: true, ..Config::default() };
    let daemon = Daemon::start(&config);
    let _first = daemon.tcp_peer();
    let address = daemon.tcp_address().to_string();
    for args in [&["status"][..], &["call", "echo", "text=x"]] {
        let ran = daemon.home.run(&[args, &["--tcp", &address]].concat());
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.starts_with("ceased: not let in at tcp:"), "{ran:?}");
        assert!(ran.err.contains("-31003") && ran.out.is_empty(), "{ran:?}");
        // The daemon's own user is an operator, who comes in nevertheless.
        let ran = daemon.home.run(args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

#[test]
fn inflight_per_connection() {
    let daemon = limited("inflight_per_connection = 2");
    let mut peer = daemon.peer();
    // A task takes up no place once its creation is answered. A wait for one does.
    let id = peer.create_task("sleep", r#"{"ms":86400000}"#);
    let calls = [peer.call("sleep", r#"{"ms":86400000}"#), peer.call("hang", &with(&marker()))];
    let refused = peer.call("echo", r#"{"text":"x"}"#);
    assert_refused(&peer.answer(refused), "inflight_per_connection", 2);
    let refused = peer.request("tasks/result", &task(&id));
    assert_refused(&peer.answer(refused), "inflight_per_connection", 2);
    // What needs no place is served.
    peer.result("ping", "{}");
    peer.result("tools/list", "{}");
    // Another connection has places of its own.
    let mut other = daemon.peer();
    let echo = other.call("echo", r#"{"text":"x"}"#);
    assert!(other.answer(echo)["result"].is_object());
    peer.cancel(calls[0]);
    let echo = peer.call("echo", r#"{"text":"x"}"#);
    assert!(peer.answer(echo)["result"].is_object());
}

#[test]
fn workers_and_queue() {
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
        (Some("working"), Some("queued"))
    );
    let refused = peer.call("echo", r#"{"text":"x"}"#);
    assert_refused(&peer.answer(refused), "queue", 3);
    let status = peer.result("ceased/status", "{}");
    assert_eq!((&status["running"], &status["queued"]), (&json!(2), &json!(3)));
    assert_eq!(carriers(&mark).len(), 2, "no more run than may");
    // One that waits is taken back without having run; its place is free.
    peer.cancel(queued[0]);
    let status = peer.result("ceased/status", "{}");
    assert_eq!((&status["running"], &status["queued"]), (&json!(2), &json!(2)));
    // The places of those that run are taken in order.
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
fn tasks_of_one_identity() {
    let daemon = limited("tasks_per_identity = 2\nstored_tasks_per_identity = 3");
    let mut peer = daemon.peer();
    let sleep = r#"{"name":"sleep","arguments":{"ms":86400000},"task":{}}"#;
    let tasks: Vec<String> =
        (0..2).map(|_| peer.create_task("sleep", r#"{"ms":86400000}"#)).collect();
    // Identity is the user, not the connection.
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
    // Plain calls need no room for a record, and what is stored can still be had.
    let echo = peer.call("echo", r#"{"text":"x"}"#);
    assert!(peer.answer(echo)["result"].is_object());
    for id in tasks.iter().chain([&third]) {
        assert_eq!(peer.result("tasks/get", &task(id))["taskId"], *id);
    }
}

#[test]
fn stored_bytes() {
    let tools = r#"
[[tool]]
name = "big"
command = ["head", "-c", "400000", "/dev/zero"]
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
        assert!(stored < 100, "no end of bytes");
    };
    assert!(stored > 0);
    assert_refused(&refused, "stored_bytes_per_identity", 1 << 20);
}

/// Without a descriptor left, peers that are here are served and new ones come in when others go.
#[test]
fn no_descriptor_left() {
    const DESCRIPTORS: usize = 64;
    let home = Home::new();
    home.configure(&Config::default());
    let daemon = Daemon::start_in(home);
    // After its start, at which it would have chosen to serve fewer peers.
    let files = format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}");
    let set = Command::new("prlimit").arg(format!("--pid={}", daemon.pid())).arg(files).status();
    assert!(set.expect("prlimit is there").success());
    let mut peers: BTreeMap<usize, Peer> = BTreeMap::new();
    let mut first = daemon.peer();
    let before = daemon.vitals();
    // As many again as can be let in: some wait at the door or are turned away.
    for number in 0..DESCRIPTORS {
        peers.insert(number, daemon.connect());
    }
    wait_until("it has run out", || daemon.home.log().contains("no room for another peer"));
    for _ in 0..20 {
        first.result("ping", "{}");
        let echo = first.call("echo", r#"{"text":"still here"}"#);
        assert!(first.answer(echo)["result"].is_object());
    }
    // A process needs descriptors: it is refused, and only it.
    let hang = first.call("hang", &with(&marker()));
    let answer = first.answer(hang);
    assert_eq!(answer["error"]["code"], INTERNAL_ERROR, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("could not be started") && message.contains("open files"),
        "{message}"
    );
    first.result("ping", "{}");
    // It rests between tries and does not spin.
    assert!(daemon.home.log().matches("no room for another peer").count() < 1000);

    drop(peers);
    wait_until("they have left", || first.result("ceased/status", "{}")["connections"] == 1);
    let mut late = daemon.peer();
    let count = late.call("count", "{}");
    assert_eq!(late.answer(count)["result"]["structuredContent"]["stdout"], "1\n2\n3\n");
    drop((late, first));
    daemon.wait_idle();
    before.wait_back(daemon.pid());
}

/// Without a thread or a process left, the calls that need one fail, one by one, and say why.
#[test]
fn no_process_left() {
    // More than the daemon may have beside what it needs itself: root cannot be limited.
    const PROCESSES: usize = 12;
    let home = Home::new();
    home.configure(&Config::default());
    let Some(command) = home.command_as(0, &["serve"]) else {
        eprintln!("SKIPPED, cannot become another user");
        return;
    };
    let daemon = Daemon::start_with(home, command);
    let mark = marker();
    let mut peer = daemon.peer();
    let mut calls = Vec::new();
    // Processes until there is room for none, or for a guard and not for what it guards; then
    // threads; then not even a guard is possible.
    for (tool, arguments) in
        [("hang", with(&mark)), ("sleep", r#"{"ms":86400000}"#.into()), ("hang", with(&mark))]
    {
        calls.extend((0..PROCESSES).map(|_| peer.call(tool, &arguments)));
        if tool == "hang" {
            // The last finds no room for certain.
            let answer = peer.answer(*calls.last().unwrap());
            assert_eq!(answer["error"]["code"], INTERNAL_ERROR, "{answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("could not be started"), "{message}");
            assert!(message.contains("Resource temporarily unavailable"), "{message}");
        } else {
            // Calls for threads fail as well: those that have one go on, the last waits in vain.
            let answer = peer.answer(*calls.last().unwrap());
            assert_eq!(answer["error"]["code"], INTERNAL_ERROR, "{answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("no thread could be started"), "{message}");
        }
    }
    assert!(!carriers(&mark).is_empty(), "those that did start run");
    peer.result("ping", "{}");
    // Everything that did start is stopped as ever, and then there is room again.
    for id in calls {
        peer.cancel(id);
    }
    wait_until("all are gone", || {
        peer.result("ceased/status", "{}")["jobs"].as_array().is_some_and(Vec::is_empty)
    });
    assert_none_left(&mark);
    // That it lacks threads is no reason to fill a disk.
    let said = daemon.home.log().matches("no thread c").count();
    assert!(said < 100, "said {said} times");
    // Once the threads that have nothing to do are given back, too.
    wait_until("there is room for a process", || {
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

/// A command that runs out of time: what it said so far, as an error of the tool, and nothing of
/// it left.
#[test]
fn a_command_times_out() {
    let daemon = Daemon::start(&Config { tools: SLOW, ..Config::default() });
    let mark = marker();
    let mut peer = daemon.peer();
    let call = peer.call("slow", &with(&mark));
    let answer = peer.answer(call);
    // The answer is the word that it has ceased.
    assert_none_left(&mark);
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    assert_eq!(result["structuredContent"]["timedOut"], true);
    assert_eq!(result["structuredContent"]["stdout"], "so far\n");
    assert_eq!(result["structuredContent"]["stderr"], "so bad\n");
    assert_eq!(result["content"][0]["text"], "so far\n");
    let said = result["content"][1]["text"].as_str().unwrap();
    assert!(said.contains("timed out") && said.contains("so bad"), "{said}");
}

#[test]
fn a_handler_times_out() {
    let daemon = Daemon::start(&Config { tools: SLOW, ..Config::default() });
    let mut peer = daemon.peer();
    let call = peer.call("nap", r#"{"ms":86400000}"#);
    let answer = peer.answer(call);
    assert_eq!(answer["error"]["code"], TIMED_OUT);
    assert_eq!(answer["error"]["data"], json!({"timedOut": true, "timeoutMs": 300}));
    let nap = peer.call("nap", r#"{"ms":1}"#);
    assert_eq!(peer.answer(nap)["result"]["content"][0]["text"], "slept 1 ms");
}

/// TSK-43: a task that runs out of time has failed and says so.
#[test]
fn a_task_times_out() {
    let daemon = Daemon::start(&Config { tools: SLOW, ..Config::default() });
    let mark = marker();
    let mut peer = daemon.peer();
    let slow = peer.create_task("slow", &with(&mark));
    let nap = peer.create_task("nap", r#"{"ms":86400000}"#);
    let result = peer.result("tasks/result", &task(&slow));
    assert_none_left(&mark);
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["timedOut"], true);
    assert_eq!(result["structuredContent"]["stdout"], "so far\n");
    let wait = peer.request("tasks/result", &task(&nap));
    assert_eq!(peer.answer(wait)["error"]["code"], TIMED_OUT);
    let fail = peer.create_task("fail", "{}");
    peer.result("tasks/result", &task(&fail));
    for (id, why) in [
        (slow, "timed out and was stopped: so bad"),
        (nap, "the tool ran longer than 300 ms"),
        (fail, "exited with code 7: err"),
    ] {
        let view = peer.result("tasks/get", &task(&id));
        assert_eq!(view["status"], "failed");
        assert_eq!(view["statusMessage"], why);
    }
}

/// TSK-35: what becomes of tasks whose ttl is over.
#[test]
fn a_task_outlives_its_ttl() {
    let stop = Daemon::start(&Config { tasks: "on_ttl = \"stop\"", ..Config::default() });
    let mark = marker();
    let mut peer = stop.peer();
    let params = format!(r#"{{"name":"family","arguments":{},"task":{{"ttl":500}}}}"#, with(&mark));
    let created = peer.result("tools/call", &params);
    let id = created["task"]["taskId"].as_str().unwrap().to_owned();
    let wait = peer.request("tasks/result", &task(&id));
    assert_eq!(peer.answer(wait)["error"]["code"], -31002);
    wait_until("its family is gone", || carriers(&mark).is_empty());
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
