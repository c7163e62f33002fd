//! `ceased wrap` in front of a scripted server: relay, cancel, strays, death, end (UPS-01 to
//! UPS-08, UPS-14, UPS-16).

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{marker, wait_until};
use serde_json::{Value, json};

/// A server that speaks 2025-06-18 and prints a banner first. `obey` heeds a cancel, `stray` waits
/// for a child in a session of its own and ignores it, `busy` computes and ignores it.
const SERVER: &str = r#"
import json, os, subprocess, sys, threading, time
print("a banner", flush=True)
lock, cancelled = threading.Lock(), set()
def send(message):
    with lock:
        print(json.dumps(message), flush=True)
def call(id, params):
    name, token = params["name"], (params.get("_meta") or {}).get("progressToken")
    arguments = params.get("arguments") or {}
    if name == "echo":
        text = arguments["text"]
        send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}], "unknown": [1]}})
    elif name == "obey":
        count = 0
        while id not in cancelled:
            count += 1
            if token is not None:
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": count}})
            time.sleep(0.02)
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32800, "message": "cancelled"}})
    elif name == "stray":
        subprocess.Popen(["setsid", "sleep", arguments["mark"]]).wait()
    elif name == "busy":
        while True:
            pass
    elif name == "env":
        send({"jsonrpc": "2.0", "id": id, "result": {"content": [], "structuredContent": dict(os.environ)}})
    elif name == "die":
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        send({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "completions": {}},
            "serverInfo": {"name": "scripted", "version": "9"}, "instructions": "Be kind."}})
    elif method == "tools/list":
        names = ["echo", "obey", "stray", "busy", "die"]
        send({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": n, "inputSchema": {"type": "object"}, "x": 1} for n in names]}})
    elif method == "prompts/list":
        send({"jsonrpc": "2.0", "id": id, "result": {"prompts": [{"name": "greet", "x": 2}]}})
    elif method == "resources/list":
        page = [{"uri": "t://b", "name": "b"}] if message["params"].get("cursor") else [{"uri": "t://a", "name": "a"}]
        more = {} if message["params"].get("cursor") else {"nextCursor": "2"}
        send({"jsonrpc": "2.0", "id": id, "result": {"resources": page, **more}})
    elif method == "resources/templates/list":
        send({"jsonrpc": "2.0", "id": id, "result": {"resourceTemplates": [{"uriTemplate": "t://{x}", "name": "t"}]}})
    elif method in ("prompts/get", "resources/read", "completion/complete"):
        send({"jsonrpc": "2.0", "id": id, "result": {"seen": {"method": method, "params": message["params"]}}})
    elif method == "tools/call":
        threading.Thread(target=call, args=(id, message["params"]), daemon=True).start()
    elif method == "notifications/cancelled":
        cancelled.add(message["params"]["requestId"])
    elif method == "ping":
        send({"jsonrpc": "2.0", "id": id, "result": {}})
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})
"#;

/// A client of `ceased wrap`.
struct Wrapped {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<Value>,
    dir: tempfile::TempDir,
    mark: String,
}

