//! The official clients over Streamable HTTP.

use std::path::Path;
use std::process::Command;

use ceased_tests::daemon::{Config, Daemon};
use serde::Serialize;

use super::install::{self, Client};
use super::processes::{self, MARK_VARIABLE, Sweep};
use super::server::{read, write};
use super::{SCRIPT_WITHIN, Summary};

/// Setup file of a script.
#[derive(Serialize)]
struct Setup<'a> {
    /// Prefix of every mark by which the script finds its processes.
    mark: &'a str,
    /// Address of the endpoint.
    url: &'a str,
    /// Folder for files of the script.
    folder: &'a Path,
}

/// A listener, a tool that waits for a file, and one that asks before it runs.
const TOOLS: &str = r#"
[[listen]]
transport = "http"
address = "127.0.0.1:0"

[[tool]]
name = "gate"
run_as = "daemon"
task_support = "optional"
command = [
  "sh",
  "-c",
  'echo 1/2 >&3; while ! [ -e "$1" ]; do sleep 0.05; done; echo 2/2 >&3; echo through',
  "gate",
  "{file}",
]
[tool.input.file]
type = "string"
required = true

[[tool]]
name = "asks"
run_as = "daemon"
task_support = "optional"
confirm = "Really {what}?"
command = ["echo", "{what}"]
[tool.input.what]
type = "string"
required = true
"#;

/// HTTP-03, HTTP-04, HTTP-06 to HTTP-09 with the official TypeScript clients of both eras: calls,
/// progress, questions and tasks; aborts, timeouts and lost connections that leave no process, or an
/// answer that is read later; and the end of a session.
#[test]
fn typescript_over_http() {
    let checks = [
        "connect",
        "echo",
        "progress",
        "parallel",
        "abort",
        "timeout",
        "reconnect",
        "elicitation",
        "task",
        "task_cancel",
        "terminate",
        "modern_connect",
        "modern_echo",
        "modern_progress",
        "modern_parallel",
        "modern_abort",
        "modern_timeout",
        "modern_elicitation",
        "modern_task",
        "modern_task_cancel",
        "modern_cut",
        "modern_close",
    ];
    drive(install::typescript_over_http(), &checks);
}

/// HTTP-03, HTTP-04, HTTP-06 to HTTP-08 with the official Python client of sessions.
#[test]
fn python_over_http() {
    let checks = [
        "connect",
        "echo",
        "progress",
        "parallel",
        "abort",
        "timeout",
        "reconnect",
        "elicitation",
        "task",
        "task_cancel",
        "close",
    ];
    drive(install::python_over_http(), &checks);
}

/// HTTP-03, HTTP-04, HTTP-06 to HTTP-09, MOD-06 with the official Python client of 2026-07-28, which
/// also speaks 2025-11-25.
#[test]
fn modern_python_over_http() {
    let checks = [
        "connect",
        "echo",
        "progress",
        "parallel",
        "abort",
        "timeout",
        "elicitation",
        "cut",
        "close",
        "session_connect",
        "session_echo",
        "session_progress",
        "session_parallel",
        "session_abort",
        "session_timeout",
        "session_elicitation",
        "reconnect",
        "session_close",
    ];
    drive(install::modern_python_over_http(), &checks);
}

fn drive(client: Option<Client>, checks: &[&str]) {
    let Some(client) = client else { return };
    let folder = tempfile::Builder::new().prefix("ceased-sdk-").tempdir().expect("a folder");
    let mark = folder.path().file_name().and_then(|name| name.to_str()).expect("a name");
    let _sweep = Sweep(mark.to_owned());
    let daemon = Daemon::start(&Config { tools: TOOLS, ..Config::default() });
    let url = format!("http://{}/mcp", daemon.http_address());
    let setup_path = folder.path().join("setup.json");
    let setup = serde_json::to_string(&Setup { mark, url: &url, folder: folder.path() })
        .expect("a setup is JSON");
    write(&setup_path, &setup);
    let log = folder.path().join("client.log");
    let mut command = Command::new(&client.program);
    command.arg(&client.script).arg(&setup_path).env(MARK_VARIABLE, mark);
    command.env("PYTHONWARNINGS", "ignore").env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = processes::run(&mut command, &log, SCRIPT_WITHIN);
    let said = read(&log);
    let summary = said.lines().rev().find_map(|line| serde_json::from_str::<Summary>(line).ok());
    let is_good = ended.as_ref().is_ok_and(|status| status.success());
    let summary = summary.filter(|summary| is_good && summary.failures == 0);
    let summary = summary.unwrap_or_else(|| panic!("the client failed ({ended:?}):\n{said}"));
    assert_eq!(summary.done, checks, "the script and this test know different checks");
    daemon.wait_idle();
}
