//! `confirm` of a tool: it runs only after the requestor's yes. With the real daemon.

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

/// A peer with elicitation.
fn peer(daemon: &Daemon) -> Peer {
    let mut peer = daemon.connect();
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "kit", "version": "0"},
    });
    peer.result("initialize", &params.to_string());
    peer
}

/// The next message that matches.
fn wait_for(peer: &mut Peer, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = peer.message().expect("the daemon is connected");
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

/// An accepted question runs the tool; a declined, cancelled or failed one does not, and the result
/// says so.
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
        assert!(!path.exists(), "the tool ran before the answer");
        answer(&mut peer, &asked, &says);
        let result = wait_for(&mut peer, |message| message["id"] == call);
        assert_eq!(result["result"]["isError"], !runs, "{name}: {result}");
        assert_eq!(path.exists(), runs, "{name}");
    }
}

/// A client without elicitation gets an error with the reason, and the tool does not run.
#[test]
fn client_without_elicitation_runs_nothing() {
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

/// `ceased call` on a task prints that the task waits for input: another client may answer
/// (TSK-30), the command itself cannot.
#[test]
fn command_line_reports_a_task_that_waits_for_input() {
    let daemon = daemon();
    let (path, _) = arguments(&daemon, "person");
    let file = format!("file={}", path.display());
    let waiting = daemon.home.start(&["call", "touch", &file, "--task"]);
    wait_until("the reason is printed", || {
        waiting.err().contains("input_required: the tool requests")
    });
    let mut other = peer(&daemon);
    let tasks = other.result("tasks/list", "{}");
    let id = tasks["tasks"][0]["taskId"].as_str().expect("the task is listed").to_owned();
    let wait = other.request("tasks/result", &json!({"taskId": id}).to_string());
    let asked = question(&mut other);
    answer(&mut other, &asked, &json!({"action": "accept", "content": {}}));
    wait_for(&mut other, |message| message["id"] == wait);
    let ran = waiting.wait();
    assert!(ran.code == Some(0) && path.exists(), "{}", ran.err);
}

/// Abandoned questions, more than there are workers, keep no call of the same or another identity
/// waiting, are shown as such, and are withdrawn after `parked_for`.
#[test]
fn abandoned_questions_hold_up_no_call() {
    let tools = format!("{TOOL}\n[[tool]]\nname = \"quick\"\ncommand = [\"true\"]\n");
    let limits = "parked_per_identity = 6\nparked_for = \"10s\"";
    let daemon = Daemon::start(&Config {
        tools: &tools,
        limits,
        daemon: "workers = 2",
        ..Config::default()
    });
    let mut silent = peer(&daemon);
    let (path, arguments) = arguments(&daemon, "abandoned");
    let calls: Vec<_> = (0..9).map(|_| silent.call("touch", &arguments)).collect();
    let first = question(&mut silent);
    let refused = wait_for(&mut silent, |message| message["id"] == calls[8]);
    let text = refused["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("too many"), "{refused}");
    let shown = daemon.home.run(&["ps"]).out;
    assert!(shown.contains("waits for an answer"), "{shown}");
    for client in [&mut daemon.peer(), &mut silent] {
        let call = client.call("quick", "{}");
        let done = wait_for(client, |message| message["id"] == call);
        assert_eq!(done["result"]["isError"], false, "{done}");
    }
    let withdrawn = wait_for(&mut silent, |message| message["method"] == "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], first["id"]);
    let ended = wait_for(&mut silent, |message| message["id"] == calls[0]);
    let text = ended["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("did not answer in time"), "{ended}");
    assert!(!path.exists());
}

/// A call cancelled while it waits for confirmation cancels its question and never runs.
#[test]
fn cancel_withdraws_the_question() {
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

/// TSK-28, TSK-30: the question of a task goes to the peer that waits for its result.
#[test]
fn task_asks_the_waiting_peer() {
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
