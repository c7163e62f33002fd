//! The jobs of an engine: their table, the queue, and the counts that follow from their states.
//!
//! [`Jobs`] alone changes the state of a job and the receiver of its outcome. Its methods
//! move one job by the total functions of `job.rs`, keep queue and counts in step, and return
//! consequences, which the machine of jobs carries out (`lifecycle.rs`).
//!
//! CAN-08 needs two facts. A cancelled request has no right to an answer any more:
//! `Requests::cancel` in `outbox/requests.rs` drops it. And its job has no receiver any more:
//! [`Jobs::release`] leaves it with [`Purpose::NoReceiver`], which [`Purpose`] never leaves.

pub(crate) mod gates;
pub(crate) mod heartbeat;
pub(crate) mod job;
pub(crate) mod lifecycle;
pub(crate) mod messages;
pub(crate) mod outcome;
pub(crate) mod pools;
pub(crate) mod queue;
pub(crate) mod result;

use crate::collections::det_map::Seed;
use crate::collections::slot_map::Records;
use crate::collections::tally::Tally;
use crate::identity::Identity;
use crate::ids::{ConnId, JobId, RequestId, RequestState, TaskId};
use crate::jobs::job::{Job, JobEffect, JobInput, JobState, Purpose, PurposeChange};
use crate::jobs::pools::Pools;
use crate::limits::Places;
use crate::protocol::request_meta::RequestContext;
use crate::time::Instant;

/// Every job that is not gone yet.
#[derive(Debug)]
pub(crate) struct Jobs {
    table: Records<Job>,
    /// Jobs that wait for their turn, and running ones by identity.
    pools: Pools,
    /// Jobs that wait until their task is on disk, by identity.
    held: Tally,
    /// Jobs that outlast the last step of their stop policy.
    outlasting: usize,
    next: u64,
}

impl Jobs {
    /// `own` are the places for jobs of own tools.
    pub(crate) fn new(seed: Seed, own: Places) -> Self {
        Self {
            table: Records::new(seed),
            pools: Pools::new(own),
            held: Tally::default(),
            outlasting: 0,
            next: 1,
        }
    }

    /// The id of the next job.
    pub(crate) const fn next_id(&self) -> JobId {
        JobId::new(self.next)
    }

    /// Takes a number for work that is not a job of this table, such as a turn of an agent.
    pub(crate) const fn draw_id(&mut self) -> JobId {
        let id = JobId::new(self.next);
        self.next += 1;
        id
    }

    /// Takes in a job with the [next id](Jobs::next_id), which is held or queued.
    pub(crate) fn insert(&mut self, job: Job) -> JobId {
        let id = job.id;
        debug_assert_eq!(id, self.next_id(), "a job has the next id");
        self.next += 1;
        match job.state() {
            JobState::Held(_) => self.held.add(&job.owner),
            JobState::Queued(_) => self.pools.push(&job),
            JobState::Running | JobState::Lingering | JobState::Stopping { .. } => {
                unreachable!("a new job has not begun")
            }
        }
        self.table.insert(job);
        id
    }

    /// Applies an input to a job and returns its consequence; `None` if there is no such job.
    pub(crate) fn advance(
        &mut self,
        id: JobId,
        input: JobInput,
        now: Instant,
    ) -> Option<JobEffect> {
        let job = self.table.get_mut(&id)?;
        let effect = job.advance(input, now);
        match &effect {
            JobEffect::Enqueue => {
                self.held.remove(&job.owner);
                self.pools.push(job);
            }
            JobEffect::Run(_)
            | JobEffect::Ignored
            | JobEffect::Linger
            | JobEffect::Drop
            | JobEffect::Step { .. } => {}
        }
        Some(effect)
    }

    /// Takes a job whose turn it is out of its queue. Its [`JobInput::Turn`] follows.
    pub(crate) fn take_turn(&mut self) -> Option<JobId> {
        self.pools.start()
    }

    /// Changes the places for jobs of own tools.
    pub(crate) const fn bound(&mut self, own: Places) {
        self.pools.bound(own);
    }

    /// Leaves a job without a receiver, and returns the one it had (CAN-08).
    pub(crate) fn release(&mut self, id: JobId) -> Option<Purpose> {
        Some(self.table.get_mut(&id)?.redirect(PurposeChange::Release))
    }

    /// A retry waits for a job from now on, on its own connection and terms.
    pub(crate) fn answer_now(
        &mut self,
        id: JobId,
        conn: ConnId,
        request: RequestId,
        terms: RequestContext,
    ) -> Option<&mut Job> {
        let job = self.table.get_mut(&id)?;
        job.redirect(PurposeChange::AnswerNow(request));
        job.conn = conn;
        job.terms = terms;
        Some(job)
    }