impl Wrapped {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        let (dir, mark) = (tempfile::tempdir().unwrap(), marker());
        let script = dir.path().join("server.py");
        fs::write(&script, SERVER).unwrap();
        let mut child = Command::new(ceased())
            .args(["wrap", "--cancel-grace", "300ms", "--kill-grace", "300ms", "--audit"])
            .arg(dir.path().join("audit.jsonl"))
            .args(options)
            .env("CEASED_TEST_PLAIN", "plain")
            .env("CEASED_TEST_PASSED", "passed")
            .env("NOTIFY_SOCKET", "/nowhere")
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
        let mut wrapped = Self { child, input, output, dir, mark };
        wrapped.say(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}}}));
        let info = wrapped.hear();
        assert_eq!(info["result"]["serverInfo"]["name"], "scripted", "{info}");
        assert_eq!(info["result"]["instructions"], "Be kind.", "{info}");
        assert_eq!(info["result"]["protocolVersion"], "2025-11-25", "{info}");
        wrapped.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        wrapped
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn call(&mut self, id: impl Into<Value>, name: &str, arguments: &Value, token: Option<Value>) {
        let mut params = json!({"name": name, "arguments": arguments});
        if let Some(token) = token {
            params["_meta"] = json!({"progressToken": token});
        }
        let id: Value = id.into();
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    fn cancel(&mut self, id: impl Into<Value>) {
        let id: Value = id.into();
        let params = json!({"requestId": id, "reason": "enough"});
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    }

    fn hear(&self) -> Value {
        self.output.recv_timeout(Duration::from_secs(30)).expect("a message")
    }

    fn audit(&self) -> String {
        fs::read_to_string(self.dir.path().join("audit.jsonl")).unwrap_or_default()
    }

    /// Receipts of cancels in the audit log.
    fn proofs(&self) -> Vec<String> {
        let audit = self.audit();
        let records = audit.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let receipts = records.filter(|record| record["event"] == "cancel");
        receipts.filter_map(|record| Some(record["proof"].as_str()?.to_owned())).collect()
    }

    fn is_none_left(&self) -> bool {
        let found = Command::new("pgrep").args(["-f", &self.mark]).output().unwrap();
        let own = self.child.id().to_string();
        let pids = String::from_utf8(found.stdout).unwrap();
        pids.lines().all(|pid| pid == own)
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// UPS-01, UPS-02, UPS-03, UPS-10, UPS-14: lists and results pass whole, ids and progress tokens
/// come back as the client wrote them, and a banner does no harm.
#[test]
fn results_ids_and_tokens_pass_whole() {
    let mut wrapped = Wrapped::start();
    wrapped.say(&json!({"jsonrpc": "2.0", "id": "list", "method": "tools/list"}));
    let list = wrapped.hear();
    assert_eq!((&list["id"], &list["result"]["tools"][0]["x"]), (&json!("list"), &json!(1)));
    for id in [json!(-7), json!("a"), json!(0)] {
        wrapped.call(id.clone(), "echo", &json!({"text": "hi"}), None);
        let answer = wrapped.hear();
        assert_eq!((&answer["id"], &answer["result"]["unknown"]), (&id, &json!([1])), "{answer}");
    }
    wrapped.call(5, "obey", &json!({}), Some(json!("mine")));
    let progress = wrapped.hear();
    assert_eq!(progress["params"]["progressToken"], "mine", "{progress}");
    wrapped.cancel(5);
    wrapped.call(6, "echo", &json!({"text": "after"}), None);
    loop {
        let message = wrapped.hear();
        assert_ne!(message["id"], 5, "CAN-08: {message}");
        if message["id"] == 6 {
            break;
        }
    }
    wait_until("the receipt is written", || wrapped.proofs() == ["answered"]);
}

/// UPS-05, UPS-06, UPS-16: work that ignores its cancel is ended, in a child of another session
/// and in the server itself, and the client's session goes on.
#[test]
fn ignored_cancels_end_the_work_and_the_session_goes_on() {
    let mut wrapped = Wrapped::start();
    let stray = marker();
    wrapped.call(1, "stray", &json!({"mark": stray}), None);
    let count = |mark: &str| Command::new("pgrep").args(["-f", mark]).output().unwrap().stdout;
    wait_until("the stray runs", || !count(&format!("sleep {stray}")).is_empty());
    wrapped.cancel(1);
    wait_until("the stray is gone", || count(&format!("sleep {stray}")).is_empty());
    wait_until("its receipt", || wrapped.proofs().len() == 1);
    let proof = wrapped.proofs().remove(0);
    assert!(["children_ended", "replaced", "ended"].contains(&&*proof), "{proof}");
    // ceased tells its user of each stray that it has ended.
    let said = || fs::read_to_string(wrapped.dir.path().join("stderr")).unwrap_or_default();
    wait_until("a line on stderr", || said().contains("ceased: stray was cancelled; ended "));
    wrapped.call(2, "busy", &json!({}), None);
    wrapped.call(3, "echo", &json!({"text": "beside"}), None);
    assert_eq!(wrapped.hear()["id"], 3);
    wrapped.cancel(2);
    wait_until("its receipt", || wrapped.proofs().len() == 2);
    let proof = wrapped.proofs().remove(1);
    assert!(["replaced", "ended"].contains(&&*proof), "{proof}");
    wrapped.call(4, "echo", &json!({"text": "again"}), None);
    assert_eq!(wrapped.hear()["result"]["content"][0]["text"], "again");
}

/// UPS-08: the calls of a server that dies fail at once, with its exit status and last lines, and
/// it is started again when it is needed.
#[test]
fn death_of_the_server_is_told_and_it_is_started_again() {
    let mut wrapped = Wrapped::start();
    wrapped.call(1, "die", &json!({}), None);
    let answer = wrapped.hear();
    let message = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("exit code 3") && message.contains("last words"), "{answer}");
    wrapped.call(2, "echo", &json!({"text": "back"}), None);
    assert_eq!(wrapped.hear()["result"]["content"][0]["text"], "back");
}

/// UPS-07: no process of the server is left when the client closes, nor when `ceased wrap` is
/// killed with SIGKILL.
#[test]
fn no_process_of_the_server_outlives_it() {
    for kill in [false, true] {
        let mut wrapped = Wrapped::start();
        let stray = wrapped.mark.clone();
        wrapped.call(1, "stray", &json!({"mark": stray}), None);
        let running = || Command::new("pgrep").args(["-f", &format!("sleep {stray}")]).output();
        wait_until("the stray runs", || !running().unwrap().stdout.is_empty());
        if kill {
            wrapped.child.kill().unwrap();
        } else {
            wrapped.input = None;
        }
        let _ = wrapped.child.wait();
        wait_until("no process is left", || wrapped.is_none_left());
    }
}

/// UPS-10: prompts, resources, with every page of their list, and completion reach the server and
/// come back whole.
#[test]
fn prompts_resources_and_completion_are_relayed() {
    let mut wrapped = Wrapped::start();
    let mut ask = |id: u32, method: &str, params: Value| {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        wrapped.say(&request);
        let answer = wrapped.hear();
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    };
    assert_eq!(ask(1, "prompts/list", json!({}))["prompts"], json!([{"name": "greet", "x": 2}]));
    // UPS-17: each page is the server's own.
    let mut cursor = json!({});
    for name in ["a", "b"] {
        let page = ask(2, "resources/list", cursor);
        assert_eq!(page["resources"], json!([{"uri": format!("t://{name}"), "name": name}]));
        cursor = json!({"cursor": page["nextCursor"]});
    }
    let templates = ask(3, "resources/templates/list", json!({}));
    assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "t://{x}");
    for (id, method, params) in [
        (4, "prompts/get", json!({"name": "greet", "arguments": {"a": "b"}})),
        (5, "resources/read", json!({"uri": "t://unlisted"})),
        (
            6,
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "a", "value": ""}}),
        ),
    ] {
        let seen = ask(id, method, params.clone())["seen"].clone();
        assert_eq!(seen, json!({"method": method, "params": params}));
    }
}

