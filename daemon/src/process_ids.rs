//! Numbers of jobs, between the engine and the supervisor of processes.

use ceased_core::ids::JobId;

/// The job as the supervisor names it.
pub(crate) const fn to_process(job: JobId) -> ceased_process::JobId {
    ceased_process::JobId::new(job.get())
}

/// The job as the engine names it.
pub(crate) const fn from_process(job: ceased_process::JobId) -> JobId {
    JobId::new(job.get())
}
