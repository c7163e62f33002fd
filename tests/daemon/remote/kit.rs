//! A daemon in front of a scripted server by URL, whose requests are recorded.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use ceased_tests::daemon::{Daemon, Home, wait_until};
use serde_json::Value;

const SERVER: &str = include_str!("server.py");
const GUARDED: &str = include_str!("oauth.py");

/// A scripted server over HTTP.
pub(crate) struct Remote {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
    pub(crate) port: u64,
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Remote {
    /// Starts a server of this era with options.
    pub(crate) fn start(era: &str, options: &[&str]) -> Self {
        Self::run(&[&[SERVER, era], options].concat())
    }

    /// Starts a server that wants tokens, with its authorization server.
    pub(crate) fn guarded(options: &[&str]) -> Self {
        Self::run(&[&[GUARDED], options].concat())
    }

    fn run(script: &[&str]) -> Self {
        let mut child = Command::new("python3")
            .args(["-S", "-c"])
            .args(script)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, output) = (Arc::new(Mutex::new(Vec::new())), child.stdout.take().unwrap());
        let kept = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                kept.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        let mut remote = Self { child, lines, port: 0 };
        wait_until("the server listens", || !remote.lines.lock().unwrap().is_empty());
        remote.port = remote.lines.lock().unwrap().remove(0)["listening"].as_u64().unwrap();
        remote
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Everything that the server noted.
    pub(crate) fn notes(&self) -> Vec<Value> {
        self.lines.lock().unwrap().clone()
    }

    /// Requests with a message of this method.
    pub(crate) fn posts(&self, method: &str) -> Vec<Value> {
        self.notes().into_iter().filter(|note| note["body"]["method"] == method).collect()
    }

    /// Requests of this method of HTTP.
    pub(crate) fn requests(&self, http: &str) -> Vec<Value> {
        self.notes().into_iter().filter(|note| note["http"] == http).collect()
    }

    /// Waits for a request with this message.
    pub(crate) fn wait_for(&self, method: &str, count: usize) -> Vec<Value> {
        wait_until(method, || self.posts(method).len() >= count);
        self.posts(method)
    }

    /// Waits until the client has closed the stream of a request.
    pub(crate) fn wait_closed(&self, id: &Value) {
        wait_until("the stream is closed", || self.notes().iter().any(|it| it["closed"] == *id));
    }

    /// A daemon with this server alone; `more` is further lines of its entry.
    pub(crate) fn daemon(&self, more: &str) -> Daemon {
        self.daemon_at(&self.url(), more)
    }

    pub(crate) fn daemon_at(&self, url: &str, more: &str) -> Daemon {
        let home = Home::new();
        configure(&home, url, more);
        Daemon::start_in(home)
    }
}

/// Writes a configuration with a server by this URL and nothing else.
pub(crate) fn configure(home: &Home, url: &str, more: &str) {
    let (socket, audit) = (home.socket(), home.path().join("audit.log"));
    home.configure_as(&format!(
        "[[listen]]\ntransport = \"unix\"\npath = {socket:?}\n[log]\naudit = {audit:?}\n\
         [[server]]\nname = \"far\"\nurl = {url:?}\ncancel_grace = \"300ms\"\n{more}\n"
    ));
}

/// The proof in the record of the only cancel.
pub(crate) fn proof(daemon: &Daemon) -> String {
    proofs(daemon, 1).remove(0)
}

/// The proofs in the records of this many cancels.
pub(crate) fn proofs(daemon: &Daemon, count: usize) -> Vec<String> {
    let path = daemon.home.path().join("audit.log");
    let mut found = Vec::new();
    wait_until("the cancel is recorded", || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        found = records.filter_map(|it| it["proof"].as_str().map(str::to_owned)).collect();
        found.len() >= count
    });
    found
}

/// Writes a file that only its owner reads.
pub(crate) fn write_secret(path: &std::path::Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
