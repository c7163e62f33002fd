//! Tasks in a table that several engines share (FLT-02, FLT-04, FLT-05).

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, TaskId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::reason::StopReason;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::tasks::durable::{
    KeyChange, RecordedOutcome, Seq, StoreWrite, TaskRecord, Unstored, Work,
};
use ceased_core::tasks::shared::{Found, KeyVerdict, SharedEvent, SharedLimit, Verdict, Wanted};
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;
use ceased_simulator::modern::{TASKS, able, request, tasks};
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, Rigged, World, raw_json};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;
use uuid::Uuid;

const ME: Identity = Identity::User(1000);

/// A table in a few lines, whose verdicts and answers come when a test says so.
#[derive(Default)]
struct Table {
    records: BTreeMap<TaskId, TaskRecord>,
    /// Answers for engines that run the tasks.
    inputs: Vec<(TaskId, Box<str>)>,
    /// Wishes and calls by their keys.
    keys: BTreeMap<Box<str>, (Box<str>, KeyVerdict)>,
}

impl Table {
    /// Carries out the writes of an engine, in order, each with its verdict.
    fn commit(&mut self, w: &mut World) {
        while !w.stored.is_empty() {
            let mut upto = Seq::new(0);
            for (seq, write) in w.stored.drain(..).collect::<Vec<_>>() {
                upto = seq;
                if let Some(verdict) = self.judge(write) {
                    w.feed(Input::Shared(SharedEvent::Verdict { seq, verdict }));
                }
            }
            w.feed(Input::Durable(upto));
            w.feed(Input::Turn);
        }
    }

    fn judge(&mut self, write: StoreWrite) -> Option<Verdict> {
        let stamp = Wall::from_millis(7_000);
        match write {
            StoreWrite::New(mut record) => {
                (record.created, record.updated) = (stamp, stamp);
                self.records.insert(record.id, record);
                Some(Verdict::Stored { stamp })
            }
            StoreWrite::Change(record) | StoreWrite::Put(record) | StoreWrite::Cancel(record) => {
                let Some(found) = self.records.get_mut(&record.id) else {
                    return Some(Verdict::Gone);
                };
                if found.status.is_terminal() {
                    return Some(Verdict::Overtaken(Box::new(found.clone())));
                }
                let (created, updated) = (found.created, stamp);
                *found = TaskRecord { created, updated, ..record };
                Some(Verdict::Stored { stamp })
            }
            StoreWrite::Delete(key) => {
                self.records.remove(&key.task);
                None
            }
            StoreWrite::Probe
            | StoreWrite::Watch(_)
            | StoreWrite::Unwatch(_)
            | StoreWrite::Taken(_)
            | StoreWrite::Receipt { .. }
            | StoreWrite::Retire => None,
            StoreWrite::Claim { key, wish } => {
                let held = self.keys.entry(key.key.clone());
                let verdict = match &held {
                    Entry::Vacant(_) => KeyVerdict::Granted,
                    Entry::Occupied(held) if *held.get().0 != *wish => KeyVerdict::Another,
                    Entry::Occupied(held) => held.get().1.clone(),
                };
                held.or_insert((wish, KeyVerdict::UnderWay));
                Some(Verdict::Key(verdict))
            }
            StoreWrite::Keyed(key, change) => {
                let after = match change {
                    KeyChange::Task(task) => KeyVerdict::Task(task),
                    KeyChange::Over(outcome) => KeyVerdict::Over(outcome),
                    KeyChange::Forgotten => {
                        self.keys.remove(&key.key);
                        return None;
                    }
                };
                self.keys.get_mut(&key.key).expect("it was claimed").1 = after;
                None
            }
            StoreWrite::Input { task, responses, .. } => {
                self.inputs.push((task, responses));
                None
            }
        }
    }

    /// Answers the questions of an engine; returns their number.
    fn answer(&self, w: &mut World) -> usize {
        let lookups: Vec<_> = w.lookups.drain(..).collect();
        for lookup in &lookups {
            let own = |record: &&TaskRecord| record.owner == lookup.viewer;
            let records = match &lookup.wanted {
                Wanted::Task { task, .. } => {
                    self.records.get(task).filter(own).into_iter().collect()
                }
                Wanted::Tasks(tasks) => {
                    tasks.iter().filter_map(|task| self.records.get(task)).filter(own).collect()
                }
                Wanted::Page { after, size } => {
                    let mut own: Vec<&TaskRecord> = self.records.values().filter(own).collect();
                    own.sort_by_key(|record| record.position);
                    own.into_iter()
                        .filter(|it| it.position > *after)
                        .take(*size)
                        .collect::<Vec<_>>()
                }
            };
            let found = Found::Records(records.into_iter().cloned().collect());
            w.feed(Input::Shared(SharedEvent::Found { lookup: lookup.id, found }));
        }
        lookups.len()
    }

