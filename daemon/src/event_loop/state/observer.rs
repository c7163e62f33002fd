//! Facts about jobs that the loop alone knows, for receipts, metrics and the audit log.

use crate::observability::audit::Audit;
use crate::observability::calls::{CallRecord, Calls};
use crate::observability::ended::{EndedCalls, EndedLimits, Export};
use crate::observability::metrics::{Alerts, Metrics, Thresholds};
use crate::observability::user_names::UserNames;
use ceased_core::identity::Identity;
use ceased_core::ids::{JobId, StatusId};
use ceased_core::tasks::durable::Unstored;
use ceased_core::time::Wall;
use ceased_process::{Ending, Exit, Stopped};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Records and counters of the loop, and facts that wait for the engine.
pub(crate) struct Observer {
    pub(crate) audit: Audit,
    pub(crate) calls: Calls,
    pub(crate) metrics: Metrics,
    pub(crate) alerts: Alerts,
    pub(crate) containment: &'static str,
    pub(crate) job_ends: JobEnds,
    /// Delivers spans of ended calls.
    pub(crate) exporter: Option<Box<dyn Export>>,
    /// The latest calls that have ended.
    pub(crate) ended: EndedCalls,
    /// Names of the users that have connected.
    pub(crate) names: UserNames,
    /// Whose the detailed statuses are that wait for their processes.
    pub(crate) surveys: BTreeMap<StatusId, Survey>,
    /// Why the store takes nothing at the moment, and since when.
    pub(crate) store_trouble: Option<(Unstored, Wall)>,
    pub(crate) started: Instant,
}

/// Ends of jobs, until the engine says which of them had been stopped. It does so the next time that
/// its actions are carried out.
#[derive(Default)]
pub(crate) struct JobEnds {
    /// Ends of jobs that no thread ran to its end.
    ends: BTreeMap<JobId, End>,
    /// The same of those that have ended since its actions were last carried out.
    fresh_ends: BTreeMap<JobId, End>,
    /// Calls that had been stopped, which wait for their receipts.
    unreceipted: BTreeMap<JobId, Arc<CallRecord>>,
    /// The same of those that have ended since the actions of the engine were last carried out.
    fresh_unreceipted: BTreeMap<JobId, Arc<CallRecord>>,
}

/// A detailed status that waits for its processes.
pub(crate) struct Survey {
    /// Identity that asks; `None` for an operator.
    pub(crate) viewer: Option<Identity>,
    /// The jobs that the viewer may see.
    pub(crate) jobs: Vec<JobId>,
    /// Whether it asks for the calls that have ended.
    pub(crate) ended: bool,
    /// Jobs and instances whose processes are asked for.
    pub(crate) asked: Vec<ceased_process::JobId>,
    /// The nodes of the fleet and the tasks there.
    pub(crate) fleet: Option<Box<RawValue>>,
}

/// Whether a job has ended, or outlasts SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Wholly,
    Not,
}

/// How a job ended that no thread ran.
pub(crate) enum End {
    /// Before anything of it was there: it was not confirmed, or could not be started.
    Unbegun,
    /// As a command does.
    Exited { stopped: Stopped, processes: u32, survivors: Option<u32>, gone: Instant },
}

impl End {
    pub(crate) const fn of(exit: &Exit) -> Self {
        let Exit { stopped, signalled: processes, survivors, gone, .. } = *exit;
        Self::Exited { stopped, processes, survivors, gone }
    }
}

impl Observer {
    pub(crate) fn new(audit: Audit, thresholds: Thresholds, containment: &'static str) -> Self {
        Self {
            audit,
            calls: Calls::default(),
            metrics: Metrics::default(),
            alerts: Alerts::new(thresholds),
            containment,
            job_ends: JobEnds::default(),
            exporter: None,
            ended: EndedCalls::default(),
            names: UserNames::default(),
            surveys: BTreeMap::new(),
            store_trouble: None,
            started: Instant::now(),
        }
    }

    /// Records calls as this policy says, and keeps so many that have ended.
    pub(crate) fn with_calls(mut self, calls: Calls, ended: EndedLimits) -> Self {
        (self.calls, self.ended) = (calls, EndedCalls::new(ended));
        self
    }
}

impl JobEnds {
    /// A command has ended.
    pub(crate) fn note_end(&mut self, job: JobId, ending: &Ending) {
        let end = match ending {
            Ending::NotStarted(_) => End::Unbegun,
            Ending::Exited(exit) => End::of(exit),
        };
        self.fresh_ends.insert(job, end);
    }

    /// A command outlasts SIGKILL.
    pub(crate) fn note_outlasting(&mut self, job: JobId, exit: &Exit) {
        self.fresh_ends.insert(job, End::of(exit));
    }

    /// A job has ended that had been handed over to be started, and never began.
    pub(crate) fn note_unbegun(&mut self, job: JobId) {
        self.fresh_ends.insert(job, End::Unbegun);
    }

    /// The actions of the engine are executed now; a job that ended before and was not stopped is
    /// of no interest after that. Returns the calls that have no receipt nevertheless.
    pub(crate) fn begin_actions(&mut self) -> BTreeMap<JobId, Arc<CallRecord>> {
        self.ends = std::mem::take(&mut self.fresh_ends);
        let fresh = std::mem::take(&mut self.fresh_unreceipted);
        std::mem::replace(&mut self.unreceipted, fresh)
    }

    /// The end of a job that no thread ran to its end.
    pub(crate) fn take(&mut self, job: JobId) -> Option<End> {
        self.ends.remove(&job)
    }

    /// A call has ended that had been stopped: its receipt follows.
    pub(crate) fn await_receipt(&mut self, call: Arc<CallRecord>) {
        self.fresh_unreceipted.insert(call.job, call);
    }

    /// The call that a receipt belongs to.
    pub(crate) fn take_unreceipted(&mut self, job: JobId) -> Option<Arc<CallRecord>> {
        self.unreceipted.remove(&job).or_else(|| self.fresh_unreceipted.remove(&job))
    }
}
