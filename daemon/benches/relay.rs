//! Relay of an existing MCP server: cost of a call over `ceased wrap` beside the server alone, also of
//! servers of SDKs, long results, clients on one shared server beside a tool on a worker thread, memory of idle
//! connections, and time from a cancel to the last process of a tree that ignores it.
//!
//! `cargo bench -p ceased --bench relay [-- 'NAME=PROGRAM ARGUMENT…' …]`
//!
//! Two relays without a parser show the least that a process in between can cost: one copies bytes
//! as they come, one copies lines once they are whole.
//!
//! Each NAME is a server of an SDK on pipes, with the tools `echo` {"text"} and `large` {"bytes"}, which
//! returns a text of that length. Those of `benches/peers` are installed below the target folder:
//!
//! ```sh
//! npm install --prefix target/peers @modelcontextprotocol/sdk@1.32.2 zod@4
//! python3 -m venv target/peers/python && target/peers/python/bin/pip install mcp==2.3.0
//! cp daemon/benches/peers/relayed.* target/peers
//! cargo bench -p ceased --bench relay -- "typescript=node $PWD/target/peers/relayed.mjs" \
//!   "python=$PWD/target/peers/python/bin/python $PWD/target/peers/relayed.py"
//! ```
//!
//! Server and relay alternate, so that other load affects both. CPU is counted by the kernel
//! (`/proc/PID/schedstat`), and other load changes it little.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ceased::process::{Launch, guard};
use ceased::{Address, Daemon, HandlerTool, Job, SocketMode, ToolError, ToolResult};
use ceased::{UpstreamLaunch, config::RunAs};
use ceased_core::upstream::server::{Share, UpstreamServer};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Calls of one round, and rounds.
const CALLS: usize = 4000;
const ROUNDS: usize = 9;
/// Calls of one round with 1 MiB of result.
const LONG_CALLS: usize = 60;
/// Calls of one round of a server of an SDK, small ones and with 1 MiB of result.
const SDK_CALLS: usize = 500;
const SDK_LONG_CALLS: usize = 30;
/// Length of a long result.
const LONG_BYTES: usize = 1 << 20;
/// Clients of a shared server, and calls of each in a round.
const CLIENTS: usize = 16;
const SHARED_CALLS: usize = 1000;
/// Idle connections.
const IDLE: usize = 1000;
/// Cancelled calls.
const CANCELS: usize = 20;
const CANCEL_GRACE: Duration = Duration::from_millis(200);
const KILL_GRACE: Duration = Duration::from_millis(200);

fn main() {
    guard::init();
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("server") => return serve(arguments.get(2)),
        Some("daemon") => return daemon(Path::new(&arguments[2])),
        Some("copy") => return copy(false, &arguments[2..]),
        Some("lines") => return copy(true, &arguments[2..]),
        _ => {}
    }
    // `cargo test` runs the benchmark too, without `--bench`.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    least("small", CALLS);
    least("long", LONG_CALLS);
    for argument in arguments.iter().skip(1).filter(|argument| !argument.starts_with("--")) {
        sdk(argument);
    }
    shared();
    for tool in ["tree", "stubborn"] {
        cancels(tool);
    }
}

fn own() -> String {
    std::env::current_exe().unwrap().to_string_lossy().into_owned()
}

// ------------------------------------------------------------------ the server

