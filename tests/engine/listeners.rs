//! Receivers of a job's questions: the connections that wait for its outcome and can answer.

use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_simulator::again::{call, settings};
use ceased_simulator::modern::cancel;
use ceased_simulator::world::{NEWEST, Rigged, World};
use serde_json::{Value, json};

const ANN: Identity = Identity::User(1);
const QUESTION: &str = "elicitation/create";

fn world() -> World {
    World::made_of(settings(Limits::default(), TaskPolicy::default()), Rigged::default())
}

/// A peer that can be asked.
fn open(w: &mut World) -> ConnId {
    w.open_with(ANN, NEWEST, json!({"elicitation": {}}))
}

/// The peer is asked; the id of the question.
fn is_asked(w: &mut World, conn: ConnId) -> Value {
    let question = w.next(conn);
    assert_eq!(question["method"], QUESTION, "{question}");
    question["id"].clone()
}

/// The question is withdrawn from the peer.
fn is_asked_no_more(w: &mut World, conn: ConnId, question: &Value) {
    let notice = w.next(conn);
    assert_eq!(notice["method"], "notifications/cancelled", "{notice}");
    assert_eq!(notice["params"]["requestId"], *question);
}

fn answers(w: &mut World, conn: ConnId, question: &Value) {
    let answer = json!({"jsonrpc": "2.0", "id": question, "result": {"action": "accept"}});
    w.send(conn, &answer.to_string());
}

fn await_result(w: &mut World, conn: ConnId, id: &str, task: &str) {
    let params = json!({"taskId": task});
    let wait = json!({"jsonrpc": "2.0", "id": id, "method": "tasks/result", "params": params});
    w.send(conn, &wait.to_string());
}

const ACCEPTED: &str = r#"result {"action":"accept"}"#;

/// ACP-05, CAN-08: the question of a call that is cancelled is withdrawn, and no answer follows.
#[test]
fn question_of_a_cancelled_call_is_withdrawn() {
    let mut w = world();
    let one = open(&mut w);
    call(&mut w, one, "a", "work", "k");
    let job = w.last_started();
    w.asked(job, 1, QUESTION);
    let question = is_asked(&mut w, one);
    w.send(one, &cancel(json!("a")));
    is_asked_no_more(&mut w, one, &question);
    w.stopped(job);
    w.silent(one);
}

/// TSK-30: the question of a call that became a task goes to the request that waits for the task.
#[test]
fn question_of_a_call_that_became_a_task_goes_to_the_waiting_peer() {
    let mut w = world();
    let (one, other) = (open(&mut w), open(&mut w));
    call(&mut w, one, "a", "detached", "k");
    let job = w.last_started();
    w.lose(one);
    let caller = w.asked(job, 1, QUESTION);
    let tasks = w.result(other, "tasks/list", json!({}))["tasks"].take();
    await_result(&mut w, other, "r", tasks[0]["taskId"].as_str().expect("an id"));
    let question = is_asked(&mut w, other);
    answers(&mut w, other, &question);
    assert_eq!(w.told_words(), [(caller, ACCEPTED.to_owned())]);
}

/// TSK-30, CAN-15: a peer that waits for a task no longer may still answer its question, until
/// another peer waits that can.
#[test]
fn former_waiter_may_answer_until_another_waits() {
    let mut w = world();
    // Its creator is told how it stands, and waits for nothing.
    let (creator, one, other) = (open(&mut w), open(&mut w), open(&mut w));
    let (task, job) = w.task(creator, "work");
    for number in [1, 2] {
        await_result(&mut w, one, "r", &task);
        let caller = w.asked(job, number, QUESTION);
        let question = is_asked(&mut w, one);
        w.send(one, &cancel(json!("r")));
        w.silent(one);
        let question = if number == 1 {
            question
        } else {
            await_result(&mut w, other, "s", &task);
            is_asked_no_more(&mut w, one, &question);
            is_asked(&mut w, other)
        };
        assert_eq!(w.status(other, &task).as_deref(), Some("input_required"));
        answers(&mut w, if number == 1 { one } else { other }, &question);
        assert_eq!(w.told_words().last(), Some(&(caller, ACCEPTED.to_owned())));
        assert_eq!(w.status(one, &task).as_deref(), Some("working"));
    }
}

/// TSK-30: of two peers that wait for a task one cancels that, and the other is asked at once.
#[test]
fn other_waiting_peer_is_asked() {
    let mut w = world();
    // Its creator is told how it stands, and waits for nothing.
    let (creator, one, other) = (open(&mut w), open(&mut w), open(&mut w));
    let (task, job) = w.task(creator, "work");
    await_result(&mut w, one, "r", &task);
    let caller = w.asked(job, 1, QUESTION);
    let question = is_asked(&mut w, one);
    await_result(&mut w, other, "s", &task);
    w.silent(other);
    w.send(one, &cancel(json!("r")));
    is_asked_no_more(&mut w, one, &question);
    let question = is_asked(&mut w, other);
    // An answer of the first is too late now (CAN-10).
    answers(&mut w, one, &json!(1));
    assert_eq!(w.told_words(), []);
    answers(&mut w, other, &question);
    assert_eq!(w.told_words(), [(caller, ACCEPTED.to_owned())]);
}
