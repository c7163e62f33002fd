//! Follows tasks at peers, from the answer that creates a task to the answer that ends it.

use core::time::Duration;

use crate::action::AuditEvent;
use crate::collections::timer_queue::{Timer, TimerQueue};
use crate::connection::ConnectionEnd;
use crate::ids::{CallId, ConnId};
use crate::json::raw::Raw;
use crate::outbox::Outbox;
use crate::outgoing::OutgoingRequests;
use crate::outgoing::call::{Answer, CallCause, CallFor, Caller, OutgoingCall};
use crate::outgoing::calls::OutgoingMachine;
use crate::outgoing::remote_task::{
    RemoteState, RemoteTask, StatusReport, about, read_created, read_put_off, read_report,
    read_too_early,
};
use crate::rpc::params::Params;
use crate::tasks::status::Status;
use crate::time::Instant;

/// The caller of a request, and the answer that it gets.
pub(crate) type ToldCaller = (Caller, Answer);

impl OutgoingMachine<'_> {
    /// Handles the answer to a request for a task. Its timer is still armed.
    pub(crate) fn on_task_call_answered(
        &mut self,
        conn: ConnId,
        id: CallId,
        mut call: OutgoingCall,
        outcome: Result<Raw<'_>, Raw<'_>>,
    ) -> Option<ToldCaller> {
        if let (CallFor::Relayed(job), Ok(result)) = (call.receiver(), outcome)
            && let Some(caller) = self.upstreams.caller_of_relayed(job)
            && let Ok(Some(report)) = read_created(result)
        {
            self.follow(conn, id, call, caller, report);
            self.gateway().on_relayed_task(conn, job);
            return None;
        }
        let answer = match outcome.map(|result| (result, read_created(result))) {
            Ok((_, Ok(Some(report)))) => match call.receiver() {
                CallFor::Caller(caller) => {
                    self.follow(conn, id, call, caller, report);
                    return None;
                }
                // CAN-05: it was cancelled before it had an id.
                CallFor::NoReceiver
                | CallFor::Poll(_)
                | CallFor::Fetch(_)
                | CallFor::Cancel
                | CallFor::Upstream(_)
                | CallFor::Question
                | CallFor::Elsewhere(_)
                | CallFor::RelayedCancel(_)
                | CallFor::RelayedPoll(_)
                | CallFor::Relayed(_) => {
                    note_remote(self.outbox, conn, &report.id, &call, RemoteState::GivenUp);
                    self.cancel_remote_task(conn, &report.id);
                    return None;
                }
            },
            Ok((result, Ok(None))) => Answer::Result(result.to_value()),
            Ok((_, Err(what))) => Answer::Unusable(what),
            Err(error) => Answer::Error(error.to_value()),
        };
        self.timers.disarm(&mut call.timer, Timer::Call(conn, id));
        match call.receiver() {
            CallFor::Caller(caller) => return Some((caller, answer)),
            CallFor::Relayed(job) => {
                self.gateway().on_relayed_task_answer(job, answer);
            }
            CallFor::NoReceiver
            | CallFor::Poll(_)
            | CallFor::Fetch(_)
            | CallFor::Cancel
            | CallFor::Upstream(_)
            | CallFor::Question
            | CallFor::Elsewhere(_)
            | CallFor::RelayedCancel(_)
            | CallFor::RelayedPoll(_) => {
                self.outbox.counters_mut().late_responses += 1;
            }
        }
        None
    }

    fn follow(
        &mut self,
        conn: ConnId,
        id: CallId,
        call: OutgoingCall,
        caller: Caller,
        report: StatusReport,
    ) {
        note_remote(self.outbox, conn, &report.id, &call, RemoteState::Is(report.status));
        let remote = RemoteTask {
            call,
            caller,
            id: report.id.clone(),
            status: report.status,
            interval: report.interval,
            poll_timer: None,
            poll: None,
            fetch: None,
        };
        self.outgoing.follow(conn, id, remote);
        self.proceed(conn, id, self.now.at + report.interval);
    }

    /// Continues after a report. Fetches the result of an ended task, and of one that needs input:
    /// the peer can ask only while `tasks/result` waits (TSK-30). Else arms the next poll.
    fn proceed(&mut self, conn: ConnId, id: CallId, next: Instant) {
        let Some(remote) = self.outgoing.remote_mut(conn, id) else { return };
        if remote.fetch.is_some() {
            return;
        }
        match remote.status {
            Status::Working => self.timers.arm(&mut remote.poll_timer, Timer::Poll(conn, id), next),
            Status::InputRequired | Status::Completed | Status::Failed | Status::Cancelled => {
                self.fetch(conn, id);
            }
        }
    }

    fn fetch(&mut self, conn: ConnId, id: CallId) {
        let fetch = self.ask_about(conn, id, CallFor::Fetch(id), "tasks/result");
        let Some(remote) = self.outgoing.remote_mut(conn, id) else { return };
        remote.fetch = fetch;
        self.timers.disarm(&mut remote.poll_timer, Timer::Poll(conn, id));
    }

    /// The poll timer fired (TSK-13).
    pub(crate) fn on_poll_timer(&mut self, conn: ConnId, id: CallId) {
        let Some(remote) = self.outgoing.remote_mut(conn, id) else { return };
        remote.poll_timer = None;
        let poll = self.ask_about(conn, id, CallFor::Poll(id), "tasks/get");
        if let Some(remote) = self.outgoing.remote_mut(conn, id) {
            remote.poll = poll;
        }
    }

    /// Sends a request about a remote task; nothing if no answer can come any more.
    fn ask_about(
        &mut self,
        conn: ConnId,
        id: CallId,
        whom: CallFor,
        method: &str,
    ) -> Option<CallId> {
        let connection = self.outbox.connection(conn)?;
        let remote = self.outgoing.remote(conn, id)?;
        if connection.ending != ConnectionEnd::Open {
            return None;
        }
        let request = about(method, &remote.id);
        let (outbox, timers) = (&mut *self.outbox, &mut *self.timers);
        Some(self.outgoing.place(outbox, timers, conn, whom, &request, &CallCause::default()))
    }

    /// Handles the peer's status of a task.
    pub(crate) fn on_polled(
        &mut self,
        conn: ConnId,
        id: CallId,
        outcome: Result<Raw<'_>, Raw<'_>>,
    ) -> Option<ToldCaller> {
        let remote = self.outgoing.remote_mut(conn, id)?;
        remote.poll = None;
        // `tasks/result` is under way; its answer decides.
        let fetching = remote.fetch.is_some();
        let answer = match outcome.map(|result| read_report(result.get())) {
            Ok(Ok(report)) if report.id == remote.id => {
                remote.interval = report.interval;
                self.note_status(conn, id, report.status);
                self.proceed(conn, id, self.now.at + report.interval);
                return None;
            }
            Ok(Ok(_)) => Answer::Unusable("the peer told of another task than it was asked about"),
            Ok(Err(what)) => Answer::Unusable(what),
            Err(error) => match read_put_off(error) {
                // A temporary error: neither a status nor an unknown task. The caller's timeout
                // bounds the number of polls.
                Some(wait) => {
                    self.put_off(conn, id, wait);
                    return None;
                }
                None => Answer::Error(error.to_value()),
            },
        };
        if fetching {
            return None;
        }
        // An unknown task needs no cancel; one with an unreadable status may still run.
        let left = matches!(answer, Answer::Unusable(_)).then(|| remote.id.clone());
        let told = self.end_remote(conn, id, RemoteState::Unknown, answer);
        if let Some(task) = left {
            self.cancel_remote_task(conn, &task);
        }
        told
    }

    /// Records a change of state.
    fn note_status(&mut self, conn: ConnId, id: CallId, status: Status) {
        let Some(remote) = self.outgoing.remote_mut(conn, id) else { return };
        if remote.status != status {
            remote.status = status;
            let state = RemoteState::Is(status);
            note_remote(self.outbox, conn, &remote.id, &remote.call, state);
        }
    }

    /// Handles the answer to `tasks/result`: the outcome of the request, or "too early", after
    /// which polling continues.
    pub(crate) fn on_fetched(
        &mut self,
        conn: ConnId,
        id: CallId,
        outcome: Result<Raw<'_>, Raw<'_>>,
    ) -> Option<ToldCaller> {
        let remote = self.outgoing.remote_mut(conn, id)?;
        remote.fetch = None;
        let answer = match outcome {
            Ok(result) => Answer::Result(result.to_value()),
            Err(error) => match read_too_early(error) {
                Some(wait) => {
                    self.put_off(conn, id, wait);
                    return None;
                }
                None => Answer::Error(error.to_value()),
            },
        };
        self.end_remote(conn, id, RemoteState::Answered, answer)
    }

    /// Delays the next poll after "too early". A request under way decides instead.
    fn put_off(&mut self, conn: ConnId, id: CallId, wait: Duration) {
        let Some(remote) = self.outgoing.remote_mut(conn, id) else { return };
        if remote.poll.is_none() && remote.fetch.is_none() {
            let next = self.now.at + remote.interval.max(wait);
            self.timers.arm(&mut remote.poll_timer, Timer::Poll(conn, id), next);
        }
    }

    /// TSK-13: `notifications/tasks/status` is a hint and decides nothing; a hint of a result
    /// triggers the next poll at once.
    pub(crate) fn on_status_hint(&mut self, conn: ConnId, params: Option<&Params<'_>>) {
        let Some(Ok(report)) = params.map(|params| read_report(params.get())) else { return };
        if report.status == Status::Working {
            return;
        }
        let Some(peer) = self.outgoing.on(conn) else { return };
        let hinted = peer.remote_tasks().find(|(_, remote)| remote.id == report.id);
        if let Some((id, RemoteTask { fetch: None, .. })) = hinted {
            self.fetch(conn, *id);
        }
    }

    fn end_remote(
        &mut self,
        conn: ConnId,
        id: CallId,
        state: RemoteState,
        answer: Answer,
    ) -> Option<ToldCaller> {
        let (outbox, timers) = (&mut *self.outbox, &mut *self.timers);
        let remote = self.outgoing.end_remote(outbox, timers, conn, id, state)?;
        Some((remote.caller, answer))
    }

    fn cancel_remote_task(&mut self, conn: ConnId, task: &str) {
        self.outgoing.cancel_task(self.outbox, self.timers, conn, task);
    }

    /// The connection ended: the end of the task stays unknown. Returns the request, to be lost
    /// like any other.
    pub(crate) fn lose_remote(
        &mut self,
        conn: ConnId,
        id: CallId,
        mut remote: RemoteTask,
    ) -> (CallId, OutgoingCall) {
        note_remote(self.outbox, conn, &remote.id, &remote.call, RemoteState::Lost);
        disarm_remote(self.timers, conn, id, &mut remote);
        (id, remote.call)
    }
}

