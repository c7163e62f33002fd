//! The table in PostgreSQL.

mod failure;
mod hints;
mod rows;
mod schema;
mod statements;
mod writes;

use std::time::Instant;

use self::failure::{failure, is_of_the_batch, millis, too_large};
use crate::contract::{
    Database, End, Epoch, Failure, FleetWrite, Found, Message, NodeInfo, NodeRow, PlacedTask,
    Reaped, Resolved, SharedTable, Verdict, Wanted,
};
use crate::postgres::{Address, Batch, PgError, Rows, Session, TooLarge, Value};
use ceased_core::ids::TaskId;
use uuid::Uuid;

pub use hints::PostgresHints;
pub use schema::FORMAT;

/// Rows that a step of reaping or expiring takes.
const STEP: i64 = 1000;

/// Repetitions of a batch that another one has pushed aside (40P01, 40001).
const TRIES: usize = 10;

/// Run at each connect. Time limits of the server would turn a commit that waits for the standby into
/// one that does not. Plans of statements that were made while the tables were small read them whole, and are
/// kept until the server has counted again: each statement has an index.
const SETTINGS: &str = "SET synchronous_commit = on; SET statement_timeout = 0; SET lock_timeout = 0; \
    SET idle_in_transaction_session_timeout = 0; SET timezone = 'UTC'; SET enable_seqscan = off; SET jit = off";

/// The tables of one database, and the connection to it. It connects when it is asked something, and
/// again after a connection has failed.
#[derive(Debug)]
pub struct PostgresTable {
    address: Address,
    session: Option<Session>,
    node: Option<Member>,
    /// True once this connection's tables were looked at.
    is_known: bool,
    /// Whether it creates tables that are not there.
    creates: bool,
}

/// The membership of this process.
#[derive(Debug)]
struct Member {
    epoch: Epoch,
    /// The number of the last batch that is known to be carried out.
    batch: i64,
    /// Whether the answer to a later one was lost.
    is_in_doubt: bool,
}

impl PostgresTable {
    /// The table at an address. Nothing is sent yet.
    #[must_use]
    pub const fn new(address: Address) -> Self {
        Self { address, session: None, node: None, is_known: false, creates: true }
    }

    /// The same, where tables that are not there are an error.
    #[must_use]
    pub fn existing(address: Address) -> Self {
        Self { creates: false, ..Self::new(address) }
    }

