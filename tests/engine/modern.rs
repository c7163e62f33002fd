//! MCP 2026-07-28: requests that speak for themselves, beside sessions on the same connection.

use std::time::Duration;

use ceased_core::acp::protocol::HostStopReason;
use ceased_core::event::AfterInput;
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::{Answer, Caller, OutgoingRequest, Refusal};
use ceased_core::reason::CloseReason;
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::modern::{self, TASKS, cancel, plain, request};
use ceased_simulator::trace::Input;
use ceased_simulator::world::World;
use serde_json::{Value, json};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER: &str = "io.modelcontextprotocol/serverInfo";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

fn connect(world: &mut World) -> ConnId {
    world.connect(Identity::User(1000))
}

/// Calls a tool under this id; its job.
fn call(world: &mut World, conn: ConnId, id: Value, tool: &str) -> ceased_core::ids::JobId {
    world.send(conn, &request(id, "tools/call", plain(json!({"name": tool}))));
    world.last_started()
}

/// MOD-01: every way a claim can be whole or not.
#[test]
fn every_request_says_what_it_speaks() {
    let supported = json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    for session in [false, true] {
        let mut w = World::new();
        let c = if session { w.open() } else { connect(&mut w) };
        assert!(w.result(c, "server/discover", plain(json!({}))).is_object());
        for (meta, code) in [
            (json!({VERSION: "2026-07-28"}), -32602),
            (json!({CAPABILITIES: {}}), -32602),
            (json!({VERSION: 20_260_728, CAPABILITIES: {}}), -32602),
            (json!({VERSION: null, CAPABILITIES: {}}), -32602),
            (json!({VERSION: "2026-07-28", CAPABILITIES: []}), -32602),
            (json!({VERSION: "2026-07-28", CAPABILITIES: null}), -32602),
            (json!({VERSION: "2026-07-28", CAPABILITIES: {"extensions": []}}), -32602),
            (json!({VERSION: "2026-07-28", CAPABILITIES: {}, LOG_LEVEL: "loud"}), -32602),
            (json!({VERSION: "2099-01-01", CAPABILITIES: {}}), -32022),
            // A revision we speak, but not like this.
            (json!({VERSION: "2025-11-25", CAPABILITIES: {}}), -32022),
        ] {
            let answer = w.ask(c, "server/discover", json!({"_meta": meta}));
            assert_eq!(answer["error"]["code"], code, "{meta}: {answer}");
            if code == -32022 {
                let data = json!({"supported": supported, "requested": meta[VERSION]});
                assert_eq!(answer["error"]["data"], data);
            }
        }
        assert_eq!(w.sizes().requests, 0);
    }
}

/// MOD-01: the same JSON is the same claim, however its names are written.
#[test]
fn claim_with_an_escape() {
    let mut w = World::new();
    w.strict = false;
    let c = connect(&mut w);
    let text = request(json!(1), "server/discover", plain(json!({})));
    w.send(c, &text.replace("\"io.model", "\"\\u0069o.model"));
    assert!(w.next(c)["result"].is_object());
}

/// MOD-01: a request without a revision belongs to a session, and without one it is refused; the
/// methods outside of sessions get an error that names the missing member.
#[test]
fn without_a_claim_there_must_be_a_session() {
    let mut w = World::new();
    let c = connect(&mut w);
    w.result(c, "server/discover", plain(json!({})));
    assert_eq!(w.refusal(c, "tools/list", json!({})).0, -32600);
    for method in ["server/discover", "subscriptions/listen", "tasks/update"] {
        let (code, message) = w.refusal(c, method, json!({}));
        assert_eq!(code, -32602);
        assert!(message.contains(VERSION), "{message}");
    }
    // The same member elsewhere in the request has no meaning.
    let arguments = json!({"_meta": {VERSION: "2026-07-28", CAPABILITIES: {}}});
    let params = json!({"name": "echo", "arguments": arguments});
    assert_eq!(w.refusal(c, "tools/call", params).0, -32600);
    assert_eq!(w.result(c, "ping", json!({})), json!({}));
    let s = w.open();
    assert_eq!(w.refusal(s, "server/discover", json!({})).0, -32601);
}

