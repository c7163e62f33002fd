//! Inspection of peers on a Unix socket before they are accepted: a process inside a job has no
//! rights beyond those of its user and of the requestor of the job (SEC-05).
//!
//! Needed only while processes of jobs, servers or agents may be alive.

use super::server::Server;
use super::state::shutdown::Stopping;
use super::upstreams::instance_of;

use std::io;
use std::sync::Arc;

use ceased_core::identity::{Identity, Rights};
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::time::Now;
use ceased_transports::{Peer as Origin, Transport};
use rustix::process::{Pid, geteuid, getpid};

use super::state::record_limiter::RecordKind;
use crate::http::access::HttpRules;
use crate::peer_identity::{InspectedPeer, Refused, peer_identity};
use crate::process_ids::from_process;
use ceased_process::{JobId, Located, Order};

/// Reason of rejecting a peer whose identity cannot be determined.
const IN_DOUBT: &str = "it may belong to a job of another user";

impl Server {
    /// Accepts a user of this system, after an inspection of its process if jobs are running.
    pub(super) fn admit_user(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
    ) -> io::Result<()> {
        match self.process_to_inspect(transport.peer()) {
            Some(pid) => self.inspect(now, transport, identity, pid, None),
            None => {
                let peer = InspectedPeer { identity, rights: Rights::Full, job: None };
                self.admit_within(now, transport, peer)
            }
        }
    }

    /// As [`Server::admit_user`], for a peer of a listener for HTTP.
    pub(super) fn admit_user_of_http(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        rules: Arc<HttpRules>,
    ) -> io::Result<()> {
        match self.process_to_inspect(transport.peer()) {
            Some(pid) => self.inspect(now, transport, identity, pid, Some(rules)),
            None => self.admit_http(now, transport, rules, None),
        }
    }

    /// The process of a peer that may be inside a job.
    fn process_to_inspect(&self, peer: &Origin) -> Option<Pid> {
        // A process without a pid here is in an unrelated pid namespace, which contains no job.
        let Origin::Unix { pid: Some(pid), .. } = peer else { return None };
        let pid = Pid::from_raw(i32::try_from(*pid).ok()?).filter(|pid| *pid != getpid())?;
        self.supervisor.has_processes().then_some(pid)
    }

    fn inspect(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        identity: Identity,
        pid: Pid,
        http: Option<Arc<HttpRules>>,
    ) -> io::Result<()> {
        let process = transport.peer_process();
        let ticket = self.handshakes.begin_inspection(transport, identity);
        if let Some(rules) = http {
            self.http.note_inspection(ticket, rules);
        }
        let asked = process.is_ok_and(|process| {
            self.supervisor.order(Order::Locate { ticket, pid, process }).is_ok()
        });
        if !asked {
            self.take_located(now, ticket, &Located::Gone);
        }
        self.listeners.hold(self.handshakes.inspected() >= self.handshake_limits().inspected);
        Ok(())
    }

    /// Handles the result of an inspection.
    pub(super) fn take_located(&mut self, now: Now, ticket: u64, located: &Located) {
        let http = self.http.take_inspection(ticket);
        let ended = self.handshakes.end_inspection(ticket);
        self.listeners.hold(self.handshakes.inspected() >= self.handshake_limits().inspected);
        let Some((transport, identity)) = ended else { return };
        if self.stopping != Stopping::No {
            return;
        }
        let found = match transport.peer() {
            Origin::Unix { uid, .. } => {
                let us = geteuid().as_raw();
                peer_identity(*uid, us, located, |job| self.requestor(job))
            }
            Origin::Stdio { .. } | Origin::Tcp { .. } | Origin::Child { .. } => {
                Err(Refused::Untold)
            }
        };
        let served = match (found, http) {
            (Ok(peer), Some(rules)) => self.admit_http(now, transport, rules, Some(peer)),
            (Ok(peer), None) => self.admit_within(now, transport, peer),
            (Err(refused), Some(rules)) => {
                let reason = (identity, RecordKind::Refuse(IN_DOUBT));
                self.refuse_http(now, transport, rules, reason, refused.text())
            }
            (Err(refused), None) => {
                let error = ErrorObject::new(code::FORBIDDEN, refused.text());
                self.refuse(now, transport, identity, RecordKind::Refuse(IN_DOUBT), &error)
            }
        };
        if let Err(error) = served {
            tracing::warn!(%error, "cannot register a peer with epoll; closing it");
        }
    }

    /// The identity that has requested a job of the supervisor: a tool's call, or an instance of a
    /// server or an agent, if it serves one identity alone.
    fn requestor(&self, job: JobId) -> Option<Identity> {
        match instance_of(job) {
            Some(instance) => self.upstreams.get(instance)?.owner().cloned(),
            None => {
                let job = from_process(job);
                self.engine.owner(job).or_else(|| self.endings.owner(job)).cloned()
            }
        }
    }

    /// Accepts a peer unless its identity has reached its connection limit.
    fn admit_within(
        &mut self,
        now: Now,
        transport: Box<dyn Transport>,
        peer: InspectedPeer,
    ) -> io::Result<()> {
        match self.engine.connection_limit(&peer.identity, peer.rights) {
            None => self.admit_from(now, transport, peer, false),
            Some(limit) => self.refuse_connection(now, transport, peer.identity, limit),
        }
    }
}
