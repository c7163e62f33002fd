//! Cancellation of requests: `notifications/cancelled` from the receiver's side, on every revision.

use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::identity::Identity;
use ceased_core::ids::RequestId;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::log_level::LogLevel;
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{World, raw_json, result_of};
use serde_json::{Value, json};

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn call(id: &str, tool: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#
    )
}

fn cancel(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    )
}

/// CAN-01, CAN-06, CAN-08: the notification cancels the one request it names, with and without a
/// reason, on every revision; a string and a number are two ids.
#[test]
fn cancel_stops_the_request_it_names_and_no_other() {
    for revision in REVISIONS {
        for (cancelled, other) in [("1", r#""1""#), (r#""1""#, "1"), ("0", r#""""#), ("-7", "7")] {
            for reason in ["", r#","reason":"enough""#] {
                let mut w = World::new();
                let c = w.open_as(Identity::User(1), revision);
                w.send(c, &call(cancelled, "echo"));
                let stopped = w.last_started();
                w.send(c, &call(other, "echo"));
                let goes_on = w.last_started();
                w.send(
                    c,
                    &format!(
                        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{cancelled}{reason}}}}}"#
                    ),
                );
                assert_eq!(w.steps(stopped), [(StopStep::Flag, StopReason::Requested)]);
                assert_eq!(w.steps(goes_on), []);
                w.done(stopped, "too late");
                w.silent(c);
                w.done(goes_on, "fine");
                let id: Value = serde_json::from_str(other).unwrap();
                assert_eq!(w.next(c)["id"], id);
                w.silent(c);
            }
        }
    }
}

/// CAN-01: ids are compared by their value: an escaped spelling names the same request.
#[test]
fn cancel_may_spell_the_id_another_way() {
    let mut w = World::new();
    let c = w.open();
    w.send(c, &call(r#""\u0041/b""#, "echo"));
    let job = w.last_started();
    w.send(c, &cancel(r#""A\/b""#));
    assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Requested)]);
}

/// CAN-02, CAN-09: a cancel reaches requests of its own connection alone.
#[test]
fn requests_of_another_connection_are_not_cancelled() {
    let mut w = World::new();
    let (mine, theirs) = (w.open(), w.open());
    let job = w.call(mine, json!(7), "echo");
    w.send(theirs, &cancel("7"));
    assert_eq!(w.steps(job), []);
    assert_eq!(w.counters().cancels_ignored, 1);
    w.done(job, "ok");
    assert_eq!(w.next(mine)["id"], 7);
}

/// CAN-03, CAN-09, CAN-11: a cancel after the answer changes nothing.
#[test]
fn cancel_after_the_answer_is_ignored() {
    for revision in REVISIONS {
        let mut w = World::new();
        let c = w.open_as(Identity::User(1), revision);
        let job = w.call(c, json!(7), "echo");
        w.done(job, "ok");
        assert_eq!(w.next(c)["id"], 7);
        let before = w.sizes();
        w.send(c, &cancel("7"));
        w.silent(c);
        assert_eq!((w.sizes(), w.stops.len()), (before, 0));
        assert_eq!(w.counters().cancels_ignored, 1);
    }
}

/// CAN-04: initialize is answered whatever cancels it, and the session works.
#[test]
fn initialize_is_never_cancelled() {
    let mut w = World::new();
    let c = w.connect(Identity::User(1));
    // Before it, in the same read as it, and after it.
    w.frame(c, &cancel("0"));
    w.frame(
        c,
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"p","version":"1"}}}"#,
    );
    w.send(c, &cancel("0"));
    assert_eq!(w.next(c)["result"]["protocolVersion"], "2025-11-25");
    w.send(c, &cancel("0"));
    w.silent(c);
    assert_eq!(w.counters().cancels_ignored, 3);
    assert_eq!(w.result(c, "ping", json!({})), json!({}));
}

/// CAN-05: the request that created a task is over; a cancel naming it leaves the task running.
#[test]
fn cancel_of_the_creating_request_leaves_the_task_alone() {
    let mut w = World::new();
    let c = w.open();
    // Together with its request, so that the job has not even started.
    w.frame(
        c,
        r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"sleep","task":{}}}"#,
    );
    w.send(c, &cancel("5"));
    let task = w.next(c)["result"]["task"]["taskId"].as_str().unwrap().to_owned();
    let job = w.last_started();
    w.send(c, &cancel("5"));
    assert_eq!(w.counters().cancels_ignored, 2);
    assert_eq!(w.steps(job), []);
    assert_eq!(w.status(c, &task).as_deref(), Some("working"));
    w.done(job, "slept");
    assert_eq!(w.status(c, &task).as_deref(), Some("completed"));
}

