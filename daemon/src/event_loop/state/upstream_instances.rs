//! The instances of upstreams that have processes, and questions about them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::server_logs::ServerLogs;
use ceased_core::identity::Identity;
use ceased_core::ids::{CheckId, ConnId, InstanceId};
use ceased_core::time::Instant;
use ceased_process::SharedOutput;
use ceased_transports::SkippedLines;

use crate::store::manifests::Manifests;

/// The instances of upstreams that have processes.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    pub(crate) instances: BTreeMap<InstanceId, Instance>,
    pub(crate) by_conn: BTreeMap<ConnId, InstanceId>,
    /// Connections that are not read until the receiver of their frames has caught up.
    pub(crate) paused: BTreeSet<ConnId>,
    /// Questions to the supervisor, by ticket.
    pub(crate) questions: BTreeMap<u64, (InstanceId, CheckId)>,
    pub(crate) asked: u64,
    /// Lines that ended instances printed beside messages, by server.
    pub(crate) skipped: BTreeMap<Box<str>, u64>,
    /// Standard error of instances, ended ones included.
    pub(crate) logs: ServerLogs,
    /// Manifests of servers, with a state directory.
    pub(crate) manifests: Option<Manifests>,
}

/// An instance that has processes.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) conn: ConnId,
    pub(crate) started: Instant,
    pub(crate) name: Box<str>,
    /// Identity that it serves, if it serves one alone.
    pub(crate) owner: Option<Identity>,
    pub(crate) stderr: SharedOutput,
    pub(crate) skipped: SkippedLines,
    pub(crate) kill_grace: Duration,
    /// The next step of its end and its time, once it has to end.
    pub(crate) step: Option<(Step, Instant)>,
}

/// A step of the end of an instance.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Terminate,
    Kill,
}

impl Upstreams {
    /// Time of the next step of an end.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.instances.values().filter_map(|instance| Some(instance.step?.1)).min()
    }

    /// Lines that a server printed beside messages (UPS-14).
    pub(crate) fn skipped_by(&self, server: &str) -> u64 {
        let live = self.instances.values().filter(|instance| &*instance.name == server);
        let live: u64 = live.map(|instance| instance.skipped.count()).sum();
        live + self.skipped.get(server).copied().unwrap_or_default()
    }

    /// Number of a new question to the supervisor.
    pub(crate) fn ask(&mut self, instance: InstanceId, check: CheckId) -> u64 {
        self.asked += 1;
        self.questions.insert(self.asked, (instance, check));
        self.asked
    }
}
