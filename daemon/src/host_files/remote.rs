//! Entries of servers that are reached by a URL: the URL and the headers, and their move into the
//! daemon.

use std::ops::Range;

use super::binary::Binary;
use super::command::{Args, CommandEntry, Layout, Text};
use super::document::{Format, Member, Node};
use super::edit::Edit;
use super::splice::{FLOW, is_block, line_start, member_separator};

/// Keys of the address of a server that is reached over HTTP.
pub(super) const ADDRESSES: [&str; 4] = ["url", "serverUrl", "httpUrl", "uri"];
/// Keys of the headers.
const HEADERS: [&str; 2] = ["headers", "http_headers"];
/// Members about HTTP, which Codex and OpenCode refuse beside a command, and Goose drops when it saves.
const OF_HTTP: [&str; 7] = [
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "oauth",
    "oauth_resource",
    "scopes",
];
/// Type of an entry of OpenCode, whose commands are one list.
const JOINED: &str = "remote";
/// Before the key of the address, as an argument without an effect but that `undo` finds it. No
/// command begins so.
const MARK: &str = "--";

/// An entry of a server that is reached by a URL. Texts may have references to variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteEntry {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    /// The member with the address: its key, and the bytes of both.
    member: (String, Range<usize>, Range<usize>),
    /// The value of the member `type`.
    kind: Option<Text>,
    /// Bytes of the entry.
    map: Range<usize>,
    /// A member about HTTP beside the address.
    of_http: Option<String>,
}

/// The URL and headers of an entry of this type.
///
/// # Errors
/// The reason for which the entry is left.
pub(super) fn of(node: &Node, kind: &str) -> Result<RemoteEntry, String> {
    if kind == "ws" {
        return Err("it is reached over a WebSocket, which is no transport of MCP".to_owned());
    }
    let found: Vec<_> = ADDRESSES.iter().filter_map(|key| node.member(key)).collect();
    let [address] = found.as_slice() else {
        return Err("it has several addresses; hosts differ in which one they use".to_owned());
    };
    let url = address.node.text().ok_or("its address is no string")?.to_owned();
    let headers = headers_of(node)?;
    let member = (address.name.clone(), address.key.clone(), address.node.span.clone());
    // Goose writes empty headers, and does without them.
    let is_empty = |it: &Member| it.node.is_map() && it.node.members().is_empty();
    let counts =
        |it: &&Member| OF_HTTP.contains(&&*it.name) && !(member.0 == "uri" && is_empty(it));
    let of_http = node.members().iter().find(counts).map(|it| it.name.clone());
    Ok(RemoteEntry { url, headers, member, kind: kind_of(node), map: node.span.clone(), of_http })
}

fn headers_of(node: &Node) -> Result<Vec<(String, String)>, String> {
    let mut headers = Vec::new();
    for member in HEADERS.iter().filter_map(|key| node.member(key)) {
        for it in member.node.members() {
            let value = it.node.scalar();
            let value = value.ok_or_else(|| format!("its header {:?} is no text", it.name))?;
            headers.push((it.name.clone(), value));
        }
    }
    // Codex names variables.
    for it in node.member("env_http_headers").iter().flat_map(|it| it.node.members()) {
        let variable = it.node.scalar();
        headers.extend(variable.map(|variable| (it.name.clone(), format!("${{{variable}}}"))));
    }
    let bearer = node.member("bearer_token_env_var").and_then(|it| it.node.scalar());
    headers.extend(bearer.map(|it| ("Authorization".to_owned(), format!("Bearer ${{{it}}}"))));
    Ok(headers)
}

fn kind_of(node: &Node) -> Option<Text> {
    let member = node.member("type")?;
    let value = member.node.text()?.to_owned();
    Some(Text { span: member.node.span.clone(), value })
}

/// The entry that the command of one was before it moved into the daemon; `None` of another command.
pub(super) fn moved(node: &Node, command: &CommandEntry) -> Option<RemoteEntry> {
    let own = command.own_argv();
    let (key, url) = (own.first()?.strip_prefix(MARK)?, own.get(1)?);
    if !ADDRESSES.contains(&key) || own.len() > 3 {
        return None;
    }
    let (program, end) = match &command.layout {
        Layout::Split { key, args: Some(args), .. } => (key, args.span.end),
        Layout::Joined { list, .. } => (&list.key, list.span.end),
        Layout::Split { args: None, .. } => return None,
    };
    let member = (key.to_owned(), program.clone(), program.start..end);
    let (url, headers, map) = ((*url).to_owned(), headers_of(node).ok()?, node.span.clone());
    Some(RemoteEntry { url, headers, member, kind: kind_of(node), map, of_http: None })
}

