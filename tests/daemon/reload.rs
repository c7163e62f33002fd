//! Starting beside another, in the place of a dead one, and with a configuration that changes.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use ceased_tests::daemon::{
    Config, Daemon, Home, Signal, carriers, marker, wait_for_family, wait_until,
};
use ceased_tests::rng::Rng;
use rustix::fs::OFlags;
use serde_json::Value;

const NEW_TOOL: &str = "[[tool]]\nname = \"fresh\"\ncommand = [\"echo\", \"fresh\"]\n";

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools["tools"].as_array().expect("a list");
    tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
}

/// What a second `serve` at the same socket says, and how it exits. Its tasks are elsewhere.
fn refused(home: &Home) -> String {
    let mut command = home.command(&["serve"]);
    command.env("XDG_STATE_HOME", home.path().join("other")).stderr(Stdio::piped());
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("text")
}

/// SIGHUP: new tools and limits for new calls, everybody is told, what runs goes on.
#[test]
fn reloaded() {
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    let mut peer = daemon.peer();
    let mut fresh = daemon.connect();
    let family = peer.call("family", &format!(r#"{{"t":"{mark}"}}"#));
    peer.wait_started(&[family]);
    wait_for_family(&mark);
    let all = carriers(&mark);
    assert!(!names(&peer.result("tools/list", "{}")).contains(&"fresh"));

    let changed = Config { tools: NEW_TOOL, limits: "connections = 7", ..Config::default() };
    daemon.home.configure(&changed);
    daemon.signal(Signal::HUP);
    peer.note("notifications/tools/list_changed");
    assert!(names(&peer.result("tools/list", "{}")).contains(&"fresh"));
    let call = peer.call("fresh", "{}");
    assert_eq!(peer.answer(call)["result"]["content"][0]["text"], "fresh\n");
    let status = peer.result("ceased/status", "{}");
    assert_eq!(status["limits"]["connections"], 7);
    assert_eq!(status["running"], 1);
    assert_eq!(carriers(&mark), all, "a running job is not touched");
    // A connection before initialize is not told.
    assert!(fresh.is_silent());
    fresh.initialize();

    // A tool that is gone goes on where it runs, and is cancelled as ever.
    daemon
        .home
        .configure_as(&daemon.home.config_text().replace("name = \"family\"", "name = \"gone\""));
    daemon.signal(Signal::HUP);
    peer.note("notifications/tools/list_changed");
    assert!(!names(&peer.result("tools/list", "{}")).contains(&"family"));
    assert_eq!(carriers(&mark), all, "a running job is not touched");
    peer.cancel(family);
    wait_until("the family is gone", || carriers(&mark).is_empty());
    peer.result("ping", "{}");
    assert!(!peer.has_answer(family));
}

/// A configuration on a file system that does not answer, or with users that nobody knows anything
/// of yet, keeps nobody waiting; the last one that was asked for holds in the end.
#[test]
fn reloaded_when_it_can_be_read() {
    let home = Home::new();
    let audit = home.path().join("audit.jsonl");
    let log = format!("[log]\naudit = {audit:?}\n");
    home.configure(&Config { tools: &log, ..Config::default() });
    let daemon = Daemon::start_in(home);
    let mut peer = daemon.peer();
    daemon.home.configure(&Config { tools: &(log + NEW_TOOL), ..Config::default() });
    let (path, text) = (daemon.home.config_path(), daemon.home.config_text());
    fs::remove_file(&path).unwrap();
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.is_ok_and(|status| status.success()));
    daemon.signal(Signal::HUP);
    // It opens the file now, and nobody writes to it.
    let write_only = OFlags::NONBLOCK.bits().cast_signed();
    let mut pipe = None;
    wait_until("it reads", || {
        peer.result("ping", "{}");
        pipe = File::options().write(true).custom_flags(write_only).open(&path).ok();
        pipe.is_some()
    });
    let mut pipe = pipe.expect("it reads");
    let call = peer.call("echo", r#"{"text":"meanwhile"}"#);
    assert_eq!(peer.answer(call)["result"]["content"][0]["text"], "meanwhile");
    // Once more, before the first is done: that one is not applied.
    fs::rename(&audit, daemon.home.path().join("audit.1")).unwrap();
    daemon.signal(Signal::HUP);
    wait_until("it has heard that", || audit.exists());
    let next = daemon.home.path().join("next.toml");
    fs::write(&next, &text).unwrap();
    fs::rename(&next, &path).unwrap();
    pipe.write_all(b"no configuration").unwrap();
    drop(pipe);
    peer.note("notifications/tools/list_changed");
    assert!(names(&peer.result("tools/list", "{}")).contains(&"fresh"));
    assert!(!daemon.home.log().contains("not reloaded"), "{}", daemon.home.log());
}

/// A broken file changes nothing, and the log says what is wrong with it and where.
#[test]
fn not_reloaded() {
    let daemon = Daemon::start(&Config::default());
    let mut peer = daemon.peer();
    let tools = peer.result("tools/list", "{}");
    let limits = peer.result("ceased/status", "{}")["limits"].clone();
    let good = daemon.home.config_text();
    for (broken, place) in [
        ("[limits]\nconnections = 3\nconections = 4\n", "config.toml:3"),
        ("[limits]\nconnections = 0\n", "config.toml:2"),
        ("[limits\n", "config.toml:1"),
        ("[[tool]]\nname = \"x\"\nbuiltin = \"exho\"\n", "config.toml:3"),
    ] {
        let said = daemon.home.log().len();
        daemon.home.configure_as(broken);
        daemon.signal(Signal::HUP);
        let mut log = String::new();
        wait_until("it says why", || {
            log = daemon.home.log().get(said..).unwrap_or_default().to_owned();
            log.contains("not reloaded")
        });
        assert!(log.contains(place), "{log}");
        assert_eq!(peer.result("tools/list", "{}"), tools);
        assert_eq!(peer.result("ceased/status", "{}")["limits"], limits);
    }
    fs::remove_file(daemon.home.config_path()).unwrap();
    let said = daemon.home.log().len();
    daemon.signal(Signal::HUP);
    wait_until("it says why", || {
        daemon.home.log().get(said..).unwrap_or_default().contains("not reloaded")
    });
    assert_eq!(peer.result("tools/list", "{}"), tools);
    assert!(peer.is_silent(), "a peer was told of a change that was none");
    daemon.home.configure_as(&good);
    daemon.signal(Signal::HUP);
    peer.note("notifications/tools/list_changed");
}

/// What cannot be listened on is found when the file is good already: still nothing is changed,
/// not even what is logged, and the log says so.
#[test]
fn not_reloaded_for_an_address() {
    let daemon = Daemon::start(&Config::default());
    let good = daemon.home.config_text();
    let more = "[log]\nlevel = \"off\"\n\
                [[listen]]\ntransport = \"unix\"\npath = \"/proc/nowhere/d.sock\"\n";
    daemon.home.configure_as(&format!("{good}\n{more}"));
    for _ in 0..2 {
        let said = daemon.home.log().len();
        daemon.signal(Signal::HUP);
        wait_until("it says why", || {
            let log = daemon.home.log();
            let new = log.get(said..).unwrap_or_default();
            new.contains("not reloaded") && new.contains("/proc/nowhere")
        });
    }
    daemon.peer().result("ping", "{}");
}

/// A second daemon leaves the first alone and says who is in its way.
#[test]
fn already_running() {
    let daemon = Daemon::start(&Config::default());
    let said = refused(&daemon.home);
    assert!(said.contains(&daemon.pid().to_string()), "{said}");
    assert!(said.contains("d.sock"), "{said}");
    assert_eq!(daemon.status()["connections"], 1);
}

/// The file is a socket for its owner alone, goes at the end, and its lock stays.
#[test]
fn the_socket_file() {
    let mut daemon = Daemon::start(&Config::default());
    let found = fs::symlink_metadata(daemon.socket()).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o7777, 0o600);
    let lock = daemon.home.path().join("d.sock.lock");
    assert_eq!(fs::read_to_string(&lock).unwrap().trim(), daemon.pid().to_string());
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!daemon.socket().exists());
    assert!(lock.exists(), "whoever removes the lock lets two daemons run");
}

