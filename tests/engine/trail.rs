//! Audit events of a task and a cancel, abuse of identities, and the view of a
//! requestor (TSK-38, TSK-39, TSK-41, CAN-12, CAN-13).

use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::{AuditEvent, OperatorOrder, Receipt, RequestOutcome};
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::policy::abuse::{AbusePattern, SuspicionPolicy};
use ceased_core::reason::StopReason;
use ceased_core::rpc::error::code;
use ceased_core::settings::Settings;
use ceased_core::tasks::status::Status;
use ceased_core::tool::StopStep;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, Rigged, World};
use serde_json::{Value, json};

const ROOT: Identity = Identity::User(0);

fn watched(suspicion: SuspicionPolicy) -> World {
    World::with(Limits { suspicion, ..Limits::default() }, TaskPolicy::default())
}

/// A world in which root is an operator.
fn operated() -> World {
    let settings = Arc::into_inner(tools::settings(Limits::default(), TaskPolicy::default()));
    let settings = settings.expect("nobody else has it");
    let settings = Settings { operators: vec![ROOT], ..settings };
    World::made_of(Arc::new(settings), Rigged::default())
}

fn receipts(w: &World) -> Vec<Receipt> {
    let ceased = |note: &AuditEvent| {
        let AuditEvent::Ceased(receipt) = note else { return None };
        Some((**receipt).clone())
    };
    w.notes.iter().filter_map(ceased).collect()
}

fn suspicions(w: &World) -> Vec<(Identity, AbusePattern, u32)> {
    let suspicious = |note: &AuditEvent| {
        let AuditEvent::Suspicious { identity, pattern, count, .. } = note else { return None };
        Some((identity.clone(), *pattern, *count))
    };
    w.notes.iter().filter_map(suspicious).collect()
}

fn status(w: &mut World, c: ConnId) -> Value {
    w.result(c, "ceased/status", json!({}))
}

/// The answer to a request among the received frames.
fn take_answer(w: &mut World, c: ConnId, id: &Value) -> Value {
    let heard = w.rest(c);
    let found = heard.iter().find(|message| message["id"] == *id);
    found.unwrap_or_else(|| panic!("no answer to {id}: {heard:?}")).clone()
}

/// A detailed status, with this from the host.
fn detail(w: &mut World, c: ConnId, host: &str) -> Value {
    w.send(
        c,
        r#"{"jsonrpc":"2.0","id":"detail","method":"ceased/status","params":{"detail":true}}"#,
    );
    let (survey, ..) = w.surveys.pop().expect("the host is asked");
    w.surveyed(survey, host);
    take_answer(w, c, &json!("detail"))["result"].take()
}

/// TSK-41: one record each for creation, completion, retrieval and the end of the ttl, with the
/// owner and the tool of the task.
#[test]
fn task_leaves_a_trail() {
    let mut w = World::new();
    let c = w.open_as(Identity::User(7), NEWEST);
    let (task, job) = w.task(c, "sleep");
    w.done(job, "slept");
    let _ = w.ask(c, "tasks/result", json!({"taskId": task}));
    w.advance(Duration::from_secs(2 * 3600));
    let is_of_task = |note: &AuditEvent| {
        let (AuditEvent::TaskCreated { task: of, .. }
        | AuditEvent::TaskEnded { task: of, .. }
        | AuditEvent::TaskRetrieved { task: of, .. }
        | AuditEvent::TaskExpired { task: of, .. }) = note
        else {
            return false;
        };
        of.to_string() == task
    };
    assert!(w.notes.iter().all(is_of_task), "{:?}", w.notes);
    let tool = || Arc::from("sleep");
    let identity = || Identity::User(7);
    let [
        AuditEvent::TaskCreated { conn, identity: by, job: of, tool: called, live: 1, .. },
        AuditEvent::TaskEnded {
            identity: ended_of, tool: ended, status: Status::Completed, ..
        },
        AuditEvent::TaskRetrieved { conn: by_conn, method: "tasks/result", .. },
        AuditEvent::TaskExpired {
            identity: gone_of, tool: gone, status: Status::Completed, ..
        },
    ] = &w.notes[..]
    else {
        panic!("{:?}", w.notes)
    };
    assert_eq!((conn, by_conn, of), (&c, &c, &job));
    assert_eq!([by, ended_of, gone_of], [&identity(); 3]);
    assert_eq!([called, ended, gone], [&tool(); 3]);
}

