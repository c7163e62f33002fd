//! Calls of 2026-07-28 whose tool asks something: answered with its questions, and made again.

use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::outgoing::call::{Answer, AskTask, Caller, OutgoingRequest, Refusal};
use ceased_core::reason::StopReason;
use ceased_core::rpc::error::code;
use ceased_core::tool::StopStep;
use ceased_simulator::modern::{able, cancel, plain, request};
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{Rigged, World};
use serde_json::{Value, json};

fn connect(world: &mut World) -> ConnId {
    world.connect(Identity::User(1000))
}

fn everything() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn call(world: &mut World, conn: ConnId, id: &Value, tool: &str) -> JobId {
    let params = able(&everything(), json!({"name": tool}));
    world.send(conn, &request(id.clone(), "tools/call", params));
    world.last_started()
}

fn asks(world: &mut World, job: JobId, number: u64, method: &str) -> Caller {
    let caller = world.asked(job, number, method);
    world.feed(Input::Turn);
    caller
}

/// The next message asks for input under this id: its questions, and the state to return.
fn asked(world: &mut World, conn: ConnId, id: &Value) -> (Value, String) {
    let answer = world.next(conn);
    assert_eq!((&answer["id"], &answer["result"]["resultType"]), (id, &json!("input_required")));
    let state = answer["result"]["requestState"].as_str().expect("a state is a string").to_owned();
    (answer["result"]["inputRequests"].clone(), state)
}

fn retry(state: &str, responses: &Value) -> Value {
    let params = json!({"name": "build", "requestState": state, "inputResponses": responses});
    able(&everything(), params)
}

/// The messages to the callers, as words.
fn told(world: &World) -> Vec<(Caller, String)> {
    let word = |answer: &Answer| match answer {
        Answer::Result(result) => result.get().to_owned(),
        Answer::Refused(refusal) => format!("{refusal:?}"),
        Answer::Cancelled => "cancelled".into(),
        Answer::Error(_) | Answer::TimedOut | Answer::Lost | Answer::Unusable(_) => {
            panic!("{answer:?}")
        }
    };
    world.told.iter().map(|(caller, answer)| (*caller, word(answer))).collect()
}

