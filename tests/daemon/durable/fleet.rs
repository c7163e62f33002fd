//! Several daemons around one task table in a real PostgreSQL (FLT-01 to FLT-06).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

#[path = "../../../daemon/fleet/tests/server/mod.rs"]
pub(crate) mod server;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ceased_fleet::postgres::Session;
use ceased_simulator::modern::{TASKS, able as able_to};
use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::{
    Config, Daemon, Home, Peer, Program, Signal, carriers, marker, wait_for_family, wait_until,
};
use ceased_tests::output_schema::OutputSchema;
use serde_json::{Value, json};

use self::server::Server;
use crate::durable::{answer_of, get, of_task};

/// One database at a time: several starve each other beside the other tests.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node of the fleet at this database.
pub(crate) fn node(server: &Server, name: &str, more: &str, limits: &str) -> Daemon {
    Daemon::start_in(home_of(&server.url(), name, more, limits))
}

pub(crate) fn home_of(url: &str, name: &str, more: &str, limits: &str) -> Home {
    let home = Home::new();
    home.configure(&Config { limits, ..Config::default() });
    let fleet = format!(
        "{}\n[fleet]\ndatabase = {url:?}\nname = {name:?}\nshared_users = true\n{more}\n",
        home.config_text()
    );
    home.configure_as(&fleet);
    home
}

/// Longer than a busy machine keeps the database waiting.
pub(crate) const SHORT: &str = "lease = \"10s\"";

/// Limits that no test of many tasks reaches.
pub(crate) const WIDE: &str = "tasks_per_identity = 100000\nstored_tasks_per_identity = 1000000\n\
    stored_bytes_per_identity = \"1GiB\"\ntask_ops_per_second = 1000000";

fn runs(t: &str) -> bool {
    !carriers(t).is_empty()
}

/// Creates a task, again where a busy machine keeps the database waiting.
pub(crate) fn created(peer: &mut Peer, tool: &str, arguments: &str) -> String {
    let call = format!(r#"{{"name":{tool:?},"arguments":{arguments},"task":{{}}}}"#);
    let mut task = None;
    wait_until("a task is created", || {
        let id = peer.request("tools/call", &call);
        let answer = peer.answer(id);
        task = answer["result"]["task"]["taskId"].as_str().map(str::to_owned);
        task.is_some()
    });
    task.unwrap()
}

pub(crate) fn status(peer: &mut Peer, task: &str) -> String {
    get(peer, task)["status"].as_str().unwrap().to_owned()
}

fn error_code(peer: &mut Peer, method: &str, params: &str) -> i64 {
    let id = peer.request(method, params);
    let answer = peer.answer(id);
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method}: {answer}"))
}

