//! Results of tools as JSON text: what they say about failure, and marking them as a task's.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::ResultType;
use crate::connection::Reply;
use crate::id::TaskId;
use crate::settings::ServerInfo;
use crate::task::TaskOutcome;
use crate::write::Writer;

const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Why an outcome makes its task `failed`; `None` when it completes it (TSK-43).
pub(super) fn failure(outcome: &TaskOutcome) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct ToolResult<'a> {
        #[serde(default, rename = "isError")]
        is_error: bool,
        #[serde(borrow, default)]
        content: Option<&'a RawValue>,
    }
    match outcome {
        Err(error) => Some(Cow::Borrowed(error.message.as_ref())),
        Ok(result) => {
            let result: ToolResult<'_> = serde_json::from_str(result.get()).ok()?;
            let said = || result.content.and_then(first_text).map(Cow::Owned);
            let mute = Cow::Borrowed("the tool reported an error");
            result.is_error.then(|| said().unwrap_or(mute))
        }
    }
}

/// The first text of a tool's content that says anything. A tool may hand in odd content; that
/// makes its failure no success.
fn first_text(content: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Content {
        text: Option<String>,
    }
    let items: alloc::vec::Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    items
        .into_iter()
        .filter_map(|item| serde_json::from_str::<Content>(item.get()).ok()?.text)
        .find(|text| !text.trim().is_empty())
}

/// Writes a result with `_meta` naming its task, every other member as it was (TSK-16).
pub(super) fn write_related(json: &mut Writer<'_>, result: &str, id: TaskId) {
    json.raw("{");
    write_merged(json, result, Ours { members: 0, reserved: None, key: RELATED_TASK });
    json.raw("{\"taskId\":\"").display(id).raw("\"}}}");
}

/// Writes a tool's result as one of a revision whose results have a type, `_meta` naming us, every
/// other member as it was (MOD-02).
pub(super) fn write_tool_result(json: &mut Writer<'_>, result: &str, server: &ServerInfo) {
    json.raw("{\"resultType\":\"complete\"");
    let reserved = Some("resultType");
    write_merged(json, result, Ours { members: 1, reserved, key: SERVER_INFO });
    write_server(json, server);
    json.raw("}}");
}

/// Writes a result of our own, an object without `_meta`, with its type and with us in `_meta`
/// (MOD-02).
pub(super) fn write_typed(
    json: &mut Writer<'_>,
    kind: ResultType,
    reply: &Reply,
    server: &ServerInfo,
    result: impl FnOnce(&mut Writer<'_>),
) {
    let word = match kind {
        ResultType::Complete | ResultType::Ended => "complete",
        ResultType::Task => "task",
    };
    json.raw("{").member("resultType", word).raw(",\"_meta\":{");
    if kind == ResultType::Ended {
        write_subscription(json, reply);
        json.raw(",");
    }
    json.string(SERVER_INFO).raw(":");
    write_server(json, server);
    json.raw("}");
    json.members_of(result).raw("}");
}

/// The subscription a message belongs to, its id as it was written (MOD-08).
pub(super) fn write_subscription(json: &mut Writer<'_>, reply: &Reply) {
    json.raw("\"io.modelcontextprotocol/subscriptionId\":").id(&reply.id, reply.token.as_deref());
}

/// Who we are.
pub(super) fn write_server(json: &mut Writer<'_>, server: &ServerInfo) {
    json.raw("{").member("name", &server.name).raw(",");
    json.member("version", &server.version).raw("}");
}

/// What of a result is ours to write.
struct Ours {
    /// Members written already.
    members: usize,
    /// A member that is not the tool's to set.
    reserved: Option<&'static str>,
    /// The key in `_meta` whose value is written next.
    key: &'static str,
}

/// Copies a result up to the value of our key in its `_meta`, whose value and ends are left to
/// the caller.
fn write_merged(json: &mut Writer<'_>, result: &str, ours: Ours) {
    let Ours { members, reserved, key } = ours;
    let mut members = Members { json: &mut *json, count: members, reserved, meta: None };
    let mut reader = serde_json::Deserializer::from_str(result);
    // The result was checked to be an object when it was handed in; if it is none after all, what
    // could be read of it is still one.
    let _ = reader.deserialize_map(&mut members);
    let (count, meta) = (members.count, members.meta);
    json.raw(if count > 0 { ",\"_meta\":{" } else { "\"_meta\":{" });
    if let Some(meta) = meta.filter(|meta| meta.get().starts_with('{')) {
        let mut others = Others { json: &mut *json, key };
        let _ = serde_json::Deserializer::from_str(meta.get()).deserialize_map(&mut others);
    }
    json.string(key).raw(":");
}

/// Copies the members of a result but for `_meta`, which is kept apart.
struct Members<'w, 'b, 'r> {
    json: &'w mut Writer<'b>,
    count: usize,
    reserved: Option<&'static str>,
    meta: Option<&'r RawValue>,
}

