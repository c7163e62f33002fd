//! What the loop knows of what happened, beside the engine.

use crate::announce::say;
use crate::event_loop::mailbox::LoopSender;
use crate::observability::audit::Audit;
use crate::observability::calls::Calls;
use crate::observability::metrics::{Alerts, Endpoint, Metrics, Thresholds};
use ceased_core::identity::Identity;
use ceased_core::ids::{JobId, StatusId};
use ceased_core::tasks::durable::Unstored;
use ceased_core::time::Wall;
use ceased_process::{Ending, Exit, Stopped};
use ceased_transports::{Address, ListenError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// What the loop knows of what happened, beside the engine.
pub(super) struct Trail {
    pub(super) audit: Audit,
    pub(super) calls: Calls,
    pub(super) metrics: Metrics,
    pub(super) alerts: Alerts,
    pub(super) containment: &'static str,
    /// Handlers that were given up and have not returned.
    pub(super) abandoned: BTreeSet<JobId>,
    /// How jobs ended that no thread ran to its end, until the engine says which of them had been
    /// stopped. It does so the next time that its actions are carried out.
    pub(super) ends: BTreeMap<JobId, End>,
    /// The same of those that have ended since its actions were last carried out.
    pub(super) fresh_ends: BTreeMap<JobId, End>,
    /// Whose the detailed statuses are that wait for their processes.
    pub(super) surveys: BTreeMap<StatusId, Survey>,
    /// Why the store takes nothing at the moment, and since when.
    pub(super) store_trouble: Option<(Unstored, Wall)>,
    pub(super) started: Instant,
}

/// A detailed status that waits for its processes.
pub(super) struct Survey {
    /// Identity that asks; `None` for an operator.
    pub(super) viewer: Option<Identity>,
    /// The jobs that the viewer may see.
    pub(super) jobs: Vec<JobId>,
}

/// Whether a job has ended, or outlasts SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Wholly,
    Not,
}

/// How a job ended that no thread ran.
pub(super) enum End {
    /// Before anything of it was there: it was not confirmed, or could not be started.
    Unbegun,
    /// As a command does.
    Exited { stopped: Stopped, processes: u32, survivors: Option<u32>, gone: Instant },
}

impl End {
    pub(super) const fn of(exit: &Exit) -> Self {
        let Exit { stopped, signalled: processes, survivors, gone, .. } = *exit;
        Self::Exited { stopped, processes, survivors, gone }
    }
}

impl Trail {
    pub(super) fn new(audit: Audit, thresholds: Thresholds, containment: &'static str) -> Self {
        Self {
            audit,
            calls: Calls::default(),
            metrics: Metrics::default(),
            alerts: Alerts::new(thresholds),
            containment,
            abandoned: BTreeSet::new(),
            ends: BTreeMap::new(),
            fresh_ends: BTreeMap::new(),
            surveys: BTreeMap::new(),
            store_trouble: None,
            started: Instant::now(),
        }
    }

    /// Records calls as this policy says.
    pub(super) fn with_calls(mut self, calls: Calls) -> Self {
        self.calls = calls;
        self
    }

    /// Why the store takes nothing at the moment, and since when.
    pub(super) const fn store_trouble(&self) -> Option<(Unstored, Wall)> {
        self.store_trouble
    }

    /// Warns by other thresholds from now on.
    pub(super) const fn warn_at(&mut self, thresholds: Thresholds) {
        self.alerts.warn_at(thresholds);
    }

    /// A command has ended.
    pub(super) fn note_end(&mut self, job: JobId, ending: &Ending) {
        let end = match ending {
            Ending::NotStarted(_) => End::Unbegun,
            Ending::Exited(exit) => End::of(exit),
        };
        self.fresh_ends.insert(job, end);
    }

    /// A command outlasts SIGKILL.
    pub(super) fn note_outlasting(&mut self, job: JobId, exit: &Exit) {
        self.fresh_ends.insert(job, End::of(exit));
    }

    /// A job has ended that had been handed over to be started, and never began.
    pub(super) fn note_unbegun(&mut self, job: JobId) {
        self.fresh_ends.insert(job, End::Unbegun);
    }

    /// What the engine wants done is carried out now; what ended before and was not stopped is of
    /// no interest after that.
    pub(super) fn begin_actions(&mut self) {
        self.ends = std::mem::take(&mut self.fresh_ends);
    }
}

/// Serves the metrics of the loop behind `reports` at `address`, if there is one.
pub(super) fn serve_metrics(
    address: Option<&Address>,
    reports: &LoopSender,
) -> Result<Option<Endpoint>, ListenError> {
    let Some(address) = address else { return Ok(None) };
    let (endpoint, address) = Endpoint::start(address, reports.clone())?;
    say(format_args!("metrics on {address}"));
    Ok(Some(endpoint))
}
