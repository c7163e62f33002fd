//! Calls that become tasks because their peer is gone. The engine's own agreements are checked
//! after every event.

use std::time::Duration;

use ceased_core::action::{Note, Why};
use ceased_core::durable::Unstored;
use ceased_core::event::Identity;
use ceased_core::id::ConnId;
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_tests::again::{call, settings};
use ceased_tests::store::Store;
use ceased_tests::trace::Input;
use ceased_tests::world::{NEWEST, Rigged, World};
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
fn a_call_becomes_a_task_when_its_peer_goes() {
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
    // With nobody to own it, or no room, it is stopped.
    let nobody = w.open_as(Identity::Anonymous, NEWEST);
    let job = w.call(nobody, json!(1), "detached");
    w.lose(nobody);
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(Why::Disconnected));
    let mut w = world_of(Limits { live_tasks_max: 1, ..Limits::default() }, TaskPolicy::default());
    let one = w.open_as(ANN, NEWEST);
    w.task(one, "work");
    let job = w.call(one, json!(1), "detached");
    w.lose(one);
    assert_eq!(w.steps(job).len(), 1);
}

/// DUR-01: a call becomes a task that nobody knows of before it is on disk, also when its work has
/// ended by then.
#[test]
fn a_call_becomes_a_task_once_that_is_on_disk() {
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

/// DUR-01: who asked again with a key for a call that became a task is told what came of it once
/// that is on disk, whatever happens to the task meanwhile.
#[test]
fn who_asked_again_is_told_once_that_is_on_disk() {
    let text = |told: &Value| told["result"]["content"][0]["text"].clone();
    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    store.commit_all(&mut w);
    let job = w.last_started();
    call(&mut w, other, "b", "detached", "k");
    call(&mut w, other, "c", "detached", "k");
    w.done(job, "kept");
    // It waits like the others, and may give up waiting.
    call(&mut w, other, "d", "detached", "k");
    w.send(
        other,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}"#,
    );
    w.silent(other);
    store.commit_all(&mut w);
    for id in ["b", "d"] {
        let told = w.next(other);
        assert_eq!((&told["id"], text(&told)), (&json!(id), json!("kept")));
    }
    call(&mut w, other, "e", "detached", "k");
    assert_eq!(text(&w.next(other)), "kept");
    assert_eq!(w.last_started(), job, "it has run once");

    // The store takes it after a while.
    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    store.commit_all(&mut w);
    let job = w.last_started();
    call(&mut w, other, "b", "detached", "k");
    w.done(job, "owed");
    store.refuse(&mut w, Unstored::Broken, false);
    w.silent(other);
    w.advance(TaskPolicy::default().store_retry);
    store.commit_all(&mut w);
    assert_eq!(text(&w.next(other)), "owed");

    // There is no task to say another thing later: none came to be, or it has expired.
    for expires in [false, true] {
        let (mut w, mut store, other) = detaching(Limits::default(), "k");
        if expires {
            store.commit_all(&mut w);
        }
        let job = w.last_started();
        call(&mut w, other, "b", "detached", "k");
        w.done(job, "free");
        w.silent(other);
        if expires {
            w.advance(TaskPolicy::default().default_ttl);
        } else {
            store.refuse(&mut w, Unstored::Full, false);
        }
        assert_eq!(text(&w.next(other)), "free");
        assert_eq!(listed(&mut w, other), Vec::<Value>::new());
    }

    // The daemon is told to go: so is whoever waits, whether there is a task yet or not.
    for created in [true, false] {
        let (mut w, mut store, other) = detaching(Limits::default(), "k");
        if created {
            store.commit_all(&mut w);
        }
        let job = w.last_started();
        call(&mut w, other, "b", "detached", "k");
        w.done(job, "too late");
        let by = w.now().at + Duration::from_secs(5);
        w.feed(Input::Drain(by));
        let told = w.next(other);
        if created {
            assert_eq!(told["error"]["code"], -31005);
        } else {
            assert_eq!(text(&told), "too late", "no task will be there to say another thing");
        }
        w.silent(other);
        store.commit_all(&mut w);
        assert_eq!(w.exits, 1);
    }
}

/// DUR-01: who asked again with a key for a call that became a task is told that this was cancelled
/// once that is on disk; who asks for it only then starts it anew.
#[test]
fn who_asked_again_is_told_of_a_cancel_once_that_is_on_disk() {
    let cancel =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}"#;
    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    store.commit_all(&mut w);
    let job = w.last_started();
    let id = listed(&mut w, other)[0]["taskId"].clone();
    call(&mut w, other, "b", "detached", "k");
    call(&mut w, other, "c", "detached", "k");
    let third = w.open_as(ANN, NEWEST);
    w.send(third, &cancel_task(&id));
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(Why::Requested));
    w.send(other, cancel);
    w.silent(other);
    w.silent(third);
    call(&mut w, other, "d", "detached", "k");
    assert_ne!(w.last_started(), job, "it was cancelled, so this is another");
    store.commit_all(&mut w);
    let told = w.next(other);
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!("b"), &json!(-31001)));
    w.silent(other);
    assert_eq!(w.next(third)["result"]["status"], "cancelled");

    // The store does not take it: nobody can say how it ended.
    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    store.commit_all(&mut w);
    let id = listed(&mut w, other)[0]["taskId"].clone();
    call(&mut w, other, "b", "detached", "k");
    w.send(other, &cancel_task(&id));
    w.silent(other);
    store.refuse(&mut w, Unstored::Broken, false);
    for _ in 0..2 {
        assert_eq!(w.next(other)["error"]["code"], -31006);
    }
}