/// A server that finds the id and the tool of a request by their text, and answers at once: the
/// least that a server can cost.
fn serve(fifo: Option<&String>) {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let long = "x".repeat(LONG_BYTES);
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|count| count > 0) {
        let id = number_after(&line, "\"id\":");
        let method = line.split("\"method\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let body = match (method, id) {
            (_, None) => String::new(),
            (Some("initialize"), _) => "\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"bench\",\"version\":\"1\"}}".to_owned(),
            (Some("tools/list"), _) => {
                let tool = |name| format!("{{\"name\":\"{name}\",\"inputSchema\":{{\"type\":\"object\"}}}}");
                let tools = ["small", "long", "tree", "stubborn"].map(tool).join(",");
                format!("\"result\":{{\"tools\":[{tools}]}}")
            }
            (Some("tools/call"), _) if line.contains("\"small\"") => text("done"),
            (Some("tools/call"), _) if line.contains("\"long\"") => text(&long),
            (Some("tools/call"), _) => {
                let trap = if line.contains("\"stubborn\"") { "trap '' TERM; " } else { "" };
                start_tree(trap, fifo.unwrap());
                String::new()
            }
            (Some("ping"), _) => "\"result\":{}".to_owned(),
            _ => "\"error\":{\"code\":-32601,\"message\":\"no such method\"}".to_owned(),
        };
        if let Some(id) = id.filter(|_| !body.is_empty()) {
            writeln!(output, "{{\"jsonrpc\":\"2.0\",\"id\":{id},{body}}}").unwrap();
            output.flush().unwrap();
        }
        line.clear();
    }
}

fn text(text: &str) -> String {
    format!(
        "\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"isError\":false}}"
    )
}

fn number_after(line: &str, name: &str) -> Option<u64> {
    let rest = line.split(name).nth(1)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// A process in a session of its own that tells its pid.
fn start_tree(trap: &str, fifo: &str) {
    let script = format!("{trap}echo $$ >{fifo}; while :; do sleep 1000 & wait; done");
    let mut launcher = Command::new("sh");
    launcher.args(["-c", "setsid sh -c \"$1\" &", "sh", &script]);
    launcher.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
}

/// A relay without a parser, in front of the server with this command: the least that one can cost. It
/// passes bytes on as they come, or with `by_line` a line once it is whole, as a relay has to that checks
/// results.
fn copy(by_line: bool, command: &[String]) {
    let mut server = Command::new(&command[0]);
    server.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let (mut down, mut up) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let pass = |from: &mut dyn Read, to: &mut dyn Write| {
        let mut buf = vec![0; 2 << 20];
        let mut held = 0;
        while let Ok(count @ 1..) = from.read(&mut buf[held..]) {
            held += count;
            if !by_line || buf[..held].ends_with(b"\n") {
                to.write_all(&buf[..held]).unwrap();
                held = 0;
            }
        }
    };
    // Without the buffer of `Stdin`, which would add copies.
    let input = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let output = std::io::stdout().as_fd().try_clone_to_owned().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || pass(&mut fs::File::from(input), &mut down));
        pass(&mut up, &mut fs::File::from(output));
    });
    server.wait().unwrap();
}

// ------------------------------------------------------------------ clients

/// A client of a server on pipes.
struct Piped {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    line: Vec<u8>,
}

impl Piped {
    /// A client in a session of 2025-11-25.
    fn start(command: &[String]) -> Self {
        let mut client = Self::spawn(command);
        client.request(HELLO.0, HELLO.1);
        client.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        client.request("tools/list", "{}");
        client
    }

    fn spawn(command: &[String]) -> Self {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::with_capacity(256 << 10, child.stdout.take().unwrap());
        Self { child, input, output, next: 0, line: Vec::new() }
    }

    /// Whether the server has the revision 2026-07-28.
    fn knows_2026(&mut self) -> bool {
        let id = self.send("server/discover", &format!("{{{META}}}"));
        find_answer(&mut self.output, &mut self.line, id).contains("\"result\"")
    }

