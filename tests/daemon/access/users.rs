//! Peers on a Unix socket: users.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use ceased_tests::daemon::peer::call;
use ceased_tests::daemon::{Daemon, Home, Peer, Program, Signal, wait_until};
use serde_json::{Value, json};

use super::kit::{configure, connect_as, fight, is_root, peer_as};

/// TSK-39
#[test]
fn two_users_are_isolated() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    configure(&home, "", "");
    let daemon = Daemon::start_in(home);
    fight(peer_as(&daemon.home, 1), peer_as(&daemon.home, 2));
    // A second connection of the same user sees the same tasks.
    let mut again = peer_as(&daemon.home, 1);
    assert_eq!(again.result("tasks/list", "{}")["tasks"].as_array().map(Vec::len), Some(1));
}

fn refusal(peer: &mut Peer) -> Value {
    let mut said = peer.message().expect("a reason");
    assert_eq!(peer.message(), None, "the connection is closed afterwards");
    said["error"].take()
}

/// A command on a socket of others reports the refusal, not a missing daemon.
#[test]
fn command_line_reports_a_refused_user() {
    let home = Home::new();
    configure(&home, "allow_users = [0]", "");
    let Some(command) = home.command_as(1, &["status"]) else {
        eprintln!("SKIPPED: cannot become another user");
        return;
    };
    let daemon = Daemon::start_in(home);
    let ran = Program::start(&daemon.home, command).wait();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.starts_with("ceased: access denied by unix:"), "{ran:?}");
    assert!(ran.err.contains("may not use this socket"), "{ran:?}");
    assert!(!ran.err.contains("no daemon") && ran.out.is_empty(), "{ran:?}");
}

/// TSK-39: a user without permission gets an error and is closed, also after a reload.
#[test]
fn socket_admits_only_its_users() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    configure(&home, "allow_users = [0, \"daemon\"]\nallow_groups = [\"games\"]", "");
    let daemon = Daemon::start_in(home);
    for (uid, gid) in [(1, 1), (3_000, 60), (5, 5)] {
        let mut peer = connect_as(&daemon.home, uid, gid);
        peer.initialize();
        assert_eq!(peer.result("ceased/status", "{}")["identity"], format!("uid:{uid}"));
    }
    for (uid, named) in [(2, "uid 2 may not use this socket"), (65_534, "uid 65534")] {
        let mut stranger = connect_as(&daemon.home, uid, uid);
        let error = refusal(&mut stranger);
        assert_eq!(error["code"], -31011, "{error}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(named)), "{error}");
    }
    wait_until("the refusal is logged", || daemon.home.log().contains("uid 2"));
    configure(&daemon.home, "allow_users = [0, \"bin\"]", "");
    daemon.signal(Signal::HUP);
    wait_until("the reload", || daemon.home.log().contains("reloaded"));
    drop(peer_as(&daemon.home, 2));
    refusal(&mut connect_as(&daemon.home, 1, 1));
    daemon.wait_idle();
}

const TOOLS: &str = r#"
[[tool]]
name = "for_bin"
builtin = "echo"
allow = ["user:bin"]

[[tool]]
name = "plain"
command = ["id", "-u"]

[[tool]]
name = "daemon"
command = ["id", "-u"]
run_as = "daemon"

[[tool]]
name = "games"
command = ["id", "-u"]
run_as = "games"

[[tool]]
name = "whoami"
command = ["sh", "-c", "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; pwd; echo x >/dev/stderr"]
run_as = "peer"
task_support = "optional"

[[tool]]
name = "back"
command = ["setpriv", "--reuid", "0", "id", "-u"]
run_as = "peer"

[[tool]]
name = "private"
command = ["pwd"]
cwd = "private"
run_as = "peer"

[[tool]]
name = "stubborn"
command = ["sh", "-c", "trap '' TERM; echo 1 >&3; while :; do sleep 1; done"]
run_as = "peer"
kill_grace = "100ms"
"#;

