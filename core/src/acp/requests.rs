//! ACP connections: requests are services of the host, notifications go to the host.

use alloc::sync::Arc;

use serde_json::value::RawValue;

use crate::acp::cancel::cut_off;
use crate::acp::protocol::{self, AcpForm, AcpPeer, AcpRole, Offer, Speaker};
use crate::action::Action;
use crate::connection::{Connection, Phase};
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::ConnId;
use crate::jobs::job::Purpose;
use crate::outbox::requests::Reply;
use crate::protocol::revision::Methods;
use crate::protocol::role::Role;
use crate::reason::StopReason;
use crate::rpc::error::ErrorObject;
use crate::rpc::error::code;
use crate::rpc::params::Params;

/// Prefix of the protocol's own methods. Unknown notifications with it are ignored, unknown
/// requests get an error.
const PROTOCOL_LEVEL: &str = "$/";

impl Engine {
    pub(crate) fn on_opened_acp(
        &mut self,
        conn: ConnId,
        identity: Identity,
        form: AcpForm,
        side: AcpRole,
    ) {
        let mut connection = Connection::new(identity, self.seed);
        connection.dialect = form.dialect();
        connection.unreadable_id = form.dialect().unreadable_id;
        connection.phase = Phase::Ready;
        connection.acp = Some(AcpPeer::new(side));
        self.admit_connection(conn, connection, Role::Server);
    }

    /// Offers of the host to the peer of an ACP connection.
    fn offer(&self, conn: ConnId) -> Option<&Offer> {
        let party = self.outbox.connection(conn)?.acp?;
        Some(self.settings.acp.on(party.side))
    }

    pub(crate) fn on_service_request(
        &mut self,
        reply: Reply,
        method: &str,
        params: Option<&Params<'_>>,
    ) {
        let conn = reply.conn;
        if self.drain.is_some() {
            // ACP-07: the request is cancelled before it begins.
            let message = "the daemon is shutting down";
            let refusal = || ErrorObject::new(code::SHUTTING_DOWN, message);
            let error = cut_off(&self.outbox, conn, StopReason::Shutdown).unwrap_or_else(refusal);
            return self.outbox.fail(reply, &error);
        }
        let service = self.offer(conn).and_then(|offer| offer.services.get(method));
        let service = service.filter(|_| !method.starts_with(PROTOCOL_LEVEL));
        let Some(service) = service.map(Arc::clone) else {
            return self.outbox.unknown_method(reply, method);
        };
        let job = self.jobs.next_id();
        self.serve(reply, service, params);
        if protocol::begins(method, params.map(Params::get))
            && let Some(job) = self.jobs.get_mut(job)
        {
            job.declares = true;
        }
    }

    pub(crate) fn on_service_notification(
        &mut self,
        conn: ConnId,
        method: &str,
        params: Option<&Params<'_>>,
    ) {
        if self.outbox.dialect(conn).cancel_heard.iter().any(|(heard, _)| *heard == method) {
            return self.on_service_cancelled(conn, method, params);
        }
        let wanted = self.offer(conn).is_some_and(|offer| offer.notifications.contains(method));
        if wanted && !method.starts_with(PROTOCOL_LEVEL) {
            let params = params.map(|params| params.to_raw());
            self.outbox.push(Action::Notified { conn, method: method.into(), params });
        }
    }

    /// The host or a job sends a notification.
    pub(crate) fn on_notify(&mut self, from: Speaker, method: &str, params: Option<&RawValue>) {
        let conn = match from {
            Speaker::Host(conn) => Some(conn),
            Speaker::Job(id) => self
                .jobs
                .get(id)
                .filter(|job| matches!(job.purpose(), Purpose::Answer(_)))
                .map(|job| job.conn),
        };
        let conn = conn.filter(|conn| self.outbox.dialect(*conn).methods == Methods::Services);
        let Some(conn) = conn else {
            self.outbox.counters_mut().late_reports += 1;
            return;
        };
        self.outbox.send(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",").member("method", method);
            if let Some(params) = params {
                json.raw(",\"params\":").raw(params.get());
            }
            json.raw("}");
        });
    }
}
