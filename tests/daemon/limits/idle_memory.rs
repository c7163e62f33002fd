//! Memory of an idle connection or session, and memory after many of them have ended.

use std::path::Path;
use std::{fs, thread};

use allocation_counter::measure;
use ceased::config;
use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::{Config, Daemon, Home, Peer, wait_until};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::http::kit::{Session, daemon_within};

/// Heap of an idle connection, in bytes: 152 in the engine, 152 in the loop, 36 for its socket, its
/// share of two tables, and at most 512 and a header for the buffer of its last answer; plus its
/// share of the peak, which depends on the connections read in one turn.
const IDLE_BYTES_MAX: u64 = 1152;
/// The same for a connection that has called a tool through the queue: its table of requests keeps
/// its first allocation.
const CALLED_BYTES_MAX: u64 = 1536;
/// Heap of an idle session over HTTP, in bytes.
const SESSION_BYTES_MAX: u64 = 1152;
/// A number that fills the tables.
const FEW: usize = 300;
/// A second such number.
const MANY: usize = 1700;

const CONFIG: &str = r#"
[daemon]
store = "memory"
[limits]
connections = 2000
[[tool]]
name = "sleep"
builtin = "sleep"
"#;

/// Peak heap of the loop's thread with this many connections.
fn most_held(connections: usize, calls: bool) -> u64 {
    let config =
        config::Config::parse(CONFIG, Path::new("idle.toml")).expect("a valid configuration");
    let daemon = ceased::Daemon::from_config(&config).without_listeners();
    let held = measure(|| {
        let server = daemon.build().expect("it starts");
        let remote = server.remote();
        let peers = thread::spawn(move || {
            let connect = |_| {
                let mut peer =
                    Peer::of_socket(remote.connect().expect("the daemon takes peers").into());
                peer.initialize();
                if calls {
                    // Longer than a handler may run on the loop's thread, so that the loop stays on
                    // the measured thread.
                    let id = peer.call("sleep", r#"{"ms":1}"#);
                    assert!(peer.answer(id)["result"].is_object(), "the sleep is answered");
                }
                peer
            };
            let mut peers: Vec<Peer> = (0..connections).map(connect).collect();
            // Everything sent before is read when this is answered.
            peers.iter_mut().for_each(|peer| drop(peer.result("ping", "{}")));
            remote.shut_down();
            peers
        });
        server.run().expect("the daemon ends");
        peers.join().expect("every peer was answered");
    });
    held.bytes_max
}

fn allow_many_files() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).expect("up to the maximum is allowed");
}

fn assert_idle_is_cheap(calls: bool) {
    allow_many_files();
    let (few, many) = (most_held(FEW, calls), most_held(MANY, calls));
    let each = (many - few) / (MANY - FEW) as u64;
    let max = if calls { CALLED_BYTES_MAX } else { IDLE_BYTES_MAX };
    assert!(each <= max, "{each} bytes per connection");
}

#[test]
fn idle_connection_takes_little_memory() {
    assert_idle_is_cheap(false);
}

#[test]
fn idle_connection_after_a_call_takes_little_memory() {
    assert_idle_is_cheap(true);
}

/// Peak heap of the loop's thread with this many sessions over HTTP, begun on one connection.
fn most_held_by_sessions(sessions: usize) -> u64 {
    let home = Home::new();
    let socket = home.path().join("http");
    let listen = format!("[[listen]]\ntransport = \"http\"\npath = {socket:?}\n");
    let config = format!("{CONFIG}{listen}sessions_per_identity = 2000\n");
    let config = config::Config::parse(&config, Path::new("idle.toml")).expect("it is valid");
    let daemon = ceased::Daemon::from_config(&config);
    let held = measure(|| {
        let server = daemon.build().expect("it starts");
        let remote = server.remote();
        let client = thread::spawn(move || {
            let mut http = Http::unix(&socket);
            for _ in 0..sessions {
                Session::begin_on(&mut http, &[], "2025-11-25");
            }
            remote.shut_down();
        });
        server.run().expect("the daemon ends");
        client.join().expect("every request was answered");
    });
    held.bytes_max
}

#[test]
fn idle_session_takes_little_memory() {
    let (few, many) = (most_held_by_sessions(FEW), most_held_by_sessions(MANY));
    let each = (many - few) / (MANY - FEW) as u64;
    assert!(each <= SESSION_BYTES_MAX, "{each} bytes per session");
}

/// Anonymous memory of a process, in KiB.
fn anonymous_kib(pid: i32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = kib.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse().ok()).expect("the kernel reports it")
}

/// Memory of closed connections is returned to the system.
#[test]
fn closed_connections_return_their_memory() {
    allow_many_files();
    let daemon = Daemon::start(&Config { limits: "connections = 4000", ..Config::default() });
    daemon.wait_idle();
    let before = anonymous_kib(daemon.pid());
    let crowd: Vec<Peer> = (0..3000).map(|_| daemon.peer()).collect();
    let taken = anonymous_kib(daemon.pid()).saturating_sub(before);
    assert!(taken > 1000, "{taken} KiB for all connections");
    drop(crowd);
    wait_until("most of the memory is returned", || {
        anonymous_kib(daemon.pid()).saturating_sub(before) * 2 < taken
    });
}

/// Memory of ended sessions over HTTP is returned to the system, also if the last of them end after a
/// part of it was returned.
#[test]
fn ended_sessions_return_their_memory() {
    let listen = "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n\
                  sessions_per_identity = 4000\n";
    let daemon = daemon_within("connections = 4000\nconnections_per_identity = 4000", listen);
    let mut http = Http::tcp(daemon.http_address());
    let begin = |http: &mut Http| Session::begin_on(http, &[], "2025-11-25");
    let end = |http: &mut Http, session: &Session| {
        http.request("DELETE /mcp", &session.headers(), "");
        assert_eq!(http.reply().status, 204);
    };
    let first = begin(&mut http);
    end(&mut http, &first);
    let before = anonymous_kib(daemon.pid());
    let crowd: Vec<Session> = (0..3000).map(|_| begin(&mut http)).collect();
    let taken = anonymous_kib(daemon.pid()).saturating_sub(before);
    assert!(taken > 1000, "{taken} KiB for all sessions");
    let held = || anonymous_kib(daemon.pid()).saturating_sub(before);
    let (most, rest) = crowd.split_at(2100);
    most.iter().for_each(|session| end(&mut http, session));
    wait_until("a part of the memory is returned", || held() * 3 < taken * 2);
    rest.iter().for_each(|session| end(&mut http, session));
    wait_until("most of the memory is returned", || held() * 4 < taken);
}
