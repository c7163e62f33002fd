//! What a connection costs that says nothing, and what is left of many.

use std::path::Path;
use std::{fs, thread};

use allocation_counter::measure;
use ceased::config;
use ceased_tests::daemon::{Config, Daemon, Peer, wait_until};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Heap of an idle connection, in bytes: 152 for what the engine knows of it, 152 for what the loop
/// does, 36 for its socket, its share of their two tables, and at most 512 and its head for the buffer
/// of its last answer; with what the busiest moment takes beside them, which depends on how many of
/// them are heard in one turn.
const IDLE_BYTES_MAX: u64 = 1152;
/// The same of a connection that has called a tool through the queue: its table of requests keeps its
/// first allocation.
const CALLED_BYTES_MAX: u64 = 1536;
/// A number that fills the tables.
const FEW: usize = 300;
/// Another number that fills the tables as well.
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

/// The most heap that the thread of the loop holds at once when so many have connected.
fn most_held(connections: usize, calls: bool) -> u64 {
    let config =
        config::Config::parse(CONFIG, Path::new("idle.toml")).expect("a good configuration");
    let daemon = ceased::Daemon::from_config(&config).without_listeners();
    let held = measure(|| {
        let server = daemon.build().expect("it starts");
        let remote = server.remote();
        let peers = thread::spawn(move || {
            let connect = |_| {
                let mut peer = Peer::of_socket(remote.connect().expect("it takes peers").into());
                peer.initialize();
                if calls {
                    // Longer than a handler may take that is run on the thread of the loop: the loop
                    // stays on the thread that is measured.
                    let id = peer.call("sleep", r#"{"ms":1}"#);
                    assert!(peer.answer(id)["result"].is_object(), "it has slept");
                }
                peer
            };
            let mut peers: Vec<Peer> = (0..connections).map(connect).collect();
            // All that was said before is read by the time that this is answered.
            peers.iter_mut().for_each(|peer| drop(peer.result("ping", "{}")));
            remote.shut_down();
            peers
        });
        server.run().expect("it runs to its end");
        peers.join().expect("everybody was answered");
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
    assert!(each <= max, "{each} bytes for each");
}

#[test]
fn who_has_said_hello_takes_little() {
    assert_idle_is_cheap(false);
}

#[test]
fn who_has_called_takes_no_more() {
    assert_idle_is_cheap(true);
}

/// Memory of a process that is no file's, in KiB.
fn anonymous_kib(pid: i32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = kib.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse().ok()).expect("the system counts it")
}

/// The daemon does not keep what it took for many who have gone.
#[test]
fn a_crowd_leaves_little() {
    allow_many_files();
    let daemon = Daemon::start(&Config { limits: "connections = 4000", ..Config::default() });
    daemon.wait_idle();
    let before = anonymous_kib(daemon.pid());
    let crowd: Vec<Peer> = (0..3000).map(|_| daemon.peer()).collect();
    let taken = anonymous_kib(daemon.pid()).saturating_sub(before);
    assert!(taken > 1000, "{taken} KiB for all of them");
    drop(crowd);
    wait_until("most of it is given back", || {
        anonymous_kib(daemon.pid()).saturating_sub(before) * 2 < taken
    });
}
