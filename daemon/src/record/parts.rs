//! Parts of events, as data.

use std::time::Duration;

use ceased_core::event::Outcome;
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, TaskId};
use ceased_core::json::raw::Json;
use ceased_core::outgoing::call::{AnswerTimeout, AskTask, OutgoingRequest};
use ceased_core::protocol::role::{AsClient, Offers, Role};
use ceased_core::rpc::error::ErrorObject;
use ceased_core::tasks::durable::{RecordedOutcome, TaskOutcome, TaskRecord};
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Who {
    User(u32),
    Token(String),
    Anonymous,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Then {
    Answer,
    Probe(Duration),
    Within(Duration),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    Result(Json),
    Error { code: i64, message: String, data: Option<String> },
    Refused { code: i64, message: String },
    Stopped,
}

/// A [`Cause`] as data.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Because {
    Feature,
    Limit,
    Host,
}

/// A [`Speaker`] as data.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Voice {
    Job(u64),
    Host(u64),
}

impl Who {
    pub(super) fn new(identity: &Identity) -> Self {
        match identity {
            Identity::User(uid) => Self::User(*uid),
            Identity::Token(name) => Self::Token(name.to_string()),
            Identity::Anonymous => Self::Anonymous,
        }
    }

    pub(super) fn get(&self) -> Identity {
        match self {
            Self::User(uid) => Identity::User(*uid),
            Self::Token(name) => Identity::Token(name.as_str().into()),
            Self::Anonymous => Identity::Anonymous,
        }
    }
}

/// An [`OutgoingRequest`] as data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    method: String,
    params: Option<Box<RawValue>>,
    answer_timeout: Option<Wait>,
    #[serde(default)]
    task: Option<TaskWish>,
}

/// An [`AskTask`] as data.
#[derive(Debug, Serialize, Deserialize)]
struct TaskWish {
    ttl: Option<Duration>,
}

/// A [`AnswerTimeout`] as data: timeout, whether progress extends it, cap.
type Wait = (Duration, bool, Duration);

fn wait_of(answer_timeout: AnswerTimeout) -> Wait {
    (answer_timeout.timeout, answer_timeout.extend_on_progress, answer_timeout.cap)
}

fn answer_timeout_of((timeout, extend_on_progress, cap): Wait) -> AnswerTimeout {
    AnswerTimeout { timeout, extend_on_progress, cap }
}

/// An [`AsClient`] as data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Dialled {
    ask: u64,
    sampling: bool,
    elicitation: bool,
    roots: bool,
    answer_timeout: Option<Wait>,
}

impl Dialled {
    pub(super) fn new(role: &Role) -> Option<Self> {
        let Role::Client(AsClient { ask, offers, answer_timeout }) = *role else { return None };
        let Offers { sampling, elicitation, roots } = offers;
        let (ask, answer_timeout) = (ask.get(), answer_timeout.map(wait_of));
        Some(Self { ask, sampling, elicitation, roots, answer_timeout })
    }

    pub(super) fn get(&self) -> Role {
        let Self { ask, sampling, elicitation, roots, answer_timeout } = *self;
        let offers = Offers { sampling, elicitation, roots };
        Role::Client(AsClient {
            ask: AskId::new(ask),
            offers,
            answer_timeout: answer_timeout.map(answer_timeout_of),
        })
    }
}

impl Question {
    pub(super) fn new(ask: &OutgoingRequest) -> Self {
        let OutgoingRequest { key, method, params, answer_timeout, task } = ask;
        Self {
            key: key.as_ref().map(ToString::to_string),
            method: method.to_string(),
            params: params.clone(),
            answer_timeout: answer_timeout.map(wait_of),
            task: task.map(|AskTask { ttl }| TaskWish { ttl }),
        }
    }

    pub(super) fn get(&self) -> OutgoingRequest {
        OutgoingRequest {
            key: self.key.as_deref().map(Into::into),
            method: self.method.as_str().into(),
            params: self.params.clone(),
            answer_timeout: self.answer_timeout.map(answer_timeout_of),
            task: self.task.as_ref().map(|wish| AskTask { ttl: wish.ttl }),
        }
    }
}

