//! Durable tasks: nothing is said before it is on disk, and a store that fails is survived
//! (DUR-01).

use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::event::AfterInput;
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId, TaskId};
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::reason::StopReason;
use ceased_core::settings::Settings;
use ceased_core::tasks::durable::{StoreWrite, Unstored};
use ceased_core::tool::StopStep;
use ceased_simulator::modern::{cancel, request, tasks};
use ceased_simulator::store::Store;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, World};
use serde_json::{Value, json};

const UNAVAILABLE: i64 = -31006;
const RETRY: Duration = Duration::from_secs(3);
const ME: Identity = Identity::User(1000);

fn policy() -> TaskPolicy {
    TaskPolicy { durable: true, store_retry: RETRY, ..TaskPolicy::default() }
}

fn settings(limits: Limits, tasks: TaskPolicy) -> Arc<Settings> {
    tools::settings(limits, tasks)
}

fn durable() -> (World, Store) {
    let mut store = Store::default();
    let world = store.world(&settings(Limits::default(), policy()));
    (world, store)
}

/// In which form tasks are spoken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speech {
    Core,
    Extension,
}

const BOTH: [Speech; 2] = [Speech::Core, Speech::Extension];

impl Speech {
    fn open(self, w: &mut World) -> ConnId {
        match self {
            Self::Core => w.open_as(ME, NEWEST),
            Self::Extension => w.connect(ME),
        }
    }

    fn create(self, id: Value) -> String {
        let params = json!({"name": "sleep", "arguments": {}});
        match self {
            Self::Core => {
                let params = json!({"name": "sleep", "arguments": {}, "task": {}});
                request(id, "tools/call", params)
            }
            Self::Extension => request(id, "tools/call", tasks(params)),
        }
    }

    fn about(self, id: Value, method: &str, task: &str) -> String {
        let params = json!({"taskId": task});
        match self {
            Self::Core => request(id, method, params),
            Self::Extension => request(id, method, tasks(params)),
        }
    }

    /// The id in the answer to a creation.
    fn created(self, answer: &Value) -> String {
        let at = if self == Self::Core { "/result/task/taskId" } else { "/result/taskId" };
        let id = answer.pointer(at).and_then(Value::as_str);
        id.unwrap_or_else(|| panic!("no task: {answer}")).to_owned()
    }

    /// Every method that tells of a task that has ended.
    fn revealing(self) -> &'static [&'static str] {
        match self {
            Self::Core => &["tasks/get", "tasks/result", "tasks/cancel"],
            Self::Extension => &["tasks/get", "tasks/cancel"],
        }
    }
}

/// A task that works and is on disk.
fn working(w: &mut World, store: &mut Store, speech: Speech, c: ConnId) -> (String, JobId) {
    w.send(c, &speech.create(json!("create")));
    store.commit_all(w);
    let task = speech.created(&w.next(c));
    w.silent(c);
    (task, w.last_started())
}

/// How a task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Completed,
    Failed,
    Cancelled,
}

const ENDS: [End; 3] = [End::Completed, End::Failed, End::Cancelled];

fn end(w: &mut World, speech: Speech, how: End, task: &str, job: JobId) {
    match how {
        End::Completed => w.done(job, "here you are"),
        End::Failed => w.fail(job, 7, "it broke"),
        End::Cancelled => {
            let other = speech.open(w);
            w.send(other, &speech.about(json!("end"), "tasks/cancel", task));
            w.silent(other);
            w.stopped(job);
        }
    }
}

/// The world is not held up: another request is answered.
#[track_caller]
fn overtake(w: &mut World, speech: Speech, c: ConnId) {
    let (method, params) = match speech {
        Speech::Core => ("ping", json!({})),
        Speech::Extension => ("tools/list", tasks(json!({}))),
    };
    w.send(c, &request(json!("overtaker"), method, params));
    assert_eq!(w.next(c)["id"], "overtaker");
    w.silent(c);
}