/// TSK-39: a tool without permission is not listed and cannot be told from an unknown one.
#[test]
fn tool_is_visible_only_to_its_users() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    configure(&home, "", TOOLS);
    let daemon = Daemon::start_in(home);
    for (uid, may) in [(1, false), (2, true)] {
        let mut peer = peer_as(&daemon.home, uid);
        let listed = peer.result("tools/list", "{}")["tools"].to_string();
        assert_eq!(listed.contains("for_bin"), may, "{listed}");
        let tried = ["for_bin", "for_bim"].map(|tool| {
            let id = peer.call(tool, r#"{"text":"x"}"#);
            let mut answer = peer.answer(id);
            answer["id"].take();
            answer.to_string().replace(tool, "TOOL")
        });
        assert_eq!(tried[0] == tried[1], !may, "{tried:?}");
    }
}

fn text(peer: &mut Peer, tool: &str) -> Result<String, Value> {
    let id = peer.next_id();
    peer.send(&call(id, tool, "{}", ""));
    let mut answer = peer.answer(id);
    let text = answer["result"]["content"][0]["text"].as_str().map(str::to_owned);
    match text {
        // TOOL-01
        Some(text) if text.starts_with("the tool could not be started") => {
            Err(json!({"message": text}))
        }
        Some(text) => Ok(text),
        None => Err(answer["error"].take()),
    }
}

/// TSK-39: calling a tool gives no user root's rights, and with `peer` the tool has the caller's
/// user, groups and environment. With control groups and with guards.
#[test]
fn tool_has_the_rights_of_its_configured_user() {
    if !is_root() {
        return;
    }
    for containment in ["", "guard"] {
        let home = Home::new();
        configure(&home, "", TOOLS);
        fs::create_dir(home.path().join("private")).unwrap();
        let closed = fs::Permissions::from_mode(0o700);
        fs::set_permissions(home.path().join("private"), closed).unwrap();
        let mut command = home.command(&["serve"]);
        command.env("CEASED_CONTAINMENT", containment);
        let daemon = Daemon::start_with(home, command);
        let mut root = daemon.peer();
        assert_eq!(text(&mut root, "plain").unwrap(), "0\n");
        assert_eq!(text(&mut root, "games").unwrap(), "5\n");
        assert!(text(&mut root, "private").unwrap().contains("private"));
        let mut bin = peer_as(&daemon.home, 2);
        let refused = text(&mut bin, "plain").unwrap_err();
        assert_eq!(refused["code"], -31011, "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("run_as"), "{refused}");
        assert_eq!(text(&mut bin, "daemon").unwrap(), "0\n");
        assert_eq!(text(&mut bin, "games").unwrap(), "5\n");
        let output = text(&mut bin, "whoami").unwrap();
        assert!(
            output.starts_with("2\n2\n2\n/bin bin bin\n/") && output.ends_with("/bin\nx\n"),
            "{output}"
        );
        assert!(!text(&mut bin, "back").unwrap().contains('0'));
        let refused = text(&mut bin, "private").unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains("private"), "{refused}");
        // Without an account the tool does not run.
        let refused = text(&mut peer_as(&daemon.home, 3_999_999), "whoami").unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains("no account"), "{refused}");
        // The tool is stopped like any other.
        let id = bin.call("stubborn", "{}");
        bin.wait_started(&[id]);
        bin.cancel(id);
        daemon.wait_until_no_job();
    }
}

