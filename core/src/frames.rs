//! Frames: read into messages, and each message handed to the room of its kind. Frames that pass a
//! limit or are no JSON-RPC are refused here.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use crate::connection::Counterpart;
use crate::engine::Engine;
use crate::ids::{CallId, ConnId, RequestId};
use crate::json::scan;
use crate::json::writer::Writer;
use crate::outbox::Sender;
use crate::outbox::requests::{BatchId, Reply, Traced};
use crate::protocol::revision::Batch;
use crate::protocol::trace_context::TraceContext;
use crate::reason::CloseReason;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::message::{BAD_ID, LIMIT_REACHED, Members, Message};
use crate::rpc::params::{self, Params};
use crate::rpc::skeleton::Skeleton;
use crate::time::Instant;

impl Engine {
    pub(crate) fn on_frame(&mut self, conn: ConnId, frame: &[u8]) {
        let Some(sender) = self.outbox.sender(conn) else { return };
        self.outbox.counters_mut().frames += 1;
        match sender.counterpart {
            Counterpart::AgentClient => self.supervisor().on_client_frame(conn, frame),
            Counterpart::Agent(client) => self.supervisor().on_agent_frame(client, frame),
            Counterpart::Peer | Counterpart::Instance(_) => {
                let mut seen = Members::default();
                let message = Message::parse(frame, self.settings.limits.depth_max, &mut seen);
                self.on_content(sender, message, frame);
            }
        }
    }

    #[inline]
    fn on_content(&mut self, sender: Sender, message: Message<'_>, frame: &[u8]) {
        match &message {
            Message::Batch(messages) => self.on_batch(sender, messages),
            Message::Invalid { error, .. } if error.message.starts_with(LIMIT_REACHED) => {
                self.outbox.counters_mut().invalid += 1;
                self.on_skipped(sender.conn, Skeleton::of(frame).text(), error);
            }
            Message::Request { .. }
            | Message::Notification { .. }
            | Message::Response { .. }
            | Message::Invalid { .. } => self.on_message(sender, message, None),
        }
    }

    #[inline(never)]
    fn on_batch(&mut self, Sender { conn, counterpart, dialect }: Sender, messages: &[&str]) {
        let max = self.settings.limits.batch_max;
        if dialect.batch != Batch::Accept && matches!(counterpart, Counterpart::Instance(_)) {
            // UPS-14: skipped and counted.
            self.outbox.counters_mut().invalid += 1;
            return;
        }
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        let refusal = match connection.dialect.batch {
            Batch::Refuse => Some("this session has no batches: send one message a line".into()),
            Batch::Accept if messages.is_empty() => Some("the batch is empty".into()),
            Batch::Accept if messages.len() > max => {
                Some(alloc::format!("a batch may have {max} messages, not {}", messages.len()))
            }
            Batch::Accept => None,
        };
        if let Some(refusal) = refusal {
            let error = ErrorObject::new(code::INVALID_REQUEST, refusal);
            return self.outbox.refuse_unreadable(conn, &error, None);
        }
        let account = connection.requests.account();
        let batch = connection.aside.open_batch(messages.len(), account);
        for message in messages {
            // Its own answers may have been too much for the peer.
            let Some(sender) = self.outbox.sender(conn) else { return };
            let mut seen = Members::default();
            let message = Message::parse_one(message, &mut seen);
            self.on_message(sender, message, Some(batch));
            self.end_message();
        }
    }

    fn on_message(&mut self, sender: Sender, message: Message<'_>, batch: Option<BatchId>) {
        let Sender { conn, counterpart, dialect } = sender;
        match message {
            // Some writers put an id into every message, `null` where there is none.
            Message::Request { id, ref method, ref params }
                if id.id == RequestId::Null && dialect.is_notification(method) =>
            {
                self.on_notification(sender, method, params.as_ref());
            }
            Message::Request { id, .. } if id.id == RequestId::Null && !dialect.null_ids => {
                self.outbox.counters_mut().invalid += 1;
                let error = ErrorObject::new(code::INVALID_REQUEST, BAD_ID);
                return self.outbox.refuse_unreadable(conn, &error, batch);
            }
            Message::Request { id, ref method, ref params } => {
                let mut reply = Reply::new(conn, id, batch, dialect);
                if self.settings.own_spans && counterpart == Counterpart::Peer {
                    reply.traced = traced(method, params.as_ref(), self.now.at);
                }
                self.on_request(reply, method, params.as_ref());
                return;
            }
            // UPS-14: skipped and counted.
            Message::Invalid { .. } if matches!(counterpart, Counterpart::Instance(_)) => {
                self.outbox.counters_mut().invalid += 1;
                return;
            }
            Message::Invalid { id: Some(id), error } => {
                return self.outbox.fail(Reply::new(conn, id, batch, dialect), &error);
            }
            Message::Invalid { id: None, error } => {
                self.outbox.counters_mut().invalid += 1;
                return self.outbox.refuse_unreadable(conn, &error, batch);
            }
            Message::Notification { ref method, ref params } => {
                self.on_notification(sender, method, params.as_ref());
            }
            Message::Response { id, outcome } => {
                self.outgoing().on_response(conn, id, outcome);
            }
            Message::Batch(_) => unreachable!("a batch is not part of a batch"),
        }
        if let Some(batch) = batch {
            self.outbox.settle_in_batch(conn, batch, |_| {});
        }
    }
}

