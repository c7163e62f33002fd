//! The life of a task: its messages, its ttl, its room.

use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::log_level::LogLevel;
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, World, result_of};
use serde_json::{Value, json};

const RELATED: &str = "io.modelcontextprotocol/related-task";
const TICK: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);

fn policy(on_ttl: OnTtl) -> TaskPolicy {
    TaskPolicy {
        default_ttl: 10 * SECOND,
        max_ttl: 100 * SECOND,
        late_result: 7 * SECOND,
        anonymous_ttl: 3 * SECOND,
        on_ttl,
        status_notifications: false,
        ..TaskPolicy::default()
    }
}

fn world(on_ttl: OnTtl) -> World {
    World::with(Limits::default(), policy(on_ttl))
}

fn wait(id: u32, task: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tasks/result", "params": {"taskId": task}})
        .to_string()
}

fn call(w: &mut World, revision: &str, token: &Value, as_task: bool) -> (ConnId, Option<String>) {
    let c = w.open_as(Identity::User(1), revision);
    let mut params = json!({"name": "sleep", "_meta": {"progressToken": token}});
    if as_task {
        params["task"] = json!({});
    }
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    w.send(c, &call.to_string());
    let task = as_task.then(|| {
        let id = w.next(c)["result"]["task"]["taskId"].take();
        id.as_str().expect("a task has an id").to_owned()
    });
    (c, task)
}

/// TSK-29: messages of a task's job, progress and log, carry the related task; those of a
/// plain call's job do not.
#[test]
fn what_belongs_to_a_task_says_so() {
    for as_task in [true, false] {
        let mut w = World::new();
        let (c, task) = call(&mut w, NEWEST, &json!("tok"), as_task);
        let job = w.last_started();
        w.feed(Input::Progress(job, 0.5, Some(2.0), Some("half\nway".into())));
        let mut params = json!({
            "progressToken": "tok", "progress": 0.5, "total": 2, "message": "half way",
        });
        if let Some(task) = &task {
            params["_meta"] = json!({RELATED: {"taskId": task}});
        }
        let told = w.next(c);
        assert_eq!(told["method"], "notifications/progress");
        assert_eq!(told["params"]["_meta"], params["_meta"]);
        for member in ["progressToken", "message"] {
            assert_eq!(told["params"][member], params[member]);
        }
        assert_eq!(told["params"]["progress"].as_f64(), Some(0.5));
        assert_eq!(told["params"]["total"].as_f64(), Some(2.0));
        w.log(job, LogLevel::Warning, json!({"disk": ["full", 1]}));
        let mut params =
            json!({"level": "warning", "logger": "sleep", "data": {"disk": ["full", 1]}});
        if let Some(task) = &task {
            params["_meta"] = json!({RELATED: {"taskId": task}});
        }
        let message =
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
        w.expect(c, message);
        w.done(job, "ok");
    }
}

/// TSK-33: the token stays good for the whole task, progress grows, and stops at the end.
#[test]
fn progress_grows_until_the_end_and_no_longer() {
    for token in [json!("t"), json!(""), json!(7), json!(0), json!(-1)] {
        for end in 0..4 {
            let mut w = world(OnTtl::Stop);
            let (c, task) = call(&mut w, NEWEST, &token, true);
            let task = task.unwrap();
            let job = w.last_started();
            let told = [0.0, 0.0, -1.0, 1.5, 1.5, f64::NAN, f64::INFINITY, 1.0, 2.0];
            for progress in told {
                w.progress(job, progress);
            }
            let told: Vec<(Value, f64)> = w
                .rest(c)
                .iter()
                .map(|m| (m["params"]["progressToken"].clone(), m["params"]["progress"].as_f64()))
                .map(|(token, progress)| (token, progress.unwrap()))
                .collect();
            // A value that stands or falls is a sign of life, and told by the smallest step.
            let grown = [0.0, 0.000_001, 0.000_002, 1.5, 1.500_001, 1.500_002, 2.0];
            let grown = grown.map(|progress| (token.clone(), progress));
            assert_eq!(told, grown);
            match end {
                0 => w.done(job, "ok"),
                1 => w.fail(job, 1, "no"),
                2 => drop(w.result(c, "tasks/cancel", json!({"taskId": task}))),
                _ => w.advance(11 * SECOND),
            }
            w.progress(job, 3.0);
            w.log(job, LogLevel::Emergency, json!("still here"));
            w.silent(c);
        }
    }
}

