//! Requests of jobs and the host to peers: delivery, answers, cancelling, timeouts.

use std::time::Duration;

use ceased_core::event::AfterInput;
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId, JobId};
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::outgoing::call::{AnswerTimeout, Caller, OutgoingRequest, Refusal};
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{REVISIONS, Rigged, World};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use uuid::Uuid;

const SECOND: Duration = Duration::from_secs(1);
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// A peer that can be asked for everything.
fn open(world: &mut World) -> ConnId {
    let capabilities = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    world.open_with(Identity::User(1000), "2025-11-25", capabilities)
}

fn elicitation(message: &str) -> OutgoingRequest {
    let params = json!({
        "message": message, "requestedSchema": {"type": "object", "properties": {}},
    });
    OutgoingRequest {
        key: None,
        method: "elicitation/create".into(),
        params: Some(to_raw_value(&params).expect("params are JSON")),
        answer_timeout: None,
        task: None,
    }
}

fn asks(world: &mut World, job: JobId, number: u64, request: OutgoingRequest) -> Caller {
    let ask = AskId::new(number);
    world.feed(Input::Asked(job, ask, None, request));
    Caller::Job { job, ask }
}

fn answers(world: &mut World, conn: ConnId, id: &Value, action: &str) {
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"action": action}});
    world.send(conn, &answer.to_string());
}

