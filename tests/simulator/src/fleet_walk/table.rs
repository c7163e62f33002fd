//! The table of a fleet in memory, with its history.

use std::collections::{BTreeMap, BTreeSet};

use ceased_core::identity::Identity;
use ceased_core::ids::TaskId;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::tasks::durable::{
    ClaimedKey, KeyChange, RecordedOutcome, Seq, StoreWrite, TaskOutcome, TaskRecord,
};
use ceased_core::tasks::shared::{KeyVerdict, Verdict};
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;

/// Lease of every node, in milliseconds.
pub(super) const LEASE: u64 = 10_000;
/// Beyond its lease a node is let live for so long.
const MARGIN: u64 = 1000;

#[derive(Debug)]
struct Row {
    record: TaskRecord,
    epoch: u64,
    version: u64,
    /// Every status with the commit that brought it.
    history: Vec<(usize, Status)>,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Its clock, in milliseconds.
    pub(super) now: u64,
    pub(super) commits: usize,
    rows: BTreeMap<TaskId, Row>,
    /// Members, and the end of their leases.
    members: BTreeMap<u64, u64>,
    epochs: u64,
    watches: BTreeSet<(TaskId, u64)>,
    keyed: BTreeMap<(Identity, Box<str>), Keyed>,
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
    pub(super) fn join(&mut self) -> u64 {
        self.epochs += 1;
        self.members.insert(self.epochs, self.now + LEASE);
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
        known: &mut BTreeMap<TaskId, u64>,
    ) -> Option<Vec<Option<Verdict>>> {
        *self.members.get_mut(&epoch)? = self.now + LEASE;
        self.commits += 1;
        Some(writes.iter().map(|write| self.write(epoch, write, known)).collect())
    }

