//! A daemon killed at random moments, under load, with a disk that fills up and torn writes:
//! clients find the state that they were told (DUR-01).
//!
//! `CEASED_KILL_ROUNDS` is the number of kills, `CEASED_KILL_SEED` the seed of their times.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

mod told;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{Config, Daemon, Home, Peer, Program, Signal, assert_none_left, marker};
use ceased_tests::disk::SmallDisk;
use ceased_tests::rng::Rng;
use ceased_tests::wal;

use told::{Book, SharedBook, Told, ask, compare, is_last, is_unstored, of_task};

/// Concurrent clients.
const CLIENTS: u64 = 6;
/// Older tasks may have expired; only younger ones are checked.
const TTL: Duration = Duration::from_secs(60);
const CHECKED_FOR: Duration = Duration::from_secs(40);
/// Tasks of earlier rounds that each round checks again.
const OLD_CHECKED: usize = 40;
/// Size of the small disk, and the space that the store reserves on it.
const DISK_BYTES: u64 = 16 << 20;
const RESERVE: &str = "2MiB";

/// A tool with large results.
const LARGE: &str = r#"
[[tool]]
name = "large"
command = ["sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x"]
text_limit = "1MiB"
task_support = "optional"
"#;

/// A state directory, and the claims of the daemons that used it.
struct Place {
    home: Home,
    state: PathBuf,
    /// The small disk that holds the directory, if the round uses one.
    disk: Option<SmallDisk>,
    book: Book,
}

/// Counts of each event, to prove that the test reached it.
#[derive(Debug, Default)]
struct Tally {
    told: usize,
    refused: Arc<AtomicUsize>,
    rounds_with_refusals: usize,
    rounds_on_small_disk: usize,
    torn_bytes: usize,
}

impl Place {
    fn new(disk: Option<SmallDisk>) -> Self {
        let home = Home::new();
        let state = disk.as_ref().map_or_else(|| home.path(), |disk| disk.path()).join("state");
        let lines =
            format!("state_dir = {state:?}\nstore_reserve = {RESERVE:?}\nstore_retry = \"100ms\"");
        home.configure(&Config {
            daemon: &lines,
            limits: "tasks_per_identity = 100000\nstored_tasks_per_identity = 1000000\n\
                     task_ops_per_second = 1000000",
            tools: LARGE,
            ..Config::default()
        });
        Self { home, state, disk, book: Book::new() }
    }

    fn log(&self) -> PathBuf {
        self.state.join("tasks/tasks.db-wal")
    }

    /// Starts a daemon on this directory, after checking that no process of an earlier one is left.
    fn start(&self, marker: &str) -> Daemon {
        let daemon = Daemon::start_in(self.home.clone());
        assert_none_left(marker);
        daemon
    }
}

/// Fills and frees the disk at random moments until it is told to stop.
fn spoil(disk: &SmallDisk, mut rng: Rng, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_micros(rng.below(20_000) as u64));
        if rng.once_in(2) { disk.fill() } else { disk.free() }
    }
}

/// Shared record of the clients' observations.
#[derive(Clone)]
struct Notes {
    book: SharedBook,
    refused: Arc<AtomicUsize>,
    /// Whether writes may fail because the disk is full.
    may_refuse: bool,
}

