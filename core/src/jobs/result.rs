//! Outcomes of jobs: the answers made of them, and the form of failures in results.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::Outcome;
use crate::json::raw::Json;
use crate::json::writer::Writer;
use crate::protocol::revision::Dialect;
use crate::reason::StopReason;
use crate::rpc::error::{ErrorObject, code};
use crate::tasks::durable::TaskOutcome;

/// Answer to a request whose job ends like this.
pub(crate) fn into_answer(
    outcome: Outcome,
    why: Option<StopReason>,
    timeout: Option<Duration>,
    dialect: &Dialect,
) -> TaskOutcome {
    match (outcome, why) {
        (Outcome::Result(result), _) if result.get().starts_with('{') => Ok(result),
        (Outcome::Result(_), _) => {
            Err(ErrorObject::new(code::INTERNAL_ERROR, "the tool's result is not an object"))
        }
        (Outcome::Error(error), _) => Err(error),
        (Outcome::Refused(error), _) => correctable(error, dialect),
        (Outcome::Stopped, Some(StopReason::TimedOut)) => Err(timed_out(timeout)),
        (Outcome::Stopped, Some(StopReason::Shutdown)) => Err(shutting_down()),
        // CAN-08: no answer for a request that its requestor cancelled.
        (Outcome::Stopped, Some(StopReason::Requested)) => Err(ErrorObject::new(
            code::INTERNAL_ERROR,
            "the call was cancelled by another requestor or an operator",
        )),
        (
            Outcome::Stopped,
            None
            | Some(
                StopReason::Disconnected
                | StopReason::Expired
                | StopReason::LeftBehind
                | StopReason::Unanswered
                | StopReason::Unstored
                | StopReason::Lapsed
                | StopReason::Feature
                | StopReason::Limit
                | StopReason::Host,
            ),
        ) => Err(ErrorObject::new(code::INTERNAL_ERROR, "the tool stopped without a result")),
    }
}

/// TOOL-01: an error that a model can correct is a result with `isError`, from the revision on that
/// has it so.
pub(crate) fn correctable(error: ErrorObject, dialect: &Dialect) -> TaskOutcome {
    if !dialect.correctable_errors {
        return Err(error);
    }
    let mut bytes = Vec::new();
    let mut json = Writer::new(&mut bytes);
    json.raw("{\"content\":[{\"type\":\"text\",").member("text", &error.message);
    json.raw("}],\"isError\":true}");
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Json::written(text)),
        Err(_) => Err(error),
    }
}

fn timed_out(timeout: Option<Duration>) -> ErrorObject {
    let millis = timeout.unwrap_or_default().as_millis();
    ErrorObject::new(code::TIMED_OUT, alloc::format!("the tool ran longer than {millis} ms"))
        .with_data(alloc::format!("{{\"timedOut\":true,\"timeoutMs\":{millis}}}"))
}

/// Error for everything that a shutdown cuts off.
pub(crate) fn shutting_down() -> ErrorObject {
    ErrorObject::new(code::SHUTTING_DOWN, "interrupted: the daemon is shutting down")
}

/// Why an outcome makes its task `failed`; `None` when it completes it (TSK-43).
pub(crate) fn failure(outcome: &TaskOutcome) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct WrittenResult<'a> {
        #[serde(default, rename = "isError")]
        is_error: bool,
        #[serde(borrow, default)]
        content: Option<&'a RawValue>,
    }
    match outcome {
        Err(error) => Some(Cow::Borrowed(error.message.as_ref())),
        // The last member of the outermost object: within a string a quote comes after a backslash,
        // never after a comma, so that this is no string's end.
        Ok(result) if result.get().ends_with(",\"isError\":false}") => None,
        Ok(result) => {
            let result: WrittenResult<'_> = serde_json::from_str(result.get()).ok()?;
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
    struct ErrorContent {
        text: Option<String>,
    }
    let items: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    items
        .into_iter()
        .filter_map(|item| serde_json::from_str::<ErrorContent>(item.get()).ok()?.text)
        .rfind(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TSK-43: causes of a failed task, and its text.
    #[test]
    fn failures() {
        let ok = |text: &str| Ok(Json::written(text.into()));
        assert_eq!(failure(&ok(r#"{"content":[]}"#)), None);
        assert_eq!(failure(&ok(r#"{"isError":false,"content":[{"text":"no"}]}"#)), None);
        assert_eq!(failure(&ok(r#"{"content":[],"isError":false}"#)), None);
        let inner = ok(r#"{"isError":true,"x":{"y":[],"isError":false}}"#);
        assert_eq!(failure(&inner).as_deref(), Some("the tool reported an error"));
        let quoted = ok(r#"{"isError":true,",\"isError":false}"#);
        assert_eq!(failure(&quoted).as_deref(), Some("the tool reported an error"));
        let escaped = ok(r#"{"\u0069sError":true}"#);
        assert_eq!(failure(&escaped).as_deref(), Some("the tool reported an error"));
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
        let error = Err(ErrorObject::new(7, "bad"));
        assert_eq!(failure(&error).as_deref(), Some("bad"));
    }
}
