//! Jobs under way: how each one is stopped and which of its requests wait for an answer.

use crate::conn_map::ByCount;
use crate::tools::cancel_token::CancelToken;
use ceased_core::ids::{JobId, TaskId};
use ceased_core::json::raw::Json;
use ceased_core::outgoing::call::{Answer, Caller};
use ceased_core::reason::StopReason;
use ceased_core::tool::{StopStep, Tool};
use crossbeam_channel::Sender;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Every job that the engine has started and that has not ended.
#[derive(Default)]
pub(crate) struct RunningJobs {
    jobs: HashMap<JobId, RunningJob, ByCount>,
    /// Handlers that wait for an answer of their peer.
    asking: BTreeMap<Caller, Sender<Answer>>,
    /// Handlers that were abandoned and have not returned.
    abandoned: BTreeSet<JobId>,
}

enum RunningJob {
    /// On a worker thread.
    Handler(CancelToken),
    Command(RunningCommand),
    /// A command that outlasts SIGKILL: its request was answered.
    Outlasting,
    /// Starts after an answer of its peer.
    Pending(Awaited, Box<PendingStart>),
}

/// The answer that a job needs before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The confirmation of its requestor.
    Confirmation,
    /// The roots of its client, in whose directory it runs.
    Roots,
}

/// A command under way.
pub(crate) struct RunningCommand {
    pub(crate) tool: Arc<Tool>,
    /// Reason of the last order to stop it.
    pub(crate) stopped: Option<StopReason>,
}

/// A job that starts after an answer of its peer.
pub(crate) struct PendingStart {
    pub(crate) tool: Arc<Tool>,
    pub(crate) arguments: Json,
    pub(crate) task: Option<TaskId>,
}

/// Consequence of a step towards the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopEffect {
    /// Nothing is to be done: its token is set, its request to the peer is cancelled by the engine,
    /// or it has ended and its report is pending.
    None,
    /// The supervisor sends SIGTERM.
    Terminate,
    /// The supervisor sends SIGKILL.
    Kill,
}

/// Starting.
impl RunningJobs {
    /// A handler is given to the worker threads.
    pub(crate) fn start_handler(&mut self, job: JobId, token: CancelToken) {
        self.jobs.insert(job, RunningJob::Handler(token));
    }

    /// A command is given to the supervisor.
    pub(crate) fn start_command(&mut self, job: JobId, tool: Arc<Tool>) {
        self.jobs.insert(job, RunningJob::Command(RunningCommand { tool, stopped: None }));
    }

    /// A job waits for an answer of its peer.
    pub(crate) fn await_answer(&mut self, job: JobId, awaited: Awaited, start: PendingStart) {
        self.jobs.insert(job, RunningJob::Pending(awaited, Box::new(start)));
    }

    /// Takes a job whose peer has answered, if it waited for that.
    pub(crate) fn take_pending(&mut self, job: JobId, awaited: Awaited) -> Option<PendingStart> {
        match self.jobs.remove(&job)? {
            RunningJob::Pending(own, start) if own == awaited => Some(*start),
            other @ (RunningJob::Handler(_)
            | RunningJob::Command(_)
            | RunningJob::Outlasting
            | RunningJob::Pending(..)) => {
                self.jobs.insert(job, other);
                None
            }
        }
    }
}

/// Stopping and ending.
impl RunningJobs {
    /// A step towards the end of a job, ordered by the engine for this reason.
    pub(crate) fn stop(&mut self, job: JobId, step: StopStep, why: StopReason) -> StopEffect {
        let Some(running) = self.jobs.get_mut(&job) else { return StopEffect::None };
        match (running, step) {
            (
                RunningJob::Handler(token),
                StopStep::Tell | StopStep::Flag | StopStep::Terminate | StopStep::Kill,
            ) => {
                token.cancel();
                StopEffect::None
            }
            (RunningJob::Handler(_), StopStep::Abandon) => {
                self.jobs.remove(&job);
                self.abandoned.insert(job);
                StopEffect::None
            }
            (
                RunningJob::Command(command),
                StopStep::Tell | StopStep::Flag | StopStep::Terminate,
            ) => {
                command.stopped = Some(why);
                StopEffect::Terminate
            }
            (RunningJob::Command(command), StopStep::Kill | StopStep::Abandon) => {
                command.stopped = Some(why);
                StopEffect::Kill
            }
            (RunningJob::Outlasting, _) => StopEffect::Kill,
            // The engine cancels the request that it waits for, which ends it.
            (RunningJob::Pending(..), _) => StopEffect::None,
        }
    }

