//! Entries: the servers and agents of a host's file, and those that have to be left as they are.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use jsonc_parser::ast::{Array, Object, ObjectProp, Value};
use jsonc_parser::common::Ranged as _;

use super::error::{HostFileError, line_of};
use super::json::{parse, readable, span};

/// Keys under which hosts keep servers and agents: `mcpServers` of Claude, Cursor, Windsurf and
/// Cline, `servers` of VS Code, `context_servers` of Zed, `agent_servers` of Zed and of JetBrains.
const CONTAINERS: [(&str, Kind); 4] = [
    ("mcpServers", Kind::Server),
    ("servers", Kind::Server),
    ("context_servers", Kind::Server),
    ("agent_servers", Kind::Agent),
];
/// Types of an entry that starts a command.
const TYPES: [&str; 2] = ["stdio", "custom"];
/// Keys of an entry whose meaning is in doubt if one is there twice.
const SINGLE: [&str; 12] = [
    "command",
    "args",
    "env",
    "cwd",
    "envFile",
    "type",
    "url",
    "serverUrl",
    "httpUrl",
    "disabled",
    "enabled",
    "path",
];
/// Keys of the address of a server that is reached over HTTP.
const ADDRESSES: [&str; 3] = ["url", "serverUrl", "httpUrl"];

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
}

impl Entry {
    /// Whether it has a command that the host starts without ceased.
    pub(crate) const fn is_command(&self) -> bool {
        matches!(self.form, Form::Command(_))
    }
}

/// Kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// A command that the host starts.
    Command(CommandEntry),
    /// A command behind `ceased wrap`, or kept as the arguments of `ceased connect`.
    Wrapped(CommandEntry),
    /// An entry that stays as it is, and why.
    Left(String),
}

/// A text of the file: its value, and the bytes that write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) span: Range<usize>,
    pub(crate) value: String,
}

/// The array of arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    /// The array with its brackets.
    pub(crate) span: Range<usize>,
    pub(crate) items: Vec<Text>,
    /// The member, from its key on.
    pub(crate) member: Range<usize>,
}

/// An entry with a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandEntry {
    pub(crate) command: Text,
    /// The member `command`, from its key on.
    pub(crate) member: Range<usize>,
    pub(crate) args: Option<Args>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: Option<String>,
    pub(crate) env_file: Option<String>,
}

impl CommandEntry {
    /// Program and arguments.
    pub(crate) fn argv(&self) -> Vec<&str> {
        let args = self.args.iter().flat_map(|args| &args.items);
        std::iter::once(&self.command).chain(args).map(|text| text.value.as_str()).collect()
    }

    /// Number of leading arguments up to the `--` of `ceased wrap` or of `ceased connect --server`,
    /// if the entry runs that.
    pub(crate) fn wrapping(&self) -> Option<usize> {
        let items = &self.args.as_ref()?.items;
        let dashes = items.iter().position(|item| item.value == "--")?;
        let options = items.get(1..dashes).unwrap_or_default();
        let is_ours = match items.first()?.value.as_str() {
            "wrap" => true,
            "connect" => options.iter().any(|option| option.value == "--server"),
            _ => false,
        };
        let is_ours = is_ours && is_ceased(&self.command.value);
        (is_ours && items.len() > dashes + 1).then_some(dashes)
    }
}

impl CommandEntry {
    /// The same with the host's variables (`${NAME}`, `${env:NAME}`, `${NAME:-default}`) filled in
    /// where `value` knows them.
    pub(crate) fn expanded(&self, value: &impl Fn(&str) -> Option<String>) -> Self {
        let fill = |text: &String| fill_in(text, value);
        let of = |text: &Text| Text { value: fill(&text.value), span: text.span.clone() };
        let args = self
            .args
            .as_ref()
            .map(|args| Args { items: args.items.iter().map(of).collect(), ..args.clone() });
        Self {
            command: of(&self.command),
            member: self.member.clone(),
            args,
            env: self.env.iter().map(|(name, text)| (name.clone(), fill(text))).collect(),
            cwd: self.cwd.as_ref().map(fill),
            env_file: self.env_file.as_ref().map(fill),
        }
    }
}

