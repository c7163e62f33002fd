//! The client as receiver: the rules of cancellation and of tasks with the roles swapped (TSK-44).

use std::time::Duration;

use ceased_core::event::Outcome;
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::protocol::role::Offers;
use ceased_core::reason::StopReason;
use ceased_core::settings::Settings;
use ceased_core::tool::{Catalog, StopStep, TaskSupport, Tool};
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, Rigged, World};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

fn sampling() -> Value {
    json!({"messages": [], "maxTokens": 5})
}

fn sampled() -> Value {
    json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}})
}

fn asks(w: &mut World, conn: ConnId, id: &Value, method: &str, params: &Value) {
    let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    w.send(conn, &request.to_string());
}

/// A server asks for sampling; the job it started.
#[track_caller]
fn samples(w: &mut World, conn: ConnId, id: &Value) -> JobId {
    let before = w.started.len();
    asks(w, conn, id, "sampling/createMessage", &sampling());
    assert_eq!(w.started.len(), before + 1, "one job was started");
    w.last_started()
}

/// A server asks for sampling as a task; its id and its job.
#[track_caller]
fn samples_as_task(w: &mut World, conn: ConnId, task: &Value) -> (String, JobId) {
    let mut params = sampling();
    params["task"] = task.clone();
    let result = w.result(conn, "sampling/createMessage", params);
    (result["task"]["taskId"].as_str().expect("it is there").to_owned(), w.last_started())
}

fn ends(w: &mut World, job: JobId, result: &Value) {
    w.feed(Input::Done(job, Outcome::Result(to_raw_value(result).expect("it is there").into())));
}

fn cancels(w: &mut World, conn: ConnId, params: &Value) {
    let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    w.send(conn, &note.to_string());
}

fn server(w: &mut World) -> ConnId {
    w.dial(NEWEST, json!({}))
}

/// TSK-44: every service is a job with the params of the request, and its result the answer.
#[test]
fn services_are_jobs() {
    let mut w = World::new();
    let conn = server(&mut w);
    asks(&mut w, conn, &json!("p"), "ping", &json!({}));
    w.expect(conn, json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    for (method, params, result) in [
        ("sampling/createMessage", sampling(), sampled()),
        ("elicitation/create", json!({"message": "m"}), json!({"action": "cancel"})),
        ("roots/list", json!({}), json!({"roots": []})),
    ] {
        asks(&mut w, conn, &json!(1), method, &params);
        let job = w.last_started();
        let running = w.running[&job].clone();
        assert_eq!((running.tool.as_str(), running.arguments), (method, params.to_string()));
        ends(&mut w, job, &result);
        w.expect(conn, json!({"jsonrpc": "2.0", "id": 1, "result": result}));
    }
    w.send(conn, r#"{"jsonrpc":"2.0","id":2,"method":"roots/list"}"#);
    let job = w.last_started();
    w.feed(Input::Done(job, Outcome::Error(ceased_core::rpc::error::ErrorObject::new(-1, "no"))));
    w.expect_error(conn, json!(2), -1);
}

/// Methods that a server may not use do not exist for it: our tools, initialize, undeclared ones.
#[test]
fn server_gets_what_was_declared() {
    let mut w = World::new();
    let conn = server(&mut w);
    for method in ["tools/list", "tools/call", "initialize", "ceased/status", "logging/setLevel"] {
        assert_eq!(w.refusal(conn, method, json!({"name": "echo"})).0, -32601, "{method}");
    }
    let roots = Offers { roots: true, ..Offers::default() };
    let conn = w.dial_with(Identity::User(1), roots);
    let initialize = w.next(conn);
    assert_eq!(w.refusal(conn, "roots/list", json!({})).0, -32600, "before the session");
    let result = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "serverInfo": {"name": "s", "version": "1"}});
    w.answer(conn, &initialize["id"], result);
    w.rest(conn);
    for method in ["sampling/createMessage", "elicitation/create", "tasks/list", "tasks/get"] {
        assert_eq!(w.refusal(conn, method, json!({})).0, -32601, "{method}");
    }
    assert_eq!(w.started.len(), 0);
}

