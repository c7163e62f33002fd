//! The daemon under a service manager: inherited sockets, notifications, the watchdog; and
//! listeners opened and closed by a reload.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

mod inherited_state;
pub(crate) mod shutdown;
mod sockets;
mod spawn;
mod spawn_lost;
mod stdio;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};

use ceased_tests::daemon::{Config, Daemon, Home, Peer, Signal, TIME_LIMIT, wait_until};

/// Two listening sockets of a service manager, and the home of the daemon that gets them.
struct Activated {
    home: Home,
    unix: UnixListener,
    tcp: TcpListener,
}

impl Activated {
    fn new(with_tcp_section: bool) -> Self {
        let home = Home::new();
        let unix = UnixListener::bind(home.socket()).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        home.configure(&Config { tools: ENVIRONMENT, ..Config::default() });
        if with_tcp_section {
            let address = tcp.local_addr().unwrap();
            home.configure_as(&format!(
                "{}\n[[listen]]\ntransport = \"tcp\"\naddress = \"{address}\"\n\
                 anonymous = \"allow\"\n",
                home.config_text()
            ));
        }
        Self { home, unix, tcp }
    }

    /// Passes both sockets as descriptors 3 and 4, after the commands in `line`.
    fn command(&self, line: &str) -> Command {
        let line = format!("{line}; exec 3<&0 4<&1 </dev/null >/dev/null");
        let mut command = self.home.command_after(&line, &["serve"]);
        command.stdin(OwnedFd::from(self.unix.try_clone().unwrap()));
        command.stdout(OwnedFd::from(self.tcp.try_clone().unwrap()));
        command
    }
}

const HANDED_OVER: &str = "export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=mcp:net";

/// A tool that prints its service manager variables and descriptors.
const ENVIRONMENT: &str = r#"
[[tool]]
name = "environment"
command = ["sh", "-c", "env | grep -c -e ^LISTEN_ -e ^NOTIFY_ -e ^WATCHDOG_; ls /proc/self/fd"]
"#;

