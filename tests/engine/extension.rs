//! The tasks extension: the same tasks, in the form of `io.modelcontextprotocol/tasks`.

use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::{Answer, Refusal};
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::modern::{able, cancel, plain, request, tasks};
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, Rigged, World, result_of};
use serde_json::{Value, json};
use uuid::Uuid;

const RELATED: &str = "io.modelcontextprotocol/related-task";
const TASKS: &str = "io.modelcontextprotocol/tasks";

fn connect(world: &mut World) -> ConnId {
    world.connect(Identity::User(1000))
}

/// Calls a tool that becomes a task: its id and its job.
fn create(world: &mut World, conn: ConnId, tool: &str) -> (String, JobId) {
    let result = world.result(conn, "tools/call", tasks(json!({"name": tool})));
    assert_eq!(result["resultType"], "task", "{result}");
    (result["taskId"].as_str().expect("a task has an id").to_owned(), world.last_started())
}

fn get(world: &mut World, conn: ConnId, task: &str) -> Value {
    world.result(conn, "tasks/get", tasks(json!({"taskId": task})))
}

/// EXT-01: kind of tool by declaration; `params.task` decides nothing.
#[test]
fn server_decides() {
    let declared = json!({"extensions": {TASKS: {}}});
    let required = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
    for with_task in [false, true] {
        for (tool, capabilities, becomes) in [
            ("echo", &json!({}), "call"),
            ("sleep", &json!({}), "call"),
            ("report", &json!({}), "error"),
            ("echo", &declared, "call"),
            ("sleep", &declared, "task"),
            ("report", &declared, "task"),
            // The tasks of 2025-11-25 are another thing.
            ("report", &json!({"tasks": {"requests": {"tools": {"call": {}}}}}), "error"),
        ] {
            let mut w = World::new();
            let c = connect(&mut w);
            let mut params = json!({"name": tool});
            if with_task {
                params["task"] = json!({"ttl": "odd"});
            }
            w.send(c, &request(json!(1), "tools/call", able(capabilities, params)));
            match becomes {
                "call" => {
                    assert_eq!(w.running[&w.last_started()].task, None);
                    w.silent(c);
                }
                "task" => {
                    assert_eq!(w.next(c)["result"]["resultType"], "task");
                    assert!(w.running[&w.last_started()].task.is_some());
                }
                _ => {
                    let answer = w.next(c);
                    assert_eq!(answer["error"]["code"], -32021, "{tool} {capabilities}");
                    assert_eq!(answer["error"]["data"], required);
                    assert!(w.started.is_empty());
                }
            }
        }
    }
}

/// EXT-01: the declaration is each request's own; the one before does not count.
#[test]
fn client_without_the_declaration_has_no_tasks() {
    let mut w = World::new();
    let c = connect(&mut w);
    let (task, _) = create(&mut w, c, "sleep");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = plain(json!({"taskId": task, "inputResponses": {}}));
        let answer = w.ask(c, method, params);
        assert_eq!(answer["error"]["code"], -32021, "{method}");
        let data = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
        assert_eq!(answer["error"]["data"], data);
    }
    assert_eq!(get(&mut w, c, &task)["status"], "working");
}

