//! UPS-04, UPS-15: tools that a server runs as tasks only.

use ceased_core::tool::TaskSupport;
use ceased_core::upstream::interface::UpstreamAction;
use ceased_core::upstream::server::UpstreamServer;
use ceased_core::{ConnId, Identity};
use serde_json::{Value, json};

use super::kit::{Kit, call, cancel};
use super::server;

fn tasked() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {},
        "tasks": {"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}}}})
}

fn tool() -> Value {
    json!({"name": "work", "inputSchema": {}, "execution": {"taskSupport": "required"}})
}

/// A client, and an instance whose tool needs a task; the client's calls are plain ones.
fn ready() -> (Kit, ConnId, ConnId, ceased_core::ids::InstanceId) {
    let task_support = Some(TaskSupport::Optional);
    let mut kit = Kit::new(vec![UpstreamServer { task_support, ..server("s") }]);
    let client = kit.open_with(&json!({"elicitation": {}}));
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.settle(upstream, &tasked(), &[tool()]);
    kit.read(client);
    kit.wanted.clear();
    (kit, client, upstream, instance)
}

fn created(status: &str) -> Value {
    json!({"task": {"taskId": "up-1", "status": status, "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": null, "pollInterval": 1000}})
}

/// Calls the tool, and lets the server make a task of it.
fn begin(kit: &mut Kit, client: ConnId, upstream: ConnId) -> Value {
    let mut request = call(&json!(1), "work");
    request["params"]["_meta"] = json!({"progressToken": "t"});
    kit.send(client, &request);
    let relayed = kit.one(upstream);
    assert_eq!(relayed["params"]["task"], json!({}));
    kit.answer(upstream, &relayed, &created("working"));
    kit.silent(client);
    relayed
}

/// A plain call is followed through the server's task to its result; its progress goes on.
#[test]
fn plain_call_is_followed_through_the_task_of_the_server() {
    let (mut kit, client, upstream, _) = ready();
    let relayed = begin(&mut kit, client, upstream);
    let token = &relayed["params"]["_meta"]["progressToken"];
    kit.send(
        upstream,
        &json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": token, "progress": 1}}),
    );
    assert_eq!(kit.one(client)["params"], json!({"progressToken": "t", "progress": 1}));
    kit.pass(1000);
    let poll = kit.one(upstream);
    assert_eq!((&poll["method"], &poll["params"]["taskId"]), (&json!("tasks/get"), &json!("up-1")));
    kit.answer(upstream, &poll, &created("completed")["task"]);
    let fetch = kit.one(upstream);
    assert_eq!(fetch["method"], "tasks/result");
    kit.answer(upstream, &fetch, &json!({"content": [], "x": 1.5}));
    assert_eq!(kit.one(client)["result"]["x"], 1.5);
    assert_eq!(kit.engine.sizes().timers, 0);
}

/// A question of the task reaches the client of the call, by the task that it names.
#[test]
fn question_of_a_task_reaches_its_client() {
    let (mut kit, client, upstream, _) = ready();
    begin(&mut kit, client, upstream);
    kit.send(client, &call(&json!(2), "work"));
    kit.one(upstream);
    let related = json!({"io.modelcontextprotocol/related-task": {"taskId": "up-1"}});
    kit.send(
        upstream,
        &json!({"jsonrpc": "2.0", "id": 8, "method": "elicitation/create",
        "params": {"message": "?", "_meta": related}}),
    );
    let asked = kit.one(client);
    assert!(asked["params"].get("_meta").is_none(), "the id is the server's: {asked}");
    kit.send(client, &cancel(&json!(1)));
    assert_eq!(kit.one(client)["params"]["requestId"], asked["id"], "it was of the first call");
}

/// CAN-05: the cancel is `tasks/cancel`, once, and its answer is evidence.
#[test]
fn cancel_reaches_the_task_of_the_server() {
    let (mut kit, client, upstream, _) = ready();
    begin(&mut kit, client, upstream);
    kit.send(client, &cancel(&json!(1)));
    let told = kit.pong(upstream);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["method"], &told[0]["params"]),
        (&json!("tasks/cancel"), &json!({"taskId": "up-1"}))
    );
    assert_eq!(kit.proof(), None);
    kit.answer(upstream, &told[0], &created("cancelled")["task"]);
    assert_eq!(kit.proof(), Some("answered"));
    kit.silent(client);
    kit.pass(60_000);
    kit.silent(upstream);
}