    /// Another engine runs this task, or its work has ended.
    fn of_another(&mut self, number: u128, status: Status) -> TaskId {
        let (mut w, mut store) = engine();
        let c = w.open_as(ME, NEWEST);
        create(&mut w, c);
        store.commit(&mut w);
        let mut record = store.records.into_values().next().expect("a record");
        record.id = TaskId::new(Uuid::from_u128(number));
        record.position = u64::try_from(number).expect("small");
        record.status = status;
        self.records.insert(record.id, record.clone());
        record.id
    }
}

fn engine() -> (World, Table) {
    let policy = TaskPolicy { durable: true, shared: true, page_size: 2, ..TaskPolicy::default() };
    let settings = tools::settings(Limits::default(), policy);
    let ids =
        Rigged::new((0..99).map(|count| Uuid::from_u128((1 << 80) | 0x4000_8000 << 48 | count)));
    (World::made_of(settings, ids), Table::default())
}

fn create(w: &mut World, c: ConnId) {
    let call = json!({"name": "sleep", "arguments": {}, "task": {}});
    w.send(c, &request(json!("create"), "tools/call", call));
}

fn created(w: &mut World, table: &mut Table, c: ConnId) -> String {
    create(w, c);
    table.commit(w);
    w.next(c)["result"]["task"]["taskId"].as_str().expect("a task").to_owned()
}

fn ask(w: &mut World, c: ConnId, method: &str, task: &str) {
    w.send(c, &request(json!(method), method, json!({"taskId": task})));
}

fn asked(w: &mut World, table: &Table, c: ConnId, method: &str, task: &str) -> Value {
    ask(w, c, method, task);
    w.silent(c);
    assert_eq!(table.answer(w), 1, "{method} asks the table once");
    w.next(c)
}

/// FLT-02: an answer about a task waits for the table, also where the task runs here; and the one that the
/// table has ended is told as ended, with its work stopped.
#[test]
fn answers_are_those_of_the_table() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    let task = created(&mut w, &mut table, c);
    assert_eq!(asked(&mut w, &table, c, "tasks/get", &task)["result"]["status"], "working");
    let job = w.last_started();
    let (id, record) = table.records.iter_mut().next().expect("a record");
    record.status = Status::Cancelled;
    record.outcome = cancelled();
    assert_eq!(id.to_string(), task);
    ask(&mut w, c, "tasks/get", &task);
    table.answer(&mut w);
    let told: Vec<Value> = w.rest(c);
    let last = told.last().expect("an answer");
    assert_eq!(last["result"]["status"], "cancelled", "{told:?}");
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Requested));
}

/// FLT-02: an end that another engine has overtaken is told by none: the one of the table is.
#[test]
fn overtaken_end_is_not_told() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    let task = created(&mut w, &mut table, c);
    let job = w.last_started();
    let record = table.records.values_mut().next().expect("a record");
    record.status = Status::Cancelled;
    record.outcome = cancelled();
    w.done(job, "made");
    w.silent(c);
    table.commit(&mut w);
    let told: Vec<Value> = w.rest(c);
    assert!(told.iter().all(|told| told["params"]["status"] != "completed"), "{told:?}");
    assert_eq!(asked(&mut w, &table, c, "tasks/get", &task)["result"]["status"], "cancelled");
}

/// FLT-01: a task that runs elsewhere is told, cancelled by a write, and forgotten.
#[test]
fn task_of_another_engine_is_cancelled_by_a_write() {
    let (mut w, mut table) = engine();
    let other = table.of_another(5, Status::Working).to_string();
    let c = w.open_as(ME, NEWEST);
    assert_eq!(asked(&mut w, &table, c, "tasks/get", &other)["result"]["status"], "working");
    assert_eq!(w.sizes().tasks, 0, "it is forgotten");
    ask(&mut w, c, "tasks/cancel", &other);
    table.answer(&mut w);
    w.silent(c);
    table.commit(&mut w);
    assert_eq!(w.next(c)["result"]["status"], "cancelled");
    assert_eq!(w.sizes().tasks, 0, "it is forgotten");
    let again = asked(&mut w, &table, c, "tasks/cancel", &other);
    assert_eq!(again["error"]["code"], -32602, "{again}");
}

