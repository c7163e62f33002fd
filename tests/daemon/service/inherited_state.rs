//! The environment at the start of a daemon: signal settings of its parent, missing system calls, a
//! container in which it is the first process, and guards of a dead daemon.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ceased_tests::daemon::{
    Config, Daemon, Home, Program, Signal, TIME_LIMIT, assert_none_left, carriers, marker,
    wait_until,
};
use serde_json::{Value, json};

const TIERS: [&str; 3] = ["cgroup", "guard", "groups"];

/// A tool that keeps stopping its guard. A single stop is not enough: when a daemon dies, the
/// kernel continues stopped processes of orphaned groups.
const TOOLS: &str = r#"
[[tool]]
name = "stop_guard"
run_as = "daemon"
command = [
  "sh",
  "-c",
  '''
  trap "" TERM
  guard=$PPID
  setsid sleep "$1" &
  for i in 1 2 3 4; do (while :; do kill -STOP $guard; done) & done
  echo 1 >&3
  wait
  ''',
  "sh",
  "{t}",
]
[tool.input.t]
type = "string"
required = true
"#;

const ISOLATED: &str = r#"
[[tool]]
name = "alone"
run_as = "daemon"
isolation = "pid"
command = ["sh", "-c", "echo $$"]
"#;

fn home(daemon: &str, tools: &str) -> Home {
    let home = Home::new();
    home.configure(&Config { daemon, tools, ..Config::default() });
    home
}

/// Whether this machine has a tier; prints a line if not.
fn has(tier: &str) -> bool {
    let home = home("", "");
    let mut command = home.command(&["call", "fail"]);
    let ran = Program::start(&home, {
        command.env("CEASED_CONTAINMENT", tier);
        command
    })
    .wait();
    let has = ran.code == Some(1);
    if !has {
        eprintln!("SKIPPED with {tier}: {}", ran.err);
    }
    has
}

fn call(daemon: &Daemon, tool: &str) -> Value {
    let mut peer = daemon.peer();
    let id = peer.call(tool, "{}");
    peer.answer(id)["result"].clone()
}

// STOP-01
#[test]
fn inherited_signal_settings_are_reset() {
    let line = "exec env --ignore-signal=CHLD,TERM --block-signal=TERM,HUP,INT,CHLD \"$@\"";
    for tier in TIERS.into_iter().filter(|tier| has(tier)) {
        let home = home("", "");
        let mut command = home.command_after(line, &["serve"]);
        command.env("CEASED_CONTAINMENT", tier);
        let mut daemon = Daemon::start_with(home, command);
        let result = call(&daemon, "fail");
        assert_eq!(result["structuredContent"]["exitCode"], json!(7), "{tier}: {result}");
        daemon.signal(Signal::HUP);
        wait_until("the reload is logged", || daemon.home.log().contains("reload"));
        daemon.signal(Signal::TERM);
        assert!(daemon.wait().success(), "{tier}");
    }
}

/// A line that runs the rest of a command with these system calls failing; `None` with a printed
/// line if that is impossible.
fn without(calls: &[(&str, u32)], error: u32) -> Option<String> {
    let numbers = match std::env::consts::ARCH {
        "x86_64" => [("memfd_create", 319), ("waitid", 247), ("seccomp", 317), ("prctl", 157)],
        "aarch64" => [("memfd_create", 279), ("waitid", 95), ("seccomp", 277), ("prctl", 167)],
        other => {
            eprintln!("SKIPPED: system call numbers of {other} are unknown");
            return None;
        }
    };
    let number = |name: &str| numbers.iter().find(|(other, _)| *other == name).unwrap().1;
    let denied: Vec<String> = calls
        .iter()
        .map(|(name, shared)| if *shared == 0 { number(name) } else { *shared }.to_string())
        .collect();
    let (denied, prctl, seccomp) = (denied.join(","), number("prctl"), number("seccomp"));
    let script = format!(
        "my @f = ([0x20, 0, 0, 0]); \
         push @f, [0x15, 0, 1, $_], [0x06, 0, 0, 0x50000 | {error}] for ({denied}); \
         push @f, [0x06, 0, 0, 0x7fff0000]; \
         my $f = join \"\", map {{ pack \"SCCL\", @$_ }} @f; \
         my $p = pack \"S x6 P\", scalar @f, $f; \
         syscall({prctl}, 38, 1, 0, 0, 0) == 0 or die; \
         syscall({seccomp}, 1, 0, $p) == 0 or die \"no seccomp\"; \
         exec @ARGV or die"
    );
    let line = format!("exec perl -e '{script}' \"$@\"");
    let works = Command::new("sh").args(["-c", &line, "sh", "true"]).status();
    if !works.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no perl or no seccomp here");
        return None;
    }
    Some(line)
}

const CLONE3: (&str, u32) = ("clone3", 435);
const PIDFD_OPEN: (&str, u32) = ("pidfd_open", 434);
const MEMFD_CREATE: (&str, u32) = ("memfd_create", 0);
const WAITID: (&str, u32) = ("waitid", 0);
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

