//! The real daemon as a child process: its configuration, its life, what it says and what it holds.
//!
//! Everything waits for an event with [`PATIENCE`], which is longer than anything takes on a busy
//! machine, and never for a time.

mod home;
pub mod peer;
mod program;
mod table;

use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Uid, geteuid, kill_process};
use rustix::thread::set_thread_res_uid;
use serde_json::Value;

pub use home::{Config, Home};
pub use peer::Peer;
pub use program::{Program, Ran};
pub use rustix::process::Signal;
pub use table::{
    Vitals, assert_none_left, carriers, marker, wait_for_family, wait_until_no_group_of,
};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something holds; the text is for whoever reads the failure.
///
/// # Panics
///
/// When it does not within [`PATIENCE`].
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "in vain: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// A running `ceased serve`. Killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    /// Where it lives: its configuration, its socket, what it wrote to standard error.
    pub home: Home,
    child: Child,
    tcp: Option<SocketAddr>,
}

impl Daemon {
    /// Starts one with this configuration in a directory of its own and waits until it listens.
    #[must_use]
    pub fn start(config: &Config<'_>) -> Self {
        let home = Home::new();
        home.configure(config);
        Self::start_in(home)
    }

    /// Starts one in a directory that has its configuration and waits until it listens.
    #[must_use]
    pub fn start_in(home: Home) -> Self {
        let command = home.command(&["serve"]);
        Self::start_with(home, command)
    }

    /// Starts one by a command of [`Home::command`] and waits until it listens.
    ///
    /// # Panics
    ///
    /// When it ends instead.
    #[must_use]
    pub fn start_with(home: Home, mut command: std::process::Command) -> Self {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(home.log_path())
            .expect("the log can be written");
        let said = home.log().len();
        let child = command.stderr(log).spawn().expect("the daemon can be started");
        let mut daemon = Self { home, child, tcp: None };
        let wants_tcp = daemon.home.config_text().contains("transport = \"tcp\"");
        wait_until("the daemon listens", || {
            let log = daemon.home.log();
            let log = log.get(said..).unwrap_or_default();
            if let Ok(Some(status)) = daemon.child.try_wait() {
                panic!("the daemon ended with {status}: {log}");
            }
            daemon.tcp = log
                .lines()
                .filter_map(|line| line.split_once("listening on tcp:"))
                .find_map(|(_, address)| address.trim().parse().ok());
            log.contains("listening on unix:") && (!wants_tcp || daemon.tcp.is_some())
        });
        daemon
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Where it listens on TCP.
    ///
    /// # Panics
    ///
    /// When its configuration has no TCP listener.
    #[must_use]
    pub fn tcp_address(&self) -> SocketAddr {
        self.tcp.expect("a TCP listener")
    }

    /// A connection to its Unix socket that has said nothing yet.
    ///
    /// # Panics
    ///
    /// When it does not accept.
    #[must_use]
    pub fn connect(&self) -> Peer {
        let stream = UnixStream::connect(self.home.socket()).expect("the daemon accepts");
        Peer::of_socket(OwnedFd::from(stream))
    }

    /// A connection to its TCP socket that has said nothing yet.
    ///
    /// # Panics
    ///
    /// When it does not accept.
    #[must_use]
    pub fn connect_tcp(&self) -> Peer {
        let stream = std::net::TcpStream::connect(self.tcp_address()).expect("the daemon accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        Peer::of_socket(OwnedFd::from(stream))
    }

    /// A peer that has shaken hands.
    #[must_use]
    pub fn peer(&self) -> Peer {
        let mut peer = self.connect();
        peer.initialize();
        peer
    }

    /// A peer that has shaken hands over TCP.
    #[must_use]
    pub fn tcp_peer(&self) -> Peer {
        let mut peer = self.connect_tcp();
        peer.initialize();
        peer
    }

    /// A connection of another user that has said nothing yet; `None`, said aloud, where we may not
    /// become somebody else.
    ///
    /// # Panics
    ///
    /// When the daemon does not accept.
    #[must_use]
    pub fn connect_of(&self, uid: u32) -> Option<Peer> {
        if !geteuid().is_root() {
            eprintln!("SKIPPED, cannot become another user");
            return None;
        }
        let path = self.home.socket();
        for path in [self.home.path(), &path] {
            let open = fs::Permissions::from_mode(0o1777);
            fs::set_permissions(path, open).expect("what is our own");
        }
        // Credentials belong to a thread; this one keeps them to itself and ends with them.
        let connected = std::thread::spawn(move || {
            let uid = Uid::from_raw(uid);
            set_thread_res_uid(uid, uid, uid).expect("root can change its user");
            UnixStream::connect(path).expect("the socket is open to everybody")
        });
        Some(Peer::of_socket(connected.join().expect("it connects").into()))
    }

    /// A peer of another user that has shaken hands, as [`Daemon::connect_of`].
    #[must_use]
    pub fn peer_of(&self, uid: u32) -> Option<Peer> {
        let mut peer = self.connect_of(uid)?;
        peer.initialize();
        Some(peer)
    }

    /// What it says of itself, to a peer that leaves at once.
    #[must_use]
    pub fn status(&self) -> Value {
        self.peer().result("ceased/status", "{}")
    }

    /// What it holds.
    #[must_use]
    pub fn vitals(&self) -> Vitals {
        Vitals::of(self.pid())
    }

    /// Sends it a signal.
    ///
    /// # Panics
    ///
    /// When it was waited for already.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid()).expect("a child has an id");
        kill_process(pid, signal).expect("the daemon was not waited for yet");
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_until("the daemon ends", || {
            ended = self.child.try_wait().expect("a child can be waited for");
            ended.is_some()
        });
        ended.unwrap_or_else(|| ExitStatus::from_raw(0))
    }

    /// Kills it with SIGKILL and gives back where it lived.
    #[must_use]
    pub fn kill(mut self) -> Home {
        self.signal(Signal::KILL);
        self.wait();
        self.home.clone()
    }

    /// Waits until it has no job and no request, and nobody but the asker is connected.
    ///
    /// # Panics
    ///
    /// When that takes longer than [`PATIENCE`].
    pub fn wait_idle(&self) {
        let mut last = Value::Null;
        let until = Instant::now() + PATIENCE;
        let mut peer = self.peer();
        loop {
            let status = peer.result("ceased/status", "{}");
            let is_idle = status["jobs"].as_array().is_some_and(Vec::is_empty)
                && status["running"] == 0
                && status["queued"] == 0
                && status["cancelling"] == 0
                && status["connections"] == 1;
            if is_idle {
                return;
            }
            assert!(Instant::now() < until, "never idle: {last}");
            last = status;
            sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it has no job, whoever is connected.
    pub fn wait_until_no_job(&self) {
        let mut peer = self.peer();
        wait_until("every job is gone", || {
            let status = peer.result("ceased/status", "{}");
            status["running"] == 0 && status["queued"] == 0 && status["cancelling"] == 0
        });
    }

    /// Where its socket is.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.home.socket()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.home.log();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            eprintln!("the daemon's last words:");
            tail.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
