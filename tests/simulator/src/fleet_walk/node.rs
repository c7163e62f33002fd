//! A daemon of a fleet around its engine: writer, reader, and the deadline of its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId, TaskId};
use ceased_core::settings::Settings;
use ceased_core::tasks::durable::{RecordedOutcome, Seq, StoreWrite, Unstored};
use ceased_core::tasks::shared::{Found, SharedEvent, Verdict, Wanted};
use uuid::Uuid;

use super::table::{LEASE, Table};
use crate::trace::Input;
use crate::world::{NEWEST, Rigged, World};

/// The one identity of the walk.
const ME: Identity = Identity::User(1000);
/// From a renewal to the stop of the jobs.
const STOP: u64 = 7_000;
/// From a renewal to the end of their processes by the keeper.
const HARD: u64 = 9_000;

/// A daemon.
pub(super) struct Node {
    pub(super) world: World,
    /// Its number in the table; `None` while it is no member.
    pub(super) epoch: Option<u64>,
    pub(super) is_cut_off: bool,
    pub(super) is_paused: bool,
    /// Ends of its tasks that others were quicker with.
    pub(super) overtaken: usize,
    conn: ConnId,
    /// Versions of its own tasks.
    known: BTreeMap<TaskId, u64>,
    /// Results of the table on their way.
    late: Vec<Input>,
    /// End of its processes, unless it is renewed.
    hard: u64,
    /// The table has answered without a break since then.
    answers_since: u64,
    /// Jobs whose processes the keeper has ended; the engine hears of it when it goes on.
    ended: BTreeSet<JobId>,
}

impl Node {
    pub(super) fn start(settings: &Arc<Settings>, table: &mut Table, number: usize) -> Self {
        let first = (number as u128) << 64 | 0x4000_8000 << 96;
        let ids = Rigged::new((0..4000).map(|count| Uuid::from_u128(first | count)));
        let mut world = World::made_of(Arc::clone(settings), ids);
        let conn = world.open_as(ME, NEWEST);
        let mut node = Self {
            world,
            epoch: None,
            is_cut_off: false,
            is_paused: false,
            overtaken: 0,
            conn,
            known: BTreeMap::new(),
            late: Vec::new(),
            hard: 0,
            answers_since: 0,
            ended: BTreeSet::new(),
        };
        node.rejoin(table);
        node
    }

    pub(super) fn conn(&mut self) -> Option<ConnId> {
        (!self.is_paused && self.world.is_open(self.conn)).then_some(self.conn)
    }

    fn reaches(&self) -> bool {
        !self.is_cut_off && !self.is_paused
    }

    pub(super) fn rejoin(&mut self, table: &mut Table) {
        if self.epoch.is_some() || !self.reaches() {
            return;
        }
        self.epoch = Some(table.join());
        self.answers_since = table.now;
        self.known.clear();
        self.world.feed(Input::Shared(SharedEvent::Joined { cursor_key: [7; 16] }));
        self.renew(table.now);
    }

    fn renew(&mut self, sent: u64) {
        self.hard = sent + HARD;
        let until = Some(self.world.now().at + Duration::from_millis(STOP));
        self.world.feed(Input::Shared(SharedEvent::Renewed { until }));
    }

    /// Amnesty: only a node that the table has answered for a lease ends others.
    pub(super) fn may_reap(&self, now: u64) -> bool {
        self.reaches() && self.answers_since + LEASE <= now
    }

    /// Carries out the oldest writes, at most so many. With `late` the engine hears of it later.
    pub(super) fn commit(&mut self, table: &mut Table, most: usize, late: bool) {
        if self.is_paused {
            return;
        }
        let count = self.world.stored.len().min(most);
        let batch: Vec<(Seq, StoreWrite)> = self.world.stored.drain(..count).collect();
        if self.is_cut_off || self.epoch.is_none() {
            self.answers_since = u64::MAX / 2;
            self.deliver();
            return self.refuse(&batch);
        }
        let Some(epoch) = self.epoch else { return };
        if self.answers_since > table.now {
            self.answers_since = table.now;
        }
        let writes: Vec<StoreWrite> = batch.iter().map(|(_, write)| write.clone()).collect();
        let Some(verdicts) = table.commit(epoch, &writes, &mut self.known) else {
            self.deliver();
            self.epoch = None;
            self.known.clear();
            self.world.feed(Input::Shared(SharedEvent::Fenced));
            return self.refuse(&batch);
        };
        for ((seq, _), verdict) in batch.iter().zip(verdicts) {
            self.overtaken += usize::from(matches!(verdict, Some(Verdict::Overtaken(_))));
            let verdict = verdict.map(|verdict| SharedEvent::Verdict { seq: *seq, verdict });
            self.late.extend(verdict.map(Input::Shared));
        }
        self.late.extend(batch.last().map(|(seq, _)| Input::Durable(*seq)));
        self.renew(table.now);
        if !late {
            self.deliver();
        }
    }

