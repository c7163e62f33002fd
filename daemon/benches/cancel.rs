//! Time from the bytes of a cancel to the handler, beside many busy connections.
//!
//! `cargo bench -p ceased --bench cancel`
//!
//! A daemon in this process; one connection starts a call that waits for its cancel flag and
//! cancels it, 64 others call a quick tool in a closed loop. Two times are measured: until the flag
//! is set, and until the sleeping thread of the handler runs again. Both depend on scheduling while
//! the clients and the daemon use all processors, so the same is measured with a server that only
//! reads lines and sends the same response to each: the latency of the machine.

#![allow(clippy::disallowed_methods, reason = "a benchmark asks for the time")]

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ceased::{Daemon, HandlerTool, Job, ToolResult};

#[path = "kit/bare.rs"]
mod bare;
#[path = "kit/flag.rs"]
mod flag;

/// Busy connections.
const BUSY: usize = 64;
/// Number of cancelled calls.
const CANCELS: usize = 5_000;
/// Time limit of every step.
const TIME_LIMIT: Duration = Duration::from_secs(20);

type Connect<'a> = &'a dyn Fn() -> std::io::Result<UnixStream>;

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo test` runs the benchmark too, without `--bench`.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let raised = flag::watch()?;
    for busy in [0, BUSY] {
        let (begun, starts) = channel();
        let (ended, ends) = channel();
        let bare = bare::Server::start(begun, ended)?;
        let seen = Seen { starts, raised: &bare.raised, ends };
        time("a bare server", busy, &|| bare.connect(), &seen)?;
    }
    for busy in [0, BUSY] {
        let (begun, starts) = channel();
        let (ended, ends) = channel();
        let wait = HandlerTool::new("wait", move |job: &Job| {
            let _ = begun.send(());
            let slept = job.token().sleep(TIME_LIMIT);
            let _ = ended.send(Instant::now());
            slept?;
            Ok(ToolResult::text("not cancelled"))
        });
        let quick = HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done")));
        let daemon = Daemon::new().tool(wait.build()?).tool(quick.build()?).start()?;
        let seen = Seen { starts, raised: &raised, ends };
        time("the daemon", busy, &|| daemon.connect(), &seen)?;
        daemon.shut_down()?;
    }
    Ok(())
}

/// Events of the cancelled calls.
struct Seen<'a> {
    /// A call has started.
    starts: Receiver<()>,
    /// Its flag was set.
    raised: &'a Receiver<Instant>,
    /// Its handler runs again.
    ends: Receiver<Instant>,
}

/// Cancels one call after the other beside this many busy connections, and prints the times.
fn time(
    server: &str,
    busy: usize,
    connect: Connect<'_>,
    seen: &Seen<'_>,
) -> Result<(), Box<dyn Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    let load = load(connect, busy, &stop)?;
    let mut peer = Peer::new(connect()?)?;
    let (mut flags, mut handlers) = (Vec::with_capacity(CANCELS), Vec::with_capacity(CANCELS));
    let since = Instant::now();
    for id in 0..CANCELS {
        peer.say(&call(id, "wait"))?;
        seen.starts.recv_timeout(TIME_LIMIT)?;
        let cancel = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        let said = Instant::now();
        peer.say(&cancel)?;
        handlers.push(seen.ends.recv_timeout(TIME_LIMIT)?.saturating_duration_since(said));
        flags.push(seen.raised.recv_timeout(TIME_LIMIT)?.saturating_duration_since(said));
    }
    let took = since.elapsed();
    stop.store(true, Ordering::Relaxed);
    let calls = load.join().map_err(|_| "the load panicked")?? as f64 / took.as_secs_f64();
    println!("{server} beside {busy} busy connections ({calls:.0} calls a second)");
    for (what, mut spans) in [("flag", flags), ("handler", handlers)] {
        spans.sort_unstable();
        let at = |share: f64| spans[(share * (spans.len() - 1) as f64) as usize];
        let (half, most, nearly) = (at(0.5), at(0.99), at(0.999));
        println!("  to the {what:7}  p50 {half:9.1?}  p99 {most:9.1?}  p999 {nearly:9.1?}");
    }
    Ok(())
}

/// Calls the quick tool on this many connections until it is stopped; returns the number of calls.
fn load(
    connect: Connect<'_>,
    connections: usize,
    stop: &Arc<AtomicBool>,
) -> std::io::Result<JoinHandle<std::io::Result<usize>>> {
    let peers: std::io::Result<Vec<Peer>> =
        (0..connections).map(|_| Peer::new(connect()?)).collect();
    let (mut peers, stop) = (peers?, Arc::clone(stop));
    let call = call(7, "quick");
    Ok(std::thread::spawn(move || {
        let mut calls = 0;
        for peer in &mut peers {
            peer.say(&call)?;
        }
        while !stop.load(Ordering::Relaxed) && !peers.is_empty() {
            for peer in &mut peers {
                peer.hear()?;
                peer.say(&call)?;
                calls += 1;
            }
        }
        Ok(calls)
    }))
}

fn call(id: usize, tool: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#
    )
}

/// A client.
struct Peer {
    input: BufReader<UnixStream>,
    heard: String,
}

impl Peer {
    fn new(stream: UnixStream) -> std::io::Result<Self> {
        let mut peer = Self { input: BufReader::new(stream), heard: String::new() };
        peer.say(
            r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
        )?;
        peer.hear()?;
        peer.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        Ok(peer)
    }

    fn say(&mut self, line: &str) -> std::io::Result<()> {
        self.input.get_mut().write_all(format!("{line}\n").as_bytes())
    }

    fn hear(&mut self) -> std::io::Result<()> {
        self.heard.clear();
        self.input.read_line(&mut self.heard).map(drop)
    }
}
