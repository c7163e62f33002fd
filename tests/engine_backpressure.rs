//! Peers for whom more waits than they take: when they are dropped and when not.

use std::time::Duration;

use ceased_core::action::{Closing, Why};
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::tool::Step;
use ceased_tests::trace::Input;
use ceased_tests::world::World;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

fn request(id: Value, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn world(limits: Limits) -> World {
    World::with(limits, TaskPolicy::default())
}

/// Many answers at once are no reason to drop a peer that reads: it has a second to begin, and
/// while it takes something, eight times the limit.
#[test]
fn a_peer_that_reads_may_be_answered_a_lot_at_once() {
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
    assert_eq!(w.closed, [(c, Closing::Flooded)], "eight times the limit");
}

/// A peer that lets twice the limit pile up and takes nothing is dropped, its work is stopped, its
/// tasks go on.
#[test]
fn a_peer_that_floods_itself_is_dropped() {
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
    assert_eq!(w.closed, [(c, Closing::Flooded)]);
    assert_eq!(w.steps(running), [(Step::Flag, Why::Disconnected)]);
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
    assert_eq!(w.closed, [(conns[0], Closing::Stalled)]);
    w.feed(Input::Drained(conns[1]));
    w.feed(Input::Tick);
    assert_eq!(w.closed.len(), 2);
    assert_eq!(w.closed[1].0, conns[2]);
}
