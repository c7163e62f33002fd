//! A daemon of the built binary, and a peer connected to its Unix socket.

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

/// Time limit of every step.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A running daemon in a directory of its own. Dropping it ends the daemon.
pub(crate) struct Daemon {
    dir: TempDir,
    child: Child,
}

impl Daemon {
    /// Starts the daemon with `config` and a Unix listener, and waits until it accepts connections.
    pub(crate) fn start(config: &str, variables: &[(&str, &str)]) -> Self {
        Self::start_in(tempfile::tempdir().expect("a directory"), config, variables)
    }

    /// As [`Daemon::start`], in an existing directory.
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
            assert!(since.elapsed() < TIME_LIMIT, "the daemon does not accept connections");
            std::thread::sleep(Duration::from_micros(200));
        }
        daemon
    }

    /// Path of the socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    /// Shuts the daemon down and returns its directory.
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
        // The process has been reaped; its pid may be reused.
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

/// An initialized connection.
pub(crate) struct Peer {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    next: u64,
    /// Results that arrived before they were requested.
    early: BTreeMap<u64, Value>,
}

impl Peer {
    /// Connects and initializes.
    pub(crate) fn connect(daemon: &Daemon) -> Self {
        let writer = UnixStream::connect(daemon.socket()).expect("it accepts");
        writer.set_read_timeout(Some(TIME_LIMIT)).expect("a socket");
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

    /// Sends a request and waits for its result.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Calls a tool as a task and returns the task's id.
    pub(crate) fn create(&mut self, tool: &str) -> String {
        let params = json!({"name": tool, "arguments": {}, "task": {"ttl": 600_000}});
        let created = self.request("tools/call", params);
        created["task"]["taskId"].as_str().expect("a task").to_owned()
    }

    /// Waits for the result with this id, and stores others.
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

/// The median and the 99th percentile in microseconds.
pub(crate) fn shown(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
    format!("p50 {:>6} us   p99 {:>6} us", at(50), at(99))
}
