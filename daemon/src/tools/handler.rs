//! Handlers: tools that are Rust functions, with their input and output types.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use ceased_core::event::Outcome;
use ceased_core::ids::{AskId, JobId, TaskId};
use ceased_core::json::raw::Json;
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::{Answer, OutgoingRequest, Refusal};
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use crossbeam_channel::{Receiver, bounded};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::event_loop::handle::ServerHandle;
use crate::event_loop::mailbox::{Asked, LoopSender, Report};
use crate::tools::cancel_token::{CancelToken, Cancelled};
use crate::tools::content::Content;

/// A tool that runs in this process, on a worker thread. A handler whose calls have always returned
/// within microseconds runs on the thread of the loop; if a call takes longer, another thread takes
/// over the loop.
///
/// It must check [`Job::token`] regularly: a thread cannot be killed. A panic is caught and becomes
/// an internal error of that call.
pub trait Handler: Send + Sync + 'static {
    /// Runs one call.
    ///
    /// # Errors
    /// [`ToolError`]; `?` on a token's `check` or `sleep` gives the right one.
    fn run(&self, job: &Job) -> Result<ToolResult, ToolError>;
}

impl<F> Handler for F
where
    F: Fn(&Job) -> Result<ToolResult, ToolError> + Send + Sync + 'static,
{
    fn run(&self, job: &Job) -> Result<ToolResult, ToolError> {
        self(job)
    }
}

/// The function behind a tool, a prompt or a resource.
pub(crate) trait Work: Send + Sync + 'static {
    /// Runs one call.
    fn work(&self, job: &Job) -> Outcome;
}

/// A handler of a tool.
pub(crate) struct Calling<H>(pub(crate) H);

impl<H: Handler> Work for Calling<H> {
    fn work(&self, job: &Job) -> Outcome {
        outcome(self.0.run(job))
    }
}

/// One call, as its handler sees it.
///
/// ```
/// use std::time::Duration;
///
/// use ceased::{Job, ToolError, ToolResult};
/// use serde_json::Value;
///
/// fn steps(job: &Job) -> Result<ToolResult, ToolError> {
///     let arguments: Value = job.arguments()?;
///     for step in 1..=10 {
///         // Wakes and returns an error when the call is cancelled.
///         job.token().sleep(Duration::from_millis(100))?;
///         job.progress(f64::from(step), Some(10.0), Some("working"));
///     }
///     Ok(ToolResult::text(format!("done: {arguments}")))
/// }
/// ```
#[derive(Debug)]
pub struct Job {
    call: Call,
    token: CancelToken,
    reports: LoopSender,
    /// Number of questions asked so far.
    asked: AtomicU64,
}

/// The call of a tool or method.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: JobId,
    pub(crate) task: Option<TaskId>,
    pub(crate) arguments: Json,
}

impl Job {
    /// A call whose handler reports to `reports`.
    pub(crate) const fn new(call: Call, token: CancelToken, reports: LoopSender) -> Self {
        Self { call, token, reports, asked: AtomicU64::new(0) }
    }

    pub(crate) fn into_reports(self) -> LoopSender {
        self.reports
    }

