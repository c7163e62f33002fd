//! Orders of people about agents: cancels of requests by their number.

use alloc::boxed::Box;

use crate::action::{AuditEvent, Cancel};
use crate::engine::Engine;
use crate::ids::{ConnId, JobId};
use crate::rpc::error::ErrorObject;
use crate::supervisor::effect::Input;

impl Engine {
    /// `ceased/cancel` of a request that an agent works on: one of one's own, or for an operator
    /// any.
    pub(crate) fn cancel_agent_request(
        &mut self,
        conn: ConnId,
        job: JobId,
        reason: Option<Box<str>>,
    ) -> Result<(), ErrorObject> {
        let found = self.seen_clients(conn).find_map(|(client, entry)| {
            let work = entry.supervision.works().find(|work| work.job == Some(job))?;
            Some((*client, work.method.into(), work.is_cancelling))
        });
        let found: Option<(ConnId, Box<str>, bool)> = found;
        let (Some((client, method, is_cancelling)), Some(by)) =
            (found, self.identity(conn).cloned())
        else {
            let message =
                alloc::format!("there is no job {}; it is unknown or has ended", job.get());
            return Err(ErrorObject::invalid_params(message));
        };
        if is_cancelling {
            return Ok(());
        }
        // ACP-04
        if &*method == "initialize" {
            let message =
                alloc::format!("job {} is initialize, which cannot be cancelled", job.get());
            return Err(ErrorObject::invalid_params(message));
        }
        self.counters.cancelled += 1;
        let (identity, tool) = (by.clone(), (*method).into());
        self.note(AuditEvent::JobCancelled { conn, identity, job, tool, reason: reason.clone() });
        let cancel = Cancel { by, conn, request: None, reason };
        self.hand_in_to(client, Input::Cancel { job, cancel }, &[]);
        Ok(())
    }
}
