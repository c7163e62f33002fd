//! Entries of a host's file as `[[server]]` tables.

use std::collections::BTreeSet;
use std::path::Path;

use super::base::{Base, plain};
use super::command::CommandEntry;
use super::entry::{Entry, Form, Kind};
use super::remote::RemoteEntry;
use super::secrets::{SHOWN, shown};
use super::variables::{fill_in, references, whole};

/// Longest name of a server; tools get it as a prefix.
const NAME_MAX: usize = 64;

/// One table, and remarks for its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerTable {
    /// Name of the server: that of the entry, with other characters replaced, and unique.
    pub(crate) name: String,
    /// The table as TOML, with a line end.
    pub(crate) text: String,
    /// The table for people, without secrets; no TOML if it has some.
    pub(crate) shown: String,
    /// Whether `env` has values, which can be secrets.
    pub(crate) has_values: bool,
    /// References that only the host can resolve.
    pub(crate) unresolved: Vec<String>,
    /// Relative paths that begin nowhere, since the file is of no project.
    pub(crate) relative: Vec<String>,
    /// Directory of the server.
    pub(crate) cwd: Option<String>,
}

impl ServerTable {
    /// Why the server would be another one than that of the host.
    pub(crate) fn flaw(&self) -> Option<String> {
        if !self.unresolved.is_empty() {
            return Some(format!("only the host can fill in {}", self.unresolved.join(" ")));
        }
        (!self.relative.is_empty()).then(|| {
            format!(
                "{} is relative, and the file, in a home directory, is of no project: write an absolute \
                 path, or a `cwd`",
                self.relative.join(", ")
            )
        })
    }
}

/// A table for every entry with a command, those behind ceased with the command that they had
/// before, and for each other entry the reason why it has none. No server gets a name in `taken`.
/// Variables that `value` knows are filled in.
pub(crate) fn tables(
    entries: &[Entry],
    base: &Base,
    taken: &BTreeSet<String>,
    value: &impl Fn(&str) -> Option<String>,
) -> Vec<Result<ServerTable, String>> {
    let mut names = taken.clone();
    let mut table = |entry: &Entry| match &entry.form {
        _ if entry.kind == Kind::Agent => Err("it is an ACP agent, no MCP server".to_owned()),
        Form::Command(command) | Form::Wrapped(command) => {
            let base = base.or_project(entry.project.as_deref());
            let name = unique(&entry.name, &mut names);
            let known = |name: &str| base.variable(name).or_else(|| value(name));
            Ok(of(name, Rooted::of(command, &base, &known)))
        }
        Form::Remote(remote) | Form::Moved(remote, _) => {
            let base = base.or_project(entry.project.as_deref());
            let name = unique(&entry.name, &mut names);
            let known = |name: &str| base.variable(name).or_else(|| value(name));
            Ok(of_remote(name, remote, &known))
        }
        Form::Left(why) => Err(why.clone()),
    };
    entries.iter().map(&mut table).collect()
}

/// A command whose meaning does not depend on the directory of its host.
struct Rooted {
    argv: Vec<String>,
    cwd: Option<String>,
    env_file: Option<String>,
    env: Vec<(String, String)>,
    passed: Vec<String>,
    /// Variables whose values the host keeps.
    kept: Vec<String>,
    relative: Vec<String>,
}

impl Rooted {
    fn of(command: &CommandEntry, base: &Base, value: &impl Fn(&str) -> Option<String>) -> Self {
        let mut relative = Vec::new();
        let fill = |text: &str| fill_in(text, value);
        let mut rooted = |key: &str, text: String| {
            if !references(&text).is_empty() {
                return text;
            }
            base.absolute(&text).unwrap_or_else(|| {
                relative.push(format!("{key} {:?}", shown(None, &text)));
                text
            })
        };
        let written = command.cwd.as_deref().map(|text| rooted("cwd", fill(text)));
        let env_file = command.env_file.as_deref().map(|text| rooted("envFile", fill(text)));
        let cwd = written.or_else(|| base.project()?.to_str().map(str::to_owned));
        let mut argv: Vec<String> = command.own_argv().into_iter().map(fill).collect();
        if let Some(program) = argv.first_mut().filter(|it| it.contains('/')) {
            // The kernel begins in the directory of the process, a reader in that of the file.
            let beside = cwd.as_deref().map(|cwd| plain(&Path::new(cwd).join(&*program)));
            let is_relative = !program.starts_with(['/', '~', '$', '{']);
            let found =
                beside.filter(|it| is_relative && (base.project().is_none() || it.exists()));
            *program = match found.and_then(|it| it.to_str().map(str::to_owned)) {
                Some(path) => path,
                None => rooted("command", std::mem::take(program)),
            };
        }
        if cwd.is_none() {
            let is_path = |text: &&String| {
                [".", ".."].contains(&text.as_str())
                    || text.starts_with("./")
                    || text.starts_with("../")
            };
            let paths = argv.iter().skip(1).filter(is_path);
            relative.extend(paths.map(|text| format!("argument {:?}", shown(None, text))));
        }
        Self {
            argv,
            cwd,
            env_file,
            env: command.env.iter().map(|(name, text)| (name.clone(), fill(text))).collect(),
            passed: command.passed.clone(),
            kept: command.kept.clone(),
            relative,
        }
    }