/// Checks that no variable of the daemon itself reaches its children.
fn assert_private(daemon: &Daemon, peer: &mut Peer) {
    let call = peer.call("environment", "{}");
    let answer = peer.answer(call);
    let stdout = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(stdout.starts_with("0\n"), "{answer}");
    let open = stdout.lines().skip(1).filter(|fd| fd.parse::<u32>().unwrap() > 4).count();
    assert_eq!(open, 0, "a tool has inherited descriptors: {stdout}");
    // The keeper, if any, is a child of the daemon too.
    let children = format!("/proc/{0}/task/{0}/children", daemon.pid());
    for child in fs::read_to_string(children).unwrap_or_default().split_whitespace() {
        let environment = fs::read(format!("/proc/{child}/environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        for private in ["LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_"] {
            assert!(!environment.contains(private), "{child} has {private}: {environment}");
        }
    }
}

/// Inherited sockets are used: peers that connected before the start are served, and the socket
/// files stay at the end.
#[test]
fn inherited_sockets_are_used() {
    let given = Activated::new(true);
    let mut early = Peer::of_socket(UnixStream::connect(given.home.socket()).unwrap().into());
    let mut daemon = Daemon::start_with(given.home.clone(), given.command(HANDED_OVER));
    early.initialize();
    let mut late = daemon.peer();
    late.result("ping", "{}");
    let mut net = daemon.tcp_peer();
    assert_eq!(daemon.tcp_address(), given.tcp.local_addr().unwrap());
    net.result("ping", "{}");
    assert_private(&daemon, &mut late);

    // A reload keeps sockets that are still configured; for others the log explains why they stay.
    daemon.signal(Signal::HUP);
    wait_until("it reloads", || daemon.home.log().contains("\"reloaded\""));
    net.result("ping", "{}");
    let both = daemon.home.config_text();
    daemon.home.configure(&Config { tools: ENVIRONMENT, ..Config::default() });
    daemon.signal(Signal::HUP);
    wait_until("the log says that the socket stays", || {
        daemon.home.log().contains("still listening")
    });
    TcpStream::connect(daemon.tcp_address()).expect("the socket belongs to the service manager");

    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    let found = fs::symlink_metadata(given.home.socket())
        .expect("the socket file belongs to the service manager");
    assert!(found.file_type().is_socket());
    // The next daemon gets the same sockets.
    given.home.configure_as(&both);
    let daemon = Daemon::start_with(given.home.clone(), given.command(HANDED_OVER));
    daemon.peer().result("ping", "{}");
}

/// An inherited socket without a section would leave its peers waiting, so the daemon does not
/// start.
#[test]
fn inherited_socket_without_a_section_ends_the_start() {
    let given = Activated::new(false);
    let output = given.command(HANDED_OVER).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let address = given.tcp.local_addr().unwrap().to_string();
    assert!(said.contains("\"net\"") && said.contains(&address), "{said}");
}

/// Descriptors for another process id are ignored: the daemon binds its socket.
#[test]
fn descriptors_of_another_process_are_ignored() {
    let given = Activated::new(false);
    drop(fs::remove_file(given.home.socket()));
    let daemon =
        Daemon::start_with(given.home.clone(), given.command("export LISTEN_PID=1 LISTEN_FDS=2"));
    daemon.peer().result("ping", "{}");
}

/// The service manager's end of the notification socket.
struct Manager(UnixDatagram);

impl Manager {
    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let count = self.0.recv(&mut bytes).expect("the daemon sends a notification");
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    /// The next notification with this beginning; skips those of the watchdog.
    fn wait_for(&self, start: &str) -> String {
        loop {
            let word = self.next();
            if word.starts_with(start) {
                return word;
            }
            assert!(word.starts_with("WATCHDOG=1\n"), "{word} before {start}");
        }
    }
}

fn under(manager: &Manager, address: &str, more: &str) -> (Home, Command) {
    manager.0.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    let home = Home::new();
    home.configure(&Config { tools: ENVIRONMENT, ..Config::default() });
    let line = format!("export NOTIFY_SOCKET='{address}' {more}");
    let command = home.command_after(&line, &["serve"]);
    (home, command)
}

/// The notifications of a whole run, by path and by abstract name.
#[test]
fn service_manager_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let by_path = Manager(UnixDatagram::bind(&path).unwrap());
    let name = format!("ceased-test-manager-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    let by_name = Manager(UnixDatagram::bind_addr(&address).unwrap());
    for (manager, address) in
        [(by_path, path.to_string_lossy().into_owned()), (by_name, format!("@{name}"))]
    {
        let (home, mut command) = under(&manager, &address, "");
        let log = fs::File::create(home.log_path()).unwrap();
        let mut child = command.stderr(log).spawn().unwrap();
        assert_eq!(manager.wait_for("READY=1"), "READY=1\nSTATUS=0 connections, 0 jobs, 0 tasks");
        // The daemon accepts from that notification on, at the first try.
        let mut peer = Peer::of_socket(UnixStream::connect(home.socket()).unwrap().into());
        peer.initialize();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
        let word = manager.wait_for("RELOADING=1");
        let micros = word.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
        assert!(micros.parse::<u64>().unwrap() > 0);
        let word = manager.wait_for("READY=1");
        assert!(word.contains("STATUS=1 connections"), "{word}");
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let word = manager.wait_for("STOPPING=1");
        assert!(word.contains("EXTEND_TIMEOUT_USEC="), "{word}");
        assert!(child.wait().unwrap().success());
    }
}

/// The watchdog is fed after half its time, and not while the daemon hangs.
#[test]
fn watchdog_is_fed_unless_the_daemon_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    let (home, command) =
        under(&manager, &path.to_string_lossy(), "WATCHDOG_USEC=400000 WATCHDOG_PID=$$");
    let daemon = Daemon::start_with(home, command);
    assert_private(&daemon, &mut daemon.peer());
    manager.wait_for("READY=1");
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1\nSTATUS=");
    }
    daemon.signal(Signal::STOP);
    // Earlier notifications may be queued; after them none follows.
    manager.0.set_read_timeout(Some(std::time::Duration::from_millis(1000))).unwrap();
    let mut bytes = [0; 4096];
    let words = std::iter::from_fn(|| manager.0.recv(&mut bytes).ok()).take(10).count();
    assert!(words < 10, "a stopped daemon feeds the watchdog");
    daemon.signal(Signal::CONT);
    manager.0.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    manager.wait_for("WATCHDOG=1\nSTATUS=");
}