/// CAN-06, CAN-08, CAN-09, CAN-10, CAN-14 with the client as receiver: the work stops, nothing is
/// answered, the unknown and the malformed are ignored. TSK-44.
#[test]
fn server_cancels_a_service() {
    let mut w = World::new();
    let conn = server(&mut w);
    let job = samples(&mut w, conn, &json!("x"));
    for ignored in [json!({"requestId": "y"}), json!({"requestId": 1}), json!({}), json!([1])] {
        cancels(&mut w, conn, &ignored);
    }
    let counters = *w.counters();
    assert_eq!((counters.cancels_ignored, counters.cancels_malformed), (2, 2));
    assert_eq!(w.steps(job), []);
    cancels(&mut w, conn, &json!({"requestId": "x", "reason": "never mind"}));
    assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Requested)]);
    ends(&mut w, job, &sampled());
    cancels(&mut w, conn, &json!({"requestId": "x"}));
    w.silent(conn);
    assert_eq!((w.sizes().jobs, w.sizes().requests), (0, 0));
    // CAN-06: a cancel that arrives together with its request wins.
    let request = json!({"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage",
        "params": sampling()});
    w.frame(conn, &request.to_string());
    cancels(&mut w, conn, &json!({"requestId": 5}));
    assert_eq!(w.started.len(), 1);
    w.silent(conn);
    // A server that is gone waits for nothing.
    let job = samples(&mut w, conn, &json!(6));
    w.lose(conn);
    assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Disconnected)]);
}

/// TSK-03, TSK-05, TSK-06 with the client as receiver: the wish for a task is ignored where none
/// was declared, and its absence refused where a service is nothing else. TSK-44.
#[test]
fn task_support_of_services() {
    let required =
        Tool { task_support: TaskSupport::Required, ..tools::tool("sampling/createMessage") };
    let services = Catalog::new([required, tools::tool("elicitation/create")]).expect("good tools");
    let settings = Settings { services, ..Settings::default() };
    let mut w = World::made_of(settings.into(), Rigged::default());
    let conn = server(&mut w);
    asks(&mut w, conn, &json!(1), "sampling/createMessage", &sampling());
    assert!(w.expect_error(conn, json!(1), -32600).contains("sampling/createMessage"));
    let older = w.dial("2025-06-18", json!({}));
    // The schema of the answer is that of the plain request, whatever was wished for.
    w.strict = false;
    for (conn, method) in [(conn, "elicitation/create"), (older, "sampling/createMessage")] {
        asks(&mut w, conn, &json!(2), method, &json!({"task": {"ttl": 0}}));
        let job = w.last_started();
        assert_eq!(w.running[&job].task, None);
        ends(&mut w, job, &json!({"plain": true}));
        assert_eq!(w.next(conn)["result"], json!({"plain": true}));
    }
    assert_eq!(w.refusal(older, "tasks/list", json!({})).0, -32601);
}

/// TSK-07 to TSK-09, TSK-11, TSK-12, TSK-14 to TSK-18, TSK-29, TSK-34 with the client as receiver:
/// created before it starts, told of, waited for, fetched twice. TSK-44.
#[test]
fn service_as_a_task() {
    let mut w = World::new();
    let conn = server(&mut w);
    let (task, job) = samples_as_task(&mut w, conn, &json!({"ttl": 30_000}));
    assert_eq!(w.running[&job].task.map(|task| task.to_string()), Some(task.clone()));
    let object = w.result(conn, "tasks/get", json!({"taskId": task}));
    assert_eq!((&object["status"], &object["ttl"]), (&json!("working"), &json!(30_000)));
    asks(&mut w, conn, &json!("wait"), "tasks/result", &json!({"taskId": task}));
    w.silent(conn);
    ends(&mut w, job, &sampled());
    let note = w.next(conn);
    assert_eq!(note["method"], "notifications/tasks/status");
    assert_eq!(note["params"]["status"], "completed");
    let mut expected = sampled();
    expected["_meta"] = json!({RELATED_TASK: {"taskId": task}});
    assert_eq!(w.next(conn)["result"], expected);
    assert_eq!(w.result(conn, "tasks/result", json!({"taskId": task})), expected);
    for bad in [json!({"ttl": 0}), json!({"ttl": "1"}), json!([])] {
        let mut params = sampling();
        params["task"] = bad;
        assert_eq!(w.refusal(conn, "sampling/createMessage", params).0, -32602);
    }
    w.advance(Duration::from_secs(31));
    assert_eq!(w.refusal(conn, "tasks/get", json!({"taskId": task})).0, -32602);
    assert_eq!(w.sizes().timers, 0);
}

