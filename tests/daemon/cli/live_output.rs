//! Output of `ceased call` while the tool runs, and the output so far of a cancelled call.

use ceased_tests::daemon::{
    Config, Daemon, Home, Program, Signal, assert_none_left, marker, wait_until,
};

/// Both print on both streams and wait; the first has merged output.
const TOOLS: &str = r#"
[[tool]]
name = "merged"
command = ["sh", "-c", 'echo begun; echo trouble >&2; echo 1 up >&3; sleep "$1" & wait', "x", "{t}"]
task_support = "optional"
[tool.input.t]
type = "string"
required = true
[[tool]]
name = "separate"
command = ["sh", "-c", 'echo begun; echo trouble >&2; echo 1 up >&3; sleep "$1" & wait', "x", "{t}"]
output = "stdout"
task_support = "optional"
[tool.input.t]
type = "string"
required = true
[[tool]]
name = "short"
command = ["sh", "-c", 'echo early >&2; sleep 1; echo late >&2; echo done']
output = "stdout"
"#;

fn homes() -> (Daemon, Home) {
    let daemon = Daemon::start(&Config { tools: TOOLS, ..Config::default() });
    let alone = Home::new();
    alone.configure(&Config { tools: TOOLS, ..Config::default() });
    (daemon, alone)
}

fn start(home: &Home, tool: &str, mark: &str, more: &[&str]) -> Program {
    let argument = format!("t={mark}");
    home.start(&[&["call", tool, &argument], more].concat())
}

/// Standard error is shown before the call ends; standard output is the result and comes once.
#[test]
fn call_shows_standard_error_while_the_tool_runs() {
    let (daemon, alone) = homes();
    for home in [&daemon.home, &alone] {
        let mark = marker();
        let mut call = start(home, "separate", &mark, &[]);
        wait_until("standard error is shown", || call.err().contains("trouble\n"));
        assert!(!call.has_ended() && call.out().is_empty(), "{}", call.out());
        call.signal(Signal::INT);
        let ran = call.wait();
        assert_eq!((ran.code, ran.out.as_str()), (Some(130), "begun\n"), "{ran:?}");
        assert_eq!(ran.err.matches("trouble").count(), 1, "{ran:?}");
        assert_none_left(&mark);
    }
    let ran = daemon.home.run(&["call", "short"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "done\n"), "{ran:?}");
    assert_eq!(ran.err, "early\nlate\n", "{ran:?}");
}

/// After Ctrl-C or a timeout the output so far is printed, of a plain call and of a task.
#[test]
fn cancelled_call_prints_its_output_so_far() {
    let (daemon, alone) = homes();
    for (home, more, code) in [
        (&daemon.home, &[][..], 130),
        (&daemon.home, &["--task"], 130),
        (&alone, &[], 130),
        (&daemon.home, &["--timeout", "2s"], 124),
        (&daemon.home, &["--task", "--timeout", "2s"], 124),
    ] {
        let mark = marker();
        let call = start(home, "merged", &mark, more);
        wait_until("it runs", || call.err().contains("progress 1 up"));
        if code == 130 {
            call.signal(Signal::INT);
        }
        let ran = call.wait();
        assert_eq!((ran.code, ran.out.as_str()), (Some(code), "begun\ntrouble\n"), "{ran:?}");
        assert!(ran.err.contains("processes are gone"), "{ran:?}");
        assert_none_left(&mark);
    }
}

/// `ceased logs` takes the beginning of the id of a task, also after a cancel.
#[test]
fn logs_take_a_short_id() {
    let (daemon, _) = homes();
    let mark = marker();
    let argument = format!("t={mark}");
    let id = daemon.home.run(&["call", "--detach", "separate", &argument]).out;
    let logs = |follow: &[&str]| daemon.home.run(&[&["logs", &id[..8]], follow].concat());
    wait_until("it has printed", || logs(&[]).out == "begun\n");
    assert_eq!(daemon.home.run(&["cancel", &id[..8]]).code, Some(0));
    let ran = logs(&["--follow"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "begun\n", "trouble\n"));
    assert_none_left(&mark);
}
