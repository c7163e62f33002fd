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
    policy: OnEndPolicy,
    running: BTreeMap<JobId, Running>,
    waiting: VecDeque<Epilogue>,
    /// Commands that were dropped.
    dropped: u64,
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

    /// When commands run.
    pub(crate) const fn policy(&self) -> &OnEndPolicy {
        &self.policy
    }

    /// Follows another policy from now on.
    pub(crate) fn change(&mut self, policy: OnEndPolicy) {
        self.policy = policy;
    }

    /// Number of commands that were dropped.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes a command in; false if one is dropped. With too many waiting that is the last one of the
    /// identity with most of them, so that no identity keeps the others from theirs.
    pub(crate) fn push(&mut self, epilogue: Epilogue) -> bool {
        self.waiting.push_back(epilogue);
        if self.waiting.len() <= WAITING_MAX {
            return true;
        }
        let of = |owner: &Identity| self.waiting.iter().filter(|it| it.owner == *owner).count();
        let last_of_most = (0..self.waiting.len()).max_by_key(|at| {
            let owner = self.waiting.get(*at).map(|it| &it.owner);
            (owner.map(of), *at)
        });
        self.waiting.remove(last_of_most.unwrap_or_default());
        self.dropped += 1;
        false
    }

    /// The next command to start, noted as running: the first one of the identity with the fewest that
    /// run.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Box<Launch>> {
        if self.running.len() >= self.policy.running_max {
            return None;
        }
        let running =
            |owner: &Identity| self.running.values().filter(|it| it.owner == *owner).count();
        let next = self.waiting.iter().enumerate().min_by_key(|(at, it)| (running(&it.owner), *at));
        let next = next.map(|(at, _)| at)?;
        let Epilogue { launch, owner } = self.waiting.remove(next)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn epilogue(job: u64, uid: u32) -> Epilogue {
        let mut launch = Launch::new(["true"]);
        launch.job = ceased_process::JobId::new(job);
        Epilogue { launch: Box::new(launch), owner: Identity::User(uid) }
    }

    #[test]
    fn identities_share_places_and_queue() {
        let mut endings = Endings::default();
        for job in 1..=WAITING_MAX as u64 {
            assert!(endings.push(epilogue(job, 1)));
        }
        // Full of one identity's: another one's is taken, and the last of the first one's is dropped.
        assert!(!endings.push(epilogue(1000, 2)));
        assert!(!endings.push(epilogue(1001, 1)));
        assert_eq!((endings.waiting.len(), endings.dropped), (WAITING_MAX, 2));
        let started: Vec<u64> = std::iter::from_fn(|| endings.next(Instant::ZERO))
            .map(|launch| launch.job.get())
            .collect();
        assert_eq!(started, [1, 1000, 2, 3]);
    }
}
