//! The engine as a client: the session it begins, its requests to a server, and tasks at peers
//! from their creation to their one answer.

use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::outgoing::call::{
    Answer, AnswerTimeout, AskTask, Caller, OutgoingRequest, Refusal,
};
use ceased_core::outgoing::remote_task::{POLL_DEFAULT, POLL_MIN, RemoteState};
use ceased_core::protocol::role::{AsClient, Offers, Role};
use ceased_core::reason::CloseReason;
use ceased_core::tasks::status::Status;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, World};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

fn ask_of(method: &str, params: &Value, task: Option<AskTask>) -> OutgoingRequest {
    let params = (!params.is_null()).then(|| to_raw_value(params).expect("it is there"));
    OutgoingRequest { key: None, method: method.into(), params, answer_timeout: None, task }
}

fn tool_call(tool: &str, task: Option<AskTask>) -> OutgoingRequest {
    ask_of("tools/call", &json!({"name": tool, "arguments": {}}), task)
}

fn calls(w: &mut World, conn: ConnId, number: u64, request: OutgoingRequest) -> Caller {
    w.feed(Input::Call(conn, AskId::new(number), request));
    Caller::Host(AskId::new(number))
}

/// The last thing told, as words.
#[track_caller]
fn last_told(w: &World) -> (Caller, String) {
    let (caller, answer) = w.told.last().expect("somebody was told something");
    let word = match answer {
        Answer::Result(result) => format!("result {}", result.get()),
        Answer::Error(error) => format!("error {}", error.get()),
        Answer::Unusable(_) => "unusable".into(),
        Answer::Refused(refusal) => format!("refused {refusal:?}"),
        Answer::TimedOut => "timed out".into(),
        Answer::Cancelled => "cancelled".into(),
        Answer::Lost => "lost".into(),
    };
    (*caller, word)
}

/// Everything a server can declare.
fn everything() -> Value {
    json!({"tools": {}, "prompts": {}, "logging": {},
        "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}})
}

fn lists_tools(w: &mut World, conn: ConnId, number: u64) {
    calls(w, conn, number, ask_of("tools/list", &Value::Null, None));
    let request = w.next(conn);
    let tool = |name: &str, execution: Value| {
        let mut tool = json!({"name": name, "inputSchema": {"type": "object"}});
        if !execution.is_null() {
            tool["execution"] = execution;
        }
        tool
    };
    let tools = json!({"tools": [
        tool("plain", Value::Null),
        tool("never", json!({"taskSupport": "forbidden"})),
        tool("maybe", json!({"taskSupport": "optional"})),
        tool("always", json!({"taskSupport": "required"})),
    ]});
    w.answer(conn, &request["id"], tools);
}

fn task_object(id: &str, status: &str, interval: Option<u64>) -> Value {
    let mut task = json!({"taskId": id, "status": status, "ttl": 60000,
        "createdAt": "2025-11-01T00:00:00Z", "lastUpdatedAt": "2025-11-01T00:00:00Z"});
    if let Some(interval) = interval {
        task["pollInterval"] = json!(interval);
    }
    task
}

/// A server whose tools are known.
fn server(w: &mut World) -> ConnId {
    let conn = w.dial(NEWEST, everything());
    lists_tools(w, conn, 1);
    conn
}

/// A call that has become a task with this id; the caller.
fn task_at(w: &mut World, conn: ConnId, number: u64, id: &str, interval: Option<u64>) -> Caller {
    let caller = calls(w, conn, number, tool_call("maybe", Some(AskTask::default())));
    let request = w.next(conn);
    assert_eq!(request["params"]["task"], json!({}));
    w.answer(conn, &request["id"], json!({"task": task_object(id, "working", interval)}));
    w.silent(conn);
    caller
}

fn polled(w: &mut World, conn: ConnId, status: &str, interval: Option<u64>) {
    let poll = w.next(conn);
    assert_eq!(poll["method"], "tasks/get");
    let id = poll["params"]["taskId"].as_str().expect("it is there").to_owned();
    w.answer(conn, &poll["id"], task_object(&id, status, interval));
}

/// TSK-01: the first message of a client, byte for byte; nothing is let through before the answer.
#[test]
fn client_initializes() {
    let mut w = World::new();
    let conn = w.dial_with(Identity::User(1000), Offers::ALL);
    let tasks = json!({"list": {}, "cancel": {}, "requests": {
        "sampling": {"createMessage": {}}, "elicitation": {"create": {}}}});
    let request = w.next(conn);
    assert_eq!(
        request,
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": NEWEST,
            "capabilities": {"elicitation": {}, "roots": {}, "sampling": {}, "tasks": tasks},
            "clientInfo": {"name": "world", "version": "1.2.3"},
        }})
    );
    let early = calls(&mut w, conn, 7, ask_of("tools/list", &Value::Null, None));
    assert_eq!(last_told(&w), (early, "refused NotInitialized".into()));
    w.silent(conn);
    let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"}});
    w.answer(conn, &request["id"], result.clone());
    assert_eq!(last_told(&w).1, format!("result {result}"), "the host learns what the server is");
    w.expect(conn, json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    calls(&mut w, conn, 8, ask_of("tools/list", &Value::Null, None));
    assert_eq!(w.next(conn)["method"], "tools/list");
}

