//! `on_end`: a command after the end of a task or a long call (SEC-05), and the store of ended calls.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{
    Config, Daemon, Home, assert_none_left, carriers, marker, wait_for_family, wait_until,
};
use rustix::process::getuid;
use serde_json::{Value, json};

use crate::user::User;

const TOOLS: &str = r#"
[[tool]]
name = "quick"
builtin = "echo"
task_support = "optional"

[[tool]]
name = "mute"
command = ["true"]
max_output = "64KiB"
run_as = "daemon"
task_support = "optional"
on_end = []
"#;

/// A daemon whose `on_end` appends a line with these words of the shell to a file.
fn daemon(words: &str, more: &str) -> (Daemon, PathBuf) {
    let home = Home::new();
    let file = home.path().join("ends");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let script = format!("echo {words} >> {}", file.display());
    let command = json!(["sh", "-c", script, "told", "{tool}", "{outcome}"]);
    let lines = format!("on_end = {command}\n{more}");
    home.configure(&Config { daemon: &lines, tools: TOOLS, ..Config::default() });
    (Daemon::start_in(home), file)
}

/// Waits for so many lines.
fn lines(file: &PathBuf, count: usize) -> Vec<String> {
    let read = || -> Vec<String> {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    wait_until(&format!("{count} lines in {}", file.display()), || read().len() >= count);
    read()
}

/// A command runs after a task and after a long call with the facts of the call, not after a short
/// one, nor after a tool without it.
#[test]
fn ends_of_tasks_and_long_calls_are_told() {
    let (daemon, file) = daemon(
        "$1 $2 $CEASED_TOOL/$CEASED_OUTCOME/${CEASED_TASK:-none} $(cat $CEASED_RECEIPT)",
        "on_end_after = \"200ms\"\n",
    );
    let mut peer = daemon.peer();
    let short = peer.call("quick", r#"{"text":"x"}"#);
    peer.text(short);
    let mute = peer.create_task("mute", "{}");
    let _ = peer.result("tasks/result", &json!({"taskId": mute}).to_string());
    let task = peer.create_task("fail", "{}");
    let line = lines(&file, 1).remove(0);
    let (words, receipt) = line.split_once('{').expect("a receipt");
    assert_eq!(words, format!("fail failed fail/failed/{task} "));
    let receipt: Value = serde_json::from_str(&format!("{{{receipt}")).expect("JSON");
    let facts = (&receipt["tool"], &receipt["task"], &receipt["exit_code"], &receipt["receipt"]);
    assert_eq!(facts, (&json!("fail"), &json!(task), &json!(7), &Value::Null));

    let mark = marker();
    let call = peer.call("family", &json!({"t": mark}).to_string());
    wait_for_family(&mark);
    // It ends 200 ms later at the earliest, by SIGKILL.
    peer.cancel(call);
    let line = lines(&file, 2).remove(1);
    let (words, receipt) = line.split_once('{').expect("a receipt");
    assert_eq!(words, "family stopped family/stopped/none ");
    let receipt: Value = serde_json::from_str(&format!("{{{receipt}")).expect("JSON");
    assert_eq!(
        (&receipt["outcome"], &receipt["receipt"]["survivors"]),
        (&json!("stopped"), &json!(0))
    );
    assert!(receipt["receipt"]["processes_ended"].as_u64() >= Some(1), "{receipt}");
    assert_none_left(&mark);
}

/// A command that takes too long is ended with everything that it started.
#[test]
fn command_has_a_time_limit() {
    let mark = marker();
    let (daemon, _) =
        daemon(&format!("; sleep {mark} & sleep {mark}"), "on_end_timeout = \"1s\"\n");
    let mut peer = daemon.peer();
    peer.create_task("quick", r#"{"text":"x"}"#);
    wait_until("the command runs", || carriers(&mark).len() >= 2);
    wait_until("it is ended", || carriers(&mark).is_empty());
    wait_until("the log says so", || daemon.home.log().contains("on_end has failed"));
}

/// SEC-05: the command has the user that the call had, and a process of it is the requestor on the
/// socket, never an operator.
#[test]
fn command_has_no_more_rights_than_its_call() {
    const SCRIPT: &str = r#"echo "$1 $(id -u) $("$2" --socket "$3" status --json | grep -o '"operator": *[a-z]*')" >> "$4""#;
    let home = Home::new();
    let (file, socket) = (home.path().join("ends"), home.socket());
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let command = json!(["sh", "-c", SCRIPT, "told", "{tool}", ceased(), socket, file]);
    let listen = format!("[[listen]]\ntransport = \"unix\"\npath = {socket:?}\nmode = \"0666\"\n");
    home.configure_as(&format!("[daemon]\non_end = {command}\n{listen}{TOOLS}"));
    let daemon = Daemon::start_in(home);
    let us = getuid().as_raw();
    daemon.peer().create_task("quick", r#"{"text":"x"}"#);
    let line = lines(&file, 1).remove(0).replace(": ", ":");
    assert_eq!(line, format!("quick {us} \"operator\":false"));
    if us != 0 {
        return eprintln!("SKIPPED: two users require root");
    }
    // The tool has no process, and the daemon's user is not for its caller, which has an account.
    let ann = User::with_uid(5);
    let socket = socket.display().to_string();
    let ran = ann.run(&["--socket", &socket, "call", "quick", "text=x", "--task", "--detach"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let line = lines(&file, 2).remove(1).replace(": ", ":");
    assert_eq!(line, format!("quick {} \"operator\":false", ann.uid));
}

/// `ceased ps --all` lists calls that have ended with their receipts, of the user alone.
#[test]
fn ended_calls_are_listed_with_their_receipts() {
    let (daemon, _) = daemon("", "");
    let mut peer = daemon.peer();
    for (tool, arguments) in [("quick", r#"{"text":"hello"}"#), ("fail", "{}")] {
        let call = peer.call(tool, arguments);
        peer.answer(call);
    }
    let mark = marker();
    let call = peer.call("family", &json!({"t": mark}).to_string());
    wait_for_family(&mark);
    peer.cancel(call);
    let mut ended = Value::Null;
    wait_until("three calls have ended", || {
        let ran = daemon.home.run(&["ps", "--all", "--json"]);
        let status: Value = serde_json::from_str(&ran.out).expect("JSON");
        ended = status["host"]["ended"].clone();
        ended.as_array().is_some_and(|calls| calls.len() == 3)
    });
    let tools: Vec<_> = ended.as_array().into_iter().flatten().map(|call| &call["tool"]).collect();
    assert_none_left(&mark);
    assert_eq!(tools, ["family", "fail", "quick"]);
    assert_eq!(ended[0]["receipt"]["survivors"], 0, "{ended}");
    assert_eq!(ended[1]["exit_code"], 7);
    assert_eq!(ended[2]["arguments"], "text=hello");
    assert_eq!(ended[2]["identity"], format!("uid:{}", getuid().as_raw()));
    let text = daemon.home.run(&["ps", "-a"]).out;
    let line = |word: &str| text.lines().find(|line| line.contains(word)).unwrap_or_default();
    assert!(line("family").contains(" left in "), "{text}");
    assert!(line("fail").contains("failed (exit code 7)"), "{text}");
    assert!(line("quick").contains("text=hello"), "{text}");
    assert!(!daemon.home.run(&["ps"]).out.contains("text=hello"));
}

/// `ceased logs --tail` begins with the last lines.
#[test]
fn logs_begin_with_the_last_lines() {
    let (daemon, _) = daemon("", "");
    let mut peer = daemon.peer();
    let task = peer.create_task("count", r#"{"n":9}"#);
    let _ = peer.result("tasks/result", &json!({"taskId": task}).to_string());
    assert_eq!(daemon.home.run(&["logs", &task, "--tail", "2"]).out, "8\n9\n");
    assert_eq!(daemon.home.run(&["logs", &task, "--tail", "0"]).out, "");
}