/// A socket of a daemon that was killed is replaced; anything else in its place is not.
#[test]
fn in_the_way() {
    let home = Daemon::start(&Config::default()).kill();
    assert!(home.socket().exists());
    let mut daemon = Daemon::start_in(home.clone());
    daemon.signal(Signal::TERM);
    daemon.wait();

    fs::write(home.socket(), "mine").unwrap();
    let said = refused(&home);
    assert!(said.contains("a regular file"), "{said}");
    assert_eq!(fs::read_to_string(home.socket()).unwrap(), "mine");
    fs::remove_file(home.socket()).unwrap();

    // A listener that knows nothing of locks.
    let listener = std::os::unix::net::UnixListener::bind(home.socket()).unwrap();
    let said = refused(&home);
    assert!(said.contains("d.sock"), "{said}");
    drop(listener);
    let daemon = Daemon::start_in(home);
    assert_eq!(daemon.status()["connections"], 1);
}

/// A file put in the place of its socket while it runs is not its to remove.
#[test]
fn replaced_meanwhile() {
    let mut daemon = Daemon::start(&Config::default());
    fs::remove_file(daemon.socket()).unwrap();
    fs::write(daemon.socket(), "mine").unwrap();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!(fs::read_to_string(daemon.socket()).unwrap(), "mine");
}

