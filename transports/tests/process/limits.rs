//! Listeners where the process is not as usual: no descriptors left, another umask, another pid
//! namespace.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ceased_transports::{Accept, Address, Listener, SocketMode};
use mio::{Events, Poll, Token};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, setrlimit, umask};

use crate::{Test, child_command};

/// How long anything may take.
const TIME_LIMIT: Duration = Duration::from_secs(30);

pub(crate) const TESTS: &[Test] = &[
    ("without_descriptors_one_peer_is_refused", without_descriptors_one_peer_is_refused),
    ("a_socket_file_is_never_wider_than_wanted", a_socket_file_is_never_wider_than_wanted),
    ("a_peer_in_another_pid_namespace", a_peer_in_another_pid_namespace),
];

fn address(path: impl AsRef<Path>, mode: u32) -> Address {
    let mode = SocketMode::from_bits(mode).expect("a mode");
    Address::Unix { path: path.as_ref().to_owned(), mode }
}

fn run_in_child(mode: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().to_str().expect("UTF-8");
    let status = child_command(&[mode, dir]).status().expect("the child starts");
    assert!(status.success(), "{status}");
}

fn without_descriptors_one_peer_is_refused() {
    run_in_child("exhaust");
}

pub(crate) fn exhaust(dir: &str) -> ExitCode {
    let path = Path::new(dir).join("x.sock");
    let mut listener = Listener::bind(&address(&path, 0o600)).expect("bind");
    let connect = || UnixStream::connect(&path).expect("connect");
    let (mut first, second, third) = (connect(), connect(), connect());

    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(64);
    setrlimit(Resource::Nofile, limit).expect("lower");
    let mut held: Vec<_> = std::iter::from_fn(|| eventfd(0, EventfdFlags::CLOEXEC).ok()).collect();

    // A peer that cannot be served learns it at once; the others keep waiting.
    let accept = listener.accept();
    assert!(matches!(accept, Accept::Exhausted { refused: true, .. }), "{accept:?}");
    assert_eq!(first.read(&mut [0]).expect("the end"), 0);
    second.set_nonblocking(true).expect("flag");
    assert!((&second).read(&mut [0]).is_err(), "not refused");

    // With room again they are served.
    held.pop();
    assert!(matches!(listener.accept(), Accept::Peer(_)));
    assert!(matches!(listener.accept(), Accept::Peer(_)), "the first is gone again");
    drop((second, third));

    // No peer waits: being full is no news, whatever the system says first.
    held.extend(std::iter::from_fn(|| eventfd(0, EventfdFlags::CLOEXEC).ok()));
    assert!(matches!(listener.accept(), Accept::Drained));
    ExitCode::SUCCESS
}

fn a_socket_file_is_never_wider_than_wanted() {
    run_in_child("modes");
}

pub(crate) fn modes(dir: &str) -> ExitCode {
    let path = Path::new(dir).join("x.sock");
    umask(Mode::empty());
    let (done, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let wider = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut wider = 0;
            while !done.load(Ordering::Relaxed) {
                if let Ok(found) = fs::symlink_metadata(&path) {
                    seen.fetch_add(1, Ordering::Relaxed);
                    wider |= found.mode() & 0o777 & !0o600;
                }
            }
            wider
        });
        let bind = || Listener::bind(&address(&path, 0o600));
        // On a busy machine the watcher may not have had a turn after all of them.
        let (since, mut bound) = (Instant::now(), bind().map(drop));
        let is_watched = |binds| binds >= 500 && seen.load(Ordering::Relaxed) >= 100;
        for binds in 0.. {
            if bound.is_err() || is_watched(binds) || since.elapsed() > TIME_LIMIT {
                break;
            }
            bound = bind().map(drop);
        }
        done.store(true, Ordering::Relaxed);
        bound.expect("bind");
        watcher.join().expect("the watcher only looks")
    });
    let seen = seen.into_inner();
    assert_eq!(wider, 0, "somebody could have connected: {wider:o}");
    assert!(seen >= 100, "hardly anything was looked at: {seen}");

    // The umask does not get its way either.
    umask(Mode::from_raw_mode(0o077));
    let _listener = Listener::bind(&address(&path, 0o660)).expect("bind");
    assert_eq!(fs::symlink_metadata(&path).expect("the socket").mode() & 0o777, 0o660);
    ExitCode::SUCCESS
}

/// As with a socket that is mounted into a container: the system has no pid to tell.
fn a_peer_in_another_pid_namespace() {
    let alone: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["-Ur"] };
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(alone).args(["--pid", "--fork", "--kill-child"]);
        command
    };
    if !unshare().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("note: no pid namespaces to be had here, nothing was tested");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.sock");
    let child = child_command(&["accept", path.to_str().expect("UTF-8")]);
    let mut command = unshare();
    command.arg(child.get_program()).args(child.get_args());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("unshare starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "listening");
    let _ours = UnixStream::connect(&path).expect("connect");
    let peer = lines.next().expect("a line").expect("text");
    assert!(peer.contains("pid: None"), "{peer}");
    let uid = if alone.is_empty() { rustix::process::geteuid().as_raw() } else { 0 };
    assert!(peer.contains(&format!("uid: {uid},")), "{peer}");
    assert!(child.wait().expect("our child").success());
}

/// Accepts one peer and prints it.
pub(crate) fn accept(path: &str) -> ExitCode {
    let mut listener = Listener::bind(&address(path, 0o600)).expect("bind");
    let (mut poll, mut events) = (Poll::new().expect("poll"), Events::with_capacity(1));
    listener.register(poll.registry(), Token(0)).expect("register");
    println!("listening");
    loop {
        match listener.accept() {
            Accept::Peer(transport) => {
                println!("{:?}", transport.peer());
                return ExitCode::SUCCESS;
            }
            Accept::Drained => poll.poll(&mut events, None).expect("poll"),
            other @ (Accept::Exhausted { .. } | Accept::Failed(_)) => panic!("{other:?}"),
        }
    }
}
