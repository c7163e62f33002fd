//! Running jobs in a detailed status: arguments, last line of output, CPU time and memory.

use std::collections::BTreeMap;

use ceased_core::ids::JobId;
use ceased_process::Usage;
use serde::Serialize;

/// Characters of the last line of output.
pub(crate) const LINE_CHARS_MAX: usize = 200;

/// A running job. A member that is unknown is left out.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobStatus {
    /// As `name=value`, without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<String>,
    /// Last line of output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_line: Option<String>,
    /// CPU time of its processes so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_ms: Option<u64>,
    /// CPU time lately, in percent of one CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_percent: Option<u64>,
    /// Memory of its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_bytes: Option<u64>,
}

impl JobStatus {
    /// Adds the usage of its processes.
    fn with(mut self, usage: &Usage) -> Self {
        self.cpu_ms = usage.cpu.map(|cpu| u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX));
        // Saturates, and a number that is none becomes 0.
        self.cpu_percent = usage.cpus.map(|cpus| (cpus * 100.0).round() as u64);
        self.memory_bytes = usage.memory;
        self
    }
}

/// The status of each job: its usage, and the rest from `known`.
pub(crate) fn of_jobs(
    jobs: &[JobId],
    usage: &BTreeMap<JobId, Usage>,
    known: impl Fn(JobId) -> JobStatus,
) -> BTreeMap<u64, JobStatus> {
    let status = |job: &JobId| {
        let known = known(*job);
        let status = match usage.get(job) {
            Some(usage) => known.with(usage),
            None => known,
        };
        (job.get(), status)
    };
    jobs.iter().map(status).filter(|(_, status)| *status != JobStatus::default()).collect()
}
