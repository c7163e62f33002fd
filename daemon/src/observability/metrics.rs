//! Measurements: time from a cancel to the last death, survivors, rejected requests, and load
//! (TSK-38).

pub(crate) mod alerts;
mod text;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ceased_core::counters::Counters;
use ceased_core::identity::Identity;
use ceased_core::ids::JobId;
use ceased_core::stats::{AgentStats, Gauges, ServerStats};
use ceased_process::Process;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

pub(crate) use alerts::{Alerts, Thresholds};

use crate::observability::audit::CancelRecord;
use crate::observability::calls::ToolNumbers;
use crate::observability::histogram::Histogram;
use crate::observability::job_status::JobStatus;

/// Number of receipts kept for views.
const RECEIPTS_MAX: usize = 32;

/// Counters of the loop, beside those of the engine.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    deaths: Histogram,
    /// Processes that were alive after the end of their job.
    survivors: u64,
    /// Whether the survivors of some job could not be counted.
    has_unknown: bool,
    /// Processes of the jobs that outlast SIGKILL.
    outlasting: BTreeMap<JobId, u32>,
    processes_ended: u64,
    refused: BTreeMap<&'static str, u64>,
    /// Bytes read and written by closed connections.
    closed_bytes: (u64, u64),
    connections_accepted: u64,
    /// The latest receipts, newest last.
    receipts: VecDeque<Past>,
}

/// A stopped job that has ended.
#[derive(Debug)]
pub(crate) struct Past {
    ended: Instant,
    record: Arc<CancelRecord>,
}

impl Serialize for Past {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let told = self.record.told(self.ended.elapsed()).map_err(S::Error::custom)?;
        told.serialize(serializer)
    }
}

impl Metrics {
    /// Records that a stopped job ended, or outlasts SIGKILL.
    pub(crate) fn note_end(&mut self, record: Arc<CancelRecord>) {
        let job = record.receipt.job;
        match record.died_after {
            None => _ = self.outlasting.insert(job, record.survivors.unwrap_or_default()),
            Some(died_after) => {
                self.outlasting.remove(&job);
                self.deaths.add(died_after);
                self.survivors += u64::from(record.survivors.unwrap_or_default());
                self.processes_ended += u64::from(record.processes_ended.unwrap_or_default());
            }
        }
        // A server that answered a cancel, or was only told, is not part of the containment's
        // count.
        self.has_unknown |= record.survivors.is_none() && record.receipt.upstream.is_none();
        if self.receipts.len() >= RECEIPTS_MAX {
            self.receipts.pop_front();
        }
        self.receipts.push_back(Past { ended: Instant::now(), record });
    }

    /// Processes alive although their job was stopped; `None` if they cannot be counted.
    fn survivors(&self) -> Option<u64> {
        let alive = self.survivors + self.outlasting.values().copied().map(u64::from).sum::<u64>();
        (alive > 0 || !self.has_unknown).then_some(alive)
    }

    pub(crate) fn note_refusal(&mut self, limit: &'static str) {
        *self.refused.entry(limit).or_default() += 1;
    }

    pub(crate) const fn note_connection(&mut self) {
        self.connections_accepted += 1;
    }

    pub(crate) const fn note_close(&mut self, received: u64, sent: u64) {
        self.closed_bytes.0 += received;
        self.closed_bytes.1 += sent;
    }

    /// The latest receipts visible to a viewer, newest first; all of them for an operator.
    pub(crate) fn receipts(&self, viewer: Option<&Identity>) -> Vec<&Past> {
        let seen = |owner: &Identity| match viewer {
            None => true,
            // Anonymous peers share an identity: their cancels are hidden from each other (TSK-40).
            Some(Identity::Anonymous) => false,
            Some(own @ (Identity::User(_) | Identity::Token(_) | Identity::Subject(_))) => {
                own == owner
            }
        };
        let receipts = self.receipts.iter().rev();
        receipts.filter(|past| seen(&past.record.receipt.owner)).collect()
    }
}

