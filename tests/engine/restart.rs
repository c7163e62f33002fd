//! Tasks after a restart: promised tasks are there, interrupted ones say so (DUR-01).

use std::sync::Arc;
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId, TaskId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::rpc::error::ErrorObject;
use ceased_core::settings::Settings;
use ceased_core::tasks::durable::{RecordedOutcome, TaskRecord, Unstored};
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;
use ceased_simulator::modern::{cancel, request, tasks};
use ceased_simulator::store::Store;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, WALL_START, World, raw_json, result_of};
use serde_json::{Value, json};
use uuid::Uuid;

const ME: Identity = Identity::User(1000);
const SECOND: Duration = Duration::from_secs(1);
const INTERRUPTED: &str = "interrupted: the daemon was restarted while it ran";

fn settings(resident_result_bytes: usize) -> Arc<Settings> {
    let limits = Limits { resident_result_bytes, ..Limits::default() };
    let tasks = TaskPolicy {
        durable: true,
        default_ttl: 100 * SECOND,
        page_size: 3,
        ..TaskPolicy::default()
    };
    tools::settings(limits, tasks)
}

fn working(w: &mut World, store: &mut Store, c: ConnId) -> (String, JobId) {
    let params = json!({"name": "sleep", "arguments": {}, "task": {}});
    w.send(c, &request(json!("create"), "tools/call", params));
    store.commit_all(w);
    let id = w.next(c)["result"]["task"]["taskId"].take();
    (id.as_str().expect("a task").to_owned(), w.last_started())
}

fn get(w: &mut World, c: ConnId, task: &str) -> Value {
    w.result(c, "tasks/get", json!({"taskId": task}))
}

/// Every task of a list, page by page.
fn listed(w: &mut World, c: ConnId) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let params = cursor.as_ref().map_or(json!({}), |cursor| json!({"cursor": cursor}));
        let mut page = w.result(c, "tasks/list", params);
        all.append(page["tasks"].as_array_mut().expect("a page has tasks"));
        match page.get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => return all,
        }
    }
}

/// DUR-01, TSK-14, TSK-19, TSK-22, TSK-43: every state a task can be in, before and after.
#[test]
fn every_state_survives() {
    let settings = settings(4096);
    let mut store = Store::default();
    let mut w = store.world(&settings);
    let c = w.open();
    let mut ids = Vec::new();
    for how in 0..7 {
        let (task, job) = working(&mut w, &mut store, c);
        match how {
            0 => w.done(job, "made"),
            1 => w.fail(job, 7, "it broke"),
            2 => w.send(c, &request(json!("cancel"), "tasks/cancel", json!({"taskId": task}))),
            3 => {
                w.end(job, result_of(&json!({"content": [], "isError": true})));
            }
            // Its end was never on disk: no peer was told.
            6 => w.done(job, "lost"),
            _ => {}
        }
        if how < 6 {
            store.commit_all(&mut w);
        }
        w.rest(c);
        ids.push(task);
    }
    let before = listed(&mut w, c);
    let cursor = w.result(c, "tasks/list", json!({}))["nextCursor"].take();
    let outcome = |w: &mut World, c, task: &str| {
        let mut answer = w.ask(c, "tasks/result", json!({"taskId": task}));
        answer.as_object_mut().expect("an answer").remove("id");
        answer
    };
    let outcomes: Vec<Value> = ids[..4].iter().map(|task| outcome(&mut w, c, task)).collect();
    let now = w.now().wall;
    let kept = store.records[&TaskId::new(ids[0].parse().expect("an id"))].created;
    drop(w);

    let mut w = store.empty_world(&settings);
    w.set_wall(now.as_millis() + 1000);
    store.restore(&mut w);
    let c = w.open();
    let (code, _) = w.refusal(c, "tasks/list", json!({"cursor": cursor}));
    assert_eq!(code, -32602, "a cursor from before is recognised (TSK-22)");
    store.commit_all(&mut w);
    let after = listed(&mut w, c);
    assert_eq!(after.len(), 7);
    for (position, (was, is)) in before.iter().zip(&after).enumerate() {
        assert_eq!(was["taskId"], is["taskId"], "the order survives");
        if position < 4 {
            assert_eq!(was, is, "an end survives as it was");
            assert_eq!(outcome(&mut w, c, &ids[position]), outcomes[position]);
            continue;
        }
        assert_eq!((&is["status"], &is["statusMessage"]), (&json!("failed"), &json!(INTERRUPTED)));
        assert_eq!(is["createdAt"], was["createdAt"]);
        let error = outcome(&mut w, c, &ids[position]);
        assert_eq!(error["error"], json!({"code": -31007, "message": INTERRUPTED}));
    }
    // In the other form as well (EXT-02, EXT-03).
    let modern = w.connect(ME);
    let detailed = w.result(modern, "tasks/get", tasks(json!({"taskId": ids[5]})));
    assert_eq!(detailed["status"], "failed");
    assert_eq!(detailed["error"]["code"], -31007);
    // Another's tasks are as unknown as before (TSK-39).
    let other = w.open_as(Identity::User(7), NEWEST);
    assert_eq!(w.status(other, &ids[0]), None);
    assert!(store.records.values().all(|record| record.status.is_terminal()), "written back");
    // New tasks come after it, and a second restart changes nothing more.
    let (late, _) = working(&mut w, &mut store, c);
    assert_eq!(listed(&mut w, c).last().expect("tasks")["taskId"], json!(late));
    drop(w);
    let mut w = store.empty_world(&settings);
    w.set_wall(now.as_millis() + 2000);
    store.restore(&mut w);
    let c = w.open();
    let again = listed(&mut w, c);
    assert_eq!(again[..7], after[..]);
    // TSK-38: nor is it any younger for that.
    w.send(c, &request(json!("s"), "ceased/status", json!({"detail": true})));
    let (survey, ..) = w.surveys.pop().expect("the host is asked");
    w.surveyed(survey, "{}");
    let tasks = w.next(c)["result"]["taskList"].take();
    let task = tasks.as_array().expect("tasks").iter().find(|task| task["task"] == ids[0]);
    let age = Wall::from_millis(now.as_millis() + 2000).since(kept);
    assert_eq!(task.expect("it is kept")["ageMs"], age.as_millis() as u64);
}

