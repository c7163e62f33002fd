//! Calls that become tasks because their peer is gone. The engine's own agreements are checked
//! after every event.

use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::reason::StopReason;
use ceased_core::rpc::error::code;
use ceased_core::tasks::durable::Unstored;
use ceased_simulator::again::{call, settings};
use ceased_simulator::store::Store;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, Rigged, World};
use serde_json::{Value, json};

const ANN: Identity = Identity::User(1);
const BOB: Identity = Identity::User(2);

fn world_of(limits: Limits, tasks: TaskPolicy) -> World {
    World::made_of(settings(limits, tasks), Rigged::default())
}

/// A world with a store, and a call that is to become a task and is not on disk yet.
fn detaching(limits: Limits, key: &str) -> (World, Store, ConnId) {
    let mut store = Store::default();
    let tasks = TaskPolicy { durable: true, ..TaskPolicy::default() };
    let mut w = store.world(&settings(limits, tasks));
    let (one, other) = (w.open_as(ANN, NEWEST), w.open_as(ANN, NEWEST));
    call(&mut w, one, "a", "detached", key);
    w.lose(one);
    store.take(&mut w);
    assert_eq!(store.waiting.len(), 1);
    (w, store, other)
}

fn cancel_task(id: &Value) -> String {
    let params = json!({"taskId": id});
    json!({"jsonrpc": "2.0", "id": "x", "method": "tasks/cancel", "params": params}).to_string()
}

fn listed(w: &mut World, conn: ConnId) -> Vec<Value> {
    w.result(conn, "tasks/list", json!({}))["tasks"].as_array().expect("a list").clone()
}

#[test]
fn call_becomes_a_task_when_its_peer_goes() {
    let mut w = world_of(Limits::default(), TaskPolicy::default());
    let one = w.open_as(ANN, NEWEST);
    let job = w.call(one, json!(1), "detached");
    w.lose(one);
    assert_eq!(w.steps(job), []);
    let other = w.open_as(ANN, NEWEST);
    let tasks = w.result(other, "tasks/list", json!({}))["tasks"].take();
    let id = tasks[0]["taskId"].as_str().expect("there is one").to_owned();
    assert_eq!(tasks[0]["status"], "working");
    let bob = w.open_as(BOB, NEWEST);
    assert_eq!(w.result(bob, "tasks/list", json!({}))["tasks"], json!([]));
    w.done(job, "late");
    let result = w.result(other, "tasks/result", json!({"taskId": id}));
    assert_eq!(result["content"][0]["text"], "late");
    // Without an owner, or without room, it is stopped.
    let nobody = w.open_as(Identity::Anonymous, NEWEST);
    let job = w.call(nobody, json!(1), "detached");
    w.lose(nobody);
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Disconnected));
    let mut w = world_of(Limits { live_tasks_max: 1, ..Limits::default() }, TaskPolicy::default());
    let one = w.open_as(ANN, NEWEST);
    w.task(one, "work");
    let job = w.call(one, json!(1), "detached");
    w.lose(one);
    assert_eq!(w.steps(job).len(), 1);
}

/// DUR-01: a call becomes a task that no peer knows before it is on disk, also when its work has
/// ended by then.
#[test]
fn call_becomes_a_task_once_that_is_on_disk() {
    for ends_first in [false, true] {
        let (mut w, mut store, other) = detaching(Limits::default(), "k");
        let job = w.last_started();
        assert_eq!(listed(&mut w, other), Vec::<Value>::new());
        if ends_first {
            w.done(job, "early");
            assert_eq!(listed(&mut w, other), Vec::<Value>::new());
        }
        store.commit(&mut w, 1);
        let tasks = listed(&mut w, other);
        assert_eq!((tasks.len(), &tasks[0]["status"]), (1, &json!("working")));
        assert_eq!(store.waiting.len(), usize::from(ends_first), "its end is on its way");
        if !ends_first {
            w.done(job, "late");
        }
        store.commit_all(&mut w);
        let params = json!({"taskId": tasks[0]["taskId"]});
        assert_eq!(w.result(other, "tasks/get", params.clone())["status"], "completed");
        let said = if ends_first { "early" } else { "late" };
        assert_eq!(w.result(other, "tasks/result", params)["content"][0]["text"], said);
    }
}

