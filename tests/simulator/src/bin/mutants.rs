//! `mutants`: applies one deliberate fault at a time to a copy of the workspace and reports the
//! suite that catches it. Exits with 1 if a fault was missed, and with 2 if no verdict is possible,
//! as when a suite fails without a fault.
//!
//! Names as arguments select faults; only their rows are rewritten.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ceased_simulator::mutants::{Fault, faults};
use ceased_simulator::workspace;
use rustix::process::{Pid, Signal, kill_process_group};

/// Bound of one run of a suite, in case a fault makes it endless.
const RUN_WITHIN: Duration = Duration::from_secs(300);
/// Bound of one build, generous for a busy machine.
const BUILD_WITHIN: Duration = Duration::from_secs(1800);

/// The packages of the simulator and of the tests of the engine.
const SIMULATOR: &str = "ceased-simulator";
const ENGINE_TESTS: &str = "ceased-engine-tests";

/// A suite that may catch a fault.
#[derive(Debug, Clone, Copy)]
enum Suite {
    /// The simulator against its oracle.
    Sim,
    /// The simulator with servers behind the engine.
    Upstreams,
    /// The simulator with supervised agents.
    Agents,
    /// The core's own tests.
    Core,
    /// The own tests of the package that runs commands.
    Process,
    /// The daemon's own tests of the identity of peers, and of links of the view.
    Peers,
    /// The daemon's own tests of servers by URL, with their walk.
    Remotes,
    /// The walk of several engines around one table.
    Fleet,
    /// The tests of the table that several daemons share, on PostgreSQL.
    FleetTable,
    /// The daemon's own tests of its part in a fleet.
    FleetNode,
    /// A module of the tests of the engine.
    Target(&'static str),
}

/// Suites, the most sensitive first.
const SUITES: [Suite; 45] = [
    Suite::Sim,
    Suite::Core,
    Suite::Upstreams,
    Suite::Agents,
    Suite::Target("upstream"),
    Suite::Target("cancel"),
    Suite::Target("tasks"),
    Suite::Target("task_life"),
    Suite::Target("rpc"),
    Suite::Target("host"),
    Suite::Target("shutdown"),
    Suite::Target("ask"),
    Suite::Target("listeners"),
    Suite::Target("requestor"),
    Suite::Target("acp"),
    Suite::Target("acp_calls"),
    Suite::Target("acp_orders"),
    Suite::Target("services"),
    Suite::Target("modern"),
    Suite::Target("retry"),
    Suite::Target("subscribe"),
    Suite::Target("extension"),
    Suite::Target("idempotency"),
    Suite::Target("detach"),
    Suite::Target("read_only_tasks"),
    Suite::Target("queue_fairness"),
    Suite::Target("shares"),
    Suite::Target("gates"),
    Suite::Target("held_bytes"),
    Suite::Target("backpressure"),
    Suite::Target("batch"),
    Suite::Target("timers"),
    Suite::Target("durable"),
    Suite::Target("store"),
    Suite::Target("isolation"),
    Suite::Target("trail"),
    Suite::Target("restart"),
    Suite::Target("outlast"),
    Suite::Target("durable_interleavings"),
    Suite::Process,
    Suite::Peers,
    Suite::Remotes,
    Suite::Fleet,
    Suite::FleetTable,
    Suite::FleetNode,
];

impl Suite {
    const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Upstreams => "sim-upstreams",
            Self::Agents => "sim-agents",
            Self::Core => "core",
            Self::Process => "process",
            Self::Peers => "peers",
            Self::Remotes => "remotes",
            Self::Fleet => "fleet",
            Self::FleetTable => "fleet-table",
            Self::FleetNode => "fleet-node",
            Self::Target(name) => name,
        }
    }

    /// Arguments of cargo that build the suite.
    fn build(self) -> Vec<&'static str> {
        match self {
            Self::Sim | Self::Upstreams | Self::Agents => {
                vec!["build", "-p", SIMULATOR, "--bin", "sim"]
            }
            Self::Core => vec!["test", "-p", "ceased-core", "--lib", "--no-run"],
            Self::Process => vec!["test", "-p", "ceased-process", "--lib", "--no-run"],
            Self::Peers | Self::Remotes | Self::FleetNode => {
                vec!["test", "-p", "ceased", "--lib", "--no-run"]
            }
            Self::Fleet => vec!["test", "-p", SIMULATOR, "--test", "sim", "--no-run"],
            Self::FleetTable => vec!["test", "-p", "ceased-fleet", "--tests", "--no-run"],
            Self::Target(_) => vec!["test", "-p", ENGINE_TESTS, "--test", "engine", "--no-run"],
        }
    }

    /// Arguments of cargo that run the suite.
    fn run(self) -> Vec<&'static str> {
        let sim = ["run", "-p", SIMULATOR, "--bin", "sim", "--"];
        match self {
            Self::Sim => [&sim[..], &["--seeds", "600", "--steps", "500"]].concat(),
            Self::Upstreams => {
                [&sim[..], &["--upstreams", "--seeds", "300", "--steps", "400"]].concat()
            }
            Self::Agents => [&sim[..], &["--agents", "--seeds", "300", "--steps", "600"]].concat(),
            Self::Core => vec!["test", "-p", "ceased-core", "--lib"],
            Self::Process => vec!["test", "-p", "ceased-process", "--lib"],
            Self::Peers => vec!["test", "-p", "ceased", "--lib", "--", "peer_identity", "passes"],
            Self::Remotes => vec!["test", "-p", "ceased", "--lib", "--", "remote::"],
            Self::FleetNode => vec!["test", "-p", "ceased", "--lib", "--", "fleet::"],
            Self::Fleet => vec!["test", "-p", SIMULATOR, "--test", "sim", "one_table"],
            Self::FleetTable => vec!["test", "-p", "ceased-fleet", "--tests"],
            Self::Target(name) => vec!["test", "-p", ENGINE_TESTS, "--test", "engine", name],
        }
    }
}

