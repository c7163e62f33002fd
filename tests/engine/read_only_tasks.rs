//! Jobs of tools that change nothing begin while their task is being written, and a short one is
//! written once, with its outcome. Nothing of it is sent before that is on disk (DUR-01).

mod taken_back;
mod words;

use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::log_level::LogLevel;
use ceased_core::reason::StopReason;
use ceased_core::settings::Settings;
use ceased_core::tasks::durable::{StoreWrite, Unstored};
use ceased_core::tool::{Catalog, Tool};
use ceased_simulator::modern::{request, tasks};
use ceased_simulator::store::Store;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, World};
use serde_json::{Value, json};

const ME: Identity = Identity::User(1000);

fn world(limits: Limits) -> (World, Store) {
    let mut store = Store::default();
    let tasks = TaskPolicy { durable: true, ..TaskPolicy::default() };
    let look = Tool { read_only: true, ..tools::optional("look") };
    let catalog = Catalog::new([look, tools::optional("sleep")]).expect("good tools");
    let settings = Arc::new(Settings { limits, tasks, catalog, ..Settings::default() });
    (store.world(&settings), store)
}

/// A call that is to be a task, and tells of its progress.
fn create(id: &str) -> String {
    let meta = json!({"progressToken": "p"});
    let params = json!({"name": "look", "arguments": {}, "task": {}, "_meta": meta});
    request(json!(id), "tools/call", params)
}

/// As [`create`], by a request that speaks for itself.
fn create_modern(id: &str) -> String {
    request(json!(id), "tools/call", tasks(json!({"name": "look", "arguments": {}})))
}

fn handle(message: &Value) -> (String, String) {
    let task = &message["result"]["task"];
    let text = |member: &str| task[member].as_str().expect("a task").to_owned();
    (text("taskId"), text("status"))
}

/// Records that the store was handed and has not written.
fn writes(w: &mut World, store: &mut Store) -> Vec<(&'static str, String)> {
    store.take(w);
    let kind = |write: &StoreWrite| match write {
        StoreWrite::New(record) => ("new", record.status.as_str().to_owned()),
        StoreWrite::Put(record) => ("put", record.status.as_str().to_owned()),
        StoreWrite::Delete(_) => ("delete", String::new()),
        StoreWrite::Probe => ("probe", String::new()),
        StoreWrite::Cancel(_)
        | StoreWrite::Watch(_)
        | StoreWrite::Unwatch(_)
        | StoreWrite::Change(_)
        | StoreWrite::Input { .. }
        | StoreWrite::Taken(_)
        | StoreWrite::Receipt { .. }
        | StoreWrite::Claim { .. }
        | StoreWrite::Keyed(..)
        | StoreWrite::Retire => ("shared", String::new()),
    };
    store.waiting.iter().map(|(_, write)| kind(write)).collect()
}

fn listed(w: &mut World, conn: ConnId) -> usize {
    w.result(conn, "tasks/list", json!({}))["tasks"].as_array().expect("a list").len()
}

