//! Entries of a host's file as `[[server]]` tables.

use std::collections::BTreeSet;

use super::entry::{CommandEntry, Entry, Form, Kind};

/// Longest name of a server; tools get it as a prefix.
const NAME_MAX: usize = 64;

/// One table, and remarks for its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerTable {
    /// Name of the server: that of the entry, with other characters replaced, and unique.
    pub(crate) name: String,
    /// The table as TOML, with a line end.
    pub(crate) text: String,
    /// The names in `env`.
    variables: Vec<String>,
    /// Whether `env` has values, which can be secrets.
    pub(crate) has_values: bool,
    /// References that only the host can resolve.
    pub(crate) unresolved: Vec<String>,
}

/// A table for every entry with a command, those behind ceased with the command that they had
/// before, and for each other entry the reason why it has none. No server gets a name in `taken`.
pub(crate) fn tables(
    entries: &[Entry],
    taken: &BTreeSet<String>,
) -> Vec<Result<ServerTable, String>> {
    let mut names = taken.clone();
    let mut table = |entry: &Entry| match &entry.form {
        _ if entry.kind == Kind::Agent => Err("it is an ACP agent, no MCP server".to_owned()),
        Form::Command(command) => Ok(of(entry, command, 0, &mut names)),
        Form::Wrapped(command) => {
            // `wrap` or `connect`, its options, `--`, after the program.
            let skipped = command.wrapping().map_or(0, |dashes| dashes + 2);
            Ok(of(entry, command, skipped, &mut names))
        }
        Form::Left(why) => Err(why.clone()),
    };
    entries.iter().map(&mut table).collect()
}

fn of(
    entry: &Entry,
    command: &CommandEntry,
    skipped: usize,
    names: &mut BTreeSet<String>,
) -> ServerTable {
    let name = unique(&entry.name, names);
    let argv: Vec<&str> = command.argv().into_iter().skip(skipped).collect();
    // Claude Code starts the servers of a project in its directory.
    let cwd = command.cwd.as_ref().or(entry.project.as_ref());
    let (mut values, mut passed) = (toml::Table::new(), Vec::new());
    for (key, value) in &command.env {
        match variable(value) {
            Some(same) if same == key => passed.push(toml::Value::from(same)),
            Some(_) | None => drop(values.insert(key.clone(), value.as_str().into())),
        }
    }
    let listed: Vec<toml::Value> = argv.iter().map(|&it| it.into()).collect();
    let mut text = format!("[[server]]\nname = {}\n", shown(&name.as_str().into()));
    let mut add = |key: &str, value: toml::Value| {
        text.push_str(&format!("{key} = {}\n", shown(&value)));
    };
    add("command", listed.into());
    if let Some(cwd) = cwd {
        add("cwd", cwd.as_str().into());
    }
    if let Some(file) = &command.env_file {
        add("env_file", file.as_str().into());
    }
    if !passed.is_empty() {
        add("pass_env", passed.into());
    }
    let has_values = !values.is_empty();
    let variables = values.keys().cloned().collect();
    let texts = values.values().filter_map(toml::Value::as_str);
    let texts = argv.iter().copied().chain(texts).chain(cwd.map(String::as_str));
    let texts = texts.chain(command.env_file.as_deref());
    let unresolved = texts.filter(|text| text.contains("${")).map(str::to_owned).collect();
    if has_values {
        add("env", values.into());
    }
    ServerTable { name, text, variables, has_values, unresolved }
}

impl ServerTable {
    /// The table without values of variables, for people.
    pub(crate) fn without_values(&self) -> String {
        let (lines, env): (Vec<&str>, Vec<&str>) =
            self.text.lines().partition(|line| !line.starts_with("env = "));
        let mut text = lines.join("\n") + "\n";
        if !env.is_empty() {
            let names = self.variables.iter().map(|name| format!("{name} = •••"));
            text.push_str(&format!("env = {{ {} }}\n", names.collect::<Vec<_>>().join(", ")));
        }
        text
    }
}

/// A value on one line.
fn shown(value: &toml::Value) -> String {
    value.to_string()
}

/// The variable that a value names as a whole: `${NAME}` of Claude Code, `${env:NAME}` of VS Code
/// and Cursor.
fn variable(value: &str) -> Option<&str> {
    let name = value.strip_prefix("${")?.strip_suffix('}')?;
    let name = name.strip_prefix("env:").unwrap_or(name);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
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
