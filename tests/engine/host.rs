//! Events of a host: disconnects and half-closes of peers, time, reload, full queues,
//! work that will not stop.

use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::event::{AfterInput, Outcome};
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::reason::CloseReason;
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, World, result_of};
use serde_json::{Value, json};

const TICK: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);

fn world(limits: Limits) -> World {
    World::with(limits, TaskPolicy::default())
}

fn request(id: Value, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn call(id: u32) -> String {
    request(json!(id), "tools/call", json!({"name": "echo"}))
}

fn long() -> Outcome {
    result_of(&json!({"content": [{"type": "text", "text": "x".repeat(600)}]}))
}

// ------------------------------------------------------------------------------- stopping work

/// CAN-06: a command is sent SIGTERM, SIGKILL after its grace, and again every second until it
/// is gone; it is never given up.
#[test]
fn ladder_of_a_command() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "build");
    w.advance(5 * SECOND);
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let why = StopReason::Requested;
    assert_eq!(w.steps(job), [(StopStep::Terminate, why)]);
    w.advance(tools::KILL_GRACE - TICK);
    assert_eq!(w.steps(job).len(), 1);
    w.advance(TICK);
    assert_eq!(w.steps(job), [(StopStep::Terminate, why), (StopStep::Kill, why)]);
    w.advance(100 * SECOND);
    assert_eq!(w.steps(job).len(), 102);
    assert_eq!(w.sizes().jobs, 1);
    let since = w.now().at;
    w.stopped(job);
    let Some(AuditEvent::Ceased(receipt)) = w.notes.last() else { panic!("{:?}", w.notes.last()) };
    assert_eq!((receipt.job, receipt.why), (job, StopReason::Requested));
    assert_eq!(receipt.stage, Some(StopStep::Kill));
    assert_eq!(since.since(receipt.since), tools::KILL_GRACE + 100 * SECOND);
    assert_eq!((w.sizes().jobs, w.due_in()), (0, None));
}

/// CAN-06, CAN-07: a function whose flag was raised is given up after its answer_timeout: counted,
/// noted, never noted as ceased; its room is free, and its later output is dropped.
#[test]
fn handler_that_does_not_look_is_abandoned() {
    let mut w = world(Limits { running_max: 1, ..Limits::default() });
    let c = w.open();
    let job = w.call(c, json!(1), "echo");
    w.send(c, &call(2));
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    w.notes.clear();
    w.advance(tools::ABANDON_AFTER - TICK);
    assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Requested)]);
    w.advance(TICK);
    w.feed(Input::Turn);
    assert_eq!(w.steps(job)[1], (StopStep::Abandon, StopReason::Requested));
    assert_eq!(w.notes, [AuditEvent::Abandoned { job, tool: "echo".into() }]);
    assert_eq!((w.counters().jobs_abandoned, w.started.len()), (1, 2));
    let late = w.counters().late_reports;
    w.feed(Input::Progress(job, 1.0, None, None));
    w.feed(Input::Done(job, long()));
    assert_eq!(w.counters().late_reports, late + 2);
    w.silent(c);
    let second = w.last_started();
    w.done(second, "two");
    assert_eq!(w.next(c)["id"], 2);
}

/// RPC-03: a call that runs into its timeout is stopped and answered when it has stopped, with an
/// error that says so; or with its result of the last moment.
#[test]
fn timeouts() {
    for (tool, ending) in [("slow", 0), ("slow", 1), ("slow", 2), ("build", 0), ("build", 1)] {
        let mut w = World::new();
        let c = w.open();
        let job = w.call(c, json!(1), tool);
        w.advance(tools::TIMEOUT - TICK);
        assert_eq!(w.steps(job), []);
        w.advance(TICK);
        assert_eq!(w.steps(job)[0].1, StopReason::TimedOut);
        w.silent(c);
        match ending {
            0 => w.stopped(job),
            1 => w.done(job, "just made it"),
            _ => w.advance(tools::ABANDON_AFTER),
        }
        let answer = w.next(c);
        if ending == 1 {
            assert_eq!(answer["result"]["content"][0]["text"], "just made it");
        } else {
            assert_eq!(answer["error"]["code"], -31004);
            assert_eq!(answer["error"]["data"], json!({"timedOut": true, "timeoutMs": 60_000}));
        }
        w.silent(c);
        assert_eq!((w.sizes().requests, w.sizes().jobs), (0, 0));
    }
}

