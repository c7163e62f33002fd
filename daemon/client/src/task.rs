//! Tools and tasks as a server describes them.

use crate::decode::{broken, members};
use crate::error::Error;
use ceased_core::tasks::status::Status as TaskStatus;
use ceased_core::tool::TaskSupport;
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::time::Duration;

/// A tool of the server. All text in it is untrusted.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Name.
    pub name: String,
    /// Implementation.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// Whether calls may run as tasks; `Forbidden` if the server has no tasks (TSK-04).
    pub task_support: TaskSupport,
    /// The server's JSON text.
    pub raw: Box<RawValue>,
}

/// A task of the server. All text in it is untrusted.
#[derive(Debug, Clone)]
pub struct Task {
    /// Task id.
    pub id: String,
    /// Status.
    pub status: TaskStatus,
    /// Description of the status.
    pub message: Option<String>,
    /// Time of its creation, ISO 8601.
    pub created_at: String,
    /// Time of the last change of its status, ISO 8601.
    pub last_updated_at: String,
    /// Lifetime from its creation; `None` if unlimited.
    pub ttl: Option<Duration>,
    /// Recommended poll interval (TSK-13).
    pub poll_interval: Option<Duration>,
    /// The server's JSON text.
    pub raw: Box<RawValue>,
}

impl Tool {
    pub(crate) fn read(raw: Box<RawValue>, runs_tasks: bool) -> Result<Self, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            name: String,
            #[serde(default)]
            description: Option<String>,
            #[serde(default)]
            input_schema: Value,
            #[serde(default)]
            execution: Option<Execution>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Execution {
            #[serde(default)]
            task_support: TaskSupport,
        }
        let wire: Wire = serde_json::from_str(raw.get())
            .map_err(|why| broken(&format!("cannot parse a tool ({why})"), raw.get().as_bytes()))?;
        let declared = wire.execution.map(|execution| execution.task_support);
        Ok(Self {
            name: wire.name,
            description: wire.description.unwrap_or_default(),
            input_schema: wire.input_schema,
            task_support: declared.filter(|_| runs_tasks).unwrap_or_default(),
            raw,
        })
    }
}

impl Task {
    /// The task in the answer to a call started with `Client::start_task`.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the answer contains none.
    pub fn created(answer: &RawValue) -> Result<Self, Error> {
        let bad =
            || broken("a call as a task was answered without a task", answer.get().as_bytes());
        let members = members(answer.get()).map_err(|_| bad())?;
        Self::read(members.get("task").ok_or_else(bad)?)
    }

    pub(crate) fn read(raw: &RawValue) -> Result<Self, Error> {
        Self::parse(raw.get())
            .map_err(|why| broken(&format!("cannot parse a task ({why})"), raw.get().as_bytes()))
    }

    pub(crate) fn parse(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            task_id: String,
            status: TaskStatus,
            #[serde(default)]
            status_message: Option<String>,
            created_at: String,
            last_updated_at: String,
            #[serde(default)]
            ttl: Option<Millis>,
            #[serde(default)]
            poll_interval: Option<Millis>,
        }
        let wire: Wire = serde_json::from_str(json)?;
        Ok(Self {
            id: wire.task_id,
            status: wire.status,
            message: wire.status_message,
            created_at: wire.created_at,
            last_updated_at: wire.last_updated_at,
            ttl: wire.ttl.map(|ttl| ttl.0),
            poll_interval: wire.poll_interval.map(|interval| interval.0),
            raw: RawValue::from_string(json.to_owned())?,
        })
    }
}

/// Integer milliseconds in any JSON spelling: `60000`, `60000.0`, `6e4`. Saturates at the range of
/// the clock.
struct Millis(Duration);

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;

        impl Visitor<'_> for Whole {
            type Value = Millis;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of milliseconds")
            }

            fn visit_u64<E>(self, millis: u64) -> Result<Millis, E> {
                Ok(Millis(Duration::from_millis(millis)))
            }

            fn visit_f64<E: serde::de::Error>(self, millis: f64) -> Result<Millis, E> {
                if millis < 0.0 || millis.fract() != 0.0 {
                    return Err(E::invalid_value(Unexpected::Float(millis), &self));
                }
                // Saturates.
                self.visit_u64(millis as u64)
            }
        }

        deserializer.deserialize_any(Whole)
    }
}
