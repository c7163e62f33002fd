//! The connection that answers questions, looks for changes by others, and passes hints.

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ceased_core::identity::Identity;
use ceased_core::ids::TaskId;
use ceased_core::tasks::durable::TaskRecord;
use ceased_core::tasks::shared::{Found, Lookup, SharedEvent, Wanted};
use ceased_fleet::contract::{self, Epoch, Failure, Outcome, SharedTable as _, TaskRow, Version};
use ceased_fleet::{PostgresHints, PostgresTable};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde_json::value::RawValue;

use super::options::FleetOptions;
use super::shared::Shared;
use super::{records, status};

/// Time between two looks for changes: a hint may be lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time limit of the answer to a question.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Kind of a message with answers to questions of a task.
pub(super) const INPUT: i16 = 1;
/// Messages that are read at once.
const INBOX: u32 = 64;
/// Bytes of their bodies; the message that passes it is the last.
const INBOX_BYTES: u32 = 1 << 20;
/// Tasks with changes that are read at once.
const CHANGED: u32 = 1000;
/// Questions that are asked at once.
const PIPELINE: usize = 64;

/// An order to the reader.
#[derive(Debug)]
pub(super) enum Order {
    /// Answer a question.
    LookUp(Box<Lookup>),
    /// Show the nodes and the tasks of a viewer, or of all, for a detailed status.
    Survey(u64, Option<Identity>),
    /// Look for changes now.
    Look,
    /// Tell the nodes that these tasks concern to look.
    Hint(Vec<TaskId>),
}

/// The engine's way to ask the table.
#[derive(Debug)]
pub(crate) struct Reader {
    orders: Sender<Order>,
    parts: Option<Parts>,
    shared: Arc<Shared>,
}

/// The parts of a reader that does not run yet.
#[derive(Debug)]
struct Parts {
    options: FleetOptions,
    received: Receiver<Order>,
}

impl Reader {
    pub(super) fn new(options: FleetOptions, shared: Arc<Shared>) -> (Self, Sender<Order>) {
        let (orders, received) = crossbeam_channel::unbounded();
        let parts = Some(Parts { options, received });
        (Self { orders: orders.clone(), parts, shared }, orders)
    }

    /// Starts its threads. `report` gets the answers and changes, `show` the surveys by their numbers.
    ///
    /// # Errors
    /// If a thread cannot be created.
    pub(crate) fn start(
        &mut self,
        report: Box<dyn FnMut(SharedEvent) + Send>,
        show: Box<dyn FnMut(u64, Option<Box<RawValue>>) + Send>,
    ) -> io::Result<()> {
        let Some(Parts { options, received }) = self.parts.take() else { return Ok(()) };
        listen(options.clone(), Arc::clone(&self.shared), self.orders.clone())?;
        let shared = Arc::clone(&self.shared);
        thread::Builder::new().name("ceased-fleet".into()).spawn(move || {
            ceased_process::daemon_support::block_signals();
            let table = PostgresTable::new(options.address.clone());
            let (hints, taken) = (None, BTreeSet::new());
            let member = 0;
            Thread { table, member, options, shared, report, show, hints, taken }.run(&received);
        })?;
        Ok(())
    }

    /// Asks the table.
    pub(crate) fn look_up(&self, lookup: Box<Lookup>) {
        // The thread ends with this sender.
        let _ = self.orders.send(Order::LookUp(lookup));
    }

    /// Asks for the nodes and the tasks of a viewer, or of all.
    pub(crate) fn survey(&self, number: u64, viewer: Option<Identity>) {
        let _ = self.orders.send(Order::Survey(number, viewer));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
    }
}

