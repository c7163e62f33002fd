//! Serialized form of a record: texts and numbers with a stable meaning, and checksums, so that
//! corruption is detected on reading.

use std::borrow::Cow;
use std::hash::Hasher as _;
use std::time::Duration;

use ceased_core::rpc::error::ErrorObject;
use ceased_core::tasks::status::Status;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use siphasher::sip::SipHasher24;

use ceased_core::tasks::durable::TaskOutcome;

/// A serialized outcome: its kind and its JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptOutcome<'a> {
    /// Whether it is a result or an error.
    pub(crate) kind: Kind,
    /// Its JSON text.
    pub(crate) json: Cow<'a, str>,
}

/// Kind of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A result.
    Result,
    /// A JSON-RPC error.
    Error,
}

impl Kind {
    /// Its number in the file format.
    pub(crate) const fn number(self) -> i64 {
        match self {
            Self::Result => 0,
            Self::Error => 1,
        }
    }

    /// The kind with this number.
    pub(crate) const fn from_number(number: i64) -> Option<Self> {
        match number {
            0 => Some(Self::Result),
            1 => Some(Self::Error),
            _ => None,
        }
    }
}

/// A JSON-RPC error as JSON.
#[derive(Serialize, Deserialize)]
struct KeptError {
    code: i64,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

impl<'a> KeptOutcome<'a> {
    /// Serializes an outcome; an error text if that fails.
    pub(crate) fn of(outcome: &'a TaskOutcome) -> Result<Self, String> {
        match outcome {
            Ok(result) => Ok(Self { kind: Kind::Result, json: result.get().into() }),
            Err(error) => {
                let data = error.data.as_ref().map(|data| RawValue::from_string(data.to_string()));
                let kept = KeptError {
                    code: error.code,
                    message: error.message.to_string(),
                    data: data.transpose().map_err(|error| error.to_string())?,
                };
                let json = serde_json::to_string(&kept).map_err(|error| error.to_string())?;
                Ok(Self { kind: Kind::Error, json: json.into() })
            }
        }
    }

    /// Parses the outcome; an error text if it is malformed.
    pub(crate) fn outcome(self) -> Result<TaskOutcome, String> {
        match self.kind {
            Kind::Result => {
                let raw = RawValue::from_string(self.json.into_owned());
                raw.map(|raw| Ok(raw.into())).map_err(|error| error.to_string())
            }
            Kind::Error => {
                let kept: KeptError =
                    serde_json::from_str(&self.json).map_err(|error| error.to_string())?;
                let error = ErrorObject::new(kept.code, kept.message);
                Ok(Err(match kept.data {
                    Some(data) => error.with_data(data.get().to_owned()),
                    None => error,
                }))
            }
        }
    }

    /// Checksum of kind and text.
    pub(super) fn sum(&self) -> i64 {
        let mut sum = Sum::default();
        sum.number(self.kind.number());
        sum.text(&self.json);
        sum.finish()
    }
}

/// A checksum over values, each prefixed with its length, so that different lists of values never
/// have the same input.
#[derive(Default)]
pub(super) struct Sum(SipHasher24);

impl Sum {
    /// Adds bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.write_u64(bytes.len() as u64);
        self.0.write(bytes);
    }

    /// Adds a text.
    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Adds a number.
    pub(super) fn number(&mut self, number: i64) {
        self.bytes(&number.to_le_bytes());
    }

    /// The sum.
    pub(super) fn finish(self) -> i64 {
        self.0.finish().cast_signed()
    }
}

/// Parses a status.
pub(super) fn status(word: &str) -> Option<Status> {
    use Status::{Cancelled, Completed, Failed, InputRequired, Working};
    [Working, InputRequired, Completed, Failed, Cancelled]
        .into_iter()
        .find(|status| status.as_str() == word)
}

/// A duration in whole nanoseconds, saturating at i64::MAX (292 years).
pub(super) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The duration of this many nanoseconds.
pub(super) fn duration(nanos: i64) -> Option<Duration> {
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}
