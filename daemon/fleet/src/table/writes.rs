//! Writes as statements, and the meaning of their results.

use ceased_core::ids::TaskId;
use ceased_core::tasks::status::Status;

use super::failure::millis;
use super::rows;
use super::statements as sql;
use crate::contract::{
    CallKey, End, Epoch, FleetWrite, KeyChange, KeyFound, KeyQuota, Limit, NewTask, Outcome, Quota,
    TaskRow, Verdict, Version, WAITING_BYTES_MAX, WAITING_MESSAGES_MAX,
};
use crate::postgres::{Batch, PgError, Rows, TooLarge, Value};

fn id(task: TaskId) -> Value<'static> {
    Value::Uuid(*task.uuid().as_bytes())
}

fn optional(text: Option<&String>) -> Value<'_> {
    text.map_or(Value::Null, |text| Value::Text(text))
}

/// Status, message, kind and text of an end.
pub(super) fn of_end(end: &End) -> [Value<'_>; 4] {
    let [kind, text] = of_outcome(&end.outcome);
    [Value::Int2(rows::number_of(end.status.into())), optional(end.message.as_ref()), kind, text]
}

/// Kind and text of an outcome.
fn of_outcome(outcome: &Outcome) -> [Value<'_>; 2] {
    let kind = match outcome {
        Outcome::Result(_) => 0,
        Outcome::Error(_) => 1,
    };
    [Value::Int2(kind), Value::Text(outcome.json())]
}

/// Adds the lock of the owners whose tasks a batch changes; false if it changes none.
pub(super) fn push_owners(batch: &mut Batch, writes: &[FleetWrite]) -> Result<bool, TooLarge> {
    let (mut changed, mut made) = (Vec::new(), Vec::new());
    for write in writes {
        match write {
            FleetWrite::Change { task, .. }
            | FleetWrite::End { task, .. }
            | FleetWrite::Cancel { task, .. }
            | FleetWrite::Receipt { task, .. }
            | FleetWrite::Delete(task) => changed.push(*task.uuid().as_bytes()),
            FleetWrite::New { task, .. } => made.push(&*task.identity),
            FleetWrite::Watch(_)
            | FleetWrite::Unwatch(_)
            | FleetWrite::Send { .. }
            | FleetWrite::Taken(_)
            | FleetWrite::Claim { .. }
            | FleetWrite::Keyed { .. }
            | FleetWrite::Drain => {}
        }
    }
    made.dedup();
    // A new task of one owner locks that one alone, and is known to no other node.
    if changed.is_empty() && made.len() < 2 {
        return Ok(false);
    }
    batch.push(&sql::OWNERS, &[Value::Uuids(&changed), Value::Texts(&made)])?;
    Ok(true)
}

/// Adds the statements of a write; [`verdicts`] takes as many results.
pub(super) fn push(batch: &mut Batch, epoch: Epoch, write: &FleetWrite) -> Result<(), TooLarge> {
    let node = Value::Int8(epoch.0);
    match write {
        FleetWrite::New { task, quota } => push_new(batch, node, task, *quota),
        FleetWrite::Change { task, input_required, message, asks } => {
            let status = if *input_required { Status::InputRequired } else { Status::Working };
            let status = Value::Int2(rows::number_of(status));
            let [message, asks] = [message, asks].map(|text| optional(text.as_ref()));
            batch.push(&sql::CHANGE, &[id(*task), node, status, message, asks])?;
            batch.push(&sql::ROW, &[id(*task)])
        }
        FleetWrite::End { task, end } => {
            let [status, message, kind, outcome] = of_end(end);
            let receipt = optional(end.receipt.as_ref());
            batch.push(&sql::END, &[id(*task), node, status, message, kind, outcome, receipt])?;
            batch.push(&sql::ROW, &[id(*task)])
        }
        FleetWrite::Cancel { task, viewer, end } => {
            let [status, message, kind, outcome] = of_end(end);
            let viewer = Value::Text(viewer);
            batch.push(&sql::CANCEL, &[id(*task), viewer, status, message, kind, outcome])?;
            batch.push(&sql::OWN_ROW, &[id(*task), viewer])
        }
        FleetWrite::Receipt { task, receipt } => {
            batch.push(&sql::RECEIPT, &[id(*task), Value::Text(receipt)])
        }
        FleetWrite::Delete(task) => batch.push(&sql::DELETE, &[id(*task), node]),
        FleetWrite::Watch(task) => batch.push(&sql::WATCH, &[id(*task), node]),
        FleetWrite::Unwatch(task) => batch.push(&sql::UNWATCH, &[id(*task), node]),
        FleetWrite::Send { task, viewer, kind, body } => {
            let [most, bytes] = [WAITING_MESSAGES_MAX, WAITING_BYTES_MAX].map(i64::from);
            let (viewer, kind, body) =
                (Value::Text(viewer), Value::Int2(*kind), Value::Bytes(body));
            let (most, bytes) = (Value::Int8(most), Value::Int8(bytes));
            batch.push(&sql::SEND, &[id(*task), viewer, kind, body, most, bytes])
        }
        FleetWrite::Taken(numbers) => batch.push(&sql::TAKEN, &[node, Value::Int8s(numbers)]),
        FleetWrite::Drain => batch.push(&sql::DRAIN, &[node]),
        FleetWrite::Claim { key, wish, quota } => {
            let [identity, name, claim] = of_key(key);
            let most = [i64::from(quota.keys), i64::try_from(quota.bytes).unwrap_or(i64::MAX)];
            let [keys, bytes] = most.map(Value::Int8);
            let wish = Value::Bytes(wish);
            batch.push(&sql::CLAIM, &[identity, name, wish, node, claim, keys, bytes])?;
            batch.push(&sql::KEY, &[identity, name, wish, node, claim])
        }
        FleetWrite::Keyed { key, change } => push_keyed(batch, node, key, change),
    }
}

