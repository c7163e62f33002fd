//! `ceased ps` and `ceased top` on a terminal of 80 columns and 24 lines (CAN-13), and on a wide one.

use ceased_tests::daemon::{Config, Daemon, Peer, Signal, assert_none_left, marker, wait_until};
use ceased_tests::screen::Screen;
use rustix::process::{Pid, kill_process};
use serde_json::json;

const LINES: u16 = 24;
const COLUMNS: u16 = 80;

fn start_sized(daemon: &Daemon, args: &[&str], no_color: bool, size: (u16, u16)) -> Screen {
    let mut command = daemon.home.command(args);
    command.env("CEASED_SOCKET", daemon.socket()).env_remove("NO_COLOR");
    if no_color {
        command.env("NO_COLOR", "1");
    }
    Screen::start(&command, size)
}

fn start(daemon: &Daemon, args: &[&str], no_color: bool) -> Screen {
    start_sized(daemon, args, no_color, (LINES, COLUMNS))
}

/// A tool that ignores SIGTERM for longer than the test takes.
const STUBBORN: &str = r#"
[[tool]]
name = "stubborn"
max_output = "64KiB"
command = ["sh", "-c", "trap '' TERM; echo 1/4 stirring >&3; sleep \"$1\" & wait; wait", "x", "{t}"]
task_support = "optional"
kill_grace = "5s"
[tool.input.t]
type = "string"
required = true
"#;

fn daemon() -> (Daemon, Peer) {
    let daemon = Daemon::start(&Config { tools: STUBBORN, ..Config::default() });
    let peer = daemon.peer();
    (daemon, peer)
}

/// Name of a user on this machine, or the number without one.
fn name_of(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid:{uid}"))
}

fn user_name() -> String {
    name_of(rustix::process::getuid().as_raw())
}

fn line<'a>(text: &'a str, part: &str) -> &'a str {
    text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part}:\n{text}"))
}

/// `ceased ps` prints jobs, owners, ages, and cancel states.
#[test]
fn ps_lists_jobs_with_owner_and_cancel_state() {
    let (daemon, mut peer) = daemon();
    let mark = marker();
    let call = peer.call("stubborn", &json!({"t": mark}).to_string());
    peer.wait_started(&[call]);
    let task = peer.create_task("sleep", r#"{"ms":600000}"#);
    let ran = daemon.home.run(&["ps"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let running = line(&ran.out, "stubborn");
    assert!(running.contains(&user_name()) && running.contains("[###-------] 25%"), "{running}");
    assert!(ran.out.contains("└ ") && ran.out.contains(" sleep"), "its processes: {}", ran.out);
    assert!(line(&ran.out, &task[..8]).contains("working, ttl 59m"), "{}", ran.out);
    assert!(ran.out.lines().all(|line| line.chars().count() <= 100), "{}", ran.out);
    let json = daemon.home.run(&["ps", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(json["host"]["survivors"], 0);
    // CAN-13: from the request until the last process has ended.
    peer.send(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{call},"reason":"no use"}}}}"#
    ));
    let mut shown = String::new();
    wait_until("the job is shown as cancelling", || {
        shown = daemon.home.run(&["ps"]).out;
        shown.contains("SIGTERM: no use")
    });
    let cancelling = line(&shown, "SIGTERM: no use").to_owned();
    assert!(cancelling.contains("  cancelling "), "{cancelling}");
    wait_until("the end is shown", || {
        shown = daemon.home.run(&["ps"]).out;
        shown.contains("CEASED")
    });
    assert_none_left(&mark);
    assert!(!shown.contains("SIGTERM: no use"), "{shown}");
    assert!(line(&shown, ": no use").contains(" ended, 0 left in "), "{shown}");
    assert!(shown.contains("cancels done: 1"), "{shown}");
}

