//! Killed at any moment, under load: what clients were told is what they find (DUR-01).
//!
//! `CEASED_KILL_ROUNDS` says how often the daemon is killed, `CEASED_KILL_SEED` when.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

use std::collections::BTreeMap;
use std::env;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ceased_tests::daemon::{Config, Daemon, Home, Peer, Program, Signal, assert_none_left, marker};
use ceased_tests::rng::Rng;
use serde_json::Value;

/// Clients at once.
const CLIENTS: u64 = 6;
/// What is older may have expired.
const TTL: Duration = Duration::from_secs(60);
const CHECKED_FOR: Duration = Duration::from_secs(40);
/// Of the tasks of earlier rounds, so many are looked at again in each.
const OLD_CHECKED: usize = 40;

/// What a client was told of a task.
#[derive(Debug, Clone)]
struct Told {
    at: Instant,
    created: Value,
    /// A status that never changes, if it was told one.
    last: Option<Value>,
    /// What `tasks/result` answered, if it did.
    outcome: Option<Value>,
}

type Book = Arc<Mutex<BTreeMap<String, Told>>>;

fn of_task(task: &str) -> String {
    format!(r#"{{"taskId":"{task}"}}"#)
}

/// The answer without its id; `None` when the daemon is gone.
fn ask(peer: &mut Peer, method: &str, params: &str) -> Option<Value> {
    let id = peer.next_id();
    let line = ceased_tests::daemon::peer::request(id, method, params);
    peer.try_send(format!("{line}\n").as_bytes()).ok()?;
    loop {
        let mut message = peer.message()?;
        if message["id"] == id {
            message["id"] = Value::Null;
            return Some(message);
        }
    }
}

fn is_last(status: &Value) -> bool {
    ["completed", "failed", "cancelled"].iter().any(|last| status == last)
}

/// Creates tasks, looks at them and cancels them until the daemon is gone.
fn client(peer: &mut Peer, rng: &mut Rng, marker: &str, book: &Book) -> Option<()> {
    loop {
        let (tool, arguments) = match rng.below(8) {
            0..4 => ("sleep", format!(r#"{{"ms":{}}}"#, rng.below(20))),
            4 | 5 => ("count", r#"{"n":3}"#.to_owned()),
            6 => ("fail", "{}".to_owned()),
            _ => ("hang", format!(r#"{{"t":"{marker}"}}"#)),
        };
        let ttl = TTL.as_millis();
        let call = format!(r#"{{"name":"{tool}","arguments":{arguments},"task":{{"ttl":{ttl}}}}}"#);
        let created = ask(peer, "tools/call", &call)?;
        let created = &created["result"]["task"];
        let Some(task) = created["taskId"].as_str() else { continue };
        let (at, created) = (Instant::now(), created["createdAt"].clone());
        let told = Told { at, created, last: None, outcome: None };
        book.lock().unwrap().insert(task.to_owned(), told);
        let note = |change: &dyn Fn(&mut Told)| {
            change(book.lock().unwrap().get_mut(task).unwrap());
        };
        match rng.below(4) {
            0 => {
                let state = ask(peer, "tasks/get", &of_task(task))?["result"].clone();
                assert_eq!(state["taskId"], task);
                if is_last(&state["status"]) {
                    note(&|told| told.last = Some(state["status"].clone()));
                }
            }
            1 if tool != "hang" => {
                let outcome = ask(peer, "tasks/result", &of_task(task))?;
                note(&|told| told.outcome = Some(outcome.clone()));
            }
            2 => {
                let answer = ask(peer, "tasks/cancel", &of_task(task))?;
                if answer["result"]["status"] == "cancelled" {
                    note(&|told| told.last = Some("cancelled".into()));
                }
            }
            _ => {}
        }
    }
}

/// A task is what a client was told it is.
fn check(peer: &mut Peer, task: &str, told: &Told) {
    let state = ask(peer, "tasks/get", &of_task(task)).unwrap();
    let found = &state["result"];
    assert_eq!(found["createdAt"], told.created, "{task} {told:?}: {state}");
    // After a restart there is no job left that it could be working on.
    assert!(is_last(&found["status"]), "{task} {told:?}: {state}");
    if let Some(last) = &told.last {
        assert_eq!(found["status"], *last, "{task} {told:?}");
    }
    if let Some(outcome) = &told.outcome {
        assert_eq!(ask(peer, "tasks/result", &of_task(task)).unwrap(), *outcome, "{task}");
    }
}

/// One life of the daemon: what was told before is checked, more is told, and it is killed. How
/// many tasks were told of.
fn round(home: &Home, rng: &mut Rng, marker: &str, book: &mut BTreeMap<String, Told>) -> usize {
    if rng.once_in(6) {
        // Killed while it starts, wherever that is.
        let program = Program::start(home, home.command(&["serve"]));
        thread::sleep(Duration::from_micros(rng.below(80_000) as u64));
        program.signal(Signal::KILL);
        program.wait();
    }
    let daemon = Daemon::start_in(home.clone());
    assert_none_left(marker);
    let mut peer = daemon.peer();
    book.retain(|_, told| told.at.elapsed() < CHECKED_FOR);
    let skipped = book.len().saturating_sub(OLD_CHECKED).min(rng.below(1 + book.len()));
    for (task, told) in book.iter().skip(skipped).take(OLD_CHECKED) {
        check(&mut peer, task, told);
    }
    drop(peer);

    let shared = Book::default();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (mut peer, shared) = (daemon.peer(), Arc::clone(&shared));
            let (mut rng, marker) = (Rng::new(rng.word()), marker.to_owned());
            thread::spawn(move || client(&mut peer, &mut rng, &marker, &shared))
        })
        .collect();
    thread::sleep(Duration::from_micros(rng.below(150_000) as u64));
    drop(daemon.kill());
    for client in clients {
        let _ = client.join().unwrap();
    }
    let told = std::mem::take(&mut *shared.lock().unwrap());

    // Of this round, all of them.
    let daemon = Daemon::start_in(home.clone());
    assert_none_left(marker);
    let mut peer = daemon.peer();
    told.iter().for_each(|(task, told)| check(&mut peer, task, told));
    drop(daemon.kill());
    let count = told.len();
    book.extend(told);
    count
}

/// DUR-01: nothing lost, nothing contradicted, no process left.
#[test]
fn killed_at_any_moment_it_keeps_its_word() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number("CEASED_KILL_ROUNDS");
    let seed = number("CEASED_KILL_SEED").unwrap_or(1);
    let home = Home::new();
    home.configure(&Config {
        limits: "tasks_per_identity = 100000\nstored_tasks_per_identity = 1000000",
        ..Config::default()
    });
    let (marker, begun) = (marker(), Instant::now());
    let (mut rng, mut book) = (Rng::new(seed), BTreeMap::new());
    let mut told = 0;
    for number in 0..rounds.unwrap_or(30) {
        // As many as fit into a minute, unless it was asked for more.
        if rounds.is_none() && begun.elapsed() > Duration::from_secs(60) {
            assert!(number >= 5, "too slow to tell");
            break;
        }
        told += round(&home, &mut rng, &marker, &mut book);
        if number % 50 == 49 {
            eprintln!("{} rounds, {:?}, {told} tasks told of", number + 1, begun.elapsed());
        }
    }
    assert!(told > 0, "nobody was told anything");
}
