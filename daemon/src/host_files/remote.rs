//! Entries of servers that are reached by a URL: the URL and the headers.

use super::document::Node;

/// Keys of the address of a server that is reached over HTTP.
pub(super) const ADDRESSES: [&str; 4] = ["url", "serverUrl", "httpUrl", "uri"];
/// Keys of the headers.
const HEADERS: [&str; 2] = ["headers", "http_headers"];

/// An entry of a server that is reached by a URL. Texts may have references to variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteEntry {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
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
    Ok(RemoteEntry { url, headers })
}