/// Without a watchdog, an idle daemon makes no system call.
#[test]
fn idle_daemon_makes_no_system_call() {
    let daemon = Daemon::start(&Config::default());
    daemon.peer().result("ping", "{}");
    let switches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        line.unwrap().split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    // Waits until the clean-up after the peer is done.
    wait_until("no wake-up for a second", || {
        let before = switches();
        std::thread::sleep(std::time::Duration::from_secs(1));
        switches() == before
    });
}

const TCP: &str = "[[listen]]\ntransport = \"tcp\"\nanonymous = \"allow\"\naddress = ";

/// A reload opens new listeners, changes the mode of a socket in place, and closes removed ones;
/// peers stay.
#[test]
fn reload_changes_the_listeners() {
    let daemon = Daemon::start(&Config::default());
    let home = &daemon.home;
    let plain = home.config_text();
    let mut peer = daemon.peer();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    home.configure_as(
        &format!("{plain}\n{TCP}\"{port}\"\n")
            .replace("transport = \"unix\"\n", "transport = \"unix\"\nmode = \"0660\"\n"),
    );
    daemon.signal(Signal::HUP);
    wait_until("the daemon listens on TCP", || {
        home.log().contains(&format!("listening on tcp:{port}"))
    });
    let mut net = Peer::of_socket(TcpStream::connect(port).unwrap().into());
    net.initialize();
    let mode = fs::symlink_metadata(home.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);

    home.configure_as(&plain);
    daemon.signal(Signal::HUP);
    wait_until("the TCP listener is closed", || home.log().contains("no longer listening on tcp:"));
    wait_until("connecting fails", || TcpStream::connect(port).is_err());
    net.result("ping", "{}");
    peer.result("ping", "{}");
    daemon.peer().result("ping", "{}");

    // An unusable address: no part of the reload is applied.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_address = taken.local_addr().unwrap();
    home.configure_as(&format!(
        "{}\n{TCP}\"{taken_address}\"\n",
        plain.replace("[limits]\n", "[limits]\nconnections = 7\n")
    ));
    daemon.signal(Signal::HUP);
    wait_until("the log has the reason", || home.log().contains("not reloaded"));
    assert!(home.log().contains(&taken_address.to_string()), "{}", home.log());
    assert_eq!(peer.result("ceased/status", "{}")["limits"]["connections"], 1024);
}

/// Keys that need a restart are named; the others are applied.
#[test]
fn keys_that_need_a_restart_are_named() {
    let daemon = Daemon::start(&Config::default());
    let home = &daemon.home;
    let text = home.config_text();
    let changed = text.replace("[daemon]\n", "[daemon]\nstate_dir = \"elsewhere\"\n");
    home.configure_as(&format!("{changed}\n[log]\nlevel = \"debug\"\n"));
    daemon.signal(Signal::HUP);
    wait_until("the log names the key", || {
        home.log()
            .lines()
            .any(|line| line.contains("restart of the daemon") && line.contains("state_dir"))
    });
    // The level can be changed: connections are logged at "debug" only.
    let said = home.log().len();
    daemon.peer().result("ping", "{}");
    wait_until("the log has more lines", || {
        home.log().get(said..).unwrap_or_default().contains("\"connected\"")
    });
}