/// MOD-01: sessions and requests of their own on one connection, each answered in its own form.
#[test]
fn both_are_served_on_one_connection() {
    let mut w = World::new();
    let c = w.open();
    let legacy = w.call(c, json!("legacy"), "echo");
    let modern = call(&mut w, c, json!("modern"), "echo");
    w.done(modern, "new");
    w.done(legacy, "old");
    let answer = w.next(c);
    assert_eq!(
        (&answer["id"], &answer["result"]["resultType"]),
        (&json!("modern"), &json!("complete"))
    );
    assert_eq!(answer["result"]["_meta"][SERVER], json!({"name": "world", "version": "1.2.3"}));
    let content = json!([{"type": "text", "text": "old"}]);
    w.expect(c, json!({"jsonrpc": "2.0", "id": "legacy", "result": {"content": content}}));
    // An initialize begins a session also where there was none so far.
    let d = connect(&mut w);
    w.result(d, "tools/list", plain(json!({})));
    let client = json!({"name": "p", "version": "1"});
    let params = json!({"protocolVersion": "2026-07-28", "capabilities": {}, "clientInfo": client});
    let session = w.result(d, "initialize", params);
    assert_eq!(session["protocolVersion"], "2025-11-25", "no session speaks the newest");
    assert_eq!(w.result(d, "ping", json!({})), json!({}));
    assert_eq!(w.refusal(d, "ping", plain(json!({}))).0, -32601);
}

/// MOD-01: the revision has no batches, also not in a session that has.
#[test]
fn claim_is_no_part_of_a_batch() {
    let mut w = World::new();
    let c = w.open_as(Identity::User(1), "2025-03-26");
    let discover = request(json!(1), "server/discover", plain(json!({})));
    w.strict = false;
    w.send(c, &format!(r#"[{discover},{{"jsonrpc":"2.0","id":2,"method":"ping"}}]"#));
    let answers = w.next(c);
    assert_eq!(answers[0]["error"]["code"], -32600);
    assert_eq!(answers[1]["result"], json!({}));
}

/// RPC-01: an unreadable frame on a connection without a session is refused in its form.
#[test]
fn garbage_is_refused_without_an_id() {
    let mut w = World::new();
    let c = connect(&mut w);
    w.result(c, "server/discover", plain(json!({})));
    w.send(c, "{");
    let error = w.next(c);
    assert_eq!((error.get("id"), &error["error"]["code"]), (None, &json!(-32700)));
}

/// MOD-02: `server/discover`, exactly.
#[test]
fn discovery() {
    let mut w = World::new();
    let c = w.connect(Identity::Anonymous);
    let result = w.result(c, "server/discover", plain(json!({})));
    let expected = json!({
        "resultType": "complete",
        "_meta": {SERVER: {"name": "world", "version": "1.2.3"}},
        "supportedVersions":
            ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
        "capabilities": {"logging": {}, "tools": {"listChanged": true}, "extensions": {TASKS: {}}},
        "ttlMs": 60000,
        "cacheScope": "public",
    });
    assert_eq!(result, expected);
}

/// MOD-02: a tool has no `execution` here; whether it is a task is not its client's business.
#[test]
fn tools_are_listed() {
    let mut w = World::new();
    let c = connect(&mut w);
    let result = w.result(c, "tools/list", plain(json!({})));
    let tools = result["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 6);
    assert!(tools.iter().all(|tool| tool.get("execution").is_none() && tool["title"].is_string()));
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(60000), &json!("public")));
    assert_eq!(w.refusal(c, "tools/list", plain(json!({"cursor": "x"}))).0, -32602);
    let status = w.result(c, "ceased/status", plain(json!({})));
    assert_eq!((&status["resultType"], &status["running"]), (&json!("complete"), &json!(0)));
}

/// MOD-02: the result type that a tool names is replaced; the rest of its result is kept.
#[test]
fn tool_cannot_choose_the_type() {
    let mut w = World::new();
    let c = connect(&mut w);
    let job = call(&mut w, c, json!(1), "echo");
    let said = json!({
        "resultType": "task", "content": [], "_meta": {"x/y": 1, SERVER: "me"},
        "structuredContent": {"deep": [1, 2]},
    });
    w.end(job, ceased_simulator::world::result_of(&said));
    let result = json!({
        "resultType": "complete", "content": [], "structuredContent": {"deep": [1, 2]},
        "_meta": {"x/y": 1, SERVER: {"name": "world", "version": "1.2.3"}},
    });
    w.expect(c, json!({"jsonrpc": "2.0", "id": 1, "result": result}));
    let job = call(&mut w, c, json!(1), "echo");
    w.fail(job, 77, "boom");
    let error = json!({"code": 77, "message": "boom"});
    w.expect(c, json!({"jsonrpc": "2.0", "id": 1, "error": error}));
}

/// MOD-07: removed methods, and unknown ones.
#[test]
fn removed_methods() {
    let mut w = World::new();
    for c in [connect(&mut w), w.open()] {
        for method in [
            "ping",
            "initialize",
            "logging/setLevel",
            "tasks/result",
            "tasks/list",
            "resources/subscribe",
            "nonsense",
        ] {
            let (code, message) = w.refusal(c, method, modern::tasks(json!({"taskId": "x"})));
            assert_eq!((code, message.contains(method)), (-32601, true), "{message}");
        }
    }
}

/// CAN-06, CAN-08, MOD-03: a client cancels with the same notification; the work stops, and
/// nothing is said.
#[test]
fn cancel_stops_and_is_silent() {
    let mut w = World::new();
    let c = connect(&mut w);
    let job = call(&mut w, c, json!(7), "build");
    w.send(c, &cancel(json!("7")));
    assert!(w.stops.is_empty(), "a string is another id");
    w.send(c, &cancel(json!(7)));
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Requested)]);
    w.done(job, "too late");
    w.silent(c);
    assert_eq!((w.counters().cancelled, w.sizes().jobs), (1, 0));
}

