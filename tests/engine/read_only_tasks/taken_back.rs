//! Calls that are taken back, and jobs that are stopped, before their task may be known.

use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::limits::Limits;
use ceased_core::reason::StopReason;
use ceased_simulator::modern::{cancel, request};
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, result_of};
use serde_json::json;

use super::{ME, create, create_modern, handle, world, writes};

/// MOD-04, CAN-06: a call that is taken back before it has a task gets none, at whichever moment,
/// and its work is stopped in the name of its requestor.
#[test]
fn call_that_is_taken_back_gets_no_task() {
    // In the same turn as the call: nothing of it has begun.
    let (mut w, mut store) = world(Limits::default());
    let c = w.connect(ME);
    w.frame(c, &create_modern("one"));
    w.send(c, &cancel(json!("one")));
    assert!(w.started.is_empty() && writes(&mut w, &mut store).is_empty());
    w.silent(c);
    assert_eq!((w.sizes().jobs, w.sizes().tasks), (0, 0));

    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Begun,
        Ended,
        Written,
        WrittenWhole,
    }
    for at in [At::Begun, At::Ended, At::Written, At::WrittenWhole] {
        let (mut w, mut store) = world(Limits::default());
        let c = w.connect(ME);
        w.send(c, &create_modern("one"));
        let job = w.last_started();
        match at {
            At::Begun => {}
            At::Ended => {
                let result = result_of(&json!({"content": []}));
                w.running.remove(&job);
                w.feed(Input::Done(job, result));
            }
            At::Written => w.feed(Input::Turn),
            At::WrittenWhole => w.done(job, "seen"),
        }
        let written = matches!(at, At::Written | At::WrittenWhole);
        assert_eq!(writes(&mut w, &mut store).len(), usize::from(written));
        w.notes.clear();
        w.send(c, &cancel(json!("one")));
        if matches!(at, At::Begun | At::Written) {
            assert_eq!(w.steps(job).len(), 1, "it is told to stop");
            w.stopped(job);
            let receipt = w.notes.iter().find_map(|note| {
                if let AuditEvent::Ceased(receipt) = note { Some(receipt) } else { None }
            });
            let receipt = receipt.expect("it has a receipt (CAN-12)");
            assert_eq!(receipt.why, StopReason::Requested);
            assert_eq!(receipt.cancel.as_ref().map(|cancel| &cancel.by), Some(&ME));
        }
        w.silent(c);
        let deletes =
            writes(&mut w, &mut store).iter().filter(|(kind, _)| *kind == "delete").count();
        assert_eq!(deletes, usize::from(written), "what was handed over is taken back");
        store.commit_all(&mut w);
        w.silent(c);
        assert!(store.records.is_empty());
        assert_eq!((w.sizes().jobs, w.sizes().tasks), (0, 0));
    }
}

/// CAN-05: in a session the request that creates a task is not cancelled, and answered.
#[test]
fn in_a_session_the_handle_comes() {
    let (mut w, mut store) = world(Limits::default());
    let c = w.open_as(ME, NEWEST);
    w.send(c, &create("one"));
    w.send(c, &cancel(json!("one")));
    let job = w.last_started();
    assert_eq!(w.steps(job), []);
    store.commit_all(&mut w);
    let (task, _) = handle(&w.next(c));
    w.send(c, &request(json!("cancel"), "tasks/cancel", json!({"taskId": task})));
    assert_eq!(w.steps(job).len(), 1);
    store.commit_all(&mut w);
    assert_eq!(
        w.rest(c).last().map(|answer| answer["result"]["status"].clone()),
        Some(json!("cancelled"))
    );
}

/// DUR-01: an operator, or the owner, may stop such a job by its number; its creator is given the
/// handle of a task, and told that it was cancelled.
#[test]
fn job_is_stopped_by_its_number() {
    for written in [false, true] {
        let (mut w, mut store) = world(Limits::default());
        let c = w.open_as(ME, NEWEST);
        let other = w.open_as(ME, NEWEST);
        w.send(c, &create("one"));
        let job = w.last_started();
        if written {
            w.feed(Input::Turn);
        }
        w.result(other, "ceased/cancel", json!({"job": job.get()}));
        assert_eq!(w.steps(job).len(), 1);
        w.stopped(job);
        w.silent(c);
        store.commit_all(&mut w);
        let (task, status) = handle(&w.next(c));
        assert_eq!(status, "working");
        assert_eq!(w.next(c)["params"]["status"], "cancelled");
        w.silent(c);
        assert_eq!(w.refusal(c, "tasks/result", json!({"taskId": task})).0, -31001);
        w.advance(Duration::from_secs(1));
    }
}
