//! The output of jobs, as the engine lets peers read it.

use std::sync::Arc;

use ceased_core::action::{OutputOf, OutputRequest};
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::settings::{ServerInfo, Settings};
use ceased_simulator::tools;
use ceased_simulator::world::{Rigged, World};
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";

/// A world whose host keeps output, and whose server has something to say.
fn world() -> World {
    let server = ServerInfo {
        title: Some("A title".into()),
        website: Some("https://example.org".into()),
        instructions: Some("Call it.".into()),
        ..ServerInfo::new("world", "1.2.3")
    };
    let settings = Settings {
        server,
        outputs: true,
        limits: Limits::default(),
        tasks: TaskPolicy::default(),
        catalog: tools::catalog(),
        operators: vec![Identity::User(0)],
        ..Settings::default()
    };
    World::made_of(Arc::new(settings), Rigged::new([]))
}

fn send(w: &mut World, conn: ConnId, id: u32, method: &str, params: &Value) {
    let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    w.send(conn, &line.to_string());
}

/// OUT-01: the host learns the reader's identity, and whether it is an operator.
#[test]
fn host_is_told_the_reader() {
    let mut w = world();
    let uri = "ceased://jobs/7/output";
    for (identity, sees_all) in
        [(Identity::User(7), false), (Identity::Anonymous, false), (Identity::User(0), true)]
    {
        let c = w.open_as(identity.clone(), NEWEST);
        send(&mut w, c, 1, "resources/read", &json!({"uri": uri}));
        let query = w.reads.pop().expect("the host is asked");
        assert_eq!((&query.viewer.identity, query.viewer.sees_all), (&identity, sees_all));
        assert_eq!(query.viewer.conn, c);
        let of = OutputOf { job: Some(JobId::new(7)), task: None };
        assert_eq!(query.request, OutputRequest::Whole(of));
        w.output_read(query.read, None);
        let told = w.next(c);
        assert_eq!(told["error"]["code"], -32002, "{told}");
        assert_eq!(told["error"]["data"]["uri"], uri);
    }
}

/// OUT-01: missing output and output of others have the same answer, in every method.
#[test]
fn output_of_others_is_as_if_it_had_never_been() {
    let mut w = world();
    let c = w.open();
    for (method, params) in [
        ("resources/read", json!({"uri": "ceased://jobs/1/output"})),
        ("resources/read", json!({"uri": "ceased://jobs/zero/output"})),
        ("resources/read", json!({"uri": "file:///etc/passwd"})),
    ] {
        send(&mut w, c, 1, method, &params);
        if let Some(query) = w.reads.pop() {
            w.output_read(query.read, None);
        }
        let told = w.next(c);
        assert_eq!(told["error"]["message"], "there is no such resource");
    }
    send(&mut w, c, 2, "ceased/logs", &json!({"job": 1}));
    let query = w.reads.pop().expect("the host is asked");
    w.output_read(query.read, None);
    assert_eq!(w.next(c)["error"]["code"], -32602);
}

