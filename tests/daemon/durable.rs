//! Tasks outlive their daemon: kill, restart, full disk, damage, a second daemon (DUR-01).
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

mod at_start;
pub(crate) mod fleet;
mod fleet_failover;
mod fleet_figures;
mod idempotency;
mod store;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use ceased_tests::daemon::{
    Config, Daemon, Home, Peer, Program, Signal, assert_none_left, carriers, marker, wait_until,
};
use ceased_tests::disk::SmallDisk;
use serde_json::Value;

/// A tool with a result larger than the resident limit.
pub(crate) const LARGE: &str = r#"
[[tool]]
name = "large"
command = ["sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x; echo; echo end"]
text_limit = "1MiB"
task_support = "optional"
"#;

pub(crate) fn of_task(task: &str) -> String {
    format!(r#"{{"taskId":"{task}"}}"#)
}

pub(crate) fn get(peer: &mut Peer, task: &str) -> Value {
    peer.result("tasks/get", &of_task(task))
}

/// Creates tasks until one is refused because the disk is full.
fn until_full(peer: &mut Peer) {
    let mut refused = Value::Null;
    wait_until("a task is refused", || {
        let id = peer.request("tools/call", r#"{"name":"large","arguments":{},"task":{}}"#);
        refused = peer.answer(id);
        refused["error"].is_object()
    });
    assert_eq!(refused["error"]["data"]["store"], "full", "{refused}");
}

pub(crate) fn answer_of(peer: &mut Peer, task: &str) -> Value {
    let id = peer.request("tasks/result", &of_task(task));
    let mut answer = peer.answer(id);
    answer["id"] = Value::Null;
    answer
}

/// DUR-01: every task announced to a client is restored unchanged.
#[test]
fn announced_tasks_survive_a_kill() {
    let daemon = Daemon::start(&Config { tools: LARGE, ..Config::default() });
    let mut peer = daemon.peer();
    let mut told = Vec::new();
    for (tool, arguments) in
        [("count", r#"{"n":5}"#), ("fail", "{}"), ("large", "{}"), ("sleep", r#"{"ms":1}"#)]
    {
        let task = peer.create_task(tool, arguments);
        let answer = answer_of(&mut peer, &task);
        told.push((task.clone(), get(&mut peer, &task), answer));
    }
    let cancelled = peer.create_task("hang", &format!(r#"{{"t":"{}"}}"#, marker()));
    peer.result("tasks/cancel", &of_task(&cancelled));
    // Its work may end later than its status, and says so.
    let mut state = Value::Null;
    wait_until("its work has ceased", || {
        state = get(&mut peer, &cancelled);
        state["_meta"]["ceased/work"] == "ceased"
    });
    told.push((cancelled.clone(), state, answer_of(&mut peer, &cancelled)));
    assert!(told[2].2["result"]["content"][0]["text"].as_str().unwrap().len() > 200_000);
    let list = peer.result("tasks/list", "{}");

    // Twice, so that restored tasks are kept too.
    let mut home = daemon.kill();
    for _ in 0..2 {
        let daemon = Daemon::start_in(home);
        let mut peer = daemon.peer();
        for (task, state, answer) in &told {
            assert_eq!(get(&mut peer, task), *state);
            assert_eq!(answer_of(&mut peer, task), *answer);
        }
        assert_eq!(peer.result("tasks/list", "{}"), list);
        home = daemon.kill();
    }
}

/// DUR-01: a job cut off by a kill is a failed task that says so, and its processes are gone before
/// the daemon listens again. In both tiers.
#[test]
fn interrupted_job_failed_and_its_processes_are_gone() {
    for tier in ["cgroup", "guard"] {
        let home = Home::new();
        home.configure(&Config::default());
        let line = format!("export CEASED_CONTAINMENT={tier}");
        let tried = home.command_after(&line, &["stdio"]).status().unwrap();
        if !tried.success() {
            eprintln!("skipped: no {tier} here");
            continue;
        }
        let start = |home: &Home| {
            let command = home.command_after(&line, &["serve"]);
            Daemon::start_with(home.clone(), command)
        };
        let daemon = start(&home);
        let mut peer = daemon.peer();
        let marker = marker();
        let task = peer.create_task("family", &format!(r#"{{"t":"{marker}"}}"#));
        wait_until("the processes run", || carriers(&marker).len() >= 3);
        drop(daemon.kill());

        let daemon = start(&home);
        assert_none_left(&marker);
        let mut peer = daemon.peer();
        let state = get(&mut peer, &task);
        assert_eq!(state["status"], "failed", "{tier}");
        let message = state["statusMessage"].as_str().unwrap_or_default();
        assert!(!message.is_empty(), "{state}");
        let answer = answer_of(&mut peer, &task);
        assert_eq!(answer["error"]["code"], -31007, "{answer}");
    }
}

/// The same after an orderly shutdown.
#[test]
fn announced_tasks_survive_a_shutdown() {
    let mut daemon = Daemon::start(&Config::default());
    let mut peer = daemon.peer();
    let done = peer.create_task("count", "{}");
    let answer = answer_of(&mut peer, &done);
    let open = peer.create_task("hang", &format!(r#"{{"t":"{}"}}"#, marker()));
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    let daemon = Daemon::start_in(daemon.home.clone());
    let mut peer = daemon.peer();
    assert_eq!(answer_of(&mut peer, &done), answer);
    let status = get(&mut peer, &open)["status"].clone();
    assert!(status == "failed" || status == "cancelled", "{status}");
}

/// DUR-01: a state directory belongs to one daemon at a time.
#[test]
fn second_daemon_is_refused_with_the_name_of_the_first() {
    let daemon = Daemon::start(&Config::default());
    let other = Home::new();
    let state = daemon.home.path().join("state/ceased");
    other.configure(&Config {
        daemon: &format!("state_dir = {:?}", state.display().to_string()),
        ..Config::default()
    });
    let ran = other.run(&["serve"]);
    assert_eq!(ran.code, Some(75), "{}", ran.err);
    assert!(ran.err.contains(&format!("process {}", daemon.pid())), "{}", ran.err);
    assert!(ran.err.contains(&state.display().to_string()), "{}", ran.err);
    // The first daemon is unaffected.
    daemon.peer().create_task("count", "{}");
}

/// DUR-01: a damaged store is reported and not replaced; a store that is set aside is kept.
#[test]
fn damaged_store_is_reported_and_never_replaced() {
    let daemon = Daemon::start(&Config::default());
    daemon.peer().create_task("count", "{}");
    let home = daemon.kill();
    let tasks = home.path().join("state/ceased/tasks");
    let file = tasks.join("tasks.db");
    let mut bytes = fs::read(&file).unwrap();
    bytes[..100].fill(b'x');
    fs::write(&file, &bytes).unwrap();

    let ran = home.run(&["serve"]);
    assert_eq!(ran.code, Some(74), "{}", ran.err);
    assert!(ran.err.contains(&file.display().to_string()), "{}", ran.err);
    assert!(ran.err.contains(&format!("mv {}", tasks.display())), "{}", ran.err);
    assert!(fs::read(&file).unwrap() == bytes, "the file was changed");

    home.configure(&Config { daemon: "damaged_store = \"set_aside\"", ..Config::default() });
    let daemon = Daemon::start_in(home);
    let parent = tasks.parent().unwrap();
    let aside = fs::read_dir(parent).unwrap().flatten().map(|entry| entry.path());
    let aside: Vec<_> =
        aside.filter(|path| path.display().to_string().contains("damaged")).collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert!(fs::read(aside[0].join("tasks.db")).unwrap() == bytes, "the file was changed");
    for path in [&file, &aside[0]] {
        let path = path.display().to_string();
        wait_until("the log names the damaged store", || daemon.home.log().contains(&path));
    }
    daemon.peer().create_task("count", "{}");
}

#[test]
fn state_directory_that_is_open_to_others_is_refused() {
    let home = Home::new();
    home.configure(&Config::default());
    let state = home.path().join("state/ceased");
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = home.run(&["serve"]);
    assert_eq!(ran.code, Some(74), "{}", ran.err);
    assert!(ran.err.contains(&format!("chmod 700 {}", state.display())), "{}", ran.err);
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let daemon = Daemon::start_in(home);
    let mode = |path: &str| fs::metadata(state.join(path)).unwrap().permissions().mode() & 0o777;
    daemon.peer().create_task("count", "{}");
    assert_eq!(mode("tasks"), 0o700);
    for file in ["lock", "processes", "tasks/tasks.db", "tasks/tasks.db-wal", "tasks/reserve"] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
}

/// With tasks in memory no file is written, and several daemons may run.
#[test]
fn store_in_memory_writes_no_file() {
    let home = Home::new();
    home.configure(&Config { daemon: "store = \"memory\"", ..Config::default() });
    let daemon = Daemon::start_in(home);
    daemon.peer().create_task("count", "{}");
    assert!(!daemon.home.path().join("state").exists());
    let daemon = Daemon::start_in(daemon.kill());
    assert_eq!(daemon.peer().result("tasks/list", "{}")["tasks"], serde_json::json!([]));

    // The default of stdio is memory, beside a daemon or other stdio servers.
    let home = Home::new();
    home.configure(&Config::default());
    assert_eq!(home.run(&["stdio"]).code, Some(0));
    assert!(!home.path().join("state").exists());
}

/// Size of the store's files without the reserve.
fn store_bytes(home: &Home) -> u64 {
    let tasks = home.path().join("state/ceased/tasks");
    let len = |name: &str| fs::metadata(tasks.join(name)).map_or(0, |found| found.len());
    len("tasks.db") + len("tasks.db-wal")
}

/// DUR-01, TSK-35: expired tasks leave the files, whose size follows the kept tasks.
#[test]
fn files_stay_bounded() {
    let tasks = "late_result = \"1ms\"";
    let daemon = Daemon::start(&Config { tools: LARGE, tasks, ..Config::default() });
    let mut peer = daemon.peer();
    let mut sizes = Vec::new();
    for _ in 0..6 {
        let calls: Vec<u64> = (0..20)
            .map(|_| {
                let params = r#"{"name":"large","arguments":{},"task":{"ttl":1}}"#;
                peer.request("tools/call", params)
            })
            .collect();
        for call in calls {
            assert!(peer.answer(call)["result"]["task"].is_object());
        }
        wait_until("every task has expired", || {
            let list = peer.result("tasks/list", "{}");
            list["tasks"].as_array().is_some_and(Vec::is_empty)
        });
        sizes.push(store_bytes(&daemon.home));
    }
    // 120 results of twice 200 KB are 48 MB.
    assert!(sizes.iter().all(|size| *size < 24 << 20), "{sizes:?}");
    // The log file stays allocated.
    let small = (2 << 20) + 32 + 1000 * 4120;
    wait_until("the files are small again", || store_bytes(&daemon.home) < small);
    let daemon = Daemon::start_in(daemon.kill());
    assert_eq!(daemon.peer().result("tasks/list", "{}")["tasks"], serde_json::json!([]));
}

/// DUR-01: on a full disk new tasks are refused, plain calls continue, running tasks end and are
/// stored, and the store recovers by itself.
#[test]
fn full_disk_refuses_only_new_tasks() {
    let Some(disk) = SmallDisk::mount(24 << 20) else { return };
    let state = disk.path().join("state");
    let lines =
        format!("state_dir = {:?}\nstore_reserve = \"4MiB\"\nstore_retry = \"100ms\"", state);
    let daemon = Daemon::start(&Config { daemon: &lines, tools: LARGE, ..Config::default() });
    let mut peer = daemon.peer();
    let before = peer.create_task("large", "{}");
    let kept = answer_of(&mut peer, &before);
    let begun = peer.create_task("sleep", r#"{"ms":1500}"#);
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![1; 24 << 20]).unwrap_err();

    until_full(&mut peer);
    let plain = peer.call("count", "{}");
    assert!(peer.answer(plain)["result"].is_object());
    let done = answer_of(&mut peer, &begun);
    assert!(done["result"].is_object(), "{done}");
    assert_eq!(answer_of(&mut peer, &before), kept);
    // Repeated retries: pending writes have reserved space.
    let mut tried = HashSet::new();
    wait_until("several retries", || {
        let status = status(&mut peer);
        assert_eq!(status["state"], "full", "{status}");
        tried.insert(status["lastErrorAt"].to_string());
        tried.len() > 3
    });

    fs::remove_file(&filler).unwrap();
    let mut again = String::new();
    wait_until("tasks are accepted again", || {
        let id = peer.request("tools/call", r#"{"name":"count","arguments":{},"task":{}}"#);
        again = peer.answer(id)["result"]["task"]["taskId"].as_str().unwrap_or_default().to_owned();
        !again.is_empty()
    });
    let after = answer_of(&mut peer, &again);
    let daemon = Daemon::start_in(daemon.kill());
    let mut peer = daemon.peer();
    for (task, answer) in [(before, kept), (begun, done), (again, after)] {
        assert_eq!(answer_of(&mut peer, &task), answer);
    }
}

pub(crate) fn status(peer: &mut Peer) -> Value {
    peer.result("ceased/status", r#"{"detail":true}"#)["host"]["store"].take()
}

/// `ceased status` shows place and state of the store; a peer that is no operator does not see
/// paths.
#[test]
fn status_shows_the_store() {
    let home = Home::new();
    home.configure(&Config { daemon: "damaged_store = \"set_aside\"", ..Config::default() });
    let tasks = home.path().join("state/ceased/tasks");
    let daemon = Daemon::start_in(home);
    daemon.peer().create_task("count", "{}");
    let ran = daemon.home.run(&["status"]);
    let line = ran.out.lines().find(|line| line.starts_with("store "));
    let line = line.unwrap_or_else(|| panic!("{}", ran.out));
    for word in ["disk, open", "1 tasks", &tasks.display().to_string()] {
        assert!(line.contains(word), "{word}: {line}");
    }
    let json = daemon.home.run(&["status", "--json"]);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["host"]["store"]["path"], tasks.display().to_string());
    assert_eq!(json["host"]["store"]["lastError"], Value::Null);

    let home = daemon.kill();
    fs::write(tasks.join("tasks.db"), "not a database at all").unwrap();
    let daemon = Daemon::start_in(home);
    let said = status(&mut daemon.peer());
    let aside = said["setAside"].as_str().unwrap_or_default().to_owned();
    assert!(aside.contains("tasks.damaged-"), "{said}");
    assert_eq!(fs::read(format!("{aside}/tasks.db")).unwrap(), b"not a database at all");
    drop(daemon);

    let memory = Config { daemon: "store = \"memory\"", tcp: true, ..Config::default() };
    let daemon = Daemon::start(&memory);
    let said = status(&mut daemon.peer());
    assert_eq!((&said["kept"], &said["path"]), (&"memory".into(), &Value::Null), "{said}");
    let daemon = Daemon::start(&Config { tcp: true, ..Config::default() });
    let said = status(&mut daemon.tcp_peer());
    assert_eq!((&said["kept"], &said["path"]), (&"disk".into(), &Value::Null), "{said}");
}

/// `ceased store check` reads every record, changes nothing, and finds a flipped bit.
#[test]
fn store_check_finds_a_flipped_bit() {
    let daemon = Daemon::start(&Config { tools: LARGE, ..Config::default() });
    let home = daemon.home.clone();
    let tasks = home.path().join("state/ceased/tasks");
    let held = home.run(&["store", "check"]);
    assert_eq!(held.code, Some(75), "{}", held.err);
    assert!(held.err.contains(&format!("process {}", daemon.pid())), "{}", held.err);
    let mut peer = daemon.peer();
    let task = peer.create_task("large", "{}");
    answer_of(&mut peer, &task);
    peer.create_task("hang", &format!(r#"{{"t":"{}"}}"#, marker()));
    drop(daemon.kill());
    let files = || {
        let read = |name: &str| fs::read(tasks.join(name)).unwrap_or_default();
        [read("tasks.db"), read("tasks.db-wal"), read("reserve")]
    };
    let before = files();
    let ran = home.run(&["store", "check"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("tasks.db") || ran.out.contains(": ok"), "{}", ran.out);
    assert!(ran.out.contains("2, 1 of them ended"), "{}", ran.out);
    assert!(files() == before, "the store was changed");
    // Moves everything into one file, then changes one character of a result.
    let mut daemon = Daemon::start_in(home.clone());
    daemon.signal(Signal::TERM);
    daemon.wait();
    assert_eq!(home.run(&["store", "check"]).code, Some(0));
    let mut bytes = fs::read(tasks.join("tasks.db")).unwrap();
    let at =
        bytes.windows(64).position(|part| part == [b'x'; 64]).expect("the file has the result");
    bytes[at + 30] = b'y';
    fs::write(tasks.join("tasks.db"), &bytes).unwrap();
    let ran = home.run(&["store", "check"]);
    assert_eq!(ran.code, Some(74), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains(&task) && ran.err.contains("damaged"), "{}", ran.err);
    assert!(fs::read(tasks.join("tasks.db")).unwrap() == bytes, "the store was changed");
    let nothing = Home::new();
    nothing.configure(&Config::default());
    let ran = nothing.run(&["store", "check"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("no task was stored here"), "{}", ran.out);
    assert!(!nothing.path().join("state").exists(), "the check created a file");
}

/// A user without access to the state directory gets that error, not an empty store.
#[test]
fn store_check_reports_missing_access() {
    let daemon = Daemon::start(&Config::default());
    let Some(command) = daemon.home.command_as(1, &["store", "check"]) else {
        eprintln!("SKIPPED: cannot become another user");
        return;
    };
    let ran = Program::start(&daemon.home, command).wait();
    assert_eq!(ran.code, Some(74), "{ran:?}");
    assert!(ran.err.contains("state/ceased") && ran.err.contains("Permission denied"), "{ran:?}");
}
