//! Handlers: tools that are Rust functions, and what they are given and give back.

use std::borrow::Cow;

use ceased_core::event::{LogLevel, Outcome};
use ceased_core::id::{JobId, TaskId};
use ceased_core::message::{ErrorObject, code};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::reports::{Report, Reports};
use crate::token::{CancelToken, Cancelled};

/// A tool that runs in this process, on a worker thread of its own while it runs.
///
/// It must look at [`Job::token`] often enough: a thread cannot be killed. A panic is caught and
/// becomes an internal error of that one call.
pub trait Handler: Send + Sync + 'static {
    /// Does the work of one call.
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

/// One call, as its handler sees it.
#[derive(Debug)]
pub struct Job {
    pub(crate) id: JobId,
    pub(crate) task: Option<TaskId>,
    pub(crate) arguments: Box<RawValue>,
    pub(crate) token: CancelToken,
    pub(crate) reports: Reports,
}

impl Job {
    /// The job's id, as logs and views show it.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// The task the call runs as, if it does.
    #[must_use]
    pub const fn task(&self) -> Option<TaskId> {
        self.task
    }

    /// The arguments as JSON text; an object that passed the tool's schema.
    #[must_use]
    pub fn arguments_json(&self) -> &str {
        self.arguments.get()
    }

    /// The arguments as a type of the handler's.
    ///
    /// # Errors
    /// [`ToolError::Rpc`] with invalid params when they do not fit.
    pub fn arguments<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ToolError> {
        serde_json::from_str(self.arguments.get()).map_err(|error| {
            ToolError::Rpc(ErrorObject::invalid_params(format!("arguments: {error}")))
        })
    }

    /// Says whether the work is still wanted.
    #[must_use]
    pub const fn token(&self) -> &CancelToken {
        &self.token
    }

    /// Tells the requestor how far the work is, if it wants to know. `progress` must grow; what
    /// does not is dropped.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.reports.send(Report::Progress {
            job: self.id,
            progress,
            total,
            message: message.map(Into::into),
        });
    }

    /// Sends the requestor a log message.
    pub fn log(&self, level: LogLevel, data: &Value) {
        if let Ok(data) = to_raw_value(data) {
            self.reports.send(Report::Log { job: self.id, level, data });
        }
    }
}

/// What a tool answers: the result of `tools/call`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// What a model reads.
    pub content: Vec<Content>,
    /// What a program reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Whether the tool failed.
    pub is_error: bool,
}

/// A block of content.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
}

impl ToolResult {
    /// One block of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::Text { text: text.into() }], ..Self::default() }
    }

    /// The same result with one more block of text.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        self.content.push(Content::Text { text: text.into() });
        self
    }

    /// The same result with this for programs; an object.
    #[must_use]
    pub fn with_structured(mut self, value: Value) -> Self {
        self.structured_content = Some(value);
        self
    }
}

/// How a tool fails.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolError {
    /// It stopped because it was told to.
    Cancelled,
    /// It failed, in a way the requestor's model may want to read: a result with `isError`.
    Failed(Cow<'static, str>),
    /// The call itself was wrong: a JSON-RPC error.
    Rpc(ErrorObject),
}

impl From<Cancelled> for ToolError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// What the engine is told about a handler's answer.
pub(crate) fn outcome(answer: Result<ToolResult, ToolError>) -> Outcome {
    let result = match answer {
        Ok(result) => result,
        Err(ToolError::Cancelled) => return Outcome::Stopped,
        Err(ToolError::Rpc(error)) => return Outcome::Error(error),
        Err(ToolError::Failed(message)) => {
            ToolResult { is_error: true, ..ToolResult::text(message) }
        }
    };
    match to_raw_value(&result) {
        Ok(result) => Outcome::Result(result),
        Err(error) => Outcome::Error(ErrorObject::new(
            code::INTERNAL_ERROR,
            format!("the tool's result is no JSON: {error}"),
        )),
    }
}