/// Verdict on one fault.
enum Verdict {
    /// Caught by this suite, with this message.
    Caught(&'static str, String),
    /// The fault does not compile, which catches it but does not test the suites.
    NoProgram(String),
    /// Missed by every suite.
    Missed,
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        if path.is_dir() {
            copy(&path, &to.join(name))?;
        } else if fs::read(&path)? != fs::read(to.join(&name)).unwrap_or_default() {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// A child and its process group, killed together when dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // After a wait, the process id may belong to another process.
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// Runs cargo; returns its error message, if it fails.
fn cargo(folder: &Path, arguments: &[&str], within: Duration) -> io::Result<Result<(), String>> {
    let log = folder.join("target/mutants.log");
    let beside = || workspace::root().join("../shared/schemas").into();
    let schemas = std::env::var_os("CEASED_SCHEMAS").unwrap_or_else(beside);
    let file = fs::File::create(&log)?;
    let child = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        // Packages that every fault rebuilds are built quickly.
        .args(["ceased-core", SIMULATOR].iter().flat_map(|package| {
            ["--config".to_owned(), format!("profile.dev.package.{package}.opt-level=0")]
        }))
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("RUST_BACKTRACE", "0")
        // The copy is in another folder.
        .env("CEASED_SIM_FLEET", "600")
        .env("CEASED_SCHEMAS", schemas)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        // Endless processes of a fault are children of cargo.
        .process_group(0)
        .spawn()?;
    let mut group = Group(child);
    let end = Instant::now() + within;
    let status = loop {
        match group.0.try_wait()? {
            Some(status) => break Some(status),
            None if Instant::now() > end => break None,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    drop(group);
    let said = fs::read_to_string(&log)?;
    Ok(match status {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(said),
        None => Err("the run did not end in time".to_owned()),
    })
}

/// Runs a suite on the folder; `None` if it succeeds.
fn examine(folder: &Path, suite: Suite) -> io::Result<Option<Verdict>> {
    if let Err(said) = cargo(folder, &suite.build(), BUILD_WITHIN)? {
        return Ok(Some(Verdict::NoProgram(said)));
    }
    let noticed = cargo(folder, &suite.run(), RUN_WITHIN)?.err();
    Ok(noticed.map(|said| Verdict::Caught(suite.name(), gist(&said))))
}

/// The line of a log with the failure.
fn gist(said: &str) -> String {
    let seed = said.lines().find(|line| line.starts_with("seed "));
    let test = said.lines().find(|line| line.ends_with("... FAILED"));
    let line = seed.or(test).unwrap_or_else(|| said.lines().last().unwrap_or_default());
    line.replace('|', "\\|").chars().take(110).collect()
}

fn judge(fault: &Fault, folder: &Path) -> io::Result<Verdict> {
    let faulty = fault.applied(folder).map_err(io::Error::other)?;
    let path = folder.join(&fault.file);
    let healthy = fs::read_to_string(&path)?;
    fs::write(&path, faulty)?;
    let mut suites = SUITES;
    // A stable sort, so that the others keep their order.
    suites.sort_by_key(|suite| Some(suite.name()) != fault.suite.as_deref());
    let mut verdict = Verdict::Missed;
    for suite in suites {
        if let Some(noticed) = examine(folder, suite)? {
            verdict = noticed;
            break;
        }
    }
    fs::write(&path, healthy)?;
    Ok(verdict)
}

/// Runs a suite without a fault: a suite that fails anyway catches nothing.
fn check(folder: &Path, name: &str) -> io::Result<()> {
    let suite = SUITES.into_iter().find(|suite| suite.name() == name);
    let suite = suite.expect("the verdict names a suite");
    match examine(folder, suite)? {
        None => Ok(()),
        Some(Verdict::Caught(_, how)) => {
            Err(io::Error::other(format!("{name} fails without any fault: {how}")))
        }
        Some(Verdict::NoProgram(said)) => Err(io::Error::other(said)),
        Some(Verdict::Missed) => unreachable!("only all suites together miss a fault"),
    }
}

fn all(wanted: &[String]) -> io::Result<bool> {
    let root = workspace::root();
    let folder = root.join("target/mutants");
    copy(&root, &folder)?;
    fs::create_dir_all(folder.join("target"))?;
    let faults = faults();
    let readme = root.join("tests/simulator/mutants/README.md");
    // Earlier rows are kept, even if this run is interrupted.
    let before = fs::read_to_string(&readme)?;
    let mut rows: BTreeMap<&str, String> = BTreeMap::new();
    for Fault { name, .. } in &faults {
        let start = format!("| `{name}` |");
        let row = before.lines().find(|row| row.starts_with(&start));
        rows.extend(row.map(|row| (name.as_str(), row.to_owned())));
    }
    // Suites that were checked without a fault.
    let mut sound = BTreeSet::new();
    let mut good = true;
    for fault in faults.iter().filter(|fault| wanted.is_empty() || wanted.contains(&fault.name)) {
        let (suite, how) = match judge(fault, &folder)? {
            Verdict::Caught(suite, how) => {
                if sound.insert(suite) {
                    check(&folder, suite)?;
                }
                (suite, how)
            }
            Verdict::NoProgram(said) => {
                eprintln!("{said}");
                good = false;
                ("no program", String::new())
            }
            Verdict::Missed => {
                good = false;
                ("**none**", String::new())
            }
        };
        let Fault { name, breaks, .. } = fault;
        println!("{name:28} {suite:14} {how}");
        rows.insert(name, format!("| `{name}` | {breaks} | {suite} | {how} |"));
        let known = faults.iter().filter_map(|fault| rows.get(fault.name.as_str()));
        let table: Vec<&str> = known.map(String::as_str).collect();
        fs::write(&readme, format!("{HEAD}{}\n", table.join("\n")))?;
    }
    Ok(good)
}

const HEAD: &str = "# Deliberate faults and the tests that catch them\n\n\
    Written by `cargo run -p ceased-simulator --bin mutants` from `faults.toml`. Each fault is applied \
    alone to a copy\nof the workspace, and the suites run in turn, beginning with the one that the \
    list names, until one fails.\n`sim` is the simulator with 600 seeds, `core` the tests inside the \
    core,\n`sim-upstreams` the simulator with servers behind the engine, `sim-agents` that with agents \
    between\nthe engine and its clients, `process` the tests inside the package that \
    runs commands, `peers` those of\nthe daemon for the identity of peers, `remotes` those for servers by URL,\n`fleet` the walk of \
    several engines around one table with 600 seeds, `fleet-table` the tests of that table on PostgreSQL, `fleet-node`\nthose \
    of the daemon for its part in a fleet.\n\n\
    | fault | effect | caught by | first failure |\n| --- | --- | --- | --- |\n";

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    match all(&wanted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