/// FLT-01: a request that waits for a task elsewhere is answered when the table tells of its end.
#[test]
fn wait_for_a_task_elsewhere_ends_with_it() {
    let (mut w, mut table) = engine();
    let id = table.of_another(5, Status::Working);
    let c = w.open_as(ME, NEWEST);
    ask(&mut w, c, "tasks/result", &id.to_string());
    table.answer(&mut w);
    w.silent(c);
    let watches =
        |write: &StoreWrite| matches!(write, StoreWrite::Watch(watched) if *watched == id);
    assert!(w.stored.iter().any(|(_, write)| watches(write)), "the table is told");
    table.commit(&mut w);
    let mut record = table.records[&id].clone();
    record.status = Status::Failed;
    let lost = Err(ErrorObject::new(-31007, "lost"));
    record.outcome = RecordedOutcome::Here(lost);
    w.feed(Input::Shared(SharedEvent::Changed { record: Box::new(record) }));
    assert_eq!(w.next(c)["error"]["code"], -31007);
    assert_eq!(w.sizes().tasks, 0, "it is forgotten");
}

/// FLT-01: a request for an outcome is answered also where a list, which has no outcomes, has told the end
/// first.
#[test]
fn wait_for_an_outcome_outlasts_a_list() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    let task = created(&mut w, &mut table, c);
    ask(&mut w, c, "tasks/result", &task);
    table.answer(&mut w);
    w.silent(c);
    let record = table.records.values_mut().next().expect("a record");
    let id = record.id;
    record.status = Status::Cancelled;
    (record.position, record.outcome) = (1, RecordedOutcome::Stored { bytes: 7 });
    w.send(c, &request(json!("list"), "tasks/list", json!({})));
    table.answer(&mut w);
    let told = w.rest(c);
    let listed = told.iter().find(|it| it["id"] == "list").expect("a list");
    assert_eq!(listed["result"]["tasks"][0]["status"], "cancelled", "{listed}");
    let (load, key) = w.loads.remove(0);
    assert_eq!(key.task, id, "the outcome is asked for");
    let error = ErrorObject::new(-31001, "cancelled");
    w.feed(Input::Loaded(load, Some(Err(error))));
    assert_eq!(w.next(c)["error"]["code"], -31001);
}

fn cancelled() -> RecordedOutcome {
    RecordedOutcome::Here(Err(ErrorObject::new(-31001, "cancelled")))
}

/// FLT-06: a list pages through the tasks of all engines in their order, and the table judges quotas.
#[test]
fn lists_are_those_of_the_table() {
    let (mut w, mut table) = engine();
    let ids: Vec<String> =
        (1..=5).map(|number| table.of_another(number, Status::Working).to_string()).collect();
    let c = w.open_as(ME, NEWEST);
    let (mut listed, mut cursor) = (Vec::new(), None);
    for _ in 0..3 {
        let params = cursor.take().map_or(json!({}), |cursor: Value| json!({"cursor": cursor}));
        w.send(c, &request(json!("list"), "tasks/list", params));
        assert_eq!(table.answer(&mut w), 1);
        let page = w.next(c)["result"].clone();
        for task in page["tasks"].as_array().expect("tasks") {
            listed.push(task["taskId"].as_str().expect("an id").to_owned());
        }
        cursor = page.get("nextCursor").cloned();
    }
    assert_eq!(cursor, None);
    assert_eq!(listed, ids);
    create(&mut w, c);
    let (seq, _) = w.stored.remove(0);
    let verdict = Verdict::Full(SharedLimit::Live);
    w.feed(Input::Shared(SharedEvent::Verdict { seq, verdict }));
    assert_eq!(w.next(c)["error"]["data"]["limit"], "tasks_per_identity");
}

/// FLT-05: without an answer of the table nothing is told, and nothing is stopped.
#[test]
fn nothing_is_told_without_the_table() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    let task = created(&mut w, &mut table, c);
    let job = w.last_started();
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        ask(&mut w, c, method, &task);
        let lookup = w.lookups.pop().expect("a question").id;
        w.feed(Input::Shared(SharedEvent::Found { lookup, found: Found::Unreachable }));
        assert_eq!(w.next(c)["error"]["code"], -31006, "{method}");
    }
    assert!(w.steps(job).is_empty());
}

