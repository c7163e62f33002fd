//! Records of the engine as rows of the table, and back.

use std::time::Duration;

use ceased_core::rpc::error::code;
use ceased_core::tasks::durable::{
    self, ClaimedKey, RecordedOutcome, TaskOutcome, TaskRecord, Work,
};
use ceased_core::tasks::shared::KeyVerdict;
use ceased_core::tasks::status::Status;
use ceased_fleet::contract::{self, CallKey, End, Ended, KeyFound, NewTask, Outcome, TaskRow};

use super::names::Names;
use crate::store::record::{KeptOutcome, Kind};

/// Status message of a task whose node was lost.
const LOST: &str = "interrupted: its node was lost";

/// The end that others give the tasks of a node that was lost.
pub(super) fn lost() -> End {
    let error = format!(r#"{{"code":{},"message":"{LOST}"}}"#, code::INTERRUPTED);
    let (status, outcome) = (Ended::Failed, Outcome::Error(error));
    End { status, message: Some(LOST.to_owned()), outcome, receipt: None }
}

/// A task that was created here.
pub(super) fn new_task(record: &TaskRecord, names: &Names) -> Result<NewTask, String> {
    Ok(NewTask {
        id: record.id,
        identity: names.of(&record.owner),
        tool: record.tool.to_string(),
        message: record.status_message.as_deref().map(str::to_owned),
        ttl: record.ttl,
        end: match record.status.is_terminal() {
            true => Some(end(record)?),
            false => None,
        },
    })
}

/// The end of a task that has one.
pub(super) fn end(record: &TaskRecord) -> Result<End, String> {
    let status = match record.status {
        Status::Completed => Ended::Completed,
        Status::Failed => Ended::Failed,
        Status::Cancelled => Ended::Cancelled,
        Status::Working | Status::InputRequired => return Err("a task without an end".to_owned()),
    };
    let RecordedOutcome::Here(outcome) = &record.outcome else {
        return Err("an end without an outcome".to_owned());
    };
    let outcome = written(outcome)?;
    Ok(End {
        status,
        message: record.status_message.as_deref().map(str::to_owned),
        outcome,
        // Without a stop there is no more to say of it.
        receipt: (record.work != Some(Work::Ending)).then(|| "{}".to_owned()),
    })
}

/// An idempotency key.
pub(super) fn call_key(key: &ClaimedKey, names: &Names) -> CallKey {
    CallKey {
        identity: names.of(&key.owner),
        key: key.key.to_string(),
        claim: i64::try_from(key.claim.get()).unwrap_or(i64::MAX),
    }
}

/// A change of a call with a key, whose answer is kept for this time.
pub(super) fn key_change(
    change: &durable::KeyChange,
    kept: Duration,
) -> Result<contract::KeyChange, String> {
    Ok(match change {
        durable::KeyChange::Task(task) => contract::KeyChange::Task(*task),
        durable::KeyChange::Over(outcome) => contract::KeyChange::Over(written(outcome)?, kept),
        durable::KeyChange::Forgotten => contract::KeyChange::Free,
    })
}

/// The judgement on a claimed key.
pub(super) fn key_verdict(found: KeyFound) -> KeyVerdict {
    match found {
        KeyFound::Claimed => KeyVerdict::Granted,
        KeyFound::Another => KeyVerdict::Another,
        KeyFound::UnderWay => KeyVerdict::UnderWay,
        KeyFound::Lost => KeyVerdict::Lost,
        KeyFound::Task(task) => KeyVerdict::Task(task),
        KeyFound::Over(read) => KeyVerdict::Over(outcome(read)),
        KeyFound::Full { bytes } => KeyVerdict::Full { bytes },
    }
}

/// An outcome as it is written.
fn written(outcome: &TaskOutcome) -> Result<Outcome, String> {
    let kept = KeptOutcome::of(outcome)?;
    Ok(match kept.kind {
        Kind::Result => Outcome::Result(kept.json.into_owned()),
        Kind::Error => Outcome::Error(kept.json.into_owned()),
    })
}

/// How far the work of a task is that was cancelled or has failed.
pub(super) fn work(row: &TaskRow) -> Option<Work> {
    match (row.status, &row.receipt) {
        (Status::Working | Status::InputRequired | Status::Completed, _) => None,
        (Status::Failed | Status::Cancelled, Some(_)) => Some(Work::Ceased),
        (Status::Failed | Status::Cancelled, None) if row.is_attended => Some(Work::Ending),
        (Status::Failed | Status::Cancelled, None) => Some(Work::Lost),
    }
}

/// A row with its outcome, if that was read; `None` for a task of an identity that is not seen here.
pub(super) fn record(row: TaskRow, outcome: Option<Outcome>, names: &Names) -> Option<TaskRecord> {
    let outcome = match (row.status.is_terminal(), outcome) {
        (false, _) => RecordedOutcome::Open,
        (true, Some(outcome)) => RecordedOutcome::Here(self::outcome(outcome)),
        (true, None) => {
            let bytes = row.outcome_bytes.unwrap_or_default();
            RecordedOutcome::Stored { bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }
        }
    };
    let work = work(&row);
    Some(TaskRecord {
        id: row.id,
        owner: names.read(&row.identity)?,
        position: u64::try_from(row.position).unwrap_or_default(),
        tool: row.tool.into(),
        status: row.status,
        status_message: row.message.map(Into::into),
        created: row.created,
        updated: row.updated,
        ttl: row.ttl,
        expires: row.expires,
        outcome,
        asks: row.asks.map(Into::into),
        work,
    })
}

/// An outcome as it was read.
pub(super) fn outcome(read: Outcome) -> TaskOutcome {
    let (kind, json) = match read {
        Outcome::Result(json) => (Kind::Result, json),
        Outcome::Error(json) => (Kind::Error, json),
    };
    KeptOutcome { kind, json: json.into() }.outcome().unwrap_or_else(|why| {
        let message = format!("the outcome in the table cannot be read: {why}");
        Err(ceased_core::rpc::error::ErrorObject::new(code::INTERNAL_ERROR, message))
    })
}
