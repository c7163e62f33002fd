//! The command of an entry: program, arguments, environment, and the bytes that write them.

use std::ops::Range;
use std::path::Path;

use super::document::{Node, Value};

/// A text of the file: its value, and the bytes that write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(super) span: Range<usize>,
    pub(super) value: String,
}

/// A list of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    /// The list with its brackets, if it has some.
    pub(super) span: Range<usize>,
    pub(super) items: Vec<Text>,
    /// The key of the list.
    pub(super) key: Range<usize>,
}

/// How a command is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Layout {
    /// The program, and its arguments in a list of their own.
    Split {
        program: Text,
        /// The key of the program.
        key: Range<usize>,
        args: Option<Args>,
    },
    /// One list, which begins with the program.
    Joined { program: Text, list: Args },
}

/// An entry with a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandEntry {
    pub(super) layout: Layout,
    /// Bytes of the map that has the program.
    pub(super) map: Range<usize>,
    pub(super) env: Vec<(String, String)>,
    /// Variables that the host passes on.
    pub(super) passed: Vec<String>,
    /// Variables whose values the host keeps.
    pub(super) kept: Vec<String>,
    pub(super) cwd: Option<String>,
    pub(super) env_file: Option<String>,
}

impl CommandEntry {
    /// The program.
    pub(super) fn program(&self) -> &str {
        match &self.layout {
            Layout::Split { program, .. } | Layout::Joined { program, .. } => &program.value,
        }
    }

    /// The arguments.
    pub(super) fn arguments(&self) -> &[Text] {
        match &self.layout {
            Layout::Split { args, .. } => args.as_ref().map_or(&[], |args| &args.items),
            Layout::Joined { list, .. } => list.items.get(1..).unwrap_or_default(),
        }
    }

    /// Program and arguments.
    pub(crate) fn argv(&self) -> Vec<&str> {
        let args = self.arguments().iter().map(|text| text.value.as_str());
        std::iter::once(self.program()).chain(args).collect()
    }

    /// Program and arguments without ceased in front.
    pub(crate) fn own_argv(&self) -> Vec<&str> {
        // `wrap` or `connect`, its options, `--`, after the program.
        let skipped = self.wrapping().map_or(0, |dashes| dashes + 2);
        self.argv().into_iter().skip(skipped).collect()
    }

    /// Number of leading arguments up to the `--` of `ceased wrap` or of `ceased connect --server`,
    /// if the entry runs that.
    pub(super) fn wrapping(&self) -> Option<usize> {
        let items = self.arguments();
        let dashes = items.iter().position(|item| item.value == "--")?;
        let options = items.get(1..dashes).unwrap_or_default();
        let is_ours = match items.first()?.value.as_str() {
            "wrap" => true,
            "connect" => options.iter().any(|option| option.value == "--server"),
            _ => false,
        };
        let is_ours = is_ours && is_ceased(self.program());
        (is_ours && items.len() > dashes + 1).then_some(dashes)
    }
}

/// Whether a command is this program.
pub(super) fn is_ceased(command: &str) -> bool {
    Path::new(command).file_name().is_some_and(|name| name == "ceased")
}

/// The command of an entry.
///
/// # Errors
/// The reason for which the entry is left.
pub(super) fn of(node: &Node) -> Result<CommandEntry, String> {
    let key = if node.member("cmd").is_some() { "cmd" } else { "command" };
    let Some(command) = node.member(key) else { return Err("it has no command".to_owned()) };
    let layout = match &command.node.value {
        Value::Text(_) => split(node, key)?,
        // An older form of Zed.
        Value::Map(_) if command.node.member("path").is_some() => split(&command.node, "path")?,
        Value::List(items) => {
            let items = words(items).ok_or("its command is not a list of strings")?;
            let program = items.first().ok_or("its command is empty")?.clone();
            let (span, key) = (command.node.span.clone(), command.key.clone());
            Layout::Joined { program, list: Args { span, items, key } }
        }
        Value::Bound(_) => {
            return Err("its command has an anchor, an alias, a tag or several lines".to_owned());
        }
        Value::Map(_) | Value::Flag(_) | Value::Plain(_) | Value::Null => {
            return Err(
                "its command is neither a string, nor a list, nor an object with a path".into()
            );
        }
    };
    // The older form of Zed has everything in the map of the command.
    let is_inner = command.node.is_map();
    let map = if is_inner { &command.node } else { node };
    let entry = CommandEntry { layout, map: map.span.clone(), ..surroundings(map) };
    let texts = entry.argv().into_iter().chain(entry.env.iter().map(|(_, text)| text.as_str()));
    if texts.chain(entry.cwd.as_deref()).any(|text| text.contains('\0')) {
        return Err("it holds a NUL byte, which no command can get".to_owned());
    }
    if entry.program().is_empty() {
        return Err("its command is empty".to_owned());
    }
    if matches!(entry.layout, Layout::Split { .. }) && is_line(entry.program()) {
        return Err("its command is a whole command line in one string, which some hosts split: \
                    write its program as the command, and the rest as arguments"
            .to_owned());
    }
    Ok(entry)
}

/// Program and arguments as two members of a map.
fn split(map: &Node, key: &str) -> Result<Layout, String> {
    let member = map.member(key).ok_or("it has no command")?;
    let value = member.node.text().ok_or("its command is no string")?.to_owned();
    let args = match map.member("args") {
        None => None,
        Some(found) => {
            let Some(items) = found.node.items() else {
                let why = match found.node.value {
                    Value::Bound(_) => "its args have an anchor, an alias or a tag",
                    Value::Text(_)
                    | Value::Flag(_)
                    | Value::Plain(_)
                    | Value::Null
                    | Value::List(_)
                    | Value::Map(_) => "its args are no array",
                };
                return Err(why.to_owned());
            };
            let items = words(items).ok_or("its args are not all strings")?;
            Some(Args { span: found.node.span.clone(), items, key: found.key.clone() })
        }
    };
    let program = Text { span: member.node.span.clone(), value };
    Ok(Layout::Split { program, key: member.key.clone(), args })
}

/// Environment and directory of a command, without the command.
fn surroundings(map: &Node) -> CommandEntry {
    let value = |keys: &[&str]| {
        keys.iter().find_map(|key| map.member(key)?.node.scalar()).filter(|it| !it.is_empty())
    };
    let env = ["env", "envs", "environment"].iter().filter_map(|key| map.member(key));
    let env = env.flat_map(|it| it.node.members());
    let names = |key| {
        let items = map.member(key).and_then(|it| it.node.items());
        items.into_iter().flatten().filter_map(|it| it.text().map(str::to_owned)).collect()
    };
    let nowhere = Text { span: 0..0, value: String::new() };
    CommandEntry {
        layout: Layout::Split { program: nowhere, key: 0..0, args: None },
        map: map.span.clone(),
        env: env.filter_map(|it| Some((it.name.clone(), it.node.scalar()?))).collect(),
        passed: names("env_vars"),
        kept: names("env_keys"),
        cwd: value(&["cwd"]),
        env_file: value(&["envFile", "env_file"]),
    }
}

/// Texts that can be moved.
fn words(items: &[Node]) -> Option<Vec<Text>> {
    let word = |it: &Node| Some(Text { span: it.span.clone(), value: it.text()?.to_owned() });
    items.iter().map(word).collect()
}

/// Whether a program is a command line: a name with further words, or a path with options.
fn is_line(program: &str) -> bool {
    let Some((head, rest)) = program.trim().split_once(char::is_whitespace) else { return false };
    !head.contains('/') || rest.trim_start().starts_with('-') || rest.contains(" -")
}
