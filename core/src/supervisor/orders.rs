//! Orders of people about agents: cancels of requests by their number, and restarts.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::action::{AuditEvent, Cancel};
use crate::ids::{ConnId, JobId};
use crate::rpc::error::ErrorObject;
use crate::supervisor::effect::SupervisionInput;
use crate::supervisor::machine::Supervisions;
use crate::supervisor::work::WorkState;
use crate::upstream::server::UpstreamServer;

impl Supervisions<'_> {
    /// `ceased/cancel` of a request that an agent works on or that waits for it: one of one's own,
    /// or for an operator any.
    pub(crate) fn cancel(
        &mut self,
        conn: ConnId,
        job: JobId,
        reason: Option<Box<str>>,
    ) -> Result<(), ErrorObject> {
        let found = self.agents.seen_clients(self.outbox, conn).find_map(|(client, entry)| {
            let work = entry.supervision.works().find(|work| work.job == Some(job))?;
            Some((*client, work.method.into(), work.state == WorkState::Cancelling))
        });
        let found: Option<(ConnId, Box<str>, bool)> = found;
        let (Some((client, method, is_cancelling)), Some(by)) =
            (found, self.outbox.identity(conn).cloned())
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
        self.outbox.counters_mut().cancelled += 1;
        let (identity, tool) = (by.clone(), (*method).into());
        self.outbox.note(AuditEvent::JobCancelled {
            conn,
            identity,
            job,
            tool,
            reason: reason.clone(),
        });
        let cancel = Cancel { by, conn, request: None, reason };
        self.hand_in_to(client, SupervisionInput::Cancel { job, cancel }, &[]);
        Ok(())
    }

    /// `ceased/restart` of an agent: the processes of its clients are replaced, and the others are
    /// started with the keys that the agent has now. Returns the number of processes; `None` if
    /// there is no agent of this name.
    pub(crate) fn restart(&mut self, name: &str) -> Option<usize> {
        let configured = self.settings.agents.iter().find(|it| *it.name == *name).cloned();
        let clients = self.agents.clients.iter().filter(|(_, it)| *it.server.name == *name);
        let clients: Vec<ConnId> = clients.map(|(client, _)| *client).collect();
        if configured.is_none() && clients.is_empty() {
            return None;
        }
        let mut processes = 0;
        for client in clients {
            let Some(entry) = self.agents.clients.get_mut(&client) else { continue };
            processes += usize::from(entry.instance.is_some());
            // An agent that a client may not have any more stays as it was.
            let is_allowed =
                |it: &&Arc<UpstreamServer>| self.outbox.caller(client).is_in(&it.allow);
            if let Some(server) = configured.as_ref().filter(is_allowed) {
                entry.server = Arc::clone(server);
            }
            let server = Arc::clone(&entry.server);
            let terms = self.terms_of(&server);
            self.hand_in_to(client, SupervisionInput::Restart(terms), &[]);
        }
        Some(processes)
    }
}
