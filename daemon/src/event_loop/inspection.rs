//! Inspection of peers on a Unix socket before they are accepted: a process inside a job acts as
//! the requestor of that job, whatever its user (TSK-39).
//!
//! Needed only while a job runs for another identity than the peer's user: a process in a job of
//! its own user already has the right identity.

use super::server::Server;
use super::state::shutdown::Stopping;

use std::io;

use ceased_core::identity::Identity;
use ceased_core::ids::JobId;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::time::Now;
use ceased_transports::{Peer as Origin, Transport};
use rustix::process::{Pid, getpid};

use super::state::record_limiter::RecordKind;
use crate::process_ids::from_process;
use ceased_process::{Located, Order};

const UNTOLD: &str = "jobs of other users are running, and it cannot be determined whether the connecting process belongs to one, \
     because it has ended or is an orphan of a job: connect from a process that stays alive";

/// Reason of rejecting a peer whose job cannot be determined.
const IN_DOUBT: &str = "it may belong to a job of another user";

const CROWDED: &str = "too many peers wait for the inspection of their process, and \
     this one waited longest: connect again";

impl Server {
    /// Accepts a user of this system, or the requestor of the job that the peer belongs to.
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
        self.make_room_for_inspection(now)?;
        let ticket = self.handshakes.begin_inspection(transport, identity);
        if self.supervisor.order(Order::Locate { ticket, pid, process }).is_err() {
            self.take_located(now, ticket, &Located::Unknown);
        }
        Ok(())
    }

    /// Accepts a peer unless its identity, which is the requestor's inside a job, has reached its
    /// connection limit.
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
        self.refuse(now, transport, identity, RecordKind::Refuse(IN_DOUBT), &error)
    }

    /// Rejects the oldest waiting peer of the user with most of them, if the limit is reached.
    fn make_room_for_inspection(&mut self, now: Now) -> io::Result<()> {
        let evicted = self.handshakes.evict_inspected(self.handshake_limits().vetted);
        let Some((transport, identity)) = evicted else { return Ok(()) };
        let error = ErrorObject::new(code::LIMIT_REACHED, CROWDED);
        self.refuse(now, transport, identity, RecordKind::Refuse(CROWDED), &error)
    }

    /// The process of a peer that may belong to a job of another identity.
    fn process_in_doubt(&self, peer: &Origin, identity: &Identity) -> Option<Pid> {
        // A process without a pid here is in an unrelated pid namespace, which contains no job.
        let Origin::Unix { pid: Some(pid), .. } = peer else { return None };
        let pid = Pid::from_raw(i32::try_from(*pid).ok()?).filter(|pid| *pid != getpid())?;
        let is_foreign = |job| self.engine.owner(job).is_none_or(|owner| owner != identity);
        let mut commands = self.jobs.commands();
        commands.any(is_foreign).then_some(pid)
    }

    /// Handles the result of an inspection.
    pub(super) fn take_located(&mut self, now: Now, ticket: u64, located: &Located) {
        let Some((transport, identity)) = self.handshakes.end_inspection(ticket) else { return };
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
            tracing::warn!(%error, "cannot register a peer with epoll; closing it");
        }
    }
}
