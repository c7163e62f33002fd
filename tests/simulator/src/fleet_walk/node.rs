//! A daemon of a fleet around its engine: writer, reader, and the deadline of its processes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId, TaskId};
use ceased_core::settings::Settings;
use ceased_core::tasks::durable::{RecordedOutcome, Seq, StoreWrite, Unstored};
use ceased_core::tasks::shared::{Found, SharedEvent, Verdict, Wanted};
use ceased_core::time::Instant;
use uuid::Uuid;

use super::table::{Followed, LEASE, Table};
use crate::trace::Input;
use crate::world::{NEWEST, Rigged, World};

/// The one identity of the walk.
const ME: Identity = Identity::User(1000);
/// From a renewal to the stop of the jobs.
const STOP: u64 = 7_000;
/// From a renewal to the end of their processes by the keeper.
const HARD: u64 = 9_000;
/// Time between two looks for changes, whatever becomes of hints.
const LOOK_EVERY: u64 = 1000;

/// The fate of the answer to a batch that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It arrives.
    Arrives,
    /// It is lost, and the table is asked for the fate of the batch.
    FoundOut,
    /// It is lost, and the table does not tell.
    Lost,
}

/// A result of the writer on its way to the loop.
enum Written {
    Input(Input),
    /// A batch that was sent at the beginning of this term was carried out.
    Renewed {
        until: Instant,
        hard: u64,
    },
}

/// A daemon.
pub(super) struct Node {
    pub(super) world: World,
    /// Its number in the table; `None` while it is no member.
    pub(super) epoch: Option<u64>,
    pub(super) is_cut_off: bool,
    pub(super) is_paused: bool,
    /// Ends of its tasks that others were quicker with.
    pub(super) overtaken: usize,
    /// How often it was fenced.
    pub(super) fences: usize,
    session: ConnId,
    modern: ConnId,
    /// Tasks whose changes concern it.
    followed: Followed,
    /// Results of the writer on their way.
    written: Vec<Written>,
    /// Results of the reader on their way.
    heard: Vec<Input>,
    /// Numbers of messages that were handed on, and are in the table still.
    taken: BTreeSet<i64>,
    /// Its own clock, in milliseconds, and its rate by the thousand.
    clock: u64,
    rate: u64,
    /// End of its processes by its own clock, unless it is renewed.
    hard: u64,
    next_look: u64,
    /// The table has answered without a break since then.
    answers_since: Option<u64>,
    /// Jobs whose processes the keeper has ended; the engine hears of it when it goes on.
    ended: BTreeSet<JobId>,
}

impl Node {
    pub(super) fn start(
        settings: &Arc<Settings>,
        table: &mut Table,
        number: usize,
        rate: u64,
    ) -> Self {
        let first = (number as u128) << 64 | 0x4000_8000 << 96;
        let ids = Rigged::new((0..4000).map(|count| Uuid::from_u128(first | count)));
        let mut world = World::made_of(Arc::clone(settings), ids);
        let session = world.open_as(ME, NEWEST);
        let modern = world.connect(ME);
        let mut node = Self {
            world,
            epoch: None,
            is_cut_off: false,
            is_paused: false,
            overtaken: 0,
            fences: 0,
            session,
            modern,
            followed: Followed::new(),
            written: Vec::new(),
            heard: Vec::new(),
            taken: BTreeSet::new(),
            clock: 0,
            rate,
            hard: 0,
            next_look: 0,
            answers_since: None,
            ended: BTreeSet::new(),
        };
        node.rejoin(table);
        node
    }

    /// Its connection of this form, while that is served.
    pub(super) fn conn(&mut self, is_modern: bool) -> Option<ConnId> {
        let conn = if is_modern { self.modern } else { self.session };
        (!self.is_paused && self.world.is_open(conn)).then_some(conn)
    }

    /// Its connection with subscriptions is lost.
    pub(super) fn lose_subscriptions(&mut self) {
        self.world.lose(self.modern);
        self.world.feed(Input::Turn);
    }

    const fn reaches(&self) -> bool {
        !self.is_cut_off && !self.is_paused
    }

