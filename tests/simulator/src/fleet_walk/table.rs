//! The table of a fleet in memory, with its history.

use std::collections::{BTreeMap, BTreeSet};

use ceased_core::identity::Identity;
use ceased_core::ids::TaskId;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::tasks::durable::{
    ClaimedKey, KeyChange, RecordedOutcome, Seq, StoreWrite, TaskOutcome, TaskRecord,
};
use ceased_core::tasks::shared::{KeyVerdict, SharedLimit, Verdict};
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;

/// Lease of every node, in milliseconds.
pub(super) const LEASE: u64 = 10_000;
/// Beyond its lease a node is let live for so long.
const MARGIN: u64 = 1000;
/// Most tasks without an end.
pub(super) const LIVE_MAX: usize = 14;
/// Most messages about one task that wait for its node.
const MESSAGES_MAX: usize = 3;

/// Versions of the tasks whose changes concern a node, and whether they run there.
pub(super) type Followed = BTreeMap<TaskId, (u64, bool)>;

/// The number of a message, its task and its text.
pub(super) type Message = (i64, TaskId, Box<str>);

#[derive(Debug)]
struct Row {
    record: TaskRecord,
    epoch: u64,
    version: u64,
    /// Every status with the commit that brought it.
    history: Vec<(usize, Status)>,
    /// Real time of its end.
    ended: Option<u64>,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Real time, in milliseconds.
    pub(super) now: u64,
    /// The table's clock is so far ahead.
    pub(super) ahead: u64,
    pub(super) commits: usize,
    /// The last commit with as many tasks without an end as there may be.
    last_full: Option<usize>,
    rows: BTreeMap<TaskId, Row>,
    /// Members, and the end of their leases by the table's clock.
    members: BTreeMap<u64, u64>,
    epochs: u64,
    watches: BTreeSet<(TaskId, u64)>,
    keyed: BTreeMap<(Identity, Box<str>), Keyed>,
    inbox: BTreeMap<(u64, i64), (TaskId, Box<str>)>,
    messages: i64,
    positions: u64,
}

/// A call with an idempotency key.
#[derive(Debug)]
struct Keyed {
    /// Node and claim.
    by: (u64, Seq),
    wish: Box<str>,
    task: Option<TaskId>,
    over: Option<TaskOutcome>,
}

impl Table {
    /// An empty one, whose clock is so far ahead.
    pub(super) fn new(ahead: u64) -> Self {
        Self { ahead, ..Self::default() }
    }

    pub(super) const fn clock(&self) -> u64 {
        self.now + self.ahead
    }

    const fn stamp(&self) -> Wall {
        Wall::from_millis(1_000_000 + self.clock())
    }

    pub(super) fn join(&mut self) -> u64 {
        self.epochs += 1;
        self.members.insert(self.epochs, self.clock() + LEASE);
        self.epochs
    }

    /// The daemon of an epoch has been started again, and its processes have ended.
    pub(super) fn succeed(&mut self, epoch: Option<u64>) {
        if let Some(epoch) = epoch {
            self.members.remove(&epoch);
        }
    }

    /// Carries out the writes of a member, each with its verdict; `None` for an epoch that is over.
    pub(super) fn commit(
        &mut self,
        epoch: u64,
        writes: &[StoreWrite],
    ) -> Option<Vec<Option<Verdict>>> {
        let expires = self.clock() + LEASE;
        *self.members.get_mut(&epoch)? = expires;
        self.commits += 1;
        let verdicts = writes.iter().map(|write| self.write(epoch, write)).collect();
        // FLT-06
        assert!(self.live() <= LIVE_MAX, "more tasks live than may");
        Some(verdicts)
    }

    /// The verdicts of writes that were carried out and whose answer was lost, by the rows as they are.
    pub(super) fn by_look(&self, epoch: u64, writes: &[StoreWrite]) -> Vec<Option<Verdict>> {
        let verdict = |write: &StoreWrite| {
            if let StoreWrite::Claim { key, wish } = write {
                return Some(Verdict::Key(self.judge(epoch, key, wish)));
            }
            let record = write.record()?;
            let row = self.rows.get(&record.id);
            let stored = |row: &Row| Verdict::Stored { stamp: row.record.updated };
            Some(match (write, row) {
                (StoreWrite::New(_), Some(row)) => Verdict::Stored { stamp: row.record.created },
                (StoreWrite::New(_), None) => Verdict::Full(SharedLimit::Live),
                (_, None) => Verdict::Gone,
                (StoreWrite::Change(_), Some(row))
                    if row.epoch == epoch && !row.record.status.is_terminal() =>
                {
                    stored(row)
                }
                (_, Some(row))
                    if record.status.is_terminal() && row.record.status == record.status =>
                {
                    stored(row)
                }
                (_, Some(row)) => Verdict::Overtaken(Box::new(row.record.clone())),
            })
        };
        writes.iter().map(verdict).collect()
    }

    fn live(&mut self) -> usize {
        let live = self.rows.values().filter(|row| !row.record.status.is_terminal()).count();
        if live >= LIVE_MAX {
            self.last_full = Some(self.commits);
        }
        live
    }