/// MOD-03: a server asks nothing and so cancels nothing; both are typed errors to the host.
#[test]
fn server_makes_no_requests() {
    let mut w = World::new();
    let c = connect(&mut w);
    let everything = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    w.result(c, "server/discover", modern::able(&everything, json!({})));
    let ask = OutgoingRequest {
        key: None,
        method: "roots/list".into(),
        params: None,
        answer_timeout: None,
        task: None,
    };
    w.feed(Input::Call(c, AskId::new(1), ask));
    let caller = Caller::Host(AskId::new(1));
    let [(told, Answer::Refused(Refusal::NotInitialized))] = &w.told[..] else {
        panic!("{:?}", w.told);
    };
    assert_eq!(*told, caller);
    w.feed(Input::CancelCall(caller, None));
    assert_eq!(w.refused_cancels, [(caller, Refusal::NotInProgress)]);
    w.silent(c);
}

/// MOD-03: whatever ends on the server's side, its word is never `notifications/cancelled`: a
/// question that is withdrawn or whose call is cancelled, a call the host cancels, a subscription.
#[test]
fn server_sends_no_cancels() {
    let mut w = World::new();
    let c = connect(&mut w);
    let able = |params| modern::able(&json!({"elicitation": {}, "roots": {}}), params);
    let asks = |w: &mut World, id: u32, number: u64| {
        w.send(c, &request(json!(id), "tools/call", able(json!({"name": "build"}))));
        let (job, ask) = (w.last_started(), AskId::new(number));
        let roots = OutgoingRequest {
            key: None,
            method: "roots/list".into(),
            params: None,
            answer_timeout: None,
            task: None,
        };
        w.feed(Input::Asked(job, ask, None, roots));
        (job, Caller::Job { job, ask })
    };
    let (_, withdrawn) = asks(&mut w, 1, 1);
    w.feed(Input::CancelCall(withdrawn, None));
    w.feed(Input::CancelCall(withdrawn, None));
    assert!(matches!(w.told[..], [(caller, Answer::Cancelled)] if caller == withdrawn));
    assert_eq!(w.refused_cancels, [(withdrawn, Refusal::NotInProgress)], "it is over");
    let (job, unsent) = asks(&mut w, 2, 1);
    w.send(c, &cancel(json!(2)));
    assert!(matches!(w.told[1..], [(caller, Answer::Cancelled)] if caller == unsent));
    w.stopped(job);
    w.silent(c);
    // Parked, and then given up by the host.
    let (job, parked) = asks(&mut w, 3, 1);
    w.feed(Input::Turn);
    assert_eq!(w.next(c)["result"]["resultType"], "input_required");
    w.feed(Input::CancelCall(parked, None));
    w.feed(Input::CancelJob(job, HostStopReason::Host));
    w.stopped(job);
    w.silent(c);
    let wanted = able(json!({"notifications": {"toolsListChanged": true}}));
    w.send(c, &request(json!(4), "subscriptions/listen", wanted));
    assert_eq!(w.next(c)["method"], "notifications/subscriptions/acknowledged");
    w.feed(Input::Drain(w.now().at + Duration::from_secs(5)));
    let rest = w.rest(c);
    let answers = |message: &Value| message["id"].is_number() && message.get("result").is_some();
    assert!(rest.iter().any(answers), "the subscription has its result: {rest:?}");
    assert!(rest.iter().all(|message| message["method"].is_null()), "{rest:?}");
}