/// FLT-04: an engine that is not renewed in time stops its work, and owes the ends to the table.
#[test]
fn work_stops_before_the_membership_ends() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    let until = Some(ceased_core::time::Instant::ZERO + Duration::from_secs(10));
    w.feed(Input::Shared(SharedEvent::Renewed { until }));
    created(&mut w, &mut table, c);
    let job = w.last_started();
    w.advance(Duration::from_secs(9));
    assert!(w.steps(job).is_empty());
    w.advance(Duration::from_secs(1));
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Lapsed));
    table.commit(&mut w);
    assert_eq!(table.records.values().next().map(|record| record.status), Some(Status::Failed));
}

/// FLT-04: an engine that others have ended forgets its tasks and stops their work.
#[test]
fn fenced_engine_forgets_its_tasks() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    let task = created(&mut w, &mut table, c);
    let job = w.last_started();
    ask(&mut w, c, "tasks/result", &task);
    table.answer(&mut w);
    w.feed(Input::Shared(SharedEvent::Fenced));
    assert_eq!(w.next(c)["error"]["code"], -31006);
    assert_eq!(w.steps(job).first().map(|(_, why)| *why), Some(StopReason::Lapsed));
    assert_eq!(w.sizes().tasks, 0);
}

/// An engine that takes no further work tells the table once; its tasks go on and are told.
#[test]
fn retired_engine_takes_no_further_work() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    let task = created(&mut w, &mut table, c);
    let job = w.last_started();
    w.feed(Input::Retire);
    w.feed(Input::Retire);
    let retired = |(_, write): &&(Seq, StoreWrite)| matches!(write, StoreWrite::Retire);
    assert_eq!(w.stored.iter().filter(retired).count(), 1);
    table.commit(&mut w);
    for more in [json!({}), json!({"task": {}})] {
        let mut call = json!({"name": "sleep", "arguments": {}});
        call.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        w.send(c, &request(json!("more"), "tools/call", call));
        assert_eq!(w.next(c)["error"]["code"], -31005);
    }
    assert_eq!(asked(&mut w, &table, c, "tasks/get", &task)["result"]["status"], "working");
    assert!(w.steps(job).is_empty() && w.has_work());
    w.done(job, "made");
    table.commit(&mut w);
    assert_eq!(w.next(c)["params"]["status"], "completed");
    assert_eq!(asked(&mut w, &table, c, "tasks/get", &task)["result"]["status"], "completed");
    assert!(!w.has_work());
}

/// A client of 2026-07-28 that answers questions.
fn capable(params: Value) -> Value {
    able(&json!({"extensions": {TASKS: {}}, "elicitation": {}}), params)
}

/// FLT-02: a question of a task is told once the table has it, by every engine.
#[test]
fn questions_are_those_of_the_table() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    let task = created(&mut w, &mut table, c);
    let job = w.last_started();
    w.asked(job, 1, "elicitation/create");
    w.silent(c);
    assert_eq!(asked(&mut w, &table, c, "tasks/get", &task)["result"]["status"], "working");
    table.commit(&mut w);
    assert_eq!(w.next(c)["params"]["status"], "input_required");
    assert_eq!(asked(&mut w, &table, c, "tasks/get", &task)["result"]["status"], "input_required");
    let record = table.records.values().next().expect("a record");
    let asks: Value =
        serde_json::from_str(record.asks.as_deref().expect("questions")).expect("JSON");
    assert_eq!(asks["1"]["params"]["message"], "name?");
    let (number, id) = (9, record.id);
    let responses: Box<str> = r#"{"1":{"action":"accept"},"2":{}}"#.into();
    for _ in 0..2 {
        let responses = responses.clone();
        w.feed(Input::Shared(SharedEvent::Input { number, task: id, responses }));
    }
    assert_eq!(w.told.len(), 1, "an answer that is handed in twice is taken once");
    let taken = |(_, write): &(Seq, StoreWrite)| matches!(write, StoreWrite::Taken(9));
    assert!(w.stored.iter().any(taken));
    table.commit(&mut w);
    assert_eq!(w.next(c)["params"]["status"], "working");
    assert_eq!(table.records[&id].asks, None);
}

