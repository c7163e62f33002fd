//! Real MCP servers of npm and PyPI, driven by the official TypeScript and Python clients, with and
//! without `ceased wrap` in front of them.
//!
//! The same steps must give the same results both ways, but for the differences listed here with
//! their reason. Then calls are cancelled, clients close and processes are killed in the middle of
//! the work, and no process may be left. Without Node.js or Python the tests are skipped with a
//! line; with `$CI` set, that is a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use ceased_tests::binary;
use serde_json::{Value, json};

use crate::sdk::processes::{self, MARK_VARIABLE, Sweep};

mod by_url;
mod differences;
mod plan;

/// Longest duration of an installation, generous because the network may be slow.
const INSTALL_WITHIN: Duration = Duration::from_secs(600);
/// Longest duration of a client's script.
const SCRIPT_WITHIN: Duration = Duration::from_secs(240);
/// Longest time between the end of a call or a connection and the end of its last process, in ms.
const GONE_WITHIN_MS: u64 = 30_000;

/// How the servers are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    Wrapped,
}

/// The folder with the servers and clients; `None` with a printed line if they cannot be installed.
pub(crate) fn installed() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        for (program, least) in [("node", 20), ("npm", 9), ("python3", 3), ("git", 2)] {
            if major_version(program).is_none_or(|major| major < least) {
                return skipped(&format!("this machine has no {program} {least} or newer"));
            }
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target");
        let folder = target.join("real");
        fs::create_dir_all(&folder).expect("the target folder can be written to");
        let log = folder.join("install.log");
        let mut install = Command::new(source("install"));
        let ended = processes::run(install.arg(&folder), &log, INSTALL_WITHIN);
        if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
            let said = fs::read_to_string(&log).unwrap_or_default();
            panic!("the servers were not installed ({ended:?}); is a registry in reach?\n{said}");
        }
        for script in ["kit.mjs", "compare.mjs", "cut.mjs", "asking.mjs", "http_server.mjs"] {
            // Node.js resolves modules relative to the importing script.
            fs::copy(source(script), folder.join("node").join(script)).expect("a script");
        }
        Some(folder)
    });
    folder.as_deref()
}

pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/real").join(name)
}

fn major_version(program: &str) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let digits = said.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.split('.').next()?.trim().parse().ok()
}

/// Reports directly to the terminal, because the test harness captures output.
fn skipped(why: &str) -> Option<PathBuf> {
    let text = format!("REAL SERVERS ARE NOT TESTED: {why}");
    assert!(env::var_os("CI").is_none(), "{text}; with $CI set that is a failure");
    let line = "=".repeat(text.len());
    let _ = writeln!(io::stderr(), "{line}\n{text}\n{line}");
    None
}

