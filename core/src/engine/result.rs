//! Results of tools as JSON text: what they say about failure, and marking them as a task's.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::id::TaskId;
use crate::task::TaskOutcome;
use crate::write::Writer;

const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

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
            let said = || result.content.and_then(last_text).map(Cow::Owned);
            let mute = Cow::Borrowed("the tool reported an error");
            result.is_error.then(|| said().unwrap_or(mute))
        }
    }
}

/// The last text of a tool's content that says anything: how it ended comes after what it had
/// said until then. A tool may hand in odd content; that makes its failure no success.
fn last_text(content: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Content {
        text: Option<String>,
    }
    let items: alloc::vec::Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    items
        .into_iter()
        .filter_map(|item| serde_json::from_str::<Content>(item.get()).ok()?.text)
        .rfind(|text| !text.trim().is_empty())
}

/// Writes a result with `_meta` naming its task, every other member as it was (TSK-16).
pub(super) fn write_related(json: &mut Writer<'_>, result: &str, id: TaskId) {
    json.raw("{");
    let mut members = Members { json: &mut *json, count: 0, meta: None };
    let mut reader = serde_json::Deserializer::from_str(result);
    // The result was checked to be an object when it was handed in; if it is none after all, what
    // could be read of it is still one.
    let _ = reader.deserialize_map(&mut members);
    let (count, meta) = (members.count, members.meta);
    json.raw(if count > 0 { ",\"_meta\":{" } else { "\"_meta\":{" });
    if let Some(meta) = meta.filter(|meta| meta.get().starts_with('{')) {
        let mut others = Others { json: &mut *json };
        let _ = serde_json::Deserializer::from_str(meta.get()).deserialize_map(&mut others);
    }
    json.string(RELATED_TASK).raw(":{\"taskId\":\"").display(id).raw("\"}}}");
}

/// Copies the members of a result but for `_meta`, which is kept apart.
struct Members<'w, 'b, 'r> {
    json: &'w mut Writer<'b>,
    count: usize,
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
}

impl<'r> Visitor<'r> for &mut Others<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a _meta object")
    }

    fn visit_map<A: MapAccess<'r>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == RELATED_TASK {
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

    /// TSK-43: what makes a task fail, and what it then says.
    #[test]
    fn failures() {
        let ok = |text: &str| Ok(RawValue::from_string(text.into()).unwrap());
        assert_eq!(failure(&ok(r#"{"content":[]}"#)), None);
        assert_eq!(failure(&ok(r#"{"isError":false,"content":[{"text":"no"}]}"#)), None);
        let said = ok(r#"{"isError":true,"content":[{"type":"image"},{"text":"boo"}]}"#);
        assert_eq!(failure(&said).as_deref(), Some("boo"));
        let said =
            ok(r#"{"isError":true,"content":[{"text":"so far"},{"text":"boo"},{"text":""}]}"#);
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