/// A text with the variables filled in that are known; the others stay.
fn fill_in(text: &str, value: &impl Fn(&str) -> Option<String>) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        filled.push_str(before);
        let Some((named, next)) = after.split_once('}') else {
            filled.push_str("${");
            rest = after;
            continue;
        };
        let name = named.strip_prefix("env:").unwrap_or(named);
        let (name, default) = match name.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (name, None),
        };
        match value(name).or(default) {
            Some(found) => filled.push_str(&found),
            None => filled.push_str(&format!("${{{named}}}")),
        }
        rest = next;
    }
    filled + rest
}

/// Whether a command is this program.
fn is_ceased(command: &str) -> bool {
    Path::new(command).file_name().is_some_and(|name| name == "ceased")
}

/// The servers of a host's file, in its order.
///
/// # Errors
/// If it is not JSON, or has no place for servers, or one twice.
pub(crate) fn entries(text: &str) -> Result<Vec<Entry>, HostFileError> {
    let readable = readable(text);
    let root = parse(&readable)?;
    let mut found = Finder { text, entries: Vec::new(), containers: 0 };
    found.containers_of(&root, None)?;
    if let Some(mcp) = member(&root, "mcp").and_then(|it| it.value.as_object()) {
        // The settings of VS Code.
        found.containers_of(mcp, None)?;
    }
    let projects = member(&root, "projects").and_then(|it| it.value.as_object());
    for project in projects.iter().flat_map(|all| &all.properties) {
        if let Some(object) = project.value.as_object() {
            found.containers_of(object, Some(project.name.as_str()))?;
        }
    }
    if found.containers == 0 {
        let keys = CONTAINERS.map(|(key, _)| key).join(", ");
        let what = format!("the file has no servers: no object {keys}");
        let hint = "name the file in which the host keeps its MCP servers or ACP agents";
        return Err(HostFileError::new(0, what, hint));
    }
    Ok(found.entries)
}

struct Finder<'t> {
    text: &'t str,
    entries: Vec<Entry>,
    containers: usize,
}

impl Finder<'_> {
    fn containers_of(
        &mut self,
        object: &Object<'_>,
        project: Option<&str>,
    ) -> Result<(), HostFileError> {
        let disabled = texts(object, "disabledMcpServers");
        for (key, kind) in CONTAINERS {
            let all: Vec<_> =
                object.properties.iter().filter(|it| it.name.as_str() == key).collect();
            if let [_, second, ..] = all.as_slice() {
                let what =
                    format!("there is a second {key:?}, and hosts differ in which one they use");
                let line = line_of(self.text, second.start());
                return Err(HostFileError::new(line, what, "remove one of them"));
            }
            let Some(container) = all.first().and_then(|it| it.value.as_object()) else { continue };
            self.containers += 1;
            let mut names = BTreeSet::new();
            for entry in &container.properties {
                let name = entry.name.as_str();
                let form = if names.insert(name) {
                    form(entry, &disabled)
                } else {
                    let what =
                        "it has the name of an entry above; hosts differ in which one they use";
                    Form::Left(what.to_owned())
                };
                self.entries.push(Entry {
                    name: name.to_owned(),
                    project: project.map(str::to_owned),
                    line: line_of(self.text, entry.start()),
                    kind,
                    form,
                });
            }
        }
        Ok(())
    }
}

fn member<'o, 't>(object: &'o Object<'t>, name: &str) -> Option<&'o ObjectProp<'t>> {
    object.properties.iter().find(|it| it.name.as_str() == name)
}

fn text(object: &Object<'_>, name: &str) -> Option<Text> {
    as_text(&member(object, name)?.value)
}

