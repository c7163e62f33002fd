//! Answers: each settles a request once, in the form of its revision, in its batch or alone.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;

use crate::action::{AuditEvent, RequestEnd, RequestOutcome};
use crate::ids::{ConnId, RequestId};
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::outbox::requests::{BatchId, Reply, Traced};
use crate::outbox::typed_result::{self, ResultType};
use crate::protocol::revision::{AfterCancel, Dialect, UnreadableId};
use crate::rpc::error::{ErrorObject, code, limit_error};
use crate::rpc::send_queue::{Handle, Tag};

impl Outbox {
    /// Answers a request with an error.
    pub(crate) fn fail(&mut self, mut reply: Reply, error: &ErrorObject) {
        self.counters.errors += 1;
        let outcome = RequestOutcome::Failed(Some(error.code));
        self.end_span(reply.conn, &reply.id, reply.dialect, reply.traced.take(), outcome);
        self.reply(ResultType::Complete, reply, |json, _| {
            json.raw(",\"error\":").error(error);
        });
    }

    /// Answers a request with a result of this type, where the revision has types: an object,
    /// without the members its revision wants of every result. `us` is the name and version of this
    /// server, where the revision wants it.
    pub(crate) fn answer_as(
        &mut self,
        kind: ResultType,
        mut reply: Reply,
        us: Option<Arc<[u8]>>,
        result: impl FnOnce(&mut Writer<'_>),
    ) {
        self.counters.answers += 1;
        let traced = reply.traced.take();
        self.end_span(reply.conn, &reply.id, reply.dialect, traced, RequestOutcome::Answered);
        self.reply(kind, reply, |json, reply| {
            json.raw(",\"result\":");
            match &us {
                None => result(json),
                Some(us) => typed_result::write_own(json, kind, reply, us, result),
            }
        });
    }

    #[cold]
    pub(crate) fn invalid_request(&mut self, reply: Reply, message: &'static str) {
        self.fail(reply, &ErrorObject::new(code::INVALID_REQUEST, message));
    }

    #[cold]
    pub(crate) fn unknown_method(&mut self, reply: Reply, method: &str) {
        let message = format!("there is no method {:?}", self.clean(method));
        self.fail(reply, &ErrorObject::new(code::METHOD_NOT_FOUND, message));
    }

    /// Answers that too many requests of the connection wait already.
    #[cold]
    pub(crate) fn refuse_inflight(&mut self, reply: Reply) {
        let max = self.settings.limits.inflight_max;
        let what = "requests wait for an answer: let some finish or cancel them";
        self.refuse(reply, "inflight_per_connection", max, what);
    }

    /// Answers that a limit is reached (TSK-36).
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        reply: Reply,
        limit: &'static str,
        max: usize,
        what: &'static str,
    ) {
        self.counters.refused += 1;
        if let Some(identity) = self.identity(reply.conn).cloned() {
            self.note(AuditEvent::Refused { conn: reply.conn, identity, limit });
        }
        let message = format!("limit reached: {limit} = {max}: {what}");
        self.fail(reply, &limit_error(limit, max, message));
    }

    /// Gives up the right to answer a request: it was cancelled (CAN-08).
    pub(crate) fn forget(&mut self, mut reply: Reply) {
        let traced = reply.traced.take();
        self.end_span(reply.conn, &reply.id, reply.dialect, traced, RequestOutcome::Cancelled);
        if let Some(batch) = reply.batch {
            self.settle_in_batch(reply.conn, batch, |_| {});
        }
    }

    /// Tells the host of the end of a request that no job worked on, if it records a span of it.
    #[inline]
    pub(crate) fn end_span(
        &mut self,
        conn: ConnId,
        id: &RequestId,
        dialect: &'static Dialect,
        traced: Option<Box<Traced>>,
        outcome: RequestOutcome,
    ) {
        let Some(traced) = traced else { return };
        let Traced { method, trace, asked } = *traced;
        self.note(AuditEvent::RequestEnded(Box::new(RequestEnd {
            conn,
            owner: self.identity_of(conn),
            method: self.clean(&method).into(),
            request: Some(id.clone()),
            dialect: Some(dialect),
            agent: None,
            trace,
            outcome,
            asked,
            stopped: None,
        })));
    }

    /// Answers a request; `body` writes everything behind the id.
    pub(crate) fn reply(
        &mut self,
        kind: ResultType,
        reply: Reply,
        body: impl FnOnce(&mut Writer<'_>, &Reply),
    ) {
        let write = |json: &mut Writer<'_>| {
            json.raw("{\"jsonrpc\":\"2.0\",\"id\":").id(&reply.id, reply.token());
            body(json, &reply);
            json.raw("}");
        };
        let tag = tag_of(kind, &reply);
        match reply.batch {
            None => self.send_bytes(reply.conn, tag, |bytes| write(&mut Writer::new(bytes))),
            Some(batch) => self.settle_in_batch(reply.conn, batch, |bytes| {
                write(&mut Writer::new(bytes));
                bytes.push(b',');
            }),
        }
    }

    /// An error for a request whose id could not be read (RPC-01, RPC-02).
    #[cold]
    pub(crate) fn refuse_unreadable(
        &mut self,
        conn: ConnId,
        error: &ErrorObject,
        batch: Option<BatchId>,
    ) {
        let Some(connection) = self.connections.get(&conn) else { return };
        let unreadable_id = connection.unreadable_id;
        self.counters.errors += 1;
        let write = |json: &mut Writer<'_>| {
            json.raw("{\"jsonrpc\":\"2.0\",");
            match unreadable_id {
                UnreadableId::Null => json.raw("\"id\":null,"),
                UnreadableId::Omitted => json,
            };
            json.raw("\"error\":").error(error).raw("}");
        };
        match batch {
            None => self.send(conn, write),
            Some(batch) => self.settle_in_batch(conn, batch, |bytes| {
                write(&mut Writer::new(bytes));
                bytes.push(b',');
            }),
        }
    }
}

/// Request and handle of an answer of this type.
fn tag_of(kind: ResultType, reply: &Reply) -> Tag<'_> {
    let handle = match kind {
        ResultType::Complete | ResultType::Ended | ResultType::Work(_) => None,
        ResultType::Task(key) => Some(Handle::Task(key)),
        ResultType::InputRequired(state) => Some(Handle::Call(state)),
    };
    let recall = match reply.dialect.after_cancel {
        AfterCancel::Silence | AfterCancel::Answer { .. } => false,
        AfterCancel::Recall => true,
    };
    Tag { request: Some(&reply.id), recall, handle: handle.filter(|_| recall) }
}
