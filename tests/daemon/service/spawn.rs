//! `ceased connect --spawn`: one daemon for any number of clients, visible errors, exit when idle;
//! and `connect` at the end of its input.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ceased_tests::daemon::{Config, Daemon, Home, Peer, Program, Signal, peer, wait_until};
use rustix::process::{Pid, kill_process, test_kill_process};
use serde_json::Value;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#;

/// A home for a spawned daemon, which ends with it.
struct Nest(Home);

impl Nest {
    fn new() -> Self {
        let home = Home::new();
        home.configure(&Config::default());
        Self(home)
    }

    /// Runs `connect` with these arguments; only the configuration names the socket.
    fn connect(&self, args: &[&str]) -> Child {
        let mut command: Command = self.0.command(&["connect"]);
        command.args(args).env("HOME", self.0.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary can be started")
    }

    /// Process id of the daemon, from its lock.
    fn daemon(&self) -> Option<Pid> {
        let lock = fs::read_to_string(self.0.path().join("d.sock.lock")).ok()?;
        Pid::from_raw(lock.trim().parse().ok()?)
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        if let Some(pid) = self.daemon() {
            // The daemon may have exited already.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Number of `serve` processes with this home in their command line.
fn daemons(home: &Home) -> usize {
    let marker = home.path().to_string_lossy().into_owned();
    let entries = fs::read_dir("/proc").expect("proc").flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| line.contains(&marker) && line.contains("\0serve\0"))
        .count()
}

/// Sends initialize and closes the input; returns the answers, standard error and the exit code.
fn hello(mut child: Child) -> (Vec<Value>, String, Option<i32>) {
    child.stdin.take().unwrap().write_all(HELLO.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (answers, String::from_utf8(output.stderr).unwrap(), output.status.code())
}

/// Twenty clients at once: one daemon, every client is answered, and one reports the start.
#[test]
fn twenty_at_once_start_one() {
    let nest = Nest::new();
    let children: Vec<Child> =
        (0..20).map(|_| nest.connect(&["--spawn", "--eof-grace", "30s"])).collect();
    let hellos: Vec<_> = children.into_iter().map(|child| thread::spawn(|| hello(child))).collect();
    let mut starters = 0;
    for hello in hellos {
        let (answers, said, code) = hello.join().unwrap();
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(answers.first().expect("an answer")["id"], 1, "{said}");
        starters += usize::from(said.contains("started one"));
    }
    assert_eq!(starters, 1);
    assert_eq!(daemons(&nest.0), 1);
    let log = fs::read_to_string(nest.0.path().join("d.sock.log")).unwrap();
    assert_eq!(log.matches("listening on unix:").count(), 1, "{log}");

    // The daemon has its own session and no descriptor of the client.
    let pid = nest.daemon().expect("the lock names the daemon");
    assert_eq!(rustix::process::getsid(Some(pid)).unwrap(), pid);
    let directory = fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero())).unwrap();
    assert_eq!(directory, nest.0.path().canonicalize().unwrap());

    // Later clients find the daemon, and start a new one after its end.
    let (answers, said, _) = hello(nest.connect(&["--spawn"]));
    assert_eq!((answers.len(), said.as_str()), (1, ""));
    kill_process(pid, Signal::TERM).unwrap();
    wait_until("it ends", || test_kill_process(pid).is_err());
    let (answers, said, _) = hello(nest.connect(&["--spawn"]));
    assert_eq!(answers.len(), 1);
    assert!(said.contains("started one"), "{said}");
    // The log of the previous daemon is kept in a separate file.
    let before = fs::read_to_string(nest.0.path().join("d.sock.log.1")).unwrap();
    let log = fs::read_to_string(nest.0.path().join("d.sock.log")).unwrap();
    assert!(before.contains("shutting down") && !log.contains("shutting down"), "{before}{log}");
}

/// A daemon with TCP listeners only has no socket to wait for: the command says so and starts none.
#[test]
fn configuration_without_a_unix_socket_spawns_no_daemon() {
    let home = Home::new();
    let tcp = "[[listen]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:0\"\nanonymous = \"allow\"\n";
    home.configure_as(tcp);
    let mut command = home.command(&["connect", "--spawn"]);
    command.env("HOME", home.path()).env("XDG_RUNTIME_DIR", home.path());
    let ran = Program::start(&home, command).wait();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("config.toml") && ran.err.contains("transport = \"unix\""), "{ran:?}");
    assert!(!ran.err.contains("started"), "{ran:?}");
}

/// A daemon that shuts down has removed its socket but keeps its state directory until its jobs
/// have ended: a new client waits for that and starts its own.
#[test]
fn client_waits_for_the_end_of_the_last_daemon() {
    const STUBBORN: &str = r#"
        [[tool]]
        name = "stubborn"
        run_as = "daemon"
        command = ["sh", "-c", "trap '' TERM; echo 1/1 >&3; sleep 60 & wait"]
        kill_grace = "4s"
    "#;
    let nest = Nest::new();
    nest.0.configure(&Config { tools: STUBBORN, ..Config::default() });
    let (_, said, code) = hello(nest.connect(&["--spawn"]));
    assert_eq!(code, Some(0), "{said}");
    let mut peer = Peer::of_socket(UnixStream::connect(nest.0.socket()).unwrap().into());
    peer.initialize();
    let call = peer.call("stubborn", "{}");
    peer.wait_started(&[call]);
    kill_process(nest.daemon().expect("its lock"), Signal::TERM).unwrap();
    wait_until("the socket is removed", || !nest.0.socket().exists());
    let (answers, said, code) = hello(nest.connect(&["--spawn", "--eof-grace", "30s"]));
    assert_eq!((answers.len(), code), (1, Some(0)), "{said}");
    // On a slow machine the daemon may be gone already.
    assert!(said.matches("waiting for its exit").count() <= 1, "{said}");
    wait_until("one daemon runs", || daemons(&nest.0) == 1);
}

/// The log of a spawned daemon is rotated: the current and the previous file are kept, and errors
/// during the rotation are in one of them.
#[test]
fn log_of_a_spawned_daemon_is_rotated() {
    const MOST: u64 = 1 << 20;
    let nest = Nest::new();
    nest.0.configure_as(&format!("{}\n[log]\nlevel = \"trace\"\n", nest.0.config_text()));
    let (answers, said, _) = hello(nest.connect(&["--spawn"]));
    assert_eq!(answers.len(), 1, "{said}");
    let [log, before] = ["d.sock.log", "d.sock.log.1"].map(|name| nest.0.path().join(name));
    let size = |path: &std::path::Path| fs::metadata(path).map_or(0, |found| found.len());
    let comes = || drop(UnixStream::connect(nest.0.socket()).unwrap());
    let mut renewed = 0;
    let mut first = None;
    wait_until("two rotations", || {
        (0..200).for_each(|_| comes());
        let found =
            fs::metadata(&before).ok().map(|found| std::os::unix::fs::MetadataExt::ino(&found));
        if found != first {
            (first, renewed) = (found, renewed + 1);
        }
        assert!(size(&log) + size(&before) < 2 * MOST + (64 << 10), "it grows");
        renewed == 2
    });
    assert!(size(&before) >= MOST);
    let pid = nest.daemon().expect("its lock");
    // The log may be rotated at this moment.
    wait_until("standard error goes to the log", || {
        let stderr = fs::read_link(format!("/proc/{}/fd/2", pid.as_raw_nonzero())).unwrap();
        log.canonicalize().is_ok_and(|log| log == stderr)
    });
    // A removed log is created again, instead of writing to a deleted file.
    wait_until("the log is removed", || fs::remove_file(&log).is_ok());
    wait_until("the log exists again", || {
        (0..200).for_each(|_| comes());
        log.exists()
    });
}

/// A failed start prints its reason on the client's standard error.
#[test]
fn failed_start_prints_its_reason() {
    let nest = Nest::new();
    fs::write(nest.0.socket(), "mine").unwrap();
    let (answers, said, code) = hello_lenient(nest.connect(&["--spawn"]));
    assert_eq!((answers, code), (String::new(), Some(3)), "{said}");
    assert!(said.contains("a regular file"), "{said}");
    fs::remove_file(nest.0.socket()).unwrap();

    nest.0.configure_as("[daemon]\nworkerz = 3\n");
    let (_, said, code) = hello_lenient(nest.connect(&["--spawn"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("workers"), "{said}");
    assert_eq!(said.matches("workerz").count(), 1, "it is told once: {said}");
    // The configuration names the socket of a spawned daemon.
    let (_, said, code) = hello_lenient(nest.connect(&["--spawn", "--socket", "/nowhere"]));
    assert_eq!(code, Some(2), "{said}");
}

/// As [`hello`], for a program that may not read its input.
fn hello_lenient(mut child: Child) -> (String, String, Option<i32>) {
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

/// An idle daemon exits; one that keeps a result does not.
#[test]
fn idle_daemon_exits_after_its_last_task() {
    let home = Home::new();
    home.configure(&Config::default());
    let command = home.command(&["serve", "--idle-exit", "300ms"]);
    let mut daemon = Daemon::start_with(home, command);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!daemon.socket().exists());

    let home = Home::new();
    home.configure(&Config {
        daemon: "store = \"memory\"",
        tasks: "default_ttl = \"3s\"",
        ..Config::default()
    });
    let command = home.command(&["serve", "--idle-exit", "100ms"]);
    let mut daemon = Daemon::start_with(home, command);
    let mut peer = daemon.peer();
    let task = peer.create_task("sleep", r#"{"ms":1}"#);
    drop(peer);
    thread::sleep(Duration::from_secs(1));
    let mut peer = daemon.peer();
    peer.result("tasks/result", &format!("{{\"taskId\":\"{task}\"}}"));
    drop(peer);
    assert_eq!(daemon.wait().code(), Some(0), "the daemon ends with the ttl of its last task");
}

/// After the end of its input, `connect` waits for answers for the time of its option or of the
/// configuration.
#[test]
fn connect_waits_for_answers_after_the_end_of_input() {
    let slow = format!("{HELLO}{}", peer::call(2, "sleep", r#"{"ms":1500}"#, ""));
    let waited = |daemon: &Daemon, args: &[&str]| {
        let mut command = daemon.home.command(&["connect"]);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(slow.as_bytes()).unwrap();
        stdin.write_all(b"\n").unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        // Without a grace period, `initialize` may or may not be answered.
        let told = String::from_utf8(output.stdout).unwrap();
        told.lines().any(|line| line.contains(r#""id":2"#))
    };
    let daemon = Daemon::start(&Config { daemon: "eof_grace = \"20s\"", ..Config::default() });
    assert!(waited(&daemon, &[]), "by the configuration");
    assert!(!waited(&daemon, &["--eof-grace", "0s"]), "by the option");
    let daemon = Daemon::start(&Config::default());
    assert!(waited(&daemon, &["--eof-grace", "20s"]), "by the option");
}

/// An unwritable standard output is reported as an error.
#[test]
fn full_standard_output_is_an_error() {
    let home = Home::new();
    home.configure(&Config::default());
    let mut command = home.command(&["stdio"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child =
        command.stdin(Stdio::piped()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(HELLO.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left"), "{said}");
    drop(stdin);
}