/// Starts the thread that waits for hints of others.
fn listen(options: FleetOptions, shared: Arc<Shared>, orders: Sender<Order>) -> io::Result<()> {
    thread::Builder::new().name("ceased-hints".into()).spawn(move || {
        ceased_process::daemon_support::block_signals();
        let mut hints: Option<(i64, PostgresHints)> = None;
        while !shared.is_closed.load(Ordering::Relaxed) {
            let epoch = shared.epoch.load(Ordering::Relaxed);
            let deadline = Instant::now() + LOOK_EVERY;
            if hints.as_ref().is_some_and(|(of, _)| *of != epoch) {
                hints = None;
            }
            if hints.is_none() && epoch != 0 {
                let opened = PostgresHints::open(&options.address, Epoch(epoch), deadline);
                hints = opened.ok().map(|opened| (epoch, opened));
            }
            match hints.as_mut().map(|(_, hints)| hints.wait(deadline)) {
                Some(Ok(true)) => drop(orders.send(Order::Look)),
                Some(Ok(false)) => {}
                Some(Err(_)) | None => {
                    hints = None;
                    thread::sleep(deadline.saturating_duration_since(Instant::now()));
                }
            }
        }
    })?;
    Ok(())
}

struct Thread {
    table: PostgresTable,
    /// This node's epoch when the connection of the table was made.
    member: i64,
    options: FleetOptions,
    shared: Arc<Shared>,
    report: Box<dyn FnMut(SharedEvent) + Send>,
    show: Box<dyn FnMut(u64, Option<Box<RawValue>>) + Send>,
    /// The connection that sends hints.
    hints: Option<PostgresHints>,
    /// Numbers of messages that were handed on, and are in the table still.
    taken: BTreeSet<i64>,
}

