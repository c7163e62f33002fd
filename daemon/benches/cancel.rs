//! How long it takes from a cancel's bytes to the handler, with many busy connections beside it.
//!
//! `cargo bench -p ceased --bench cancel`
//!
//! A daemon in this process; one connection starts a call that waits for its cancellation flag and
//! cancels it, 64 others call a quick tool as fast as they are answered. What is timed ends when
//! the handler's thread runs again, so waking that thread is in it.

#![allow(clippy::disallowed_methods, reason = "a benchmark asks for the time")]

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use ceased::{Daemon, HandlerTool, Job, Running, ToolResult};

/// Busy connections.
const BUSY: usize = 64;
/// Calls that are cancelled.
const CANCELS: usize = 5_000;
/// How long nobody takes, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo test` runs it too; there is nothing to time then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let (begun, starts) = channel();
    let (ended, flags) = channel();
    let daemon = daemon(begun, ended)?;
    for busy in [0, BUSY] {
        let stop = Arc::new(AtomicBool::new(false));
        let load = load(&daemon, busy, &stop)?;
        let mut peer = Peer::new(&daemon)?;
        let mut took = Vec::with_capacity(CANCELS);
        for id in 0..CANCELS {
            peer.say(&call(id, "wait"))?;
            starts.recv_timeout(PATIENCE)?;
            let cancel = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            );
            let said = Instant::now();
            peer.say(&cancel)?;
            took.push(flags.recv_timeout(PATIENCE)?.saturating_duration_since(said));
        }
        stop.store(true, Ordering::Relaxed);
        let calls = load.join().map_err(|_| "the load panicked")??;
        took.sort_unstable();
        let at = |share: f64| took[(share * (took.len() - 1) as f64) as usize];
        let (half, most, nearly) = (at(0.5), at(0.99), at(0.999));
        println!(
            "beside {busy} busy connections ({calls} calls): p50 {half:?}, p99 {most:?}, p999 {nearly:?}"
        );
    }
    daemon.shut_down()?;
    Ok(())
}

fn daemon(begun: Sender<()>, ended: Sender<Instant>) -> Result<Running, Box<dyn Error>> {
    let wait = HandlerTool::new("wait", move |job: &Job| {
        let _ = begun.send(());
        let slept = job.token().sleep(PATIENCE);
        let _ = ended.send(Instant::now());
        slept?;
        Ok(ToolResult::text("nobody cancelled"))
    });
    let quick = HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done")));
    Ok(Daemon::new().tool(wait.build()?).tool(quick.build()?).start()?)
}

/// Calls the quick tool on so many connections until it is told to stop; how often.
fn load(
    daemon: &Running,
    connections: usize,
    stop: &Arc<AtomicBool>,
) -> std::io::Result<std::thread::JoinHandle<std::io::Result<usize>>> {
    let peers: std::io::Result<Vec<Peer>> = (0..connections).map(|_| Peer::new(daemon)).collect();
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

/// A client of the daemon.
struct Peer {
    input: BufReader<UnixStream>,
    heard: String,
}

impl Peer {
    fn new(daemon: &Running) -> std::io::Result<Self> {
        let mut peer = Self { input: BufReader::new(daemon.connect()?), heard: String::new() };
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