/// The timeout counts from the start, not from the wait in the queue.
#[test]
fn waiting_is_not_running() {
    let mut w = world(Limits { running_max: 1, ..Limits::default() });
    let c = w.open();
    let first = w.call(c, json!(1), "echo");
    w.send(c, &request(json!(2), "tools/call", json!({"name": "slow"})));
    w.advance(10 * tools::TIMEOUT);
    w.done(first, "ok");
    let second = w.last_started();
    w.advance(tools::TIMEOUT - TICK);
    assert_eq!(w.steps(second), []);
    w.advance(TICK);
    assert_eq!(w.steps(second), [(StopStep::Flag, StopReason::TimedOut)]);
}

/// CAN-06: processes left by the first process of a job are stopped by the same sequence, and the
/// call is answered with the result of the job.
#[test]
fn what_is_left_behind_is_stopped() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "build");
    w.feed(Input::Lingering(job));
    w.feed(Input::Lingering(job));
    assert_eq!(w.steps(job), [], "they may be about to go by themselves");
    w.advance(Duration::from_millis(100));
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::LeftBehind)]);
    w.advance(tools::KILL_GRACE);
    assert_eq!(w.steps(job)[1], (StopStep::Kill, StopReason::LeftBehind));
    w.done(job, "built");
    assert_eq!(w.next(c)["result"]["content"][0]["text"], "built");
    w.feed(Input::Lingering(job));
    w.silent(c);
}

// ------------------------------------------------------------------------------- room

/// TSK-36, RPC-03: as many jobs run as may, in the order they were asked for; as many wait as
/// may; one more is refused by name and leaves nothing.
#[test]
fn queue_is_bounded_and_fair() {
    let mut w = world(Limits { running_max: 2, queued_max: 3, ..Limits::default() });
    let (c, other) = (w.open(), w.open());
    for id in 1..=5 {
        w.send(if id % 2 == 0 { other } else { c }, &call(id));
    }
    assert_eq!((w.running.len(), w.sizes().jobs), (2, 5));
    for conn in [c, other] {
        w.send(conn, &call(6));
        let message = w.expect_error(conn, json!(6), -31003);
        assert!(message.contains("queue") && message.contains('3'), "{message}");
        let (code, _) = w.refusal(conn, "tools/call", json!({"name": "sleep", "task": {}}));
        assert_eq!(code, -31003);
    }
    assert_eq!((w.sizes().jobs, w.sizes().tasks, w.counters().refused), (5, 0, 4));
    let mut order = Vec::new();
    while let Some(job) = w.running.keys().next().copied() {
        w.done(job, "ok");
        order.extend(w.rest(c).into_iter().chain(w.rest(other)).map(|m| m["id"].clone()));
    }
    assert_eq!(order, [1, 2, 3, 4, 5].map(|id| json!(id)));
}

/// TSK-36: requests of one connection that wait are limited; another connection is not affected,
/// and requests that need no waiting are still answered.
#[test]
fn waiting_requests_are_limited() {
    let mut w = world(Limits { inflight_max: 3, ..Limits::default() });
    let (c, other) = (w.open(), w.open());
    let (task, job) = w.task(other, "sleep");
    let first = w.call(c, json!(1), "echo");
    w.call(c, json!(2), "echo");
    let wait = json!({"taskId": task});
    w.send(c, &request(json!(3), "tasks/result", wait.clone()));
    w.send(c, &call(4));
    assert!(w.expect_error(c, json!(4), -31003).contains("inflight_per_connection"));
    w.send(c, &request(json!(5), "tasks/result", wait.clone()));
    w.expect_error(c, json!(5), -31003);
    assert_eq!(w.started.len(), 3);
    w.result(c, "ping", json!({}));
    w.task(c, "sleep");
    w.call(other, json!(1), "echo");
    w.done(first, "ok");
    assert_eq!(w.next(c)["id"], 1);
    w.call(c, json!(4), "echo");
    w.done(job, "slept");
    assert_eq!(w.next(c)["id"], 3);
    w.result(c, "tasks/result", wait);
}

