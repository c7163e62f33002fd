//! `ceased probe`: each planted fault is found by its check and by no other, and nothing is found
//! in ceased itself.

mod agents;
mod clients;
mod field;
mod hostile;
mod network;
mod reports;
pub(crate) mod tls;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ceased_tests::binary::ceased;
use ceased_tests::output_schema::OutputSchema;
use ceased_tests::turns::Turns;
use ceased_tests::workspace;
use serde_json::Value;
use tempfile::TempDir;

const SERVER: &str = include_str!("probe/server.py");

/// Probes at once: each runs many subjects at once, whose time limits pass while they wait for a CPU.
const PROBES_MAX: usize = 4;
static PROBES: Turns = Turns::new(PROBES_MAX);

/// Faults that do not disturb each other, by the ids of their checks.
const FAULTS: [&[&str]; 6] = [
    &[
        "stdout",
        "cancel-unknown",
        "id-forms",
        "id-types",
        "cancel-no-answer",
        "work-processes",
        "eof-exit",
        "sigterm-tree",
        "task-lifecycle",
        "task-cancel",
        "extension-lifecycle",
    ],
    &[
        "initialize-cancel",
        "cancel-answered",
        "id-reused",
        "cancel-no-progress",
        "storm",
        "eof-tree",
        "sigterm-exit",
        "task-cancel-result",
        "task-ttl",
        "extension-cancel",
    ],
    &[
        "cancel-malformed",
        "id-duplicate",
        "cancel-early",
        "work-writes",
        "cancel-behind-input",
        "killed-tree",
        "task-waiters",
        "task-pages",
        "task-restart",
        "extension-foreign",
    ],
    &[
        "ping-during-call",
        "work-stubborn",
        "no-reader",
        "killed-exit",
        "task-cancel-work",
        "task-waiter-cancel",
        "task-foreign",
        "extension-undeclared",
    ],
    &["task-notification", "task-cursor", "task-terminal"],
    COMPUTES,
];

/// A fault of which every instance of the server computes on. The checks that look at work are
/// enough to compare with.
const COMPUTES: &[&str] = &["work-cpu"];
const OF_WORK: [&str; 2] = ["--only", "handshake,ping,work,task-cancel-work"];

/// Options of a probe of a subject with faults, many of which wait for the time limit.
const FAULTY: [&str; 2] = ["--timeout", "6s"];

/// Checks at once: most wait for something. As few as usual where each call computes, of which too
/// little would be seen on a busy CPU.
fn at_once(faults: &[&str]) -> [&'static str; 2] {
    ["--at-once", if computes(faults) { "4" } else { "16" }]
}

/// Whether the calls of the scripted server compute, as in its script.
fn computes(faults: &[&str]) -> bool {
    faults.is_empty() || faults.contains(&"work-cpu")
}

/// Runs a probe to its end, after others if there are many.
fn output_of(command: &mut Command) -> Output {
    let _turn = PROBES.take();
    command.output().unwrap()
}

/// A probe of the scripted server.
struct Probe {
    dir: TempDir,
    script: PathBuf,
}

impl Probe {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("server.py");
        fs::write(&script, SERVER).unwrap();
        Self { dir, script }
    }

    fn run(&self, options: &[&str], faults: &[&str]) -> Output {
        let state = self.dir.path().join("state");
        fs::create_dir_all(&state).unwrap();
        let mut command = Command::new(ceased());
        command
            .args(["probe", "--window", "700ms", "--restart"])
            .args(at_once(faults))
            .args(options);
        command.args(["--stubborn-tool", "stubborn", "--stubborn-args", "{\"seconds\": 60}"]);
        command.args(["--", "python3", "-S"]).arg(&self.script).arg(state).args(faults);
        output_of(&mut command)
    }
}

/// Ids of the checks with this verdict.
fn with(found: &Value, verdict: &str) -> BTreeSet<String> {
    let checks = found["checks"].as_array().unwrap().iter();
    let chosen = checks.filter(|check| check["verdict"] == verdict);
    chosen.map(|check| check["id"].as_str().unwrap().to_owned()).collect()
}

fn document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}{said}"))
}

/// Runs a probe with these options, and asserts that the faults alone deviate.
///
/// Where it found something else, the checks in question are run once more without the others: the
/// machine may have been too busy for the time limits of dozens of subjects.
fn assert_found(faults: &[&str], only: &[&str], run: impl Fn(&[&str]) -> Output) {
    let probe = |only: &[&str]| {
        let output = run(only);
        let found = document(&output);
        let deviates = with(&found, "deviates");
        assert_eq!(output.status.code(), Some(i32::from(!deviates.is_empty())), "{found:#}");
        OutputSchema::read().check("probe", &found).unwrap();
        (deviates, found)
    };
    let expected: BTreeSet<String> = faults.iter().map(|fault| (*fault).to_owned()).collect();
    let (deviates, found) = probe(only);
    let open: BTreeSet<String> = deviates.symmetric_difference(&expected).cloned().collect();
    if open.is_empty() {
        return;
    }
    let ids = open.iter().cloned().collect::<Vec<_>>().join(",");
    let (deviates, again) = probe(&["--only", &ids]);
    assert_eq!(deviates, &open & &expected, "first {found:#}, then {again:#}");
}

