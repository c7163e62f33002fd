//! `ceased ps` and `ceased top` on a terminal of 80 columns and 24 lines (CAN-13).

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{
    Config, Daemon, PATIENCE, Peer, Signal, assert_none_left, marker, wait_until,
};
use rustix::process::{Pid, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::json;

/// A program on its own terminal.
struct Screen {
    child: Child,
    ours: OwnedFd,
    /// The other end, to check the mode in which the program leaves the terminal.
    theirs: OwnedFd,
    before: Termios,
    terminal: Arc<Mutex<vt100::Parser>>,
}

const LINES: u16 = 24;
const COLUMNS: u16 = 80;

/// A number of lines or columns.
fn some(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a screen has lines and columns")
}

fn size(ours: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(ours, size).expect("a terminal has a size");
}

impl Screen {
    fn start(daemon: &Daemon, args: &[&str], no_color: bool) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a terminal");
        grantpt(&ours).expect("ours");
        unlockpt(&ours).expect("ours");
        let theirs = ioctl_tiocgptpeer(&ours, flags).expect("the terminal has another end");
        size(&ours, LINES, COLUMNS);
        let before = tcgetattr(&theirs).expect("a terminal has a mode");
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(ceased()).args(args).current_dir(daemon.home.path());
        command.env("TERM", "xterm-256color").env("CEASED_SOCKET", daemon.socket());
        command.env_remove("NO_COLOR").stdin(end()).stdout(end()).stderr(end());
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let child = command.spawn().expect("the program can be started");
        let terminal = Arc::new(Mutex::new(vt100::Parser::new(some(LINES), some(COLUMNS), 0)));
        let mut reader = File::from(ours.try_clone().expect("a descriptor"));
        let shared = Arc::clone(&terminal);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let mut terminal = shared.lock().unwrap_or_else(PoisonError::into_inner);
                terminal.process(bytes.get(..count).unwrap_or_default());
            }
        });
        Self { child, ours, theirs, before, terminal }
    }

    fn look<T>(&self, see: impl FnOnce(&vt100::Screen) -> T) -> T {
        see(self.terminal.lock().unwrap_or_else(PoisonError::into_inner).screen())
    }

    fn text(&self) -> String {
        self.look(vt100::Screen::contents)
    }

    /// Waits until the screen shows the text and is stable.
    fn wait(&self, what: &str, shows: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        let mut before = self.text();
        loop {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let text = self.text();
            if text == before && shows(&text) {
                return text;
            }
            assert!(Instant::now() < until, "in vain: {what}\n{text}");
            before = text;
        }
    }

    fn press(&self, keys: &str) {
        let mut ours = File::from(self.ours.try_clone().expect("a descriptor"));
        ours.write_all(keys.as_bytes()).expect("it reads");
    }

    fn resize(&self, rows: u16, columns: u16) {
        let mut terminal = self.terminal.lock().unwrap_or_else(PoisonError::into_inner);
        terminal.screen_mut().set_size(some(rows), some(columns));
        drop(terminal);
        size(&self.ours, rows, columns);
    }

    /// Waits for the exit and checks that the terminal's mode is restored.
    fn end(mut self) -> Option<i32> {
        let mut code = None;
        wait_until("it ends", || {
            code = self.child.try_wait().expect("a child").map(|status| status.code());
            code.is_some()
        });
        let after = tcgetattr(&self.theirs).expect("a terminal has a mode");
        assert_eq!(after.local_modes, self.before.local_modes, "raw mode is left");
        assert!(after.local_modes.contains(LocalModes::ECHO));
        wait_until("the other screen is left", || self.look(|screen| !screen.alternate_screen()));
        wait_until("the cursor is shown again", || !self.look(vt100::Screen::hide_cursor));
        code.flatten()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    let screen = Screen::start(&daemon, &["top", "--every", "100ms"], false);
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
    let screen = Screen::start(&daemon, &["top", "--every", "100ms"], true);
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
    let screen = Screen::start(&daemon, &["top", "--every", "100ms"], false);
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
        let screen = Screen::start(&daemon, &["top", "--every", "100ms"], no_color);
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
        let pid = Pid::from_raw(screen.child.id().cast_signed()).expect("a child has an id");
        kill_process(pid, Signal::TERM).expect("it runs");
        assert_eq!(screen.end(), Some(0));
    }
    peer.cancel(call);
}

/// `ceased top` is idle without changes, and exits with the daemon.
#[test]
fn top_is_idle_without_changes_and_exits_with_the_daemon() {
    let (daemon, _peer) = daemon();
    let screen = Screen::start(&daemon, &["top", "--every", "1h"], false);
    screen.wait("the screen is shown", |text| text.contains("q quit"));
    let ticks = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let rest = stat.rsplit_once(')').expect("a name").1.to_owned();
        let number = |at| rest.split_whitespace().nth(at).and_then(|it| it.parse::<u64>().ok());
        number(11).zip(number(12)).map_or(0, |(user, system)| user + system)
    };
    let before = ticks(screen.child.id());
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(ticks(screen.child.id()) - before <= 20, "the program uses the processor while idle");
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
    let screen = Screen::start(&daemon, &["top", "--every", "100ms"], false);
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
    let screen = Screen::start(&daemon, &["call", "talk", &format!("t={mark}")], true);
    screen.wait("output is shown", |text| text.contains("begun\ntrouble\n"));
    screen.press("\x03");
    let text = screen.wait("it is cancelled", |text| text.contains("processes are gone"));
    assert_eq!(text.matches("begun").count(), 1, "{text}");
    assert_eq!(screen.end(), Some(130));
    assert_none_left(&mark);
    let screen = Screen::start(&daemon, &["call", "flunk"], true);
    let text = screen.wait("it has failed", |text| text.contains("exited with code 3"));
    assert!(text.contains("red\nlast\nexited with code 3"), "{text}");
    assert_eq!(screen.end(), Some(1));
}