#[track_caller]
fn unavailable(message: &Value, id: &str, why: Unstored) {
    assert_eq!(message["id"], id, "{message}");
    assert_eq!(message["error"]["code"], UNAVAILABLE, "{message}");
    assert_eq!(message["error"]["data"], json!({"store": why.as_str()}));
    let said = message["error"]["message"].as_str().expect("it says why");
    assert!(said.contains("store") && said.contains("again"), "what and what to do: {said}");
}

/// DUR-01: a CreateTaskResult leaves when the task is on disk, and its job starts then.
#[test]
fn handle_is_a_promise() {
    for speech in BOTH {
        let (mut w, mut store) = durable();
        let c = speech.open(&mut w);
        w.send(c, &speech.create(json!("create")));
        w.silent(c);
        assert!(w.started.is_empty(), "nothing is done for a task that is not promised");
        assert_eq!((w.sizes().held, w.counters().tasks_created), (1, 0));
        store.take(&mut w);
        let Some((_, StoreWrite::New(record))) = store.waiting.front() else {
            panic!("the creation is written");
        };
        assert_eq!((record.status.as_str(), &*record.tool), ("working", "sleep"));
        let id = record.id.to_string();
        // No peer may know of it yet, its owner neither.
        let other = speech.open(&mut w);
        w.send(other, &speech.about(json!(1), "tasks/get", &id));
        w.expect_error(other, json!(1), -32602);
        if speech == Speech::Core {
            assert_eq!(w.result(other, "tasks/list", json!({})), json!({"tasks": []}));
        }
        overtake(&mut w, speech, c);
        store.commit_all(&mut w);
        assert_eq!(speech.created(&w.next(c)), id);
        w.silent(c);
        assert_eq!(w.started.len(), 1);
        assert_eq!((w.sizes().held, w.counters().tasks_created), (0, 1));
        w.send(other, &speech.about(json!(2), "tasks/get", &id));
        assert_eq!(w.next(other)["result"]["status"], "working");
    }
}

/// DUR-01: a creation the store does not take is refused, leaves nothing, and while the store
/// fails further ones are refused at once; calls that are no task go on; recovery is automatic.
#[test]
fn store_that_fails_refuses_tasks_and_nothing_else() {
    for (speech, why) in BOTH.into_iter().flat_map(|s| [(s, Unstored::Full), (s, Unstored::Broken)])
    {
        for yet_done in [false, true] {
            let (mut w, mut store) = durable();
            let c = speech.open(&mut w);
            w.send(c, &speech.create(json!("a")));
            store.refuse(&mut w, why, yet_done);
            unavailable(&w.next(c), "a", why);
            assert_eq!(w.sizes().tasks + w.sizes().jobs + w.sizes().held, 0, "nothing is left");
            assert!(w.started.is_empty());
            assert_eq!(w.notes, [AuditEvent::StoreFailed { why }]);
            w.send(c, &speech.create(json!("b")));
            unavailable(&w.next(c), "b", why);
            let echo = json!({"name": "echo"});
            let echo = if speech == Speech::Core { echo } else { tasks(echo) };
            w.send(c, &request(json!("plain"), "tools/call", echo));
            w.done(w.last_started(), "hello");
            assert_eq!(w.next(c)["id"], "plain");
            // Tried every interval, and at no other time.
            for _ in 0..3 {
                assert!(w.stored.is_empty() && store.waiting.is_empty());
                assert_eq!(w.due_in(), Some(RETRY));
                w.advance(RETRY);
                store.refuse(&mut w, why, false);
            }
            // It takes records of existing tasks; that does not imply room for more.
            w.advance(RETRY);
            store.commit(&mut w, 1);
            assert!(store.records.is_empty(), "the write whose fate was unknown was deleted");
            for _ in 0..3 {
                store.refuse(&mut w, why, false);
                assert_eq!((w.sizes().unpersisted, w.due_in()), (0, Some(RETRY)));
                w.send(c, &speech.create(json!("c")));
                unavailable(&w.next(c), "c", why);
                w.advance(RETRY);
            }
            assert_eq!(w.notes, [AuditEvent::StoreFailed { why }]);
            store.commit_all(&mut w);
            assert_eq!(w.notes.last(), Some(&AuditEvent::StoreRecovered));
            w.notes.clear();
            let (task, _) = working(&mut w, &mut store, speech, c);
            assert_eq!(store.records.len(), 1);
            assert!(store.records.keys().all(|id| id.to_string() == task));
        }
    }
}