/// TSK-41: a request that waits for a result retrieves it as well.
#[test]
fn blocked_result_is_a_retrieval() {
    let mut w = World::new();
    let c = w.open();
    let (task, job) = w.task(c, "sleep");
    w.send(
        c,
        &json!({"jsonrpc": "2.0", "id": 9, "method": "tasks/result", "params": {"taskId": task}})
            .to_string(),
    );
    assert!(!w.notes.iter().any(|note| matches!(note, AuditEvent::TaskRetrieved { .. })));
    w.done(job, "slept");
    assert!(w.notes.iter().any(|note| matches!(note, AuditEvent::TaskRetrieved { .. })));
}

/// TSK-41: a burst of unknown ids raises one warning a window, for its identity alone;
/// another's task counts as unknown.
#[test]
fn enumeration_is_noticed() {
    let policy = SuspicionPolicy { unknown_tasks: 5, ..SuspicionPolicy::default() };
    let mut w = watched(policy);
    let (victim, attacker) = (w.open(), w.open_as(Identity::User(666), NEWEST));
    let (task, _) = w.task(victim, "sleep");
    for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/get"] {
        assert_eq!(w.refusal(attacker, method, json!({"taskId": task})).0, -32602);
    }
    assert_eq!(suspicions(&w), []);
    for _ in 0..20 {
        let _ = w.refusal(attacker, "tasks/get", json!({"taskId": "guess"}));
    }
    let warned = (Identity::User(666), AbusePattern::UnknownTasks, 5);
    assert_eq!(suspicions(&w), std::slice::from_ref(&warned));
    assert_eq!((w.counters().unknown_tasks, w.counters().suspicions), (24, 1));
    w.advance(policy.window);
    for _ in 0..5 {
        let _ = w.refusal(attacker, "tasks/get", json!({"taskId": "guess"}));
    }
    assert_eq!(suspicions(&w), [warned.clone(), warned]);
}

/// TSK-41: polling faster than `pollInterval` raises a warning; as it was asked to, none.
#[test]
fn fast_polling_is_noticed() {
    let mut w = watched(SuspicionPolicy { fast_polls: 3, ..SuspicionPolicy::default() });
    let c = w.open();
    let (task, _) = w.task(c, "sleep");
    let get = json!({"taskId": task});
    for _ in 0..10 {
        let _ = w.result(c, "tasks/get", get.clone());
        w.advance(Duration::from_secs(1));
    }
    assert_eq!((suspicions(&w).len(), w.counters().fast_polls), (0, 0));
    for _ in 0..10 {
        let _ = w.result(c, "tasks/get", get.clone());
        w.advance(Duration::from_millis(10));
    }
    assert_eq!(suspicions(&w), [(Identity::User(1000), AbusePattern::FastPolls, 3)]);
    assert_eq!(w.counters().fast_polls, 9);
}

/// CAN-12: the receipt of a cancel has requestor, reason, last step and duration.
#[test]
fn cancel_has_a_receipt() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "build");
    w.send(
        c,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"a\nb"}}"#,
    );
    w.advance(tools::KILL_GRACE);
    assert_eq!(receipts(&w), [], "not before it has ceased");
    w.stopped(job);
    let [receipt] = &receipts(&w)[..] else { panic!("{:?}", w.notes) };
    assert_eq!(
        (receipt.job, receipt.why, receipt.stage),
        (job, StopReason::Requested, Some(StopStep::Kill))
    );
    let cancel = receipt.cancel.as_ref().expect("somebody asked for it");
    assert_eq!((cancel.conn, &cancel.by), (c, &Identity::User(1000)));
    assert_eq!(cancel.reason.as_deref(), Some("a b"));
    assert_eq!(w.now().at.since(receipt.since), tools::KILL_GRACE);
}

/// A job that had not begun has a receipt, too: nothing was done to it.
#[test]
fn queued_job_has_a_receipt() {
    let mut w = World::with(Limits { running_max: 1, ..Limits::default() }, TaskPolicy::default());
    let c = w.open();
    let _running = w.call(c, json!(1), "build");
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "build"}});
    w.send(c, &call.to_string());
    w.feed(Input::Turn);
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    let [receipt] = &receipts(&w)[..] else { panic!("{:?}", w.notes) };
    assert_eq!((receipt.stage, receipt.why), (None, StopReason::Requested));
    assert_eq!(receipt.since, w.now().at);
}