/// CAN-05: on a revision without tasks the same call is a plain request, and is cancelled.
#[test]
fn without_tasks_a_call_with_a_task_member_is_cancelled_like_any_other() {
    for revision in &REVISIONS[..3] {
        let mut w = World::new();
        let c = w.open_as(Identity::User(1), revision);
        w.send(
            c,
            r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"sleep","task":{}}}"#,
        );
        let job = w.last_started();
        w.send(c, &cancel("5"));
        assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Requested)]);
        w.stopped(job);
        w.silent(c);
    }
}

/// CAN-06: the flag is raised, or SIGTERM sent, before the next event is handled.
#[test]
fn work_is_told_to_stop_at_once() {
    for (tool, step) in [("echo", StopStep::Flag), ("build", StopStep::Terminate)] {
        let mut w = World::new();
        let c = w.open();
        let job = w.call(c, json!(1), tool);
        w.frame(c, &cancel("1"));
        assert_eq!(w.steps(job), [(step, StopReason::Requested)]);
    }
}

/// CAN-07: nothing is left of many cancelled calls: queued, running, waiting.
#[test]
fn cancelled_request_frees_what_it_held() {
    let mut w = World::with(Limits { running_max: 10, ..Limits::default() }, TaskPolicy::default());
    let c = w.open();
    let idle = w.sizes();
    for id in 0..100 {
        w.send(c, &call(&id.to_string(), if id % 2 == 0 { "build" } else { "slow" }));
    }
    assert_eq!(w.running.len(), 10);
    for id in 0..100 {
        w.send(c, &cancel(&id.to_string()));
    }
    assert_eq!(w.sizes().requests, 0);
    let running: Vec<_> = w.running.keys().copied().collect();
    assert_eq!(running.len(), 10, "what was queued never starts");
    for job in running {
        w.stopped(job);
    }
    assert_eq!(w.sizes(), idle);
    assert_eq!(w.due_in(), None);
    w.silent(c);
}

/// CAN-08, CAN-11: nothing is ever sent for a cancelled request, however its job ends, and
/// whatever it still says.
#[test]
fn cancelled_request_is_never_answered() {
    for ending in 0..4 {
        let mut w = World::new();
        let c = w.open();
        w.send(
            c,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","_meta":{"progressToken":"t"}}}"#,
        );
        let job = w.last_started();
        w.progress(job, 1.0);
        assert_eq!(w.next(c)["method"], "notifications/progress");
        w.send(c, &cancel("7"));
        w.progress(job, 2.0);
        w.log(job, LogLevel::Emergency, json!("help"));
        match ending {
            0 => w.done(job, "finished anyway"),
            1 => w.fail(job, -32000, "broke anyway"),
            2 => w.stopped(job),
            _ => {
                w.advance(tools::ABANDON_AFTER);
                w.feed(Input::Done(job, result_of(&json!({"content": []}))));
            }
        }
        w.silent(c);
        assert_eq!(w.sizes().requests, 0);
        assert_eq!(w.sizes().jobs, 0);
    }
}

/// CAN-09: unknown, finished, and not cancellable: no reply, no state change, no disconnect, a
/// counter and a note; then a ping is answered.
#[test]
fn cancel_that_names_nothing_changes_nothing() {
    let mut w = World::new();
    let c = w.open();
    let answered = w.call(c, json!(1), "echo");
    w.done(answered, "ok");
    w.rest(c);
    let (task, _) = w.task(c, "sleep");
    let before = w.sizes();
    for id in ["99", "1", r#""ask-1""#, r#""ask-2""#, &format!("\"{task}\"")] {
        w.send(c, &cancel(id));
    }
    w.silent(c);
    assert_eq!(w.sizes(), before);
    assert_eq!((w.counters().cancels_ignored, w.counters().cancelled), (5, 0));
    w.notes.retain(|note| !matches!(note, AuditEvent::TaskCreated { .. }));
    assert_eq!(w.notes, vec![AuditEvent::CancelIgnored { conn: c }; 5]);
    assert_eq!(w.result(c, "ping", json!({})), json!({}));
}

/// CAN-10: we ask peers nothing, so whatever they answer is late or made up: dropped and counted.
#[test]
fn unawaited_responses_are_dropped() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "echo");
    let before = w.sizes();
    for response in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"1","result":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}"#,
    ] {
        w.send(c, response);
    }
    w.silent(c);
    assert_eq!(w.sizes(), before);
    assert_eq!(w.counters().unasked_responses, 5);
    w.done(job, "ok");
    assert_eq!(w.next(c)["id"], 1, "the peer's own request with that id is not touched");
}

