//! A shutdown: every request is answered, running jobs are stopped, and the end is bounded.

use std::time::Duration;

use ceased_core::event::AfterInput;
use ceased_core::identity::Identity;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::reason::CloseReason;
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::World;
use serde_json::{Value, json};

const TICK: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);

fn request(id: Value, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn call(id: u32) -> String {
    request(json!(id), "tools/call", json!({"name": "echo"}))
}

/// RPC-03: a shutdown answers every request at once, stops jobs, fails the tasks with the reason,
/// and ends when nothing runs any more.
#[test]
fn shutdown_answers_every_request() {
    let mut w = World::with(Limits { running_max: 3, ..Limits::default() }, TaskPolicy::default());
    let (c, other) = (w.open(), w.open());
    let (task, task_job) = w.task(c, "build");
    let plain = w.call(c, json!(1), "echo");
    let command = w.call(other, json!(1), "build");
    w.send(c, &call(2));
    w.send(other, &request(json!(2), "tasks/result", json!({"taskId": task})));
    w.feed(Input::Drain(w.now().at + 8 * SECOND));
    assert_eq!(w.steps(plain), [(StopStep::Flag, StopReason::Shutdown)]);
    assert_eq!(w.steps(command), [(StopStep::Terminate, StopReason::Shutdown)]);
    assert_eq!(w.steps(task_job), [(StopStep::Terminate, StopReason::Shutdown)]);
    assert_eq!(w.next(c)["params"]["status"], "failed");
    for (conn, ids) in [(c, [1, 2]), (other, [2, 1])] {
        let mut told: Vec<u64> = Vec::new();
        for message in w.rest(conn) {
            assert_eq!(message["error"]["code"], -31005, "{message}");
            told.push(message["id"].as_u64().unwrap());
        }
        assert_eq!(told, ids);
    }
    assert_eq!(w.exits, 0);
    for job in [plain, command] {
        w.stopped(job);
    }
    // A job that finishes anyway changes nothing.
    w.done(task_job, "finished anyway");
    w.silent(c);
    w.silent(other);
    assert_eq!((w.exits, w.started.len()), (1, 3));
    assert_eq!((w.sizes().jobs, w.sizes().requests, w.sizes().tasks), (0, 0, 1));
}

/// RPC-03: while shutting down nothing new is taken, pings are answered, cancels are ignored.
#[test]
fn nothing_new_while_shutting_down() {
    let mut w = World::new();
    let c = w.open();
    let (task, job) = w.task(c, "sleep");
    let plain = w.call(c, json!(1), "echo");
    w.feed(Input::Drain(w.now().at + 8 * SECOND));
    w.rest(c);
    for (method, params) in [
        ("tools/call", json!({"name": "echo"})),
        ("tools/call", json!({"name": "sleep", "task": {}})),
        ("tasks/cancel", json!({"taskId": task})),
        ("tasks/result", json!({"taskId": task})),
        ("tools/list", json!({})),
    ] {
        assert_eq!(w.refusal(c, method, params).0, -31005, "{method}");
    }
    w.result(c, "ping", json!({}));
    let late = w.connect(Identity::User(1));
    w.result(late, "ping", json!({}));
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    w.silent(c);
    assert_eq!((w.steps(plain).len(), w.steps(job).len()), (1, 1));
    w.lose(c);
    assert_eq!((w.steps(plain).len(), w.exits), (1, 0));
    w.stopped(plain);
    w.stopped(job);
    assert_eq!(w.exits, 1);
}

/// An idle engine exits at once; half-closed and unread peers do not keep it.
#[test]
fn idle_engine_exits_at_once() {
    let mut w = World::new();
    w.open();
    w.feed(Input::Drain(w.now().at + 8 * SECOND));
    w.feed(Input::Drain(w.now().at + 8 * SECOND));
    assert_eq!((w.exits, w.due_in()), (1, None));
}

/// RPC-03: a half-closed peer is answered by the shutdown and then closed.
#[test]
fn shutdown_lets_half_closed_peers_go() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "echo");
    w.feed(Input::Finished(c, AfterInput::Answer));
    w.feed(Input::Drain(w.now().at + 8 * SECOND));
    w.expect_error(c, json!(1), -31005);
    assert_eq!(w.closed, [(c, CloseReason::Finished)]);
    w.stopped(job);
    assert_eq!(w.exits, 1);
}

