//! A call of an existing MCP server is cancelled: without ceased its processes stay, behind
//! `ceased wrap` they end. Takes ten seconds.
//!
//! ```sh
//! cargo run --example tour
//! ```

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ceased::config::RunAs;
use ceased::process::{self, Launch};
use ceased::{Address, Daemon, UpstreamLaunch};
use ceased_core::upstream::server::UpstreamServer;
use serde_json::{Value, json};

/// Longest wait for an answer or for the end of processes.
const TIME_LIMIT: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    process::guard::init();
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("wrap") {
        return wrap(&arguments.collect::<Vec<_>>());
    }
    let mark = format!("8640{}", std::process::id());
    let server = server(&mark)?;

    println!("1. an MCP server, as a host starts it: {}", shown(&server));
    let mut host = Host::start(&server)?;
    cancel_a_build(&mut host, &mark)?;
    sleep(Duration::from_secs(3));
    host.request("ping", &json!({}))?;
    show("   3 s after the cancel, the server answers a ping, and the work goes on:", &mark);
    drop(host);
    show("   the host closes the server, and leaves orphans:", &mark);
    end_orphans(&mark);

    let tour = std::env::current_exe()?.to_string_lossy().into_owned();
    let wrapped: Vec<String> = [tour, "wrap".to_owned()].into_iter().chain(server).collect();
    println!("\n2. the same server behind `ceased wrap --`");
    let mut host = Host::start(&wrapped)?;
    let cancelled = cancel_a_build(&mut host, &mark)?;
    until("the work ends", || work(&mark).is_empty())?;
    let took = cancelled.elapsed().as_millis();
    println!("   {took} ms after the cancel no process of the call is left: the server had");
    println!("   2 s (cancel_grace) to end the call itself");
    host.request("ping", &json!({}))?;
    println!("   the session goes on: the server answers a ping");
    drop(host);
    until("the server ends", || processes(&mark).is_empty())?;
    println!("   the host closes, and nothing is left: cancelled means ceased");
    Ok(())
}

/// The command of the server: in Python if there is one, else in shell.
fn server(mark: &str) -> Outcome<Vec<String>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tour");
    let has = |program: &str| {
        let quiet = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    };
    let (program, script) = match has("python3") {
        true => ("python3", "server.py"),
        false => ("sh", "server.sh"),
    };
    let script = folder.join(script);
    if !script.exists() {
        return Err(
            format!("{} is missing: run the tour in its repository", script.display()).into()
        );
    }
    Ok(vec![program.to_owned(), script.to_string_lossy().into_owned(), mark.to_owned()])
}

fn shown(command: &[String]) -> String {
    let last =
        |word: &String| Path::new(word).file_name().map(|name| name.to_string_lossy().into_owned());
    command.iter().take(2).filter_map(last).collect::<Vec<_>>().join(" ")
}

/// Serves the client on stdin and stdout with one server, as `ceased wrap` does.
fn wrap(command: &[String]) -> Outcome<()> {
    let launch = UpstreamLaunch { launch: Launch::new(command), run_as: Some(RunAs::Daemon) };
    let server = UpstreamServer {
        transparent: true,
        payload: launch.into_payload(),
        ..UpstreamServer::new("tour")
    };
    let daemon = Daemon::new().upstream(server).listen(Address::Stdio);
    Ok(daemon.build()?.run()?)
}

/// Calls the tool, waits until its processes run, and cancels the call; returns when.
fn cancel_a_build(host: &mut Host, mark: &str) -> Outcome<Instant> {
    let id = host.send("tools/call", &json!({"name": "build", "arguments": {}}))?;
    until("the tool runs", || work(mark).len() == 2)?;
    show("   the client calls its tool \"build\", which runs as", mark);
    println!("   the client sends notifications/cancelled");
    let cancelled = Instant::now();
    host.notify("notifications/cancelled", &json!({"requestId": id, "reason": "enough"}))?;
    Ok(cancelled)
}

/// A host of one MCP server on pipes.
struct Host {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<Value>,
    requests: u64,
}

impl Host {
    fn start(command: &[String]) -> Outcome<Self> {
        let (program, arguments) = command.split_first().ok_or("no command")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
        let (heard, output) = channel();
        std::thread::spawn(move || {
            let messages = lines.map_while(Result::ok);
            for message in messages.filter_map(|line| serde_json::from_str(&line).ok()) {
                if heard.send(message).is_err() {
                    return;
                }
            }
        });
        let mut host = Self { input: child.stdin.take(), child, output, requests: 0 };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "tour", "version": "1"}});
        host.request("initialize", &hello)?;
        host.notify("notifications/initialized", &json!({}))?;
        Ok(host)
    }

    fn write(&mut self, message: &Value) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{message}")
    }

    fn notify(&mut self, method: &str, params: &Value) -> io::Result<()> {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    /// Sends a request; returns its id.
    fn send(&mut self, method: &str, params: &Value) -> io::Result<u64> {
        self.requests += 1;
        let id = self.requests;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    /// Sends a request and waits for its result.
    fn request(&mut self, method: &str, params: &Value) -> Outcome<Value> {
        let id = self.send(method, params)?;
        loop {
            let message = self.output.recv_timeout(TIME_LIMIT)?;
            if message["id"] == id && message["error"].is_null() {
                return Ok(message["result"].clone());
            }
            if message["id"] == id {
                return Err(message["error"].to_string().into());
            }
        }
    }
}

impl Drop for Host {
    /// Closes the input, and kills a server that stays, as hosts do.
    fn drop(&mut self) {
        self.input = None;
        let exited = || matches!(self.child.try_wait(), Ok(Some(_)));
        if until("the server ends", exited).is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Outcome<()> {
    let end = Instant::now() + TIME_LIMIT;
    while !holds() {
        if Instant::now() > end {
            return Err(format!("in vain: {what}").into());
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn show(what: &str, mark: &str) {
    println!("{what}");
    for (pid, line) in work(mark) {
        println!("   {pid:>9}  {line}");
    }
}

/// Processes of the call.
fn work(mark: &str) -> Vec<(u32, String)> {
    processes(mark).into_iter().filter(|(_, line)| line.starts_with("sleep ")).collect()
}

/// Ends the orphans of the first part; nothing else would.
fn end_orphans(mark: &str) {
    let pids: Vec<String> = work(mark).into_iter().map(|(pid, _)| pid.to_string()).collect();
    let _ = Command::new("kill").args(&pids).status();
}

/// Every process of this machine with the mark among its arguments, whatever its current parent.
fn processes(mark: &str) -> Vec<(u32, String)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let found = entries.flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let is_marked = pid != std::process::id() && words.iter().any(|word| word == mark);
        is_marked.then(|| (pid, words.join(" ").trim_end().to_owned()))
    });
    found.collect()
}