    /// The call of a job is answered with a question, and the job waits for the retry that names
    /// this state (MOD-07). Returns the request that is to be answered.
    pub(crate) fn suspend(&mut self, id: JobId, state: RequestState) -> Option<RequestId> {
        match self.table.get_mut(&id)?.redirect(PurposeChange::Suspend(state)) {
            Purpose::Answer(request) => Some(request),
            Purpose::Task | Purpose::Retry(_) | Purpose::Orphan | Purpose::NoReceiver => None,
        }
    }

    /// A job runs on for a time though its connection is gone.
    pub(crate) fn orphan(&mut self, id: JobId) -> Option<&mut Job> {
        let job = self.table.get_mut(&id)?;
        job.redirect(PurposeChange::Orphan);
        Some(job)
    }

    /// The call of a job becomes a task.
    pub(crate) fn become_task(&mut self, id: JobId, task: TaskId) -> Option<&mut Job> {
        let job = self.table.get_mut(&id)?;
        job.redirect(PurposeChange::BecomeTask);
        job.task = Some(task);
        Some(job)
    }

    /// Takes a job out that outlasts the last step of its stop policy, so that its outcome is handed in
    /// now; [`Jobs::put_back`] must follow. It goes on being counted as running.
    pub(crate) fn take_outlasting(&mut self, id: JobId) -> Option<Job> {
        let mut job = self.table.remove(&id)?;
        job.note_outlasting();
        self.outlasting += 1;
        Some(job)
    }

    /// Puts a job back that outlasts the last step of its stop policy. It has no receiver any more.
    pub(crate) fn put_back(&mut self, mut job: Job) {
        job.redirect(PurposeChange::Release);
        self.table.insert(job);
    }

    /// Removes a job, with its place in the queue and in the counts.
    pub(crate) fn remove(&mut self, id: JobId) -> Option<Job> {
        self.settle_asking(id, false);
        let job = self.table.remove(&id)?;
        match job.state() {
            JobState::Held(_) => self.held.remove(&job.owner),
            JobState::Queued(_) => self.pools.remove(&job),
            JobState::Running | JobState::Lingering | JobState::Stopping { .. } => {
                self.pools.end(&job);
            }
        }
        self.outlasting -= usize::from(job.outlasts());
        Some(job)
    }
}

/// Jobs that wait for an answer hold no place of a running one, so that questions without an answer
/// keep no other call waiting.
impl Jobs {
    /// The questions of a job have changed, or its state has.
    pub(crate) fn note_questions(&mut self, id: JobId) {
        let waits = self.table.get(&id).is_some_and(Job::waits_for_answer);
        self.settle_asking(id, waits);
    }

    fn settle_asking(&mut self, id: JobId, waits: bool) {
        let Some(job) = self.table.get_mut(&id).filter(|job| job.is_asking() != waits) else {
            return;
        };
        job.set_asking(waits);
        self.pools.note_asking(job, waits);
    }
}

/// Questions about them.
impl Jobs {
    pub(crate) fn get(&self, id: JobId) -> Option<&Job> {
        self.table.get(&id)
    }

    /// A job, for fields besides its state: progress, questions, timers, the recorded cancel.
    pub(crate) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.table.get_mut(&id)
    }

    pub(crate) fn contains(&self, id: JobId) -> bool {
        self.table.contains_key(&id)
    }

    /// Every job, sorted by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobId, &Job)> {
        self.table.iter()
    }

    /// The sum of a number of each job.
    pub(crate) fn sum(&self, of: impl Fn(&Job) -> usize) -> usize {
        self.table.sum(of)
    }

    /// Whether a job that is held for the disk will wait for a place, or at a gate of its tool.
    pub(crate) fn would_wait(&self, id: JobId) -> bool {
        let held = self.get(id).filter(|job| matches!(job.state(), JobState::Held(_)));
        held.is_some_and(|job| self.pools.would_wait(job))
    }

    /// Number of all jobs.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Number of jobs that outlast the last step of their stop policy.
    pub(crate) const fn outlasting(&self) -> usize {
        self.outlasting
    }

    /// Number of jobs that wait until their task is on disk.
    pub(crate) const fn held(&self) -> usize {
        self.held.len()
    }

    /// Jobs of an identity that have not begun: queued, or held for the disk.
    pub(crate) fn waiting_of(&self, owner: &Identity) -> usize {
        self.pools.waiting_of(owner) + self.held.len_of(owner)
    }

    /// The pools, to be looked at.
    pub(crate) const fn pools(&self) -> &Pools {
        &self.pools
    }
}
