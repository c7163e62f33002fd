//! Clients that disconnect, and clients that repeat a call: the runs of the tools in the real
//! daemon, counted by files that the tools write.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use ceased_tests::daemon::peer::request;
use ceased_tests::daemon::{
    Config, Daemon, Peer, Vitals, assert_none_left, carriers, marker, wait_until,
};
use serde_json::{Value, json};

const LIMIT_REACHED: i64 = -31003;
const INVALID_PARAMS: i64 = -32602;
const CALL_UNDER_WAY: i64 = -31008;

/// Each tool records its run in a file named after its mark, and ends when a second file exists.
fn tools() -> String {
    let tool = |name: &str, more: &str| {
        format!(
            r#"
[[tool]]
name = "{name}"
command = ["sh", "-c", 'echo run >> "runs$1"; echo 1 >&3; while [ ! -e "go$1" ]; do sleep 0.02; done; echo "done $1"', "{name}", "{{t}}", "{{more}}"]
run_as = "daemon"
task_support = "optional"
max_output = "64KiB"
{more}
[tool.input.t]
type = "string"
required = true
[tool.input.more]
type = "string"
"#
        )
    };
    [
        tool("once", ""),
        tool("patient", "on_disconnect = \"1h\""),
        tool("hasty", "on_disconnect = \"300ms\""),
        tool("kept", "on_disconnect = \"detach\""),
    ]
    .concat()
}

fn daemon_with(limits: &str) -> Daemon {
    Daemon::start(&Config { limits, tools: &tools(), ..Config::default() })
}

