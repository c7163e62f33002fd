//! `ceased probe` over Unix sockets and Streamable HTTP of both eras.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use ceased_tests::binary::ceased;
use ceased_tests::daemon::wait_until;
use ceased_tests::workspace;
use serde_json::Value;

use super::{
    COMPUTES, FAULTY, OF_WORK, Probe, assert_found, at_once, document, output_of, with, write_work,
};

const SOCKET: &str = include_str!("socket_server.py");
pub(super) const HTTP: &str = include_str!("http_server.py");
pub(super) const SESSION: &str = "2025-11-25";
pub(super) const STATELESS: &str = "2026-07-28";

/// A transport of the scripted server.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Socket,
    Http(&'static str),
}

impl Probe {
    /// Runs the scripted server behind a socket or over HTTP, another instance for each check.
    fn run_over(&self, way: Way, options: &[&str], faults: &[&str]) -> Output {
        let dir = self.dir.path().to_string_lossy();
        let state = self.dir.path().join("state");
        fs::create_dir_all(&state).unwrap();
        let (script, text, address) = match way {
            Way::Socket => ("socket_server.py", SOCKET, format!("{dir}/{{port}}.sock")),
            Way::Http(_) => ("http_server.py", HTTP, "{port}".to_owned()),
        };
        fs::write(self.dir.path().join(script), text).unwrap();
        let mut command = Command::new(ceased());
        command.args(["probe", "--json", "-", "--window", "700ms", "--restart"]);
        command.args(at_once(faults)).args(options);
        command.args(["--stubborn-tool", "stubborn", "--stubborn-args", "{\"seconds\": 60}"]);
        match way {
            Way::Socket => command.args(["--socket", &address]),
            Way::Http(revision) => {
                command.args(["--url", "http://127.0.0.1:{port}/mcp", "--revision", revision])
            }
        };
        command.args(["--", "python3", "-S"]).arg(self.dir.path().join(script));
        output_of(command.arg(address).arg(state).args(faults))
    }
}

fn every_fault_is_found(way: Way, faults: &[&str]) {
    let only: &[&str] = if faults == COMPUTES { &OF_WORK } else { &[] };
    let run = |only: &[&str]| Probe::new().run_over(way, &[&FAULTY[..], only].concat(), faults);
    assert_found(faults, only, run);
}

/// HTTP-03, HTTP-04, HTTP-05, HTTP-07.
const SESSION_FAULTS: [&[&str]; 3] = [
    &[
        "http-answer-end",
        "http-notification",
        "http-version",
        "http-session-delete",
        "http-disconnect",
        "id-types",
        "sigterm-tree",
        "task-cancel",
    ],
    &[
        "http-cancel-end",
        "http-origin",
        "http-two-lengths",
        "http-session-unknown",
        "http-session-work",
        "http-session-freed",
        "work-processes",
        "work-writes",
        "task-ttl",
    ],
    &["cancel-no-answer", "id-duplicate", "task-waiters"],
];

/// MOD-06, HTTP-09.
const STATELESS_FAULTS: &[&str] = &[
    "http-posted-cancel",
    "http-headers",
    "http-unknown-method",
    "http-get",
    "storm",
    "extension-cancel",
];

/// Each fault alone: faults of one group may hide each other.
#[test]
#[ignore = "takes 15 minutes"]
fn each_fault_over_http_alone_is_found_by_its_check() {
    let of = |revision, faults: &[&'static str]| {
        faults.iter().map(move |fault| (Way::Http(revision), *fault)).collect::<Vec<_>>()
    };
    let all = [of(SESSION, &SESSION_FAULTS.concat()), of(STATELESS, STATELESS_FAULTS)].concat();
    for (way, fault) in all {
        every_fault_is_found(way, &[fault]);
    }
}

#[test]
fn planted_faults_of_http_sessions_are_found_1() {
    every_fault_is_found(Way::Http(SESSION), SESSION_FAULTS[0]);
}

#[test]
fn planted_faults_of_http_sessions_are_found_2() {
    every_fault_is_found(Way::Http(SESSION), SESSION_FAULTS[1]);
}

