//! Calls that were answered with `input_required` and wait for their requestor.

use crate::collections::timer_queue::Armed;
use crate::identity::Identity;
use crate::ids::JobId;
use crate::ids::RequestState;
use crate::tasks::durable::TaskOutcome;
use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;

/// Calls that wait for a retry.
#[derive(Debug, Default)]
pub(crate) struct SuspendedCalls {
    /// Jobs that asked something since the last turn, and whose calls are answered with it.
    pub(crate) asking: BTreeSet<JobId>,
    /// By the state that names them.
    pub(crate) calls: BTreeMap<RequestState, Call>,
}

impl SuspendedCalls {
    /// Whether a job has asked something since the last turn.
    pub(crate) fn anybody_asks(&self) -> bool {
        !self.asking.is_empty()
    }
}

/// A call that waits for its retry.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) owner: Identity,
    pub(crate) tool: Arc<str>,
    pub(crate) timer: Option<Armed>,
    pub(crate) work: Waiting,
}

/// State that a retry finds.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// The job, which may still want to know something.
    Job(JobId),
    /// Its outcome.
    Outcome(TaskOutcome),
}