/// CAN-11: cancelled in the same read as it was asked: the work never starts.
#[test]
fn cancel_beats_the_start_of_the_same_read() {
    let mut w = World::new();
    let c = w.open();
    w.frame(c, &call("7", "echo"));
    w.send(c, &cancel("7"));
    assert!(w.started.is_empty());
    assert_eq!(w.counters().jobs_never_started, 1);
    assert_eq!((w.sizes().jobs, w.sizes().requests), (0, 0));
    w.silent(c);
}

/// CAN-11: cancelled after the answer was queued and before it was written: the answer goes out.
#[test]
fn cancel_does_not_take_back_an_answer() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(7), "echo");
    w.stop_reading(c);
    w.done(job, "ok");
    w.send(c, &cancel("7"));
    w.read_again(c);
    assert_eq!(w.next(c)["id"], 7);
    w.silent(c);
}

/// CAN-11: an id is free again as soon as its request was cancelled; the old work, which ends
/// later, can never answer the new request.
#[test]
fn reused_id_never_gets_the_answer_of_the_cancelled_request() {
    let mut w = World::new();
    let c = w.open();
    let old = w.call(c, json!(7), "echo");
    w.send(c, &cancel("7"));
    let new = w.call(c, json!(7), "echo");
    w.done(old, "old");
    w.silent(c);
    w.done(new, "new");
    w.expect(
        c,
        json!({"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "new"}]}}),
    );
    w.silent(c);
}

/// CAN-12: the note names requestor, request and reason; a reason forges no log line and is capped.
#[test]
fn reasons_are_noted_clean_and_capped() {
    let mut w =
        World::with(Limits { text_bytes_max: 20, ..Limits::default() }, TaskPolicy::default());
    let c = w.open_as(Identity::User(42), "2025-11-25");
    let reasons = [
        (r#""why not""#, "why not"),
        (r#""a\nERROR forged\r\u0000\u001b[31m""#, "a ERROR forged   [31m"),
        (r#""\u0085x\u007f""#, " x "),
    ];
    for (id, (reason, noted)) in reasons.into_iter().enumerate() {
        let job = w.call(c, json!(id), "echo");
        w.notes.clear();
        w.send(
            c,
            &format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":{reason}}}}}"#
            ),
        );
        let [
            AuditEvent::CallCancelled { conn, identity, request, tool, job: named, method, reason },
        ] = &w.notes[..]
        else {
            panic!("one note, not {:?}", w.notes);
        };
        assert_eq!((conn, identity), (&c, &Identity::User(42)));
        assert_eq!(request, &RequestId::Number(i64::try_from(id).unwrap()));
        assert_eq!((&**tool, named, *method), ("echo", &Some(job), "notifications/cancelled"));
        let reason = reason.as_deref().unwrap();
        assert!(reason.len() <= 20, "{reason:?} is longer than it may be");
        assert!(!reason.contains(char::is_control));
        assert!(noted.starts_with(reason.trim_end_matches('…')), "{reason:?} of {noted:?}");
        w.stopped(job);
    }
    let job = w.call(c, json!("long"), "echo");
    w.send(
        c,
        &format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"long","reason":"{}"}}}}"#,
            "ä€🦀".repeat(1000)
        ),
    );
    let Some(AuditEvent::CallCancelled { reason: Some(reason), .. }) = w.notes.last() else {
        panic!("no note of {job}");
    };
    assert!(reason.len() <= 20 && reason.ends_with('…'), "{reason}");
}

/// CAN-12: a cancelled task is noted with its reason as well.
#[test]
fn reason_of_a_task_cancel_is_noted() {
    let mut w = World::new();
    let c = w.open();
    let (task, job) = w.task(c, "sleep");
    let params = json!({"taskId": task, "_meta": {"ceased/reason": "no\nneed"}});
    let cancelled = w.result(c, "tasks/cancel", params);
    assert!(cancelled["statusMessage"].as_str().unwrap().contains("no need"), "{cancelled}");
    let cancelled = w.notes.iter().find(|note| matches!(note, AuditEvent::TaskCancelled { .. }));
    let Some(AuditEvent::TaskCancelled {
        conn,
        identity,
        task: noted,
        job: of,
        tool,
        method,
        reason,
    }) = cancelled
    else {
        panic!("no note");
    };
    assert_eq!((conn, identity, of), (&c, &Identity::User(1000), &Some(job)));
    assert_eq!((&**tool, *method), ("sleep", "tasks/cancel"));
    assert_eq!(noted.to_string(), task);
    assert_eq!(reason.as_deref(), Some("no need"));
}