/// EXT-02, EXT-06: the create result and every state, exactly. The result is the tool's own.
#[test]
fn task_in_every_state() {
    let mut w = World::new();
    let c = connect(&mut w);
    let created = w.result(c, "tools/call", tasks(json!({"name": "sleep"})));
    let job = w.last_started();
    let id = created["taskId"].as_str().unwrap().to_owned();
    let stamp = "2025-11-01T00:00:00.000Z";
    let server =
        json!({"io.modelcontextprotocol/serverInfo": {"name": "world", "version": "1.2.3"}});
    let mut task = json!({
        "resultType": "task", "_meta": server, "taskId": id, "status": "working",
        "createdAt": stamp, "lastUpdatedAt": stamp, "ttlMs": 3_600_000, "pollIntervalMs": 1000,
    });
    assert_eq!(created, task);
    task["resultType"] = json!("complete");
    assert_eq!(get(&mut w, c, &id), task);
    w.advance(Duration::from_secs(1));
    let mut said = json!({"content": [], "_meta": {"x/y": 1}});
    w.end(job, result_of(&said));
    // As the call would have been answered.
    said["resultType"] = json!("complete");
    said["_meta"]["io.modelcontextprotocol/serverInfo"] =
        task["_meta"]["io.modelcontextprotocol/serverInfo"].clone();
    (task["status"], task["result"]) = (json!("completed"), said);
    task["lastUpdatedAt"] = json!("2025-11-01T00:00:01.000Z");
    assert_eq!(get(&mut w, c, &id), task);

    let (id, job) = create(&mut w, c, "sleep");
    w.fail(job, -5, "boom");
    let failed = get(&mut w, c, &id);
    assert_eq!((&failed["status"], &failed["statusMessage"]), (&json!("failed"), &json!("boom")));
    assert_eq!(failed["error"], json!({"code": -5, "message": "boom"}));
    assert_eq!(failed.get("result"), None);

    let (id, _) = create(&mut w, c, "sleep");
    w.result(c, "tasks/cancel", tasks(json!({"taskId": id})));
    let cancelled = get(&mut w, c, &id);
    assert_eq!(cancelled["status"], "cancelled");
    assert!(cancelled.get("result").is_none() && cancelled.get("error").is_none());
}

/// EXT-03, EXT-07: one task, two projections: a tool that reports an error has completed here and
/// failed there; a JSON-RPC error is a failure in both.
#[test]
fn tools_own_error_in_both_dialects() {
    let mut w = World::new();
    let (modern, legacy) = (connect(&mut w), w.open());
    let (id, job) = create(&mut w, modern, "sleep");
    let said = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
    w.end(job, result_of(&said));
    let here = get(&mut w, modern, &id);
    let result = &here["result"];
    assert_eq!((&here["status"], &result["isError"]), (&json!("completed"), &json!(true)));
    assert_eq!(result["content"], said["content"]);
    let there = w.result(legacy, "tasks/get", json!({"taskId": id}));
    assert_eq!((&there["status"], &there["statusMessage"]), (&json!("failed"), &json!("no")));
    let result = w.result(legacy, "tasks/result", json!({"taskId": id}));
    assert_eq!(
        (&result["isError"], &result["_meta"][RELATED]["taskId"]),
        (&json!(true), &json!(id))
    );
    let (id, job) = w.task(legacy, "sleep");
    w.fail(job, -5, "boom");
    assert_eq!(get(&mut w, modern, &id)["status"], "failed");
    assert_eq!(w.status(legacy, &id).as_deref(), Some("failed"));
}

/// EXT-04: an empty answer, also for a task that has ended, and also when the work was faster than
/// the cancel; an unknown task is an error.
#[test]
fn cancelling_a_task() {
    let mut w = World::new();
    let c = connect(&mut w);
    let server =
        json!({"io.modelcontextprotocol/serverInfo": {"name": "world", "version": "1.2.3"}});
    let ack = json!({"resultType": "complete", "_meta": server});
    let (id, job) = create(&mut w, c, "build");
    for _ in 0..2 {
        assert_eq!(w.result(c, "tasks/cancel", tasks(json!({"taskId": id}))), ack);
    }
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Requested)], "stopped once");
    let noted = |w: &World| {
        w.notes.iter().filter(|n| format!("{n:?}").starts_with("TaskCancelled")).count()
    };
    assert_eq!(noted(&w), 1);
    w.done(job, "too late");
    assert_eq!(get(&mut w, c, &id)["status"], "cancelled");
    let (id, job) = create(&mut w, c, "build");
    w.done(job, "first");
    assert_eq!(w.result(c, "tasks/cancel", tasks(json!({"taskId": id}))), ack);
    assert_eq!(get(&mut w, c, &id)["status"], "completed");
    assert_eq!((noted(&w), w.steps(job).len()), (1, 0));
    for method in ["tasks/cancel", "tasks/get", "tasks/update"] {
        let unknown = json!({"taskId": "nobody", "inputResponses": {}});
        assert_eq!(w.refusal(c, method, tasks(unknown)).0, -32602);
    }
}

