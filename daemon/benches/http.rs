//! Streamable HTTP: calls beside other servers, a ping over TCP and over a Unix socket beside a ping by
//! lines on a Unix socket, idle memory, and the time from the end of a stream to the end of its process.
//!
//! `cargo bench -p ceased --bench http [-- 'NAME=PROGRAM ARGUMENT…' …]`
//!
//! Each NAME is a server of another SDK with the tool `echo` {"text"} at /mcp, which is started with
//! a port as its last argument. Those of `benches/peers` are built below the target folder:
//!
//! ```sh
//! CARGO_TARGET_DIR=target/peers cargo build --release --manifest-path daemon/benches/peers/rmcp/Cargo.toml
//! npm install --prefix target/peers @modelcontextprotocol/sdk@1.32.2 zod@4
//! cp daemon/benches/peers/server.mjs target/peers
//! cargo bench -p ceased --bench http -- "rmcp=$PWD/target/peers/release/rmcp-echo" \
//!   "typescript=node $PWD/target/peers/server.mjs"
//! ```
//!
//! One server is always there: a bare loop that polls, reads, parses with httparse and writes, which is
//! the least that these rows can cost on the machine.
//!
//! Servers are measured in turn in each round, so that other load affects all; a row has the medians of the
//! rounds. The CPU of a server is that of its threads; calls per second and core are its inverse, as
//! the load generator needs a core too.

#![allow(clippy::unwrap_used, reason = "a benchmark may fail")]
#![allow(clippy::disallowed_methods, reason = "a benchmark asks for the time")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

#[path = "kit/bare_http.rs"]
mod bare_http;

/// Rounds of a row, after a first one that fills the caches.
const ROUNDS: usize = 7;
/// Calls of each server in a round.
const CALLS: usize = 2_000;
/// Connections of the busy rows.
const BUSY: usize = 64;
/// Idle connections and sessions of the memory rows.
const IDLE: usize = 2_000;
/// Sessions that end by themselves.
const SESSIONS: usize = 10_000;
/// Streams that are closed in the middle of a call.
const CLOSES: usize = 300;
/// Time limit of every step.
const TIME_LIMIT: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
[daemon]
store = "memory"
[limits]
connections = 20000
connections_per_identity = 20000
queue_per_identity = 100000
[log]
level = "error"
[[tool]]
name = "echo"
builtin = "echo"
[[tool]]
name = "wait"
run_as = "daemon"
command = ["sh", "-c", 'echo $$ >"$1"; exec sleep 1000', "wait", "{fifo}"]
[tool.input.fifo]
type = "string"
required = true
[[listen]]
transport = "http"
address = "127.0.0.1:0"
session_idle = "{session_idle}"
keep_alive = "600s"
sessions_per_identity = 20000
connections_per_address = 20000
"#;
/// The row of clients that accept only a stream of events.
const BY_STREAM: &str = "ceased, by stream";
/// Media types that clients accept.
const BOTH: &str = "application/json, text/event-stream";
/// First argument of the process that runs the bare loop.
const BARE: &str = "--bare";