impl OutgoingRequests {
    /// Forgets a remote task with its timers and the requests about it, and notes its end.
    fn end_remote(
        &mut self,
        outbox: &mut Outbox,
        timers: &mut TimerQueue,
        conn: ConnId,
        id: CallId,
        state: RemoteState,
    ) -> Option<RemoteTask> {
        let mut remote = self.take_remote(conn, id)?;
        note_remote(outbox, conn, &remote.id, &remote.call, state);
        disarm_remote(timers, conn, id, &mut remote);
        Some(remote)
    }

    /// Follows a task no longer; the caller cancels it.
    pub(crate) fn give_up_remote(
        &mut self,
        outbox: &mut Outbox,
        timers: &mut TimerQueue,
        conn: ConnId,
        id: CallId,
    ) -> Option<RemoteTask> {
        self.end_remote(outbox, timers, conn, id, RemoteState::GivenUp)
    }
}

fn disarm_remote(timers: &mut TimerQueue, conn: ConnId, id: CallId, remote: &mut RemoteTask) {
    timers.disarm(&mut remote.call.timer, Timer::Call(conn, id));
    timers.disarm(&mut remote.poll_timer, Timer::Poll(conn, id));
}

fn note_remote(
    outbox: &mut Outbox,
    conn: ConnId,
    task: &str,
    call: &OutgoingCall,
    state: RemoteState,
) {
    let note = AuditEvent::RemoteTask {
        conn,
        task: outbox.clean(task),
        method: call.method.clone(),
        label: call.label.as_deref().map(|label| outbox.clean(label)),
        state,
    };
    outbox.note(note);
}