#[test]
fn planted_faults_of_http_sessions_are_found_3() {
    every_fault_is_found(Way::Http(SESSION), SESSION_FAULTS[2]);
}

#[test]
fn planted_faults_of_stateless_http_are_found() {
    every_fault_is_found(Way::Http(STATELESS), STATELESS_FAULTS);
}

#[test]
fn planted_faults_behind_a_socket_are_found() {
    let faults = ["cancel-answered", "id-reused", "no-reader", "sigterm-exit", "task-ttl"];
    every_fault_is_found(Way::Socket, &faults);
}

/// CAN-06.
#[test]
fn work_that_computes_on_is_found_over_every_transport() {
    every_fault_is_found(Way::Socket, COMPUTES);
    every_fault_is_found(Way::Http(STATELESS), COMPUTES);
}

/// Every check of HTTP holds somewhere, and has a fault.
#[test]
fn nothing_is_found_over_http_in_a_server_without_faults() {
    let planted = SESSION_FAULTS.concat().into_iter().chain(STATELESS_FAULTS.iter().copied());
    let is_of_http = |id: &String| id.starts_with("http-");
    let planted: BTreeSet<String> = planted.map(str::to_owned).filter(is_of_http).collect();
    let (mut held, mut listed) = (BTreeSet::new(), Vec::new());
    for revision in [SESSION, STATELESS] {
        let output = Probe::new().run_over(Way::Http(revision), &["--only", "http"], &[]);
        let found = document(&output);
        assert_eq!(with(&found, "deviates"), BTreeSet::new(), "{found:#}");
        assert_eq!(found["revision"], revision);
        held.extend(with(&found, "holds"));
        let ids = found["checks"].as_array().unwrap().iter();
        listed = ids.map(|check| check["id"].as_str().unwrap().to_owned()).collect();
    }
    assert_eq!(held, planted);
    let page = fs::read_to_string(workspace::root().join("docs/src/probe.md")).unwrap();
    let headings = page.lines().filter_map(|line| line.strip_prefix("### http-"));
    assert_eq!(headings.map(|id| format!("http-{id}")).collect::<Vec<_>>(), listed);
}

/// A script that starts a ceased of its own: its port, and the transport.
fn start_script(dir: &Path) -> String {
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let script = format!(
        r#"
home={dir}/home.$$
mkdir "$home"
case $2 in
http) listen="transport = \"http\"
address = \"127.0.0.1:$1\"" ;;
unix) listen="transport = \"unix\"
path = \"{dir}/$1.sock\"" ;;
esac
cat > "$home/config.toml" <<END
[daemon]
state_dir = "$home/state"
store = "memory"

[[listen]]
$listen

[[tool]]
name = "work"
description = "Works"
command = ["sh", {work:?}, "{{seconds}}", "$home/out"]
task_support = "optional"
kill_grace = "300ms"
run_as = "daemon"
[tool.input.seconds]
type = "integer"
required = true

[[tool]]
name = "stubborn"
description = "Ignores SIGTERM"
command = ["setsid", "--fork", "--wait", "sh", "-c", "trap '' TERM; sleep 1000 & while :; do sleep 1; done"]
kill_grace = "300ms"
run_as = "daemon"
END
exec {ceased:?} serve --config "$home/config.toml"
"#,
        dir = dir.display(),
        work = write_work(dir),
        ceased = ceased(),
    );
    fs::write(path("start.sh"), script).unwrap();
    path("start.sh")
}

/// Options of a probe of ceased.
const CALLS: [&str; 8] = [
    "--tool",
    "work",
    "--args",
    "{\"seconds\": 60}",
    "--brief-args",
    "{\"seconds\": 1}",
    "--stubborn-tool",
    "stubborn",
];