/// The methods, and their answers, in a session and outside of one.
#[test]
fn answers_are_those_of_the_revision() {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut w = world();
    let c = w.open();
    for typed in [false, true] {
        let with = |mut params: Value| {
            if typed {
                params["_meta"] = meta.clone();
            }
            params
        };
        send(&mut w, c, 1, "resources/list", &with(json!({})));
        let query = w.reads.pop().expect("the host is asked");
        assert_eq!(query.request, OutputRequest::List);
        w.output_read(query.read, Some(r#"[{"uri":"ceased://jobs/1/output","name":"a"}]"#));
        let listed = w.next(c);
        assert_eq!(listed["result"]["resources"][0]["name"], "a", "{listed}");
        send(&mut w, c, 2, "resources/templates/list", &with(json!({})));
        let templates = w.next(c);
        let template = &templates["result"]["resourceTemplates"][0];
        assert_eq!(template["uriTemplate"], "ceased://jobs/{id}/output");
        let uri = "ceased://jobs/1/output";
        send(&mut w, c, 3, "resources/read", &with(json!({"uri": uri})));
        let query = w.reads.pop().expect("the host is asked");
        w.output_read(query.read, Some(r#""all""#));
        let read = w.next(c);
        let content = json!([{"uri": uri, "mimeType": "text/plain", "text": "all"}]);
        assert_eq!(read["result"]["contents"], content);
        for told in [listed, templates, read] {
            let scope = typed.then_some("private");
            assert_eq!(told["result"]["cacheScope"].as_str(), scope, "{told}");
        }
        send(&mut w, c, 4, "resources/read", &with(json!({"uri": "a:b"})));
        let code = if typed { -32602 } else { -32002 };
        assert_eq!(w.next(c)["error"]["code"], code);
    }
}

/// A request that was cancelled is not answered when the host has read (CAN-08).
#[test]
fn cancelled_read_is_not_answered() {
    let mut w = world();
    let c = w.open();
    send(&mut w, c, 1, "ceased/logs", &json!({"job": 1, "stdout": 5}));
    let query = w.reads.pop().expect("the host is asked");
    let of = OutputOf { job: Some(JobId::new(1)), task: None };
    assert_eq!(query.request, OutputRequest::Part { of, from: [5, 0], since: None });
    w.send(c, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    w.output_read(query.read, Some("{}"));
    w.silent(c);
    for (id, params) in
        [(2, json!({"job": 1, "sinceMs": 7})), (3, json!({"server": "s", "sinceMs": 7}))]
    {
        send(&mut w, c, id, "ceased/logs", &params);
        let query = w.reads.pop().expect("the host is asked");
        let (OutputRequest::Part { since, .. } | OutputRequest::Server { since, .. }) =
            query.request
        else {
            panic!("{query:?}")
        };
        assert_eq!(since, Some(std::time::Duration::from_millis(7)));
    }
    send(&mut w, c, 4, "ceased/logs", &json!({"job": 1, "sinceMs": "x"}));
    assert_eq!(w.next(c)["error"]["code"], -32602);
}

/// A task is named by its id, and its job is found while it runs.
#[test]
fn task_names_its_output() {
    let mut w = world();
    let c = w.open();
    let (task, job) = w.task(c, "sleep");
    send(&mut w, c, 9, "ceased/logs", &json!({"task": task}));
    let query = w.reads.pop().expect("the host is asked");
    let OutputRequest::Part { of, .. } = query.request else { panic!("{query:?}") };
    assert_eq!((of.job, of.task.map(|task| task.to_string())), (Some(job), Some(task)));
    for wrong in
        [json!({}), json!({"job": 1, "task": "x"}), json!({"task": "x"}), json!({"job": "a"})]
    {
        send(&mut w, c, 10, "ceased/logs", &wrong);
        assert!(w.rest(c).iter().any(|told| told["error"]["code"] == -32602), "{wrong}");
    }
}

/// Title, page and instructions of the server, in the revisions that have them.
#[test]
fn server_says_what_the_revision_has() {
    for (revision, title, website) in [
        ("2024-11-05", false, false),
        ("2025-03-26", false, false),
        ("2025-06-18", true, false),
        (NEWEST, true, true),
    ] {
        let mut w = world();
        let c = w.connect(Identity::User(1));
        let params = json!({
            "protocolVersion": revision, "capabilities": {},
            "clientInfo": {"name": "t", "version": "0"},
        });
        send(&mut w, c, 1, "initialize", &params);
        let result = w.next(c)["result"].clone();
        let info = &result["serverInfo"];
        assert_eq!(info["title"].as_str(), title.then_some("A title"), "{revision}");
        assert_eq!(info["websiteUrl"].as_str(), website.then_some("https://example.org"));
        assert_eq!(result["instructions"], "Call it.");
        assert_eq!(result["capabilities"]["resources"], json!({}));
    }
}
