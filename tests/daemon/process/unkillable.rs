//! Tools with processes that the daemon may not kill: calls are answered, the jobs stay visible to
//! an operator, and the daemon's exit reports them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ceased_tests::c_tool::{CTool, ROOTED};
use ceased_tests::daemon::{
    Config, Daemon, Home, Signal, TIME_LIMIT, assert_none_left, carriers, marker, wait_until,
};
use serde_json::{Value, json};

/// A daemon of an ordinary user with a set-uid root tool, in a tier without control groups.
struct Lasting {
    daemon: Daemon,
    tool: CTool,
}

impl Lasting {
    /// `None` with a printed line if this process may not change its user, or set-uid programs have
    /// no effect.
    fn start(containment: &str) -> Option<Self> {
        let tool = CTool::build(ROOTED, 0o4755)?;
        let home = Home::new();
        let (path, until) = (tool.path(), tool.file("until"));
        let audit = home.path().join("audit.jsonl");
        let tools = format!(
            "[log]\naudit = {audit:?}\n\
             [[tool]]\nname = \"rooted\"\ntimeout = \"700ms\"\nkill_grace = \"200ms\"\n\
             command = [{path:?}, \"{{mark}}\", {until:?}]\n\
             [tool.input.mark]\ntype = \"string\"\nrequired = true\n\
             [[tool]]\nname = \"leaves\"\nkill_grace = \"200ms\"\n\
             command = [\"sh\", \"-c\", 'echo done; \"$@\" & exit 0', \"sh\", {path:?}, \
             \"{{mark}}\", {until:?}]\n\
             [tool.input.mark]\ntype = \"string\"\nrequired = true\n"
        );
        home.configure(&Config {
            daemon: "shutdown_grace = \"6s\"\nstore = \"memory\"",
            tools: &tools,
            ..Config::default()
        });
        let mut command = home.command_limited(0, 200, &["serve"]).or_else(|| {
            eprintln!("SKIPPED: cannot become another user");
            None
        })?;
        command.env("CEASED_CONTAINMENT", containment);
        let open = fs::Permissions::from_mode(0o666);
        fs::write(home.log_path(), "").expect("the log is ours");
        fs::set_permissions(home.log_path(), open).expect("the log is ours");
        let daemon = Daemon::start_with(home, command);
        Some(Self { daemon, tool })
    }

    fn records(&self, members: &Value) -> Vec<Value> {
        let text = fs::read_to_string(self.daemon.home.path().join("audit.jsonl"));
        let text = text.unwrap_or_default();
        let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let members = members.as_object().expect("an object");
        all.filter(|record| members.iter().all(|(name, value)| record[name] == *value)).collect()
    }

    /// Survivors according to `ceased status`.
    fn survivors(&self) -> Value {
        let ran = self.daemon.home.run(&["status", "--json"]);
        let status: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
        status["host"]["survivors"].clone()
    }

    fn until(&self) -> PathBuf {
        self.tool.path().with_file_name("until")
    }
}

fn remove(path: &Path) {
    fs::remove_file(path).expect("the file is ours");
}