    fn write(&mut self, line: &str) {
        self.input.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn send(&mut self, method: &str, params: &str) -> u64 {
        self.next += 1;
        let id = self.next;
        self.write(&request(id, method, params));
        id
    }

    fn request(&mut self, method: &str, params: &str) {
        let id = self.send(method, params);
        await_answer(&mut self.output, &mut self.line, id);
    }

    /// CPU of the process and its children.
    fn cpu(&self) -> Duration {
        cpu_of_tree(self.child.id())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// The member of every request of 2026-07-28.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"b","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

const HELLO: (&str, &str) = (
    "initialize",
    r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}"#,
);

fn request(id: u64, method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n")
}

fn call(tool: &str) -> String {
    format!("{{\"name\":\"{tool}\",\"arguments\":{{}}}}")
}

/// Reads up to the answer with this id, a result.
fn await_answer(output: &mut impl BufRead, line: &mut Vec<u8>, id: u64) {
    let text = find_answer(output, line, id);
    assert!(text.contains("\"result\"") && !text.contains("\"isError\":true"), "{text}");
}

/// Reads up to the answer with this id, which stands near its start or its end; returns both.
fn find_answer(output: &mut impl BufRead, line: &mut Vec<u8>, id: u64) -> String {
    let wanted = [format!("\"id\":{id},"), format!("\"id\":{id}}}")];
    loop {
        line.clear();
        assert!(output.read_until(b'\n', line).unwrap() > 0, "it ended");
        let parts = [&line[..line.len().min(200)], &line[line.len().saturating_sub(200)..]];
        let text = parts.map(String::from_utf8_lossy).join(" … ");
        if wanted.iter().any(|wanted| text.contains(wanted)) {
            return text;
        }
    }
}

/// CPU that the kernel counted for every thread of a process and of its descendants.
fn cpu_of_tree(root: u32) -> Duration {
    let mut all = vec![root];
    let mut at = 0;
    while at < all.len() {
        let tasks = fs::read_dir(format!("/proc/{}/task", all[at])).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
        }
        at += 1;
    }
    all.into_iter().map(cpu_of).sum()
}

fn cpu_of(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = tasks.map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
    });
    Duration::from_nanos(nanos.sum())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

// ------------------------------------------------------------------ one client

/// Calls of a tool, one at a time, of the least server alone, behind `ceased wrap` and behind a relay
/// that only copies.
fn least(tool: &str, calls: usize) {
    let server = vec![own(), "server".to_owned()];
    beside(tool, &server, &call(tool), calls, Piped::start);
}

/// A server alone, behind `ceased wrap`, and behind the relays without a parser, in turn.
fn beside(
    row: &str,
    server: &[String],
    params: &str,
    calls: usize,
    start: impl Fn(&[String]) -> Piped,
) {
    let copied = |how: &str| [&[own(), how.to_owned()], server].concat();
    let commands = [server.to_vec(), wrapped(server), copied("copy"), copied("lines")];
    let [alone, wrap, copied, lines] = in_turn(commands, params, calls, start);
    println!("{row}: alone p50 {:.1} us, CPU {:.1} us", alone.p50, alone.cpu);
    for (name, cost) in [("wrap", wrap), ("bytes copied", copied), ("lines copied", lines)] {
        println!(
            "{:>14}: p50 {:.1} us, CPU {:.1} us; more: {:.1} us, {:.1} us CPU; {:.2} x, CPU {:.2} x",
            name,
            cost.p50,
            cost.cpu,
            cost.p50 - alone.p50,
            cost.cpu - alone.cpu,
            cost.p50 / alone.p50,
            cost.cpu / alone.cpu
        );
    }
}

/// A small call and a long result of the server of an SDK, alone and behind `ceased wrap`, in each
/// revision of the server: `ceased wrap` asks the server in its newest one, which may cost the server
/// more than a session.
fn sdk(argument: &str) {
    let (name, command) = argument.split_once('=').unwrap();
    let server: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let small = r#""name":"echo","arguments":{"text":"hello"}"#.to_owned();
    let long = format!("\"name\":\"large\",\"arguments\":{{\"bytes\":{LONG_BYTES}}}");
    let rows = [("small", small, SDK_CALLS), ("1 MiB", long, SDK_LONG_CALLS)];
    let session = rows.clone().map(|(row, params, calls)| (row, format!("{{{params}}}"), calls));
    sdk_rows(&format!("{name}, 2025-11-25"), &server, session, Piped::start);
    if Piped::spawn(&server).knows_2026() {
        let rows = rows.map(|(row, params, calls)| (row, format!("{{{params},{META}}}"), calls));
        sdk_rows(&format!("{name}, 2026-07-28"), &server, rows, |command| {
            let mut client = Piped::spawn(command);
            client.request("tools/list", &format!("{{{META}}}"));
            client
        });
    }
}

