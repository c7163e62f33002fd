//! `ceased init`: a first configuration with the tools of the project in the working directory,
//! each of which was run once.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::args::InitArgs;
use super::cancel::stop_call;
use super::project_tools::{self, FILES, MARKS, ProjectTool};
use super::{Backend, Exit, Failure, Io, format};
use crate::client::{Client, Error, Options};
use crate::config::Environment;
use crate::trust_store::{PROJECT_FILE, TrustStore};

/// Bytes of a file of a project that are looked at.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Characters of the last line of output that a report shows.
const SHOWN_MAX: usize = 200;

/// Result of running a tool once.
struct Trial {
    tool: ProjectTool,
    /// `None` where it was not run.
    outcome: Option<Outcome>,
}

enum Outcome {
    Worked(Duration),
    Failed(String),
    /// It could not be started, or its time was up.
    Unusable(String),
}

impl Trial {
    fn is_usable(&self) -> bool {
        !matches!(self.outcome, Some(Outcome::Unusable(_)))
    }

    /// A comment of the file.
    fn note(&self) -> String {
        match &self.outcome {
            Some(Outcome::Failed(how)) => format!("# When `ceased init` ran it, it {how}.\n"),
            Some(Outcome::Worked(_) | Outcome::Unusable(_)) | None => String::new(),
        }
    }
}

/// Runs the command.
pub(super) fn init(
    args: &InitArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let dir = std::env::current_dir().map_err(|why| {
        Failure::new(Exit::Failed, format!("there is no working directory: {why}"))
    })?;
    let environment = Environment::of_process();
    let path = place(args, &dir, &environment)?;
    let tools = project_tools::tools(&read(&dir));
    if tools.is_empty() {
        let what = format!(
            "{} has no Cargo.toml, package.json, pyproject.toml, go.mod, CMakeLists.txt, build.gradle, \
             Makefile or justfile with a build, tests or checks\nrun `ceased init` in the top directory of a project",
            dir.display()
        );
        return Err(Failure::new(Exit::Failed, what));
    }
    let trials = if args.no_run || args.print {
        tools.into_iter().map(|tool| Trial { tool, outcome: None }).collect()
    } else {
        try_all(tools, &dir, args, io, backend)?
    };
    // The configuration of a user serves whichever project its client is in.
    let cwd = if args.project { "." } else { "client" };
    let text = text(&trials, cwd);
    if args.print {
        if args.json {
            format::json(&document(&trials, &text, None), io)?;
        } else {
            io.out.write_all(text.as_bytes())?;
        }
        return Ok(Exit::Done);
    }
    if !trials.iter().any(Trial::is_usable) {
        return Err(Failure::new(Exit::Failed, "no tool can be run here, so nothing is written"));
    }
    write(&path, &text)?;
    io.say(&format!("wrote {}", path.display()));
    if args.project {
        let path = path.canonicalize().map_err(Failure::from)?;
        TrustStore::of(&environment)?.trust(&path, text.as_bytes())?;
        io.say("it is trusted as it is: `ceased tools` in this directory lists these tools, `ceased call`");
        io.say("runs them, and `ceased stdio` offers them to a host");
    } else {
        io.say(
            "`ceased stdio` and `ceased connect --spawn` offer these tools in every project below",
        );
        io.say("your home directory; `ceased reload` has a running daemon read it");
    }
    if args.json {
        format::json(&document(&trials, &text, Some(&path)), io)?;
    } else {
        say_entry(io);
    }
    Ok(Exit::Done)
}

/// The entry of a host, which starts this program.
fn entry() -> Value {
    let program = std::env::current_exe().ok();
    let program = program.as_ref().map_or_else(|| "ceased".into(), |path| path.to_string_lossy());
    json!({"command": program, "args": ["stdio"]})
}

/// Prints how a host gets the tools.
fn say_entry(io: &mut Io<'_>) {
    let entry = entry();
    let program = entry["command"].as_str().unwrap_or_default();
    io.say(&format!("Claude Code: claude mcp add ceased -- {program} stdio"));
    let file = json!({"mcpServers": {"ceased": &entry}});
    io.say(&format!("other hosts, in .mcp.json, .cursor/mcp.json and the like: {file}"));
}

/// The outcome as JSON; `path` is that of the file that was written.
fn document(trials: &[Trial], text: &str, path: Option<&Path>) -> Value {
    let tools = trials.iter().map(|trial| {
        let (outcome, detail) = match &trial.outcome {
            None => ("not_run", None),
            Some(Outcome::Worked(_)) => ("worked", None),
            Some(Outcome::Failed(how)) => ("failed", Some(how)),
            Some(Outcome::Unusable(why)) => ("unusable", Some(why)),
        };
        let ProjectTool { name, command, .. } = &trial.tool;
        json!({"name": name, "command": command, "outcome": outcome, "detail": detail})
    });
    let tools: Vec<Value> = tools.collect();
    let path = path.map(Path::to_string_lossy);
    json!({"path": path, "text": text, "tools": tools, "entry": entry()})
}

