//! Shares of one identity: turns, room in the queue, the rate of task
//! requests (TSK-36, TSK-37).

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::settings::Settings;
use ceased_core::tool::{Catalog, Tool};
use ceased_simulator::store::Store;
use ceased_simulator::tools::{self, TIMEOUT, tool};
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, Rigged, World};
use proptest::prelude::*;
use serde_json::{Value, json};

fn rated(per_second: u32) -> World {
    let task_ops_per_second = NonZeroU32::new(per_second);
    World::with(Limits { task_ops_per_second, ..Limits::default() }, TaskPolicy::default())
}

fn error(w: &mut World, conn: ConnId, method: &str, params: Value) -> Value {
    w.ask(conn, method, params)["error"].take()
}

/// TSK-37: the refusal says which limit and when to try again, that is true, and no other identity
/// is concerned.
#[test]
fn task_requests_have_a_rate() {
    let mut w = rated(4);
    let (one, again) = (w.open_as(Identity::User(1), NEWEST), w.open_as(Identity::User(1), NEWEST));
    let other = w.open_as(Identity::User(2), NEWEST);
    let (task, _) = w.task(one, "sleep");
    for _ in 0..3 {
        w.result(one, "tasks/get", json!({"taskId": task}));
    }
    for (conn, method) in [(one, "tasks/get"), (again, "tasks/result"), (again, "tasks/list")] {
        let refused = error(&mut w, conn, method, json!({"taskId": task}));
        assert_eq!(refused["code"], -31003);
        let data = json!({"limit": "task_ops_per_second", "max": 4, "retryAfterMs": 250});
        assert_eq!(refused["data"], data);
        assert!(refused["message"].as_str().unwrap().contains("try again in 250 ms"));
    }
    let create = json!({"name": "sleep", "arguments": {}, "task": {}});
    assert_eq!(error(&mut w, again, "tools/call", create)["code"], -31003);
    // Requests that are not about tasks, cancels, and other identities go on.
    w.result(one, "ping", json!({}));
    w.result(other, "tasks/list", json!({}));
    assert_eq!(w.result(again, "tasks/cancel", json!({"taskId": task}))["status"], "cancelled");
    w.advance(Duration::from_millis(249));
    assert_eq!(error(&mut w, one, "tasks/list", json!({}))["data"]["retryAfterMs"], 1);
    w.advance(Duration::from_millis(1));
    w.result(one, "tasks/list", json!({}));
    assert_eq!(error(&mut w, one, "tasks/list", json!({}))["code"], -31003);
}

fn small(running_max: usize, queued_max: usize, share: usize) -> World {
    let limits =
        Limits { running_max, queued_max, queued_per_identity_max: share, ..Limits::default() };
    World::with(limits, TaskPolicy::default())
}

