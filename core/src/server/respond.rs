//! Answering: a request is answered once, in the form of its revision, in its batch or alone.

use crate::server::typed_result::ResultType;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::action::Action;
use crate::connection::{Connection, Ending};
use crate::engine::Engine;
use crate::ids::ConnId;
use crate::json::raw::Json;
use crate::json::writer::Writer;
use crate::protocol::revision::{AfterCancel, Results, UnreadableId};
use crate::reason::CloseReason;
use crate::rpc::error::ErrorObject;
use crate::rpc::result::ResultText;
use crate::rpc::send_queue::{Handle, SendQueue, Tag, without_break};
use crate::server::requests::{BatchId, Reply};
use crate::server::typed_result;
use crate::tasks::durable::TaskOutcome;
use crate::time::Instant;
use crate::upstream::inputs::asks_for_input;

impl Engine {
    /// Answers a request with a result: an object, without the members its revision wants of every
    /// result.
    pub(crate) fn answer(&mut self, reply: Reply, result: impl FnOnce(&mut Writer<'_>)) {
        self.answer_as(ResultType::Complete, reply, result);
    }

    /// Answers a request with a result of this type, where the revision has types.
    pub(crate) fn answer_as(
        &mut self,
        kind: ResultType,
        reply: Reply,
        result: impl FnOnce(&mut Writer<'_>),
    ) {
        self.counters.answers += 1;
        let us = self.server_info_where_due(&reply);
        self.reply(kind, reply, |json, reply| {
            json.raw(",\"result\":");
            match &us {
                None => result(json),
                Some(us) => typed_result::write_own(json, kind, reply, us, result),
            }
        });
    }

    /// Answers a request with the outcome of its call.
    pub(crate) fn answer_with(&mut self, reply: Reply, outcome: TaskOutcome) {
        match outcome {
            Ok(result) => self.answer_with_tool_result(reply, &result),
            Err(error) => self.fail(reply, &error),
        }
    }

    /// Answers a request with the result of its tool: the JSON text of an object.
    pub(crate) fn answer_with_tool_result(&mut self, reply: Reply, value: &Json) {
        self.counters.answers += 1;
        let us = self.server_info_where_due(&reply);
        self.reply(ResultType::Complete, reply, |json, _| {
            json.raw(",\"result\":");
            match &us {
                None => _ = json.raw(value.get()),
                Some(us) => typed_result::write_tools(json, value, us),
            }
        });
    }

    /// Answers a request with the result of an upstream, which may ask for input (UPS-12).
    pub(crate) fn answer_with_relayed(&mut self, reply: Reply, value: Json) {
        // A client of a revision without typed results gets every result as it is.
        let is_typed = reply.dialect.results == Results::Typed;
        if is_typed && !value.is_bare() && asks_for_input(&ResultText::of(value.get())) {
            return self.answer_with_question(reply, &value);
        }
        if reply.batch.is_some() || (is_typed && !value.is_bare()) {
            return self.answer_with_tool_result(reply, &value);
        }
        match value.into_frame() {
            Ok((frame, start)) => self.answer_in_frame(reply, frame, start),
            Err(value) => self.answer_with_tool_result(reply, &value),
        }
    }

    /// Answers a request with a result in the buffer that it came in, from `start` on, as
    /// [`Engine::answer_with_tool_result`] would: without a copy.
    fn answer_in_frame(&mut self, reply: Reply, mut frame: Vec<u8>, mut start: usize) {
        self.counters.answers += 1;
        let mut head = Vec::new();
        let mut json = Writer::new(&mut head);
        json.raw("{\"jsonrpc\":\"2.0\",\"id\":").id(&reply.id, reply.token.as_deref());
        json.raw(",\"result\":");
        if let Some(us) = self.server_info_where_due(&reply) {
            start = typed_result::wrap_bare(&mut json, &mut frame, start, &us);
        }
        frame.push(b'}');
        match start.checked_sub(head.len()).and_then(|room| frame.get_mut(room..start)) {
            Some(room) => {
                room.copy_from_slice(&head);
                start -= head.len();
            }
            None => {
                frame.splice(..start, head);
                start = 0;
            }
        }
        let tag = tag_of(ResultType::Complete, &reply);
        self.put(reply.conn, tag, |queue, tag| queue.moved_frame(tag, frame, start));
    }

    /// Answers a request with the question of an upstream.
    fn answer_with_question(&mut self, reply: Reply, value: &Json) {
        self.counters.answers += 1;
        let us = self.server_info_where_due(&reply);
        self.reply(ResultType::Complete, reply, |json, _| {
            json.raw(",\"result\":");
            match &us {
                None => _ = json.raw(value.get()),
                Some(us) => typed_result::write_input_required(json, value, us),
            }
        });
    }

    /// Name and version of this server, where the revision wants them in results (MOD-02).
    fn server_info_where_due(&self, reply: &Reply) -> Option<Arc<[u8]>> {
        match reply.dialect.results {
            Results::Bare => None,
            Results::Typed => Some(match self.shown_server_info(reply.conn) {
                // Its line may contain carriage returns between values.
                Some(info) => info.bytes().map(without_break).collect(),
                None => Arc::clone(&self.server_info),
            }),
        }
    }

    /// Answers a request with an error.
    pub(crate) fn fail(&mut self, reply: Reply, error: &ErrorObject) {
        self.counters.errors += 1;
        self.reply(ResultType::Complete, reply, |json, _| {
            json.raw(",\"error\":").error(error);
        });
    }

    /// Gives up the right to answer a request: it was cancelled (CAN-08).
    pub(crate) fn forget(&mut self, reply: Reply) {
        if let Some(batch) = reply.batch {
            self.settle_in_batch(reply.conn, batch, |_| {});
        }
    }

    pub(crate) fn reply(
        &mut self,
        kind: ResultType,
        reply: Reply,
        body: impl FnOnce(&mut Writer<'_>, &Reply),
    ) {
        let write = |json: &mut Writer<'_>| {
            json.raw("{\"jsonrpc\":\"2.0\",\"id\":").id(&reply.id, reply.token.as_deref());
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

    /// One message of a batch is settled; the last one sends the answers.
    #[inline(never)]
    pub(crate) fn settle_in_batch(
        &mut self,
        conn: ConnId,
        batch: BatchId,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let Some(aside) = connection.aside.some() else { return };
        let Some(answers) = aside.batches.get_mut(&batch) else { return };
        let before = answers.bytes.len();
        write(&mut answers.bytes);
        answers.open -= 1;
        aside.collected.grow(answers.bytes.len() - before);
        if answers.open > 0 {
            // Answers that wait for their batch wait for the peer as much as those in the send
            // queue.
            let mark = self.settings.limits.write_buffer_bytes;
            let max = most_waiting(&connection.send_queue, mark, self.now.at);
            if connection.aside.collected.bytes() + connection.send_queue.len() > max {
                self.close(conn, CloseReason::Flooded);
            }
            return;
        }
        let answers = aside.batches.remove(&batch).map_or(Vec::new(), |batch| batch.bytes);
        aside.collected.shrink(answers.len());
        if let Some(list) = answers.strip_suffix(b",") {
            self.send_bytes(conn, Tag::NONE, |bytes| {
                bytes.push(b'[');
                bytes.extend_from_slice(list);
                bytes.push(b']');
            });
        }
    }

    pub(crate) fn send(&mut self, conn: ConnId, write: impl FnOnce(&mut Writer<'_>)) {
        self.send_for(conn, Tag::NONE, write);
    }

    /// Sends a message that belongs to a request of the peer.
    pub(crate) fn send_for(
        &mut self,
        conn: ConnId,
        tag: Tag<'_>,
        write: impl FnOnce(&mut Writer<'_>),
    ) {
        self.send_bytes(conn, tag, |bytes| write(&mut Writer::new(bytes)));
    }

    pub(crate) fn send_bytes(
        &mut self,
        conn: ConnId,
        tag: Tag<'_>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.put(conn, tag, |queue, tag| queue.frame(tag, write));
    }

    /// Has `put` append one frame to the send queue of a peer that keeps up.
    fn put(&mut self, conn: ConnId, tag: Tag<'_>, put: impl FnOnce(&mut SendQueue, Tag<'_>)) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if matches!(connection.ending, Ending::Closing(_)) {
            return connection.lose_handle(tag);
        }
        let queue = &mut *connection.send_queue;
        let waiting = queue.len();
        let mark = self.settings.limits.write_buffer_bytes;
        if waiting < mark {
            queue.note_under_mark(self.now.at);
        } else if waiting >= most_waiting(queue, mark, self.now.at) {
            connection.lose_handle(tag);
            return self.close(conn, CloseReason::Flooded);
        }
        queue.charge_to(connection.requests.account());
        put(queue, tag);
        if waiting == 0 {
            return self.out.push(Action::Flush { conn });
        }
        if connection.account().own() > self.settings.limits.held_bytes_per_identity_max {
            let account = connection.account().clone();
            self.cut_output(&account);
        }
    }
}

/// Request and handle of an answer of this type.
fn tag_of(kind: ResultType, reply: &Reply) -> Tag<'_> {
    let handle = match kind {
        ResultType::Complete | ResultType::Ended => None,
        ResultType::Task(key) => Some(Handle::Task(key)),
        ResultType::InputRequired(state) => Some(Handle::Call(state)),
    };
    let recall = match reply.dialect.after_cancel {
        AfterCancel::Silence | AfterCancel::Answer { .. } => false,
        AfterCancel::Recall => true,
    };
    Tag { request: Some(&reply.id), recall, handle: handle.filter(|_| recall) }
}

impl Connection {
    /// A frame is not sent: no peer will be able to name its handle.
    fn lose_handle(&mut self, tag: Tag<'_>) {
        if let Some(handle) = tag.handle {
            self.aside.lost_handles.push(handle);
        }
    }
}

/// How long a peer may take nothing before it counts as one that does not read.
const HESITATION: Duration = Duration::from_secs(1);

/// Bytes that may wait for a peer before it is given up, by the bytes at which it counts as slow.
///
/// A peer that does not read gets as much again. One that reads may just have got more answers
/// than it can take at once, since its requests end when their jobs end: it gets four times
/// that, and the time limit for a peer that stops.
fn most_waiting(queue: &SendQueue, mark: usize, now: Instant) -> usize {
    let (since, takes) = queue.over_mark();
    let reads = takes || now - since < HESITATION;
    mark.saturating_mul(if reads { 8 } else { 2 })
}