impl Ended {
    pub(super) fn new(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Result(result) => Self::Result(result.clone()),
            Outcome::Error(error) => Self::of_error(error),
            Outcome::Refused(error) => {
                Self::Refused { code: error.code, message: error.message.to_string() }
            }
            Outcome::Stopped => Self::Stopped,
        }
    }

    pub(super) fn of_task(outcome: &TaskOutcome) -> Self {
        match outcome {
            Ok(result) => Self::Result(result.clone()),
            Err(error) => Self::of_error(error),
        }
    }

    fn of_error(ErrorObject { code, message, data }: &ErrorObject) -> Self {
        let data = data.as_ref().map(ToString::to_string);
        Self::Error { code: *code, message: message.to_string(), data }
    }

    pub(super) fn get(&self) -> Outcome {
        match self {
            Self::Result(result) => Outcome::Result(result.clone()),
            Self::Error { code, message, data } => {
                let error = ErrorObject::new(*code, message.clone());
                Outcome::Error(match data {
                    Some(data) => error.with_data(data.clone()),
                    None => error,
                })
            }
            Self::Refused { code, message } => {
                Outcome::Refused(ErrorObject::new(*code, message.clone()))
            }
            Self::Stopped => Outcome::Stopped,
        }
    }

    /// # Errors
    /// When it is how only a job can end.
    pub(super) fn get_of_task(&self) -> Result<TaskOutcome, String> {
        match self.get() {
            Outcome::Result(result) => Ok(Ok(result)),
            Outcome::Error(error) => Ok(Err(error)),
            Outcome::Refused(_) | Outcome::Stopped => {
                Err("a task's outcome is a result or an error".to_owned())
            }
        }
    }
}

/// A [`TaskRecord`] as data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    id: Uuid,
    owner: Who,
    position: u64,
    tool: String,
    status: String,
    status_message: Option<String>,
    created: u64,
    updated: u64,
    ttl: Duration,
    expires: u64,
    outcome: Recorded,
}

/// A [`RecordedOutcome`] as data.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Recorded {
    Open,
    Here(Ended),
    Stored(usize),
}

impl Record {
    pub(super) fn new(record: &TaskRecord) -> Self {
        Self {
            id: record.id.uuid(),
            owner: Who::new(&record.owner),
            position: record.position,
            tool: record.tool.to_string(),
            status: record.status.as_str().to_owned(),
            status_message: record.status_message.as_ref().map(ToString::to_string),
            created: record.created.as_millis(),
            updated: record.updated.as_millis(),
            ttl: record.ttl,
            expires: record.expires.as_millis(),
            outcome: match &record.outcome {
                RecordedOutcome::Open => Recorded::Open,
                RecordedOutcome::Here(outcome) => Recorded::Here(Ended::of_task(outcome)),
                RecordedOutcome::Stored { bytes } => Recorded::Stored(*bytes),
            },
        }
    }

    /// The record again.
    ///
    /// # Errors
    /// When it names a status that is none, or an outcome no task has.
    pub(super) fn get(&self) -> Result<TaskRecord, String> {
        let status = Status::parse(&self.status);
        Ok(TaskRecord {
            id: TaskId::new(self.id),
            owner: self.owner.get(),
            position: self.position,
            tool: self.tool.as_str().into(),
            status: status.ok_or_else(|| format!("there is no status {:?}", self.status))?,
            status_message: self.status_message.as_deref().map(Into::into),
            created: Wall::from_millis(self.created),
            updated: Wall::from_millis(self.updated),
            ttl: self.ttl,
            expires: Wall::from_millis(self.expires),
            outcome: match &self.outcome {
                Recorded::Open => RecordedOutcome::Open,
                Recorded::Here(ended) => RecordedOutcome::Here(ended.get_of_task()?),
                Recorded::Stored(bytes) => RecordedOutcome::Stored { bytes: *bytes },
            },
        })
    }
}