/// MOD-07: a tool's question is the answer; the request that brings the input, under a new id and
/// on whichever connection, gets the result.
#[test]
fn call_is_made_again() {
    let mut w = World::new();
    let (c, d) = (connect(&mut w), connect(&mut w));
    let job = call(&mut w, c, &json!(1), "build");
    let name = w.asked(job, 1, "elicitation/create");
    let roots = w.asked(job, 2, "roots/list");
    w.silent(c);
    w.feed(Input::Turn);
    let (requests, state) = asked(&mut w, c, &json!(1));
    assert_eq!(requests["1"]["method"], "elicitation/create");
    assert_eq!(requests["1"]["params"]["message"], "name?");
    assert_eq!(requests["2"], json!({"method": "roots/list", "params": {}}));
    assert_eq!(w.sizes().requests, 0, "the first request is over");
    // MOD-03: and cannot be cancelled any more; nor does its connection matter.
    w.send(c, &cancel(json!(1)));
    w.lose(c);
    assert!(w.stops.is_empty() && w.told.is_empty());
    let responses = json!({"2": {"roots": []}, "1": {"action": "decline"}, "9": {"x": 1}});
    w.send(d, &request(json!("again"), "tools/call", retry(&state, &responses)));
    let said =
        [(name, r#"{"action":"decline"}"#.to_owned()), (roots, r#"{"roots":[]}"#.to_owned())];
    assert_eq!(told(&w), said);
    w.silent(d);
    w.done(job, "built");
    let answer = w.next(d);
    assert_eq!(
        (&answer["id"], &answer["result"]["resultType"]),
        (&json!("again"), &json!("complete"))
    );
    assert_eq!((w.started.len(), w.sizes().jobs, w.sizes().timers), (1, 0, 0));
}

/// MOD-07: while a call waits for input, a repeat with its key is refused, and the retry continues
/// it.
#[test]
fn repeat_is_refused_while_the_call_waits_for_input() {
    let mut w = World::new();
    let (c, d) = (connect(&mut w), connect(&mut w));
    let keyed = |id: u64| {
        let params = json!({"name": "build", "_meta": {"ceased/idempotencyKey": "k"}});
        request(json!(id), "tools/call", able(&everything(), params))
    };
    w.send(c, &keyed(1));
    let job = w.last_started();
    asks(&mut w, job, 1, "elicitation/create");
    let (_, state) = asked(&mut w, c, &json!(1));
    w.send(d, &keyed(2));
    assert_eq!(w.next(d)["error"]["code"], code::CALL_UNDER_WAY);
    let accepted = json!({"1": {"action": "accept"}});
    w.send(d, &request(json!(3), "tools/call", retry(&state, &accepted)));
    w.done(job, "built");
    for id in [3, 4] {
        let answer = w.next(d);
        assert_eq!(
            (&answer["id"], &answer["result"]["content"][0]["text"]),
            (&json!(id), &json!("built"))
        );
        w.send(d, &keyed(id + 1));
    }
    assert_eq!(w.last_started(), job, "it has run once");
}

/// MOD-07: a state is good once, for its owner and its tool; a forged one is refused, and a retry
/// that cannot be read uses nothing up.
#[test]
fn state_is_guarded() {
    let mut w = World::new();
    let (c, other) = (connect(&mut w), w.connect(Identity::User(1)));
    let job = call(&mut w, c, &json!(1), "build");
    asks(&mut w, job, 1, "roots/list");
    let (_, state) = asked(&mut w, c, &json!(1));
    let yes = json!({"1": {"roots": []}});
    let tool = able(&everything(), json!({"name": "echo", "requestState": state}));
    for (conn, params) in [
        (other, retry(&state, &yes)),
        (c, tool),
        (c, retry("00000000-0000-4000-8000-000000000000", &yes)),
        (c, retry(&state.to_uppercase(), &yes)),
        (c, retry("", &yes)),
        (c, able(&everything(), json!({"name": "build", "requestState": 7}))),
        (c, retry(&state, &json!([]))),
        (c, retry(&state, &json!({"1": 7}))),
    ] {
        assert_eq!(w.refusal(conn, "tools/call", params).0, -32602);
    }
    assert!(w.told.is_empty() && w.started.len() == 1);
    w.send(c, &request(json!(2), "tools/call", retry(&state, &yes)));
    assert_eq!(w.told.len(), 1);
    assert_eq!(w.refusal(c, "tools/call", retry(&state, &yes)).0, -32602, "it was used");
    w.done(job, "ok");
    assert_eq!(w.next(c)["id"], 2);
}

/// MOD-07: a question that is still open, or later, is asked again under another state.
#[test]
fn rounds() {
    let mut w = World::new();
    let c = connect(&mut w);
    let job = call(&mut w, c, &json!(1), "build");
    w.asked(job, 1, "roots/list");
    asks(&mut w, job, 2, "roots/list");
    let (_, first) = asked(&mut w, c, &json!(1));
    // Asked while no request waits: it goes out with the next answer.
    asks(&mut w, job, 3, "elicitation/create");
    w.silent(c);
    w.send(c, &request(json!(2), "tools/call", retry(&first, &json!({"1": {"roots": []}}))));
    let (requests, second) = asked(&mut w, c, &json!(2));
    assert_eq!(requests.as_object().unwrap().keys().collect::<Vec<_>>(), ["2", "3"]);
    assert_ne!(first, second);
    assert_eq!(w.refusal(c, "tools/call", retry(&first, &json!({}))).0, -32602);
    // A client that answers less than before: other questions are refused to the job.
    let some = json!({"name": "build", "requestState": second, "inputResponses": {}});
    w.send(c, &request(json!(3), "tools/call", able(&json!({"roots": {}}), some)));
    let (requests, third) = asked(&mut w, c, &json!(3));
    assert_eq!(requests.as_object().unwrap().keys().collect::<Vec<_>>(), ["2"]);
    assert_eq!(told(&w)[1].1, "NotDeclared");
    w.send(c, &request(json!(4), "tools/call", retry(&third, &json!({"2": {"roots": []}}))));
    w.silent(c);
    w.done(job, "at last");
    assert_eq!(w.next(c)["id"], 4);
}

/// MOD-07: an undeclared capability of a request is not used.
#[test]
fn nothing_undeclared_is_asked() {
    let mut w = World::new();
    let c = connect(&mut w);
    let params = able(&json!({"roots": {}}), json!({"name": "build"}));
    w.send(c, &request(json!(1), "tools/call", params));
    let job = w.last_started();
    let caller = asks(&mut w, job, 1, "elicitation/create");
    assert_eq!(told(&w), [(caller, format!("{:?}", Refusal::NotDeclared))]);
    w.silent(c);
    w.done(job, "without");
    assert_eq!(w.next(c)["result"]["resultType"], "complete");
}

/// MOD-07, STOP-01: a parked job is bounded in time; then it is stopped like a cancelled one.
#[test]
fn parked_job_is_stopped_in_the_end() {
    let limits = Limits { parked_for: Duration::from_secs(30), ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let c = connect(&mut w);
    let job = call(&mut w, c, &json!(1), "build");
    let caller = asks(&mut w, job, 1, "roots/list");
    let (_, state) = asked(&mut w, c, &json!(1));
    w.advance(Duration::from_millis(29_999));
    assert!(w.stops.is_empty());
    w.advance(Duration::from_millis(1));
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Unanswered)]);
    assert_eq!(told(&w), [(caller, "cancelled".to_owned())]);
    assert_eq!(w.refusal(c, "tools/call", retry(&state, &json!({}))).0, -32602);
    w.stopped(job);
    w.silent(c);
    assert_eq!((w.sizes().jobs, w.sizes().timers), (0, 0));
}