/// CAN-13: a cancel by keys at 80x24, from the confirmation to the receipt.
#[test]
fn top_cancels_the_selected_job() {
    let (daemon, mut peer) = daemon();
    let mark = marker();
    let call = peer.call("stubborn", &json!({"t": mark}).to_string());
    peer.wait_started(&[call]);
    let screen = start(&daemon, &["top", "--every", "100ms"], false);
    let text = screen.wait("the job is shown", |text| text.contains("stubborn"));
    assert!(text.lines().count() <= usize::from(LINES));
    assert!(line(&text, "stubborn").starts_with('>'), "the job is not selected:\n{text}");
    assert!(line(&text, "stubborn").contains(&user_name()), "{text}");
    screen.wait("the processes are shown", |text| text.contains("└ ") && text.contains("sleep"));
    assert!(line(&text, "survivors").contains("survivors 0"), "{text}");
    screen.press("c");
    let text = screen.wait("a confirmation is shown", |text| text.contains("cancel job 1"));
    assert!(line(&text, "cancel job 1").contains("stubborn"), "{text}");
    screen.press("n");
    screen.wait("the refusal is shown", |text| text.contains("not cancelled"));
    assert_eq!(daemon.status()["cancelling"], 0);
    screen.press("cy");
    let text =
        screen.wait("the job is shown as cancelling", |text| text.contains("SIGTERM: ceased top"));
    assert!(line(&text, "SIGTERM:").contains("cancelling"), "{text}");
    let text = screen.wait("the job is shown as ceased", |text| text.contains(", 0 left in "));
    assert!(text.contains("CEASED") && !text.contains("SIGTERM:"), "{text}");
    assert!(line(&text, ", 0 left in ").contains("s: ceased top"), "{text}");
    assert_none_left(&mark);
    // The receipt stays visible with its age.
    let of_receipt =
        |text: &str| text.lines().find(|line| line.contains(", 0 left in ")).map(str::to_owned);
    screen.wait("the receipt is still shown", |text| {
        of_receipt(text).is_some_and(|line| line.contains("s ago ") && !line.contains(" 0."))
    });
    assert!(!peer.answer(call)["result"]["isError"].is_null(), "the requestor was answered");
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
}