/// A TCP peer with an incomplete message is closed in time; a Unix peer is not.
#[test]
fn slow_messages_close_tcp_peers_only() {
    let daemon =
        Daemon::start(&Config { limits: "frame_time = \"200ms\"", tcp: true, ..Config::default() });
    let mut near = daemon.connect();
    near.try_send(b"{\"jsonrpc\":").unwrap();
    let mut far = daemon.tcp_peer();
    far.result("ping", "{}");
    let mut slow = daemon.connect_tcp();
    slow.try_send(b"{\"jsonrpc\":").unwrap();
    assert_eq!(slow.line(), None, "the peer is closed");
    wait_until("the log names the limit", || daemon.home.log().contains("limits.frame_time"));
    far.result("ping", "{}");
    near.try_send(b"\"2.0\",\"id\":1,\"method\":\"ping\"}\n").unwrap();
    assert!(near.line().unwrap().contains("\"id\":1"));
}

/// Incomplete messages are limited in total: the peer that holds most is closed.
#[test]
fn incomplete_messages_are_limited_in_total() {
    let daemon = Daemon::start(&Config {
        limits: "message_bytes = \"64KiB\"\npartial_bytes = \"64KiB\"",
        ..Config::default()
    });
    let mut bystander = daemon.peer();
    let text = |bytes: usize| format!("{{\"x\":\"{}", "x".repeat(bytes));
    let mut most = daemon.connect();
    most.try_send(text(40 << 10).as_bytes()).unwrap();
    let mut less = daemon.connect();
    less.try_send(text(30 << 10).as_bytes()).unwrap();
    assert_eq!(most.line(), None, "the peer is closed");
    wait_until("the log names the limit", || daemon.home.log().contains("limits.partial_bytes"));
    less.try_send(b"\"}\n").unwrap();
    assert!(less.line().unwrap().contains("error"));
    bystander.result("ping", "{}");
}

/// A control group delegated to an unprivileged user, as with `Delegate=yes`: the daemon starts in
/// it, creates the groups of its jobs below, and leaves none.
#[test]
fn delegated_control_group_is_used() {
    use std::os::unix::fs::chown;
    const UID: u32 = 65_000;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let Some(mount) = mount.and_then(|line| line.split(' ').nth(4)) else {
        return eprintln!("SKIPPED: requires a cgroup2 mount");
    };
    let group = std::path::Path::new(mount).join(format!("ceased-test-{}", std::process::id()));
    if fs::create_dir(&group).is_err() {
        return eprintln!("SKIPPED: requires root and a writable cgroup2");
    }
    for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        chown(group.join(file), Some(UID), Some(UID)).expect("root can change the owner");
    }
    let home = Home::new();
    home.configure(&Config::default());
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let line = format!(
        "echo $$ >{}/cgroup.procs; exec setpriv --reuid {UID} --regid {UID} --clear-groups \"$@\"",
        group.display()
    );
    let command = home.command_after(&line, &["serve"]);
    let mut daemon = Daemon::start_with(home, command);
    let below = |name: &str| format!("{}/{name}", group.display());
    let containment = format!("a control group per job below {}", below("ceased-"));
    wait_until("the log names the containment", || daemon.home.log().contains(&containment));
    let subgroups =
        || fs::read_dir(&group).unwrap().flatten().filter(|e| e.path().is_dir()).count();
    let mark = ceased_tests::daemon::marker();
    let mut peer = daemon.peer();
    let family = peer.call("family", &format!(r#"{{"t":"{mark}"}}"#));
    peer.wait_started(&[family]);
    assert_eq!(subgroups(), 1);
    peer.cancel(family);
    wait_until("the processes are gone", || ceased_tests::daemon::carriers(&mark).is_empty());
    // After a kill, the keeper ends the processes and removes the groups.
    let family = peer.call("family", &format!(r#"{{"t":"{mark}"}}"#));
    peer.wait_started(&[family]);
    daemon.signal(Signal::KILL);
    daemon.wait();
    wait_until("the processes are gone", || ceased_tests::daemon::carriers(&mark).is_empty());
    wait_until("the control groups are removed", || subgroups() == 0);
    wait_until("the group can be removed", || fs::remove_dir(&group).is_ok());
}
