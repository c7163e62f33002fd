//! Remote tasks: work at a peer, created by an outgoing request, followed until its end.

use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::collections::timer_queue::Armed;
use crate::ids::{CallId, ConnId};
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outgoing::call::{Caller, OutgoingCall, OutgoingRequest};
use crate::rpc::error::code;
use crate::rpc::params::Nullable;
use crate::tasks::status::Status;

/// Poll interval for a peer that names none (TSK-13).
pub const POLL_DEFAULT: Duration = Duration::from_secs(1);
/// Shortest poll interval, whatever a peer asks.
pub const POLL_MIN: Duration = Duration::from_millis(50);
/// Longest poll interval, whatever a peer asks.
pub const POLL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest task id of a peer, in bytes; an id of this engine has 36.
pub const TASK_ID_BYTES_MAX: usize = 1024;

/// Known state of a remote task (TSK-42).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteState {
    /// Last status from the peer.
    Is(Status),
    /// The caller received the result, or the error of the task.
    Answered,
    /// The peer does not know the task, or its answer is unreadable.
    Unknown,
    /// The caller gave up; the peer was told if it supports that.
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

/// Public view of a remote task (TSK-42).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteTaskView<'a> {
    /// Connection of the peer.
    pub conn: ConnId,
    /// Id of the task at the peer.
    pub task: &'a str,
    /// Caller of the request that created the task.
    pub caller: Caller,
    /// Method of that request.
    pub method: &'a str,
    /// Tool of that request, if any.
    pub label: Option<&'a str>,
    /// Last status from the peer.
    pub status: Status,
}

/// A task at a peer that has a caller.
#[derive(Debug)]
pub(crate) struct RemoteTask {
    /// The request that created the task; its timer stays armed.
    pub(crate) call: OutgoingCall,
    pub(crate) caller: Caller,
    pub(crate) id: Box<str>,
    pub(crate) status: Status,
    /// Last poll interval that the peer asked for.
    pub(crate) interval: Duration,
    /// Timer of the next poll.
    pub(crate) poll_timer: Option<Armed>,
    /// Poll that waits for its answer.
    pub(crate) poll: Option<CallId>,
    /// `tasks/result` that waits for its answer.
    pub(crate) fetch: Option<CallId>,
}

/// Status report of a peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StatusReport {
    pub(crate) id: Box<str>,
    pub(crate) status: Status,
    pub(crate) interval: Duration,
}

/// Reads the answer to a request for a task; `None` for a plain answer, as from a peer that ignores
/// `task` (TSK-03).
///
/// # Errors
///
/// Reason in a few words.
pub(crate) fn read_created(result: Raw<'_>) -> Result<Option<StatusReport>, &'static str> {
    #[derive(Deserialize)]
    struct CreatedTask<'a> {
        #[serde(borrow, default)]
        task: Nullable<'a>,
    }
    if !result.get().starts_with('{') {
        return Err("the answer is no object");
    }
    let created: CreatedTask<'_> =
        serde_json::from_str(result.get()).map_err(|_| "the answer cannot be read")?;
    created.task.0.map(|task| read_report(task.get())).transpose()
}

/// Reads a task object.
///
/// # Errors
///
/// Reason in a few words.
pub(crate) fn read_report(text: &str) -> Result<StatusReport, &'static str> {
    #[derive(Deserialize)]
    struct NamedTask<'a> {
        #[serde(rename = "taskId")]
        id: Box<str>,
        status: Box<str>,
        #[serde(borrow, default, rename = "pollInterval")]
        poll_interval: Nullable<'a>,
    }
    if !text.starts_with('{') {
        return Err("the task is no object");
    }
    let task: NamedTask<'_> = serde_json::from_str(text).map_err(|_| "the task cannot be read")?;
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
    Ok(StatusReport { id: task.id, status, interval: read_interval(task.poll_interval) })
}

/// Delay of the next poll after an error. `None` for an unknown task, which ends the task; every
/// other error is about the poll, not about the task.
pub(crate) fn read_put_off(error: Raw<'_>) -> Option<Duration> {
    let (code, wait) = read_refusal(error);
    let is_final = [code::INVALID_PARAMS, code::METHOD_NOT_FOUND].map(Some).contains(&code);
    (!is_final).then_some(wait.unwrap_or(POLL_MIN))
}

