//! Params of a request without a session: the statements of its `_meta`, and the value that `Mcp-Name` repeats.

use crate::json_text::{members, string};

/// Members of `_meta` by which a request says its revision and its client's capabilities.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// Members of the params of a request that claims to be of a revision without sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StatelessParams {
    /// Revision that its `_meta` names.
    pub(crate) version: Option<String>,
    /// Whether its `_meta` has the members that such a revision requires.
    pub(crate) has_metadata: bool,
    /// Value that `Mcp-Name` has to repeat: `name`, `uri` or `taskId`, by the method.
    pub(crate) name: Option<String>,
}

impl StatelessParams {
    /// Reads the params of a request; `None` if it does not claim to be of such a revision.
    pub(crate) fn read(method: &str, params: &str) -> Option<Self> {
        let key = match method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => "",
        };
        let [meta, name] = members(params, ["_meta", key])?;
        let [version, capabilities] = members(meta?, [VERSION_KEY, CAPABILITIES_KEY])?;
        if version.is_none() && capabilities.is_none() {
            return None;
        }
        let version = version.and_then(string);
        let has_capabilities = capabilities.is_some_and(|it| it.starts_with('{'));
        Some(Self {
            has_metadata: version.is_some() && has_capabilities,
            version,
            name: name.filter(|_| !key.is_empty()).and_then(string),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member of no meaning here, and one that is there twice, hide no other.
    #[test]
    fn members_are_read_one_by_one() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        let text = format!(
            r#"{{"name":"x","name":"t","uri":"u","_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{{"deep":{deep}}},"big":1e400}}}}"#
        );
        let read = |method| StatelessParams::read(method, &text).unwrap();
        let version = Some("2026-07-28".to_owned());
        let expected = StatelessParams { version, has_metadata: true, name: Some("t".to_owned()) };
        assert_eq!(read("tools/call"), expected);
        assert_eq!(read("resources/read").name.as_deref(), Some("u"));
        assert_eq!((read("tasks/get").name, read("tools/list").name), (None, None));
        assert_eq!(StatelessParams::read("tools/call", r#"{"name":"t","_meta":{"a":1}}"#), None);
    }
}
