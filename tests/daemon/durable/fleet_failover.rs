//! A fleet whose database fails over to a synchronous standby.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ceased_tests::daemon::{Daemon, Peer, wait_until};

use crate::durable::fleet::{WIDE, alone, home_of, server::standby::Pair, status};
use crate::durable::fleet_figures::tell;
use crate::durable::of_task;

/// Acknowledged tasks with the last status that was told of each.
#[derive(Default)]
struct Told(Mutex<BTreeMap<String, String>>);

impl Told {
    fn tasks(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn working(&self) -> Vec<String> {
        let tasks = self.tasks();
        let working = tasks.iter().filter(|(_, status)| *status == "working");
        working.map(|(task, _)| task.clone()).collect()
    }

    /// FLT-02: an end that was told is told for ever.
    fn note(&self, task: &str, status: &str) {
        let before = self.tasks().insert(task.to_owned(), status.to_owned());
        let has_ended = before.as_ref().is_some_and(|before| before != "working");
        assert!(!has_ended || before.as_deref() == Some(status), "{before:?}, then {status}");
        assert_ne!(status, "failed", "no node was away for as long as its lease");
    }
}

/// Creates tasks at the first node, and asks for them and cancels them at the other one, until `over`.
fn work(mut here: Peer, mut there: Peer, told: &Told, over: &AtomicBool) {
    let ask = |peer: &mut Peer, method: &str, params: &str| {
        let id = peer.request(method, params);
        let mut answer = peer.answer(id);
        let code = answer["error"]["code"].as_i64();
        assert!(code.is_none_or(|code| code == -31006), "{method}: {answer}");
        if code.is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        code.is_none().then(|| answer["result"].take())
    };
    for round in 0_u64.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let ms = [0, 30, 600_000][round as usize % 3];
        let call = format!(r#"{{"name":"sleep","arguments":{{"ms":{ms}}},"task":{{}}}}"#);
        let Some(created) = ask(&mut here, "tools/call", &call) else { continue };
        let task = created["task"]["taskId"].as_str().unwrap().to_owned();
        told.note(&task, "working");
        // One in six goes on.
        let method = if round % 6 == 2 { "tasks/cancel" } else { "tasks/get" };
        if let Some(answer) = ask(&mut there, method, &of_task(&task)) {
            told.note(&task, answer["status"].as_str().unwrap());
        }
    }
}

/// Kills the primary under load so many times; each time the standby takes its place, and gets a standby of its
/// own. Returns the times until both nodes had given a task again.
fn fail_over(rounds: usize) -> Option<Vec<Duration>> {
    let mut pair = Pair::start()?;
    let nodes = ["a", "b"].map(|name| Daemon::start_in(home_of(&pair.url(), name, "", WIDE)));
    let told = Told::default();
    let count = || told.tasks().len();
    let mut outages = Vec::new();
    for round in 0..rounds {
        if round > 0 {
            pair.rebuild();
        }
        let (over, before) = (AtomicBool::new(false), count());
        std::thread::scope(|scope| {
            for [here, there] in [[0, 1], [1, 0]] {
                let (here, there) = (nodes[here].peer(), nodes[there].peer());
                scope.spawn(|| work(here, there, &told, &over));
            }
            wait_until("tasks are created", || count() >= before + 50);
            let begun = Instant::now();
            pair.fail_over();
            for node in &nodes {
                let mut peer = node.peer();
                let call = r#"{"name":"sleep","arguments":{"ms":0},"task":{}}"#;
                wait_until("a task is created again", || {
                    let id = peer.request("tools/call", call);
                    peer.answer(id)["result"].is_object()
                });
            }
            outages.push(begun.elapsed());
            let again = count();
            wait_until("tasks are created again", || count() >= again + 50);
            over.store(true, Ordering::Relaxed);
        });
        let all: Vec<String> = told.tasks().keys().cloned().collect();
        for node in &nodes {
            let mut peer = node.peer();
            all.iter().for_each(|task| told.note(task, &status(&mut peer, task)));
        }
        let mut peer = nodes[round % 2].peer();
        for task in told.working() {
            // It may have ended.
            let id = peer.request("tasks/cancel", &of_task(&task));
            if peer.answer(id)["result"].is_object() {
                told.note(&task, "cancelled");
            }
        }
    }
    println!("{} tasks were acknowledged, and none was lost", count());
    Some(outages)
}

/// FLT-01, FLT-02: no acknowledged task is lost with the primary, and no end that was told is contradicted.
#[test]
fn standby_has_all_that_was_told() {
    let _alone = alone();
    fail_over(1);
}

/// `RUNS=100 cargo test -p ceased-tests --test daemon each_standby -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn each_standby_has_all_that_was_told() {
    let _alone = alone();
    let runs = std::env::var("RUNS").map_or(100, |runs| runs.parse().unwrap());
    if let Some(outages) = fail_over(runs) {
        tell("from the death of the primary to tasks again at both nodes", outages);
    }
}
