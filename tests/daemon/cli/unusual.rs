//! The command line in unusual circumstances: very long cells, a full disk, several mistakes in a
//! configuration, a vanished machine.

use ceased_tests::daemon::{Config, Daemon, Home, assert_none_left, marker, wait_until};

use super::{daemon, exits};

/// A list is printed whatever the length of a cell and its neighbours.
#[test]
fn lists_with_long_cells_are_printed() {
    let long = "x".repeat(70_000);
    let wordy = format!("[[tool]]\nname = \"wordy\"\nbuiltin = \"echo\"\ndescription = {long:?}\n");
    let daemon = Daemon::start(&Config { tools: &wordy, ..Config::default() });
    let ran = exits(&daemon.home, 0, &["tools"]);
    assert!(ran.out.lines().any(|line| line.starts_with("wordy ") && line.ends_with(&long)));
    assert!(ran.out.lines().any(|line| line.starts_with("hang ") && line.len() < 100));
}

/// If standard output cannot take a task id, the error shows it, because the task runs.
#[test]
fn unwritable_task_id_is_in_the_error() {
    let daemon = daemon();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mark = marker();
    let mut command = daemon.home.command(&["call", "--detach", "hang", &format!("t={mark}")]);
    let ran = command.stdout(full()).output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{err}");
    assert!(err.contains("No space left"), "{err}");
    let tasks = exits(&daemon.home, 0, &["tasks"]).out;
    let line = tasks.lines().nth(1).expect("a header and a task");
    let id = line.split_whitespace().next().expect("an id");
    assert!(err.contains(id), "{err}");
    exits(&daemon.home, 0, &["cancel", id]);
    assert_none_left(&mark);
}

/// With several mistakes in a configuration, a command names the first and refers to `check` for
/// the others.
#[test]
fn first_of_several_configuration_mistakes_is_named() {
    let home = Home::new();
    home.configure_as("[daemon]\nworkerz = 1\n[limits]\nconnection = 2\n[tasks]\nmax = 3\n");
    for args in [&["tools", "--config", "config.toml"][..], &["call", "echo", "text=x"]] {
        let ran = exits(&home, 2, args);
        let lines: Vec<&str> = ran.err.lines().collect();
        let [.., first, hint] = lines.as_slice() else { panic!("{ran:?}") };
        assert!(first.starts_with("ceased: unknown key `workerz`"), "{ran:?}");
        assert!(hint.starts_with("  hint: and 2 more") && hint.contains("ceased check"), "{ran:?}");
        assert!(!ran.err.contains("\\n"), "{ran:?}");
    }
    assert_eq!(exits(&home, 2, &["check"]).err.lines().count(), 3);
}

/// A command detects a vanished daemon machine by TCP keepalive instead of waiting forever.
#[test]
fn vanished_machine_is_detected_by_keepalive() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let _asks = home.start(&["tools", "--tcp", &address]);
    let mut accepted = None;
    wait_until("it connects", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (_silent, client) = accepted.expect("the connection was accepted");
    let port = format!(":{:04X}", client.port());
    wait_until("the timer of keepalive runs", || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        // Fields: number, both addresses, state, queues, and the active timer; 02 is keepalive.
        sockets.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(1).is_some_and(|local| local.ends_with(&port))
                && fields.get(5).is_some_and(|timer| timer.starts_with("02:"))
        })
    });
}