/// CAN-05: a cancel before the task has an id follows as soon as it has one.
#[test]
fn cancel_waits_for_the_id_of_the_task() {
    let (mut kit, client, upstream, _) = ready();
    kit.send(client, &call(&json!(1), "work"));
    let relayed = kit.one(upstream);
    kit.send(client, &cancel(&json!(1)));
    assert!(kit.pong(upstream).is_empty(), "a task is not cancelled by its request");
    kit.answer(upstream, &relayed, &created("working"));
    let told = kit.one(upstream);
    assert_eq!(
        (&told["method"], &told["params"]["taskId"]),
        (&json!("tasks/cancel"), &json!("up-1"))
    );
    kit.answer(upstream, &told, &created("cancelled")["task"]);
    assert_eq!(kit.proof(), Some("answered"));
}

/// A server that ignores `tasks/cancel` is replaced like one that ignores a plain cancel.
#[test]
fn ignored_cancel_of_a_task_is_enforced() {
    let (mut kit, client, upstream, instance) = ready();
    begin(&mut kit, client, upstream);
    kit.send(client, &cancel(&json!(1)));
    kit.read(upstream);
    kit.pass(2000);
    let checks: Vec<_> = std::mem::take(&mut kit.wanted);
    let check = checks.iter().find_map(|action| {
        let UpstreamAction::Examine { check, .. } = action else { return None };
        Some(*check)
    });
    kit.examined(instance, check.expect("it is looked at"), 0, 100);
    kit.ended(instance, "signal 15", "");
    assert_eq!(kit.proof(), Some("ended"));
    assert_eq!(kit.engine.sizes().timers, 0);
}

/// A task of the engine around a task of the server: one handle for the client, and its cancel
/// reaches the server's task. The server's end with a restart is an error, not silence.
#[test]
fn task_of_the_engine_follows_the_task_of_the_server() {
    let (mut kit, client, upstream, instance) = ready();
    for end in ["cancelled", "completed", "died"] {
        let mut request = call(&json!(end), "work");
        request["params"]["task"] = json!({});
        kit.send(client, &request);
        let handle = kit.one(client)["result"]["task"]["taskId"].clone();
        assert_ne!(handle, "up-1");
        let relayed = kit.one(upstream);
        kit.answer(upstream, &relayed, &created("working"));
        let about = |method: &str| json!({"jsonrpc": "2.0", "id": method, "method": method, "params": {"taskId": handle}});
        match end {
            "cancelled" => {
                kit.send(client, &about("tasks/cancel"));
                let told = kit.pong(upstream);
                assert_eq!(told[0]["method"], "tasks/cancel");
                kit.answer(upstream, &told[0], &created("cancelled")["task"]);
            }
            "completed" => {
                kit.pass(1000);
                let poll = kit.one(upstream);
                kit.answer(upstream, &poll, &created("completed")["task"]);
                let fetch = kit.one(upstream);
                kit.answer(upstream, &fetch, &json!({"content": []}));
            }
            _ => kit.ended(instance, "signal 9", "gone"),
        }
        kit.read(client);
        kit.send(client, &about("tasks/get"));
        let state = kit.one(client)["result"].clone();
        assert_eq!(state["status"], if end == "died" { "failed" } else { end }, "{state}");
    }
}

/// The identity of a client is not needed to follow a task: another one sees nothing of it.
#[test]
fn task_of_a_server_stays_with_its_client() {
    let (mut kit, client, upstream, _) = ready();
    begin(&mut kit, client, upstream);
    let other = kit.conn();
    let identity = Identity::User(7);
    kit.feed(ceased_core::Event::Opened {
        conn: other,
        identity,
        rights: ceased_core::Rights::Full,
        role: ceased_core::Role::Server,
    });
    kit.send(other, &super::kit::initialize("2025-11-25"));
    kit.read(other);
    kit.send(
        other,
        &json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": "up-1"}}),
    );
    assert_eq!(kit.one(other)["error"]["code"], -32602);
}