    /// A handler has returned, also after it was abandoned.
    pub(crate) fn end_handler(&mut self, job: JobId) {
        self.jobs.remove(&job);
        self.abandoned.remove(&job);
    }

    /// A command has ended, or a job could not be started.
    pub(crate) fn end(&mut self, job: JobId) -> Option<RunningCommand> {
        match self.jobs.remove(&job)? {
            RunningJob::Command(command) => Some(command),
            RunningJob::Handler(_) | RunningJob::Outlasting | RunningJob::Pending(..) => None,
        }
    }

    /// A command outlasts SIGKILL: its result is made now, and its end is awaited further.
    pub(crate) fn outlast(&mut self, job: JobId) -> Option<RunningCommand> {
        match std::mem::replace(self.jobs.get_mut(&job)?, RunningJob::Outlasting) {
            RunningJob::Command(command) => Some(command),
            RunningJob::Handler(_) | RunningJob::Outlasting | RunningJob::Pending(..) => None,
        }
    }
}

/// Requests of handlers.
impl RunningJobs {
    /// A handler waits for an answer.
    pub(crate) fn ask(&mut self, caller: Caller, answer: Sender<Answer>) {
        self.asking.insert(caller, answer);
    }

    /// Passes an answer to the handler that waits for it. Returns the answer if none does.
    pub(crate) fn answer(&mut self, caller: &Caller, answer: Answer) -> Option<Answer> {
        let Some(asking) = self.asking.remove(caller) else { return Some(answer) };
        // A handler that no longer waits is not notified.
        let _ = asking.send(answer);
        None
    }
}

/// Queries.
impl RunningJobs {
    /// Commands under way.
    pub(crate) fn commands(&self) -> BTreeSet<JobId> {
        let is_command = |(_, job): &(&JobId, &RunningJob)| matches!(job, RunningJob::Command(_));
        self.jobs.iter().filter(is_command).map(|(id, _)| *id).collect()
    }

    /// Whether a job has, or may have, processes.
    pub(crate) fn has_processes(&self) -> bool {
        self.jobs.values().any(RunningJob::has_processes)
    }

    /// Whether every job with processes outlasts SIGKILL, and at least one does.
    pub(crate) fn all_processes_outlast(&self) -> bool {
        let mut with_processes = self.jobs.values().filter(|job| job.has_processes()).peekable();
        with_processes.peek().is_some()
            && with_processes.all(|job| matches!(job, RunningJob::Outlasting))
    }

    /// Number of abandoned handlers that have not returned.
    pub(crate) fn abandoned(&self) -> usize {
        self.abandoned.len()
    }
}

impl RunningJob {
    const fn has_processes(&self) -> bool {
        match self {
            Self::Command(_) | Self::Outlasting => true,
            Self::Handler(_) | Self::Pending(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use ceased_core::tool::StopPolicy;

    use super::*;

    /// A handler that ignores its token counts until it returns; a later stop changes nothing.
    #[test]
    fn abandoned_handler_is_counted_until_it_returns() {
        let (mut jobs, job, token) =
            (RunningJobs::default(), JobId::new(1), CancelToken::default());
        jobs.start_handler(job, token.clone());
        for step in [StopStep::Flag, StopStep::Abandon, StopStep::Abandon] {
            assert_eq!(jobs.stop(job, step, StopReason::Requested), StopEffect::None);
        }
        assert!(token.is_cancelled());
        assert_eq!((jobs.abandoned(), jobs.has_processes()), (1, false));
        jobs.end_handler(job);
        assert_eq!(jobs.abandoned(), 0);
    }

    /// A job that waits for its roots is not taken as one that waits for a confirmation.
    #[test]
    fn answer_starts_only_the_job_that_waits_for_it() {
        let (mut jobs, job) = (RunningJobs::default(), JobId::new(1));
        let tool = Arc::new(Tool::new(
            "t",
            StopPolicy::Handler { abandon_after: std::time::Duration::ZERO },
        ));
        let start = PendingStart { tool, arguments: Json::written("{}".to_owned()), task: None };
        jobs.await_answer(job, Awaited::Roots, start);
        assert!(jobs.take_pending(job, Awaited::Confirmation).is_none());
        assert!(jobs.take_pending(job, Awaited::Roots).is_some());
        assert!(jobs.take_pending(job, Awaited::Roots).is_none());
    }
}
