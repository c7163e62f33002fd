//! `ceased/run`: commands of callers as jobs.

use std::sync::Arc;
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::settings::Settings;
use ceased_core::tool::{StopPolicy, TaskSupport, Tool};
use ceased_simulator::tools::tool;
use ceased_simulator::world::{NEWEST, Rigged, World};
use serde_json::json;

const FORBIDDEN: i64 = -31_011;
const PARAMS: &str = r#"{"command":["make","all"],"cwd":"/srv"}"#;

/// A world in which commands of callers are allowed, or not.
fn world(allows: bool) -> World {
    let stop_policy = StopPolicy::Command { kill_grace: Duration::from_secs(2) };
    let run = Tool { task_support: TaskSupport::Optional, ..Tool::new("ceased/run", stop_policy) };
    let catalog = ceased_core::tool::Catalog::new([tool("echo")]).unwrap();
    let run = allows.then(|| Arc::new(run));
    World::made_of(Arc::new(Settings { run, catalog, ..Settings::default() }), Rigged::default())
}

fn request(id: u64, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ceased/run","params":{params}}}"#)
}

#[test]
fn command_of_a_caller_is_a_job_that_is_answered_or_cancelled() {
    let mut w = world(true);
    let conn = w.open_as(Identity::User(7), NEWEST);
    w.send(conn, &request(1, PARAMS));
    let job = w.last_started();
    assert_eq!(w.owner(job), Some(&Identity::User(7)));
    let running = &w.running[&job];
    assert_eq!((running.tool.as_str(), running.arguments.as_str()), ("ceased/run", PARAMS));
    w.done(job, "made");
    assert_eq!(w.next(conn)["result"]["content"][0]["text"], "made");

    w.send(conn, &request(2, PARAMS));
    let job = w.last_started();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                        "params": {"requestId": 2}});
    w.send(conn, &cancel.to_string());
    assert!(w.is_stopping(job));
    w.stopped(job);
    assert_eq!(w.rest(conn), Vec::<serde_json::Value>::new(), "CAN-08");
}

#[test]
fn command_of_a_caller_can_be_a_task() {
    let mut w = world(true);
    let conn = w.open_as(Identity::User(7), NEWEST);
    w.send(conn, &request(1, r#"{"command":["make"],"task":{}}"#));
    let created = w.next(conn);
    let id = created["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{created}"));
    let get =
        json!({"jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": {"taskId": id}});
    w.done(w.last_started(), "made");
    w.rest(conn);
    w.send(conn, &get.to_string());
    assert_eq!(w.next(conn)["result"]["content"][0]["text"], "made");
}

/// Nothing but a user of the machine may run a command, and nothing at all unless it is allowed.
#[test]
fn command_of_a_caller_is_refused_unless_it_is_allowed() {
    for (allows, identity) in [
        (false, Identity::User(7)),
        (false, Identity::User(0)),
        (true, Identity::Token("ci".into())),
        (true, Identity::Anonymous),
    ] {
        let mut w = world(allows);
        let conn = w.open_as(identity, NEWEST);
        w.send(conn, &request(1, PARAMS));
        let answer = w.next(conn);
        assert_eq!(answer["error"]["code"], FORBIDDEN, "{answer}");
        assert!(w.started.is_empty());
    }
}

/// A model chooses among tools, so that none of its calls may reach a command.
#[test]
fn command_of_a_caller_is_no_tool() {
    let mut w = world(true);
    let conn = w.open_as(Identity::User(7), NEWEST);
    w.send(conn, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    assert!(!w.next(conn).to_string().contains("ceased/run"));
    let params = json!({"name": "ceased/run", "arguments": {"command": ["make"]}});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    w.send(conn, &call.to_string());
    assert_eq!(w.next(conn)["error"]["code"], -32602);
    assert!(w.started.is_empty());
}