// STOP-01
#[test]
fn tools_start_without_newer_system_calls() {
    let cases: [(&[(&str, u32)], u32); 6] = [
        (&[CLONE3], ENOSYS),
        (&[PIDFD_OPEN], ENOSYS),
        (&[PIDFD_OPEN], EPERM),
        (&[MEMFD_CREATE], ENOSYS),
        (&[MEMFD_CREATE], EPERM),
        (&[CLONE3, PIDFD_OPEN, MEMFD_CREATE], ENOSYS),
    ];
    for (calls, error) in cases {
        let Some(line) = without(calls, error) else { return };
        let home = home("", "");
        let command = home.command_after(&line, &["serve"]);
        let mut daemon = Daemon::start_with(home, command);
        let result = call(&daemon, "fail");
        let log = daemon.home.log();
        assert_eq!(result["structuredContent"]["exitCode"], json!(7), "{calls:?}: {result} {log}");
        if calls.contains(&PIDFD_OPEN) {
            let is_named = || daemon.home.log().contains("pidfd_open");
            wait_until("the log names the missing call", is_named);
        }
        // A command that needs SIGKILL is ended too.
        let marker = marker();
        let mut peer = daemon.peer();
        let id = peer.call("family", &format!(r#"{{"t":"{marker}"}}"#));
        wait_until("it runs", || !carriers(&marker).is_empty());
        peer.cancel(id);
        let in_session = |(_, args): &(i32, String)| !args.contains("far");
        if calls.contains(&PIDFD_OPEN) {
            wait_until("the tool is gone", || {
                carriers(&marker).iter().filter(|c| in_session(c)).count() <= 1
            });
            carriers(&marker).iter().for_each(|(pid, _)| {
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            });
        } else {
            wait_until("the tool is gone", || carriers(&marker).is_empty());
        }
        daemon.signal(Signal::TERM);
        daemon.wait();
    }
}

#[test]
fn start_names_the_missing_calls_when_no_fallback_works() {
    let Some(line) = without(&[PIDFD_OPEN, WAITID], ENOSYS) else { return };
    let home = home("", "");
    let mut command = home.command_after(&line, &["serve"]);
    command.env("CEASED_CONTAINMENT", "");
    let ran = Program::start(&home, command).wait();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for want in ["no command can be run here", "guards: pidfd_open", "Function not implemented"] {
        assert!(ran.err.contains(want), "{want}: {ran:?}");
    }
}

/// State and parent of a process.
fn look(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    Some((rest.next()?.chars().next()?, rest.next()?.parse().ok()?))
}

/// An orphan that no tool started goes to the first process of a container, and exits while that
/// process is idle.
#[test]
fn first_process_of_a_container_reaps_orphans_while_idle() {
    let apart = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let works = Command::new("unshare").args(apart).arg("true").status();
    if !works.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no pid namespaces here");
        return;
    }
    for tier in TIERS.into_iter().filter(|tier| has(tier)) {
        let home = home("", "");
        let line = format!("exec unshare {} \"$@\"", apart.join(" "));
        let mut command = home.command_after(&line, &["serve"]);
        command.env("CEASED_CONTAINMENT", tier);
        let daemon = Daemon::start_with(home, command);
        let outer = daemon.pid();
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
        let first: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
        let marker = marker();
        let script = "(setsid sleep \"$1\" &)";
        let namespace = format!("--pid=/proc/{first}/ns/pid");
        let entered =
            Command::new("nsenter").args([&namespace, "sh", "-c", script, "sh", &marker]).status();
        assert!(entered.is_ok_and(|status| status.success()));
        let mut orphan = 0;
        wait_until("the orphan is adopted", || {
            let found = carriers(&marker);
            orphan = found.first().map_or(0, |(pid, _)| *pid);
            found.len() == 1 && look(orphan).is_some_and(|(_, parent)| parent == first)
        });
        assert!(Command::new("kill").args(["-9", &orphan.to_string()]).status().unwrap().success());
        wait_until("the orphan is reaped", || look(orphan).is_none());
        drop(daemon);
    }
}

/// Guards stopped by their job do nothing when the daemon is killed: the next start ends them.
fn next_start_ends_stopped_guards(home: Home, line: &str) {
    let start = |home: Home| {
        let mut command = home.command_after(line, &["serve"]);
        command.env("CEASED_CONTAINMENT", "guard").env("XDG_RUNTIME_DIR", home.path());
        Daemon::start_with(home, command)
    };
    let daemon = start(home);
    let marker = marker();
    let mut peer = daemon.peer();
    let call = peer.call("stop_guard", &format!(r#"{{"t":"{marker}"}}"#));
    peer.wait_started(&[call]);
    wait_until("all processes run", || carriers(&marker).len() == 6);
    let home = daemon.kill();
    let begun = Instant::now();
    let daemon = start(home);
    assert!(
        begun.elapsed() < TIME_LIMIT / 2,
        "the start waited for the guards: {:?}",
        begun.elapsed()
    );
    assert_none_left(&marker);
    assert_eq!(call_echo(&daemon), "x");
}

fn call_echo(daemon: &Daemon) -> String {
    let mut peer = daemon.peer();
    let id = peer.call("echo", r#"{"text":"x"}"#);
    peer.text(id)
}

// STOP-01
#[test]
fn stopped_guard_of_a_killed_daemon_is_ended_by_the_next_start() {
    for daemon in ["", "store = \"memory\""] {
        next_start_ends_stopped_guards(home(daemon, TOOLS), ":");
        // As an ordinary user that owns the directory.
        let home = home(daemon, TOOLS);
        let uid = "281973";
        let owned = Command::new("chown").args(["-R", uid]).arg(home.path()).status();
        let line = format!("exec setpriv --reuid {uid} --regid {uid} --clear-groups \"$@\"");
        let works = Command::new("sh").args(["-c", &line, "sh", "true"]).status();
        if !owned.is_ok_and(|s| s.success()) || !works.is_ok_and(|s| s.success()) {
            eprintln!("SKIPPED as another user: cannot become one");
            continue;
        }
        next_start_ends_stopped_guards(home, &line);
    }
}

/// Tools of the daemon's own user cannot read its memory and environment.
#[test]
fn daemon_and_guard_cannot_be_traced() {
    let home = home("", TOOLS);
    let mut command = home.command(&["serve"]);
    command.env("CEASED_CONTAINMENT", "guard");
    let daemon = Daemon::start_with(home, command);
    let marker = marker();
    let mut peer = daemon.peer();
    let call = peer.call("hang", &format!(r#"{{"t":"{marker}"}}"#));
    let mut found = Vec::new();
    wait_until("it runs", || {
        found = carriers(&marker);
        found.len() == 1
    });
    let (tool, _) = found.remove(0);
    let (_, guard) = look(tool).unwrap();
    let owner = |pid: i32| {
        let path = format!("/proc/{pid}/environ");
        std::os::unix::fs::MetadataExt::uid(&fs::metadata(path).unwrap())
    };
    // Files in /proc of a process that is not dumpable belong to root; for root this proves little.
    assert_eq!((owner(daemon.pid()), owner(guard)), (0, 0));
    let is_readable_to_another = |pid: i32| {
        let status = Command::new("setpriv")
            .args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"])
            .args(["cat", &format!("/proc/{pid}/environ")])
            .output();
        status.is_ok_and(|output| output.status.success())
    };
    if is_readable_to_another(tool) {
        assert!(!is_readable_to_another(daemon.pid()) && !is_readable_to_another(guard));
    } else {
        eprintln!("SKIPPED: cannot drop capabilities here");
    }
    peer.cancel(call);
    wait_until("the tool is gone", || carriers(&marker).is_empty());
}

/// Whether this line works as the prefix of a command.
fn can(line: &str) -> bool {
    let status = Command::new("sh").args(["-c", line, "sh", "true"]).status();
    let can = status.is_ok_and(|status| status.success());
    if !can {
        eprintln!("SKIPPED: not possible here: {line}");
    }
    can
}

#[test]
fn isolation_of_a_tool_is_as_configured() {
    let inherit = ISOLATED.replace("isolation = \"pid\"\n", "");
    let opted_out = ISOLATED.replace("\"pid\"", "\"none\"");
    let by_default = "isolation = \"pid\"";
    for (daemon, tools, is_isolated) in [
        ("", ISOLATED, true),
        ("", inherit.as_str(), false),
        (by_default, inherit.as_str(), true),
        (by_default, opted_out.as_str(), false),
    ] {
        let daemon = Daemon::start(&Config { daemon, tools, ..Config::default() });
        if daemon.home.log().contains("cannot create a pid namespace") {
            eprintln!("SKIPPED: no pid namespaces here");
            return;
        }
        let mut peer = daemon.peer();
        let id = peer.call("alone", "{}");
        let text = peer.text(id);
        assert_eq!(text.trim() == "2", is_isolated, "{tools}: {text}");
    }
}

/// Without namespaces, the start and `check` report it, and calls fail with that reason.
#[test]
fn unavailable_isolation_is_reported() {
    let line = "exec unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_pid_namespaces; exec \"$@\"' sh \
                \"$@\"";
    if !Path::new("/proc/sys/user/max_pid_namespaces").exists() || !can(line) {
        return;
    }
    let home = home("", ISOLATED);
    let ran = Program::start(&home, home.command_after(line, &["check"])).wait();
    let why = "isolation = \"pid\": cannot create a pid namespace: No space left on device";
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains(why) && ran.err.contains("calls of alone fail"), "{ran:?}");
    let command = home.command_after(line, &["serve"]);
    let daemon = Daemon::start_with(home, command);
    wait_until("the log says it", || daemon.home.log().contains("cannot create a pid namespace"));
    let mut peer = daemon.peer();
    let id = peer.call("alone", "{}");
    let answer = peer.answer(id);
    assert!(answer.to_string().contains("cannot create a pid namespace"), "{answer}");
    assert_eq!(call_echo(&daemon), "x");
}
