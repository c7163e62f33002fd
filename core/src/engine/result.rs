//! Results of tools as JSON text: what they say about failure.

use alloc::borrow::Cow;
use alloc::string::String;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::durable::TaskOutcome;

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

/// The last text of a tool's content that says anything, since verdicts come last. A tool may hand
/// in odd content; that makes its failure no success.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    /// TSK-43: what makes a task fail, and what it then says.
    #[test]
    fn failures() {
        let ok = |text: &str| Ok(Json::written(text.into()));
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
