//! A task that a server without sessions makes of a relayed call (`io.modelcontextprotocol/tasks`).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use core::time::Duration;

use crate::collections::timer_queue::Armed;
use crate::ids::CallId;
use crate::outgoing::remote_task::{POLL_DEFAULT, POLL_MAX, POLL_MIN};
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::result::ResultText;
use crate::upstream::rewrite::{member, text_member, with_member};

/// Name of the extension among capabilities.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A task at a server without sessions.
#[derive(Debug)]
pub(crate) struct ServerTask {
    pub(crate) id: Box<str>,
    /// Time between two polls, as the server wants.
    pub(crate) interval: Duration,
    /// The next `tasks/get`.
    pub(crate) timer: Option<Armed>,
    /// The `tasks/get` that waits for its answer.
    pub(crate) poll: Option<CallId>,
    /// Keys of wanted inputs that its client was asked for; each is asked for once.
    pub(crate) asked: BTreeSet<Box<str>>,
    /// Whether it was cancelled.
    pub(crate) is_cancelled: bool,
}

impl ServerTask {
    /// The task that a handle names; `None` for a handle without an id.
    pub(crate) fn read(handle: &str) -> Option<Self> {
        Some(Self {
            id: text_member(handle, "taskId")?,
            interval: interval(handle),
            timer: None,
            poll: None,
            asked: BTreeSet::new(),
            is_cancelled: false,
        })
    }
}

/// Whether a result is the handle of a task.
pub(crate) fn is_handle(result: &ResultText<'_>) -> bool {
    result.kind().as_deref() == Some("task")
}

/// Capabilities with the tasks extension.
pub(crate) fn with_tasks(capabilities: &str) -> String {
    let extensions = member(capabilities, "extensions").unwrap_or("{}");
    with_member(capabilities, "extensions", &with_member(extensions, EXTENSION, "{}"))
}

/// Whether an error says that a call needs the tasks extension (EXT-01).
pub(crate) fn needs_tasks(error: &ErrorObject) -> bool {
    let required = error.data.as_deref().and_then(|data| member(data, "requiredCapabilities"));
    let required = required.and_then(|required| member(required, "extensions"));
    let names = required.is_some_and(|required| member(required, EXTENSION).is_some());
    error.code == code::MISSING_CAPABILITY && names
}

/// Time until the next poll of a task, within the bounds.
pub(crate) fn interval(task: &str) -> Duration {
    let millis = member(task, "pollIntervalMs").and_then(|millis| millis.parse::<f64>().ok());
    let millis = millis.filter(|millis| *millis >= 0.0);
    let seconds = millis.map(|millis| (millis / 1000.0).min(POLL_MAX.as_secs_f64()));
    seconds.map_or(POLL_DEFAULT, Duration::from_secs_f64).clamp(POLL_MIN, POLL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_and_refusals_are_told_apart() {
        let is_handle = |text: &str| is_handle(&ResultText::of(text));
        assert!(is_handle(r#"{"resultType":"task","taskId":"t","status":"working"}"#));
        assert!(!is_handle(r#"{"resultType":"complete","structuredContent":{"taskId":"t"}}"#));
        assert!(!is_handle(r#"{"content":[]}"#));
        let refusal = |code: i64, data: &str| {
            needs_tasks(&ErrorObject::new(code, "no").with_data(String::from(data)))
        };
        let named = alloc::format!(
            "{{\"requiredCapabilities\":{{\"extensions\":{{\"{EXTENSION}\":{{}}}}}}}}"
        );
        assert!(refusal(code::MISSING_CAPABILITY, &named));
        assert!(!refusal(code::INVALID_PARAMS, &named));
        let other = r#"{"requiredCapabilities":{"sampling":{}}}"#;
        assert!(!refusal(code::MISSING_CAPABILITY, other));
    }

    #[test]
    fn extension_is_added_to_others() {
        for (capabilities, expected) in [
            ("{}", r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
            (
                r#"{"roots":{},"extensions":{"x":1}}"#,
                r#"{"roots":{},"extensions":{"x":1,"io.modelcontextprotocol/tasks":{}}}"#,
            ),
        ] {
            assert_eq!(with_tasks(capabilities), expected);
        }
    }

    #[test]
    fn intervals_are_bounded() {
        for (task, expected) in [
            ("{}", POLL_DEFAULT),
            (r#"{"pollIntervalMs":0}"#, POLL_MIN),
            (r#"{"pollIntervalMs":2500}"#, Duration::from_millis(2500)),
            (r#"{"pollIntervalMs":1e300}"#, POLL_MAX),
            (r#"{"pollIntervalMs":-5}"#, POLL_DEFAULT),
            (r#"{"pollIntervalMs":"5"}"#, POLL_DEFAULT),
        ] {
            assert_eq!(interval(task), expected, "{task}");
        }
    }
}