/// EXT-02: with the handle the request is over: a cancel of its id does nothing, its progress token
/// and its log level are dead, and nothing is told by itself.
#[test]
fn request_of_a_task_is_over() {
    let mut w = World::new();
    let c = connect(&mut w);
    let meta = json!({"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"});
    let params = tasks(json!({"name": "sleep", "_meta": meta}));
    w.send(c, &request(json!(1), "tools/call", params.clone()));
    let id = w.next(c)["result"]["taskId"].as_str().unwrap().to_owned();
    let job = w.last_started();
    w.send(c, &cancel(json!(1)));
    w.progress(job, 1.0);
    w.log(job, LogLevel::Emergency, json!("x"));
    assert_eq!(get(&mut w, c, &id)["status"], "working");
    w.done(job, "done");
    w.silent(c);
}

/// MOD-04, CAN-06: a cancel that comes while the handle is still unsent takes it back, and stops
/// the task that no peer could reach.
#[test]
fn unsent_handle_is_taken_back_with_its_task() {
    let mut w = World::new();
    let (c, session) = (connect(&mut w), w.open());
    for queued in [false, true] {
        w.stop_reading(c);
        w.send(c, &request(json!(9), "tools/call", tasks(json!({"name": "sleep"}))));
        let job = (!queued).then(|| {
            w.feed(Input::Turn);
            w.last_started()
        });
        assert!(w.waiting(c) > 0);
        let cancelled = w.counters().cancelled;
        w.send(c, &cancel(json!(9)));
        assert_eq!(w.waiting(c), 0);
        if let Some(job) = job {
            assert_eq!(w.steps(job).len(), 1);
            w.stopped(job);
        }
        assert_eq!(w.counters().cancelled, cancelled + 1);
        let notes = w.notes.iter().map(|note| format!("{note:?}"));
        let noted: Vec<String> = notes.filter(|note| note.starts_with("TaskCancelled")).collect();
        assert!(noted.last().is_some_and(|note| note.contains("\"notifications/cancelled\"")));
        w.start_reading(c);
        w.silent(c);
    }
    let listed = w.result(session, "tasks/list", json!({}));
    let listed = listed["tasks"].as_array().expect("tasks").clone();
    assert_eq!(listed.len(), 2, "what was stopped is on record");
    assert!(listed.iter().all(|task| task["status"] == "cancelled"), "{listed:?}");
}

/// TSK-08: the task that is stopped is the one of the handle, not another that was given its id.
#[test]
fn unsent_handle_of_a_task_that_expired() {
    let [key, id] = [9, 1].map(|n| Uuid::from_u128(0x4000_8000_0000_0000_0000 + n));
    let policy = TaskPolicy { default_ttl: Duration::from_secs(1), ..TaskPolicy::default() };
    let policy = TaskPolicy { on_ttl: OnTtl::Stop, ..policy };
    let settings = tools::settings(Limits::default(), policy);
    let mut w = World::made_of(settings, Rigged::new([key, id, id]));
    let (c, d) = (connect(&mut w), connect(&mut w));
    w.stop_reading(c);
    w.send(c, &request(json!(9), "tools/call", tasks(json!({"name": "sleep"}))));
    w.advance(Duration::from_secs(2));
    let (again, job) = create(&mut w, d, "sleep");
    assert_eq!(again, id.to_string());
    w.send(c, &cancel(json!(9)));
    assert_eq!((w.waiting(c), w.steps(job).len()), (0, 0));
    assert_eq!(get(&mut w, d, &again)["status"], "working");
}

/// The task goes on for a peer that knows it all the same: with its key, or since it waits for it.
#[test]
fn task_that_others_know_outlives_its_handle() {
    let mut w = World::new();
    let (c, session) = (connect(&mut w), w.open());
    for keyed in [true, false] {
        w.stop_reading(c);
        let meta = if keyed { json!({"ceased/idempotencyKey": "k"}) } else { json!({}) };
        let params = || tasks(json!({"name": "sleep", "_meta": meta}));
        w.send(c, &request(json!(9), "tools/call", params()));
        w.feed(Input::Turn);
        let job = w.last_started();
        let listed = w.result(session, "tasks/list", json!({}));
        let id = listed["tasks"][usize::from(!keyed)]["taskId"].clone();
        let wait = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/result",
            "params": {"taskId": id}});
        if !keyed {
            w.send(session, &wait.to_string());
        }
        w.send(c, &cancel(json!(9)));
        assert_eq!((w.waiting(c), w.steps(job).len()), (0, 0));
        w.start_reading(c);
        if keyed {
            w.send(c, &request(json!(10), "tools/call", params()));
            assert_eq!(w.next(c)["result"]["taskId"], id);
        }
        w.done(job, "done");
        assert_eq!(w.rest(session).len(), usize::from(!keyed));
    }
}

