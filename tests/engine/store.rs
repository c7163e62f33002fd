//! Effects of a full or slow store on requestors (DUR-01).

use ceased_core::identity::Identity;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::tasks::durable::{RecordedOutcome, Unstored};
use ceased_simulator::modern::{cancel, request, tasks};
use ceased_simulator::store::Store;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, Rigged, World};
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

const ME: Identity = Identity::User(1000);
const RETRY: Duration = Duration::from_secs(2);

fn durable() -> (World, Store) {
    let mut store = Store::default();
    let policy = TaskPolicy { durable: true, store_retry: RETRY, ..TaskPolicy::default() };
    let world = store.world(&tools::settings(Limits::default(), policy));
    (world, store)
}

/// DUR-01: while there is no room for new tasks only, an end is handed over at once as ever; when
/// that is not taken either, it is owed.
#[test]
fn what_is_owed_is_taken_where_there_is_no_room_for_more() {
    for is_taken in [true, false] {
        let (mut w, mut store) = durable();
        let c = w.open_as(ME, NEWEST);
        let create = |id: &str| {
            request(json!(id), "tools/call", json!({"name": "sleep", "arguments": {}, "task": {}}))
        };
        w.send(c, &create("early"));
        store.commit_all(&mut w);
        let task = w.next(c)["result"]["task"]["taskId"].as_str().expect("a task").to_owned();
        let job = w.last_started();
        w.send(c, &create("late"));
        store.refuse(&mut w, Unstored::Full, false);
        assert_eq!(w.next(c)["error"]["code"], -31006);
        w.advance(RETRY);
        store.commit(&mut w, 1);
        store.refuse(&mut w, Unstored::Full, false);
        w.done(job, "made");
        store.take(&mut w);
        assert_eq!(store.waiting.len(), 1, "it has to wait for nothing");
        if is_taken {
            store.commit(&mut w, 1);
            w.rest(c);
        } else {
            store.refuse(&mut w, Unstored::Full, false);
            assert_eq!(w.sizes().unpersisted, 1);
            w.advance(RETRY);
        }
        store.commit_all(&mut w);
        assert_eq!(w.status(c, &task).as_deref(), Some("completed"));
    }
}

/// MOD-04: one of two requests for the same task is cancelled: the other is given it.
#[test]
fn creation_goes_on_for_the_other_request() {
    let (mut w, mut store) = durable();
    let (one, other) = (w.connect(ME), w.connect(ME));
    let meta = json!({"ceased/idempotencyKey": "k"});
    let create = tasks(json!({"name": "sleep", "arguments": {}, "_meta": meta}));
    w.send(one, &request(json!("one"), "tools/call", create.clone()));
    w.send(other, &request(json!("other"), "tools/call", create));
    w.send(one, &cancel(json!("one")));
    store.commit_all(&mut w);
    w.silent(one);
    assert_eq!(w.next(other)["result"]["resultType"], "task");
    assert_eq!(w.started.len(), 1);
}

/// TSK-08, TSK-39: the outcome of a task that has expired during its read is sent to no peer, also
/// if another has its id since.
#[test]
fn outcome_read_too_late_is_dropped() {
    let [key, id] = [9, 1].map(|n| Uuid::from_u128(0x4000_8000_0000_0000_0000 + n));
    let policy = TaskPolicy { durable: true, ..TaskPolicy::default() };
    let limits = Limits { resident_result_bytes: 8, ..Limits::default() };
    let (settings, mut store) = (tools::settings(limits, policy), Store::default());
    let mut w = World::made_of(settings, Rigged::new([key, id, id]));
    let mut late = None;
    for (who, said) in [(1, "what ann may know"), (2, "what bob may know")] {
        let c = w.open_as(Identity::User(who), NEWEST);
        let task = json!({"ttl": 1000});
        let params = json!({"name": "sleep", "arguments": {}, "task": task});
        w.send(c, &request(json!(1), "tools/call", params));
        store.commit_all(&mut w);
        assert_eq!(w.next(c)["result"]["task"]["taskId"], id.to_string());
        w.done(w.last_started(), said);
        store.commit_all(&mut w);
        w.rest(c);
        w.send(c, &request(json!(2), "tasks/result", json!({"taskId": id.to_string()})));
        if let Some((load, read)) = late.take() {
            w.feed(Input::Loaded(load, read));
            w.silent(c);
            store.load(&mut w, true);
            assert_eq!(w.next(c)["result"]["content"][0]["text"], said);
        } else {
            let (load, key) = w.loads.remove(0);
            let Some(RecordedOutcome::Here(read)) =
                store.records.get(&key.task).map(|record| record.outcome.clone())
            else {
                panic!("it is on disk");
            };
            late = Some((load, Some(read)));
            w.advance(Duration::from_secs(1));
            store.commit_all(&mut w);
            assert_eq!(w.next(c)["error"]["code"], -31002);
        }
    }
}