/// DUR-01: a store that is found to have failed while nothing was written is tried again by itself,
/// and takes no task until it takes a write.
#[test]
fn store_found_to_have_failed_takes_no_task_until_it_recovers() {
    for speech in BOTH {
        let (mut w, mut store) = durable();
        let c = speech.open(&mut w);
        let why = Unstored::Broken;
        // Said twice: the host need not remember found records.
        w.feed(Input::StoreFailed(why));
        w.feed(Input::StoreFailed(why));
        assert_eq!(w.notes, [AuditEvent::StoreFailed { why }]);
        w.send(c, &speech.create(json!("a")));
        unavailable(&w.next(c), "a", why);
        assert!(w.started.is_empty() && store.waiting.is_empty());
        assert_eq!(w.due_in(), Some(RETRY));
        w.advance(RETRY);
        w.feed(Input::StoreFailed(why));
        store.commit_all(&mut w);
        w.advance(RETRY);
        store.commit_all(&mut w);
        assert_eq!(w.notes.last(), Some(&AuditEvent::StoreRecovered));
        working(&mut w, &mut store, speech, c);
    }
}

/// DUR-01: without a store nothing that is said of one matters.
#[test]
fn failed_store_is_ignored_where_there_is_none() {
    let mut w = World::new();
    w.feed(Input::StoreFailed(Unstored::Broken));
    assert!(w.notes.is_empty());
}

/// DUR-01: the table: every method that tells how a task ended, for every end: at once when that
/// is on disk, held until it is, refused while the store does not take it, and right after.
#[test]
fn end_is_told_when_it_is_on_disk() {
    for speech in BOTH {
        for (how, method) in
            ENDS.iter().flat_map(|e| speech.revealing().iter().map(move |m| (e, m)))
        {
            let told = on_disk_before(speech, *how, method);
            let held = held_until_on_disk(speech, *how, method);
            assert_eq!(held, told, "{speech:?} {how:?} {method}");
            for why in [Unstored::Full, Unstored::Broken] {
                let late = after_a_failure(speech, *how, method, why);
                assert_eq!(late, told, "{speech:?} {how:?} {method} {why:?}");
            }
        }
    }
}

fn on_disk_before(speech: Speech, how: End, method: &str) -> Value {
    let (mut w, mut store) = durable();
    let c = speech.open(&mut w);
    let (task, job) = working(&mut w, &mut store, speech, c);
    end(&mut w, speech, how, &task, job);
    store.commit_all(&mut w);
    w.rest(c);
    w.send(c, &speech.about(json!("reveal"), method, &task));
    w.next(c)
}

fn held_until_on_disk(speech: Speech, how: End, method: &str) -> Value {
    let (mut w, mut store) = durable();
    let c = speech.open(&mut w);
    let (task, job) = working(&mut w, &mut store, speech, c);
    end(&mut w, speech, how, &task, job);
    w.send(c, &speech.about(json!("reveal"), method, &task));
    w.silent(c);
    assert_eq!(w.sizes().held, 1 + usize::from(how == End::Cancelled));
    overtake(&mut w, speech, c);
    if speech == Speech::Core {
        let list = w.result(c, "tasks/list", json!({}));
        assert_eq!(list["tasks"][0]["status"], "working", "lists show what is promised");
    }
    store.commit_all(&mut w);
    assert_eq!(w.sizes().held, 0);
    answer_of(&mut w, c)
}

