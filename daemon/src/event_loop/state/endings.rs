//! Commands after the end of calls (`on_end`): those that run, and those that wait.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::JobId;
use ceased_core::time::Instant;
use ceased_process::{Launch, SharedOutput};

use crate::config::OnEnd;

/// Commands that wait at most; those of further calls are dropped and counted.
const WAITING_MAX: usize = 256;
/// Time from SIGTERM to SIGKILL, and between two SIGKILLs.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// When commands run after the end of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OnEndPolicy {
    /// `daemon.on_end`; that of a tool takes its place.
    pub(crate) command: OnEnd,
    /// `daemon.on_end_after`: shorter calls have none, unless they are tasks.
    pub(crate) after: Duration,
    /// `daemon.on_end_timeout`
    pub(crate) timeout: Duration,
    /// `daemon.on_end_running`
    pub(crate) running_max: usize,
}

impl Default for OnEndPolicy {
    fn default() -> Self {
        Self {
            command: OnEnd::default(),
            after: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
            running_max: 4,
        }
    }
}

/// A command to run after the end of a call, with the identity that had requested the call.
pub(crate) struct Epilogue {
    pub(crate) launch: Box<Launch>,
    pub(crate) owner: Identity,
}

/// A command that runs after the end of a call.
struct Running {
    owner: Identity,
    output: SharedOutput,
    /// When its next signal is due.
    due: Instant,
    is_terminated: bool,
}

/// Commands after the end of calls. Each has the number of its call, which has ended.
#[derive(Default)]
pub(crate) struct Endings {
    pub(crate) policy: OnEndPolicy,
    running: BTreeMap<JobId, Running>,
    waiting: VecDeque<Epilogue>,
    /// Commands that were dropped.
    pub(crate) dropped: u64,
}

/// A signal that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Terminate(JobId),
    Kill(JobId),
}

impl Endings {
    pub(crate) fn new(policy: OnEndPolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Takes a command in; false if too many wait.
    pub(crate) fn push(&mut self, epilogue: Epilogue) -> bool {
        let has_room = self.waiting.len() < WAITING_MAX;
        match has_room {
            true => self.waiting.push_back(epilogue),
            false => self.dropped += 1,
        }
        has_room
    }

    /// The next command to start, noted as running.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Box<Launch>> {
        if self.running.len() >= self.policy.running_max {
            return None;
        }
        let Epilogue { launch, owner } = self.waiting.pop_front()?;
        let (output, due) = (launch.output.kept.clone(), now + self.policy.timeout);
        let running = Running { owner, output, due, is_terminated: false };
        self.running.insert(JobId::new(launch.job.get()), running);
        Some(launch)
    }

    /// Whether the command of this call runs.
    pub(crate) fn is_running(&self, job: JobId) -> bool {
        self.running.contains_key(&job)
    }

    /// Whether none runs or waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// The command of this call has ended; returns its output.
    pub(crate) fn end(&mut self, job: JobId) -> Option<SharedOutput> {
        self.running.remove(&job).map(|running| running.output)
    }

    /// SEC-05: a process of such a command acts as the requestor of the call.
    pub(crate) fn owner(&self, job: JobId) -> Option<&Identity> {
        self.running.get(&job).map(|running| &running.owner)
    }

    /// Its first process has exited: the processes left behind end now.
    pub(crate) fn note_lingering(&mut self, job: JobId, now: Instant) {
        if let Some(running) = self.running.get_mut(&job) {
            running.due = running.due.min(now);
        }
    }

    /// When the next signal is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.running.values().map(|running| running.due).min()
    }

    /// Signals that are due: SIGTERM at the end of the time, SIGKILL after that.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Signal> {
        let due = self.running.iter_mut().filter(|(_, running)| running.due <= now);
        due.map(|(job, running)| {
            running.due = now + KILL_GRACE;
            match std::mem::replace(&mut running.is_terminated, true) {
                false => Signal::Terminate(*job),
                true => Signal::Kill(*job),
            }
        })
        .collect()
    }
}