/// CAN-14: every malformed form is ignored: nothing sent back, nothing stopped, the connection
/// usable.
#[test]
fn malformed_cancels_are_ignored() {
    let forms = [
        r#","params":{}"#,
        r#","params":{"requestId":null}"#,
        r#","params":{"requestId":true}"#,
        r#","params":{"requestId":1.5}"#,
        r#","params":{"requestId":1e-1}"#,
        r#","params":{"requestId":1e99999999999999999999}"#,
        r#","params":{"requestId":{}}"#,
        r#","params":{"requestId":{"id":1}}"#,
        r#","params":{"requestId":[1]}"#,
        r#","params":{"requestId":1,"requestId":2}"#,
        r#","params":{"requestId":2,"requestId":1}"#,
        r#","params":{"requestId":1,"requestId":true}"#,
        r#","params":{"requestid":1}"#,
        r#","params":{"id":1}"#,
        r#","params":[]"#,
        r#","params":[1]"#,
        r#","params":[{"requestId":1}]"#,
        "",
        r#","params":null"#,
        r#","params":1"#,
        r#","params":"1""#,
        r#","params":true"#,
    ];
    for revision in REVISIONS {
        let mut w = World::new();
        let c = w.open_as(Identity::User(1), revision);
        let job = w.call(c, json!(1), "echo");
        let before = w.sizes();
        for form in forms {
            let line = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled"{form}}}"#);
            w.send(c, &line);
            let told = w.rest(c);
            assert!(told.is_empty(), "{revision}: {line} was answered with {told:?}");
            assert_eq!((w.sizes(), w.stops.len()), (before, 0), "{line}");
        }
        assert_eq!(w.counters().cancels_malformed, forms.len() as u64);
        assert_eq!(w.result(c, "ping", json!({})), json!({}));
        w.done(job, "ok");
        assert_eq!(w.next(c)["id"], 1);
    }
}

/// CAN-14: a cancel with an id is a request for a method there is not; it cancels nothing.
#[test]
fn cancel_that_wants_an_answer_is_no_cancel() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "echo");
    w.send(
        c,
        r#"{"jsonrpc":"2.0","id":2,"method":"notifications/cancelled","params":{"requestId":1}}"#,
    );
    w.expect_error(c, json!(2), -32601);
    assert_eq!(w.steps(job), []);
}

/// CAN-15: a blocked `tasks/result` is cancelled like any request, and nothing but the wait ends.
#[test]
fn cancelling_a_wait_leaves_the_task_alone() {
    let mut w = World::new();
    let (c, other) = (w.open(), w.open());
    let (task, job) = w.task(c, "sleep");
    let wait = |id: u32| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tasks/result", "params": {"taskId": task}})
            .to_string()
    };
    w.send(c, &wait(1));
    w.send(c, &wait(2));
    w.send(other, &wait(1));
    w.silent(c);
    w.send(c, &cancel("1"));
    w.silent(c);
    assert_eq!(w.steps(job), []);
    assert_eq!(w.status(c, &task).as_deref(), Some("working"));
    let Some(AuditEvent::CallCancelled { job: None, .. }) = w.notes.last() else {
        panic!("no note")
    };
    w.done(job, "slept");
    let ids: Vec<Value> = w.rest(c).iter().filter_map(|m| m.get("id").cloned()).collect();
    assert_eq!(ids, [json!(2)], "the other waiters are answered, the cancelled one never");
    assert_eq!(w.next(other)["id"], 1);
    let again = w.result(c, "tasks/result", json!({"taskId": task}));
    assert_eq!(again["content"][0]["text"], "slept");
}

/// CAN-06, CAN-11: cancelling twice, and cancelling a job that is being stopped for another reason,
/// repeats no step of the stop sequence and leaves no request open.
#[test]
fn what_stops_already_is_not_stopped_again() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "build");
    w.advance(tools::TIMEOUT);
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::TimedOut)]);
    w.send(c, &cancel("1"));
    w.send(c, &cancel("1"));
    assert_eq!(w.steps(job).len(), 1);
    w.advance(tools::KILL_GRACE - Duration::from_nanos(1));
    assert_eq!(w.steps(job).len(), 1, "the stop policy goes on as it was");
    w.advance(Duration::from_nanos(1));
    assert_eq!(w.steps(job)[1].0, StopStep::Kill);
    w.stopped(job);
    w.silent(c);
    let data = raw_json("1");
    w.feed(Input::Log(job, LogLevel::Error, data));
    w.silent(c);
}
