//! The official conformance suite of MCP, whole, against the example server with its fixtures: alone,
//! and behind a daemon as an existing server.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use ceased_tests::binary;
use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::{Config, Daemon, Home, wait_until};
use serde_json::Value;

use super::Summary;
use super::install::{self, Suite};
use super::processes;
use super::server::read;
use crate::real;

/// Longest duration of the scenarios of one revision.
const REVISION_WITHIN: Duration = Duration::from_secs(300);
/// Longest duration of one command of a client.
const COMMAND_WITHIN: Duration = Duration::from_secs(120);
/// Longest time until the example server listens.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);

/// Revisions whose requirements are run, each with the number of its scenarios in this version of
/// the suite: those of the revision, and those that it does not count, such as tasks and headers.
const REVISIONS: [(&str, usize); 2] = [("2025-11-25", 33), ("2026-07-28", 50)];

/// Revisions without requirements in the suite: its scenarios that apply to them, with their number.
const OLDER: [(&str, usize); 2] = [("2025-03-26", 1), ("2025-06-18", 27)];

/// A check that is not met: the revision, the scenario, the check, and why.
type Exception = (&'static str, &'static str, &'static str, &'static str);

/// Checks that the suite itself leaves out.
const NOT_CHECKED: [Exception; 1] = [(
    "2026-07-28",
    "tasks-status-notifications",
    "tasks-status-notifications",
    "the suite looks for these notifications where they are not since SEP-2663",
)];

/// Expected failures of the example server, alone and behind a daemon.
const FAILURES: [Exception; 0] = [];

/// HTTP-03 to HTTP-09 by the official suite: every scenario of both revisions, with the tasks and the
/// headers that it does not count.
#[test]
fn official_suite_passes() {
    let Some(suite) = install::suite() else { return };
    let folder = tempfile::Builder::new().prefix("ceased-suite-").tempdir().expect("a folder");
    let server = Example::start(folder.path());
    run_suite(&suite, &server.url, folder.path(), &FAILURES);
}

/// UPS-10 to UPS-13 by the official suite: the fixtures are a server on standard input and output,
/// which a daemon relays.
#[test]
fn official_suite_passes_through_the_gateway() {
    let Some(suite) = install::suite() else { return };
    let folder = tempfile::Builder::new().prefix("ceased-suite-").tempdir().expect("a folder");
    let command = binary::conformance().to_str().expect("a path is text");
    let tools = format!(
        "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n\
         [[server]]\nname = \"fixtures\"\ncommand = [{command:?}, \"stdio\"]\nrun_as = \"daemon\"\n\
         prefix = \"\"\n"
    );
    let daemon = Daemon::start(&Config { tools: &tools, ..Config::default() });
    let url = format!("http://{}/mcp", daemon.http_address());
    run_suite(&suite, &url, folder.path(), &FAILURES);
}