/// The interpreter and the script of a client.
fn client(installed: &Path, name: &str) -> Command {
    let node = || Command::new("node");
    let mut command = match name {
        name if name.ends_with(".py") => Command::new(installed.join("venv/bin/python")),
        _ => node(),
    };
    let script = match name {
        name if name.ends_with(".py") => source(name),
        _ => installed.join("node").join(name),
    };
    command.arg(script).env("PYTHONWARNINGS", "ignore").env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a client's script; its last line is the result.
fn run(mut command: Command, folder: &Path, setup: &Value) -> Value {
    let file = folder.join("setup.json");
    fs::write(&file, setup.to_string()).expect("a file");
    let log = folder.join("client.log");
    let ended = processes::run(command.arg(&file), &log, SCRIPT_WITHIN);
    let said = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    let result = said.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    match (ended, result) {
        (Ok(status), Some(result)) if status.success() => result,
        (ended, _) => panic!("the client failed ({ended:?}):\n{said}"),
    }
}

/// The command of a server, behind `ceased wrap` if wanted.
fn command_of(way: Way, options: &[&str], command: &[String]) -> Vec<String> {
    let wrap = ["wrap", "--start-timeout", "120s"];
    match way {
        Way::Direct => command.to_vec(),
        Way::Wrapped => [binary::ceased().to_string_lossy().into_owned()]
            .into_iter()
            .chain(wrap.iter().chain(options).map(|&word| word.to_owned()))
            .chain(["--".to_owned()])
            .chain(command.iter().cloned())
            .collect(),
    }
}

/// A folder with one skill.
pub(crate) fn skill(folder: &Path) -> PathBuf {
    let skills = folder.join("skills");
    fs::create_dir_all(skills.join("greet")).expect("a folder");
    let text = "---\nname: greet\ndescription: Greets a person.\n---\n\nSay hello.\n";
    fs::write(skills.join("greet/SKILL.md"), text).expect("a file");
    skills
}

/// A repository; its hook, if it has one, starts a server in the background and works on, as hooks
/// of projects do.
fn repository(folder: &Path, hook: Option<&str>) -> PathBuf {
    let path = folder.join("repository");
    let git = |args: &[&str]| {
        let done = Command::new("git").arg("-C").arg(folder).args(args).output().expect("git");
        assert!(done.status.success(), "git {args:?}: {done:?}");
    };
    git(&["init", "--quiet", "--initial-branch=main", "repository"]);
    git(&["-C", "repository", "config", "user.email", "ann@example.org"]);
    git(&["-C", "repository", "config", "user.name", "Ann"]);
    fs::write(path.join("file"), "one\n").expect("a file");
    git(&["-C", "repository", "add", "file"]);
    if let Some(hook) = hook {
        let file = path.join(".git/hooks/pre-commit");
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        binary::write_program(&file, hook.as_bytes());
    }
    path
}

/// Results of every step with every server, with the names of this run's folder and times replaced.
fn survey(client_name: &str, way: Way, installed: &Path) -> Value {
    let folder = tempfile::Builder::new().prefix("ceased-real-").tempdir().expect("a folder");
    let path = folder.path().to_string_lossy().into_owned();
    let mark = path.rsplit('/').next().expect("a last part").to_owned();
    let _sweep = Sweep(mark.clone());
    let repository = repository(folder.path(), None);
    fs::create_dir(folder.path().join("files")).expect("a folder");
    fs::write(folder.path().join("files/a.txt"), "alpha\nbeta\n").expect("a file");
    let servers: Vec<Value> = plan::servers(installed, folder.path(), &repository)
        .into_iter()
        .map(|mut server| {
            let command = serde_json::from_value::<Vec<String>>(server["command"].take());
            server["command"] = json!(command_of(way, &[], &command.expect("words")));
            server["env"][MARK_VARIABLE] = json!(mark);
            server
        })
        .collect();
    let setup = json!({"folder": path, "servers": servers});
    let seen = run(client(installed, client_name), folder.path(), &setup);
    processes::until(Duration::from_millis(GONE_WITHIN_MS), || {
        (way == Way::Direct || processes::marked(&mark).is_empty()).then_some(())
    })
    .unwrap_or_else(|| panic!("left behind: {:?}", processes::marked(&mark)));
    let mut seen = differences::without_times(&seen, &[(&path, "FOLDER"), (&mark, "MARK")]);
    differences::without_count_of_progress(&mut seen);
    assert_eq!(seen["everything"]["progress"]["result"]["steps"], true, "UPS-03");
    seen
}

/// UPS-01, UPS-03, UPS-10: a client gets the same results of each server through `ceased wrap` and
/// without, member by member.
fn compare(client_name: &str) {
    let Some(installed) = installed() else { return };
    let (direct, wrapped) = thread::scope(|scope| {
        let direct = scope.spawn(|| survey(client_name, Way::Direct, installed));
        let wrapped = survey(client_name, Way::Wrapped, installed);
        (direct.join().expect("a survey"), wrapped)
    });
    let found: BTreeSet<String> = differences::between(&direct, &wrapped);
    let known = differences::known();
    let unknown: Vec<&String> =
        found.iter().filter(|path| !known.contains_key(path.as_str())).collect();
    let shown: BTreeMap<&String, (Option<&Value>, Option<&Value>)> =
        unknown.iter().map(|path| (*path, (direct.pointer(path), wrapped.pointer(path)))).collect();
    assert!(shown.is_empty(), "(without, with) wrap: {shown:#?}");
    let gone: Vec<&&str> = known.keys().filter(|path| !found.contains(**path)).collect();
    assert!(gone.len() < known.len(), "none of the listed differences is one: {gone:?}");
    let steps: usize = direct
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, of)| of.as_object().map_or(0, serde_json::Map::len))
        .sum();
    println!("{client_name}: {steps} steps; {} known differences", known.len());
}