/// MOD-07: the outcome of a job that ends while it is parked answers the retry; without
/// one, it is forgotten.
#[test]
fn outcome_waits() {
    let mut w = World::new();
    let c = connect(&mut w);
    for comes in [true, false] {
        let job = call(&mut w, c, &json!(1), "build");
        let caller = asks(&mut w, job, 1, "roots/list");
        let (_, state) = asked(&mut w, c, &json!(1));
        w.progress(job, 1.0);
        w.done(job, "I know it now");
        assert_eq!(told(&w).last(), Some(&(caller, "cancelled".to_owned())));
        assert_eq!((w.sizes().jobs, w.sizes().timers), (0, 1));
        if comes {
            w.send(c, &request(json!(2), "tools/call", retry(&state, &json!({}))));
            assert_eq!(w.next(c)["result"]["content"][0]["text"], "I know it now");
        } else {
            w.advance(Duration::from_secs(300));
            assert_eq!(w.refusal(c, "tools/call", retry(&state, &json!({}))).0, -32602);
        }
        assert_eq!(w.sizes().timers, 0);
    }
}

/// The tool's own timeout holds while it waits, and the retry is told.
#[test]
fn parked_job_runs_into_its_timeout() {
    let mut w = World::new();
    let c = connect(&mut w);
    let job = call(&mut w, c, &json!(1), "build");
    asks(&mut w, job, 1, "roots/list");
    let (_, state) = asked(&mut w, c, &json!(1));
    w.advance(tools::TIMEOUT);
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::TimedOut)]);
    w.send(c, &request(json!(2), "tools/call", retry(&state, &json!({"1": {}}))));
    w.silent(c);
    w.stopped(job);
    w.expect_error(c, json!(2), -31004);
}

