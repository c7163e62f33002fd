//! Entries: the servers and agents of a host's file, and those that have to be left as they are.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use super::command::{self, CommandEntry};
use super::document::{Format, Member, Node, Value};
use super::error::{HostFileError, line_of};
use super::reader::parse;
use super::remote::{self, ADDRESSES, RemoteEntry};

/// Keys under which hosts keep servers and agents: `mcpServers` of Claude, Cursor, Windsurf, Cline,
/// Gemini, Copilot and Continue, `servers` of VS Code, `context_servers` of Zed, `mcp_servers` of
/// Codex, `agent_servers` of Zed and of JetBrains.
const CONTAINERS: [(&str, Kind); 5] = [
    ("mcpServers", Kind::Server),
    ("servers", Kind::Server),
    ("context_servers", Kind::Server),
    ("mcp_servers", Kind::Server),
    ("agent_servers", Kind::Agent),
];
/// Key of the servers of Goose, whose file is YAML.
const EXTENSIONS: &str = "extensions";
/// Key of the servers of OpenCode, and of the settings of VS Code.
const MCP: &str = "mcp";
/// Keys of an entry whose meaning is in doubt if one is there twice.
const SINGLE: [&str; 17] = [
    "command",
    "cmd",
    "args",
    "env",
    "envs",
    "environment",
    "cwd",
    "envFile",
    "type",
    "url",
    "uri",
    "serverUrl",
    "httpUrl",
    "disabled",
    "enabled",
    "name",
    "path",
];
/// Types of a server that is reached over HTTP.
const REMOTE: [&str; 7] =
    ["http", "sse", "streamable-http", "streamable_http", "streamableHttp", "remote", "ws"];
/// Types of an entry whose command is known to the host alone.
const FETCHED: [&str; 4] = ["registry", "extension", "inline_python", "frontend"];
/// Types of an entry that is a part of its host.
const INTERNAL: [&str; 2] = ["builtin", "platform"];

/// Protocol of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An MCP server.
    Server,
    /// An ACP agent.
    Agent,
}

/// A server or agent of a host's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Name in the file.
    pub(crate) name: String,
    /// Project directory of the entry, where Claude Code keeps it by project.
    pub(crate) project: Option<String>,
    /// Line of the entry, counted from 1.
    pub(crate) line: usize,
    /// Its protocol.
    pub(crate) kind: Kind,
    /// Kind of the entry.
    pub(crate) form: Form,
    /// Bytes of its value.
    pub(super) span: Range<usize>,
}

impl Entry {
    /// Whether the host starts or reaches it without ceased.
    pub(crate) const fn is_direct(&self) -> bool {
        matches!(self.form, Form::Command(_) | Form::Remote(_))
    }

    /// Its command, with or without ceased in front.
    pub(super) const fn command(&self) -> Option<&CommandEntry> {
        match &self.form {
            Form::Command(command) | Form::Wrapped(command) => Some(command),
            Form::Remote(_) | Form::Moved(..) | Form::Left(_) => None,
        }
    }

    /// Its URL and headers, also where it was moved into the daemon.
    pub(crate) const fn remote(&self) -> Option<&RemoteEntry> {
        match &self.form {
            Form::Remote(remote) | Form::Moved(remote, _) => Some(remote),
            Form::Command(_) | Form::Wrapped(_) | Form::Left(_) => None,
        }
    }

    /// A part of the promise of ceased that does not hold for the entry.
    pub(crate) fn warning(&self) -> Option<String> {
        let argv = self.command()?.own_argv();
        let program = Path::new(argv.first()?).file_name()?.to_str()?;
        ["docker", "podman", "nerdctl", "finch"].contains(&program).then(|| {
            format!(
                "{program} starts a container outside of ceased's reach: only the {program} command \
                 itself is ended with a call or its host"
            )
        })
    }
}

/// Kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// A command that the host starts.
    Command(CommandEntry),
    /// A command behind `ceased wrap`, or kept as the arguments of `ceased connect`.
    Wrapped(CommandEntry),
    /// A server that is reached by a URL.
    Remote(RemoteEntry),
    /// One that was moved into the daemon, with the command that the host runs instead.
    Moved(RemoteEntry, CommandEntry),
    /// An entry that stays as it is, and why.
    Left(String),
}

/// The servers of a host's file, in its order.
///
/// # Errors
/// If it is not of this format, or has no place for servers, or one twice.
pub(crate) fn entries(text: &str, format: Format) -> Result<Vec<Entry>, HostFileError> {
    entries_of(&parse(text, format)?, text, format)
}

