//! The jobs of a world, controlled by the test.

use ceased_core::event::Outcome;
use ceased_core::ids::{AskId, JobId};
use ceased_core::json::raw::Json;
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::{Answer, Caller, OutgoingRequest};
use ceased_core::rpc::error::ErrorObject;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::World;
use crate::trace::Input;

impl World {
    /// A job ends with this outcome; queued jobs may start.
    pub fn end(&mut self, job: JobId, outcome: Outcome) {
        self.running.remove(&job);
        self.feed(Input::Done(job, outcome));
        self.feed(Input::Turn);
    }

    /// A job ends successfully with this text.
    pub fn done(&mut self, job: JobId, said: &str) {
        self.end(job, result_of(&json!({"content": [{"type": "text", "text": said}]})));
    }

    /// A job ends with a JSON-RPC error.
    pub fn fail(&mut self, job: JobId, code: i64, message: &str) {
        self.end(job, Outcome::Error(ErrorObject::new(code, message.to_owned())));
    }

    /// A job ends because it was stopped.
    pub fn stopped(&mut self, job: JobId) {
        self.end(job, Outcome::Stopped);
    }

    /// A job reports progress.
    pub fn progress(&mut self, job: JobId, progress: f64) {
        self.feed(Input::Progress(job, progress, None, None));
    }

    /// A job prints a line.
    pub fn output(&mut self, job: JobId, line: &str) {
        self.feed(Input::Output(job, line.to_owned()));
    }

    /// A job logs.
    #[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
    pub fn log(&mut self, job: JobId, level: LogLevel, data: Value) {
        self.feed(Input::Log(job, level, raw_json(&data.to_string())));
    }

    /// A job asks its peer; its turn is not over.
    pub fn asked(&mut self, job: JobId, number: u64, method: &str) -> Caller {
        let params = match method {
            "elicitation/create" => json!({
                "message": "name?", "requestedSchema": {"type": "object", "properties": {}},
            }),
            _ => json!({}),
        };
        let params = Some(raw_json(&params.to_string()));
        let ask = AskId::new(number);
        let request = OutgoingRequest {
            key: None,
            method: method.into(),
            params,
            answer_timeout: None,
            task: None,
        };
        self.feed(Input::Asked(job, ask, None, request));
        Caller::Job { job, ask }
    }

    /// Outcomes of outgoing calls, as text.
    #[must_use]
    pub fn told_words(&self) -> Vec<(Caller, String)> {
        let word = |answer: &Answer| match answer {
            Answer::Result(result) => format!("result {}", result.get()),
            Answer::Error(error) => format!("error {}", error.get()),
            Answer::Refused(refusal) => format!("refused {refusal:?}"),
            Answer::TimedOut => "timed out".into(),
            Answer::Cancelled => "cancelled".into(),
            Answer::Lost => "lost".into(),
            Answer::Unusable(what) => format!("unusable: {what}"),
        };
        self.told.iter().map(|(caller, answer)| (*caller, word(answer))).collect()
    }
}

/// A result for the end of a job.
#[must_use]
pub fn result_of(value: &Value) -> Outcome {
    Outcome::Result(Json::written(value.to_string()))
}

/// A JSON text, unchanged.
///
/// # Panics
/// When the text is no JSON.
#[must_use]
pub fn raw_json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("a test writes JSON")
}
