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

/// A child that is killed when a test gives up on it.
struct Served(Child);

impl Served {
    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("it ends", || {
            status = self.0.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("it has ended")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, signal).expect("it was not waited for");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The binary between two pipes, with a peer at the other ends; and, to look at their modes, our
/// copies of the ends it got.
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

/// The usual way: answers, the end of input, exit 0; and nobody's pipe changes its mode.
#[test]
fn pipes() {
    let home = home("");
    let Piped { mut served, mut peer, theirs } = piped(&home, &["stdio"]);
    peer.initialize();
    let tools = peer.result("tools/list", "{}");
    assert!(tools["tools"].as_array().is_some_and(|tools| tools.len() >= 5));
    assert!(theirs.iter().all(is_blocking), "a pipe shared with the parent became non-blocking");
    drop(theirs);
    // Requests from before the end are answered after it.
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

/// One socket for both directions, as some hosts have it.
#[test]
fn a_socket_pair() {
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
    assert_eq!(peer.answer(count)["result"]["structuredContent"]["stdout"], "1\n2\n3\n4\n5\n");
    assert!(peer.rest().iter().all(|message| message["id"].is_null()));
    assert_eq!(served.wait().code(), Some(0));
}

/// A conversation out of a file into a file.
#[test]
fn files() {
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
fn nothing_at_all() {
    let home = home("");
    let output = home.command(&["stdio"]).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty());
}

/// STOP-01 of a host that goes: what still runs after `eof_grace` is stopped for real.
#[test]
fn end_of_input_ends_what_runs() {
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

/// What ends within `eof_grace` is answered.
#[test]
fn end_of_input_leaves_time() {
    let home = home("eof_grace = \"20s\"");
    let Piped { mut served, mut peer, theirs } = piped(&home, &["stdio"]);
    drop(theirs);
    peer.initialize();
    let sleep = peer.call("sleep", r#"{"ms":300}"#);
    let start = Instant::now();
    peer.finish();
    assert_eq!(peer.answer(sleep)["result"]["content"][0]["text"], "slept 300 ms");
    assert_eq!(served.wait().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(15), "it waited for nothing");
}

/// A host that stops reading, and keeps its end of our input open, is gone all the same.
#[test]
fn nobody_reads_any_more() {
    let home = home("");
    let mark = marker();
    let (stdin, mut input) = std::io::pipe().unwrap();
    let (output, stdout) = std::io::pipe().unwrap();
    let child = home.command(&["stdio"]).stdin(stdin).stdout(stdout).stderr(Stdio::null()).spawn();
    let mut served = Served(child.unwrap());
    let hello = request(1, "initialize", HELLO);
    writeln!(input, "{hello}\n{}", call(2, "family", &with(&mark), "")).unwrap();
    wait_until("the family is there", || carriers(&mark).len() >= 3);
    drop(output);
    assert_eq!(served.wait().code(), Some(0));
    assert_none_left(&mark);
    drop(input);
}

/// SIGTERM: everything is answered, stopped, and gone.
#[test]
fn terminated() {
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

/// SIGKILL: the tools go, too.
#[test]
fn killed() {
    let home = home("");
    let mark = marker();
    let Piped { mut served, mut peer, theirs } = piped(&home, &["stdio"]);
    drop(theirs);
    peer.initialize();
    let family = peer.call("family", &with(&mark));
    peer.wait_started(&[family]);
    served.signal(Signal::KILL);
    served.wait();
    wait_until("the family is gone", || carriers(&mark).is_empty());
}

/// A broken configuration is said on standard error, with its place, and nothing on output.
#[test]
fn broken_configuration() {
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

/// `ceased connect` carries a conversation, and its end, both ways.
#[test]
fn bridged() {
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

/// A bridge that is killed is a peer that has gone.
#[test]
fn a_bridge_that_is_killed() {
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    let Piped { mut served, mut peer, theirs } = piped(&daemon.home, &["connect"]);
    drop(theirs);
    peer.initialize();
    let family = peer.call("family", &with(&mark));
    peer.wait_started(&[family]);
    served.signal(Signal::KILL);
    served.wait();
    wait_until("the family is gone", || carriers(&mark).is_empty());
    daemon.wait_idle();
}

#[test]
fn a_bridge_whose_daemon_dies() {
    let daemon = Daemon::start(&Config::default());
    let Piped { mut served, mut peer, theirs } = piped(&daemon.home, &["connect"]);
    drop(theirs);
    peer.initialize();
    let home = daemon.kill();
    assert!(peer.rest().is_empty());
    let status = served.wait();
    let said = home.log();
    // It must not look like a conversation that came to its end.
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("daemon"), "{said}");
}

#[test]
fn a_bridge_to_nowhere() {
    let home = home("");
    let output =
        home.command(&["connect"]).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no daemon reachable") && said.contains("ceased serve"), "{said}");
    assert!(said.contains("d.sock"), "{said}");
}

/// `metrics.listen` is an address for one: `ceased serve` takes it, and processes of one peer, of
/// which any number run at once, beside a daemon or without, do not.
#[test]
fn metrics_are_served_by_a_daemon_alone() {
    let home = Home::new();
    let door = home.path().join("m.sock");
    let metrics = format!("[metrics]\nlisten = \"unix:{}\"\n", door.display());
    home.configure(&Config { tools: &metrics, ..Config::default() });
    let mut first = piped(&home, &["stdio"]);
    let mut second = piped(&home, &["stdio"]);
    first.peer.initialize();
    second.peer.initialize();
    assert!(!door.exists(), "one of them serves metrics");
    let ran = home.run(&["call", "echo", "text=alone"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "alone\n"), "{ran:?}");
    // No record of the daemon in this process.
    assert_eq!(ran.err.lines().filter(|line| !line.starts_with("ceased: ")).count(), 0, "{ran:?}");

    let daemon = Daemon::start_in(home);
    UnixStream::connect(&door).expect("the daemon serves them");
    let mut third = piped(&daemon.home, &["stdio"]);
    third.peer.initialize();
    let elsewhere = daemon.home.path().join("elsewhere.sock");
    let config = daemon.home.config_text().replace("d.sock", "elsewhere.sock");
    daemon.home.configure_as(&config);
    let ran = daemon.home.run(&["call", "echo", "text=beside"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "beside\n"), "{ran:?}");
    assert!(ran.err.contains("in this process") && !elsewhere.exists(), "{ran:?}");
    UnixStream::connect(&door).expect("the daemon still serves them");
    for mut one in [first, second, third] {
        one.peer.finish();
        assert_eq!(one.served.wait().code(), Some(0));
    }
}

/// A pipe that holds no byte more: the end that nobody reads, and the other.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (unread, full) = std::io::pipe().expect("a pipe");
    // An open file of its own, or whoever gets the pipe would have a mode that it did not choose.
    let own = format!("/proc/self/fd/{}", full.as_raw_fd());
    let mut options = File::options();
    let options = options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut own = options.open(own).expect("it is ours");
    while own.write(b"x").is_ok() {}
    (unread, full)
}

/// A host that never reads our standard error is served all the same, and sees us end.
#[test]
fn nobody_reads_what_is_said() {
    let home = home("");
    home.configure_as(&format!("{}\n[log]\nlevel = \"trace\"\n", home.config_text()));
    let (stdin, input) = std::io::pipe().unwrap();
    let (output, stdout) = std::io::pipe().unwrap();
    let (unread, stderr) = full_pipe();
    let child = home.command(&["stdio"]).stdin(stdin).stdout(stdout).stderr(stderr).spawn();
    let mut served = Served(child.unwrap());
    let mut peer = Peer::of_pipes(output.into(), input.into());
    peer.initialize();
    // More lines of log than may wait.
    for _ in 0..3000 {
        let sleep = peer.call("sleep", r#"{"ms":60000}"#);
        peer.cancel(sleep);
        peer.result("ping", "{}");
    }
    peer.finish();
    assert_eq!(served.wait().code(), Some(0));
    drop(unread);
}

/// A command whose standard error nobody reads hears a signal all the same, and stops its tool.
#[test]
fn nobody_reads_what_a_command_says() {
    let daemon = Daemon::start(&Config::default());
    let mark = marker();
    let (unread, stderr) = full_pipe();
    let named = format!("t={mark}");
    let child = daemon.home.command(&["call", "family", &named]).stderr(stderr).spawn();
    let mut called = Served(child.unwrap());
    wait_until("the family is there", || carriers(&mark).len() >= 4);
    called.signal(Signal::INT);
    assert_eq!(called.wait().code(), Some(130));
    assert_none_left(&mark);
    drop(unread);
}

/// More than a pipe holds.
const LONG_RESULT: &str = r#"
[[tool]]
name = "long"
run_as = "daemon"
command = ["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"]
"#;

/// Waits until a pipe is full, as far as that can be seen from its other end.
fn wait_until_full(pipe: &std::io::PipeReader) {
    const NEARLY: u64 = 60 * 1024;
    wait_until("the pipe is full", || {
        rustix::io::ioctl_fionread(pipe).expect("a pipe has a length") >= NEARLY
    });
}

/// A command whose standard output nobody reads hears a signal all the same.
#[test]
fn nobody_reads_a_result() {
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

/// A standard output in non-blocking mode, as whoever shares it may have set it, takes a result as
/// fast as it is read.
#[test]
fn a_result_into_a_pipe_that_does_not_block() {
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

/// A daemon whose standard error nobody reads says where it listens, and is not held up by that.
#[test]
fn nobody_reads_what_a_daemon_says() {
    let home = home("");
    let (unread, stderr) = full_pipe();
    let mut served = Served(home.command(&["serve"]).stderr(stderr).spawn().unwrap());
    wait_until("it listens", || UnixStream::connect(home.socket()).is_ok());
    let mut peer = Peer::of_socket(UnixStream::connect(home.socket()).unwrap().into());
    peer.initialize();
    home.configure_as(&home.config_text().replace("d.sock", "e.sock"));
    served.signal(Signal::HUP);
    let moved = home.path().join("e.sock");
    wait_until("it listens elsewhere", || UnixStream::connect(&moved).is_ok());
    peer.result("ping", "{}");
    served.signal(Signal::TERM);
    assert_eq!(served.wait().code(), Some(0));
    drop(unread);
}
