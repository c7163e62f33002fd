//! File format versions and migrations.
//!
//! A released version is never changed. A new one is a step at the end of [`STEPS`] and a file of
//! the old version in `tests/store/`, which the tests read.

use rusqlite::{Connection, TransactionBehavior};

use super::contract::{StoreError, Unusable};

/// SQLite application id of the file: "ceas".
pub(super) const APPLICATION_ID: i32 = 0x6365_6173;

/// Step N migrates from version N to N + 1; an empty file has version 0.
const STEPS: &[&str] = &[
    "
    CREATE TABLE task (
        id BLOB NOT NULL PRIMARY KEY,   -- the sixteen bytes of its UUID
        owner TEXT NOT NULL,            -- uid:N, token:NAME or anonymous
        position INTEGER NOT NULL,      -- in the owner's list
        tool TEXT NOT NULL,
        status TEXT NOT NULL,           -- the word on the wire
        status_message TEXT,
        created_ms INTEGER NOT NULL,    -- these three since 1970
        updated_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL,
        ttl_ns INTEGER NOT NULL,
        sum INTEGER NOT NULL,           -- over everything above
        outcome_kind INTEGER,           -- 0 a result, 1 an error
        outcome_sum INTEGER,            -- over these two
        outcome TEXT                    -- JSON
    ) STRICT;
",
    "
    ALTER TABLE task RENAME TO task_by_id;
    -- By position, which grows: what is written together is together, and there is no index by
    -- chance, of which each write would change another page.
    CREATE TABLE task (
        position INTEGER NOT NULL PRIMARY KEY,  -- in the owner's list
        id BLOB NOT NULL,               -- the sixteen bytes of its UUID
        owner TEXT NOT NULL,            -- uid:N, token:NAME or anonymous
        tool TEXT NOT NULL,
        status TEXT NOT NULL,           -- the word on the wire
        status_message TEXT,
        created_ms INTEGER NOT NULL,    -- these three since 1970
        updated_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL,
        ttl_ns INTEGER NOT NULL,
        sum INTEGER NOT NULL,           -- over everything above
        outcome_kind INTEGER,           -- 0 a result, 1 an error
        outcome_sum INTEGER,            -- over these two
        outcome TEXT                    -- JSON
    ) STRICT;
    INSERT INTO task (position, id, owner, tool, status, status_message, created_ms, updated_ms,
            expires_ms, ttl_ns, sum, outcome_kind, outcome_sum, outcome)
        SELECT position, id, owner, tool, status, status_message, created_ms, updated_ms,
            expires_ms, ttl_ns, sum, outcome_kind, outcome_sum, outcome
        FROM task_by_id ORDER BY position;
    DROP TABLE task_by_id;
",
];

/// The version this program writes.
pub(super) const VERSION: usize = STEPS.len();

/// Format of a file.
pub(super) enum Format {
    /// A store of this version.
    Ceased(usize),
    /// Another application's database.
    Foreign(i32),
}

/// Determines the format of a file.
pub(super) fn format(connection: &Connection) -> rusqlite::Result<Format> {
    let number =
        |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    Ok(match number("application_id")? {
        APPLICATION_ID => Format::Ceased(usize::try_from(number("user_version")?).unwrap_or(0)),
        other => Format::Foreign(other),
    })
}

/// Migrates a file from `version` to [`VERSION`], one transaction per step.
pub(super) fn migrate(connection: &mut Connection, version: usize) -> rusqlite::Result<()> {
    for (number, step) in STEPS.iter().enumerate().skip(version) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        let next = i64::try_from(number + 1).unwrap_or(i64::MAX);
        transaction.pragma_update(None, "user_version", next)?;
        transaction.commit()?;
    }
    Ok(())
}

/// The version of a readable file; otherwise the reason why it cannot be read.
pub(super) fn readable(format: &Format, file: &str) -> Result<usize, StoreError> {
    match *format {
        Format::Ceased(version) if version > VERSION => {
            Err(StoreError::Unusable(Unusable::TooNew(format!(
                "{file} has format {version}, written by a newer ceased; this one knows formats up \
                 to {VERSION}"
            ))))
        }
        Format::Ceased(0) => Err(StoreError::damaged(format!("{file} has no format version"))),
        Format::Ceased(version) => Ok(version),
        Format::Foreign(id) => Err(StoreError::damaged(format!(
            "{file} is not a store of ceased (its application id is {id:#x})"
        ))),
    }
}
