//! The command line against the real daemon: output and exit codes for users and scripts.

mod adopt;
mod control;
mod init;
mod json_output;
mod live_output;
mod record;
mod run;
mod timeout;
mod top;
mod trust;
mod unusual;

use std::process::{Command, Stdio};

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{
    Config, Daemon, Home, Program, Ran, Signal, assert_none_left, carriers, marker, wait_until,
};
use serde_json::Value;

fn daemon() -> Daemon {
    Daemon::start(&Config { tcp: true, ..Config::default() })
}

/// Runs a command and checks its exit code.
fn exits(home: &Home, code: i32, args: &[&str]) -> Ran {
    let ran = home.run(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    ran
}

/// Starts an endless task and returns its id.
fn detached(home: &Home, mark: &str) -> String {
    let ran = exits(home, 0, &["call", "--detach", "hang", &format!("t={mark}")]);
    wait_until("it hangs", || !carriers(mark).is_empty());
    ran.out.trim().to_owned()
}

#[test]
fn call_prints_the_result() {
    let daemon = daemon();
    let home = &daemon.home;
    let ran = exits(home, 0, &["call", "echo", "text=hello"]);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("hello\n", ""));
    // Typed by the schema: a number for a string input is a string.
    assert_eq!(exits(home, 0, &["call", "echo", "text=5"]).out, "5\n");
    assert_eq!(exits(home, 0, &["call", "echo", "text:=\"j\\u00f6\""]).out, "jö\n");
    assert_eq!(exits(home, 0, &["call", "echo", "--json", r#"{"text":"json"}"#]).out, "json\n");
    let both = ["call", "echo", "--json", r#"{"text":"json"}"#, "text=pair"];
    assert_eq!(exits(home, 0, &both).out, "pair\n");
    let tcp = daemon.tcp_address().to_string();
    assert_eq!(exits(home, 0, &["call", "--tcp", &tcp, "echo", "text=tcp"]).out, "tcp\n");
}

/// Results on standard output; progress on standard error, one line each without a terminal.
#[test]
fn progress_goes_to_standard_error() {
    let daemon = daemon();
    for args in [&["call", "count", "n=3"][..], &["call", "--task", "count", "n=3"]] {
        let ran = exits(&daemon.home, 0, args);
        assert_eq!(ran.out, "1\n2\n3\n");
        let shown: Vec<&str> =
            ran.err.lines().filter(|line| line.starts_with("progress ")).collect();
        assert_eq!(shown.last(), Some(&"progress 3/3 counting"), "{}", ran.err);
    }
}

#[test]
fn failing_tool_exits_with_1() {
    let daemon = daemon();
    for args in [&["call", "fail"][..], &["call", "--task", "fail"]] {
        let ran = exits(&daemon.home, 1, args);
        assert_eq!(ran.out, "out\nerr\nexited with code 7\n", "{ran:?}");
    }
}

/// Wrong use exits with 2, names the mistake and a correction, and calls no tool.
#[test]
fn wrong_use_exits_with_2() {
    let daemon = daemon();
    for (args, hint) in [
        (&["call", "ekho", "text=x"][..], "did you mean \"echo\""),
        (&["call", "echo", "txt=x"], "did you mean \"text\""),
        (&["call", "echo"], "needs text"),
        (&["call", "echo", "text"], "KEY=VALUE"),
        (&["call", "count", "n=many"], "an integer"),
        (&["call", "echo", "text=a", "text=b"], "given twice"),
        (&["call", "echo", "--json", "[1]"], "takes an object"),
        (&["call", "echo", "--json", "{"], "not valid JSON"),
        (&["call", "--task", "echo", "text=x"], "cannot run as a task"),
        (&["call", "--timeout", "soon", "echo", "text=x"], "90s"),
        (&["call", "--timeout", "0s", "echo", "text=x"], "more than zero"),
        (&["connect", "--eof-grace", "2hh"], "90s"),
        // Longer than the clock can represent.
        (&["connect", "--eof-grace", "18446744073709551615s"], "at most 100years"),
        (&["top", "--every", "101y"], "at most 100years"),
        (&["call", "--socket", "x", "--tcp", "y:1", "echo"], "cannot be used with"),
        (&["status", "--tcp", "7411"], "localhost:7411"),
        (&["status", "--tcp", "localhost:65536"], "localhost:7411"),
        (&["cal", "echo"], "call"),
        (&["call", "--nonsense", "echo"], "--nonsense"),
    ] {
        let ran = exits(&daemon.home, 2, args);
        assert!(ran.out.is_empty(), "{ran:?}");
        assert!(ran.err.contains(hint), "{args:?}: {}", ran.err);
    }
    assert_eq!(daemon.status()["counters"]["jobsStarted"], 0);
}

/// CAN-13: Ctrl-C cancels, exits with 130, and all processes are gone before the exit.
#[test]
fn ctrl_c_cancels_and_exits_with_130() {
    let daemon = daemon();
    for (signal, task) in [(Signal::INT, false), (Signal::INT, true), (Signal::TERM, false)] {
        let mark = marker();
        let argument = format!("t={mark}");
        let mut args = vec!["call", "family", &argument];
        if task {
            args.push("--task");
        }
        let call = daemon.home.start(&args);
        wait_until("progress is printed", || call.err().contains("progress 3"));
        call.signal(signal);
        let ran = call.wait();
        assert_none_left(&mark);
        assert_eq!(ran.code, Some(130), "{signal:?} {ran:?}");
        assert!(ran.err.contains("cancelled by the user"), "{ran:?}");
        assert!(ran.err.contains("processes are gone"), "{ran:?}");
        assert_eq!(ran.out, "half\n", "the output so far: {ran:?}");
    }
    assert_eq!(daemon.status()["tasks"]["cancelled"], 1);
    daemon.wait_idle();
}

/// A second Ctrl-C exits at once; the daemon completes the cancel.
#[test]
fn second_ctrl_c_exits_at_once() {
    let tools = r#"
[[tool]]
name = "deaf"
command = ["sh", "-c", 'trap "" TERM; echo 1 >&3; while :; do sleep "$1"; done', "deaf", "{t}"]
kill_grace = "3s"
[tool.input.t]
type = "string"
required = true
"#;
    let daemon = Daemon::start(&Config { tools, ..Config::default() });
    let mark = marker();
    let call = daemon.home.start(&["call", "deaf", &format!("t={mark}")]);
    wait_until("progress is printed", || call.err().contains("progress 1"));
    call.signal(Signal::INT);
    wait_until("the first Ctrl-C is acknowledged", || call.err().contains("Ctrl-C again"));
    // After a pause, because signals in quick succession count as one Ctrl-C.
    std::thread::sleep(std::time::Duration::from_secs(1));
    call.signal(Signal::INT);
    let ran = call.wait();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.err.contains("exiting without waiting"), "{ran:?}");
    wait_until("the daemon has stopped the tool", || carriers(&mark).is_empty());
    daemon.wait_idle();
}

/// A client that is killed, or whose terminal closes, is disconnected: its plain call ends, its
/// task continues.
#[test]
fn killed_client_ends_its_plain_call_only() {
    client_ends_by(Signal::KILL);
    // Under nohup the client inherits an ignored SIGHUP.
    if !ignores_hangups() {
        client_ends_by(Signal::HUP);
    }
}

/// Whether this process, and so its children, ignore SIGHUP.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has a status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("a number") & 1 == 1
}

fn client_ends_by(signal: Signal) {
    let daemon = daemon();
    let (plain, durable) = (marker(), marker());
    let call = daemon.home.start(&["call", "family", &format!("t={plain}")]);
    let task = daemon.home.start(&["call", "--task", "hang", &format!("t={durable}")]);
    wait_until("both run", || carriers(&plain).len() >= 3 && !carriers(&durable).is_empty());
    wait_until("the task id is printed", || task.err().contains("task "));
    call.signal(signal);
    task.signal(signal);
    call.wait();
    let said = task.wait().err;
    wait_until("the plain call's processes are gone", || carriers(&plain).is_empty());
    assert_eq!(carriers(&durable).len(), 1);
    let id = said.lines().find_map(|line| line.strip_prefix("ceased: task "));
    let id = id.expect("the task id was printed");
    exits(&daemon.home, 0, &["cancel", id]);
    assert_none_left(&durable);
}

/// A task by its id: get, result, watch, cancel.
#[test]
fn detached_task_is_controlled_by_its_id() {
    let daemon = daemon();
    let home = &daemon.home;
    let mark = marker();
    let id = detached(home, &mark);
    let got = exits(home, 0, &["get", &id]);
    assert!(got.out.contains(&id) && got.out.contains("working"), "{got:?}");
    let json: Value = serde_json::from_str(&exits(home, 0, &["get", "--json", &id]).out).unwrap();
    assert_eq!((&json["taskId"], &json["status"]), (&Value::from(id.as_str()), &"working".into()));
    assert!(exits(home, 0, &["tasks"]).out.contains(&id));
    let list: Value = serde_json::from_str(&exits(home, 0, &["tasks", "--json"]).out).unwrap();
    assert_eq!(list[0]["taskId"], id.as_str());

    // An expired wait does not end the task.
    let ran = exits(home, 124, &["result", "--timeout", "200ms", &id]);
    assert!(ran.err.contains("goes on"), "{ran:?}");
    let mut counting = daemon.peer();
    let mut asked = || {
        let status = counting.result("ceased/status", "{}");
        status["counters"]["requests"].as_u64().expect("a counter")
    };
    let mut before = asked();
    let waiting = home.start(&["result", &id]);
    wait_until("the command waits for the result", || {
        // This status request counts too.
        before += 1;
        asked() >= before + 2
    });
    drop(counting);
    waiting.signal(Signal::INT);
    let ran = waiting.wait();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_eq!(carriers(&mark).len(), 1, "an expired wait ended the task");

    let mut watch = home.start(&["watch", &id]);
    wait_until("the watch prints the status", || watch.out().contains("working"));
    assert!(!watch.has_ended());
    let ran = exits(home, 0, &["cancel", "--reason", "no\nlonger", &id]);
    assert_none_left(&mark);
    assert!(ran.out.contains("cancelled"), "{ran:?}");
    let watched = watch.wait();
    assert_eq!(watched.code, Some(0), "{watched:?}");
    assert!(watched.out.lines().last().unwrap().contains("no longer"), "{watched:?}");

    let again = exits(home, 1, &["cancel", &id]);
    assert!(again.err.contains("already cancelled"), "{again:?}");
    let result = exits(home, 1, &["result", &id]);
    assert!(result.err.contains("was cancelled"), "{result:?}");
    assert!(result.out.is_empty());
    // Control characters of a reason never reach the log.
    assert!(daemon.home.log().lines().all(|line| !line.contains('\u{1b}')));
}

/// `tasks`, `get` and `watch` name the tool; an id may be shortened, and `job:N` is one, too.
#[test]
fn tasks_have_tools_and_short_ids() {
    let daemon = daemon();
    let home = &daemon.home;
    let mark = marker();
    let id = detached(home, &mark);
    let short = &id[..8];
    let list = exits(home, 0, &["tasks"]).out;
    assert!(list.starts_with("ID "), "{list}");
    assert!(list.contains(&format!("{id}  hang  working")), "{list}");
    let job = format!("job:{}", daemon.status()["jobs"][0]["job"]);
    for name in [short, &id[..1], &job] {
        let got = exits(home, 0, &["get", name]).out;
        assert!(got.contains(&id) && got.contains("hang") && !got.contains("Z\n"), "{got}");
    }
    let mut watch = home.start(&["watch", short]);
    wait_until("the watch prints the tool", || {
        watch.out().contains(&format!("{id}  hang  working"))
    });
    assert!(!watch.has_ended());
    let ran = exits(home, 0, &["cancel", &job]);
    assert!(ran.out.contains(&id), "{ran:?}");
    assert_none_left(&mark);
    assert_eq!(watch.wait().code, Some(0));
    assert!(exits(home, 4, &["get", "job:999"]).err.contains("there is no job 999"));
    assert!(exits(home, 2, &["get", "job:x"]).err.contains("job:7"));
    // Of ids that begin alike, none is meant.
    let more: Vec<String> = (0..17)
        .map(|_| exits(home, 0, &["call", "--detach", "count", "n=1"]).out.trim().to_owned())
        .collect();
    let first = |id: &String| id[..1].to_owned();
    let twice =
        more.iter().find(|id| more.iter().filter(|other| first(other) == first(id)).count() > 1);
    let ambiguous = first(twice.expect("17 ids begin with 16 digits"));
    let ran = exits(home, 2, &["get", &ambiguous]);
    assert!(
        ran.err.contains("is the beginning of") && ran.err.contains("more characters"),
        "{ran:?}"
    );
}

/// The result of a task equals that of the call, and can be fetched repeatedly.
#[test]
fn task_result_equals_the_call_result() {
    let daemon = daemon();
    let home = &daemon.home;
    let done = exits(home, 0, &["call", "--detach", "count", "n=2"]).out;
    for _ in 0..2 {
        assert_eq!(exits(home, 0, &["result", done.trim()]).out, "1\n2\n");
    }
    let failed = exits(home, 0, &["call", "--detach", "fail"]).out;
    assert!(exits(home, 1, &["result", failed.trim()]).out.starts_with("out\n"));
    assert!(exits(home, 0, &["get", failed.trim()]).out.contains("exited with code 7"));
    assert_eq!(exits(home, 0, &["watch", done.trim()]).out.lines().count(), 1);
}

#[test]
fn unknown_tasks_exit_with_4() {
    let daemon = daemon();
    for id in ["00000000-0000-4000-8000-000000000000", "nonsense", "\u{1b}[2J"] {
        for command in ["get", "result", "cancel", "watch"] {
            let ran = exits(&daemon.home, 4, &[command, id]);
            assert!(ran.out.is_empty(), "{ran:?}");
            assert_eq!(ran.err.matches("there is no task").count(), 1, "{ran:?}");
            assert!(!ran.err.contains('\u{1b}'), "a control character is printed: {ran:?}");
        }
    }
}

/// TSK-39: on one socket each user sees and controls only own tasks; a foreign task gives the same
/// error as an unknown one.
#[test]
fn users_cannot_see_foreign_tasks() {
    let home = Home::new();
    home.configure(&Config::default());
    let shared = home.config_text().replace("transport = ", "mode = \"0666\"\ntransport = ");
    home.configure_as(&shared);
    let daemon = Daemon::start_in(home);
    let home = &daemon.home;
    if home.command_as(1, &[]).is_none() {
        eprintln!("SKIPPED: cannot become another user");
        return;
    }
    let other = |code, args: &[&str]| {
        let command = home.command_as(1, args).expect("the user was changed before");
        let ran = Program::start(home, command).wait();
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        ran
    };
    let mark = marker();
    let id = detached(home, &mark);
    assert!(exits(home, 0, &["tasks"]).out.contains(&id));
    for command in ["get", "result", "cancel", "watch"] {
        let foreign = other(4, &[command, &id]).err;
        let nowhere = "00000000-0000-4000-8000-000000000000";
        assert_eq!(foreign.replace(&id, nowhere), other(4, &[command, nowhere]).err);
    }
    assert!(other(0, &["tasks"]).out.is_empty());
    let status: Value = serde_json::from_str(&other(0, &["status", "--json"]).out).unwrap();
    assert_eq!(status["jobs"], Value::Array(Vec::new()));
    assert_eq!(carriers(&mark).len(), 1);

    // The same in the other direction.
    let theirs = marker();
    let their_id = other(0, &["call", "--detach", "hang", &format!("t={theirs}")]).out;
    wait_until("it hangs", || !carriers(&theirs).is_empty());
    exits(home, 4, &["cancel", their_id.trim()]);
    assert!(!exits(home, 0, &["tasks"]).out.contains(their_id.trim()));
    other(0, &["cancel", their_id.trim()]);
    assert_none_left(&theirs);
    exits(home, 0, &["cancel", &id]);
    assert_none_left(&mark);
}

/// A socket of mode 0600 refuses others, and the command reports the missing permission.
#[test]
fn socket_without_permission_is_reported() {
    let daemon = daemon();
    let Some(command) = daemon.home.command_as(1, &["call", "echo", "text=x"]) else {
        eprintln!("SKIPPED: cannot become another user");
        return;
    };
    let ran = Program::start(&daemon.home, command).wait();
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("Permission denied"), "{ran:?}");
    assert!(ran.out.is_empty(), "{ran:?}");
}

/// Without a daemon every command but `call` exits with 3 and names a remedy; `call` runs the tool
/// itself.
#[test]
fn commands_without_a_daemon_exit_with_3() {
    let home = Home::new();
    home.configure(&Config::default());
    let task = "00000000-0000-4000-8000-000000000000";
    for args in [
        &["ps"][..],
        &["tasks"],
        &["status", "--json"],
        &["get", task],
        &["result", task],
        &["cancel", task],
        &["watch"],
        &["call", "--detach", "sleep", "ms=1"],
        &["call", "--tcp", "127.0.0.1:1", "echo", "text=x"],
    ] {
        let ran = exits(&home, 3, args);
        assert!(ran.out.is_empty(), "{ran:?}");
        assert!(ran.err.contains("no daemon reachable; tried "), "{ran:?}");
        assert!(ran.err.contains("ceased serve"), "{ran:?}");
    }
    assert!(exits(&home, 0, &["tools"]).out.contains("echo"));
    let ran = exits(&home, 0, &["call", "echo", "text=alone"]);
    assert_eq!(ran.out, "alone\n");
    assert!(ran.err.contains("running the tool in this process"), "{ran:?}");
    assert!(exits(&home, 1, &["call", "fail"]).out.starts_with("out\n"));
    assert_eq!(exits(&home, 0, &["call", "--task", "count", "n=1"]).out, "1\n");
}

/// STOP-01 without a daemon: the command contains the tool itself and ends all its processes.
#[test]
fn call_without_a_daemon_ends_its_processes() {
    let home = Home::new();
    home.configure(&Config::default());
    let mark = marker();
    let call = home.start(&["call", "family", &format!("t={mark}")]);
    wait_until("progress is printed", || call.err().contains("progress 3"));
    call.signal(Signal::INT);
    let ran = call.wait();
    assert_none_left(&mark);
    assert_eq!(ran.code, Some(130), "{ran:?}");

    let argument = format!("t={mark}");
    let ran = exits(&home, 124, &["call", "--timeout", "500ms", "family", &argument]);
    assert_none_left(&mark);
    assert!(ran.err.contains("timed out"), "{ran:?}");

    let call = home.start(&["call", "family", &argument]);
    wait_until("progress is printed", || call.err().contains("progress 3"));
    call.signal(Signal::KILL);
    call.wait();
    wait_until("no process survives", || carriers(&mark).is_empty());
}

/// A daemon that ends during a call: exit code 3, or 1 if the daemon reports its shutdown.
#[test]
fn call_reports_the_end_of_its_daemon() {
    let mark = marker();
    let killed = daemon();
    let call = killed.home.start(&["call", "family", &format!("t={mark}")]);
    wait_until("progress is printed", || call.err().contains("progress 3"));
    let home = killed.kill();
    let ran = call.wait();
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("closed the connection"), "{ran:?}");
    wait_until("no process survives", || carriers(&mark).is_empty());

    let daemon = Daemon::start_in(home);
    let call = daemon.home.start(&["call", "family", &format!("t={mark}")]);
    wait_until("progress is printed", || call.err().contains("progress 3"));
    daemon.signal(Signal::TERM);
    let ran = call.wait();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("the daemon is shutting down"), "{ran:?}");
}