/// DUR-01: a repeat of a call that became a task is refused while the task runs and while its end
/// is being stored, and then answered with the outcome, whatever happens to the task meanwhile.
#[test]
fn repeat_of_a_call_that_became_a_task_is_answered_once_its_end_is_stored() {
    let text = |told: &Value| told["result"]["content"][0]["text"].clone();
    let repeat = |w: &mut World, conn: ConnId| {
        call(w, conn, "b", "detached", "k");
        w.next(conn)
    };
    let is_refused = |w: &mut World, conn: ConnId| {
        assert_eq!(repeat(w, conn)["error"]["code"], code::CALL_UNDER_WAY);
    };
    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    is_refused(&mut w, other);
    store.commit_all(&mut w);
    let job = w.last_started();
    is_refused(&mut w, other);
    w.done(job, "kept");
    is_refused(&mut w, other);
    store.commit_all(&mut w);
    assert_eq!(text(&repeat(&mut w, other)), "kept");
    assert_eq!(w.last_started(), job, "it has run once");

    // The store takes it after a while.
    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    store.commit_all(&mut w);
    let job = w.last_started();
    w.done(job, "owed");
    store.refuse(&mut w, Unstored::Broken, false);
    is_refused(&mut w, other);
    w.advance(TaskPolicy::default().store_retry);
    store.commit_all(&mut w);
    assert_eq!(text(&repeat(&mut w, other)), "owed");

    // There is no task to say another thing later: none was created, or it has expired.
    for expires in [false, true] {
        let (mut w, mut store, other) = detaching(Limits::default(), "k");
        if expires {
            store.commit_all(&mut w);
        }
        let job = w.last_started();
        w.done(job, "free");
        is_refused(&mut w, other);
        if expires {
            w.advance(TaskPolicy::default().default_ttl);
        } else {
            store.refuse(&mut w, Unstored::Full, false);
        }
        assert_eq!(text(&repeat(&mut w, other)), "free");
        assert_eq!(listed(&mut w, other), Vec::<Value>::new());
    }
}

/// TSK-24: once the task that a call became is cancelled, the same key is a new call, also while
/// the cancel is being stored.
#[test]
fn key_of_a_cancelled_task_starts_a_new_call() {
    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    store.commit_all(&mut w);
    let job = w.last_started();
    let id = listed(&mut w, other)[0]["taskId"].clone();
    let third = w.open_as(ANN, NEWEST);
    w.send(third, &cancel_task(&id));
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Requested));
    w.silent(third);
    call(&mut w, other, "d", "detached", "k");
    assert_ne!(w.last_started(), job, "it was cancelled, so this is another");
    store.commit_all(&mut w);
    w.silent(other);
    assert_eq!(w.next(third)["result"]["status"], "cancelled");
}

/// DUR-01, TSK-41: a call that is stopped by its job number while it becomes a task ends as a
/// cancelled task or as none. The trail names no task before that is stored.
#[test]
fn trail_names_no_task_of_a_call_that_is_stopped_while_it_becomes_one() {
    for taken in [true, false] {
        let (mut w, mut store, other) = detaching(Limits::default(), "k");
        let job = w.last_started();
        let third = w.open_as(ANN, NEWEST);
        w.result(third, "ceased/cancel", json!({"job": job.get()}));
        assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Requested));
        let names_task = |note: &AuditEvent| matches!(note, AuditEvent::TaskCancelled { .. });
        assert!(!w.notes.iter().any(names_task));
        if taken {
            store.commit_all(&mut w);
        } else {
            store.refuse(&mut w, Unstored::Full, false);
        }
        w.stopped(job);
        let tasks = listed(&mut w, other);
        assert_eq!(tasks.len(), usize::from(taken));
        assert!(tasks.iter().all(|task| task["status"] == "cancelled"), "{tasks:?}");
    }
}

/// TSK-41: the trail tells of every task that comes to be, once and before its end, also where the
/// work was faster than the disk; and of none that does not come to be.
#[test]
fn trail_tells_of_a_task_that_ended_before_it_came_to_be() {
    let trail = |w: &World| -> Vec<String> {
        let of_task = w.notes.iter().filter_map(|note| {
            if let AuditEvent::TaskCreated { job, tool, .. } = note {
                return Some(format!("{job} became a task of {tool}"));
            }
            let AuditEvent::TaskEnded { status, .. } = note else { return None };
            Some(status.as_str().to_owned())
        });
        of_task.collect()
    };
    for ends_first in [false, true] {
        for taken in [true, false] {
            let (mut w, mut store, _) = detaching(Limits::default(), "k");
            let job = w.last_started();
            if ends_first {
                w.done(job, "early");
            }
            assert_eq!(trail(&w), Vec::<String>::new(), "it may not come to be");
            if !taken {
                store.refuse(&mut w, Unstored::Full, false);
                assert_eq!(trail(&w), Vec::<String>::new());
                continue;
            }
            store.commit_all(&mut w);
            if !ends_first {
                w.done(job, "late");
            }
            store.commit_all(&mut w);
            let became = format!("{job} became a task of detached");
            assert_eq!(trail(&w), [became, "completed".to_owned()], "ends first: {ends_first}");
        }
    }
}

