//! Remote tasks: work at a peer, created by a call of ours, that is followed until it ends.

use alloc::boxed::Box;
use core::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::collections::timer_queue::Armed;
use crate::ids::{CallId, ConnId};
use crate::outgoing::call::{Call, Caller};
use crate::rpc::error::code;
use crate::rpc::params::Given;
use crate::tasks::status::Status;

/// How often a peer is asked that does not say how often it wants to be (TSK-13).
pub const POLL_DEFAULT: Duration = Duration::from_secs(1);
/// The shortest time between two questions, whatever a peer says.
pub const POLL_MIN: Duration = Duration::from_millis(50);
/// The longest time between two questions, whatever a peer says.
pub const POLL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest task id a peer may give, in bytes; ours have 36.
pub const TASK_ID_BYTES_MAX: usize = 1024;

/// Where a remote task stands, as far as we know (TSK-42).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteState {
    /// Last status of the peer.
    Is(Status),
    /// Its result, or the error it ended with, was told to whoever made the call.
    Answered,
    /// The peer does not know it, or says what cannot be read.
    Unknown,
    /// No caller wants it any more; the peer was told so if it can be.
    GivenUp,
    /// The connection ended.
    Lost,
}

impl RemoteState {
    /// A word for logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Is(status) => status.as_str(),
            Self::Answered => "answered",
            Self::Unknown => "unknown",
            Self::GivenUp => "given up",
            Self::Lost => "lost",
        }
    }
}

/// A remote task, for whoever wants to look (TSK-42).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteTaskView<'a> {
    /// At which peer.
    pub conn: ConnId,
    /// The peer's id for it.
    pub task: &'a str,
    /// Maker of the call that created it.
    pub caller: Caller,
    /// The method of that call.
    pub method: &'a str,
    /// The tool of that call, if it named one.
    pub label: Option<&'a str>,
    /// Last status of the peer.
    pub status: Status,
}

/// A task at a peer that somebody here waits for.
#[derive(Debug)]
pub(crate) struct RemoteTask {
    /// The call that created it; its timer goes on.
    pub(crate) call: Call,
    pub(crate) caller: Caller,
    pub(crate) id: Box<str>,
    pub(crate) status: Status,
    /// How long the peer wants to be left alone between two questions, as it said last.
    pub(crate) interval: Duration,
    /// When the next question is due.
    pub(crate) poll_timer: Option<Armed>,
    /// The question that waits for its answer.
    pub(crate) poll: Option<CallId>,
    /// The `tasks/result` that waits for its answer.
    pub(crate) fetch: Option<CallId>,
}

/// Status of a task at a peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) id: Box<str>,
    pub(crate) status: Status,
    pub(crate) interval: Duration,
}

/// Reads the answer to a call that asked for a task; `None` when it is a plain answer, as a peer
/// that ignores the wish gives (TSK-03).
///
/// # Errors
/// What is wrong with it, in a few words.
pub(crate) fn read_created(result: &RawValue) -> Result<Option<Report>, &'static str> {
    #[derive(Deserialize)]
    struct Created<'a> {
        #[serde(borrow, default)]
        task: Given<'a>,
    }
    if !result.get().starts_with('{') {
        return Err("the answer is no object");
    }
    let created: Created<'_> =
        serde_json::from_str(result.get()).map_err(|_| "the answer cannot be read")?;
    created.task.0.map(|task| read_report(task.get())).transpose()
}

/// Reads a task object.
///
/// # Errors
/// What is wrong with it, in a few words.
pub(crate) fn read_report(text: &str) -> Result<Report, &'static str> {
    #[derive(Deserialize)]
    struct Task<'a> {
        #[serde(rename = "taskId")]
        id: Box<str>,
        status: Box<str>,
        #[serde(borrow, default, rename = "pollInterval")]
        poll_interval: Given<'a>,
    }
    if !text.starts_with('{') {
        return Err("the task is no object");
    }
    let task: Task<'_> = serde_json::from_str(text).map_err(|_| "the task cannot be read")?;
    if task.id.len() > TASK_ID_BYTES_MAX {
        return Err("the task's id is too long");
    }
    let all = [
        Status::Working,
        Status::InputRequired,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
    ];
    let status = all.into_iter().find(|status| status.as_str() == &*task.status);
    let status = status.ok_or("the task's status is none of the five")?;
    Ok(Report { id: task.id, status, interval: read_interval(task.poll_interval) })
}

/// How long an error keeps us from asking where a task stands; `None` when it says that there is no
/// such task, which is the end of it. Every other error is about the question, not about the task.
pub(crate) fn read_put_off(error: &RawValue) -> Option<Duration> {
    let (code, wait) = read_refusal(error);
    let is_final = [code::INVALID_PARAMS, code::METHOD_NOT_FOUND].map(Some).contains(&code);
    (!is_final).then_some(wait.unwrap_or(POLL_MIN))
}