#[test]
fn status_and_tools_print_the_daemon() {
    let daemon = daemon();
    let home = &daemon.home;
    let mark = marker();
    let id = detached(home, &mark);
    let status: Value = serde_json::from_str(&exits(home, 0, &["status", "--json"]).out).unwrap();
    assert_eq!(status["connections"], 1);
    assert_eq!(status["jobs"][0]["task"], id.as_str());
    assert_eq!(status["jobs"][0]["tool"], "hang");
    assert_eq!(status["limits"]["workers"], 64);
    let text = exits(home, 0, &["status"]).out;
    for word in ["connections  1 of", "1 running of 64", "1 live of", "hang", "requests"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(text.lines().count() <= 24, "the status fits one screen: {text}");
    let tools = exits(home, 0, &["tools"]).out;
    assert!(tools.starts_with("TOOL "), "{tools}");
    assert!(tools.lines().any(|line| line.starts_with("hang ") && line.contains("optional")));
    assert!(tools.lines().any(|line| line.contains(" [n=3] ")), "{tools}");
    let count = exits(home, 0, &["tools", "count"]).out;
    for word in
        ["ARGUMENT", "n         integer  3", "at least 1", "at most 1000", "ceased call count"]
    {
        assert!(count.contains(word), "{word}: {count}");
    }
    let one: Value =
        serde_json::from_str(&exits(home, 0, &["tools", "count", "--json"]).out).unwrap();
    assert_eq!(one["name"], "count");
    assert!(exits(home, 2, &["tools", "coun"]).err.contains("did you mean \"count\""));
    let list: Value = serde_json::from_str(&exits(home, 0, &["tools", "--json"]).out).unwrap();
    assert!(list.as_array().is_some_and(|list| list.iter().any(|tool| tool["name"] == "echo")));
    exits(home, 0, &["cancel", &id]);
}

/// `check` prints the effective configuration, or the mistakes with their places.
#[test]
fn check_prints_the_configuration_or_its_mistakes() {
    let home = Home::new();
    home.configure(&Config::default());
    let ran = exits(&home, 0, &["check"]);
    assert!(ran.out.contains("config.toml: ok") && ran.out.contains("d.sock"), "{ran:?}");
    for (text, place, hint) in [
        ("[daemon]\nworkerz = 3\n", "config.toml:2", "did you mean `workers`?"),
        ("[limits]\nmessage_bytes = \"3 potatoes\"\n", "config.toml:2", "message_bytes"),
        ("[daemon]\nshutdown_grace = \"2h\"\n", "config.toml:2", "1h"),
        ("[[tool]]\nname = \"x\"\n", "config.toml:1", "command"),
        ("[[tool]]\nname = \"x\"\ncommand = [\"echo\", \"{y}\"]\n", "config.toml:3", "{y}"),
        ("this is no TOML\n", "config.toml:1", ""),
    ] {
        home.configure_as(text);
        let ran = exits(&home, 2, &["check"]);
        assert!(ran.out.is_empty(), "{ran:?}");
        assert!(ran.err.contains(place) && ran.err.contains(hint), "{ran:?}");
        // `serve` reports the same error as `check`.
        assert_eq!(exits(&home, 2, &["serve"]).err, ran.err);
    }
    let ran = exits(&home, 2, &["check", "--config", "nowhere.toml"]);
    assert!(ran.err.contains("nowhere.toml"), "{ran:?}");
}

/// Help and version go to standard output.
#[test]
fn help_and_version_go_to_standard_output() {
    let home = Home::new();
    let ran = exits(&home, 0, &["--help"]);
    for word in ["serve", "stdio", "connect", "call", "Exit codes"] {
        assert!(ran.out.contains(word), "{word}: {}", ran.out);
    }
    // Every exit code for scripts.
    for code in [" 1 the tool failed or the daemon refused", " 74 ", " 75 ", " 124 ", " 130 "] {
        let said = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(code), "{code}: {}", ran.out);
    }
    assert!(exits(&home, 0, &["--version"]).out.starts_with("ceased "));
    assert!(exits(&home, 0, &["call", "--help"]).out.contains("--detach"));
    assert!(exits(&home, 2, &[]).err.contains("Usage"));
}