fn after_a_failure(speech: Speech, how: End, method: &str, why: Unstored) -> Value {
    let (mut w, mut store) = durable();
    let c = speech.open(&mut w);
    let (task, job) = working(&mut w, &mut store, speech, c);
    end(&mut w, speech, how, &task, job);
    w.send(c, &speech.about(json!("first"), method, &task));
    store.refuse(&mut w, why, false);
    unavailable(&w.next(c), "first", why);
    w.send(c, &speech.about(json!("second"), method, &task));
    unavailable(&w.next(c), "second", why);
    assert_eq!((w.sizes().unpersisted, w.sizes().held), (1, 0));
    if speech == Speech::Core {
        let list = w.result(c, "tasks/list", json!({}));
        assert_eq!(list["tasks"][0]["status"], "working", "lists show what is promised");
    }
    w.advance(RETRY);
    // On its way again: held, and not refused.
    w.send(c, &speech.about(json!("reveal"), method, &task));
    w.silent(c);
    store.commit_all(&mut w);
    assert_eq!(w.sizes().unpersisted, 0);
    answer_of(&mut w, c)
}

/// The answer, after whatever notifications there are.
fn answer_of(w: &mut World, c: ConnId) -> Value {
    let mut answers = w.rest(c);
    answers.retain(|message| message["id"] == "reveal");
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers.remove(0)
}

/// DUR-01, TSK-18, MOD-08: no peer is told of an end unasked before it is on disk, and every peer
/// is once it is, however long the store failed.
#[test]
fn notices_wait_as_well() {
    for fails in [0, 1, 3] {
        let (mut w, mut store) = durable();
        let c = w.open_as(ME, NEWEST);
        let (task, job) = working(&mut w, &mut store, Speech::Core, c);
        let listener = w.connect(ME);
        let wanted = json!({"notifications": {"taskIds": [task]}});
        w.send(listener, &request(json!("l"), "subscriptions/listen", tasks(wanted)));
        assert_eq!(w.next(listener)["method"], "notifications/subscriptions/acknowledged");
        w.done(job, "made");
        for _ in 0..fails {
            store.refuse(&mut w, Unstored::Full, false);
            w.advance(RETRY);
        }
        w.silent(c);
        w.silent(listener);
        store.commit_all(&mut w);
        assert_eq!(w.next(c)["method"], "notifications/tasks/status");
        let notice = w.next(listener);
        assert_eq!(notice["method"], "notifications/tasks");
        assert_eq!(notice["params"]["result"]["content"][0]["text"], "made");
        w.silent(c);
        w.silent(listener);
    }
}

/// DUR-01, TSK-24, TSK-26: the first of a cancel and an end wins, at whatever time a peer learns of
/// it.
#[test]
fn cancel_races() {
    for speech in BOTH {
        // The cancel first: the job is stopped at once, and its later reports are dropped.
        let (mut w, mut store) = durable();
        let c = speech.open(&mut w);
        let (task, job) = working(&mut w, &mut store, speech, c);
        w.send(c, &speech.about(json!("first"), "tasks/cancel", &task));
        assert_eq!(
            w.steps(job),
            [(StopStep::Flag, StopReason::Requested)],
            "only the answer waits"
        );
        w.send(c, &speech.about(json!("second"), "tasks/cancel", &task));
        w.done(job, "too late");
        w.silent(c);
        store.commit_all(&mut w);
        let rest = w.rest(c);
        let answer = |id: &str| rest.iter().find(|message| message["id"] == id).expect(id);
        if speech == Speech::Core {
            assert_eq!(answer("first")["result"]["status"], "cancelled");
            assert_eq!(answer("second")["error"]["code"], -32602);
            assert_eq!(rest.last().expect("an answer")["id"], "first", "the last word (TSK-24)");
        } else {
            assert!(answer("first").get("result").is_some());
            assert!(answer("second").get("result").is_some());
        }
        w.send(c, &speech.about(json!("after"), "tasks/get", &task));
        assert_eq!(w.next(c)["result"]["status"], "cancelled");
        // The end first.
        let (task, job) = working(&mut w, &mut store, speech, c);
        w.done(job, "in time");
        w.send(c, &speech.about(json!("late"), "tasks/cancel", &task));
        w.silent(c);
        store.commit_all(&mut w);
        let rest = w.rest(c);
        let late = rest.iter().find(|message| message["id"] == "late").expect("an answer");
        assert_eq!(late.get("error").is_some(), speech == Speech::Core);
        w.send(c, &speech.about(json!("after"), "tasks/get", &task));
        assert_eq!(w.next(c)["result"]["status"], "completed");
        assert!(w.stops.iter().all(|(stopped, ..)| *stopped != job));
    }
}