fn of_key(key: &CallKey) -> [Value<'_>; 3] {
    [Value::Text(&key.identity), Value::Text(&key.key), Value::Int8(key.claim)]
}

fn push_keyed(
    batch: &mut Batch,
    node: Value<'_>,
    key: &CallKey,
    change: &KeyChange,
) -> Result<(), TooLarge> {
    let [identity, name, claim] = of_key(key);
    match change {
        KeyChange::Task(task) => {
            batch.push(&sql::KEY_TASK, &[identity, name, node, claim, id(*task)])
        }
        KeyChange::Over(outcome, ttl) => {
            let [kind, text] = of_outcome(outcome);
            let ttl = Value::Int8(millis(*ttl));
            batch.push(&sql::KEY_OVER, &[identity, name, node, claim, kind, text, ttl])
        }
        KeyChange::Free => batch.push(&sql::KEY_FREE, &[identity, name, node, claim]),
    }
}

/// The call that a claimed key names.
fn key_found(rows: &Rows, quota: KeyQuota) -> Result<Verdict, PgError> {
    let row = rows.rows.first().ok_or(PgError::Unexpected("no row for a key"))?;
    let is = |column| Ok::<_, PgError>(row.number(column)?.map(|it| it != 0));
    Ok(Verdict::Key(match (is(0)?, is(1)?) {
        (Some(true), _) => KeyFound::Claimed,
        (Some(false), Some(true)) => match (rows::outcome_in(row, 4)?, rows::task_id(row, 2)?) {
            (Some(outcome), _) => KeyFound::Over(outcome),
            (None, Some(task)) => KeyFound::Task(task),
            (None, None) if is(3)? == Some(true) => KeyFound::UnderWay,
            (None, None) => KeyFound::Lost,
        },
        (Some(false), _) => KeyFound::Another,
        (None, _) => {
            let keys = row.number(6)?.unwrap_or_default();
            KeyFound::Full { bytes: keys < i64::from(quota.keys) }
        }
    }))
}

fn push_new(
    batch: &mut Batch,
    node: Value<'_>,
    task: &NewTask,
    quota: Quota,
) -> Result<(), TooLarge> {
    let [status, message, kind, outcome] = match &task.end {
        Some(end) => of_end(end),
        None => {
            let working = Value::Int2(rows::number_of(Status::Working));
            [working, optional(task.message.as_ref()), Value::Null, Value::Null]
        }
    };
    let ttl = Value::Int8(millis(task.ttl));
    let most = |number: u64| Value::Int8(i64::try_from(number).unwrap_or(i64::MAX));
    let [live, stored, bytes] = [quota.live.into(), quota.stored.into(), quota.bytes].map(most);
    let identity = Value::Text(&task.identity);
    let tool = Value::Text(&task.tool);
    batch.push(
        &sql::NEW,
        &[
            id(task.id),
            identity,
            node,
            tool,
            status,
            message,
            ttl,
            ttl,
            kind,
            outcome,
            live,
            stored,
            bytes,
            optional(task.end.as_ref().and_then(|end| end.receipt.as_ref())),
        ],
    )?;
    batch.push(&sql::ROOM, &[identity])
}

/// The verdicts of a batch that was carried out.
pub(super) fn verdicts(writes: &[FleetWrite], results: Vec<Rows>) -> Result<Vec<Verdict>, PgError> {
    let mut results = results.into_iter();
    let mut next = || results.next().ok_or(PgError::Unexpected("too few results"));
    let mut verdicts = Vec::with_capacity(writes.len());
    for write in writes {
        let result = next()?;
        let stored = result.rows.first().map(rows::stored);
        verdicts.push(match write {
            FleetWrite::New { quota, .. } => {
                let room = next()?;
                match stored {
                    Some(stored) => stored?,
                    None => Verdict::Full(limit(*quota, &room)?),
                }
            }
            FleetWrite::Change { .. } | FleetWrite::End { .. } | FleetWrite::Cancel { .. } => {
                let row = next()?;
                match (stored, row.rows.first()) {
                    (Some(stored), _) => stored?,
                    (None, Some(row)) => Verdict::Overtaken(Box::new(rows::task(row)?)),
                    (None, None) => Verdict::Gone,
                }
            }
            FleetWrite::Receipt { .. } => stored.unwrap_or(Ok(Verdict::Gone))?,
            FleetWrite::Delete(_) if result.rows.is_empty() => Verdict::Gone,
            FleetWrite::Delete(_)
            | FleetWrite::Watch(_)
            | FleetWrite::Unwatch(_)
            | FleetWrite::Taken(_)
            | FleetWrite::Keyed { .. }
            | FleetWrite::Drain => Verdict::Done,
            FleetWrite::Claim { quota, .. } => key_found(&next()?, *quota)?,
            // To a node that is gone, or has no room.
            FleetWrite::Send { .. } if result.count == 0 => Verdict::Gone,
            FleetWrite::Send { .. } => Verdict::Done,
        });
    }
    Ok(verdicts)
}

