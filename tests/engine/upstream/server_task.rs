//! UPS-04, UPS-15: tasks that a server of 2026-07-28 makes of relayed calls.

use ceased_core::ConnId;
use ceased_core::ids::{CheckId, InstanceId};
use ceased_core::tool::TaskSupport;
use ceased_core::upstream::interface::UpstreamAction;
use ceased_core::upstream::server::UpstreamServer;
use serde_json::{Value, json};

use super::kit::{Kit, call, cancel, tool};
use super::server;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const ABLE: &str = "io.modelcontextprotocol/clientCapabilities";
const TASKS: &str = "io.modelcontextprotocol/tasks";

fn with_tasks() -> Value {
    json!({"elicitation": {"form": {}}, "extensions": {TASKS: {}}})
}

fn modern(id: &str, method: &str, capabilities: &Value, params: &Value) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({VERSION: "2026-07-28", ABLE: capabilities});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn modern_call(id: &str, capabilities: &Value) -> Value {
    modern(id, "tools/call", capabilities, &json!({"name": "work", "arguments": {}}))
}

fn ready(of: UpstreamServer) -> (Kit, ConnId, ConnId, InstanceId) {
    let mut kit = Kit::new(vec![of]);
    let client = kit.open_with(&json!({"elicitation": {}}));
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let identity = json!({"supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}, "extensions": {TASKS: {}}}});
    kit.settle(upstream, &identity, &[tool("work")]);
    kit.read(client);
    kit.wanted.clear();
    (kit, client, upstream, instance)
}

/// The state of the server's task, with further members.
fn state(status: &str, more: &Value) -> Value {
    let mut state = json!({"resultType": "complete", "taskId": "up-1", "status": status,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
        "ttlMs": null, "pollIntervalMs": 200});
    for (name, value) in more.as_object().expect("members") {
        state[name] = value.clone();
    }
    state
}

fn handle() -> Value {
    state("working", &json!({"resultType": "task"}))
}

fn declared(request: &Value) -> bool {
    request["params"]["_meta"][ABLE]["extensions"][TASKS].is_object()
}

fn poll(kit: &mut Kit, upstream: ConnId) -> Value {
    kit.pass(200);
    let poll = kit.one(upstream);
    assert_eq!((&poll["method"], &poll["params"]["taskId"]), (&json!("tasks/get"), &json!("up-1")));
    assert!(declared(&poll), "{poll}");
    poll
}

/// A modern client with tasks: the server makes a task, and the client gets a handle of the engine.
fn begin(kit: &mut Kit, client: ConnId, upstream: ConnId) -> String {
    kit.send(client, &modern_call("1", &with_tasks()));
    let relayed = kit.one(upstream);
    assert!(declared(&relayed), "{relayed}");
    kit.answer(upstream, &relayed, &handle());
    let answer = kit.one(client)["result"].clone();
    assert_eq!(answer["resultType"], "task", "{answer}");
    assert_ne!(answer["taskId"], "up-1");
    answer["taskId"].as_str().unwrap().to_owned()
}

/// The check whose order to look at the processes is the first.
fn check_of(kit: &Kit) -> CheckId {
    let asked = kit.wanted.iter().find_map(|action| match action {
        UpstreamAction::Examine { check, .. } => Some(*check),
        UpstreamAction::Start { .. }
        | UpstreamAction::EndStrays { .. }
        | UpstreamAction::Forget { .. }
        | UpstreamAction::End { .. }
        | UpstreamAction::SaveManifest { .. }
        | UpstreamAction::SaveApproval { .. }
        | UpstreamAction::ToolsDiffer { .. }
        | UpstreamAction::Warn { .. } => None,
    });
    asked.expect("it is looked at")
}

fn get(kit: &mut Kit, client: ConnId, task: &str) -> Value {
    kit.send(client, &modern("get", "tasks/get", &with_tasks(), &json!({"taskId": task})));
    kit.one(client)["result"].clone()
}

/// The server decides which call becomes a task: one that it answers at once is none.
#[test]
fn call_that_the_server_answers_is_no_task() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    for capabilities in [with_tasks(), json!({})] {
        kit.send(client, &modern_call("1", &capabilities));
        let relayed = kit.one(upstream);
        assert_eq!(declared(&relayed), capabilities != json!({}), "{relayed}");
        kit.answer(upstream, &relayed, &json!({"resultType": "complete", "content": []}));
        assert_eq!(kit.one(client)["result"]["content"], json!([]));
    }
}

/// A task of the server is followed under a handle of the engine to its result or error.
#[test]
fn task_of_a_server_has_a_handle_of_the_engine() {
    for (end, more, member, status) in [
        ("completed", json!({"result": {"content": [], "x": 1.5}}), "result", "completed"),
        ("failed", json!({"error": {"code": -32000, "message": "no"}}), "error", "failed"),
        ("cancelled", json!({}), "error", "failed"),
    ] {
        let (mut kit, client, upstream, _) = ready(server("s"));
        let task = begin(&mut kit, client, upstream);
        let asked = poll(&mut kit, upstream);
        kit.answer(upstream, &asked, &state("working", &json!({})));
        assert_eq!(get(&mut kit, client, &task)["status"], "working");
        let asked = poll(&mut kit, upstream);
        kit.answer(upstream, &asked, &state(end, &more));
        let told = get(&mut kit, client, &task);
        assert_eq!(told["status"], status, "{told}");
        assert!(told[member].is_object(), "{told}");
        if end == "completed" {
            assert_eq!(told["result"]["x"], 1.5);
        }
        kit.pass(60_000);
        kit.silent(upstream);
    }
}

/// Inputs of the task are asked for once each, and answered by `tasks/update`.
#[test]
fn inputs_of_a_task_reach_its_client_and_return() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    let task = begin(&mut kit, client, upstream);
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let wanted = json!({"inputRequests": {"k": {"method": "elicitation/create", "params": form}}});
    for _ in 0..2 {
        let asked = poll(&mut kit, upstream);
        // A server names only the inputs that the client of the call can give.
        assert_eq!(asked["params"]["_meta"][ABLE]["elicitation"], json!({"form": {}}));
        kit.answer(upstream, &asked, &state("input_required", &wanted));
    }
    let told = get(&mut kit, client, &task);
    assert_eq!(told["status"], "input_required", "{told}");
    let requests = told["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 1, "{told}");
    let (key, request) = requests.iter().next().unwrap();
    assert_eq!(request["params"]["message"], "?");
    let given = json!({"action": "accept", "content": {}});
    let params = json!({"taskId": task, "inputResponses": {key.as_str(): given}});
    kit.send(client, &modern("update", "tasks/update", &with_tasks(), &params));
    kit.one(client);
    let update = kit.one(upstream);
    assert_eq!(update["method"], "tasks/update");
    assert_eq!(update["params"]["taskId"], "up-1");
    assert_eq!(update["params"]["inputResponses"], json!({"k": given}));
    kit.answer(upstream, &update, &json!({"resultType": "complete"}));
    let asked = poll(&mut kit, upstream);
    kit.answer(upstream, &asked, &state("completed", &json!({"result": {"content": []}})));
    assert_eq!(get(&mut kit, client, &task)["status"], "completed");
}

/// EXT-05, TSK-36: so many inputs of a task are asked for at a time, and no more are remembered; the
/// others follow when the server has taken some.
#[test]
fn inputs_of_a_task_are_bounded() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    let task = begin(&mut kit, client, upstream);
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let one = json!({"method": "elicitation/create", "params": form});
    let wanted = |taken: &[String]| {
        let keys = (0..100).map(|key| format!("k{key}")).filter(|key| !taken.contains(key));
        let all: serde_json::Map<_, _> = keys.map(|key| (key, one.clone())).collect();
        state("input_required", &json!({"inputRequests": all}))
    };
    let requests = |kit: &mut Kit| {
        let told = get(kit, client, &task);
        assert_eq!(told["status"], "input_required", "{told}");
        told["inputRequests"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let asked = poll(&mut kit, upstream);
    kit.answer(upstream, &asked, &wanted(&[]));
    let first = requests(&mut kit);
    assert_eq!(first.len(), 64);
    let given = json!({"action": "accept", "content": {}});
    let all: serde_json::Map<_, _> = first.iter().map(|key| (key.clone(), given.clone())).collect();
    let params = json!({"taskId": task, "inputResponses": all});
    kit.send(client, &modern("update", "tasks/update", &with_tasks(), &params));
    kit.one(client);
    let mut taken: Vec<String> = Vec::new();
    for update in kit.read(upstream) {
        assert_eq!(update["method"], "tasks/update");
        taken.extend(update["params"]["inputResponses"].as_object().unwrap().keys().cloned());
        kit.answer(upstream, &update, &json!({"resultType": "complete"}));
    }
    let asked = poll(&mut kit, upstream);
    kit.answer(upstream, &asked, &wanted(&taken));
    assert_eq!(requests(&mut kit).len(), 36);
}

/// UPS-04, UPS-05: the cancel is `tasks/cancel`, once; its acknowledgement is no evidence, the end
/// of the task is.
#[test]
fn cancel_reaches_the_task_and_waits_for_its_end() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    let task = begin(&mut kit, client, upstream);
    kit.send(client, &modern("c", "tasks/cancel", &with_tasks(), &json!({"taskId": task})));
    let told = kit.read(upstream);
    let cancels = told.iter().filter(|message| message["method"] == "tasks/cancel");
    let cancels: Vec<&Value> = cancels.collect();
    assert_eq!(cancels.len(), 1, "{told:?}");
    assert!(told.iter().all(|message| message["method"] != "notifications/cancelled"), "{told:?}");
    kit.answer(upstream, cancels[0], &json!({"resultType": "complete"}));
    assert_eq!(kit.proof(), None);
    let asked = kit.one(upstream);
    kit.answer(upstream, &asked, &state("working", &json!({})));
    assert_eq!(kit.proof(), None);
    kit.pass(50);
    let asked = kit.one(upstream);
    kit.answer(upstream, &asked, &state("cancelled", &json!({})));
    assert_eq!(kit.proof(), Some("answered"));
}

/// CAN-05: a call that is cancelled before the server names its task is cancelled as a task then.
#[test]
fn cancel_before_the_handle_follows_it() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    kit.send(client, &modern_call("1", &with_tasks()));
    let relayed = kit.one(upstream);
    kit.send(client, &cancel(&json!("1")));
    let told = kit.read(upstream);
    assert!(told.iter().any(|message| message["method"] == "notifications/cancelled"));
    kit.answer(upstream, &relayed, &handle());
    let told = kit.one(upstream);
    assert_eq!(
        (&told["method"], &told["params"]["taskId"]),
        (&json!("tasks/cancel"), &json!("up-1"))
    );
    assert_eq!(kit.proof(), None);
    kit.silent(client);
}