fn main() {
    // `cargo test` runs the benchmark too, without `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, socket, port] = &*arguments
        && first == BARE
    {
        return bare_http::serve(port.parse().unwrap(), Path::new(socket)).unwrap();
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    // Rounds of other servers may be long.
    let daemon = Daemon::start("600s");
    let bare_lines = daemon.dir.path().join("bare");
    let this = std::env::current_exe().unwrap();
    let bare =
        Other::start(&format!("bare loop={} {BARE} {}", this.display(), bare_lines.display()));
    let mut servers = vec![
        ("ceased".to_owned(), daemon.address, daemon.child.id()),
        // rmcp has no other answers in a session.
        (BY_STREAM.to_owned(), daemon.address, daemon.child.id()),
        (bare.name.clone(), bare.address, bare.child.id()),
    ];
    let others: Vec<Other> = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"))
        .map(|argument| Other::start(argument))
        .collect();
    servers.extend(others.iter().map(|it| (it.name.clone(), it.address, it.child.id())));
    calls(&servers, BUSY);
    drop(others);
    pings(&[
        ("ceased", daemon.address, &daemon.dir.path().join("h"), &daemon.dir.path().join("s")),
        ("bare loop", bare.address, &bare_http::http_path(&bare_lines), &bare_lines),
    ]);
    drop(bare);
    idle_connections(&daemon);
    // One without memory that connections have freed.
    idle_sessions(&Daemon::start("5s"));
    for busy in [0, BUSY] {
        closes(&daemon, busy);
    }
}

// ------------------------------------------------------------------ servers and clients

struct Daemon {
    dir: tempfile::TempDir,
    child: Child,
    address: SocketAddr,
}

impl Daemon {
    fn start(session_idle: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let unix = format!("[[listen]]\ntransport = \"unix\"\npath = {socket:?}\n");
        let http = dir.path().join("h");
        let http = format!("[[listen]]\ntransport = \"http\"\npath = {http:?}\n");
        let config = dir.path().join("config.toml");
        let text = CONFIG.replace("{session_idle}", session_idle);
        fs::write(&config, format!("{text}{unix}{http}")).unwrap();
        let log = dir.path().join("log");
        let child = Command::new(env!("CARGO_BIN_EXE_ceased"))
            .args(["serve", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut daemon = Self { dir, child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        wait(|| {
            let text = fs::read_to_string(&log).unwrap();
            let mut lines = text.lines().filter_map(|line| line.split_once("listening on tcp:"));
            let address = lines.find_map(|(_, it)| it.strip_suffix(" (http)")?.parse().ok());
            daemon.address = address.unwrap_or(daemon.address);
            address.is_some() && UnixStream::connect(&socket).is_ok()
        });
        daemon
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server of another SDK.
struct Other {
    name: String,
    address: SocketAddr,
    child: Child,
}

impl Other {
    /// `argument`: `NAME=PROGRAM ARGUMENT…`.
    fn start(argument: &str) -> Self {
        let (name, command) = argument.split_once('=').unwrap();
        let mut words = command.split_whitespace();
        // A port that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new(words.next().unwrap())
            .args(words)
            .arg(address.port().to_string())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let other = Self { name: name.to_owned(), address, child };
        wait(|| TcpStream::connect(address).is_ok());
        other
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connected socket.
trait Socket: Read + Write {}

impl<S: Read + Write> Socket for S {}

/// A keep-alive connection.
struct Http {
    stream: BufReader<Box<dyn Socket>>,
    accept: &'static str,
    headers: String,
    body: Vec<u8>,
}

impl Http {
    fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        Self::over(Box::new(stream))
    }

    fn open_unix(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        Self::over(Box::new(stream))
    }

    fn over(stream: Box<dyn Socket>) -> Self {
        let stream = BufReader::with_capacity(1024, stream);
        Self { stream, accept: BOTH, headers: String::new(), body: Vec::new() }
    }

    /// A connection with a session of its own.
    fn session(address: SocketAddr) -> Self {
        Self::open(address).with_session()
    }

    fn with_session(mut self) -> Self {
        let id = self.begin_session();
        self.headers = format!("mcp-session-id: {id}\r\nmcp-protocol-version: 2025-11-25\r\n");
        self.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
        self.receive();
        self
    }

    /// Begins a session; returns its id.
    fn begin_session(&mut self) -> String {
        self.send(HELLO);
        let head = self.receive();
        let id = head.lines().find_map(|line| line.strip_prefix("mcp-session-id:"));
        id.unwrap_or_else(|| panic!("{head}")).trim().to_owned()
    }

    fn request(&self, body: &str) -> String {
        format!(
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: \
             {}\r\n{}content-length: {}\r\n\r\n{body}",
            self.accept,
            self.headers,
            body.len()
        )
    }

    fn send(&mut self, body: &str) {
        let request = self.request(body);
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
    }

    /// Reads a response into `body`; returns its head in lower case.
    fn receive(&mut self) -> String {
        let mut head = String::new();
        loop {
            let from = head.len();
            assert!(self.stream.read_line(&mut head).unwrap() > 0, "it ended: {head}");
            if &head[from..] == "\r\n" {
                break;
            }
        }
        head.make_ascii_lowercase();
        assert!(head.starts_with("http/1.1 20"), "{head}");
        self.body.clear();
        let field = |name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name)).map(|it| it.trim().to_owned())
        };
        if field("transfer-encoding:").is_some() {
            self.receive_chunks();
        } else if let Some(length) = field("content-length:") {
            self.body.resize(length.parse().unwrap(), 0);
            self.stream.read_exact(&mut self.body).unwrap();
        }
        head
    }

    fn receive_chunks(&mut self) {
        let mut line = String::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            let size = usize::from_str_radix(line.trim(), 16).unwrap();
            let from = self.body.len();
            self.body.resize(from + size + 2, 0);
            self.stream.read_exact(&mut self.body[from..]).unwrap();
            self.body.truncate(from + size);
            if size == 0 {
                return;
            }
        }
    }
}

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}"#;

fn echo(id: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"hello"}}}}}}"#
    )
}