/// TSK-01: only capabilities with a service are declared.
#[test]
fn client_declares_what_it_offers() {
    let mut w = World::new();
    let sampling = Offers { sampling: true, ..Offers::default() };
    for (identity, offers, capabilities) in [
        (Identity::User(1), Offers::default(), json!({})),
        (Identity::User(1), Offers { roots: true, ..Offers::default() }, json!({"roots": {}})),
        (
            Identity::Anonymous,
            sampling,
            json!({"sampling": {}, "tasks": {"cancel": {}, "requests": {
                "sampling": {"createMessage": {}}}}}),
        ),
    ] {
        let conn = w.dial_with(identity, offers);
        assert_eq!(w.next(conn)["params"]["capabilities"], capabilities);
    }
}

/// A session that does not come about is closed, and the host is told why.
#[test]
fn sessions_that_fail() {
    let mut w = World::new();
    let server = json!({"name": "s", "version": "1"});
    for (result, told) in [
        (
            json!({"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": server}),
            "unusable",
        ),
        (json!({"capabilities": {}}), "unusable"),
        (json!([]), "unusable"),
    ] {
        let conn = w.dial_with(Identity::User(1), Offers::ALL);
        let request = w.next(conn);
        w.answer(conn, &request["id"], result);
        assert_eq!(last_told(&w).1, told);
        assert_eq!(w.closed.last(), Some(&(conn, CloseReason::NoSession)));
        w.silent(conn);
    }
    let conn = w.dial_with(Identity::User(1), Offers::ALL);
    let request = w.next(conn);
    w.refuse(conn, &request["id"], -32602, "no");
    assert!(last_told(&w).1.starts_with("error"));
    assert_eq!(w.closed.last(), Some(&(conn, CloseReason::NoSession)));
    assert_eq!(w.sizes().connections, 0);
}

/// CAN-04: a client never cancels initialize, neither by wish nor by its own timeout.
#[test]
fn initialize_is_not_cancelled() {
    let mut w = World::new();
    let answer_timeout = AnswerTimeout { timeout: SECOND, extend_on_progress: false, cap: SECOND };
    let ask = AskId::new(5);
    let role =
        Role::Client(AsClient { ask, offers: Offers::ALL, answer_timeout: Some(answer_timeout) });
    let conn = w.connect_as(Identity::User(1), role);
    assert_eq!(w.next(conn)["method"], "initialize");
    w.feed(Input::CancelCall(Caller::Host(ask), Some("no".into())));
    assert_eq!(w.refused_cancels, [(Caller::Host(ask), Refusal::Protected)]);
    w.advance(SECOND);
    assert_eq!(last_told(&w), (Caller::Host(ask), "timed out".into()));
    w.silent(conn);
    assert_eq!(w.closed, [(conn, CloseReason::NoSession)]);
}