    pub(super) fn rejoin(&mut self, table: &mut Table) {
        if self.epoch.is_some() || !self.reaches() {
            return;
        }
        self.epoch = Some(table.join());
        self.answers_since = Some(table.now);
        self.followed.clear();
        self.taken.clear();
        self.world.feed(Input::Shared(SharedEvent::Joined { cursor_key: [7; 16] }));
        let term = self.term();
        self.hear(term);
    }

    /// The term of a batch that is sent now.
    fn term(&self) -> Written {
        let until = self.world.now().at + Duration::from_millis(STOP);
        Written::Renewed { until, hard: self.clock + HARD }
    }

    /// Amnesty: only a node that the table has answered for a lease ends others.
    pub(super) fn may_reap(&self, now: u64) -> bool {
        self.reaches() && self.answers_since.is_some_and(|since| since + LEASE <= now)
    }

    /// Carries out the oldest writes, at most so many. With `late` the engine hears of it later.
    pub(super) fn commit(&mut self, table: &mut Table, most: usize, late: bool, answer: Answer) {
        if self.is_paused {
            return;
        }
        let count = self.world.stored.len().min(most);
        let batch: Vec<(Seq, StoreWrite)> = self.world.stored.drain(..count).collect();
        let Some(epoch) = self.epoch.filter(|_| !self.is_cut_off) else {
            self.answers_since = None;
            return self.refuse(&batch);
        };
        self.answers_since.get_or_insert(table.now);
        let writes: Vec<StoreWrite> = batch.iter().map(|(_, write)| write.clone()).collect();
        let term = self.term();
        let Some(verdicts) = table.commit(epoch, &writes) else {
            self.refuse(&batch);
            (self.epoch, self.answers_since) = (None, None);
            self.followed.clear();
            self.fences += 1;
            return self.world.feed(Input::Shared(SharedEvent::Fenced));
        };
        let verdicts = match answer {
            Answer::Arrives => verdicts,
            Answer::FoundOut => table.by_look(epoch, &writes),
            Answer::Lost => {
                self.answers_since = None;
                return self.refuse(&batch);
            }
        };
        for ((seq, write), verdict) in batch.iter().zip(verdicts) {
            self.overtaken += usize::from(matches!(verdict, Some(Verdict::Overtaken(_))));
            self.follow(table, write, verdict.as_ref());
            let verdict = verdict.map(|verdict| SharedEvent::Verdict { seq: *seq, verdict });
            self.written.extend(verdict.map(|verdict| Written::Input(Input::Shared(verdict))));
        }
        let last = batch.last().map(|(seq, _)| Written::Input(Input::Durable(*seq)));
        self.written.extend(last);
        self.written.push(term);
        if !late {
            self.deliver_written();
        }
    }

    /// Takes note of the versions of tasks that concern it.
    fn follow(&mut self, table: &Table, write: &StoreWrite, verdict: Option<&Verdict>) {
        let is_stored = matches!(verdict, Some(Verdict::Stored { .. }));
        match write {
            StoreWrite::New(record) if is_stored && !record.status.is_terminal() => {
                self.followed.insert(record.id, (1, true));
            }
            StoreWrite::Change(record) if is_stored => {
                if let Some(entry) = self.followed.get_mut(&record.id) {
                    entry.0 = table.version(record.id);
                }
            }
            StoreWrite::Put(record) => drop(self.followed.remove(&record.id)),
            StoreWrite::Delete(key) => drop(self.followed.remove(&key.task)),
            StoreWrite::Watch(task) => {
                self.followed.entry(*task).or_insert((0, false));
                self.next_look = self.clock;
            }
            StoreWrite::Unwatch(task) => {
                if self.followed.get(task).is_some_and(|entry| !entry.1) {
                    self.followed.remove(task);
                }
            }
            StoreWrite::New(_)
            | StoreWrite::Change(_)
            | StoreWrite::Cancel(_)
            | StoreWrite::Input { .. }
            | StoreWrite::Taken(_)
            | StoreWrite::Receipt { .. }
            | StoreWrite::Claim { .. }
            | StoreWrite::Keyed(..)
            | StoreWrite::Probe
            | StoreWrite::Retire => {}
        }
    }