/// CAN-13: until it has ceased a job is shown as `cancelling`, with the reason and since when.
#[test]
fn view_shows_cancelling() {
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!(1), "build");
    w.send(
        c,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}"#,
    );
    w.advance(Duration::from_millis(700));
    let shown = status(&mut w, c)["jobs"][0].take();
    assert_eq!(shown["state"], "cancelling");
    assert_eq!((&shown["reason"], &shown["said"]), (&json!("requested"), &json!("enough")));
    assert_eq!((&shown["by"], &shown["identity"]), (&json!("uid:1000"), &json!("uid:1000")));
    assert_eq!((&shown["step"], &shown["cancellingMs"]), (&json!("SIGTERM"), &json!(700)));
    w.stopped(job);
    assert_eq!(status(&mut w, c)["jobs"], json!([]));
}

/// TSK-38: with `detail`, the status has connections, tasks and the host's data.
#[test]
fn detailed_status() {
    let mut w = World::new();
    let c = w.open();
    let (task, job) = w.task(c, "sleep");
    w.feed(Input::Progress(job, 3.0, Some(10.0), Some("bytes\u{1b}[31m".into())));
    w.advance(Duration::from_secs(5));
    let shown = detail(&mut w, c, r#"{"survivors":0}"#);
    assert_eq!(shown["host"], json!({"survivors": 0}));
    let listed = &shown["taskList"][0];
    assert_eq!((&listed["task"], &listed["tool"]), (&json!(task), &json!("sleep")));
    assert_eq!((&listed["ageMs"], &listed["ttlLeftMs"]), (&json!(5000), &json!(3_595_000)));
    let peer = &shown["peers"][0];
    assert_eq!((&peer["elapsedMs"], &peer["protocol"]), (&json!(5000), &json!(NEWEST)));
    let running = &shown["jobs"][0];
    assert_eq!((&running["progress"], &running["total"]), (&json!(3), &json!(10)));
    assert_eq!(running["message"], "bytes [31m");
    assert_eq!((&shown["tasks"]["working"], &shown["tasks"]["total"]), (&json!(1), &json!(1)));
}

/// A detailed status that is cancelled, or whose peer is gone, is answered by nothing.
#[test]
fn unwanted_survey() {
    let mut w = World::new();
    let c = w.open();
    let ask = r#"{"jsonrpc":"2.0","id":5,"method":"ceased/status","params":{"detail":true}}"#;
    w.send(c, ask);
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#);
    let (survey, ..) = w.surveys.pop().expect("the host is asked");
    w.surveyed(survey, "{}");
    w.silent(c);
    w.send(c, ask);
    let (survey, ..) = w.surveys.pop().expect("the host is asked");
    w.feed(Input::Closed(c));
    w.surveyed(survey, "{}");
    assert_eq!(w.sizes().requests, 0);
}

/// TSK-39: a peer sees its own; an operator sees all. TSK-40: anonymous peers have no
/// identity, so one is not told of another's.
#[test]
fn each_viewer_sees_its_part() {
    let mut w = operated();
    let (one, two) = (w.open_as(Identity::User(1), NEWEST), w.open_as(Identity::User(2), NEWEST));
    let nobody = [(); 2].map(|()| w.open_as(Identity::Anonymous, NEWEST));
    let root = w.open_as(ROOT, NEWEST);
    for (n, c) in [one, two, nobody[0], nobody[1]].into_iter().enumerate() {
        let _ = w.task(c, "sleep");
        let _ = w.call(c, json!(format!("call-{n}")), "echo");
    }
    for (c, jobs, tasks, peers) in
        [(one, 2, 1, 1), (two, 2, 1, 1), (nobody[0], 2, 0, 1), (root, 8, 4, 5)]
    {
        let shown = detail(&mut w, c, "{}");
        let count = |name: &str| shown[name].as_array().map(Vec::len);
        assert_eq!(
            (count("jobs"), count("taskList"), count("peers")),
            (Some(jobs), Some(tasks), Some(peers)),
            "{shown}"
        );
        assert_eq!(shown["operator"], c == root);
    }
}

/// `ceased/cancel` stops one's own jobs and tells their requestor; another's is unknown in the same
/// words, except to an operator.
#[test]
fn cancelling_by_number() {
    let mut w = operated();
    let (one, two) = (w.open_as(Identity::User(1), NEWEST), w.open_as(Identity::User(2), NEWEST));
    let root = w.open_as(ROOT, NEWEST);
    let job = w.call(one, json!(1), "build");
    let number = |job: JobId| json!({"job": job.get(), "reason": "in the way"});
    let refused = w.refusal(two, "ceased/cancel", number(job));
    let never = w.refusal(two, "ceased/cancel", json!({"job": 99}));
    assert_eq!(refused.0, -32602);
    assert_eq!(refused.1.replace(&job.get().to_string(), "99"), never.1);
    assert_eq!(w.steps(job), []);
    assert_eq!(w.result(root, "ceased/cancel", number(job)), json!({}));
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Requested)]);
    assert_eq!(status(&mut w, root)["jobs"][0]["said"], "in the way");
    w.stopped(job);
    let told = take_answer(&mut w, one, &json!(1))["error"]["message"].to_string();
    assert!(told.contains("cancelled by another requestor or an operator"), "{told}");
    let [receipt] = &receipts(&w)[..] else { panic!("{:?}", w.notes) };
    assert_eq!(receipt.cancel.as_ref().map(|cancel| &cancel.by), Some(&ROOT));
    for (c, whom) in [(two, "the requestor"), (root, "an operator")] {
        let (task, job) = w.task(two, "build");
        assert_eq!(w.result(c, "ceased/cancel", number(job)), json!({}));
        let shown = w.result(two, "tasks/get", json!({"taskId": task}));
        let message = format!("cancelled by {whom}: in the way");
        assert_eq!(
            (&shown["status"], &shown["statusMessage"]),
            (&"cancelled".into(), &message.into())
        );
        let noted = w.notes.iter().rfind(|note| matches!(note, AuditEvent::TaskCancelled { .. }));
        let Some(AuditEvent::TaskCancelled { method, tool, .. }) = noted else { panic!("no note") };
        assert_eq!((*method, &**tool), ("ceased/cancel", "build"));
    }
}