/// DUR-01: an interruption is told when it is on disk, like every end; while the store fails it is
/// not, and a restart in between begins anew.
#[test]
fn interruption_is_an_end() {
    let settings = settings(4096);
    let mut store = Store::default();
    let mut w = store.world(&settings);
    let c = w.open();
    let (task, _) = working(&mut w, &mut store, c);
    drop(w);
    let mut w = store.world(&settings);
    let c = w.open();
    w.send(c, &request(json!("held"), "tasks/get", json!({"taskId": task})));
    w.silent(c);
    store.refuse(&mut w, Unstored::Broken, false);
    w.expect_error(c, json!("held"), -31006);
    drop(w);
    let mut w = store.world(&settings);
    let c = w.open();
    w.send(c, &request(json!("held"), "tasks/result", json!({"taskId": task})));
    w.silent(c);
    store.commit_all(&mut w);
    w.expect_error(c, json!("held"), -31007);
}

fn record(number: u128, expires: u64) -> TaskRecord {
    TaskRecord {
        id: TaskId::new(Uuid::from_u128(number)),
        owner: ME,
        position: u64::try_from(number).unwrap_or(u64::MAX),
        tool: "sleep".into(),
        status: Status::Completed,
        status_message: None,
        created: Wall::from_millis(WALL_START),
        updated: Wall::from_millis(WALL_START),
        ttl: 100 * SECOND,
        expires: Wall::from_millis(expires),
        outcome: RecordedOutcome::Here(Ok(raw_json(r#"{"content":[]}"#).into())),
        asks: None,
        work: None,
    }
}

/// DUR-01, TSK-35: the time to live goes on by the wall clock while no daemon ran, after any change
/// of that clock; a task that expired meanwhile is not there.
#[test]
fn time_goes_on_while_no_daemon_runs() {
    let at = |seconds: i64| WALL_START.saturating_add_signed(seconds * 1000);
    for (wall, left) in [
        (at(0), Some(100)),
        (at(1), Some(99)),
        (at(99), Some(1)),
        (at(100), None),
        (at(5000), None),
        (u64::MAX, None),
        // Set back: as long as was promised, and no longer.
        (at(-5000), Some(100)),
        (0, Some(100)),
    ] {
        let mut store = Store::default();
        let kept = record(1, at(100));
        store.records.insert(kept.id, kept.clone());
        let settings = tools::settings(
            Limits::default(),
            TaskPolicy { durable: true, late_result: SECOND, ..TaskPolicy::default() },
        );
        let mut w = store.empty_world(&settings);
        w.set_wall(wall);
        store.restore(&mut w);
        let c = w.open();
        let task = kept.id.to_string();
        match left {
            None => {
                assert_eq!(w.status(c, &task), None);
                assert_eq!((w.sizes().tasks, w.counters().tasks_expired), (0, 1));
                store.commit_all(&mut w);
                assert!(store.records.is_empty(), "and is deleted");
            }
            Some(left) => {
                assert_eq!(get(&mut w, c, &task)["ttl"], 100_000, "as promised (TSK-34)");
                assert_eq!(w.due_in(), Some(left * SECOND));
                w.advance(left * SECOND);
                assert_eq!(w.status(c, &task), None);
            }
        }
    }
}

/// DUR-01: no place that the store may still have a task in is given to another: that of one that
/// expired while no daemon ran, that of one it names twice.
#[test]
fn no_place_is_given_twice() {
    let mut store = Store::default();
    for (number, expires) in [(1, 200_000), (7, 0)] {
        let record = record(number, WALL_START + expires);
        store.records.insert(record.id, record);
    }
    let mut w = store.empty_world(&settings(4096));
    store.restore(&mut w);
    let c = w.open();
    let mut next_place = |w: &mut World| {
        let (task, _) = working(w, &mut store, c);
        store.records[&TaskId::new(task.parse().expect("an id"))].position
    };
    assert_eq!(next_place(&mut w), 8);
    let again = TaskRecord { position: 20, ..record(1, WALL_START + 200_000) };
    w.feed(Input::Restored(again));
    assert_eq!(next_place(&mut w), 21);
}

/// DUR-01: a store that was damaged may say odd things; none of them breaks anything.
#[test]
fn odd_records() {
    let settings = settings(4096);
    let mut w = Store::default().empty_world(&settings);
    let end = WALL_START + 100_000;
    let same_place = TaskRecord { position: 1, ..record(2, end) };
    let far = TaskRecord { position: u64::MAX, ..record(3, end) };
    let no_outcome = TaskRecord { outcome: RecordedOutcome::Open, ..record(4, end) };
    let error = Err(ErrorObject::new(1, "odd"));
    let early = TaskRecord {
        status: Status::Working,
        outcome: RecordedOutcome::Here(error),
        ..record(5, end)
    };
    let changed_early = TaskRecord { updated: Wall::from_millis(0), ..record(6, end) };
    for record in
        [record(1, end), record(1, end), same_place, far, no_outcome, early, changed_early]
    {
        w.feed(Input::Restored(record));
    }
    let mut store = Store::default();
    // They end, and take their own places.
    for number in [4, 5] {
        let record = record(number, end);
        store.records.insert(record.id, record);
    }
    store.commit_all(&mut w);
    let c = w.open();
    let states: Vec<Value> = listed(&mut w, c).iter().map(|task| task["status"].clone()).collect();
    assert_eq!(states.len(), 6);
    assert_eq!(states.iter().filter(|status| *status == "failed").count(), 2);
    working(&mut w, &mut store, c);
}

/// DUR-01: nor do two get the same place when the store names the last one there is.
#[test]
fn last_place() {
    let mut w = Store::default().empty_world(&settings(4096));
    let last = (1 << 62) - 1;
    for (number, position) in [(1, last), (2, last), (3, last), (4, u64::MAX), (5, 1 << 62)] {
        w.feed(Input::Restored(TaskRecord { position, ..record(number, WALL_START + 100_000) }));
    }
    let c = w.open();
    assert_eq!(listed(&mut w, c).len(), 5, "each has a place of its own");
    working(&mut w, &mut Store::default(), c);
    assert_eq!(listed(&mut w, c).len(), 6);
}

/// DUR-01: a large result is held by the store alone, is read when it is asked for, in every form,
/// and counts for its owner as before (TSK-36).
#[test]
fn large_results_are_read_from_the_store() {
    let settings = settings(1000);
    let mut store = Store::default();
    let mut w = store.world(&settings);
    let c = w.open();
    let (task, job) = working(&mut w, &mut store, c);
    let text = "x".repeat(2000);
    w.done(job, &text);
    // A waiter is answered from memory.
    w.send(c, &request(json!("early"), "tasks/result", json!({"taskId": task})));
    store.commit_all(&mut w);
    assert_eq!(w.rest(c).last().expect("an answer")["result"]["content"][0]["text"], json!(text));
    for restarted in [false, true] {
        if restarted {
            w = store.world(&settings);
        }
        let c = w.open();
        let modern = w.connect(ME);
        assert_eq!(get(&mut w, c, &task)["status"], "completed", "that takes no load");
        assert!(w.loads.is_empty());
        w.send(c, &request(json!(1), "tasks/result", json!({"taskId": task})));
        w.send(c, &request(json!(2), "tasks/result", json!({"taskId": task})));
        w.send(modern, &request(json!(3), "tasks/get", tasks(json!({"taskId": task}))));
        w.send(modern, &request(json!(4), "tasks/get", tasks(json!({"taskId": task}))));
        w.send(modern, &cancel(json!(4)));
        w.silent(c);
        w.silent(modern);
        assert_eq!((w.loads.len(), w.sizes().held), (1, 3), "one load for all");
        store.load(&mut w, true);
        for id in [1, 2] {
            let answer = w.next(c);
            assert_eq!(
                (&answer["id"], &answer["result"]["content"][0]["text"]),
                (&json!(id), &json!(text))
            );
        }
        let detailed = w.next(modern);
        assert_eq!(detailed["id"], 3);
        assert_eq!(detailed["result"]["result"]["content"][0]["text"], json!(text));
        w.silent(modern);
        // The store cannot read it: said, and asked for again.
        w.send(c, &request(json!(5), "tasks/result", json!({"taskId": task})));
        store.load(&mut w, false);
        w.expect_error(c, json!(5), -31006);
        w.send(c, &request(json!(6), "tasks/result", json!({"taskId": task})));
        store.load(&mut w, true);
        assert!(w.next(c).get("result").is_some());
        w.send(c, &request(json!(7), "tasks/result", json!({"taskId": task})));
        w.lose(c);
        store.load(&mut w, true);
        assert_eq!(w.sizes().held, 0);
    }
    // It expires while it is being read.
    let c = w.open();
    w.send(c, &request(json!(8), "tasks/result", json!({"taskId": task})));
    w.advance(100 * SECOND);
    w.expect_error(c, json!(8), -31002);
    store.load(&mut w, true);
    w.silent(c);
    assert_eq!(w.sizes().tasks, 0);
}

/// EXT-03: a handle that is given again equals the answer to `tasks/get`, also where only the store
/// knows whether a tool reported an error or there was none.
#[test]
fn handle_given_again_tells_a_tools_own_error_from_a_failure() {
    let policy = TaskPolicy { durable: true, ..TaskPolicy::default() };
    for resident in [100_000, 100] {
        let limits = Limits { resident_result_bytes: resident, ..Limits::default() };
        let settings = ceased_simulator::again::settings(limits, policy);
        let mut store = Store::default();
        let mut w = store.world(&settings);
        let c = w.connect(ME);
        let call = |id: &str, key: &str| {
            let meta = json!({"ceased/idempotencyKey": key});
            let params = tasks(json!({"name": "work", "arguments": {}, "_meta": meta}));
            request(json!(id), "tools/call", params)
        };
        for (key, status) in [("own", "completed"), ("none", "failed")] {
            w.send(c, &call("first", key));
            store.commit_all(&mut w);
            let id = w.next(c)["result"]["taskId"].take();
            let (job, text) = (w.last_started(), "x".repeat(500));
            if status == "failed" {
                w.fail(job, -5, &text);
            } else {
                let said = json!({"content": [{"type": "text", "text": text}], "isError": true});
                w.end(job, result_of(&said));
            }
            store.commit_all(&mut w);
            w.send(c, &request(json!("get"), "tasks/get", tasks(json!({"taskId": id}))));
            store.load(&mut w, true);
            assert_eq!(w.next(c)["result"]["status"], status, "{resident}");
            w.send(c, &call("again", key));
            store.load(&mut w, true);
            let again = w.next(c)["result"].take();
            assert_eq!((&again["taskId"], &again["status"]), (&id, &json!(status)), "{resident}");
        }
    }
}

/// DUR-01, MOD-08: a large result is kept while a slow reader is still to get it.
#[test]
fn slow_reader_is_told_a_large_result() {
    let limits =
        Limits { resident_result_bytes: 100, write_buffer_bytes: 4096, ..Limits::default() };
    let tasks_policy = TaskPolicy { durable: true, ..TaskPolicy::default() };
    let settings = tools::settings(limits, tasks_policy);
    let mut store = Store::default();
    let mut w = store.world(&settings);
    let c = w.open();
    let slow = w.connect(ME);
    let ids: Vec<_> = (0..6).map(|_| working(&mut w, &mut store, c)).collect();
    let names: Vec<&str> = ids.iter().map(|(task, _)| task.as_str()).collect();
    let wanted = json!({"notifications": {"taskIds": names}});
    w.send(slow, &request(json!("l"), "subscriptions/listen", tasks(wanted)));
    w.next(slow);
    w.block(slow);
    for (_, job) in &ids {
        w.done(*job, &"x".repeat(2000));
    }
    store.commit_all(&mut w);
    w.read_again(slow);
    while w.due_in().is_some_and(|due| due < SECOND) {
        w.advance(SECOND);
    }
    let told = w.rest(slow);
    assert_eq!(told.len(), 6);
    for notice in told {
        let text = notice.pointer("/params/result/content/0/text").and_then(Value::as_str);
        assert_eq!(text.map(str::len), Some(2000), "{notice}");
    }
    assert!(w.loads.is_empty());
    // And dropped once every reader has it.
    let task = json!({"taskId": names[0]});
    w.rest(c);
    w.send(c, &request(json!("later"), "tasks/result", task));
    assert_eq!(w.loads.len(), 1);
    store.load(&mut w, true);
    assert_eq!(w.next(c)["id"], "later");
}
