//! A recording of a live daemon, replayed: the same events give the same bytes (DET-01).

use std::fs;
use std::path::Path;

use ceased::record::{ReplayError, replay};
use ceased_tests::daemon::{Config, Daemon, Home, Signal};

const NEW_TOOL: &str = "[[tool]]\nname = \"fresh\"\ncommand = [\"echo\", \"fresh\"]\n";

/// Several peers, calls and tasks, cancels, a reload, an end; with everything written down.
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
        assert_eq!(peer.answer(wrong)["error"]["code"], -32602);
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
fn what_a_daemon_did_an_engine_does_again() {
    let folder = tempfile::tempdir().expect("a place for a recording");
    let path = folder.path().join("recording");
    live(&path);
    let recording = fs::read(&path).expect("it was written");
    let done = replay(&recording[..]).unwrap_or_else(|error| panic!("{error}"));
    assert!(done.events > 50 && done.bytes > 1000, "{done:?}");

    // A crash leaves a last line without its end.
    let cut = recording.len() - 20;
    let less = replay(&recording[..cut]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(less.events, done.events - 1);

    // One other byte is noticed.
    let text = String::from_utf8(recording).expect("a recording is text");
    let forged = text.replacen("fresh\\\\n", "stale\\\\n", 1);
    assert_ne!(forged, text);
    let differs = replay(forged.as_bytes());
    assert!(matches!(differs, Err(ReplayError::Differs { .. })), "{differs:?}");
}

#[test]
fn a_recording_writes_over_nothing() {
    let folder = tempfile::tempdir().expect("a place for a recording");
    let path = folder.path().join("recording");
    fs::write(&path, "precious").expect("it can be written");
    let home = Home::new();
    home.configure(&Config::default());
    let path_text = path.to_str().expect("a path of letters");
    let output = home.command(&["serve", "--record", path_text]).output().expect("it runs");
    assert!(!output.status.success());
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "precious");
}