/// MOD-04: the retry is a request like any other: its cancel stops the job, its progress token is
/// its own.
#[test]
fn retry_is_cancelled() {
    let mut w = World::new();
    let c = connect(&mut w);
    let meta = json!({"progressToken": "first"});
    let params = able(&everything(), json!({"name": "build", "_meta": meta}));
    w.send(c, &request(json!(1), "tools/call", params));
    let job = w.last_started();
    w.progress(job, 5.0);
    assert_eq!(w.next(c)["params"]["progressToken"], "first");
    asks(&mut w, job, 1, "roots/list");
    let (_, state) = asked(&mut w, c, &json!(1));
    w.progress(job, 6.0);
    w.silent(c);
    let meta = json!({"progressToken": "second"});
    let responses = json!({"1": {"roots": []}});
    let params = json!({
        "name": "build", "requestState": state, "inputResponses": responses, "_meta": meta,
    });
    w.send(c, &request(json!(2), "tools/call", able(&everything(), params)));
    w.progress(job, 7.0);
    assert_eq!(w.next(c)["params"]["progressToken"], "second");
    w.send(c, &cancel(json!(2)));
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Requested)]);
    w.done(job, "late");
    w.silent(c);
}

/// A cancel that arrives in the turn of the question wins: nothing is sent, nothing is parked.
#[test]
fn cancel_in_the_same_turn_wins() {
    let mut w = World::new();
    let c = connect(&mut w);
    let job = call(&mut w, c, &json!(1), "build");
    let caller = w.asked(job, 1, "roots/list");
    w.send(c, &cancel(json!(1)));
    assert_eq!(told(&w), [(caller, "cancelled".to_owned())]);
    w.silent(c);
    // So does a question that is withdrawn.
    let job = call(&mut w, c, &json!(2), "build");
    let caller = w.asked(job, 1, "roots/list");
    w.feed(Input::CancelCall(caller, None));
    w.feed(Input::Turn);
    w.silent(c);
    w.done(job, "never mind");
    assert_eq!(w.next(c)["id"], 2);
}

/// Calls a tool that asks something while its peer does not read: the answer with the question is
/// not sent.
fn asks_a_peer_that_does_not_read(w: &mut World, conn: ConnId) -> (JobId, Caller) {
    let job = call(w, conn, &json!(1), "build");
    w.stop_reading(conn);
    let caller = w.asked(job, 1, "roots/list");
    w.feed(Input::Turn);
    assert!(w.waiting(conn) > 0);
    (job, caller)
}

/// MOD-04, CAN-06: a cancel removes the question, if it is not sent, and stops the job that
/// no retry could name.
#[test]
fn question_is_taken_back_with_its_job() {
    for reused in [false, true] {
        let mut w = World::new();
        let c = connect(&mut w);
        let (job, caller) = asks_a_peer_that_does_not_read(&mut w, c);
        if reused {
            // MOD-05: the first was answered, so another may have its id; the cancel is of both.
            w.send(
                c,
                &request(json!(1), "tools/call", able(&everything(), json!({"name": "build"}))),
            );
            assert_ne!(w.last_started(), job);
        }
        w.send(c, &cancel(json!(1)));
        assert_eq!(w.waiting(c), 0);
        assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Requested)]);
        assert_eq!(told(&w), [(caller, "cancelled".to_owned())]);
        assert_eq!(w.counters().cancels_ignored, 0);
        w.stopped(job);
        if reused {
            let second = w.last_started();
            assert_eq!(w.steps(second).len(), 1);
            w.stopped(second);
        }
        w.start_reading(c);
        w.silent(c);
        assert_eq!((w.sizes().jobs, w.due_in()), (0, None));
    }
    // A state that was sent is good for a retry, whatever is cancelled then.
    let mut w = World::new();
    let c = connect(&mut w);
    let job = call(&mut w, c, &json!(1), "build");
    asks(&mut w, job, 1, "roots/list");
    asked(&mut w, c, &json!(1));
    w.send(c, &cancel(json!(1)));
    assert_eq!((w.steps(job).len(), w.counters().cancels_ignored), (0, 1));
}

/// J3: a job whose question was never sent is stopped once its connection is gone.
#[test]
fn question_that_was_never_sent() {
    let mut w = World::new();
    let c = connect(&mut w);
    let (job, caller) = asks_a_peer_that_does_not_read(&mut w, c);
    w.lose(c);
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Disconnected)]);
    assert_eq!(told(&w), [(caller, "cancelled".to_owned())]);
    w.stopped(job);
    assert_eq!((w.sizes().jobs, w.due_in()), (0, None));
}