#[test]
fn typescript_client_gets_the_same_with_and_without_wrap() {
    compare("compare.mjs");
}

#[test]
fn python_client_gets_the_same_with_and_without_wrap() {
    compare("compare.py");
}

/// UPS-17: a client without an SDK gets the same messages of servers with extensions: capabilities,
/// lists, skills, user interfaces, and the errors of methods that the server does not have.
#[test]
fn extensions_pass_with_and_without_wrap() {
    let Some(installed) = installed() else { return };
    let hear = |way: Way| {
        let folder = tempfile::Builder::new().prefix("ceased-real-").tempdir().expect("a folder");
        let path = folder.path().to_string_lossy().into_owned();
        let mark = path.rsplit('/').next().expect("a last part").to_owned();
        let _sweep = Sweep(mark.clone());
        skill(folder.path());
        let servers: Vec<Value> = plan::extended(installed, folder.path())
            .into_iter()
            .map(|mut server| {
                let command = serde_json::from_value::<Vec<String>>(server["command"].take());
                server["command"] = json!(command_of(way, &[], &command.expect("words")));
                server["env"] = json!({MARK_VARIABLE: mark, "PYTHONDONTWRITEBYTECODE": "1"});
                server
            })
            .collect();
        let setup = json!({"folder": path, "servers": servers});
        let seen = run(client(installed, "transcript.py"), folder.path(), &setup);
        differences::without_times(&seen, &[(&path, "FOLDER"), (&mark, "MARK")])
    };
    let (direct, wrapped) = thread::scope(|scope| {
        let direct = scope.spawn(|| hear(Way::Direct));
        let wrapped = hear(Way::Wrapped);
        (direct.join().expect("a transcript"), wrapped)
    });
    let skills = &direct["skills 2026-07-28"];
    assert_eq!(skills["4 skills/list"]["result"]["skills"][0]["uri"], "skill://greet/SKILL.md");
    let known = differences::of_transcripts();
    let unknown: BTreeMap<String, (Option<&Value>, Option<&Value>)> =
        differences::between(&direct, &wrapped)
            .into_iter()
            .filter(|path| !known.iter().any(|(of, _)| path.starts_with(of)))
            .map(|path| (path.clone(), (direct.pointer(&path), wrapped.pointer(&path))))
            .collect();
    assert!(unknown.is_empty(), "(without, with) wrap: {unknown:#?}");
}

