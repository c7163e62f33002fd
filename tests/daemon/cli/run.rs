//! `ceased run`: commands of callers, each as its caller alone.

use std::process::Command;

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{
    Config, Daemon, Home, Program, Ran, Signal, assert_none_left, carriers, marker, wait_until,
};
use serde_json::json;

const ALLOWED: Config<'_> =
    Config { daemon: "allow_run = true", limits: "", tasks: "", tools: "", tcp: true };

fn exits(home: &Home, code: i32, args: &[&str]) -> Ran {
    let ran = home.run(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    ran
}

#[test]
fn command_runs_where_its_caller_is_with_its_streams_and_exit_code() {
    let home = Home::new();
    home.configure(&ALLOWED);
    let audit = home.path().join("audit.jsonl");
    home.configure_as(&format!("{}\n[log]\naudit = {audit:?}\n", home.config_text()));
    let daemon = Daemon::start_in(home);
    let home = &daemon.home;
    let script = "pwd; echo aside >&2; echo \"$A$CEASED_PROGRESS\"; [ -n \"$PATH\" ]";
    let ran = exits(home, 0, &["run", "--env", "A=b", "--", "sh", "-c", script]);
    assert_eq!(ran.out, format!("{}\nb3\n", home.path().display()));
    assert_eq!(ran.err, "aside\n");

    let ran = exits(home, 3, &["run", "sh", "-c", "echo out; echo why >&2; exit 3"]);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\n", "why\n"));
    let ran = exits(home, 0, &["run", "true"]);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
    exits(home, 143, &["run", "sh", "-c", "kill -TERM $$"]);
    let ran = exits(home, 127, &["run", "--", "no-such-program"]);
    assert!(ran.err.contains("no-such-program"), "{ran:?}");
    let ran = exits(home, 5, &["run", "--json", "--", "sh", "-c", "echo out; exit 5"]);
    let result: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(result["structuredContent"]["exitCode"], 5, "{result}");
    exits(home, 2, &["run"]);
    let mark = marker();
    exits(home, 124, &["run", "--timeout", "300ms", "--", "sleep", &mark]);
    assert_none_left(&mark);
    wait_until("the audit log has the command", || {
        let log = std::fs::read_to_string(&audit).unwrap_or_default();
        log.lines().any(|line| line.contains("\"event\":\"call\"") && line.contains("ceased/run"))
    });
}

#[test]
fn commands_of_callers_need_permission() {
    let daemon = Daemon::start(&Config::default());
    let ran = exits(&daemon.home, 1, &["run", "--", "true"]);
    assert!(ran.err.contains("allow_run = true"), "{ran:?}");
    let daemon = Daemon::start(&ALLOWED);
    let mut anonymous = daemon.tcp_peer();
    let id = anonymous.request("ceased/run", r#"{"command":["true"]}"#);
    assert_eq!(anonymous.answer(id)["error"]["code"], -31_011);
    let mut peer = daemon.peer();
    let call = peer.call("ceased/run", r#"{"command":["true"]}"#);
    assert_eq!(peer.answer(call)["error"]["code"], -32602);
    for params in [json!({}), json!({"command": []})] {
        let id = peer.request("ceased/run", &params.to_string());
        assert_eq!(peer.answer(id)["error"]["code"], -32602, "{params}");
    }
    // A refused directory is a result that names it, as for a tool.
    let id = peer.request("ceased/run", r#"{"command":["true"],"cwd":"relative/dir"}"#);
    let answer = peer.answer(id);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(answer.to_string().contains("relative/dir"), "{answer}");
}

/// CAN-13: Ctrl-C ends every process of the command, also one that ignores SIGTERM.
#[test]
fn ctrl_c_leaves_no_process_of_a_command() {
    let daemon = Daemon::start(&ALLOWED);
    let mark = marker();
    let script = "trap '' TERM; setsid sleep \"$1\" & sleep \"$1\" & sleep \"$1\"; sleep \"$1\"";
    let run = daemon.home.start(&["run", "--", "sh", "-c", script, "sh", &mark]);
    wait_until("its processes run", || carriers(&mark).len() >= 4);
    run.signal(Signal::INT);
    let ran = run.wait();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_none_left(&mark);
}

#[test]
fn detached_command_is_a_task() {
    let daemon = Daemon::start(&ALLOWED);
    let home = &daemon.home;
    let ran = exits(home, 0, &["run", "--detach", "--", "sh", "-c", "echo made"]);
    let id = ran.out.trim();
    assert_eq!(exits(home, 0, &["result", id]).out, "made\n");
    assert!(exits(home, 0, &["get", id]).out.contains("ceased/run"));

    let mark = marker();
    let id = exits(home, 0, &["run", "--detach", "--", "sleep", &mark]).out;
    wait_until("it runs", || !carriers(&mark).is_empty());
    let shown = exits(home, 0, &["ps"]).out;
    assert!(shown.contains("ceased/run") && shown.contains("command=[\"sleep\""), "{shown}");
    assert!(!shown.contains("_meta") && !shown.contains("PATH"), "{shown}");
    exits(home, 0, &["cancel", id.trim()]);
    assert_none_left(&mark);
}

/// The binary as the user of this uid, which has an account on every machine.
fn as_user(home: &Home, uid: &str, args: &[&str]) -> Option<Ran> {
    let line = format!("exec setpriv --reuid {uid} --regid {uid} --clear-groups \"$@\"");
    let tried =
        Command::new("sh").args(["-c", &line, "sh"]).arg(ceased()).arg("--version").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("SKIPPED: cannot become another user");
        return None;
    }
    Some(Program::start(home, home.command_after(&line, args)).wait())
}

/// TSK-39: a daemon that runs as root runs a command as its caller.
#[test]
fn root_runs_commands_as_their_callers() {
    let home = Home::new();
    home.configure(&ALLOWED);
    let shared =
        home.config_text().replace("transport = \"unix\"", "mode = \"0666\"\ntransport = \"unix\"");
    home.configure_as(&shared);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.path(), open).unwrap();
    let daemon = Daemon::start_in(home);
    let home = &daemon.home;
    assert_eq!(exits(home, 0, &["run", "--", "id", "-u"]).out.trim(), "0");
    let Some(ran) = as_user(home, "1", &["run", "--", "sh", "-c", "id -u; id -g; pwd"]) else {
        return;
    };
    let theirs = format!("1\n1\n{}\n", home.path().display());
    assert_eq!((ran.code, ran.out), (Some(0), theirs));
}

/// TSK-39: a daemon of another user runs no command as itself.
#[test]
fn daemon_of_another_user_refuses_a_command() {
    let home = Home::new();
    home.configure(&ALLOWED);
    let Some(command) = home.command_limited(1, 64, &["serve"]) else {
        eprintln!("SKIPPED: cannot become another user");
        return;
    };
    let daemon = Daemon::start_with(home, command);
    let ran = exits(&daemon.home, 1, &["run", "--", "id", "-u"]);
    assert!(format!("{ran:?}").contains("the command runs as its caller, uid 0"), "{ran:?}");
}

/// The whole input and output of a filter passes, and more than the daemon keeps of an output.
#[test]
fn command_is_a_filter() {
    let daemon = Daemon::start(&ALLOWED);
    let home = &daemon.home;
    let numbers: String = (0..400_000).map(|number| format!("{number}\n")).collect();
    let input = home.path().join("input");
    std::fs::write(&input, &numbers).unwrap();
    let mut command = home.command(&["run", "tac"]);
    command.stdin(std::fs::File::open(&input).unwrap());
    let ran = Program::start(home, command).wait();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.lines().rev().eq(numbers.lines()), "{} bytes", ran.out.len());
    // The end of the output of its caller reaches it.
    let line = format!("{} run yes | head -n 1", ceased().display());
    let mut command = home.command(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    shell.current_dir(home.path());
    command = shell;
    let ran = Program::start(home, command).wait();
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "y\n"), "{ran:?}");
}
