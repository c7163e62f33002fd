//! Command tools through the whole daemon: cost beside a bare posix_spawn, threads of a thousand
//! commands, latency of pings meanwhile, and lifetime of a cancelled command.
//!
//! `cargo bench -p ceased --bench commands`
//!
//! On a loaded machine, run it with a raised priority (`nice -n -15`), which the commands inherit.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

#[path = "kit/bare.rs"]
#[allow(dead_code, reason = "each benchmark needs another part of it")]
mod bare;
mod kit;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use kit::{Daemon, Peer, shown};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;

/// Number of consecutive commands.
const TIMES: usize = 500;
/// Number of pings while commands run.
const PINGS: usize = 2000;
/// Number of concurrent commands.
const AT_ONCE: usize = 1000;
/// Number of cancelled tasks.
const CANCELS: usize = 100;

fn main() {
    // `cargo test` runs the benchmark too, without `--bench`.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    for tier in ["cgroup", "guard"] {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("pids");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let variables = [("CEASED_CONTAINMENT", tier), ("BENCH_FIFO", fifo.to_str().unwrap())];
        let daemon = Daemon::start(TOOLS, &variables);
        beside_spawn(tier, &daemon);
        pings(tier, &daemon);
        at_once(tier, &daemon);
        for (tool, what) in [("plain", "last death"), ("stubborn", "last death, SIGKILL")] {
            let mut times = cancelled(&daemon, tool, &fifo);
            println!("{tier:>6}: {what:20} {}", shown(&mut times));
        }
    }
}

const TOOLS: &str = r#"
[daemon]
store = "memory"
workers = 1100
queue = 2000
[limits]
inflight_per_connection = 2000
[log]
level = "warn"
[[tool]]
name = "true"
command = ["true"]
input_schema = { type = "object" }
[[tool]]
name = "nap"
command = ["sleep", "3"]
input_schema = { type = "object" }
[[tool]]
name = "plain"
command = ["sh", "-c", "echo $$ >\"$BENCH_FIFO\"; exec sleep 1000"]
task_support = "optional"
input_schema = { type = "object" }
[[tool]]
name = "stubborn"
command = ["sh", "-c", "trap '' TERM; sleep 1000 & echo $! >\"$BENCH_FIFO\"; wait"]
task_support = "optional"
kill_grace = "50ms"
input_schema = { type = "object" }
"#;

/// Runs commands alternately through the daemon and without it, so that other load affects both.
fn beside_spawn(tier: &str, daemon: &Daemon) {
    let mut peer = Peer::connect(daemon);
    let mut called = || {
        let since = Instant::now();
        peer.request("tools/call", json!({"name": "true", "arguments": {}}));
        since.elapsed()
    };
    (0..20).for_each(|_| _ = (spawned(), called()));
    let (mut alone, mut through): (Vec<Duration>, Vec<Duration>) =
        (0..TIMES).map(|_| (spawned(), called())).unzip();
    println!("{tier:>6}: posix_spawn, waitpid {}", shown(&mut alone));
    println!("{tier:>6}: a command            {}", shown(&mut through));
    let ratio = through[TIMES / 2].as_secs_f64() / alone[TIMES / 2].as_secs_f64();
    println!("{tier:>6}: beside posix_spawn   {ratio:.2}");
}

/// The minimum cost of a command.
fn spawned() -> Duration {
    let since = Instant::now();
    let mut command = Command::new("true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
    since.elapsed()
}

/// Measures pings of one peer while another runs commands, sixteen at a time; and, alternately,
/// pings of a bare server, which show the latency of the machine.
fn pings(tier: &str, daemon: &Daemon) {
    let done = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut peer = Peer::connect(daemon);
            while !done.load(Ordering::Relaxed) {
                let ids: Vec<u64> = (0..16)
                    .map(|_| peer.send("tools/call", json!({"name": "true", "arguments": {}})))
                    .collect();
                ids.into_iter().for_each(|id| _ = peer.answer(id));
            }
        });
        let mut peer = Peer::connect(daemon);
        let bare = bare::Server::start(channel().0, channel().0).unwrap();
        let mut other = BufReader::new(bare.connect().unwrap());
        let timed = |ping: &mut dyn FnMut()| {
            std::thread::sleep(Duration::from_millis(1));
            let since = Instant::now();
            ping();
            since.elapsed()
        };
        let mut once = || {
            let daemon = timed(&mut || _ = peer.request("ping", json!({})));
            (daemon, timed(&mut || bare_ping(&mut other)))
        };
        let both = (0..PINGS).map(|_| once()).unzip();
        done.store(true, Ordering::Relaxed);
        both
    });
    let (mut times, mut least): (Vec<Duration>, Vec<Duration>) = times;
    println!("{tier:>6}: a ping meanwhile     {}", shown(&mut times));
    println!("{tier:>6}: of a bare server     {}", shown(&mut least));
}

/// A ping of the bare server, which sends the same response to every line.
fn bare_ping(stream: &mut BufReader<UnixStream>) {
    stream.get_mut().write_all(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n").unwrap();
    stream.read_line(&mut String::new()).unwrap();
}

fn at_once(tier: &str, daemon: &Daemon) {
    let mut peer = Peer::connect(daemon);
    let nap = json!({"name": "nap", "arguments": {}});
    let one = peer.send("tools/call", nap.clone());
    std::thread::sleep(Duration::from_millis(200));
    let alone = daemon.status("Threads:");
    peer.answer(one);
    let since = Instant::now();
    let ids: Vec<u64> = (0..AT_ONCE).map(|_| peer.send("tools/call", nap.clone())).collect();
    let mut most = 0;
    for id in ids {
        most = most.max(daemon.status("Threads:"));
        peer.answer(id);
    }
    let took = since.elapsed();
    println!("{tier:>6}: {AT_ONCE} at once: {most} threads, one alone: {alone}; all in {took:.1?}");
}

/// Time from the request to cancel a task to the death of its process.
fn cancelled(daemon: &Daemon, tool: &str, fifo: &std::path::Path) -> Vec<Duration> {
    let mut peer = Peer::connect(daemon);
    let mut once = || {
        let task = peer.create(tool);
        let process = process(fifo);
        let since = Instant::now();
        peer.send("tasks/cancel", json!({"taskId": task}));
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
        since.elapsed()
    };
    (0..CANCELS).map(|_| once()).collect()
}

/// The process whose pid arrives through the pipe.
fn process(fifo: &std::path::Path) -> OwnedFd {
    let mut text = String::new();
    fs::File::open(fifo).unwrap().read_to_string(&mut text).unwrap();
    let pid = text.trim().parse().ok().and_then(Pid::from_raw).unwrap();
    pidfd_open(pid, PidfdFlags::empty()).unwrap()
}
