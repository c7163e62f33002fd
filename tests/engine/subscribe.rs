//! `subscriptions/listen` of 2026-07-28: first the granted topics, then their notifications and
//! nothing else.

use std::sync::Arc;
use std::time::Duration;

use ceased_core::event::AfterInput;
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::policy::abuse::SuspicionPolicy;
use ceased_core::reason::CloseReason;
use ceased_simulator::modern::{cancel, plain, request, tasks};
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::World;
use serde_json::{Value, json};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn connect(world: &mut World) -> ConnId {
    world.connect(Identity::User(1000))
}

/// Listens under this id; returns the granted topics.
fn listen(world: &mut World, conn: ConnId, id: &Value, wanted: &Value) -> Value {
    let params = tasks(json!({"notifications": wanted}));
    world.send(conn, &request(id.clone(), "subscriptions/listen", params));
    let mut ack = world.next(conn);
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged", "{ack}");
    assert_eq!(&ack["params"]["_meta"][SUBSCRIPTION], id);
    ack["params"]["notifications"].take()
}

fn create(world: &mut World, conn: ConnId) -> (String, JobId) {
    let result = world.result(conn, "tools/call", tasks(json!({"name": "sleep"})));
    (result["taskId"].as_str().expect("a task has an id").to_owned(), world.last_started())
}

fn reload(world: &mut World) {
    world.feed(Input::Configured(tools::settings(Limits::default(), TaskPolicy::default())));
}

/// MOD-08: unoffered topics are not granted, unrequested ones are not sent.
#[test]
fn only_what_was_opted_into() {
    let mut w = World::new();
    let (c, d, quiet) = (connect(&mut w), connect(&mut w), connect(&mut w));
    let everything = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": ["file:///x"], "unheardOf": {"x": 1},
    });
    assert_eq!(listen(&mut w, c, &json!(1), &everything), json!({"toolsListChanged": true}));
    assert_eq!(listen(&mut w, d, &json!(1), &json!({"toolsListChanged": false})), json!({}));
    assert_eq!(listen(&mut w, d, &json!(2), &json!({"taskIds": []})), json!({"taskIds": []}));
    let (task, job) = create(&mut w, quiet);
    reload(&mut w);
    let meta = json!({"_meta": {SUBSCRIPTION: 1}});
    let changed = "notifications/tools/list_changed";
    w.expect(c, json!({"jsonrpc": "2.0", "method": changed, "params": meta}));
    w.done(job, &task);
    for conn in [c, d, quiet] {
        w.silent(conn);
    }
}

/// MOD-08, EXT-02: exactly the tasks named that the requestor may see, each as `tasks/get` would
/// answer at that moment, under the id of the subscription as it was written.
#[test]
fn tasks_are_told() {
    let mut w = World::new();
    let (c, other) = (connect(&mut w), w.connect(Identity::User(1)));
    let (one, job) = create(&mut w, c);
    let (two, unheard) = create(&mut w, c);
    let (foreign, foreign_job) = create(&mut w, other);
    let unknown = "00000000-0000-4000-8000-000000000000";
    let wanted = json!({"taskIds": [one, foreign, unknown, "no id", one]});
    for id in [json!(1), json!("1"), json!("ä\n\"")] {
        assert_eq!(listen(&mut w, c, &id, &wanted), json!({"taskIds": [one]}));
    }
    w.done(unheard, &two);
    w.done(foreign_job, "not yours");
    w.silent(c);
    w.done(job, "done");
    let told = w.rest(c);
    let mut task = w.result(c, "tasks/get", tasks(json!({"taskId": one})));
    task.as_object_mut().unwrap().remove("resultType");
    let ids: Vec<_> =
        told.iter().map(|told| told["params"]["_meta"][SUBSCRIPTION].clone()).collect();
    assert_eq!(ids.len(), 3);
    for id in [json!(1), json!("1"), json!("ä\n\"")] {
        assert!(ids.contains(&id), "{id} of {ids:?}");
    }
    for told in told {
        assert_eq!(told["method"], "notifications/tasks");
        let mut params = told["params"].clone();
        params["_meta"] = task["_meta"].clone();
        assert_eq!(params, task);
    }
}

