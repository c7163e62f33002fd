//! The official TypeScript and Python clients of MCP drive ceased, unmodified, over `ceased stdio`
//! and over `ceased connect`, those of sessions as well as that of 2026-07-28 with its companion for
//! the tasks extension; the official TypeScript client of ACP drives the agent of the examples.
//!
//! A client's script makes the checks and says how each went; what passed between the client and
//! the server is kept and then held against the published schema here. Where there is no Node.js
//! or no Python, that client is skipped, loudly; with `$CI` set it is a failure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ceased_tests::schema;
use serde::{Deserialize, Serialize};

mod acp;
mod install;
mod modern;
mod processes;
mod record;
mod server;

use install::Client;
use processes::{MARK_VARIABLE, Sweep};
use server::{Reload, Server, Way, read, text};

/// Longest time a client's script may take in all.
const SCRIPT_WITHIN: Duration = Duration::from_secs(300);
/// Longest time until everything a test started has ended by itself.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// What every client checks.
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

/// What a script is told.
#[derive(Debug, Serialize)]
struct Setup<'a> {
    /// Begins every mark by which the script knows its processes.
    mark: &'a str,
    /// Where relays keep what passes, a folder each.
    record: PathBuf,
    /// The relay's script.
    relay: PathBuf,
    /// The command of the server.
    server: &'a [String],
    /// Environment variables of the server.
    env: BTreeMap<&'a str, &'a str>,
    /// How to reload, where a reload is to be tested.
    reload: Option<&'a Reload>,
    /// Whether tasks outlive the connection that made them.
    survives: bool,
}

/// What a script says last.
#[derive(Debug, Deserialize)]
struct Summary {
    done: Vec<String>,
    failures: usize,
}

#[test]
fn typescript_over_stdio() {
    drive(install::typescript(), Way::Stdio, &["task_stream", "stream_abort"]);
}

#[test]
fn typescript_over_connect() {
    drive(install::typescript(), Way::Connect, &["task_stream", "stream_abort", "reload"]);
}

#[test]
fn python_over_stdio() {
    drive(install::python(), Way::Stdio, &["task_steps"]);
}

#[test]
fn python_over_connect() {
    drive(install::python(), Way::Connect, &["task_steps", "reload"]);
}

/// Runs a client's script against a server of its own; it must have made the `CHECKS` and these
/// `further` ones.
fn drive(client: Option<Client>, way: Way, further: &[&str]) {
    let wanted: Vec<&str> = CHECKS.iter().chain(further).copied().collect();
    drive_through(client, way, server::TOOLS, wanted);
}

/// Runs a client's script against a server with these tools; it must have made just these checks.
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
    // STOP-01: nothing of it all is left.
    processes::until(GONE_WITHIN, || processes::marked(mark).is_empty().then_some(()))
        .unwrap_or_else(|| panic!("left behind: {:?}", processes::marked(mark)));
    let lines = record::check(&folder.path().join("record"));
    let against = if schema::available() { "the schema and the rules" } else { "the rules" };
    println!("{lines} lines of the server were held against {against}");
}

/// Runs the script to its end and reads its summary; shows everything when it failed.
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
    // Warnings are for the authors of a script, and no bytecode belongs into the sources.
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
