//! Servers by URL of four SDKs, in both eras: listed, called, with progress, and a cancel that reaches
//! the handler.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use ceased_tests::daemon::{Daemon, Home, Peer, wait_until};
use serde_json::{Value, json};

use crate::sdk::rmcp;

/// A server that is driven by its output: its port, and the calls that it has begun and aborted.
struct Far {
    child: Child,
    port: u64,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Far {
    fn start(mut command: Command) -> Self {
        command.env("PYTHONWARNINGS", "ignore").env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let (lines, output) = (Arc::new(Mutex::new(Vec::new())), child.stdout.take().unwrap());
        let kept = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                kept.lock().unwrap().extend(serde_json::from_str(&line).ok());
            }
        });
        let mut far = Self { child, port: 0, lines };
        wait_until("the server listens", || far.find("listening").is_some());
        far.port = far.find("listening").and_then(|port| port.as_u64()).unwrap();
        far
    }

    fn find(&self, key: &str) -> Option<Value> {
        self.lines.lock().unwrap().iter().find_map(|line| line.get(key).cloned())
    }

    fn has(&self, key: &str, mark: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line[key] == mark)
    }
}

/// A daemon with this server alone.
pub(super) fn daemon(url: &str, more: &str) -> Daemon {
    let home = Home::new();
    let (socket, audit) = (home.socket(), home.path().join("audit.log"));
    home.configure_as(&format!(
        "[[listen]]\ntransport = \"unix\"\npath = {socket:?}\n[log]\naudit = {audit:?}\n\
         [[server]]\nname = \"far\"\nurl = {url:?}\ncancel_grace = \"1s\"\n{more}\n"
    ));
    Daemon::start_in(home)
}

/// Params of a request of an era.
fn params(era: &str, params: Value) -> String {
    let mut params = params;
    if era == "modern" {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    params.to_string()
}

/// The proof in the receipt of the only cancel.
fn proof(daemon: &Daemon) -> String {
    let mut found = None;
    wait_until("the cancel has a receipt", || {
        let text = fs::read_to_string(daemon.home.path().join("audit.log")).unwrap_or_default();
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        found = records.filter_map(|it| it["proof"].as_str().map(str::to_owned)).next_back();
        found.is_some()
    });
    found.unwrap()
}

/// Lists, calls, hears progress, and cancels a call whose handler is told.
fn drive(name: &str, far: &Far, era: &str) {
    let daemon = daemon(&format!("http://127.0.0.1:{}/mcp", far.port), "");
    let mut peer: Peer = if era == "modern" { daemon.connect() } else { daemon.peer() };
    // Without those of a server whose answer is late.
    wait_until("its tools are listed", || {
        let listed = peer.result("tools/list", &params(era, json!({})));
        let listed = listed["tools"].as_array().unwrap().clone();
        let mut tools: Vec<&str> = listed.iter().filter_map(|it| it["name"].as_str()).collect();
        tools.sort_unstable();
        assert!(tools.is_empty() || tools == ["echo", "hold", "steps"], "{name} {era}: {tools:?}");
        !tools.is_empty()
    });
    let echo = json!({"name": "echo", "arguments": {"text": "ü"}});
    let told = peer.result("tools/call", &params(era, echo));
    assert_eq!(told["content"][0]["text"], "ü", "{name} {era}");
    let steps = json!({"name": "steps", "arguments": {}, "_meta": {"progressToken": "p"}});
    let id = peer.request("tools/call", &params(era, steps));
    for progress in [1, 2] {
        let note = peer.note("notifications/progress");
        assert_eq!(note["params"]["progressToken"], "p", "{name} {era}: {note}");
        assert_eq!(note["params"]["progress"].as_f64(), Some(f64::from(progress)), "{name} {era}");
    }
    assert_eq!(peer.answer(id)["result"]["content"][0]["text"], "done", "{name} {era}");
    let hold = json!({"name": "hold", "arguments": {"mark": era}});
    let id = peer.request("tools/call", &params(era, hold));
    wait_until("the call is begun", || far.has("begun", era));
    peer.cancel(id);
    wait_until("the handler is told", || far.has("aborted", era));
    // A server of the SDK for TypeScript or Rust ends no stream with a cancel.
    let proof = proof(&daemon);
    match era {
        "modern" => assert_eq!(proof, "stream_closed", "{name}"),
        _ => assert!(["answered", "told"].contains(&&*proof), "{name}: {proof}"),
    }
    let echo = json!({"name": "echo", "arguments": {"text": "still"}});
    let told = peer.result("tools/call", &params(era, echo));
    assert_eq!(told["content"][0]["text"], "still", "{name} {era}");
    assert!(!peer.has_answer(id), "CAN-08, {name} {era}");
}

/// Starts all servers at once, and drives each in both eras.
fn drive_all(servers: Vec<(&'static str, Command)>) {
    let started: Vec<_> = servers
        .into_iter()
        .map(|(name, command)| (name, thread::spawn(move || Far::start(command))))
        .collect();
    for (name, far) in started {
        let far = far.join().expect("a server");
        for era in ["session", "modern"] {
            drive(name, &far, era);
        }
    }
}

fn python(installed: &Path, kind: &str) -> Command {
    let mut command = Command::new(installed.join("venv/bin/python"));
    command.arg(super::source("http_server.py")).arg(kind);
    command
}

/// REM-01, REM-02, REM-03: servers of the SDKs for Python and TypeScript, and of FastMCP.
#[test]
fn servers_by_url_of_npm_and_pypi_hear_a_cancel() {
    let Some(installed) = super::installed() else { return };
    let mut node = Command::new("node");
    node.arg(installed.join("node/http_server.mjs"));
    drive_all(vec![
        ("typescript", node),
        ("python", python(installed, "sdk")),
        ("fastmcp", python(installed, "fastmcp")),
    ]);
}

/// REM-01, REM-02, REM-03: a server of the Rust SDK.
#[test]
fn server_by_url_of_rmcp_hears_a_cancel() {
    drive_all(vec![("rmcp", Command::new(rmcp::built("rmcp-server")))]);
}