/// CPU that the kernel counted for every thread of a process. One that has ended keeps its last
/// value.
struct Cpu {
    pid: u32,
    threads: BTreeMap<OsString, u64>,
}

impl Cpu {
    const fn of(pid: u32) -> Self {
        Self { pid, threads: BTreeMap::new() }
    }

    fn read(&mut self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten();
        for task in tasks.flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
            self.threads.extend(nanos.map(|nanos| (task.file_name(), nanos)));
        }
        Duration::from_nanos(self.threads.values().sum())
    }
}

/// Anonymous memory of a process, in bytes.
fn memory_of(pid: u32) -> usize {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

fn percentile(values: &mut [f64], of_100: usize) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[(values.len() * of_100 / 100).min(values.len() - 1)]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap())
}

// ------------------------------------------------------------------ calls

/// Calls of `echo` on this many connections, each with one at a time.
fn calls(servers: &[(String, SocketAddr, u32)], connections: usize) {
    let client = |name: &str, address| {
        let mut http = Http::session(address);
        if name == BY_STREAM {
            http.accept = "text/event-stream";
        }
        http
    };
    let mut clients: Vec<Vec<Http>> = servers
        .iter()
        .map(|(name, address, _)| (0..connections).map(|_| client(name, *address)).collect())
        .collect();
    let mut clocks: Vec<Cpu> = servers.iter().map(|(_, _, pid)| Cpu::of(*pid)).collect();
    let mut cpu = vec![Vec::new(); servers.len()];
    let mut time = vec![Vec::new(); servers.len()];
    let mut id = 0;
    for round in 0..=ROUNDS {
        for (at, clock) in clocks.iter_mut().enumerate() {
            let (before, since) = (clock.read(), Instant::now());
            for _ in 0..CALLS / connections {
                id += 1;
                let call = echo(id);
                clients[at].iter_mut().for_each(|http| http.send(&call));
                for http in &mut clients[at] {
                    http.receive();
                    let is_right = http.body.windows(7).any(|part| part == b"\"hello\"");
                    assert!(is_right, "{}", String::from_utf8_lossy(&http.body));
                }
            }
            if round > 0 {
                let calls = count(CALLS / connections * connections);
                cpu[at].push(micros(clock.read() - before) / calls);
                time[at].push(micros(since.elapsed()) / calls);
            }
        }
    }
    let own = percentile(&mut cpu[0].clone(), 50);
    println!("calls of echo, {connections} connections:");
    for (at, (name, _, _)) in servers.iter().enumerate() {
        let (cpu, time) = (percentile(&mut cpu[at], 50), percentile(&mut time[at], 50));
        println!(
            "  {name:>17}: {cpu:.1} us CPU, {:.0} calls per second and core; {:.0}/s seen; ceased \
             {:.1} x per core",
            1e6 / cpu,
            1e6 / time,
            cpu / own
        );
    }
}

