//! A foreign task is answered as one that does not exist: with the same words, notes, the same
//! accesses to the store and the same state afterwards, whatever the other's task is doing
//! (TSK-39).

use std::sync::Arc;

use ceased_core::acp::protocol::AcpRole;
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId, TaskId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::settings::Settings;
use ceased_core::tasks::durable::Unstored;
use ceased_simulator::acp::{FORMS, answer, permission};
use ceased_simulator::modern::{able, request, tasks};
use ceased_simulator::store::Store;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, World, raw_json};
use serde_json::{Value, json};

const ANN: Identity = Identity::User(1);
const BOB: Identity = Identity::User(2);
/// As long as every other id, and no task's.
const NEVER: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

fn settings() -> Arc<Settings> {
    // Nothing that has ended stays in memory.
    let limits = Limits { resident_result_bytes: 0, ..Limits::default() };
    tools::settings(limits, TaskPolicy { durable: true, ..TaskPolicy::default() })
}

/// The state of the other's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It is not on disk yet.
    BeingCreated,
    Working,
    /// It waits for input.
    Asking,
    /// Its end is not on disk yet.
    Ending,
    /// Its end could not be stored.
    Owed,
    /// Its result is in the store alone.
    Ended,
    /// As that, and its owner has asked for the result, which is being read.
    BeingRead,
}

const ALL: [Doing; 7] = [
    Doing::BeingCreated,
    Doing::Working,
    Doing::Asking,
    Doing::Ending,
    Doing::Owed,
    Doing::Ended,
    Doing::BeingRead,
];

/// A world in which Ann has a task that is doing this.
fn world(doing: Doing) -> (World, Store, String) {
    let mut store = Store::default();
    let mut w = store.world(&settings());
    let ann = w.connect(ANN);
    let able = |params| {
        let extension = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        let mut capabilities = extension;
        capabilities["elicitation"] = json!({});
        able(&capabilities, params)
    };
    w.send(ann, &request(json!("create"), "tools/call", able(json!({"name": "sleep"}))));
    store.take(&mut w);
    let id = store.records.keys().copied().next().or_else(|| match store.waiting.front() {
        Some((_, write)) => write.record().map(|record| record.id),
        None => None,
    });
    let id: TaskId = id.expect("the creation is written");
    let of_task = || able(json!({"taskId": id.to_string()}));
    let done = |w: &mut World| w.done(w.last_started(), "here you are");
    if doing != Doing::BeingCreated {
        store.commit_all(&mut w);
    }
    match doing {
        Doing::BeingCreated | Doing::Working => {}
        Doing::Asking => {
            let params = json!({
                "message": "name?", "requestedSchema": {"type": "object", "properties": {}},
            });
            let ask = ceased_core::outgoing::call::OutgoingRequest {
                params: Some(raw_json(&params.to_string())),
                ..permission()
            };
            let ask = ceased_core::outgoing::call::OutgoingRequest {
                method: "elicitation/create".into(),
                ..ask
            };
            w.feed(Input::Asked(w.last_started(), AskId::new(1), None, ask));
            w.feed(Input::Turn);
        }
        Doing::Ending => done(&mut w),
        Doing::Owed => {
            done(&mut w);
            store.refuse(&mut w, Unstored::Full, false);
        }
        Doing::Ended | Doing::BeingRead => {
            done(&mut w);
            store.commit_all(&mut w);
            if doing == Doing::BeingRead {
                w.send(ann, &request(json!("get"), "tasks/get", of_task()));
                assert_eq!(w.loads.len(), 1, "it is read");
            }
        }
    }
    (w, store, id.to_string())
}

/// Every request that names a task, in every form, each with params for this id.
fn attacks(id: &str) -> Vec<(bool, &'static str, Value)> {
    let of_task = |more: Value| {
        let mut params = json!({"taskId": id});
        for (key, value) in more.as_object().into_iter().flatten() {
            params[key] = value.clone();
        }
        params
    };
    let inputs = json!({"inputResponses": {"1": {"action": "accept", "content": {}}}});
    let reason = json!({"_meta": {"ceased/reason": "because"}});
    vec![
        (false, "tasks/get", of_task(json!({}))),
        (false, "tasks/result", of_task(json!({}))),
        (false, "tasks/cancel", of_task(json!({}))),
        (false, "tasks/cancel", of_task(reason)),
        (false, "tasks/update", of_task(inputs.clone())),
        (false, "tasks/list", json!({"cursor": id})),
        (true, "tasks/get", tasks(of_task(json!({})))),
        (true, "tasks/cancel", tasks(of_task(json!({})))),
        (true, "tasks/update", tasks(of_task(inputs))),
        (true, "tasks/update", tasks(of_task(json!({"inputResponses": {}})))),
        (true, "tasks/result", tasks(of_task(json!({})))),
        (true, "subscriptions/listen", tasks(json!({"notifications": {"taskIds": [id]}}))),
    ]
}