/// All measurements at one time.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// Whether the store accepts writes; `None` without a store.
    pub(crate) store_is_open: Option<bool>,
    /// Size of the store's files.
    pub(crate) store_bytes: Option<u64>,
    pub(crate) metrics: &'a Metrics,
    /// Ended calls by tool.
    pub(crate) tools: &'a BTreeMap<Arc<str>, ToolNumbers>,
    /// Times that calls ran, and times that they waited before.
    pub(crate) times: (Histogram, &'a Histogram),
    pub(crate) counters: &'a Counters,
    pub(crate) gauges: Gauges,
    /// Limits of the gauges.
    pub(crate) limits: ceased_core::limits::Limits,
    /// Bytes read and written by open connections.
    pub(crate) open_bytes: (u64, u64),
    pub(crate) audit_dropped: u64,
    /// Spans that were not delivered; `None` without `[otlp]`.
    pub(crate) spans_dropped: Option<u64>,
    /// Commands after the end of calls that were dropped.
    pub(crate) on_end_dropped: u64,
    /// Threads of abandoned handlers that have not returned.
    pub(crate) abandoned_threads: usize,
    pub(crate) uptime: Duration,
    /// Reloads that are over, and why the latest one changed nothing.
    pub(crate) reloads: (u64, Option<&'a str>),
    /// Numbers of servers, and lines that each printed beside messages.
    pub(crate) servers: Vec<(ServerStats, u64)>,
    /// Numbers of agents.
    pub(crate) agents: Vec<AgentStats>,
}

/// State of the task store.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoreStatus {
    /// Kind of store: "disk", "memory", or "embedded" for a store of the embedding program.
    pub(crate) kept: &'static str,
    /// "open", or why no task is created: "full", "broken".
    pub(crate) state: &'static str,
    /// Time of the last change to this state, unless it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// Directory of its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// New name of a damaged store that was set aside at startup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) set_aside: Option<String>,
    /// Number of tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tasks: Option<usize>,
    /// Size of its files at the last maintenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// Duration of the read or write in progress.
    pub(crate) busy_ms: u64,
    /// Text and time of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error_at: Option<String>,
}

impl StoreStatus {
    /// State of a daemon without a store.
    pub(crate) fn in_memory() -> Self {
        Self { kept: "memory", state: "open", ..Self::default() }
    }
}

/// Totals over all peers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Totals<'a> {
    survivors: Option<u64>,
    processes_ended: u64,
    abandoned_threads: usize,
    audit_dropped: u64,
    connections_accepted: u64,
    received_bytes: u64,
    sent_bytes: u64,
    refused_by_limit: &'a BTreeMap<&'static str, u64>,
    cancel_to_death: &'a Histogram,
    call_time: Histogram,
    queue_wait: &'a Histogram,
}

/// The host's part of a detailed status.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostStatus<'a> {
    pid: u32,
    uptime_ms: u64,
    containment: &'a str,
    /// For operators only: totals over all peers are not disclosed to one of them (TSK-39).
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    totals: Option<Totals<'a>>,
    /// For operators only.
    #[serde(skip_serializing_if = "Option::is_none")]
    reloads: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reload_error: Option<&'a str>,
    store: StoreStatus,
    /// The latest receipts, newest first.
    receipts: Vec<&'a Past>,
    /// Processes of each job.
    processes: BTreeMap<u64, Vec<ProcessStatus>>,
    /// Arguments, output and usage of each job that runs.
    jobs: BTreeMap<u64, JobStatus>,
    /// Instances of servers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    instances: BTreeMap<u64, InstanceStatus>,
    /// Tokens for servers by URL.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<TokenStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<Vec<Box<RawValue>>>,
    /// Names of users, by identity.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    names: BTreeMap<String, String>,
    /// The nodes of the fleet, and the tasks there.
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet: Option<Box<RawValue>>,
}