    fn write(
        &mut self,
        epoch: u64,
        write: &StoreWrite,
        known: &mut BTreeMap<TaskId, u64>,
    ) -> Option<Verdict> {
        let (stamp, commits) = (Wall::from_millis(1_000_000 + self.now), self.commits);
        match write {
            StoreWrite::New(record) => {
                let mut record = record.clone();
                (record.created, record.updated) = (stamp, stamp);
                record.position = self.rows.len() as u64 + 1;
                if !record.status.is_terminal() {
                    known.insert(record.id, 1);
                }
                let history = vec![(commits, record.status)];
                self.rows.insert(record.id, Row { record, epoch, version: 1, history });
                Some(Verdict::Stored { stamp })
            }
            StoreWrite::Put(record) | StoreWrite::Change(record) => {
                let Some(row) = self.rows.get_mut(&record.id) else { return Some(Verdict::Gone) };
                let version = known.get(&record.id).copied().unwrap_or(1);
                let is_live = !row.record.status.is_terminal();
                if !is_live || row.epoch != epoch || row.version != version {
                    known.remove(&record.id);
                    return Some(Verdict::Overtaken(Box::new(row.record.clone())));
                }
                row.take(record, stamp, commits);
                match record.status.is_terminal() {
                    true => drop(known.remove(&record.id)),
                    false => drop(known.insert(record.id, row.version)),
                }
                Some(Verdict::Stored { stamp })
            }
            StoreWrite::Cancel(record) => {
                let Some(row) = self.rows.get_mut(&record.id) else { return Some(Verdict::Gone) };
                if row.record.status.is_terminal() {
                    return Some(Verdict::Overtaken(Box::new(row.record.clone())));
                }
                row.take(record, stamp, commits);
                Some(Verdict::Stored { stamp })
            }
            StoreWrite::Delete(key) => {
                known.remove(&key.task);
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
            StoreWrite::Probe
            | StoreWrite::Input { .. }
            | StoreWrite::Taken(_)
            | StoreWrite::Receipt { .. }
            | StoreWrite::Retire => None,
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
        let Some(call) = self.keyed.get(&name) else {
            let (by, wish) = ((epoch, key.claim), wish.into());
            self.keyed.insert(name, Keyed { by, wish, task: None, over: None });
            return KeyVerdict::Granted;
        };
        let task = call.task.filter(|task| self.rows.contains_key(task));
        match (&call.over, task) {
            _ if *call.wish != *wish => KeyVerdict::Another,
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

    /// Ends members whose lease is over, and their tasks.
    pub(super) fn reap(&mut self, by: u64) -> Vec<TaskId> {
        let now = self.now;
        self.members.retain(|epoch, expires| *epoch == by || *expires + MARGIN >= now);
        self.commits += 1;
        let (commits, members) = (self.commits, &self.members);
        let mut ended = Vec::new();
        for (task, row) in &mut self.rows {
            if !row.record.status.is_terminal() && !members.contains_key(&row.epoch) {
                let error = ErrorObject::new(-31007, "its node was lost");
                let mut record = row.record.clone();
                record.status = Status::Failed;
                record.status_message = Some("its node was lost".into());
                record.outcome = RecordedOutcome::Here(Err(error));
                row.take(&record, Wall::from_millis(1_000_000 + now), commits);
                ended.push(*task);
            }
        }
        let members = &self.members;
        self.watches.retain(|(_, epoch)| members.contains_key(epoch));
        ended
    }

    pub(super) fn has(&self, task: TaskId) -> bool {
        self.rows.contains_key(&task)
    }

    pub(super) fn runs_at(&self, task: TaskId, epoch: u64) -> bool {
        self.rows.get(&task).is_some_and(|row| row.epoch == epoch)
    }

    /// The record of a task as its owner may see it, without or with its outcome.
    pub(super) fn find(&self, task: TaskId, viewer: &Identity, whole: bool) -> Option<TaskRecord> {
        let row = self.rows.get(&task).filter(|row| row.record.owner == *viewer)?;
        let mut record = row.record.clone();
        if !whole && record.status.is_terminal() {
            record.outcome = RecordedOutcome::Stored { bytes: 1 };
        }
        Some(record)
    }

    /// Tasks that are not in these versions, or that an epoch watches.
    pub(super) fn changed(&self, epoch: u64, known: &BTreeMap<TaskId, u64>) -> Vec<TaskRecord> {
        let own = known.iter().filter(|(task, version)| {
            self.rows.get(*task).is_some_and(|row| row.version != **version)
        });
        let watched = self.watches.iter().filter(|(_, by)| *by == epoch).map(|(task, _)| task);
        let ids: BTreeSet<&TaskId> = own.map(|(task, _)| task).chain(watched).collect();
        ids.into_iter().filter_map(|task| Some(self.rows.get(task)?.record.clone())).collect()
    }

    /// Statuses that a task has had since this number of commits, the one at that time among them.
    pub(super) fn statuses(&self, task: TaskId, since: usize) -> BTreeSet<&'static str> {
        let Some(row) = self.rows.get(&task) else { return BTreeSet::new() };
        let first = row.history.iter().rposition(|(commit, _)| *commit <= since).unwrap_or(0);
        row.history.iter().skip(first).map(|(_, status)| status.as_str()).collect()
    }

    /// Tasks that live or are watched, with their nodes, and the nodes that watch.
    pub(super) fn at_work(&self) -> BTreeSet<(TaskId, u64, Option<u64>)> {
        let live = self.rows.iter().filter(|(_, row)| !row.record.status.is_terminal());
        let live = live.map(|(task, row)| (*task, row.epoch, None));
        let watched = self
            .watches
            .iter()
            .map(|(task, by)| (*task, self.rows.get(task).map_or(0, |row| row.epoch), Some(*by)));
        live.chain(watched).collect()
    }
}

impl Row {
    fn take(&mut self, record: &TaskRecord, stamp: Wall, commits: usize) {
        let (created, position) = (self.record.created, self.record.position);
        self.record = TaskRecord { created, position, updated: stamp, ..record.clone() };
        self.version += 1;
        self.history.push((commits, record.status));
    }
}
