//! Tasks of 2025-11-25: declared, created, asked about, awaited, listed, cancelled.

use ceased_core::identity::Identity;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::reason::StopReason;
use ceased_core::tool::StopStep;
use ceased_simulator::tools;
use ceased_simulator::trace::Input;
use ceased_simulator::world::{NEWEST, Rigged, WALL_START, World, result_of};
use serde_json::{Value, json};
use uuid::Uuid;

const OLDER: [&str; 3] = ["2024-11-05", "2025-03-26", "2025-06-18"];
const RELATED: &str = "io.modelcontextprotocol/related-task";

fn capabilities(revision: &str, identity: Identity) -> Value {
    let mut w = World::new();
    let c = w.connect(identity);
    let client = json!({"name": "p", "version": "1"});
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": client});
    w.result(c, "initialize", params)["capabilities"].take()
}

/// TSK-01: the declaration, exactly; absent on the revisions before.
#[test]
fn tasks_are_declared_where_there_are_tasks() {
    let others = json!({"logging": {}, "tools": {"listChanged": true}});
    for revision in OLDER {
        assert_eq!(capabilities(revision, Identity::User(1)), others, "{revision}");
    }
    let declared = capabilities(NEWEST, Identity::User(1));
    let tasks = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
    assert_eq!(declared["tasks"], tasks);
    // A list would show the tasks of all peers to all peers.
    let declared = capabilities(NEWEST, Identity::Anonymous);
    assert_eq!(declared["tasks"], json!({"cancel": {}, "requests": {"tools": {"call": {}}}}));
}

/// TSK-03: where tasks were not declared, `task` means nothing whatever it is, every tool is
/// plain, and there are no task methods.
#[test]
fn without_tasks_the_task_member_is_ignored() {
    for revision in OLDER {
        let mut w = World::new();
        let c = w.open_as(Identity::User(1), revision);
        for tool in ["echo", "sleep", "report"] {
            for task in [json!({}), json!({"ttl": 5}), json!(7), json!(null), json!({"ttl": "x"})] {
                let params = json!({"name": tool, "task": task});
                let request =
                    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
                w.send(c, &request.to_string());
                w.silent(c);
                let job = w.last_started();
                assert_eq!(w.running[&job].task, None);
                w.done(job, "plain");
                let result = json!({"content": [{"type": "text", "text": "plain"}]});
                w.expect(c, json!({"jsonrpc": "2.0", "id": 1, "result": result}));
            }
        }
        for method in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"] {
            assert_eq!(w.refusal(c, method, json!({"taskId": "x"})).0, -32601);
        }
        assert_eq!(w.sizes().tasks, 0);
    }
}

/// TSK-05: a task call of a tool that does not run as a task: -32601, and the tool is named.
#[test]
fn forbidden_tool_does_not_run_as_a_task() {
    let mut w = World::new();
    let c = w.open();
    let (code, message) = w.refusal(c, "tools/call", json!({"name": "echo", "task": {}}));
    assert_eq!(code, -32601);
    assert!(message.contains("echo"), "{message}");
    assert!(w.started.is_empty());
}

/// TSK-06: a plain call of a tool that runs as a task only: -32601, and the tool is named.
#[test]
fn required_tool_does_not_run_plainly() {
    let mut w = World::new();
    let c = w.open();
    let (code, message) = w.refusal(c, "tools/call", json!({"name": "report", "arguments": {}}));
    assert_eq!(code, -32601);
    assert!(message.contains("report"), "{message}");
    assert!(w.started.is_empty());
    w.task(c, "report");
}

/// TSK-07, TSK-09, TSK-12: the answer comes at once, before the work starts, and is a working
/// task with every member.
#[test]
fn task_is_handed_out_before_it_works() {
    let mut w = World::new();
    let c = w.open();
    w.frame(
        c,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep","task":{}}}"#,
    );
    assert!(w.started.is_empty());
    let created = w.next(c);
    let id = created["result"]["task"]["taskId"].as_str().unwrap().to_owned();
    let task = json!({
        "taskId": id, "status": "working", "ttl": 3_600_000, "pollInterval": 1000,
        "createdAt": "2025-11-01T00:00:00.000Z", "lastUpdatedAt": "2025-11-01T00:00:00.000Z",
    });
    assert_eq!(created, json!({"jsonrpc": "2.0", "id": 1, "result": {"task": task}}));
    // TSK-12: the same object, flat.
    assert_eq!(w.result(c, "tasks/get", json!({"taskId": id})), task);
    assert_eq!(w.running[&w.last_started()].task.unwrap().to_string(), id);
}