    fn refuse(&mut self, batch: &[(Seq, StoreWrite)]) {
        self.deliver_written();
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
            let find = |task: &TaskId, whole| table.find(*task, &lookup.viewer, whole);
            let found = match &lookup.wanted {
                _ if self.is_cut_off => Found::Unreachable,
                Wanted::Task { task, whole } => {
                    Found::Records(find(task, *whole).into_iter().collect())
                }
                Wanted::Tasks(tasks) => {
                    Found::Records(tasks.iter().filter_map(|task| find(task, false)).collect())
                }
                Wanted::Page { after, size } => Found::Records(table.page(*after, *size)),
            };
            let found = SharedEvent::Found { lookup: lookup.id, found };
            self.heard.push(Input::Shared(found));
        }
        for (load, key) in std::mem::take(&mut self.world.loads) {
            let record = table.find(key.task, &ME, true).filter(|_| !self.is_cut_off);
            let outcome = record.and_then(|record| match record.outcome {
                RecordedOutcome::Here(outcome) => Some(outcome),
                RecordedOutcome::Open | RecordedOutcome::Stored { .. } => None,
            });
            self.written.push(Written::Input(Input::Loaded(load, outcome)));
        }
        if !late {
            self.deliver_heard();
        }
    }

    /// Hands the engine the results of the writer that were on their way.
    pub(super) fn deliver_written(&mut self) {
        if self.is_paused {
            return;
        }
        for written in std::mem::take(&mut self.written) {
            self.hear(written);
        }
        self.world.feed(Input::Turn);
    }

    fn hear(&mut self, written: Written) {
        match written {
            Written::Input(input) => self.world.feed(input),
            Written::Renewed { until, hard } => {
                self.hard = hard;
                let until = Some(until);
                self.world.feed(Input::Shared(SharedEvent::Renewed { until }));
            }
        }
    }

    /// Hands the engine the results of the reader that were on their way.
    pub(super) fn deliver_heard(&mut self) {
        if self.is_paused {
            return;
        }
        for input in std::mem::take(&mut self.heard) {
            self.world.feed(input);
        }
        self.world.feed(Input::Turn);
    }

    /// Looks for changes by others, whose words may arrive late or twice. A hint may be lost: this is the way
    /// that always works.
    pub(super) fn look(&mut self, table: &Table, late: bool, twice: bool) {
        let Some(epoch) = self.epoch.filter(|_| self.reaches()) else { return };
        let mut words = Vec::new();
        let (changed, gone) = table.changed(&self.followed);
        for task in gone {
            if self.followed.remove(&task).is_some_and(|entry| !entry.1) {
                words.push(SharedEvent::Removed { task });
            }
        }
        for (record, version) in changed {
            let Some(entry) = self.followed.get_mut(&record.id) else { continue };
            let (is_newer, is_own) = (entry.0 < version, entry.1);
            entry.0 = entry.0.max(version);
            if record.status.is_terminal() {
                self.followed.remove(&record.id);
            } else if !is_newer || is_own {
                continue;
            }
            words.push(SharedEvent::Changed { record: Box::new(record) });
        }
        let inbox = table.inbox(epoch);
        let numbers: BTreeSet<i64> = inbox.iter().map(|(number, ..)| *number).collect();
        for (number, task, responses) in inbox {
            if !self.taken.contains(&number) {
                words.push(SharedEvent::Input { number, task, responses });
            }
        }
        self.taken = numbers;
        for _ in 0..=usize::from(twice) {
            self.heard.extend(words.iter().cloned().map(Input::Shared));
        }
        if !late {
            self.deliver_heard();
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

    /// Tasks with a process that is alive and was not told to stop.
    pub(super) fn untouched(&self) -> impl Iterator<Item = TaskId> + '_ {
        let running = self.processes().map(|job| &self.world.running[&job]);
        running.filter(|running| running.step.is_none()).filter_map(|running| running.task)
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
    pub(super) fn pass(&mut self, table: &Table, by: u64) {
        let own = by * self.rate / 1000;
        self.clock += own;
        let own = Duration::from_millis(own);
        match self.is_paused {
            true => self.world.sleep_through(own),
            false => self.world.advance(own),
        }
        if self.hard <= self.clock {
            let tasks = self.world.running.iter().filter(|(_, running)| running.task.is_some());
            let jobs: Vec<JobId> = tasks.map(|(job, _)| *job).collect();
            self.ended.extend(jobs);
        }
        if self.next_look <= self.clock {
            self.next_look = self.clock + LOOK_EVERY;
            self.look(table, false, false);
        }
    }
}
