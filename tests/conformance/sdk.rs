//! The official TypeScript and Python clients of MCP drive ceased, unmodified, over `ceased stdio`
//! and over `ceased connect`: the clients with sessions, and the one of 2026-07-28 with its
//! companion for the tasks extension. The official TypeScript client of ACP drives the example
//! agent.
//!
//! A client's script runs the checks and reports each result. The recorded traffic is then
//! validated here against the published schema. A client without Node.js or Python is skipped with
//! a line; with `$CI` set, that is a failure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ceased_tests::schema;
use serde::{Deserialize, Serialize};

mod acp;
mod http;
mod install;
mod modern;
mod oauth;
pub(crate) mod processes;
mod record;
pub(crate) mod rmcp;
mod server;
mod suite;

use install::Client;
use processes::{MARK_VARIABLE, Sweep};
use server::{Reload, Server, Way, read, text};

/// Longest duration of a client's script.
const SCRIPT_WITHIN: Duration = Duration::from_secs(300);
/// Longest time until every process of a test has ended.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Checks of every client.
const CHECKS: [&str; 19] = [
    "initialize",
    "tools_list",
    "echo",
    "progress",
    "abort",
    "timeout",
    "failing_tool",
    "invalid_arguments",
    "unknown_tool",
    "task_misuse",
    "parallel_calls",
    "ping_while_busy",
    "task_by_hand",
    "task_cancel",
    "task_failed",
    "task_unknown",
    "task_list",
    "no_errors",
    "close",
];

/// Setup file of a script.
#[derive(Debug, Serialize)]
struct Setup<'a> {
    /// Prefix of every mark by which the script finds its processes.
    mark: &'a str,
    /// Folder of the relays' recordings, one folder per connection.
    record: PathBuf,
    /// The relay script.
    relay: PathBuf,
    /// Command of the server.
    server: &'a [String],
    /// Environment variables of the server.
    env: BTreeMap<&'a str, &'a str>,
    /// How to reload, if the script tests a reload.
    reload: Option<&'a Reload>,
    /// Whether tasks outlive the connection that created them.
    survives: bool,
}

/// Last line of a script's output.
#[derive(Debug, Deserialize)]
struct Summary {
    done: Vec<String>,
    failures: usize,
}

#[test]
fn typescript_over_stdio() {
    drive(install::typescript(), Way::Stdio, &["silent_tool", "task_stream", "stream_abort"]);
}

#[test]
fn typescript_over_connect() {
    drive(
        install::typescript(),
        Way::Connect,
        &["silent_tool", "task_stream", "stream_abort", "reload"],
    );
}

#[test]
fn python_over_stdio() {
    drive(install::python(), Way::Stdio, &["task_steps"]);
}

#[test]
fn python_over_connect() {
    drive(install::python(), Way::Connect, &["task_steps", "reload"]);
}

/// Runs a client's script against its own server; the script must report the `CHECKS` and these
/// `further` ones.
fn drive(client: Option<Client>, way: Way, further: &[&str]) {
    let wanted: Vec<&str> = CHECKS.iter().chain(further).copied().collect();
    drive_through(client, way, server::TOOLS, wanted);
}

/// Runs a client's script against a server with these tools; the script must report exactly these
/// checks.
fn drive_through(client: Option<Client>, way: Way, tools: &str, mut wanted: Vec<&str>) {
    let Some(client) = client else { return };
    let folder = tempfile::Builder::new().prefix("ceased-sdk-").tempdir().expect("a folder");
    let mark = text(folder.path());
    let mark = mark.rsplit('/').next().expect("a path has a last part");
    let _sweep = Sweep(mark.to_owned());
    let server = Server::start(way, folder.path(), mark, tools);
    let summary = run_script(&client, way, &server, folder.path(), mark);
    let mut done: Vec<&str> = summary.done.iter().map(String::as_str).collect();
    wanted.sort_unstable();
    done.sort_unstable();
    assert_eq!(done, wanted, "the script and this test know different checks");
    server.stop();
    // STOP-01: no process is left.
    processes::until(GONE_WITHIN, || processes::marked(mark).is_empty().then_some(()))
        .unwrap_or_else(|| panic!("left behind: {:?}", processes::marked(mark)));
    let lines = record::check(&folder.path().join("record"));
    let against = if schema::available() { "the schema and the rules" } else { "the rules" };
    println!("{lines} lines of the server were checked against {against}");
}

/// Runs the script to its end and reads its summary; prints all output on failure.
fn run_script(client: &Client, way: Way, server: &Server, folder: &Path, mark: &str) -> Summary {
    let setup = Setup {
        mark,
        record: folder.join("record"),
        relay: Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/sdk/relay.sh"),
        server: &server.command,
        env: [(MARK_VARIABLE, mark)].into(),
        reload: server.reload(),
        survives: way == Way::Connect,
    };
    std::fs::create_dir(&setup.record).expect("the folder is new");
    let setup_path = folder.join("setup.json");
    server::write(&setup_path, &serde_json::to_string(&setup).expect("a setup is JSON"));
    let log = folder.join("client.log");
    let mut command = Command::new(&client.program);
    command.arg(&client.script).arg(&setup_path);
    // Python warnings concern authors of scripts, and bytecode must not be written into the source
    // tree.
    command.env("PYTHONWARNINGS", "ignore").env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = processes::run(command.env(MARK_VARIABLE, mark), &log, SCRIPT_WITHIN);
    let said = read(&log);
    let summary = said.lines().rev().find_map(|line| serde_json::from_str::<Summary>(line).ok());
    match (ended, summary) {
        (Ok(status), Some(summary)) if status.success() && summary.failures == 0 => {
            println!("{said}");
            summary
        }
        (ended, _) => {
            let daemon = read(&folder.join("daemon.log"));
            panic!("the client failed ({ended:?}):\n{said}\n--- daemon ---\n{daemon}");
        }
    }
}