/// DUR-01, TSK-09: a job that has ended by the next turn is written once; its creator is told of
/// the beginning, and then of the end.
#[test]
fn short_task_is_written_once() {
    let (mut w, mut store) = world(Limits::default());
    let c = w.open_as(ME, NEWEST);
    w.send(c, &create("one"));
    let job = w.last_started();
    assert!(w.running[&job].task.is_some(), "who changes nothing may know for what it works");
    assert_eq!(writes(&mut w, &mut store), [], "it has a turn to end");
    w.done(job, "seen");
    assert_eq!(writes(&mut w, &mut store), [("new", "completed".to_owned())]);
    w.silent(c);
    let other = w.open_as(ME, NEWEST);
    assert_eq!(listed(&mut w, other), 0, "nobody may know of it");
    assert_eq!((w.sizes().held, w.counters().tasks_created), (1, 0));
    w.notes.clear();
    store.commit(&mut w, 1);
    assert_eq!(writes(&mut w, &mut store), [], "all of it is written");
    let (task, status) = handle(&w.next(c));
    assert_eq!(status, "working");
    let told = w.next(c);
    assert_eq!(told["method"], "notifications/tasks/status");
    assert_eq!(
        (&told["params"]["status"], &told["params"]["taskId"]),
        (&json!("completed"), &json!(task))
    );
    w.silent(c);
    assert_eq!(listed(&mut w, other), 1);
    let result = w.result(other, "tasks/result", json!({"taskId": task}));
    assert_eq!(result["content"][0]["text"], "seen");
    let word = |note: &AuditEvent| {
        let began = matches!(note, AuditEvent::TaskCreated { job: of, .. } if *of == job);
        let ended = matches!(note, AuditEvent::TaskEnded { .. });
        began.then_some("created").or(ended.then_some("ended"))
    };
    let words: Vec<&str> = w.notes.iter().filter_map(word).collect();
    assert_eq!(words, ["created", "ended"]);
    assert_eq!((w.sizes().held, w.counters().tasks_created), (0, 1));
}

/// EXT-02: the same outside of sessions.
#[test]
fn short_task_of_the_extension() {
    let (mut w, mut store) = world(Limits::default());
    let c = w.connect(ME);
    w.send(c, &create_modern("one"));
    w.done(w.last_started(), "seen");
    w.silent(c);
    store.commit_all(&mut w);
    let handle = w.next(c);
    assert_eq!(
        (&handle["result"]["resultType"], &handle["result"]["status"]),
        (&json!("task"), &json!("working"))
    );
    w.silent(c);
    let task = handle["result"]["taskId"].clone();
    w.send(c, &request(json!("get"), "tasks/get", tasks(json!({"taskId": task}))));
    let got = w.next(c);
    assert_eq!(got["result"]["status"], "completed");
    assert_eq!(got["result"]["result"]["content"][0]["text"], "seen");
}

/// DUR-01: a job that takes longer than a turn is written twice, wherever its end falls.
#[test]
fn longer_task_is_written_twice() {
    for while_written in [true, false] {
        let (mut w, mut store) = world(Limits::default());
        let c = w.open_as(ME, NEWEST);
        w.send(c, &create("one"));
        w.feed(Input::Turn);
        assert_eq!(writes(&mut w, &mut store), [("new", "working".to_owned())]);
        if !while_written {
            store.commit(&mut w, 1);
        }
        w.done(w.last_started(), "seen");
        if while_written {
            w.silent(c);
            store.commit(&mut w, 1);
        }
        assert_eq!(writes(&mut w, &mut store), [("put", "completed".to_owned())]);
        let (task, status) = handle(&w.next(c));
        assert_eq!(status, "working");
        w.silent(c);
        store.commit_all(&mut w);
        let said = w.rest(c);
        assert_eq!(said[0]["params"]["status"], "completed", "{said:?}");
        assert_eq!(w.status(c, &task).as_deref(), Some("completed"));
    }
}

/// DUR-01: a large result is not part of a creation, for which there is no room in reserve: on a
/// disk that is nearly full the task is accepted, and so are those that are written with it.
#[test]
fn large_result_is_written_after_its_task() {
    for (bytes, kind) in [(4_000, "completed"), (5_000, "working")] {
        let (mut w, mut store) = world(Limits::default());
        let c = w.open_as(ME, NEWEST);
        w.send(c, &create("one"));
        w.done(w.last_started(), &"x".repeat(bytes));
        assert_eq!(writes(&mut w, &mut store), [("new", kind.to_owned())]);
        let record = store.waiting[0].1.record().expect("a record");
        assert_eq!(record.outcome.is_open(), kind == "working");
        assert!(record.updated >= record.created && record.status_message.is_none());
        store.commit(&mut w, 1);
        let (task, status) = handle(&w.next(c));
        assert_eq!(status, "working");
        store.commit_all(&mut w);
        assert_eq!(w.next(c)["params"]["status"], "completed");
        let result = w.result(c, "tasks/result", json!({"taskId": task}));
        assert_eq!(result["content"][0]["text"].as_str().map(str::len), Some(bytes));
    }
}

