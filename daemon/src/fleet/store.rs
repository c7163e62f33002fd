//! The connection that writes: membership, the engine's writes, and the ends of nodes that were lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ceased_core::ids::TaskId;
use ceased_core::tasks::durable::{RecordKey, StoreWrite, TaskOutcome};
use ceased_core::tasks::shared::{SharedLimit, Verdict};
use ceased_core::tasks::status::Status;
use ceased_fleet::PostgresTable;
use ceased_fleet::contract::{
    self, Failure, FleetWrite, Found, Limit, Outcome, Resolved, SharedTable as _, TaskRow, Version,
    Wanted,
};
use crossbeam_channel::Sender;
use sha2::{Digest as _, Sha256};

use super::lease::Lease;
use super::options::{FleetOptions, hard_after};
use super::reader::{INPUT, Order, Reader};
use super::records;
use super::shared::{Followed, Shared};
use crate::store::contract::StoreError;
use crate::store::orders::News;

/// Time limit of the last batch.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// A store in a table that several daemons share.
pub(crate) struct FleetStore {
    table: PostgresTable,
    options: FleetOptions,
    shared: Arc<Shared>,
    reader: Sender<Order>,
    lease: Lease,
    news: Vec<News>,
    /// Flaws of the database that were told.
    flaws: Vec<String>,
}

/// The error for a database that may lose acknowledged writes.
pub(super) fn lax(flaw: &str) -> String {
    format!(
        "the database has {flaw}; change its configuration, or set require = \"any\" in [fleet]"
    )
}

impl FleetStore {
    /// Joins. A table that cannot be reached is tried again later; one that cannot be used is an error.
    ///
    /// # Errors
    /// A text for people.
    pub(crate) fn open(options: FleetOptions) -> Result<(Self, Reader), String> {
        let shared = Arc::<Shared>::default();
        let (reader, orders) = Reader::new(options.clone(), Arc::clone(&shared));
        let mut store = Self {
            table: PostgresTable::new(options.address.clone()),
            options,
            shared,
            reader: orders,
            lease: Lease::default(),
            news: Vec::new(),
            flaws: Vec::new(),
        };
        match store.join() {
            Ok(()) => {}
            Err(Failure::Unusable(why)) => return Err(format!("[fleet]: {why}")),
            Err(error) => {
                tracing::error!(%error, "the database of the fleet cannot be reached; retrying");
            }
        }
        Ok((store, reader))
    }

