//! The state at the start of a daemon: a full disk, and a very large number of tasks (DUR-01).

use std::fs;

use ceased::store::{Due, Sqlite, Store as _};
use ceased_core::identity::Identity;
use ceased_core::tasks::durable::{RecordedOutcome, StoreWrite, TaskRecord};
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;
use ceased_tests::daemon::{Config, Daemon, Home, wait_until};
use ceased_tests::disk::SmallDisk;
use serde_json::Value;

use super::{LARGE, answer_of, get, of_task, status, until_full};

/// DUR-01: the disk is full at the start. Stored results are available nevertheless, including
/// those determined at the start, and the store recovers by itself.
#[test]
fn daemon_starts_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount(24 << 20) else { return };
    let state = disk.path().join("state");
    let lines = format!("state_dir = {state:?}\nstore_retry = \"100ms\"");
    let config = Config { daemon: &lines, tools: LARGE, ..Config::default() };
    // Once with the reserve, and once with the reserve used up too.
    for reserve in [true, false] {
        let daemon = Daemon::start(&config);
        let mut peer = daemon.peer();
        let done = peer.create_task("large", "{}");
        let answer = answer_of(&mut peer, &done);
        let cut: Vec<String> =
            (0..20).map(|_| peer.create_task("sleep", r#"{"ms":600000}"#)).collect();
        let home = daemon.kill();
        if !reserve {
            fs::remove_file(state.join("tasks/reserve")).unwrap();
        }
        disk.fill();

        let daemon = Daemon::start_in(home);
        let mut peer = daemon.peer();
        assert_eq!(answer_of(&mut peer, &done), answer, "reserve {reserve}");
        until_full(&mut peer);
        let said = status(&mut peer);
        assert_eq!((&said["state"], &said["kept"]), (&"full".into(), &"disk".into()), "{said}");
        assert!(said["since"].is_string() && said["lastError"].is_string(), "{said}");
        let plain = peer.call("count", "{}");
        assert!(peer.answer(plain)["result"].is_object());
        // Interrupted tasks are not running: they have failed, or the store cannot answer yet.
        for task in &cut {
            let id = peer.request("tasks/get", &of_task(task));
            let told = peer.answer(id);
            let is_untold = told["error"]["data"]["store"] == "full";
            assert!(told["result"]["status"] == "failed" || is_untold && !reserve, "{told}");
        }
        disk.free();
        for task in &cut {
            wait_until("its end is available", || {
                let id = peer.request("tasks/get", &of_task(task));
                peer.answer(id)["result"]["status"] == "failed"
            });
        }
        wait_until("tasks are accepted again", || {
            let id = peer.request("tools/call", r#"{"name":"count","arguments":{},"task":{}}"#);
            peer.answer(id)["result"]["task"].is_object()
        });
        assert_eq!(status(&mut peer)["state"], "open");
        let daemon = Daemon::start_in(daemon.kill());
        let mut peer = daemon.peer();
        assert_eq!(answer_of(&mut peer, &done), answer);
        assert!(cut.iter().all(|task| get(&mut peer, task)["status"] == "failed"));
        drop(daemon.kill());
        fs::remove_dir_all(&state).unwrap();
    }
}

/// DUR-01: ten thousand tasks are restored, each with its result; large results are read on
/// request.
#[test]
fn ten_thousand_tasks_are_restored() {
    const COUNT: u64 = 10_000;
    const LARGE_EVERY: u64 = 100;
    let id = |number: u64| {
        let uuid = uuid::Uuid::from_u64_pair(0x1234_5678_9abc_4def, 0x8000_0000_0000_0000 | number);
        ceased::TaskId::new(uuid)
    };
    let text = |number: u64| {
        let bytes = if number.is_multiple_of(LARGE_EVERY) { 40_000 } else { 40 };
        format!("{number}:{}", "x".repeat(bytes))
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = u64::try_from(now.as_millis()).unwrap();
    let owner = Identity::User(rustix::process::geteuid().as_raw());
    let record = |number: u64| {
        let text = text(number);
        let json = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
        let result = serde_json::value::RawValue::from_string(json).unwrap();
        StoreWrite::New(TaskRecord {
            id: id(number),
            owner: owner.clone(),
            position: number,
            tool: "echo".into(),
            status: Status::Completed,
            status_message: None,
            created: Wall::from_millis(now),
            updated: Wall::from_millis(now),
            ttl: std::time::Duration::from_secs(3600),
            expires: Wall::from_millis(now + 3_600_000),
            outcome: RecordedOutcome::Here(Ok(result.into())),
            asks: None,
            work: None,
        })
    };
    let home = Home::new();
    home.configure(&Config { tasks: "page_size = 1000", ..Config::default() });
    let state = home.path().join("state/ceased");
    let dir = ceased::store::StateDir::take(&state).unwrap();
    let mut store = Sqlite::open(&dir.store().unwrap(), 1 << 20).unwrap();
    let numbers: Vec<u64> = (0..COUNT).collect();
    for part in numbers.chunks(1000) {
        let writes: Vec<StoreWrite> = part.iter().map(|number| record(*number)).collect();
        store.commit(&writes, Due::Owed).unwrap();
    }
    drop((store, dir));

    let mut daemon = Daemon::start_in(home);
    for _ in 0..2 {
        let mut peer = daemon.peer();
        let (mut listed, mut cursor) = (Vec::new(), String::from("{}"));
        loop {
            let page = peer.result("tasks/list", &cursor);
            listed.extend(page["tasks"].as_array().unwrap().iter().map(|t| t["taskId"].clone()));
            let Some(next) = page["nextCursor"].as_str() else { break };
            cursor = format!(r#"{{"cursor":"{next}"}}"#);
        }
        let all: Vec<Value> = (0..COUNT).map(|number| id(number).to_string().into()).collect();
        assert!(listed == all, "{} of {COUNT} are listed, or in another order", listed.len());
        for number in (0..COUNT).step_by(97).chain((0..COUNT).step_by(1000)) {
            let answer = answer_of(&mut peer, &id(number).to_string());
            assert_eq!(answer["result"]["content"][0]["text"], text(number), "{number}");
        }
        let said = status(&mut peer);
        assert_eq!(said["tasks"], COUNT, "{said}");
        assert!(said["bytes"].as_u64() > Some(4_000_000), "{said}");
        daemon = Daemon::start_in(daemon.kill());
    }
}