/// UPS-05: a task that goes on after its cancel is enforced like any other work.
#[test]
fn ignored_cancel_of_a_task_is_enforced() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    let task = begin(&mut kit, client, upstream);
    kit.send(client, &modern("c", "tasks/cancel", &with_tasks(), &json!({"taskId": task})));
    kit.read(client);
    kit.pass(2000);
    let check = check_of(&kit);
    kit.examined(instance, check, 0, 100);
    kit.ended(instance, "signal 15", "");
    assert_eq!(kit.proof(), Some("ended"));
    assert_eq!(get(&mut kit, client, &task)["status"], "cancelled");
}

/// UPS-08: the end of the instance is the end of the task, with the reason.
#[test]
fn task_ends_with_its_server() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    let task = begin(&mut kit, client, upstream);
    kit.ended(instance, "signal 9", "last words");
    let told = get(&mut kit, client, &task);
    assert_eq!(told["status"], "failed", "{told}");
    assert!(told["error"]["message"].as_str().unwrap().contains("last words"), "{told}");
}

/// A client that knows no such tasks gets the result: the server has refused the plain call, and
/// is asked once more with tasks.
#[test]
fn session_gets_the_result_of_a_tool_that_runs_as_a_task() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    kit.send(client, &call(&json!(1), "work"));
    let plain = kit.one(upstream);
    assert!(!declared(&plain), "{plain}");
    let needed = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
    let error = json!({"code": -32021, "message": "a task only", "data": needed});
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": plain["id"], "error": error}));
    let again = kit.one(upstream);
    assert!(declared(&again) && again["id"] != plain["id"], "{again}");
    assert_eq!(again["params"]["name"], "work");
    kit.answer(upstream, &again, &handle());
    kit.silent(client);
    let asked = poll(&mut kit, upstream);
    let result = json!({"result": {"resultType": "complete", "content": [], "x": 1.5}});
    kit.answer(upstream, &asked, &state("completed", &result));
    assert_eq!(kit.one(client)["result"], json!({"content": [], "x": 1.5}));
    // A refusal with tasks declared is the answer.
    kit.send(client, &call(&json!(2), "work"));
    for _ in 0..2 {
        let asked = kit.one(upstream);
        kit.send(upstream, &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
    }
    assert_eq!(kit.one(client)["error"]["code"], -32021);
}

