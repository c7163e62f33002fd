//! Calls whose requestor comes back: idempotency keys, and the fate of a call whose peer is
//! gone. The engine's own agreements are checked after every event.

use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::reason::StopReason;
use ceased_core::rpc::error::code;
use ceased_simulator::again::{call, line, settings};
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, Rigged, World};
use serde_json::{Value, json};
use uuid::Uuid;

const ANN: Identity = Identity::User(1);
const BOB: Identity = Identity::User(2);

fn world_with(limits: Limits) -> World {
    world_of(limits, TaskPolicy::default())
}

fn world_of(limits: Limits, tasks: TaskPolicy) -> World {
    World::made_of(settings(limits, tasks), Rigged::default())
}

fn world() -> World {
    world_with(Limits::default())
}

fn cancel(w: &mut World, conn: ConnId, id: &str) {
    w.send(
        conn,
        &format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"{id}"}}}}"#
        ),
    );
}

fn answered(w: &mut World, conn: ConnId, id: &str, text: &str) {
    let answer = w.next(conn);
    assert_eq!(
        (&answer["id"], &answer["result"]["content"][0]["text"]),
        (&json!(id), &json!(text))
    );
}

/// The error a call with a key is answered with.
fn refused(w: &mut World, conn: ConnId, line: &str) -> Value {
    w.send(conn, line);
    w.next(conn)["error"].take()
}

