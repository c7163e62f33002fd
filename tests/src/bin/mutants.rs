//! `mutants`: puts one deliberate fault at a time into a copy of the workspace and says which
//! suite notices. Ends with 1 when one was not noticed.
//!
//! With names as arguments only those faults are tried, and only their rows written anew.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ceased_tests::mutants::{Fault, faults};
use ceased_tests::workspace;

/// No run of a suite takes longer, unless a fault makes it run for ever.
const PATIENCE: Duration = Duration::from_secs(300);

/// The suites, the likeliest to notice first, each as arguments of cargo.
const SUITES: [(&str, &[&str]); 7] = [
    (
        "sim",
        &[
            "run",
            "-p",
            "ceased-tests",
            "--no-default-features",
            "--bin",
            "sim",
            "--",
            "--seeds",
            "600",
            "--steps",
            "500",
        ],
    ),
    ("core", &["test", "-p", "ceased-core", "--lib"]),
    (
        "durable",
        &[
            "test",
            "-p",
            "ceased-tests",
            "--no-default-features",
            "--test",
            "engine_durable",
            "--test",
            "engine_restart",
            "--test",
            "engine_durable_walk",
        ],
    ),
    (
        "engine_cancel",
        &["test", "-p", "ceased-tests", "--no-default-features", "--test", "engine_cancel"],
    ),
    (
        "engine_tasks",
        &["test", "-p", "ceased-tests", "--no-default-features", "--test", "engine_tasks"],
    ),
    (
        "engine_rpc",
        &["test", "-p", "ceased-tests", "--no-default-features", "--test", "engine_rpc"],
    ),
    (
        "engine_host",
        &["test", "-p", "ceased-tests", "--no-default-features", "--test", "engine_host"],
    ),
];

/// What became of one fault.
enum Verdict {
    /// A suite noticed, saying this.
    Caught(&'static str, String),
    /// It does not compile, which is as good as noticed, but not what the list is for.
    NoProgram(String),
    /// Nobody noticed.
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

/// Runs one suite; what it says is wrong, if anything.
fn run(folder: &Path, arguments: &[&str]) -> io::Result<Result<(), String>> {
    let log = folder.join("target/mutants.log");
    let file = fs::File::create(&log)?;
    let mut child = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()?;
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let said = fs::read_to_string(&log)?;
    Ok(match status {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(said),
        None => Err("it did not end".to_owned()),
    })
}

/// The line of a log that says what is wrong.
fn gist(said: &str) -> String {
    let seed = said.lines().find(|line| line.starts_with("seed "));
    let test = said.lines().find(|line| line.ends_with("... FAILED"));
    let line = seed.or(test).unwrap_or_else(|| said.lines().last().unwrap_or_default());
    line.replace('|', "\\|").chars().take(110).collect()
}

fn judge(fault: &Fault, root: &Path, folder: &Path) -> io::Result<Verdict> {
    let faulty = fault.applied(root).map_err(io::Error::other)?;
    let path = folder.join(&fault.file);
    let healthy = fs::read_to_string(&path)?;
    fs::write(&path, faulty)?;
    let mut verdict = Verdict::Missed;
    for (name, arguments) in SUITES {
        if let Err(said) = run(folder, arguments)? {
            let compiles = !said.contains("error: could not compile");
            let gist = gist(&said);
            verdict = if compiles { Verdict::Caught(name, gist) } else { Verdict::NoProgram(said) };
            break;
        }
    }
    fs::write(&path, healthy)?;
    Ok(verdict)
}

fn all(wanted: &[String]) -> io::Result<bool> {
    let root = workspace::root();
    let folder = root.join("target/mutants");
    copy(&root, &folder)?;
    fs::create_dir_all(folder.join("target"))?;
    let readme = root.join("tests/mutants/README.md");
    let mut table = String::from(HEAD);
    let mut good = true;
    for fault in faults() {
        if !wanted.is_empty() && !wanted.contains(&fault.name) {
            // What was found out before still stands.
            let start = format!("| `{}` |", fault.name);
            let before = fs::read_to_string(&readme)?;
            for row in before.lines().filter(|row| row.starts_with(&start)) {
                let _ = writeln!(table, "{row}");
            }
            continue;
        }
        let (suite, how) = match judge(&fault, &root, &folder)? {
            Verdict::Caught(suite, how) => (suite, how),
            Verdict::NoProgram(said) => {
                eprintln!("{said}");
                good = false;
                ("no program", String::new())
            }
            Verdict::Missed => {
                good = false;
                ("**nobody**", String::new())
            }
        };
        println!("{:28} {suite:14} {how}", fault.name);
        let Fault { name, breaks, .. } = fault;
        // Writing to a String cannot fail.
        let _ = writeln!(table, "| `{name}` | {breaks} | {suite} | {how} |");
    }
    fs::write(readme, table)?;
    Ok(good)
}

const HEAD: &str = "# Deliberate faults and who notices\n\n\
    Written by `cargo run -p ceased-tests --bin mutants` from `faults.toml`: each fault alone in a \
    copy of the\nworkspace, the suites in turn until one fails. `sim` is the simulator with 600 \
    seeds.\n\n\
    | fault | what it breaks | noticed by | how it shows |\n| --- | --- | --- | --- |\n";

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