    /// Connects, and looks at the tables; creates them where they are not there and the role may.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn prepare(&mut self, deadline: Instant) -> Result<(), Failure> {
        if self.session.is_none() {
            let opened = Session::open(&self.address, SETTINGS, deadline);
            self.session = Some(opened.map_err(|error| failure(&error))?);
            self.is_known = false;
        }
        if let (Some(session), false) = (&mut self.session, self.is_known) {
            schema::ensure(session, self.creates, deadline)?;
            self.is_known = true;
        }
        Ok(())
    }

    /// The key that seals cursors, the same for all nodes.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn cursor_key(&mut self, deadline: Instant) -> Result<[u8; 16], Failure> {
        self.prepare(deadline)?;
        let mut batch = Batch::new();
        batch.push(&statements::CURSOR_KEY, &[]).map_err(too_large)?;
        let results = self.run(&batch, deadline).map_err(|error| failure(&error))?;
        let row = results.first().and_then(|rows| rows.rows.first());
        let key = row.and_then(|row| row.bytes(0).ok()?.and_then(|key| key.first_chunk().copied()));
        key.ok_or_else(|| Failure::Unusable("the tables of the fleet have no key".to_owned()))
    }

    /// The nodes, the newest first.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn nodes(&mut self, deadline: Instant) -> Result<Vec<NodeRow>, Failure> {
        self.prepare(deadline)?;
        let mut batch = Batch::new();
        batch.push(&statements::NODES, &[]).map_err(too_large)?;
        let results = self.run(&batch, deadline).map_err(|error| failure(&error))?;
        let rows = results.first().map_or(&[][..], |rows| &rows.rows);
        rows.iter().map(rows::node).collect::<Result<_, _>>().map_err(|error| failure(&error))
    }

    /// The newest tasks of an identity, or of all: then those without an end first.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn newest(
        &mut self,
        viewer: Option<&str>,
        most: u32,
        deadline: Instant,
    ) -> Result<Vec<PlacedTask>, Failure> {
        self.prepare(deadline)?;
        let mut batch = Batch::new();
        let most = Value::Int8(most.into());
        let pushed = match viewer {
            Some(viewer) => batch.push(&statements::NEWEST, &[Value::Text(viewer), most]),
            None => batch.push(&statements::NEWEST_OF_ALL, &[most]),
        };
        pushed.map_err(too_large)?;
        let results = self.run(&batch, deadline).map_err(|error| failure(&error))?;
        let rows = results.first().map_or(&[][..], |rows| &rows.rows);
        rows.iter().map(rows::placed).collect::<Result<_, _>>().map_err(|error| failure(&error))
    }

    /// The server on which the promises of a fleet rest.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn database(&mut self, deadline: Instant) -> Result<Database, Failure> {
        self.prepare(deadline)?;
        let mut batch = Batch::new();
        batch.push(&statements::DATABASE, &[]).map_err(too_large)?;
        let results = self.run(&batch, deadline).map_err(|error| failure(&error))?;
        let row = results.first().and_then(|rows| rows.rows.first());
        let row = row.ok_or_else(|| failure(&PgError::Unexpected("no settings")))?;
        rows::database(row).map_err(|error| failure(&error))
    }

    /// Carries out a batch, again where another one has pushed it aside.
    fn run(&mut self, batch: &Batch, deadline: Instant) -> Result<Vec<Rows>, PgError> {
        let Some(session) = &mut self.session else {
            return Err(PgError::Unexpected("no connection"));
        };
        let mut tries = 0;
        loop {
            let error = match session.run(batch, deadline) {
                Ok(results) => return Ok(results),
                Err(error) => error,
            };
            tries += 1;
            match &error {
                PgError::Server(told)
                    if ["40P01", "40001"].contains(&told.code.as_str()) && tries < TRIES => {}
                PgError::Server(told) if is_of_the_batch(&told.code) => return Err(error),
                // Another server may take writes, or its tables may be others by now.
                PgError::Server(_)
                | PgError::Closed(_)
                | PgError::Io(_)
                | PgError::TimedOut
                | PgError::InDoubt
                | PgError::Unexpected(_)
                | PgError::Authentication(_)
                | PgError::Tls(_)
                | PgError::NoneWritable(_) => {
                    self.session = None;
                    return Err(error);
                }
            }
        }
    }

    /// A batch that begins with the fence, and its results without that one's.
    fn fenced(&mut self, batch: &Batch, deadline: Instant) -> Result<Vec<Rows>, Failure> {
        let results = self.run(batch, deadline).map_err(|error| failure(&error));
        let mut results = match results {
            Ok(results) => results,
            Err(Failure::Fenced) => {
                // Of a node that is a member the server has read a batch late.
                self.settle(deadline)?;
                let why = "a batch of a broken connection was carried out late";
                return Err(Failure::Refused(why.to_owned()));
            }
            Err(error) => {
                if let (Some(node), Failure::Unknown(_)) = (&mut self.node, &error) {
                    node.is_in_doubt = true;
                }
                return Err(error);
            }
        };
        let first = if results.is_empty() { None } else { Some(results.remove(0)) };
        let number = first.as_ref().and_then(|rows| rows.rows.first()?.number(0).ok()?);
        if let (Some(node), Some(number)) = (&mut self.node, number) {
            node.batch = number;
        }
        Ok(results)
    }

    fn fence(&mut self, deadline: Instant) -> Result<(Batch, Epoch), Failure> {
        if self.node.as_ref().is_some_and(|node| node.is_in_doubt) {
            self.settle(deadline)?;
        }
        let Some(Member { epoch, batch: last, .. }) = self.node else {
            return Err(Failure::Fenced);
        };
        self.prepare(deadline)?;
        let mut batch = Batch::new();
        batch
            .push(&statements::FENCE, &[Value::Int8(epoch.0), Value::Int8(last)])
            .map_err(too_large)?;
        Ok((batch, epoch))
    }

    /// Finds out the number of the last batch that was carried out.
    fn settle(&mut self, deadline: Instant) -> Result<(), Failure> {
        self.resolve(&[], deadline).map(drop)
    }
}