/// The same where the peer is given up for it, or was before.
#[test]
fn question_that_floods() {
    for flooded_before in [false, true] {
        let limits = Limits { write_buffer_bytes: 100, ..Limits::default() };
        let mut w = World::with(limits, TaskPolicy::default());
        let c = connect(&mut w);
        let job = call(&mut w, c, &json!(1), "build");
        w.stop_reading(c);
        w.send(c, &request(json!(2), "server/discover", plain(json!({}))));
        assert!(w.waiting(c) >= 200);
        w.advance(Duration::from_secs(2));
        w.asked(job, 1, "roots/list");
        if flooded_before {
            w.send(c, &request(json!(3), "tools/list", plain(json!({}))));
        }
        w.feed(Input::Turn);
        assert!(!w.is_open(c));
        assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Disconnected)]);
        w.stopped(job);
        assert_eq!((w.sizes().jobs, w.due_in()), (0, None));
    }
}

/// MOD-07, TSK-36: parked calls are bounded for each identity; the tool that asks is told.
#[test]
fn parked_calls_are_bounded() {
    let limits = Limits { parked_max: 2, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let (c, other) = (connect(&mut w), w.connect(Identity::User(1)));
    for id in 0..2 {
        let job = call(&mut w, c, &json!(id), "build");
        w.asked(job, 1, "roots/list");
        w.asked(job, 2, "roots/list");
    }
    let job = call(&mut w, c, &json!(9), "build");
    let caller = asks(&mut w, job, 1, "roots/list");
    assert_eq!(told(&w), [(caller, "TooMany".to_owned())]);
    assert_eq!(w.rest(c).len(), 2);
    let job = call(&mut w, other, &json!(1), "build");
    asks(&mut w, job, 1, "roots/list");
    asked(&mut w, other, &json!(1));
}

/// RPC-03: a shutdown stops parked jobs; no request is left open.
#[test]
fn shutdown_stops_parked_jobs() {
    let mut w = World::new();
    let c = connect(&mut w);
    let over = call(&mut w, c, &json!(1), "build");
    asks(&mut w, over, 1, "roots/list");
    asked(&mut w, c, &json!(1));
    w.done(over, "nobody will know");
    let job = call(&mut w, c, &json!(2), "build");
    asks(&mut w, job, 1, "roots/list");
    asked(&mut w, c, &json!(2));
    w.feed(Input::Drain(w.now().at + Duration::from_secs(5)));
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Shutdown)]);
    w.stopped(job);
    w.silent(c);
    assert_eq!((w.exits, w.sizes().timers), (1, 0));
}

/// MOD-07: a state names one call alone, also where the generator gives one twice. Where it gives
/// nothing else, the tool is told that it cannot ask, and its call goes on.
#[test]
fn state_given_twice_is_used_once() {
    let id = |number: u128| uuid::Uuid::from_u128((0x4000_8000 << 48) | number);
    let id_source = Rigged::new([1, 2, 2, 3, 2, 3, 2, 3].map(id));
    let settings = tools::settings(Limits::default(), TaskPolicy::default());
    let mut w = World::made_of(settings, id_source);
    let c = connect(&mut w);
    let mut states = Vec::new();
    for number in [1, 2] {
        let job = call(&mut w, c, &json!(number), "build");
        asks(&mut w, job, 1, "roots/list");
        states.push(asked(&mut w, c, &json!(number)).1);
    }
    assert_ne!(states[0], states[1]);
    let job = call(&mut w, c, &json!(3), "build");
    let caller = asks(&mut w, job, 1, "roots/list");
    assert_eq!(told(&w), [(caller, "TooMany".to_owned())]);
    w.silent(c);
    w.done(job, "without");
    assert_eq!(w.next(c)["id"], 3);
    for (number, state) in (4..).zip(&states) {
        let brought = retry(state, &json!({"1": {"roots": []}}));
        w.send(c, &request(json!(number), "tools/call", brought));
    }
    assert_eq!(told(&w).len(), 3, "each is told what was brought for it");
}