/// The limit that an owner has reached.
fn limit(quota: Quota, room: &Rows) -> Result<Limit, PgError> {
    let Some(row) = room.rows.first() else { return Ok(Limit::Live) };
    let has = |column| {
        Ok::<_, PgError>(u64::try_from(row.number(column)?.unwrap_or_default()).unwrap_or_default())
    };
    Ok(if has(0)? >= quota.live.into() {
        Limit::Live
    } else if has(1)? >= quota.stored.into() {
        Limit::Stored
    } else {
        Limit::Bytes
    })
}

/// Adds the statements that show whether a write was carried out.
pub(super) fn push_look(
    batch: &mut Batch,
    epoch: Epoch,
    write: &FleetWrite,
) -> Result<(), TooLarge> {
    match write {
        FleetWrite::New { task, .. } => {
            batch.push(&sql::ROW, &[id(task.id)])?;
            batch.push(&sql::ROOM, &[Value::Text(&task.identity)])
        }
        FleetWrite::Change { task, .. }
        | FleetWrite::End { task, .. }
        | FleetWrite::Receipt { task, .. } => batch.push(&sql::ROW, &[id(*task)]),
        FleetWrite::Cancel { task, viewer, .. } => {
            batch.push(&sql::OWN_ROW, &[id(*task), Value::Text(viewer)])
        }
        FleetWrite::Delete(_)
        | FleetWrite::Watch(_)
        | FleetWrite::Unwatch(_)
        | FleetWrite::Send { .. }
        | FleetWrite::Taken(_)
        | FleetWrite::Keyed { .. }
        | FleetWrite::Drain => Ok(()),
        FleetWrite::Claim { key, wish, .. } => {
            let [identity, name, claim] = of_key(key);
            let node = Value::Int8(epoch.0);
            batch.push(&sql::KEY, &[identity, name, Value::Bytes(wish), node, claim])
        }
    }
}

/// The verdicts of a batch that was carried out and whose answer was lost, by the rows as they are now. A
/// write that was overtaken since is told as overtaken; an end of the same status says the same.
pub(super) fn verdicts_by_look(
    writes: &[FleetWrite],
    epoch: Epoch,
    results: Vec<Rows>,
) -> Result<Vec<Verdict>, PgError> {
    let mut results = results.into_iter();
    let mut next = || results.next().ok_or(PgError::Unexpected("too few results"));
    let row = |result: Rows| result.rows.first().map(rows::task).transpose();
    let mut verdicts = Vec::with_capacity(writes.len());
    for write in writes {
        verdicts.push(match write {
            FleetWrite::New { quota, .. } => {
                let found = row(next()?)?;
                let room = next()?;
                match found {
                    // As it was created: later versions are for the looks.
                    Some(TaskRow { created: stamp, position, .. }) => {
                        Verdict::Stored { version: Version(1), stamp, position }
                    }
                    None => Verdict::Full(limit(*quota, &room)?),
                }
            }
            FleetWrite::Change { .. } => match row(next()?)? {
                Some(found) if found.node == epoch && !found.status.is_terminal() => {
                    as_stored(&found)
                }
                Some(found) => Verdict::Overtaken(Box::new(found)),
                None => Verdict::Gone,
            },
            FleetWrite::End { end, .. } | FleetWrite::Cancel { end, .. } => match row(next()?)? {
                Some(found) if found.status == end.status.into() => as_stored(&found),
                Some(found) => Verdict::Overtaken(Box::new(found)),
                None => Verdict::Gone,
            },
            FleetWrite::Receipt { .. } => {
                row(next()?)?.map_or(Verdict::Gone, |found| as_stored(&found))
            }
            FleetWrite::Delete(_)
            | FleetWrite::Watch(_)
            | FleetWrite::Unwatch(_)
            | FleetWrite::Send { .. }
            | FleetWrite::Taken(_)
            | FleetWrite::Keyed { .. }
            | FleetWrite::Drain => Verdict::Done,
            FleetWrite::Claim { quota, .. } => key_found(&next()?, *quota)?,
        });
    }
    Ok(verdicts)
}

fn as_stored(row: &TaskRow) -> Verdict {
    Verdict::Stored { version: row.version, stamp: row.updated, position: row.position }
}
