//! Outgoing requests on the wire: sent if the rules allow it, cancelled in the dialect of the peer.

use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use crate::acp::protocol;
use crate::client::session::{label_of, permitted};
use crate::collections::timer_queue::{Timer, TimerQueue};
use crate::connection::{ConnectionEnd, SessionPhase};
use crate::ids::{CallId, ConnId};
use crate::json::meta::{RELATED_TASK, related_task, write_with_meta};
use crate::outbox::Outbox;
use crate::outgoing::OutgoingRequests;
use crate::outgoing::call::{
    AskTask, CallCause, CallFor, CallWanted, Caller, CancelEffect, OutgoingCall, OutgoingRequest,
    Refusal,
};
use crate::outgoing::remote_task::about;
use crate::protocol::revision::{AfterCancel, Methods};
use crate::rpc::send_queue::Tag;

impl OutgoingRequests {
    /// Sends an outgoing request, if the rules allow it.
    pub(crate) fn send(
        &mut self,
        outbox: &mut Outbox,
        timers: &mut TimerQueue,
        conn: ConnId,
        whom: CallFor,
        ask: &OutgoingRequest,
        cause: &CallCause,
    ) -> Result<CallId, Refusal> {
        let limits = &outbox.settings().limits;
        let connection = outbox.connection(conn).ok_or(Refusal::NoConnection)?;
        match (connection.ending, connection.phase) {
            // A half-closed peer cannot answer.
            (ConnectionEnd::Finished(_) | ConnectionEnd::Closing(_), _) => {
                return Err(Refusal::NoConnection);
            }
            (ConnectionEnd::Open, SessionPhase::Fresh) => return Err(Refusal::NotInitialized),
            (ConnectionEnd::Open, SessionPhase::Ready) => {}
        }
        match connection.dialect.methods {
            Methods::Tools => permitted(connection, ask)?,
            Methods::Services if ask.task.is_some() => return Err(Refusal::NoTasks),
            Methods::Services => {}
        }
        let (calls, tasks) = self.counts(conn);
        let is_full =
            calls >= limits.calls_max || (ask.task.is_some() && tasks >= limits.remote_tasks_max);
        if is_full {
            return Err(Refusal::TooMany);
        }
        Ok(self.place(outbox, timers, conn, whom, ask, cause))
    }

    /// Sends an outgoing request that has passed the checks.
    pub(crate) fn place(
        &mut self,
        outbox: &mut Outbox,
        timers: &mut TimerQueue,
        conn: ConnId,
        whom: CallFor,
        ask: &OutgoingRequest,
        cause: &CallCause,
    ) -> CallId {
        let id = self.next_id();
        let label = (&*ask.method == "tools/call").then(|| label_of(ask)).flatten();
        let declares = protocol::begins(&ask.method, ask.params.as_deref().map(RawValue::get));
        let cap = ask.answer_timeout.map(|answer_timeout| outbox.now() + answer_timeout.cap);
        let mut call = OutgoingCall::new(whom, ask, (label, declares), cap);
        if let Some(answer_timeout) = ask.answer_timeout {
            let at = outbox.now() + answer_timeout.timeout.min(answer_timeout.cap);
            timers.arm(&mut call.timer, Timer::Call(conn, id), at);
        }
        self.insert(conn, call);
        write_call(outbox, conn, id, ask, cause);
        id
    }

    /// Effect of cancelling this outgoing request.
    pub(crate) fn cancel_effect(&self, outbox: &Outbox, conn: ConnId, id: CallId) -> CancelEffect {
        let Some(connection) = outbox.connection(conn) else {
            return CancelEffect::Refuse(Refusal::NoConnection);
        };
        if self.remote(conn, id).is_some() {
            return CancelEffect::Forget;
        }
        let call = self.call(conn, id).filter(|call| call.wanted() == CallWanted::Yes);
        let Some(call) = call else { return CancelEffect::Refuse(Refusal::NotInProgress) };
        let dialect = connection.dialect;
        if dialect.protected.contains(&&*call.method) {
            return CancelEffect::Refuse(Refusal::Protected);
        }
        match dialect.after_cancel {
            AfterCancel::Silence | AfterCancel::Recall => CancelEffect::Forget,
            AfterCancel::Answer { .. } => {
                match connection.acp.is_some_and(|party| party.may_cancel(dialect)) {
                    true => CancelEffect::Await,
                    false => CancelEffect::Refuse(Refusal::CancelNotDeclared),
                }
            }
        }
    }

    /// Cancels a request that its peer answers nevertheless, and awaits the answer for a while
    /// (ACP-03).
    pub(crate) fn await_cancelled(
        &mut self,
        outbox: &mut Outbox,
        timers: &mut TimerQueue,
        (conn, id): (ConnId, CallId),
        wanted: CallWanted,
        reason: Option<&str>,
    ) {
        let at = outbox.now() + outbox.settings().limits.cancelled_wait;
        let Some(timer) = self.note_cancelled(conn, id, wanted) else { return };
        timers.arm(timer, Timer::Call(conn, id), at);
        outbox.write_cancel(conn, id, reason);
    }

