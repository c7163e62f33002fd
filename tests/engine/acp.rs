//! ACP, requests of the peer: cancelled and answered nevertheless, once; pass-through; refusals.

use std::time::Duration;

use ceased_core::acp::protocol::{AcpForm, AcpRole, HostStopReason};
use ceased_core::action::AuditEvent;
use ceased_core::event::{AfterInput, Outcome};
use ceased_core::ids::JobId;
use ceased_core::reason::StopReason;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::tool::StopStep;
use ceased_simulator::acp::{
    FORMS, cancel, cancelled, nothing_is_left, open_to_agent, open_to_client, prompt,
};
use ceased_simulator::tools::{ABANDON_AFTER, KILL_GRACE, TIMEOUT};
use ceased_simulator::trace::Input;
use ceased_simulator::world::{World, result_of};
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// ACP-01: every spelling in the field is understood, in both dialects; an unknown id of
/// the peer is ignored silently.
#[test]
fn every_spelling_cancels() {
    for form in FORMS {
        for (method, member) in [
            ("$/cancel_request", "requestId"),
            ("$/cancelRequest", "requestId"),
            ("$/cancelRequest", "id"),
        ] {
            for id in [json!(0), json!(i64::MIN), json!(""), json!("7"), Value::Null] {
                let mut w = World::new();
                let c = open_to_client(&mut w, form, true, true);
                let job = prompt(&mut w, c, id.clone());
                w.tell(c, method, json!({member: id, "_meta": {}, "message": "enough"}));
                assert_eq!(
                    w.steps(job),
                    [(StopStep::Flag, StopReason::Requested)],
                    "{method} {member} {id}"
                );
                let Some(AuditEvent::CallCancelled { method: noted, .. }) = w.notes.last() else {
                    panic!("CAN-12: {:?}", w.notes);
                };
                assert_eq!(*noted, method);
                w.silent(c);
                w.stopped(job);
                w.expect(c, cancelled(form, &id, None));
                nothing_is_left(&w);
            }
        }
    }
    let mut w = World::new();
    let c = open_to_client(&mut w, AcpForm::Published, false, false);
    let job = prompt(&mut w, c, json!(7));
    for other in [
        r#""params":{"requestId":"7"}"#,
        r#""params":{"requestId":8}"#,
        r#""params":{"requestId":null}"#,
        r#""params":{"requestId":7.5}"#,
        r#""params":{"id":7}"#,
        r#""params":{}"#,
        r#""params":[7]"#,
        r#""params":7"#,
        r#""other":1"#,
    ] {
        w.send(c, &format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request",{other}}}"#));
        w.send(c, r#"{"jsonrpc":"2.0","method":"$/other","params":{"requestId":7}}"#);
        w.send(
            c,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
        );
    }
    assert_eq!((w.steps(job), w.counters().cancelled), (vec![], 0));
    let counters = w.counters();
    assert_eq!((counters.cancels_ignored, counters.cancels_malformed), (3, 6));
    w.silent(c);
}

/// ACP-06: a result of the job while it is being stopped is the answer; every other end is
/// -32800. One answer, and the job is told once.
#[test]
fn cancelled_request_is_answered_once() {
    let partial = json!({"stopReason": "cancelled", "_meta": {"partial": true}});
    for form in FORMS {
        for (outcome, result) in [
            (result_of(&partial), Some(&partial)),
            (Outcome::Error(ErrorObject::new(-32000, "aborted")), None),
            (Outcome::Stopped, None),
        ] {
            let mut w = World::new();
            let c = open_to_client(&mut w, form, true, false);
            let job = prompt(&mut w, c, json!(1));
            cancel(&mut w, c, &json!(1));
            cancel(&mut w, c, &json!(1));
            assert_eq!(w.steps(job).len(), 1, "told once");
            assert_eq!(w.sizes().requests, 1, "it waits for what the job hands in");
            // RPC-02: its id is still taken.
            w.send(c, r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}"#);
            w.expect_error(c, json!(1), -32600);
            w.end(job, outcome);
            match result {
                Some(result) => w.expect(c, json!({"jsonrpc": "2.0", "id": 1, "result": result})),
                None => w.expect(c, cancelled(form, &json!(1), None)),
            }
            // ACP-08
            cancel(&mut w, c, &json!(1));
            w.silent(c);
            nothing_is_left(&w);
        }
    }
}

/// ACP-06: a job that does not stop in time does not keep its peer waiting; its stop policy goes on.
#[test]
fn after_the_grace_the_answer_does_not_wait_for_the_job() {
    let mut w = World::new();
    let c = open_to_client(&mut w, AcpForm::Published, false, false);
    let job = prompt(&mut w, c, json!(1));
    cancel(&mut w, c, &json!(1));
    w.advance(ABANDON_AFTER - Duration::from_millis(1));
    w.silent(c);
    w.advance(Duration::from_millis(1));
    w.expect(c, cancelled(AcpForm::Published, &json!(1), None));
    assert_eq!(w.steps(job).last(), Some(&(StopStep::Abandon, StopReason::Requested)));
    w.feed(Input::Done(job, result_of(&json!({"stopReason": "end_turn"}))));
    w.silent(c);
    nothing_is_left(&w);

    let c = open_to_agent(&mut w, AcpForm::Published, false, false);
    let job = w.request(c, json!(1), "terminal/wait_for_exit", json!({}));
    cancel(&mut w, c, &json!(1));
    w.advance(KILL_GRACE);
    w.expect(c, cancelled(AcpForm::Published, &json!(1), None));
    assert_eq!(w.sizes().jobs, 1, "its processes are not gone");
    // The id is free again, and its new owner is not touched.
    let again = w.request(c, json!(1), "fs/read_text_file", json!({}));
    w.advance(SECOND);
    assert_eq!(w.steps(job).last(), Some(&(StopStep::Kill, StopReason::Requested)));
    w.stopped(job);
    w.end(again, result_of(&json!({"content": ""})));
    w.expect(c, json!({"jsonrpc": "2.0", "id": 1, "result": {"content": ""}}));
    nothing_is_left(&w);
}

/// ACP-06: a request that is cancelled before its turn is answered at once and never starts.
#[test]
fn what_has_not_begun_never_begins() {
    let mut w = World::new();
    let c = open_to_client(&mut w, AcpForm::Published, false, false);
    let before = w.started.len();
    w.frame(c, r#"{"jsonrpc":"2.0","id":1,"method":"session/new"}"#);
    cancel(&mut w, c, &json!(1));
    w.expect(c, cancelled(AcpForm::Published, &json!(1), None));
    w.frame(c, r#"{"jsonrpc":"2.0","id":1,"method":"session/new"}"#);
    w.feed(Input::CancelJob(JobId::new(3), HostStopReason::Host));
    w.expect(c, cancelled(AcpForm::Published, &json!(1), Some("host")));
    w.feed(Input::Turn);
    assert_eq!((w.started.len(), w.counters().jobs_never_started), (before, 2));
    nothing_is_left(&w);
}

/// ACP-07: timeout, limit, the host, shutdown: the bytes of a cancel, and its origin.
#[test]
fn what_we_cancel_ourselves_is_answered_alike() {
    for form in FORMS {
        let open = |w: &mut World| {
            let c = open_to_client(w, form, false, false);
            (c, prompt(w, c, json!(1)))
        };
        let mut w = World::new();
        let (c, job) = open(&mut w);
        w.advance(TIMEOUT);
        assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::TimedOut)], "at once");
        // It is being cancelled; the peer's cancel changes nothing.
        cancel(&mut w, c, &json!(1));
        w.stopped(job);
        w.expect(c, cancelled(form, &json!(1), Some("timeout")));
        nothing_is_left(&w);
        for (cause, source) in [(HostStopReason::Limit, "limit"), (HostStopReason::Host, "host")] {
            let (c, job) = open(&mut w);
            w.feed(Input::CancelJob(job, cause));
            w.fail(job, -32000, "aborted");
            w.expect(c, cancelled(form, &json!(1), Some(source)));
        }
        let (c, job) = open(&mut w);
        w.frame(c, r#"{"jsonrpc":"2.0","id":2,"method":"session/new"}"#);
        w.feed(Input::Drain(w.now().at + SECOND));
        w.expect(c, cancelled(form, &json!(1), Some("shutdown")));
        w.expect(c, cancelled(form, &json!(2), Some("shutdown")));
        w.send(c, r#"{"jsonrpc":"2.0","id":3,"method":"session/new"}"#);
        w.expect(c, cancelled(form, &json!(3), Some("shutdown")));
        w.stopped(job);
        assert_eq!(w.exits, 1);
    }
    // A peer that is asked whether it still reads is asked nothing it would have to answer.
    let mut w = World::new();
    let c = open_to_client(&mut w, AcpForm::Published, false, false);
    let job = prompt(&mut w, c, json!(1));
    w.feed(Input::Finished(c, AfterInput::AnswerAndProbe(SECOND)));
    w.advance(SECOND);
    w.expect(c, json!({"jsonrpc": "2.0", "method": "_ceased/probe"}));
    w.end(job, result_of(&json!({"stopReason": "end_turn"})));
    assert_eq!(w.next(c)["id"], 1);
    // A peer that may only read is answered as well.
    let mut w = World::new();
    let c = open_to_client(&mut w, AcpForm::Published, false, false);
    let job = prompt(&mut w, c, json!(1));
    w.feed(Input::Finished(c, AfterInput::AnswerWithin(SECOND)));
    w.advance(SECOND);
    w.expect(c, cancelled(AcpForm::Published, &json!(1), Some("disconnect")));
    assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Disconnected)]);
}