/// CAN-02, CAN-03, CAN-10: as client a plain call is cancelled by its id, once, in progress only.
#[test]
fn client_cancels_what_it_asked() {
    let mut w = World::new();
    let conn = server(&mut w);
    let caller = calls(&mut w, conn, 9, tool_call("plain", None));
    let request = w.next(conn);
    w.feed(Input::CancelCall(caller, Some("changed my mind".into())));
    let cancel = w.next(conn);
    assert_eq!(cancel["method"], "notifications/cancelled");
    assert_eq!(cancel["params"]["requestId"], request["id"]);
    let told = w.told.len();
    w.answer(conn, &request["id"], json!({"content": []}));
    assert_eq!((w.told.len(), w.counters().late_responses), (told, 1));
    w.feed(Input::CancelCall(caller, None));
    assert_eq!(w.refused_cancels, [(caller, Refusal::NotInProgress)]);
    w.silent(conn);
}

/// TSK-02: nothing a server did not declare goes on the wire.
#[test]
fn nothing_undeclared_is_asked_of_a_server() {
    let mut w = World::new();
    let task = Some(AskTask { ttl: Some(SECOND) });
    let about = json!({"taskId": "t"});
    let tools_only = w.dial(NEWEST, json!({"tools": {}}));
    // Tasks are of a revision: an older server that says it has them has not.
    let older = w.dial("2025-06-18", everything());
    let no_list = w.dial(NEWEST, json!({"tools": {}, "tasks": {"requests": {}}}));
    for (conn, request, refusal) in [
        (tools_only, tool_call("x", task), "NoTasks"),
        (tools_only, ask_of("tasks/list", &Value::Null, None), "NotDeclared"),
        (tools_only, ask_of("tasks/get", &about, None), "NotDeclared"),
        (tools_only, ask_of("tasks/cancel", &about, None), "NotDeclared"),
        (tools_only, ask_of("prompts/list", &Value::Null, None), "NotDeclared"),
        (tools_only, ask_of("initialize", &json!({}), None), "NotDeclared"),
        (older, tool_call("x", task), "NoTasks"),
        (older, ask_of("tasks/list", &Value::Null, None), "NotDeclared"),
        (no_list, tool_call("x", task), "NoTasks"),
        (no_list, ask_of("tasks/list", &Value::Null, None), "NotDeclared"),
        (no_list, ask_of("tasks/cancel", &about, None), "NotDeclared"),
    ] {
        let number = w.told.len() as u64;
        let caller = calls(&mut w, conn, number, request);
        assert_eq!(last_told(&w), (caller, format!("refused {refusal}")));
        w.silent(conn);
    }
    calls(&mut w, tools_only, 100, tool_call("x", None));
    assert_eq!(w.next(tools_only)["method"], "tools/call");
    let conn = w.dial(NEWEST, everything());
    calls(&mut w, conn, 101, ask_of("tasks/list", &Value::Null, None));
    assert_eq!(w.next(conn)["method"], "tasks/list");
}