fn probe_ceased(transport: &str, options: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let script = start_script(dir.path());
    let mut command = Command::new(ceased());
    command
        .args(["probe", "--json", "-", "--window", "700ms"])
        .args(CALLS)
        .args(match transport {
            "http" => ["--url".to_owned(), "http://127.0.0.1:{port}/mcp".to_owned()],
            _ => ["--socket".to_owned(), format!("{}/{{port}}.sock", dir.path().display())],
        })
        .args(options)
        .args(["--", "sh", &script, "{port}", transport]);
    let output = output_of(&mut command);
    let found = document(&output);
    assert_eq!(with(&found, "deviates"), BTreeSet::new(), "{found:#}");
    assert_eq!(output.status.code(), Some(0));
    found
}

/// Checks of a call and of its work that hold.
fn hold(found: &Value, ids: &[&str]) {
    let held = with(found, "holds");
    for id in ids {
        assert!(held.contains(*id), "{id}: {found:#}");
    }
}

const WORKING: [&str; 6] =
    ["ping-during-call", "work-processes", "work-cpu", "work-stubborn", "storm", "sigterm-tree"];

#[test]
fn nothing_is_found_in_ceased_behind_a_socket() {
    let found = probe_ceased("unix", &[]);
    hold(&found, &WORKING);
    hold(&found, &["cancel-early", "no-reader", "cancel-behind-input", "task-cancel-work"]);
}

#[test]
fn nothing_is_found_in_ceased_over_http_with_sessions() {
    let found = probe_ceased("http", &[]);
    assert_eq!(found["revision"], SESSION);
    hold(&found, &WORKING);
    hold(&found, &["http-cancel-end", "http-disconnect", "http-session-work", "task-cancel-work"]);
}

#[test]
fn nothing_is_found_in_ceased_over_stateless_http() {
    let found = probe_ceased("http", &["--revision", STATELESS]);
    hold(&found, &WORKING);
    hold(&found, &["http-posted-cancel", "http-headers", "http-get"]);
}

/// A daemon that runs already.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Without a command, checks that need processes are unknown, and the server goes on.
#[test]
fn server_that_runs_already_is_left_running() {
    let dir = tempfile::tempdir().unwrap();
    let script = start_script(dir.path());
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut command = Command::new("sh");
    command.args([&script, &port.to_string(), "http"]).stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    let connects = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    wait_until("it accepts", connects);
    let url = format!("http://127.0.0.1:{port}/mcp");
    let mut command = Command::new(ceased());
    command
        .args(["probe", "--json", "-", "--window", "700ms", "--url", &url])
        .args(CALLS)
        .args(["--only", "handshake,cancel-no-answer,work,sigterm,http-cancel-end,http-session"]);
    let output = output_of(&mut command);
    let found = document(&output);
    assert_eq!(output.status.code(), Some(0), "{found:#}");
    assert_eq!(found["subject"], "");
    assert_eq!(found["address"], url);
    hold(&found, &["cancel-no-answer", "http-cancel-end", "http-session-delete"]);
    let unknown = with(&found, "unknown");
    for id in ["work-processes", "work-stubborn", "sigterm-exit", "http-session-work"] {
        assert!(unknown.contains(id), "{id}: {found:#}");
    }
    assert!(running.0.try_wait().unwrap().is_none() && connects());
}

/// A stream without an end.
#[test]
fn flood_over_http_is_bounded_and_reported() {
    let options = ["--output-max", "1MiB", "--only", "handshake"];
    let found = document(&Probe::new().run_over(Way::Http(SESSION), &options, &["flood"]));
    let evidence = found["checks"][0]["evidence"].as_str().unwrap();
    assert!(evidence.contains("has written more than 1048576 bytes"), "{found:#}");
}

#[test]
fn wrong_addresses_are_wrong_use() {
    let said = |args: &[&str]| {
        let output = Command::new(ceased()).arg("probe").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["--url", "ftp://localhost/mcp"]).contains("must begin with http://, https://"));
    assert!(said(&["--url", "http://a/", "--header", "content-length: 1"]).contains("connection"));
    assert!(said(&["--url", "http://a/", "--socket", "/a"]).contains("cannot be used with"));
    assert!(said(&["--url", "http://a/", "--header", "x"]).contains("NAME: VALUE"));
    assert!(said(&["--header", "a: b", "--", "true"]).contains("--url"));
    assert!(said(&[]).contains("COMMAND"));
}