/// A ping over HTTP on TCP and on a Unix socket, and by lines on a Unix socket, one at a time, to each
/// server in turn.
fn pings(servers: &[(&str, SocketAddr, &Path, &Path)]) {
    let clients = servers.iter().map(|(_, address, http, socket)| {
        (Http::session(*address), Http::open_unix(http).with_session(), lines(socket))
    });
    let mut clients: Vec<(Http, Http, BufReader<UnixStream>)> = clients.collect();
    let mut p50 = vec![[const { Vec::new() }; 3]; servers.len()];
    for round in 0..=ROUNDS {
        for ((tcp, unix, lines), p50) in clients.iter_mut().zip(&mut p50) {
            let mut times = [ping_http(tcp), ping_http(unix), ping_lines(lines)];
            if round > 0 {
                for (of, times) in p50.iter_mut().zip(&mut times) {
                    of.push(percentile(times, 50));
                }
            }
        }
    }
    for ((name, ..), p50) in servers.iter().zip(p50) {
        let [tcp, unix, lines] = p50.map(|mut of| percentile(&mut of, 50));
        println!(
            "ping p50, {name}: lines on a Unix socket {lines:.1} us; HTTP on a Unix socket {unix:.1} us, \
             {:.2} x; HTTP on TCP {tcp:.1} us, {:.2} x",
            unix / lines,
            tcp / lines
        );
    }
}

