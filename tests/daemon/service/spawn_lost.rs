//! `ceased connect --spawn` when the running daemon is unreachable, or its files belong to another
//! user: it fails soon and names a remedy.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ceased_tests::daemon::{Config, Daemon, Home, wait_until};
use rustix::fs::{FileType, FlockOperation, Mode, flock, mknodat};
use rustix::process::{Pid, Signal, Uid, geteuid, kill_process};
use rustix::thread::set_thread_res_uid;
use tempfile::TempDir;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#;
/// A user without processes.
const OTHER: u32 = 61_234;

fn home() -> Home {
    let home = Home::new();
    home.configure(&Config::default());
    home
}

fn connect(home: &Home) -> Child {
    connect_as(home, &home.config_path())
}

/// A copy of the configuration in a separate directory owned by this user.
fn config_elsewhere(home: &Home) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    fs::write(&path, home.config_text()).unwrap();
    (folder, path)
}

fn connect_as(home: &Home, config: &Path) -> Child {
    let mut command = home.command(&["connect", "--spawn"]);
    command.env("HOME", home.path()).env("CEASED_CONFIG", config);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary can be started")
}

/// Waits for the end of a command with open input: its exit code and standard error.
fn failed(mut child: Child) -> (Option<i32>, String) {
    let mut status = None;
    wait_until("the command ends before its input", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status.unwrap().code(), said)
}

/// Ends the daemon that was spawned in this home, if any.
fn end_spawned(home: &Home) {
    let lock = fs::read_to_string(home.path().join("d.sock.lock")).unwrap_or_default();
    if let Some(pid) = lock.trim().parse().ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Replaces a file.
type Harm = fn(&Path);

const HARMS: [(&str, Harm); 4] = [
    ("a fifo", |path| {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).unwrap();
    }),
    ("a symbolic link", |path| {
        let target = path.with_extension("target");
        fs::write(&target, "precious").unwrap();
        symlink(target, path).unwrap();
    }),
    ("a directory", |path| fs::create_dir(path).unwrap()),
    ("is writable by others", |path| {
        fs::write(path, "precious").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }),
];

/// A log or lock that is no regular file of this user alone is refused at once and left unchanged.
#[test]
fn log_or_lock_that_is_no_plain_file_is_refused() {
    let names = ["d.sock.log", "d.sock.spawn"];
    for ((what, harm), name) in HARMS.iter().flat_map(|harm| names.map(|name| (harm, name))) {
        let home = home();
        let path = home.path().join(name);
        harm(&path);
        let (code, said) = failed(connect(&home));
        assert_eq!(code, Some(3), "{name} {what}: {said}");
        assert!(said.contains(what) && said.contains(name), "{name} {what}: {said}");
        assert!(!home.socket().exists(), "a daemon was started");
        // A fifo cannot be read to its end.
        if path.is_file() {
            assert_eq!(fs::read_to_string(&path).unwrap(), "precious", "{name} {what}");
        }
    }
}

/// A directory writable for others is refused, unless it is sticky like `/tmp`.
#[test]
fn runtime_directory_that_others_can_write_is_refused() {
    let home = home();
    let (_elsewhere, config) = config_elsewhere(&home);
    let set = |mode| fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o777, 0o770, 0o702] {
        set(mode);
        let (code, said) = failed(connect_as(&home, &config));
        assert_eq!(code, Some(3), "{mode:o}: {said}");
        assert!(said.contains(&format!("chmod go-w {}", home.path().display())), "{said}");
    }
    set(0o1777);
    let mut child = connect_as(&home, &config);
    child.stdin.take().unwrap().write_all(HELLO.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("started one"), "{said}");
    end_spawned(&home);
}

/// Files of another user are refused: the directory, the log, the lock, and a daemon that listens
/// there.
#[test]
fn files_of_another_user_are_refused() {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: cannot change the owner of files");
        return;
    }
    let belongs = format!("uid {OTHER}");
    for name in ["d.sock.log", "d.sock.spawn", "."] {
        let home = home();
        let path = home.path().join(name);
        if name != "." {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (_elsewhere, config) = config_elsewhere(&home);
        chown(&path, Some(OTHER), None).unwrap();
        let (code, said) = failed(connect_as(&home, &config));
        assert_eq!(code, Some(3), "{name}: {said}");
        assert!(said.contains(&belongs), "{name}: {said}");
    }
    let home = home();
    let listener = UnixListener::bind(home.socket()).unwrap();
    // The kernel records the listening thread's user at listen.
    let listener = thread::spawn(move || {
        let uid = Uid::from_raw(OTHER);
        set_thread_res_uid(uid, uid, uid).unwrap();
        rustix::net::listen(&listener, 16).unwrap();
        listener
    });
    let _listener = listener.join().unwrap();
    let (code, said) = failed(connect(&home));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains(&belongs) && said.contains("without --spawn"), "{said}");
}

/// A running daemon without its socket file is reached again, and no second one starts.
#[test]
fn daemon_without_its_socket_file_is_reached_again() {
    let daemon = Daemon::start_in(home());
    fs::remove_file(daemon.socket()).unwrap();
    let mut child = connect(&daemon.home);
    child.stdin.take().unwrap().write_all(HELLO.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("started one"), "{said}");
}

/// An unreachable daemon is named with the remedy, long before the wait for a daemon ends.
#[test]
fn unreachable_daemon_is_named_with_the_remedy() {
    let daemon = Daemon::start_in(home());
    fs::remove_file(daemon.socket()).unwrap();
    fs::write(daemon.socket(), "in the way").unwrap();
    let begun = Instant::now();
    let (code, said) = failed(connect(&daemon.home));
    assert_eq!(code, Some(3), "{said}");
    let pid = daemon.pid();
    assert!(said.contains(&format!("process {pid}")), "{said}");
    assert!(said.contains(&format!("kill -HUP {pid}")), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(20), "the error took {:?}", begun.elapsed());
    // The remedy works.
    fs::remove_file(daemon.socket()).unwrap();
    daemon.signal(Signal::HUP);
    wait_until("the daemon is reachable", || {
        std::os::unix::net::UnixStream::connect(daemon.socket()).is_ok()
    });
}

/// The end of the input ends every wait.
#[test]
fn end_of_input_ends_the_wait_for_a_daemon() {
    let home = home();
    let path: PathBuf = home.path().join("d.sock.spawn");
    let lock = fs::File::create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut child = connect(&home);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(HELLO.as_bytes()).unwrap();
    drop(stdin);
    let (code, said) = failed(child);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("the input ended"), "{said}");
    drop(lock);
}