/// A key means one thing, also where the arguments cannot be read as a tree or not exactly.
#[test]
fn arguments_that_are_not_compared_are_not_the_same() {
    for (one, other) in [
        (r#"{"a":"\ud800"}"#, r#"{"b":"\ud800"}"#),
        (r#"{"a":1e999}"#, r#"{"b":-1e999}"#),
        (r#"{"a":[18446744073709551616]}"#, r#"{"a":[18446744073709551617]}"#),
    ] {
        let mut w = world();
        w.strict = false;
        let c = w.open_as(ANN, NEWEST);
        w.send(c, &line("a", "work", "k", one, ""));
        let job = w.last_started();
        w.done(job, "first");
        answered(&mut w, c, "a", "first");
        assert_eq!(refused(&mut w, c, &line("b", "work", "k", other, ""))["code"], -32602);
        w.send(c, &line("c", "work", "k", one, ""));
        answered(&mut w, c, "c", "first");
    }
}

#[test]
fn call_that_is_over_is_answered_again_for_a_while() {
    let mut w = world();
    let (one, other) = (w.open_as(ANN, NEWEST), w.open_as(ANN, NEWEST));
    call(&mut w, one, "a", "work", "k");
    let job = w.last_started();
    w.done(job, "first");
    answered(&mut w, one, "a", "first");
    for (conn, id) in [(one, "b"), (other, "c")] {
        call(&mut w, conn, id, "work", "k");
        assert_eq!(w.last_started(), job, "nothing runs a second time");
        answered(&mut w, conn, id, "first");
    }
    // Another identity's key is another key.
    let bob = w.open_as(BOB, NEWEST);
    call(&mut w, bob, "a", "work", "k");
    let second = w.last_started();
    assert_ne!(second, job);
    w.done(second, "second");
    answered(&mut w, bob, "a", "second");
    // Over and over, once it is forgotten.
    w.advance(Limits::default().keys_for + Duration::from_secs(1));
    call(&mut w, one, "d", "work", "k");
    assert_ne!(w.last_started(), second);
    let third = w.last_started();
    w.done(third, "third");
    answered(&mut w, one, "d", "third");
}

/// RPC-03: a repeat is refused while the first request waits, by an error that says to try again,
/// and disturbs nothing.
#[test]
fn repeat_is_refused_while_the_first_request_waits() {
    let mut w = world();
    let (one, other) = (w.open_as(ANN, NEWEST), w.open_as(ANN, NEWEST));
    w.send(one, &line("a", "work", "k \\\"1\\\"", "{}", ""));
    let job = w.last_started();
    for conn in [one, other] {
        let error = refused(&mut w, conn, &line("b", "work", "k \\\"1\\\"", "{}", ""));
        assert_eq!(error["code"], code::CALL_UNDER_WAY);
        assert_eq!(error["data"], json!({"idempotencyKey": "k \"1\""}));
        assert!(error["message"].as_str().unwrap().contains("try again later"), "{error}");
    }
    assert_eq!((w.last_started(), w.sizes().jobs, w.sizes().requests), (job, 1, 1));
    w.done(job, "once");
    answered(&mut w, one, "a", "once");
    for conn in [one, other] {
        w.send(conn, &line("c", "work", "k \\\"1\\\"", "{}", ""));
        answered(&mut w, conn, "c", "once");
    }
}

/// CAN-08: a refused repeat cannot keep the call alive; once it is being stopped, the same key is a
/// new call.
#[test]
fn cancel_stops_the_call_and_forgets_its_key() {
    let mut w = world();
    let (one, other) = (w.open_as(ANN, NEWEST), w.open_as(ANN, NEWEST));
    call(&mut w, one, "a", "work", "k");
    let job = w.last_started();
    assert_eq!(refused(&mut w, other, &line("b", "work", "k", "{}", ""))["code"], -31008);
    // The repeat was answered: its cancel names nothing.
    cancel(&mut w, other, "b");
    assert_eq!(w.steps(job), []);
    cancel(&mut w, one, "a");
    assert_eq!(w.steps(job).len(), 1);
    call(&mut w, other, "c", "work", "k");
    let anew = w.last_started();
    assert_ne!(anew, job);
    w.stopped(job);
    w.silent(one);
    w.done(anew, "anew");
    answered(&mut w, other, "c", "anew");
}

/// A repeat is refused while the call runs, also if the connection of the first request is gone: it
/// neither keeps the call alive nor ends it, and later gets its outcome.
#[test]
fn repeat_is_refused_while_the_call_runs_without_its_connection() {
    for ends in [false, true] {
        let mut w = world();
        let one = w.open_as(ANN, NEWEST);
        call(&mut w, one, "a", "patient", "k");
        let job = w.last_started();
        w.lose(one);
        w.advance(Duration::from_millis(4900));
        let other = w.open_as(ANN, NEWEST);
        let repeat = line("b", "patient", "k", "{}", "");
        assert_eq!(refused(&mut w, other, &repeat)["code"], code::CALL_UNDER_WAY);
        // The repeat was answered: its cancel names nothing.
        cancel(&mut w, other, "b");
        assert_eq!((w.steps(job), w.last_started()), (vec![], job));
        if ends {
            w.done(job, "kept");
            w.send(other, &repeat);
            answered(&mut w, other, "b", "kept");
            assert_eq!(w.last_started(), job, "it has run once");
        } else {
            w.advance(Duration::from_millis(100));
            assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Disconnected));
            w.send(other, &repeat);
            assert_ne!(w.last_started(), job, "what was stopped is forgotten with its key");
        }
    }
}

#[test]
fn key_means_one_thing() {
    let mut w = world();
    let conn = w.open_as(ANN, NEWEST);
    w.send(conn, &line("a", "work", "k", r#"{"x":1,"y":2}"#, ""));
    let job = w.last_started();
    for other in [
        line("b", "patient", "k", r#"{"x":1,"y":2}"#, ""),
        line("b", "work", "k", r#"{"x":1}"#, ""),
        line("b", "work", "k", r#"{"x":1,"y":2}"#, r#","task":{}"#),
    ] {
        let error = refused(&mut w, conn, &other);
        assert_eq!(error["code"], -32602);
        assert!(error["message"].as_str().unwrap().contains("another call"), "{error}");
    }
    // Members may come in another order.
    let same = line("c", "work", "k", r#"{"y":2, "x":1}"#, "");
    assert_eq!(refused(&mut w, conn, &same)["code"], code::CALL_UNDER_WAY);
    assert_eq!((w.last_started(), w.sizes().requests), (job, 1));
    for odd in ["", &"k".repeat(129)] {
        assert_eq!(refused(&mut w, conn, &line("d", "work", odd, "{}", ""))["code"], -32602);
    }
    let odd = line("d", "work", "k", "{}", "").replace("\"k\"", "7");
    assert_eq!(refused(&mut w, conn, &odd)["code"], -32602);
    let nobody = w.open_as(Identity::Anonymous, NEWEST);
    let error = refused(&mut w, nobody, &line("a", "work", "k", "{}", ""));
    assert_eq!(error["code"], -32602, "what belongs to nobody in particular is nobody's to repeat");
}

#[test]
fn task_is_the_same_task() {
    let mut w = world();
    let conn = w.open_as(ANN, NEWEST);
    let create = |w: &mut World, id: &str| {
        w.send(conn, &line(id, "work", "k", "{}", r#","task":{"ttl":60000}"#));
        w.next(conn)["result"]["task"].take()
    };
    let first = create(&mut w, "a");
    let again = create(&mut w, "b");
    assert_eq!(first["taskId"], again["taskId"]);
    assert_eq!(w.sizes().tasks, 1);
    let job = w.last_started();
    w.done(job, "x");
    w.rest(conn);
    assert_eq!(create(&mut w, "c")["status"], "completed");
    w.advance(Duration::from_secs(61));
    assert_eq!(w.sizes().tasks, 0);
    assert_ne!(create(&mut w, "d")["taskId"], first["taskId"]);
}

#[test]
fn keys_are_bounded() {
    let mut w = world_with(Limits { keys_max: 2, ..Limits::default() });
    let conn = w.open_as(ANN, NEWEST);
    for key in ["k1", "k2"] {
        call(&mut w, conn, key, "work", key);
    }
    let error = refused(&mut w, conn, &line("a", "work", "k3", "{}", ""));
    assert_eq!(error["code"], -31003);
    assert_eq!(error["data"], json!({"limit": "idempotency_keys_per_identity", "max": 2}));
    // Known keys are still known, and other identities have their own.
    let known = refused(&mut w, conn, &line("b", "work", "k1", "{}", ""));
    assert_eq!(known["code"], code::CALL_UNDER_WAY);
    let bob = w.open_as(BOB, NEWEST);
    call(&mut w, bob, "a", "work", "k3");
    assert_eq!(w.sizes().jobs, 3);
    // A call that was refused for another reason is not remembered.
    let mut w = world_with(Limits { running_max: 1, queued_max: 0, ..Limits::default() });
    let conn = w.open_as(ANN, NEWEST);
    call(&mut w, conn, "a", "work", "k1");
    let job = w.last_started();
    assert_eq!(refused(&mut w, conn, &line("b", "work", "k2", "{}", ""))["code"], -31003);
    w.done(job, "x");
    answered(&mut w, conn, "a", "x");
    call(&mut w, conn, "c", "work", "k2");
    assert_ne!(w.last_started(), job);
}

/// A call with a grace goes on without its connection, with a key or without, and is stopped when
/// the grace is over.
#[test]
fn call_is_stopped_at_the_end_of_its_grace() {
    let mut w = world();
    for meta in ["\"ceased/idempotencyKey\":\"k3\"", ""] {
        let one = w.open_as(ANN, NEWEST);
        let line = line("e", "patient", "K", "{}", "");
        w.send(one, &line.replace("\"ceased/idempotencyKey\":\"K\"", meta));
        let job = w.last_started();
        w.lose(one);
        w.advance(Duration::from_millis(4999));
        assert_eq!(w.steps(job), []);
        w.advance(Duration::from_millis(1));
        assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Disconnected));
        w.stopped(job);
    }
    assert_eq!(w.sizes().jobs, 0);
}

/// A call that its host cancels, or a person by its number, is answered and forgotten: a request
/// with the key starts anew.
#[test]
fn what_was_cancelled_is_not_remembered() {
    let mut w = world();
    let (one, other) = (w.open_as(ANN, NEWEST), w.open_as(ANN, NEWEST));
    call(&mut w, one, "a", "work", "k");
    let job = w.last_started();
    w.result(other, "ceased/cancel", json!({"job": job.get()}));
    w.stopped(job);
    let told = w.next(one);
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!("a"), &json!(-32603)));
    call(&mut w, one, "c", "work", "k");
    let anew = w.last_started();
    assert_ne!(anew, job);
    w.done(anew, "anew");
    answered(&mut w, one, "c", "anew");
}

/// The default, as ever.
#[test]
fn call_is_cancelled_with_its_connection() {
    let mut w = world();
    let one = w.open_as(ANN, NEWEST);
    call(&mut w, one, "a", "work", "k");
    let job = w.last_started();
    w.lose(one);
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Disconnected));
    let other = w.open_as(ANN, NEWEST);
    call(&mut w, other, "b", "work", "k");
    assert_ne!(w.last_started(), job, "what was cancelled is not waited for");
}

/// A shutdown answers every request once and leaves nothing.
#[test]
fn shutdown_ends_waiting() {
    let mut w = world();
    let (one, other) = (w.open_as(ANN, NEWEST), w.open_as(ANN, NEWEST));
    call(&mut w, one, "a", "work", "k");
    call(&mut w, other, "b", "work", "k3");
    call(&mut w, one, "c", "patient", "k2");
    let jobs = w.sizes().jobs;
    assert_eq!(jobs, 3);
    w.feed(Input::Drain(w.now().at + Duration::from_secs(4)));
    for (conn, count) in [(one, 2), (other, 1)] {
        let answers = w.rest(conn);
        assert_eq!(answers.len(), count);
        assert!(answers.iter().all(|answer| answer["error"]["code"] == -31005), "{answers:?}");
    }
}

/// TSK-08, TSK-39: a key is forgotten with the task it stands for, whose id may come again.
#[test]
fn key_leads_to_no_other_task() {
    let [key, id] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let settings = settings(Limits::default(), TaskPolicy::default());
    let mut w = World::made_of(settings, Rigged::new([key, id, id]));
    let (ann, bob) = (w.open_as(ANN, NEWEST), w.open_as(BOB, NEWEST));
    let as_task = r#","task":{"ttl":1000}"#;
    w.send(ann, &line("a", "work", "k", "{}", as_task));
    w.next(ann);
    let job = w.last_started();
    w.done(job, "x");
    w.rest(ann);
    w.advance(Duration::from_secs(1));
    assert_eq!(w.sizes().tasks, 0);
    w.send(bob, &line("a", "work", "b", "{}", as_task));
    assert_eq!(w.next(bob)["result"]["task"]["taskId"], id.to_string());
    w.send(ann, &line("b", "work", "k", "{}", as_task));
    assert_ne!(w.next(ann)["result"]["task"]["taskId"], id.to_string());
}