impl Thread {
    fn run(&mut self, received: &Receiver<Order>) {
        let mut next_look = Instant::now() + LOOK_EVERY;
        while !self.shared.is_closed.load(Ordering::Relaxed) {
            let mut lookups = Vec::new();
            let mut changed = BTreeSet::new();
            let mut surveys = Vec::new();
            let mut looks = false;
            let mut take = |order| match order {
                Order::LookUp(lookup) => lookups.push(*lookup),
                Order::Survey(number, viewer) => surveys.push((number, viewer)),
                Order::Look => looks = true,
                Order::Hint(tasks) => changed.extend(tasks),
            };
            match received.recv_deadline(next_look) {
                Ok(order) => take(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            received.try_iter().take(PIPELINE - 1).for_each(take);
            self.renew_table();
            self.hint_of(&changed.into_iter().collect::<Vec<_>>());
            self.answer(lookups);
            for (number, viewer) in surveys {
                let deadline = Instant::now() + ANSWER_WITHIN;
                let (table, options) = (&mut self.table, &self.options);
                let status = status::look(table, options, viewer.as_ref(), deadline);
                (self.show)(number, status.ok().flatten());
            }
            if looks || next_look <= Instant::now() {
                next_look = Instant::now() + LOOK_EVERY;
                match self.look() {
                    Ok(true) => next_look = Instant::now(),
                    Ok(false) => {}
                    Err(error) => {
                        tracing::debug!(%error, "cannot look at the table of the fleet");
                    }
                }
            }
        }
    }

    /// Tells the other nodes that these tasks concern to look; they look once a second in any case.
    fn hint_of(&mut self, tasks: &[TaskId]) {
        if tasks.is_empty() {
            return;
        }
        let deadline = Instant::now() + LOOK_EVERY;
        let node = Epoch(self.shared.epoch.load(Ordering::Relaxed));
        let nodes = self.table.concerned(node, tasks, deadline).unwrap_or_default();
        if nodes.is_empty() {
            return;
        }
        if self.hints.is_none() {
            // It listens to a number that no node has.
            self.hints = PostgresHints::open(&self.options.address, Epoch(0), deadline).ok();
        }
        let sent = self.hints.as_mut().map(|hints| hints.send(&nodes, deadline));
        if !matches!(sent, Some(Ok(()))) {
            self.hints = None;
        }
    }

    /// Connects anew, and looks at the format of the tables, when the membership has changed: another version
    /// may have made them anew.
    fn renew_table(&mut self) {
        let member = self.shared.epoch.load(Ordering::Relaxed);
        if mem::replace(&mut self.member, member) != member {
            self.table = PostgresTable::new(self.options.address.clone());
        }
    }

    /// Answers all questions by one look.
    fn answer(&mut self, lookups: Vec<Lookup>) {
        if lookups.is_empty() {
            return;
        }
        let deadline = Instant::now() + ANSWER_WITHIN;
        let mut wanted = Vec::new();
        for lookup in &lookups {
            let viewer = self.options.names.of(&lookup.viewer);
            match &lookup.wanted {
                Wanted::Task { task, whole } => {
                    let task = *task;
                    wanted.push(contract::Wanted::Task { task, viewer: viewer.clone() });
                    if *whole {
                        wanted.push(contract::Wanted::Outcome { task, viewer });
                    }
                }
                Wanted::Tasks(tasks) => wanted.extend(
                    tasks
                        .iter()
                        .map(|task| contract::Wanted::Task { task: *task, viewer: viewer.clone() }),
                ),
                Wanted::Page { after, size } => wanted.push(contract::Wanted::Page {
                    viewer,
                    after: i64::try_from(*after).unwrap_or(i64::MAX),
                    size: u32::try_from(*size).unwrap_or(u32::MAX),
                }),
            }
        }
        // A connection that the server has ended since the last question fails once.
        let found = self.table.fetch(&wanted, deadline);
        let found = found.or_else(|_| self.table.fetch(&wanted, deadline));
        let mut answers = match found {
            Ok(found) => Some(found.into_iter()),
            Err(error) => {
                tracing::debug!(%error, "the table of the fleet does not answer");
                None
            }
        };
        for lookup in lookups {
            let records = answers.as_mut().map(|it| self.records(&lookup.wanted, it));
            let found = match records {
                Some(Ok(records)) => Found::Records(records),
                Some(Err(why)) => {
                    tracing::error!(%why, "a task in the table of the fleet cannot be read");
                    Found::Unreachable
                }
                None => Found::Unreachable,
            };
            (self.report)(SharedEvent::Found { lookup: lookup.id, found });
        }
    }

    /// The records that a question has as its answers. One that cannot be read fails this question alone.
    fn records(
        &self,
        wanted: &Wanted,
        answers: &mut impl Iterator<Item = contract::Found>,
    ) -> Result<Vec<TaskRecord>, String> {
        let (tasks, whole) = match wanted {
            Wanted::Task { whole, .. } => (1, *whole),
            Wanted::Tasks(tasks) => (tasks.len(), false),
            Wanted::Page { .. } => (1, false),
        };
        let mut records = Vec::new();
        let mut unreadable = None;
        // All answers to this question are taken in any case: the next ones are for others.
        for found in answers.take(tasks + usize::from(whole)) {
            match found {
                contract::Found::Task(row) => records.extend(row.map(|row| (*row, None))),
                contract::Found::Tasks(rows) => {
                    records.extend(rows.into_iter().map(|row| (row, None)));
                }
                contract::Found::Outcome(outcome) => {
                    records.last_mut().into_iter().for_each(|last| last.1 = outcome.clone());
                }
                contract::Found::Unreadable(why) => unreadable = Some(why),
                contract::Found::Changed(..) | contract::Found::Inbox(_) => {}
            }
        }
        let names = &self.options.names;
        let read = |(row, outcome)| records::record(row, outcome, names);
        match unreadable {
            Some(why) => Err(why),
            None => Ok(records.into_iter().filter_map(read).collect()),
        }
    }

    /// Looks for changes of tasks that concern this node; whether there may be more.
    fn look(&mut self) -> Result<bool, Failure> {
        let known: Vec<(TaskId, Version)> =
            self.shared.followed().iter().map(|(task, of)| (*task, of.version)).collect();
        let node = Epoch(self.shared.epoch.load(Ordering::Relaxed));
        if node.0 == 0 {
            self.taken.clear();
            return Ok(false);
        }
        let deadline = Instant::now() + ANSWER_WITHIN;
        let inbox = contract::Wanted::Inbox { node, size: INBOX, bytes: INBOX_BYTES };
        let changed = contract::Wanted::Changed { known, size: CHANGED };
        let mut is_more = false;
        for found in self.table.fetch(&[changed, inbox], deadline)? {
            match found {
                contract::Found::Inbox(messages) => is_more |= self.take_messages(messages),
                contract::Found::Changed(rows, gone) => {
                    is_more |= rows.len() + gone.len() >= CHANGED as usize;
                    gone.into_iter().for_each(|task| self.note_removed(task));
                    for row in rows {
                        self.take_change(row, deadline)?;
                    }
                }
                contract::Found::Unreadable(why) => {
                    tracing::error!(%why, "the table of the fleet cannot be read");
                }
                contract::Found::Task(_)
                | contract::Found::Tasks(_)
                | contract::Found::Outcome(_) => {}
            }
        }
        Ok(is_more)
    }

    /// Hands a change on that concerns this node.
    fn take_change(&mut self, row: TaskRow, deadline: Instant) -> Result<(), Failure> {
        let outcome = match row.status.is_terminal() {
            true => self.outcome(&row, deadline)?,
            false => None,
        };
        if self.note(&row)
            && let Some(record) = records::record(row, outcome, &self.options.names)
        {
            (self.report)(SharedEvent::Changed { record: Box::new(record) });
        }
        Ok(())
    }

    /// A task is gone: requests here wait for it in vain.
    fn note_removed(&mut self, task: TaskId) {
        let removed = self.shared.followed().remove(&task);
        if removed.is_some_and(|entry| !entry.is_own) {
            (self.report)(SharedEvent::Removed { task });
        }
    }

    fn outcome(&mut self, row: &TaskRow, deadline: Instant) -> Result<Option<Outcome>, Failure> {
        let (task, viewer) = (row.id, row.identity.clone());
        let found = self.table.fetch(&[contract::Wanted::Outcome { task, viewer }], deadline)?;
        Ok(found.into_iter().find_map(outcome_of))
    }

    /// Hands the messages to this node on that were not handed on before; whether there were new ones, after
    /// which there may be more.
    fn take_messages(&mut self, inbox: Vec<contract::Message>) -> bool {
        let before = mem::take(&mut self.taken);
        let mut is_more = false;
        for message in inbox {
            let number = message.number;
            self.taken.insert(number);
            if before.contains(&number) {
                continue;
            }
            is_more = true;
            (self.report)(match (message.kind, message.task) {
                (INPUT, Some(task)) => {
                    let responses = String::from_utf8_lossy(&message.body).into();
                    SharedEvent::Input { number, task, responses }
                }
                _ => SharedEvent::Unusable { number },
            });
        }
        is_more
    }

    /// Takes note of a version; false for a task that no longer concerns this node.
    fn note(&self, row: &TaskRow) -> bool {
        let mut followed = self.shared.followed();
        let Some(entry) = followed.get_mut(&row.id) else { return false };
        if row.status.is_terminal() {
            followed.remove(&row.id);
            return true;
        }
        let is_newer = entry.version < row.version;
        // This answer may have been on its way while an own write was stored.
        entry.version = entry.version.max(row.version);
        is_newer && !entry.is_own
    }
}

fn outcome_of(found: contract::Found) -> Option<Outcome> {
    match found {
        contract::Found::Outcome(outcome) => outcome,
        contract::Found::Task(_)
        | contract::Found::Tasks(_)
        | contract::Found::Changed(..)
        | contract::Found::Inbox(_)
        | contract::Found::Unreadable(_) => None,
    }
}
