//! Audit log and metrics of the real daemon (TSK-38, TSK-41, CAN-12).

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use ceased_tests::daemon::{
    Config, Daemon, Home, Signal, TIME_LIMIT, assert_none_left, marker, wait_for_family, wait_until,
};
use ceased_tests::workspace;
use serde_json::{Value, json};

use crate::limits::fairness::with_tokens;

const ALERTS: &str = "[alerts]\nunknown_tasks = 5\nfast_polls = 4\n";

fn audited(more: &str) -> Daemon {
    let home = Home::new();
    let log = format!("[log]\naudit = {:?}\n{more}", home.path().join("audit.jsonl"));
    home.configure(&Config { tools: &log, ..Config::default() });
    Daemon::start_in(home)
}

fn path(daemon: &Daemon) -> PathBuf {
    daemon.home.path().join("audit.jsonl")
}

/// Every record so far; each line is JSON.
fn records(file: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let read =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    whole.lines().map(read).collect()
}

fn is(record: &Value, members: &Value) -> bool {
    let members = members.as_object().expect("an object");
    members.iter().all(|(name, value)| record[name] == *value)
}

/// Waits for a record with these members.
fn record(file: &PathBuf, members: &Value) -> Value {
    let mut found = None;
    wait_until(&format!("a record with {members}"), || {
        found = records(file).into_iter().find(|record| is(record, members));
        found.is_some()
    });
    found.unwrap_or_default()
}

fn uid() -> String {
    format!("uid:{}", rustix::process::getuid().as_raw())
}

