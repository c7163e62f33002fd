//! The open questions in the record of a task that another engine runs, and the word that the work of a task
//! has ended.

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::collections::timer_queue::TimerQueue;
use crate::identity::Identity;
use crate::ids::{CallId, ConnId, TaskId};
use crate::jobs::job::Job;
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::outgoing::OutgoingRequests;
use crate::outgoing::call::{CallCause, CallFor, OutgoingRequest};
use crate::reason::StopReason;
use crate::tasks::durable::StoreWrite;
use crate::tasks::status::Status;
use crate::tasks::task::{Task, Tasks};
use crate::tool::StopStep;

/// A question in the record of a task.
#[derive(Deserialize)]
struct Question<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// The questions in a record, by their keys.
pub(super) fn read(asks: Option<&str>) -> BTreeMap<Box<str>, OutgoingRequest> {
    let asks: BTreeMap<Cow<'_, str>, Question<'_>> =
        asks.and_then(|asks| serde_json::from_str(asks).ok()).unwrap_or_default();
    let request = |(key, question): (Cow<'_, str>, Question<'_>)| {
        let Question { method, params } = question;
        let (method, params) = (method.into(), params.map(ToOwned::to_owned));
        let key: Box<str> = key.into();
        let name = Some(key.clone());
        (key, OutgoingRequest { method, params, answer_timeout: None, key: name, task: None })
    };
    asks.into_iter().map(request).collect()
}

/// Puts the questions of a task that another engine runs to connections that wait for it, each to the first
/// that can answer, and takes back those that have no need of an answer (TSK-30).
pub(crate) fn offer(
    outbox: &mut Outbox,
    (outgoing, timers): (&mut OutgoingRequests, &mut TimerQueue),
    tasks: &mut Tasks,
    id: TaskId,
) {
    let task = tasks.get(id).filter(|task| task.is_visiting());
    let asking = task.filter(|task| task.status() == Status::InputRequired);
    let asks = read(asking.and_then(Task::recorded_asks));
    let mut waiting: Vec<ConnId> = Vec::new();
    for (conn, _) in task.into_iter().flat_map(|task| task.aside.waiters.iter()) {
        if !waiting.contains(conn) {
            waiting.push(*conn);
        }
    }
    let of_task = tasks.offered.iter().filter(|((task, _), _)| *task == id);
    let over =
        of_task.filter(|((_, key), (conn, _))| !asks.contains_key(key) || !waiting.contains(conn));
    let over: Vec<_> = over.map(|(name, at)| (name.clone(), *at)).collect();
    for (name, (conn, call)) in over {
        tasks.offered.remove(&name);
        if outgoing.call(conn, call).is_some() {
            let reason = Some("somebody else has answered");
            outgoing.cancel(outbox, timers, conn, call, reason);
        }
    }
    for (key, request) in asks {
        let name = (id, key);
        if tasks.offered.contains_key(&name) {
            continue;
        }
        let cause = CallCause { task: Some(id), request: None };
        let whom = CallFor::Elsewhere(id);
        let sent = waiting.iter().find_map(|conn| {
            let sent = outgoing.send(outbox, timers, *conn, whom, &request, &cause);
            sent.ok().map(|call| (*conn, call))
        });
        tasks.offered.extend(sent.map(|at| (name, at)));
    }
}

/// Passes the answer of a peer on to the engine that runs the task. After an error the question stays open
/// for others.
pub(crate) fn pass_answer(
    tasks: &mut Tasks,
    at: (ConnId, CallId),
    (owner, task): (Identity, TaskId),
    answer: Result<Raw<'_>, Raw<'_>>,
) {
    let Ok(answer) = answer else { return };
    let of = tasks.offered.iter().find(|((of, _), place)| (*of, **place) == (task, at));
    let Some(((_, key), _)) = of else { return };
    let mut responses = Vec::new();
    Writer::new(&mut responses).raw("{").string(key).raw(":").raw(answer.get()).raw("}");
    let responses = String::from_utf8(responses).unwrap_or_default().into();
    tasks.news.push(StoreWrite::Input { task, owner, responses });
}

impl Tasks {
    /// Whether a question of a task was put to this connection by this request.
    pub(crate) fn has_offered(&self, id: TaskId, at: (ConnId, CallId)) -> bool {
        self.offered.iter().any(|((task, _), of)| (*task, *of) == (id, at))
    }

    /// The connection that was asked is gone.
    pub(crate) fn lose_offer(&mut self, id: TaskId, at: (ConnId, CallId)) {
        self.offered.retain(|(task, _), of| (*task, *of) != (id, at));
    }

    /// Whether the table is to be told of something that is no record.
    pub(crate) const fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Takes out the writes for the table that are no records.
    pub(super) fn take_news(&mut self) -> Vec<StoreWrite> {
        mem::take(&mut self.news)
    }

    /// Tells the table that nothing is left of the stopped work of a task, unless the end of the task is still
    /// to come and will say so.
    pub(crate) fn note_receipt(
        &mut self,
        job: &Job,
        why: StopReason,
        stop: Option<(StopStep, Duration)>,
    ) {
        let ended = |task: &TaskId| self.get(*task).is_none_or(|it| it.status().is_terminal());
        let Some(task) = job.task.filter(|task| self.is_shared() && ended(task)) else { return };
        let mut receipt = Vec::new();
        let mut json = Writer::new(&mut receipt);
        json.raw("{").member("why", why.as_str());
        if let Some((step, within)) = stop {
            json.raw(",").member("step", step.as_str());
            json.raw(",\"ms\":").display(within.as_millis());
        }
        json.raw("}");
        let receipt = String::from_utf8(receipt).unwrap_or_default().into();
        self.news.push(StoreWrite::Receipt { task, receipt });
    }
}