/// DUR-01: nothing changes for a tool that may change something.
#[test]
fn other_jobs_wait_for_the_disk() {
    let (mut w, mut store) = world(Limits::default());
    let c = w.open_as(ME, NEWEST);
    w.send(c, &create("one").replace("look", "sleep"));
    assert!(w.started.is_empty());
    assert_eq!(writes(&mut w, &mut store), [("new", "working".to_owned())]);
    store.commit_all(&mut w);
    assert_eq!(w.started.len(), 1);
}

/// DUR-01: a task that the store does not take is refused; its job is stopped, and its
/// outcome is dropped.
#[test]
fn what_the_store_does_not_take_was_in_vain() {
    for why in [Unstored::Full, Unstored::Broken] {
        for ends in [false, true] {
            let (mut w, mut store) = world(Limits::default());
            let c = w.open_as(ME, NEWEST);
            w.send(c, &create("one"));
            let job = w.last_started();
            if ends {
                w.done(job, "seen");
            }
            w.feed(Input::Turn);
            store.refuse(&mut w, why, why == Unstored::Broken);
            let refused = w.next(c);
            assert_eq!(
                (&refused["id"], &refused["error"]["code"]),
                (&json!("one"), &json!(-31006))
            );
            assert_eq!(refused["error"]["data"], json!({"store": why.as_str()}));
            w.silent(c);
            if !ends {
                assert_eq!(w.steps(job).last().map(|(_, why)| *why), Some(StopReason::Unstored));
                w.stopped(job);
            }
            assert_eq!(listed(&mut w, c), 0);
            assert_eq!((w.sizes().jobs, w.sizes().tasks), (0, 0));
            w.advance(TaskPolicy::default().store_retry);
            store.commit_all(&mut w);
            assert!(store.records.is_empty(), "what became of the write was not known");
        }
    }
}

/// DUR-01: nor is it handed to a store that has failed since it was asked for.
#[test]
fn store_that_has_failed_meanwhile_is_asked_for_nothing() {
    let (mut w, mut store) = world(Limits::default());
    let c = w.open_as(ME, NEWEST);
    w.send(c, &create("one"));
    w.feed(Input::Turn);
    w.send(c, &create("two"));
    let job = w.last_started();
    store.refuse(&mut w, Unstored::Broken, false);
    // The turn after that write had the second to hand over.
    let refused: Vec<Value> =
        w.rest(c).iter().map(|message| message["error"]["code"].clone()).collect();
    assert_eq!(refused, [json!(-31006), json!(-31006)]);
    assert_eq!(w.steps(job).last().map(|(_, why)| *why), Some(StopReason::Unstored));
    w.send(c, &create("three"));
    assert_eq!(w.next(c)["error"]["code"], -31006);
    assert_eq!(w.last_started(), job, "nothing begins for what is refused at once");
}

/// TSK-09: a job that has to wait for its turn waits, and its task is written without it.
#[test]
fn what_has_to_wait_is_written_at_once() {
    let (mut w, mut store) = world(Limits { running_max: 1, ..Limits::default() });
    let c = w.open_as(ME, NEWEST);
    w.send(c, &create("one"));
    let first = w.last_started();
    w.send(c, &create("two"));
    let working = ("new", "working".to_owned());
    assert_eq!(writes(&mut w, &mut store), [working.clone(), working]);
    store.commit_all(&mut w);
    assert_eq!(handle(&w.next(c)).1, "working");
    let second = w.next(c);
    assert_eq!(second["result"]["task"]["statusMessage"], "waiting, 0 ahead");
    w.done(first, "seen");
    assert_ne!(w.last_started(), first);
}