/// A question that the table could not be told of is told when it answers again.
#[test]
fn question_outlasts_an_outage_of_the_table() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    created(&mut w, &mut table, c);
    let job = w.last_started();
    w.asked(job, 1, "elicitation/create");
    let (seq, _) = w.stored.remove(0);
    w.feed(Input::Unstored(seq, Unstored::Broken));
    w.advance(Duration::from_secs(60));
    table.commit(&mut w);
    assert_eq!(w.next(c)["params"]["status"], "input_required");
    table.commit(&mut w);
    let record = table.records.values().next().expect("a record");
    assert_eq!(record.status, Status::InputRequired);
    w.done(job, "made");
    table.commit(&mut w);
    assert_eq!(table.records.values().next().map(|it| it.status), Some(Status::Completed));
}

/// EXT-05: questions of a task elsewhere are shown, and their answers acknowledged once the table has them.
#[test]
fn task_of_another_engine_gets_its_answers() {
    let (mut w, mut table) = engine();
    let id = table.of_another(5, Status::InputRequired);
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let form = json!({"method": "elicitation/create", "params": form});
    let asks = json!({"q": form, "r": {"method": "roots/list"}}).to_string();
    table.records.get_mut(&id).expect("it").asks = Some(asks.into());
    let c = w.connect(ME);
    let name = json!({"taskId": id.to_string()});
    w.send(c, &request(json!(1), "tasks/get", capable(name.clone())));
    table.answer(&mut w);
    let requests = w.next(c)["result"]["inputRequests"].clone();
    assert_eq!(requests, json!({"q": form}));
    let answers = json!({"taskId": id.to_string(), "inputResponses": {"q": {"action": "accept"}}});
    w.send(c, &request(json!(2), "tasks/update", capable(answers.clone())));
    table.answer(&mut w);
    w.silent(c);
    table.commit(&mut w);
    assert_eq!(w.next(c)["result"]["resultType"], "complete");
    assert_eq!(table.inputs, [(id, r#"{"q":{"action":"accept"}}"#.into())]);
    w.send(c, &request(json!(3), "tasks/update", capable(answers)));
    table.answer(&mut w);
    let (seq, _) = w.stored.remove(0);
    w.feed(Input::Unstored(seq, Unstored::Broken));
    assert_eq!(w.next(c)["error"]["code"], -31006);
    w.advance(Duration::from_secs(60));
    table.commit(&mut w);
    // An answer that no engine gets is not acknowledged.
    let answers = json!({"taskId": id.to_string(), "inputResponses": {"q": {"action": "accept"}}});
    w.send(c, &request(json!(4), "tasks/update", capable(answers)));
    table.answer(&mut w);
    let (seq, _) = w.stored.remove(0);
    w.feed(Input::Shared(SharedEvent::Verdict { seq, verdict: Verdict::Gone }));
    w.feed(Input::Durable(seq));
    assert_eq!(w.next(c)["error"]["code"], -31006);
    w.silent(c);
}

/// FLT-02: of two questions the answered one is not shown any more while the other one is open.
#[test]
fn answered_question_leaves_the_table_while_another_is_open() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    created(&mut w, &mut table, c);
    let job = w.last_started();
    w.asked(job, 1, "elicitation/create");
    w.asked(job, 2, "elicitation/create");
    table.commit(&mut w);
    let open = |table: &Table| -> Vec<String> {
        let record = table.records.values().next().expect("a record");
        let asks: BTreeMap<String, Value> =
            serde_json::from_str(record.asks.as_deref().expect("questions")).expect("JSON");
        assert_eq!(record.status, Status::InputRequired);
        asks.into_keys().collect()
    };
    assert_eq!(open(&table), ["1", "2"]);
    let task = *table.records.keys().next().expect("a task");
    let responses: Box<str> = r#"{"1":{"action":"accept"}}"#.into();
    w.feed(Input::Shared(SharedEvent::Input { number: 1, task, responses }));
    table.commit(&mut w);
    assert_eq!(open(&table), ["2"]);
}

/// A request for a task elsewhere is answered when that is removed.
#[test]
fn wait_for_a_removed_task_ends() {
    let (mut w, mut table) = engine();
    let id = table.of_another(5, Status::Working);
    let c = w.open_as(ME, NEWEST);
    ask(&mut w, c, "tasks/result", &id.to_string());
    table.answer(&mut w);
    table.commit(&mut w);
    w.silent(c);
    w.feed(Input::Shared(SharedEvent::Removed { task: id }));
    assert_eq!(w.next(c)["error"]["code"], -31002);
    assert_eq!(w.sizes().tasks, 0, "it is forgotten");
    let own = created(&mut w, &mut table, c);
    let task = TaskId::parse(&own).expect("an id");
    w.feed(Input::Shared(SharedEvent::Removed { task }));
    assert_eq!(asked(&mut w, &table, c, "tasks/get", &own)["result"]["status"], "working");
}

/// A message of a kind that this version does not know is removed.
#[test]
fn unusable_message_is_removed() {
    let (mut w, _) = engine();
    w.feed(Input::Shared(SharedEvent::Unusable { number: 7 }));
    let taken = |(_, write): &(Seq, StoreWrite)| matches!(write, StoreWrite::Taken(7));
    assert!(w.stored.iter().any(taken));
}

/// EXT-03: a subscription is told of an end with its outcome, on which its form depends, also where a request
/// that had no need of it has seen the end first.
#[test]
fn subscription_hears_of_an_end_with_its_outcome() {
    let (mut w, mut table) = engine();
    let id = table.of_another(5, Status::Working);
    let (c, other) = (w.connect(ME), w.open_as(ME, NEWEST));
    let wanted = json!({"notifications": {"taskIds": [id.to_string()]}});
    w.send(c, &request(json!("l"), "subscriptions/listen", tasks(wanted)));
    table.answer(&mut w);
    table.commit(&mut w);
    w.next(c);
    let record = table.records.get_mut(&id).expect("it");
    (record.status, record.outcome) = (Status::Failed, RecordedOutcome::Stored { bytes: 7 });
    let status = asked(&mut w, &table, other, "tasks/get", &id.to_string());
    assert_eq!(status["result"]["status"], "failed");
    w.silent(c);
    let mut record = table.records[&id].clone();
    let result = r#"{"content":[],"isError":true}"#;
    record.outcome = RecordedOutcome::Here(Ok(raw_json(result).into()));
    w.feed(Input::Shared(SharedEvent::Changed { record: Box::new(record) }));
    let told = w.next(c);
    assert_eq!(told["params"]["status"], "completed", "{told}");
    assert_eq!(told["params"]["result"]["isError"], true, "{told}");
}

/// EXT-03: the same where a look sees an end of this engine, or one that overtakes a cancel, before the verdict
/// comes: the table is asked for the outcome.
#[test]
fn subscription_hears_of_an_end_that_a_look_sees_before_its_verdict() {
    for own in [true, false] {
        let (mut w, mut table) = engine();
        let (c, other) = (w.connect(ME), w.open_as(ME, NEWEST));
        let task = match own {
            true => created(&mut w, &mut table, other),
            false => table.of_another(5, Status::Working).to_string(),
        };
        if !own {
            ask(&mut w, other, "tasks/cancel", &task);
            table.answer(&mut w);
        }
        let wanted = json!({"notifications": {"taskIds": [task]}});
        w.send(c, &request(json!("l"), "subscriptions/listen", tasks(wanted)));
        table.answer(&mut w);
        w.next(c);
        if own {
            w.done(w.last_started(), "made");
        }
        let (seq, write) = w.stored.remove(0);
        let id = TaskId::parse(&task).expect("an id");
        if own {
            table.judge(write);
        }
        let result = raw_json(r#"{"content":[]}"#).into();
        let record = table.records.get_mut(&id).expect("a record");
        (record.status, record.outcome) = (Status::Completed, RecordedOutcome::Stored { bytes: 7 });
        let third = w.open_as(ME, NEWEST);
        let status = asked(&mut w, &table, third, "tasks/get", &task);
        assert_eq!(status["result"]["status"], "completed");
        w.silent(c);
        let mut record = table.records[&id].clone();
        record.outcome = RecordedOutcome::Here(Ok(result));
        let verdict = Verdict::Overtaken(Box::new(record.clone()));
        w.feed(Input::Shared(SharedEvent::Verdict { seq, verdict }));
        w.feed(Input::Durable(seq));
        let watches = |(_, write): &(Seq, StoreWrite)| matches!(write, StoreWrite::Watch(_));
        assert!(w.stored.iter().any(watches));
        w.feed(Input::Shared(SharedEvent::Changed { record: Box::new(record) }));
        let told = w.next(c);
        assert_eq!(told["params"]["result"]["content"], json!([]), "{told}");
    }
}

/// MOD-08: a subscription is told of a task elsewhere, which is watched while it lasts.
#[test]
fn subscription_hears_of_a_task_elsewhere() {
    let (mut w, mut table) = engine();
    let id = table.of_another(5, Status::Working);
    let c = w.connect(ME);
    let unknown = TaskId::new(Uuid::from_u128(77));
    let wanted = json!({"notifications": {"taskIds": [id.to_string(), unknown.to_string()]}});
    w.send(c, &request(json!("l"), "subscriptions/listen", tasks(wanted)));
    w.silent(c);
    assert_eq!(table.answer(&mut w), 1);
    let granted = &w.next(c)["params"]["notifications"]["taskIds"];
    assert_eq!(granted, &json!([id.to_string()]));
    let watches =
        |(_, write): &(Seq, StoreWrite)| matches!(write, StoreWrite::Watch(of) if *of == id);
    assert!(w.stored.iter().any(watches));
    table.commit(&mut w);
    let mut record = table.records[&id].clone();
    record.status = Status::InputRequired;
    w.feed(Input::Shared(SharedEvent::Changed { record: Box::new(record.clone()) }));
    assert_eq!(w.next(c)["params"]["status"], "input_required");
    // A cancel that the table does not take leaves the subscription.
    table.records.insert(id, record.clone());
    let other = w.open_as(ME, NEWEST);
    ask(&mut w, other, "tasks/cancel", &id.to_string());
    table.answer(&mut w);
    let (seq, _) = w.stored.remove(0);
    w.feed(Input::Unstored(seq, Unstored::Broken));
    assert_eq!(w.next(other)["error"]["code"], -31006);
    w.silent(c);
    (record.status, record.outcome) = (Status::Cancelled, cancelled());
    w.feed(Input::Shared(SharedEvent::Changed { record: Box::new(record) }));
    assert_eq!(w.next(c)["params"]["status"], "cancelled");
}

/// FLT-01: a write that fails after the table has told another end removes no record.
#[test]
fn failed_write_of_an_overtaken_end_removes_nothing() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    created(&mut w, &mut table, c);
    let job = w.last_started();
    w.done(job, "made");
    let (seq, _) = w.stored.remove(0);
    let record = table.records.values_mut().next().expect("a record");
    (record.status, record.outcome) = (Status::Cancelled, cancelled());
    let record = Box::new(record.clone());
    w.feed(Input::Shared(SharedEvent::Changed { record }));
    w.feed(Input::Unstored(seq, Unstored::Broken));
    w.advance(Duration::from_secs(60));
    table.commit(&mut w);
    assert_eq!(table.records.len(), 1);
}

/// A call with an idempotency key, as a task or not.
fn keyed(w: &mut World, c: ConnId, id: &str, key: &str, task: bool) {
    let mut call = json!({"name": "sleep", "arguments": {"ms": 1}});
    call["_meta"] = json!({"ceased/idempotencyKey": key});
    if task {
        call["task"] = json!({});
    }
    w.send(c, &request(json!(id), "tools/call", call));
}

/// An idempotency key names one call for all engines: the call under way, its answer, or its task, and never
/// a second run.
#[test]
fn key_names_one_call_at_all_engines() {
    let ((mut a, mut table), (mut b, _)) = (engine(), engine());
    let (at_a, at_b) = (a.open_as(ME, NEWEST), b.open_as(ME, NEWEST));
    keyed(&mut a, at_a, "first", "k", false);
    assert!(a.running.is_empty(), "it waits for its key");
    table.commit(&mut a);
    let job = a.last_started();
    let repeat = |b: &mut World, table: &mut Table, key: &str, task: bool| {
        keyed(b, at_b, "again", key, task);
        b.silent(at_b);
        table.commit(b);
        assert!(b.running.is_empty(), "a second run");
        table.answer(b);
        b.next(at_b)
    };
    assert_eq!(repeat(&mut b, &mut table, "k", false)["error"]["code"], -31008);
    assert_eq!(repeat(&mut b, &mut table, "k", true)["error"]["code"], -32602, "another call");
    a.done(job, "made");
    table.commit(&mut a);
    let answer = a.next(at_a);
    assert_eq!(repeat(&mut b, &mut table, "k", false)["result"], answer["result"]);
    keyed(&mut a, at_a, "task", "t", true);
    table.commit(&mut a);
    let task = a.next(at_a)["result"]["task"]["taskId"].clone();
    a.feed(Input::Turn);
    table.commit(&mut a);
    assert_eq!(repeat(&mut b, &mut table, "t", true)["result"]["task"]["taskId"], task);
    assert_eq!(b.sizes().tasks, 0, "it is forgotten");
}

/// A key is free again where its call was refused, cancelled or not carried out.
#[test]
fn key_is_given_back() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    let cancel = |w: &mut World| {
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "k"}});
        w.send(c, &cancel.to_string());
    };
    keyed(&mut w, c, "k", "k", false);
    cancel(&mut w);
    table.commit(&mut w);
    assert!(w.running.is_empty() && table.keys.is_empty(), "cancelled while it waited");
    keyed(&mut w, c, "k", "k", false);
    table.commit(&mut w);
    cancel(&mut w);
    table.commit(&mut w);
    assert!(table.keys.is_empty(), "cancelled while it ran");
    keyed(&mut w, c, "k", "k", true);
    table.commit(&mut w);
    let call = w.next(c);
    assert!(call["result"]["task"].is_object(), "{call}");
    keyed(&mut w, c, "k", "other", false);
    let (seq, _) = w.stored.remove(0);
    w.feed(Input::Unstored(seq, Unstored::Broken));
    assert_eq!(w.next(c)["error"]["code"], -31006);
    let forgets = |(_, write): &(Seq, StoreWrite)| {
        matches!(write, StoreWrite::Keyed(_, KeyChange::Forgotten))
    };
    assert!(w.stored.iter().any(forgets), "it may have been claimed");
}