    /// Job id, as in logs and views.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.call.id
    }

    /// Task of the call, if it runs as one.
    #[must_use]
    pub const fn task(&self) -> Option<TaskId> {
        self.call.task
    }

    /// The arguments as JSON text; an object that conforms to the tool's schema.
    #[must_use]
    pub fn arguments_json(&self) -> &str {
        self.call.arguments.get()
    }

    /// Deserializes the arguments.
    ///
    /// # Errors
    /// [`ToolError::Refused`] with invalid params when they do not fit.
    pub fn arguments<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ToolError> {
        serde_json::from_str(self.call.arguments.get()).map_err(|error| {
            ToolError::Refused(ErrorObject::invalid_params(format!("arguments: {error}")))
        })
    }

    /// The cancel token of the call.
    #[must_use]
    pub const fn token(&self) -> &CancelToken {
        &self.token
    }

    /// Sends progress to the requestor, if it asked for that. `progress` must increase; other
    /// values are dropped.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.reports.send(Report::Progress {
            job: self.call.id,
            progress,
            total,
            message: message.map(Into::into),
        });
    }

    /// Sends the requestor a request (`elicitation/create`, `sampling/createMessage`, `roots/list`)
    /// and waits for the response. Returns at once when the call is cancelled. In a task the
    /// request is delivered with the next `tasks/result` (TSK-30).
    ///
    /// # Errors
    /// [`AskError`].
    pub fn ask(&self, method: &str, params: &Value) -> Result<Value, AskError> {
        let [answer] = self.ask_all([Question::new(method, params.clone())]);
        answer
    }

    /// Sends the requestor several requests at once, as [`Job::ask`] does one, and waits until each
    /// has a response or has failed.
    pub fn ask_all<const N: usize>(
        &self,
        questions: [Question; N],
    ) -> [Result<Value, AskError>; N] {
        let mut asked = Vec::with_capacity(N);
        let receivers = questions.map(|question| {
            let params = question.params.as_ref().map(to_raw_value).transpose();
            let params = params.map_err(|error| AskError::Unreadable(error.to_string()))?;
            let request = OutgoingRequest {
                key: question.key.map(Into::into),
                method: question.method.into(),
                params,
                answer_timeout: None,
                task: None,
            };
            // The engine's own requests about a job have lower numbers.
            let ask = AskId::new(1 + self.asked.fetch_add(1, Ordering::Relaxed));
            let (sender, receiver) = bounded(1);
            asked.push(Asked { ask, request, answer: sender });
            Ok(receiver)
        });
        self.reports.send(Report::Asked { job: self.call.id, asked });
        // Without an answer the loop has ended: no response will come.
        receivers.map(|receiver: Result<Receiver<Answer>, AskError>| {
            read_answer(receiver?.recv().unwrap_or(Answer::Cancelled))
        })
    }

    /// Makes a task of a call whose tool [asks first](crate::HandlerTool::asks_first): its handle is
    /// the answer. Has no effect on a call whose client follows no tasks, and on one that is a task
    /// already.
    pub fn become_task(&self) {
        self.reports.send(Report::Escalated(self.call.id));
    }

    /// The daemon that runs the call.
    #[must_use]
    pub fn daemon(&self) -> ServerHandle {
        ServerHandle { reports: self.reports.clone() }
    }

    /// Sends the requestor a log message.
    pub fn log(&self, level: LogLevel, data: &Value) {
        if let Ok(data) = to_raw_value(data) {
            self.reports.send(Report::Log { job: self.call.id, level, data });
        }
    }
}

/// A request to the requestor of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    key: Option<String>,
    method: String,
    params: Option<Value>,
}

impl Question {
    /// A request with this method and these params.
    #[must_use]
    pub fn new(method: &str, params: Value) -> Self {
        Self { key: None, method: method.into(), params: Some(params) }
    }

    /// Names the question, for clients that get it as part of an answer (`inputRequests` of
    /// 2026-07-28). A client may send the response with its call then. A name belongs to one
    /// question of a call; without one, and for a number, the question is named by a number.
    #[must_use]
    pub fn named(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

fn read_answer(answer: Answer) -> Result<Value, AskError> {
    match answer {
        Answer::Result(result) => serde_json::from_str(result.get())
            .map_err(|error| AskError::Unreadable(error.to_string())),
        Answer::Error(error) => {
            Err(AskError::Peer(serde_json::from_str(error.get()).unwrap_or(Value::Null)))
        }
        Answer::Refused(refusal) => Err(AskError::Refused(refusal)),
        Answer::TimedOut | Answer::Lost | Answer::Unusable(_) => Err(AskError::Unanswered),
        Answer::Cancelled => Err(AskError::Cancelled),
    }
}

/// Why a request to the requestor failed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AskError {
    /// The request was not sent: the requestor does not support it, or too many are pending.
    Refused(Refusal),
    /// The requestor responded with this error object.
    Peer(Value),
    /// The requestor disconnected or timed out.
    Unanswered,
    /// The call was cancelled meanwhile.
    Cancelled,
    /// The request or the response is not valid JSON.
    Unreadable(String),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "cannot send the request: {refusal}"),
            Self::Peer(error) => write!(f, "the requestor responded with an error: {error}"),
            Self::Unanswered => f.write_str("the requestor did not respond"),
            Self::Cancelled => Cancelled.fmt(f),
            Self::Unreadable(why) => write!(f, "cannot read the response: {why}"),
        }
    }
}