/// DUR-01, CAN-15, MOD-04: the requestor that cancels a held request hears nothing more of it; the
/// task goes on. CAN-05: a creation is not cancelled that way in a session. Elsewhere it is, and so
/// the task is not created: no peer could reach it (MOD-04, CAN-06).
#[test]
fn held_requests_can_be_cancelled() {
    for (speech, method) in [
        (Speech::Core, "tasks/result"),
        (Speech::Core, "tasks/get"),
        (Speech::Extension, "tasks/get"),
    ] {
        let (mut w, mut store) = durable();
        let c = speech.open(&mut w);
        let (task, job) = working(&mut w, &mut store, speech, c);
        w.done(job, "made");
        w.send(c, &speech.about(json!("held"), method, &task));
        w.send(c, &cancel(json!("held")));
        assert_eq!((w.sizes().held, w.counters().cancelled), (0, 1));
        store.commit_all(&mut w);
        assert!(w.rest(c).iter().all(|message| message.get("id").is_none()), "CAN-08");
        w.send(c, &speech.about(json!("held"), method, &task));
        assert!(w.next(c).get("result").is_some(), "the task is there, and so is the id");
    }
    for speech in BOTH {
        let (mut w, mut store) = durable();
        let c = speech.open(&mut w);
        w.send(c, &speech.create(json!("create")));
        w.send(c, &cancel(json!("create")));
        let counts = (w.counters().cancels_ignored, w.counters().cancelled);
        store.commit_all(&mut w);
        if speech == Speech::Core {
            assert_eq!(counts, (1, 0));
            speech.created(&w.next(c));
            assert_eq!(w.started.len(), 1);
        } else {
            assert_eq!(counts, (0, 1));
            w.silent(c);
            assert!(w.started.is_empty() && store.records.is_empty());
            assert_eq!((w.sizes().tasks, w.sizes().jobs), (0, 0));
        }
    }
}

/// DUR-01: a peer that goes while something is held for it leaves nothing behind, and its task
/// goes on as if it had been told.
#[test]
fn disconnects_while_held() {
    for speech in BOTH {
        let (mut w, mut store) = durable();
        let c = speech.open(&mut w);
        w.send(c, &speech.create(json!("create")));
        w.lose(c);
        assert_eq!((w.sizes().held, w.sizes().requests), (0, 0));
        store.commit_all(&mut w);
        assert_eq!(w.started.len(), 1);
        let task = store.records.keys().next().expect("it is on disk").to_string();
        let other = speech.open(&mut w);
        w.send(other, &speech.about(json!(1), "tasks/get", &task));
        assert_eq!(w.next(other)["result"]["status"], "working");
        // And while its end is held.
        w.send(other, &speech.about(json!(2), "tasks/cancel", &task));
        w.lose(other);
        store.commit_all(&mut w);
        let job = w.last_started();
        w.stopped(job);
        assert_eq!(w.sizes().requests, 0);
        // A half-closed peer is answered before its connection closes.
        let half = speech.open(&mut w);
        w.send(half, &speech.create(json!("create")));
        w.feed(Input::Finished(half, AfterInput::Answer));
        assert!(w.is_open(half), "it is still owed an answer");
        store.commit_all(&mut w);
        speech.created(&w.next(half));
        assert!(!w.is_open(half));
    }
}