/// TSK-29, CAN-01: a plain call's question goes to the requestor of the call, and its answer back.
#[test]
fn plain_call_asks_its_own_peer() {
    let mut w = World::new();
    let (c, other) = (open(&mut w), open(&mut w));
    let job = w.call(c, json!("x"), "build");
    let caller = asks(&mut w, job, 1, elicitation("really?"));
    let question = w.next(c);
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "really?");
    assert!(question["params"].get("_meta").is_none(), "no task, no related task");
    assert_eq!(question["id"], 1, "ids of ours are numbers from 1");
    w.silent(other);
    answers(&mut w, c, &question["id"], "accept");
    assert_eq!(w.told_words(), [(caller, r#"result {"action":"accept"}"#.to_owned())]);
    // CAN-10: a second answer to the same question is late.
    answers(&mut w, c, &question["id"], "decline");
    assert_eq!((w.told.len(), w.counters().late_responses), (1, 1));
    answers(&mut w, c, &json!(99), "accept");
    answers(&mut w, c, &json!("01"), "accept");
    assert_eq!((w.told.len(), w.counters().unasked_responses), (1, 2));
    w.done(job, "built");
    assert_eq!(w.next(c)["id"], "x");
}

/// A call that waits for an answer occupies no place of a running job; the waiting ones of an
/// identity, and the time, have bounds, and a late question is withdrawn.
#[test]
fn unanswered_questions_hold_up_no_other_call() {
    let limits = Limits {
        running_max: 3,
        running_per_identity_max: 2,
        parked_max: 4,
        parked_for: 20 * SECOND,
        ..Limits::default()
    };
    let mut w = World::with(limits, TaskPolicy::default());
    let c = open(&mut w);
    let mut waiting = Vec::new();
    for number in 0..4 {
        let job = w.call(c, json!(format!("q{number}")), "build");
        waiting.push(asks(&mut w, job, 1, elicitation("really?")));
        assert_eq!(w.next(c)["method"], "elicitation/create");
    }
    let one_more = w.call(c, json!("more"), "build");
    let refused = asks(&mut w, one_more, 1, elicitation("really?"));
    assert_eq!(w.told_words(), [(refused, "refused TooMany".to_owned())]);
    // A second question of a job that waits already is none more.
    let Caller::Job { job: first, .. } = waiting[0] else { panic!("a job asks") };
    asks(&mut w, first, 2, elicitation("sure?"));
    let second = w.next(c)["id"].clone();
    let other = w.call(c, json!("other"), "build");
    w.done(other, "ok");
    assert_eq!(w.next(c)["id"], "other");
    w.send(c, r#"{"jsonrpc":"2.0","id":"s","method":"ceased/status","params":{}}"#);
    let status = w.next(c)["result"].clone();
    assert_eq!((&status["running"], &status["inputRequired"]), (&json!(1), &json!(4)), "{status}");
    assert_eq!(status["jobs"][0]["state"], "input_required");
    answers(&mut w, c, &second, "accept");
    w.told.clear();
    w.advance(20 * SECOND);
    let withdrawn = w.rest(c);
    assert_eq!(withdrawn.len(), 4, "{withdrawn:?}");
    assert!(withdrawn.iter().all(|it| it["method"] == "notifications/cancelled"));
    let timed_out: Vec<_> = waiting.iter().map(|it| (*it, "timed out".to_owned())).collect();
    assert_eq!(w.told_words(), timed_out);
    // They run now, beyond the share, and other calls wait for them.
    w.send(c, r#"{"jsonrpc":"2.0","id":"s","method":"ceased/status","params":{}}"#);
    let status = w.next(c)["result"].clone();
    assert_eq!((&status["running"], &status["inputRequired"]), (&json!(5), &json!(0)), "{status}");
}

/// An undeclared capability of a peer is not used, and nothing goes on the wire.
#[test]
fn nothing_undeclared_is_asked() {
    let mut w = World::new();
    let c = w.open_with(Identity::User(1), "2025-11-25", json!({"elicitation": {"url": {}}}));
    let job = w.call(c, json!(1), "build");
    let caller = asks(&mut w, job, 1, elicitation("really?"));
    assert_eq!(w.told_words(), [(caller, "refused NotDeclared".to_owned())]);
    w.silent(c);
    let caller = asks(&mut w, JobId::new(77), 1, elicitation("who?"));
    assert_eq!(w.told_words()[1], (caller, "refused NoJob".to_owned()));
}

/// A request that the session's revision lacks is not sent, though it was declared.
#[test]
fn elicitation_where_there_is_any() {
    for revision in REVISIONS {
        let mut w = World::new();
        let c = w.open_with(Identity::User(1), revision, json!({"elicitation": {}, "roots": {}}));
        let job = w.call(c, json!(1), "build");
        let caller = asks(&mut w, job, 1, elicitation("really?"));
        if revision >= "2025-06-18" {
            assert_eq!(w.next(c)["method"], "elicitation/create");
        } else {
            assert_eq!(w.told_words(), [(caller, "refused NotDeclared".to_owned())]);
            asks(
                &mut w,
                job,
                2,
                OutgoingRequest { method: "roots/list".into(), ..elicitation("") },
            );
            assert_eq!(w.next(c)["method"], "roots/list");
        }
        w.silent(c);
    }
}

/// CAN-06: cancelling a call cancels its requests, once, with the ids of that direction.
#[test]
fn cancelling_a_call_cancels_its_questions() {
    let mut w = World::new();
    let c = open(&mut w);
    // CAN-02: the request of the peer and ours have the same id, and are two.
    let job = w.call(c, json!(1), "build");
    let caller = asks(&mut w, job, 1, elicitation("one"));
    let question = w.next(c);
    assert_eq!(question["id"], 1);
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let cancel = w.next(c);
    assert_eq!(cancel["method"], "notifications/cancelled");
    assert_eq!(cancel["params"]["requestId"], 1);
    assert_eq!(w.told_words(), [(caller, "cancelled".to_owned())]);
    // CAN-10
    answers(&mut w, c, &json!(1), "accept");
    assert_eq!((w.told.len(), w.counters().late_responses), (1, 1));
    // A job that is being stopped asks nothing any more.
    let late = asks(&mut w, job, 2, elicitation("two"));
    assert_eq!(w.told_words()[1], (late, "refused NoJob".to_owned()));
    w.stopped(job);
    w.silent(c);
}

/// A question outlives neither its job nor its connection.
#[test]
fn questions_end_with_their_job_and_their_connection() {
    let mut w = World::new();
    let (c, d) = (open(&mut w), open(&mut w));
    let job = w.call(c, json!(1), "build");
    let caller = asks(&mut w, job, 1, elicitation("one"));
    let question = w.next(c);
    w.done(job, "without waiting");
    assert_eq!(w.told_words(), [(caller, "cancelled".to_owned())]);
    assert_eq!(w.next(c)["params"]["requestId"], question["id"]);
    assert_eq!(w.next(c)["result"]["content"][0]["text"], "without waiting");
    let job = w.call(d, json!(1), "build");
    let caller = asks(&mut w, job, 1, elicitation("two"));
    w.lose(d);
    assert_eq!(w.told_words()[1..], [(caller, "cancelled".to_owned())], "told once");
    w.stopped(job);
    assert_eq!((w.sizes().jobs, w.sizes().timers), (0, 0));
}

/// TSK-28: input_required while anything is open, working when all of it has arrived. TSK-29: every
/// question names its task. TSK-30: it is delivered to the peer that waits for the result.
#[test]
fn task_asks_the_peer_that_waits_for_it() {
    let mut w = World::new();
    let c = open(&mut w);
    let (task, job) = w.task(c, "build");
    let first = asks(&mut w, job, 1, elicitation("one"));
    let note = w.next(c);
    assert_eq!(note["method"], "notifications/tasks/status");
    assert_eq!(note["params"]["status"], "input_required");
    w.silent(c);
    let second = asks(&mut w, job, 2, elicitation("two"));
    assert_eq!(w.status(c, &task).unwrap(), "input_required");
    let id = task.clone();
    let wait =
        json!({"jsonrpc": "2.0", "id": "wait", "method": "tasks/result", "params": {"taskId": id}});
    w.send(c, &wait.to_string());
    let (one, two) = (w.next(c), w.next(c));
    assert_eq!(
        (&one["params"]["message"], &two["params"]["message"]),
        (&json!("one"), &json!("two"))
    );
    for question in [&one, &two] {
        assert_eq!(question["params"]["_meta"][RELATED_TASK]["taskId"], task);
    }
    answers(&mut w, c, &two["id"], "decline");
    assert_eq!(w.status(c, &task).unwrap(), "input_required", "one is still open");
    // An answer with related-task _meta is as good as one without.
    let answer = json!({"jsonrpc": "2.0", "id": one["id"],
        "result": {"action": "accept", "_meta": {RELATED_TASK: {"taskId": task}}}});
    w.send(c, &answer.to_string());
    assert_eq!(w.next(c)["params"]["status"], "working");
    assert_eq!(
        w.told_words().iter().map(|(caller, _)| *caller).collect::<Vec<_>>(),
        [second, first]
    );
    w.done(job, "done");
    assert_eq!(w.next(c)["params"]["status"], "completed");
    assert_eq!(w.next(c)["id"], "wait");
}

/// TSK-30: the creating connection is gone; another of the same identity waits, is asked, is lost,
/// and the next one is asked again. A peer that cannot answer is passed over.
#[test]
fn question_is_offered_again() {
    let mut w = World::new();
    let c = open(&mut w);
    let (task, job) = w.task(c, "build");
    w.lose(c);
    let caller = asks(&mut w, job, 1, elicitation("still there?"));
    let wait =
        json!({"jsonrpc": "2.0", "id": 5, "method": "tasks/result", "params": {"taskId": task}});
    let mute = w.open();
    w.send(mute, &wait.to_string());
    w.silent(mute);
    let second = open(&mut w);
    w.send(second, &wait.to_string());
    assert_eq!(w.next(second)["params"]["message"], "still there?");
    let third = open(&mut w);
    w.send(third, &wait.to_string());
    w.silent(third);
    w.lose(second);
    let question = w.next(third);
    assert_eq!(question["params"]["message"], "still there?");
    answers(&mut w, third, &question["id"], "accept");
    assert_eq!(w.told_words(), [(caller, r#"result {"action":"accept"}"#.to_owned())]);
    assert_eq!(w.status(third, &task).unwrap(), "working");
    w.done(job, "done");
    assert_eq!((w.rest(third).len(), w.rest(mute).len()), (1, 1));
}

/// TSK-26, TSK-28: cancelling a task cancels its questions, also undelivered ones.
#[test]
fn cancelling_a_task_cancels_its_questions() {
    let mut w = World::new();
    let c = open(&mut w);
    let (task, job) = w.task(c, "build");
    let sent = asks(&mut w, job, 1, elicitation("one"));
    let wait =
        json!({"jsonrpc": "2.0", "id": 5, "method": "tasks/result", "params": {"taskId": task}});
    w.send(c, &wait.to_string());
    w.rest(c);
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#);
    let unsent = asks(&mut w, job, 2, elicitation("two"));
    let request =
        json!({"jsonrpc": "2.0", "id": 6, "method": "tasks/cancel", "params": {"taskId": task}});
    w.send(c, &request.to_string());
    assert_eq!(w.told_words(), [(sent, "cancelled".to_owned()), (unsent, "cancelled".to_owned())]);
    let said = w.rest(c);
    let cancels = said.iter().filter(|line| line["method"] == "notifications/cancelled").count();
    assert_eq!(cancels, 1, "only what was asked is taken back: {said:?}");
    w.stopped(job);
    assert_eq!(w.status(c, &task).unwrap(), "cancelled");
}

/// The answer timeout is moved by progress if wanted, never past its cap; then the peer is told.
#[test]
fn answer_is_waited_for_with_a_bound() {
    let mut w = World::new();
    let c = open(&mut w);
    let answer_timeout =
        AnswerTimeout { timeout: 2 * SECOND, extend_on_progress: true, cap: 5 * SECOND };
    let ask = AskId::new(9);
    let request = OutgoingRequest { answer_timeout: Some(answer_timeout), ..elicitation("slow?") };
    w.feed(Input::Call(c, ask, request));
    let question = w.next(c);
    assert_eq!(question["params"]["_meta"]["progressToken"], question["id"]);
    for progress in 1..=3 {
        w.advance(3 * SECOND / 2);
        let note = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": question["id"], "progress": progress}});
        w.send(c, &note.to_string());
    }
    assert_eq!((w.told.len(), w.told_progress.len()), (0, 3), "4.5 s, kept alive by progress");
    w.advance(SECOND / 2);
    assert_eq!(w.told_words(), [(Caller::Host(ask), "timed out".to_owned())], "5 s are the end");
    let cancel = w.next(c);
    assert_eq!(cancel["params"], json!({"requestId": question["id"], "reason": "timed out"}));
    assert_eq!(w.sizes().timers, 0);
}

/// CAN-02, CAN-03: only an open request is cancelled, once; any other cancel is a typed refusal
/// and nothing on the wire.
#[test]
fn only_what_is_in_progress_is_cancelled() {
    let mut w = World::new();
    let c = open(&mut w);
    let caller = Caller::Host(AskId::new(1));
    w.feed(Input::CancelCall(caller, None));
    assert_eq!(w.refused_cancels, [(caller, Refusal::NotInProgress)], "never made");
    w.feed(Input::Call(c, AskId::new(1), elicitation("a")));
    let question = w.next(c);
    w.feed(Input::CancelCall(caller, Some("no\nlonger".into())));
    let cancel = w.next(c);
    assert_eq!(cancel["params"], json!({"requestId": question["id"], "reason": "no longer"}));
    assert_eq!(w.told_words(), [(caller, "cancelled".to_owned())]);
    w.feed(Input::CancelCall(caller, None));
    assert_eq!(w.refused_cancels.len(), 2, "cancelled already");
    w.feed(Input::Call(c, AskId::new(2), elicitation("b")));
    let question = w.next(c);
    answers(&mut w, c, &question["id"], "accept");
    w.feed(Input::CancelCall(Caller::Host(AskId::new(2)), None));
    assert_eq!(w.refused_cancels.len(), 3, "answered already");
    w.silent(c);
}

/// A call on a connection that cannot take it is refused, one that is lost is told so.
#[test]
fn calls_need_a_connection() {
    let mut w = World::new();
    let fresh = w.connect(Identity::User(1));
    w.feed(Input::Call(fresh, AskId::new(1), elicitation("a")));
    w.feed(Input::Call(ConnId::new(999), AskId::new(2), elicitation("b")));
    let c = open(&mut w);
    w.feed(Input::Call(c, AskId::new(3), elicitation("c")));
    w.lose(c);
    let words: Vec<String> = w.told_words().into_iter().map(|(_, word)| word).collect();
    assert_eq!(words, ["refused NotInitialized", "refused NoConnection", "lost"]);
}

/// A peer that has closed its side answers nothing: the asker is told at once, while the peer's own
/// call is still answered; a task's question goes to the next waiting peer (TSK-30).
#[test]
fn calls_end_with_the_side_that_answers_them() {
    let mut w = World::new();
    let (c, other) = (open(&mut w), open(&mut w));
    let (task, task_job) = w.task(other, "build");
    let wait =
        json!({"jsonrpc": "2.0", "id": 5, "method": "tasks/result", "params": {"taskId": task}});
    w.send(c, &wait.to_string());
    let of_task = asks(&mut w, task_job, 1, elicitation("task?"));
    assert_eq!(w.next(c)["params"]["message"], "task?");
    w.send(other, &wait.to_string());
    w.rest(other);
    let job = w.call(c, json!("x"), "build");
    let of_job = asks(&mut w, job, 1, elicitation("job?"));
    let timers = w.sizes().timers;
    let answer_timeout = AnswerTimeout { timeout: SECOND, extend_on_progress: false, cap: SECOND };
    let host = OutgoingRequest { answer_timeout: Some(answer_timeout), ..elicitation("host?") };
    w.feed(Input::Call(c, AskId::new(7), host));
    assert_eq!((w.rest(c).len(), w.sizes().timers), (2, timers + 1));
    w.feed(Input::Finished(c, AfterInput::Answer));
    let lost = "lost".to_owned();
    let host = Caller::Host(AskId::new(7));
    let mut heard = w.told_words();
    heard.sort_by_key(|(caller, _)| *caller == host);
    assert_eq!(heard, [(of_job, lost.clone()), (host, lost)]);
    // The question of the plain call had a timer, too.
    assert_eq!(w.sizes().timers, timers - 1, "nothing is waited for any more");
    // The next waiting peer is asked, and only that one.
    let question = w.next(other);
    assert_eq!(question["params"]["message"], "task?");
    answers(&mut w, other, &question["id"], "accept");
    assert_eq!(w.told_words()[2], (of_task, r#"result {"action":"accept"}"#.to_owned()));
    // Nothing was taken back on the half that still listens, and its request is answered.
    w.silent(c);
    w.done(job, "built");
    assert_eq!(w.next(c)["result"]["content"][0]["text"], "built");
    w.done(task_job, "done");
    assert_eq!(w.next(c)["id"], 5);
    assert!(!w.is_open(c), "everything is answered");
}

/// TSK-08, TSK-28: an id may be given again while the job of an expired task is still stopping;
/// questions of the new task do not reach the old job.
#[test]
fn old_job_of_an_id_given_again_asks_nothing() {
    let [key, id] = [9, 1].map(|n| Uuid::from_u128(0x4000_8000_0000_0000_0000 + n));
    let policy = TaskPolicy { on_ttl: OnTtl::Stop, ..TaskPolicy::default() };
    let settings = tools::settings(Limits::default(), policy);
    let mut w = World::made_of(settings, Rigged::new([key, id, id]));
    let c = open(&mut w);
    let (first, old) = w.task_with(c, "build", json!({"ttl": 1000}));
    w.advance(SECOND + SECOND / 10);
    let (second, new) = w.task(c, "build");
    assert_eq!(first, second);
    asks(&mut w, new, 1, elicitation("really?"));
    assert_eq!(w.status(c, &second).as_deref(), Some("input_required"));
    w.stopped(old);
    assert_eq!(w.status(c, &second).as_deref(), Some("input_required"));
    w.done(new, "built");
    assert_eq!(w.status(c, &second).as_deref(), Some("completed"));
}