/// More connections than the limit: told why, closed, and nothing they send is read.
#[test]
fn connections_are_limited() {
    let mut w = world(Limits { connections_max: 2, ..Limits::default() });
    let (a, b) = (w.open(), w.open());
    let c = w.connect(Identity::User(1));
    let told = w.next(c);
    assert_eq!(told["error"]["data"], json!({"limit": "connections", "max": 2}));
    assert_eq!(w.closed, [(c, CloseReason::TooMany)]);
    w.lose(a);
    let d = w.open();
    for conn in [b, d] {
        w.result(conn, "ping", json!({}));
    }
}

/// A first line that is no JSON-RPC: a person is told, a browser is not, and both are closed.
#[test]
fn strangers_are_closed() {
    for (bytes, told) in [
        (&b"hello there"[..], true),
        (b"GET / HTTP/1.1\r", false),
        (b"POST /x HTTP/1.1\r", false),
        (b"\x16\x03\x01\x02\x00", false),
    ] {
        let mut w = World::new();
        let c = w.connect(Identity::Anonymous);
        w.feed(Input::NotJsonRpc(c, bytes.to_vec()));
        assert_eq!(w.rest(c).len(), usize::from(told), "{bytes:?}");
        assert_eq!(w.closed, [(c, CloseReason::Alien)]);
        assert!(!w.is_open(c));
    }
}

// ------------------------------------------------------------------------------- hanging up

/// RPC-03, CAN-07: a peer that is gone: its plain calls are stopped at once, its waits leave no
/// trace, its tasks go on.
#[test]
fn peer_that_is_gone() {
    let mut w = world(Limits { running_max: 3, ..Limits::default() });
    let (c, other) = (w.open(), w.open());
    let (task, task_job) = w.task(c, "sleep");
    let plain = w.call(c, json!(1), "echo");
    w.call(other, json!(1), "echo");
    w.send(c, &call(2));
    w.send(c, &request(json!(3), "tasks/result", json!({"taskId": task})));
    w.lose(c);
    assert_eq!(w.steps(plain), [(StopStep::Flag, StopReason::Disconnected)]);
    assert_eq!(w.steps(task_job), []);
    assert_eq!((w.sizes().requests, w.sizes().jobs), (1, 3), "what was queued is forgotten");
    w.stopped(plain);
    assert_eq!(w.started.len(), 3);
    w.done(task_job, "slept");
    assert_eq!(w.status(other, &task).as_deref(), Some("completed"));
}