/// TSK-33: no token, no progress; a token that is none is no token.
#[test]
fn progress_needs_a_token() {
    for token in [json!(null), json!(1.5), json!(true), json!([]), json!({})] {
        let mut w = World::new();
        let (c, _) = call(&mut w, NEWEST, &token, true);
        let job = w.last_started();
        w.progress(job, 1.0);
        w.silent(c);
        assert_eq!(w.counters().progress_dropped, 1);
    }
}

/// The first revision has no `message` in its progress; the others have.
#[test]
fn first_revision_has_no_progress_message() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST] {
        let mut w = World::new();
        let (c, _) = call(&mut w, revision, &json!(1), false);
        let job = w.last_started();
        w.feed(Input::Progress(job, 1.0, None, Some("here".into())));
        let told = w.next(c);
        let message = told["params"].get("message").and_then(Value::as_str);
        assert_eq!(message, (revision != "2024-11-05").then_some("here"));
    }
}

/// TSK-29: log messages below the level the peer asked for are not sent.
#[test]
fn peer_chooses_its_log_level() {
    let mut w = World::new();
    let c = w.open();
    let (_, job) = w.task(c, "sleep");
    for (at, level) in LogLevel::ALL.iter().enumerate() {
        w.result(c, "logging/setLevel", json!({"level": level.as_str()}));
        for said in LogLevel::ALL {
            w.log(job, said, json!(1));
        }
        let told: Vec<String> = w
            .rest(c)
            .iter()
            .map(|message| message["params"]["level"].as_str().unwrap().to_owned())
            .collect();
        let wanted: Vec<&str> = LogLevel::ALL[at..].iter().map(|level| level.as_str()).collect();
        assert_eq!(told, wanted);
    }
    for level in [json!("loud"), json!("INFO"), json!(1), json!(null)] {
        assert_eq!(w.refusal(c, "logging/setLevel", json!({"level": level})).0, -32602);
    }
}

/// TSK-35: a terminal task is gone at its ttl, counted from its creation, and not before.
#[test]
fn terminal_task_is_deleted_at_its_ttl() {
    for on_ttl in [OnTtl::Finish, OnTtl::Stop] {
        let mut w = world(on_ttl);
        let c = w.open();
        let (id, job) = w.task(c, "sleep");
        w.advance(9 * SECOND);
        w.done(job, "ok");
        w.advance(SECOND - TICK);
        assert_eq!(w.status(c, &id).as_deref(), Some("completed"));
        w.advance(TICK);
        assert_eq!(w.status(c, &id), None);
        assert_eq!(w.refusal(c, "tasks/result", json!({"taskId": id})).0, -32602);
        assert_eq!(w.result(c, "tasks/list", json!({})), json!({"tasks": []}));
        assert_eq!((w.sizes().tasks, w.sizes().timers), (0, 0));
        assert_eq!(w.counters().tasks_expired, 1);
    }
}

/// TSK-35: the wall clock expires nothing.
#[test]
fn wall_clock_expires_nothing() {
    let mut w = world(OnTtl::Stop);
    let c = w.open();
    let (id, _) = w.task(c, "sleep");
    w.set_wall(u64::MAX / 2);
    w.feed(Input::Tick);
    assert_eq!(w.status(c, &id).as_deref(), Some("working"));
}

/// TSK-35, `finish`: past its ttl a task works on; its result is kept for `late_result`, then
/// gone. Waiters get it too.
#[test]
fn task_may_finish_after_its_ttl() {
    let mut w = world(OnTtl::Finish);
    let (c, other) = (w.open(), w.open());
    let (id, job) = w.task(c, "sleep");
    w.send(other, &wait(1, &id));
    w.advance(50 * SECOND);
    assert_eq!(w.steps(job), []);
    assert_eq!(w.status(c, &id).as_deref(), Some("working"));
    w.done(job, "late");
    assert_eq!(w.next(other)["result"]["content"][0]["text"], "late");
    w.advance(7 * SECOND - TICK);
    w.result(c, "tasks/result", json!({"taskId": id}));
    w.advance(TICK);
    assert_eq!(w.status(c, &id), None);
    assert_eq!((w.sizes().tasks, w.sizes().timers), (0, 0));
}

