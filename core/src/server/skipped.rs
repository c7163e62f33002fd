//! Messages that pass a limit: too long, or nested too deep. They are skipped, and the request that
//! one belongs to is answered where its id can be read.

use alloc::format;
use alloc::vec::Vec;

use crate::connection::Counterpart;
use crate::engine::Engine;
use crate::ids::{CallId, ConnId, RequestId};
use crate::json::scan;
use crate::json::writer::Writer;
use crate::outbox::requests::Reply;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::message::{LIMIT_REACHED, Members, Message};

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
    pub(crate) fn on_skipped(&mut self, conn: ConnId, skeleton: &str, error: &ErrorObject) {
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
}
