//! Peers that read less than their output: conditions of dropping them.

use std::time::Duration;

use ceased_core::event::Outcome;
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::reason::CloseReason;
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{World, result_of};
use serde_json::{Value, json};

const TICK: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);

fn request(id: Value, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn world(limits: Limits) -> World {
    World::with(limits, TaskPolicy::default())
}

fn call(id: u32) -> String {
    request(json!(id), "tools/call", json!({"name": "echo"}))
}

fn with_token(id: u32, token: &str) -> String {
    let params = json!({"name": "sleep", "_meta": {"progressToken": token}});
    request(json!(id), "tools/call", params)
}

fn long() -> Outcome {
    result_of(&json!({"content": [{"type": "text", "text": "x".repeat(600)}]}))
}

/// Many answers at once are no reason to drop a peer that reads: it has a second to begin, and
/// while it takes something, eight times the limit.
#[test]
fn peer_that_reads_may_be_answered_a_lot_at_once() {
    let mut w = world(Limits { write_buffer_bytes: 1000, ..Limits::default() });
    let c = w.open();
    let jobs: Vec<_> = (1..=10).map(|id| w.call(c, json!(id), "build")).collect();
    w.block(c);
    for job in &jobs[..5] {
        w.done(*job, &"x".repeat(900));
    }
    assert_eq!(w.closed, [], "over twice the limit in one moment");
    w.take(c, 10);
    w.advance(2 * SECOND);
    w.done(jobs[5], &"x".repeat(900));
    w.done(jobs[6], &"x".repeat(900));
    assert_eq!(w.closed, [], "it takes something");
    for job in &jobs[7..] {
        w.done(*job, &"x".repeat(900));
    }
    assert_eq!(w.closed, [(c, CloseReason::Flooded)], "eight times the limit");
}

/// A peer that lets twice the limit pile up and takes nothing is dropped, its work is stopped, its
/// tasks go on.
#[test]
fn peer_that_floods_itself_is_dropped() {
    let mut w = world(Limits { write_buffer_bytes: 1000, ..Limits::default() });
    let (c, fast) = (w.open(), w.open());
    let (task, task_job) = w.task(c, "sleep");
    let running = w.call(c, json!("r"), "echo");
    w.block(c);
    let mut id = 0;
    while w.closed.is_empty() {
        id += 1;
        assert!(id < 100, "it is dropped at some point");
        w.send(c, &request(json!(id), "ping", json!({})));
        w.advance(SECOND / 5);
        assert!(w.waiting(c) <= 2000 + 400, "{} bytes wait", w.waiting(c));
    }
    assert_eq!(w.closed, [(c, CloseReason::Flooded)]);
    assert_eq!(w.steps(running), [(StopStep::Flag, StopReason::Disconnected)]);
    assert_eq!(w.steps(task_job), []);
    assert_eq!(w.status(fast, &task).as_deref(), Some("working"));
    assert!(!w.is_open(c));
}

/// However many seem not to read, the host can try each once more: a tick takes such a peer first
/// or leaves it to be the next deadline.
#[test]
fn each_that_stalls_is_given_its_last_chance() {
    let limits = Limits::default();
    let policy = TaskPolicy { on_ttl: OnTtl::Stop, ..TaskPolicy::default() };
    let mut w = World::with(limits, policy);
    let conns = [w.open(), w.open(), w.open()];
    let ttl = u64::try_from(limits.write_stall.as_millis()).expect("a small number");
    w.send(
        conns[0],
        &request(
            json!("t"),
            "tools/call",
            json!({"name": "sleep", "arguments": {}, "task": {"ttl": ttl}}),
        ),
    );
    assert_eq!(w.sizes().tasks, 1);
    for conn in conns {
        w.feed(Input::Blocked(conn));
    }
    w.sleep_through(limits.write_stall);
    w.feed(Input::Tick);
    assert_eq!((w.sizes().tasks, w.closed.len()), (0, 0), "what else is due comes before");
    w.feed(Input::Tick);
    assert_eq!(w.closed, [(conns[0], CloseReason::Stalled)]);
    w.feed(Input::Drained(conns[1]));
    w.feed(Input::Tick);
    assert_eq!(w.closed.len(), 2);
    assert_eq!(w.closed[1].0, conns[2]);
}

/// RPC-03, CAN-09: a peer that does not read gets no new work done, and is told so; it is still
/// read from, so that its cancels arrive; when it reads again it is served again.
#[test]
fn peer_that_does_not_read_gets_no_new_work() {
    let mut w = world(Limits { write_buffer_bytes: 1000, ..Limits::default() });
    let c = w.open();
    let fast = w.open();
    let jobs =
        [w.call(c, json!(1), "echo"), w.call(c, json!(2), "echo"), w.call(c, json!(3), "echo")];
    w.block(c);
    w.end(jobs[0], long());
    w.send(c, &request(json!(4), "ping", json!({})));
    w.end(jobs[1], long());
    assert!(w.waiting(c) >= 1000);
    let before = w.started.len();
    w.send(c, &call(5));
    assert_eq!(w.started.len(), before);
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#);
    assert_eq!(
        w.steps(jobs[2]),
        [(StopStep::Flag, StopReason::Requested)],
        "it is still read from"
    );
    w.result(fast, "ping", json!({}));
    w.read_again(c);
    let told = w.rest(c);
    let ids: Vec<u64> = told.iter().map(|message| message["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 4, 2, 5]);
    assert_eq!(told[3]["error"]["data"]["limit"], "write_buffer_bytes");
    w.call(c, json!(5), "echo");
}

/// TSK-33: progress to a peer that does not read is held back, the latest value for each job; it
/// is told before the answer, and never after it.
#[test]
fn progress_to_a_slow_peer_is_coalesced() {
    let mut w = world(Limits { write_buffer_bytes: 1000, ..Limits::default() });
    let c = w.open();
    let mut jobs = Vec::new();
    for (id, token) in [(1, "a"), (2, "b"), (3, "c")] {
        w.send(c, &with_token(id, token));
        jobs.push(w.last_started());
    }
    let filler = w.call(c, json!(9), "echo");
    w.block(c);
    w.end(filler, long());
    w.progress(jobs[0], 1.0);
    let filler = w.waiting(c);
    assert!(filler < 1000);
    for progress in 2..200 {
        for job in &jobs {
            w.progress(*job, f64::from(progress));
        }
    }
    assert!(w.waiting(c) < 1200, "{} bytes wait", w.waiting(c));
    w.done(jobs[1], "b is done");
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#);
    w.read_again(c);
    let told = w.rest(c);
    let last = |token: &str| {
        let of_token = |m: &&Value| m["params"]["progressToken"] == token;
        told.iter().filter(of_token).map(|m| m["params"]["progress"].as_f64().unwrap()).next_back()
    };
    assert_eq!((last("a"), last("b")), (Some(199.0), Some(199.0)));
    assert_ne!(last("c"), Some(199.0), "nothing held is told after a cancel");
    let at = |wanted: &dyn Fn(&Value) -> bool| told.iter().rposition(wanted).unwrap();
    assert!(at(&|m| m["params"]["progressToken"] == "b") < at(&|m| m["id"] == 2));
    w.progress(jobs[0], 200.0);
    assert_eq!(w.next(c)["params"]["progress"].as_f64(), Some(200.0));
    w.progress(jobs[2], 300.0);
    w.silent(c);
}

/// TSK-33: so for a task: held messages are sent before its end, and nothing after it.
#[test]
fn progress_of_a_task_is_told_before_its_end() {
    for cancelled in [false, true] {
        let mut w = world(Limits { write_buffer_bytes: 1000, ..Limits::default() });
        let (c, other) = (w.open(), w.open());
        let params = json!({"name": "sleep", "task": {}, "_meta": {"progressToken": "t"}});
        let created = w.result(c, "tools/call", params);
        let job = w.last_started();
        let fillers = [w.call(c, json!(8), "echo"), w.call(c, json!(9), "echo")];
        w.block(c);
        for filler in fillers {
            w.end(filler, long());
        }
        w.progress(job, 1.0);
        w.progress(job, 2.0);
        if cancelled {
            w.result(other, "tasks/cancel", json!({"taskId": created["task"]["taskId"]}));
        } else {
            w.done(job, "ok");
        }
        w.progress(job, 3.0);
        w.read_again(c);
        let told: Vec<Value> = w.rest(c).split_off(2);
        let methods: Vec<&str> = told.iter().filter_map(|m| m["method"].as_str()).collect();
        let (progress, status) = ("notifications/progress", "notifications/tasks/status");
        let expected = if cancelled { vec![status] } else { vec![progress, status] };
        assert_eq!(methods, expected);
        if !cancelled {
            assert_eq!(told[0]["params"]["progress"].as_f64(), Some(2.0));
        }
    }
}

/// A peer that takes nothing for `write_stall` is dropped; one that takes something in time is
/// not.
#[test]
fn peer_that_stalls_is_dropped() {
    let limits = Limits::default();
    let mut w = world(limits);
    let (c, other) = (w.open(), w.open());
    let job = w.call(c, json!(1), "echo");
    for conn in [c, other] {
        w.stop_reading(conn);
        w.send(conn, &request(json!("p"), "ping", json!({})));
        w.feed(Input::Blocked(conn));
    }
    w.advance(limits.write_stall - TICK);
    // It took some of it, and there is more.
    w.feed(Input::Blocked(other));
    w.advance(TICK);
    assert_eq!(w.closed, [(c, CloseReason::Stalled)]);
    assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Disconnected)]);
    w.read_again(other);
    w.advance(10 * limits.write_stall);
    assert_eq!(w.closed.len(), 1);
    assert_eq!(w.next(other)["id"], "p");
}