/// MOD-04: unsent frames of a cancelled request are removed: progress, log
/// messages, and the answer itself; frames of others stay.
#[test]
fn nothing_follows_a_cancel() {
    let mut w = World::new();
    let c = connect(&mut w);
    let params = |id: u64| {
        let meta = json!({"progressToken": id, LOG_LEVEL: "debug"});
        request(json!(id), "tools/call", plain(json!({"name": "echo", "_meta": meta})))
    };
    w.send(c, &params(1));
    let one = w.last_started();
    w.send(c, &params(2));
    let two = w.last_started();
    w.block(c);
    for step in [1.0, 2.0] {
        w.progress(one, step);
        w.progress(two, step);
        w.log(one, LogLevel::Info, json!("one"));
    }
    let before = w.waiting(c);
    w.send(c, &cancel(json!(1)));
    assert!(w.waiting(c) < before);
    w.progress(one, 3.0);
    w.log(one, LogLevel::Emergency, json!("still here"));
    w.read_again(c);
    let told = w.rest(c);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|message| message["params"]["progressToken"] == 2), "{told:?}");
    // An answer that was written and not sent: its id is free again, so it must not come.
    w.block(c);
    w.done(two, "two");
    w.send(c, &cancel(json!(2)));
    assert_eq!(w.waiting(c), 0);
    w.advance(Duration::from_secs(60));
    assert!(w.closed.is_empty(), "there was nothing to take, so nothing was left untaken");
    w.read_again(c);
    w.silent(c);
    w.stopped(one);
    assert_eq!(w.sizes().timers, 0);
}

/// MOD-04 is a rule of this revision: queued frames of a session's request are sent (CAN-08 speaks
/// of the answer alone).
#[test]
fn session_takes_nothing_back() {
    let mut w = World::new();
    let c = w.open();
    let meta = json!({"progressToken": 1});
    w.send(c, &request(json!(1), "tools/call", json!({"name": "echo", "_meta": meta})));
    let job = w.last_started();
    w.block(c);
    w.progress(job, 1.0);
    w.send(c, &cancel(json!(1)));
    w.read_again(c);
    assert_eq!(w.next(c)["method"], "notifications/progress");
    w.silent(c);
}

/// MOD-05: an id is free once its request was answered or cancelled, a thousand times in a row;
/// while it is in flight it is not.
#[test]
fn ids_are_used_again() {
    let mut w = World::new();
    let c = connect(&mut w);
    for round in 0..1000 {
        let job = call(&mut w, c, json!("same"), "echo");
        if round % 2 == 0 {
            w.send(c, &cancel(json!("same")));
            w.stopped(job);
        } else {
            w.done(job, &round.to_string());
            assert_eq!(w.next(c)["result"]["content"][0]["text"], round.to_string());
        }
        w.silent(c);
    }
    let job = call(&mut w, c, json!("same"), "echo");
    w.send(c, &request(json!("same"), "tools/list", plain(json!({}))));
    w.expect_error(c, json!("same"), -32600);
    w.done(job, "once");
    assert_eq!(w.next(c)["result"]["content"][0]["text"], "once");
}