/// DUR-01, TSK-41: who asked again for a call that is stopped by its number while it becomes a task
/// is told so once that is on disk, or when there will be no task. The trail names none before.
#[test]
fn who_asked_again_for_what_is_stopped_while_it_becomes_a_task() {
    for taken in [true, false] {
        let (mut w, mut store, other) = detaching(Limits::default(), "k");
        let job = w.last_started();
        call(&mut w, other, "b", "detached", "k");
        let third = w.open_as(ANN, NEWEST);
        w.result(third, "ceased/cancel", json!({"job": job.get()}));
        assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(Why::Requested));
        let names_task = |note: &Note| matches!(note, Note::TaskCancelled { .. });
        assert!(!w.notes.iter().any(names_task));
        w.silent(other);
        if taken {
            store.commit(&mut w, 1);
            w.silent(other);
            store.commit_all(&mut w);
        } else {
            store.refuse(&mut w, Unstored::Full, false);
        }
        w.expect_error(other, json!("b"), -31001);
        w.stopped(job);
        let tasks = listed(&mut w, other);
        assert_eq!(tasks.len(), usize::from(taken));
        assert!(tasks.iter().all(|task| task["status"] == "cancelled"), "{tasks:?}");
        w.silent(other);
    }
}

/// TSK-41: the trail tells of every task that comes to be, once and before its end, also where the
/// work was faster than the disk; and of none that does not come to be.
#[test]
fn the_trail_tells_of_a_task_that_ended_before_it_came_to_be() {
    let trail = |w: &World| -> Vec<String> {
        let of_task = w.notes.iter().filter_map(|note| {
            if let Note::TaskCreated { job, tool, .. } = note {
                return Some(format!("{job} became a task of {tool}"));
            }
            let Note::TaskEnded { status, .. } = note else { return None };
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

/// A call whose task the store does not take is stopped, and for that; or
/// goes on for who asked for it again.
#[test]
fn a_call_that_the_store_does_not_take_is_no_task() {
    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    let job = w.last_started();
    store.refuse(&mut w, Unstored::Full, false);
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(Why::Unstored));
    w.stopped(job);
    assert_eq!(listed(&mut w, other), Vec::<Value>::new());
    assert_eq!((w.sizes().jobs, w.sizes().tasks), (0, 0));

    let (mut w, mut store, other) = detaching(Limits::default(), "k");
    let job = w.last_started();
    call(&mut w, other, "b", "detached", "k");
    store.refuse(&mut w, Unstored::Broken, false);
    assert_eq!(w.steps(job), []);
    w.done(job, "for the second");
    assert_eq!(w.next(other)["result"]["content"][0]["text"], "for the second");

    // What had ended is nobody's.
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
        assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(Why::Requested));
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

/// A shutdown stops what is becoming a task like everything else, and leaves nothing behind.
#[test]
fn a_shutdown_while_a_call_becomes_a_task() {
    let (mut w, mut store, _) = detaching(Limits::default(), "k");
    let job = w.last_started();
    let by = w.now().at + Duration::from_secs(5);
    w.feed(Input::Drain(by));
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(Why::Shutdown));
    w.stopped(job);
    store.commit_all(&mut w);
    assert_eq!(w.exits, 1);
    assert!(store.records.is_empty());
}

/// TSK-24: a task that a call became is cancelled, or expires: its work stops whoever else waits
/// for it, they are told why, and the key is free.
#[test]
fn a_cancelled_task_is_nobodys_any_more() {
    for expires in [false, true] {
        let tasks = TaskPolicy { on_ttl: OnTtl::Stop, ..TaskPolicy::default() };
        let mut w = world_of(Limits::default(), tasks);
        let one = w.open_as(ANN, NEWEST);
        call(&mut w, one, "a", "detached", "k");
        let job = w.last_started();
        w.lose(one);
        let other = w.open_as(ANN, NEWEST);
        call(&mut w, other, "b", "detached", "k");
        w.silent(other);
        let code = if expires {
            w.advance(tasks.default_ttl);
            -31002
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
            -31001
        };
        let told = w.next(other);
        assert_eq!((&told["id"], &told["error"]["code"]), (&json!("b"), &json!(code)));
        assert_eq!(w.steps(job).len(), 1, "nobody keeps it from being stopped");
        w.rest(other);
        call(&mut w, other, "d", "detached", "k");
        assert_ne!(w.last_started(), job);
        w.stopped(job);
        w.silent(other);
    }
}