/// TSK-39: an order is handed to the host for an operator alone, in every phase and revision.
#[test]
fn orders_are_taken_from_operators_alone() {
    let mut w = operated();
    let orders = [
        ("ceased/reload", OperatorOrder::Reload),
        ("ceased/drain", OperatorOrder::Drain),
        ("ceased/shutdown", OperatorOrder::ShutDown),
    ];
    for (method, order) in orders {
        let ann = w.open_as(Identity::User(1), NEWEST);
        let refused = w.ask(ann, method, json!({}));
        assert_eq!(refused["error"]["code"], code::FORBIDDEN, "{refused}");
        assert!(w.orders.is_empty(), "{:?}", w.orders);
        let root = w.open_as(ROOT, NEWEST);
        assert_eq!(w.result(root, method, json!({})), json!({}));
        assert_eq!(w.orders, [(root, ROOT, order)]);
        w.orders.clear();
    }
}

/// OBS-01: where the host records spans, the end of each request that no job worked on is told once:
/// answered, refused, cancelled or cut off. The span of a call is that of its job.
#[test]
fn end_of_a_request_without_a_job_is_told() {
    let settings = Arc::into_inner(tools::settings(Limits::default(), TaskPolicy::default()));
    let settings = settings.expect("it is the only one");
    let mut w =
        World::made_of(Arc::new(Settings { own_spans: true, ..settings }), Rigged::default());
    let ended = |w: &mut World| {
        let told = w.notes.drain(..).filter_map(|note| {
            let AuditEvent::RequestEnded(end) = note else { return None };
            Some((end.method.to_string(), end.outcome))
        });
        told.collect::<Vec<_>>()
    };
    let c = w.open();
    ended(&mut w);
    w.result(c, "tools/list", json!({}));
    w.ask(c, "no/such", json!({}));
    w.result(c, "ceased/status", json!({}));
    assert_eq!(
        ended(&mut w),
        [
            ("tools/list".to_owned(), RequestOutcome::Answered),
            ("no/such".to_owned(), RequestOutcome::Failed(Some(-32601))),
        ]
    );
    let (task, _) = w.task(c, "sleep");
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let params = json!({"taskId": task, "_meta": {"traceparent": trace}});
    w.send(
        c,
        &json!({"jsonrpc": "2.0", "id": 70, "method": "tasks/result", "params": params})
            .to_string(),
    );
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":70}}"#);
    let told = w.notes.iter().find_map(|note| {
        let AuditEvent::RequestEnded(end) = note else { return None };
        Some(end.trace.as_ref()?.span.as_ref()?.trace_hex())
    });
    assert_eq!(told.as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
    assert_eq!(ended(&mut w), [("tasks/result".to_owned(), RequestOutcome::Cancelled)]);
    let job = w.call(c, json!(71), "sleep");
    w.done(job, "slept");
    assert_eq!(ended(&mut w), []);
}