/// DUR-01: a client that closed before the handle could be sent has a task all the same, in the
/// list.
#[test]
fn task_of_a_client_that_has_closed() {
    let (mut w, mut store) = world(Limits::default());
    let c = w.open_as(ME, NEWEST);
    w.send(c, &create("one"));
    let job = w.last_started();
    w.log(job, LogLevel::Error, json!("said"));
    w.lose(c);
    w.done(job, "seen");
    store.commit_all(&mut w);
    let other = w.open_as(ME, NEWEST);
    assert_eq!(listed(&mut w, other), 1);
}

/// A shutdown before anything was written: the request is answered, and nothing is.
#[test]
fn shutdown_before_it_is_written() {
    for ends in [false, true] {
        let (mut w, mut store) = world(Limits::default());
        let c = w.open_as(ME, NEWEST);
        w.send(c, &create("one"));
        let job = w.last_started();
        if ends {
            let result = ceased_simulator::world::result_of(&json!({"content": []}));
            w.running.remove(&job);
            w.feed(Input::Done(job, result));
        }
        w.feed(Input::Drain(w.now().at + Duration::from_secs(1)));
        assert_eq!(w.next(c)["error"]["code"], -31005);
        if !ends {
            w.stopped(job);
        }
        assert_eq!(writes(&mut w, &mut store), []);
        assert_eq!(w.exits, 1);
    }
}

/// DUR-01: killed while the job runs, the daemon finds the written records: none, or a
/// task that was interrupted.
#[test]
fn after_a_kill() {
    for arrived in [0, 1] {
        let (mut w, mut store) = world(Limits::default());
        let c = w.open_as(ME, NEWEST);
        w.send(c, &create("one"));
        w.feed(Input::Turn);
        store.take(&mut w);
        store.arrive(arrived);
        let settings = Settings {
            tasks: TaskPolicy { durable: true, ..TaskPolicy::default() },
            ..Settings::default()
        };
        let mut w = store.world(&Arc::new(settings));
        let c = w.open_as(ME, NEWEST);
        store.commit_all(&mut w);
        let tasks = w.result(c, "tasks/list", json!({}))["tasks"].take();
        let states: Vec<&Value> =
            tasks.as_array().expect("a list").iter().map(|task| &task["status"]).collect();
        assert_eq!(states, vec![&json!("failed"); arrived]);
    }
}

/// An idempotency key gives a repeated request the same task, also before it is on disk.
#[test]
fn repeated_request_is_given_the_same_task() {
    let (mut w, mut store) = world(Limits::default());
    let c = w.open_as(ME, NEWEST);
    let keyed =
        |id: &str| create(id).replace("\"progressToken\":\"p\"", "\"ceased/idempotencyKey\":\"k\"");
    w.send(c, &keyed("one"));
    let job = w.last_started();
    w.send(c, &keyed("two"));
    assert_eq!(w.last_started(), job, "it runs once");
    w.done(job, "seen");
    w.silent(c);
    store.commit_all(&mut w);
    let handles: Vec<_> =
        w.rest(c).iter().filter(|message| message.get("id").is_some()).map(handle).collect();
    assert_eq!(handles.len(), 2);
    assert_eq!(handles[0], handles[1]);
}

/// The members of a tool that changes nothing say so where the revision has a word for it.
#[test]
fn list_of_tools_says_what_changes_nothing() {
    for (revision, says) in
        [("2024-11-05", false), ("2025-03-26", true), ("2025-06-18", true), (NEWEST, true)]
    {
        let (mut w, _) = world(Limits::default());
        let c = w.open_as(ME, revision);
        let tools = w.result(c, "tools/list", json!({}))["tools"].take();
        let hint = |tool: &Value| tool["annotations"]["readOnlyHint"].as_bool();
        assert_eq!(hint(&tools[0]), says.then_some(true), "{revision}");
        assert_eq!(hint(&tools[1]), None, "{revision}");
    }
    let (mut w, _) = world(Limits::default());
    let c = w.connect(ME);
    w.send(c, &request(json!(1), "tools/list", tasks(json!({}))));
    assert_eq!(w.next(c)["result"]["tools"][0]["annotations"]["readOnlyHint"], true);
}
