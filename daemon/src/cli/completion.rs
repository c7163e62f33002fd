//! Completion of the names of tools, their arguments, and ids.
//!
//! The script of a shell runs this program for each completion. The program asks the daemon by
//! running itself once more with `--json`, so that a daemon is found exactly as it is for a
//! command. Without a daemon there is nothing to complete.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};

use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
use serde_json::Value;

use crate::accounts;

/// The variable that makes the program complete a command line instead of running it.
pub(super) const VARIABLE: &str = "CEASED_COMPLETE";
/// Options that say which daemon is asked.
const DAEMON_OPTIONS: [&str; 4] = ["--socket", "--tcp", "--token-file", "--config"];

/// Completes the command line and ends the process, where a shell asks for that.
pub(super) fn complete_if_asked(command: fn() -> clap::Command) {
    CompleteEnv::with_factory(|| with_hidden_aliases(command())).var(VARIABLE).complete();
}

/// The command with no visible alias of a subcommand: clap offers only the first visible name by
/// alphabet, which may be an alias.
fn with_hidden_aliases(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|below| {
        // The process ends after a completion.
        let aliases = below.get_all_aliases().map(|alias| &*alias.to_owned().leak());
        let aliases: Vec<&'static str> = aliases.collect();
        below.visible_alias(None::<&'static str>).aliases(aliases)
    })
}

/// The words that are typed so far, from the name of the program on.
fn typed() -> Vec<OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1).collect()
}

/// The `--json` output of a command, of the daemon that the typed words name.
fn ask(command: &str) -> Option<Value> {
    let typed = typed();
    let options = typed.windows(2).filter_map(|pair| match pair {
        [name, value] if DAEMON_OPTIONS.iter().any(|option| name == option) => {
            Some([name.clone(), value.clone()])
        }
        _ => None,
    });
    let output = Command::new(std::env::current_exe().ok()?)
        .args([command, "--json"])
        .args(options.flatten())
        .env_remove(VARIABLE)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

/// The list that a command prints.
fn list(command: &str) -> Vec<Value> {
    match ask(command) {
        Some(Value::Array(entries)) => entries,
        Some(_) | None => Vec::new(),
    }
}

/// A candidate with a line of help; none for a text that a shell could take for more than a word.
///
/// A server behind the daemon chooses names of tools and arguments, and not every shell quotes.
fn candidate(text: &str, help: &str) -> Option<CompletionCandidate> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:=@%+,-".contains(c);
    // In front of a word, these are an option, a job and a program of zsh.
    if !text.chars().all(is_plain) || text.starts_with(['-', '%', '=']) {
        return None;
    }
    let line = super::format::first_line(help);
    Some(CompletionCandidate::new(text).help((!line.is_empty()).then(|| line.into())))
}

/// Names of tools.
pub(super) fn tools(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let tools = list("tools");
    let named = tools.iter().filter_map(|tool| {
        let name = tool["name"].as_str().filter(|name| name.starts_with(&*current))?;
        candidate(name, tool["description"].as_str().unwrap_or_default())
    });
    named.collect()
}

/// Names of servers behind the daemon.
pub(super) fn servers(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let found = ask("servers");
    let servers = found.as_ref().and_then(|found| found["servers"].as_array());
    let named = servers.into_iter().flatten().filter_map(|server| {
        let name = server["server"].as_str().filter(|name| name.starts_with(&*current))?;
        candidate(name, server["state"].as_str().unwrap_or_default())
    });
    named.collect()
}

/// Names of agents of the daemon.
pub(super) fn agents(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let found = ask("ps");
    let agents = found.as_ref().and_then(|found| found["agents"].as_array());
    let named = agents.into_iter().flatten().filter_map(|agent| {
        let name = agent["agent"].as_str().filter(|name| name.starts_with(&*current))?;
        candidate(name, "")
    });
    named.collect()
}

/// Names of servers and agents of the daemon.
pub(super) fn servers_and_agents(current: &OsStr) -> Vec<CompletionCandidate> {
    servers(current).into_iter().chain(agents(current)).collect()
}

