//! Questions of jobs: put to the connections that wait for the outcome, asked by the answer of a call, and
//! answered.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use crate::identity::Identity;
use crate::ids::{AskId, CallId, ConnId, JobId, TaskId};
use crate::jobs::job::{Job, Purpose};
use crate::json::raw::Raw;
use crate::outgoing::call::{
    Answer, CallWanted, Caller, OutgoingRequest, PendingOutgoing, Refusal,
};
use crate::outgoing::calls::OutgoingMachine;
use crate::protocol::capabilities::PeerCapabilities;
use crate::server::inputs;
use crate::server::inputs::OpenQuestions;
use crate::tasks::questions;

impl OutgoingMachine<'_> {
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
                self.outgoing.cancel(self.outbox, self.timers, conn, call, reason);
            }
            let answer = Answer::Result((*response).to_owned());
            self.tell(Caller::Job { job: id, ask: *ask }, answer);
        }
    }

    /// Puts the questions of a task to the connections that wait for its outcome.
    pub(crate) fn offer_inputs(&mut self, task: TaskId) {
        if let Some(job) = self.tasks.get(task).and_then(|task| task.job) {
            self.put_questions(job, Answer::Refused);
        } else if self.tasks.is_shared() {
            questions::offer(self.outbox, (self.outgoing, self.timers), self.tasks, task);
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
            let wanted =
                self.outgoing.call(conn, call).is_none_or(|c| c.wanted() == CallWanted::Yes);
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
            self.outgoing.cancel(self.outbox, self.timers, conn, call, reason);
        }
        if sent.is_none() && task.is_none() {
            self.tell(caller, to_nobody(refusal.unwrap_or(Refusal::NoConnection)));
        }
    }

    /// A job asks the client of a call that makes no requests. Questions of one turn go
    /// out together, with the answer.
    pub(crate) fn ask_by_answer(
        &mut self,
        id: JobId,
        ask: AskId,
        request: OutgoingRequest,
        peer: PeerCapabilities,
    ) {
        let caller = Caller::Job { job: id, ask };
        let Some(job) = self.jobs.get(id) else { return };
        if !peer.answers(&request.method) {
            return self.refuse_call(caller, Refusal::NotDeclared);
        }
        if let Some(response) = given(job, &request, ask) {
            return self.deliver(caller, Answer::Result(response));
        }
        let waits = matches!(job.purpose(), Purpose::Retry(_)) || self.suspended.is_asking(id);
        if !waits && self.suspended_of(&job.owner) >= self.settings.limits.parked_max {
            return self.refuse_call(caller, Refusal::TooMany);
        }
        if let Some(job) = self.jobs.get_mut(id) {
            job.asks.insert(ask, PendingOutgoing::Waiting(request));
            if matches!(job.purpose(), Purpose::Answer(_)) {
                self.suspended.note_asking(id);
            }
            self.jobs.note_questions(id);
        }
    }

    /// How many calls of an identity are suspended or about to be.
    fn suspended_of(&self, owner: &Identity) -> usize {
        let asking = self.suspended.asking().filter_map(|id| self.jobs.get(id));
        self.suspended.iter().filter(|(_, call)| call.owner == *owner).count()
            + asking.filter(|job| job.owner == *owner).count()
    }
}

/// Response to a question that its call brought with it, by the key of the question.
fn given(job: &Job, request: &OutgoingRequest, ask: AskId) -> Option<Box<RawValue>> {
    let given = Raw::checked(job.progress.given.as_deref()?);
    let open = OpenQuestions::from([(request.key.clone()?, ask)]);
    let responses = inputs::read(Some(given), &open).ok()?;
    responses.first().map(|(_, response)| (*response).to_owned())
}