/// STOP-02: the answer comes after the grace period with the known results; the job is cancelling,
/// and in the receipt, until its last process has ended.
#[test]
fn call_with_unkillable_processes_is_answered() {
    for containment in ["guard", "groups"] {
        let Some(lasting) = Lasting::start(containment) else { return };
        let (daemon, mark) = (&lasting.daemon, marker());
        let mut peer = daemon.peer();
        let arguments = json!({"mark": mark}).to_string();
        let (timed, left) = (peer.call("rooted", &arguments), peer.call("leaves", &arguments));
        let begun = Instant::now();
        let answer = peer.answer(timed)["result"].clone();
        assert!(begun.elapsed() < TIME_LIMIT, "the answer is late");
        if answer["structuredContent"]["exitCode"] == 3 {
            return eprintln!("SKIPPED: set-uid programs have no effect here");
        }
        let said = &answer["structuredContent"];
        assert_eq!((&said["timedOut"], &said["survivors"]), (&json!(true), &json!(1)), "{answer}");
        assert_eq!(answer["isError"], true, "{answer}");
        // The program has exited; its answer is that of a completed call.
        let answer = peer.answer(left)["result"].clone();
        let said = &answer["structuredContent"];
        assert_eq!((&said["exitCode"], &said["survivors"]), (&json!(0), &json!(1)), "{answer}");
        assert_eq!(answer["isError"], false);
        assert_eq!(answer["content"][0]["text"], "done\n", "{answer}");
        assert_eq!(carriers(&mark).len(), 2);
        let status = daemon.status();
        assert_eq!((&status["cancelling"], &status["running"]), (&json!(2), &json!(0)), "{status}");
        assert_eq!(lasting.survivors(), 2);
        let outlasts = json!({"event": "cancel", "survivors": 1, "died_after_ms": null});
        wait_until("both receipts are in the audit log", || lasting.records(&outlasts).len() == 2);

        remove(&lasting.until());
        daemon.wait_until_no_job();
        assert_none_left(&mark);
        let known = if containment == "guard" { json!(0) } else { Value::Null };
        let ended = json!({"event": "cancel", "survivors": known});
        wait_until("both jobs have ended", || lasting.records(&ended).len() == 2);
        assert!(lasting.records(&ended).iter().all(|record| record["died_after_ms"].is_number()));
        assert_eq!(lasting.survivors(), known);
        assert!(peer.is_silent(), "a second answer");
    }
}

/// `ceased stop` names a process that is left, and fails.
#[test]
fn stop_names_unkillable_processes() {
    for (containment, is_json) in [("guard", true), ("groups", false)] {
        let Some(mut lasting) = Lasting::start(containment) else { return };
        let mark = marker();
        let mut peer = lasting.daemon.peer();
        let call = peer.call("rooted", &json!({"mark": mark}).to_string());
        let answer = peer.answer(call)["result"].clone();
        if answer["structuredContent"]["exitCode"] == 3 {
            return eprintln!("SKIPPED: set-uid programs have no effect here");
        }
        let (pid, _) = carriers(&mark)[0];
        let stop = lasting.daemon.home.start(if is_json { &["stop", "--json"] } else { &["stop"] });
        assert_eq!(lasting.daemon.wait().code(), Some(1));
        let ran = stop.wait();
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains(&format!("are left, and may still run: {pid} (")), "{ran:?}");
        if is_json {
            let said: Value = serde_json::from_str(&ran.out).expect("JSON");
            assert_eq!(said["survivors"][0]["pid"], pid, "{said}");
        }
        remove(&lasting.until());
        wait_until("the tool ends by itself", || carriers(&mark).is_empty());
    }
}

/// STOP-02: shutdown does not wait for unkillable processes, stays within its bound, and reports
/// them by its exit code and its receipts.
#[test]
fn shutdown_reports_unkillable_processes() {
    for containment in ["guard", "groups"] {
        for is_known in [true, false] {
            let Some(mut lasting) = Lasting::start(containment) else { return };
            let mark = marker();
            let mut peer = lasting.daemon.peer();
            let call = peer.call("rooted", &json!({"mark": mark}).to_string());
            wait_until("the tool has become root", || {
                let all = carriers(&mark);
                let is_root = |pid: i32| {
                    let status = fs::read_to_string(format!("/proc/{pid}/status"));
                    status.is_ok_and(|status| status.contains("Uid:\t0\t0\t0\t0"))
                };
                all.iter().any(|(pid, _)| is_root(*pid)) || peer.has_answer(call)
            });
            if is_known || peer.has_answer(call) {
                let answer = peer.answer(call)["result"].clone();
                if answer["structuredContent"]["exitCode"] == 3 {
                    return eprintln!("SKIPPED: set-uid programs have no effect here");
                }
            }
            let begun = Instant::now();
            lasting.daemon.signal(Signal::TERM);
            let status = lasting.daemon.wait();
            assert_eq!(status.code(), Some(1), "{}", lasting.daemon.home.log());
            let grace = Duration::from_secs(6);
            assert!(begun.elapsed() < grace + Duration::from_secs(2), "{:?}", begun.elapsed());
            let outlasts = json!({"event": "cancel", "survivors": 1});
            assert_eq!(lasting.records(&outlasts).len(), 1, "{containment}");
            assert!(!carriers(&mark).is_empty());
            remove(&lasting.until());
            wait_until("the tool ends by itself", || carriers(&mark).is_empty());
        }
    }
}
