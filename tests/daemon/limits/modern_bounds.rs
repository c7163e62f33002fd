//! Limits of 2026-07-28 in the real daemon: subscriptions, and calls suspended for input.

use ceased_tests::daemon::{Config, Daemon, Peer, wait_until};
use ceased_tests::modern::{able, cancel, request, tasks};
use ceased_tests::schema::{self, Asked};
use serde_json::{Value, json};

const LIMIT_REACHED: i64 = -31003;
const INVALID_PARAMS: i64 = -32602;

const TOOL: &str = r#"
[[tool]]
name = "asks"
max_output = "64KiB"
command = ["echo", "ran"]
confirm = "Really?"
"#;

fn daemon(limits: &str) -> Daemon {
    Daemon::start(&Config { limits, tools: TOOL, ..Config::default() })
}

/// Sends a request and reads up to its answer, or up to its first message of this method; validates
/// every message against the published schema.
fn ask(peer: &mut Peer, id: &Value, method: &str, params: Value, until: Option<&str>) -> Value {
    peer.send(&request(id.clone(), method, params));
    let (method, with_task) = (method.to_owned(), false);
    let asked = Asked { method, with_task, claims: true, of_server: false };
    loop {
        let message = peer.message().expect("the daemon is connected");
        let answers = (message["id"] == *id).then_some(&asked);
        schema::check_message(schema::MODERN, &message, answers).expect("a message is valid");
        if answers.is_some() || message["method"].as_str().is_some_and(|m| Some(m) == until) {
            return message;
        }
    }
}

fn refused(answer: &Value, limit: &str, max: usize) {
    assert_eq!(answer["error"]["code"], LIMIT_REACHED, "{answer}");
    assert_eq!(answer["error"]["data"], json!({"limit": limit, "max": max}));
}

fn call() -> Value {
    able(&json!({"elicitation": {}}), json!({"name": "asks", "arguments": {}}))
}

/// Params of a retry that accepts every input request.
fn retry(asked: &Value) -> Value {
    let mut params = call();
    let requests =
        asked["result"]["inputRequests"].as_object().expect("the answer has input requests");
    for key in requests.keys() {
        params["inputResponses"][key] = json!({"action": "accept", "content": {}});
    }
    params["requestState"] = asked["result"]["requestState"].clone();
    params
}

fn listen(wanted: &Value) -> Value {
    tasks(json!({"notifications": wanted}))
}

const ACKNOWLEDGED: Option<&str> = Some("notifications/subscriptions/acknowledged");

/// MOD-08, TSK-36: the subscriptions of a connection and the tasks of one are limited.
#[test]
fn subscriptions_are_limited() {
    let daemon = daemon("subscriptions_per_connection = 2\ntasks_per_subscription = 1");
    let (mut peer, mut other) = (daemon.connect(), daemon.connect());
    let tools = json!({"toolsListChanged": true});
    for id in [1, 2] {
        let first =
            ask(&mut peer, &json!(id), "subscriptions/listen", listen(&tools), ACKNOWLEDGED);
        assert_eq!(first["params"]["notifications"], tools, "{first}");
    }
    let third = ask(&mut peer, &json!(3), "subscriptions/listen", listen(&tools), ACKNOWLEDGED);
    refused(&third, "subscriptions_per_connection", 2);
    // Each connection has its own limit, and an ended subscription frees its place.
    let first = ask(&mut other, &json!(1), "subscriptions/listen", listen(&tools), ACKNOWLEDGED);
    assert!(first["error"].is_null(), "{first}");
    peer.send(&cancel(json!(1)));
    let fourth = ask(&mut peer, &json!(4), "subscriptions/listen", listen(&tools), ACKNOWLEDGED);
    assert!(fourth["error"].is_null(), "{fourth}");
    let ids = ["67e55044-10b1-426f-9247-bb680e5fe0c8", "67e55044-10b1-426f-9247-bb680e5fe0c9"];
    let two = listen(&json!({"taskIds": ids}));
    let answer = ask(&mut other, &json!(5), "subscriptions/listen", two, ACKNOWLEDGED);
    refused(&answer, "tasks_per_subscription", 1);
}

/// MOD-07: suspended calls are limited in number, and a retry frees its place.
#[test]
fn suspended_calls_are_limited() {
    let daemon = daemon("parked_per_identity = 1\nasks_per_job = 1");
    let mut peer = daemon.connect();
    let asked = ask(&mut peer, &json!(1), "tools/call", call(), None);
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    // The tool cannot ask and so does not run.
    let second = ask(&mut peer, &json!(2), "tools/call", call(), None);
    assert_eq!(second["result"]["isError"], true, "{second}");
    let done = ask(&mut peer, &json!(3), "tools/call", retry(&asked), None);
    assert_eq!(done["result"]["content"][0]["text"], "ran\n", "{done}");
    let fourth = ask(&mut peer, &json!(4), "tools/call", call(), None);
    assert_eq!(fourth["result"]["resultType"], "input_required", "{fourth}");
    drop(peer);
}

/// MOD-07: a suspended call without a retry in time is stopped, and its state becomes invalid.
#[test]
fn suspended_calls_expire() {
    let daemon = daemon("parked_for = \"50ms\"");
    let mut peer = daemon.connect();
    let asked = ask(&mut peer, &json!(1), "tools/call", call(), None);
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let mut other = daemon.peer();
    wait_until("the call is stopped", || {
        let status = other.result("ceased/status", "{}");
        status["jobs"].as_array().is_some_and(Vec::is_empty)
    });
    let late = ask(&mut peer, &json!(2), "tools/call", retry(&asked), None);
    assert_eq!(late["error"]["code"], INVALID_PARAMS, "{late}");
}
