//! A daemon whose store misbehaves on purpose: what it says, and that it goes on (DUR-01).
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ceased::store::{Fault, Faults, Faulty, Memory, StoreError};
use ceased::{Daemon, HandlerTool, Job, RunError, Running, TaskPolicy, TaskSupport, ToolResult};
use ceased_tests::daemon::{Peer, wait_until};
use serde_json::Value;

/// A daemon in this process, with a tool that ends when it is let.
struct Rig {
    daemon: Running,
    faults: Faults,
    gate: std::sync::mpsc::Sender<()>,
}

impl Rig {
    fn start() -> Self {
        let faults = Faults::default();
        let (gate, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let quick = HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done")))
            .task_support(TaskSupport::Optional);
        let gated = HandlerTool::new("gated", move |_: &Job| {
            let _ = wait.lock().unwrap().recv();
            Ok(ToolResult::text("let through"))
        })
        .task_support(TaskSupport::Optional);
        let policy =
            TaskPolicy { store_retry: Duration::from_millis(100), ..TaskPolicy::default() };
        let daemon = Daemon::new()
            .tool(quick.build().unwrap())
            .tool(gated.build().unwrap())
            .tasks(policy)
            .store(Faulty::new(Memory::new(), faults.clone()))
            .start()
            .unwrap();
        Self { daemon, faults, gate }
    }

    fn peer(&self) -> Peer {
        let mut peer = Peer::of_socket(OwnedFd::from(self.daemon.connect().unwrap()));
        peer.initialize();
        peer
    }
}

fn create(peer: &mut Peer, tool: &str) -> Value {
    let params = format!(r#"{{"name":"{tool}","arguments":{{}},"task":{{}}}}"#);
    let id = peer.request("tools/call", &params);
    peer.answer(id)
}

fn of_task(task: &str) -> String {
    format!(r#"{{"taskId":"{task}"}}"#)
}

/// DUR-01: while the store does not take what is new, new tasks are refused and say why, plain
/// calls go on, and afterwards all is as before without anybody's doing.
#[test]
fn new_tasks_are_refused_and_plain_calls_go_on() {
    for (fault, word) in
        [(Fault::Full, "full"), (Fault::FullForAll, "full"), (Fault::Broken, "broken")]
    {
        let rig = Rig::start();
        let mut peer = rig.peer();
        let before = peer.create_task("quick", "{}");
        let kept = peer.result("tasks/result", &of_task(&before));
        rig.faults.set(fault);
        let refused = create(&mut peer, "quick");
        assert_eq!(refused["error"]["data"]["store"], word, "{refused}");
        let plain = peer.call("quick", "{}");
        assert_eq!(peer.answer(plain)["result"]["content"][0]["text"], "done", "{fault:?}");
        // What was promised is still there.
        assert_eq!(peer.result("tasks/result", &of_task(&before)), kept);
        rig.faults.set(Fault::None);
        wait_until("tasks are taken again", || {
            create(&mut peer, "quick")["result"]["task"]["taskId"].is_string()
        });
        rig.daemon.shut_down().unwrap();
    }
}

/// DUR-01: a task that was accepted ends while the store is full, and its result is seen once it
/// is kept.
#[test]
fn what_was_begun_ends_while_the_store_fails() {
    for fault in [Fault::Full, Fault::FullForAll, Fault::Broken, Fault::Unknown] {
        let rig = Rig::start();
        let mut peer = rig.peer();
        let task = peer.create_task("gated", "{}");
        rig.faults.set(fault);
        rig.gate.send(()).unwrap();
        let asked = peer.request("tasks/result", &of_task(&task));
        if fault == Fault::Full {
            // What is owed fits.
            assert_eq!(peer.answer(asked)["result"]["content"][0]["text"], "let through");
            continue;
        }
        // The store has not taken it: a plain call goes the whole way meanwhile.
        let plain = peer.call("quick", "{}");
        assert_eq!(peer.answer(plain)["result"]["content"][0]["text"], "done");
        rig.faults.set(Fault::None);
        let mut answer = peer.answer(asked);
        wait_until("the result can be had", || {
            if answer["result"].is_null() {
                let again = peer.request("tasks/result", &of_task(&task));
                answer = peer.answer(again);
            }
            !answer["result"].is_null()
        });
        assert_eq!(answer["result"]["content"][0]["text"], "let through", "{fault:?}");
    }
}

/// DUR-01: nothing is said of a task before the store has it.
#[test]
fn an_answer_waits_for_the_store() {
    let rig = Rig::start();
    let mut peer = rig.peer();
    let pause = Duration::from_millis(300);
    rig.faults.set(Fault::Slow(pause));
    let asked = Instant::now();
    let task = peer.create_task("quick", "{}");
    assert!(asked.elapsed() >= pause);
    let plain = peer.call("quick", "{}");
    peer.answer(plain);
    rig.faults.set(Fault::None);
    peer.result("tasks/result", &of_task(&task));
}

/// When nobody can say what is on disk, or nobody is there to write, the daemon ends and says so.
#[test]
fn a_store_that_is_lost_ends_the_daemon() {
    for fault in [Fault::Lost, Fault::Panic] {
        let rig = Rig::start();
        let mut peer = rig.peer();
        rig.faults.set(fault);
        peer.request("tools/call", r#"{"name":"quick","arguments":{},"task":{}}"#);
        // It promises nothing and goes.
        assert!(peer.rest().iter().all(|message| message["result"].is_null()));
        match rig.daemon.shut_down() {
            Err(RunError::Store(StoreError::Lost(_))) => {}
            other => panic!("{fault:?}: {other:?}"),
        }
    }
}
