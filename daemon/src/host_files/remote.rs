//! Entries of servers that are reached by a URL: the URL and the headers, and their move into the
//! daemon.

use std::ops::Range;

use super::binary::Binary;
use super::command::{CommandEntry, Layout, Text};
use super::document::{Format, Node};
use super::edit::Edit;

/// Keys of the address of a server that is reached over HTTP.
pub(super) const ADDRESSES: [&str; 4] = ["url", "serverUrl", "httpUrl", "uri"];
/// Keys of the headers.
const HEADERS: [&str; 2] = ["headers", "http_headers"];
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
    Ok(RemoteEntry { url, headers, member, kind: kind_of(node) })
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
    let Layout::Split { key: program, args: Some(args), .. } = &command.layout else { return None };
    let member = (key.to_owned(), program.clone(), program.start..args.span.end);
    let headers = headers_of(node).ok()?;
    Some(RemoteEntry { url: (*url).to_owned(), headers, member, kind: kind_of(node) })
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

    /// Whether the entry can be moved into the daemon.
    ///
    /// # Errors
    /// If its host has another form for commands, its file cannot be edited so, or its URL may have a
    /// secret, which every user of the machine would see in a command line.
    pub(crate) fn movable(&self, format: Format) -> Result<(), String> {
        let imported = "`ceased import` prints it for the daemon's configuration";
        if format != Format::Json {
            return Err(format!(
                "hosts with TOML or YAML refuse or lose `headers` beside a command, so that it could \
                 not be undone; {imported}"
            ));
        }
        if self.kind.as_ref().is_some_and(|kind| kind.value == "remote") {
            return Err(format!(
                "its host writes commands in another form, which has no place for the address; \
                 {imported}"
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
    /// If its host has another form for commands, or its file cannot be edited so.
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
        let mut words: Vec<String> = leading.iter().map(|word| format.quoted(word)).collect();
        words.push(format.quoted(&format!("{MARK}{name}")));
        words.push(written(value).to_owned());
        // The bytes move, so that `restore` has their very spelling.
        words.extend(self.kind.iter().map(|kind| written(&kind.span).to_owned()));
        let (ours, words) = (format.quoted(&binary.0), words.join(", "));
        let new = format!("\"command\"{colon}{ours}, \"args\"{colon}[{words}]");
        let kind = self.kind.iter().map(|kind| Edit::new(kind.span.clone(), "\"stdio\""));
        Ok(std::iter::once(Edit::new(key.start..value.end, new)).chain(kind).collect())
    }

    /// Takes [`Self::replace`] back. `None` if the command is not written as that.
    pub(super) fn restore(
        &self,
        text: &str,
        format: Format,
        command: &CommandEntry,
    ) -> Option<Vec<Edit>> {
        let Layout::Split { program, key, args: Some(args) } = &command.layout else { return None };
        let written = |span: &Range<usize>| text.get(span.clone()).unwrap_or_default();
        let dashes = command.wrapping()?;
        let address = args.items.get(dashes + 2)?;
        let colon = written(&(key.end..program.span.start));
        let new = format!("{}{colon}{}", format.quoted(&self.member.0), written(&address.span));
        let between = program.span.end..args.key.start;
        let mut edits = match text.get(between).map(str::trim) {
            Some(",") => vec![Edit::new(key.start..args.span.end, new)],
            // The host has written its members in another order.
            Some(_) | None => {
                let rest = args.span.end..text.len();
                let after = written(&rest).trim_start().strip_prefix(',').map(str::trim_start);
                let gone = match after {
                    Some(after) => args.key.start..text.len() - after.len(),
                    None => written(&(0..args.key.start)).rfind(',')?..args.span.end,
                };
                vec![Edit::new(key.start..program.span.end, new), Edit::new(gone, "")]
            }
        };
        let old = args.items.get(dashes + 3);
        let kind = self.kind.iter().zip(old);
        edits.extend(kind.map(|(now, old)| Edit::new(now.span.clone(), written(&old.span))));
        Some(edits)
    }
}
