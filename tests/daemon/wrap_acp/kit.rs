//! A client of `ceased wrap --acp`, line by line.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{TIME_LIMIT, marker};
use serde_json::{Value, json};

pub(crate) const AGENT: &str = include_str!("agent.py");

/// How the agent is started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Without the supervisor.
    pub(crate) bare: bool,
    /// Declaration of the agent: `resume`, `load`, or nothing.
    pub(crate) declares: &'static str,
    /// An option of `ceased wrap`.
    pub(crate) extra: Option<&'static str>,
    /// Whether lines are read only when they are asked for.
    pub(crate) deaf: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { bare: false, declares: "resume", extra: None, deaf: false }
    }
}

pub(crate) struct Editor {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    output: Option<Receiver<String>>,
    dir: PathBuf,
    /// The directory, if it belongs to this client alone.
    _own: Option<tempfile::TempDir>,
    pub(crate) mark: String,
    sessions: u32,
}

impl Editor {
    pub(crate) fn start(options: Options) -> Self {
        let mut editor = Self::start_without_hello(options);
        editor.greet();
        editor
    }

    pub(crate) fn start_without_hello(options: Options) -> Self {
        let (dir, mark) = (tempfile::tempdir().unwrap(), marker());
        let script = dir.path().join("agent.py");
        fs::write(&script, AGENT).unwrap();
        let mut command = if options.bare {
            Command::new("python3")
        } else {
            let mut command = Command::new(ceased());
            command.args([
                "wrap",
                "--acp",
                "--cancel-grace=500ms",
                "--kill-grace=300ms",
                "--audit",
            ]);
            command
                .arg(dir.path().join("audit.jsonl"))
                .args(options.extra)
                .args(["--", "python3", "-S"]);
            command
        };
        command.arg(&script).arg(dir.path()).arg(options.declares).arg(&mark);
        let mut editor = Self::over(command, dir.path(), &mark, options.deaf);
        editor._own = Some(dir);
        editor
    }

    /// A client that starts this command. The agent, whose processes carry the mark, keeps its
    /// files in `dir`.
    pub(crate) fn over(mut command: Command, dir: &Path, mark: &str, deaf: bool) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let output = Some(lines_of(stdout, if deaf { 1 } else { 100_000 }));
        let (dir, mark) = (dir.to_owned(), mark.to_owned());
        Self { child, input, output, dir, _own: None, mark, sessions: 0 }
    }

    /// The handshake.
    pub(crate) fn greet(&mut self) {
        self.say(&json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": 1, "clientCapabilities": {}}}));
        assert_eq!(self.answer(&json!("hello"))["result"]["protocolVersion"], 1);
    }

    pub(crate) fn say_line(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.say_line(&message.to_string());
    }

    pub(crate) fn hear_line(&self) -> String {
        self.output.as_ref().unwrap().recv_timeout(TIME_LIMIT).expect("a message")
    }

    pub(crate) fn hear(&self) -> Value {
        serde_json::from_str(&self.hear_line()).unwrap()
    }

    pub(crate) fn hears_nothing_for(&self, span: Duration) -> bool {
        self.output.as_ref().unwrap().recv_timeout(span).is_err()
    }

    /// A new session.
    pub(crate) fn session(&mut self) -> String {
        self.sessions += 1;
        let id = json!(format!("session {}", self.sessions));
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "session/new", "params": {
            "cwd": "/", "mcpServers": []}}));
        self.answer(&id)["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn prompt(&mut self, id: u32, session: &str, text: &str) {
        let prompt = json!([{"type": "text", "text": text}]);
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": {
            "sessionId": session, "prompt": prompt}}));
    }

    pub(crate) fn cancel(&mut self, session: &str) {
        let params = json!({"sessionId": session});
        self.say(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
    }

    pub(crate) fn cancel_request(&mut self, id: &Value) {
        let params = json!({"requestId": id});
        self.say(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params}));
    }

    /// The answer of a request; no other request may be answered before.
    pub(crate) fn answer(&mut self, id: &Value) -> Value {
        self.updates_and_answer(id).1
    }

    pub(crate) fn updates_and_answer(&mut self, id: &Value) -> (Vec<String>, Value) {
        let mut updates = Vec::new();
        loop {
            let message = self.hear();
            if message.get("method").is_none() {
                assert_eq!(message["id"], *id, "an answer that was not awaited: {message}");
                return (updates, message);
            }
            if let Some(text) = message["params"]["update"]["content"]["text"].as_str() {
                updates.push(text.to_owned());
            }
        }
    }

    pub(crate) fn wait_for_update(&self) {
        while self.hear()["method"] != "session/update" {}
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    pub(crate) fn close_both(&mut self) {
        (self.input, self.output) = (None, None);
    }

    /// Process ids of the agents so far.
    pub(crate) fn pids(&self) -> Vec<String> {
        let pids = fs::read_to_string(self.dir.join("pids")).unwrap();
        pids.lines().map(str::to_owned).collect()
    }

    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.dir.join(name).exists()
    }

    fn receipts(&self, member: &str) -> Vec<String> {
        let audit = fs::read_to_string(self.dir.join("audit.jsonl")).unwrap_or_default();
        let records = audit.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let receipts = records.filter(|record| record["event"] == "cancel");
        receipts.filter_map(|record| Some(record[member].as_str()?.to_owned())).collect()
    }

    /// Proofs of the receipts in the audit log.
    pub(crate) fn proofs(&self) -> Vec<String> {
        self.receipts("proof")
    }

    /// Reasons of the receipts in the audit log.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.receipts("why")
    }

    pub(crate) fn is_none_left(&self) -> bool {
        let found = Command::new("pgrep").args(["-f", &self.mark]).output().unwrap();
        let own = self.child.id().to_string();
        let pids = String::from_utf8(found.stdout).unwrap();
        pids.lines().all(|pid| pid == own)
    }
}

fn lines_of(stdout: ChildStdout, capacity: usize) -> Receiver<String> {
    let (heard, output) = sync_channel(capacity);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if heard.send(line).is_err() {
                break;
            }
        }
    });
    output
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.close_both();
        let _ = self.child.wait();
    }
}