/// ACP-08: an answer stands, also while it still waits to be read.
#[test]
fn cancel_that_comes_too_late_is_ignored() {
    let mut w = World::new();
    let c = open_to_client(&mut w, AcpForm::Published, false, false);
    let job = prompt(&mut w, c, json!(1));
    w.stop_reading(c);
    w.end(job, result_of(&json!({"stopReason": "end_turn"})));
    cancel(&mut w, c, &json!(1));
    w.read_again(c);
    w.expect(c, json!({"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}}));
    w.silent(c);
    assert_eq!((w.counters().cancelled, w.counters().cancels_ignored), (0, 1));
}

/// ACP-12: `session/cancel` is answered by the job, however long it takes; `$/cancel_request` of
/// the same prompt is answered with that or with -32800, once.
#[test]
fn session_cancel_stays_what_it_is() {
    let stop = json!({"stopReason": "cancelled"});
    for generic in [false, true] {
        for in_time in [false, true] {
            let mut w = World::new();
            let c = open_to_client(&mut w, AcpForm::Published, false, false);
            let job = prompt(&mut w, c, json!(1));
            w.tell(c, "session/cancel", json!({"sessionId": "s"}));
            let params = Some(r#"{"sessionId":"s"}"#.to_owned());
            assert_eq!(w.notified, [(c, "session/cancel".to_owned(), params)]);
            w.feed(Input::CancelJob(job, HostStopReason::Feature));
            assert_eq!(w.steps(job), [(StopStep::Flag, StopReason::Feature)]);
            w.notify(job, "session/update", json!({"sessionId": "s", "update": {}}));
            assert_eq!(w.next(c)["method"], "session/update", "before the answer");
            if generic {
                cancel(&mut w, c, &json!(1));
            }
            assert_eq!(w.counters().cancelled, u64::from(generic));
            if in_time {
                w.end(job, result_of(&stop));
                w.expect(c, json!({"jsonrpc": "2.0", "id": 1, "result": stop}));
            } else {
                w.advance(ABANDON_AFTER);
                let source = if generic { None } else { Some("feature") };
                w.expect(c, cancelled(AcpForm::Published, &json!(1), source));
            }
            w.silent(c);
            nothing_is_left(&w);
        }
    }
    // An error of the job is its own answer, and processes have until they are gone.
    let mut w = World::new();
    let c = open_to_agent(&mut w, AcpForm::Published, false, false);
    for (outcome, generic) in [(true, false), (false, true)] {
        let job = w.request(c, json!(1), "terminal/wait_for_exit", json!({}));
        w.feed(Input::CancelJob(job, HostStopReason::Feature));
        w.advance(KILL_GRACE + SECOND);
        w.silent(c);
        if generic {
            cancel(&mut w, c, &json!(1));
            w.advance(SECOND);
            w.expect(c, cancelled(AcpForm::Published, &json!(1), None));
        }
        w.fail(job, -32000, "its own words");
        if outcome {
            w.expect_error(c, json!(1), -32000);
        }
    }
    w.silent(c);
    nothing_is_left(&w);
}

/// RPC-01, RPC-02: an invalid request is refused by its kind; ids are exact, `null` is one.
#[test]
fn envelopes() {
    let mut w = World::new();
    let c = w.open_acp(AcpForm::Published, AcpRole::Agent);
    let refused = |w: &mut World, line: &str, id: Value, code: i64| {
        w.send(c, line);
        let said = w.expect_error(c, id, code);
        w.silent(c);
        said
    };
    for method in
        ["tools/list", "ping", "fs/read_text_file", "$/cancel_request", "$/x", "Session/new"]
    {
        let line = json!({"jsonrpc": "2.0", "id": "m", "method": method, "params": {}});
        refused(&mut w, &line.to_string(), json!("m"), -32601);
    }
    refused(&mut w, "[]", Value::Null, -32600);
    let two = r#"[{"jsonrpc":"2.0","id":1,"method":"session/new"},{"jsonrpc":"2.0","id":2,"method":"session/new"}]"#;
    refused(&mut w, two, Value::Null, -32600);
    refused(&mut w, r#"{"jsonrpc":"2.0","#, Value::Null, -32700);
    refused(&mut w, r#"{"jsonrpc":"2.0","id":1.5,"method":"session/new"}"#, Value::Null, -32600);
    refused(
        &mut w,
        r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":[1]}"#,
        json!(1),
        -32602,
    );
    assert_eq!(w.started.len(), 0, "none of it did anything");
    // Four ids that are not one.
    let jobs: Vec<(Value, JobId)> = [json!(1), json!("1"), json!("null"), Value::Null]
        .into_iter()
        .map(|id| (id.clone(), w.request(c, id, "session/new", json!({}))))
        .collect();
    let null = r#"{"jsonrpc":"2.0","id":null,"method":"session/new"}"#;
    assert!(refused(&mut w, null, Value::Null, -32600).contains("null"), "it is in flight");
    for (id, job) in jobs {
        w.end(job, result_of(&json!({"sessionId": "s"})));
        w.expect(c, json!({"jsonrpc": "2.0", "id": id, "result": {"sessionId": "s"}}));
    }
    // In MCP null is no id.
    let mcp = w.open();
    w.send(mcp, r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#);
    assert_eq!(w.next(mcp)["error"]["code"], -32600);
    nothing_is_left(&w);
}

/// Notifications of a peer go to the host if it wants them; those of a job go to its peer
/// until its request is answered.
#[test]
fn notifications_both_ways() {
    let mut w = World::new();
    let c = w.open_acp(AcpForm::Published, AcpRole::Client);
    w.tell(c, "session/update", json!({"a": [1, 2]}));
    w.send(c, r#"{"jsonrpc":"2.0","method":"session/update"}"#);
    w.tell(c, "session/cancel", json!({}));
    w.tell(c, "notifications/progress", json!({"progressToken": 1}));
    let params: Vec<Option<&str>> = w.notified.iter().map(|(.., p)| p.as_deref()).collect();
    assert_eq!(params, [Some(r#"{"a":[1,2]}"#), None], "the host wants session/update alone");
    let job = w.request(c, json!(1), "fs/read_text_file", json!({}));
    w.notify(job, "_x", json!({"n": 1}));
    w.expect(c, json!({"jsonrpc": "2.0", "method": "_x", "params": {"n": 1}}));
    cancel(&mut w, c, &json!(1));
    w.notify(job, "_x", json!({"n": 2}));
    w.expect(c, json!({"jsonrpc": "2.0", "method": "_x", "params": {"n": 2}}));
    w.advance(ABANDON_AFTER);
    w.expect(c, cancelled(AcpForm::Published, &json!(1), None));
    w.notify(job, "_x", json!({"n": 3}));
    w.silent(c);
    // Nothing of MCP is told here, and the other way round.
    let job = w.request(c, json!(2), "fs/read_text_file", json!({}));
    w.progress(job, 1.0);
    w.log(job, ceased_core::log_level::LogLevel::Alert, json!("x"));
    w.silent(c);
    let mcp = w.open();
    let job = w.call(mcp, json!(1), "build");
    w.notify(job, "_x", json!({}));
    w.silent(mcp);
    assert_eq!(w.counters().late_reports, 2);
}

/// A host may cancel a job of MCP as well; it is answered, since its requestor did not cancel it.
#[test]
fn host_cancels_jobs_of_mcp() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "build");
    w.feed(Input::CancelJob(job, HostStopReason::Limit));
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Limit)]);
    w.stopped(job);
    w.expect_error(c, json!(1), -32603);
    w.frame(c, r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}"#);
    w.feed(Input::CancelJob(JobId::new(2), HostStopReason::Host));
    w.expect_error(c, json!(2), -32603);
    let params = json!({"name": "build", "task": {}});
    let task = w.ask_in_passing(c, "tools/call", params)["result"]["task"]["taskId"].clone();
    w.feed(Input::CancelJob(JobId::new(3), HostStopReason::Host));
    assert_eq!(w.next(c)["params"]["status"], "failed");
    assert_eq!(w.status(c, task.as_str().unwrap()).as_deref(), Some("failed"));
    w.feed(Input::CancelJob(JobId::new(99), HostStopReason::Host));
    assert_eq!((w.sizes().jobs, w.counters().late_reports), (0, 1));
}