fn sdk_rows(
    name: &str,
    server: &[String],
    rows: [(&str, String, usize); 2],
    start: impl Fn(&[String]) -> Piped,
) {
    for (row, params, calls) in rows {
        beside(&format!("{name}, {row}"), server, &params, calls, &start);
    }
}

/// The same server behind `ceased wrap`.
fn wrapped(server: &[String]) -> Vec<String> {
    let wrap = [env!("CARGO_BIN_EXE_ceased"), "wrap", "--"].map(str::to_owned);
    wrap.iter().chain(server).cloned().collect()
}

/// Latency of a call and CPU of all processes for it, in microseconds: medians of the rounds.
struct Cost {
    p50: f64,
    cpu: f64,
}

/// Costs of a call with these parameters of each command, in turn.
fn in_turn<const N: usize>(
    commands: [Vec<String>; N],
    params: &str,
    calls: usize,
    start: impl Fn(&[String]) -> Piped,
) -> [Cost; N] {
    let mut clients = commands.map(|command| start(&command));
    let mut p50 = [const { Vec::new() }; N];
    let mut cpu = [const { Vec::new() }; N];
    for round in 0..=ROUNDS {
        for (at, client) in clients.iter_mut().enumerate() {
            let before = client.cpu();
            let mut times: Vec<f64> = (0..calls)
                .map(|_| {
                    let since = Instant::now();
                    client.request("tools/call", params);
                    since.elapsed().as_secs_f64() * 1e6
                })
                .collect();
            // The first round is for caches.
            if round > 0 {
                p50[at].push(median(&mut times));
                let count = f64::from(u32::try_from(calls).unwrap());
                cpu[at].push((client.cpu() - before).as_secs_f64() * 1e6 / count);
            }
        }
    }
    let mut rows = p50.into_iter().zip(cpu);
    [(); N].map(|()| {
        let (mut p50, mut cpu) = rows.next().unwrap();
        Cost { p50: median(&mut p50), cpu: median(&mut cpu) }
    })
}

// ------------------------------------------------------------------ a shared server

/// A daemon with one shared server, and a tool on worker threads.
fn daemon(socket: &Path) {
    let launch = Launch::new([own(), "server".to_owned()]);
    let launch = UpstreamLaunch { launch, run_as: Some(RunAs::Daemon) };
    let server = UpstreamServer {
        share: Share::Identity,
        idle_exit: None,
        payload: launch.into_payload(),
        ..UpstreamServer::new("bench")
    };
    // It blocks, so that it runs on a worker thread and not on the loop's.
    let blocks = |_: &Job| -> Result<ToolResult, ToolError> {
        std::thread::sleep(Duration::from_micros(1));
        Ok(ToolResult::text("done"))
    };
    let tool = HandlerTool::new("worker", blocks).build().unwrap();
    let address = Address::Unix { path: socket.to_owned(), mode: SocketMode::OWNER };
    let daemon = Daemon::new().keep_in_memory().upstream(server).tool(tool).listen(address);
    daemon.build().unwrap().run().unwrap();
}

struct Connected {
    output: BufReader<UnixStream>,
    next: u64,
    line: Vec<u8>,
}

impl Connected {
    fn open(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        let mut client =
            Self { output: BufReader::with_capacity(1024, stream), next: 0, line: Vec::new() };
        let id = client.send(HELLO.0, HELLO.1);
        client.answer(id);
        let started = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
        client.output.get_mut().write_all(started.as_bytes()).unwrap();
        client
    }

    fn send(&mut self, method: &str, params: &str) -> u64 {
        self.next += 1;
        let line = request(self.next, method, params);
        self.output.get_mut().write_all(line.as_bytes()).unwrap();
        self.next
    }

    fn answer(&mut self, id: u64) {
        await_answer(&mut self.output, &mut self.line, id);
    }
}