/// Creates tasks, looks at them and cancels them until the daemon is gone.
fn client(peer: &mut Peer, rng: &mut Rng, marker: &str, to: &Notes) -> Option<()> {
    loop {
        let (tool, arguments) = match rng.below(16) {
            0..8 => ("sleep", format!(r#"{{"ms":{}}}"#, rng.below(20))),
            8..12 => ("count", r#"{"n":3}"#.to_owned()),
            12 => ("fail", "{}".to_owned()),
            13 => ("large", "{}".to_owned()),
            _ => ("hang", format!(r#"{{"t":"{marker}"}}"#)),
        };
        let ttl = TTL.as_millis();
        let call = format!(r#"{{"name":"{tool}","arguments":{arguments},"task":{{"ttl":{ttl}}}}}"#);
        let created = ask(peer, "tools/call", &call)?;
        if is_unstored(&created) {
            assert!(to.may_refuse, "{created}");
            to.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let created = &created["result"]["task"];
        let Some(task) = created["taskId"].as_str() else { continue };
        let (at, created) = (Instant::now(), created["createdAt"].clone());
        let told = Told { at, created, last: None, outcome: None };
        to.book.lock().unwrap().insert(task.to_owned(), told);
        let note = |change: &dyn Fn(&mut Told)| {
            change(to.book.lock().unwrap().get_mut(task).unwrap());
        };
        match rng.below(4) {
            0 => {
                let answer = ask(peer, "tasks/get", &of_task(task))?;
                let state = &answer["result"];
                assert!(
                    to.may_refuse && is_unstored(&answer) || state["taskId"] == task,
                    "{answer}"
                );
                if is_last(&state["status"]) {
                    note(&|told| told.last = Some(state["status"].clone()));
                }
            }
            1 if tool != "hang" => {
                let outcome = ask(peer, "tasks/result", &of_task(task))?;
                if !is_unstored(&outcome) {
                    note(&|told| told.outcome = Some(outcome.clone()));
                }
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

/// Runs concurrent clients until the daemon is killed, and returns their observations.
fn load(place: &Place, daemon: Daemon, rng: &mut Rng, marker: &str, tally: &Tally) -> Book {
    let notes = Notes {
        book: SharedBook::default(),
        refused: Arc::clone(&tally.refused),
        may_refuse: place.disk.is_some(),
    };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (mut peer, notes) = (daemon.peer(), notes.clone());
            let (mut rng, marker) = (Rng::new(rng.word()), marker.to_owned());
            thread::spawn(move || client(&mut peer, &mut rng, &marker, &notes))
        })
        .collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        if let Some(disk) = &place.disk {
            let (rng, is_over) = (Rng::new(rng.word()), &is_over);
            scope.spawn(move || spoil(disk, rng, is_over));
        }
        thread::sleep(Duration::from_micros(rng.below(150_000) as u64));
        drop(daemon.kill());
        is_over.store(true, Ordering::Relaxed);
    });
    for client in clients {
        let _ = client.join().unwrap();
    }
    std::mem::take(&mut *notes.book.lock().unwrap())
}

fn assert_as_told<'a>(peer: &mut Peer, told: impl Iterator<Item = (&'a String, &'a Told)>) {
    for (task, told) in told {
        compare(peer, task, told).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// One life of the daemon: checks earlier claims, collects more, kills the daemon, and checks all
/// of them against the next one, which may find a torn write and a full disk.
fn round(place: &mut Place, rng: &mut Rng, marker: &str, tally: &mut Tally) {
    if rng.once_in(6) {
        // A kill at a random moment of the start.
        let program = Program::start(&place.home, place.home.command(&["serve"]));
        thread::sleep(Duration::from_micros(rng.below(80_000) as u64));
        program.signal(Signal::KILL);
        program.wait();
    }
    let daemon = place.start(marker);
    let mut peer = daemon.peer();
    place.book.retain(|_, told| told.at.elapsed() < CHECKED_FOR);
    let skipped = place.book.len().saturating_sub(OLD_CHECKED).min(rng.below(1 + place.book.len()));
    assert_as_told(&mut peer, place.book.iter().skip(skipped).take(OLD_CHECKED));
    drop(peer);

    let refused = tally.refused.load(Ordering::Relaxed);
    let told = load(place, daemon, rng, marker, tally);
    tally.rounds_with_refusals += usize::from(tally.refused.load(Ordering::Relaxed) > refused);
    if rng.once_in(2) {
        tally.torn_bytes += wal::tear(&place.log(), rng).unwrap_or(0);
    }
    let daemon = place.start(marker);
    if let Some(disk) = &place.disk {
        disk.free();
        tally.rounds_on_small_disk += 1;
    }
    assert_as_told(&mut daemon.peer(), told.iter());
    drop(daemon.kill());
    tally.told += told.len();
    place.book.extend(told);
}

/// DUR-01: no state lost, none contradicted, no process left.
#[test]
fn kill_at_any_moment_contradicts_no_answer() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number("CEASED_KILL_ROUNDS");
    let seed = number("CEASED_KILL_SEED").unwrap_or(1);
    // Builds the binary first, so that the build is not timed.
    let _ = ceased();
    let mut places = vec![Place::new(None)];
    places.extend(SmallDisk::mount(DISK_BYTES).map(|disk| Place::new(Some(disk))));
    let (marker, begun) = (marker(), Instant::now());
    let (mut rng, mut tally) = (Rng::new(seed), Tally::default());
    for number in 0..rounds.unwrap_or(30) {
        // As many rounds as fit into a minute, unless the environment asks for more.
        if rounds.is_none() && begun.elapsed() > Duration::from_secs(60) {
            assert!(number >= 5, "too slow to tell");
            break;
        }
        let chosen = rng.below(places.len());
        let place = &mut places[chosen];
        // A store that has grown is shrunk again.
        if place.disk.is_some() && rng.once_in(4) {
            *place = Place::new(SmallDisk::mount(DISK_BYTES));
        }
        round(place, &mut rng, &marker, &mut tally);
        if number % 50 == 49 {
            eprintln!("{} rounds, {:?}, {tally:?}", number + 1, begun.elapsed());
        }
    }
    eprintln!("{:?}, {tally:?}", begun.elapsed());
    assert!(tally.told > 0, "no client got an answer");
    assert!(tally.torn_bytes > 0, "no write was torn");
    assert!(
        tally.rounds_with_refusals > 0 || tally.rounds_on_small_disk < 5,
        "the disk was never full"
    );
}

/// Tasks that a client was told have ended, with their result.
fn ended(daemon: &Daemon, count: usize) -> Book {
    let mut peer = daemon.peer();
    let mut book = Book::new();
    for _ in 0..count {
        let task = peer.create_task("count", "{}");
        let outcome = ask(&mut peer, "tasks/result", &of_task(&task));
        let state = peer.result("tasks/get", &of_task(&task));
        let last = Some(state["status"].clone());
        let (at, created) = (Instant::now(), state["createdAt"].clone());
        book.insert(task, Told { at, created, last, outcome });
    }
    book
}

/// Tasks of a book that contradict the store after `sabotage` changed the files of a killed daemon.
fn noticed(sabotage: impl Fn(&Path)) -> (usize, usize) {
    let place = Place::new(None);
    let daemon = place.start("unused");
    let book = ended(&daemon, 5);
    drop(daemon.kill());
    sabotage(&place.state.join("tasks"));
    let daemon = place.start("unused");
    let mut peer = daemon.peer();
    let wrong = book.iter().filter(|(task, told)| compare(&mut peer, task, told).is_err()).count();
    (wrong, book.len())
}

/// Counter-test: the comparison reports a store with lost tasks, and accepts an intact one.
#[test]
fn store_that_lost_tasks_is_reported() {
    assert_eq!(noticed(|_| {}), (0, 5));
    let delete = |dir: &Path| {
        let database = rusqlite::Connection::open(dir.join("tasks.db")).unwrap();
        let sql = "DELETE FROM task WHERE position = (SELECT min(position) FROM task)";
        assert_eq!(database.execute(sql, []).unwrap(), 1);
    };
    assert_eq!(noticed(delete), (1, 5));
    // Removes the last synced commits.
    let cut = |dir: &Path| {
        let log = dir.join("tasks.db-wal");
        let valid = wal::valid_bytes(&fs::read(&log).unwrap()).unwrap();
        let file = fs::OpenOptions::new().write(true).open(log).unwrap();
        file.set_len(valid as u64 / 2).unwrap();
    };
    let (wrong, all) = noticed(cut);
    assert!(wrong > 0 && wrong <= all, "{wrong} of {all}");
}
