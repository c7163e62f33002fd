//! Files removed under a running daemon: its state directory, its store, its socket.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use ceased_tests::daemon::{Config, Daemon, Home, Peer, Signal, wait_until};
use serde_json::Value;

/// Error code for a task that cannot be stored.
const STORE_UNAVAILABLE: i64 = -31006;
const TASK: &str = r#"{"name":"count","arguments":{"n":1},"task":{"ttl":3600000}}"#;

fn state(home: &Home) -> PathBuf {
    home.path().join("state/ceased")
}

/// Creates a task; `None` if it is refused because the store is unavailable.
fn create(peer: &mut Peer) -> Option<String> {
    let id = peer.request("tools/call", TASK);
    let answer = peer.answer(id);
    if answer["error"]["code"] == STORE_UNAVAILABLE {
        assert_eq!(answer["error"]["data"]["store"], "broken", "{answer}");
        return None;
    }
    Some(answer["result"]["task"]["taskId"].as_str().expect("a task").to_owned())
}

fn outcome(peer: &mut Peer, task: &str) -> Value {
    let id = peer.request("tasks/result", &format!(r#"{{"taskId":"{task}"}}"#));
    let answer = peer.answer(id);
    assert!(answer["result"].is_object(), "{task} is lost: {answer}");
    answer["result"]["content"].clone()
}

fn store_status(daemon: &Daemon) -> Value {
    daemon.peer().result("ceased/status", r#"{"detail":true}"#)["host"]["store"].take()
}

/// Damages a state directory.
type Harm = fn(&Path);

const HARMS: [(&str, Harm); 6] = [
    ("rm -r of the state directory and what it is in", |state| {
        fs::remove_dir_all(state.parent().unwrap()).unwrap();
    }),
    ("rm -r of the state directory", |state| fs::remove_dir_all(state).unwrap()),
    ("mv of the state directory", |state| {
        fs::rename(state, state.with_extension("old")).unwrap();
    }),
    ("rm tasks.db", |state| fs::remove_file(state.join("tasks/tasks.db")).unwrap()),
    ("mv tasks.db", |state| {
        fs::rename(state.join("tasks/tasks.db"), state.join("tasks/tasks.bak")).unwrap();
    }),
    ("rm lock", |state| fs::remove_file(state.join("lock")).unwrap()),
];

/// DUR-01: an announced task survives the damage and a kill -9, before and after; the directory is
/// locked again.
#[test]
fn announced_tasks_survive_the_removal_of_the_store_and_kill_9() {
    for (what, harm) in HARMS {
        let home = Home::new();
        home.configure(&Config { daemon: "store_retry = \"100ms\"", ..Config::default() });
        let daemon = Daemon::start_in(home);
        let mut peer = daemon.peer();
        let mut promised: Vec<String> = (0..5).filter_map(|_| create(&mut peer)).collect();
        let before: Vec<Value> = promised.iter().map(|task| outcome(&mut peer, task)).collect();
        assert_eq!(before.len(), 5);
        harm(&state(&daemon.home));
        wait_until(what, || {
            promised.extend(create(&mut peer));
            promised.len() > 10
        });
        let after: Vec<Value> = promised.iter().map(|task| outcome(&mut peer, task)).collect();
        assert_eq!(after[..5], before, "{what}");
        assert!(daemon.home.log().contains("was removed or renamed"), "{what}: no line in the log");
        let held = daemon.home.run(&["store", "check"]);
        assert_eq!(
            held.code,
            Some(75),
            "{what}: another daemon can lock the directory: {}",
            held.err
        );
        assert_eq!(store_status(&daemon)["state"], "open", "{what}");

        let daemon = Daemon::start_in(daemon.kill());
        let mut peer = daemon.peer();
        for (task, before) in promised.iter().zip(after) {
            assert_eq!(outcome(&mut peer, task), before, "{what}");
        }
    }
}

/// DUR-01: removed files are detected while the daemon is idle: status, metrics and log report it,
/// and tasks are refused. As an ordinary user if possible.
#[test]
fn removed_state_directory_is_noticed_while_idle() {
    let home = Home::new();
    let metrics = home.path().join("m.sock");
    home.configure(&Config {
        daemon: "store_retry = \"1h\"",
        tools: &format!("[metrics]\nlisten = \"unix:{}\"\n", metrics.display()),
        ..Config::default()
    });
    let command =
        home.command_limited(6, 100, &["serve"]).unwrap_or_else(|| home.command(&["serve"]));
    let daemon = Daemon::start_with(home, command);
    assert_eq!(store_status(&daemon)["state"], "open");
    fs::remove_dir_all(state(&daemon.home)).unwrap();
    wait_until("the removal is noticed", || store_status(&daemon)["state"] == "broken");
    assert_eq!(create(&mut daemon.peer()), None);
    let removed = "tasks.db was removed or renamed";
    wait_until("the log has the reason", || daemon.home.log().contains(removed));
    // The metrics socket is checked too.
    fs::remove_file(&metrics).unwrap();
    wait_until("metrics are served again", || UnixStream::connect(&metrics).is_ok());
    let mut page = String::new();
    let mut stream = UnixStream::connect(metrics).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("\nceased_store_open 0\n"), "{page}");
}

/// DUR-01: if a second daemon has taken the directory, the first accepts no task and changes no
/// file, then and after the second has ended.
#[test]
fn directory_that_another_daemon_took_is_left_to_it() {
    let home = Home::new();
    home.configure(&Config { daemon: "store_retry = \"1h\"", ..Config::default() });
    let first = Daemon::start_in(home);
    let dir = state(&first.home);
    let mut peer = first.peer();
    assert!(create(&mut peer).is_some());
    fs::remove_dir_all(&dir).unwrap();
    wait_until("the removal is noticed", || store_status(&first)["state"] == "broken");

    let other = Home::new();
    other.configure(&Config { daemon: &format!("state_dir = {dir:?}"), ..Config::default() });
    let second = Daemon::start_in(other);
    let mut other_peer = second.peer();
    let kept = create(&mut other_peer).expect("the second daemon owns the directory");
    let kept_as = outcome(&mut other_peer, &kept);
    // The first daemon retries repeatedly.
    let text = first.home.config_text().replace("\"1h\"", "\"100ms\"");
    first.home.configure_as(&text);
    first.signal(Signal::HUP);
    wait_until("the configuration is reloaded", || first.home.log().contains("\"reloaded\""));
    assert_eq!(create(&mut peer), None);
    let second = Daemon::start_in(second.kill());
    assert_eq!(create(&mut peer), None, "the first daemon used the second one's store");
    assert_eq!(outcome(&mut second.peer(), &kept), kept_as);
    assert_eq!(store_status(&second)["state"], "open");
}

/// The socket works again, whatever happened to its file.
fn assert_served_again(daemon: &Daemon, what: &str) {
    let socket = daemon.socket();
    wait_until(what, || UnixStream::connect(&socket).is_ok());
    assert_eq!(daemon.peer().result("ping", "{}"), serde_json::json!({}), "{what}");
}

/// A home with its socket in a subdirectory.
fn home_with_socket_directory() -> (Home, PathBuf) {
    let home = Home::new();
    home.configure(&Config::default());
    let run = home.path().join("run");
    let inside = run.join("d.sock");
    let text = home.config_text();
    let path = home.socket();
    home.configure_as(&text.replace(&format!("{path:?}"), &format!("{inside:?}")));
    (home, run)
}

/// A removed socket file, alone, with its lock or with its directory, is created again with the
/// same permissions; peers stay connected.
#[test]
fn removed_socket_is_bound_again() {
    let harms: [(&str, Harm); 4] = [
        ("rm of the socket", |run| fs::remove_file(run.join("d.sock")).unwrap()),
        ("mv of the socket", |run| fs::rename(run.join("d.sock"), run.join("e.sock")).unwrap()),
        ("rm of socket and lock", |run| {
            fs::remove_file(run.join("d.sock")).unwrap();
            fs::remove_file(run.join("d.sock.lock")).unwrap();
        }),
        ("rm -r of the directory", |run| fs::remove_dir_all(run).unwrap()),
    ];
    let (home, run) = home_with_socket_directory();
    let daemon = Daemon::start_with(home.clone(), home.command(&["serve"]));
    let socket = run.join("d.sock");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
    let modes = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let (mode, run_mode) = (modes(&socket), modes(&run));
    let mut peer = Peer::of_socket(UnixStream::connect(&socket).unwrap().into());
    peer.initialize();
    for (what, harm) in harms {
        harm(&run);
        wait_until(what, || UnixStream::connect(&socket).is_ok());
        assert_eq!((modes(&socket), modes(&run)), (mode, run_mode), "{what}");
        let mut other = Peer::of_socket(UnixStream::connect(&socket).unwrap().into());
        other.initialize();
        assert_eq!(peer.result("ping", "{}"), serde_json::json!({}), "{what}");
        // A second daemon is still refused.
        let ran = home.run(&["serve"]);
        assert_eq!(ran.code, Some(75), "{what}: {}", ran.err);
    }
    wait_until("the removal is logged", || home.log().contains("the socket file was removed"));
    drop(daemon);
}

/// SIGHUP binds a removed socket at once; shutdown removes the file.
#[test]
fn sighup_binds_a_removed_socket_again() {
    let mut daemon = Daemon::start(&Config::default());
    fs::remove_file(daemon.socket()).unwrap();
    daemon.signal(Signal::HUP);
    assert_served_again(&daemon, "the daemon listens again");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!daemon.socket().exists(), "the file of the new socket is left");
}

/// A socket that another process has bound in place of a removed one is neither removed nor
/// replaced, whether that process is a daemon with the lock or not; after its removal the daemon
/// listens again.
#[test]
fn socket_that_another_process_bound_is_not_stolen() {
    let daemon = Daemon::start(&Config::default());
    let mut peer = daemon.peer();
    let socket = daemon.socket();
    // Bound under another name first, so that the path always has a file.
    let other = UnixListener::bind(daemon.home.path().join("other")).unwrap();
    fs::rename(daemon.home.path().join("other"), &socket).unwrap();
    let inode = fs::metadata(&socket).unwrap().ino();
    let said = "no peer can connect";
    wait_until("the foreign socket is logged", || daemon.home.log().contains(said));
    daemon.signal(Signal::HUP);
    assert_eq!(peer.result("ping", "{}"), serde_json::json!({}));
    assert_eq!(fs::metadata(&socket).unwrap().ino(), inode, "the foreign socket was replaced");
    drop(other);
    // The file remains without a listener.
    assert_served_again(&daemon, "the daemon listens again");
}