/// A modern client without tasks gets the refusal of the server as it is.
#[test]
fn client_without_tasks_gets_the_refusal() {
    let (mut kit, client, upstream, _) = ready(server("s"));
    kit.send(client, &modern_call("1", &json!({})));
    let plain = kit.one(upstream);
    let needed = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
    let error = json!({"code": -32021, "message": "a task only", "data": needed});
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": plain["id"], "error": error}));
    assert_eq!(kit.one(client)["error"]["data"], needed);
    kit.silent(upstream);
}

/// With `task_support` the engine makes the task, also where the server would; one that the server
/// makes all the same is followed.
#[test]
fn configured_tasks_are_those_of_the_engine() {
    let task_support = Some(TaskSupport::Optional);
    let (mut kit, client, upstream, _) = ready(UpstreamServer { task_support, ..server("s") });
    kit.send(client, &modern_call("1", &with_tasks()));
    let answer = kit.one(client)["result"].clone();
    assert_eq!(answer["resultType"], "task");
    let relayed = kit.one(upstream);
    assert!(!declared(&relayed), "{relayed}");
    kit.answer(upstream, &relayed, &json!({"resultType": "complete", "content": []}));
    let task = answer["taskId"].as_str().unwrap().to_owned();
    assert_eq!(get(&mut kit, client, &task)["status"], "completed");
}

