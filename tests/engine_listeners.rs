//! Whom a job asks: whoever wants its outcome and can answer, whoever that is by now.

use std::time::Duration;

use ceased_core::durable::Unstored;
use ceased_core::event::{AfterInput, Identity};
use ceased_core::id::ConnId;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_tests::again::{call, settings};
use ceased_tests::modern::cancel;
use ceased_tests::store::Store;
use ceased_tests::trace::Input;
use ceased_tests::world::{NEWEST, Rigged, World};
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

/// ACP-05, CAN-08: what was asked for a request that is cancelled is withdrawn, and asked of
/// whoever the job goes on for.
#[test]
fn an_heir_is_asked() {
    let mut w = world();
    let (one, other) = (open(&mut w), open(&mut w));
    call(&mut w, one, "a", "work", "k");
    let job = w.last_started();
    let caller = w.asked(job, 1, QUESTION);
    let question = is_asked(&mut w, one);
    call(&mut w, other, "b", "work", "k");
    w.silent(other);
    w.send(one, &cancel(json!("a")));
    is_asked_no_more(&mut w, one, &question);
    let question = is_asked(&mut w, other);
    answers(&mut w, other, &question);
    assert_eq!(w.told_words(), [(caller, ACCEPTED.to_owned())]);
    w.done(job, "for the second");
    assert_eq!(w.next(other)["id"], "b");
    w.silent(one);
}

/// The same when the first is gone, which has lost nothing then; and when it has closed its side
/// and cannot answer any more, but waits for its result.
#[test]
fn whoever_is_left_is_asked() {
    for gone in [true, false] {
        let mut w = world();
        let (one, other) = (open(&mut w), open(&mut w));
        call(&mut w, one, "a", "work", "k");
        let job = w.last_started();
        let caller = w.asked(job, 1, QUESTION);
        is_asked(&mut w, one);
        call(&mut w, other, "b", "work", "k");
        match gone {
            true => w.lose(one),
            false => w.feed(Input::Finished(one, AfterInput::Answer)),
        }
        let question = is_asked(&mut w, other);
        assert_eq!(w.told_words(), []);
        answers(&mut w, other, &question);
        assert_eq!(w.told_words(), [(caller, ACCEPTED.to_owned())]);
        w.done(job, "for both");
        assert_eq!(w.next(other)["id"], "b");
        assert_eq!(w.rest(one).len(), usize::from(!gone));
    }
}

/// An heir that cannot answer is not asked: the job is told so, and the first is asked no more.
#[test]
fn an_heir_that_cannot_answer() {
    let mut w = world();
    let (one, mute) = (open(&mut w), w.open_as(ANN, NEWEST));
    call(&mut w, one, "a", "work", "k");
    let job = w.last_started();
    let caller = w.asked(job, 1, QUESTION);
    let question = is_asked(&mut w, one);
    call(&mut w, mute, "b", "work", "k");
    w.send(one, &cancel(json!("a")));
    is_asked_no_more(&mut w, one, &question);
    w.silent(mute);
    assert_eq!(w.told_words(), [(caller, "refused NotDeclared".to_owned())]);
}

/// Where the first cannot answer, another who wants the same is asked; until that one wants it no
/// more.
#[test]
fn who_asks_for_the_same_can_answer() {
    let mut w = world();
    let (mute, able) = (w.open_as(ANN, NEWEST), open(&mut w));
    call(&mut w, mute, "a", "work", "k");
    let job = w.last_started();
    let early = w.asked(job, 1, QUESTION);
    call(&mut w, able, "b", "work", "k");
    let (answered, withdrawn) = (w.asked(job, 2, QUESTION), w.asked(job, 3, QUESTION));
    let question = is_asked(&mut w, able);
    answers(&mut w, able, &question);
    let question = is_asked(&mut w, able);
    w.send(able, &cancel(json!("b")));
    is_asked_no_more(&mut w, able, &question);
    w.silent(mute);
    let refused = "refused NotDeclared".to_owned();
    let told = [(early, refused.clone()), (answered, ACCEPTED.to_owned()), (withdrawn, refused)];
    assert_eq!(w.told_words(), told);
    assert_eq!(w.steps(job), [], "the first still wants it");
}