/// EXT-06: a client that has read the handle finds the task, on another connection of the same
/// identity too, and does so until the ttl is over.
#[test]
fn handle_is_good_at_once_and_long_enough() {
    let policy = TaskPolicy {
        default_ttl: Duration::from_secs(10),
        on_ttl: OnTtl::Stop,
        ..TaskPolicy::default()
    };
    let mut w = World::with(Limits::default(), policy);
    let (c, d) = (connect(&mut w), connect(&mut w));
    // The turn is not over: nothing has started.
    let created = w.ask_in_passing(c, "tools/call", tasks(json!({"name": "sleep"})));
    let id = created["result"]["taskId"].as_str().unwrap().to_owned();
    assert!(w.started.is_empty());
    let found = w.ask_in_passing(d, "tasks/get", tasks(json!({"taskId": id})));
    assert_eq!(found["result"]["status"], "working");
    w.lose(c);
    w.feed(Input::Turn);
    let job = w.last_started();
    w.advance(Duration::from_millis(9_999));
    assert_eq!(get(&mut w, d, &id)["ttlMs"], 10_000);
    w.advance(Duration::from_millis(1));
    assert_eq!(w.refusal(d, "tasks/get", tasks(json!({"taskId": id}))).0, -32602);
    w.stopped(job);
}

/// EXT-07, TSK-39: tasks are seen across dialects, each in its own form, and by no other identity.
#[test]
fn one_table() {
    let mut w = World::new();
    let (modern, legacy, other) = (connect(&mut w), w.open(), w.connect(Identity::User(1)));
    let (here, job) = create(&mut w, modern, "sleep");
    let (there, _) = w.task(legacy, "sleep");
    let list = w.result(legacy, "tasks/list", json!({}));
    let ids: Vec<_> = list["tasks"].as_array().unwrap().iter().map(|t| &t["taskId"]).collect();
    assert_eq!(ids, [&json!(here), &json!(there)]);
    assert_eq!(get(&mut w, modern, &there)["ttlMs"], 3_600_000);
    for id in [&here, &there] {
        assert_eq!(w.refusal(other, "tasks/get", tasks(json!({"taskId": id}))).0, -32602);
        assert_eq!(w.refusal(other, "tasks/cancel", tasks(json!({"taskId": id}))).0, -32602);
    }
    // Cancelled in one dialect is cancelled in the other; its session is told (TSK-18).
    w.result(modern, "tasks/cancel", tasks(json!({"taskId": there})));
    let told = w.next(legacy);
    assert_eq!(
        (&told["method"], &told["params"]["status"]),
        (&json!("notifications/tasks/status"), &json!("cancelled"))
    );
    let waiting = json!({"taskId": here});
    w.send(legacy, &request(json!("wait"), "tasks/result", waiting.clone()));
    w.done(job, "seen");
    assert_eq!(w.next(legacy)["result"]["content"][0]["text"], "seen");
    let (late, _) = create(&mut w, modern, "sleep");
    assert_eq!(w.result(legacy, "tasks/cancel", json!({"taskId": late}))["status"], "cancelled");
    assert_eq!(get(&mut w, modern, &late)["status"], "cancelled");
    w.silent(modern);
    w.silent(legacy);
}