/// DUR-01: writes are reported together, or one by one; held answers come in the order of
/// the writes.
#[test]
fn answers_come_in_the_order_of_the_writes() {
    let (mut w, mut store) = durable();
    let c = Speech::Core.open(&mut w);
    for id in 1..=3 {
        w.send(c, &Speech::Core.create(json!(id)));
    }
    store.commit(&mut w, 1);
    assert_eq!(w.next(c)["id"], 1);
    w.silent(c);
    store.refuse(&mut w, Unstored::Broken, false);
    w.expect_error(c, json!(2), UNAVAILABLE);
    store.commit(&mut w, 1);
    assert_eq!(w.next(c)["id"], 3);
    w.silent(c);
    assert_eq!(w.started.len(), 2);
}

/// DUR-01, TSK-36: a held answer counts as in flight; a cancel is not kept from taking effect.
#[test]
fn held_requests_are_bounded() {
    let mut store = Store::default();
    let limits = Limits { inflight_max: 4, ..Limits::default() };
    let mut w = store.world(&settings(limits, policy()));
    let c = Speech::Core.open(&mut w);
    let (task, job) = working(&mut w, &mut store, Speech::Core, c);
    let (other, _) = working(&mut w, &mut store, Speech::Core, c);
    w.done(job, "made");
    for id in 1..=4 {
        w.send(c, &Speech::Core.about(json!(id), "tasks/get", &task));
    }
    w.silent(c);
    w.send(c, &Speech::Core.about(json!(5), "tasks/get", &task));
    w.expect_error(c, json!(5), -31003);
    w.send(c, &Speech::Core.create(json!(6)));
    w.expect_error(c, json!(6), -31003);
    w.send(c, &Speech::Core.about(json!(7), "tasks/cancel", &other));
    w.silent(c);
    assert_eq!(w.stops.len(), 1, "cancelled means cancelled");
    store.commit_all(&mut w);
    let answered = w.rest(c).iter().filter(|message| message.get("result").is_some()).count();
    assert_eq!(answered, 5);
}

/// DUR-01: unpersisted records are written in steps after a failure, and no task is created before
/// it has taken all of it.
#[test]
fn store_is_not_flooded_when_it_recovers() {
    let (mut w, mut store) = durable();
    let c = Speech::Core.open(&mut w);
    let all: Vec<(String, JobId)> =
        (0..64).map(|_| working(&mut w, &mut store, Speech::Core, c)).collect();
    for (_, job) in &all {
        w.done(*job, "made");
    }
    store.take(&mut w);
    assert_eq!(store.waiting.len(), 64, "each at once while the store works");
    for _ in 0..64 {
        store.refuse(&mut w, Unstored::Full, false);
    }
    w.advance(RETRY);
    store.take(&mut w);
    assert_eq!(store.waiting.len(), 64);
    store.commit(&mut w, 63);
    w.send(c, &Speech::Core.create(json!("early")));
    let rest = w.rest(c);
    unavailable(rest.last().expect("an answer"), "early", Unstored::Full);
    store.refuse(&mut w, Unstored::Broken, false);
    assert_eq!((w.sizes().unpersisted, w.due_in()), (1, Some(RETRY)));
    w.advance(RETRY);
    store.commit_all(&mut w);
    working_after(&mut w, &mut store, c);
    for (task, _) in &all {
        assert_eq!(w.status(c, task).as_deref(), Some("completed"));
    }
}

fn working_after(w: &mut World, store: &mut Store, c: ConnId) {
    w.rest(c);
    working(w, store, Speech::Core, c);
}

