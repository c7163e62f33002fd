//! Recordings of a live daemon: a replay of the same events gives the same bytes (DET-01).

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use ceased::record::{ReplayError, replay};
use ceased_tests::daemon::peer::{call, request};
use ceased_tests::daemon::{Config, Daemon, Home, Signal};

const HELLO: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"kit","version":"0"}}"#;

const NEW_TOOL: &str = "[[tool]]\nname = \"fresh\"\ncommand = [\"echo\", \"fresh\"]\n";

/// Records several peers, calls and tasks, cancels, a reload, and a shutdown.
fn live(path: &Path) {
    let home = Home::new();
    home.configure(&Config { tools: NEW_TOOL, ..Config::default() });
    let command = home.command(&["serve", "--record", path.to_str().expect("a path of letters")]);
    let mut daemon = Daemon::start_with(home, command);
    let mut peers = [daemon.peer(), daemon.peer(), daemon.peer()];
    for peer in &mut peers {
        let call = peer.call("fresh", "{}");
        assert_eq!(peer.answer(call)["result"]["content"][0]["text"], "fresh\n");
        let wrong = peer.call("fresh", r#"{"no":"such argument"}"#);
        assert_eq!(peer.answer(wrong)["result"]["isError"], true);
        peer.cancel(wrong);
        peer.send("this is no JSON");
        peer.send("\u{e4}\u{1f980}");
    }
    let changed = Config { tools: NEW_TOOL, limits: "connections = 9", ..Config::default() };
    daemon.home.configure(&changed);
    daemon.signal(Signal::HUP);
    peers[0].note("notifications/tools/list_changed");
    let status = peers[1].result("ceased/status", "{}");
    assert_eq!(status["limits"]["connections"], 9);
    let [first, ..] = peers;
    drop(first);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

/// DET-01
#[test]
fn replay_repeats_a_daemon() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("recording");
    live(&path);
    let recording = fs::read(&path).expect("the recording exists");
    let done = replay(&recording[..]).unwrap_or_else(|error| panic!("{error}"));
    assert!(done.events > 50 && done.bytes > 1000, "{done:?}");

    // A crash may cut the last line.
    let cut = recording.len() - 20;
    let less = replay(&recording[..cut]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(less.events, done.events - 1);

    // A recording of a version whose connections had no rights of their own.
    let text = String::from_utf8(recording).expect("a recording is text");
    let older = text.replace(r#","Server","Full"]"#, r#","Server"]"#);
    assert!(older.len() < text.len(), "a connection is recorded with its rights");
    let same = replay(older.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(same.bytes, done.bytes);

    // A single changed byte is detected.
    let forged = text.replacen("fresh\\\\n", "stale\\\\n", 1);
    assert_ne!(forged, text);
    let differs = replay(forged.as_bytes());
    assert!(matches!(differs, Err(ReplayError::Differs { .. })), "{differs:?}");
}

/// DET-01: `ceased stdio` records like `ceased serve`, and the recorded bytes are those that its
/// peer has read.
#[test]
fn stdio_session_is_recorded() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("recording");
    let home = Home::new();
    home.configure(&Config { tools: NEW_TOOL, ..Config::default() });
    let path_text = path.to_str().expect("a path of letters");
    let mut command = home.command(&["stdio", "--record", path_text]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it runs");
    let lines = [
        request(1, "initialize", HELLO),
        call(2, "fresh", "{}", ""),
        call(3, "fresh", "{}", r#","task":{}"#),
        "this is no JSON".to_owned(),
        request(4, "ping", "{}"),
    ];
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all((lines.join("\n") + "\n").as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{:?}", output.status);
    let said = String::from_utf8(output.stdout).expect("the output is UTF-8");
    assert!(said.lines().count() >= 5, "{said}");

    let recording = fs::read(&path).expect("the recording exists");
    let done = replay(&recording[..]).unwrap_or_else(|error| panic!("{error}"));
    assert!(done.events >= 5, "{done:?}");
    assert_eq!(done.bytes, said.len() as u64, "the recording has every byte");
}

#[test]
fn recording_overwrites_no_file() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("recording");
    fs::write(&path, "precious").expect("the file can be written");
    let home = Home::new();
    home.configure(&Config::default());
    let path_text = path.to_str().expect("a path of letters");
    let output = home.command(&["serve", "--record", path_text]).output().expect("it runs");
    assert!(!output.status.success());
    assert_eq!(fs::read_to_string(&path).expect("the file exists"), "precious");
}
