//! Subjects that flood, never read, close in the middle or send no JSON: a probe ends within its
//! bounds of memory and time, states the reason, and leaves no process.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ceased_tests::binary::ceased;
use ceased_tests::daemon::marker;

use super::document;

const HOSTILE: &str = include_str!("hostile.py");
/// Time for one probe on a busy machine; without a bound it would not end.
const LONGEST: Duration = Duration::from_secs(150);
/// Memory of the probe, or of the hostile subject: far below that of an unbounded probe.
const RESIDENT_MAX_KB: u64 = 400_000;
/// Runs a command, and writes the largest resident set of it and its children to a file.
const MEASURE: &str = "import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
open(sys.argv[1], 'w').write(str(most))
sys.exit(code)";

/// Processes with this variable in their environment.
fn with_variable(variable: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let has_it = |path: &PathBuf| {
        let variables = fs::read(path.join("environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|it| it == variable.as_bytes())
    };
    all.filter(has_it).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Evidence of the checks of a hostile subject that do not hold.
fn evidence(kind: &str, fault: &str, options: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    fs::write(path("hostile.py"), HOSTILE).unwrap();
    let (mark, address) = (format!("CEASED_HOSTILE={}", marker()), path("{port}"));
    let mut command = Command::new("python3");
    command.args(["-S", "-c", MEASURE, &path("resident")]).arg(ceased());
    command.args(["probe", "--json", "-"]).args(options);
    let script = path("hostile.py");
    let target = ["--", "env", &mark, "python3", "-S", &script, fault, kind];
    match kind {
        "socket" => command.args(["--socket", &address]).args(target).arg(&address),
        "http" => command.args(["--url", "http://127.0.0.1:{port}/mcp"]).args(target).arg("{port}"),
        _ => command.arg("--client").args(target).args(["--", "{server}"]),
    };
    let begin = Instant::now();
    let output = command.output().unwrap();
    let took = begin.elapsed();
    let found = document(&output);
    assert!(took < LONGEST, "{kind} {fault}: {took:?}: {found:#}");
    let resident: u64 = fs::read_to_string(path("resident")).unwrap().parse().unwrap();
    assert!(resident < RESIDENT_MAX_KB, "{kind} {fault}: {resident} KB");
    assert_eq!(found["left"], 0, "{found:#}");
    assert_eq!(with_variable(&mark), Vec::<String>::new(), "{kind} {fault}");
    let checks = found["checks"].as_array().unwrap().iter();
    let unsettled = checks.filter(|check| check["verdict"] != "holds");
    let said: Vec<&str> =
        unsettled.map(|check| check["evidence"].as_str().unwrap_or_default()).collect();
    said.join("\n")
}

/// All cases at once: most wait.
fn all_are_told(kind: &str, options: &[&str], cases: &[(&str, &str)]) {
    thread::scope(|scope| {
        for (fault, reason) in cases {
            let options = [&timeout(fault)[..], options].concat();
            scope.spawn(move || {
                let said = evidence(kind, fault, &options);
                assert!(said.contains(reason), "{kind} {fault}: {said}");
            });
        }
    });
}

const SMALL: [&str; 2] = ["--output-max", "4MiB"];
const FLOOD: &str = "has written more than 4194304 bytes";

/// Faults after which nothing comes that ends the wait.
const SILENT: [&str; 10] = [
    "batch",
    "closes",
    "deaf",
    "deep",
    "empty",
    "full",
    "silent",
    "slowly",
    "stdout-slowly",
    "utf8",
];

/// Whatever floods has time to do so on a busy machine.
fn timeout(fault: &str) -> [&'static str; 2] {
    let time = match fault {
        // Its many values take long to read.
        "objects" => "120s",
        _ if SILENT.contains(&fault) => "4s",
        _ => "20s",
    };
    ["--timeout", time]
}

#[test]
fn hostile_peers_behind_a_socket_are_bounded_and_told() {
    all_are_told(
        "socket",
        &[&SMALL[..], &["--only", "handshake,stdout"]].concat(),
        &[
            ("flood", FLOOD),
            ("line", FLOOD),
            ("objects", FLOOD),
            ("wide", FLOOD),
            ("deep", "no message: \"[[["),
            ("utf8", "no message: \"{"),
            ("closes", "the server has closed its output"),
            ("silent", "no answer to request \"greeting\" within 4s"),
            ("full", "the socket accepts no connection"),
        ],
    );
}

/// A server that floods once it has a call, and one that asks without an end and reads slowly.
#[test]
fn hostile_peers_in_the_middle_are_bounded_and_told() {
    let only = [&SMALL[..], &["--only", "handshake,cancel-no-answer"]].concat();
    all_are_told("socket", &only, &[("late", FLOOD), ("slow", FLOOD)]);
}

/// Many short values take far more memory than their text.
#[test]
fn memory_for_many_values_is_bounded() {
    let only = ["--only", "handshake"];
    let flood = "has written more than 67108864 bytes";
    all_are_told("socket", &only, &[("objects", flood)]);
}

#[test]
fn hostile_http_servers_are_bounded_and_told() {
    all_are_told(
        "http",
        &[&SMALL[..], &["--only", "handshake"]].concat(),
        &[
            ("head", "more than 100 headers"),
            ("interim", "the head of the response has more than 65536 bytes"),
            ("body", FLOOD),
            ("comments", FLOOD),
            ("event", FLOOD),
            ("chunk", "chunk"),
            ("chunks", FLOOD),
            ("closes", "closed the connection after 1 bytes of a body"),
            ("wide", FLOOD),
            ("deep", "no message: \"[[["),
            ("utf8", "no message: \"\u{fffd}{"),
            ("batch", "no message: \"1\""),
            ("empty", "no message: \"{}\""),
            ("deaf", "no answer to request \"greeting\" within 4s"),
            ("silent", "no answer to request \"greeting\" within 4s"),
        ],
    );
}

#[test]
fn hostile_clients_are_bounded_and_told() {
    all_are_told(
        "client",
        &SMALL,
        &[
            ("flood", FLOOD),
            ("line", FLOOD),
            ("objects", "the client has"),
            ("wide", FLOOD),
            ("deep", "a line that is no message"),
            ("utf8", "a line that is no message"),
            ("closes", "no message reaches the server"),
            ("silent", "no message reaches the server"),
            ("stdout", FLOOD),
            ("stdout-slowly", "no message reaches the server"),
            ("deaf", FLOOD),
            ("crowd", "has more than 16 servers"),
        ],
    );
}

#[test]
fn clients_that_call_without_an_end_are_bounded_and_told() {
    let calls = "has sent more than 10000 messages";
    all_are_told("client", &[], &[("calls", calls), ("slowly", "the client")]);
}