/// UPS-17: the official scenarios of the skills extension, whose client declares no extension, pass
/// with a server that is the only one of a daemon.
#[test]
fn skills_of_an_only_server_pass_the_official_scenarios() {
    let (Some(suite), Some(installed)) = (install::suite(), real::installed()) else { return };
    let folder = tempfile::Builder::new().prefix("ceased-suite-").tempdir().expect("a folder");
    let command = [
        installed.join("venv/bin/python"),
        real::source("skills_server.py"),
        real::skill(folder.path()),
    ];
    let home = Home::new();
    home.configure_as(&format!(
        "[[listen]]\ntransport = \"unix\"\npath = {:?}\n\
         [[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n\
         [[server]]\nname = \"skills\"\ncommand = {command:?}\nrun_as = \"daemon\"\n\
         prefix = \"\"\nshare = \"identity\"\nstart_timeout = \"60s\"\n",
        home.socket()
    ));
    let daemon = Daemon::start_in(home);
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let ask = |method: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{meta}}}}}"#
        );
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
        let mut http = Http::tcp(daemon.http_address());
        http.post(&headers, &body);
        http.answer()
    };
    wait_until("the server has told of itself", || {
        ask("tools/list");
        let found = ask("server/discover");
        let extensions = &found["result"]["capabilities"]["extensions"];
        extensions.get("io.modelcontextprotocol/skills").is_some()
    });
    let url = format!("http://{}/mcp", daemon.http_address());
    for scenario in ["enumeration", "manifest", "directory"] {
        let path = folder.path().join(format!("{scenario}.log"));
        let results = folder.path().join(scenario);
        let mut command = Command::new(&suite.node);
        command.arg(&suite.program).args(["server", "--url", &url, "--scenario"]);
        command.arg(format!("sep-2640-skills-{scenario}")).arg("-o").arg(&results);
        let ended = processes::run(&mut command, &path, COMMAND_WITHIN);
        assert!(ended.is_ok_and(|status| status.success()), "{scenario}: {}", read(&path));
        for (_, checks) in checks_of(&results) {
            // FastMCP reads no directories, and gives its resources a name and `_meta` of its own.
            let is_fine = |check: &&Value| {
                let status = check["status"].as_str();
                is_met(check)
                    || status == Some("WARNING")
                    || (status == Some("SKIPPED") && scenario == "directory")
            };
            let other: Vec<&Value> = checks.iter().filter(|check| !is_fine(check)).collect();
            assert!(other.is_empty() && !checks.is_empty(), "{scenario}: {other:#?}");
        }
    }
}

/// HTTP-03 and HTTP-04 by the command line of the MCP Inspector: each method that it has, in a session
/// of its own.
#[test]
fn inspector_uses_every_method() {
    let Some(suite) = install::suite() else { return };
    let folder = tempfile::Builder::new().prefix("ceased-suite-").tempdir().expect("a folder");
    let server = Example::start(folder.path());
    let prompt = ["--prompt-name", "test_prompt_with_arguments"];
    let arguments = ["--prompt-args", "arg1=a", "arg2=b"];
    for (method, arguments, expected) in [
        ("tools/list", vec![], "\"test_simple_text\""),
        ("tools/call", vec!["--tool-name", "greet", "--tool-arg", "name=World"], "Hello, World!"),
        ("tools/call", vec!["--tool-name", "test_tool_with_progress"], "\"isError\": false"),
        ("resources/list", vec![], "\"test://static-text\""),
        ("resources/templates/list", vec![], "\"test://template/{id}/data\""),
        ("resources/read", vec!["--uri", "test://template/7/data"], "Data for ID: 7"),
        ("prompts/list", vec![], "\"test_prompt_with_arguments\""),
        ("prompts/get", [&prompt[..], &arguments].concat(), "arg1='a', arg2='b'"),
        ("logging/setLevel", vec!["--log-level", "debug"], "{}"),
    ] {
        let log = folder.path().join(format!("{}.log", method.replace('/', "-")));
        let mut command = Command::new(&suite.node);
        command.arg(&suite.inspector).args(["--cli", &server.url, "--transport", "http"]);
        // It keeps files in the home of its user.
        command.env("HOME", folder.path()).args(["--method", method]).args(arguments);
        let ended = processes::run(&mut command, &log, COMMAND_WITHIN);
        let said = read(&log);
        assert!(ended.is_ok_and(|status| status.success()), "{method}: {said}");
        assert!(said.contains(expected), "{method}: {expected} is not in {said}");
    }
}

/// HTTP-08 and HTTP-09 with the official Python client of 2026-07-28.
#[test]
fn modern_python_over_http() {
    let Some(client) = install::modern_python() else { return };
    let folder = tempfile::Builder::new().prefix("ceased-suite-").tempdir().expect("a folder");
    let server = Example::start(folder.path());
    let log = folder.path().join("client.log");
    let mut command = Command::new(&client.program);
    command.arg(&client.script).arg(&server.url).env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = processes::run(&mut command, &log, COMMAND_WITHIN);
    let said = read(&log);
    assert!(ended.is_ok_and(|status| status.success()), "the client failed:\n{said}");
    let summary = said.lines().rev().find_map(|line| serde_json::from_str::<Summary>(line).ok());
    let checks = ["connect", "call", "progress", "input", "resources", "prompts", "abort", "close"];
    assert_eq!(summary.map(|summary| summary.done), Some(checks.map(String::from).to_vec()));
}

