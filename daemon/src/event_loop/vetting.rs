//! Peers on a Unix socket whose process is looked at before they are served: a process inside a job
//! acts as the requestor of that job, whichever user it runs as (TSK-39).
//!
//! Only needed while a job runs for somebody else than the peer's user: in a job of its own user a
//! process is that user anyway.

use super::running_jobs::RunningJob;
use super::server::Server;
use super::shutdown::Stopping;

use std::io;

use ceased_core::identity::Identity;
use ceased_core::ids::JobId;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::time::Now;
use ceased_transports::{Peer as Origin, Transport};
use rustix::process::{Pid, getpid};

use super::origin::{self, Party};
use super::repeats::Kind;
use crate::process_ids::from_process;
use ceased_process::{Located, Order};

const UNTOLD: &str = "jobs of other users run, and it cannot be told whether the process that connected is part of one, \
     because it has ended or is an orphan of a job: connect from a process that lives on";

/// Kind of refusal of a peer of which that cannot be told.
const IN_DOUBT: &str = "it may be part of a job of another user";

const CROWDED: &str = "too many peers wait until it is known whether they are part of a job, and \
     this one waited longest: connect again";

impl Server {
    /// Serves a user of this system, or the requestor of the job that the peer is part of.
    pub(super) fn admit_user(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
    ) -> io::Result<()> {
        let Some(pid) = self.process_in_doubt(transport.peer(), &identity) else {
            return self.admit_within(now, transport, identity, None);
        };
        let Ok(process) = transport.peer_process() else {
            return self.refuse_untold(now, transport, identity);
        };
        self.make_place_in_vetting(now)?;
        let ticket = self.vetting.next;
        self.vetting.next += 1;
        self.vetting.waiting.insert(ticket, (transport, identity));
        if self.supervisor.order(Order::Locate { ticket, pid, process }).is_err() {
            self.take_located(now, ticket, &Located::Unknown);
        }
        Ok(())
    }

    /// Serves a peer unless its identity, which is the requestor's inside a job, has as many
    /// connections as it may.
    fn admit_within(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        job: Option<JobId>,
    ) -> io::Result<()> {
        match self.engine.connection_limit(&identity) {
            None => self.admit_from(now, transport, identity, false, job),
            Some(limit) => self.refuse_connection(now, transport, identity, limit),
        }
    }

    fn refuse_untold(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
    ) -> io::Result<()> {
        let error = ErrorObject::new(code::FORBIDDEN, UNTOLD);
        self.refuse(now, transport, identity, Kind::Refuse(IN_DOUBT), &error)
    }

    /// Refuses the oldest peer that waits, of the user that has most of them, where as many wait as
    /// may.
    fn make_place_in_vetting(&mut self, now: Now) -> io::Result<()> {
        let waiting = self.vetting.waiting.iter();
        let waiting = waiting.map(|(ticket, (it, _))| (Party::from(it.peer()), *ticket)).collect();
        let oldest = origin::oldest_of_most(waiting, self.bounds().vetted);
        let oldest = oldest.and_then(|ticket| self.vetting.waiting.remove(&ticket));
        let Some((transport, identity)) = oldest else { return Ok(()) };
        let error = ErrorObject::new(code::LIMIT_REACHED, CROWDED);
        self.refuse(now, transport, identity, Kind::Refuse(CROWDED), &error)
    }

    /// The process of a peer that might be part of a job of another identity.
    fn process_in_doubt(&self, peer: &Origin, identity: &Identity) -> Option<Pid> {
        // Without a number it is in a process namespace that is not below ours: no job is.
        let Origin::Unix { pid: Some(pid), .. } = peer else { return None };
        let pid = Pid::from_raw(i32::try_from(*pid).ok()?).filter(|pid| *pid != getpid())?;
        let is_foreign = |job| self.engine.owner(job).is_none_or(|owner| owner != identity);
        let mut commands = self
            .runs
            .iter()
            .filter(|(_, run)| matches!(run, RunningJob::Command(_)))
            .map(|(job, _)| *job);
        commands.any(is_foreign).then_some(pid)
    }

    /// Takes in whether a peer is part of a job.
    pub(super) fn take_located(&mut self, now: Now, ticket: u64, located: &Located) {
        let Some((transport, identity)) = self.vetting.waiting.remove(&ticket) else { return };
        if self.stopping != Stopping::No {
            return;
        }
        let served = match located {
            Located::Outside => self.admit_within(now, transport, identity, None),
            Located::Job(job) => {
                let job = from_process(*job);
                match self.engine.owner(job).cloned() {
                    Some(owner) => self.admit_within(now, transport, owner, Some(job)),
                    None => self.refuse_untold(now, transport, identity),
                }
            }
            Located::Unknown => self.refuse_untold(now, transport, identity),
        };
        if let Err(error) = served {
            tracing::warn!(%error, "a peer could not be watched and was let go");
        }
    }
}
