//! Options of `ceased wrap`, a server that floods, and a client that writes its requests into a pipe.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{Signal, marker, wait_until};
use rustix::process::{Pid, kill_process};
use serde_json::{Value, json};

/// A server of 2025-06-18 whose handshake takes `$START_SECONDS`. `pid` tells its process, `sleep`
/// answers after `s` seconds, `pid` gives back its text if it has one, `flood` prints `bytes` bytes
/// without a line end and then answers.
const SERVER: &str = r#"
import json, os, sys, threading, time
lock = threading.Lock()
def send(message):
    with lock:
        print(json.dumps(message), flush=True)
def call(id, params):
    arguments = params.get("arguments") or {}
    if params["name"] == "sleep":
        time.sleep(arguments["s"])
    elif params["name"] == "flood":
        with lock:
            left = arguments["bytes"]
            while left > 0:
                left -= sys.stdout.write("x" * min(left, 65536))
            sys.stdout.write("\n" if arguments["ends"] else "")
            sys.stdout.flush()
        if not arguments["ends"]:
            time.sleep(600)
    elif params["name"] == "huge":
        send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * arguments["bytes"]}})
        return send({"result": {"content": [{"type": "text", "text": "x" * arguments["bytes"]}]}, "jsonrpc": "2.0", "id": id})
    send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": arguments.get("text") or str(os.getpid())}]}})
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        time.sleep(float(os.environ.get("START_SECONDS", "0")))
        send({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "options", "version": "1"}}})
    elif method == "tools/list":
        send({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ["pid", "sleep", "flood", "huge"]]}})
    elif method == "tools/call":
        threading.Thread(target=call, args=(id, message["params"]), daemon=True).start()
    elif method == "ping":
        send({"jsonrpc": "2.0", "id": id, "result": {}})
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})
"#;

fn initialize(version: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
}