/// Where the file goes, which must not be there.
fn place(args: &InitArgs, dir: &Path, environment: &Environment) -> Result<PathBuf, Failure> {
    let path = if args.project {
        dir.join(PROJECT_FILE)
    } else {
        environment.user_config().ok_or_else(|| {
            let what = "$HOME is not set, so there is no place for your configuration";
            Failure::new(
                Exit::Usage,
                format!("{what}\n`ceased init --project` writes ./ceased.toml"),
            )
        })?
    };
    if !args.print && fs::symlink_metadata(&path).is_ok() {
        let what = format!("{} is there already", path.display());
        let hint = "`ceased init --print` shows tools that you can add to it; `ceased init --project` \
                    writes ./ceased.toml for this project alone";
        return Err(Failure::new(Exit::Usage, format!("{what}\n{hint}")));
    }
    Ok(path)
}

/// The files of a project that tell its tools.
fn read(dir: &Path) -> BTreeMap<&'static str, String> {
    let text = |name: &&'static str| {
        let path = dir.join(name);
        let found = fs::metadata(&path).ok()?;
        let is_fit = found.is_file() && found.len() <= FILE_BYTES_MAX;
        let text = is_fit.then(|| fs::read(&path).ok()).flatten()?;
        Some((*name, String::from_utf8_lossy(&text).into_owned()))
    };
    let marks = MARKS.iter().filter(|name| dir.join(name).exists());
    FILES.iter().filter_map(text).chain(marks.map(|name| (*name, String::new()))).collect()
}

fn text(trials: &[Trial], cwd: &str) -> String {
    let mut text = String::from(
        "# Written by `ceased init`. `ceased check` shows what would run; the documentation lists every\n\
         # key.\n",
    );
    for trial in trials.iter().filter(|trial| trial.is_usable()) {
        text.push('\n');
        text.push_str(&trial.tool.table(cwd, &trial.note()));
    }
    text
}

/// Writes a new file for this user alone; one that has come meanwhile stays.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let fail = |why: std::io::Error| {
        Failure::new(Exit::Failed, format!("cannot write {}: {why}", path.display()))
    };
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
    }
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o644).open(path).map_err(fail)?;
    file.write_all(text.as_bytes()).map_err(fail)
}

/// Runs each tool once, in a server in this process, so that Ctrl-C ends everything that it
/// started.
fn try_all(
    tools: Vec<ProjectTool>,
    dir: &Path,
    args: &InitArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Vec<Trial>, Failure> {
    let text: String = tools.iter().map(|tool| tool.table(".", "")).collect();
    let embedded = backend.embed_text(&text, &dir.join(PROJECT_FILE))?;
    let interrupts = (io.interrupts)()
        .map_err(|why| Failure::new(Exit::Failed, format!("cannot catch signals: {why}")))?;
    let options = Options { interrupts: Some(interrupts), ..Options::default() };
    let mut client = Client::on(embedded.stream, options)?;
    let mut trials = Vec::new();
    for tool in tools {
        io.say(&format!("running {}: {}", tool.name, tool.command.join(" ")));
        let outcome = try_one(&mut client, &tool, args.timeout, io)?;
        let shown = match &outcome {
            Outcome::Worked(took) => format!("{} works ({:.1} s)", tool.name, took.as_secs_f64()),
            Outcome::Failed(how) => format!("{} {how}; it is written all the same", tool.name),
            Outcome::Unusable(why) => format!("{} is left out: {why}", tool.name),
        };
        io.say(&shown);
        trials.push(Trial { tool, outcome: Some(outcome) });
    }
    drop(client);
    drop(embedded.server);
    Ok(trials)
}

fn try_one(
    client: &mut Client,
    tool: &ProjectTool,
    timeout: Option<Duration>,
    io: &mut Io<'_>,
) -> Result<Outcome, Failure> {
    let started = Instant::now();
    let call = client.start_tool(&tool.name, &json!({}))?;
    let answer = match client.wait(call, timeout, &mut |_| {}) {
        Ok(answer) => answer,
        Err(Error::Rpc(error)) => return Ok(Outcome::Unusable(error.message)),
        Err(Error::TimedOut(after)) => {
            stop_call(client, call, "its time is up", io);
            return Ok(Outcome::Unusable(format!("it had not ended after {after:?}")));
        }
        Err(Error::Interrupted) => {
            stop_call(client, call, "cancelled by the user", io);
            return Err(Error::Interrupted.into());
        }
        Err(error) => return Err(error.into()),
    };
    let result: Value = serde_json::from_str(answer.get())
        .map_err(|why| Failure::new(Exit::Failed, format!("a result cannot be read: {why}")))?;
    if result["isError"] != true {
        return Ok(Outcome::Worked(started.elapsed()));
    }
    let how = match (result["structuredContent"]["exitCode"].as_i64(), last_line(&result)) {
        (Some(code), Some(line)) => format!("exited with code {code}: {line}"),
        (Some(code), None) => format!("exited with code {code}"),
        // It did not run.
        (None, line) => return Ok(Outcome::Unusable(line.unwrap_or_else(|| "it failed".into()))),
    };
    Ok(Outcome::Failed(how))
}

/// The last line of a command's output, or of the reason why it did not run, not long.
fn last_line(result: &Value) -> Option<String> {
    let blocks = result["content"].as_array()?;
    let text = blocks.iter().rev().filter_map(|block| block["text"].as_str());
    // The verdict is no output.
    let is_output = |line: &&str| !line.is_empty() && !line.starts_with("exited with code ");
    let line = text.flat_map(|text| text.lines().rev()).map(str::trim).find(is_output)?;
    let mut shown: String = line.chars().filter(|c| !c.is_control()).collect();
    if let Some((cut, _)) = shown.char_indices().nth(SHOWN_MAX) {
        shown.truncate(cut);
        shown.push('…');
    }
    Some(shown)
}