/// Running jobs and instances, by number.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// Processes of each job.
    pub(crate) processes: BTreeMap<u64, Vec<Process>>,
    /// Arguments, output and usage of each job.
    pub(crate) jobs: BTreeMap<u64, JobStatus>,
    /// Instances of servers.
    pub(crate) instances: BTreeMap<u64, InstanceStatus>,
    /// Tokens for servers by URL.
    pub(crate) tokens: Vec<TokenStatus>,
    /// Calls that have ended, newest first, if the viewer asks for them.
    pub(crate) ended: Option<Vec<Box<RawValue>>>,
    /// Names of users, by identity.
    pub(crate) names: BTreeMap<String, String>,
    /// The nodes of the fleet, and the tasks there.
    pub(crate) fleet: Option<Box<RawValue>>,
}

/// The token of a server by URL that is used for an identity.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TokenStatus {
    pub(crate) server: String,
    /// The identity that an instance works for; `None` if it works for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<String>,
    /// `valid`, `needs_login`, `failed` or `none`.
    pub(crate) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_in_ms: Option<u64>,
    /// The step that a person has to take, or the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// The processes of an instance of a server, and their output beside messages.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InstanceStatus {
    uptime_ms: u64,
    processes: Vec<ProcessStatus>,
    /// Lines of standard output that are no messages (UPS-14), and the first of them.
    skipped_lines: u64,
    first_skipped: Vec<String>,
    /// The last lines of standard error.
    stderr: Vec<String>,
}

impl InstanceStatus {
    pub(crate) fn new(
        uptime: Duration,
        processes: Vec<Process>,
        (skipped_lines, first_skipped): (u64, Vec<String>),
        stderr: Vec<String>,
    ) -> Self {
        Self {
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            processes: processes.into_iter().map(ProcessStatus::of).collect(),
            skipped_lines,
            first_skipped,
            stderr,
        }
    }
}

/// A process of a job, in a detailed status.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProcessStatus {
    pid: i32,
    parent: i32,
    name: String,
    memory_bytes: u64,
}

impl ProcessStatus {
    fn of(process: Process) -> Self {
        let Process { pid, parent, name, memory: memory_bytes, started: _ } = process;
        Self { pid, parent, name, memory_bytes }
    }

    fn all_of((job, processes): (u64, Vec<Process>)) -> (u64, Vec<Self>) {
        (job, processes.into_iter().map(Self::of).collect())
    }
}

impl<'a> Snapshot<'a> {
    fn bytes(&self) -> (u64, u64) {
        let (closed, open) = (self.metrics.closed_bytes, self.open_bytes);
        (closed.0 + open.0, closed.1 + open.1)
    }

    fn totals(&self) -> Totals<'a> {
        let (received_bytes, sent_bytes) = self.bytes();
        Totals {
            survivors: self.metrics.survivors(),
            processes_ended: self.metrics.processes_ended,
            abandoned_threads: self.abandoned_threads,
            audit_dropped: self.audit_dropped,
            connections_accepted: self.metrics.connections_accepted,
            received_bytes,
            sent_bytes,
            refused_by_limit: &self.metrics.refused,
            cancel_to_death: &self.metrics.deaths,
            call_time: self.times.0.clone(),
            queue_wait: self.times.1,
        }
    }

    /// The host's part of a detailed status for one viewer.
    pub(crate) fn host_status(
        &self,
        containment: &'a str,
        viewer: Option<&Identity>,
        listed: Listed,
        store: StoreStatus,
    ) -> HostStatus<'a> {
        HostStatus {
            pid: std::process::id(),
            uptime_ms: u64::try_from(self.uptime.as_millis()).unwrap_or(u64::MAX),
            containment,
            totals: viewer.is_none().then(|| self.totals()),
            reloads: viewer.is_none().then_some(self.reloads.0),
            reload_error: self.reloads.1.filter(|_| viewer.is_none()),
            store,
            receipts: self.metrics.receipts(viewer),
            processes: listed.processes.into_iter().map(ProcessStatus::all_of).collect(),
            jobs: listed.jobs,
            instances: listed.instances,
            tokens: listed.tokens,
            ended: listed.ended,
            names: listed.names,
            fleet: listed.fleet,
        }
    }
}
