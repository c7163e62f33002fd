//! Records as rows, with checksums verified on reading.

use std::borrow::Cow;

use ceased_core::identity::Identity;
use ceased_core::ids::TaskId;
use ceased_core::time::Wall;
use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, Row, params};
use uuid::Uuid;

use super::record::{self, KeptOutcome, Kind, Sum};
use ceased_core::tasks::durable::{RecordKey, RecordedOutcome, TaskOutcome, TaskRecord};

/// Why a row was not written.
pub(super) enum Unwritten {
    /// The record cannot be stored.
    Refused(String),
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Unwritten {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Why rows were not read.
pub(super) enum Unread {
    /// A row is damaged.
    Damaged(String),
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Unread {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

const PUT: &str = "
    INSERT INTO task (id, owner, position, tool, status, status_message, created_ms, updated_ms,
        expires_ms, ttl_ns, sum, outcome_kind, outcome_sum, outcome)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
    ON CONFLICT (position) DO UPDATE SET id = ?1, owner = ?2, tool = ?4, status = ?5,
        status_message = ?6, created_ms = ?7, updated_ms = ?8, expires_ms = ?9, ttl_ns = ?10,
        sum = ?11, outcome_kind = ?12, outcome_sum = ?13, outcome = ?14";

const DELETE: &str = "DELETE FROM task WHERE position = ?2 AND id = ?1";

const ALL: &str = "
    SELECT id, owner, position, tool, status, status_message, created_ms, updated_ms, expires_ms,
        ttl_ns, sum, outcome_kind, outcome_sum, octet_length(outcome),
        CASE WHEN octet_length(outcome) <= ?1 THEN outcome END
    FROM task";

const OUTCOME: &str = "
    SELECT outcome_kind, outcome_sum, outcome FROM task WHERE position = ?2 AND id = ?1";

/// A serialized record without its outcome.
struct Head<'a> {
    id: [u8; 16],
    owner: String,
    position: i64,
    tool: Cow<'a, str>,
    status: Cow<'a, str>,
    status_message: Option<Cow<'a, str>>,
    created: i64,
    updated: i64,
    expires: i64,
    ttl: i64,
}

impl<'a> Head<'a> {
    fn of(record: &'a TaskRecord) -> Self {
        Self {
            id: *record.id.uuid().as_bytes(),
            owner: record.owner.to_string(),
            position: record.position.cast_signed(),
            tool: (&*record.tool).into(),
            status: record.status.as_str().into(),
            status_message: record.status_message.as_deref().map(Cow::from),
            created: record.created.as_millis().cast_signed(),
            updated: record.updated.as_millis().cast_signed(),
            expires: record.expires.as_millis().cast_signed(),
            ttl: record::nanos(record.ttl),
        }
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            owner: row.get(1)?,
            position: row.get(2)?,
            tool: row.get::<_, String>(3)?.into(),
            status: row.get::<_, String>(4)?.into(),
            status_message: row.get::<_, Option<String>>(5)?.map(Cow::from),
            created: row.get(6)?,
            updated: row.get(7)?,
            expires: row.get(8)?,
            ttl: row.get(9)?,
        })
    }

    fn sum(&self) -> i64 {
        let mut sum = Sum::default();
        sum.bytes(&self.id);
        for text in [&*self.owner, &*self.tool, &*self.status] {
            sum.text(text);
        }
        sum.number(self.status_message.is_some().into());
        sum.text(self.status_message.as_deref().unwrap_or_default());
        for number in [self.position, self.created, self.updated, self.expires, self.ttl] {
            sum.number(number);
        }
        sum.finish()
    }

    /// The record with this outcome; `None` if a value is invalid.
    fn record(self, outcome: RecordedOutcome) -> Option<TaskRecord> {
        let wall = |millis: i64| Wall::from_millis(millis.cast_unsigned());
        Some(TaskRecord {
            id: TaskId::new(Uuid::from_bytes(self.id)),
            owner: Identity::parse(&self.owner)?,
            position: u64::try_from(self.position).ok()?,
            tool: (&*self.tool).into(),
            status: record::status(&self.status)?,
            status_message: self.status_message.map(|text| text.into_owned().into()),
            created: wall(self.created),
            updated: wall(self.updated),
            ttl: record::duration(self.ttl)?,
            expires: wall(self.expires),
            outcome,
            asks: None,
            work: None,
        })
    }
}

/// Prepared statements that write rows in one transaction.
pub(super) struct Writer<'c> {
    put: CachedStatement<'c>,
    delete: CachedStatement<'c>,
}

