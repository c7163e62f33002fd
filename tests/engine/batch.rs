//! Batches of 2025-03-26: answered at once, without cancelled requests, within bounds.

use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::reason::CloseReason;
use ceased_core::tool::StopStep;
use ceased_simulator::world::{REVISIONS, World, unreadable};
use serde_json::{Value, json};

fn batching() -> (World, ceased_core::ids::ConnId) {
    let mut w = World::new();
    let c = w.open_as(Identity::User(1), "2025-03-26");
    (w, c)
}

/// RPC-03: a batch of 2025-03-26 is answered by one array once all of it is settled, with the
/// requests that were not cancelled; notifications and responses in it are no part of the answer.
#[test]
fn batch_is_answered_at_once() {
    let (mut w, c) = batching();
    w.send(
        c,
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}},
            {"jsonrpc":"2.0","method":"notifications/initialized"},
            {"jsonrpc":"2.0","id":"p","method":"ping"},
            {"jsonrpc":"2.0","id":9,"result":{}},
            {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}},
            7, [], {"jsonrpc":"2.0","id":null,"method":"ping"},
            {"jsonrpc":"2.0","id":1,"method":"ping"},
            {"jsonrpc":"2.0","id":3,"method":"nothing"}]"#
            .replace('\n', " ")
            .as_str(),
    );
    w.silent(c);
    let [one, two] = w.started[..] else { panic!("two calls, two jobs") };
    w.done(two, "two");
    w.silent(c);
    w.done(one, "one");
    let answers = w.next(c);
    let ids: Vec<(Value, i64)> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|a| (a["id"].clone(), a["error"]["code"].as_i64().unwrap_or_default()))
        .collect();
    let expected = [
        (json!("p"), 0),
        (Value::Null, -32600),
        (Value::Null, -32600),
        (Value::Null, -32600),
        (json!(1), -32600),
        (json!(3), -32601),
        (json!(2), 0),
        (json!(1), 0),
    ];
    assert_eq!(ids, expected);
    w.silent(c);
}

/// CAN-08, RPC-03: a cancelled request of a batch is no part of its answer; a batch of which
/// nothing is left is not answered at all.
#[test]
fn batch_without_its_cancelled_requests() {
    let (mut w, c) = batching();
    let call = |id: u32| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "echo"}});
    let cancel = |id: u32| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    w.send(c, &json!([call(1), call(2)]).to_string());
    let [one, two] = w.started[..] else { panic!("two jobs") };
    w.send(c, &cancel(1).to_string());
    w.silent(c);
    w.done(two, "two");
    let answers = w.next(c);
    assert_eq!(answers.as_array().unwrap().len(), 1);
    assert_eq!(answers[0]["id"], 2);
    w.done(one, "one");
    // Asked for and cancelled in one batch; and two that are cancelled one by one.
    w.send(c, &json!([call(3), cancel(3)]).to_string());
    w.send(c, &json!([call(4), call(5)]).to_string());
    assert_eq!(w.started.len(), 4, "3 never started");
    w.send(c, &json!([cancel(4), cancel(5)]).to_string());
    w.silent(c);
    assert_eq!(w.sizes().requests, 0);
    let left: Vec<_> = w.running.keys().copied().collect();
    for job in left {
        assert_eq!(w.steps(job)[0].0, StopStep::Flag);
        w.stopped(job);
    }
    w.silent(c);
}

/// RPC-01, RPC-04: batches where there are none, empty ones, too large ones, and initialize in one.
#[test]
fn batches_that_are_refused() {
    for revision in REVISIONS {
        let limits = Limits { batch_max: 3, ..Limits::default() };
        let mut w = World::with(limits, TaskPolicy::default());
        let c = w.open_as(Identity::User(1), revision);
        let ping = r#"{"jsonrpc":"2.0","method":"x"}"#;
        let accepted = revision == "2025-03-26";
        for (frame, good) in [
            ("[]".to_owned(), false),
            (format!("[{ping}]"), accepted),
            (format!("[{ping},{ping},{ping}]"), accepted),
            (format!("[{ping},{ping},{ping},{ping}]"), false),
        ] {
            w.send(c, &frame);
            if good {
                w.silent(c);
            } else {
                let answer = w.next(c);
                assert_eq!(answer["error"]["code"], -32600, "{revision} {frame}");
                assert_eq!(answer.get("id"), unreadable(revision).as_ref());
            }
        }
    }
    let mut w = World::new();
    let c = w.connect(Identity::User(1));
    w.send(
        c,
        r#"[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}]"#,
    );
    assert_eq!(w.next(c)["error"]["code"], -32600);
    assert_eq!(w.refusal(c, "tools/list", json!({})).0, -32600, "it is not initialized");
    let (mut w, c) = batching();
    w.send(c, r#"[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}]"#);
    assert_eq!(w.next(c)[0]["error"]["code"], -32600);
}

/// RPC-03: a connection that goes while a batch of it is open leaves nothing, and nothing is
/// flushed to it.
#[test]
fn batch_ends_with_its_connection() {
    let (mut w, c) = batching();
    w.send(
        c,
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#,
    );
    w.lose(c);
    let job = w.last_started();
    assert_eq!(w.steps(job).len(), 1);
    w.stopped(job);
    assert_eq!(w.sizes(), ceased_core::stats::Sizes::default());
}

/// The answers of a batch that wait for its end are bounded like everything that waits.
#[test]
fn batch_collects_no_more_than_may_wait() {
    let limits = Limits { write_buffer_bytes: 2000, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let c = w.open_as(Identity::User(1), "2025-03-26");
    let calls: Vec<String> = (1..=6)
        .map(|id| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"build"}}}}"#
            )
        })
        .collect();
    w.send(c, &format!("[{}]", calls.join(",")));
    let jobs = w.started.clone();
    // It has answers waiting that it does not read.
    w.stop_reading(c);
    w.send(c, r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#);
    w.block(c);
    for job in jobs.iter().take(3) {
        w.done(*job, &"x".repeat(1000));
    }
    assert_eq!(w.closed, []);
    w.advance(Duration::from_secs(1));
    w.done(jobs[3], &"x".repeat(1000));
    assert_eq!(w.closed, [(c, CloseReason::Flooded)]);
}

/// A peer that is dropped in the middle of its own batch gets nothing of the rest of it done.
#[test]
fn batch_stops_where_its_peer_is_dropped() {
    let limits = Limits { write_buffer_bytes: 2000, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let c = w.open_as(Identity::User(1), "2025-03-26");
    w.stop_reading(c);
    w.send(c, r#"{"jsonrpc":"2.0","id":"before","method":"ping"}"#);
    w.block(c);
    w.advance(Duration::from_secs(2));
    // Each refusal tells the name back.
    let noise = json!({"jsonrpc": "2.0", "id": 1, "method": "x".repeat(400)});
    let call =
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo"}});
    let mut batch = vec![noise; 30];
    batch.push(call);
    let requests = w.counters().requests;
    w.send(c, &json!(batch).to_string());
    assert_eq!(w.closed, [(c, CloseReason::Flooded)]);
    assert_eq!(w.started, [], "the call behind the flood is not made");
    assert!(w.counters().requests < requests + 31, "{} requests", w.counters().requests);
}