/// Delay of the next `tasks/result` after an error. Nearly every error is the result of the task
/// (TSK-14); the exception says that the request came too early (TSK-37).
pub(crate) fn read_too_early(error: Raw<'_>) -> Option<Duration> {
    let (code, wait) = read_refusal(error);
    wait.filter(|_| code == Some(code::LIMIT_REACHED))
}

/// Code of an error, and its time for a retry.
fn read_refusal(error: Raw<'_>) -> (Option<i64>, Option<Duration>) {
    #[derive(Deserialize)]
    struct RefusedData<'a> {
        code: i64,
        #[serde(borrow, default)]
        data: Nullable<'a>,
    }
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(borrow, default, rename = "retryAfterMs")]
        retry_after: Nullable<'a>,
    }
    let Ok(refused) = serde_json::from_str::<RefusedData<'_>>(error.get()) else {
        return (None, None);
    };
    // `data` may have any type.
    let data = refused.data.0.filter(|data| data.get().starts_with('{'));
    let data: Option<Data<'_>> = data.and_then(|data| serde_json::from_str(data.get()).ok());
    let wait = data.and_then(|data| data.retry_after.0);
    (Some(refused.code), wait.map(|wait| read_interval(Nullable(Some(wait)))))
}

/// Time until the next poll: at least the wanted one, within the bounds.
fn read_interval(value: Nullable<'_>) -> Duration {
    let Some(raw) = value.0 else { return POLL_DEFAULT };
    if let Ok(millis) = raw.get().parse::<u64>() {
        return Duration::from_millis(millis).clamp(POLL_MIN, POLL_MAX);
    }
    // A fraction, an exponent, a huge or negative number, or another type.
    match raw.get().parse::<f64>() {
        Ok(millis) if millis >= 0.0 => {
            let seconds = (millis / 1000.0).min(POLL_MAX.as_secs_f64());
            Duration::from_secs_f64(seconds).clamp(POLL_MIN, POLL_MAX)
        }
        Ok(_) | Err(_) => POLL_DEFAULT,
    }
}

/// A request about one task.
pub(super) fn about(method: &str, task: &str) -> OutgoingRequest {
    let mut params = alloc::vec::Vec::new();
    Writer::new(&mut params).raw("{").member("taskId", task).raw("}");
    let params = String::from_utf8(params).expect("JSON text is UTF-8");
    let params = RawValue::from_string(params).expect("the writer produces JSON");
    OutgoingRequest {
        key: None,
        method: Box::from(method),
        params: Some(params),
        answer_timeout: None,
        task: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TSK-13: intervals that a peer names, including odd ones.
    #[test]
    fn poll_intervals_are_bounded() {
        let read = |text: &str| read_interval(Nullable(Some(Raw::checked(text))));
        assert_eq!(read_interval(Nullable(None)), POLL_DEFAULT);
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

    /// TSK-13: errors that delay a poll, and the delay.
    #[test]
    fn some_errors_delay_a_poll() {
        let read = |text: &str| read_put_off(Raw::checked(text));
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
            assert_eq!(read_too_early(Raw::checked(plain)), None, "{plain}");
        }
        assert_eq!(read_too_early(Raw::checked(wait)), Some(Duration::from_millis(5000)));
        for result in [
            r#"{"code":-31003,"message":"no"}"#,
            r#"{"code":-32603,"message":"no","data":{"retryAfterMs":5000}}"#,
        ] {
            assert_eq!(read_too_early(Raw::checked(result)), None, "{result}");
        }
    }

    #[test]
    fn task_reports_are_read() {
        let plain = read_created(Raw::checked(r#"{"content":[]}"#));
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
            assert!(read_created(Raw::checked(bad)).is_err(), "{bad}");
        }
        let long = "x".repeat(TASK_ID_BYTES_MAX + 1);
        let long = alloc::format!(r#"{{"taskId":"{long}","status":"working"}}"#);
        assert!(read_report(&long).is_err());
    }
}