/// A retry on a connection that is full is refused and uses nothing up.
#[test]
fn retry_needs_room() {
    let limits = Limits { inflight_max: 1, ..Limits::default() };
    let mut w = World::with(limits, TaskPolicy::default());
    let c = connect(&mut w);
    let job = call(&mut w, c, &json!(1), "build");
    asks(&mut w, job, 1, "roots/list");
    let (_, state) = asked(&mut w, c, &json!(1));
    let busy = call(&mut w, c, &json!(2), "echo");
    assert_eq!(w.refusal(c, "tools/call", retry(&state, &json!({}))).0, -31003);
    w.done(busy, "free");
    w.rest(c);
    w.send(c, &request(json!(3), "tools/call", retry(&state, &json!({"1": {"roots": []}}))));
    w.done(job, "ok");
    assert_eq!(w.next(c)["id"], 3);
}

/// MOD-07, TSK-02: a question inside an answer cannot be a task at the client: there is no message
/// it could say one with. Nothing is sent, and the tool may ask again without.
#[test]
fn question_by_answer_is_no_task() {
    let mut w = World::new();
    let c = connect(&mut w);
    let job = call(&mut w, c, &json!(1), "build");
    let (plain, task) = (AskId::new(2), AskId::new(1));
    let question = |task| OutgoingRequest {
        key: None,
        method: "roots/list".into(),
        params: None,
        answer_timeout: None,
        task,
    };
    w.feed(Input::Asked(job, task, None, question(Some(AskTask { ttl: None }))));
    w.feed(Input::Turn);
    assert_eq!(told(&w), [(Caller::Job { job, ask: task }, "NoTasks".to_owned())]);
    w.silent(c);
    w.feed(Input::Asked(job, plain, None, question(None)));
    w.feed(Input::Turn);
    let (requests, _) = asked(&mut w, c, &json!(1));
    assert_eq!(requests, json!({"2": {"method": "roots/list"}}));
}

fn named(key: &str) -> OutgoingRequest {
    OutgoingRequest {
        key: Some(key.into()),
        method: "roots/list".into(),
        params: None,
        answer_timeout: None,
        task: None,
    }
}

/// MOD-07: a question has the key that its tool gave it; a number and the second of two equal keys are
/// replaced by the number of the question.
#[test]
fn question_has_the_key_of_its_tool() {
    let mut w = World::new();
    let c = connect(&mut w);
    let job = call(&mut w, c, &json!(1), "build");
    for (number, key) in [(1, "where"), (2, "where"), (3, "1")] {
        w.feed(Input::Asked(job, AskId::new(number), None, named(key)));
    }
    w.feed(Input::Turn);
    let (requests, state) = asked(&mut w, c, &json!(1));
    let keys: Vec<&String> = requests.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["2", "3", "where"]);
    let responses = json!({"where": {"roots": [1]}, "3": {"roots": [3]}, "1": {"roots": []}});
    w.send(c, &request(json!(2), "tools/call", retry(&state, &responses)));
    let answer =
        |number, text: &str| (Caller::Job { job, ask: AskId::new(number) }, text.to_owned());
    let mut answers = told(&w);
    answers.sort();
    assert_eq!(answers, [answer(1, r#"{"roots":[1]}"#), answer(3, r#"{"roots":[3]}"#)]);
}

/// MOD-07: a response that comes with the call answers the question with its key, and no other.
#[test]
fn response_that_comes_with_the_call_is_used() {
    let mut w = World::new();
    let c = connect(&mut w);
    let responses = json!({"where": {"roots": []}, "1": {"roots": [1]}, "other": {}});
    let params = json!({"name": "build", "inputResponses": responses});
    w.send(c, &request(json!(1), "tools/call", able(&everything(), params)));
    let job = w.last_started();
    w.feed(Input::Asked(job, AskId::new(1), None, named("1")));
    w.feed(Input::Asked(job, AskId::new(2), None, named("where")));
    w.feed(Input::Turn);
    let caller = Caller::Job { job, ask: AskId::new(2) };
    assert_eq!(told(&w), [(caller, r#"{"roots":[]}"#.to_owned())]);
    let (requests, _) = asked(&mut w, c, &json!(1));
    assert_eq!(requests.as_object().map(|all| all.len()), Some(1), "{requests}");
}
