//! The instances of upstreams that have processes, and questions about them.

use std::collections::BTreeMap;
use std::time::Duration;

use ceased_core::ids::{CheckId, ConnId, InstanceId};
use ceased_core::time::Instant;
use ceased_process::SharedOutput;
use ceased_transports::SkippedLines;

/// The instances of upstreams that have processes.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    pub(crate) instances: BTreeMap<InstanceId, Instance>,
    pub(crate) by_conn: BTreeMap<ConnId, InstanceId>,
    /// Questions to the supervisor, by ticket.
    pub(crate) questions: BTreeMap<u64, (InstanceId, CheckId)>,
    pub(crate) asked: u64,
}

/// An instance that has processes.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) conn: ConnId,
    pub(crate) name: Box<str>,
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

    /// Number of a new question to the supervisor.
    pub(crate) fn ask(&mut self, instance: InstanceId, check: CheckId) -> u64 {
        self.asked += 1;
        self.questions.insert(self.asked, (instance, check));
        self.asked
    }
}