    /// Changes of the membership since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.options.patience()
    }

    fn join(&mut self) -> Result<(), Failure> {
        let (sent, deadline) = (Instant::now(), self.deadline());
        self.table.prepare(deadline)?;
        self.check_durability().map_err(Failure::Unusable)?;
        let epoch = self.table.join(&self.options.node, deadline)?;
        let cursor_key = self.table.cursor_key(deadline)?;
        self.shared.followed().clear();
        self.shared.epoch.store(epoch.0, Ordering::Relaxed);
        self.lease.begin_to_hear(sent);
        self.news.push(News::Joined { cursor_key });
        self.note_renewal(sent);
        tracing::info!(epoch = epoch.0, node = %self.options.node.name, "joined the fleet");
        Ok(())
    }

    /// Looks at the durability of the database, as far as its settings tell.
    fn check_durability(&mut self) -> Result<(), String> {
        let Ok(database) = self.table.database(self.deadline()) else { return Ok(()) };
        let flaws = database.flaws();
        if self.options.is_strict
            && let Some(flaw) = flaws.first()
        {
            return Err(lax(flaw));
        }
        for flaw in flaws.iter().filter(|_| flaws != self.flaws) {
            tracing::warn!("the database of the fleet has {flaw}");
        }
        self.flaws = flaws;
        Ok(())
    }

    fn note_renewal(&mut self, sent: Instant) {
        if !self.lease.renew(sent) {
            return;
        }
        let until = self.options.stop_after.map(|after| sent + after);
        let end = until.map(|_| sent + hard_after(self.options.node.lease));
        self.news.push(News::Renewed { until, end });
    }

    fn failed(&mut self, failure: Failure) -> StoreError {
        self.lease.note_outage();
        match failure {
            Failure::Fenced => {
                self.lease.end();
                self.shared.epoch.store(0, Ordering::Relaxed);
                self.shared.followed().clear();
                self.news.push(News::Fenced);
                StoreError::Broken(format!("{}; joining again", Failure::Fenced))
            }
            Failure::Refused(why) => StoreError::Refused(why),
            Failure::Failing(why) | Failure::Unknown(why) | Failure::Unusable(why) => {
                StoreError::Broken(why)
            }
            // The package may know others one day.
            other => StoreError::Broken(other.to_string()),
        }
    }

    /// Carries out these writes, and renews; the verdicts by the places of the writes.
    pub(crate) fn commit(
        &mut self,
        writes: &[StoreWrite],
    ) -> Result<Vec<(usize, Verdict)>, StoreError> {
        if !self.lease.is_member() {
            return Err(StoreError::Broken("this daemon is no member of its fleet".to_owned()));
        }
        let (places, writes) = self.translated(writes).map_err(StoreError::Refused)?;
        let sent = Instant::now();
        let committed = match self.table.commit(&writes, self.deadline()) {
            Err(Failure::Unknown(why)) => self.resolve(&writes, why),
            committed => committed,
        };
        let verdicts = committed.map_err(|failure| self.failed(failure))?;
        self.note_renewal(sent);
        self.hint_of(writes.iter().filter_map(FleetWrite::changed).collect());
        let mut judged = Vec::new();
        for ((place, write), verdict) in places.into_iter().zip(&writes).zip(verdicts) {
            judged.extend(self.judge(write, verdict).map(|verdict| (place, verdict)));
        }
        Ok(judged)
    }

    /// The fate of a batch whose answer was lost: its number in the table tells it.
    fn resolve(
        &mut self,
        writes: &[FleetWrite],
        why: String,
    ) -> Result<Vec<contract::Verdict>, Failure> {
        match self.table.resolve(writes, self.deadline())? {
            Resolved::Done(verdicts) => Ok(verdicts),
            Resolved::NotDone => Err(Failure::Unknown(why)),
        }
    }

    /// Other nodes hear of the changes of these tasks.
    fn hint_of(&self, tasks: Vec<TaskId>) {
        if !tasks.is_empty() {
            // The thread ends after this one.
            let _ = self.reader.send(Order::Hint(tasks));
        }
    }

    /// The writes of a batch with their places, in the order in which all nodes lock rows: by owner and
    /// task.
    fn translated(&self, writes: &[StoreWrite]) -> Result<(Vec<usize>, Vec<FleetWrite>), String> {
        let names = &self.options.names;
        let mut translated = Vec::with_capacity(writes.len());
        for (place, write) in writes.iter().enumerate() {
            let owner = write.record().map(|record| names.of(&record.owner));
            let write = match write {
                StoreWrite::New(record) => FleetWrite::New {
                    task: records::new_task(record, names)?,
                    quota: self.options.quota,
                },
                StoreWrite::Change(record) => FleetWrite::Change {
                    task: record.id,
                    input_required: record.status == Status::InputRequired,
                    message: record.status_message.as_deref().map(str::to_owned),
                    asks: record.asks.as_deref().map(str::to_owned),
                },
                StoreWrite::Input { task, owner, responses } => FleetWrite::Send {
                    task: *task,
                    viewer: names.of(owner),
                    kind: INPUT,
                    body: responses.as_bytes().to_vec(),
                },
                StoreWrite::Taken(number) => FleetWrite::Taken(vec![*number]),
                StoreWrite::Put(record) => {
                    FleetWrite::End { task: record.id, end: records::end(record)? }
                }
                StoreWrite::Cancel(record) => FleetWrite::Cancel {
                    task: record.id,
                    viewer: names.of(&record.owner),
                    end: records::end(record)?,
                },
                StoreWrite::Delete(key) => FleetWrite::Delete(key.task),
                StoreWrite::Watch(task) => FleetWrite::Watch(*task),
                StoreWrite::Unwatch(task) => FleetWrite::Unwatch(*task),
                StoreWrite::Retire => FleetWrite::Drain,
                StoreWrite::Receipt { task, receipt } => {
                    FleetWrite::Receipt { task: *task, receipt: receipt.to_string() }
                }
                StoreWrite::Claim { key, wish } => FleetWrite::Claim {
                    key: records::call_key(key, names),
                    wish: Sha256::digest(wish.as_bytes()).into(),
                    quota: self.options.keys,
                },
                StoreWrite::Keyed(key, change) => FleetWrite::Keyed {
                    key: records::call_key(key, names),
                    change: records::key_change(change, self.options.answers_kept)?,
                },
                // The batch itself is the question.
                StoreWrite::Probe => continue,
            };
            // A removal comes after the task that it may be of.
            translated.push((owner.is_none(), owner, write.task(), place, write));
        }
        translated.sort_by(|one, other| {
            (one.0, &one.1, one.2, one.3).cmp(&(other.0, &other.1, other.2, other.3))
        });
        Ok(translated.into_iter().map(|(.., place, write)| (place, write)).unzip())
    }

    /// The verdict on one write as the engine takes it.
    fn judge(&mut self, write: &FleetWrite, verdict: contract::Verdict) -> Option<Verdict> {
        if let contract::Verdict::Key(found) = verdict {
            return Some(Verdict::Key(records::key_verdict(found)));
        }
        let task = write.task()?;
        match (write, &verdict) {
            (FleetWrite::New { task: new, .. }, contract::Verdict::Stored { version, .. }) => {
                if new.end.is_none() {
                    let entry = Followed { version: *version, is_own: true };
                    self.shared.followed().insert(task, entry);
                }
            }
            (FleetWrite::Change { .. }, contract::Verdict::Stored { version, .. }) => {
                if let Some(entry) = self.shared.followed().get_mut(&task) {
                    entry.version = *version;
                }
            }
            (FleetWrite::Watch(_), _) => {
                let entry = Followed { version: Version(0), is_own: false };
                self.shared.followed().entry(task).or_insert(entry);
                let _ = self.reader.send(Order::Look);
            }
            (FleetWrite::Unwatch(_), _) => {
                let mut followed = self.shared.followed();
                if followed.get(&task).is_some_and(|entry| !entry.is_own) {
                    followed.remove(&task);
                }
            }
            (FleetWrite::End { .. } | FleetWrite::Delete(_), _) => {
                self.shared.followed().remove(&task);
            }
            (
                FleetWrite::New { .. }
                | FleetWrite::Change { .. }
                | FleetWrite::Cancel { .. }
                | FleetWrite::Receipt { .. }
                | FleetWrite::Send { .. }
                | FleetWrite::Taken(_)
                | FleetWrite::Claim { .. }
                | FleetWrite::Keyed { .. }
                | FleetWrite::Drain,
                _,
            ) => {}
        }
        match verdict {
            contract::Verdict::Stored { stamp, .. } => Some(Verdict::Stored { stamp }),
            contract::Verdict::Overtaken(row) => self.overtaken(*row),
            contract::Verdict::Gone => Some(Verdict::Gone),
            contract::Verdict::Full(limit) => Some(Verdict::Full(match limit {
                Limit::Live => SharedLimit::Live,
                Limit::Stored => SharedLimit::Stored,
                Limit::Bytes => SharedLimit::Bytes,
            })),
            contract::Verdict::Done | contract::Verdict::Key(_) => None,
        }
    }

    /// The end that was there already, with its outcome. A task that lives on at another node is gone here.
    fn overtaken(&mut self, row: TaskRow) -> Option<Verdict> {
        if !row.status.is_terminal() {
            return Some(Verdict::Gone);
        }
        let outcome = self.outcome_of(&row).unwrap_or_default();
        let record = records::record(row, outcome, &self.options.names)?;
        Some(Verdict::Overtaken(Box::new(record)))
    }

    fn outcome_of(&mut self, row: &TaskRow) -> Result<Option<Outcome>, Failure> {
        let wanted = Wanted::Outcome { task: row.id, viewer: row.identity.clone() };
        let found = self.table.fetch(&[wanted], self.deadline())?;
        Ok(found.into_iter().find_map(|found| match found {
            Found::Outcome(outcome) => outcome,
            Found::Task(_)
            | Found::Tasks(_)
            | Found::Changed(..)
            | Found::Inbox(_)
            | Found::Unreadable(_) => None,
        }))
    }

    /// The outcome of a task whose end was read without it.
    pub(crate) fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, StoreError> {
        // Every version is newer than none.
        let wanted = Wanted::Changed { known: vec![(key.task, Version(0))], size: 1 };
        let found = self.table.fetch(&[wanted], self.deadline());
        let found = found.map_err(|failure| self.failed(failure))?;
        let row = found.into_iter().find_map(|found| match found {
            Found::Changed(rows, _) => rows.into_iter().next(),
            Found::Task(_)
            | Found::Tasks(_)
            | Found::Outcome(_)
            | Found::Inbox(_)
            | Found::Unreadable(_) => None,
        });
        let Some(row) = row else { return Ok(None) };
        let outcome = self.outcome_of(&row).map_err(|failure| self.failed(failure))?;
        Ok(outcome.map(records::outcome))
    }

    /// Renews the lease, ends nodes that were lost, and deletes tasks whose time is over.
    pub(crate) fn tend(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        if self.lease.is_due(now, self.options.renew_every()) {
            self.commit(&[])?;
        }
        if !self.lease.may_reap(now) {
            return Ok(());
        }
        let buries = self.lease.may_bury(now, self.options.node.lease);
        loop {
            let (sent, deadline) = (Instant::now(), self.deadline());
            let reaped = self.table.reap(&records::lost(), buries, deadline);
            let reaped = reaped.map_err(|failure| self.failed(failure))?;
            self.note_renewal(sent);
            for node in &reaped.nodes {
                tracing::warn!(
                    epoch = node.0,
                    "a node of the fleet was lost; its tasks have failed"
                );
            }
            self.hint_of(reaped.tasks);
            if !reaped.more {
                break;
            }
        }
        let deadline = self.deadline();
        self.table.expire(deadline).map(drop).map_err(|failure| self.failed(failure))
    }

    /// Whether the table takes writes again.
    pub(crate) fn reopen(&mut self) -> Result<(), StoreError> {
        if !self.lease.is_member() {
            return self.join().map_err(|failure| self.failed(failure));
        }
        // It may be another server by now.
        if let Err(why) = self.check_durability() {
            tracing::error!("{why}");
            return Err(StoreError::Broken(why));
        }
        self.commit(&[])?;
        self.lease.begin_to_hear(Instant::now());
        Ok(())
    }
}

impl Drop for FleetStore {
    /// Leaves, so that no other node waits for the lease: every process of a task has ended by now.
    fn drop(&mut self) {
        if self.lease.is_member()
            && let Err(error) = self.table.leave(Instant::now() + LEAVE_WITHIN)
        {
            tracing::warn!(%error, "cannot leave the fleet; other nodes wait for the end of the lease");
        }
    }
}