/// CAN-13: one screen of 80 columns and 24 lines shows the running jobs, their owners and ages, and
/// whether a cancel is complete.
#[test]
fn top_shows_jobs_owners_ages_and_cancels() {
    let config = Config { daemon: "workers = 3", tools: STUBBORN, ..Config::default() };
    let daemon = Daemon::start(&config);
    let mut peer = daemon.peer();
    let marks = [marker(), marker()];
    let calls = marks.each_ref().map(|mark| {
        let call = peer.call("stubborn", &json!({"t": mark}).to_string());
        peer.wait_started(&[call]);
        call
    });
    let other = daemon.peer_of(1);
    let mut other_call = other.map(|mut other| {
        let call = other.call("sleep", r#"{"ms":600000}"#);
        other.result("ping", "{}");
        (other, call)
    });
    let task = peer.create_task("sleep", r#"{"ms":600001}"#);
    // One cancel is complete, one is in progress.
    peer.cancel(calls[0]);
    wait_until("the first cancel is complete", || {
        daemon.home.run(&["ps"]).out.contains(", 0 left in ")
    });
    let screen = start(&daemon, &["top", "--every", "100ms"], true);
    screen.wait("the receipt is shown", |text| text.contains("CANCEL DONE"));
    peer.cancel(calls[1]);
    let text =
        screen.wait("the second job is being cancelled", |text| text.contains("cancelling 0."));
    eprintln!("{text}");
    // Job, owner and age are in columns with these heads.
    let heads = line(&text, "STARTED");
    assert!(["JOB", "TOOL", "USER", "STATE"].iter().all(|head| heads.contains(head)), "{heads}");
    let job = line(&text, "cancelling 0.");
    assert!(
        job.contains("stubborn") && job.contains(&user_name()) && job.contains("s ago"),
        "{job}"
    );
    assert!(job.contains("SIGTERM: test"), "how far, and why: {job}");
    if other_call.is_some() {
        let theirs =
            text.lines().find(|line| line.contains(" sleep ") && line.contains(&name_of(1)));
        assert!(theirs.is_some_and(|line| line.contains("ago  running")), "{text}");
    }
    let of_task = line(&text, &task[..8]);
    assert!(of_task.contains("sleep") && of_task.contains("working, ttl 59m"), "{of_task}");
    // A completed cancel is shown as done, the other one is not.
    let done = line(&text, ", 0 left in ");
    assert!(done.contains("stubborn") && done.contains(" ended,"), "{done}");
    assert!(line(&text, "survivors").contains("cancels done: 1") && text.contains("survivors 0"));
    assert!(!text.contains("uid:1 "), "names, not numbers: {text}");
    assert!(text.lines().all(|line| line.chars().count() <= usize::from(COLUMNS)), "{text}");
    let text =
        screen.wait("both cancels are complete", |text| text.matches(", 0 left in ").count() == 2);
    assert!(line(&text, "survivors").contains("cancels done: 2"), "{text}");
    for mark in &marks {
        assert_none_left(mark);
    }
    if let Some((other, call)) = &mut other_call {
        other.cancel(*call);
    }
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
}

/// The other keys: filter, sort, inspect, and exit by Ctrl-C.
#[test]
fn top_filters_sorts_and_inspects() {
    let (daemon, mut peer) = daemon();
    let task = peer.create_task("sleep", r#"{"ms":600000}"#);
    let call = peer.call("hang", &json!({"t": marker()}).to_string());
    wait_until("both run", || daemon.status()["running"] == 2);
    let screen = start(&daemon, &["top", "--every", "100ms"], false);
    screen.wait("job and task are shown", |text| text.contains("hang") && text.contains("TASK"));
    screen.press("/hang");
    let shows = |text: &str| text.contains("filter: hang_") && !text.contains("TASK");
    screen.wait("the list is filtered", shows);
    screen.press("\r");
    screen.wait("the filter is shown", |text| text.contains("filter: hang"));
    screen.press("\u{1b}");
    screen.wait("the whole list is shown again", |text| text.contains("TASK"));
    screen.press("s");
    screen.wait("another order", |text| text.contains("(age)"));
    screen.press("G");
    screen.press("i");
    screen.wait("a connection in detail", |text| text.contains("protocol MCP 2025-11-25"));
    screen.press("gi");
    screen.press("i");
    let text = screen.wait("a job in detail", |text| text.contains("requested on connection"));
    assert!(text.contains("details"), "{text}");
    assert!(line(&text, "task ").contains(&task), "{text}");
    screen.press("\u{3}");
    assert_eq!(screen.end(), Some(0));
    peer.cancel(call);
}

/// Without colours the content is the same; a resize is handled; a signal restores the terminal.
#[test]
fn top_without_colours_handles_resize_and_signals() {
    let (daemon, mut peer) = daemon();
    let call = peer.call("stubborn", &json!({"t": marker()}).to_string());
    peer.wait_started(&[call]);
    for no_color in [true, false] {
        let screen = start(&daemon, &["top", "--every", "100ms"], no_color);
        screen.wait("the job is shown", |text| text.contains("stubborn"));
        let is_coloured = screen.look(|screen| {
            let cells = (0..LINES).flat_map(|row| (0..COLUMNS).map(move |column| (row, column)));
            cells.filter_map(|(row, column)| screen.cell(row, column)).any(|cell| {
                cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default
            })
        });
        assert_eq!(is_coloured, !no_color);
        screen.resize(10, 40);
        let text = screen.wait("it fits", |text| {
            text.lines().count() <= 10 && text.contains("q quit") && text.contains("stubborn")
        });
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        let pid = Pid::from_raw(screen.id().cast_signed()).expect("a child has an id");
        kill_process(pid, Signal::TERM).expect("it runs");
        assert_eq!(screen.end(), Some(0));
    }
    peer.cancel(call);
}

/// `ceased top` is idle without changes, and exits with the daemon.
#[test]
fn top_is_idle_without_changes_and_exits_with_the_daemon() {
    let (daemon, _peer) = daemon();
    let screen = start(&daemon, &["top", "--every", "1h"], false);
    screen.wait("the screen is shown", |text| text.contains("q quit"));
    let ticks = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let rest = stat.rsplit_once(')').expect("a name").1.to_owned();
        let number = |at| rest.split_whitespace().nth(at).and_then(|it| it.parse::<u64>().ok());
        number(11).zip(number(12)).map_or(0, |(user, system)| user + system)
    };
    let before = ticks(screen.id());
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(ticks(screen.id()) - before <= 20, "the program uses the processor while idle");
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
    let screen = start(&daemon, &["top", "--every", "100ms"], false);
    screen.wait("the screen is shown", |text| text.contains("q quit"));
    drop(daemon);
    assert_eq!(screen.end(), Some(3));
}

/// Without a terminal, `ceased top` names an alternative.
#[test]
fn top_without_a_terminal_names_an_alternative() {
    let (daemon, _peer) = daemon();
    let ran = daemon.home.run(&["top"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("needs a terminal") && ran.err.contains("ceased ps"), "{ran:?}");
}

/// The output of a call is on the terminal while the tool runs, and once.
#[test]
fn call_shows_output_on_the_terminal_once() {
    const TALK: &str = r#"
[[tool]]
name = "talk"
command = ["sh", "-c", 'echo begun; echo trouble >&2; sleep "$1" & wait', "x", "{t}"]
[tool.input.t]
type = "string"
required = true
[[tool]]
name = "flunk"
command = ["sh", "-c", 'printf "\033[31mred\033[0m\n" >&2; sleep 2; echo last; exit 3']
"#;
    let daemon = Daemon::start(&Config { tools: TALK, ..Config::default() });
    let mark = marker();
    let screen = start(&daemon, &["call", "talk", &format!("t={mark}")], true);
    screen.wait("output is shown", |text| text.contains("begun\ntrouble\n"));
    screen.press("\x03");
    let text = screen.wait("it is cancelled", |text| text.contains("processes are gone"));
    assert_eq!(text.matches("begun").count(), 1, "{text}");
    assert_eq!(screen.end(), Some(130));
    assert_none_left(&mark);
    let screen = start(&daemon, &["call", "flunk"], true);
    let text = screen.wait("it has failed", |text| text.contains("exited with code 3"));
    assert!(text.contains("red\nlast\nexited with code 3"), "{text}");
    assert_eq!(screen.end(), Some(1));
}

/// A tool that uses a CPU and memory, and prints.
const BUSY: &str = r#"
[[tool]]
name = "busy"
command = ["sh", "-c", 'echo begun; echo "line of $1"; while :; do :; done', "x", "{project}", "{api_token}"]
task_support = "optional"
[tool.input.project]
type = "string"
required = true
[tool.input.api_token]
type = "string"
required = true
"#;

/// `ps`, `top` and `get` show arguments without secrets, the last line, CPU and memory of a job: below
/// it on a narrow screen, in columns on a wide one.
#[test]
fn views_show_arguments_output_and_usage() {
    let daemon = Daemon::start(&Config { tools: BUSY, ..Config::default() });
    let mut peer = daemon.peer();
    let call = peer.call("busy", r#"{"project":"demo","api_token":"s3cret"}"#);
    let mut ran = String::new();
    // The first measurement may be of the very start.
    wait_until("CPU and memory are shown", || {
        ran = daemon.home.run(&["ps"]).out;
        ran.contains("% CPU, ") && !ran.contains(" 0% CPU") && ran.contains("| line of demo")
    });
    // The first share may be of less than a millisecond.
    wait_until("CPU time is counted", || {
        let status: serde_json::Value =
            serde_json::from_str(&daemon.home.run(&["ps", "--json"]).out).expect("JSON");
        let work = &status["host"]["jobs"][status["jobs"][0]["job"].to_string()];
        work["cpuMs"].as_u64().is_some_and(|cpu| cpu > 0)
    });
    let below = line(&ran, "% CPU");
    assert!(below.contains("project=demo") && below.contains("api_token=[redacted]"), "{ran}");
    assert!(!ran.contains("s3cret"), "{ran}");
    let status = daemon.home.run(&["ps", "--json"]).out;
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let work = &status["host"]["jobs"][status["jobs"][0]["job"].to_string()];
    assert!(work["memoryBytes"].as_u64().is_some_and(|bytes| bytes > 64 * 1024), "{work}");
    assert!(work["cpuMs"].as_u64().is_some_and(|cpu| cpu > 0), "{work}");
    assert_eq!(work["lastLine"], "line of demo");
    let got = daemon.home.run(&["get", &format!("job:{}", status["jobs"][0]["job"])]).out;
    assert!(got.contains("of one CPU lately; memory ") && got.contains("project=demo"), "{got}");

    let screen = start(&daemon, &["top", "--every", "200ms"], true);
    let text = screen.wait("the job is shown", |text| text.contains("% CPU, "));
    assert!(line(&text, "% CPU").contains("project=demo"), "{text}");
    screen.resize(LINES, 160);
    let text = screen.wait("the columns are shown", |text| text.contains("ARGUMENTS"));
    let job = line(&text, " busy ");
    for part in ["%", "project=demo", "api_token=[redacted]", "running | line of demo"] {
        assert!(job.contains(part), "{part}: {text}");
    }
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
    peer.cancel(call);
}

/// Another user sees no job of its own, neither its arguments nor its numbers.
#[test]
fn work_is_shown_to_its_owner_alone() {
    let daemon = Daemon::start(&Config { tools: BUSY, ..Config::default() });
    let Some(mut other) = daemon.peer_of(1) else {
        eprintln!("skipped: another user needs root");
        return;
    };
    let mut peer = daemon.peer();
    let call = peer.call("busy", r#"{"project":"demo","api_token":"s3cret"}"#);
    wait_until("it runs", || daemon.status()["running"] == 1);
    let status = other.result("ceased/status", r#"{"detail":true}"#);
    assert_eq!((&status["running"], &status["host"]["jobs"]), (&json!(0), &json!({})), "{status}");
    assert!(!status.to_string().contains("demo"), "{status}");
    peer.cancel(call);
}

/// A list that does not fit is scrolled by a page, and says how much more there is.
#[test]
fn top_scrolls_by_pages() {
    let config = Config { daemon: "workers = 60", ..Config::default() };
    let daemon = Daemon::start(&config);
    let mut peer = daemon.peer();
    let calls: Vec<_> = (0..50).map(|_| peer.call("sleep", r#"{"ms":600000}"#)).collect();
    wait_until("all run", || daemon.status()["running"] == 50);
    let screen = start(&daemon, &["top", "--every", "200ms"], true);
    screen.wait("the list does not fit", |text| {
        text.contains("0 more above") && text.contains(" more below (PageUp, PageDown)")
    });
    screen.press("\x1b[6~\x1b[6~");
    let text = screen.wait("the list is scrolled", |text| {
        text.contains(" more above") && !text.contains(" 0 more above")
    });
    assert!(text.lines().count() <= usize::from(LINES), "{text}");
    screen.press("\x1b[5~\x1b[5~");
    screen.wait("it is at its top again", |text| text.contains(" 0 more above"));
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
    calls.into_iter().for_each(|call| peer.cancel(call));
}

/// `watch` has a heading on a terminal; `tasks` and `ps` are as wide as the terminal at most.
#[test]
fn tables_fit_the_terminal() {
    let (daemon, mut peer) = daemon();
    let task = peer.create_task("sleep", r#"{"ms":600000}"#);
    let screen = start(&daemon, &["watch", &task[..6]], true);
    let text = screen.wait("the task is shown", |text| text.contains("working"));
    assert!(line(&text, "TIME").contains("ID        TOOL"), "{text}");
    assert!(line(&text, "working").contains(&format!("{}  sleep", &task[..8])), "{text}");
    screen.press("\x03");
    assert_eq!(screen.end(), Some(130));
    for (args, shows) in [(&["tasks"][..], "STATE"), (&["ps"], "survivors")] {
        let screen = start_sized(&daemon, args, false, (LINES, 60));
        let text = screen.wait("the list is shown", |text| text.contains(shows));
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert_eq!(screen.end(), Some(0));
    }
}
