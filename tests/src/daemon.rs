//! The real daemon as a child process: its configuration, life cycle, output and resources.
//!
//! Every wait is for an event and bounded by [`TIME_LIMIT`], which is generous for a busy machine.

mod home;
pub mod http;
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

/// Bound of every wait, generous for a busy machine.
pub const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Waits until a condition holds; the text describes it in the failure.
///
/// # Panics
///
/// When the condition does not hold within [`TIME_LIMIT`].
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIME_LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "in vain: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// A running `ceased serve`. Killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    /// Directory with its configuration, socket and log.
    pub home: Home,
    child: Child,
    tcp: Option<SocketAddr>,
}

impl Daemon {
    /// Starts a daemon with this configuration in a new directory and waits until it listens.
    #[must_use]
    pub fn start(config: &Config<'_>) -> Self {
        let home = Home::new();
        home.configure(config);
        Self::start_in(home)
    }

    /// Starts a daemon in a directory with a configuration and waits until it listens.
    #[must_use]
    pub fn start_in(home: Home) -> Self {
        let command = home.command(&["serve"]);
        Self::start_with(home, command)
    }

    /// Starts a daemon with a command of [`Home::command`] and waits until it listens.
    ///
    /// # Panics
    ///
    /// When the daemon exits instead.
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

    /// Process id of the daemon.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Address of the first HTTP listener over TCP.
    ///
    /// # Panics
    ///
    /// When the configuration has none.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        let mut address = None;
        wait_until("the daemon listens for HTTP", || {
            let log = self.home.log();
            let listens = log.lines().filter_map(|line| line.split_once("listening on tcp:"));
            address = listens
                .filter_map(|(_, address)| address.strip_suffix(" (http)")?.parse().ok())
                .next_back();
            address.is_some()
        });
        address.expect("an address")
    }

    /// TCP address of the daemon.
    ///
    /// # Panics
    ///
    /// When the configuration has no TCP listener.
    #[must_use]
    pub fn tcp_address(&self) -> SocketAddr {
        self.tcp.expect("a TCP listener")
    }

    /// A new connection to the Unix socket.
    ///
    /// # Panics
    ///
    /// When the daemon does not accept.
    #[must_use]
    pub fn connect(&self) -> Peer {
        let stream = UnixStream::connect(self.home.socket()).expect("the daemon accepts");
        Peer::of_socket(OwnedFd::from(stream))
    }

    /// A new connection to the TCP socket.
    ///
    /// # Panics
    ///
    /// When the daemon does not accept.
    #[must_use]
    pub fn connect_tcp(&self) -> Peer {
        let stream = std::net::TcpStream::connect(self.tcp_address()).expect("the daemon accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        Peer::of_socket(OwnedFd::from(stream))
    }

    /// A peer after the handshake.
    #[must_use]
    pub fn peer(&self) -> Peer {
        let mut peer = self.connect();
        peer.initialize();
        peer
    }

    /// A TCP peer after the handshake.
    #[must_use]
    pub fn tcp_peer(&self) -> Peer {
        let mut peer = self.connect_tcp();
        peer.initialize();
        peer
    }

    /// A new connection of another user; `None` with a printed line if this process may not change
    /// its user.
    ///
    /// # Panics
    ///
    /// When the daemon does not accept.
    #[must_use]
    pub fn connect_of(&self, uid: u32) -> Option<Peer> {
        if !geteuid().is_root() {
            eprintln!("SKIPPED: cannot become another user");
            return None;
        }
        let path = self.home.socket();
        for path in [self.home.path(), &path] {
            let open = fs::Permissions::from_mode(0o1777);
            fs::set_permissions(path, open).expect("the home directory is ours");
        }
        // Credentials belong to a thread, so a temporary thread changes them.
        let connected = std::thread::spawn(move || {
            let uid = Uid::from_raw(uid);
            set_thread_res_uid(uid, uid, uid).expect("root can change its user");
            UnixStream::connect(path).expect("the socket is open to every user")
        });
        Some(Peer::of_socket(connected.join().expect("it connects").into()))
    }

    /// A peer of another user after the handshake, as [`Daemon::connect_of`].
    #[must_use]
    pub fn peer_of(&self, uid: u32) -> Option<Peer> {
        let mut peer = self.connect_of(uid)?;
        peer.initialize();
        Some(peer)
    }

    /// The daemon's status, requested by a temporary peer.
    #[must_use]
    pub fn status(&self) -> Value {
        self.peer().result("ceased/status", "{}")
    }

    /// Resources of the daemon process.
    #[must_use]
    pub fn vitals(&self) -> Vitals {
        Vitals::of(self.pid())
    }

    /// Sends a signal to the daemon.
    ///
    /// # Panics
    ///
    /// When the daemon was already waited for.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid()).expect("a child has an id");
        kill_process(pid, signal).expect("the daemon is not yet waited for");
    }

    /// Waits until the daemon exits.
    pub fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_until("the daemon ends", || {
            ended = self.child.try_wait().expect("a child can be waited for");
            ended.is_some()
        });
        ended.unwrap_or_else(|| ExitStatus::from_raw(0))
    }

    /// Kills the daemon with SIGKILL and returns its directory.
    #[must_use]
    pub fn kill(mut self) -> Home {
        self.signal(Signal::KILL);
        self.wait();
        self.home.clone()
    }

    /// Waits until the daemon has no job, no request and no connection but this one.
    ///
    /// # Panics
    ///
    /// When that takes longer than [`TIME_LIMIT`].
    pub fn wait_idle(&self) {
        let mut last = Value::Null;
        let until = Instant::now() + TIME_LIMIT;
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

    /// Waits until the daemon has no job, whatever is connected.
    pub fn wait_until_no_job(&self) {
        let mut peer = self.peer();
        wait_until("every job is gone", || {
            let status = peer.result("ceased/status", "{}");
            status["running"] == 0 && status["queued"] == 0 && status["cancelling"] == 0
        });
    }

    /// Path of the Unix socket.
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
            eprintln!("end of the daemon's log:");
            tail.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
        // The daemon may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