/// UPS-06: a call that is sent once more to a draining instance does not put off its deadline.
#[test]
fn retry_keeps_the_deadline_of_a_draining_instance() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    let other = kit.open();
    for (conn, id) in [(client, 1), (client, 2)] {
        kit.send(conn, &call(&json!(id), "work"));
    }
    let relayed = kit.read(upstream);
    kit.send(client, &cancel(&json!(1)));
    kit.pong(upstream);
    kit.pass(2000);
    let check = check_of(&kit);
    kit.examined(instance, check, 0, 100);
    kit.pass(100);
    kit.examined(instance, check, 0, 200);
    kit.read(upstream);
    let needed = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
    let error = json!({"code": -32021, "message": "a task only", "data": needed});
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": relayed[1]["id"], "error": error}));
    assert!(declared(&kit.one(upstream)));
    kit.wanted.clear();
    kit.pass(30_000);
    let ends = |action: &UpstreamAction| matches!(action, UpstreamAction::End { .. });
    assert!(kit.wanted.iter().any(ends), "its drain deadline has passed");
    kit.silent(other);
}

/// A task that a server makes of a call whose job has ended is cancelled, not left to itself.
#[test]
fn task_of_a_late_answer_is_cancelled() {
    let (mut kit, client, upstream, instance) = ready(server("s"));
    kit.send(client, &modern_call("1", &with_tasks()));
    let relayed = kit.one(upstream);
    kit.send(client, &cancel(&json!("1")));
    let told = kit.read(upstream);
    let ping = told.iter().find(|message| message["method"] == "server/discover");
    kit.answer(upstream, ping.expect("it is asked whether it is alive"), &json!({}));
    kit.pass(1900);
    let check = check_of(&kit);
    for _ in 0..2 {
        kit.examined(instance, check, 0, 0);
        kit.pass(100);
    }
    assert_eq!(kit.proof(), Some("quiet"));
    kit.answer(upstream, &relayed, &handle());
    let told = kit.one(upstream);
    assert_eq!(
        (&told["method"], &told["params"]["taskId"]),
        (&json!("tasks/cancel"), &json!("up-1"))
    );
    // TSK-36: a server that repeats its answer, and answers no cancel, fills no table: each task is
    // cancelled, and the next call is relayed.
    for _ in 0..2000 {
        kit.answer(upstream, &relayed, &handle());
    }
    let told = kit.read(upstream);
    assert_eq!(told.len(), 2000);
    assert!(told.iter().all(|message| message["method"] == "tasks/cancel"));
    kit.send(client, &modern_call("2", &with_tasks()));
    assert_eq!(kit.one(upstream)["method"], "tools/call");
}