/// A closed pipe, as of `head`, is no error; a full disk is.
#[test]
fn closed_output_is_no_error_and_a_full_disk_is() {
    let (gone, pipe) = std::io::pipe().unwrap();
    drop(gone);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (out, said) in [(Stdio::from(pipe), ""), (Stdio::from(full), "ceased: cannot write")] {
        let mut command = Command::new(ceased());
        let ran = command.args(["completions", "bash"]).stdout(out).output().unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), err.get(..said.len())), (Some(1), Some(said)), "{err}");
        assert_eq!(err.is_empty(), said.is_empty(), "{err}");
    }
}

/// Every mistake of a file is reported, and those outside of it that `serve` meets.
#[test]
fn check_reports_every_mistake() {
    let home = Home::new();
    let file = home.path().join("wrong.toml");
    let text = "[limits]\nconections = 4\nconnections = 0\n\
                [[tool]]\nname = \"x y\"\ncommand = \"ls\"\ntiemout = \"5\"\n\
                [[tool]]\nname = \"b\"\ncommand = [\"ls\"]\ntiemout = \"5\"\ntimeout = 5\n";
    std::fs::write(&file, text).unwrap();
    let ran = home.run(&["check", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for mistake in [
        "`conections`",
        "`connections` in [limits] is 0",
        "\"x y\"",
        "`command` in [[tool]]",
        "wrong.toml:7",
        "wrong.toml:11",
        "`timeout` in [[tool]]",
    ] {
        assert!(ran.err.contains(mistake), "{mistake}: {}", ran.err);
    }
    assert!(!ran.err.contains("neither"), "{}", ran.err);
    let state = home.path().join("open-state");
    std::fs::create_dir(&state).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&state, open).unwrap();
    let text =
        format!("[daemon]\nstate_dir = {state:?}\n[[tool]]\nname = \"b\"\ncommand = [\"ls\"]\n");
    std::fs::write(&file, &text).unwrap();
    let ran = home.run(&["check", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("chmod 700"), "{ran:?}");
    std::fs::remove_dir(&state).unwrap();
    let ran = home.run(&["check", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let place = |word: &str| ran.out.find(word).unwrap_or_else(|| panic!("{word}: {}", ran.out));
    assert!(place("tool b") < place("workers"), "{}", ran.out);
}

/// The command line understands the habits of users of other tools.
#[test]
fn frequent_ways_of_writing_are_understood() {
    let daemon = Daemon::start(&Config::default());
    let home = &daemon.home;
    let socket = daemon.socket();
    let socket = socket.to_str().unwrap();
    let ran = home.run(&["--socket", socket, "list"]);
    assert!(ran.code == Some(0) && ran.out.contains("TOOL"), "{ran:?}");
    // Nothing to cancel is no failure.
    let ran = home.run(&["cancel", "--all", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let outcome: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(outcome, serde_json::json!({"cancelled": [], "ended": true}));
    let ran = home.run(&["call", "sleep", "ms=60000", "--timeout", "0.2"]);
    assert_eq!(ran.code, Some(124), "{ran:?}");
    let id = || home.run(&["call", "sleep", "ms=60000", "--detach"]).out.trim().to_owned();
    let (one, two) = (id(), id());
    let ran = home.run(&["kill", &one, &two]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out, format!("{one} cancelled\n{two} cancelled\n"));
    for wrong in ["ms=abc", "ms=-1"] {
        assert_eq!(home.run(&["call", "sleep", wrong]).code, Some(2), "{wrong}");
    }
}
