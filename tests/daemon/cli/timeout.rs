//! `ceased call --timeout`: the exit code, the output, and the end of the tool's processes.

use ceased_tests::daemon::{Config, Daemon, Home, Ran, assert_none_left, marker, wait_until};

/// Prints a line, reports progress, and waits.
const CHATTY: &str = r#"
[[tool]]
name = "chatty"
command = ["sh", "-c", 'echo so far; echo 1/3 begun >&3; sleep "$1" & wait', "chatty", "{t}"]
[tool.input.t]
type = "string"
required = true
"#;

/// Runs a command and checks its exit code.
fn exits(home: &Home, code: i32, args: &[&str]) -> Ran {
    let ran = home.run(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    ran
}

/// `--timeout` exits with 124 after all processes have ended.
#[test]
fn timeout_exits_with_124() {
    let daemon = Daemon::start(&Config::default());
    for task in [false, true] {
        let mark = marker();
        let argument = format!("t={mark}");
        let mut args = vec!["call", "--timeout", "500ms", "family", &argument];
        if task {
            args.push("--task");
        }
        let ran = exits(&daemon.home, 124, &args);
        assert_none_left(&mark);
        assert!(ran.err.contains("timed out after 500ms"), "{ran:?}");
        assert!(ran.err.contains("processes are gone"), "{ran:?}");
    }
    let status = daemon.status();
    assert_eq!(status["tasks"]["cancelled"], 1);
}

/// After a timeout the output so far is printed, and no process is left, with a daemon and without.
#[test]
fn timeout_prints_the_output_so_far() {
    let daemon = Daemon::start(&Config { tools: CHATTY, ..Config::default() });
    let alone = Home::new();
    alone.configure(&Config { tools: CHATTY, ..Config::default() });
    for home in [&daemon.home, &alone] {
        let mark = marker();
        let argument = format!("t={mark}");
        let ran = exits(home, 124, &["call", "--timeout", "1s", "chatty", &argument]);
        assert_none_left(&mark);
        assert!(ran.out.starts_with("so far\n"), "{ran:?}");
        assert!(ran.err.contains("progress 1/3 begun"), "{ran:?}");
        assert!(ran.err.contains("timed out after 1s"), "{ran:?}");
        assert!(ran.err.contains("processes are gone"), "{ran:?}");
    }
    // A queued call has no output.
    let config = Config { daemon: "workers = 1", tools: CHATTY, ..Config::default() };
    let daemon = Daemon::start(&config);
    let mark = marker();
    let mut peer = daemon.peer();
    let first = peer.call("chatty", &format!(r#"{{"t":"{mark}"}}"#));
    wait_until("it runs", || daemon.status()["running"] == 1);
    let ran = exits(&daemon.home, 124, &["call", "--timeout", "300ms", "chatty", "t=1"]);
    assert_eq!(ran.out, "", "{ran:?}");
    assert!(ran.err.contains("timed out after 300ms"), "{ran:?}");
    assert_eq!(daemon.status()["queued"], 0);
    peer.cancel(first);
}

/// A command stopped by another user through its job number is answered with its output and the
/// cause, not only with a signal.
#[test]
fn command_stopped_by_an_operator_reports_it() {
    let daemon = Daemon::start(&Config { tools: CHATTY, ..Config::default() });
    let (mut requestor, mut operator) = (daemon.peer(), daemon.peer());
    let mark = marker();
    let arguments = format!(r#"{{"t":"{mark}"}}"#);
    let id = requestor.call("chatty", &arguments);
    requestor.note("notifications/progress");
    let job = daemon.status()["jobs"][0]["job"].as_u64().expect("it runs");
    operator.result("ceased/cancel", &format!(r#"{{"job":{job}}}"#));
    let result = requestor.answer(id)["result"].clone();
    assert_none_left(&mark);
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(result["structuredContent"]["cancelled"], true, "{result}");
    assert_eq!(result["content"][0]["text"], "so far\n");
    let said = result["content"][1]["text"].as_str().unwrap_or_default();
    assert_eq!(said, "was cancelled");
}