/// TSK-37, TSK-41: to name tasks is a request about tasks; unknown ids are counted
/// as in requests for one task each.
#[test]
fn naming_tasks_is_rated_and_watched() {
    let once = std::num::NonZeroU32::new(1);
    let suspicion = SuspicionPolicy { unknown_tasks: 3, ..SuspicionPolicy::default() };
    let limits = Limits { task_ops_per_second: once, suspicion, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let (c, victim) = (connect(&mut w), w.connect(Identity::User(1)));
    let (theirs, _) = create(&mut w, victim);
    let guess = |n: u32| format!("00000000-0000-4000-8000-00000000000{n}");
    let wanted = json!({"taskIds": [theirs, guess(1)]});
    assert_eq!(listen(&mut w, c, &json!(1), &wanted), json!({"taskIds": []}));
    let another = tasks(json!({"notifications": {"taskIds": [guess(2), guess(3)]}}));
    assert_eq!(w.refusal(c, "subscriptions/listen", another).0, -31003);
    let tools_alone = json!({"toolsListChanged": true});
    assert_eq!(listen(&mut w, c, &json!(2), &tools_alone), tools_alone);
    assert_eq!((w.counters().unknown_tasks, w.counters().suspicions), (2, 0));
    w.advance(Duration::from_secs(1));
    listen(&mut w, c, &json!(3), &json!({"taskIds": [guess(4)]}));
    assert_eq!((w.counters().unknown_tasks, w.counters().suspicions), (3, 1));
}

/// MOD-08: every invalid form of a listen; a client without tasks cannot listen to them.
#[test]
fn what_cannot_be_listened_to() {
    let mut w = World::new();
    let c = connect(&mut w);
    for (params, code) in [
        (tasks(json!({})), -32602),
        (tasks(json!({"notifications": []})), -32602),
        (tasks(json!({"notifications": null})), -32602),
        (tasks(json!({"notifications": {"toolsListChanged": 1}})), -32602),
        (tasks(json!({"notifications": {"taskIds": "x"}})), -32602),
        (tasks(json!({"notifications": {"taskIds": {}}})), -32602),
        (tasks(json!({"notifications": {"taskIds": [1]}})), -32602),
        (plain(json!({"notifications": {"taskIds": []}})), -32021),
    ] {
        assert_eq!(w.refusal(c, "subscriptions/listen", params).0, code);
    }
    assert_eq!(w.sizes().requests, 0);
    assert_eq!(w.refusal(c, "subscriptions/listen", json!({"notifications": {}})).0, -32602);
}

/// MOD-08, TSK-36: subscriptions are bounded in number and in size, and are requests in flight.
#[test]
fn subscriptions_are_bounded() {
    let limits = Limits { subscriptions_max: 2, subscribed_tasks_max: 2, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let c = connect(&mut w);
    let ids: Vec<String> = (0..3).map(|_| create(&mut w, c).0).collect();
    let params = tasks(json!({"notifications": {"taskIds": ids}}));
    let (code, message) = w.refusal(c, "subscriptions/listen", params);
    assert_eq!(code, -31003);
    assert!(message.contains("tasks_per_subscription = 2"), "{message}");
    listen(&mut w, c, &json!(1), &json!({"taskIds": [ids[0], ids[1], ids[1]]}));
    listen(&mut w, c, &json!(2), &json!({}));
    let params = tasks(json!({"notifications": {}}));
    let (code, message) = w.refusal(c, "subscriptions/listen", params.clone());
    assert_eq!(code, -31003);
    assert!(message.contains("subscriptions_per_connection = 2"), "{message}");
    w.send(c, &request(json!(2), "subscriptions/listen", params));
    w.expect_error(c, json!(2), -32600);
    w.send(c, &cancel(json!(2)));
    listen(&mut w, c, &json!(2), &json!({}));
    assert_eq!(w.sizes().requests, 2);
}

/// MOD-08, MOD-04: the client ends a subscription by its cancel: nothing follows, not even frames
/// that are written and unsent, and the others go on.
#[test]
fn cancel_ends_a_subscription() {
    let mut w = World::new();
    let c = connect(&mut w);
    let (id, job) = create(&mut w, c);
    for subscription in [1, 2] {
        listen(
            &mut w,
            c,
            &json!(subscription),
            &json!({"taskIds": [id], "toolsListChanged": true}),
        );
    }
    w.block(c);
    reload(&mut w);
    w.done(job, "done");
    w.send(c, &cancel(json!(1)));
    w.read_again(c);
    let told = w.rest(c);
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|told| told["params"]["_meta"][SUBSCRIPTION] == 2), "{told:?}");
    assert_eq!(w.sizes().requests, 1);
    w.lose(c);
    assert_eq!(w.sizes().requests, 0);
}