/// As [`entries`], of a document.
pub(super) fn entries_of(
    root: &Node,
    text: &str,
    format: Format,
) -> Result<Vec<Entry>, HostFileError> {
    let mut found = Finder { text, entries: Vec::new(), containers: 0 };
    found.containers_of(root, None)?;
    if let Some(extensions) = root.member(EXTENSIONS).filter(|_| format == Format::Yaml) {
        found.container(&extensions.node, Kind::Server, None, &[]);
    }
    if let Some(mcp) = root.member(MCP) {
        let is_entry =
            |it: &Member| ["command", "type"].iter().any(|key| it.node.member(key).is_some());
        if mcp.node.members().iter().any(is_entry) {
            found.container(&mcp.node, Kind::Server, None, &[]);
        } else {
            // The settings of VS Code.
            found.containers_of(&mcp.node, None)?;
        }
    }
    for project in root.member("projects").iter().flat_map(|it| it.node.members()) {
        found.containers_of(&project.node, Some(project.name.as_str()))?;
    }
    if found.containers == 0 {
        return Err(HostFileError::no_servers(&CONTAINERS.map(|(key, _)| key).join(", ")));
    }
    Ok(found.entries)
}

struct Finder<'t> {
    text: &'t str,
    entries: Vec<Entry>,
    containers: usize,
}

impl Finder<'_> {
    fn containers_of(&mut self, map: &Node, project: Option<&str>) -> Result<(), HostFileError> {
        let disabled = texts(map, "disabledMcpServers");
        for (key, kind) in CONTAINERS {
            let all: Vec<_> = map.members().iter().filter(|it| it.name == key).collect();
            if let [_, second, ..] = all.as_slice() {
                let what =
                    format!("there is a second {key:?}, and hosts differ in which one they use");
                let line = line_of(self.text, second.key.start);
                return Err(HostFileError::new(line, what, "remove one of them"));
            }
            if let Some(container) = all.first() {
                self.container(&container.node, kind, project, &disabled);
            }
        }
        Ok(())
    }

    /// Entries of a map by their keys, or of a list by their member `name`.
    fn container(&mut self, node: &Node, kind: Kind, project: Option<&str>, disabled: &[String]) {
        let named = |item| {
            let name = Node::member(item, "name").and_then(|it| it.node.scalar());
            (name.unwrap_or_default(), item.span.start, item)
        };
        let found: Vec<(String, usize, &Node)> = match (&node.value, node.items()) {
            (Value::Map(members), _) => {
                members.iter().map(|it| (it.name.clone(), it.key.start, &it.node)).collect()
            }
            (_, Some(items)) => items.iter().map(named).collect(),
            (_, None) => return,
        };
        self.containers += 1;
        let mut names = BTreeSet::new();
        for (name, at, node) in found {
            let form = if !names.insert(name.clone()) {
                let what = "it has the name of an entry above; hosts differ in which one they use";
                Form::Left(what.to_owned())
            } else if disabled.contains(&name) {
                Form::Left("it is disabled".to_owned())
            } else {
                form(node).unwrap_or_else(Form::Left)
            };
            let line = line_of(self.text, at);
            let (project, span) = (project.map(str::to_owned), node.span.clone());
            self.entries.push(Entry { name, project, line, kind, form, span });
        }
    }
}

/// The texts in a list of a map.
fn texts(map: &Node, name: &str) -> Vec<String> {
    let items = map.member(name).and_then(|it| it.node.items());
    items.into_iter().flatten().filter_map(|it| it.text().map(str::to_owned)).collect()
}

/// The form of an entry.
///
/// # Errors
/// The reason for which it is left.
fn form(node: &Node) -> Result<Form, String> {
    if matches!(node.value, Value::Bound(_)) {
        return Err("it is written with an anchor, an alias or a tag of YAML".to_owned());
    }
    if !node.is_map() {
        return Err("it is no object".to_owned());
    }
    for key in SINGLE {
        if node.members().iter().filter(|it| it.name == key).count() > 1 {
            return Err(format!("it has {key:?} twice; hosts differ in which one they use"));
        }
    }
    if node.member("<<").is_some() {
        return Err("it takes members from another place of the file (`<<`)".to_owned());
    }
    let is = |key, flag| node.member(key).is_some_and(|it| it.node.value == Value::Flag(flag));
    if is("disabled", true) || is("enabled", false) {
        return Err("it is disabled".to_owned());
    }
    let kind = node.member("type").and_then(|it| it.node.text()).unwrap_or_default();
    if FETCHED.contains(&kind) {
        return Err("the host fetches its command itself".to_owned());
    }
    let has_command = ["command", "cmd"].iter().any(|key| node.member(key).is_some());
    let has_address =
        ADDRESSES.iter().any(|key| node.member(key).is_some_and(|it| it.node.value != Value::Null));
    if has_address && !has_command {
        return remote::of(node, kind).map(Form::Remote);
    }
    if has_address || (!has_command && REMOTE.contains(&kind)) {
        return Err("it is reached over HTTP and starts no process".to_owned());
    }
    if !has_command && INTERNAL.contains(&kind) {
        return Err("it is a part of the host".to_owned());
    }
    let entry = command::of(node)?;
    if entry.wrapping().is_some() {
        if let Some(remote) = remote::moved(node, &entry) {
            return Ok(Form::Moved(remote, entry));
        }
        return Ok(Form::Wrapped(entry));
    }
    if command::is_ceased(entry.program()) {
        return Err("it is ceased itself".to_owned());
    }
    Ok(Form::Command(entry))
}
