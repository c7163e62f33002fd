//! Starting beside another daemon, in place of a dead one, and with a changing configuration.

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

/// Output of a second `serve` at the same socket, which must be refused. Its tasks are elsewhere.
fn refused(home: &Home) -> String {
    let mut command = home.command(&["serve"]);
    command.env("XDG_STATE_HOME", home.path().join("other")).stderr(Stdio::piped());
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("text")
}

/// SIGHUP: new tools and limits apply to new calls, every session is notified, running jobs
/// continue.
#[test]
fn sighup_applies_to_new_calls() {
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
    assert_eq!(carriers(&mark), all, "a running job is affected");
    // A connection before initialize gets no notification.
    assert!(fresh.is_silent());
    fresh.initialize();

    // A removed tool continues where it runs, and can be cancelled.
    daemon
        .home
        .configure_as(&daemon.home.config_text().replace("name = \"family\"", "name = \"gone\""));
    daemon.signal(Signal::HUP);
    peer.note("notifications/tools/list_changed");
    assert!(!names(&peer.result("tools/list", "{}")).contains(&"family"));
    assert_eq!(carriers(&mark), all, "a running job is affected");
    peer.cancel(family);
    wait_until("the processes are gone", || carriers(&mark).is_empty());
    peer.result("ping", "{}");
    assert!(!peer.has_answer(family));
}

/// A configuration on an unresponsive file system, or with users that cannot be looked up yet,
/// blocks no peer; the last requested one is applied.
#[test]
fn unresponsive_configuration_file_blocks_no_peer() {
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
    // The reload opens the pipe now; it has no writer.
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
    // Another signal before the first reload is done: the first configuration is not applied.
    fs::rename(&audit, daemon.home.path().join("audit.1")).unwrap();
    daemon.signal(Signal::HUP);
    wait_until("the second reload has started", || audit.exists());
    let next = daemon.home.path().join("next.toml");
    fs::write(&next, &text).unwrap();
    fs::rename(&next, &path).unwrap();
    pipe.write_all(b"no configuration").unwrap();
    drop(pipe);
    peer.note("notifications/tools/list_changed");
    assert!(names(&peer.result("tools/list", "{}")).contains(&"fresh"));
    assert!(!daemon.home.log().contains("not reloaded"), "{}", daemon.home.log());
}

/// An invalid file changes nothing, and the log names the mistake and its place.
#[test]
fn invalid_configuration_is_not_applied() {
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
        wait_until("the log has the reason", || {
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
    wait_until("the log has the reason", || {
        daemon.home.log().get(said..).unwrap_or_default().contains("not reloaded")
    });
    assert_eq!(peer.result("tools/list", "{}"), tools);
    assert!(peer.is_silent(), "a notification without a change");
    daemon.home.configure_as(&good);
    daemon.signal(Signal::HUP);
    peer.note("notifications/tools/list_changed");
}

/// An unusable address in a valid file also changes nothing, not even the log level, and the log
/// names the address.
#[test]
fn unusable_address_rejects_the_reload() {
    let daemon = Daemon::start(&Config::default());
    let good = daemon.home.config_text();
    let more = "[log]\nlevel = \"off\"\n\
                [[listen]]\ntransport = \"unix\"\npath = \"/proc/nowhere/d.sock\"\n";
    daemon.home.configure_as(&format!("{good}\n{more}"));
    for _ in 0..2 {
        let said = daemon.home.log().len();
        daemon.signal(Signal::HUP);
        wait_until("the log has the reason", || {
            let log = daemon.home.log();
            let new = log.get(said..).unwrap_or_default();
            new.contains("not reloaded") && new.contains("/proc/nowhere")
        });
    }
    daemon.peer().result("ping", "{}");
}

/// A second daemon leaves the first alone and names it.
#[test]
fn second_daemon_names_the_first() {
    let daemon = Daemon::start(&Config::default());
    let said = refused(&daemon.home);
    assert!(said.contains(&daemon.pid().to_string()), "{said}");
    assert!(said.contains("d.sock"), "{said}");
    assert_eq!(daemon.status()["connections"], 1);
}

/// The socket file admits its owner only and is removed at the end; its lock stays.
#[test]
fn socket_file_is_private_and_removed_at_the_end() {
    let mut daemon = Daemon::start(&Config::default());
    let found = fs::symlink_metadata(daemon.socket()).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o7777, 0o600);
    let lock = daemon.home.path().join("d.sock.lock");
    assert_eq!(fs::read_to_string(&lock).unwrap().trim(), daemon.pid().to_string());
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!daemon.socket().exists());
    assert!(lock.exists(), "without the lock two daemons could run");
}

/// The socket of a killed daemon is replaced; any other file is not.
#[test]
fn only_a_stale_socket_is_replaced() {
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

    // A listener without a lock.
    let listener = std::os::unix::net::UnixListener::bind(home.socket()).unwrap();
    let said = refused(&home);
    assert!(said.contains("d.sock"), "{said}");
    drop(listener);
    let daemon = Daemon::start_in(home);
    assert_eq!(daemon.status()["connections"], 1);
}

/// A file that replaced the socket meanwhile is not removed.
#[test]
fn file_in_place_of_the_socket_is_not_removed() {
    let mut daemon = Daemon::start(&Config::default());
    fs::remove_file(daemon.socket()).unwrap();
    fs::write(daemon.socket(), "mine").unwrap();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!(fs::read_to_string(daemon.socket()).unwrap(), "mine");
}

/// An unusable address: exit code 2 with address and reason, and sockets bound before are removed.
#[test]
fn unusable_addresses_end_the_start() {
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
    assert!(!home.socket().exists(), "the first socket file is left");
    home.configure_as("[[listen]]\ntransport = \"unix\"\npath = \"/proc/nowhere/d.sock\"\n");
    let said = refused(&home);
    assert!(said.contains("/proc/nowhere"), "{said}");
}

/// DUR-01: killed at any moment of a reload, the next daemon has the current configuration, its
/// sockets, and every announced task.
#[test]
fn kill_during_a_reload_loses_no_task() {
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
        // The file is replaced atomically.
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