fn call(id: u32, name: &str, arguments: &Value) -> Value {
    let params = json!({"name": name, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// A client of `ceased wrap`, whose processes have a mark in their command lines.
struct Wrapped {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<Value>,
    mark: String,
    dir: tempfile::TempDir,
}

impl Wrapped {
    fn start(options: &[&str], environment: &[(&str, &str)]) -> Self {
        let (dir, mark) = (tempfile::tempdir().unwrap(), marker());
        let script = dir.path().join("server.py");
        fs::write(&script, SERVER).unwrap();
        let mut child = Command::new(ceased())
            .args(["wrap", "--cancel-grace", "300ms", "--kill-grace", "300ms"])
            .args(options)
            .envs(environment.iter().copied())
            .args(["--", "python3", "-S"])
            .arg(&script)
            .arg(&mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(dir.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (heard, output) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = heard.send(serde_json::from_str(&line).unwrap());
            }
        });
        Self { child, input, output, mark, dir }
    }

    fn open(options: &[&str]) -> Self {
        let mut wrapped = Self::start(options, &[]);
        wrapped.say(&initialize("2025-11-25"));
        assert_eq!(wrapped.answer(0)["result"]["serverInfo"]["name"], "options");
        wrapped.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        wrapped
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The answer to the request with this id; other messages are dropped.
    fn answer(&self, id: u32) -> Value {
        loop {
            let message = self.output.recv_timeout(Duration::from_secs(60)).expect("an answer");
            if message["id"] == id {
                return message;
            }
        }
    }

    fn call(&mut self, id: u32, name: &str, arguments: &Value) -> Value {
        self.say(&call(id, name, arguments));
        self.answer(id)
    }

    /// Number of processes with the mark, `ceased wrap` itself included.
    fn processes(&self) -> usize {
        let found = Command::new("pgrep").args(["-f", &self.mark]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().count()
    }

    /// Processes of the server.
    fn servers(&self) -> Vec<String> {
        let found = Command::new("pgrep").args(["-f", &self.mark]).output().unwrap();
        let (found, own) = (String::from_utf8(found.stdout).unwrap(), self.child.id().to_string());
        found.lines().filter(|pid| **pid != own).map(str::to_owned).collect()
    }

    /// Waits for the end, after the end of the input; no process may be left.
    fn end(&mut self) {
        self.input = None;
        let mut status = None;
        wait_until("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        wait_until("no process is left", || self.processes() == 0);
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(answer: &Value) -> String {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// `--share call`: calls at the same time have a process each, and `connection` has one for all.
#[test]
fn each_call_has_a_process_of_its_own_with_share_call() {
    for (share, own) in [("connection", false), ("call", true)] {
        let mut wrapped = Wrapped::open(&["--share", share]);
        for id in 1..=3 {
            wrapped.say(&call(id, "sleep", &json!({"s": 2})));
        }
        let mut pids: Vec<String> = (0..3)
            .map(|_| wrapped.output.recv_timeout(Duration::from_secs(60)).expect("an answer"))
            .map(|answer| text(&answer))
            .collect();
        pids.sort();
        pids.dedup();
        assert_eq!(pids.len(), if own { 3 } else { 1 }, "{share}: {pids:?}");
        wrapped.end();
    }
}

/// `--share call`: a cancel ends the process of its call alone, and others go on.
#[test]
fn cancel_with_share_call_disturbs_no_other_call() {
    let mut wrapped = Wrapped::open(&["--share", "call"]);
    wrapped.say(&call(1, "sleep", &json!({"s": 600})));
    wrapped.say(&call(2, "sleep", &json!({"s": 3})));
    wait_until("both have a process", || wrapped.processes() >= 3);
    wrapped.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1}}));
    text(&wrapped.answer(2));
    wrapped.say(&json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}));
    assert_eq!(wrapped.answer(3)["result"], json!({}));
    wrapped.end();
}

/// `--message-bytes`: a longer message is refused, and one of 20 MB passes by default, both ways.
#[test]
fn long_messages_pass_up_to_the_limit() {
    let text = "x".repeat(20_000_000);
    let mut wrapped = Wrapped::open(&[]);
    let answer = wrapped.call(1, "pid", &json!({"text": text}));
    assert_eq!(answer["result"]["content"][0]["text"].as_str().map(str::len), Some(text.len()));
    let mut wrapped = Wrapped::open(&["--message-bytes", "64KiB"]);
    wrapped.say(&call(1, "pid", &json!({"text": "x".repeat(100_000)})));
    let refused = wrapped.output.recv_timeout(Duration::from_secs(60)).expect("an answer");
    assert!(refused["error"]["message"].as_str().unwrap_or_default().contains("message_bytes"));
}

/// `--call-timeout`: a call that takes longer is ended and answered with an error that names the
/// limit; the next call is served.
#[test]
fn call_timeout_ends_the_call() {
    let mut wrapped = Wrapped::open(&["--call-timeout", "500ms"]);
    let answer = wrapped.call(1, "sleep", &json!({"s": 600}));
    assert_eq!(answer["error"]["code"], -31004, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("500") || message.contains("0.5"), "{message}");
    text(&wrapped.call(2, "pid", &json!({})));
    wrapped.end();
}

/// UPS-15: `--task-support` makes tasks of the tools of a server that knows none.
#[test]
fn task_support_makes_tasks_of_plain_tools() {
    let mut wrapped = Wrapped::open(&["--task-support", "optional"]);
    wrapped.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let tools = wrapped.answer(1)["result"]["tools"].clone();
    assert_eq!(tools[0]["execution"]["taskSupport"], "optional", "{tools}");
    let mut request = call(2, "sleep", &json!({"s": 0.2}));
    request["params"]["task"] = json!({"ttl": 60000});
    wrapped.say(&request);
    let task = wrapped.answer(2)["result"]["task"]["taskId"].clone();
    assert!(task.is_string(), "{task}");
    let params = json!({"taskId": task});
    wrapped.say(&json!({"jsonrpc": "2.0", "id": 3, "method": "tasks/result", "params": params}));
    text(&wrapped.answer(3));
    let mut request = call(4, "sleep", &json!({"s": 600}));
    request["params"]["task"] = json!({"ttl": 600_000});
    wrapped.say(&request);
    let task = wrapped.answer(4)["result"]["task"]["taskId"].clone();
    let params = json!({"taskId": task});
    wrapped.say(&json!({"jsonrpc": "2.0", "id": 5, "method": "tasks/cancel", "params": params}));
    assert_eq!(wrapped.answer(5)["result"]["status"], "cancelled");
    // The same tools are plain without the option.
    let mut plain = Wrapped::open(&[]);
    plain.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let tools = plain.answer(1)["result"]["tools"].clone();
    assert_eq!(tools[0]["execution"], Value::Null, "{tools}");
    wrapped.end();
    plain.end();
}

/// UPS-14: a line longer than any message fails its call and not the connection; one that never
/// ends takes no memory, and the cancel of its call ends it.
#[test]
fn flood_without_line_ends_takes_no_memory() {
    let mut wrapped = Wrapped::open(&[]);
    let answer = wrapped.call(1, "flood", &json!({"bytes": 40 << 20, "ends": true}));
    let failed =
        answer["error"]["message"].as_str().is_some_and(|said| said.contains("message_bytes"));
    assert!(failed || answer["result"].is_object(), "{answer}");
    text(&wrapped.call(2, "pid", &json!({})));
    wrapped.say(&call(3, "flood", &json!({"bytes": 1_u64 << 40, "ends": false})));
    let peak = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", wrapped.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let bytes = || -> u64 {
        let io = fs::read_to_string(format!("/proc/{}/io", wrapped.child.id())).unwrap();
        let line = io.lines().find(|line| line.starts_with("rchar:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let flooding = wrapped.servers();
    assert_eq!(flooding.len(), 1, "{flooding:?}");
    wait_until("200 MiB have come", || bytes() > 200 << 20);
    assert!(peak() < 100 << 10, "{} KiB at most", peak());
    wrapped.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 3}}));
    wait_until("the flooding server is gone", || wrapped.servers() != flooding);
    text(&wrapped.call(4, "pid", &json!({})));
    wrapped.end();
}