/// TSK-30: who asked again for what has become a task is asked what that wants to know.
#[test]
fn a_call_that_became_a_task() {
    let mut w = world();
    let (one, other) = (open(&mut w), open(&mut w));
    call(&mut w, one, "a", "detached", "k");
    let job = w.last_started();
    w.lose(one);
    let caller = w.asked(job, 1, QUESTION);
    call(&mut w, other, "b", "detached", "k");
    let question = is_asked(&mut w, other);
    answers(&mut w, other, &question);
    assert_eq!(w.told_words(), [(caller, ACCEPTED.to_owned())]);
}

/// RPC-03, DUR-01: what a task that does not come to be has asked is asked of whoever the job goes
/// on for.
#[test]
fn a_task_that_is_not_stored() {
    let mut store = Store::default();
    let durable = TaskPolicy { durable: true, ..TaskPolicy::default() };
    let mut w = store.world(&settings(Limits::default(), durable));
    let (one, mute, able) = (open(&mut w), w.open_as(ANN, NEWEST), open(&mut w));
    for (key, other) in [("k", able), ("l", mute)] {
        let one = if key == "k" { one } else { open(&mut w) };
        call(&mut w, one, "a", "detached", key);
        let job = w.last_started();
        w.lose(one);
        store.take(&mut w);
        let caller = w.asked(job, 1, QUESTION);
        if other == mute {
            call(&mut w, other, "b", "detached", key);
            store.refuse(&mut w, Unstored::Full, false);
            assert_eq!(w.told_words(), [(caller, "refused NotDeclared".to_owned())]);
            w.silent(mute);
        } else {
            // It is asked while the task may still come to be, and afterwards.
            call(&mut w, other, "b", "detached", key);
            let question = is_asked(&mut w, other);
            store.refuse(&mut w, Unstored::Full, false);
            w.silent(other);
            answers(&mut w, other, &question);
            assert_eq!(w.told_words(), [(caller, ACCEPTED.to_owned())]);
            w.told.clear();
            w.advance(Duration::from_secs(60));
            store.commit_all(&mut w);
        }
    }
}

/// TSK-30, CAN-15: who does not wait for a task any more may still answer what it was asked, until
/// somebody else waits who can.
#[test]
fn who_waits_no_more_may_answer_until_another_does() {
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

/// TSK-30: of two who wait for a task and one who cancels that, the other is asked at once.
#[test]
fn the_other_who_waits_is_asked() {
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
    // What the first says now is too late (CAN-10).
    answers(&mut w, one, &json!(1));
    assert_eq!(w.told_words(), []);
    answers(&mut w, other, &question);
    assert_eq!(w.told_words(), [(caller, ACCEPTED.to_owned())]);
}

/// DUR-01, TSK-29: who asked again for a call that is only becoming a task is asked on behalf of
/// that task once it is one for certain, and of none before.
#[test]
fn a_task_is_named_to_nobody_before_it_is_on_disk() {
    let mut store = Store::default();
    let tasks = TaskPolicy { durable: true, ..TaskPolicy::default() };
    let mut w = store.world(&settings(Limits::default(), tasks));
    let (one, other) = (open(&mut w), open(&mut w));
    call(&mut w, one, "a", "detached", "k");
    w.lose(one);
    call(&mut w, other, "b", "detached", "k");
    let job = w.last_started();
    for number in [1, 2] {
        w.asked(job, number, QUESTION);
        let question = w.next(other);
        assert_eq!(question["method"], QUESTION, "{question}");
        let related = &question["params"]["_meta"]["io.modelcontextprotocol/related-task"];
        assert_eq!(related.is_object(), number == 2, "{question}");
        answers(&mut w, other, &question["id"]);
        store.commit_all(&mut w);
    }
}