fn as_text(value: &Value<'_>) -> Option<Text> {
    let literal = value.as_string_lit()?;
    Some(Text { span: span(literal), value: literal.value.clone().into_owned() })
}

/// The strings in an array.
fn texts(object: &Object<'_>, name: &str) -> Vec<String> {
    let array = member(object, name).and_then(|it| it.value.as_array());
    let items = array.iter().flat_map(|it| &it.elements);
    items.filter_map(|it| Some(as_text(it)?.value)).collect()
}

fn form(entry: &ObjectProp<'_>, disabled: &[String]) -> Form {
    let left = |why: &str| Form::Left(why.to_owned());
    let Some(object) = entry.value.as_object() else { return left("it is no object") };
    for key in SINGLE {
        if object.properties.iter().filter(|it| it.name.as_str() == key).count() > 1 {
            return Form::Left(format!("it has {key:?} twice; hosts differ in which one they use"));
        }
    }
    let flag = |key| member(object, key).and_then(|it| it.value.as_boolean_lit());
    let is_off = flag("disabled").is_some_and(|it| it.value)
        || flag("enabled").is_some_and(|it| !it.value)
        || disabled.iter().any(|name| name == entry.name.as_str());
    if is_off {
        return left("it is disabled");
    }
    let kind = text(object, "type").map(|it| it.value);
    if kind.as_deref().is_some_and(|kind| ["registry", "extension"].contains(&kind)) {
        return left("the host fetches its command itself");
    }
    let is_remote = ADDRESSES.iter().any(|key| member(object, key).is_some())
        || kind.as_deref().is_some_and(|kind| !TYPES.contains(&kind));
    if is_remote {
        return left("it is reached over HTTP and starts no process");
    }
    match member(object, "command").map(|it| &it.value) {
        None => left("it has no command"),
        Some(Value::StringLit(_)) => command(object, "command"),
        // An older form of Zed.
        Some(Value::Object(inner)) if member(inner, "path").is_some() => command(inner, "path"),
        Some(_) => left("its command is neither a string nor an object with a path"),
    }
}

/// An entry whose program is the member `key` of `object`.
fn command(object: &Object<'_>, key: &str) -> Form {
    let left = |why: &str| Form::Left(why.to_owned());
    let (Some(program), Some(command)) = (member(object, key), text(object, key)) else {
        return left("its command is no string");
    };
    if command.value.is_empty() {
        return left("its command is empty");
    }
    let args = match member(object, "args") {
        None => None,
        Some(found) => {
            let Some(array) = found.value.as_array() else { return left("its args are no array") };
            let Some(items) = arguments(array) else { return left("its args are not all strings") };
            Some(Args { span: span(array), items, member: span(found) })
        }
    };
    let pairs = member(object, "env").and_then(|it| it.value.as_object());
    let pairs = pairs.iter().flat_map(|it| &it.properties);
    let pairs = pairs.filter_map(|it| Some((it.name.as_str().to_owned(), scalar(&it.value)?)));
    let value = |key| text(object, key).map(|it| it.value);
    let entry = CommandEntry {
        command,
        member: span(program),
        args,
        env: pairs.collect(),
        cwd: value("cwd"),
        env_file: value("envFile"),
    };
    if entry.wrapping().is_some() {
        return Form::Wrapped(entry);
    }
    if is_ceased(&entry.command.value) {
        return left("it is ceased itself");
    }
    Form::Command(entry)
}

fn arguments(array: &Array<'_>) -> Option<Vec<Text>> {
    array.elements.iter().map(as_text).collect()
}

/// A value of an environment variable, which some hosts allow to be a number or a boolean.
fn scalar(value: &Value<'_>) -> Option<String> {
    match value {
        Value::StringLit(it) => Some(it.value.clone().into_owned()),
        Value::NumberLit(it) => Some(it.value.to_owned()),
        Value::BooleanLit(it) => Some(it.value.to_string()),
        Value::Object(_) | Value::Array(_) | Value::NullKeyword(_) => None,
    }
}