fn every_fault_is_found(faults: &[&str]) {
    let only: &[&str] = if faults == COMPUTES { &OF_WORK } else { &[] };
    let options = ["--json", "-"];
    let run = |only: &[&str]| Probe::new().run(&[&options, &FAULTY[..], only].concat(), faults);
    assert_found(faults, only, run);
}

/// CAN-08, CAN-09, TSK-07: faults of the first group.
#[test]
fn planted_faults_are_found_by_their_checks_1() {
    every_fault_is_found(FAULTS[0]);
}

#[test]
fn planted_faults_are_found_by_their_checks_2() {
    every_fault_is_found(FAULTS[1]);
}

#[test]
fn planted_faults_are_found_by_their_checks_3() {
    every_fault_is_found(FAULTS[2]);
}

#[test]
fn planted_faults_are_found_by_their_checks_4() {
    every_fault_is_found(FAULTS[3]);
}

#[test]
fn planted_faults_are_found_by_their_checks_5() {
    every_fault_is_found(FAULTS[4]);
}

/// CAN-06.
#[test]
fn work_that_computes_on_is_found() {
    every_fault_is_found(COMPUTES);
}

/// Each fault alone: faults of one group may hide each other.
#[test]
#[ignore = "takes 15 minutes"]
fn each_fault_alone_is_found_by_its_check() {
    for fault in FAULTS.concat() {
        every_fault_is_found(&[fault]);
    }
}

/// The server without faults, and the list of faults against the list of checks.
#[test]
fn nothing_is_found_in_a_server_without_faults_and_every_check_has_a_fault() {
    let output = Probe::new().run(&["--json", "-"], &[]);
    let found = document(&output);
    assert_eq!(with(&found, "deviates"), BTreeSet::new(), "{found:#}");
    assert_eq!(with(&found, "unknown"), BTreeSet::new(), "{found:#}");
    assert_eq!(output.status.code(), Some(0));
    let mut planted: BTreeSet<String> =
        FAULTS.iter().flat_map(|group| group.iter()).map(|fault| (*fault).to_owned()).collect();
    planted.insert("handshake".to_owned());
    assert_eq!(with(&found, "holds"), planted);
    // The page has a section for each check.
    let page = fs::read_to_string(workspace::root().join("docs/src/probe.md")).unwrap();
    let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
    let headings: Vec<&str> = headings.filter(|id| !id.starts_with("http-")).collect();
    let ids = found["checks"].as_array().unwrap().iter().map(|check| check["id"].as_str().unwrap());
    assert_eq!(headings, ids.collect::<Vec<_>>());
}

#[test]
fn server_without_a_handshake_deviates_there_alone() {
    // Time for the start of the server on a busy machine.
    let output = Probe::new().run(&["--json", "-", "--timeout", "5s"], &["handshake"]);
    // The scripted server speaks the revision without sessions as well.
    let found = document(&output);
    assert_eq!(found["revision"], "2026-07-28", "{found:#}");
    let asked = ["--json", "-", "--timeout", "1s", "--revision", "2025-11-25"];
    let found = document(&Probe::new().run(&asked, &["handshake"]));
    assert_eq!(with(&found, "deviates"), BTreeSet::from(["handshake".to_owned()]), "{found:#}");
    assert_eq!(with(&found, "holds"), BTreeSet::new());
}