/// Messages that pass a limit: too long, or nested too deep. They are skipped, and the request that
/// one belongs to is answered where its id can be read.
impl Engine {
    /// A line was longer than a message may be.
    pub(crate) fn on_overlong(&mut self, conn: ConnId, skeleton: &str) {
        self.outbox.counters_mut().overlong += 1;
        let max = self.settings.limits.frames.frame_bytes_max;
        let message = format!("{LIMIT_REACHED}message_bytes = {max}: the message was skipped");
        self.on_skipped(conn, skeleton, &ErrorObject::new(code::INVALID_REQUEST, message));
    }

    /// A message was skipped, of which the first level is left: a request fails, and an answer
    /// fails its request alone (UPS-14).
    fn on_skipped(&mut self, conn: ConnId, skeleton: &str, error: &ErrorObject) {
        let Some(dialect) = self.outbox.dialect_read(conn) else { return };
        let is_server = self.outbox.counterpart(conn).is_behind();
        let mut seen = Members::default();
        match Message::parse_text(skeleton, scan::DEPTH_MAX, &mut seen) {
            Message::Response { id: Some(id), .. } => self.on_skipped_answer(conn, &id, error),
            Message::Request { id, .. } if id.id != RequestId::Null => {
                self.outbox.fail(Reply::new(conn, id, None, dialect), error);
            }
            // It has no answer, and no request waits for it.
            Message::Request { .. } | Message::Notification { .. } if is_server => {}
            Message::Request { .. }
            | Message::Notification { .. }
            | Message::Response { .. }
            | Message::Batch(_)
            | Message::Invalid { .. } => self.on_unassigned(conn, error),
        }
    }

    /// An answer was skipped: its request gets an error in its place.
    fn on_skipped_answer(&mut self, conn: ConnId, id: &RequestId, error: &ErrorObject) {
        let error = ErrorObject::new(code::LIMIT_REACHED, error.message.clone());
        if let (Some(instance), Some(call)) = (self.outbox.instance(conn), CallId::named(id))
            && self.gateway().end_list_of(instance, call, &error.message)
        {
            return;
        }
        let mut answer = Vec::new();
        Writer::new(&mut answer)
            .raw("{\"jsonrpc\":\"2.0\",\"id\":")
            .id(id, None)
            .raw(",\"error\":")
            .error(&error)
            .raw("}");
        self.on_frame(conn, &answer);
    }

    /// A message was skipped that belongs to no request, as far as it can be read.
    fn on_unassigned(&mut self, conn: ConnId, error: &ErrorObject) {
        match self.outbox.counterpart(conn) {
            Counterpart::Instance(id) => {
                self.gateway().on_unreadable_answer(id, &error.message);
            }
            Counterpart::Agent(client) => {
                self.supervisor().end(client, "it sent a message longer than message_bytes");
            }
            Counterpart::Peer | Counterpart::AgentClient => {
                self.outbox.refuse_unreadable(conn, error, None);
            }
        }
    }

    /// The first bytes are no JSON-RPC: nothing after them is read, whatever it says. A person
    /// at a terminal is told the reason; a browser or a TLS client gets nothing.
    pub(crate) fn on_alien(&mut self, conn: ConnId, bytes: &[u8]) {
        self.outbox.counters_mut().invalid += 1;
        if self.outbox.counterpart(conn).is_behind() {
            // UPS-14: skipped and counted.
            return;
        }
        let printable = bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
        let http = bytes.windows(5).any(|window| window == b"HTTP/")
            || bytes
                .split(|byte| *byte == b' ')
                .next()
                .is_some_and(|word| word.len() >= 3 && word.iter().all(u8::is_ascii_uppercase));
        if printable && !http {
            let message = "the first line is not JSON: this connection speaks JSON-RPC";
            self.outbox.refuse_unreadable(
                conn,
                &ErrorObject::new(code::PARSE_ERROR, message),
                None,
            );
        }
        self.outbox.close(conn, CloseReason::Alien);
    }
}

/// Facts about a request for its span. The views of a host ask it once a second: its own methods
/// are no part of a trace.
fn traced(method: &str, params: Option<&Params<'_>>, asked: Instant) -> Option<Box<Traced>> {
    if method.starts_with("ceased/") {
        return None;
    }
    let meta = params::any_members(params).meta.as_ref();
    let trace = meta.and_then(|meta| TraceContext::of_members(meta.trace));
    Some(Box::new(Traced { method: method.into(), trace, asked }))
}
