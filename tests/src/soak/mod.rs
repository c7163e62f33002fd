//! A soak: many clients of every kind for a long time, and whether what the daemon holds for them
//! levels off and is given back when they go.

mod levels;
mod load;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::daemon::{Config, Daemon, Home, PATIENCE, Signal, Vitals, carriers, marker};
use crate::rng::Rng;

use levels::Levels;
use load::{Client, Counts, KINDS};

/// A third of less is over before anything has settled.
pub const SHORTEST: Duration = Duration::from_secs(15);
/// Clients of each kind at once.
const CLIENTS_A_KIND: usize = 2;
/// How often it is looked at what the daemon holds.
const SAMPLED: Duration = Duration::from_millis(500);
/// How often, on average, its configuration changes.
const RELOADED: Duration = Duration::from_secs(5);
/// What every second configuration has more.
const NEW_TOOL: &str = "[[tool]]\nname = \"fresh\"\ncommand = [\"echo\", \"fresh\"]\n";

/// Bytes of the database and its log.
fn stored_bytes(dir: &Path) -> u64 {
    let size = |name| fs::metadata(dir.join(name)).map_or(0, |found| found.len());
    size("tasks.db") + size("tasks.db-wal")
}

/// Changes the tools and says so, in a way that the daemon never reads a half-written file.
fn reload(daemon: &Daemon, text: &str, is_more: bool) {
    let next = daemon.home.path().join("next.toml");
    let more = if is_more { NEW_TOOL } else { "" };
    let written = fs::write(&next, format!("{text}{more}"));
    let replaced = written.and_then(|()| fs::rename(&next, daemon.home.config_path()));
    replaced.expect("the configuration can be written");
    daemon.signal(Signal::HUP);
}

/// Looks at the daemon until the time is over or a client has failed.
fn watch(
    daemon: &Daemon,
    dir: &Path,
    length: Duration,
    rng: &mut Rng,
    go_on: &dyn Fn() -> bool,
) -> Levels {
    let text = daemon.home.config_text();
    let (begun, mut levels, mut reloads) = (Instant::now(), Levels::default(), 0_u64);
    while begun.elapsed() < length && go_on() {
        thread::sleep(SAMPLED);
        levels.add(&daemon.vitals(), stored_bytes(dir));
        let odds = RELOADED.as_millis() / SAMPLED.as_millis();
        if rng.once_in(usize::try_from(odds).unwrap_or(1)) {
            reloads += 1;
            reload(daemon, &text, reloads % 2 == 1);
        }
    }
    println!("{} samples, {reloads} reloads", levels.len());
    levels
}

/// Waits until this holds; false when it does not within [`PATIENCE`].
fn comes(mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// What is left once all clients are gone and all tasks are over.
fn left_after_load(daemon: &Daemon, before: Vitals, marker: &str) -> Vec<String> {
    let mut left = Vec::new();
    daemon.wait_idle();
    if !comes(|| daemon.status()["tasks"]["total"] == 0) {
        left.push(format!("tasks past their ttl: {}", daemon.status()["tasks"]));
    }
    let is_back = |now: Vitals| {
        now.descriptors <= before.descriptors
            && now.threads <= before.threads
            && now.children <= before.children
    };
    if !comes(|| is_back(daemon.vitals())) {
        left.push(format!("more than before, {before:?}: {:?}", daemon.vitals()));
    }
    if !carriers(marker).is_empty() {
        left.push(format!("processes: {:?}", carriers(marker)));
    }
    left
}

/// Runs the clients for that long. What it holds, and whether all of them were served.
fn drive(
    daemon: &Daemon,
    dir: &Path,
    length: Duration,
    rng: &mut Rng,
    marker: &str,
) -> (Levels, bool) {
    let (is_over, counts) = (AtomicBool::new(false), Counts::default());
    let (levels, served) = thread::scope(|scope| {
        let kinds = KINDS.into_iter().cycle().take(KINDS.len() * CLIENTS_A_KIND);
        let clients: Vec<_> = kinds
            .map(|kind| {
                let (is_over, counts, rng) = (&is_over, &counts, Rng::new(rng.word()));
                let client = Client { daemon, marker, is_over, counts, rng };
                scope.spawn(move || client.run(kind))
            })
            .collect();
        let go_on = || !clients.iter().any(thread::ScopedJoinHandle::is_finished);
        let levels = watch(daemon, dir, length, rng, &go_on);
        is_over.store(true, Ordering::Relaxed);
        // Who was not served has said why on standard error.
        let ends: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        (levels, ends.iter().all(Result::is_ok))
    });
    println!("{counts}");
    (levels, served)
}

/// Soaks a daemon for so long and prints what came of it; true when all is well.
///
/// # Panics
///
/// When the daemon cannot be started, or dies.
#[must_use]
pub fn run(length: Duration, seed: u64) -> bool {
    let (home, marker, mut rng) = (Home::new(), marker(), Rng::new(seed));
    let state = home.path().join("soaked");
    home.configure(&Config {
        daemon: &format!("state_dir = {state:?}"),
        tasks: "late_result = \"1s\"",
        tcp: true,
        ..Config::default()
    });
    let mut daemon = Daemon::start_in(home);
    daemon.wait_idle();
    let before = daemon.vitals();
    println!("soaking for {length:?}, seed {seed}; before: {before:?}");
    let dir = state.join("tasks");
    let (levels, served) = drive(&daemon, &dir, length, &mut rng, &marker);
    let mut left = left_after_load(&daemon, before, &marker);
    println!("after: {:?}, {} bytes stored", daemon.vitals(), stored_bytes(&dir));
    daemon.signal(Signal::TERM);
    let status = daemon.wait();
    if !status.success() {
        left.push(format!("it ended with {status}"));
    }
    if !carriers(&marker).is_empty() {
        left.push(format!("processes after the end: {:?}", carriers(&marker)));
    }
    print!("{levels}");
    left.iter().for_each(|what| println!("left: {what}"));
    if !served {
        println!("a client was not served; it says why above");
    }
    served && left.is_empty() && levels.are_level()
}