/// TSK-35, `finish`: bounded by max_ttl, and by the timeout of the tool.
#[test]
fn task_does_not_finish_for_ever() {
    let mut w = world(OnTtl::Finish);
    let c = w.open();
    let (forever, job) = w.task(c, "sleep");
    let (timed, slow) = w.task(c, "slow");
    w.advance(tools::TIMEOUT);
    assert_eq!(w.steps(slow), [(StopStep::Flag, StopReason::TimedOut)]);
    w.stopped(slow);
    let task = w.result(c, "tasks/get", json!({"taskId": timed}));
    assert_eq!(task["status"], "failed");
    assert!(task["statusMessage"].as_str().unwrap().contains("60000 ms"), "{task}");
    w.advance(40 * SECOND - TICK);
    assert_eq!(w.status(c, &forever).as_deref(), Some("working"));
    w.advance(TICK);
    assert_eq!(w.status(c, &forever), None);
    assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Expired)]);
    w.stopped(job);
    assert_eq!((w.sizes().tasks, w.sizes().jobs, w.sizes().timers), (0, 0, 0));
}

/// TSK-35: a task cancelled after its ttl is kept for `late_result` as well.
#[test]
fn overdue_task_can_be_cancelled() {
    let mut w = world(OnTtl::Finish);
    let c = w.open();
    let (id, job) = w.task(c, "sleep");
    w.advance(20 * SECOND);
    w.result(c, "tasks/cancel", json!({"taskId": id}));
    w.stopped(job);
    w.advance(7 * SECOND - TICK);
    assert_eq!(w.status(c, &id).as_deref(), Some("cancelled"));
    w.advance(TICK);
    assert_eq!(w.status(c, &id), None);
}

/// TSK-35, `stop`: gone at its ttl; a waiting request is told that it expired, never that it was
/// cancelled; the job's processes end.
#[test]
fn task_may_be_stopped_at_its_ttl() {
    let mut w = world(OnTtl::Stop);
    let (c, other) = (w.open(), w.open());
    let (id, job) = w.task(c, "build");
    w.send(c, &wait(1, &id));
    w.send(other, &wait(2, &id));
    w.advance(10 * SECOND - TICK);
    w.silent(c);
    w.advance(TICK);
    for (conn, waiter) in [(c, 1), (other, 2)] {
        let message = w.expect_error(conn, json!(waiter), -31002);
        assert!(message.contains("expired") && !message.contains("cancel"), "{message}");
    }
    assert_eq!(w.status(c, &id), None);
    w.advance(tools::KILL_GRACE);
    let steps = [(StopStep::Terminate, StopReason::Expired), (StopStep::Kill, StopReason::Expired)];
    assert_eq!(w.steps(job), steps);
    w.done(job, "too late");
    w.silent(c);
    assert_eq!((w.sizes().tasks, w.sizes().jobs, w.sizes().timers), (0, 0, 0));
}