/// EXT-05: known open keys are taken, others ignored, a part of the answers is enough to be told
/// of that part, and a key is never used twice.
#[test]
fn input_of_a_task() {
    let mut w = World::new();
    let c = connect(&mut w);
    let capable = json!({"extensions": {TASKS: {}}, "elicitation": {}, "roots": {}});
    let (id, job) = create(&mut w, c, "sleep");
    let update = |w: &mut World, responses: Value| {
        let params = able(&capable, json!({"taskId": id, "inputResponses": responses}));
        w.result(c, "tasks/update", params)
    };
    let look = |w: &mut World| w.result(c, "tasks/get", able(&capable, json!({"taskId": id})));
    assert_eq!(update(&mut w, json!({"1": {}}))["resultType"], "complete", "nothing was asked yet");
    let one = w.asked(job, 1, "elicitation/create");
    let two = w.asked(job, 2, "roots/list");
    let task = look(&mut w);
    assert_eq!(task["status"], "input_required");
    assert_eq!(task["inputRequests"]["1"]["params"]["message"], "name?");
    assert_eq!(task["inputRequests"]["2"]["method"], "roots/list");
    // A client that cannot answer is not asked, and sees the status all the same.
    let task = get(&mut w, c, &id);
    assert_eq!((&task["status"], &task["inputRequests"]), (&json!("input_required"), &json!({})));
    assert!(w.told.is_empty());
    update(&mut w, json!({"3": {}, "x": {"roots": []}}));
    assert!(w.told.is_empty());
    update(&mut w, json!({"2": {"roots": []}}));
    let [(told, Answer::Result(said))] = &w.told[..] else { panic!("{:?}", w.told) };
    assert_eq!((*told, said.get()), (two, r#"{"roots":[]}"#));
    let task = look(&mut w);
    assert_eq!(task["status"], "input_required", "a part is a part");
    assert_eq!(task["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["1"]);
    update(&mut w, json!({"2": {"roots": [{"uri": "file:///x"}]}, "1": {"action": "decline"}}));
    let [_, (told, Answer::Result(said))] = &w.told[..] else { panic!("{:?}", w.told) };
    assert_eq!((*told, said.get()), (one, r#"{"action":"decline"}"#));
    assert_eq!(look(&mut w)["status"], "working");
    for odd in [json!([]), json!(null), json!({"1": 7})] {
        let params = able(&capable, json!({"taskId": id, "inputResponses": odd}));
        assert_eq!(w.refusal(c, "tasks/update", params).0, -32602);
    }
    assert_eq!(w.refusal(c, "tasks/update", tasks(json!({"taskId": id}))).0, -32602);
    w.done(job, "asked");
    update(&mut w, json!({"1": {"action": "accept"}}));
    assert_eq!(w.told.len(), 2);
}

/// EXT-05, EXT-07: a question offered to a session is answered by the first peer; the other is
/// told that it is not awaited.
#[test]
fn first_answer_counts() {
    let mut w = World::new();
    let c = connect(&mut w);
    let s = w.open_with(Identity::User(1000), NEWEST, json!({"elicitation": {}}));
    let (id, job) = w.task(s, "sleep");
    w.send(s, &request(json!("wait"), "tasks/result", json!({"taskId": id})));
    let caller = w.asked(job, 1, "elicitation/create");
    let told = w.rest(s);
    let question = told.iter().find(|m| m["method"] == "elicitation/create").expect("it is asked");
    let params = json!({"taskId": id, "inputResponses": {"1": {"action": "accept"}}});
    w.result(c, "tasks/update", tasks(params));
    let [(answered, Answer::Result(_))] = &w.told[..] else { panic!("{:?}", w.told) };
    assert_eq!(*answered, caller);
    let told = w.rest(s);
    assert_eq!(told[0]["method"], "notifications/cancelled");
    assert_eq!(told[0]["params"]["requestId"], question["id"]);
    assert_eq!(told[1]["params"]["status"], "working");
    w.done(job, "ok");
}

/// A cancelled task asks nothing any more.
#[test]
fn cancelled_task_asks_nothing() {
    let mut w = World::new();
    let c = connect(&mut w);
    let (id, job) = create(&mut w, c, "sleep");
    let caller = w.asked(job, 1, "elicitation/create");
    w.result(c, "tasks/cancel", tasks(json!({"taskId": id})));
    let [(told, Answer::Cancelled)] = &w.told[..] else { panic!("{:?}", w.told) };
    assert_eq!(*told, caller);
    let late = w.asked(job, 2, "elicitation/create");
    let [_, (told, Answer::Refused(Refusal::NoJob))] = &w.told[..] else { panic!("{:?}", w.told) };
    assert_eq!(*told, late);
    w.stopped(job);
}