    /// Whether there was no room for a further task at a commit since this one.
    pub(super) fn was_full(&self, since: usize) -> bool {
        self.last_full.is_some_and(|last| last >= since)
    }

    fn write(&mut self, epoch: u64, write: &StoreWrite) -> Option<Verdict> {
        let (stamp, commits, now) = (self.stamp(), self.commits, self.now);
        match write {
            StoreWrite::New(record) => {
                if self.live() >= LIVE_MAX {
                    return Some(Verdict::Full(SharedLimit::Live));
                }
                let mut record = record.clone();
                (record.created, record.updated) = (stamp, stamp);
                self.positions += 1;
                record.position = self.positions;
                let history = vec![(commits, record.status)];
                let ended = record.status.is_terminal().then_some(now);
                self.rows.insert(record.id, Row { record, epoch, version: 1, history, ended });
                Some(Verdict::Stored { stamp })
            }
            StoreWrite::Put(record) | StoreWrite::Change(record) | StoreWrite::Cancel(record) => {
                let Some(row) = self.rows.get_mut(&record.id) else { return Some(Verdict::Gone) };
                let is_foreign = row.epoch != epoch && !matches!(write, StoreWrite::Cancel(_));
                if row.record.status.is_terminal() {
                    return Some(Verdict::Overtaken(Box::new(row.record.clone())));
                }
                if is_foreign {
                    return Some(Verdict::Gone);
                }
                row.take(record, stamp, commits, now);
                Some(Verdict::Stored { stamp })
            }
            StoreWrite::Delete(key) => {
                if self.rows.get(&key.task).is_some_and(|row| row.epoch == epoch) {
                    self.rows.remove(&key.task);
                }
                None
            }
            StoreWrite::Watch(task) => {
                self.watches.insert((*task, epoch));
                None
            }
            StoreWrite::Unwatch(task) => {
                self.watches.remove(&(*task, epoch));
                None
            }
            StoreWrite::Input { task, responses, .. } => self.send(*task, responses),
            StoreWrite::Taken(number) => {
                self.inbox.remove(&(epoch, *number));
                None
            }
            StoreWrite::Probe | StoreWrite::Receipt { .. } | StoreWrite::Retire => None,
            StoreWrite::Claim { key, wish } => Some(Verdict::Key(self.claim(epoch, key, wish))),
            StoreWrite::Keyed(key, change) => {
                self.change_key(epoch, key, change);
                None
            }
        }
    }

    /// As the table in PostgreSQL, without limits and without forgetting.
    fn claim(&mut self, epoch: u64, key: &ClaimedKey, wish: &str) -> KeyVerdict {
        let name = (key.owner.clone(), key.key.clone());
        let (by, wished) = ((epoch, key.claim), wish.into());
        let call = Keyed { by, wish: wished, task: None, over: None };
        self.keyed.entry(name).or_insert(call);
        self.judge(epoch, key, wish)
    }

    fn judge(&self, epoch: u64, key: &ClaimedKey, wish: &str) -> KeyVerdict {
        let Some(call) = self.keyed.get(&(key.owner.clone(), key.key.clone())) else {
            return KeyVerdict::UnderWay;
        };
        let task = call.task.filter(|task| self.rows.contains_key(task));
        match (&call.over, task) {
            _ if *call.wish != *wish => KeyVerdict::Another,
            _ if call.by == (epoch, key.claim) => KeyVerdict::Granted,
            (Some(outcome), _) => KeyVerdict::Over(outcome.clone()),
            (None, Some(task)) => KeyVerdict::Task(task),
            (None, None) if self.members.contains_key(&call.by.0) => KeyVerdict::UnderWay,
            (None, None) => KeyVerdict::Lost,
        }
    }

    fn change_key(&mut self, epoch: u64, key: &ClaimedKey, change: &KeyChange) {
        let name = (key.owner.clone(), key.key.clone());
        let own = |call: &&mut Keyed| call.by == (epoch, key.claim);
        let Some(call) = self.keyed.get_mut(&name).filter(own) else { return };
        match change {
            KeyChange::Task(task) => call.task = Some(*task),
            KeyChange::Over(outcome) => call.over = Some(outcome.clone()),
            KeyChange::Forgotten => drop(self.keyed.remove(&name)),
        }
    }

    fn send(&mut self, task: TaskId, responses: &str) -> Option<Verdict> {
        let row = self.rows.get(&task).filter(|row| !row.record.status.is_terminal());
        let Some(to) = row.map(|row| row.epoch).filter(|to| self.members.contains_key(to)) else {
            return Some(Verdict::Gone);
        };
        if self.inbox.values().filter(|(of, _)| *of == task).count() >= MESSAGES_MAX {
            return Some(Verdict::Gone);
        }
        self.messages += 1;
        self.inbox.insert((to, self.messages), (task, responses.into()));
        None
    }