/// All actions when Bob asks this, and its changes, with the id left out.
fn happens(w: &mut World, bob: ConnId, id: &str, method: &str, params: &Value) -> String {
    w.transcript = Some(Vec::new());
    let (before, loads, writes) = (w.counters().named(), w.loads.len(), w.stored.len());
    w.send(bob, &request(json!("attack"), method, params.clone()));
    w.rest(bob);
    let lines = w.transcript.take().unwrap_or_default().join("\n");
    assert_eq!((w.loads.len(), w.stored.len()), (loads, writes), "{method} reaches the store");
    let is_work = |line: &str| line.starts_with("stop ") || line.starts_with("start ");
    assert!(!lines.lines().any(is_work), "{method}: {lines}");
    let changed: Vec<String> = before
        .into_iter()
        .zip(w.counters().named())
        .filter(|(before, after)| before.1 != after.1)
        .map(|(before, after)| format!("{} +{}", before.0, after.1 - before.1))
        .collect();
    // So that the next one may have the same id.
    w.send(bob, &ceased_simulator::modern::cancel(json!("attack")));
    format!("{lines}\n{changed:?}\n{:?}", w.sizes()).replace(id, "ID")
}

/// TSK-39, TSK-27: by every method, whatever the task is doing.
#[test]
fn anothers_task_is_as_one_that_never_was() {
    for doing in ALL {
        // Whichever is asked for first: counters must not tell either.
        for foreign_first in [true, false] {
            let (mut w, mut store, id) = world(doing);
            let (core, modern) = (w.open_as(BOB, NEWEST), w.connect(BOB));
            let before = untouched(&w, &id);
            for (foreign, unknown) in attacks(&id).into_iter().zip(attacks(NEVER)) {
                let (claims, method, params) = foreign;
                let bob = if claims { modern } else { core };
                let mut ask = |is_foreign: bool| match is_foreign {
                    true => happens(&mut w, bob, &id, method, &params),
                    false => happens(&mut w, bob, NEVER, method, &unknown.2),
                };
                let first = ask(foreign_first);
                let second = ask(!foreign_first);
                assert_eq!(first, second, "{doing:?} {method} {params}");
            }
            assert_eq!(untouched(&w, &id), before, "{doing:?}: something changed");
            // Its owner finds it as it would have been.
            store.commit_all(&mut w);
            store.load(&mut w, true);
        }
    }
}

/// State that an attack must not change: the stop sequence of the task's job, and all tables.
fn untouched(w: &World, id: &str) -> String {
    let is_its = |task: TaskId| task.to_string() == id;
    let jobs = w.running.values().filter(|job| job.task.is_some_and(is_its));
    let steps: Vec<_> = jobs.map(|job| job.step).collect();
    let sizes = w.sizes();
    format!("{steps:?} {} {} {}", sizes.tasks, sizes.jobs, w.stops.len())
}

/// TSK-39, MOD-07: the state of another's call that waits for input is as good as none, and is
/// still good for its owner afterwards.
#[test]
fn anothers_state_is_as_one_that_never_was() {
    let mut w = World::new();
    let (ann, bob) = (w.connect(ANN), w.connect(BOB));
    let roots = json!({"roots": {}});
    w.send(ann, &request(json!(1), "tools/call", able(&roots, json!({"name": "build"}))));
    let ask = ceased_core::outgoing::call::OutgoingRequest {
        method: "roots/list".into(),
        ..permission()
    };
    w.feed(Input::Asked(w.last_started(), AskId::new(1), None, ask));
    w.feed(Input::Turn);
    let asked = w.next(ann);
    let state = asked["result"]["requestState"].as_str().expect("it waits").to_owned();
    let retry = |state: &str, tool: &str, inputs: &Value| {
        able(&roots, json!({"name": tool, "requestState": state, "inputResponses": inputs}))
    };
    for inputs in [json!({"1": {"roots": []}}), json!({}), json!([]), json!({"1": 7})] {
        for tool in ["build", "echo"] {
            let theirs = retry(&state, tool, &inputs);
            let nobodys = retry(NEVER, tool, &inputs);
            let told = happens(&mut w, bob, &state, "tools/call", &theirs);
            assert_eq!(
                told,
                happens(&mut w, bob, NEVER, "tools/call", &nobodys),
                "{tool} {inputs}"
            );
            assert!(told.contains("-32602"), "{told}");
        }
    }
    assert!(w.told.is_empty(), "somebody else answered");
    let good = retry(&state, "build", &json!({"1": {"roots": []}}));
    w.send(ann, &request(json!(2), "tools/call", good));
    assert_eq!(w.told.len(), 1);
}

