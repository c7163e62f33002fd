//! Calls that were answered with `input_required` and wait for their requestor.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use crate::collections::timer_queue::{Armed, Timer, TimerQueue};
use crate::identity::Identity;
use crate::ids::{JobId, RequestState};
use crate::json::raw::Raw;
use crate::tasks::durable::TaskOutcome;

/// Calls that wait for a retry.
///
/// ```text
///   asks ──turn ends──► suspended ──its job ends──► its outcome waits
///                          └──────── resume ───────────┘ retry, timeout, shutdown
/// ```
#[derive(Debug, Default)]
pub(crate) struct SuspendedCalls {
    /// Jobs that asked something since the last turn, and whose calls are answered with it.
    asking: BTreeSet<JobId>,
    /// By the state that names them.
    calls: BTreeMap<RequestState, SuspendedCall>,
}

impl SuspendedCalls {
    /// A job has asked something: its call is answered with that at the end of the turn.
    pub(crate) fn note_asking(&mut self, job: JobId) {
        self.asking.insert(job);
    }

    /// Whether a job has asked something since the last turn.
    pub(crate) fn has_asking(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Whether this job has.
    pub(crate) fn is_asking(&self, job: JobId) -> bool {
        self.asking.contains(&job)
    }

    /// The jobs that asked something since the last turn.
    pub(crate) fn asking(&self) -> impl Iterator<Item = JobId> {
        self.asking.iter().copied()
    }

    /// Takes them out.
    pub(crate) fn take_asking(&mut self) -> BTreeSet<JobId> {
        mem::take(&mut self.asking)
    }

    /// Takes in a call that waits for the retry that names this state.
    pub(crate) fn suspend(&mut self, state: RequestState, call: SuspendedCall) {
        self.calls.insert(state, call);
    }

    /// The job of a call has ended: its outcome waits for the retry in its place.
    pub(crate) fn keep_outcome(&mut self, state: RequestState, outcome: TaskOutcome) {
        if let Some(call) = self.calls.get_mut(&state) {
            call.work = SuspendedWork::Outcome(outcome);
        }
    }

    /// Takes a call out: its retry has come, or will not.
    pub(crate) fn unsuspend(
        &mut self,
        timers: &mut TimerQueue,
        state: RequestState,
    ) -> Option<SuspendedWork> {
        let mut call = self.calls.remove(&state)?;
        timers.disarm(&mut call.timer, Timer::Suspended(state));
        Some(call.work)
    }

    /// Takes out all calls: the daemon shuts down.
    pub(crate) fn unsuspend_all(&mut self, timers: &mut TimerQueue) {
        let states: Vec<RequestState> = self.calls.keys().copied().collect();
        for state in states {
            self.unsuspend(timers, state);
        }
    }

    /// Whether a state names a call that waits here.
    pub(crate) fn names_call(&self, state: Raw<'_>) -> bool {
        let state = state.string().and_then(|state| RequestState::parse(&state));
        state.is_some_and(|state| self.get(state).is_some())
    }

    /// The timer of a call is due and no longer armed.
    pub(crate) fn note_due(&mut self, state: RequestState) {
        if let Some(call) = self.calls.get_mut(&state) {
            call.timer = None;
        }
    }

    pub(crate) fn get(&self, state: RequestState) -> Option<&SuspendedCall> {
        self.calls.get(&state)
    }

    /// Every call, sorted by state.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestState, &SuspendedCall)> {
        self.calls.iter().map(|(state, call)| (*state, call))
    }
}

/// A call that waits for its retry.
#[derive(Debug)]
pub(crate) struct SuspendedCall {
    pub(crate) owner: Identity,
    pub(crate) tool: Arc<str>,
    pub(crate) timer: Option<Armed>,
    pub(crate) work: SuspendedWork,
}

/// State that a retry finds.
#[derive(Debug)]
pub(crate) enum SuspendedWork {
    /// The job, which may still want to know something.
    Job(JobId),
    /// Its outcome.
    Outcome(TaskOutcome),
}