/// TSK-19, TSK-20, TSK-22 with the client as receiver. TSK-44.
#[test]
fn tasks_of_services_are_listed() {
    let mut w =
        World::with(Limits::default(), TaskPolicy { page_size: 2, ..TaskPolicy::default() });
    let conn = server(&mut w);
    let made: Vec<String> = (0..3).map(|_| samples_as_task(&mut w, conn, &json!({})).0).collect();
    let first = w.result(conn, "tasks/list", json!({}));
    let second = w.result(conn, "tasks/list", json!({"cursor": first["nextCursor"]}));
    let listed: Vec<&Value> = [&first, &second]
        .into_iter()
        .flat_map(|page| page["tasks"].as_array().expect("it is there"))
        .map(|task| &task["taskId"])
        .collect();
    assert_eq!(listed, made.iter().collect::<Vec<_>>());
    assert!(second.get("nextCursor").is_none());
    assert_eq!(w.refusal(conn, "tasks/list", json!({"cursor": "x"})).0, -32602);
}

/// CAN-05, CAN-15, TSK-17, TSK-23 to TSK-27 with the client as receiver: a cancelled task is
/// cancelled for good, once, and by no notification. TSK-44.
#[test]
fn task_of_a_service_is_cancelled() {
    let mut w = World::new();
    let conn = server(&mut w);
    let (task, job) = samples_as_task(&mut w, conn, &json!({}));
    let named = json!({"taskId": task});
    asks(&mut w, conn, &json!("wait"), "tasks/result", &named);
    cancels(&mut w, conn, &json!({"requestId": "wait"}));
    assert_eq!(
        w.status(conn, &task).expect("it is there"),
        "working",
        "the wait ends, the task goes on"
    );
    asks(&mut w, conn, &json!("wait"), "tasks/result", &named);
    let cancelled = w.result(conn, "tasks/cancel", named.clone());
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(w.next(conn)["params"]["status"], "cancelled");
    w.expect_error(conn, json!("wait"), -31001);
    assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Requested)]);
    ends(&mut w, job, &sampled());
    assert_eq!(
        w.status(conn, &task).expect("it is there"),
        "cancelled",
        "whatever the job still reports"
    );
    assert_eq!(w.refusal(conn, "tasks/cancel", named).0, -32602);
    assert_eq!(w.refusal(conn, "tasks/cancel", json!({"taskId": "unknown"})).0, -32602);
    w.silent(conn);
}

/// TSK-33 with the client as receiver: progress is told with the token; nothing is ever logged to
/// a server, and a reload is none of its business. TSK-44.
#[test]
fn what_a_server_is_told_meanwhile() {
    let mut w = World::new();
    let conn = server(&mut w);
    let mut params = sampling();
    params["_meta"] = json!({"progressToken": "t"});
    asks(&mut w, conn, &json!(1), "sampling/createMessage", &params);
    let job = w.last_started();
    for told in [json!(1), json!(1.000_001)] {
        w.feed(Input::Progress(job, 1.0, None, None));
        let progress = w.next(conn);
        assert_eq!(progress["params"], json!({"progressToken": "t", "progress": told}));
    }
    let data = to_raw_value("text").expect("it is there");
    w.feed(Input::Log(job, ceased_core::log_level::LogLevel::Emergency, data));
    w.feed(Input::Configured(tools::settings(Limits::default(), TaskPolicy::default())));
    w.silent(conn);
}

/// TSK-37 with the client as receiver: a server asks for tasks as often as any peer may, and a
/// request that frees room is never too much. TSK-44.
#[test]
fn how_often_a_server_may_ask() {
    let once = std::num::NonZeroU32::MIN;
    let limits = Limits { task_ops_per_second: Some(once), ..Limits::default() };
    let settings = tools::settings(limits, TaskPolicy::default());
    let mut w = World::made_of(settings, Rigged::default());
    let conn = server(&mut w);
    let (task, _) = samples_as_task(&mut w, conn, &json!({}));
    let named = || json!({"taskId": task});
    for method in ["tasks/get", "tasks/result"] {
        let answer = w.ask(conn, method, named());
        assert_eq!(answer["error"]["code"], -31003, "{answer}");
        assert_eq!(answer["error"]["data"]["retryAfterMs"], 1000);
    }
    w.advance(Duration::from_secs(1));
    assert_eq!(w.status(conn, &task).as_deref(), Some("working"));
    assert_eq!(w.result(conn, "tasks/cancel", named())["status"], "cancelled");
}