/// TSK-41: connect, create, complete, retrieve, refuse and disconnect are one record each, with the
/// identity; only the daemon's user can read the file.
#[test]
fn each_event_of_a_session_is_recorded() {
    let daemon = audited("");
    let (file, identity) = (path(&daemon), uid());
    let mut peer = daemon.peer();
    let task = peer.create_task("count", r#"{"n":2}"#);
    let _ = peer.result("tasks/result", &json!({"taskId": task}).to_string());
    let _ = peer.result("tasks/result", &json!({"taskId": task}).to_string());
    drop(peer);
    let connect = record(&file, &json!({"event": "connect", "identity": identity}));
    let connection = connect["connection"].clone();
    assert!(connect["peer"].as_str().is_some_and(|peer| peer.starts_with("unix peer")));
    let create = record(&file, &json!({"event": "create", "task": task}));
    assert!(is(&create, &json!({"identity": identity, "connection": connection, "tool": "count"})));
    let complete = record(&file, &json!({"event": "complete", "task": task}));
    assert!(is(&complete, &json!({"identity": identity, "tool": "count", "status": "completed"})));
    let retrieve = record(&file, &json!({"event": "retrieve", "task": task}));
    assert!(is(
        &retrieve,
        &json!({"identity": identity, "method": "tasks/result", "tool": "count"})
    ));
    let left = record(&file, &json!({"event": "disconnect", "connection": connection}));
    assert!(left["received_bytes"].as_u64().is_some_and(|bytes| bytes > 100), "{left}");
    for record in records(&file) {
        let time = record["time"].as_str().expect("every record has a time");
        assert!(time.ends_with('Z') && time.contains('T'), "{time}");
    }
    assert_eq!(
        fs::metadata(&file).expect("the audit log exists").permissions().mode() & 0o777,
        0o600
    );
}

/// CAN-12: the request is recorded at once, and the receipt when no process is left: identity,
/// cause, last step, number of processes, duration, and no survivors. A reason is capped and cannot
/// forge a line.
#[test]
fn cancel_has_a_receipt() {
    let daemon = audited("");
    let (file, mark) = (path(&daemon), marker());
    let mut peer = daemon.peer();
    let call = peer.call("family", &json!({"t": mark}).to_string());
    wait_for_family(&mark);
    let forged = format!("enough\n{{\"event\":\"forged\"}}\r\u{1b}[31m{}", "x".repeat(10_000));
    let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": call, "reason": forged}});
    peer.send(&note.to_string());
    let asked = record(&file, &json!({"event": "cancel_requested"}));
    assert!(is(&asked, &json!({"identity": uid(), "request": call.to_string(), "tool": "family"})));
    let receipt = record(&file, &json!({"event": "cancel", "job": asked["job"]}));
    assert_none_left(&mark);
    let expected = json!({"by": uid(), "identity": uid(), "why": "requested", "stage": "SIGKILL",
        "survivors": 0, "reason": asked["reason"], "request": call.to_string()});
    assert!(is(&receipt, &expected), "{receipt}");
    let reason = receipt["reason"].as_str().expect("the receipt has the reason");
    assert!(reason.starts_with("enough ") && reason.len() <= 512, "{reason}");
    assert!(!reason.contains(char::is_control), "{reason}");
    // The short sleep may still have run.
    let ended = receipt["processes_ended"].as_u64().expect("a number");
    assert!((6..=8).contains(&ended), "{receipt}");
    let died = receipt["died_after_ms"].as_f64().expect("a number");
    assert!((200.0..20_000.0).contains(&died), "died before the grace period: {receipt}");
    assert!(matches!(receipt["held_by"].as_str(), Some("cgroup" | "guard" | "groups")));
    assert!(!records(&file).iter().any(|record| record["event"] == "forged"));
}

/// A tool that obeys SIGTERM gets no SIGKILL; a handler gets its flag; after a disconnect or a
/// timeout the receipt names the daemon.
#[test]
fn receipts_name_the_last_step() {
    let slow = "[[tool]]\nname = \"slow\"\nmax_output = \"64KiB\"\ntimeout = \"50ms\"\n\
                command = [\"sleep\", \"60\"]\n";
    let daemon = audited(slow);
    let file = path(&daemon);
    let mut peer = daemon.peer();
    let task = peer.create_task("hang", &json!({"t": marker()}).to_string());
    wait_until("it runs", || daemon.status()["running"] == 1);
    let _ = peer.result("tasks/cancel", &json!({"taskId": task}).to_string());
    let receipt = record(&file, &json!({"event": "cancel", "task": task}));
    let expected = json!({"stage": "SIGTERM", "processes_ended": 1, "survivors": 0, "by": uid()});
    assert!(is(&receipt, &expected), "{receipt}");
    let task = peer.create_task("sleep", r#"{"ms":600000}"#);
    wait_until("it runs", || daemon.status()["running"] == 1);
    let _ = peer.result("tasks/cancel", &json!({"taskId": task}).to_string());
    let receipt = record(&file, &json!({"event": "cancel", "task": task}));
    let expected = json!({"stage": "flag", "held_by": "thread", "processes_ended": 0});
    assert!(is(&receipt, &expected), "{receipt}");
    let id = peer.call("slow", "{}");
    let _ = peer.answer(id);
    let receipt = record(&file, &json!({"event": "cancel", "tool": "slow"}));
    assert!(is(&receipt, &json!({"by": "daemon", "why": "timed out"})), "{receipt}");
    let mut leaver = daemon.peer();
    let mark = marker();
    let call = leaver.call("family", &json!({"t": mark}).to_string());
    leaver.wait_started(&[call]);
    drop(leaver);
    let receipt = record(&file, &json!({"event": "cancel", "tool": "family"}));
    let expected = json!({"by": "daemon", "why": "disconnected", "survivors": 0});
    assert!(is(&receipt, &expected), "{receipt}");
}

/// A job that had not started has no containment and needs no step: a queued call, one that waits
/// for confirmation, or one whose command cannot start.
#[test]
fn receipts_of_jobs_that_never_started() {
    let tools = "[[tool]]\nname = \"careful\"\nmax_output = \"64KiB\"\n\
                 command = [\"true\"]\nconfirm = \"Really?\"\n\
                 [[tool]]\nname = \"quick\"\nbuiltin = \"echo\"\n\
                 [[tool]]\nname = \"absent\"\nmax_output = \"64KiB\"\n\
                 command = [\"/no/such/program\"]\n";
    let daemon = audited(tools);
    let file = path(&daemon);
    let nothing = json!({"stage": "none", "held_by": "nothing", "processes_ended": 0});
    let mut peer = daemon.connect();
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "kit", "version": "0"}});
    peer.result("initialize", &hello.to_string());
    let call = peer.call("careful", "{}");
    while peer.message().expect("the daemon is connected")["method"] != "elicitation/create" {}
    peer.cancel(call);
    let receipt = record(&file, &json!({"event": "cancel", "tool": "careful"}));
    assert!(is(&receipt, &nothing), "{receipt}");
    // Both messages in one write.
    let (call, cancel) = (
        json!({"jsonrpc": "2.0", "id": "q", "method": "tools/call",
            "params": {"name": "quick", "arguments": {"text": "x"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}}),
    );
    peer.send(&format!("{call}\n{cancel}"));
    let receipt = record(&file, &json!({"event": "cancel", "tool": "quick"}));
    assert!(is(&receipt, &nothing), "{receipt}");
    // Cancels that arrive while the supervisor starts the commands.
    const CALLS: usize = 200;
    for _ in 0..CALLS / 50 {
        let calls: Vec<u64> = (0..50).map(|_| peer.call("absent", "{}")).collect();
        calls.into_iter().for_each(|call| peer.cancel(call));
        peer.result("ping", "{}");
    }
    wait_until("all jobs have ended", || {
        daemon.status()["jobs"].as_array().is_some_and(Vec::is_empty)
    });
    drop(peer);
    record(&file, &json!({"event": "disconnect"}));
    let records = records(&file);
    let mut receipts =
        records.iter().filter(|r| is(r, &json!({"event": "cancel", "tool": "absent"})));
    assert!(receipts.clone().count() > 0);
    // A child may be ended while it tries to start the program.
    let child = json!({"processes_ended": 1, "survivors": 0});
    let is_true = |receipt: &&Value| is(receipt, &nothing) || is(receipt, &child);
    assert_eq!(receipts.find(|receipt| !is_true(receipt)), None);
}

