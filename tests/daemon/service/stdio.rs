//! `ceased stdio` and `ceased connect`: one peer on standard streams of every kind.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ceased_tests::daemon::peer::{call, request};
use ceased_tests::daemon::{
    Config, Daemon, Home, Peer, Signal, assert_none_left, carriers, marker, wait_until,
};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, kill_process};

const HELLO: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"kit","version":"0"}}"#;

fn home(daemon: &str) -> Home {
    let home = Home::new();
    home.configure(&Config { daemon, ..Config::default() });
    home
}

fn with(mark: &str) -> String {
    format!(r#"{{"t":"{mark}"}}"#)
}

/// A child that is killed when the test ends.
struct Served(Child);

impl Served {
    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("it ends", || {
            status = self.0.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("the child has ended")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, signal).expect("the child is not yet waited for");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The binary between two pipes, a peer at their other ends, and copies of the binary's ends to
/// check their modes.
struct Piped {
    served: Served,
    peer: Peer,
    theirs: Vec<OwnedFd>,
}

fn piped(home: &Home, args: &[&str]) -> Piped {
    let (stdin, input) = std::io::pipe().expect("a pipe");
    let (output, stdout) = std::io::pipe().expect("a pipe");
    let theirs = vec![
        OwnedFd::from(stdin.try_clone().expect("a descriptor")),
        OwnedFd::from(stdout.try_clone().expect("a descriptor")),
    ];
    let log = File::create(home.log_path()).expect("a file");
    let child = home.command(args).stdin(stdin).stdout(stdout).stderr(log).spawn();
    let peer = Peer::of_pipes(output.into(), input.into());
    Piped { served: Served(child.expect("the binary starts")), peer, theirs }
}

fn is_blocking(fd: &OwnedFd) -> bool {
    !fcntl_getfl(fd).expect("an open descriptor").contains(OFlags::NONBLOCK)
}

/// The usual case: answers, end of input, exit code 0; the pipes keep their mode.
#[test]
fn session_runs_over_pipes() {
    let home = home("");
    let Piped { mut served, mut peer, theirs } = piped(&home, &["stdio"]);
    peer.initialize();
    let tools = peer.result("tools/list", "{}");
    assert!(tools["tools"].as_array().is_some_and(|tools| tools.len() >= 5));
    assert!(theirs.iter().all(is_blocking), "a pipe shared with the parent became non-blocking");
    drop(theirs);
    // Requests before the end of input are answered after it.
    let asked: Vec<u64> =
        (0..20).map(|n| peer.call("echo", &format!(r#"{{"text":"{n}"}}"#))).collect();
    let last = peer.request("ping", "{}");
    peer.finish();
    for id in asked {
        assert!(peer.answer(id)["result"].is_object());
    }
    assert!(peer.answer(last)["result"].is_object());
    assert!(peer.rest().is_empty());
    assert_eq!(served.wait().code(), Some(0));
    // Hosts show the standard error of a server as its errors.
    let said = home.log();
    assert!(!said.contains("INFO") && !said.contains("DEBUG"), "{said}");
}

/// One socket for both directions, as with some hosts.
#[test]
fn session_runs_over_a_socket_pair() {
    let home = home("");
    let (ours, theirs) = UnixStream::pair().unwrap();
    let copy = OwnedFd::from(theirs.try_clone().unwrap());
    let child = home
        .command(&["stdio"])
        .stdin(OwnedFd::from(theirs.try_clone().unwrap()))
        .stdout(OwnedFd::from(theirs))
        .stderr(Stdio::null())
        .spawn();
    let mut served = Served(child.unwrap());
    let mut peer = Peer::of_socket(ours.into());
    peer.initialize();
    assert_eq!(peer.result("ping", "{}"), serde_json::json!({}));
    assert!(is_blocking(&copy), "a socket shared with the parent became non-blocking");
    drop(copy);
    let count = peer.call("count", r#"{"n":5}"#);
    peer.finish();
    assert_eq!(peer.answer(count)["result"]["content"][0]["text"], "1\n2\n3\n4\n5\n");
    assert!(peer.rest().iter().all(|message| message["id"].is_null()));
    assert_eq!(served.wait().code(), Some(0));
}

/// A session from a file to a file.
#[test]
fn session_runs_from_file_to_file() {
    let home = home("");
    let (script, said) = (home.path().join("script"), home.path().join("said"));
    let lines = [request(1, "initialize", HELLO), call(2, "echo", r#"{"text":"filed"}"#, "")];
    fs::write(&script, lines.join("\n") + "\n").unwrap();
    let child = home
        .command(&["stdio"])
        .stdin(File::open(&script).unwrap())
        .stdout(File::create(&said).unwrap())
        .stderr(Stdio::null())
        .spawn();
    assert_eq!(Served(child.unwrap()).wait().code(), Some(0));
    let said = fs::read_to_string(&said).unwrap();
    let answers: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 2, "{said}");
    assert_eq!(answers[0]["id"], 1);
    assert_eq!(answers[1]["result"]["content"][0]["text"], "filed");
}

#[test]
fn empty_input_ends_successfully() {
    let home = home("");
    let output = home.command(&["stdio"]).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty());
}

/// STOP-01 when a host ends: jobs that still run after `eof_grace` are stopped.
#[test]
fn end_of_input_stops_jobs_after_the_grace_period() {
    let home = home("eof_grace = \"100ms\"\nshutdown_grace = \"8s\"");
    let (plain, durable) = (marker(), marker());
    let Piped { mut served, mut peer, theirs } = piped(&home, &["stdio"]);
    drop(theirs);
    peer.initialize();
    let family = peer.call("family", &with(&plain));
    peer.wait_started(&[family]);
    peer.create_task("family", &with(&durable));
    wait_until("the task runs", || !carriers(&durable).is_empty());
    let start = Instant::now();
    peer.finish();
    assert_eq!(served.wait().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    assert_none_left(&plain);
    assert_none_left(&durable);
}

/// A job that ends within `eof_grace` is answered.
#[test]
fn jobs_within_the_grace_period_are_answered() {
    let home = home("eof_grace = \"20s\"");
    let Piped { mut served, mut peer, theirs } = piped(&home, &["stdio"]);
    drop(theirs);
    peer.initialize();
    let sleep = peer.call("sleep", r#"{"ms":300}"#);
    let start = Instant::now();
    peer.finish();
    assert_eq!(peer.answer(sleep)["result"]["content"][0]["text"], "slept 300 ms");
    assert_eq!(served.wait().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(15), "the exit waited without a reason");
}

/// A host that stops reading but keeps its writing end open counts as disconnected.
#[test]
fn host_that_closes_its_reading_end_ends_the_session() {
    let home = home("");
    let mark = marker();
    let (stdin, mut input) = std::io::pipe().unwrap();
    let (output, stdout) = std::io::pipe().unwrap();
    let child = home.command(&["stdio"]).stdin(stdin).stdout(stdout).stderr(Stdio::null()).spawn();
    let mut served = Served(child.unwrap());
    let hello = request(1, "initialize", HELLO);
    writeln!(input, "{hello}\n{}", call(2, "family", &with(&mark), "")).unwrap();
    wait_until("the processes run", || carriers(&mark).len() >= 3);
    drop(output);
    assert_eq!(served.wait().code(), Some(0));
    assert_none_left(&mark);
    drop(input);
}

/// SIGTERM: every request is answered, every process is gone.
#[test]
fn sigterm_answers_and_stops_everything() {
    let home = home("shutdown_grace = \"8s\"");
    let mark = marker();
    let Piped { mut served, mut peer, theirs } = piped(&home, &["stdio"]);
    drop(theirs);
    peer.initialize();
    let family = peer.call("family", &with(&mark));
    peer.wait_started(&[family]);
    served.signal(Signal::TERM);
    assert_eq!(peer.answer(family)["error"]["code"], -31005);
    assert!(peer.rest().iter().all(|message| message["id"].is_null()));
    assert_eq!(served.wait().code(), Some(0));
    assert_none_left(&mark);
}

/// SIGKILL: the tools end too.
#[test]
fn tools_end_with_a_killed_program() {
    let home = home("");
    let mark = marker();
    let Piped { mut served, mut peer, theirs } = piped(&home, &["stdio"]);
    drop(theirs);
    peer.initialize();
    let family = peer.call("family", &with(&mark));
    peer.wait_started(&[family]);
    served.signal(Signal::KILL);
    served.wait();
    wait_until("the processes are gone", || carriers(&mark).is_empty());
}

/// An invalid configuration is reported on standard error with its place; standard output stays
/// empty.
#[test]
fn invalid_configuration_is_on_standard_error() {
    let home = Home::new();
    home.configure_as("[daemon]\nworkers = 0\nshutdown_grace = \"2h\"\n");
    let output =
        home.command(&["stdio"]).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("config.toml:2") && said.contains("config.toml:3"), "{said}");
    assert!(said.contains("`workers`") && said.contains("`shutdown_grace`"), "{said}");
}

/// `ceased connect` forwards a session and its end in both directions.
#[test]
fn connect_forwards_a_session() {
    let daemon = Daemon::start(&Config { tcp: true, ..Config::default() });
    let address = daemon.tcp_address().to_string();
    let socket = daemon.socket();
    for to in [&[][..], &["--socket", socket.to_str().unwrap()], &["--tcp", &address]] {
        let args: Vec<&str> = ["connect"].iter().chain(to).copied().collect();
        let Piped { mut served, mut peer, theirs } = piped(&daemon.home, &args);
        peer.initialize();
        assert!(theirs.iter().all(is_blocking), "a pipe became non-blocking");
        drop(theirs);
        let sleep = peer.call("sleep", r#"{"ms":200}"#);
        peer.finish();
        assert_eq!(peer.answer(sleep)["result"]["content"][0]["text"], "slept 200 ms");
        assert!(peer.rest().is_empty());
        assert_eq!(served.wait().code(), Some(0));
    }
    daemon.wait_idle();
}

/// A killed bridge is a disconnected peer.
#[test]
fn killed_bridge_is_a_disconnect() {
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    let Piped { mut served, mut peer, theirs } = piped(&daemon.home, &["connect"]);
    drop(theirs);
    peer.initialize();
    let family = peer.call("family", &with(&mark));
    peer.wait_started(&[family]);
    served.signal(Signal::KILL);
    served.wait();
    wait_until("the processes are gone", || carriers(&mark).is_empty());
    daemon.wait_idle();
}

#[test]
fn bridge_without_its_daemon_exits_with_3() {
    let daemon = Daemon::start(&Config::default());
    let Piped { mut served, mut peer, theirs } = piped(&daemon.home, &["connect"]);
    drop(theirs);
    peer.initialize();
    let home = daemon.kill();
    assert!(peer.rest().is_empty());
    let status = served.wait();
    let said = home.log();
    // Must differ from a regular end of the session.
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("daemon"), "{said}");
}

#[test]
fn bridge_without_a_daemon_exits_with_3() {
    let home = home("");
    let output =
        home.command(&["connect"]).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no daemon reachable") && said.contains("ceased serve"), "{said}");
    assert!(said.contains("d.sock"), "{said}");
}

/// Only `ceased serve` binds `metrics.listen`; commands of which several may run at once do not.
#[test]
fn only_serve_binds_the_metrics_address() {
    let home = Home::new();
    let door = home.path().join("m.sock");
    let metrics = format!("[metrics]\nlisten = \"unix:{}\"\n", door.display());
    home.configure(&Config { tools: &metrics, ..Config::default() });
    let mut first = piped(&home, &["stdio"]);
    let mut second = piped(&home, &["stdio"]);
    first.peer.initialize();
    second.peer.initialize();
    assert!(!door.exists(), "a session serves metrics");
    let ran = home.run(&["call", "echo", "text=alone"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "alone\n"), "{ran:?}");
    // No record of the daemon in this process.
    assert_eq!(ran.err.lines().filter(|line| !line.starts_with("ceased: ")).count(), 0, "{ran:?}");

    let daemon = Daemon::start_in(home);
    UnixStream::connect(&door).expect("the daemon serves metrics");
    let mut third = piped(&daemon.home, &["stdio"]);
    third.peer.initialize();
    let elsewhere = daemon.home.path().join("elsewhere.sock");
    let config = daemon.home.config_text().replace("d.sock", "elsewhere.sock");
    daemon.home.configure_as(&config);
    let ran = daemon.home.run(&["call", "echo", "text=beside"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "beside\n"), "{ran:?}");
    assert!(ran.err.contains("in this process") && !elsewhere.exists(), "{ran:?}");
    UnixStream::connect(&door).expect("the daemon still serves metrics");
    for mut one in [first, second, third] {
        one.peer.finish();
        assert_eq!(one.served.wait().code(), Some(0));
    }
}

/// A full pipe: its unread end and its writing end.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (unread, full) = std::io::pipe().expect("a pipe");
    // A separate open file description, so that the mode of the pipe is not shared.
    let own = format!("/proc/self/fd/{}", full.as_raw_fd());
    let mut options = File::options();
    let options = options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut own = options.open(own).expect("the pipe is ours");
    while own.write(b"x").is_ok() {}
    (unread, full)
}

/// A host that never reads standard error is served and sees the exit.
#[test]
fn unread_standard_error_blocks_no_session() {
    let home = home("");
    home.configure_as(&format!("{}\n[log]\nlevel = \"trace\"\n", home.config_text()));
    let (stdin, input) = std::io::pipe().unwrap();
    let (output, stdout) = std::io::pipe().unwrap();
    let (unread, stderr) = full_pipe();
    let child = home.command(&["stdio"]).stdin(stdin).stdout(stdout).stderr(stderr).spawn();
    let mut served = Served(child.unwrap());
    let mut peer = Peer::of_pipes(output.into(), input.into());
    peer.initialize();
    // More log lines than the queue holds.
    for _ in 0..3000 {
        let sleep = peer.call("sleep", r#"{"ms":60000}"#);
        peer.cancel(sleep);
        peer.result("ping", "{}");
    }
    peer.finish();
    assert_eq!(served.wait().code(), Some(0));
    drop(unread);
}

/// A command with an unread standard error reacts to a signal and stops its tool.
#[test]
fn unread_standard_error_blocks_no_cancel() {
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    let (unread, stderr) = full_pipe();
    let named = format!("t={mark}");
    let child = daemon.home.command(&["call", "family", &named]).stderr(stderr).spawn();
    let mut called = Served(child.unwrap());
    wait_until("the processes run", || carriers(&mark).len() >= 4);
    called.signal(Signal::INT);
    assert_eq!(called.wait().code(), Some(130));
    assert_none_left(&mark);
    drop(unread);
}

/// Longer than the capacity of a pipe.
const LONG_RESULT: &str = r#"
[[tool]]
name = "long"
run_as = "daemon"
command = ["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"]
text_limit = "1MiB"
"#;

/// Waits until a pipe is full, judged from its reading end.
fn wait_until_full(pipe: &std::io::PipeReader) {
    const NEARLY: u64 = 60 * 1024;
    wait_until("the pipe is full", || {
        rustix::io::ioctl_fionread(pipe).expect("a pipe has a length") >= NEARLY
    });
}

/// A command with an unread standard output reacts to a signal.
#[test]
fn unread_result_blocks_no_cancel() {
    let daemon = Daemon::start(&Config { tools: LONG_RESULT, ..Config::default() });
    for signal in [Signal::TERM, Signal::INT] {
        let (unread, stdout) = std::io::pipe().unwrap();
        let child = daemon.home.command(&["call", "long"]).stdout(stdout).spawn();
        let mut called = Served(child.unwrap());
        wait_until_full(&unread);
        called.signal(signal);
        assert_eq!(called.wait().code(), Some(130));
    }
}

/// A non-blocking standard output, possibly set by another process, gets the result as fast as it
/// is read.
#[test]
fn result_is_written_to_a_non_blocking_pipe() {
    let daemon = Daemon::start(&Config { tools: LONG_RESULT, ..Config::default() });
    let (mut output, stdout) = std::io::pipe().unwrap();
    let mode = fcntl_getfl(&stdout).unwrap();
    fcntl_setfl(&stdout, mode | OFlags::NONBLOCK).unwrap();
    let child = daemon.home.command(&["call", "long"]).stdout(stdout).spawn();
    let mut called = Served(child.unwrap());
    wait_until_full(&output);
    let mut result = String::new();
    output.read_to_string(&mut result).unwrap();
    assert_eq!(result.trim_end().len(), 300_000);
    assert_eq!(called.wait().code(), Some(0));
}

/// A daemon with an unread standard error logs its address and is not blocked.
#[test]
fn unread_standard_error_blocks_no_daemon() {
    let home = home("");
    let (unread, stderr) = full_pipe();
    let mut served = Served(home.command(&["serve"]).stderr(stderr).spawn().unwrap());
    wait_until("it listens", || UnixStream::connect(home.socket()).is_ok());
    let mut peer = Peer::of_socket(UnixStream::connect(home.socket()).unwrap().into());
    peer.initialize();
    home.configure_as(&home.config_text().replace("d.sock", "e.sock"));
    served.signal(Signal::HUP);
    let moved = home.path().join("e.sock");
    wait_until("the daemon listens on the new address", || UnixStream::connect(&moved).is_ok());
    peer.result("ping", "{}");
    served.signal(Signal::TERM);
    assert_eq!(served.wait().code(), Some(0));
    drop(unread);
}