impl std::error::Error for AskError {}

impl From<AskError> for ToolError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Cancelled => Self::Cancelled,
            AskError::Refused(_)
            | AskError::Peer(_)
            | AskError::Unanswered
            | AskError::Unreadable(_) => Self::Failed(error.to_string().into()),
        }
    }
}

/// Result of a `tools/call`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// Content for models.
    pub content: Vec<Content>,
    /// Content for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Json>,
    /// Whether the tool failed.
    pub is_error: bool,
}

impl ToolResult {
    /// A result of one text block.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], ..Self::default() }
    }

    /// Appends a text block.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        self.content.push(Content::text(text));
        self
    }

    /// Renders the result for `tools/call`.
    fn to_json(&self) -> serde_json::Result<Json> {
        const BEGIN: &str = r#"{"content":["#;
        const STRUCTURED: &str = r#","structuredContent":"#;
        let end = if self.is_error { r#","isError":true}"# } else { r#","isError":false}"# };
        let structured = self.structured_content.as_ref().map(Json::get);
        // Room for everything but escapes: it is written once, and neither moved nor cut.
        let room: usize = self.content.iter().map(Content::room).sum();
        let more = structured.map_or(0, |json| STRUCTURED.len() + json.len());
        let mut out = String::with_capacity(BEGIN.len() + room + 1 + more + end.len());
        out.push_str(BEGIN);
        for (position, block) in self.content.iter().enumerate() {
            if position > 0 {
                out.push(',');
            }
            block.write(&mut out)?;
        }
        out.push(']');
        if let Some(structured) = structured {
            out.push_str(STRUCTURED);
            out.push_str(structured);
        }
        out.push_str(end);
        Ok(Json::written(out))
    }

    /// Sets the content for programs; must be an object.
    #[must_use]
    pub fn with_structured(mut self, value: Value) -> Self {
        self.structured_content = Some(Json::written(value.to_string()));
        self
    }
}

/// Failure of a tool.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ToolError {
    /// It stopped because it was cancelled.
    Cancelled,
    /// It failed, with a text for the requestor's model: a result with `isError`.
    Failed(Cow<'static, str>),
    /// The call was wrong in a way that a model can correct: a result with `isError` from MCP
    /// 2025-11-25 on, a JSON-RPC error before.
    Refused(ErrorObject),
    /// The call itself was wrong: a JSON-RPC error.
    Rpc(ErrorObject),
}

impl From<Cancelled> for ToolError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Outcome of a failure; that of a tool is a result.
pub(crate) fn unanswered(error: ToolError) -> Outcome {
    match error {
        ToolError::Cancelled => Outcome::Stopped,
        ToolError::Failed(message) => {
            Outcome::Error(ErrorObject::new(code::INTERNAL_ERROR, message))
        }
        ToolError::Refused(error) => Outcome::Refused(error),
        ToolError::Rpc(error) => Outcome::Error(error),
    }
}

/// Converts a handler's result for the engine.
pub(crate) fn outcome(answer: Result<ToolResult, ToolError>) -> Outcome {
    let result = match answer {
        Ok(result) => result,
        Err(ToolError::Failed(message)) => {
            ToolResult { is_error: true, ..ToolResult::text(message) }
        }
        Err(error) => return unanswered(error),
    };
    match result.to_json() {
        Ok(result) => Outcome::Result(result),
        Err(error) => Outcome::Error(ErrorObject::new(
            code::INTERNAL_ERROR,
            format!("the tool's result is not valid JSON: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_result_equals_its_serialization() {
        let results = [
            ToolResult::default(),
            ToolResult::text(""),
            ToolResult::text("a\n\"b\"").and_text("€").and_text("c\u{1}"),
            ToolResult::text("x").with_structured(serde_json::json!({"a": [1, "\t"]})),
            ToolResult { is_error: true, ..ToolResult::text("no") },
            ToolResult::default().with_structured(serde_json::json!({})),
        ];
        for result in results {
            let expected = serde_json::to_string(&result).expect("valid JSON");
            assert_eq!(result.to_json().expect("valid JSON").get(), expected);
        }
    }
}
