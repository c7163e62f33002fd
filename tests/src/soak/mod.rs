//! A soak: many clients of every kind for a long time. The daemon's resources must stay bounded and
//! be released when the clients disconnect.

mod agent;
mod guests;
mod levels;
mod load;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{Config, Daemon, Home, Signal, TIME_LIMIT, Vitals, carriers, marker};
use crate::rng::Rng;
use agent::Agent;
use levels::Levels;
use load::{Client, Counts, KINDS};

/// In a shorter soak the first third ends before values have settled.
pub const SHORTEST: Duration = Duration::from_secs(15);
/// Concurrent clients of each kind.
const CLIENTS_PER_KIND: usize = 2;
/// Interval of the samples.
const SAMPLED: Duration = Duration::from_millis(500);
/// Mean interval of configuration changes.
const RELOADED: Duration = Duration::from_secs(5);
/// The audit log in the daemon's home.
const AUDIT: &str = "audit.jsonl";
/// Additional tool of every second configuration.
const NEW_TOOL: &str = "[[tool]]\nname = \"fresh\"\ncommand = [\"echo\", \"fresh\"]\n";

/// Token of some of the clients.
const TOKEN: &str = "soak-soak-soak-soak-soak-soak-soak-soak";
/// Tools that ask, and tools that continue after their requestor disconnects.
const MORE_TOOLS: &str = r#"
[[tool]]
name = "asks"
max_output = "64KiB"
run_as = "daemon"
command = ["echo", "ran"]
confirm = "Really?"

[[tool]]
name = "later"
max_output = "64KiB"
run_as = "daemon"
command = ["sleep", "0.05"]
on_disconnect = "detach"
task_support = "optional"
"#;

/// Bytes of the database and its log.
fn stored_bytes(dir: &Path) -> u64 {
    let size = |name| fs::metadata(dir.join(name)).map_or(0, |found| found.len());
    size("tasks.db") + size("tasks.db-wal")
}

/// Changes the tools and sends SIGHUP; the file is replaced atomically.
fn reload(daemon: &Daemon, text: &str, is_more: bool) {
    let next = daemon.home.path().join("next.toml");
    let more = if is_more { NEW_TOOL } else { "" };
    let written = fs::write(&next, format!("{text}{more}"));
    let replaced = written.and_then(|()| fs::rename(&next, daemon.home.config_path()));
    replaced.expect("the configuration can be written");
    // Rotated as by logrotate; the file of the rotation before is removed.
    let audit = daemon.home.path().join(AUDIT);
    let _ = fs::rename(&audit, audit.with_extension("1"));
    daemon.signal(Signal::HUP);
}

/// Number of records in the audit log and its predecessor; every line must be a record.
fn audited(daemon: &Daemon) -> Result<usize, String> {
    let audit = daemon.home.path().join(AUDIT);
    let mut records = 0;
    for file in [audit.with_extension("1"), audit] {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for line in text.lines() {
            let record: Value =
                serde_json::from_str(line).map_err(|why| format!("{why} in {line:?}"))?;
            if record["event"] == "dropped" {
                return Err(format!("records were lost: {line}"));
            }
            records += 1;
        }
    }
    Ok(records)
}

/// Samples the daemon until the time is over or a client has failed.
fn watch(
    daemon: &Daemon,
    agent: i32,
    dir: &Path,
    length: Duration,
    rng: &mut Rng,
    go_on: &dyn Fn() -> bool,
) -> Levels {
    let text = daemon.home.config_text();
    let (begun, mut levels, mut reloads) = (Instant::now(), Levels::default(), 0_u64);
    while begun.elapsed() < length && go_on() {
        thread::sleep(SAMPLED);
        levels.add(&daemon.vitals(), stored_bytes(dir), &Vitals::of(agent));
        let odds = RELOADED.as_millis() / SAMPLED.as_millis();
        if rng.once_in(usize::try_from(odds).unwrap_or(1)) {
            reloads += 1;
            reload(daemon, &text, reloads % 2 == 1);
        }
    }
    println!("{} samples, {reloads} reloads", levels.len());
    levels
}