/// Number of runs of the tool with this mark.
fn runs(daemon: &Daemon, mark: &str) -> usize {
    let path = daemon.home.path().join(format!("runs{mark}"));
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// Lets current and later runs with this mark end.
fn let_end(daemon: &Daemon, mark: &str) {
    fs::write(daemon.home.path().join(format!("go{mark}")), "").expect("the home is ours");
}

/// A key unique among the tests.
fn key() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("key {}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn params(tool: &str, key: &str, arguments: &Value) -> Value {
    json!({"name": tool, "arguments": arguments, "_meta": {"ceased/idempotencyKey": key}})
}

/// Sends a call with a key and does not wait.
fn call(peer: &mut Peer, tool: &str, key: &str, mark: &str) -> u64 {
    peer.request("tools/call", &params(tool, key, &json!({"t": mark})).to_string())
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no result: {answer}"))
}

fn wait_running(daemon: &Daemon, mark: &str, times: usize) {
    wait_until("it runs", || runs(daemon, mark) == times);
}

/// By default a call ends with its connection, in every way of closing it.
#[test]
fn call_ends_with_its_connection() {
    let daemon = daemon_with("");
    let mark = marker();
    let mut peer = daemon.peer();
    call(&mut peer, "once", &key(), &mark);
    wait_running(&daemon, &mark, 1);
    drop(peer);
    daemon.wait_until_no_job();
    assert_none_left(&mark);
    assert_eq!(daemon.status()["tasks"]["total"], 0);
}

fn the_task(peer: &mut Peer) -> Option<Value> {
    let mut tasks = peer.result("tasks/list", "{}")["tasks"].take();
    tasks.as_array_mut().and_then(Vec::pop)
}

/// `detach`: the call becomes a task of its requestor, which can wait for it and cancel it from any
/// connection; other identities cannot. DUR-01: the task is durable.
#[test]
fn detached_call_becomes_a_task() {
    let daemon = daemon_with("");
    let [mark, other_mark, last_mark] = [marker(), marker(), marker()];
    let mut peer = daemon.peer();
    peer.call("kept", &format!(r#"{{"t":"{mark}"}}"#));
    wait_running(&daemon, &mark, 1);
    drop(peer);
    let mut peer = daemon.peer();
    let mut found = None;
    wait_until("the task is listed", || {
        found = the_task(&mut peer);
        found.is_some()
    });
    let task = found.take().expect("the task was found");
    assert_eq!(task["status"], "working");
    if let Some(mut other) = daemon.peer_of(1) {
        assert_eq!(the_task(&mut other), None, "the task belongs to its requestor only");
    }
    let wait = peer.request("tasks/result", &json!({"taskId": task["taskId"]}).to_string());
    let_end(&daemon, &mark);
    let answer = peer.answer(wait);
    assert_eq!(text(&answer), format!("done {mark}\n"));
    assert_eq!(runs(&daemon, &mark), 1);

    // TSK-24: another one is cancelled; until its end, a repeated call is refused.
    let (key, mut gone) = (key(), daemon.peer());
    call(&mut gone, "kept", &key, &other_mark);
    wait_running(&daemon, &other_mark, 1);
    drop(gone);
    wait_until("the task is listed", || {
        found = the_task(&mut peer).filter(|task| task["status"] == "working");
        found.is_some()
    });
    let again = call(&mut peer, "kept", &key, &other_mark);
    assert_eq!(peer.answer(again)["error"]["code"], CALL_UNDER_WAY);
    let id = found.take().expect("the task was found")["taskId"].take();
    peer.result("tasks/cancel", &json!({"taskId": id}).to_string());
    daemon.wait_until_no_job();
    assert_none_left(&other_mark);

    // A third one is interrupted by the daemon's death and says so.
    let mut gone = daemon.peer();
    gone.call("kept", &format!(r#"{{"t":"{last_mark}"}}"#));
    wait_running(&daemon, &last_mark, 1);
    drop(gone);
    wait_until("the task is listed", || {
        found = the_task(&mut peer).filter(|task| task["status"] == "working");
        found.is_some()
    });
    let id = found.expect("the task was found")["taskId"].take();
    let daemon = Daemon::start_in(daemon.kill());
    assert_none_left(&last_mark);
    let view = daemon.peer().result("tasks/get", &json!({"taskId": id}).to_string());
    assert_eq!(view["status"], "failed");
    assert!(view["statusMessage"].as_str().is_some_and(|said| said.contains("interrupted")));
}

/// With a grace period the run goes on, and a repeated call is refused until it has ended, and
/// answered by it then. At the end of the period the run ends.
#[test]
fn grace_period_keeps_the_run() {
    let daemon = daemon_with("");
    let (mark, key_one) = (marker(), key());
    let mut peer = daemon.peer();
    call(&mut peer, "patient", &key_one, &mark);
    wait_running(&daemon, &mark, 1);
    drop(peer);
    wait_until("the connection is closed", || daemon.status()["connections"] == 1);
    assert_eq!(daemon.status()["running"], 1, "the call continues");
    let mut peer = daemon.peer();
    let mut again = || {
        let again = call(&mut peer, "patient", &key_one, &mark);
        peer.answer(again)
    };
    assert_eq!(again()["error"]["code"], CALL_UNDER_WAY);
    let_end(&daemon, &mark);
    let mut answer = again();
    wait_until("the run has ended", || {
        answer = again();
        answer["error"]["code"] != CALL_UNDER_WAY
    });
    assert_eq!(text(&answer), format!("done {mark}\n"));
    assert_eq!(runs(&daemon, &mark), 1);

    // At the end of the period the job is stopped, and the key is forgotten.
    let (mark, key_two) = (marker(), key());
    call(&mut peer, "hasty", &key_two, &mark);
    wait_running(&daemon, &mark, 1);
    drop(peer);
    daemon.wait_until_no_job();
    assert_none_left(&mark);
    let mut peer = daemon.peer();
    let anew = call(&mut peer, "hasty", &key_two, &mark);
    wait_running(&daemon, &mark, 2);
    let_end(&daemon, &mark);
    assert_eq!(text(&peer.answer(anew)), format!("done {mark}\n"));
}

/// A client that lost its connection repeats the call with its key: there is one run. While the
/// first request waits, other repeated calls are refused.
#[test]
fn key_runs_once() {
    let daemon = daemon_with("");
    let (mark, key) = (marker(), key());
    let mut peer = daemon.peer();
    let first = call(&mut peer, "once", &key, &mark);
    wait_running(&daemon, &mark, 1);
    // The first request still waits, on this or another connection.
    for other in [&mut peer, &mut daemon.peer()] {
        let again = call(other, "once", &key, &mark);
        let error = other.answer(again)["error"].take();
        assert_eq!(error["code"], CALL_UNDER_WAY, "{error}");
        assert_eq!(error["data"], json!({"idempotencyKey": key}));
    }
    let_end(&daemon, &mark);
    assert_eq!(text(&peer.answer(first)), format!("done {mark}\n"));
    // After the end the call can be repeated on any connection.
    for _ in 0..3 {
        let mut other = daemon.peer();
        let last = call(&mut other, "once", &key, &mark);
        assert_eq!(text(&other.answer(last)), format!("done {mark}\n"));
    }
    assert_eq!(runs(&daemon, &mark), 1);
    // A repeated task call returns the same task.
    let (mark, key) = (marker(), self::key());
    let as_task = || {
        let mut params = params("once", &key, &json!({"t": mark}));
        params["task"] = json!({});
        params.to_string()
    };
    let created = peer.result("tools/call", &as_task())["task"].take();
    let repeated = daemon.peer().result("tools/call", &as_task())["task"].take();
    assert_eq!(created["taskId"], repeated["taskId"]);
    let_end(&daemon, &mark);
    peer.result("tasks/result", &json!({"taskId": created["taskId"]}).to_string());
    assert_eq!(peer.result("tools/call", &as_task())["task"]["status"], "completed");
    assert_eq!(runs(&daemon, &mark), 1);
}

/// TSK-39: a key of another identity is a different key, and a key stands for one call.
#[test]
fn key_belongs_to_one_identity_and_one_call() {
    let daemon = daemon_with("");
    let (mark, key) = (marker(), key());
    let mut peer = daemon.peer();
    let first = call(&mut peer, "once", &key, &mark);
    wait_running(&daemon, &mark, 1);
    for (tool, arguments) in [
        ("once", json!({"t": mark, "more": "x"})),
        ("once", json!({"t": "another"})),
        ("patient", json!({"t": mark})),
    ] {
        let other = peer.request("tools/call", &params(tool, &key, &arguments).to_string());
        let answer = peer.answer(other);
        assert_eq!(answer["error"]["code"], INVALID_PARAMS, "{answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains("used for another call"), "{message}");
    }
    assert_eq!(runs(&daemon, &mark), 1);
    let Some(mut other) = daemon.peer_of(1) else { return };
    let theirs = call(&mut other, "once", &key, &mark);
    wait_running(&daemon, &mark, 2);
    let_end(&daemon, &mark);
    assert_eq!(text(&other.answer(theirs)), format!("done {mark}\n"));
    assert_eq!(text(&peer.answer(first)), format!("done {mark}\n"));
}

/// The key of an ended call expires after `idempotency_ttl`; that of a running call does not.
#[test]
fn keys_expire_after_their_ttl() {
    let daemon = daemon_with("idempotency_ttl = \"200ms\"");
    let (mark, key) = (marker(), key());
    let mut peer = daemon.peer();
    let first = call(&mut peer, "once", &key, &mark);
    wait_running(&daemon, &mark, 1);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let again = call(&mut peer, "once", &key, &mark);
    assert_eq!(peer.answer(again)["error"]["code"], CALL_UNDER_WAY);
    let_end(&daemon, &mark);
    assert_eq!(text(&peer.answer(first)), format!("done {mark}\n"));
    assert_eq!(runs(&daemon, &mark), 1, "a running call is not forgotten");
    wait_until("the key expires, and the call runs again", || {
        let anew = call(&mut peer, "once", &key, &mark);
        assert_eq!(text(&peer.answer(anew)), format!("done {mark}\n"));
        runs(&daemon, &mark) == 2
    });
}

/// TSK-36: the number of keys of one identity is limited; a further one is refused with the name of
/// the limit. Known keys, other identities, and calls without a key are unaffected.
#[test]
fn number_of_keys_is_limited() {
    let daemon = daemon_with("idempotency_keys_per_identity = 2\nidempotency_ttl = \"1h\"");
    let mark = marker();
    let_end(&daemon, &mark);
    let mut peer = daemon.peer();
    let keys = [key(), key(), key()];
    for key in &keys[..2] {
        let first = call(&mut peer, "once", key, &mark);
        text(&peer.answer(first));
    }
    let third = call(&mut peer, "once", &keys[2], &mark);
    let error = peer.answer(third)["error"].take();
    assert_eq!(error["code"], LIMIT_REACHED, "{error}");
    assert_eq!(error["data"], json!({"limit": "idempotency_keys_per_identity", "max": 2}));
    let known = call(&mut peer, "once", &keys[0], &mark);
    text(&peer.answer(known));
    assert_eq!(runs(&daemon, &mark), 2);
    let plain = peer.call("once", &format!(r#"{{"t":"{mark}"}}"#));
    text(&peer.answer(plain));
    if let Some(mut other) = daemon.peer_of(1) {
        let theirs = call(&mut other, "once", &keys[2], &mark);
        text(&other.answer(theirs));
    }
}

/// Clients that connect, call with a key and disconnect leave no state.
#[test]
fn disconnected_clients_leave_no_state() {
    let daemon = daemon_with("idempotency_ttl = \"10ms\"");
    let mark = marker();
    let_end(&daemon, &mark);
    daemon.wait_idle();
    let before: Vitals = daemon.vitals();
    for round in 0..30 {
        let mut peer = daemon.peer();
        let tool = ["once", "hasty"][round % 2];
        peer.send(&request(
            900,
            "tools/call",
            &params(tool, &key(), &json!({"t": mark})).to_string(),
        ));
    }
    daemon.wait_idle();
    assert!(carriers(&mark).is_empty());
    before.wait_back(daemon.pid());
}
