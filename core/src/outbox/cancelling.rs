//! Cancels: those of peers, read, and those of this side, written in the dialect of the peer.

use alloc::boxed::Box;

use crate::ids::{CallId, ConnId, RequestId};
use crate::json::raw::Raw;
use crate::outbox::Outbox;
use crate::rpc::params::{self, Params};

/// Content of a cancellation.
pub(crate) struct Cancellation {
    pub(crate) request: RequestId,
    pub(crate) reason: Option<Box<str>>,
}

impl Outbox {
    /// CAN-14: the request's id alone decides. A reason that is no string is dropped, and every
    /// other member is nothing to a cancel.
    pub(crate) fn read_cancellation(&self, params: Option<&Params<'_>>) -> Option<Cancellation> {
        let members = params::any_members(params);
        let request = match members.once(params::REQUEST_ID) {
            Ok(()) => RequestId::parse(members.request_id?.get())?,
            Err(_) => params?.request_named("requestId", false)?,
        };
        let reason = members.reason.and_then(Raw::cleaned_string);
        Some(Cancellation { request, reason: reason.map(|reason| self.clean(&reason).into()) })
    }

    /// Sends a cancel in the peer's dialect (CAN-01, ACP-01).
    pub(crate) fn write_cancel(&mut self, conn: ConnId, id: CallId, reason: Option<&str>) {
        let reason = reason.map(|reason| self.clean(reason));
        let dialect = self.dialect(conn);
        self.send(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",").member("method", dialect.cancel_method);
            json.raw(",\"params\":{").string(dialect.cancel_id).raw(":").display(id.get());
            if let (Some(member), Some(reason)) = (dialect.cancel_reason, &reason) {
                json.raw(",").member(member, reason);
            }
            json.raw("}}");
        });
    }

    /// Writes a cancel ahead of all data that waits for a server.
    pub(crate) fn write_urgent_cancel(&mut self, conn: ConnId, call: u64, reason: &str) {
        let reason = self.clean(reason);
        self.send_urgent(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{");
            json.raw("\"requestId\":").display(call).raw(",");
            json.member("reason", &reason).raw("}}");
        });
    }
}
