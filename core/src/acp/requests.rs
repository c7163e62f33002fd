//! ACP connections: requests are services of the host, notifications go to the host, and a cancelled
//! request is answered exactly once.

use alloc::sync::Arc;

use serde_json::value::RawValue;

use crate::acp::cancel::cut_off;
use crate::acp::protocol::{self, AcpForm, AcpPeer, AcpRole, Offer, Speaker};
use crate::action::{Action, AuditEvent, Cancel};
use crate::connection::{Connection, SessionPhase};
use crate::engine::Engine;
use crate::event::Outcome;
use crate::identity::Identity;
use crate::ids::{ConnId, JobId, RequestId};
use crate::jobs::job::{JobState, Purpose};
use crate::outbox::requests::{Reply, RequestWork};
use crate::protocol::revision::{Dialect, Methods};
use crate::protocol::role::Role;
use crate::reason::StopReason;
use crate::rpc::error::{ErrorObject, code};
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
        connection.phase = SessionPhase::Ready;
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

    /// A peer cancels a request of its own (ACP-01).
    pub(crate) fn on_service_cancelled(
        &mut self,
        conn: ConnId,
        method: &str,
        params: Option<&Params<'_>>,
    ) {
        let dialect = self.outbox.dialect(conn);
        let Some((request, method)) = named_request(dialect, method, params) else {
            // CAN-14: a malformed cancel is counted and ignored.
            self.outbox.counters_mut().cancels_malformed += 1;
            return self.outbox.note(AuditEvent::CancelIgnored { conn });
        };
        let Some(id) = self.cancellable(conn, &request) else {
            self.outbox.counters_mut().cancels_ignored += 1;
            return self.outbox.note(AuditEvent::CancelIgnored { conn });
        };
        self.outbox.counters_mut().cancelled += 1;
        if let (Some(connection), Some(job)) = (self.outbox.connection(conn), self.jobs.get_mut(id))
        {
            let (by, of) = (connection.identity.clone(), Some(request));
            let cancel = Cancel { by, conn, request: of, reason: None };
            job.note_cancel(cancel.clone());
            let of = (job.tool.name.clone(), Some(id));
            self.outbox.note(AuditEvent::call_cancelled(cancel, of, method));
        }
        self.cancel_with_response(id, StopReason::Requested);
    }

    /// Job of a request that its peer may cancel and has not cancelled yet.
    fn cancellable(&self, conn: ConnId, request: &RequestId) -> Option<JobId> {
        let connection = self.outbox.connection(conn)?;
        // ACP-10: without the declared capability a cancel is ignored.
        connection.acp.filter(|party| party.accepts_cancels(connection.dialect))?;
        // ACP-08: a cancel of an unknown or answered request is ignored.
        let id = match connection.requests.work(request)? {
            RequestWork::Job(id) => *id,
            RequestWork::Task(..)
            | RequestWork::Listen(_)
            | RequestWork::Survey(_)
            | RequestWork::Upstream(_)
            | RequestWork::Lookup(_)
            | RequestWork::Question(_) => return None,
        };
        let job = self.jobs.get(id)?;
        // ACP-04: protected requests cannot be cancelled.
        let protected = connection.dialect.protected.contains(&&*job.tool.name);
        let cancelled = match job.state() {
            JobState::Held(_) | JobState::Queued(_) | JobState::Running | JobState::Lingering => {
                false
            }
            JobState::Stopping { why, .. } => !why.is_no_cancel(),
        };
        (!protected && !cancelled).then_some(id)
    }

    /// Cancels a job whose request is answered nevertheless: at once if the job has not begun, else
    /// with the job's outcome while it is being stopped (ACP-06, ACP-07).
    pub(crate) fn cancel_with_response(&mut self, id: JobId, why: StopReason) {
        let Some(job) = self.jobs.get(id) else {
            self.outbox.counters_mut().late_reports += 1;
            return;
        };
        match job.state() {
            // The host does not know of this job.
            JobState::Held(_) => self.outbox.counters_mut().late_reports += 1,
            JobState::Queued(_) => {
                self.outbox.counters_mut().jobs_never_started += 1;
                if let Some(job) = self.job_machine().remove_job(id) {
                    self.deliver_outcome(id, &job, Outcome::Stopped, Some(why));
                }
            }
            JobState::Running | JobState::Lingering | JobState::Stopping { .. } => {
                self.job_machine().stop(id, why);
            }
        }
    }
}

/// The request that a cancel names, in either spelling (ACP-01), and the method's spelling.
fn named_request(
    dialect: &Dialect,
    method: &str,
    params: Option<&Params<'_>>,
) -> Option<(RequestId, &'static str)> {
    let params = params?;
    let (method, _) = dialect.cancel_heard.iter().find(|(heard, _)| *heard == method)?;
    let members = dialect.cancel_heard.iter().filter(|(heard, _)| heard == method);
    // A cancel may have both members, with `null` for the unused one.
    let named =
        |null_ids| members.clone().find_map(|(_, member)| params.request_named(member, null_ids));
    Some((named(false).or_else(|| named(dialect.null_ids))?, method))
}