    fn refuse(&mut self, batch: &[(Seq, StoreWrite)]) {
        for (seq, _) in batch {
            self.world.feed(Input::Unstored(*seq, Unstored::Broken));
        }
    }

    /// Answers the questions of the engine by the table as it is now. With `late` it hears later.
    pub(super) fn answer(&mut self, table: &Table, late: bool) {
        if self.is_paused {
            return;
        }
        for lookup in std::mem::take(&mut self.world.lookups) {
            let found = match &lookup.wanted {
                _ if self.is_cut_off => Found::Unreachable,
                Wanted::Task { task, whole } => {
                    Found::Records(table.find(*task, &lookup.viewer, *whole).into_iter().collect())
                }
                Wanted::Tasks(_) | Wanted::Page { .. } => Found::Unreachable,
            };
            let found = SharedEvent::Found { lookup: lookup.id, found };
            self.late.push(Input::Shared(found));
        }
        for (load, key) in std::mem::take(&mut self.world.loads) {
            let record = table.find(key.task, &ME, true).filter(|_| !self.is_cut_off);
            let outcome = record.and_then(|record| match record.outcome {
                RecordedOutcome::Here(outcome) => Some(outcome),
                RecordedOutcome::Open | RecordedOutcome::Stored { .. } => None,
            });
            self.late.push(Input::Loaded(load, outcome));
        }
        if !late {
            self.deliver();
        }
    }

    /// Hands the engine the results that were on their way.
    pub(super) fn deliver(&mut self) {
        if self.is_paused {
            return;
        }
        for input in std::mem::take(&mut self.late) {
            self.world.feed(input);
        }
        self.world.feed(Input::Turn);
    }

    /// Looks for changes by others. A hint may be lost: this is the way that always works.
    pub(super) fn look(&mut self, table: &Table) {
        let Some(epoch) = self.epoch.filter(|_| self.reaches()) else { return };
        for record in table.changed(epoch, &self.known) {
            if record.status.is_terminal() {
                self.known.remove(&record.id);
            }
            self.world.feed(Input::Shared(SharedEvent::Changed { record: Box::new(record) }));
        }
    }

    /// Jobs whose processes are alive.
    pub(super) fn processes(&self) -> impl Iterator<Item = JobId> + '_ {
        self.world.running.keys().copied().filter(|job| !self.ended.contains(job))
    }

    /// Whether a process of a task is alive here.
    pub(super) fn runs(&self, task: TaskId) -> bool {
        self.processes().any(|job| self.world.running[&job].task == Some(task))
    }

    /// Processes that were told to stop end, and the engine hears of those that the keeper has ended.
    pub(super) fn stop_processes(&mut self) {
        if self.is_paused {
            return;
        }
        let told = self.world.running.iter().filter(|(_, running)| running.step.is_some());
        let told: BTreeSet<JobId> = told.map(|(job, _)| *job).collect();
        let ended = std::mem::take(&mut self.ended);
        for job in told.union(&ended) {
            if self.world.running.contains_key(job) {
                self.world.stopped(*job);
            }
        }
    }

    pub(super) fn pause(&mut self, pauses: bool) {
        let resumes = std::mem::replace(&mut self.is_paused, pauses) && !pauses;
        if resumes {
            self.world.advance(Duration::ZERO);
        }
    }

    /// Time passes here, too, and the keeper runs also while the daemon does not.
    pub(super) fn pass(&mut self, now: u64, by: u64) {
        let by = Duration::from_millis(by);
        match self.is_paused {
            true => self.world.sleep_through(by),
            false => self.world.advance(by),
        }
        if self.hard <= now {
            let tasks = self.world.running.iter().filter(|(_, running)| running.task.is_some());
            let jobs: Vec<JobId> = tasks.map(|(job, _)| *job).collect();
            self.ended.extend(jobs);
        }
    }
}