fn call(id: usize) -> String {
    let params = json!({"name": "sleep", "arguments": {}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

fn ask_for_work(w: &mut World, conn: ConnId, id: usize) {
    w.send(conn, &call(id));
}

/// TSK-36: an identity that fills the queue leaves room for others.
#[test]
fn queue_has_room_for_others() {
    let mut w = small(1, 4, 3);
    let (one, other) = (w.open_as(Identity::User(1), NEWEST), w.open_as(Identity::User(2), NEWEST));
    for id in 0..4 {
        ask_for_work(&mut w, one, id);
        w.silent(one);
    }
    ask_for_work(&mut w, one, 4);
    let refused = w.next(one)["error"].take();
    assert_eq!(refused["data"], json!({"limit": "queue_per_identity", "max": 3}));
    ask_for_work(&mut w, other, 0);
    w.silent(other);
    ask_for_work(&mut w, other, 1);
    assert_eq!(w.next(other)["error"]["data"]["limit"], "queue");
}

/// TSK-36, DUR-01: calls that wait for the disk wait, too, and are of the same share.
#[test]
fn calls_that_are_held_for_the_disk_are_of_the_share() {
    let tasks = TaskPolicy { durable: true, ..TaskPolicy::default() };
    let limits = Limits { running_max: 1, queued_per_identity_max: 2, ..Limits::default() };
    let mut store = Store::default();
    let mut w = store.world(&tools::settings(limits, tasks));
    let (one, other) = (w.open_as(Identity::User(1), NEWEST), w.open_as(Identity::User(2), NEWEST));
    let task = |id: usize| line(id, "sleep", &json!({"task": {}}));
    for id in 0..3 {
        w.frame(one, &task(id));
    }
    w.feed(Input::Turn);
    w.silent(one);
    w.send(one, &task(3));
    let refused = w.next(one)["error"].take();
    assert_eq!(refused["data"], json!({"limit": "queue_per_identity", "max": 2}));
    w.send(other, &task(0));
    w.silent(other);
    store.commit_all(&mut w);
    assert_eq!((w.rest(one).len(), w.rest(other).len()), (3, 1));
    // One runs, two wait.
    w.send(one, &task(4));
    assert_eq!(w.next(one)["error"]["data"]["limit"], "queue_per_identity");
}

/// In which order the calls of these users are started that arrive at once.
fn order(calls: &[u32], running_max: usize) -> Vec<u32> {
    let mut w = small(running_max, 1000, 1000);
    let conns: Vec<ConnId> = (0..4).map(|user| w.open_as(Identity::User(user), NEWEST)).collect();
    for (id, user) in (0..).zip(calls) {
        w.frame(conns[*user as usize], &call(id));
    }
    w.feed(Input::Turn);
    let mut done = 0;
    while let Some(job) = w.started.get(done).copied() {
        done += 1;
        w.done(job, "done");
    }
    let first = w.started.iter().map(|job| job.get()).min().unwrap_or_default();
    let places = w.started.iter().map(|job| usize::try_from(job.get() - first).expect("small"));
    let places: Vec<usize> = places.collect();
    for user in 0..4 {
        let own = places.iter().filter(|place| calls[**place] == user);
        assert!(own.is_sorted(), "one's own calls run in the order they came: {places:?}");
    }
    places.iter().map(|place| calls[*place]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// TSK-36: an identity that waits has a turn before any other has two, at any load of the
    /// others, and none is forgotten.
    #[test]
    fn turns(calls in prop::collection::vec(0_u32..4, 1..60), running_max in 1_usize..4) {
        let order = order(&calls, running_max);
        prop_assert_eq!(order.len(), calls.len());
        for (at, user) in order.iter().enumerate() {
            let Some(again) = order[at + 1..].iter().position(|next| next == user) else { continue };
            let between = &order[at + 1..at + 1 + again];
            for other in (0..4).filter(|other| other != user) {
                let waits = order[at + 1..].contains(&other);
                let turns = between.iter().filter(|turn| **turn == other).count();
                prop_assert_eq!(turns, usize::from(waits), "{} between {}: {:?}", other, user, order);
            }
        }
    }
}

fn line(id: usize, tool: &str, more: &Value) -> String {
    let mut params = json!({"name": tool, "arguments": {}});
    if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
        params.extend(more.clone());
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// RPC-03: calls start in the order of their requests, as far as there is room, with the turn;
/// their time limit counts from there.
#[test]
fn calls_start_with_the_turn_and_their_timeout_counts_from_it() {
    let settings = Settings {
        limits: Limits { running_max: 3, ..Limits::default() },
        catalog: Catalog::new([Tool { timeout: Some(TIMEOUT), ..tool("slow") }]).expect("good"),
        ..Settings::default()
    };
    let mut w = World::made_of(Arc::new(settings), Rigged::default());
    let c = w.open();
    (1..=4).for_each(|id| w.frame(c, &line(id, "slow", &json!({}))));
    assert_eq!((w.sizes().requests, w.sizes().jobs, w.sizes().timers), (4, 4, 0));
    assert!(w.started.is_empty() && w.due_in().is_none());
    w.feed(Input::Turn);
    assert_eq!(w.started.len(), 3, "there is room for three");
    assert_eq!((w.sizes().timers, w.due_in()), (3, Some(TIMEOUT)));
    let first = w.started[0];
    w.done(first, "one");
    w.feed(Input::Turn);
    w.frame(c, &line(5, "slow", &json!({})));
    w.advance(TIMEOUT);
    let stopped: Vec<JobId> = w.stops.iter().map(|(job, ..)| *job).collect();
    assert_eq!(stopped, w.started[1..4], "their time is up together, as they were started");
    stopped.into_iter().for_each(|job| w.stopped(job));
    w.feed(Input::Turn);
    let last = w.last_started();
    w.done(last, "five");
    let ids: Vec<Value> = w.rest(c).into_iter().map(|mut answer| answer["id"].take()).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
}