/// Every call has a record: identity, tool, exit code, duration; arguments on request, without
/// secrets.
#[test]
fn every_call_is_recorded() {
    let tool = "[[tool]]\nname = \"login\"\nmax_output = \"64KiB\"\ncommand = [\"echo\", \"{name}\", \"{Api_Token}\"]\n\
                [tool.input.name]\ntype = \"string\"\n[tool.input.Api_Token]\ntype = \"string\"\n";
    for (calls, has_arguments) in [("names", false), ("arguments", true)] {
        let home = Home::new();
        let file = home.path().join("audit.jsonl");
        let metrics = home.path().join("m.sock");
        let log = format!(
            "[log]\naudit = {file:?}\ncalls = \"{calls}\"\n[metrics]\nlisten = \"unix:{}\"\n{tool}",
            metrics.display()
        );
        home.configure(&Config { tools: &log, ..Config::default() });
        let daemon = Daemon::start_in(home);
        let mut peer = daemon.peer();
        let id = peer.call("login", r#"{"name":"ann","Api_Token":"s3cret"}"#);
        peer.answer(id);
        let id = peer.call("fail", "{}");
        peer.answer(id);
        let id = peer.call("echo", r#"{"text":"x"}"#);
        peer.answer(id);
        let login = record(&file, &json!({"event": "call", "tool": "login"}));
        let expected = json!({"identity": uid(), "outcome": "ok", "exit_code": 0});
        assert!(is(&login, &expected) && login["duration_ms"].is_u64(), "{login}");
        let arguments = json!({"name": "ann", "Api_Token": "[redacted]"});
        assert_eq!(login.get("arguments"), has_arguments.then_some(&arguments));
        let failed = record(&file, &json!({"event": "call", "tool": "fail"}));
        assert!(is(&failed, &json!({"outcome": "failed", "exit_code": 7})), "{failed}");
        let handler = record(&file, &json!({"event": "call", "tool": "echo", "outcome": "ok"}));
        assert_eq!(handler.get("exit_code"), None);
        let text = fs::read_to_string(&file).expect("a file");
        assert!(!text.contains("s3cret"), "{text}");
        let (_, page) = ask(unix(&daemon), &last("GET /metrics"));
        assert!(
            page.contains("ceased_tool_calls_total{tool=\"fail\",outcome=\"failed\"} 1"),
            "{page}"
        );
        assert!(page.contains("ceased_build_info{version="), "{page}");
    }
}

/// SIGHUP opens the file again: the renamed file is unchanged, and no record is lost.
#[test]
fn sighup_reopens_the_audit_log() {
    let daemon = audited("");
    let (file, old) = (path(&daemon), daemon.home.path().join("audit.1"));
    let mut peer = daemon.peer();
    let first = peer.create_task("count", "{}");
    record(&file, &json!({"event": "complete", "task": first}));
    fs::rename(&file, &old).expect("it can be moved");
    let between = peer.create_task("count", "{}");
    record(&old, &json!({"event": "complete", "task": between}));
    daemon.signal(Signal::HUP);
    wait_until("the audit log is created again", || file.exists());
    let after = peer.create_task("count", "{}");
    record(&file, &json!({"event": "complete", "task": after}));
    let of = |task: &str| {
        let both = records(&old).into_iter().chain(records(&file));
        both.filter(|record| record["task"] == task && record["event"] == "create").count()
    };
    assert_eq!([of(&first), of(&between), of(&after)], [1, 1, 1]);
}

/// A file at its size limit (`ulimit -f`), like a full disk: records are dropped and counted, and
/// the daemon keeps running.
#[test]
fn full_audit_log_drops_and_counts_records() {
    let home = Home::new();
    let log = format!("[log]\naudit = {:?}\n", home.path().join("audit.jsonl"));
    home.configure(&Config { daemon: "store = \"memory\"", tools: &log, ..Config::default() });
    let command = home.command_after("ulimit -f 32", &["serve"]);
    let daemon = Daemon::start_with(home, command);
    let mut dropped = json!(0);
    wait_until("records are dropped", || {
        for _ in 0..50 {
            drop(daemon.peer());
        }
        let detail = daemon.peer().result("ceased/status", r#"{"detail":true}"#);
        dropped = detail["host"]["auditDropped"].clone();
        dropped != 0
    });
    assert!(dropped.as_u64().is_some_and(|count| count > 0), "{dropped}");
    let mut peer = daemon.peer();
    let call = peer.call("echo", r#"{"text":"still here"}"#);
    assert_eq!(peer.answer(call)["result"]["content"][0]["text"], "still here");
}

/// An audit log that cannot be written is an error at the start, which names it.
#[test]
fn unwritable_audit_log_is_an_error_at_the_start() {
    let home = Home::new();
    let log = format!("[log]\naudit = {:?}\n", home.path());
    home.configure(&Config { tools: &log, ..Config::default() });
    let ran = home.run(&["serve"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains(&home.path().display().to_string()), "{ran:?}");
}

/// Without `log.audit` there are no records, and the log at its default level has no line about
/// connections.
#[test]
fn without_a_file_there_are_no_records() {
    let mut daemon = Daemon::start(&Config::default());
    let mut peer = daemon.peer();
    let task = peer.create_task("count", "{}");
    let _ = peer.result("tasks/result", &json!({"taskId": task}).to_string());
    drop(peer);
    daemon.wait_idle();
    daemon.signal(Signal::TERM);
    daemon.wait();
    let log = daemon.home.log();
    assert!(log.contains("shutting down"), "{log}");
    assert_eq!(records_in(&log), 0, "{log}");
}

/// Number of log lines about peers or tasks, or with JSON inside of JSON.
fn records_in(log: &str) -> usize {
    let tells = |line: &&str| {
        ["connected", "audit", "complete", "retrieve", "{\\\""]
            .iter()
            .any(|word| line.contains(word))
    };
    log.lines().filter(tells).count()
}

/// At level "debug" the log has connects and disconnects, in structured fields.
#[test]
fn peers_are_logged_at_debug() {
    let home = Home::new();
    home.configure(&Config { tools: "[log]\nlevel = \"debug\"\n", ..Config::default() });
    let daemon = Daemon::start_in(home);
    drop(daemon.peer());
    for message in ["connected", "disconnected"] {
        wait_until(message, || {
            let log = daemon.home.log();
            let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let told = json!({"level": "DEBUG", "message": message, "identity": uid()});
            lines.into_iter().any(|line| is(&line, &told) && line["conn"].is_string())
        });
    }
}

/// TSK-41: a burst of unknown ids, or of polls below `pollInterval`, causes a warning, a record and
/// a counter.
#[test]
fn suspicious_peers_raise_a_warning() {
    let daemon = audited(ALERTS);
    let file = path(&daemon);
    let mut peer = daemon.peer();
    let task = peer.create_task("sleep", r#"{"ms":600000}"#);
    for _ in 0..6 {
        let id = peer.request("tasks/get", r#"{"taskId":"guess"}"#);
        assert_eq!(peer.answer(id)["error"]["code"], -32602);
        let _ = peer.result("tasks/get", &json!({"taskId": task}).to_string());
    }
    let unknown = record(&file, &json!({"event": "suspicious", "pattern": "unknown_tasks"}));
    assert!(is(&unknown, &json!({"identity": uid(), "count": 5, "window_ms": 60_000})));
    record(&file, &json!({"event": "suspicious", "pattern": "fast_polls"}));
    let counters = daemon.status()["counters"].clone();
    assert_eq!((&counters["suspicions"], &counters["unknownTasks"]), (&json!(2), &json!(6)));
    let warned =
        |log: &str| log.lines().any(|line| line.contains("WARN") && line.contains("unknown_tasks"));
    wait_until("the log warns", || warned(&daemon.home.log()));
}

/// Head and body of the metrics server's answer to these bytes.
fn ask(mut stream: impl std::io::Read + std::io::Write, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers and closes");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

fn unix(daemon: &Daemon) -> UnixStream {
    let stream = UnixStream::connect(daemon.home.path().join("m.sock")).expect("it accepts");
    stream.set_read_timeout(Some(TIME_LIMIT)).expect("a socket");
    stream
}

/// A request whose response closes the connection.
fn last(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

/// The value of a sample.
fn sample(page: &str, name: &str) -> f64 {
    let found = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
}

/// TSK-38: counters and gauges in Prometheus format on a separate socket, with the duration of
/// cancels and the survivors.
#[test]
fn metrics_are_served_for_prometheus() {
    let home = Home::new();
    let metrics =
        format!("[metrics]\nlisten = \"unix:{}\"\n", home.path().join("m.sock").display());
    home.configure(&Config { tools: &metrics, ..Config::default() });
    let daemon = Daemon::start_in(home);
    let mode = fs::metadata(daemon.home.path().join("m.sock"))
        .expect("the metrics socket exists")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let mut peer = daemon.peer();
    let mark = marker();
    let call = peer.call("family", &json!({"t": mark}).to_string());
    peer.wait_started(&[call]);
    let (status, page) = ask(unix(&daemon), &last("GET /metrics"));
    assert_eq!(status, "HTTP/1.1 200 OK");
    for (name, value) in [
        ("ceased_connections", 1.0),
        ("ceased_jobs{state=\"running\"}", 1.0),
        ("ceased_jobs{state=\"relayed\"}", 0.0),
        ("ceased_jobs{state=\"cancelling\"}", 0.0),
        ("ceased_tasks{status=\"working\"}", 0.0),
        ("ceased_survivors", 0.0),
        ("ceased_abandoned_threads", 0.0),
        ("ceased_audit_dropped_total", 0.0),
        ("ceased_cancel_to_death_seconds_count", 0.0),
        ("ceased_limit{limit=\"workers\"}", 64.0),
        ("ceased_jobs_started_total", 1.0),
    ] {
        assert!((sample(&page, name) - value).abs() < 0.5, "{name} is not {value}: {page}");
    }
    assert!(sample(&page, "ceased_received_bytes_total") > 100.0);
    peer.cancel(call);
    wait_until("the cancel is complete", || daemon.status()["cancelling"] == 0);
    assert_none_left(&mark);
    let (_, page) = ask(unix(&daemon), &last("GET /metrics"));
    for (name, value) in [
        ("ceased_survivors", 0.0),
        ("ceased_cancel_to_death_seconds_bucket{le=\"0.1\"}", 0.0),
        ("ceased_cancel_to_death_seconds_bucket{le=\"30\"}", 1.0),
        ("ceased_cancel_to_death_seconds_bucket{le=\"+Inf\"}", 1.0),
        ("ceased_cancelled_total", 1.0),
        ("ceased_queue_wait_seconds_count", 1.0),
        ("ceased_tool_call_seconds_bucket{tool=\"family\",le=\"+Inf\"}", 1.0),
        ("ceased_tool_call_seconds_count{tool=\"family\"}", 1.0),
    ] {
        assert!((sample(&page, name) - value).abs() < 0.5, "{name} is not {value}: {page}");
    }
    assert!(sample(&page, "ceased_processes_ended_total") > 3.0);
    // Each family has its own description.
    let said = page.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let meanings: std::collections::BTreeSet<&str> = said.clone().map(|(_, help)| help).collect();
    assert_eq!(meanings.len(), said.count(), "{page}");
    assert!(!meanings.contains("A counter of the engine."), "{page}");
    // Alerts and dashboard name families of this page, or of servers, which are there with one.
    let monitoring = workspace::root().join("daemon/packaging/monitoring");
    for file in ["ceased.rules.yml", "grafana.json"] {
        let text = fs::read_to_string(monitoring.join(file)).expect("a file of the package");
        let named = text.split("ceased_").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            rest[..end.unwrap_or(rest.len())].trim_end_matches("_bucket")
        });
        for name in named.filter(|name| !name.starts_with("server_")) {
            assert!(page.contains(&format!("# TYPE ceased_{name} ")), "{file}: ceased_{name}");
        }
    }
    let dashboard = fs::read(monitoring.join("grafana.json")).expect("a file of the package");
    let dashboard: Value = serde_json::from_slice(&dashboard).expect("JSON");
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 10));
    // Every sample belongs to a described family.
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let known = |name: &str| page.contains(&format!("# TYPE {name} "));
        assert!(known(name) || family.is_some_and(known), "{line}");
    }
}

/// The metrics server accepts only GET, and no client can block it.
#[test]
fn metrics_server_accepts_only_get() {
    let home = Home::new();
    let metrics =
        format!("[metrics]\nlisten = \"unix:{}\"\n", home.path().join("m.sock").display());
    home.configure(&Config { tools: &metrics, ..Config::default() });
    let daemon = Daemon::start_in(home);
    // A silent peer, and one that never completes its message.
    let silent = unix(&daemon);
    let mut endless = unix(&daemon);
    let _ = endless.write_all(&[b'a'; 17 * 1024]);
    for (request, status) in [
        (&last("GET /"), "HTTP/1.1 404 Not Found"),
        (&last("GET /mcp"), "HTTP/1.1 404 Not Found"),
        (&last("POST /metrics"), "HTTP/1.1 405 Method Not Allowed"),
        (&"{\"jsonrpc\":\"2.0\"}\r\n\r\n".to_owned(), "HTTP/1.1 400 Bad Request"),
        (&last("GET /metrics?a=b"), "HTTP/1.1 200 OK"),
    ] {
        assert_eq!(ask(unix(&daemon), request).0, status, "{request}");
    }
    // Requests that are sent ahead cost the daemon no page each.
    let ahead = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(50);
    let (status, pages) = ask(unix(&daemon), &ahead);
    assert_eq!((status.as_str(), pages.matches("HTTP/1.1").count()), ("HTTP/1.1 200 OK", 0));
    // A web page learns nothing, not even that there is a daemon.
    let mut stream = unix(&daemon);
    let foreign = "GET /healthz HTTP/1.1\r\nHost: x\r\nOrigin: https://evil.example\r\nConnection: close\r\n\r\n";
    stream.write_all(foreign.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers and closes");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && !answer.contains("access-control"),
        "{answer}"
    );
    let (status, body) = ask(unix(&daemon), &last("HEAD /metrics"));
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", ""));
    let (status, body) = ask(unix(&daemon), &last("HEAD /"));
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 404 Not Found", ""));
    let mut refused = String::new();
    let _ = endless.read_to_string(&mut refused);
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 431"), "{refused}");
    drop(silent);
    assert_eq!(daemon.status()["connections"], 1, "metrics clients count as peers");
}

/// Also served on a loopback address; an address reachable from the network is refused.
#[test]
fn metrics_are_served_on_loopback_only() {
    let home = Home::new();
    let config = |address: &str| format!("[metrics]\nlisten = {address:?}\n");
    home.configure(&Config { tools: &config("0.0.0.0:0"), ..Config::default() });
    assert_eq!(home.run(&["check"]).code, Some(2));
    home.configure(&Config { tools: &config("127.0.0.1:0"), ..Config::default() });
    let daemon = Daemon::start_in(home);
    let log = daemon.home.log();
    let address = log
        .lines()
        .find_map(|line| line.split_once("metrics on tcp:"))
        .expect("the address is logged");
    let stream = TcpStream::connect(address.1.trim()).expect("it accepts");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    assert_eq!(ask(stream, &last("GET /metrics")).0, "HTTP/1.1 200 OK");
}

/// Health without a token on the listener of the numbers and on one of HTTP, while the daemon turns,
/// and while it drains.
#[test]
fn health_is_told_without_a_token() {
    let tables = "[metrics]\nlisten = \"unix:m.sock\"\n[[listen]]\ntransport = \"http\"\naddress = \
                  \"127.0.0.1:0\"\ntoken_file = \"tokens\"\n\
                  [[tool]]\nname = \"stubborn\"\ndescription = \"Ignores SIGTERM\"\n\
                  command = [\"sh\", \"-c\", \"trap '' TERM; echo 1 >&3; while :; do sleep 1; done\"]\n\
                  kill_grace = \"5s\"\nrun_as = \"daemon\"\n";
    let mut daemon = with_tokens("", "", tables);
    for path in ["/healthz", "/readyz"] {
        let request = last(&format!("GET {path}"));
        assert_eq!(ask(unix(&daemon), &request), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
        let stream = TcpStream::connect(daemon.http_address()).expect("it accepts");
        stream.set_read_timeout(Some(TIME_LIMIT)).expect("a socket");
        assert_eq!(ask(stream, &request), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
        let posted = ask(unix(&daemon), &last(&format!("POST {path}")));
        assert_eq!(posted.0, "HTTP/1.1 405 Method Not Allowed");
    }
    let mut peer = daemon.peer();
    let call = peer.call("stubborn", "{}");
    peer.wait_started(&[call]);
    daemon.signal(Signal::TERM);
    wait_until("it drains", || daemon.home.log().contains("shutting down"));
    let (status, body) = ask(unix(&daemon), &last("GET /healthz"));
    assert_eq!((&*status, &*body), ("HTTP/1.1 503 Service Unavailable", "draining\n"));
    daemon.wait();
}

/// TSK-38: `ceased status --json` has every value, including those of the host.
#[test]
fn status_has_every_value() {
    let daemon = audited("");
    let mut peer = daemon.peer();
    let mark = marker();
    peer.call("family", &json!({"t": mark}).to_string());
    wait_for_family(&mark);
    let ran = daemon.home.run(&["status", "--json"]);
    let status: Value = serde_json::from_str(&ran.out).expect("JSON");
    let host = &status["host"];
    assert_eq!((&host["survivors"], &host["auditDropped"]), (&json!(0), &json!(0)));
    assert_eq!(host["pid"], daemon.pid());
    let job = status["jobs"][0]["job"].as_u64().expect("it runs").to_string();
    let processes = host["processes"][&job].as_array().expect("the processes are listed");
    assert!(processes.len() >= 6, "{processes:?}");
    let names: Vec<&str> = processes.iter().filter_map(|it| it["name"].as_str()).collect();
    assert!(names.contains(&"sh") && names.contains(&"sleep"), "{names:?}");
    assert_eq!(status["peers"].as_array().map(Vec::len), Some(2));
    assert!(daemon.home.run(&["status"]).out.contains("survivors"));
}