/// UPS-13: the server gets the variables that its user means for it, and none of the service
/// manager's.
#[test]
fn environment_of_the_server_is_as_the_options_say() {
    let environment = |options: &[&str]| {
        let mut wrapped = Wrapped::start_with(options);
        wrapped.call(1, "env", &json!({}), None);
        wrapped.hear()["result"]["structuredContent"].clone()
    };
    let all = environment(&["--env", "CEASED_TEST_SET=a=b"]);
    assert_eq!(all["CEASED_TEST_PLAIN"], "plain");
    assert_eq!(all["CEASED_TEST_SET"], "a=b");
    assert_eq!(all["NOTIFY_SOCKET"], Value::Null);
    let clean = environment(&["--clean-env", "--pass-env", "CEASED_TEST_PASSED"]);
    assert_eq!(clean["CEASED_TEST_PASSED"], "passed");
    assert_eq!(clean["CEASED_TEST_PLAIN"], Value::Null);
    assert!(clean["PATH"].is_string());
}

/// UPS-16: with `--on-ignored-cancel leave` the server is told and nothing is ended, and the
/// receipt claims no more.
#[test]
fn receipt_of_a_cancel_that_is_only_told_claims_no_end() {
    let mut wrapped = Wrapped::start_with(&["--on-ignored-cancel", "leave"]);
    let stray = wrapped.mark.clone();
    wrapped.call(1, "stray", &json!({"mark": stray}), None);
    let running =
        || Command::new("pgrep").args(["-f", &format!("sleep {stray}")]).output().unwrap();
    wait_until("the stray runs", || !running().stdout.is_empty());
    wrapped.cancel(1);
    wait_until("the receipt is written", || wrapped.proofs() == ["told"]);
    assert!(!running().stdout.is_empty());
    let audit = wrapped.audit();
    let receipt = audit.lines().find(|line| line.contains("\"proof\"")).unwrap();
    let receipt: Value = serde_json::from_str(receipt).unwrap();
    assert_eq!((&receipt["survivors"], &receipt["died_after_ms"]), (&Value::Null, &Value::Null));
    assert_ne!(receipt["held_by"], "thread", "{receipt}");
}

/// A program that is not there is an exit code and a line on standard error.
#[test]
fn missing_program_is_an_exit_code_and_a_line() {
    let ran = Command::new(ceased())
        .args(["wrap", "no-such-program", "--option"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(said.contains("cannot run \"no-such-program\", which was not found"), "{said}");
}