/// How long an error keeps us from asking for the result of a task. Nearly every error is the result
/// (TSK-14), but for one that says that the question came too early (TSK-37).
pub(crate) fn read_too_early(error: &RawValue) -> Option<Duration> {
    let (code, wait) = read_refusal(error);
    wait.filter(|_| code == Some(code::LIMIT_REACHED))
}

/// The code of an error, and when it says that one may ask again.
fn read_refusal(error: &RawValue) -> (Option<i64>, Option<Duration>) {
    #[derive(Deserialize)]
    struct Refused<'a> {
        code: i64,
        #[serde(borrow, default)]
        data: Given<'a>,
    }
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(borrow, default, rename = "retryAfterMs")]
        retry_after: Given<'a>,
    }
    let Ok(refused) = serde_json::from_str::<Refused<'_>>(error.get()) else {
        return (None, None);
    };
    // Data may be anything.
    let data = refused.data.0.filter(|data| data.get().starts_with('{'));
    let data: Option<Data<'_>> = data.and_then(|data| serde_json::from_str(data.get()).ok());
    let wait = data.and_then(|data| data.retry_after.0);
    (Some(refused.code), wait.map(|wait| read_interval(Given(Some(wait)))))
}

/// The time until the next question: never shorter than wanted, within sane bounds.
fn read_interval(given: Given<'_>) -> Duration {
    let Some(raw) = given.0 else { return POLL_DEFAULT };
    if let Ok(millis) = raw.get().parse::<u64>() {
        return Duration::from_millis(millis).clamp(POLL_MIN, POLL_MAX);
    }
    // A fraction, an exponent, something huge or negative, or no number at all.
    match raw.get().parse::<f64>() {
        Ok(millis) if millis >= 0.0 => {
            let seconds = (millis / 1000.0).min(POLL_MAX.as_secs_f64());
            Duration::from_secs_f64(seconds).clamp(POLL_MIN, POLL_MAX)
        }
        Ok(_) | Err(_) => POLL_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::raw::Raw;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    /// TSK-13: the interval a peer names, and what is made of odd ones.
    #[test]
    fn intervals() {
        let read = |text: &str| read_interval(Given(Some(Raw::checked(text))));
        assert_eq!(read_interval(Given(None)), POLL_DEFAULT);
        assert_eq!(read("2500"), Duration::from_millis(2500));
        assert_eq!(read("2500.5"), Duration::from_micros(2_500_500));
        for short in ["0", "1", "0.0", "1e-9"] {
            assert_eq!(read(short), POLL_MIN, "{short}");
        }
        for long in ["1e300", "18446744073709551615", "99999999999999999999999"] {
            assert_eq!(read(long), POLL_MAX, "{long}");
        }
        for odd in ["-1", "null", "\"5\"", "[]", "true"] {
            assert_eq!(read(odd), POLL_DEFAULT, "{odd}");
        }
    }

    /// TSK-13: which errors put a question off, and for how long.
    #[test]
    fn errors() {
        let read = |text: &str| read_put_off(&raw(text));
        assert_eq!(read(r#"{"code":-32602,"message":"no","data":{"retryAfterMs":5000}}"#), None);
        let wait = r#"{"code":-31003,"message":"no","data":{"limit":"x","retryAfterMs":5000}}"#;
        assert_eq!(read(wait), Some(Duration::from_millis(5000)));
        for plain in [
            r#"{"code":-32603,"message":"no"}"#,
            r#"{"code":-32603,"message":"no","data":null}"#,
            r#"{"code":-32603,"message":"no","data":[7]}"#,
            r#"{"code":-32603,"message":"no","data":{"retryAfterMs":0}}"#,
            r#"{"code":"no"}"#,
            "7",
        ] {
            assert_eq!(read(plain), Some(POLL_MIN), "{plain}");
            assert_eq!(read_too_early(&raw(plain)), None, "{plain}");
        }
        assert_eq!(read_too_early(&raw(wait)), Some(Duration::from_millis(5000)));
        for result in [
            r#"{"code":-31003,"message":"no"}"#,
            r#"{"code":-32603,"message":"no","data":{"retryAfterMs":5000}}"#,
        ] {
            assert_eq!(read_too_early(&raw(result)), None, "{result}");
        }
    }

    #[test]
    fn reports() {
        let plain = read_created(&raw(r#"{"content":[]}"#));
        assert_eq!(plain, Ok(None));
        for bad in [
            "[]",
            "7",
            r#"{"task":null}"#,
            r#"{"task":[]}"#,
            r#"{"task":{}}"#,
            r#"{"task":{"taskId":7,"status":"working"}}"#,
            r#"{"task":{"taskId":"t","status":"busy"}}"#,
        ] {
            assert!(read_created(&raw(bad)).is_err(), "{bad}");
        }
        let long = "x".repeat(TASK_ID_BYTES_MAX + 1);
        let long = alloc::format!(r#"{{"taskId":"{long}","status":"working"}}"#);
        assert!(read_report(&long).is_err());
    }
}