/// TSK-08: ids are UUIDs of version 4 as the generator gave them; one it gives twice is noticed
/// and never used twice.
#[test]
fn task_id_is_given_once() {
    let [key, a, b] = [9, 1, 2].map(|n| Uuid::from_u128(0x4000_8000_0000_0000_0000 + n));
    let id_source = Rigged::new([key, a, a, a, b, b, b, b, b]);
    let settings = tools::settings(Limits::default(), TaskPolicy::default());
    let mut w = World::made_of(settings, id_source);
    let c = w.open();
    let (first, job) = w.task(c, "sleep");
    assert_eq!(first, a.to_string());
    let (second, _) = w.task(c, "sleep");
    assert_eq!(second, b.to_string());
    assert_eq!(w.counters().id_collisions, 2);
    // A generator that is stuck: internal trouble, and nothing happened.
    let (code, _) = w.refusal(c, "tools/call", json!({"name": "sleep", "task": {}}));
    assert_eq!(code, -32603);
    assert_eq!((w.sizes().tasks, w.sizes().jobs, w.started.len()), (2, 2, 2));
    w.done(job, "first");
    assert_eq!(w.status(c, &first).as_deref(), Some("completed"));
    assert_eq!(w.status(c, &second).as_deref(), Some("working"));
}

/// TSK-09: a task that has to wait its turn works too, and says that it is queued.
#[test]
fn queued_task_is_working() {
    let mut w = World::with(Limits { running_max: 1, ..Limits::default() }, TaskPolicy::default());
    let c = w.open();
    let busy = w.call(c, json!(1), "echo");
    let result = w.result(c, "tools/call", json!({"name": "sleep", "task": {}}));
    assert_eq!(result["task"]["status"], "working");
    assert_eq!(result["task"]["statusMessage"], "waiting, 0 ahead");
    let id = result["task"]["taskId"].as_str().unwrap().to_owned();
    assert_eq!(w.started.len(), 1);
    w.done(busy, "ok");
    w.rest(c);
    assert_eq!(w.started.len(), 2);
    let task = w.result(c, "tasks/get", json!({"taskId": id}));
    assert_eq!((&task["status"], task.get("statusMessage")), (&json!("working"), None));
    // TSK-09: also when the job ends before anybody looks.
    let job = w.last_started();
    w.done(job, "slept");
    assert_eq!(w.status(c, &id).as_deref(), Some("completed"));
}

/// TSK-10, TSK-26: a terminal task never changes: three ends, and everything that could follow.
#[test]
fn end_is_an_end() {
    for end in ["completed", "failed", "cancelled"] {
        let mut w = World::new();
        let c = w.open();
        let (id, job) = w.task(c, "build");
        match end {
            "completed" => w.done(job, "ok"),
            "failed" => w.fail(job, -1, "boom"),
            _ => {
                w.result(c, "tasks/cancel", json!({"taskId": id}));
            }
        }
        let frozen = w.result(c, "tasks/get", json!({"taskId": id}));
        assert_eq!(frozen["status"], end);
        w.advance(std::time::Duration::from_secs(1));
        let late = w.counters().late_reports;
        w.feed(Input::Progress(job, 9.0, None, None));
        w.feed(Input::Lingering(job));
        w.feed(Input::Done(job, result_of(&json!({"content": [], "late": true}))));
        w.feed(Input::Done(job, result_of(&json!({"content": [], "later": true}))));
        assert!(w.counters().late_reports >= late + 2, "late reports are counted");
        let (code, message) = w.refusal(c, "tasks/cancel", json!({"taskId": id}));
        assert_eq!(code, -32602);
        assert!(message.contains(end), "{message}");
        let mut later = w.result(c, "tasks/get", json!({"taskId": id}));
        if end == "cancelled" {
            let work = |task: &Value| task["_meta"]["ceased/work"].clone();
            assert_eq!((work(&frozen), work(&later)), (json!("ending"), json!("ceased")));
            later["_meta"] = frozen["_meta"].clone();
        }
        assert_eq!(later, frozen);
    }
}