    /// True for a task whose peer does not support `tasks/cancel`.
    pub(super) fn cannot_cancel_task(&self, outbox: &Outbox, conn: ConnId, id: CallId) -> bool {
        let Some(connection) = outbox.connection(conn) else { return false };
        let with_task = self.remote(conn, id).is_some()
            || self.call(conn, id).is_some_and(|call| call.with_task);
        with_task && !connection.peer.tasks.cancel
    }

    /// Removes a request and tells its peer, unless that is impossible or done. Returns the caller.
    pub(crate) fn cancel(
        &mut self,
        outbox: &mut Outbox,
        timers: &mut TimerQueue,
        conn: ConnId,
        id: CallId,
        reason: Option<&str>,
    ) -> Option<Caller> {
        let way = self.cancel_effect(outbox, conn, id);
        if self.remote(conn, id).is_some() {
            let remote = self.give_up_remote(outbox, timers, conn, id)?;
            self.cancel_task(outbox, timers, conn, &remote.id);
            return Some(remote.caller);
        }
        // CAN-05: the peer may have created a task already, whose id is not known yet.
        if let Some((caller, timer)) = self.cancel_before_task_id(conn, id) {
            timers.disarm(timer, Timer::Call(conn, id));
            return Some(caller);
        }
        let elsewhere = |call: &OutgoingCall| matches!(call.receiver(), CallFor::Elsewhere(_));
        let is_elsewhere = self.call(conn, id).is_some_and(elsewhere);
        let caller = self.end(timers, conn, id);
        if caller.is_none() && !is_elsewhere {
            return None;
        }
        match way {
            CancelEffect::Forget | CancelEffect::Await => {
                outbox.write_cancel(conn, id, reason);
            }
            CancelEffect::Refuse(_) => {}
        }
        caller
    }

    /// Removes a request from its connection's table. Returns its caller.
    pub(super) fn end(
        &mut self,
        timers: &mut TimerQueue,
        conn: ConnId,
        id: CallId,
    ) -> Option<Caller> {
        let mut call = self.take(conn, id)?;
        timers.disarm(&mut call.timer, Timer::Call(conn, id));
        call.receiver().caller()
    }

    /// Cancels a task at a peer, if the peer declared that (CAN-05, TSK-02).
    pub(super) fn cancel_task(
        &mut self,
        outbox: &mut Outbox,
        timers: &mut TimerQueue,
        conn: ConnId,
        task: &str,
    ) {
        let Some(connection) = outbox.connection(conn) else { return };
        if connection.peer.tasks.cancel && connection.ending == ConnectionEnd::Open {
            let request = about("tasks/cancel", task);
            self.place(outbox, timers, conn, CallFor::Cancel, &request, &CallCause::default());
        }
    }
}

fn write_call(
    outbox: &mut Outbox,
    conn: ConnId,
    id: CallId,
    ask: &OutgoingRequest,
    cause: &CallCause,
) {
    let number = format!("{}", id.get());
    let related = cause.task.map(related_task);
    let mut meta: Vec<(&str, &[u8])> = Vec::new();
    if let Some(related) = &related {
        meta.push((RELATED_TASK, related));
    }
    let progress =
        ask.answer_timeout.is_some_and(|answer_timeout| answer_timeout.extend_on_progress);
    if progress && outbox.dialect(conn).methods == Methods::Tools {
        meta.push(("progressToken", number.as_bytes()));
    }
    let tag = Tag::of(cause.request.as_ref());
    outbox.send_for(conn, tag, |json| {
        json.raw("{\"jsonrpc\":\"2.0\",\"id\":").raw(&number).raw(",");
        json.member("method", &ask.method);
        match (&ask.params, &ask.task, meta.is_empty()) {
            (None, None, true) => {}
            (params, task, _) => {
                let params = params.as_ref().map_or("{}", |params| params.get());
                let params = with_task(params, *task);
                json.raw(",\"params\":");
                write_with_meta(json, &params, &meta);
            }
        }
        json.raw("}");
    });
}

/// Adds `task` to the params (TSK-02: only for peers that support it).
fn with_task(params: &str, task: Option<AskTask>) -> Cow<'_, str> {
    let (Some(task), Some(rest)) = (task, params.strip_prefix('{')) else {
        return Cow::Borrowed(params);
    };
    let ttl = task.ttl.map_or_else(Default::default, |ttl| format!("\"ttl\":{}", ttl.as_millis()));
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    Cow::Owned(format!("{{\"task\":{{{ttl}}}{comma}{rest}"))
}