/// MOD-08: at a shutdown a subscription is told the last, and then that it is over.
#[test]
fn shutdown_ends_a_subscription() {
    let mut w = World::new();
    let c = connect(&mut w);
    let (id, job) = create(&mut w, c);
    listen(&mut w, c, &json!("s"), &json!({"taskIds": [id]}));
    w.feed(Input::Drain(w.now().at + Duration::from_secs(5)));
    assert_eq!(w.next(c)["params"]["status"], "failed");
    let over = w.next(c);
    assert_eq!((&over["id"], &over["result"]["resultType"]), (&json!("s"), &json!("complete")));
    assert_eq!(over["result"]["_meta"][SUBSCRIPTION], "s");
    w.silent(c);
    w.stopped(job);
    assert_eq!((w.exits, w.sizes().requests), (1, 0));
}

/// MOD-08: a half-closed client cannot cancel any more: its subscriptions end in good order and
/// do not keep the connection open.
#[test]
fn half_closed_client_does_not_listen_for_ever() {
    let mut w = World::new();
    let c = connect(&mut w);
    listen(&mut w, c, &json!(1), &json!({"toolsListChanged": true}));
    w.send(c, &request(json!(2), "tools/call", plain(json!({"name": "echo"}))));
    let job = w.last_started();
    w.feed(Input::Finished(c, AfterInput::Answer));
    assert_eq!(w.next(c)["id"], 1);
    reload(&mut w);
    w.silent(c);
    assert!(w.closed.is_empty());
    w.done(job, "answered");
    assert_eq!(w.next(c)["id"], 2);
    assert_eq!(w.closed, [(c, CloseReason::Finished)]);
}

/// MOD-08: a peer that does not read is told later, of each thing only how it is by then; others
/// are told at once.
#[test]
fn slow_listener_is_told_the_latest() {
    let limits = Limits { write_buffer_bytes: 600, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let (c, d) = (connect(&mut w), connect(&mut w));
    let jobs: Vec<(String, JobId)> = (0..20).map(|_| create(&mut w, d)).collect();
    let ids: Vec<&String> = jobs.iter().map(|(id, _)| id).collect();
    for conn in [c, d] {
        listen(&mut w, conn, &json!(1), &json!({"taskIds": ids, "toolsListChanged": true}));
    }
    w.block(c);
    let settings = || tools::settings(limits, TaskPolicy::default());
    for (_, job) in &jobs {
        w.done(*job, "done");
        w.feed(Input::Configured(Arc::clone(&settings())));
    }
    assert!(w.waiting(c) < 1200, "what waits is bounded: {}", w.waiting(c));
    assert_eq!(w.rest(d).len(), 40);
    w.read_again(c);
    w.advance(Duration::from_secs(1));
    let told = w.rest(c);
    let of = |id: &String| told.iter().filter(|told| told["params"]["taskId"] == **id).count();
    assert!(ids.iter().all(|id| of(id) == 1), "each once");
    assert!(told.iter().all(|told| told["params"].get("status").is_none_or(|s| s == "completed")));
    let reloads = told.iter().filter(|told| told["params"].get("taskId").is_none()).count();
    assert!((1..20).contains(&reloads), "{reloads}");
    assert!(w.closed.is_empty());
}

/// MOD-08: more than fits, all at once, to a peer with an empty queue: the rest comes
/// a moment later.
#[test]
fn burst_is_no_flood() {
    let limits = Limits { write_buffer_bytes: 400, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let (c, d) = (connect(&mut w), connect(&mut w));
    let jobs: Vec<(String, JobId)> = (0..10).map(|_| create(&mut w, d)).collect();
    let ids: Vec<&String> = jobs.iter().map(|(id, _)| id).collect();
    listen(&mut w, c, &json!(1), &json!({"taskIds": ids}));
    w.stop_reading(c);
    for (_, job) in &jobs {
        w.done(*job, "done");
    }
    assert!(w.closed.is_empty());
    w.start_reading(c);
    w.advance(Duration::from_secs(1));
    assert_eq!(w.rest(c).len(), 10);
}

/// TSK-35: a task that is gone is listened to no more, and its subscription goes on.
#[test]
fn task_that_expires_is_forgotten() {
    let policy = TaskPolicy {
        default_ttl: Duration::from_secs(5),
        on_ttl: OnTtl::Stop,
        ..TaskPolicy::default()
    };
    let mut w = World::with(Limits::default(), policy);
    let c = connect(&mut w);
    let (id, job) = create(&mut w, c);
    listen(&mut w, c, &json!(1), &json!({"taskIds": [id], "toolsListChanged": true}));
    w.advance(Duration::from_secs(5));
    w.stopped(job);
    w.silent(c);
    assert_eq!((w.sizes().tasks, w.sizes().requests), (0, 1));
    reload(&mut w);
    assert_eq!(w.next(c)["method"], "notifications/tools/list_changed");
}