impl<'r> Visitor<'r> for &mut Members<'_, '_, 'r> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a result object")
    }

    fn visit_map<A: MapAccess<'r>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let value: &RawValue = map.next_value()?;
            if key == "_meta" {
                self.meta = Some(value);
                continue;
            }
            if Some(key.as_str()) == self.reserved {
                continue;
            }
            self.json.raw(if self.count > 0 { "," } else { "" });
            self.json.string(&key).raw(":").raw(value.get());
            self.count += 1;
        }
        Ok(())
    }
}

/// Copies the members of a `_meta` but for the key we set, each followed by a comma.
struct Others<'w, 'b> {
    json: &'w mut Writer<'b>,
    key: &'static str,
}

impl<'r> Visitor<'r> for &mut Others<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a _meta object")
    }

    fn visit_map<A: MapAccess<'r>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == self.key {
                map.next_value::<IgnoredAny>()?;
            } else {
                let value: &RawValue = map.next_value()?;
                self.json.string(&key).raw(":").raw(value.get()).raw(",");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// TSK-16: merged, other keys preserved.
    #[test]
    fn related_task_is_merged_into_meta() {
        let id = TaskId::new(uuid::Uuid::from_u128(1));
        let related = r#""io.modelcontextprotocol/related-task":{"taskId":"00000000-0000-0000-0000-000000000001"}"#;
        for (result, expected) in [
            ("{}", alloc::format!(r#"{{"_meta":{{{related}}}}}"#)),
            (r#"{"a":[1, 2]}"#, alloc::format!(r#"{{"a":[1, 2],"_meta":{{{related}}}}}"#)),
            (
                r#"{"_meta":{"x":{"y":1}},"a":null}"#,
                alloc::format!(r#"{{"a":null,"_meta":{{"x":{{"y":1}},{related}}}}}"#),
            ),
            (
                r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"forged"}}}"#,
                alloc::format!(r#"{{"_meta":{{{related}}}}}"#),
            ),
        ] {
            let mut bytes = Vec::new();
            write_related(&mut Writer::new(&mut bytes), result, id);
            assert_eq!(core::str::from_utf8(&bytes), Ok(expected.as_str()), "{result}");
        }
    }

    /// MOD-02: the type and the server are ours, everything else is the tool's.
    #[test]
    fn a_tool_result_gets_a_type() {
        let server = ServerInfo { name: "s".into(), version: "1".into() };
        let us = r#""io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}"#;
        for (result, rest) in [
            ("{ }", alloc::format!(r#""_meta":{{{us}}}"#)),
            (
                r#"{"resultType":"task","content":[]}"#,
                alloc::format!(r#""content":[],"_meta":{{{us}}}"#),
            ),
            (
                r#"{"_meta":{"x":1,"io.modelcontextprotocol/serverInfo":0},"a":null}"#,
                alloc::format!(r#""a":null,"_meta":{{"x":1,{us}}}"#),
            ),
        ] {
            let mut bytes = Vec::new();
            write_tool_result(&mut Writer::new(&mut bytes), result, &server);
            let expected = alloc::format!("{{\"resultType\":\"complete\",{rest}}}");
            assert_eq!(core::str::from_utf8(&bytes), Ok(expected.as_str()), "{result}");
        }
    }

    /// TSK-43: what makes a task fail, and what it then says.
    #[test]
    fn failures() {
        let ok = |text: &str| Ok(RawValue::from_string(text.into()).unwrap());
        assert_eq!(failure(&ok(r#"{"content":[]}"#)), None);
        assert_eq!(failure(&ok(r#"{"isError":false,"content":[{"text":"no"}]}"#)), None);
        let said = ok(r#"{"isError":true,"content":[{"type":"image"},{"text":"boo"}]}"#);
        assert_eq!(failure(&said).as_deref(), Some("boo"));
        for mute in [
            r#"{"isError":true}"#,
            r#"{"isError":true,"content":null}"#,
            r#"{"isError":true,"content":"boo"}"#,
            r#"{"isError":true,"content":[{"text":7},null,{"text":" "}]}"#,
        ] {
            assert_eq!(failure(&ok(mute)).as_deref(), Some("the tool reported an error"));
        }
        let error = Err(crate::message::ErrorObject::new(7, "bad"));
        assert_eq!(failure(&error).as_deref(), Some("bad"));
    }
}