/// MOD-04, TSK-33: a log level is the request's own: none, nothing; one session's means nothing to
/// another's request on the same connection.
#[test]
fn log_messages_are_asked_for_by_each_request() {
    let mut w = World::new();
    let c = w.open();
    w.result(c, "logging/setLevel", json!({"level": "debug"}));
    let silent = call(&mut w, c, json!(1), "echo");
    let meta = json!({LOG_LEVEL: "warning"});
    w.send(c, &request(json!(2), "tools/call", plain(json!({"name": "echo", "_meta": meta}))));
    let picky = w.last_started();
    let legacy = w.call(c, json!(3), "echo");
    for job in [silent, picky, legacy] {
        w.log(job, LogLevel::Info, json!(job.get()));
        w.log(job, LogLevel::Warning, json!(job.get()));
    }
    let told: Vec<_> = w.rest(c).iter().map(|m| m["params"]["data"].clone()).collect();
    assert_eq!(told, [json!(picky.get()), json!(legacy.get()), json!(legacy.get())]);
}

/// Progress has its message here, whatever the session on the same connection speaks.
#[test]
fn progress_is_told_as_its_request_speaks() {
    let mut w = World::new();
    let c = w.open_as(Identity::User(1), "2024-11-05");
    let meta = json!({"progressToken": "t"});
    let params = json!({"name": "echo", "_meta": meta});
    w.send(c, &request(json!(1), "tools/call", plain(params.clone())));
    let modern = w.last_started();
    w.send(c, &request(json!(2), "tools/call", params));
    let legacy = w.last_started();
    for job in [modern, legacy] {
        w.feed(Input::Progress(job, 1.0, Some(2.0), Some("half".to_owned())));
    }
    assert_eq!(w.next(c)["params"]["message"], "half");
    assert_eq!(w.next(c)["params"].get("message"), None);
}

/// A peer that closed its side is answered; outside a session it is not pinged meanwhile.
#[test]
fn half_closed_peer_is_answered_and_not_pinged() {
    let mut w = World::new();
    let c = connect(&mut w);
    let job = call(&mut w, c, json!(1), "echo");
    w.feed(Input::Finished(c, AfterInput::AnswerAndProbe(Duration::from_secs(1))));
    w.advance(Duration::from_secs(10));
    w.silent(c);
    w.done(job, "done");
    assert_eq!(w.next(c)["result"]["content"][0]["text"], "done");
    assert_eq!(w.closed, [(c, CloseReason::Finished)]);
}

/// MOD-04: a refusal is taken back as well if it is not sent, whichever limit it was for.
#[test]
fn refusal_is_taken_back() {
    let rate = std::num::NonZeroU32::new(1);
    let rated = Limits { task_ops_per_second: rate, ..Limits::default() };
    let crowded = Limits { write_buffer_bytes: 100, ..Limits::default() };
    for (limits, method) in [(rated, "tasks/get"), (crowded, "tools/list")] {
        let mut w = World::with(limits, TaskPolicy::default());
        let c = connect(&mut w);
        w.stop_reading(c);
        let first = if method == "tasks/get" { method } else { "server/discover" };
        let params = || modern::tasks(json!({"taskId": "none"}));
        w.send(c, &request(json!(1), first, params()));
        let before = w.waiting(c);
        w.send(c, &request(json!(2), method, params()));
        assert!(w.waiting(c) > before);
        w.send(c, &cancel(json!(2)));
        assert_eq!(w.waiting(c), before, "{method}");
        w.start_reading(c);
        assert_eq!(w.rest(c).len(), 1);
    }
}

/// RPC-03: a shutdown answers the open requests, and refuses later ones.
#[test]
fn shutdown_answers() {
    let mut w = World::new();
    let c = connect(&mut w);
    let job = call(&mut w, c, json!(1), "build");
    w.feed(Input::Drain(w.now().at + Duration::from_secs(5)));
    w.expect_error(c, json!(1), -31005);
    assert_eq!(w.refusal(c, "server/discover", plain(json!({}))).0, -31005);
    w.stopped(job);
    assert_eq!(w.exits, 1);
}

/// TSK-36: the limits of a connection hold here as well.
#[test]
fn limits_hold() {
    let limits = Limits { inflight_max: 1, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let c = connect(&mut w);
    let job = call(&mut w, c, json!(1), "echo");
    assert_eq!(w.refusal(c, "tools/call", plain(json!({"name": "echo"}))).0, -31003);
    w.done(job, "ok");
    w.lose(c);
    assert_eq!((w.sizes().requests, w.sizes().jobs), (0, 0));
}
