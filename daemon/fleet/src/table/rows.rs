//! Rows of the tables as values.

use std::time::Duration;

use ceased_core::ids::TaskId;
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;
use uuid::Uuid;

use crate::contract::{
    Database, Epoch, Message, NodeRow, Outcome, PlacedTask, TaskRow, Verdict, Version,
};
use crate::postgres::{PgError, Row};

const MISSING: PgError = PgError::Unexpected("a row without a value that it always has");

/// Number of a status in the table; those from 2 stay.
pub(super) const fn number_of(status: Status) -> i16 {
    match status {
        Status::Working => 0,
        Status::InputRequired => 1,
        Status::Completed => 2,
        Status::Failed => 3,
        Status::Cancelled => 4,
    }
}

fn status(number: i64) -> Result<Status, PgError> {
    use Status::{Cancelled, Completed, Failed, InputRequired, Working};
    let all = [Working, InputRequired, Completed, Failed, Cancelled];
    let found = all.into_iter().find(|status| i64::from(number_of(*status)) == number);
    found.ok_or(PgError::Unexpected("a status that this version does not know"))
}

fn number(row: &Row, column: usize) -> Result<i64, PgError> {
    row.number(column)?.ok_or(MISSING)
}

fn text(row: &Row, column: usize) -> Result<Option<String>, PgError> {
    Ok(row.text(column)?.map(str::to_owned))
}

fn wall(row: &Row, column: usize) -> Result<Wall, PgError> {
    Ok(Wall::from_millis(u64::try_from(number(row, column)?).unwrap_or_default()))
}

/// Id of a task.
pub(super) fn task_id(row: &Row, column: usize) -> Result<Option<TaskId>, PgError> {
    Ok(row.uuid(column)?.map(|id| TaskId::new(Uuid::from_bytes(id))))
}

/// A task, in the order of the statements' columns.
pub(super) fn task(row: &Row) -> Result<TaskRow, PgError> {
    Ok(TaskRow {
        id: task_id(row, 0)?.ok_or(MISSING)?,
        identity: text(row, 1)?.ok_or(MISSING)?,
        position: number(row, 2)?,
        node: Epoch(number(row, 3)?),
        version: Version(number(row, 4)?),
        status: status(number(row, 5)?)?,
        tool: text(row, 6)?.ok_or(MISSING)?,
        message: text(row, 7)?,
        created: wall(row, 8)?,
        updated: wall(row, 9)?,
        expires: wall(row, 10)?,
        ttl: Duration::from_millis(u64::try_from(number(row, 11)?).unwrap_or_default()),
        asks: text(row, 12)?,
        outcome_bytes: row.number(13)?.and_then(|bytes| u64::try_from(bytes).ok()),
        receipt: text(row, 14)?,
        is_attended: number(row, 15)? != 0,
    })
}

/// A task with its node.
pub(super) fn placed(row: &Row) -> Result<PlacedTask, PgError> {
    Ok(PlacedTask {
        row: task(row)?,
        node: text(row, 16)?.unwrap_or_default(),
        age_ms: number(row, 17)?.try_into().unwrap_or_default(),
    })
}

/// A task that has changed, or the id of one that is gone.
pub(super) fn changed(row: &Row) -> Result<Result<TaskRow, TaskId>, PgError> {
    match task_id(row, 0)? {
        Some(_) => task(row).map(Ok),
        None => task_id(row, 16)?.map(Err).ok_or(MISSING),
    }
}

/// Kind and text of an outcome.
pub(super) fn outcome(row: &Row) -> Result<Option<Outcome>, PgError> {
    outcome_in(row, 0)
}

/// The same, in this column and the next one.
pub(super) fn outcome_in(row: &Row, column: usize) -> Result<Option<Outcome>, PgError> {
    let Some(json) = text(row, column + 1)? else { return Ok(None) };
    match number(row, column)? {
        0 => Ok(Some(Outcome::Result(json))),
        1 => Ok(Some(Outcome::Error(json))),
        _ => Err(PgError::Unexpected("a kind of outcome that this version does not know")),
    }
}

/// A message to a node.
pub(super) fn message(row: &Row) -> Result<Message, PgError> {
    Ok(Message {
        number: number(row, 0)?,
        kind: i16::try_from(number(row, 1)?).map_err(|_| MISSING)?,
        task: task_id(row, 2)?,
        body: row.bytes(3)?.unwrap_or_default().to_vec(),
    })
}

/// A node.
pub(super) fn node(row: &Row) -> Result<NodeRow, PgError> {
    Ok(NodeRow {
        epoch: Epoch(number(row, 0)?),
        name: text(row, 1)?.ok_or(MISSING)?,
        state: text(row, 2)?.ok_or(MISSING)?,
        lease: Duration::from_millis(u64::try_from(number(row, 3)?).unwrap_or_default()),
        left_ms: number(row, 4)?,
        tasks: u64::try_from(number(row, 5)?).unwrap_or_default(),
        drains: number(row, 6)? != 0,
        version: text(row, 7)?.ok_or(MISSING)?,
    })
}

/// The server.
pub(super) fn database(row: &Row) -> Result<Database, PgError> {
    let own = |column| text(row, column).map(Option::unwrap_or_default);
    let mut off = Vec::new();
    for (name, column) in [("fsync", 5), ("full_page_writes", 6)] {
        if own(column)? == "off" {
            off.push(name.to_owned());
        }
    }
    Ok(Database {
        version: own(0)?,
        name: own(1)?,
        role: own(2)?,
        synchronous: own(3)?,
        standbys: u64::try_from(number(row, 4)?).unwrap_or_default(),
        off,
    })
}

/// Version, stamp and position that a write returns.
pub(super) fn stored(row: &Row) -> Result<Verdict, PgError> {
    Ok(Verdict::Stored {
        version: Version(number(row, 0)?),
        stamp: wall(row, 1)?,
        position: number(row, 2)?,
    })
}