/// TSK-02: as a server too, only requests that the client declared are made tasks.
#[test]
fn server_augments_what_the_client_declared() {
    let mut w = World::new();
    let tasks = json!({"cancel": {}, "requests": {"elicitation": {"create": {}}}});
    let capabilities = json!({"elicitation": {}, "sampling": {}, "tasks": tasks});
    let conn = w.open_with(Identity::User(1), NEWEST, capabilities);
    let task = Some(AskTask { ttl: Some(60 * SECOND) });
    let sampling = json!({"messages": [], "maxTokens": 5});
    let caller = calls(&mut w, conn, 1, ask_of("sampling/createMessage", &sampling, task));
    assert_eq!(last_told(&w), (caller, "refused NoTasks".into()));
    let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}});
    let caller = calls(&mut w, conn, 2, ask_of("elicitation/create", &form, task));
    let request = w.next(conn);
    assert_eq!(request["params"]["task"], json!({"ttl": 60000}));
    w.answer(conn, &request["id"], json!({"task": task_object("e", "completed", None)}));
    let fetch = w.next(conn);
    assert_eq!(
        (&fetch["method"], &fetch["params"]),
        (&json!("tasks/result"), &json!({"taskId": "e"}))
    );
    w.answer(conn, &fetch["id"], json!({"action": "accept"}));
    assert_eq!(last_told(&w), (caller, r#"result {"action":"accept"}"#.into()));
}

/// TSK-04: task support counts as listed, a missing one means never, and a list that changed is not
/// known any more.
#[test]
fn task_support_is_learnt() {
    let mut w = World::new();
    let conn = server(&mut w);
    let task = Some(AskTask::default());
    let by_hand = json!({"name": "maybe", "task": {}});
    for (request, refusal) in [
        (tool_call("plain", task), "ToolWithoutTasks"),
        (tool_call("never", task), "ToolWithoutTasks"),
        (tool_call("unheard of", task), "ToolWithoutTasks"),
        (tool_call("always", None), "ToolOnlyAsTask"),
        (ask_of("tools/call", &by_hand, None), "TaskInParams"),
    ] {
        let number = 10 + w.told.len() as u64;
        let caller = calls(&mut w, conn, number, request);
        assert_eq!(last_told(&w), (caller, format!("refused {refusal}")));
        w.silent(conn);
    }
    for (number, request) in [(50, tool_call("always", task)), (51, tool_call("maybe", None))] {
        calls(&mut w, conn, number, request);
        assert_eq!(w.next(conn)["method"], "tools/call");
    }
    w.send(conn, r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    calls(&mut w, conn, 52, tool_call("maybe", task));
    assert_eq!(last_told(&w).1, "refused ToolWithoutTasks");
    // Where tasks for tool calls are not declared, their flags in the list mean nothing.
    let plain = w.dial(NEWEST, json!({"tools": {}}));
    lists_tools(&mut w, plain, 60);
    calls(&mut w, plain, 61, tool_call("always", None));
    assert_eq!(w.next(plain)["method"], "tools/call");
}

/// TSK-13: never earlier than the interval, which may change; at the end the result is fetched and
/// told once.
#[test]
fn task_is_polled_to_its_end() {
    let mut w = World::new();
    let conn = server(&mut w);
    let caller = task_at(&mut w, conn, 2, "t", Some(3000));
    let told = w.told.len();
    w.advance(3 * SECOND - Duration::from_millis(1));
    w.silent(conn);
    w.advance(Duration::from_millis(1));
    polled(&mut w, conn, "working", Some(10_000));
    w.advance(10 * SECOND - Duration::from_millis(1));
    w.silent(conn);
    w.advance(Duration::from_millis(1));
    polled(&mut w, conn, "working", Some(0));
    assert_eq!(w.due_in(), Some(POLL_MIN), "nobody is asked without a pause");
    w.advance(POLL_MIN);
    polled(&mut w, conn, "working", None);
    assert_eq!(w.due_in(), Some(POLL_DEFAULT));
    w.advance(100 * SECOND);
    polled(&mut w, conn, "completed", None);
    let fetch = w.next(conn);
    assert_eq!(
        (&fetch["method"], &fetch["params"]["taskId"]),
        (&json!("tasks/result"), &json!("t"))
    );
    assert_eq!(w.told.len(), told);
    w.answer(conn, &fetch["id"], json!({"content": []}));
    assert_eq!(last_told(&w), (caller, r#"result {"content":[]}"#.into()));
    w.answer(conn, &fetch["id"], json!({"content": []}));
    w.advance(100 * SECOND);
    w.silent(conn);
    assert_eq!((w.told.len(), w.sizes().timers, w.remote_tasks().len()), (told + 1, 0, 0));
}

/// TSK-13: an error to the question is not the end of the task: it is asked again, not before the
/// interval nor before the peer wants to be. A task given up for another reason is cancelled.
#[test]
fn poll_that_is_refused_is_put_off() {
    let mut w = World::new();
    let conn = server(&mut w);
    let caller = task_at(&mut w, conn, 2, "t", Some(3000));
    let told = w.told.len();
    let busy = json!({"limit": "task_ops_per_second", "retryAfterMs": 9000});
    let soon = json!({"retryAfterMs": 5});
    for (error, seconds) in [
        (json!({"code": -31003, "message": "busy", "data": busy}), 9),
        (json!({"code": -31003, "message": "busy", "data": soon}), 3),
        (json!({"code": -32603, "message": "broken"}), 3),
    ] {
        w.advance(w.due_in().expect("it is asked about"));
        let poll = w.next(conn);
        assert_eq!(poll["method"], "tasks/get");
        w.send(conn, &json!({"jsonrpc": "2.0", "id": poll["id"], "error": error}).to_string());
        w.silent(conn);
        assert_eq!(w.due_in(), Some(seconds * SECOND), "{error}");
    }
    assert_eq!((w.told.len(), w.remote_tasks().len()), (told, 1));
    w.advance(3 * SECOND);
    let poll = w.next(conn);
    w.answer(conn, &poll["id"], json!({"odd": true}));
    assert_eq!(last_told(&w), (caller, "unusable".into()));
    let cancel = w.next(conn);
    assert_eq!(
        (&cancel["method"], &cancel["params"]["taskId"]),
        (&json!("tasks/cancel"), &json!("t"))
    );
    // However long it is put off, it is waited for as long as its call is.
    let mut request = tool_call("maybe", Some(AskTask::default()));
    let timeout = 5 * SECOND;
    request.answer_timeout =
        Some(AnswerTimeout { timeout, extend_on_progress: false, cap: timeout });
    let caller = calls(&mut w, conn, 3, request);
    let request = w.next(conn);
    w.answer(conn, &request["id"], json!({"task": task_object("u", "working", Some(2000))}));
    w.advance(2 * SECOND);
    let poll = w.next(conn);
    w.refuse(conn, &poll["id"], -32603, "broken");
    w.advance(2 * SECOND);
    assert_eq!(w.next(conn)["method"], "tasks/get");
    w.advance(SECOND);
    assert_eq!(last_told(&w), (caller, "timed out".into()));
    assert_eq!(w.next(conn)["method"], "tasks/cancel");
    assert_eq!((w.sizes().timers, w.remote_tasks().len()), (0, 0));
}

/// TSK-14, TSK-37: that the result was asked for too early is not the result: the task is asked
/// about again when it may be, and no earlier.
#[test]
fn result_that_is_asked_for_too_early() {
    let mut w = World::new();
    let conn = server(&mut w);
    let caller = task_at(&mut w, conn, 2, "t", Some(1000));
    let told = w.told.len();
    w.advance(SECOND);
    polled(&mut w, conn, "completed", Some(1000));
    let error = json!({"code": -31003, "message": "busy", "data": {"retryAfterMs": 4000}});
    for method in ["tasks/result", "tasks/get"] {
        let asked = w.next(conn);
        assert_eq!(asked["method"], method);
        w.send(conn, &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}).to_string());
        w.silent(conn);
        assert_eq!((w.told.len(), w.due_in()), (told, Some(4 * SECOND)));
        w.advance(4 * SECOND);
    }
    polled(&mut w, conn, "completed", Some(1000));
    let fetch = w.next(conn);
    w.refuse(conn, &fetch["id"], -31003, "the tool ran into a limit of its own");
    let (whom, words) = last_told(&w);
    assert_eq!(whom, caller);
    assert!(words.contains("a limit of its own"), "{words}");
    assert_eq!((w.sizes().timers, w.remote_tasks().len()), (0, 0));
    // A poll that is on its way then decides the next step, and no other is due beside it.
    task_at(&mut w, conn, 3, "u", Some(1000));
    w.advance(SECOND);
    let poll = w.next(conn);
    let hint = json!({"jsonrpc": "2.0", "method": "notifications/tasks/status",
        "params": task_object("u", "completed", None)});
    w.send(conn, &hint.to_string());
    let fetch = w.next(conn);
    assert_eq!(fetch["method"], "tasks/result");
    w.send(conn, &json!({"jsonrpc": "2.0", "id": fetch["id"], "error": error}).to_string());
    assert_eq!(w.due_in(), None);
    w.answer(conn, &poll["id"], task_object("u", "completed", None));
    assert_eq!(w.next(conn)["method"], "tasks/result");
}

/// TSK-30: when input is required, the result is asked for at once, so that the server can ask on
/// that connection; the request stays open and no poll runs beside it.
#[test]
fn input_is_given_while_the_result_is_waited_for() {
    let mut w = World::new();
    let conn = server(&mut w);
    let caller = task_at(&mut w, conn, 2, "t", None);
    w.advance(POLL_DEFAULT);
    polled(&mut w, conn, "input_required", None);
    let fetch = w.next(conn);
    assert_eq!(fetch["method"], "tasks/result");
    let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}});
    let question =
        json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form});
    w.send(conn, &question.to_string());
    let job = w.last_started();
    w.feed(Input::Done(
        job,
        ceased_core::event::Outcome::Result(
            to_raw_value(&json!({"action": "decline"})).expect("it is there").into(),
        ),
    ));
    assert_eq!(w.next(conn)["result"]["action"], "decline");
    w.advance(100 * SECOND);
    w.silent(conn);
    w.refuse(conn, &fetch["id"], -32000, "declined");
    let error = r#"error {"code":-32000,"message":"declined"}"#;
    assert_eq!(last_told(&w), (caller, error.into()));
}

