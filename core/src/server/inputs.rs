//! Input as data: questions of a job, written into results and task objects, and their answers
//! (MOD-07, EXT-05).
//!
//! A question is known by its number, which its job never uses twice.

use alloc::borrow::{Cow, ToOwned as _};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::engine::Engine;
use crate::ids::{AskId, CallId, ConnId, JobId, TaskId};
use crate::jobs::Jobs;
use crate::jobs::job::{Job, Purpose};
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outgoing::call::{Answer, Caller, OutgoingRequest, PendingOutgoing, Refusal, Wanted};
use crate::protocol::capabilities::PeerCapabilities;
use crate::rpc::error::ErrorObject;

impl Engine {
    /// Hands a job the answer to its question.
    pub(crate) fn take_responses(&mut self, id: JobId, responses: &[(AskId, &RawValue)]) {
        for (ask, response) in responses {
            let asked = self.jobs.get(id).and_then(|job| job.asks.get(ask));
            let Some(asked) = asked else { continue };
            if let PendingOutgoing::Sent(conn, call) | PendingOutgoing::Offered(conn, call, _) =
                asked
            {
                let (conn, call) = (*conn, *call);
                let reason = Some("somebody else has answered");
                self.outgoing.cancel(&mut self.outbox, &mut self.timers, conn, call, reason);
            }
            let answer = Answer::Result((*response).to_owned());
            self.tell(Caller::Job { job: id, ask: *ask }, answer);
        }
    }

    /// Puts the questions of a task to the connections that wait for its outcome.
    pub(crate) fn offer_inputs(&mut self, task: TaskId) {
        if let Some(job) = self.tasks.get(task).and_then(|task| task.job) {
            self.put_questions(job, Answer::Refused);
        }
    }

    /// Sends each question of a job, unless a peer that wants the outcome has it, to the first
    /// of those peers that can answer it (TSK-30, ACP-05). Without such a peer a task waits, and
    /// a call is told so.
    pub(crate) fn put_questions(&mut self, id: JobId, to_nobody: fn(Refusal) -> Answer) {
        let Some(job) = self.jobs.get(id).filter(|job| job.needs_input()) else { return };
        let open: Vec<AskId> = job.questions().map(|(ask, _)| ask).collect();
        let listeners = self.listeners_of(job);
        for ask in open {
            self.put_question(id, ask, &listeners, to_nobody);
        }
    }

    /// Connections that wait for a job's outcome and can be asked by a request of ours, in order.
    fn listeners_of(&self, job: &Job) -> Vec<ConnId> {
        let mut listeners: Vec<ConnId> = match job.task.and_then(|task| self.tasks.get(task)) {
            // A request that waits for the task itself does not wait for its outcome yet.
            Some(task) if task.is_being_created() => Vec::new(),
            Some(task) => task.aside.waiters.iter().map(|(conn, _)| *conn).collect(),
            None if matches!(job.purpose(), Purpose::Answer(_)) => [job.conn].into(),
            None => Vec::new(),
        };
        // Many may wait on one connection, which is asked once.
        listeners.dedup();
        listeners
    }

    fn put_question(
        &mut self,
        id: JobId,
        ask: AskId,
        listeners: &[ConnId],
        to_nobody: fn(Refusal) -> Answer,
    ) {
        let Some(job) = self.jobs.get(id) else { return };
        let before = match job.asks.get(&ask) {
            Some(PendingOutgoing::Waiting(_)) => None,
            Some(PendingOutgoing::Offered(conn, call, _)) => Some((*conn, *call)),
            Some(PendingOutgoing::Sent(..)) | None => return,
        };
        let stays = |(conn, call): (ConnId, CallId)| {
            let wanted = self.outgoing.call(conn, call).is_none_or(|c| c.wanted() == Wanted::Yes);
            listeners.contains(&conn) || !wanted
        };
        if before.is_some_and(stays) {
            return;
        }
        let Some(job) = self.jobs.get_mut(id) else { return };
        let task = job.task;
        let Some(PendingOutgoing::Waiting(request) | PendingOutgoing::Offered(_, _, request)) =
            job.asks.remove(&ask)
        else {
            return;
        };
        let caller = Caller::Job { job: id, ask };
        // A repeated call may be asked before there is a task for certain (DUR-01).
        let related = task.filter(|task| self.tasks.is_visible(*task));
        let mut refusal = None;
        let sent = listeners.iter().find_map(|conn| {
            match self.send_call(*conn, caller, &request, related) {
                Ok(call) => Some((*conn, call)),
                Err(why) => {
                    refusal.get_or_insert(why);
                    None
                }
            }
        });
        let asked = match (sent, before) {
            (Some((conn, call)), _) => PendingOutgoing::Offered(conn, call, request),
            // The connection that was asked may still answer.
            (None, Some((conn, call))) if task.is_some() => {
                PendingOutgoing::Offered(conn, call, request)
            }
            (None, _) => PendingOutgoing::Waiting(request),
        };
        if let Some(job) = self.jobs.get_mut(id) {
            job.asks.insert(ask, asked);
        }
        if let Some((conn, call)) = before.filter(|_| sent.is_some() || task.is_none()) {
            let reason = Some("somebody else is asked");
            self.outgoing.cancel(&mut self.outbox, &mut self.timers, conn, call, reason);
        }
        if sent.is_none() && task.is_none() {
            self.tell(caller, to_nobody(refusal.unwrap_or(Refusal::NoConnection)));
        }
    }
}

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
