//! Heartbeats of jobs that report no progress themselves.

use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_simulator::tools::HEARTBEAT;
use ceased_simulator::trace::Input;
use ceased_simulator::world::World;
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";

/// Calls the tool with the heartbeat, with a progress token.
fn call(w: &mut World, conn: ConnId, id: u32) -> JobId {
    let params = json!({"name": "slow", "_meta": {"progressToken": id}});
    let line = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    w.send(conn, &line.to_string());
    w.last_started()
}

/// Token, value, total and message of each progress notification.
fn told(w: &mut World, conn: ConnId) -> Vec<(u64, f64, Option<f64>, String)> {
    let told = w.rest(conn).into_iter().filter(|m| m["method"] == "notifications/progress");
    told.map(|message| {
        let params = &message["params"];
        let text = params["message"].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| params[name].as_f64();
        (
            params["progressToken"].as_u64().unwrap(),
            number("progress").unwrap(),
            number("total"),
            text,
        )
    })
    .collect()
}

fn messages(w: &mut World, conn: ConnId) -> Vec<String> {
    told(w, conn).into_iter().map(|(.., text)| text).collect()
}

/// PRG-01: a silent job is told of once a heartbeat, with its last line.
#[test]
fn silent_job_is_told_of_every_heartbeat() {
    let mut w = World::new();
    let c = w.open();
    let job = call(&mut w, c, 1);
    assert_eq!(w.due_in(), Some(HEARTBEAT));
    w.advance(HEARTBEAT - Duration::from_nanos(1));
    w.silent(c);
    w.advance(Duration::from_nanos(1));
    assert_eq!(told(&mut w, c), [(1, 0.000_001, None, "0s".into())]);
    w.output(job, "Compiling one");
    w.silent(c);
    w.output(job, "Compiling\u{1b}[31m two");
    w.advance(HEARTBEAT);
    assert_eq!(told(&mut w, c), [(1, 0.000_002, None, "0s: Compiling [31m two".into())]);
    w.done(job, "ok");
    assert_eq!(w.next(c)["id"], 1);
    w.advance(10 * HEARTBEAT);
    w.silent(c);
}

/// PRG-02: values of the job pass unchanged, begin the time anew, and heartbeats stay between them.
#[test]
fn own_progress_passes_between_heartbeats() {
    let mut w = World::new();
    let c = w.open();
    let job = call(&mut w, c, 1);
    w.advance(HEARTBEAT);
    w.feed(Input::Progress(job, 1.0, Some(3.0), Some("one".into())));
    w.advance(HEARTBEAT - Duration::from_nanos(1));
    let values: Vec<f64> = told(&mut w, c).iter().map(|told| told.1).collect();
    assert_eq!(values, [0.000_001, 1.0], "the time began anew");
    w.advance(Duration::from_nanos(1));
    w.feed(Input::Progress(job, 2.0, Some(3.0), None));
    let values: Vec<_> = told(&mut w, c).iter().map(|told| (told.1, told.2)).collect();
    assert_eq!(values, [(1.000_001, Some(3.0)), (2.0, Some(3.0))]);
    w.progress(job, 3.0);
    w.feed(Input::Progress(job, 1e17, Some(1e17), None));
    w.advance(HEARTBEAT);
    let last: Vec<_> = told(&mut w, c);
    assert!(last[2].1 > 1e17 && last[2].2.is_none(), "{last:?}");
}

/// PRG-01: no token, no heartbeat; a cancel and the end of the connection end it.
#[test]
fn heartbeat_needs_a_requestor_that_listens() {
    let mut w = World::new();
    let c = w.open();
    let silent = w.call(c, json!("s"), "slow");
    w.advance(3 * HEARTBEAT);
    w.silent(c);
    w.done(silent, "ok");
    w.rest(c);
    call(&mut w, c, 2);
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    w.advance(2 * HEARTBEAT);
    w.silent(c);
    call(&mut w, c, 3);
    w.lose(c);
    w.advance(2 * HEARTBEAT);
}

/// PRG-01: a call that waits is told how many of its own wait before it, and nothing of others'.
#[test]
fn queued_call_is_told_its_place_among_its_own() {
    let limits = Limits { running_max: 1, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let (other, c) = (w.open_as(Identity::User(7), NEWEST), w.open());
    let first = call(&mut w, c, 1);
    for id in 2..=4 {
        call(&mut w, c, id);
    }
    for id in 5..=6 {
        call(&mut w, other, id);
    }
    w.advance(HEARTBEAT);
    let places = ["0s", "0s: waiting, 0 ahead", "0s: waiting, 1 ahead"];
    assert_eq!(messages(&mut w, c)[..3], places);
    assert_eq!(messages(&mut w, other), ["0s: waiting, 0 ahead", "0s: waiting, 1 ahead"]);
    w.done(first, "ok");
    w.feed(Input::Turn);
    w.rest(c);
    w.advance(HEARTBEAT);
    assert_eq!(messages(&mut w, other), ["0s", "0s: waiting, 0 ahead"]);
}

/// PRG-01, TSK-33: a task is told of as well, with its id, and shows its last line.
#[test]
fn task_shows_the_last_line_as_its_status_message() {
    let mut w = World::new();
    let c = w.open();
    let params = json!({"name": "slow", "task": {}, "_meta": {"progressToken": 9}});
    let made = w.result(c, "tools/call", params);
    let task = made["task"]["taskId"].clone();
    let job = w.last_started();
    w.output(job, "[3/9] Linking");
    let shown =
        |w: &mut World| w.result(c, "tasks/get", json!({"taskId": task}))["statusMessage"].clone();
    assert_eq!(shown(&mut w), "[3/9] Linking");
    w.advance(HEARTBEAT);
    let beat = w.next(c);
    assert_eq!(beat["params"]["message"], "0s: [3/9] Linking");
    let related = &beat["params"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"];
    assert_eq!(*related, task);
    w.done(job, "ok");
    w.rest(c);
    assert_eq!(shown(&mut w), Value::Null, "the task has ended");
}

/// PRG-02: while a value of the job waits for a peer that does not read, it is the next to be told.
#[test]
fn held_value_comes_before_the_next_heartbeat() {
    let limits = Limits { write_buffer_bytes: 300, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let c = w.open();
    let job = call(&mut w, c, 1);
    w.stop_reading(c);
    (1..=5).for_each(|to| w.progress(job, f64::from(to)));
    w.advance(HEARTBEAT);
    w.read_again(c);
    w.advance(HEARTBEAT);
    let values: Vec<f64> = told(&mut w, c).iter().map(|told| told.1).collect();
    assert!(values.is_sorted_by(|one, next| one < next), "{values:?}");
    assert_eq!(values[values.len() - 2..], [5.0, 5.000_001]);
}