    /// The references that are left, each once.
    fn unresolved(&self) -> Vec<String> {
        let values = self.env.iter().filter(|(name, value)| whole(value) != Some(name));
        let texts = self.argv.iter().chain(values.map(|(_, value)| value));
        let texts = texts.chain(&self.cwd).chain(&self.env_file);
        let mut all: Vec<String> = Vec::new();
        let kept = self.kept.iter().map(|name| format!("{name} of its keyring"));
        for found in texts.flat_map(|text| references(text)).chain(kept) {
            if !all.contains(&found) {
                all.push(found);
            }
        }
        all
    }
}

fn of(name: String, server: Rooted) -> ServerTable {
    let (mut values, mut passed) = (toml::Table::new(), Vec::new());
    for (key, value) in &server.env {
        match whole(value) {
            Some(same) if same == key => passed.push(same.to_owned()),
            Some(_) | None => drop(values.insert(key.clone(), value.as_str().into())),
        }
    }
    passed.extend(server.passed.iter().cloned());
    let heading = format!("[[server]]\nname = {}\n", toml::Value::from(name.as_str()));
    let (mut text, mut seen) = (heading.clone(), heading);
    let mut add = |key: &str, value: String, for_people: Option<String>| {
        text.push_str(&format!("{key} = {value}\n"));
        seen.push_str(&format!("{key} = {}\n", for_people.unwrap_or(value)));
    };
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    let mut before = None;
    let for_people = server.argv.iter().map(|argument| {
        match shown(before.replace(argument.as_str()), argument) {
            std::borrow::Cow::Borrowed(whole) => quoted(whole),
            // Not quoted, so that it is never taken for a value.
            std::borrow::Cow::Owned(part) => part,
        }
    });
    let for_people = list(for_people.collect());
    add("command", list(server.argv.iter().map(|it| quoted(it)).collect()), Some(for_people));
    if let Some(cwd) = &server.cwd {
        add("cwd", quoted(cwd), None);
    }
    if let Some(file) = &server.env_file {
        add("env_file", quoted(file), None);
    }
    if !passed.is_empty() {
        add("pass_env", list(passed.iter().map(|it| quoted(it)).collect()), None);
    }
    let has_values = !values.is_empty();
    if has_values {
        let names = values.keys().map(|name| format!("{} = {SHOWN}", key_of(name)));
        let names = names.collect::<Vec<_>>().join(", ");
        add("env", toml::Value::from(values).to_string(), Some(format!("{{ {names} }}")));
    }
    let unresolved = server.unresolved();
    let (relative, cwd) = (server.relative, server.cwd);
    ServerTable { name, text, shown: seen, has_values, unresolved, relative, cwd }
}

/// A table of a server by URL.
fn of_remote(
    name: String,
    remote: &RemoteEntry,
    value: &impl Fn(&str) -> Option<String>,
) -> ServerTable {
    let url = fill_in(&remote.url, value);
    let mut headers = toml::Table::new();
    let mut unresolved: Vec<String> = Vec::new();
    let mut note = |text: &str| {
        for found in references(text) {
            if !unresolved.contains(&found) {
                unresolved.push(found);
            }
        }
    };
    note(&url);
    for (name, text) in &remote.headers {
        let text = fill_in(text, value);
        note(&text);
        headers.insert(name.clone(), text.into());
    }
    let heading = format!("[[server]]\nname = {}\n", toml::Value::from(name.as_str()));
    let mut text = format!("{heading}url = {}\n", toml::Value::from(url.as_str()));
    let mut seen = match shown(None, &url) {
        std::borrow::Cow::Borrowed(whole) => {
            format!("{heading}url = {}\n", toml::Value::from(whole))
        }
        std::borrow::Cow::Owned(part) => format!("{heading}url = {part}\n"),
    };
    let has_values = !headers.is_empty();
    if has_values {
        let names = headers.keys().map(|name| format!("{} = {SHOWN}", key_of(name)));
        seen.push_str(&format!("headers = {{ {} }}\n", names.collect::<Vec<_>>().join(", ")));
        text.push_str(&format!("headers = {}\n", toml::Value::from(headers)));
    }
    let (relative, cwd) = (Vec::new(), None);
    ServerTable { name, text, shown: seen, has_values, unresolved, relative, cwd }
}

/// A key of TOML.
fn key_of(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if !name.is_empty() && name.chars().all(is_bare) {
        return name.to_owned();
    }
    toml::Value::from(name).to_string()
}

fn unique(name: &str, names: &mut BTreeSet<String>) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let replaced = name.chars().map(|c| if is_kept(c) { c } else { '-' });
    let base: String = replaced.take(NAME_MAX).collect();
    let base = if base.is_empty() { "server".to_owned() } else { base };
    let numbered = (2_u32..).map(|number| format!("{base}-{number}"));
    let mut candidates = std::iter::once(base.clone()).chain(numbered);
    let free = candidates.find(|name| !names.contains(name)).unwrap_or(base);
    names.insert(free.clone());
    free
}