/// SEC-01: a tool gets only the configured variables of the daemon's environment, and under another
/// user those of that user.
#[test]
fn environment_of_a_tool_is_clean() {
    if !is_root() {
        return;
    }
    const TOOLS: &str = r#"
[[tool]]
name = "peer"
command = ["env"]
run_as = "peer"

[[tool]]
name = "own"
command = ["env"]
run_as = "daemon"

[[tool]]
name = "named"
command = ["env"]
run_as = "peer"
pass_env = ["DATABASE_URL", "LD_*"]
env_file = "secrets.env"
env = { FROM_BOTH = "env" }

[[tool]]
name = "all"
command = ["env"]
run_as = "peer"
inherit_env = true
"#;
    for containment in ["", "guard", "groups"] {
        let home = Home::new();
        configure(&home, "", TOOLS);
        let file = home.path().join("secrets.env");
        fs::write(&file, "# what it needs\nFROM_FILE='a b'\nFROM_BOTH=file\n").unwrap();
        let mut command = home.command(&["serve"]);
        command.env("CEASED_CONTAINMENT", containment).env("HOME", "/ours").env("LANG", "C");
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("AWS_SECRET_ACCESS_KEY", "s3cret").env("DATABASE_URL", "s3cret");
        command.env("LD_LIBRARY_PATH", "/s3cret").env("XDG_CONFIG_HOME", "/ours/c");
        command.env("CREDENTIALS_DIRECTORY", "/s3cret").env("CEASED_TOKEN", "s3cret");
        let daemon = Daemon::start_with(home, command);
        let mut bin = peer_as(&daemon.home, 2);
        let theirs = text(&mut bin, "peer").unwrap();
        for want in ["HOME=/bin\n", "USER=bin\n", "LOGNAME=bin\n", "LANG=C\n", "PATH="] {
            assert!(theirs.contains(want), "{want} in {theirs}");
        }
        for secret in ["s3cret", "/ours", "CARGO"] {
            assert!(!theirs.contains(secret), "{secret} in {theirs}");
        }
        let ours = text(&mut bin, "own").unwrap();
        assert!(ours.contains("HOME=/ours\n") && ours.contains("XDG_CONFIG_HOME=/ours/c\n"));
        assert!(!ours.contains("s3cret"), "{ours}");
        let named = text(&mut bin, "named").unwrap();
        for want in ["DATABASE_URL=s3cret", "LD_LIBRARY_PATH=/s3cret", "FROM_FILE=a b\n"] {
            assert!(named.contains(want), "{want} in {named}");
        }
        assert!(named.contains("FROM_BOTH=env\n") && !named.contains("AWS_"), "{named}");
        let all = text(&mut bin, "all").unwrap();
        assert!(all.contains("AWS_SECRET_ACCESS_KEY=s3cret") && all.contains("HOME=/bin\n"));
        assert!(!all.contains("CEASED_TOKEN"), "{all}");
        // A reload reads and checks the env file again.
        fs::write(&file, "FROM_FILE=later\n").unwrap();
        daemon.signal(Signal::HUP);
        wait_until("the new env file is in effect", || {
            text(&mut bin, "named").unwrap().contains("FROM_FILE=later\n")
        });
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        daemon.signal(Signal::HUP);
        wait_until("the env file is refused", || {
            daemon.home.log().contains("rejected the `env_file`")
        });
        assert!(text(&mut bin, "named").unwrap().contains("FROM_FILE=later\n"));
    }
}

/// The socket has the configured mode and group, whatever the umask.
#[test]
fn socket_has_its_mode_and_group() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let configure = |home: &Home, lines: &str| {
        let socket = home.socket();
        home.configure_as(&format!(
            "[[listen]]\ntransport = \"unix\"\npath = {socket:?}\nmode = \"0660\"\n{lines}\n"
        ));
    };
    configure(&home, "group = \"games\"");
    let command = home.command_after("umask 077", &["serve"]);
    let daemon = Daemon::start_with(home, command);
    let found = fs::metadata(daemon.socket()).unwrap();
    assert_eq!((found.mode() & 0o777, found.uid(), found.gid()), (0o660, 0, 60));
    // A socket file left by a killed daemon is replaced.
    let home = daemon.kill();
    assert!(home.socket().exists());
    let daemon = Daemon::start_in(home);
    // The socket of a live daemon is not replaced.
    let mut second = daemon.home.command(&["serve"]);
    second.env("XDG_STATE_HOME", daemon.home.path().join("another"));
    let ended = second.output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("already running"));
    assert_eq!(daemon.peer().result("ping", "{}"), serde_json::json!({}));
    // A reload changes the group of the socket, and restores it.
    for (lines, group) in [("group = \"daemon\"", 1), ("", 0)] {
        configure(&daemon.home, lines);
        daemon.signal(Signal::HUP);
        wait_until(&format!("the socket has the group {group}"), || {
            let found = fs::metadata(daemon.socket()).unwrap();
            (found.mode() & 0o777, found.gid()) == (0o660, group)
        });
    }
    assert_eq!(daemon.peer().result("ping", "{}"), serde_json::json!({}));
}