/// An initialized connection to a Unix socket.
fn lines(socket: &Path) -> BufReader<UnixStream> {
    let mut unix = BufReader::new(UnixStream::connect(socket).unwrap());
    let mut line = String::new();
    writeln!(unix.get_mut(), "{HELLO}").unwrap();
    unix.read_line(&mut line).unwrap();
    writeln!(unix.get_mut(), r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#)
        .unwrap();
    unix
}

fn ping_of(id: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

/// Times of pings on an HTTP connection. Each response is small and arrives in one piece; its text is
/// examined after the time was taken, so that the work of the client does not count.
fn ping_http(http: &mut Http) -> Vec<f64> {
    let mut piece = [0; 1024];
    let time = |id: usize| {
        let request = http.request(&ping_of(id));
        let stream = http.stream.get_mut();
        let since = Instant::now();
        stream.write_all(request.as_bytes()).unwrap();
        let count = stream.read(&mut piece).unwrap();
        let time = micros(since.elapsed());
        let text = String::from_utf8_lossy(&piece[..count]);
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with('}'), "{text}");
        time
    };
    (1..=CALLS).map(time).collect()
}

/// The same by lines on a Unix socket.
fn ping_lines(unix: &mut BufReader<UnixStream>) -> Vec<f64> {
    let mut piece = [0; 1024];
    let time = |id: usize| {
        let request = format!("{}\n", ping_of(id));
        let stream = unix.get_mut();
        let since = Instant::now();
        stream.write_all(request.as_bytes()).unwrap();
        let count = stream.read(&mut piece).unwrap();
        let time = micros(since.elapsed());
        let text = String::from_utf8_lossy(&piece[..count]);
        assert!(text.ends_with("}\n"), "{text}");
        time
    };
    (1..=CALLS).map(time).collect()
}

// ------------------------------------------------------------------ memory

/// Memory of keep-alive connections that have made a request.
fn idle_connections(daemon: &Daemon) {
    let open = || {
        let mut http = Http::open(daemon.address);
        let stream = http.stream.get_mut();
        stream.write_all(b"GET /icon.svg HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        http.receive();
        http
    };
    // The first ones fill memory that was freed before.
    let first: Vec<Http> = (0..IDLE / 2).map(|_| open()).collect();
    let before = memory_of(daemon.pid());
    let idle: Vec<Http> = (0..IDLE).map(|_| open()).collect();
    let each = memory_of(daemon.pid()).saturating_sub(before) / IDLE;
    println!("{IDLE} idle keep-alive connections: {each} bytes each");
    drop((first, idle));
}

/// Memory of idle sessions, and of the daemon after they have ended.
fn idle_sessions(daemon: &Daemon) {
    let mut http = Http::open(daemon.address);
    let mut begin = |count: usize| {
        for _ in 0..count {
            http.headers.clear();
            let id = http.begin_session();
            http.headers = format!("mcp-session-id: {id}\r\nmcp-protocol-version: 2025-11-25\r\n");
            http.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
            http.receive();
        }
    };
    begin(IDLE / 2);
    let before = memory_of(daemon.pid());
    begin(IDLE);
    let each = memory_of(daemon.pid()).saturating_sub(before) / IDLE;
    println!("{IDLE} idle sessions: {each} bytes each");
    let is_gone = || sessions(daemon) <= 1;
    wait(is_gone);
    let (rest, since) = (memory_of(daemon.pid()), Instant::now());
    begin(SESSIONS);
    let (full, took) = (memory_of(daemon.pid()), since.elapsed());
    wait(is_gone);
    // The heap is returned when the daemon is idle.
    std::thread::sleep(Duration::from_secs(2));
    let after = memory_of(daemon.pid());
    println!(
        "{SESSIONS} sessions, never deleted, in {:.1} s: {} KiB before, {} KiB with them, {} KiB \
         after session_idle of 5 s",
        took.as_secs_f64(),
        rest / 1024,
        full / 1024,
        after / 1024
    );
}

/// Number of connections that the daemon counts, those of sessions among them.
fn sessions(daemon: &Daemon) -> u64 {
    let unix = UnixStream::connect(daemon.dir.path().join("s")).unwrap();
    let mut unix = BufReader::new(unix);
    let mut line = String::new();
    writeln!(
        unix.get_mut(),
        r#"{{"jsonrpc":"2.0","id":1,"method":"ceased/status","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    )
    .unwrap();
    unix.read_line(&mut line).unwrap();
    let rest = line.split("\"connections\":").nth(1).unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn wait(mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < TIME_LIMIT, "in vain");
        std::thread::sleep(Duration::from_millis(50));
    }
}

// ------------------------------------------------------------------ the end of a stream

/// Time from the end of a stream of 2026-07-28 to the end of the process of its call by SIGTERM,
/// beside busy connections.
fn closes(daemon: &Daemon, busy: usize) {
    let fifo = daemon.dir.path().join(format!("fifo-{busy}"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let stop = Arc::new(AtomicBool::new(false));
    let load = busy_connections(daemon.address, busy, &stop);
    let mut times: Vec<f64> = (0..CLOSES)
        .map(|id| {
            let mut http = Http::open(daemon.address);
            http.headers =
                "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: \
                            wait\r\n"
                    .to_owned();
            http.send(&wait_call(id, &fifo));
            let pid: i32 = fs::read_to_string(&fifo).unwrap().trim().parse().unwrap();
            let process = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
            let since = Instant::now();
            drop(http);
            poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
            since.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    stop.store(true, Ordering::Relaxed);
    let calls: usize = load.into_iter().map(|thread| thread.join().unwrap()).sum();
    let [p50, p99] = [50, 99].map(|of| percentile(&mut times, of));
    println!(
        "stream closed to process ended, beside {busy} busy connections ({calls} calls): p50 \
         {p50:.2} ms, p99 {p99:.2} ms"
    );
}

/// One thread that calls `echo` on this many connections.
fn busy_connections(
    address: SocketAddr,
    busy: usize,
    stop: &Arc<AtomicBool>,
) -> Option<std::thread::JoinHandle<usize>> {
    let stop = Arc::clone(stop);
    (busy > 0).then(|| {
        std::thread::spawn(move || {
            let mut clients: Vec<Http> = (0..busy).map(|_| Http::session(address)).collect();
            let mut calls = 0;
            while !stop.load(Ordering::Relaxed) {
                calls += busy;
                let call = echo(calls);
                clients.iter_mut().for_each(|http| http.send(&call));
                for http in &mut clients {
                    http.receive();
                }
            }
            calls
        })
    })
}

fn wait_call(id: usize, fifo: &Path) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"wait","arguments":{{"fifo":{fifo:?}}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    )
}