/// TSK-11: every form of `task` and `ttl`.
#[test]
fn ttls_asked_for() {
    let policy = TaskPolicy {
        default_ttl: std::time::Duration::from_secs(10),
        max_ttl: std::time::Duration::from_secs(100),
        ..TaskPolicy::default()
    };
    let mut w = World::with(Limits::default(), policy);
    let c = w.open();
    for (task, ttl) in [
        (json!({}), 10_000),
        (json!({"ttl": 1}), 1),
        (json!({"ttl": 99_999}), 99_999),
        (json!({"ttl": 100_000}), 100_000),
        (json!({"ttl": 100_001}), 100_000),
        (json!({"ttl": u64::MAX}), 100_000),
        (json!({"other": 1}), 10_000),
    ] {
        let result = w.result(c, "tools/call", json!({"name": "sleep", "task": task}));
        assert_eq!(result["task"]["ttl"], ttl, "{task}");
    }
    let started = w.started.len();
    for ttl in ["0", "-1", "1.5", "0.0", "1e-3", "\"60000\"", "true", "[]", "{}"] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"sleep","task":{{"ttl":{ttl}}}}}}}"#
        );
        w.send(c, &line);
        w.expect_error(c, json!(1), -32602);
    }
    for task in ["7", "true", "\"\"", "[]"] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"sleep","task":{task}}}}}"#
        );
        w.send(c, &line);
        w.expect_error(c, json!(1), -32602);
    }
    assert_eq!(w.started.len(), started);
}