impl<'c> Writer<'c> {
    /// Prepares the statements on a connection with an open transaction.
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let (put, delete) = (connection.prepare_cached(PUT)?, connection.prepare_cached(DELETE)?);
        Ok(Self { put, delete })
    }

    /// Inserts or replaces a record.
    pub(super) fn put(&mut self, record: &TaskRecord) -> Result<(), Unwritten> {
        let outcome = match &record.outcome {
            RecordedOutcome::Open => None,
            RecordedOutcome::Here(outcome) => {
                Some(KeptOutcome::of(outcome).map_err(Unwritten::Refused)?)
            }
            RecordedOutcome::Stored { .. } => {
                return Err(Unwritten::Refused("its outcome is not in the write".into()));
            }
        };
        let head = Head::of(record);
        self.put.execute(params![
            head.id,
            head.owner,
            head.position,
            head.tool,
            head.status,
            head.status_message,
            head.created,
            head.updated,
            head.expires,
            head.ttl,
            head.sum(),
            outcome.as_ref().map(|outcome| outcome.kind.number()),
            outcome.as_ref().map(KeptOutcome::sum),
            outcome.as_ref().map(|outcome| &*outcome.json),
        ])?;
        Ok(())
    }

    /// Deletes a record, if it exists.
    pub(super) fn delete(&mut self, key: RecordKey) -> Result<(), Unwritten> {
        self.delete.execute(params![key.task.uuid().as_bytes(), key.position.cast_signed()])?;
        Ok(())
    }
}

/// Passes every record to `each`; outcomes larger than `resident` bytes stay on disk.
pub(super) fn all(
    connection: &Connection,
    resident: usize,
    each: &mut dyn FnMut(TaskRecord),
) -> Result<(), Unread> {
    let mut statement = connection.prepare(ALL)?;
    let mut rows = statement.query([i64::try_from(resident).unwrap_or(i64::MAX)])?;
    while let Some(row) = rows.next()? {
        each(read(row)?);
    }
    Ok(())
}

/// Reads a record and verifies its checksum.
fn read(row: &Row<'_>) -> Result<TaskRecord, Unread> {
    let head = Head::read(row).map_err(misfit)?;
    let task = Uuid::from_bytes(head.id);
    let damaged = |what: &str| Unread::Damaged(format!("the record of task {task} {what}"));
    if head.sum() != row.get::<_, i64>(10).map_err(misfit)? {
        return Err(damaged("has a wrong checksum"));
    }
    let bytes: Option<i64> = row.get(13).map_err(misfit)?;
    let outcome = match (bytes, row.get::<_, Option<String>>(14).map_err(misfit)?) {
        (None, _) => RecordedOutcome::Open,
        (Some(bytes), None) => {
            RecordedOutcome::Stored { bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }
        }
        (Some(_), Some(json)) => {
            let (kind, sum) = (row.get(11).map_err(misfit)?, row.get(12).map_err(misfit)?);
            RecordedOutcome::Here(kept(kind, sum, json).map_err(|what| damaged(&what))?)
        }
    };
    head.record(outcome).ok_or_else(|| damaged("has an invalid value"))
}

/// Reads the outcome of a task: `None` if there is none yet, an error text if it is damaged.
pub(super) fn outcome(
    connection: &Connection,
    key: RecordKey,
) -> rusqlite::Result<Result<Option<TaskOutcome>, String>> {
    let mut statement = connection.prepare_cached(OUTCOME)?;
    let (task, position) = (key.task.uuid(), key.position.cast_signed());
    statement.query_row(params![task.as_bytes(), position], |row| {
        let Some(json) = row.get::<_, Option<String>>(2)? else { return Ok(Ok(None)) };
        Ok(kept(row.get(0)?, row.get(1)?, json).map(Some))
    })
}

/// Reads an outcome and verifies its checksum.
fn kept(kind: Option<i64>, sum: Option<i64>, json: String) -> Result<TaskOutcome, String> {
    let kind = kind.and_then(Kind::from_number).ok_or("has an outcome of unknown kind")?;
    let kept = KeptOutcome { kind, json: json.into() };
    if sum != Some(kept.sum()) {
        return Err("has an outcome with a wrong checksum".into());
    }
    kept.outcome().map_err(|why| format!("has an invalid outcome: {why}"))
}

/// A value of an unexpected type is damage; other errors are SQLite's.
fn misfit(error: rusqlite::Error) -> Unread {
    if let rusqlite::Error::InvalidColumnType(column, name, kind) = &error {
        return Unread::Damaged(format!("column {column} ({name}) holds {}", shown(*kind)));
    }
    match error.sqlite_error() {
        Some(_) => Unread::Sqlite(error),
        None => Unread::Damaged(error.to_string()),
    }
}

const fn shown(kind: Type) -> &'static str {
    match kind {
        Type::Null => "nothing",
        Type::Integer => "an integer",
        Type::Real => "a fraction",
        Type::Text => "a text",
        Type::Blob => "bytes",
    }
}