/// Waits until a condition holds; false if it does not within [`TIME_LIMIT`].
fn holds_in_time(mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + TIME_LIMIT;
    while !holds() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Leftovers once all clients are gone and all tasks are over.
fn left_after_load(daemon: &Daemon, before: Vitals, marker: &str) -> Vec<String> {
    let mut left = Vec::new();
    daemon.wait_idle();
    if !holds_in_time(|| daemon.status()["tasks"]["total"] == 0) {
        left.push(format!("tasks past their ttl: {}", daemon.status()["tasks"]));
    }
    let is_back = |now: Vitals| {
        now.descriptors <= before.descriptors
            && now.threads <= before.threads
            && now.children <= before.children
    };
    if !holds_in_time(|| is_back(daemon.vitals())) {
        left.push(format!("more resources than before, {before:?}: {:?}", daemon.vitals()));
    }
    if !carriers(marker).is_empty() {
        left.push(format!("processes: {:?}", carriers(marker)));
    }
    left
}

/// Runs the clients; returns the samples, and whether all clients were served.
fn drive(
    daemon: &Daemon,
    dir: &Path,
    length: Duration,
    rng: &mut Rng,
    marker: &str,
) -> (Levels, bool) {
    let (is_over, counts) = (AtomicBool::new(false), Counts::default());
    // Started before the clients, because they would not stop if it failed.
    let agent = Agent::start();
    let (levels, served) = thread::scope(|scope| {
        let kinds = KINDS.into_iter().cycle().take(KINDS.len() * CLIENTS_PER_KIND);
        let clients: Vec<_> = kinds
            .map(|kind| {
                let (is_over, counts, rng) = (&is_over, &counts, Rng::new(rng.word()));
                let client = Client { daemon, marker, is_over, counts, rng };
                scope.spawn(move || client.run(kind))
            })
            .collect();
        let (pid, over, of_agent) = (agent.pid(), &is_over, Rng::new(rng.word()));
        let agent = scope.spawn(move || agent.run(of_agent, over));
        let clients_go_on = || !clients.iter().any(thread::ScopedJoinHandle::is_finished);
        let go_on = || clients_go_on() && !agent.is_finished();
        let levels = watch(daemon, pid, dir, length, rng, &go_on);
        is_over.store(true, Ordering::Relaxed);
        let turns = agent.join();
        println!("turns of the ACP agent: {turns:?}");
        // A client that was not served has printed the reason.
        let ends: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        (levels, turns.is_ok() && ends.iter().all(Result::is_ok))
    });
    println!("{counts}");
    (levels, served)
}

/// Writes a file that only this user can read.
fn write_private(path: &Path, text: &str) {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file can be written");
}

/// Soaks a daemon and prints the results; returns true on success.
///
/// # Panics
///
/// When the daemon cannot be started, or exits.
#[must_use]
pub fn run(length: Duration, seed: u64) -> bool {
    let (home, marker, mut rng) = (Home::new(), marker(), Rng::new(seed));
    let state = home.path().join("soaked");
    let audit = home.path().join(AUDIT);
    home.configure(&Config {
        daemon: &format!("state_dir = {state:?}"),
        // A low rate, so that some requests are refused.
        limits: "task_ops_per_second = 300\nidempotency_ttl = \"2s\"\nparked_for = \"2s\"",
        tasks: "late_result = \"1s\"\ndefault_ttl = \"3s\"\nanonymous_ttl = \"3s\"",
        tools: MORE_TOOLS,
        tcp: true,
    });
    let tokens = home.path().join("tokens");
    write_private(&tokens, &format!("soak {TOKEN}\n"));
    let with_tokens = format!("anonymous = \"allow\"\ntoken_file = {tokens:?}\n");
    let text = home.config_text().replace("anonymous = \"allow\"\n", &with_tokens);
    home.configure_as(&format!("[log]\naudit = {audit:?}\n{text}"));
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
    match audited(&daemon) {
        Ok(records) => println!("audit records since the last rotation but one: {records}"),
        Err(why) => left.push(why),
    }
    if !status.success() {
        left.push(format!("the daemon ended with {status}"));
    }
    if !carriers(&marker).is_empty() {
        left.push(format!("processes after the end: {:?}", carriers(&marker)));
    }
    print!("{levels}");
    left.iter().for_each(|what| println!("left: {what}"));
    if !served {
        println!("a client was not served; see its message above");
    }
    served && left.is_empty() && levels.are_level()
}