impl SharedTable for PostgresTable {
    fn join(&mut self, node: &NodeInfo, deadline: Instant) -> Result<Epoch, Failure> {
        // A node that was fenced may meet tables that another version has made anew.
        self.is_known = false;
        self.prepare(deadline)?;
        let mut batch = Batch::new();
        let lease = Value::Int8(millis(node.lease));
        batch.push(&statements::SUCCEED, &[Value::Uuid(node.key)]).map_err(too_large)?;
        batch
            .push(
                &statements::JOIN,
                &[
                    Value::Uuid(node.key),
                    Value::Text(&node.name),
                    lease,
                    Value::Text(&node.version),
                ],
            )
            .map_err(too_large)?;
        let results = self.run(&batch, deadline).map_err(|error| failure(&error))?;
        let epoch = results.get(1).and_then(|rows| rows.rows.first()?.number(0).ok()?);
        let epoch = Epoch(epoch.ok_or_else(|| failure(&PgError::Unexpected("no epoch")))?);
        self.node = Some(Member { epoch, batch: 0, is_in_doubt: false });
        Ok(epoch)
    }

    fn commit(
        &mut self,
        writes: &[FleetWrite],
        deadline: Instant,
    ) -> Result<Vec<Verdict>, Failure> {
        let (mut batch, epoch) = self.fence(deadline)?;
        let locks = writes::push_owners(&mut batch, writes).map_err(too_large)?;
        for write in writes {
            writes::push(&mut batch, epoch, write).map_err(too_large)?;
        }
        let mut results = self.fenced(&batch, deadline)?;
        results.drain(..usize::from(locks).min(results.len()));
        writes::verdicts(writes, results).map_err(|error| failure(&error))
    }

    fn resolve(&mut self, writes: &[FleetWrite], deadline: Instant) -> Result<Resolved, Failure> {
        let Some(Member { epoch, batch: known, .. }) = self.node else {
            return Err(Failure::Fenced);
        };
        self.prepare(deadline)?;
        let mut batch = Batch::new();
        batch.push(&statements::LAST_BATCH, &[Value::Int8(epoch.0)]).map_err(too_large)?;
        for write in writes {
            writes::push_look(&mut batch, epoch, write).map_err(too_large)?;
        }
        let mut results = self.run(&batch, deadline).map_err(|error| failure(&error))?;
        let last = if results.is_empty() { None } else { Some(results.remove(0)) };
        match last.as_ref().and_then(|rows| rows.rows.first()?.number(0).ok()?) {
            None => {
                self.node = None;
                Err(Failure::Fenced)
            }
            Some(last) => {
                self.node = Some(Member { epoch, batch: last, is_in_doubt: false });
                if last == known {
                    return Ok(Resolved::NotDone);
                }
                let verdicts = writes::verdicts_by_look(writes, epoch, results);
                verdicts.map(Resolved::Done).map_err(|error| failure(&error))
            }
        }
    }

    fn fetch(&mut self, wanted: &[Wanted], deadline: Instant) -> Result<Vec<Found>, Failure> {
        self.prepare(deadline)?;
        let mut batch = Batch::new();
        for question in wanted {
            push_question(&mut batch, question).map_err(too_large)?;
        }
        let results = self.run(&batch, deadline).map_err(|error| failure(&error))?;
        let found = wanted.iter().zip(results).map(|(question, rows)| {
            answer(question, rows).unwrap_or_else(|error| Found::Unreadable(error.to_string()))
        });
        Ok(found.collect())
    }

    fn concerned(
        &mut self,
        node: Epoch,
        tasks: &[TaskId],
        deadline: Instant,
    ) -> Result<Vec<Epoch>, Failure> {
        self.prepare(deadline)?;
        let tasks: Vec<[u8; 16]> = tasks.iter().map(|task| *task.uuid().as_bytes()).collect();
        let mut batch = Batch::new();
        let values = [Value::Int8(node.0), Value::Uuids(&tasks)];
        batch.push(&statements::CONCERNED, &values).map_err(too_large)?;
        let results = self.run(&batch, deadline).map_err(|error| failure(&error))?;
        let rows = results.iter().flat_map(|rows| &rows.rows);
        let nodes = rows.filter_map(|row| row.number(0).transpose()).collect::<Result<Vec<_>, _>>();
        Ok(nodes.map_err(|error| failure(&error))?.into_iter().map(Epoch).collect())
    }