/// A call that waits for its turn starts while it becomes a task, and is told of none: the process
/// may be gone before there is one.
#[test]
fn what_starts_is_told_of_no_task_that_may_not_come_to_be() {
    let limits = Limits { running_max: 1, ..Limits::default() };
    let (mut w, mut store, other) = detaching(limits, "k");
    store.commit_all(&mut w);
    let first = w.last_started();
    let one = w.open_as(ANN, NEWEST);
    call(&mut w, one, "b", "detached", "l");
    w.lose(one);
    w.done(first, "first");
    let second = w.last_started();
    assert_ne!(second, first);
    assert_eq!(w.running[&second].task, None);
    store.commit_all(&mut w);
    assert_eq!(listed(&mut w, other).len(), 2);
}

/// A call whose task the store does not take is stopped, and for that.
#[test]
fn call_that_the_store_does_not_take_is_no_task() {
    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    let job = w.last_started();
    store.refuse(&mut w, Unstored::Full, false);
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Unstored));
    w.stopped(job);
    assert_eq!(listed(&mut w, other), Vec::<Value>::new());
    assert_eq!((w.sizes().jobs, w.sizes().tasks), (0, 0));

    // An ended call has no owner.
    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    let job = w.last_started();
    w.done(job, "for nobody");
    store.refuse(&mut w, Unstored::Full, false);
    assert_eq!(listed(&mut w, other), Vec::<Value>::new());
    assert_eq!((w.sizes().jobs, w.sizes().tasks), (0, 0));
}

/// Stopped by its number while it becomes a task, it is a cancelled task, or none.
#[test]
fn what_becomes_a_task_can_be_stopped() {
    for taken in [true, false] {
        let (mut w, mut store, other) = detaching(Limits::default(), "k");
        let job = w.last_started();
        assert_eq!(w.result(other, "ceased/cancel", json!({"job": job.get()})), json!({}));
        assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Requested));
        if taken {
            store.commit_all(&mut w);
        } else {
            store.refuse(&mut w, Unstored::Full, false);
        }
        w.stopped(job);
        let tasks = listed(&mut w, other);
        assert_eq!(tasks.len(), usize::from(taken));
        assert!(tasks.iter().all(|task| task["status"] == "cancelled"), "{tasks:?}");
        assert_eq!(w.sizes().jobs, 0);
        store.commit_all(&mut w);
    }
}

/// A shutdown stops a call that is becoming a task like every job, and leaves nothing behind.
#[test]
fn shutdown_while_a_call_becomes_a_task() {
    let (mut w, mut store, _) = detaching(Limits::default(), "k");
    let job = w.last_started();
    let by = w.now().at + Duration::from_secs(5);
    w.feed(Input::Drain(by));
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Shutdown));
    w.stopped(job);
    store.commit_all(&mut w);
    assert_eq!(w.exits, 1);
    assert!(store.records.is_empty());
}

/// TSK-24: a task that a call became is cancelled, or expires: its work stops and the key is free.
#[test]
fn cancelled_task_is_nobodys_any_more() {
    for expires in [false, true] {
        let tasks = TaskPolicy { on_ttl: OnTtl::Stop, ..TaskPolicy::default() };
        let mut w = world_of(Limits::default(), tasks);
        let one = w.open_as(ANN, NEWEST);
        call(&mut w, one, "a", "detached", "k");
        let job = w.last_started();
        w.lose(one);
        let other = w.open_as(ANN, NEWEST);
        if expires {
            w.advance(tasks.default_ttl);
        } else {
            let tasks = w.result(other, "tasks/list", json!({}))["tasks"].take();
            w.send(
                other,
                &json!({
                    "jsonrpc": "2.0", "id": "c", "method": "tasks/cancel",
                    "params": {"taskId": tasks[0]["taskId"]},
                })
                .to_string(),
            );
        }
        assert_eq!(w.steps(job).len(), 1);
        w.rest(other);
        call(&mut w, other, "d", "detached", "k");
        assert_ne!(w.last_started(), job);
        w.stopped(job);
        w.silent(other);
    }
}