/// CAN-05: a task is cancelled by tasks/cancel, also when the cancel comes before its id; never by
/// notifications/cancelled. CAN-10: later messages are dropped.
#[test]
fn task_is_cancelled_as_one() {
    let mut w = World::new();
    let conn = server(&mut w);
    let caller = task_at(&mut w, conn, 2, "t", None);
    w.feed(Input::CancelCall(caller, None));
    assert_eq!(last_told(&w), (caller, "cancelled".into()));
    let cancel = w.next(conn);
    assert_eq!(
        (&cancel["method"], &cancel["params"]),
        (&json!("tasks/cancel"), &json!({"taskId": "t"}))
    );
    w.answer(conn, &cancel["id"], task_object("t", "cancelled", None));
    w.advance(100 * SECOND);
    w.silent(conn);
    // Before the id is known.
    let caller = calls(&mut w, conn, 3, tool_call("always", Some(AskTask::default())));
    let request = w.next(conn);
    w.feed(Input::CancelCall(caller, None));
    assert_eq!(last_told(&w), (caller, "cancelled".into()));
    w.silent(conn);
    w.feed(Input::CancelCall(caller, None));
    assert_eq!(w.refused_cancels, [(caller, Refusal::NotInProgress)]);
    let told = w.told.len();
    w.answer(conn, &request["id"], json!({"task": task_object("late", "working", None)}));
    let cancel = w.next(conn);
    assert_eq!(
        (&cancel["method"], &cancel["params"]["taskId"]),
        (&json!("tasks/cancel"), &json!("late"))
    );
    assert_eq!((w.told.len(), w.sizes().timers), (told, 0));
    w.silent(conn);
}