/// The example server. Killed when dropped.
struct Example {
    url: String,
    child: Child,
}

impl Example {
    fn start(folder: &Path) -> Self {
        let log = folder.join("server.log");
        let mut command = Command::new(binary::conformance());
        let child = processes::start(command.arg("127.0.0.1:0"), &log).expect("it starts");
        let mut example = Self { url: String::new(), child };
        let address = processes::until(LISTENS_WITHIN, || {
            let said = read(&log);
            let listens = said.lines().find_map(|line| line.split_once("listening on tcp:"));
            listens.and_then(|(_, address)| Some(address.strip_suffix(" (http)")?.to_owned()))
        });
        let address = address.unwrap_or_else(|| panic!("it does not listen: {}", read(&log)));
        example.url = format!("http://{address}/mcp");
        example
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs every scenario of the revisions; exactly the expected checks may fail.
fn run_suite(suite: &Suite, url: &str, folder: &Path, failures: &[Exception]) {
    let mut found = BTreeSet::new();
    let mut log = String::new();
    let older =
        OLDER.map(|(revision, count)| (revision, count, vec!["--suite", "all", "--spec-version"]));
    let frozen = REVISIONS.map(|(revision, count)| (revision, count, vec!["--requirements"]));
    for (revision, count, options) in older.into_iter().chain(frozen) {
        let results = folder.join(revision);
        let path = folder.join(format!("{revision}.log"));
        let mut command = Command::new(&suite.node);
        command.arg(&suite.program).args(["server", "--url", url]).args(options).arg(revision);
        let ended = processes::run(command.arg("-o").arg(&results), &path, REVISION_WITHIN);
        let said = read(&path);
        // Its status tells only of the scenarios that the revision counts.
        assert!(
            ended.is_ok_and(|status| status.code().is_some()),
            "the suite did not end:\n{said}"
        );
        let scenarios = checks_of(&results);
        assert_eq!(scenarios.len(), count, "the suite has other scenarios for {revision}:\n{said}");
        for (scenario, checks) in scenarios {
            assert!(!checks.is_empty(), "{revision}: {scenario} has checked nothing");
            for check in checks.iter().filter(|check| !is_met(check)) {
                let id = check["id"].as_str().unwrap_or_default().to_owned();
                log.push_str(&format!("{revision} {scenario}: {check:#}\n"));
                found.insert((revision.to_owned(), scenario.clone(), id));
            }
        }
    }
    let expected: BTreeSet<_> = { failures.iter().chain(&NOT_CHECKED) }
        .map(|(revision, scenario, check, _)| {
            ((*revision).to_owned(), (*scenario).to_owned(), (*check).to_owned())
        })
        .collect();
    assert_eq!(found, expected, "failures and expected failures differ:\n{log}");
}

fn is_met(check: &Value) -> bool {
    matches!(check["status"].as_str(), Some("SUCCESS" | "INFO"))
}

/// The checks of each scenario, from the results of a run.
fn checks_of(results: &Path) -> Vec<(String, Vec<Value>)> {
    let folders =
        fs::read_dir(results).unwrap_or_else(|why| panic!("{}: {why}", results.display()));
    let paths: Vec<PathBuf> =
        folders.map(|entry| entry.expect("a folder is read").path()).collect();
    let scenario = |path: PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        // server-SCENARIO-2026-11-26T00-23-13-274Z
        let name = name.strip_prefix("server-").unwrap_or(&name);
        let end = name.len().saturating_sub("-2026-11-26T00-23-13-274Z".len());
        let checks = read(&path.join("checks.json"));
        (name[..end].to_owned(), serde_json::from_str(&checks).expect("checks are JSON"))
    };
    paths.into_iter().map(scenario).collect()
}