/// DUR-01, TSK-35: a task that expires is deleted from the store, whatever is held for it.
#[test]
fn expiry() {
    for (owed, held) in [(false, false), (false, true), (true, false)] {
        let mut store = Store::default();
        let tasks = TaskPolicy { on_ttl: OnTtl::Stop, default_ttl: RETRY / 2, ..policy() };
        let mut w = store.world(&settings(Limits::default(), tasks));
        let c = Speech::Core.open(&mut w);
        let (task, job) = working(&mut w, &mut store, Speech::Core, c);
        w.done(job, "made");
        if held {
            w.send(c, &Speech::Core.about(json!("held"), "tasks/result", &task));
            w.silent(c);
        } else if owed {
            store.refuse(&mut w, Unstored::Broken, false);
        } else {
            store.commit_all(&mut w);
            w.rest(c);
        }
        w.advance(RETRY / 2);
        if held {
            w.expect_error(c, json!("held"), -31002);
        }
        assert_eq!(w.status(c, &task), None);
        assert_eq!(w.sizes().tasks, 0);
        w.advance(RETRY / 2);
        store.commit_all(&mut w);
        assert!(store.records.is_empty(), "it is gone from disk as well");
        assert_eq!((w.sizes().unpersisted, w.sizes().timers), (0, 0));
        w.silent(c);
    }
}

/// DUR-01: a shutdown ends when the store has all records, or with its time.
#[test]
fn shutdown() {
    for outcome in [None, Some(Unstored::Full)] {
        let (mut w, mut store) = durable();
        let c = Speech::Core.open(&mut w);
        let (task, job) = working(&mut w, &mut store, Speech::Core, c);
        w.send(c, &Speech::Core.about(json!("wait"), "tasks/result", &task));
        w.send(c, &Speech::Core.create(json!("create")));
        let by = w.now().at + Duration::from_secs(10);
        w.feed(Input::Drain(by));
        w.expect_error(c, json!("create"), -31005);
        w.expect_error(c, json!("wait"), -31005);
        w.stopped(job);
        assert_eq!(w.exits, 0, "the store is not done");
        match outcome {
            None => store.commit_all(&mut w),
            Some(why) => {
                store.take(&mut w);
                while !store.waiting.is_empty() {
                    store.refuse(&mut w, why, false);
                }
            }
        }
        assert_eq!(w.exits, 1);
        let status = store.records.values().map(|record| record.status.as_str());
        let told = if outcome.is_none() { "failed" } else { "working" };
        assert_eq!(status.collect::<Vec<_>>(), [told], "what was not promised is not there");
        // A store that never answers keeps neither the daemon nor a peer that has closed its side.
        let (mut w, mut store) = durable();
        let c = Speech::Core.open(&mut w);
        let (task, job) = working(&mut w, &mut store, Speech::Core, c);
        w.send(c, &Speech::Core.about(json!("wait"), "tasks/result", &task));
        w.feed(Input::Finished(c, AfterInput::Answer));
        w.feed(Input::Drain(w.now().at + RETRY));
        w.expect_error(c, json!("wait"), -31005);
        assert!(!w.is_open(c));
        w.stopped(job);
        w.advance(RETRY);
        assert_eq!(w.exits, 1);
    }
}

/// DUR-01: without a store nothing is written, nothing waits, and a host that reports writes
/// that were never made is not believed.
#[test]
fn off_means_off() {
    let mut w = World::new();
    let c = w.open();
    let (task, job) = w.task(c, "sleep");
    w.done(job, &"x".repeat(100_000));
    let result = w.result(c, "tasks/result", json!({"taskId": task}));
    assert!(result.to_string().len() > 100_000);
    assert!(w.stored.is_empty() && w.loads.is_empty());
    w.feed(Input::Durable(ceased_core::tasks::durable::Seq::new(9)));
    w.feed(Input::Unstored(ceased_core::tasks::durable::Seq::new(9), Unstored::Full));
    w.task(c, "sleep");
    let trouble = |note: &&AuditEvent| {
        matches!(note, AuditEvent::StoreFailed { .. } | AuditEvent::StoreRecovered)
    };
    assert!(TaskId::parse(&task).is_some() && !w.notes.iter().any(|note| trouble(&note)));
}