/// TSK-30, FLT-02: a question of a task elsewhere goes to a session that waits for the task here, its answer to
/// the table, and one that another peer has answered is taken back.
#[test]
fn session_is_asked_for_a_task_of_another_engine() {
    let (mut w, mut table) = engine();
    let id = table.of_another(5, Status::InputRequired);
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let form = json!({"method": "elicitation/create", "params": form});
    let record = table.records.get_mut(&id).expect("it");
    record.asks = Some(json!({"q": form, "r": form}).to_string().into());
    let unable = w.open_as(ME, NEWEST);
    let c = w.open_with(ME, NEWEST, json!({"elicitation": {}}));
    for (conn, name) in [(unable, "one"), (c, "two"), (c, "three")] {
        w.send(conn, &request(json!(name), "tasks/result", json!({"taskId": id.to_string()})));
        table.answer(&mut w);
    }
    w.silent(unable);
    let asked = [w.next(c), w.next(c)];
    for question in &asked {
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let related = &question["params"]["_meta"]["io.modelcontextprotocol/related-task"];
        assert_eq!(related["taskId"], id.to_string(), "{question}");
    }
    w.silent(c);
    let answer = json!({"jsonrpc": "2.0", "id": asked[0]["id"], "result": {"action": "accept"}});
    w.send(c, &answer.to_string());
    table.commit(&mut w);
    assert_eq!(table.inputs, [(id, r#"{"q":{"action":"accept"}}"#.into())]);
    // Another peer was quicker with the other one.
    let mut record = table.records[&id].clone();
    (record.status, record.asks) = (Status::Working, None);
    w.feed(Input::Shared(SharedEvent::Changed { record: Box::new(record) }));
    let told = w.next(c);
    let of = (&told["method"], &told["params"]["requestId"]);
    assert_eq!(of, (&json!("notifications/cancelled"), &asked[1]["id"]), "{told}");
    w.silent(c);
}

/// FLT-03: the end of the work of a cancelled task is told to the table, and how far it is to peers.
#[test]
fn end_of_stopped_work_is_told() {
    let (mut w, mut table) = engine();
    let c = w.open_as(ME, NEWEST);
    let task = created(&mut w, &mut table, c);
    let job = w.last_started();
    ask(&mut w, c, "tasks/cancel", &task);
    table.answer(&mut w);
    table.commit(&mut w);
    let told = w.rest(c);
    assert!(told.iter().all(|it| !it["result"].is_object() || work(it) == "ending"), "{told:?}");
    w.stopped(job);
    let receipt = |(_, write): &(Seq, StoreWrite)| {
        let StoreWrite::Receipt { task: of, receipt } = write else { return None };
        (of.to_string() == task).then(|| receipt.to_string())
    };
    let receipt = w.stored.iter().find_map(receipt).expect("a receipt");
    assert!(receipt.contains("\"why\":\"requested\""), "{receipt}");
    table.commit(&mut w);
    for (known, word) in [(Work::Ceased, "ceased"), (Work::Ending, "ending"), (Work::Lost, "lost")]
    {
        table.records.values_mut().next().expect("a record").work = Some(known);
        assert_eq!(work(&asked(&mut w, &table, c, "tasks/get", &task)), word);
    }
}

fn work(answer: &Value) -> &Value {
    &answer["result"]["_meta"]["ceased/work"]
}
