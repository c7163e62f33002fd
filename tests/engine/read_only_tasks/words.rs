//! Messages and questions of a job before its task is visible.

use ceased_core::limits::Limits;
use ceased_core::log_level::LogLevel;
use ceased_simulator::modern::{able, request};
use ceased_simulator::trace::Input;
use ceased_simulator::world::NEWEST;
use serde_json::{Value, json};

use super::{ME, create, handle, world};

/// TSK-07, TSK-33: messages of a job before its task is visible come after the handle, in order
/// and before the end; no more of them are kept than have room.
#[test]
fn what_is_said_early_is_told_after_the_handle() {
    for ends in [false, true] {
        let (mut w, mut store) = world(Limits::default());
        let c = w.open_as(ME, NEWEST);
        w.send(c, &create("one"));
        let job = w.last_started();
        w.progress(job, 1.0);
        w.log(job, LogLevel::Error, json!("a"));
        w.feed(Input::Turn);
        w.progress(job, 2.0);
        if ends {
            w.done(job, "seen");
        }
        w.silent(c);
        store.commit_all(&mut w);
        let (task, _) = handle(&w.next(c));
        let mut said = w.rest(c);
        for message in &said {
            let related = &message["params"]["_meta"]["io.modelcontextprotocol/related-task"];
            let about = related.get("taskId").or_else(|| message["params"].get("taskId"));
            assert_eq!(about, Some(&json!(task)), "{message} (TSK-29)");
        }
        if ends {
            assert_eq!(said.pop().expect("its end")["params"]["status"], "completed");
        }
        let word = |message: &Value| match message["method"].as_str() {
            Some("notifications/progress") => message["params"]["progress"].clone(),
            _ => message["params"]["data"].clone(),
        };
        assert_eq!(said.iter().map(word).collect::<Vec<_>>(), [json!(1), json!("a"), json!(2)]);
        if !ends {
            w.progress(job, 3.0);
            assert_eq!(w.next(c)["params"]["progress"], 3);
        }
    }
    let (mut w, mut store) = world(Limits::default());
    let c = w.open_as(ME, NEWEST);
    w.send(c, &create("one"));
    let job = w.last_started();
    for _ in 0..1000 {
        w.log(job, LogLevel::Error, json!("x".repeat(1000)));
    }
    store.commit_all(&mut w);
    w.feed(Input::Turn);
    store.commit_all(&mut w);
    handle(&w.next(c));
    let kept = w.rest(c).len();
    assert!((5..20).contains(&kept), "{kept} messages are kept");
}

/// TSK-09, TSK-28, TSK-30: early questions of a job are sent once its task is there, to the peer
/// that waits for the result, and the task begins as working.
#[test]
fn early_questions_go_to_the_peer_that_waits_for_the_result() {
    let (mut w, mut store) = world(Limits::default());
    let c = w.open_with(ME, NEWEST, json!({"elicitation": {}}));
    w.send(c, &create("one"));
    let job = w.last_started();
    w.asked(job, 1, "elicitation/create");
    w.feed(Input::Turn);
    w.silent(c);
    store.commit_all(&mut w);
    let (task, status) = handle(&w.next(c));
    assert_eq!(status, "working");
    assert_eq!(w.next(c)["params"]["status"], "input_required");
    w.silent(c);
    w.send(c, &request(json!("result"), "tasks/result", json!({"taskId": task})));
    let question = w.next(c);
    assert_eq!(question["method"], "elicitation/create");
    w.answer(c, &question["id"], json!({"action": "accept", "content": {}}));
    assert_eq!(w.next(c)["params"]["status"], "working");
    w.done(job, "seen");
    store.commit_all(&mut w);
    let said = w.rest(c);
    assert!(
        said.iter().any(|message| message["id"] == "result" && message.get("result").is_some())
    );
}

/// MOD-07: in the extension it is part of the task.
#[test]
fn early_questions_are_part_of_the_task() {
    let (mut w, mut store) = world(Limits::default());
    let c = w.connect(ME);
    let both = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}});
    let call = able(&both, json!({"name": "look", "arguments": {}}));
    w.send(c, &request(json!("one"), "tools/call", call));
    w.asked(w.last_started(), 1, "elicitation/create");
    w.feed(Input::Turn);
    store.commit_all(&mut w);
    let handle = w.next(c);
    assert_eq!(handle["result"]["status"], "working");
    let get = able(&both, json!({"taskId": handle["result"]["taskId"]}));
    w.send(c, &request(json!("get"), "tasks/get", get));
    let got = w.next(c);
    assert_eq!(got["result"]["status"], "input_required");
    assert_eq!(got["result"]["inputRequests"]["1"]["method"], "elicitation/create");
}
