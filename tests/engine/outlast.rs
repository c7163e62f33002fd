//! Jobs with processes that cannot be killed.

use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::event::Outcome;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{World, result_of};
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

fn request(id: Value, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn some(text: &str) -> Outcome {
    result_of(&json!({"content": [{"type": "text", "text": text}], "isError": true}))
}

/// CAN-06, STOP-02: a job that SIGKILL does not end delays no requestor. Its call is answered,
/// once, with the outcome so far; it goes on being stopped, keeps its room, and has a second
/// receipt when it has ended.
#[test]
fn job_that_outlasts_sigkill_delays_no_requestor() {
    let mut w = World::with(Limits { running_max: 1, ..Limits::default() }, TaskPolicy::default());
    let c = w.open();
    let job = w.call(c, json!(1), "build");
    w.send(c, &request(json!(2), "tools/call", json!({"name": "echo"})));
    // Nothing was ordered against it: it is not believed.
    let late = w.counters().late_reports;
    w.feed(Input::Outlasted(job, Outcome::Stopped));
    assert_eq!(w.counters().late_reports, late + 1);
    w.advance(tools::TIMEOUT + tools::KILL_GRACE + SECOND);
    assert_eq!(w.steps(job)[2], (StopStep::Kill, StopReason::TimedOut));
    w.silent(c);
    w.feed(Input::Outlasted(job, some("some")));
    let Some(AuditEvent::Outlasted(receipt)) = w.notes.last() else {
        panic!("{:?}", w.notes.last())
    };
    assert_eq!((receipt.job, receipt.why), (job, StopReason::TimedOut));
    let answer = w.next(c);
    assert_eq!(
        (&answer["id"], &answer["result"]["content"][0]["text"]),
        (&json!(1), &json!("some"))
    );
    // Once only, and it is still there.
    w.feed(Input::Outlasted(job, some("too late")));
    w.feed(Input::Turn);
    w.silent(c);
    assert_eq!((w.sizes().jobs, w.started.len()), (2, 1), "the other waits for its room");
    w.advance(3 * SECOND);
    assert_eq!(w.steps(job).len(), 6, "it is killed on");
    w.done(job, "too late");
    w.silent(c);
    let Some(AuditEvent::Ceased(receipt)) = w.notes.last() else { panic!("{:?}", w.notes.last()) };
    assert_eq!(receipt.job, job);
    assert_eq!(w.started.len(), 2);
    let second = w.last_started();
    w.done(second, "two");
    assert_eq!(w.next(c)["id"], 2);
    assert_eq!(w.sizes().jobs, 0);
}

/// STOP-02: a task whose job outlasts SIGKILL has ended; a cancelled call is not answered at all
/// (CAN-08).
#[test]
fn task_ends_when_its_job_outlasts_sigkill() {
    let mut w = World::new();
    let c = w.open();
    let cancelled = w.call(c, json!(1), "build");
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    w.advance(tools::KILL_GRACE + SECOND);
    w.feed(Input::Outlasted(cancelled, some("too late")));
    w.silent(c);

    let params = json!({"name": "build", "task": {}});
    w.send(c, &request(json!(2), "tools/call", params));
    w.feed(Input::Turn);
    let task = w.next(c)["result"]["task"]["taskId"].clone();
    let job = w.last_started();
    w.advance(tools::TIMEOUT + tools::KILL_GRACE + SECOND);
    w.feed(Input::Outlasted(job, Outcome::Stopped));
    w.send(c, &request(json!(3), "tasks/get", json!({"taskId": task})));
    let mut answer = w.next(c);
    while answer["id"] != 3 {
        answer = w.next(c);
    }
    assert_eq!(answer["result"]["status"], "failed", "{answer}");
    assert_eq!(w.sizes().jobs, 2);
    w.stopped(job);
    w.stopped(cancelled);
    assert_eq!(w.sizes().jobs, 0);
}

/// STOP-02: the end of the daemon does not wait for jobs that outlast SIGKILL, and learns of them
/// in time.
#[test]
fn shutdown_does_not_wait_for_a_job_that_outlasts_sigkill() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "build");
    w.feed(Input::Drain(w.now().at + SECOND));
    w.advance(SECOND / 4 * 3);
    assert_eq!(w.steps(job).last(), Some(&(StopStep::Kill, StopReason::Shutdown)));
    let killed = w.steps(job).len();
    w.advance(SECOND / 8);
    assert_eq!(w.steps(job).len(), killed + 1, "again before the end");
    assert_eq!(w.exits, 0);
    w.feed(Input::Outlasted(job, Outcome::Stopped));
    assert_eq!(w.exits, 1, "nothing is left to wait for");
}