/// TSK-35: a queued task that expires never starts; expiry goes by due time, not by position.
#[test]
fn expiry_is_by_due_time() {
    let limits = Limits { running_max: 1, ..Limits::default() };
    let mut w = World::with(limits, policy(OnTtl::Stop));
    let c = w.open();
    let busy = w.call(c, json!(1), "echo");
    let ttls = [9, 3, 7, 1, 5];
    let ids: Vec<String> = ttls
        .iter()
        .map(|ttl| {
            let params = json!({"name": "sleep", "task": {"ttl": ttl * 1000}});
            let result = w.result(c, "tools/call", params);
            result["task"]["taskId"].as_str().unwrap().to_owned()
        })
        .collect();
    for second in 1..=10_u64 {
        w.advance(SECOND);
        let left: Vec<&String> =
            ids.iter().zip(ttls).filter(|(_, ttl)| *ttl > second).map(|(id, _)| id).collect();
        let list = w.result(c, "tasks/list", json!({}));
        let listed: Vec<&str> = list["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["taskId"].as_str().unwrap())
            .collect();
        assert_eq!(listed, left, "after {second} s");
    }
    w.done(busy, "ok");
    assert_eq!(w.started.len(), 1);
    assert_eq!(w.counters().jobs_never_started, 5);
}

/// TSK-34, TSK-35: an anonymous peer gets a shorter ttl, at most that one.
#[test]
fn anonymous_tasks_live_shorter() {
    let mut w = world(OnTtl::Stop);
    let c = w.open_as(Identity::Anonymous, NEWEST);
    for (task, ttl) in [(json!({}), 3000), (json!({"ttl": 99_000}), 3000), (json!({"ttl": 5}), 5)] {
        let result = w.result(c, "tools/call", json!({"name": "sleep", "task": task}));
        assert_eq!(result["task"]["ttl"], ttl);
    }
    assert_eq!(w.refusal(c, "tasks/list", json!({})).0, -32601);
}

fn refused(w: &mut World, c: ConnId, limit: &'static str, max: u64) {
    w.notes.clear();
    let answer = w.ask(c, "tools/call", json!({"name": "sleep", "task": {}}));
    let message = answer["error"]["message"].as_str().expect("it is refused").to_owned();
    assert!(message.contains(limit) && message.contains(&max.to_string()), "{message}");
    assert_eq!(answer["error"]["data"], json!({"limit": limit, "max": max}));
    let [AuditEvent::Refused { conn, identity: _, limit: named }] = w.notes[..] else {
        panic!("one refusal, not {:?}", w.notes);
    };
    assert_eq!((conn, named), (c, limit));
}

/// TSK-36: one task more than the limit is refused with its name; the others go on, other
/// identities are not affected, and an end makes room.
#[test]
fn live_tasks_are_limited() {
    let limits = Limits { live_tasks_max: 3, ..Limits::default() };
    let mut w = World::with(limits, policy(OnTtl::Stop));
    let (c, same) = (w.open(), w.open());
    let foreign = w.open_as(Identity::Token("ci".into()), NEWEST);
    let tasks: Vec<_> = (0..3).map(|_| w.task(c, "sleep")).collect();
    refused(&mut w, c, "tasks_per_identity", 3);
    refused(&mut w, same, "tasks_per_identity", 3);
    assert_eq!(w.counters().refused, 2);
    w.task(foreign, "sleep");
    w.call(c, json!(1), "echo");
    for (id, _) in &tasks {
        assert_eq!(w.status(c, id).as_deref(), Some("working"));
    }
    w.done(tasks[1].1, "ok");
    w.task(same, "sleep");
    refused(&mut w, c, "tasks_per_identity", 3);
    w.result(c, "tasks/cancel", json!({"taskId": tasks[0].0}));
    w.task(same, "sleep");
    w.advance(10 * SECOND);
    w.task(c, "sleep");
}

/// TSK-36: stored tasks and the bytes of their results are limited, until they expire.
#[test]
fn stored_tasks_are_limited() {
    let limits = Limits { stored_tasks_max: 2, stored_bytes_max: 200, ..Limits::default() };
    let mut w = World::with(limits, policy(OnTtl::Stop));
    let c = w.open();
    for _ in 0..2 {
        let (_, job) = w.task(c, "sleep");
        w.done(job, "ok");
    }
    refused(&mut w, c, "stored_tasks_per_identity", 2);
    w.advance(10 * SECOND);
    let (_, job) = w.task(c, "sleep");
    let text = "x".repeat(200);
    w.end(job, result_of(&json!({"content": [{"type": "text", "text": text}]})));
    refused(&mut w, c, "stored_bytes_per_identity", 200);
    w.advance(10 * SECOND);
    w.task(c, "sleep");
}

/// TSK-36: the longest ttl is a limit, and the one shown is the one that holds.
#[test]
fn ttl_shown_is_the_one_that_holds() {
    let mut w = world(OnTtl::Stop);
    let c = w.open();
    let (id, job) = w.task_with(c, "sleep", json!({"ttl": 3_600_000}));
    w.done(job, "ok");
    let shown = w.result(c, "tasks/get", json!({"taskId": id}))["ttl"].as_u64().unwrap();
    assert_eq!(shown, 100_000);
    w.advance(Duration::from_millis(shown) - TICK);
    assert!(w.status(c, &id).is_some());
    w.advance(TICK);
    assert!(w.status(c, &id).is_none());
}

/// TSK-34: a reload changes the ttl of new tasks, never a promised one.
#[test]
fn reload_keeps_promises() {
    let mut w = world(OnTtl::Finish);
    let c = w.open();
    let (id, job) = w.task(c, "sleep");
    w.done(job, "ok");
    let shorter = TaskPolicy { default_ttl: SECOND, max_ttl: 2 * SECOND, ..policy(OnTtl::Finish) };
    w.feed(Input::Configured(tools::settings(Limits::default(), shorter)));
    assert_eq!(w.next(c)["method"], "notifications/tools/list_changed");
    let (new, job) = w.task(c, "sleep");
    w.done(job, "ok");
    assert_eq!(w.result(c, "tasks/get", json!({"taskId": new}))["ttl"], 1000);
    w.advance(10 * SECOND - TICK);
    assert_eq!(w.status(c, &new), None);
    assert_eq!(w.result(c, "tasks/get", json!({"taskId": id}))["ttl"], 10_000);
    w.advance(TICK);
    assert_eq!(w.status(c, &id), None);
}