/// UPS-01, UPS-12: the questions and log lines of servers of both eras reach hosts of every revision
/// as they do without `ceased wrap`, and so do the capabilities of that era.
#[test]
fn questions_reach_hosts_of_every_revision() {
    let Some(installed) = installed() else { return };
    let ask = |way: Way| {
        let folder = tempfile::Builder::new().prefix("ceased-real-").tempdir().expect("a folder");
        let path = folder.path().to_string_lossy().into_owned();
        let mark = path.rsplit('/').next().expect("a last part").to_owned();
        let _sweep = Sweep(mark.clone());
        let servers: Vec<Value> = plan::asked(installed)
            .into_iter()
            .map(|mut server| {
                let command = serde_json::from_value::<Vec<String>>(server["command"].take());
                server["command"] = json!(command_of(way, &[], &command.expect("words")));
                server["env"] = json!({MARK_VARIABLE: mark});
                server
            })
            .collect();
        let setup = json!({"servers": servers});
        run(client(installed, "asking_client.py"), folder.path(), &setup)
    };
    let (mut direct, mut wrapped) = thread::scope(|scope| {
        let direct = scope.spawn(|| ask(Way::Direct));
        let wrapped = ask(Way::Wrapped);
        (direct.join().expect("a matrix"), wrapped)
    });
    for server in ["python", "typescript"] {
        // That revision has no elicitation, and a client of it is not asked.
        let before = wrapped[server]["2024-11-05"]["elicit"].take();
        assert_eq!(before["seen"], json!([]), "{server}: {before}");
        direct[server]["2024-11-05"]["elicit"].take();
        for revision in ["2025-06-18", "2025-11-25"] {
            let seen = &direct[server][revision]["elicit"]["seen"];
            assert_eq!(*seen, json!(["elicitation/create"]), "{server} {revision}: it asks alone");
        }
    }
    let stateless = &direct["typescript"]["2026-07-28"]["elicit"]["seen"];
    assert_eq!(*stateless, json!(["elicitation/create"]), "it asks without a session");
    for server in ["python", "typescript", "fastmcp"] {
        assert_eq!(direct[server], wrapped[server], "{server}");
    }
    for (revision, seen) in direct["everything"].as_object().expect("revisions") {
        for (tool, seen) in seen.as_object().expect("tools") {
            // The greeting has the tasks that `ceased wrap` makes.
            let other = &wrapped["everything"][revision][tool];
            let is_alike = without_own_time(seen) == without_own_time(other);
            assert!(tool == "greeting" || is_alike, "{revision} {tool}: {seen} {other}");
        }
    }
}

/// The view of a host on a call, without messages that the server sends at its own time: log lines, and
/// the question for roots, which it asks once after the start.
fn without_own_time(seen: &Value) -> Value {
    let mut seen = seen.clone();
    if let Some(all) = seen.get_mut("seen").and_then(Value::as_array_mut) {
        all.retain(|it| it.is_string() && it != "roots/list");
    }
    seen
}

/// UPS-05, UPS-07: real servers, started by `npx` and in a virtual environment, are cancelled,
/// closed and killed in the middle of a call. The work of the call ends, the next call is answered,
/// and at the end no process is left.
#[test]
fn no_process_of_a_real_server_is_left() {
    let Some(installed) = installed() else { return };
    let folder = tempfile::Builder::new().prefix("ceased-real-").tempdir().expect("a folder");
    let path = folder.path().to_string_lossy().into_owned();
    let mark = path.rsplit('/').next().expect("a last part").to_owned();
    let _sweep = Sweep(mark.clone());
    let mut servers = Vec::new();
    for cut in ["cancel", "close", "kill"] {
        for server in ["git", "everything"] {
            let name = format!("{server}-{cut}");
            let own = folder.path().join(&name);
            fs::create_dir(&own).expect("a folder");
            // A mark of its own in the environment of each, so that none is taken for another's.
            let mark = format!("{mark}-{name}-end");
            let mut case = plan::cut(installed, &own, server, |hook| repository(&own, Some(hook)));
            let command = serde_json::from_value::<Vec<String>>(case["command"].take());
            let options = ["--cancel-grace", "500ms", "--kill-grace", "500ms"];
            case["command"] = json!(command_of(Way::Wrapped, &options, &command.expect("words")));
            case["env"][MARK_VARIABLE] = json!(mark);
            (case["mark"], case["name"], case["cut"]) = (json!(mark), json!(name), json!(cut));
            servers.push(case);
        }
    }
    let setup = json!({"folder": path, "within": GONE_WITHIN_MS, "servers": servers});
    let seen = run(client(installed, "cut.mjs"), folder.path(), &setup);
    for server in &servers {
        let name = server["name"].as_str().expect("a name");
        let case = &seen[name];
        assert!(case["before"].as_u64().is_some_and(|count| count >= 2), "{name}: {case}");
        assert_eq!(case["end"], json!([]), "{name}: {case}");
        if name.ends_with("-cancel") {
            assert_eq!((&case["left"], &case["next"]), (&json!([]), &json!("answered")), "{name}");
            assert_eq!(case["answered"], Value::Null, "CAN-08, {name}");
        }
    }
    assert!(processes::marked(&mark).is_empty(), "left: {:?}", processes::marked(&mark));
    println!("{seen}");
}