/// TSK-39: another's idempotency key is free, whatever its owner does with it: the call runs, and
/// its answer reaches no other identity.
#[test]
fn anothers_key_is_free() {
    let mut w = World::new();
    let (ann, bob) = (w.open_as(ANN, NEWEST), w.open_as(BOB, NEWEST));
    let call = |task: bool| {
        let mut params = json!({"name": "sleep", "arguments": {}});
        params["_meta"] = json!({"ceased/idempotencyKey": format!("the key {task}")});
        if task {
            params["task"] = json!({});
        }
        params
    };
    for task in [false, true] {
        w.send(ann, &request(json!(1), "tools/call", call(task)));
        let anns = w.last_started();
        w.send(bob, &request(json!(1), "tools/call", call(task)));
        let bobs = w.last_started();
        assert_ne!(anns, bobs, "it waits for somebody else's");
        let ids = (w.running[&anns].task, w.running[&bobs].task);
        assert!(ids.0 != ids.1 || !task);
        w.done(anns, "for Ann alone");
        let told = format!("{:?}", w.rest(bob));
        assert!(!told.contains("for Ann alone"), "{told}");
        // An ended task is not given away either.
        w.done(bobs, "for Bob");
        let told = format!("{:?}{:?}", w.rest(bob), w.rest(ann).len());
        assert!(told.contains("for Bob") || task, "{told}");
    }
}

/// TSK-39: an ordinary user lists, inspects and cancels only its own jobs, and a job of
/// another is in the same words as none.
#[test]
fn anothers_job_is_as_one_that_never_was() {
    let mut w = World::new();
    let (ann, bob) = (w.open_as(ANN, NEWEST), w.open_as(BOB, NEWEST));
    w.send(ann, &request(json!("a"), "tools/call", json!({"name": "sleep", "arguments": {}})));
    let job = w.last_started();
    let never = job.get() + 10_000;
    let told = [job.get(), never].map(|number| {
        let params = json!({"job": number, "reason": "mine"});
        happens(&mut w, bob, &format!("job {number};"), "ceased/cancel", &params)
    });
    assert_eq!(told[0], told[1]);
    assert!(w.steps(job).is_empty());
    let status = w.result(bob, "ceased/status", json!({}));
    assert_eq!(status["jobs"], json!([]), "{status}");
    w.send(bob, &request(json!("all"), "ceased/status", json!({"detail": true})));
    let (survey, jobs, viewer) = w.surveys.pop().expect("the host is asked");
    assert_eq!((jobs, viewer), (vec![], Some(BOB)), "of no job, and for whom");
    w.surveyed(survey, "{}");
    let status = w.next(bob)["result"].take();
    assert!(!status.to_string().contains(&ANN.to_string()), "{status}");
    // The ids of requests are each connection's own.
    w.send(bob, &ceased_simulator::modern::cancel(json!("a")));
    assert!(w.steps(job).is_empty());
}

/// TSK-39, ACP-01: an ACP peer reaches nothing of another connection: not its requests by their
/// ids, in any spelling, nor the questions there; and its notifications of sessions reach the host
/// with its identity.
#[test]
fn acp_peers_are_apart() {
    for form in FORMS {
        let mut w = World::new();
        let [ann, bob] = [ANN, BOB].map(|who| w.open_acp_as(who, form, AcpRole::Agent));
        for conn in [ann, bob] {
            let capabilities = ceased_simulator::acp::supports(true);
            let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
            let job = w.request(conn, json!("init"), "initialize", params);
            let offers = json!({"protocolVersion": 1, "agentCapabilities": capabilities});
            w.end(job, ceased_simulator::world::result_of(&offers));
            w.rest(conn);
        }
        let prompt = json!({"sessionId": "anns", "prompt": []});
        let job = w.request(ann, json!(7), "session/prompt", prompt);
        w.feed(Input::Asked(job, AskId::new(5), None, permission()));
        let asked = w.next(ann)["id"].clone();
        let attacks = |id: Value, session: &str| {
            [
                ("$/cancel_request", json!({"requestId": id})),
                ("$/cancelRequest", json!({"requestId": id})),
                ("$/cancelRequest", json!({"id": id})),
                ("session/cancel", json!({"sessionId": session})),
            ]
        };
        for ((method, theirs), (_, nobodys)) in
            attacks(json!(7), "anns").into_iter().zip(attacks(json!(8), "none"))
        {
            let changes = [theirs, nobodys].map(|params| {
                let before = (w.counters().cancels_ignored, w.notified.len());
                w.tell(bob, method, params);
                (w.counters().cancels_ignored - before.0, w.notified.len() - before.1)
            });
            assert_eq!(changes[0], changes[1], "{method}");
        }
        assert!(w.notified.iter().all(|(conn, ..)| *conn == bob), "{:?}", w.notified);
        // An answer to a question on another connection is dropped.
        answer(&mut w, bob, &asked, &json!({"outcome": {"outcome": "cancelled"}}));
        assert!(w.told.is_empty(), "somebody else answered");
        w.silent(bob);
        assert!(w.steps(job).is_empty() && w.running.contains_key(&job));
        // A request with the id of another's is a request of its own.
        let load = json!({"sessionId": "anns", "prompt": []});
        let own = w.request(bob, json!(7), "session/prompt", load);
        assert_ne!(own, job);
        w.tell(bob, "$/cancel_request", json!({"requestId": 7}));
        assert!(w.steps(job).is_empty() && !w.steps(own).is_empty());
        answer(&mut w, ann, &asked, &json!({"outcome": {"outcome": "cancelled"}}));
        assert_eq!(w.told.len(), 1);
    }
}