/// CAN-05, TSK-02: a request that cannot be cancelled correctly is not cancelled.
#[test]
fn task_of_a_server_without_cancel_goes_on() {
    let mut w = World::new();
    let tasks = json!({"requests": {"tools": {"call": {}}}});
    let conn = w.dial(NEWEST, json!({"tools": {}, "tasks": tasks}));
    lists_tools(&mut w, conn, 1);
    let caller = task_at(&mut w, conn, 2, "t", None);
    w.feed(Input::CancelCall(caller, None));
    assert_eq!(w.refused_cancels, [(caller, Refusal::NotDeclared)]);
    w.silent(conn);
    w.advance(POLL_DEFAULT);
    polled(&mut w, conn, "failed", None);
    let fetch = w.next(conn);
    w.refuse(conn, &fetch["id"], -5, "broke");
    assert_eq!(last_told(&w), (caller, r#"error {"code":-5,"message":"broke"}"#.into()));
}

/// The answer timeout is for all of a task: its end is tasks/cancel, and progress of the task moves it.
#[test]
fn task_is_waited_for_with_a_bound() {
    let mut w = World::new();
    let conn = server(&mut w);
    let answer_timeout =
        AnswerTimeout { timeout: 4 * SECOND, extend_on_progress: true, cap: 60 * SECOND };
    let mut request = tool_call("maybe", Some(AskTask { ttl: Some(60 * SECOND) }));
    request.answer_timeout = Some(answer_timeout);
    let caller = calls(&mut w, conn, 2, request);
    let request = w.next(conn);
    let token = &request["params"]["_meta"]["progressToken"];
    w.answer(conn, &request["id"], json!({"task": task_object("t", "working", Some(50_000))}));
    w.advance(3 * SECOND);
    let note = json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": token, "progress": 1}});
    w.send(conn, &note.to_string());
    assert_eq!(w.told_progress, [caller]);
    w.advance(3 * SECOND);
    w.silent(conn);
    w.advance(SECOND);
    assert_eq!(last_told(&w), (caller, "timed out".into()));
    assert_eq!(w.next(conn)["method"], "tasks/cancel");
    assert_eq!(w.sizes().timers, 0);
}

/// A task the server forgot, one it tells nonsense of, one whose connection ends, and a server
/// that ignores the wish: each call is told once.
#[test]
fn every_task_call_is_told_once() {
    let mut w = World::new();
    let conn = server(&mut w);
    let caller = task_at(&mut w, conn, 2, "gone", None);
    w.advance(POLL_DEFAULT);
    let poll = w.next(conn);
    w.refuse(conn, &poll["id"], -32602, "no such task");
    assert!(last_told(&w).1.contains("no such task"), "{:?}", last_told(&w));
    assert_eq!(last_told(&w).0, caller);
    for (number, nonsense) in [(3, json!({})), (4, task_object("another", "working", None))] {
        let caller = task_at(&mut w, conn, number, "odd", None);
        w.advance(POLL_DEFAULT);
        let poll = w.next(conn);
        w.answer(conn, &poll["id"], nonsense);
        assert_eq!(last_told(&w), (caller, "unusable".into()));
        // It goes on there, for all we know.
        assert_eq!(w.next(conn)["method"], "tasks/cancel");
    }
    let caller = calls(&mut w, conn, 5, tool_call("maybe", Some(AskTask::default())));
    let request = w.next(conn);
    w.answer(conn, &request["id"], json!({"content": []}));
    assert_eq!(last_told(&w), (caller, r#"result {"content":[]}"#.into()));
    let caller = task_at(&mut w, conn, 6, "t", None);
    let told = w.told.len();
    w.lose(conn);
    assert_eq!((last_told(&w), w.told.len()), ((caller, "lost".into()), told + 1));
    assert_eq!((w.sizes().timers, w.remote_tasks().len()), (0, 0));
}

/// A status notification decides nothing: it only brings the question for the result forward.
#[test]
fn status_notifications_are_hints() {
    let mut w = World::new();
    let conn = server(&mut w);
    let caller = task_at(&mut w, conn, 2, "t", Some(60_000));
    let told = w.told.len();
    let hint = |w: &mut World, id: &str, status: &str| {
        let note = json!({"jsonrpc": "2.0", "method": "notifications/tasks/status",
            "params": task_object(id, status, Some(1))});
        w.send(conn, &note.to_string());
    };
    hint(&mut w, "t", "working");
    hint(&mut w, "somebody else's", "completed");
    w.silent(conn);
    assert_eq!(w.due_in(), Some(60 * SECOND), "a hint does not change the interval");
    hint(&mut w, "t", "completed");
    hint(&mut w, "t", "completed");
    let fetch = w.next(conn);
    assert_eq!(fetch["method"], "tasks/result");
    w.silent(conn);
    assert_eq!(w.told.len(), told, "it was only a hint");
    assert_eq!(w.remote_tasks()[0].status, Status::Working);
    w.answer(conn, &fetch["id"], json!({"content": []}));
    assert_eq!(last_told(&w).0, caller);
}

/// TSK-42: which operation a task belongs to, and every step of its life.
#[test]
fn remote_tasks_are_remembered() {
    let mut w = World::new();
    let conn = server(&mut w);
    let caller = task_at(&mut w, conn, 2, "t\u{7}", None);
    let view = w.remote_tasks()[0];
    assert_eq!((view.conn, view.caller, view.task), (conn, caller, "t\u{7}"));
    let said = (view.method, view.label, view.status);
    assert_eq!(said, ("tools/call", Some("maybe"), Status::Working));
    w.advance(POLL_DEFAULT);
    polled(&mut w, conn, "working", None);
    w.advance(POLL_DEFAULT);
    polled(&mut w, conn, "completed", None);
    let fetch = w.next(conn);
    w.answer(conn, &fetch["id"], json!({"content": []}));
    let mut states = Vec::new();
    for note in &w.notes {
        if let AuditEvent::RemoteTask { task, method, label, state, .. } = note {
            assert_eq!((&**task, &**method, label.as_deref()), ("t ", "tools/call", Some("maybe")));
            states.push(*state);
        }
    }
    let (working, done) = (RemoteState::Is(Status::Working), RemoteState::Is(Status::Completed));
    assert_eq!(states, [working, done, RemoteState::Answered]);
}

/// TSK-36: a request for a task counts before it has an answer, and no more once that says
/// that it is none, or it is unwanted.
#[test]
fn tasks_that_may_be_there_are_bounded() {
    let limits = Limits { remote_tasks_max: 2, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let conn = server(&mut w);
    let task = || tool_call("maybe", Some(AskTask::default()));
    calls(&mut w, conn, 2, task());
    let plain = w.next(conn);
    let unwanted = calls(&mut w, conn, 3, task());
    w.next(conn);
    let caller = calls(&mut w, conn, 4, task());
    assert_eq!(last_told(&w), (caller, "refused TooMany".into()));
    w.silent(conn);
    w.answer(conn, &plain["id"], json!({"content": []}));
    w.feed(Input::CancelCall(unwanted, None));
    for number in [5, 6] {
        task_at(&mut w, conn, number, &format!("t{number}"), None);
    }
    let caller = calls(&mut w, conn, 7, task());
    assert_eq!(last_told(&w), (caller, "refused TooMany".into()));
    assert_eq!(w.remote_tasks().len(), 2);
}

/// TSK-36: with too many connections, calls or tasks nothing more is begun, and nothing is sent.
#[test]
fn what_is_followed_is_bounded() {
    let limits = Limits { connections_max: 1, remote_tasks_max: 2, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let conn = server(&mut w);
    for (number, id) in [(2, "a"), (3, "b")] {
        task_at(&mut w, conn, number, id, None);
    }
    let caller = calls(&mut w, conn, 4, tool_call("maybe", Some(AskTask::default())));
    assert_eq!(last_told(&w), (caller, "refused TooMany".into()));
    w.silent(conn);
    calls(&mut w, conn, 5, tool_call("maybe", None));
    assert_eq!(w.next(conn)["method"], "tools/call");
    let full = w.dial_with(Identity::User(1), Offers::ALL);
    assert_eq!(last_told(&w).1, "refused TooMany");
    w.silent(full);
    assert_eq!(w.closed, [(full, CloseReason::TooMany)]);
}
