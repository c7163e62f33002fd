//! `confirm` on a tool: nothing runs unless the requestor says yes. With the real daemon.

use ceased_tests::daemon::{Config, Daemon, Peer, wait_until};
use serde_json::{Value, json};

const TOOL: &str = r#"
[[tool]]
name = "touch"
max_output = "64KiB"
command = ["touch", "{file}"]
task_support = "optional"
confirm = "Really touch {file}?"
[tool.input.file]
type = "string"
required = true
"#;

fn daemon() -> Daemon {
    Daemon::start(&Config { tools: TOOL, ..Config::default() })
}

/// A peer that can be asked.
fn peer(daemon: &Daemon) -> Peer {
    let mut peer = daemon.connect();
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "kit", "version": "0"},
    });
    peer.result("initialize", &params.to_string());
    peer
}

/// The next message of this method, or the answer to this request.
fn wait_for(peer: &mut Peer, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = peer.message().expect("the daemon goes on");
        if wanted(&message) {
            return message;
        }
    }
}

fn question(peer: &mut Peer) -> Value {
    wait_for(peer, |message| message["method"] == "elicitation/create")
}

fn answer(peer: &mut Peer, question: &Value, result: &Value) {
    peer.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}).to_string());
}

fn arguments(daemon: &Daemon, name: &str) -> (std::path::PathBuf, String) {
    let path = daemon.home.path().join(name);
    let arguments = json!({"file": path}).to_string();
    (path, arguments)
}

/// Accepted means run; declined, cancelled and answered with an error mean not run, and say so.
#[test]
fn only_a_yes_runs_it() {
    let daemon = daemon();
    let mut peer = peer(&daemon);
    let answers = [
        ("yes", json!({"action": "accept", "content": {}}), true),
        ("no", json!({"action": "decline"}), false),
        ("never-mind", json!({"action": "cancel"}), false),
        ("odd", json!({"action": 7}), false),
    ];
    for (name, says, runs) in answers {
        let (path, arguments) = arguments(&daemon, name);
        let call = peer.call("touch", &arguments);
        let asked = question(&mut peer);
        assert_eq!(asked["params"]["message"], format!("Really touch {}?", path.display()));
        assert!(!path.exists(), "it waits for the word");
        answer(&mut peer, &asked, &says);
        let result = wait_for(&mut peer, |message| message["id"] == call);
        assert_eq!(result["result"]["isError"], !runs, "{name}: {result}");
        assert_eq!(path.exists(), runs, "{name}");
    }
}

/// A client that cannot be asked gets an error that says why, and nothing runs.
#[test]
fn who_cannot_be_asked_runs_nothing() {
    let daemon = daemon();
    let mut peer = daemon.peer();
    let (path, arguments) = arguments(&daemon, "mute");
    let call = peer.call("touch", &arguments);
    let result = peer.answer(call);
    assert_eq!(result["result"]["isError"], true);
    let text = result["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("needs confirmation"), "{text}");
    assert!(!path.exists());
}

/// A person who waits with the command for a task is told what that waits for: a task may be
/// answered by another client (TSK-30), the command itself cannot be asked.
#[test]
fn a_person_is_told_that_a_task_wants_input() {
    let daemon = daemon();
    let (path, _) = arguments(&daemon, "person");
    let file = format!("file={}", path.display());
    let waiting = daemon.home.start(&["call", "touch", &file, "--task"]);
    wait_until("the person is told", || waiting.err().contains("input_required: the tool asks"));
    let mut other = peer(&daemon);
    let tasks = other.result("tasks/list", "{}");
    let id = tasks["tasks"][0]["taskId"].as_str().expect("there is one").to_owned();
    let wait = other.request("tasks/result", &json!({"taskId": id}).to_string());
    let asked = question(&mut other);
    answer(&mut other, &asked, &json!({"action": "accept", "content": {}}));
    wait_for(&mut other, |message| message["id"] == wait);
    let ran = waiting.wait();
    assert!(ran.code == Some(0) && path.exists(), "{}", ran.err);
}

/// A call cancelled while it waits for the word takes its question back, and never runs.
#[test]
fn a_cancel_takes_the_question_back() {
    let daemon = daemon();
    let mut peer = peer(&daemon);
    let (path, arguments) = arguments(&daemon, "late");
    let call = peer.call("touch", &arguments);
    let asked = question(&mut peer);
    peer.cancel(call);
    let cancel = wait_for(&mut peer, |message| message["method"] == "notifications/cancelled");
    assert_eq!(cancel["params"]["requestId"], asked["id"]);
    answer(&mut peer, &asked, &json!({"action": "accept"}));
    drop(peer);
    daemon.wait_idle();
    assert!(!path.exists());
}

/// TSK-28, TSK-30: in a task the question waits for whoever waits for the result.
#[test]
fn a_task_asks_whoever_waits() {
    let daemon = daemon();
    let mut creator = peer(&daemon);
    let (path, arguments) = arguments(&daemon, "task");
    let id = creator.create_task("touch", &arguments);
    drop(creator);
    let mut waiter = peer(&daemon);
    let task = json!({"taskId": id}).to_string();
    assert_eq!(waiter.result("tasks/get", &task)["status"], "input_required");
    let wait = waiter.request("tasks/result", &task);
    let asked = question(&mut waiter);
    answer(&mut waiter, &asked, &json!({"action": "accept"}));
    let result = wait_for(&mut waiter, |message| message["id"] == wait);
    assert_eq!(result["result"]["isError"], false, "{result}");
    assert!(path.exists());
    assert_eq!(waiter.result("tasks/get", &task)["status"], "completed");
}