    fn reap(&mut self, end: &End, buries: bool, deadline: Instant) -> Result<Reaped, Failure> {
        let (mut batch, epoch) = self.fence(deadline)?;
        let values = [Value::Int8(epoch.0), Value::Bool(buries)];
        batch.push(&statements::BURY, &values).map_err(too_large)?;
        let [status, message, kind, outcome] = writes::of_end(end);
        batch
            .push(&statements::REAP, &[Value::Int8(STEP), status, message, kind, outcome])
            .map_err(too_large)?;
        batch.push(&statements::FORGET, &[]).map_err(too_large)?;
        let results = self.fenced(&batch, deadline)?;
        let mut reaped = Reaped::default();
        for row in results.first().map_or(&[][..], |rows| &rows.rows) {
            let epoch = row.number(0).map_err(|error| failure(&error))?;
            reaped.nodes.extend(epoch.map(Epoch));
        }
        for row in results.get(1).map_or(&[][..], |rows| &rows.rows) {
            let id = row.uuid(0).map_err(|error| failure(&error))?;
            reaped.tasks.extend(id.map(|id| TaskId::new(Uuid::from_bytes(id))));
        }
        reaped.more = i64::try_from(reaped.tasks.len()).is_ok_and(|count| count >= STEP);
        Ok(reaped)
    }

    fn expire(&mut self, deadline: Instant) -> Result<bool, Failure> {
        let (mut batch, _) = self.fence(deadline)?;
        batch.push(&statements::EXPIRE, &[Value::Int8(STEP)]).map_err(too_large)?;
        let results = self.fenced(&batch, deadline)?;
        let count = results.first().and_then(|rows| rows.rows.first()?.number(0).ok()?);
        Ok(count.is_some_and(|count| count >= STEP))
    }

    fn leave(&mut self, deadline: Instant) -> Result<(), Failure> {
        let (mut batch, epoch) = self.fence(deadline)?;
        batch.push(&statements::LEAVE, &[Value::Int8(epoch.0)]).map_err(too_large)?;
        self.fenced(&batch, deadline)?;
        self.node = None;
        Ok(())
    }
}

fn push_question(batch: &mut Batch, question: &Wanted) -> Result<(), TooLarge> {
    let id = |task: &TaskId| Value::Uuid(*task.uuid().as_bytes());
    match question {
        Wanted::Task { task, viewer } => {
            batch.push(&statements::OWN_ROW, &[id(task), Value::Text(viewer)])
        }
        Wanted::Outcome { task, viewer } => {
            batch.push(&statements::OUTCOME, &[id(task), Value::Text(viewer)])
        }
        Wanted::Page { viewer, after, size } => {
            let size = Value::Int8(i64::from(*size));
            batch.push(&statements::PAGE, &[Value::Text(viewer), Value::Int8(*after), size])
        }
        Wanted::Changed { known, size } => {
            let tasks: Vec<[u8; 16]> =
                known.iter().map(|(task, _)| *task.uuid().as_bytes()).collect();
            let versions: Vec<i64> = known.iter().map(|(_, version)| version.0).collect();
            let size = Value::Int8(i64::from(*size));
            let values = [Value::Uuids(&tasks), Value::Int8s(&versions), size];
            batch.push(&statements::CHANGED, &values)
        }
        Wanted::Inbox { node, size, bytes } => {
            let [size, bytes] = [*size, *bytes].map(|most| Value::Int8(i64::from(most)));
            batch.push(&statements::INBOX, &[Value::Int8(node.0), size, bytes])
        }
    }
}

fn answer(question: &Wanted, result: Rows) -> Result<Found, PgError> {
    match question {
        Wanted::Task { .. } => {
            let row = result.rows.first().map(rows::task).transpose()?;
            Ok(Found::Task(row.map(Box::new)))
        }
        Wanted::Outcome { .. } => {
            let outcome = result.rows.first().map(rows::outcome).transpose()?;
            Ok(Found::Outcome(outcome.flatten()))
        }
        Wanted::Page { .. } => {
            Ok(Found::Tasks(result.rows.iter().map(rows::task).collect::<Result<_, _>>()?))
        }
        Wanted::Changed { .. } => {
            let (mut changed, mut gone) = (Vec::new(), Vec::new());
            for row in result.rows.iter().map(rows::changed) {
                match row {
                    Ok(Ok(row)) => changed.push(row),
                    Ok(Err(task)) => gone.push(task),
                    // Of a newer version: the others are told all the same.
                    Err(_) => {}
                }
            }
            Ok(Found::Changed(changed, gone))
        }
        Wanted::Inbox { .. } => {
            let message = |row: &_| rows::message(row);
            Ok(Found::Inbox(result.rows.iter().map(message).collect::<Result<Vec<Message>, _>>()?))
        }
    }
}