impl RemoteEntry {
    /// Whether another entry is for the same server.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.url == other.url && self.headers == other.headers
    }

    /// Whether the entry itself has something that can be credentials.
    pub(crate) fn has_credentials(&self) -> bool {
        !self.headers.is_empty() || self.url.contains(['?', '@'])
    }

    fn is_joined(&self) -> bool {
        self.kind.as_ref().is_some_and(|kind| kind.value == JOINED)
    }

    /// Whether the entry can be moved into the daemon.
    ///
    /// # Errors
    /// If its host would lose a part of it, or its URL may have a secret, which every user of the
    /// machine would see in a command line.
    pub(crate) fn movable(&self, format: Format) -> Result<(), String> {
        let imported = "`ceased import` prints it for the daemon's configuration";
        let is_strict = format != Format::Json || self.is_joined();
        if let Some(name) = self.of_http.as_ref().filter(|_| is_strict) {
            return Err(format!(
                "its host refuses or loses `{name}` beside a command, so that it could not be \
                 undone; {imported}"
            ));
        }
        if format == Format::Yaml && self.url.contains(FLOW) {
            return Err(format!(
                "its URL has a character that would need quotes in a list; {imported}"
            ));
        }
        match self.url.contains(['?', '@']) || self.url.contains("${") {
            true => Err(format!("its URL may have a secret; {imported}")),
            false => Ok(()),
        }
    }

    /// Has the host run this program with these arguments instead.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub(super) fn replace(
        &self,
        text: &str,
        format: Format,
        binary: &Binary,
        leading: &[String],
    ) -> Result<Vec<Edit>, String> {
        self.movable(format)?;
        let (name, key, value) = &self.member;
        let written = |span: &Range<usize>| text.get(span.clone()).unwrap_or_default();
        let colon = written(&(key.end..value.start));
        let ours = format.quoted(&binary.0);
        let mut words: Vec<String> = leading.iter().map(|word| format.quoted(word)).collect();
        words.push(format.quoted(&format!("{MARK}{name}")));
        words.push(written(value).to_owned());
        // The bytes move, so that `restore` has their very spelling.
        words.extend(self.kind.iter().map(|kind| written(&kind.span).to_owned()));
        let words = words.join(", ");
        // Goose has names of its own.
        let program = format.key(if name == "uri" { "cmd" } else { "command" });
        let (new, kind) = match self.is_joined() {
            true => (format!("{program}{colon}[{ours}, {words}]"), "\"local\""),
            false => {
                let (next, args) =
                    (member_separator(text, format, &self.map, key), format.key("args"));
                (format!("{program}{colon}{ours}{next}{args}{colon}[{words}]"), "\"stdio\"")
            }
        };
        let kind = self.kind.iter().map(|old| Edit::new(old.span.clone(), kind));
        Ok(std::iter::once(Edit::new(key.start..value.end, new)).chain(kind).collect())
    }

    /// Takes [`Self::replace`] back. `None` if the command is not written as that.
    pub(super) fn restore(
        &self,
        text: &str,
        format: Format,
        command: &CommandEntry,
    ) -> Option<Vec<Edit>> {
        let (key, value, args) = match &command.layout {
            Layout::Split { program, key, args: Some(args) } => (key, &program.span, args),
            Layout::Joined { list, .. } => (&list.key, &list.span, list),
            Layout::Split { args: None, .. } => return None,
        };
        let written = |span: &Range<usize>| text.get(span.clone()).unwrap_or_default();
        let dashes = command.wrapping()?;
        let address = command.arguments().get(dashes + 2)?;
        let colon = written(&(key.end..value.start));
        let new = format!("{}{colon}{}", format.key(&self.member.0), written(&address.span));
        let between = text.get(value.end..args.key.start);
        let is_next =
            |it: &str| it.trim() == "," || it == member_separator(text, format, &command.map, key);
        let mut edits = match value == &args.span || between.is_some_and(is_next) {
            true => vec![Edit::new(key.start..args.span.end, new)],
            // The host has written its members in another order.
            false => {
                let gone = apart(text, is_block(text, format, &command.map), args)?;
                vec![Edit::new(key.start..value.end, new), Edit::new(gone, "")]
            }
        };
        let old = command.arguments().get(dashes + 3);
        let kind = self.kind.iter().zip(old);
        edits.extend(kind.map(|(now, old)| Edit::new(now.span.clone(), written(&old.span))));
        Some(edits)
    }
}

/// The bytes of arguments that stand apart from their program, with the separator that goes with them.
fn apart(text: &str, is_block: bool, args: &Args) -> Option<Range<usize>> {
    let rest = text.get(args.span.end..)?;
    if is_block {
        let start = line_start(text, args.key.start);
        let is_alone = text.get(start..args.key.start)?.trim().is_empty();
        let end = rest.find('\n').map_or(text.len(), |at| args.span.end + at + 1);
        return is_alone.then_some(start..end);
    }
    match rest.trim_start().strip_prefix(',').map(str::trim_start) {
        Some(after) => Some(args.key.start..text.len() - after.len()),
        None => Some(text.get(..args.key.start)?.rfind(',')?..args.span.end),
    }
}