/// The files for people and for CI; processes that the server left are named and gone.
#[test]
fn report_states_the_deviation_its_remedy_and_the_survivors() {
    let probe = Probe::new();
    let file = |name: &str| probe.dir.path().join(name).to_string_lossy().into_owned();
    let (junit, markdown) = (file("junit.xml"), file("probe.md"));
    let options = ["--only", "eof,cancel-unknown", "--junit", &junit, "--markdown", &markdown];
    let output = probe.run(&options, &["eof-tree"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in [
        "tool: sleep {\"seconds\":60} (chosen by its schema)",
        "left behind: 1 (sleep)",
        "remedy: end the processes",
        "see: ceased probe --explain eof-tree",
        "processes left behind by the server, ended now: sleep",
        "2 hold, 1 deviate, 0 unknown",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let junit = fs::read_to_string(junit).unwrap();
    assert!(junit.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"0\""), "{junit}");
    assert!(
        fs::read_to_string(markdown).unwrap().contains("| deviates | eof-tree | OURS | STOP-01 |")
    );
    let path = probe.script.to_string_lossy().into_owned();
    let left = Command::new("pgrep").args(["-f", &path]).output().unwrap();
    assert!(left.stdout.is_empty(), "{}", String::from_utf8_lossy(&left.stdout));
}

/// A server, and an agent, that writes without an end.
#[test]
fn flood_is_bounded_and_reported() {
    let line = r#"{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}"#;
    for (options, check) in
        [(&["--json", "-"][..], "handshake"), (&["--acp", "--json", "-"], "agent-handshake")]
    {
        let mut command = Command::new(ceased());
        command.arg("probe").args(options).args(["--output-max", "1MiB", "--only", check]);
        let found = document(&command.args(["--", "yes", line]).output().unwrap());
        let evidence = found["checks"][0]["evidence"].as_str().unwrap();
        assert!(evidence.contains("has written more than 1048576 bytes"), "{found:#}");
        assert_eq!(with(&found, "deviates"), BTreeSet::from([check.to_owned()]));
    }
}

#[test]
fn unknown_check_is_wrong_use() {
    let output =
        Command::new(ceased()).args(["probe", "--only", "nothing", "--", "true"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("no check begins with \"nothing\"") && said.contains("handshake"),
        "{said}"
    );
}

/// The work of a tool, `work SECONDS FILE`: a process, a computation, a growing file, progress.
const WORK: [(&str, &str); 2] = [
    // A storm cancels its calls before Python would have started, on a busy machine as well.
    ("work", "sleep 1000 & sleep 0.5; exec python3 -S \"$0.py\" \"$@\" $!"),
    (
        "work.py",
        r#"
import os, sys, time
begun = due = time.monotonic()
# The shell has waited for half a second.
end, count = begun + int(sys.argv[1]) - 0.5, 0
with open(sys.argv[2], "a") as file:
    while (now := time.monotonic()) < end:
        # A fifth of a CPU, on a busy machine as well. Most checks end their calls before.
        if time.process_time() < 0.2 * (now - begun - 0.7):
            sum(range(20000))
        else:
            time.sleep(0.005)
        if now < due:
            continue
        due = now + 0.02
        file.write("x" * 50)
        file.flush()
        count += 1
        if count % 5 == 0:
            os.write(3, f"{count}\n".encode())
os.kill(int(sys.argv[3]), 9)
"#,
    ),
];

/// Writes the files of the tool; returns the path of its script.
fn write_work(dir: &Path) -> String {
    WORK.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
    dir.join("work").to_string_lossy().into_owned()
}

/// The result of a probe of ceased over stdio, with a tool that does everything that can go on
/// after a cancel, and one that ignores SIGTERM in a session of its own.
fn probe_ceased(store: &str, options: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let config = format!(
        r#"
[daemon]
state_dir = {state:?}
store = {store:?}

[[tool]]
name = "work"
description = "Works"
command = ["sh", {script:?}, "{{seconds}}", {out:?}]
task_support = "optional"
kill_grace = "300ms"
[tool.input.seconds]
type = "integer"
required = true

[[tool]]
name = "stubborn"
description = "Ignores SIGTERM"
command = ["setsid", "--fork", "--wait", "sh", "-c", "trap '' TERM; sleep 1000 & while :; do sleep 1; done"]
kill_grace = "300ms"
"#,
        state = path("state"),
        script = write_work(dir.path()),
        out = path("out"),
    );
    fs::write(path("config.toml"), config).unwrap();
    let mut command = Command::new(ceased());
    command
        .args(["probe", "--json", "-", "--window", "700ms", "--tool", "work"])
        .args(options)
        .args(["--args", "{\"seconds\": 60}", "--brief-args", "{\"seconds\": 1}"])
        .args(["--stubborn-tool", "stubborn", "--"])
        .arg(ceased())
        .args(["stdio", "--config", &path("config.toml")]);
    let output = output_of(&mut command);
    let found = document(&output);
    assert_eq!(with(&found, "deviates"), BTreeSet::new(), "{found:#}");
    assert_eq!(output.status.code(), Some(0));
    found
}

/// STOP-01: instances at once have no store in common.
#[test]
fn nothing_is_found_in_ceased_over_stdio() {
    let found = probe_ceased("memory", &[]);
    assert_eq!(with(&found, "unknown"), BTreeSet::from(["task-restart".to_owned()]), "{found:#}");
}

/// DUR-01.
#[test]
fn tasks_of_ceased_outlive_its_kill() {
    let found = probe_ceased("disk", &["--restart", "--only", "task-restart"]);
    assert_eq!(with(&found, "holds"), BTreeSet::from(["task-restart".to_owned()]), "{found:#}");
}
