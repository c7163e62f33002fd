//! Input as data: what a job asks, written into results and task objects, and what a client sends
//! back (MOD-07, EXT-05).
//!
//! A question is known by its number, which its job never uses twice.

use alloc::borrow::{Cow, ToOwned as _};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Engine;
use crate::call::{Answer, Ask, Asked, Caller, PeerCapabilities};
use crate::id::{AskId, ConnId, JobId, TaskId};
use crate::job::Job;
use crate::json::Raw;
use crate::message::ErrorObject;
use crate::task::Change;
use crate::write::Writer;

impl Engine {
    /// The questions of a job that are open.
    pub(super) fn open_questions(&self, job: Option<JobId>) -> BTreeSet<AskId> {
        let job = job.and_then(|id| self.jobs.get(&id));
        job.map(|job| job.questions().map(|(ask, _)| ask).collect()).unwrap_or_default()
    }

    /// Tells a job what it asked.
    pub(super) fn take_responses(&mut self, id: JobId, responses: &[(AskId, &RawValue)]) {
        for (ask, response) in responses {
            let asked = self.jobs.get(&id).and_then(|job| job.asks.get(ask));
            let Some(asked) = asked else { continue };
            if let Asked::Sent(conn, call) | Asked::Offered(conn, call, _) = asked {
                let (conn, call) = (*conn, *call);
                self.cancel_call(conn, call, Some("somebody else has answered"));
            }
            let answer = Answer::Result((*response).to_owned());
            self.tell(Caller::Job { job: id, ask: *ask }, answer);
        }
    }

    /// Sends what a task asks to whoever waits for its result and can answer (TSK-30).
    pub(super) fn offer_inputs(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.get(task) else { return };
        let Some((id, job)) = entry.job.and_then(|id| Some((id, self.jobs.get(&id)?))) else {
            return;
        };
        if job.asks.is_empty() {
            return;
        }
        let waiters: Vec<ConnId> = entry.aside.waiters.iter().map(|(conn, _)| *conn).collect();
        let waiting: Vec<AskId> = job
            .asks
            .iter()
            .filter(|(_, asked)| matches!(asked, Asked::Waiting(_)))
            .map(|(ask, _)| *ask)
            .collect();
        for ask in waiting {
            let Some(job) = self.jobs.get_mut(&id) else { return };
            let Some(Asked::Waiting(request)) = job.asks.remove(&ask) else { continue };
            let caller = Caller::Job { job: id, ask };
            let sent = waiters.iter().find_map(|conn| {
                let call = self.send_call(*conn, caller, &request, Some(task)).ok()?;
                Some((*conn, call))
            });
            let asked = match sent {
                Some((conn, call)) => Asked::Offered(conn, call, request),
                None => Asked::Waiting(request),
            };
            if let Some(job) = self.jobs.get_mut(&id) {
                job.asks.insert(ask, asked);
            }
        }
    }

    /// Moves a task between working and input_required, and says so (TSK-28, TSK-18); whether that
    /// changed anything.
    pub(super) fn change_task(&mut self, id: TaskId, change: Change) -> bool {
        let Some(task) = self.tasks.change(id, change, self.now.wall) else { return false };
        let creator = task.creator;
        self.announce(creator, id);
        true
    }
}

/// Writes an object of what a job asks, as far as the client can answer it.
pub(super) fn write(json: &mut Writer<'_>, job: &Job, peer: &PeerCapabilities) {
    let answers = |question: &Ask| question.task.is_none() && peer.answers(&question.method);
    let wanted = job.questions().filter(|(_, question)| answers(question));
    json.raw("{");
    for (position, (ask, question)) in wanted.enumerate() {
        json.raw(if position == 0 { "\"" } else { ",\"" }).display(ask.get()).raw("\":{");
        json.member("method", &question.method);
        if let Some(params) = &question.params {
            json.raw(",\"params\":").raw(params.get());
        }
        json.raw("}");
    }
    json.raw("}");
}

/// Reads `inputResponses` as far as they answer what is open. What is not, or no longer, is
/// ignored (EXT-05).
///
/// # Errors
/// `-32602` when it is no object of objects.
pub(super) fn read<'a>(
    responses: Option<Raw<'a>>,
    open: &BTreeSet<AskId>,
) -> Result<Vec<(AskId, &'a RawValue)>, ErrorObject> {
    let Some(responses) = responses else { return Ok(Vec::new()) };
    let mut reader = serde_json::Deserializer::from_str(responses.get());
    reader.deserialize_map(Responses { open }).map_err(|_| {
        ErrorObject::invalid_params("params.inputResponses must be an object of results")
    })
}

struct Responses<'o> {
    open: &'o BTreeSet<AskId>,
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
            let ask = key.parse().ok().map(AskId::new);
            let ask = ask.filter(|ask| self.open.contains(ask) && format!("{}", ask.get()) == key);
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
    use alloc::boxed::Box;

    /// EXT-05: what is open is taken once, whatever else there is; what is no result is refused.
    #[test]
    fn responses() {
        let open = BTreeSet::from([AskId::new(1), AskId::new(12)]);
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