/// RPC-03: a peer that closed its side is still answered, then closed; one that has nothing to
/// wait for is closed at once.
#[test]
fn half_closed_peer_is_answered() {
    let mut w = World::new();
    let (c, idle, other) = (w.open(), w.open(), w.open());
    let (task, task_job) = w.task(other, "sleep");
    let first = w.call(c, json!(1), "echo");
    let second = w.call(c, json!(2), "echo");
    w.send(c, &request(json!(3), "tasks/result", json!({"taskId": task})));
    w.feed(Input::Finished(c, AfterInput::Answer));
    w.feed(Input::Finished(c, AfterInput::Answer));
    w.feed(Input::Finished(idle, AfterInput::Answer));
    assert_eq!(w.closed, [(idle, CloseReason::Finished)]);
    w.done(first, "one");
    w.fail(second, 1, "two");
    assert_eq!(w.closed.len(), 1);
    w.done(task_job, "three");
    assert_eq!(w.closed[1], (c, CloseReason::Finished));
    let ids: Vec<u64> = w.rest(c).iter().map(|m| m["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert!(!w.is_open(c));
}

/// A half-closed peer is answered for as long as answers keep coming: each one begins the grace
/// anew. The rest is stopped, and its requests get an error.
#[test]
fn half_closed_peer_does_not_linger() {
    let mut w = World::new();
    let c = w.open();
    let (task, task_job) = w.task(c, "sleep");
    let job = w.call(c, json!(1), "build");
    w.send(c, &request(json!(2), "tasks/result", json!({"taskId": task})));
    // It does not read either: its jobs are stopped before the connection is gone.
    w.stop_reading(c);
    w.send(c, &request(json!(3), "ping", json!({})));
    let soon = w.call(c, json!(4), "build");
    w.feed(Input::Finished(c, AfterInput::AnswerWithin(3 * SECOND)));
    w.advance(3 * SECOND - TICK);
    w.done(soon, "made it");
    w.advance(3 * SECOND);
    assert_eq!((w.steps(job).len(), w.closed.len()), (0, 0));
    w.advance(TICK);
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Disconnected)]);
    assert_eq!(w.closed, [(c, CloseReason::Unanswered)]);
    assert_eq!((w.sizes().requests, w.sizes().connections), (0, 1));
    w.read_again(c);
    w.lose(c);
    assert_eq!((w.next(c)["id"].clone(), w.next(c)["id"].clone()), (json!(3), json!(4)));
    w.silent(c);
    w.stopped(job);
    w.done(task_job, "on its own");
    assert_eq!((w.sizes().jobs, w.sizes().tasks, w.sizes().connections), (0, 1, 0));
}

/// A peer that may be gone without a sign is pinged while it waits, so that the transport can tell.
#[test]
fn half_closed_peer_is_probed() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "build");
    w.feed(Input::Finished(c, AfterInput::AnswerAndProbe(SECOND)));
    w.silent(c);
    for probe in ["probe-1", "probe-2"] {
        w.advance(SECOND);
        w.expect(c, json!({"jsonrpc": "2.0", "id": probe, "method": "ping"}));
    }
    w.done(job, "made it");
    assert_eq!(w.rest(c).len(), 1);
    assert_eq!(w.closed, [(c, CloseReason::Finished)]);
    assert_eq!(w.sizes().timers, 0, "nobody is probed after the last answer");
}

/// A half-closed peer whose wait ends because the task expires is let go as well.
#[test]
fn half_closed_peer_is_let_go_when_its_task_expires() {
    let tasks = TaskPolicy { on_ttl: ceased_core::limits::OnTtl::Stop, ..TaskPolicy::default() };
    let mut w = World::with(Limits::default(), tasks);
    let c = w.open();
    let (task, _) = w.task_with(c, "sleep", json!({"ttl": 1000}));
    w.send(c, &request(json!(2), "tasks/result", json!({"taskId": task})));
    w.feed(Input::Finished(c, AfterInput::Answer));
    w.advance(SECOND);
    assert_eq!(w.closed, [(c, CloseReason::Finished)]);
    w.expect_error(c, json!(2), -31002);
}

// ------------------------------------------------------------------------------- reload

