//! Servers in commands, views and metrics: `servers`, `restart`, `logs`, `connect --server`, `ps`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use ceased_tests::daemon::{Daemon, Program, Ran, marker, wait_until};
use serde_json::{Value, json};

use super::kit::{Place, error, say};

fn run(daemon: &Daemon, args: &[&str]) -> Ran {
    Program::start(&daemon.home, daemon.home.command(args)).wait()
}

/// The servers of `ceased servers --json`, by name.
fn servers(daemon: &Daemon) -> serde_json::Map<String, Value> {
    let ran = run(daemon, &["servers", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    let all = found["servers"].as_array().unwrap().iter();
    all.map(|server| (server["server"].as_str().unwrap().to_owned(), server.clone())).collect()
}

/// States, processes, calls and counts of each instance; UPS-14: lines that are no messages.
#[test]
fn servers_shows_instances_with_their_processes_and_counts() {
    let place = Place::new();
    let bad = place.server_with("bad", &["fail"], "");
    let daemon = place.start(&(place.server("a", "") + &bad + &place.server("never", "")));
    let mut peer = daemon.peer();
    say(&mut peer, "a_garbage", "{}");
    error(&mut peer, "bad_pid", "{}");
    let pid: u64 = say(&mut peer, "a_pid", "{}").parse().unwrap();
    let mark = marker();
    let stray = peer.call("a_stray", &json!({"mark": mark}).to_string());
    wait_until("the call is under the instance, with its process", || {
        let a = servers(&daemon)["a"].clone();
        let processes = a["instances"][0]["processes"].as_array().cloned().unwrap_or_default();
        a["instances"][0]["jobs"].as_array().is_some_and(|jobs| jobs.len() == 1)
            && processes.iter().any(|process| process["name"] == "sleep")
    });
    let all = servers(&daemon);
    let a = &all["a"];
    assert_eq!((&a["state"], &a["starts"], &a["calls"]), (&json!("ready"), &json!(1), &json!(3)));
    let instance = &a["instances"][0];
    // Its child may have the lower number: numbers begin anew.
    let mut processes = instance["processes"].as_array().unwrap().iter();
    let own = processes.find(|process| process["pid"] == pid).expect("the process of the server");
    assert!(own["memoryBytes"].as_u64().unwrap() > 100_000, "{instance}");
    assert_eq!(instance["skippedLines"], 1, "{instance}");
    assert_eq!(instance["firstSkipped"][0], "no message");
    assert_eq!(instance["stderr"][0], "log of a");
    assert_eq!(all["never"]["state"], "idle");
    assert_eq!(all["bad"]["state"], "failed");
    assert!(all["bad"]["lastError"].as_str().unwrap().contains("cannot start"), "{}", all["bad"]);

    let ran = run(&daemon, &["servers"]);
    for text in ["a ", "ready", "bad", "failed", "never", "idle", "cannot start", &pid.to_string()]
    {
        assert!(ran.out.contains(text), "{text}: {ran:?}");
    }
    let ps = run(&daemon, &["ps"]).out;
    assert!(ps.contains("INSTANCE") && ps.contains("python3") && ps.contains("sleep"), "{ps}");

    peer.cancel(stray);
    wait_until("the stray is counted", || servers(&daemon)["a"]["straysEnded"] == 1);
}

/// A death and a restart are counted, and the next instance is another process.
#[test]
fn restart_replaces_instances_after_their_calls() {
    let place = Place::new();
    let daemon = place.start(&place.server("a", ""));
    let mut peer = daemon.peer();
    let first = say(&mut peer, "a_pid", "{}");
    let file = place.home.path().join("go");
    let waiting = peer.call("a_wait", &json!({"file": file}).to_string());
    wait_until("the call runs", || servers(&daemon)["a"]["calls"] == 2);
    let ran = run(&daemon, &["restart", "a"]);
    assert!(ran.code == Some(0) && ran.err.contains("one instance"), "{ran:?}");
    let states = servers(&daemon)["a"]["instances"].clone();
    assert_eq!(states[0]["state"], "draining", "{states}");
    assert!(states[0]["why"].as_str().unwrap().contains("operator"), "{states}");
    let second = say(&mut peer, "a_pid", "{}");
    assert_ne!(first, second);
    fs::write(&file, "").unwrap();
    assert_eq!(peer.text(waiting), "done");
    wait_until("the old instance has ended", || place.processes() == 1);
    error(&mut peer, "a_die", "{}");
    assert_ne!(say(&mut peer, "a_pid", "{}"), second);
    let a = servers(&daemon)["a"].clone();
    assert_eq!((&a["starts"], &a["restarts"], &a["deaths"]), (&json!(3), &json!(2), &json!(1)));
    assert!(a["lastError"].as_str().unwrap().contains("last words"), "{a}");
    let ran = run(&daemon, &["restart", "b"]);
    assert!(ran.code == Some(2) && ran.err.contains("there are a"), "{ran:?}");
}

/// TSK-39: another user sees the servers that it may use with its own instances alone, and
/// restarts nothing.
#[test]
fn instances_of_others_are_not_shown() {
    let place = Place::new();
    let servers =
        place.server("a", "run_as = \"daemon\"") + &place.server("b", "allow = [\"user:root\"]");
    let daemon = place.start(&servers);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(daemon.socket(), open).unwrap();
    let Some(mut other) = daemon.peer_of(1) else { return };
    let mut peer = daemon.peer();
    say(&mut peer, "a_pid", "{}");
    let status = other.result("ceased/status", r#"{"detail":true}"#);
    let listed = status["servers"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{status}");
    assert_eq!(listed[0]["instances"], json!([]));
    assert!(listed[0]["starts"].is_null() && status["host"]["instances"].is_null(), "{status}");
    for (method, params) in
        [("ceased/restart", r#"{"server":"a"}"#), ("ceased/logs", r#"{"server":"a"}"#)]
    {
        let id = other.request(method, params);
        assert!(other.answer(id)["error"].is_object(), "{method}");
    }
}

/// `ceased logs SERVER` shows the standard error of instances, also after their end, and follows.
#[test]
fn logs_of_a_server_are_kept_and_followed() {
    let place = Place::new();
    let daemon = place.start(&place.server("a", ""));
    let mut peer = daemon.peer();
    say(&mut peer, "a_say", r#"{"text":"first words"}"#);
    error(&mut peer, "a_die", "{}");
    let ran = run(&daemon, &["logs", "a"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for text in ["log of a", "first words", "last words"] {
        assert!(ran.out.contains(text), "{text}: {ran:?}");
    }
    let mut command = daemon.home.command(&["logs", "a", "--follow"]);
    let mut follower = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    say(&mut peer, "a_say", r#"{"text":"later words"}"#);
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "later words"));
    follower.kill().unwrap();
    follower.wait().unwrap();
    let ran = run(&daemon, &["logs", "nothing"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
}

/// `ceased connect --server NAME` is the server for a host, and names the others if it is unknown.
#[test]
fn connect_shows_one_server() {
    let place = Place::new();
    let daemon = place.start(&(place.server("a", "") + &place.server("b", "")));
    let options = ["connect", "--server", "a", "--", "the", "old", "command"];
    let mut command = daemon.home.command(&options);
    let mut bridge = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = bridge.stdin.take().unwrap();
    let mut output = BufReader::new(bridge.stdout.take().unwrap());
    let mut ask = |method: &str, params: Value| -> Value {
        let request = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
        writeln!(input, "{request}").unwrap();
        loop {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == method {
                return message["result"].clone();
            }
        }
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}});
    assert_eq!(ask("initialize", params)["serverInfo"]["name"], "scripted a");
    let params = json!({"name": "echo", "arguments": {"text": "hi"}});
    assert_eq!(ask("tools/call", params)["content"][0]["text"], "hi");
    drop(input);
    assert!(bridge.wait().unwrap().success());
    let ran = run(&daemon, &["connect", "--server", "c"]);
    assert!(ran.code == Some(2) && ran.err.contains("there are a, b"), "{ran:?}");
}

/// TSK-38: numbers of each server for monitoring.
#[test]
fn metrics_have_a_series_for_each_server() {
    let place = Place::new();
    let socket = place.home.path().join("metrics.sock");
    let metrics = format!("[metrics]\nlisten = \"unix:{}\"\n", socket.display());
    let daemon = place.start(&(metrics + &place.server("a", "")));
    let mut peer = daemon.peer();
    say(&mut peer, "a_garbage", "{}");
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    for line in [
        "ceased_server_instances{server=\"a\"} 1",
        "ceased_server_starts_total{server=\"a\"} 1",
        "ceased_server_calls_total{server=\"a\"} 1",
        "ceased_server_skipped_lines_total{server=\"a\"} 1",
        "ceased_server_replaced_total{server=\"a\"} 0",
    ] {
        assert!(page.lines().any(|there| there == line), "{line} is not in {page}");
    }
}