    /// Ends members whose lease is over, and their tasks.
    pub(super) fn reap(&mut self, by: u64) -> Vec<TaskId> {
        let (clock, stamp, now) = (self.clock(), self.stamp(), self.now);
        self.members.retain(|epoch, expires| *epoch == by || *expires + MARGIN >= clock);
        self.commits += 1;
        let (commits, members) = (self.commits, &self.members);
        let mut ended = Vec::new();
        for (task, row) in &mut self.rows {
            if !row.record.status.is_terminal() && !members.contains_key(&row.epoch) {
                let error = ErrorObject::new(-31007, "its node was lost");
                let mut record = row.record.clone();
                record.status = Status::Failed;
                record.status_message = Some("its node was lost".into());
                (record.outcome, record.asks) = (RecordedOutcome::Here(Err(error)), None);
                row.take(&record, stamp, commits, now);
                ended.push(*task);
            }
        }
        self.watches.retain(|(_, epoch)| members.contains_key(epoch));
        self.inbox.retain(|(epoch, _), _| members.contains_key(epoch));
        ended
    }

    pub(super) fn has(&self, task: TaskId) -> bool {
        self.rows.contains_key(&task)
    }

    pub(super) fn lives(&self, task: TaskId) -> bool {
        self.rows.get(&task).is_some_and(|row| row.ended.is_none())
    }

    /// Whether a task ended more than this long ago.
    pub(super) fn has_long_ended(&self, task: TaskId, ago: u64) -> bool {
        let ended = self.rows.get(&task).and_then(|row| row.ended);
        ended.is_some_and(|ended| ended + ago < self.now)
    }

    pub(super) fn runs_at(&self, task: TaskId, epoch: u64) -> bool {
        self.rows.get(&task).is_some_and(|row| row.epoch == epoch)
    }

    /// The record of a task as its owner may see it, without or with its outcome.
    pub(super) fn find(&self, task: TaskId, viewer: &Identity, whole: bool) -> Option<TaskRecord> {
        let row = self.rows.get(&task).filter(|row| row.record.owner == *viewer)?;
        Some(row.shown(whole))
    }

    /// Tasks behind a position, in their order.
    pub(super) fn page(&self, after: u64, size: usize) -> Vec<TaskRecord> {
        let mut rows: Vec<&Row> =
            self.rows.values().filter(|row| row.record.position > after).collect();
        rows.sort_by_key(|row| row.record.position);
        rows.into_iter().take(size).map(|row| row.shown(false)).collect()
    }

    /// Place of a task in the list.
    pub(super) fn position(&self, task: TaskId) -> Option<u64> {
        self.rows.get(&task).map(|row| row.record.position)
    }

    /// Tasks that are not in these versions with their versions, and those that are gone.
    pub(super) fn changed(&self, followed: &Followed) -> (Vec<(TaskRecord, u64)>, Vec<TaskId>) {
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        for (task, (version, _)) in followed {
            match self.rows.get(task) {
                Some(row) if row.version != *version => {
                    changed.push((row.record.clone(), row.version));
                }
                Some(_) => {}
                None => gone.push(*task),
            }
        }
        (changed, gone)
    }

    /// The first messages to a node.
    pub(super) fn inbox(&self, epoch: u64) -> Vec<Message> {
        let own = self.inbox.range((epoch, 0)..(epoch + 1, 0)).take(4);
        own.map(|((_, number), (task, text))| (*number, *task, text.clone())).collect()
    }

    pub(super) fn version(&self, task: TaskId) -> u64 {
        self.rows.get(&task).map_or(0, |row| row.version)
    }

    /// Statuses that a task has had since this number of commits, the one at that time among them.
    pub(super) fn statuses(&self, task: TaskId, since: usize) -> BTreeSet<&'static str> {
        let Some(row) = self.rows.get(&task) else { return BTreeSet::new() };
        let first = row.history.iter().rposition(|(commit, _)| *commit <= since).unwrap_or(0);
        row.history.iter().skip(first).map(|(_, status)| status.as_str()).collect()
    }

    /// Tasks that live, are watched, or have messages, with their nodes, and the nodes of the latter.
    pub(super) fn at_work(&self) -> BTreeSet<(TaskId, u64, Option<u64>)> {
        let of = |task: &TaskId| self.rows.get(task).map_or(0, |row| row.epoch);
        let live = self.rows.iter().filter(|(_, row)| !row.record.status.is_terminal());
        let live = live.map(|(task, row)| (*task, row.epoch, None));
        let watched = self.watches.iter().map(|(task, by)| (*task, of(task), Some(*by)));
        let inbox = self.inbox.iter().map(|((by, _), (task, _))| (*task, of(task), Some(*by)));
        live.chain(watched).chain(inbox).collect()
    }
}

impl Row {
    fn take(&mut self, record: &TaskRecord, stamp: Wall, commits: usize, now: u64) {
        let (created, position) = (self.record.created, self.record.position);
        let updated = self.record.updated.max(stamp);
        self.record = TaskRecord { created, position, updated, ..record.clone() };
        self.version += 1;
        self.history.push((commits, record.status));
        self.ended = record.status.is_terminal().then_some(now);
    }

    fn shown(&self, whole: bool) -> TaskRecord {
        let mut record = self.record.clone();
        if !whole && record.status.is_terminal() {
            record.outcome = RecordedOutcome::Stored { bytes: 1 };
        }
        record
    }
}
