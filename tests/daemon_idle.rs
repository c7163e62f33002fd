//! What a connection costs that says nothing: bytes of the heap, counted, on the thread that runs
//! the loop.

use std::path::Path;
use std::thread;

use allocation_counter::measure;
use ceased::Daemon;
use ceased::config::Config;
use ceased_tests::daemon::Peer;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Heap of an idle connection, in bytes: 152 for what the engine knows of it, 152 for what the loop
/// does, 36 for its socket, and its share of their two tables.
const IDLE_BYTES_MAX: u64 = 400;
/// More than keep their buffers for the next word.
const FEW: usize = 300;
/// Another number that fills the tables as well.
const MANY: usize = 1700;

const CONFIG: &str = r#"
[daemon]
store = "memory"
[limits]
connections = 2000
[[tool]]
name = "echo"
builtin = "echo"
inline = true
"#;

/// The most that a daemon holds at once that so many have connected to.
fn most_held(connections: usize, calls: bool) -> u64 {
    let config = Config::parse(CONFIG, Path::new("idle.toml")).expect("a good configuration");
    let daemon = Daemon::from_config(&config).listen_nowhere();
    let held = measure(|| {
        let server = daemon.build().expect("it starts");
        let remote = server.remote();
        let peers = thread::spawn(move || {
            let connect = |_| {
                let mut peer = Peer::of_socket(remote.connect().expect("it takes peers").into());
                peer.initialize();
                if calls {
                    let id = peer.call("echo", r#"{"text":"once"}"#);
                    assert_eq!(peer.text(id), "once");
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

fn assert_idle_is_cheap(calls: bool) {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).expect("up to the maximum is allowed");
    let (few, many) = (most_held(FEW, calls), most_held(MANY, calls));
    let each = (many - few) / (MANY - FEW) as u64;
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes for each");
}

#[test]
fn who_has_said_hello_takes_little() {
    assert_idle_is_cheap(false);
}

#[test]
fn who_has_called_takes_no_more() {
    assert_idle_is_cheap(true);
}
