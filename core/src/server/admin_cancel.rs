//! `ceased/cancel`: stops a job by its number, whatever asked for it.
//!
//! The protocols let a peer take back its own requests and cancel its tasks. This is for the person
//! in front of a list of jobs, which may contain a call of another connection.

use crate::action::Cancel;
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::{ConnId, JobId};
use crate::jobs::job::{Job, JobState, Purpose};
use crate::json::raw::Raw;
use crate::json::whole::Whole;
use crate::outbox::Outbox;
use crate::outbox::requests::Reply;
use crate::reason::StopReason;
use crate::rpc::error::ErrorObject;
use crate::rpc::params::{self, Params};
use crate::tasks::audit_events::note_job_cancelled;

/// Whether the peer of a connection may know of a job (TSK-39). Anonymous
/// peers share an identity, so none may know the jobs of another (TSK-40).
pub(crate) fn may_see(outbox: &Outbox, conn: ConnId, job: &Job) -> bool {
    let own = match outbox.identity(conn) {
        None => false,
        Some(Identity::Anonymous) => job.conn == conn,
        Some(viewer @ (Identity::User(_) | Identity::Token(_) | Identity::Subject(_))) => {
            job.owner == *viewer
        }
    };
    // No peer may know of a task that is being created (DUR-01).
    let exists = !matches!(job.state(), JobState::Held(_));
    exists && (own || outbox.is_operator(conn))
}

impl Engine {
    /// Stops a job of one's own, or as an operator any job. Its request is answered nevertheless,
    /// since its requestor has not cancelled it. A task is cancelled as by `tasks/cancel`, and a
    /// request to an agent by the methods of its protocol.
    pub(crate) fn cancel_any_job(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let (job, reason) = match read_job(params) {
            Ok(read) => read,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let (id, conn) = (JobId::new(job), reply.conn);
        let reason = reason.and_then(Raw::cleaned_string);
        let reason = reason.map(|reason| self.outbox.clean(&reason).into());
        let seen = self.jobs.get(id).filter(|job| may_see(&self.outbox, conn, job));
        let (Some(job), Some(by)) = (seen, self.outbox.identity(conn).cloned()) else {
            return match self.supervisor().cancel(conn, id, reason) {
                Ok(()) => self.answer(reply, |json| {
                    json.raw("{}");
                }),
                Err(error) => self.outbox.fail(reply, &error),
            };
        };
        let (purpose, task) = (job.purpose().clone(), job.task);
        match (purpose, task) {
            (Purpose::Task, Some(task)) => {
                self.cancel_live_task(conn, task, "ceased/cancel", reason);
            }
            // It is being stopped already.
            (Purpose::NoReceiver, _) => {}
            (Purpose::Answer(_) | Purpose::Retry(_) | Purpose::Orphan | Purpose::Task, _) => {
                if let Some(job) = self.jobs.get_mut(id) {
                    job.note_cancel(Cancel { by, conn, request: None, reason });
                }
                note_job_cancelled(&mut self.outbox, &self.jobs, conn, id);
                self.cancel_with_response(id, StopReason::Requested);
            }
        }
        self.answer(reply, |json| {
            json.raw("{}");
        });
    }
}

/// Reads the number of the job to stop, and why. The job alone decides: a reason that cannot be
/// read is dropped.
fn read_job<'a>(params: Option<&Params<'a>>) -> Result<(u64, Option<Raw<'a>>), ErrorObject> {
    let members = match params.map(|params| params.find(["job", "reason"])) {
        Some(None) => return Err(ErrorObject::invalid_params("params must be an object")),
        Some(Some(found)) => found.members,
        None => [None; 2],
    };
    let [job, reason] = members;
    let number = Whole::read(params::required("job", job)?.get());
    let number = number.as_ref().and_then(Whole::to_u64_saturating);
    let message = "params.job must be the number of a job";
    Ok((number.ok_or_else(|| ErrorObject::invalid_params(message))?, reason))
}