fn shared() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let mut child = Command::new(own()).arg("daemon").arg(&socket).spawn().unwrap();
    while UnixStream::connect(&socket).is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut clients: Vec<Connected> = (0..CLIENTS).map(|_| Connected::open(&socket)).collect();
    let id = clients[0].send("tools/list", "{}");
    clients[0].answer(id);
    let mut cpu = [Vec::new(), Vec::new()];
    let mut rate = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (at, tool) in ["worker", "small"].into_iter().enumerate() {
            let (params, before, since) = (call(tool), cpu_of(child.id()), Instant::now());
            for _ in 0..SHARED_CALLS {
                let ids: Vec<u64> =
                    clients.iter_mut().map(|client| client.send("tools/call", &params)).collect();
                clients.iter_mut().zip(ids).for_each(|(client, id)| client.answer(id));
            }
            if round > 0 {
                let calls = f64::from(u32::try_from(SHARED_CALLS * CLIENTS).unwrap());
                cpu[at].push((cpu_of(child.id()) - before).as_secs_f64() * 1e6 / calls);
                rate[at].push(calls / since.elapsed().as_secs_f64());
            }
        }
    }
    let [worker, relay] = cpu.map(|mut of| median(&mut of));
    let [worker_rate, relay_rate] = rate.map(|mut of| median(&mut of));
    println!(
        "  shared: {CLIENTS} clients: worker thread {worker:.2} us CPU ({worker_rate:.0}/s), relay \
         {relay:.2} us CPU ({relay_rate:.0}/s): {:.2} x",
        relay / worker
    );
    let anonymous = || -> usize {
        let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
    };
    let open = || {
        let mut client = Connected::open(&socket);
        let id = client.send("tools/call", &call("small"));
        client.answer(id);
        client
    };
    // The first connections fill memory that was freed before.
    let first: Vec<Connected> = (0..IDLE / 4).map(|_| open()).collect();
    let before = anonymous();
    let idle: Vec<Connected> = (0..IDLE).map(|_| open()).collect();
    let each = anonymous().saturating_sub(before) / IDLE;
    println!("    idle: {IDLE} connections that share the server, after a call: {each} bytes each");
    drop((first, idle));
    child.kill().unwrap();
    child.wait().unwrap();
}

// ------------------------------------------------------------------ cancels

/// Time from a cancel to the death of the last process that the call started.
fn cancels(tool: &str) {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("pids");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let grace = |time: Duration| format!("{}ms", time.as_millis());
    let command = [
        env!("CARGO_BIN_EXE_ceased").to_owned(),
        "wrap".to_owned(),
        "--cancel-grace".to_owned(),
        grace(CANCEL_GRACE),
        "--kill-grace".to_owned(),
        grace(KILL_GRACE),
        "--".to_owned(),
        own(),
        "server".to_owned(),
        fifo.to_string_lossy().into_owned(),
    ];
    let mut over: Vec<f64> = (0..CANCELS)
        .map(|_| {
            // A server of its own for each, because the check of a cancel goes on after the death.
            let mut client = Piped::start(&command);
            let id = client.send("tools/call", &call(tool));
            let process = process(&fifo);
            let since = Instant::now();
            client.write(&format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id}}}}}\n"
            ));
            poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
            let graces = match tool {
                "stubborn" => CANCEL_GRACE + KILL_GRACE,
                _ => CANCEL_GRACE,
            };
            since.elapsed().as_secs_f64() * 1e3 - graces.as_secs_f64() * 1e3
        })
        .collect();
    let middle = median(&mut over);
    let last = over.last().copied().unwrap_or_default();
    println!(
        "{tool:>8}: cancel to the last process: grace and p50 {middle:.1} ms, at most {last:.1} ms"
    );
}

/// The process whose pid arrives through the pipe.
fn process(fifo: &Path) -> OwnedFd {
    let mut text = String::new();
    fs::File::open(fifo).unwrap().read_to_string(&mut text).unwrap();
    let pid = text.trim().parse().ok().and_then(Pid::from_raw).unwrap();
    pidfd_open(pid, PidfdFlags::empty()).unwrap()
}
