//! `ceased reload`, `stop` and `cancel` of jobs: by operators for all, by others for their own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use ceased_tests::daemon::{Config, Daemon, Home, assert_none_left, carriers, marker, wait_until};

use crate::user::User;

/// A daemon of this process's user, with an audit log, whose socket is open to all.
fn open_daemon() -> Daemon {
    let home = Home::new();
    home.configure(&Config::default());
    let open =
        home.config_text().replace("transport = \"unix\"", "transport = \"unix\"\nmode = \"0666\"");
    home.configure_as(&format!("{open}[log]\naudit = {:?}\n", home.path().join("audit")));
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let command = home.command(&["serve"]);
    Daemon::start_with(home, command)
}

#[test]
fn reload_is_reported_with_its_outcome() {
    let daemon = Daemon::start(&Config::default());
    let text = daemon.home.config_text();
    let more = "[[tool]]\nname = \"more\"\nbuiltin = \"echo\"\n";
    daemon.home.configure_as(&format!("{text}{more}"));
    let ran = daemon.home.run(&["reload"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), "ceased: reloaded\n"));
    assert!(daemon.home.run(&["tools"]).out.contains("more"));
    daemon.home.configure_as(&format!("{text}{more}nonsense = 1\n"));
    let socket = daemon.socket();
    let ran = daemon.home.run(&["reload", "--socket", &socket.to_string_lossy()]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("not reloaded") && ran.err.contains("`nonsense`"), "{ran:?}");
}

#[test]
fn stop_returns_when_the_daemon_and_its_jobs_have_ended() {
    let mut daemon = Daemon::start(&Config::default());
    let marker = marker();
    let mut peer = daemon.peer();
    peer.call("hang", &format!("{{\"t\":\"{marker}\"}}"));
    wait_until("the tool runs", || !carriers(&marker).is_empty());
    let home = daemon.home.clone();
    // As a child of this test it stays a zombie until it is waited for.
    let stop = home.start(&["stop"]);
    assert_eq!(daemon.wait().code(), Some(0));
    let ran = stop.wait();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("the daemon has ended"), "{ran:?}");
    assert_none_left(&marker);
}

#[test]
fn orders_of_others_are_refused_and_those_of_operators_audited() {
    let Some(bob) = User::new() else { return };
    let daemon = open_daemon();
    let socket = daemon.socket();
    let socket = socket.to_string_lossy();
    for order in ["reload", "stop"] {
        let ran = bob.run(&[order, "--socket", &socket]);
        assert_eq!(ran.code, Some(1), "{order}: {ran:?}");
        assert!(ran.err.contains("is for operators"), "{order}: {ran:?}");
    }
    assert_eq!(daemon.home.run(&["reload"]).code, Some(0));
    let audit = || fs::read_to_string(daemon.home.path().join("audit")).unwrap_or_default();
    wait_until("the order is audited", || audit().contains("\"event\":\"operate\""));
    let line = audit().lines().find(|line| line.contains("operate")).unwrap().to_owned();
    assert!(line.contains("ceased/reload") && line.contains("uid:0"), "{line}");
    assert!(!audit().contains(&format!("\"event\":\"operate\",\"identity\":\"uid:{}", bob.uid)));
}

#[test]
fn jobs_are_cancelled_by_number_tool_and_user() {
    let Some(bob) = User::new() else { return };
    let daemon = open_daemon();
    let socket = daemon.socket();
    let socket = socket.to_string_lossy();
    let own = marker();
    let mut peer = daemon.peer();
    peer.call("hang", &format!("{{\"t\":\"{own}\"}}"));
    let run = |tool: &str| {
        let marker = marker();
        let argument = format!("t={marker}");
        let program = bob.start(bob.command(&["call", tool, &argument, "--socket", &socket]));
        wait_until("the tool runs", || !carriers(&marker).is_empty());
        (program, marker)
    };
    wait_until("the tool of root runs", || !carriers(&own).is_empty());

    // Everything that bob may cancel is his.
    let (_call, his) = run("hang");
    let ran = bob.run(&["cancel", "--all", "--socket", &socket]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out.lines().count(), 1, "{ran:?}");
    assert_none_left(&his);
    assert!(!carriers(&own).is_empty(), "the job of root goes on");
    let ran = bob.run(&["cancel", "--tool", "hang", "--socket", &socket]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let ran = bob.run(&["cancel", "--job", "1", "--socket", &socket]);
    assert!(ran.code == Some(1) && ran.err.contains("there is no job 1"), "{ran:?}");

    // An operator cancels those of one user, and of one tool.
    let (_call, his) = run("hang");
    let ran = daemon.home.run(&["cancel", "--user", &bob.uid.to_string()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_none_left(&his);
    assert!(!carriers(&own).is_empty(), "the job of root goes on");
    let (_call, his) = run("family");
    let ran = daemon.home.run(&["cancel", "--tool", "hang", "--reason", "enough"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_none_left(&own);
    assert!(!carriers(&his).is_empty(), "the other tool goes on");
    let ran = daemon.home.run(&["cancel", "--all"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_none_left(&his);
    // Wrong use.
    assert_eq!(daemon.home.run(&["cancel"]).code, Some(2));
    assert_eq!(daemon.home.run(&["cancel", "id", "--all"]).code, Some(2));
}
