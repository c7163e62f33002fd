//! Input as data: questions of a job, written into results and task objects, and their answers
//! (MOD-07, EXT-05).
//!
//! A question is known by its number, which its job never uses twice.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::ids::{AskId, JobId};
use crate::jobs::Jobs;
use crate::jobs::job::Job;
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outgoing::call::OutgoingRequest;
use crate::protocol::capabilities::PeerCapabilities;
use crate::rpc::error::ErrorObject;

impl Jobs {
    /// The questions of a job that are open.
    pub(crate) fn open_questions(&self, job: Option<JobId>) -> OpenQuestions {
        let job = job.and_then(|id| self.get(id));
        let key = |(ask, question): (AskId, &OutgoingRequest)| (key_of(ask, question).into(), ask);
        job.map(|job| job.questions().map(key).collect()).unwrap_or_default()
    }
}

/// Open questions of a job, by their keys.
pub(crate) type OpenQuestions = BTreeMap<Box<str>, AskId>;

/// Key of a question: the one that its job gave it, or its number.
fn key_of(ask: AskId, question: &OutgoingRequest) -> String {
    match &question.key {
        Some(key) => String::from(&**key),
        None => format!("{}", ask.get()),
    }
}

/// Writes an object of all questions of a job that any client may answer.
pub(crate) fn write_all(json: &mut Writer<'_>, job: &Job) {
    let wanted = job.questions().filter(|(_, question)| question.task.is_none());
    write_questions(json, wanted);
}

/// Writes an object of the questions of a job that the client can answer.
pub(crate) fn write(json: &mut Writer<'_>, job: &Job, peer: &PeerCapabilities) {
    let answers =
        |question: &OutgoingRequest| question.task.is_none() && peer.answers(&question.method);
    write_questions(json, job.questions().filter(|(_, question)| answers(question)));
}

fn write_questions<'a>(
    json: &mut Writer<'_>,
    wanted: impl Iterator<Item = (AskId, &'a OutgoingRequest)>,
) {
    json.raw("{");
    for (position, (ask, question)) in wanted.enumerate() {
        json.raw(if position == 0 { "" } else { "," }).string(&key_of(ask, question)).raw(":{");
        json.member("method", &question.method);
        if let Some(params) = &question.params {
            json.raw(",\"params\":").raw(params.get());
        }
        json.raw("}");
    }
    json.raw("}");
}

/// Reads `inputResponses` as far as they answer open questions. Every other response is
/// ignored (EXT-05).
///
/// # Errors
/// `-32602` when it is no object of objects.
pub(crate) fn read<'a>(
    responses: Option<Raw<'a>>,
    open: &OpenQuestions,
) -> Result<Vec<(AskId, &'a RawValue)>, ErrorObject> {
    let Some(responses) = responses else { return Ok(Vec::new()) };
    let mut reader = serde_json::Deserializer::from_str(responses.get());
    reader.deserialize_map(Responses { open }).map_err(|_| {
        ErrorObject::invalid_params("params.inputResponses must be an object of results")
    })
}

struct Responses<'o> {
    open: &'o OpenQuestions,
}

impl<'de> Visitor<'de> for Responses<'_> {
    type Value = Vec<(AskId, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of results")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut taken: Vec<(AskId, &RawValue)> = Vec::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let value: &RawValue = map.next_value()?;
            if !value.get().starts_with('{') {
                return Err(A::Error::custom("a result is an object"));
            }
            let ask = self.open.get(&*key).copied();
            if let Some(ask) = ask.filter(|ask| taken.iter().all(|(other, _)| other != ask)) {
                taken.push((ask, value));
            }
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXT-05: an open question is answered once, whatever else there is; a non-result is refused.
    #[test]
    fn responses() {
        let open = BTreeMap::from([("1".into(), AskId::new(1)), ("12".into(), AskId::new(12))]);
        let taken = |text: &str| {
            let raw: Box<RawValue> = RawValue::from_string(text.into()).expect("JSON");
            read(Some((&*raw).into()), &open)
                .map(|taken| taken.iter().map(|(ask, _)| ask.get()).collect::<Vec<_>>())
                .map_err(|error| error.code)
        };
        assert_eq!(taken("{}"), Ok(Vec::new()));
        assert_eq!(taken(r#"{"12":{},"2":{},"x":{},"1":{},"1":{"b":1}}"#), Ok([12, 1].into()));
        assert_eq!(taken(r#"{"01":{},"+1":{}," 1":{},"":{}}"#), Ok(Vec::new()));
        for odd in ["[]", "7", "null", r#"{"1":null}"#, r#"{"x":7}"#, r#"{"1":[]}"#] {
            assert_eq!(taken(odd), Err(-32602), "{odd}");
        }
        assert!(read(None, &open).is_ok_and(|taken| taken.is_empty()));
    }
}