/// Addresses that cannot be had: exit 2, which address and why, and what was bound before is
/// cleared away.
#[test]
fn addresses_that_cannot_be_had() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let home = Home::new();
    home.configure_as(&format!(
        "[[listen]]\ntransport = \"unix\"\npath = {:?}\n\
         [[listen]]\ntransport = \"tcp\"\naddress = \"{taken}\"\nanonymous = \"allow\"\n",
        home.socket()
    ));
    let said = refused(&home);
    assert!(said.contains(&taken), "{said}");
    assert!(!home.socket().exists(), "the first socket is left");
    home.configure_as("[[listen]]\ntransport = \"unix\"\npath = \"/proc/nowhere/d.sock\"\n");
    let said = refused(&home);
    assert!(said.contains("/proc/nowhere"), "{said}");
}

/// DUR-01: killed in the middle of a reload, whichever part of it: the next daemon has the
/// configuration that is there, its sockets, and every task that a client was told of.
#[test]
fn killed_while_it_reloads() {
    const ROUNDS: usize = 40;
    let (home, mark) = (Home::new(), marker());
    let mut rng = Rng::new(11);
    let mut told: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let config = |more: bool| Config {
            tools: if more { NEW_TOOL } else { "" },
            limits: if more { "connections = 7" } else { "" },
            tcp: more,
            ..Config::default()
        };
        let is_more = round % 2 == 1;
        home.configure(&config(is_more));
        let daemon = Daemon::start_in(home.clone());
        assert!(carriers(&mark).is_empty(), "left: {:?}", carriers(&mark));
        let mut peer = daemon.peer();
        assert_eq!(names(&peer.result("tools/list", "{}")).contains(&"fresh"), is_more);
        for task in told.iter().rev().take(5) {
            let state = peer.result("tasks/get", &format!(r#"{{"taskId":"{task}"}}"#));
            assert!(["completed", "failed"].iter().any(|last| state["status"] == *last), "{state}");
        }
        told.push(peer.create_task("count", "{}"));
        told.push(peer.create_task("hang", &format!(r#"{{"t":"{mark}"}}"#)));
        // A file that changes as it should be changed: there is never half of it.
        let next = home.path().join("next.toml");
        let now = home.config_text();
        home.configure(&config(!is_more));
        fs::rename(home.config_path(), &next).unwrap();
        home.configure_as(&now);
        fs::rename(&next, home.config_path()).unwrap();
        daemon.signal(Signal::HUP);
        sleep(Duration::from_micros(rng.below(8_000) as u64));
        drop(daemon.kill());
    }
}