/// TSK-14, TSK-16: the result of a task is, byte for byte, that of the plain call, and the
/// related-task key in `_meta`, beside the members in there. As often as one likes, from any
/// connection of the same identity.
#[test]
fn result_is_that_of_the_plain_call() {
    let results = [
        r#"{"content":[{"type":"text","text":"a \u20ac \"q\" \\ é"}],"isError":false}"#,
        r#"{"content":[ ],"structuredContent":{"n":1.50,"big":123456789012345678901234567890,"e":1E+2}}"#,
        r#"{"content":[],"_meta":{"keep":{"me":[1, 2]},"io.modelcontextprotocol/related-task":{"taskId":"forged"}},"z":null}"#,
    ];
    for text in results {
        let outcome =
            || ceased_core::event::Outcome::Result(ceased_simulator::world::raw_json(text).into());
        let mut w = World::new();
        let (c, other) = (w.open(), w.open());
        let job = w.call(c, json!(1), "sleep");
        w.end(job, outcome());
        assert_eq!(w.raw(c), format!(r#"{{"jsonrpc":"2.0","id":1,"result":{text}}}"#));
        let (id, job) = w.task(c, "sleep");
        w.end(job, outcome());
        w.rest(c);
        for asker in [c, c, other] {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{{"taskId":"{id}"}}}}"#
            );
            w.send(asker, &line);
            let raw = w.raw(asker);
            let related = format!(r#""{RELATED}":{{"taskId":"{id}"}}"#);
            let expected = match text.split_once(r#","_meta":{"#) {
                None => format!(r#"{},"_meta":{{{related}}}}}"#, text.strip_suffix('}').unwrap()),
                Some((before, _)) => {
                    format!(r#"{before},"z":null,"_meta":{{"keep":{{"me":[1, 2]}},{related}}}}}"#)
                }
            };
            assert_eq!(raw, format!(r#"{{"jsonrpc":"2.0","id":2,"result":{expected}}}"#));
        }
    }
}

/// TSK-14, TSK-43: a job's error is answered as it was: code, message, data.
#[test]
fn error_is_that_of_the_plain_call() {
    let error = || {
        let error = ceased_core::rpc::error::ErrorObject::new(-32042, "no \"way\"\n");
        ceased_core::event::Outcome::Error(error.with_data(r#"{"deep": [1, 2.0]}"#))
    };
    let mut w = World::new();
    let c = w.open();
    let job = w.call(c, json!("x"), "sleep");
    w.end(job, error());
    let plain = w.raw(c);
    let (id, job) = w.task(c, "sleep");
    w.end(job, error());
    w.rest(c);
    for _ in 0..2 {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":"x","method":"tasks/result","params":{{"taskId":"{id}"}}}}"#
        );
        w.send(c, &line);
        assert_eq!(w.raw(c), plain);
    }
    let task = w.result(c, "tasks/get", json!({"taskId": id}));
    assert_eq!(task["status"], "failed");
    assert_eq!(task["statusMessage"], "no \"way\" ");
}

/// TSK-43: a tool result with isError makes the task failed, says why, capped, and is answered
/// as the success response it is.
#[test]
fn tool_that_reports_an_error_fails_its_task() {
    let long = "é".repeat(5000);
    let cases = [
        (json!([{"type": "text", "text": "the disk\nis full"}]), Some("the disk is full")),
        (json!([{"type": "text", "text": long}]), None),
        (json!([]), None),
        (json!("odd"), None),
        (json!([{"type": "text", "text": 7}]), None),
    ];
    for (content, said) in cases {
        let mut w = World::new();
        // Results of tools do not always match the schema.
        w.strict = content.as_array().is_some_and(|c| c.iter().all(|c| c["text"].is_string()));
        let c = w.open();
        let (id, job) = w.task(c, "sleep");
        let result = json!({"content": content, "isError": true});
        w.end(job, result_of(&result));
        let task = w.result(c, "tasks/get", json!({"taskId": id}));
        assert_eq!(task["status"], "failed", "{content}");
        let message = task["statusMessage"].as_str().expect("it says why");
        assert!(!message.is_empty() && message.len() <= Limits::default().text_bytes_max);
        assert!(said.is_none_or(|said| said == message), "{message}");
        let mut answer = w.result(c, "tasks/result", json!({"taskId": id}));
        assert_eq!(answer["_meta"][RELATED]["taskId"], json!(id));
        answer.as_object_mut().unwrap().remove("_meta");
        assert_eq!(answer, result);
    }
}

/// TSK-15: a hundred waiters on three connections are all answered once; one whose connection
/// closes leaves no trace; tasks/get works meanwhile.
#[test]
fn waiters_wait_for_the_end() {
    let mut w = World::new();
    let conns = [w.open(), w.open(), w.open()];
    let gone = w.open();
    let (id, job) = w.task(conns[0], "sleep");
    let wait = |n: usize| {
        json!({"jsonrpc": "2.0", "id": n, "method": "tasks/result", "params": {"taskId": id}})
            .to_string()
    };
    for n in 0..99 {
        w.send(conns[n % 3], &wait(n));
    }
    w.send(gone, &wait(0));
    assert_eq!(w.sizes().requests, 100);
    assert_eq!(w.status(conns[1], &id).as_deref(), Some("working"));
    w.lose(gone);
    assert_eq!(w.sizes().requests, 99);
    w.done(job, "slept");
    for conn in conns {
        let mut ids: Vec<u64> =
            w.rest(conn).iter().filter_map(|message| message["id"].as_u64()).collect();
        ids.sort_unstable();
        let first = conns.iter().position(|c| *c == conn).unwrap() as u64;
        assert_eq!(ids, (0..33).map(|n| first + 3 * n).collect::<Vec<_>>());
    }
    assert_eq!((w.sizes().requests, w.sizes().tasks), (0, 1));
}

/// TSK-17: the result of a cancelled task is an error that says so, to the waiting request and to
/// later ones.
#[test]
fn result_of_a_cancelled_task_says_so() {
    let mut w = World::new();
    let (c, other) = (w.open(), w.open());
    let (id, job) = w.task(c, "sleep");
    let wait =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/result", "params": {"taskId": id}});
    w.send(other, &wait.to_string());
    w.result(c, "tasks/cancel", json!({"taskId": id}));
    let said = w.next(other);
    assert_eq!(said["id"], 1);
    assert!(said["error"]["message"].as_str().unwrap().contains("cancelled"), "{said}");
    w.done(job, "too late");
    for asker in [c, other] {
        w.send(asker, &wait.to_string());
        let later = w.rest(asker).pop().unwrap();
        assert_eq!(later, said, "the same error, whenever one asks");
    }
}

/// TSK-18: a status notification carries the whole task, comes after the CreateTaskResult, to the
/// connection that made the task and no other, without related-task; and can be turned off.
#[test]
fn status_notifications() {
    for wanted in [true, false] {
        let policy = TaskPolicy { status_notifications: wanted, ..TaskPolicy::default() };
        for end in ["completed", "failed", "cancelled"] {
            let mut w = World::with(Limits::default(), policy);
            let (c, other) = (w.open(), w.open());
            // Ends before its answer was read: the order on the wire counts.
            w.stop_reading(c);
            w.send(
                c,
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep","task":{}}}"#,
            );
            let job = w.last_started();
            let id = w.running[&job].task.unwrap().to_string();
            match end {
                "completed" => w.done(job, "ok"),
                "failed" => w.fail(job, 1, "no"),
                _ => drop(w.result(other, "tasks/cancel", json!({"taskId": id}))),
            }
            w.read_again(c);
            assert_eq!(w.next(c)["result"]["task"]["taskId"], json!(id));
            if wanted {
                let told = w.next(c);
                assert_eq!(told["method"], "notifications/tasks/status");
                assert_eq!(told["params"]["status"], end);
                assert!(told["params"].get("_meta").is_none());
                let mut task = w.result(c, "tasks/get", json!({"taskId": id}));
                task.as_object_mut().map(|members| members.remove("_meta"));
                assert_eq!(told["params"], task);
            }
            w.silent(c);
            w.silent(other);
        }
    }
}

/// TSK-18: where the creating connection is gone, no notification is sent, and nothing breaks.
#[test]
fn tasks_of_a_closed_connection_are_not_announced() {
    let mut w = World::new();
    let (c, other) = (w.open(), w.open());
    let (id, job) = w.task(c, "sleep");
    w.lose(c);
    assert_eq!(w.steps(job), [], "a task outlives its connection");
    w.done(job, "ok");
    w.silent(other);
    assert_eq!(w.status(other, &id).as_deref(), Some("completed"));
}

/// TSK-19, TSK-20: stable order, each live task exactly once, nextCursor exactly when there is
/// more, while tasks are created, end and expire between the pages.
#[test]
fn lists_page() {
    let policy = TaskPolicy { page_size: 3, ..TaskPolicy::default() };
    for count in 0..8 {
        let mut w = World::with(Limits::default(), policy);
        let c = w.open();
        let made: Vec<String> = (0..count).map(|_| w.task(c, "sleep").0).collect();
        let mut seen = Vec::new();
        let mut params = json!({});
        loop {
            let page = w.result(c, "tasks/list", params);
            let tasks = page["tasks"].as_array().unwrap();
            let left = count - seen.len();
            assert_eq!(tasks.len(), left.min(3));
            seen.extend(tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()));
            assert_eq!(page.get("nextCursor").is_some(), left > 3, "{count} tasks, {left} left");
            let Some(cursor) = page.get("nextCursor") else { break };
            params = json!({"cursor": cursor});
        }
        assert_eq!(seen, made);
    }
}

/// TSK-19: a list ends, also where a page was to have no room.
#[test]
fn page_has_room_for_one() {
    let mut w =
        World::with(Limits::default(), TaskPolicy { page_size: 0, ..TaskPolicy::default() });
    let c = w.open();
    let (id, _) = w.task(c, "sleep");
    let page = w.result(c, "tasks/list", json!({}));
    assert_eq!(page["tasks"][0]["taskId"], id);
    assert_eq!(page.get("nextCursor"), None);
}

/// TSK-19: a change between two pages neither hides a task nor shows one twice.
#[test]
fn list_that_changes_between_pages() {
    let policy = TaskPolicy { page_size: 2, ..TaskPolicy::default() };
    let mut w = World::with(Limits::default(), policy);
    let c = w.open();
    let expiring: Vec<_> = (0..3).map(|_| w.task_with(c, "sleep", json!({"ttl": 1000}))).collect();
    let mut lasting: Vec<String> = (0..4).map(|_| w.task(c, "sleep").0).collect();
    let first = w.result(c, "tasks/list", json!({}));
    for (_, job) in &expiring {
        w.done(*job, "done");
    }
    w.advance(std::time::Duration::from_secs(2));
    lasting.push(w.task(c, "sleep").0);
    let mut seen = Vec::new();
    let mut cursor = first["nextCursor"].clone();
    while !cursor.is_null() {
        let page = w.result(c, "tasks/list", json!({"cursor": cursor}));
        for task in page["tasks"].as_array().unwrap() {
            seen.push(task["taskId"].as_str().unwrap().to_owned());
        }
        cursor = page.get("nextCursor").cloned().unwrap_or_default();
    }
    assert_eq!(seen, lasting);
}

/// TSK-21: list shows the tasks that get finds, after every step of a task's life; and nothing
/// else.
#[test]
fn list_shows_what_get_sees() {
    let policy = TaskPolicy { page_size: 2, ..TaskPolicy::default() };
    let mut w = World::with(Limits::default(), policy);
    let (c, foreign) = (w.open(), w.open_as(Identity::User(2), NEWEST));
    let mut known = Vec::new();
    for step in 0..12 {
        let (id, job) = w.task_with(c, "sleep", json!({"ttl": 1000 * (step % 4 + 1)}));
        known.push(id.clone());
        match step % 3 {
            0 => w.done(job, "ok"),
            1 => drop(w.result(c, "tasks/cancel", json!({"taskId": id}))),
            _ => w.fail(job, 1, "no"),
        }
        w.advance(std::time::Duration::from_millis(700));
        let (mut listed, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
            let page = w.result(c, "tasks/list", params);
            listed.extend(page["tasks"].as_array().unwrap().iter().cloned());
            cursor = page.get("nextCursor").cloned().unwrap_or_default();
            if cursor.is_null() {
                break;
            }
        }
        let mut got = Vec::new();
        for id in &known {
            let answer = w.ask(c, "tasks/get", json!({"taskId": id}));
            let mut task = answer["result"].clone();
            // How far the work of one task is, no list says.
            task.as_object_mut().map(|members| members.remove("_meta"));
            got.extend(task.is_object().then_some(task));
        }
        assert_eq!(listed, got);
        assert_eq!(w.result(foreign, "tasks/list", json!({})), json!({"tasks": []}));
    }
}

/// TSK-22: garbage, truncated, changed, another identity's, and one from before a restart.
#[test]
fn cursor_that_is_not_ours() {
    let policy = TaskPolicy { page_size: 1, ..TaskPolicy::default() };
    let mut w = World::with(Limits::default(), policy);
    let (c, foreign) = (w.open(), w.open_as(Identity::User(2), NEWEST));
    for _ in 0..20 {
        w.task(c, "sleep");
        w.task(foreign, "sleep");
    }
    let mut cursor = w.result(c, "tasks/list", json!({}))["nextCursor"].clone();
    // Far enough in that its position has letters, which have two spellings.
    for _ in 0..6 {
        let page = w.result(c, "tasks/list", json!({"cursor": cursor}));
        cursor = page["nextCursor"].clone();
    }
    let good = cursor.as_str().unwrap().to_owned();
    let mut forged: Vec<Value> = vec![json!(""), json!("0"), json!("\u{0}"), json!("ä")];
    forged.extend([json!(7), json!([]), json!(&good[..good.len() - 1]), json!(format!("{good}0"))]);
    for at in 0..good.len() {
        for replacement in ["0", "f", "A", "é"] {
            let changed = format!("{}{replacement}{}", &good[..at], &good[at + 1..]);
            if changed != good {
                forged.push(json!(changed));
            }
        }
        let capital = format!("{}{}{}", &good[..at], good[at..=at].to_uppercase(), &good[at + 1..]);
        if capital != good {
            forged.push(json!(capital));
        }
    }
    for cursor in forged {
        assert_eq!(w.refusal(c, "tasks/list", json!({"cursor": cursor})).0, -32602, "{cursor}");
    }
    assert_eq!(w.refusal(foreign, "tasks/list", json!({"cursor": good})).0, -32602);
    w.result(c, "tasks/list", json!({"cursor": good}));
    // The next run of the daemon draws another key.
    let settings = tools::settings(Limits::default(), policy);
    let mut restarted = World::made_of(settings, Rigged::new([Uuid::from_u128(0x1234)]));
    let c = restarted.open();
    for _ in 0..20 {
        restarted.task(c, "sleep");
    }
    assert_eq!(restarted.refusal(c, "tasks/list", json!({"cursor": good})).0, -32602);
}

/// TSK-23: a terminal task cannot be cancelled, and the message names its status; so for the
/// second of two racing cancels.
#[test]
fn terminal_task_is_not_cancelled() {
    for end in ["completed", "failed", "cancelled"] {
        let mut w = World::new();
        let (c, other) = (w.open(), w.open());
        let (id, job) = w.task(c, "sleep");
        match end {
            "completed" => w.done(job, "ok"),
            "failed" => w.fail(job, 1, "no"),
            _ => drop(w.result(other, "tasks/cancel", json!({"taskId": id}))),
        }
        let (code, message) = w.refusal(c, "tasks/cancel", json!({"taskId": id}));
        assert_eq!(code, -32602);
        assert!(message.contains(end), "{message}");
        let steps = usize::from(end == "cancelled");
        assert_eq!(w.steps(job).len(), steps);
    }
}

/// TSK-24, TSK-25: the cancel's answer is the task, cancelled, and no connection sees another
/// status from then on; the work is told to stop and, if it has not begun, never begins.
#[test]
fn cancelled_task_is_cancelled_before_the_answer() {
    let mut w = World::with(Limits { running_max: 1, ..Limits::default() }, TaskPolicy::default());
    let (c, other) = (w.open(), w.open());
    let (id, job) = w.task(c, "build");
    let queued = w.result(c, "tools/call", json!({"name": "build", "task": {}}));
    let queued = queued["task"]["taskId"].as_str().unwrap().to_owned();
    w.advance(std::time::Duration::from_secs(1));
    // Frames only: no turn is needed for it.
    w.frame(
        other,
        &json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel", "params": {"taskId": id}})
            .to_string(),
    );
    w.frame(
        other,
        &json!({"jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": {"taskId": id}})
            .to_string(),
    );
    let answer = w.next(other);
    assert_eq!((&answer["id"], &answer["result"]["status"]), (&json!(1), &json!("cancelled")));
    assert_eq!(answer["result"]["lastUpdatedAt"], "2025-11-01T00:00:01.000Z");
    assert_eq!(w.next(other)["result"], answer["result"]);
    assert_eq!(w.steps(job), [(StopStep::Terminate, StopReason::Requested)]);
    w.result(c, "tasks/cancel", json!({"taskId": queued}));
    w.stopped(job);
    assert_eq!(w.started.len(), 1);
    assert_eq!(w.sizes().jobs, 0);
}

/// TSK-26: whatever the job of a cancelled task still reports is dropped and counted.
#[test]
fn once_cancelled_always_cancelled() {
    for late in 0..3 {
        let mut w = World::new();
        let c = w.open();
        let (id, job) = w.task(c, "sleep");
        w.result(c, "tasks/cancel", json!({"taskId": id}));
        w.rest(c);
        let before = w.counters().late_reports;
        match late {
            0 => w.done(job, "made it"),
            1 => w.fail(job, 1, "no"),
            _ => w.end(job, result_of(&json!({"content": [], "isError": true}))),
        }
        assert_eq!(w.counters().late_reports, before + 1);
        w.silent(c);
        assert_eq!(w.status(c, &id).as_deref(), Some("cancelled"));
        assert_eq!(w.sizes().jobs, 0);
    }
}

/// TSK-27: -32602 and a message for every id that names no task of one's own: the same for
/// another's as for one that never was.
#[test]
fn task_ids_that_name_nothing() {
    let mut w = World::new();
    let (c, foreign) = (w.open(), w.open_as(Identity::User(2), NEWEST));
    let (mine, _) = w.task(c, "sleep");
    let (theirs, job) = w.task(foreign, "sleep");
    let (expired, done) = w.task_with(c, "sleep", json!({"ttl": 1}));
    w.done(done, "ok");
    w.advance(std::time::Duration::from_secs(1));
    let never = "00000000-0000-4000-8000-00000000dead";
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        for params in [
            json!({}),
            json!({"taskId": null}),
            json!({"taskId": 7}),
            json!({"taskId": ["x"]}),
            json!({"taskId": ""}),
            json!({"taskId": "x\u{0}\ny"}),
            json!({"taskId": never}),
            json!({"taskId": expired}),
            json!({"taskId": mine.to_uppercase()}),
            json!({"taskId": mine.replace('-', "")}),
            json!({"taskId": theirs}),
            json!([mine]),
        ] {
            let (code, message) = w.refusal(c, method, params.clone());
            assert_eq!(code, -32602, "{method} {params}");
            assert!(message.len() > 10, "{message}");
        }
        let unknown = w.refusal(c, method, json!({"taskId": never})).1;
        let foreign = w.refusal(c, method, json!({"taskId": theirs})).1;
        assert_eq!(foreign.replace(&theirs, never), unknown);
        w.send(c, &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#));
        let told = w.rest(c).pop().unwrap();
        assert_eq!(told["error"]["code"], -32602);
    }
    assert_eq!(w.steps(job), []);
}

/// TSK-31: requests go by their `taskId`; a related task in `_meta` is ignored.
#[test]
fn related_task_of_a_request_is_ignored() {
    let mut w = World::new();
    let c = w.open();
    let (a, job) = w.task(c, "sleep");
    let (b, other) = w.task(c, "sleep");
    let meta = json!({RELATED: {"taskId": b}});
    assert_eq!(w.result(c, "tasks/get", json!({"taskId": a, "_meta": meta}))["taskId"], json!(a));
    w.result(c, "tasks/cancel", json!({"taskId": a, "_meta": meta}));
    assert_eq!((w.steps(job).len(), w.steps(other).len()), (1, 0));
    w.done(other, "b");
    let meta = json!({RELATED: {"taskId": a}});
    let result = w.result(c, "tasks/result", json!({"taskId": b, "_meta": meta}));
    assert_eq!(result["_meta"][RELATED]["taskId"], json!(b));
    assert_eq!(w.status(c, &b).as_deref(), Some("completed"));
}

/// TSK-32: the results of get, list and cancel carry no related-task.
#[test]
fn get_list_and_cancel_carry_no_related_task() {
    let mut w = World::new();
    let c = w.open();
    let (id, _) = w.task(c, "sleep");
    for (method, params) in [
        ("tasks/get", json!({"taskId": id})),
        ("tasks/list", json!({})),
        ("tasks/cancel", json!({"taskId": id})),
        ("tasks/get", json!({"taskId": id})),
    ] {
        let answer = w.ask(c, method, params);
        assert!(!answer.to_string().contains("related-task"), "{answer}");
    }
}

/// TSK-34: both stamps are in every task object, also if the wall clock steps back; the last
/// update changes with the status only and is never before the creation.
#[test]
fn stamps() {
    let mut w = World::new();
    let c = w.open();
    let (id, job) = w.task_with(c, "sleep", json!({"ttl": 123_456}));
    w.advance(std::time::Duration::from_millis(1500));
    w.progress(job, 1.0);
    let task = w.result(c, "tasks/get", json!({"taskId": id}));
    assert_eq!(task["lastUpdatedAt"], task["createdAt"]);
    w.set_wall(WALL_START - 86_400_000);
    w.done(job, "ok");
    let told = w.rest(c).pop().unwrap();
    let listed = w.result(c, "tasks/list", json!({}));
    let task = w.result(c, "tasks/get", json!({"taskId": id}));
    for object in [&told["params"], &listed["tasks"][0], &task] {
        assert_eq!(object["createdAt"], "2025-11-01T00:00:00.000Z");
        assert_eq!(object["lastUpdatedAt"], "2025-11-01T00:00:00.000Z");
        assert_eq!(object["ttl"], 123_456);
    }
    w.set_wall(WALL_START);
    let (id, job) = w.task(c, "sleep");
    w.advance(std::time::Duration::from_millis(1500));
    w.fail(job, 1, "no");
    let task = w.result(c, "tasks/get", json!({"taskId": id}));
    assert_eq!(task["lastUpdatedAt"], "2025-11-01T00:00:01.500Z");
}
