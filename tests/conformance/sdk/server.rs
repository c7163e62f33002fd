//! A client's server: the binary, its configuration, and a daemon if needed.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use ceased_tests::binary;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::processes::{self, MARK_VARIABLE};

/// Tools of most clients.
pub(crate) const TOOLS: &str = include_str!("tools.toml");
const START_WITHIN: Duration = Duration::from_secs(20);
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// The client's connection to the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// `ceased stdio`: the server runs in the process that the client starts.
    Stdio,
    /// `ceased connect`: a bridge to a running `ceased serve`.
    Connect,
}

/// Parameters of a reload test.
#[derive(Debug, Serialize)]
pub(crate) struct Reload {
    /// Process id of the daemon.
    pid: u32,
    /// Configuration file of the daemon.
    config: PathBuf,
    /// File to copy over the configuration: the tool `newcomer` instead of `count`.
    next: PathBuf,
}

/// A running server, or the command that starts one.
#[derive(Debug)]
pub(crate) struct Server {
    /// Command that the client runs.
    pub(crate) command: Vec<String>,
    daemon: Option<(Child, Reload)>,
}

impl Server {
    /// Prepares a server in a folder.
    pub(crate) fn start(way: Way, folder: &Path, mark: &str, tools: &str) -> Self {
        let binary = text(binary::ceased());
        let config = folder.join("config.toml");
        let socket = folder.join("ceased.sock");
        let next = folder.join("next.toml");
        write(&config, &configuration(way, folder, &socket, tools));
        write(&next, &configuration(way, folder, &socket, &reloaded(tools)));
        if way == Way::Stdio {
            let command = vec![binary, "stdio".into(), "--config".into(), text(&config)];
            return Self { command, daemon: None };
        }
        let mut serve = Command::new(&binary);
        serve.args(["serve", "--config"]).arg(&config).env(MARK_VARIABLE, mark);
        let log = folder.join("daemon.log");
        let mut daemon = processes::start(&mut serve, &log).unwrap_or_else(|why| panic!("{why}"));
        processes::until(START_WITHIN, || {
            let ended = daemon.try_wait().expect("a child can be waited for");
            assert_eq!(ended, None, "the daemon ended: {}", read(&log));
            UnixStream::connect(&socket).ok()
        })
        .unwrap_or_else(|| panic!("the daemon does not listen: {}", read(&log)));
        let reload = Reload { pid: daemon.id(), config, next };
        let command = vec![binary, "connect".into(), "--socket".into(), text(&socket)];
        Self { command, daemon: Some((daemon, reload)) }
    }

    /// Parameters of a reload test, if this server can reload.
    pub(crate) fn reload(&self) -> Option<&Reload> {
        self.daemon.as_ref().map(|(_, reload)| reload)
    }

    /// Ends the daemon with SIGTERM, as a service manager does.
    pub(crate) fn stop(self) {
        let Some((daemon, _)) = self.daemon else { return };
        let pid = Pid::from_child(&daemon);
        kill_process(pid, Signal::TERM).expect("the daemon is there to be ended");
        let status = processes::wait(daemon, STOP_WITHIN).expect("the daemon ends on SIGTERM");
        assert!(status.success(), "the daemon ended with {status}");
    }
}

/// A complete configuration with these tools.
fn configuration(way: Way, folder: &Path, socket: &Path, tools: &str) -> String {
    let daemon = format!("[daemon]\nstate_dir = {:?}\n", folder.join("state"));
    let tasks = "[tasks]\npoll_interval = \"100ms\"\npage_size = 2\n";
    let listen = match way {
        Way::Stdio => String::new(),
        Way::Connect => format!("[[listen]]\ntransport = \"unix\"\npath = {socket:?}\n"),
    };
    format!("{daemon}\n{tasks}\n{listen}\n{tools}")
}

/// The tools without `count` and with a `newcomer`.
fn reloaded(tools: &str) -> String {
    let mut config: toml::Table = tools.parse().expect("the tools are TOML");
    let tools = config.get_mut("tool").and_then(toml::Value::as_array_mut).expect("it has tools");
    tools.retain(|tool| tool.get("name").and_then(toml::Value::as_str) != Some("count"));
    let newcomer = "name = \"newcomer\"\ncommand = [\"echo\", \"new\"]";
    tools.push(newcomer.parse::<toml::Table>().expect("this is TOML").into());
    toml::to_string(&config).expect("the changed table is TOML")
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("the paths of a test are UTF-8").to_owned()
}

/// Text of a file; empty if it is missing.
pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

pub(crate) fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
}