/// Arguments of the tool that is called, as `NAME=`, and their values where there are few.
pub(super) fn pairs(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let typed = typed();
    let is_typed = |name: &str| typed.iter().any(|word| word == name);
    let tools = list("tools");
    let tool = tools.iter().find(|tool| tool["name"].as_str().is_some_and(is_typed));
    let Some(properties) = tool.and_then(|tool| tool["inputSchema"]["properties"].as_object())
    else {
        return Vec::new();
    };
    let mut candidates = Vec::new();
    for (name, schema) in properties {
        let help = schema["description"].as_str().or_else(|| schema["type"].as_str());
        let help = help.unwrap_or_default();
        let choices: Vec<String> = match (&schema["enum"], &schema["type"]) {
            (Value::Array(choices), _) => {
                choices.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            (_, kind) if kind == "boolean" => vec!["true".to_owned(), "false".to_owned()],
            _ => Vec::new(),
        };
        let key = format!("{name}=");
        let texts = if current.starts_with(&key) {
            choices.iter().map(|choice| format!("{key}{choice}")).collect()
        } else {
            vec![key]
        };
        let fitting = texts.into_iter().filter(|text| text.starts_with(&*current));
        candidates.extend(fitting.filter_map(|text| candidate(&text, help)));
    }
    candidates
}

/// Ids of tasks with their states, and jobs as `job:N` with their tools.
pub(super) fn ids(current: &OsStr) -> Vec<CompletionCandidate> {
    ids_of(&current.to_string_lossy(), |_| true)
}

/// As [`ids`], without tasks that have ended.
pub(super) fn cancellable(current: &OsStr) -> Vec<CompletionCandidate> {
    ids_of(&current.to_string_lossy(), |status| matches!(status, "working" | "input_required"))
}

fn ids_of(current: &str, is_meant: fn(&str) -> bool) -> Vec<CompletionCandidate> {
    if current.starts_with("job:") {
        return jobs_as(current, "job:");
    }
    let tasks = list("tasks");
    let named = tasks.iter().filter_map(|task| {
        let status = task["status"].as_str().unwrap_or_default();
        let id = task["taskId"].as_str().filter(|id| id.starts_with(current))?;
        is_meant(status).then(|| candidate(id, status)).flatten()
    });
    let mut candidates: Vec<CompletionCandidate> = named.collect();
    if "job:".starts_with(current) {
        candidates.extend(jobs_as(current, "job:"));
    }
    candidates
}

/// Numbers of jobs, with their tools.
pub(super) fn jobs(current: &OsStr) -> Vec<CompletionCandidate> {
    jobs_as(&current.to_string_lossy(), "")
}

/// Jobs that run or wait.
fn running() -> Vec<Value> {
    let status = ask("ps").unwrap_or_default();
    status["jobs"].as_array().cloned().unwrap_or_default()
}

fn jobs_as(current: &str, prefix: &str) -> Vec<CompletionCandidate> {
    let jobs = running();
    let named = jobs.iter().filter_map(|job| {
        let id = format!("{prefix}{}", job["job"].as_u64()?);
        let tool = job["tool"].as_str().unwrap_or_default();
        candidate(&id, tool).filter(|_| id.starts_with(current))
    });
    named.collect()
}

/// Owners of jobs: names of users, and other identities as the daemon shows them.
pub(super) fn users(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let jobs = running();
    let name = |job: &Value| {
        let identity = job["identity"].as_str()?;
        let uid = identity.strip_prefix("uid:").and_then(|uid| uid.parse().ok());
        Some(uid.and_then(accounts::name_of).unwrap_or_else(|| identity.to_owned()))
    };
    let names: BTreeSet<String> = jobs.iter().filter_map(name).collect();
    names
        .iter()
        .filter(|name| name.starts_with(&*current))
        .filter_map(|name| candidate(name, ""))
        .collect()
}