/// A reload: new calls see the new tools and limits, running jobs are not touched, every
/// initialized peer is told that the list changed; a lower limit takes nothing back.
#[test]
fn reload_touches_nothing_that_runs() {
    let mut w = world(Limits { running_max: 4, inflight_max: 8, ..Limits::default() });
    let (c, fresh) = (w.open(), w.connect(Identity::User(1)));
    let jobs: Vec<_> = (1..=4).map(|id| w.call(c, json!(id), "slow")).collect();
    w.send(c, &call(5));
    let smaller = Limits { running_max: 1, inflight_max: 2, ..Limits::default() };
    let settings = ceased_core::settings::Settings {
        limits: smaller,
        catalog: ceased_core::tool::Catalog::new([tools::tool("new")]).expect("a good tool"),
        ..Default::default()
    };
    w.feed(Input::Configured(settings.into()));
    w.expect(c, json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    w.silent(fresh);
    assert_eq!((w.stops.len(), w.running.len()), (0, 4));
    assert_eq!(w.refusal(c, "tools/call", json!({"name": "echo"})).0, -32602);
    assert_eq!(w.refusal(c, "tools/call", json!({"name": "new"})).0, -31003);
    let list = w.result(c, "tools/list", json!({}));
    assert_eq!(list["tools"][0]["name"], "new");
    for job in &jobs[..3] {
        w.done(*job, "ok");
        assert_eq!(w.started.len(), 4, "only one runs at once now");
    }
    w.advance(tools::TIMEOUT);
    assert_eq!(
        w.steps(jobs[3]),
        [(StopStep::Flag, StopReason::TimedOut)],
        "by the tool it was called with"
    );
    w.stopped(jobs[3]);
    assert_eq!(w.started.len(), 5);
    let last = w.last_started();
    w.done(last, "the old echo");
    let ids: Vec<u64> = w.rest(c).iter().map(|m| m["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
}

// ------------------------------------------------------------------------------- time

/// A tick that comes for nothing does nothing; timers are owned and disarmed.
#[test]
fn ticks_are_harmless() {
    let mut w = World::new();
    let c = w.open();
    w.feed(Input::Tick);
    let (task, job) = w.task(c, "slow");
    let next = |w: &World| w.due_in().unwrap();
    assert_eq!(next(&w), tools::TIMEOUT);
    w.feed(Input::Tick);
    assert_eq!(w.status(c, &task).as_deref(), Some("working"));
    w.done(job, "ok");
    assert_eq!(next(&w), TaskPolicy::default().default_ttl);
    assert_eq!(w.sizes().timers, 1);
}

/// `ceased/status` tells one's own numbers and jobs, to their owner alone.
#[test]
fn status_tells_ones_own_jobs() {
    let mut w = world(Limits { running_max: 2, ..Limits::default() });
    let (c, foreign) = (w.open(), w.open_as(Identity::User(2), NEWEST));
    let stopping = w.call(c, json!(1), "build");
    let (task, _) = w.task(c, "sleep");
    w.send(c, &call(3));
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    w.advance(SECOND);
    let status = w.result(c, "ceased/status", json!({}));
    let counts = ["connections", "running", "queued", "cancelling"].map(|name| &status[name]);
    assert_eq!(counts, [1, 1, 1, 1]);
    let jobs = status["jobs"].as_array().unwrap();
    let states: Vec<&Value> = jobs.iter().map(|job| &job["state"]).collect();
    assert_eq!(states, ["cancelling", "running", "queued"]);
    assert_eq!(jobs[0]["job"], stopping.get());
    assert_eq!(jobs[0]["cancellingMs"], 1000);
    assert_eq!(jobs[1]["task"], json!(task));
    assert_eq!(jobs[2]["requestId"], 3);
    assert_eq!(status["tasks"]["working"], 1);
    assert_eq!(status["limits"]["workers"], 2);
    let theirs = w.result(foreign, "ceased/status", json!({}));
    assert_eq!((&theirs["jobs"], &theirs["running"]), (&json!([]), &json!(0)));
}

/// Connections are counted by the host; events of a closed one are ignored.
#[test]
fn events_for_a_connection_that_is_gone() {
    let mut w = World::new();
    let c = w.open();
    w.lose(c);
    let gone = ConnId::new(99);
    for conn in [c, gone] {
        w.feed(Input::Frame(conn, call(1).into_bytes()));
        w.feed(Input::TooLong(conn, String::new()));
        w.feed(Input::NotJsonRpc(conn, b"x".to_vec()));
        w.feed(Input::Finished(conn, AfterInput::Answer));
        w.feed(Input::Blocked(conn));
        w.feed(Input::Drained(conn));
        w.feed(Input::Closed(conn));
    }
    assert_eq!(w.sizes(), ceased_core::stats::Sizes::default());
    assert!(w.started.is_empty() && w.closed.is_empty());
}
