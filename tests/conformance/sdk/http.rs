//! The official clients over Streamable HTTP.

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
}

const LISTEN: &str = "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n";

/// HTTP-03, HTTP-04, HTTP-06 to HTTP-09 with the official TypeScript clients of both eras: calls,
/// progress, aborts and timeouts that leave no process, and the end of a session.
#[test]
fn typescript_over_http() {
    let checks = [
        "connect",
        "echo",
        "progress",
        "parallel",
        "abort",
        "timeout",
        "terminate",
        "modern_connect",
        "modern_echo",
        "modern_progress",
        "modern_parallel",
        "modern_abort",
        "modern_timeout",
        "modern_close",
    ];
    drive(install::typescript_over_http(), &checks);
}

/// HTTP-03, HTTP-04, HTTP-06 with the official Python client.
#[test]
fn python_over_http() {
    drive(install::python_over_http(), &["connect", "echo", "progress", "parallel", "close"]);
}

fn drive(client: Option<Client>, checks: &[&str]) {
    let Some(client) = client else { return };
    let folder = tempfile::Builder::new().prefix("ceased-sdk-").tempdir().expect("a folder");
    let mark = folder.path().file_name().and_then(|name| name.to_str()).expect("a name");
    let _sweep = Sweep(mark.to_owned());
    let daemon = Daemon::start(&Config { tools: LISTEN, ..Config::default() });
    let url = format!("http://{}/mcp", daemon.http_address());
    let setup_path = folder.path().join("setup.json");
    let setup = serde_json::to_string(&Setup { mark, url: &url }).expect("a setup is JSON");
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