/// TSK-18: a half-closed peer is told of each of its tasks that the shutdown ends, whichever of
/// them it waits for, and closed after that.
#[test]
fn shutdown_tells_half_closed_peers_of_their_tasks() {
    for waited_for in 0..5 {
        let mut w = World::new();
        let c = w.open();
        let tasks: Vec<String> = (0..5).map(|_| w.task(c, "sleep").0).collect();
        w.rest(c);
        let params = json!({"taskId": tasks[waited_for]});
        w.send(c, &request(json!("wait"), "tasks/result", params));
        w.feed(Input::Finished(c, AfterInput::Answer));
        w.feed(Input::Drain(w.now().at + 8 * SECOND));
        let (answers, statuses): (Vec<_>, Vec<_>) =
            w.rest(c).into_iter().partition(|message| message.get("id").is_some());
        assert_eq!(answers.len(), 1, "{answers:?}");
        let told = |task: &String| statuses.iter().any(|s| s["params"]["taskId"] == **task);
        assert!(tasks.iter().all(told), "waits for {waited_for} and is told {statuses:?}");
        assert_eq!(w.closed, [(c, CloseReason::Finished)]);
    }
}

/// Before its end a shutdown kills the remaining jobs at any grace; at its end it exits
/// with any job left.
#[test]
fn shutdown_is_bounded() {
    let mut w = World::new();
    let c = w.open();
    let command = w.call(c, json!(1), "build");
    let function = w.call(c, json!(2), "echo");
    w.feed(Input::Drain(w.now().at + SECOND));
    w.advance(SECOND / 4 * 3 - TICK);
    assert_eq!(w.steps(command).len(), 1, "the grace of the tool is longer");
    w.advance(TICK);
    assert_eq!(w.steps(command)[1], (StopStep::Kill, StopReason::Shutdown));
    w.advance(SECOND / 4 - TICK);
    assert_eq!(w.exits, 0);
    w.advance(TICK);
    assert_eq!(w.exits, 1);
    w.stopped(command);
    w.stopped(function);
    assert_eq!(w.exits, 1, "it is said once");
}

/// A tick that comes late, after everything was due: the exit is still the last thing said.
#[test]
fn late_tick_ends_with_the_exit() {
    let mut w = World::new();
    let c = w.open();
    let (_, job) = w.task(c, "build");
    w.call(c, json!(1), "echo");
    w.feed(Input::Drain(w.now().at + SECOND));
    w.sleep_through(60 * SECOND);
    w.feed(Input::Tick);
    assert_eq!((w.exits, w.running.len()), (1, 1));
    w.stopped(job);
    assert_eq!(w.exits, 1);
}

/// A second request to shut down brings the end forward.
#[test]
fn second_shutdown_is_sooner() {
    let mut w = World::new();
    let c = w.open();
    let command = w.call(c, json!(1), "build");
    w.feed(Input::Drain(w.now().at + 100 * SECOND));
    w.feed(Input::Drain(w.now().at));
    w.advance(Duration::ZERO);
    assert_eq!(w.steps(command).last(), Some(&(StopStep::Kill, StopReason::Shutdown)));
    assert_eq!(w.exits, 1);
    w.stopped(command);
    assert_eq!(w.exits, 1);
}

/// RPC-03, CAN-11: a shutdown amid everything: stop sequences go on, a request that
/// was cancelled stays unanswered.
#[test]
fn shutdown_during_a_cancel() {
    let mut w = World::new();
    let c = w.open();
    let cancelled = w.call(c, json!(1), "build");
    let timed = w.call(c, json!(2), "slow");
    w.advance(tools::TIMEOUT - SECOND);
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    w.advance(SECOND);
    w.feed(Input::Drain(w.now().at + 100 * SECOND));
    w.expect_error(c, json!(2), -31005);
    w.advance(SECOND);
    assert_eq!(
        w.steps(cancelled),
        [(StopStep::Terminate, StopReason::Requested), (StopStep::Kill, StopReason::Requested)],
        "its own stop policy, at its own time"
    );
    w.stopped(cancelled);
    w.stopped(timed);
    w.silent(c);
    assert_eq!(w.exits, 1);
}
