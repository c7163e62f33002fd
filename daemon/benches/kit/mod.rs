//! A daemon of the built binary, and a peer that speaks to it over its Unix socket.

#![allow(dead_code, reason = "each benchmark needs another part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running daemon in a directory of its own. Ended when it is dropped.
pub(crate) struct Daemon {
    dir: TempDir,
    child: Child,
}

impl Daemon {
    /// Starts it; `config` follows a Unix listener. Waits until it accepts.
    pub(crate) fn start(config: &str, variables: &[(&str, &str)]) -> Self {
        Self::start_in(tempfile::tempdir().expect("a directory"), config, variables)
    }

    /// As [`Daemon::start`], in a directory that has something in it.
    pub(crate) fn start_in(dir: TempDir, config: &str, variables: &[(&str, &str)]) -> Self {
        let listen =
            format!("[[listen]]\ntransport = \"unix\"\npath = {:?}\n", dir.path().join("s"));
        let path = dir.path().join("config.toml");
        fs::write(&path, format!("{config}\n{listen}")).expect("a file");
        let _ = fs::remove_file(dir.path().join("s"));
        let child = Command::new(env!("CARGO_BIN_EXE_ceased"))
            .args(["serve", "--config"])
            .arg(&path)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(fs::File::create(dir.path().join("log")).expect("a file"))
            .spawn()
            .expect("the daemon starts");
        let daemon = Self { dir, child };
        let since = Instant::now();
        while UnixStream::connect(daemon.socket()).is_err() {
            assert!(since.elapsed() < PATIENCE, "it does not accept");
            std::thread::sleep(Duration::from_micros(200));
        }
        daemon
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    /// Its directory, after it has ended in good order.
    pub(crate) fn into_dir(mut self) -> TempDir {
        self.end();
        std::mem::replace(&mut self.dir, tempfile::tempdir().expect("a directory"))
    }

    /// A number of `/proc/<pid>/status`.
    pub(crate) fn status(&self, key: &str) -> usize {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let text = text.expect("it is alive");
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
        line.split_whitespace().find_map(|word| word.parse().ok()).expect("a number")
    }

    fn end(&mut self) {
        // Its number may be another's by now.
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").arg(pid).status();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connection that has been initialized.
pub(crate) struct Peer {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    next: u64,
    /// Results that came before they were asked about.
    early: BTreeMap<u64, Value>,
}

impl Peer {
    /// Connects and initializes.
    pub(crate) fn connect(daemon: &Daemon) -> Self {
        let writer = UnixStream::connect(daemon.socket()).expect("it accepts");
        writer.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let reader = BufReader::new(writer.try_clone().expect("a descriptor"));
        let mut peer = Self { reader, writer, next: 1, early: BTreeMap::new() };
        let info = json!({"name": "bench", "version": "1"});
        peer.request(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}),
        );
        peer.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        peer
    }

    /// A request and its answer; the result.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// A request; its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// A tool call as a task; the task's id.
    pub(crate) fn create(&mut self, tool: &str) -> String {
        let params = json!({"name": tool, "arguments": {}, "task": {"ttl": 600_000}});
        let created = self.request("tools/call", params);
        created["task"]["taskId"].as_str().expect("a task").to_owned()
    }

    /// The result with this id, whatever comes before it.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(result) = self.early.remove(&id) {
                return result;
            }
            let mut line = String::new();
            self.reader.read_line(&mut line).expect("an answer");
            let message: Value = serde_json::from_str(&line).expect("a message");
            if let Some(id) = message["id"].as_u64() {
                assert!(message.get("result").is_some(), "{line}");
                self.early.insert(id, message["result"].clone());
            }
        }
    }

    fn write(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.writer.write_all(line.as_bytes()).expect("it reads");
    }
}

/// The middle and the 99th of a hundred, in microseconds.
pub(crate) fn shown(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
    format!("p50 {:>6} us   p99 {:>6} us", at(50), at(99))
}