/// UPS-14: a request and an answer that are longer than any message fail one call each, beside calls
/// that are under way; the server goes on.
#[test]
fn overlong_messages_fail_their_calls_alone() {
    let mut wrapped = Wrapped::open(&["--message-bytes", "1MiB"]);
    let bytes = 2 << 20;
    wrapped.say(&call(1, "sleep", &json!({"s": 2})));
    let servers = wrapped.servers();
    let is_limit = |answer: &Value| {
        let said = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(said.contains("message_bytes = 1048576"), "{answer:.200}");
    };
    is_limit(&wrapped.call(2, "huge", &json!({"bytes": bytes})));
    is_limit(&wrapped.call(3, "pid", &json!({"x": "x".repeat(bytes)})));
    let params = json!({"name": "pid", "arguments": {"x": "x".repeat(bytes)}});
    let line = format!(r#"{{"method":"tools/call","params":{params},"jsonrpc":"2.0","id":4}}"#);
    writeln!(wrapped.input.as_mut().unwrap(), "{line}").unwrap();
    is_limit(&wrapped.answer(4));
    assert!(!text(&wrapped.answer(1)).is_empty());
    assert_eq!(wrapped.servers(), servers, "the server is not replaced");
    wrapped.end();
}

/// Answers to requests that were written into a pipe, `printf … | ceased wrap`; how long they took;
/// and standard error.
fn piped(options: &[&str], start: &str, requests: &[Value]) -> (Vec<Value>, Duration, String) {
    let mut wrapped = Wrapped::start(options, &[("START_SECONDS", start)]);
    wrapped.say(&initialize("2025-11-25"));
    wrapped.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    requests.iter().for_each(|request| wrapped.say(request));
    wrapped.input = None;
    let since = Instant::now();
    let answers = std::iter::from_fn(|| wrapped.output.recv_timeout(Duration::from_secs(60)).ok());
    let answers = answers.filter(|message| !message["id"].is_null()).collect();
    let took = since.elapsed();
    wrapped.end();
    let said = fs::read_to_string(wrapped.dir.path().join("stderr")).unwrap();
    (answers, took, said)
}

/// The start of a slow server and a row of answers outlast the grace after the end of the input.
#[test]
fn piped_requests_are_answered_by_a_slow_server() {
    let requests: Vec<Value> =
        (1..=4).map(|id| call(id, "sleep", &json!({"s": 0.4 * f64::from(id)}))).collect();
    let (answers, ..) = piped(&["--eof-grace", "1s"], "3", &requests);
    assert_eq!(answers.len(), 5, "{answers:?}");
    assert!(answers.iter().all(|answer| answer["result"].is_object()), "{answers:?}");
}

/// A call that is not answered within the grace is cancelled without an answer, on which the client
/// of the Python SDK would fail after it has closed; standard error says so.
#[test]
fn call_that_outlasts_the_end_of_the_input_is_reported_on_stderr() {
    let (answers, took, said) = piped(&[], "0", &[call(1, "sleep", &json!({"s": 600}))]);
    assert!(answers.iter().all(|answer| answer["id"] != 1), "{answers:?}");
    assert!(said.contains("eof_grace"), "{said}");
    assert!(took > Duration::from_millis(1400), "{took:?}");
    let (answers, _, said) =
        piped(&["--eof-grace", "60s"], "0", &[call(1, "sleep", &json!({"s": 3}))]);
    assert!(answers.iter().all(|answer| answer["result"].is_object()), "{answers:?}");
    assert!(!said.contains("eof_grace"), "{said}");
}

/// A client that is gone, or sends SIGTERM, as hosts do after the end of the input, ends the call
/// at once, whatever the grace.
#[test]
fn end_of_the_client_does_not_wait_for_the_grace() {
    let mut wrapped = Wrapped::open(&["--eof-grace", "1h"]);
    wrapped.say(&call(1, "sleep", &json!({"s": 600})));
    wrapped.input = None;
    kill_process(Pid::from_child(&wrapped.child), Signal::TERM).unwrap();
    wrapped.end();

    let dir = tempfile::tempdir().unwrap();
    let (script, mark) = (dir.path().join("server.py"), marker());
    fs::write(&script, SERVER).unwrap();
    let mut child = Command::new(ceased())
        .args(["wrap", "--eof-grace", "1h", "--", "python3", "-S"])
        .arg(&script)
        .arg(&mark)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    writeln!(input, "{}", initialize("2025-11-25")).unwrap();
    output.read_line(&mut String::new()).unwrap();
    writeln!(input, "{}", call(1, "sleep", &json!({"s": 600}))).unwrap();
    drop((input, output));
    wait_until("it ends", || child.try_wait().unwrap().is_some());
    let left = || Command::new("pgrep").args(["-f", &mark]).output().unwrap().stdout;
    wait_until("no process is left", || left().is_empty());
}