/// FLT-01, FLT-03: a task is found, listed and cancelled at a node that does not run it, and the process tree
/// at the one that does ends.
#[test]
fn task_is_cancelled_at_another_node() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", "", ""), node(&server, "b", "", ""));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());
    let t = marker();
    let task = created(&mut at_a, "family", &format!(r#"{{"t":"{t}"}}"#));
    wait_for_family(&t);
    assert_eq!(get(&mut at_b, &task)["status"], "working");
    let waits = at_a.request("tasks/result", &of_task(&task));
    let cancelled = at_b.result("tasks/cancel", &of_task(&task));
    assert_eq!(cancelled["status"], "cancelled");
    // FLT-02: no answer to a later request is older.
    assert_eq!(status(&mut at_a, &task), "cancelled");
    assert_eq!(status(&mut at_b, &task), "cancelled");
    assert_eq!(at_a.answer(waits)["error"]["code"], -31001);
    wait_until("its processes have ended", || !runs(&t));
    let work = |peer: &mut Peer| get(peer, &task)["_meta"]["ceased/work"].clone();
    wait_until("its node has told so", || work(&mut at_b) == "ceased");
    assert_eq!(get(&mut at_a, &task), get(&mut at_b, &task));
    let again = error_code(&mut at_a, "tasks/cancel", &of_task(&task));
    assert_eq!(again, -32602, "it has ended");
}

/// FLT-01, FLT-03: every node shows all nodes and their tasks, and a cancel there waits until the processes at
/// another node have ended.
#[test]
fn nodes_and_their_tasks_are_shown_at_every_node() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", "", ""), node(&server, "b", "", ""));
    let t = marker();
    let task = created(&mut a.peer(), "family", &format!(r#"{{"t":"{t}"}}"#));
    wait_for_family(&t);
    let shown = |arguments: &[&str]| {
        let ran = b.home.run(arguments);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    };
    let status: Value = serde_json::from_str(&shown(&["status", "--json"])).unwrap();
    OutputSchema::read().check("status", &status).unwrap();
    let fleet = &status["host"]["fleet"];
    let names: Vec<&str> =
        fleet["nodes"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!((fleet["node"].as_str(), names), (Some("b"), vec!["b", "a"]));
    let of_task = (&fleet["tasks"][0]["task"], &fleet["tasks"][0]["node"]);
    assert_eq!(of_task, (&json!(task), &json!("a")));
    assert!(shown(&["status"]).contains("a (1 live)"));
    assert!(shown(&["ps"]).contains("working at a"), "{}", shown(&["ps"]));
    // By the beginning of its id.
    let ran = b.home.run(&["cancel", &task[..8]]);
    assert!(!runs(&t), "a process is left when the cancel is over: {ran:?}");
    assert_eq!((ran.code, ran.out.contains("cancelled")), (Some(0), true), "{ran:?}");
    let got = shown(&["get", &task]);
    assert!(got.contains("ceased"), "{got}");
}

/// FLT-01: a watch at one node shows the changes of tasks of all nodes, each with its node.
#[test]
fn tasks_of_all_nodes_are_watched_at_every_node() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", "", ""), node(&server, "b", "", ""));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());
    let waits = created(&mut at_a, "sleep", r#"{"ms":60000}"#);
    let watch = Program::start(&b.home, b.home.command(&["watch", "--json"]));
    let shows = |task: &str, status: &str, tool: &str, node: &str| {
        wait_until("the watch shows it", || {
            watch.out().lines().any(|line| {
                let Ok(line) = serde_json::from_str::<Value>(line) else { return false };
                OutputSchema::read().check("watch", &line).unwrap();
                let is = line["task"]["taskId"] == task && line["task"]["status"] == status;
                assert!(!is || (&line["node"], &line["tool"]) == (&json!(node), &json!(tool)));
                is
            })
        });
    };
    shows(&waits, "working", "sleep", "a");
    // It may end before a look.
    let failed = created(&mut at_a, "fail", "{}");
    shows(&failed, "failed", "fail", "a");
    let own = created(&mut at_b, "sleep", r#"{"ms":60000}"#);
    shows(&own, "working", "sleep", "b");
    at_a.result("tasks/cancel", &of_task(&waits));
    shows(&waits, "cancelled", "sleep", "a");
    watch.signal(Signal::INT);
    assert_eq!(watch.wait().code, Some(130));
    let shown = |arguments: &[&str]| b.home.run(arguments).out;
    let tasks = shown(&["tasks"]);
    for state in ["working at b", "failed at a", "cancelled at a"] {
        assert!(tasks.contains(state), "{tasks}");
    }
    assert!(shown(&["get", &failed]).lines().any(|line| line.split_whitespace().eq(["node", "a"])));
    assert!(shown(&["watch", &failed]).contains("  fail  failed at a"));
}

/// An idempotency key names one call at all nodes: the call under way, its answer, its task, and never a
/// second run.
#[test]
fn key_names_one_call_at_all_nodes() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", "", ""), node(&server, "b", "", ""));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());
    let call = |peer: &mut Peer, key: &str, tool: &str, arguments: &Value, task: bool| {
        let mut call = json!({"name": tool, "arguments": arguments});
        call["_meta"] = json!({"ceased/idempotencyKey": key});
        if task {
            call["task"] = json!({});
        }
        peer.request("tools/call", &call.to_string())
    };
    let t = marker();
    let hangs = json!({"t": t});
    let under_way = call(&mut at_a, "hangs", "hang", &hangs, false);
    wait_until("it runs", || runs(&t));
    let again = call(&mut at_b, "hangs", "hang", &hangs, false);
    assert_eq!(at_b.answer(again)["error"]["code"], -31008);
    at_a.cancel(under_way);
    wait_until("its processes have ended", || !runs(&t));
    let text = json!({"text": "once"});
    let first = call(&mut at_a, "echo", "echo", &text, false);
    let first = at_a.answer(first)["result"].clone();
    wait_until("its answer is told at the other node", || {
        let again = call(&mut at_b, "echo", "echo", &text, false);
        at_b.answer(again)["result"] == first
    });
    let other = call(&mut at_b, "echo", "echo", &json!({"text": "twice"}), false);
    assert_eq!(at_b.answer(other)["error"]["code"], -32602);
    let waits = json!({"ms": 60_000});
    let task = call(&mut at_a, "task", "sleep", &waits, true);
    let task = at_a.answer(task)["result"]["task"]["taskId"].clone();
    // Until the table has its task, the key names a call under way.
    wait_until("its task is told at the other node", || {
        let again = call(&mut at_b, "task", "sleep", &waits, true);
        at_b.answer(again)["result"]["task"]["taskId"] == task
    });
    assert_eq!(at_b.result("tasks/list", "{}")["tasks"].as_array().map(Vec::len), Some(1));
}

/// FLT-01: a result is told by every node, also to a request that waited before it was there.
#[test]
fn result_is_told_at_every_node() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", "", ""), node(&server, "b", "", ""));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());
    let task = created(&mut at_a, "sleep", r#"{"ms":300}"#);
    let waits = at_b.request("tasks/result", &of_task(&task));
    let mut there = at_b.answer(waits);
    there["id"] = Value::Null;
    assert!(there["result"].is_object(), "{there}");
    assert_eq!(answer_of(&mut at_a, &task), there);
    let failed = created(&mut at_b, "fail", "{}");
    assert_eq!(answer_of(&mut at_a, &failed), answer_of(&mut at_b, &failed));
    assert_eq!(get(&mut at_a, &failed), get(&mut at_b, &failed));
    assert_eq!(status(&mut at_a, &failed), "failed");
}

/// FLT-06: a list pages through the tasks of all nodes, once and in order, with cursors that are good at every
/// node; and an identity has one quota.
#[test]
fn lists_and_quotas_are_those_of_the_fleet() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let limits = "tasks_per_identity = 5";
    let (a, b) = (node(&server, "a", "", limits), node(&server, "b", "", limits));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());
    let mut tasks = Vec::new();
    for round in 0..5 {
        let peer = if round % 2 == 0 { &mut at_a } else { &mut at_b };
        tasks.push(created(peer, "sleep", r#"{"ms":60000}"#));
    }
    let call = r#"{"name":"sleep","arguments":{"ms":1},"task":{}}"#;
    for peer in [&mut at_a, &mut at_b] {
        let id = peer.request("tools/call", call);
        let refused = peer.answer(id);
        assert_eq!(refused["error"]["data"]["limit"], "tasks_per_identity", "{refused}");
    }
    let listed = at_a.result("tasks/list", "{}");
    let ids = |list: &Value| -> Vec<String> {
        let tasks = list["tasks"].as_array().unwrap().iter();
        tasks.map(|task| task["taskId"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&listed), tasks);
    assert_eq!(listed, at_b.result("tasks/list", "{}"));
    at_b.result("tasks/cancel", &of_task(&tasks[0]));
    assert!(!created(&mut at_a, "sleep", r#"{"ms":1}"#).is_empty());
}

/// FLT-01, FLT-04: the tasks of a node that was killed have failed everywhere within its lease and 2 s, and
/// its processes are gone by then; a restarted one fails them at once.
#[test]
fn tasks_of_a_killed_node_fail() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", SHORT, ""), node(&server, "b", SHORT, ""));
    let mut at_b = b.peer();
    let t = marker();
    let task = created(&mut a.peer(), "hang", &format!(r#"{{"t":"{t}"}}"#));
    wait_until("it runs", || runs(&t));
    let home = a.kill();
    wait_until("its tasks have failed", || {
        let told = status(&mut at_b, &task);
        assert!(told == "working" || !runs(&t), "{told} while a process runs");
        told == "failed"
    });
    let answer = answer_of(&mut at_b, &task);
    assert_eq!(answer["error"]["code"], -31007, "{answer}");
    let a = Daemon::start_in(home);
    assert_eq!(answer_of(&mut a.peer(), &task), answer);
}

/// FLT-05: while the database is away nothing is told from memory; jobs go on, and all of it heals by itself.
#[test]
fn nothing_is_told_from_memory_while_the_database_is_away() {
    let _alone = alone();
    let Some(mut server) = Server::start() else { return };
    let a = node(&server, "a", "", "");
    let mut peer = a.peer();
    let t = marker();
    let task = created(&mut peer, "hang", &format!(r#"{{"t":"{t}"}}"#));
    wait_until("it runs", || runs(&t));
    server.kill();
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(error_code(&mut peer, method, &of_task(&task)), -31006, "{method}");
    }
    assert_eq!(error_code(&mut peer, "tasks/list", "{}"), -31006);
    let call = r#"{"name":"sleep","arguments":{"ms":1},"task":{}}"#;
    assert_eq!(error_code(&mut peer, "tools/call", call), -31006);
    assert!(peer.call("echo", r#"{"text":"on"}"#) > 0);
    assert!(runs(&t), "nothing was stopped");
    server.run();
    wait_until("the table answers again", || {
        let id = peer.request("tasks/get", &of_task(&task));
        peer.answer(id)["result"]["status"] == "working"
    });
    wait_until("tasks are created again", || {
        let id = peer.request("tools/call", call);
        peer.answer(id)["result"].is_object()
    });
    assert_eq!(peer.result("tasks/cancel", &of_task(&task))["status"], "cancelled");
    wait_until("its processes have ended", || !runs(&t));
}

/// FLT-05: while the database fails its writes, for a full disk for example, no task is given and no end is told;
/// all of it heals by itself, and nothing that was told is lost.
#[test]
fn nothing_is_told_that_a_full_database_did_not_take() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", "", ""), node(&server, "b", "", ""));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());
    let t = marker();
    let task = created(&mut at_a, "hang", &format!(r#"{{"t":"{t}"}}"#));
    wait_until("it runs", || runs(&t));
    let ends = created(&mut at_a, "sleep", r#"{"ms":300}"#);
    let mut admin = Session::open(&server.unix(), "", server::soon()).unwrap();
    // A sequence counts also in a transaction that fails.
    let full = "CREATE SEQUENCE ceased.ends; \
                CREATE FUNCTION ceased.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                IF NEW.status = 2 THEN PERFORM nextval('ceased.ends'); END IF; \
                RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$; \
                CREATE TRIGGER \"full\" BEFORE INSERT OR UPDATE ON ceased.task FOR EACH ROW \
                EXECUTE FUNCTION ceased.full();";
    admin.script(full, server::soon()).unwrap();
    let call = r#"{"name":"sleep","arguments":{"ms":1},"task":{}}"#;
    assert_eq!(error_code(&mut at_a, "tools/call", call), -31006);
    assert_eq!(error_code(&mut at_b, "tasks/cancel", &of_task(&task)), -31006);
    assert!(runs(&t), "nothing was stopped");
    assert!(at_a.call("echo", r#"{"text":"on"}"#) > 0);
    wait_until("an end is refused", || {
        let count = admin.script("SELECT is_called::int FROM ceased.ends", server::soon()).unwrap();
        count[0].rows[0].text(0).unwrap() == Some("1")
    });
    let told = |peer: &mut Peer, task: &str| {
        let id = peer.request("tasks/get", &of_task(task));
        peer.answer(id)["result"]["status"].as_str().map(str::to_owned)
    };
    for peer in [&mut at_a, &mut at_b] {
        let told = told(peer, &ends);
        assert!(told.is_none() || told.as_deref() == Some("working"), "{told:?}");
    }
    // Its own node stops the work, and says that the end cannot be promised yet.
    assert_eq!(error_code(&mut at_a, "tasks/cancel", &of_task(&task)), -31006);
    wait_until("its processes have ended", || !runs(&t));
    assert_eq!(told(&mut at_a, &task), None);
    assert_eq!(told(&mut at_b, &task).as_deref(), Some("working"));
    admin.script("DROP TRIGGER \"full\" ON ceased.task", server::soon()).unwrap();
    for peer in [&mut at_a, &mut at_b] {
        for (task, end) in [(&ends, "completed"), (&task, "cancelled")] {
            wait_until("its end is told", || told(peer, task).as_deref() == Some(end));
        }
    }
    assert!(!created(&mut at_a, "sleep", r#"{"ms":1}"#).is_empty());
}

/// A daemon does not start with tables of another format, and says both numbers and the remedy.
#[test]
fn tables_of_another_format_are_refused() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let home = home_of(&server.url(), "a", "", "");
    assert_eq!(home.run(&["fleet", "init"]).code, Some(0));
    let mut admin = Session::open(&server.unix(), "", server::soon()).unwrap();
    let own = ceased_fleet::FORMAT;
    for (format, remedy) in [(own + 1, "install the version"), (own - 1, "ceased fleet init")] {
        let set = format!("UPDATE ceased.meta SET format = {format}");
        admin.script(&set, server::soon()).unwrap();
        for command in [&["serve"][..], &["check", "--connect"]] {
            let ran = home.run(command);
            let told = format!("{}{}", ran.out, ran.err);
            let parts = [format!("format {format}"), own.to_string(), remedy.to_owned()];
            let is_told = parts.iter().all(|part| told.contains(part));
            assert!(ran.code != Some(0) && is_told, "{command:?}: {ran:?}");
        }
    }
}

/// FLT-04: a node that cannot renew ends its work before its lease is over.
#[test]
fn work_ends_before_the_lease_of_a_cut_off_node_is_over() {
    let _alone = alone();
    let Some(mut server) = Server::start() else { return };
    let a = node(&server, "a", SHORT, "");
    let mut peer = a.peer();
    let t = marker();
    let task = created(&mut peer, "hang", &format!(r#"{{"t":"{t}"}}"#));
    wait_until("it runs", || runs(&t));
    server.kill();
    let away = std::time::Instant::now();
    wait_until("the work has ended", || !runs(&t));
    assert!(away.elapsed() < Duration::from_secs(10), "{:?}", away.elapsed());
    server.run();
    wait_until("its end is told", || {
        let id = peer.request("tasks/get", &of_task(&task));
        peer.answer(id)["result"]["status"] == "failed"
    });
}

/// FLT-04: a node that leaves in good order, or starts again, makes no other one wait for a lease.
#[test]
fn tasks_of_a_node_that_left_are_found() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", "", ""), node(&server, "b", "", ""));
    let lost = created(&mut a.peer(), "sleep", r#"{"ms":60000}"#);
    let mut a = Daemon::start_in(a.kill());
    wait_until("its task has failed", || status(&mut b.peer(), &lost) == "failed");
    let task = created(&mut a.peer(), "sleep", r#"{"ms":60000}"#);
    a.signal(Signal::TERM);
    assert!(a.wait().success());
    assert_eq!(status(&mut b.peer(), &task), "failed");
}

/// FLT-04: the processes of a stopped daemon's tasks end before its lease is over, by its keeper and guards
/// alone; it is a member again when it goes on, and tells nothing else.
#[test]
fn processes_of_a_stopped_daemon_end_before_its_lease() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let (a, b) = (node(&server, "a", SHORT, ""), node(&server, "b", SHORT, ""));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());
    let t = marker();
    let task = created(&mut at_a, "family", &format!(r#"{{"t":"{t}"}}"#));
    wait_for_family(&t);
    assert_eq!(status(&mut at_b, &task), "working");
    a.signal(Signal::STOP);
    wait_until("the task has failed", || {
        let told = status(&mut at_b, &task);
        assert!(told == "working" || !runs(&t), "{told} while processes run");
        told == "failed"
    });
    a.signal(Signal::CONT);
    wait_until("it is a member again", || {
        let id = at_a.request("tools/call", r#"{"name":"sleep","arguments":{"ms":1},"task":{}}"#);
        at_a.answer(id)["result"].is_object()
    });
    assert_eq!(status(&mut at_a, &task), "failed");
    assert_eq!(answer_of(&mut at_a, &task), answer_of(&mut at_b, &task));
}

/// Status of a page of a node, as a load balancer asks for it.
fn page(node: &Daemon, path: &str) -> u16 {
    let mut http = Http::tcp(node.http_address());
    http.request(&format!("GET {path}"), &[], "");
    http.reply().status
}

/// The output of `ceased fleet` for a node.
fn shown(home: &Home) -> Value {
    let ran = home.run(&["fleet", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let shown: Value = serde_json::from_str(&ran.out).unwrap();
    OutputSchema::read().check("fleet", &shown).unwrap();
    shown
}

fn states(shown: &Value) -> Vec<(String, String)> {
    let nodes = shown["nodes"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut states: Vec<_> =
        nodes.map(|node| (text(&node["name"]), text(&node["state"]))).collect();
    states.sort();
    states
}

/// A drained node takes no further work, tells of the work that it has, and ends with it; the nodes and
/// promises of the fleet are shown, and `check --connect` tries the database.
#[test]
fn drained_node_ends_with_its_work() {
    let _alone = alone();
    let Some(mut server) = Server::start() else { return };
    let listen = "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n";
    let home = home_of(&server.url(), "a", listen, "");
    let check = || home.run(&["check", "--connect", "--json"]);
    let ran = check();
    assert!(ran.code == Some(2) && ran.out.contains("ceased fleet init"), "{ran:?}");
    let ran = home.run(&["fleet", "init"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (mut a, b) = (Daemon::start_in(home.clone()), node(&server, "b", "", ""));
    let (mut at_a, mut at_b) = (a.peer(), b.peer());
    let t = marker();
    let task = created(&mut at_a, "family", &format!(r#"{{"t":"{t}"}}"#));
    let checked: Value = serde_json::from_str(&check().out).unwrap();
    assert_eq!(
        (&checked["valid"], checked["fleet"]["nodes"].as_array().map(Vec::len)),
        (&true.into(), Some(2))
    );
    assert_eq!(page(&a, "/healthz"), 200);
    let drain = Program::start(&home, home.command(&["drain"]));
    wait_until("it drains", || page(&a, "/healthz") == 503);
    assert_eq!(
        error_code(&mut at_a, "tools/call", r#"{"name":"echo","arguments":{"text":"x"}}"#),
        -31005
    );
    assert_eq!(status(&mut at_a, &task), "working");
    wait_until("it is shown", || states(&shown(&home))[0].1 == "draining");
    assert_eq!(shown(&home)["promises"][0]["holds"], true);
    at_b.result("tasks/cancel", &of_task(&task));
    assert_eq!(drain.wait().code, Some(0));
    assert!(a.wait().success() && !runs(&t));
    let ended = [("a".to_owned(), "left".to_owned()), ("b".to_owned(), "live".to_owned())];
    assert_eq!(states(&shown(&home)), ended);
    server.kill();
    let ran = home.run(&["fleet"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
}

/// A request of 2026-07-28 with these params, of a client that answers questions; its result.
fn modern(peer: &mut Peer, method: &str, params: Value) -> Value {
    let able = json!({"extensions": {TASKS: {}}, "elicitation": {}});
    peer.result(method, &able_to(&able, params).to_string())
}

/// FLT-02: a question of a task is shown and answered at a node that does not run it, a subscription there
/// hears of both, and the task goes on.
#[test]
fn question_is_answered_at_another_node() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let tool = "[[tool]]\nname = \"touch\"\ncommand = [\"touch\", \"{file}\"]\ntask_support = \
                \"optional\"\nconfirm = \"Really?\"\n[tool.input.file]\ntype = \"string\"\nrequired = true\n";
    let (a, b) = (node(&server, "a", tool, ""), node(&server, "b", tool, ""));
    let file = a.home.path().join("touched");
    let task = created(&mut a.peer(), "touch", &json!({"file": file}).to_string());
    let (mut at_b, mut hears) = (b.connect(), b.connect());
    let named = json!({"taskId": task});
    let mut asked = Value::Null;
    wait_until("it is asked", || {
        asked = modern(&mut at_b, "tasks/get", named.clone());
        asked["status"] == "input_required"
    });
    let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["params"]["message"], "Really?", "{asked}");
    let topics = json!({"notifications": {"taskIds": [task]}});
    let able = json!({"extensions": {TASKS: {}}});
    hears.request("subscriptions/listen", &able_to(&able, topics).to_string());
    assert_eq!(hears.message().unwrap()["params"]["notifications"]["taskIds"], json!([task]));
    let mut answers = named.clone();
    answers["inputResponses"] = json!({key: {"action": "accept", "content": {}}});
    modern(&mut at_b, "tasks/update", answers);
    wait_until("it is done", || {
        modern(&mut at_b, "tasks/get", named.clone())["status"] == "completed"
    });
    assert!(file.exists());
    let told = |hears: &mut Peer| hears.message().unwrap()["params"]["status"].clone();
    wait_until("the subscription hears of it", || told(&mut hears) == "completed");
}

/// A configuration in the chapter of the book, with these nodes in place of its first two.
fn written(language: &str, nodes: [&Daemon; 2], front: u16) -> String {
    let chapter = include_str!("../../../docs/src/operations/fleet.md");
    let block = chapter.split(&format!("```{language}\n")).nth(1).unwrap();
    let mut text = block.split("```").next().unwrap().to_owned();
    for (number, node) in (1..).zip(nodes) {
        text = text.replace(&format!("10.0.0.{number}:8080"), &node.http_address().to_string());
    }
    // The third one is not there.
    text = text.replace("10.0.0.3:8080", "127.0.0.1:1");
    text.replace("bind :8080", &format!("bind 127.0.0.1:{front}"))
        .replace("listen 8080", &format!("listen 127.0.0.1:{front}"))
}

/// Starts a load balancer; `None` where it is not installed.
pub(crate) fn balancer(home: &Home, language: &str, text: &str) -> Option<Program> {
    let path = home.path().join(language);
    let mut command = std::process::Command::new(language);
    if std::process::Command::new(language).arg("-v").output().is_err() {
        assert!(language == "nginx" || std::env::var_os("CI").is_none(), "no {language} with $CI");
        eprintln!("skipped: it needs the Debian package {language}");
        return None;
    }
    if language == "haproxy" {
        std::fs::write(&path, text).unwrap();
        command.arg("-db").arg("-f").arg(&path);
    } else {
        let dir = home.path().display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {dir}/{name};"))
            .join(" ");
        let text = format!(
            "daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr; events {{}}\n\
             http {{ access_log off; {temporary}\n{text}\n}}\n"
        );
        std::fs::write(&path, text).unwrap();
        command.arg("-p").arg(home.path()).arg("-e").arg("stderr").arg("-c").arg(&path);
    }
    Some(Program::start(home, command))
}

/// FLT-01: behind the load balancers of the chapter each request of a session reaches its node, and a task is
/// found through whichever node.
#[test]
fn sessions_stay_on_their_node_behind_load_balancers() {
    let _alone = alone();
    let Some(server) = Server::start() else { return };
    let listen = "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n";
    let nodes = ["build-1", "build-2"].map(|name| node(&server, name, listen, ""));
    for language in ["haproxy", "nginx"] {
        let front = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let text = written(language, [&nodes[0], &nodes[1]], front.port());
        let home = Home::new();
        let Some(program) = balancer(&home, language, &text) else { continue };
        let is_up = || {
            let connected = std::net::TcpStream::connect(front).is_ok();
            connected && {
                let mut http = Http::tcp(front);
                http.request("GET /healthz", &[], "");
                http.reply().status == 200
            }
        };
        wait_until("the load balancer answers", is_up);
        let accept = ("accept", "application/json, text/event-stream");
        let begin = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let mut tasks: Vec<String> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..6 {
            let begun = Http::tcp(front).exchange(&[accept], begin);
            let session =
                begun.header("mcp-session-id").unwrap_or_else(|| panic!("{language}: {begun:?}"));
            seen.insert(session.split_once('.').unwrap().0.to_owned());
            let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":60000},"task":{}}}"#;
            let told = Http::tcp(front).exchange(&[accept, ("mcp-session-id", session)], call);
            assert_eq!(told.status, 200, "{language}: {told:?}");
            let task = told.body.split("\"taskId\":\"").nth(1).and_then(|rest| rest.get(..36));
            tasks.push(task.unwrap_or_else(|| panic!("{told:?}")).to_owned());
            for task in &tasks {
                let get = format!(
                    r#"{{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{{"taskId":"{task}"}}}}"#
                );
                let told = Http::tcp(front).exchange(&[accept, ("mcp-session-id", session)], &get);
                assert!(
                    told.status == 200 && told.body.contains("working"),
                    "{language}: {told:?}"
                );
            }
        }
        assert_eq!(seen.len(), 2, "{language}: both nodes have sessions");
        // Past the load balancer: the node says where the session is.
        let begun = Http::tcp(nodes[0].http_address()).exchange(&[accept], begin);
        let session = ("mcp-session-id", begun.header("mcp-session-id").unwrap());
        let ping = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
        let told = Http::tcp(nodes[1].http_address()).exchange(&[accept, session], ping);
        let hint = "belongs to the node \\\"build-1\\\"";
        assert!(told.status == 404 && told.body.contains(hint), "{told:?}");
        program.signal(Signal::TERM);
        program.wait();
    }
}
