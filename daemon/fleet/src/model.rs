//! The table in memory, with a clock that a test sets: the meaning of the contract in a few lines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ceased_core::ids::TaskId;
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;

use crate::contract::{
    CallKey, End, Epoch, Failure, FleetWrite, Found, KeyChange, KeyFound, KeyQuota, Limit, Message,
    NewTask, NodeInfo, Outcome, Quota, Reaped, Resolved, SharedTable, TaskRow, Verdict, Version,
    WAITING_BYTES_MAX, WAITING_MESSAGES_MAX, Wanted,
};

/// Beyond its lease a node is let live for so long, in milliseconds.
const MARGIN: u64 = 1000;

/// A table that many nodes share. Clones are the same table.
#[derive(Debug, Clone, Default)]
pub struct Model(Arc<Mutex<State>>);

#[derive(Debug, Clone, Default)]
struct State {
    now: u64,
    epochs: i64,
    messages: i64,
    nodes: BTreeMap<Epoch, Node>,
    owners: BTreeMap<String, Owner>,
    tasks: BTreeMap<TaskId, Task>,
    watches: BTreeSet<(TaskId, Epoch)>,
    inbox: BTreeMap<(Epoch, i64), Message>,
    keyed: BTreeMap<(String, String), Keyed>,
    /// Nodes that left in good order.
    left: BTreeSet<Epoch>,
}

/// A call with an idempotency key.
#[derive(Debug, Clone)]
struct Keyed {
    wish: [u8; 32],
    node: Epoch,
    claim: i64,
    task: Option<TaskId>,
    /// Its answer, and when that is forgotten.
    over: Option<(Outcome, u64)>,
}

impl Keyed {
    fn bytes(&self) -> usize {
        self.over.as_ref().map_or(0, |(outcome, _)| outcome.json().len())
    }
}

#[derive(Debug, Clone)]
struct Node {
    key: [u8; 16],
    lease: u64,
    expires: u64,
    batch: i64,
    is_live: bool,
}

#[derive(Debug, Clone, Default)]
struct Owner {
    live: u64,
    stored: u64,
    bytes: u64,
    positions: i64,
}

#[derive(Debug, Clone)]
struct Task {
    row: TaskRow,
    outcome: Option<Outcome>,
}

/// One node's access to a [`Model`].
#[derive(Debug)]
pub struct ModelTable {
    model: Model,
    node: Option<(Epoch, i64)>,
    loses_answer: bool,
}

impl Model {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Access for one more node.
    #[must_use]
    pub fn table(&self) -> ModelTable {
        ModelTable { model: self.clone(), node: None, loses_answer: false }
    }

