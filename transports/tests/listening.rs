//! Listening on Unix sockets: permissions, and files that exist already.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use ceased_transports::{Address, ListenError, Listener, SocketMode};

fn unix(path: impl AsRef<Path>) -> Address {
    Address::Unix { path: path.as_ref().to_owned(), mode: SocketMode::OWNER }
}

#[test]
fn second_listener_is_told_the_holder_of_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let first = Listener::bind(&unix(&path)).unwrap();
    let error = Listener::bind(&unix(&path)).unwrap_err();
    let ours = std::process::id();
    assert!(
        matches!(&error, ListenError::AlreadyRunning { holder: Some(pid), .. } if *pid == ours)
    );
    let text = error.to_string();
    assert!(text.contains("already running") && text.contains(path.to_str().unwrap()), "{text}");
    assert!(text.contains("lock held by process"), "{text}");
    UnixStream::connect(&path).expect("the first one is unharmed");
    drop(first);
    assert!(!path.exists());
    assert!(dir.path().join("x.sock.lock").exists(), "the lock file is never removed");
    Listener::bind(&unix(&path)).expect("the lock went with its holder");
}

#[test]
fn of_many_that_start_at_once_one_listens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    for _ in 0..20 {
        drop(UnixListener::bind(&path).unwrap());
        let barrier = Barrier::new(8);
        let outcomes: Vec<_> = thread::scope(|scope| {
            let start = || {
                barrier.wait();
                Listener::bind(&unix(&path))
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (won, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        for outcome in refused {
            assert!(matches!(outcome, Err(ListenError::AlreadyRunning { .. })), "{outcome:?}");
        }
        UnixStream::connect(&path).expect("the one that listens can be reached");
    }
}

#[test]
fn stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "stale");
    drop(Listener::bind(&unix(&path)).expect("a stale socket is in nobody's way"));

    let other = UnixListener::bind(&path).unwrap();
    let error = Listener::bind(&unix(&path)).unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }), "{error}");
    let _theirs = UnixStream::connect(&path).unwrap();
    other.accept().expect("the other one is unharmed");
}

#[test]
fn what_is_no_stream_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "precious").unwrap();
    fs::create_dir(at("dir")).unwrap();
    symlink(at("file"), at("link")).unwrap();
    let _datagrams = UnixDatagram::bind(at("datagrams")).unwrap();
    for (name, what) in [
        ("file", "a regular file"),
        ("dir", "a directory"),
        ("link", "a symbolic link"),
        ("datagrams", "a socket of another type"),
    ] {
        let before = fs::symlink_metadata(at(name)).unwrap().ino();
        let error = Listener::bind(&unix(at(name))).unwrap_err();
        assert!(matches!(&error, ListenError::InTheWay { what: w, .. } if *w == what), "{error}");
        assert_eq!(fs::symlink_metadata(at(name)).unwrap().ino(), before);
    }
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "precious");
}

#[test]
fn path_must_fit() {
    let dir = tempfile::tempdir().unwrap();
    let fill = |bytes: usize| {
        let room = bytes - dir.path().as_os_str().len() - 1;
        dir.path().join("x".repeat(room))
    };
    let error = Listener::bind(&unix(fill(108))).unwrap_err();
    assert!(matches!(error, ListenError::PathTooLong { bytes: 108, bytes_max: 107, .. }));
    assert!(error.to_string().contains("108") && error.to_string().contains("107"), "{error}");
    let listener = Listener::bind(&unix(fill(107))).expect("107 bytes fit");
    let Address::Unix { path, .. } = listener.address() else { panic!("not unix") };
    UnixStream::connect(path).unwrap();
    for unusable in ["", "a\0b"] {
        let error = Listener::bind(&unix(unusable)).unwrap_err();
        assert!(matches!(error, ListenError::PathUnusable { .. }), "{error}");
    }
    let error = Listener::bind(&Address::Stdio).unwrap_err();
    assert!(matches!(error, ListenError::NotListenable));
}

#[test]
fn only_its_own_socket_file_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let listener = Listener::bind(&unix(&path)).unwrap();
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    drop(listener);
    UnixStream::connect(&path).expect("the file of the other one is still there");
    drop(other);
}