    /// Time passes.
    pub fn advance(&self, by: Duration) {
        self.state().now += u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelTable {
    /// The answer to the next batch is lost on its way.
    pub const fn lose_answer(&mut self) {
        self.loses_answer = true;
    }

    fn epoch(&self) -> Result<Epoch, Failure> {
        self.node.map(|(epoch, _)| epoch).ok_or(Failure::Fenced)
    }

    /// Fences, renews and numbers, and carries out the rest; all of it or nothing.
    fn fenced<T>(
        &mut self,
        carry_out: impl FnOnce(&mut State, Epoch) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let epoch = self.epoch()?;
        let mut state = self.model.state();
        let mut changed = state.clone();
        let now = changed.now;
        let Some(node) = changed.nodes.get_mut(&epoch).filter(|node| node.is_live) else {
            self.node = None;
            return Err(Failure::Fenced);
        };
        node.batch += 1;
        node.expires = now + node.lease;
        let batch = node.batch;
        let done = carry_out(&mut changed, epoch)?;
        *state = changed;
        if std::mem::take(&mut self.loses_answer) {
            return Err(Failure::Unknown("the answer is lost".to_owned()));
        }
        self.node = Some((epoch, batch));
        Ok(done)
    }
}

impl State {
    fn write(&mut self, epoch: Epoch, write: &FleetWrite) -> Result<Verdict, Failure> {
        Ok(match write {
            FleetWrite::New { task, quota } => return self.create(epoch, task, *quota),
            FleetWrite::Change { task, input_required, message, asks } => {
                let now = self.now;
                match self.own(epoch, *task) {
                    Ok(found) => {
                        found.row.status =
                            if *input_required { Status::InputRequired } else { Status::Working };
                        found.row.message.clone_from(message);
                        found.row.asks.clone_from(asks);
                        changed(found, now)
                    }
                    Err(verdict) => verdict,
                }
            }
            FleetWrite::End { task, end } => match self.own(epoch, *task) {
                Ok(_) => self.end(*task, end),
                Err(verdict) => verdict,
            },
            FleetWrite::Cancel { task, viewer, end } => {
                match self.tasks.get(task).filter(|found| found.row.identity == *viewer) {
                    Some(found) if !found.row.status.is_terminal() => self.end(*task, end),
                    Some(found) => Verdict::Overtaken(Box::new(found.row.clone())),
                    None => Verdict::Gone,
                }
            }
            FleetWrite::Receipt { task, receipt } => self.note_receipt(*task, receipt),
            FleetWrite::Delete(task) => self.delete(epoch, *task),
            FleetWrite::Watch(task) => {
                self.watches.insert((*task, epoch));
                Verdict::Done
            }
            FleetWrite::Unwatch(task) => {
                self.watches.remove(&(*task, epoch));
                Verdict::Done
            }
            FleetWrite::Send { task, viewer, kind, body } => self.send(*task, viewer, *kind, body),
            FleetWrite::Taken(numbers) => {
                self.inbox.retain(|(node, number), _| *node != epoch || !numbers.contains(number));
                Verdict::Done
            }
            FleetWrite::Drain => Verdict::Done,
            FleetWrite::Claim { key, wish, quota } => {
                self.claim(epoch, key, *wish, *quota);
                Verdict::Key(self.key_found(epoch, key, *wish, *quota))
            }
            FleetWrite::Keyed { key, change } => {
                self.change_key(epoch, key, change);
                Verdict::Done
            }
        })
    }

    fn note_receipt(&mut self, task: TaskId, receipt: &str) -> Verdict {
        let ended = |found: &&mut Task| found.row.status.is_terminal();
        let Some(found) = self.tasks.get_mut(&task).filter(ended) else { return Verdict::Gone };
        found.row.receipt = Some(receipt.to_owned());
        found.row.version.0 += 1;
        stored(&found.row)
    }

    fn claim(&mut self, node: Epoch, key: &CallKey, wish: [u8; 32], quota: KeyQuota) {
        let own =
            self.keyed.iter().filter(|((of, name), _)| *of == key.identity && *name != key.key);
        let bytes: usize = own.clone().map(|(_, call)| call.bytes()).sum();
        if own.count() >= quota.keys as usize || bytes as u64 >= quota.bytes {
            return;
        }
        let name = (key.identity.clone(), key.key.clone());
        let left = |call: &Keyed| self.left.contains(&call.node) && call.over.is_none();
        let free = self.keyed.get(&name).is_none_or(|call| {
            let task = call.task.is_some_and(|task| self.tasks.contains_key(&task));
            call.over.as_ref().is_some_and(|(_, expires)| *expires < self.now)
                || left(call) && !task
        });
        if free {
            let call = Keyed { wish, node, claim: key.claim, task: None, over: None };
            self.keyed.insert(name, call);
        }
    }

    fn key_found(&self, node: Epoch, key: &CallKey, wish: [u8; 32], quota: KeyQuota) -> KeyFound {
        let Some(call) = self.keyed.get(&(key.identity.clone(), key.key.clone())) else {
            let own = self.keyed.keys().filter(|(of, _)| *of == key.identity);
            return KeyFound::Full { bytes: own.count() < quota.keys as usize };
        };
        let task = call.task.filter(|task| self.tasks.contains_key(task));
        match (&call.over, task) {
            _ if call.node == node && call.claim == key.claim => KeyFound::Claimed,
            _ if call.wish != wish => KeyFound::Another,
            (Some((outcome, _)), _) => KeyFound::Over(outcome.clone()),
            (None, Some(task)) => KeyFound::Task(task),
            (None, None) if self.nodes.get(&call.node).is_some_and(|node| node.is_live) => {
                KeyFound::UnderWay
            }
            (None, None) => KeyFound::Lost,
        }
    }

    fn change_key(&mut self, node: Epoch, key: &CallKey, change: &KeyChange) {
        let name = (key.identity.clone(), key.key.clone());
        let own = |call: &&mut Keyed| call.node == node && call.claim == key.claim;
        let Some(call) = self.keyed.get_mut(&name).filter(own) else { return };
        match change {
            KeyChange::Task(task) => call.task = Some(*task),
            KeyChange::Over(outcome, ttl) => {
                let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                call.over = Some((outcome.clone(), self.now.saturating_add(ttl)));
            }
            KeyChange::Free => drop(self.keyed.remove(&name)),
        }
    }

    /// A message to the node of a task, if it is there and has room.
    fn send(&mut self, task: TaskId, viewer: &str, kind: i16, body: &[u8]) -> Verdict {
        let found = self.visible(task, viewer).filter(|it| !it.row.status.is_terminal());
        let is_live = |to: &Epoch| self.nodes.get(to).is_some_and(|node| node.is_live);
        let Some(to) = found.map(|found| found.row.node).filter(is_live) else {
            return Verdict::Gone;
        };
        let waiting = || self.inbox.values().filter(|message| message.task == Some(task));
        let bytes: usize = waiting().map(|message| message.body.len()).sum();
        if waiting().count() >= WAITING_MESSAGES_MAX as usize || bytes >= WAITING_BYTES_MAX as usize
        {
            return Verdict::Gone;
        }
        self.messages += 1;
        let number = self.messages;
        let message = Message { number, kind, task: Some(task), body: body.to_vec() };
        self.inbox.insert((to, number), message);
        Verdict::Done
    }

    fn delete(&mut self, epoch: Epoch, task: TaskId) -> Verdict {
        let is_own = |found: &Task| found.row.node == epoch;
        if !self.tasks.get(&task).is_some_and(is_own) {
            return Verdict::Gone;
        }
        self.keyed.retain(|_, call| call.task != Some(task));
        if let Some(Task { row, .. }) = self.tasks.remove(&task)
            && let Some(owner) = self.owners.get_mut(&row.identity)
        {
            owner.live -= u64::from(!row.status.is_terminal());
            owner.stored -= u64::from(row.status.is_terminal());
            owner.bytes -= row.outcome_bytes.unwrap_or_default();
        }
        Verdict::Done
    }

    fn create(&mut self, epoch: Epoch, task: &NewTask, quota: Quota) -> Result<Verdict, Failure> {
        if self.tasks.contains_key(&task.id) {
            return Err(Failure::Refused("the id is taken".to_owned()));
        }
        let owner = self.owners.entry(task.identity.clone()).or_default();
        if owner.live >= quota.live.into() {
            return Ok(Verdict::Full(Limit::Live));
        }
        if owner.stored >= quota.stored.into() {
            return Ok(Verdict::Full(Limit::Stored));
        }
        if owner.bytes >= quota.bytes {
            return Ok(Verdict::Full(Limit::Bytes));
        }
        owner.live += 1;
        owner.positions += 1;
        let ttl = u64::try_from(task.ttl.as_millis()).unwrap_or(u64::MAX);
        let row = TaskRow {
            id: task.id,
            identity: task.identity.clone(),
            position: owner.positions,
            node: epoch,
            version: Version(1),
            status: Status::Working,
            tool: task.tool.clone(),
            message: task.message.clone(),
            created: Wall::from_millis(self.now),
            updated: Wall::from_millis(self.now),
            expires: Wall::from_millis(self.now.saturating_add(ttl)),
            ttl: task.ttl,
            asks: None,
            outcome_bytes: None,
            receipt: None,
            is_attended: true,
        };
        let verdict = stored(&row);
        self.tasks.insert(task.id, Task { row, outcome: None });
        if let Some(end) = &task.end {
            self.end(task.id, end);
            if let Some(task) = self.tasks.get_mut(&task.id) {
                task.row.version = Version(1);
            }
        }
        Ok(verdict)
    }

    /// A task of this node that has not ended; else its verdict.
    fn own(&mut self, epoch: Epoch, task: TaskId) -> Result<&mut Task, Verdict> {
        match self.tasks.get_mut(&task) {
            Some(found) if found.row.node == epoch && !found.row.status.is_terminal() => Ok(found),
            Some(found) => Err(Verdict::Overtaken(Box::new(found.row.clone()))),
            None => Err(Verdict::Gone),
        }
    }

    fn end(&mut self, task: TaskId, end: &End) -> Verdict {
        let now = self.now;
        let Some(found) = self.tasks.get_mut(&task) else { return Verdict::Gone };
        let bytes = end.outcome.json().len() as u64;
        found.row.status = end.status.into();
        found.row.message.clone_from(&end.message);
        found.row.asks = None;
        found.row.receipt.clone_from(&end.receipt);
        found.row.outcome_bytes = Some(bytes);
        found.outcome = Some(end.outcome.clone());
        let verdict = changed(found, now);
        if let Some(owner) = self.owners.get_mut(&found.row.identity) {
            owner.live -= 1;
            owner.stored += 1;
            owner.bytes += bytes;
        }
        verdict
    }

    /// Nodes that run or watch a task.
    fn concerned(&self, task: TaskId) -> Vec<Epoch> {
        let runs = self.tasks.get(&task).map(|task| task.row.node);
        let watch = self.watches.iter().filter(|(watched, _)| *watched == task);
        runs.into_iter().chain(watch.map(|(_, node)| *node)).collect()
    }

    /// A row as it is read.
    fn row(&self, task: &Task) -> TaskRow {
        let is_attended = self.nodes.get(&task.row.node).is_some_and(|node| node.is_live);
        TaskRow { is_attended, ..task.row.clone() }
    }

    fn visible(&self, task: TaskId, viewer: &str) -> Option<&Task> {
        self.tasks.get(&task).filter(|found| found.row.identity == viewer)
    }

    fn find(&self, wanted: &Wanted) -> Found {
        match wanted {
            Wanted::Task { task, viewer } => {
                Found::Task(self.visible(*task, viewer).map(|found| Box::new(self.row(found))))
            }
            Wanted::Outcome { task, viewer } => {
                Found::Outcome(self.visible(*task, viewer).and_then(|found| found.outcome.clone()))
            }
            Wanted::Page { viewer, after, size } => {
                let of_viewer =
                    |task: &&Task| task.row.identity == *viewer && task.row.position > *after;
                let mut rows: Vec<_> =
                    self.tasks.values().filter(of_viewer).map(|task| self.row(task)).collect();
                rows.sort_by_key(|row| row.position);
                rows.truncate(*size as usize);
                Found::Tasks(rows)
            }
            Wanted::Changed { known, size } => {
                let (mut changed, mut gone) = (Vec::new(), Vec::new());
                for (task, version) in known {
                    if changed.len() + gone.len() == *size as usize {
                        break;
                    }
                    match self.tasks.get(task) {
                        Some(found) if found.row.version != *version => {
                            changed.push(self.row(found));
                        }
                        Some(_) => {}
                        None => gone.push(*task),
                    }
                }
                Found::Changed(changed, gone)
            }
            Wanted::Inbox { node, size, bytes } => {
                let own = self.inbox.iter().filter(|((of, _), _)| of == node);
                let mut before = 0;
                let fits = own.take(*size as usize).take_while(|(_, message)| {
                    let fits = before < *bytes as usize;
                    before += message.body.len();
                    fits
                });
                Found::Inbox(fits.map(|(_, message)| message.clone()).collect())
            }
        }
    }
}

fn changed(task: &mut Task, now: u64) -> Verdict {
    task.row.version.0 += 1;
    task.row.updated = task.row.updated.max(Wall::from_millis(now));
    stored(&task.row)
}

const fn stored(row: &TaskRow) -> Verdict {
    Verdict::Stored { version: row.version, stamp: row.updated, position: row.position }
}

impl SharedTable for ModelTable {
    fn join(&mut self, node: &NodeInfo, _: Instant) -> Result<Epoch, Failure> {
        let mut state = self.model.state();
        for earlier in state.nodes.values_mut().filter(|earlier| earlier.key == node.key) {
            earlier.is_live = false;
        }
        state.epochs += 1;
        let epoch = Epoch(state.epochs);
        let lease = u64::try_from(node.lease.as_millis()).unwrap_or(u64::MAX);
        let expires = state.now + lease;
        state.nodes.insert(epoch, Node { key: node.key, lease, expires, batch: 0, is_live: true });
        self.node = Some((epoch, 0));
        Ok(epoch)
    }

    fn commit(&mut self, writes: &[FleetWrite], _: Instant) -> Result<Vec<Verdict>, Failure> {
        self.fenced(|state, epoch| writes.iter().map(|write| state.write(epoch, write)).collect())
    }

    fn resolve(&mut self, writes: &[FleetWrite], _: Instant) -> Result<Resolved, Failure> {
        let Some((epoch, known)) = self.node else { return Err(Failure::Fenced) };
        let state = self.model.state();
        let Some(node) = state.nodes.get(&epoch).filter(|node| node.is_live) else {
            return Err(Failure::Fenced);
        };
        if node.batch == known {
            return Ok(Resolved::NotDone);
        }
        self.node = Some((epoch, node.batch));
        let verdict = |write: &FleetWrite| {
            let wanted = match write {
                FleetWrite::New { .. } | FleetWrite::Change { .. } => None,
                FleetWrite::End { end, .. } | FleetWrite::Cancel { end, .. } => {
                    Some(Status::from(end.status))
                }
                FleetWrite::Receipt { task, .. } => {
                    return state.tasks.get(task).map_or(Verdict::Gone, |found| stored(&found.row));
                }
                FleetWrite::Delete(_)
                | FleetWrite::Watch(_)
                | FleetWrite::Unwatch(_)
                | FleetWrite::Send { .. }
                | FleetWrite::Taken(_)
                | FleetWrite::Keyed { .. }
                | FleetWrite::Drain => return Verdict::Done,
                FleetWrite::Claim { key, wish, quota } => {
                    return Verdict::Key(state.key_found(epoch, key, *wish, *quota));
                }
            };
            let row = write.task().and_then(|task| state.tasks.get(&task)).map(|found| &found.row);
            match (row, write, wanted) {
                (Some(row), FleetWrite::New { .. }, _) => {
                    let (version, position) = (Version(1), row.position);
                    Verdict::Stored { version, stamp: row.created, position }
                }
                (None, FleetWrite::New { .. }, _) => Verdict::Full(Limit::Live),
                (Some(row), _, Some(status)) if row.status == status => stored(row),
                (Some(row), _, None) if row.node == epoch && !row.status.is_terminal() => {
                    stored(row)
                }
                (Some(row), ..) => Verdict::Overtaken(Box::new(row.clone())),
                (None, ..) => Verdict::Gone,
            }
        };
        Ok(Resolved::Done(writes.iter().map(verdict).collect()))
    }

    fn fetch(&mut self, wanted: &[Wanted], _: Instant) -> Result<Vec<Found>, Failure> {
        let state = self.model.state();
        Ok(wanted.iter().map(|wanted| state.find(wanted)).collect())
    }

    fn concerned(
        &mut self,
        node: Epoch,
        tasks: &[TaskId],
        _: Instant,
    ) -> Result<Vec<Epoch>, Failure> {
        let state = self.model.state();
        let mut nodes: BTreeSet<_> = tasks.iter().flat_map(|task| state.concerned(*task)).collect();
        nodes.remove(&node);
        Ok(nodes.into_iter().collect())
    }

    fn reap(&mut self, end: &End, buries: bool, _: Instant) -> Result<Reaped, Failure> {
        self.fenced(|state, epoch| {
            let now = state.now;
            let mut reaped = Reaped::default();
            for (other, node) in &mut state.nodes {
                if buries && node.is_live && *other != epoch && node.expires + MARGIN < now {
                    node.is_live = false;
                    reaped.nodes.push(*other);
                }
            }
            let is_live = |node: &Epoch| state.nodes.get(node).is_some_and(|node| node.is_live);
            let lost = state.tasks.values().filter(|task| !task.row.status.is_terminal());
            let lost: Vec<_> =
                lost.filter(|task| !is_live(&task.row.node)).map(|task| task.row.id).collect();
            for task in &lost {
                state.end(*task, end);
            }
            reaped.tasks = lost;
            Ok(reaped)
        })
    }

    fn expire(&mut self, _: Instant) -> Result<bool, Failure> {
        self.fenced(|state, _| {
            let now = Wall::from_millis(state.now);
            let State { tasks, owners, keyed, .. } = state;
            let at = state.now;
            keyed.retain(|_, call| call.over.as_ref().is_none_or(|(_, expires)| *expires >= at));
            tasks.retain(|id, task| {
                let is_over = task.row.status.is_terminal() && task.row.expires < now;
                if is_over && let Some(owner) = owners.get_mut(&task.row.identity) {
                    owner.stored -= 1;
                    owner.bytes -= task.row.outcome_bytes.unwrap_or_default();
                    keyed.retain(|_, call| call.task != Some(*id));
                }
                !is_over
            });
            Ok(false)
        })
    }

    fn leave(&mut self, _: Instant) -> Result<(), Failure> {
        self.fenced(|state, epoch| {
            if let Some(node) = state.nodes.get_mut(&epoch) {
                node.is_live = false;
                state.left.insert(epoch);
            }
            Ok(())
        })?;
        self.node = None;
        Ok(())
    }
}
