//! The tables, and their creation.

use std::time::Instant;

use super::failure::failure;
use crate::contract::Failure;
use crate::postgres::{PgError, Session};

/// Number of the format that this version writes.
pub const FORMAT: i64 = 3;

/// The oldest server that is used.
const OLDEST: i64 = 140_000;

/// Only one node creates at a time: a number of its own among advisory locks.
const CREATE: &str = "
BEGIN;
SELECT pg_advisory_xact_lock(4850197362);
CREATE SCHEMA IF NOT EXISTS ceased;
CREATE TABLE IF NOT EXISTS ceased.meta (
    format int NOT NULL,
    cursor_key bytea NOT NULL,
    fleet uuid NOT NULL
);
INSERT INTO ceased.meta SELECT 3, uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), gen_random_uuid()
    WHERE NOT EXISTS (SELECT FROM ceased.meta);
CREATE SEQUENCE IF NOT EXISTS ceased.epoch;
CREATE TABLE IF NOT EXISTS ceased.node (
    epoch int8 PRIMARY KEY,
    key uuid NOT NULL,
    name text NOT NULL,
    state text NOT NULL CHECK (state IN ('live', 'left', 'dead')),
    lease interval NOT NULL,
    expires timestamptz NOT NULL,
    batch int8 NOT NULL DEFAULT 0,
    drains boolean NOT NULL DEFAULT false,
    version text NOT NULL
) WITH (fillfactor = 20);
CREATE TABLE IF NOT EXISTS ceased.owner (
    identity text PRIMARY KEY,
    live int8 NOT NULL,
    stored int8 NOT NULL,
    bytes int8 NOT NULL,
    next_position int8 NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS ceased.task (
    id uuid PRIMARY KEY,
    identity text NOT NULL,
    position int8 NOT NULL,
    node int8 NOT NULL,
    version int8 NOT NULL DEFAULT 1,
    status int2 NOT NULL,
    tool text NOT NULL,
    message text,
    created timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires timestamptz NOT NULL,
    ttl_ms int8 NOT NULL,
    asks text,
    outcome_kind int2,
    outcome text,
    receipt text,
    UNIQUE (identity, position)
);
CREATE INDEX IF NOT EXISTS live_of ON ceased.task (node) WHERE status < 2;
CREATE INDEX IF NOT EXISTS dying ON ceased.task (expires);
CREATE TABLE IF NOT EXISTS ceased.watch (
    task uuid NOT NULL,
    node int8 NOT NULL,
    PRIMARY KEY (task, node)
);
CREATE TABLE IF NOT EXISTS ceased.inbox (
    node int8 NOT NULL,
    number bigserial,
    kind int2 NOT NULL,
    task uuid,
    body bytea NOT NULL,
    PRIMARY KEY (node, number)
);
CREATE TABLE IF NOT EXISTS ceased.keyed (
    identity text NOT NULL,
    key text NOT NULL,
    wish bytea NOT NULL,
    node int8 NOT NULL,
    claim int8 NOT NULL,
    task uuid,
    outcome_kind int2,
    outcome text,
    expires timestamptz,
    PRIMARY KEY (identity, key)
);
CREATE INDEX IF NOT EXISTS keyed_task ON ceased.keyed (task) WHERE task IS NOT NULL;
CREATE INDEX IF NOT EXISTS keyed_dying ON ceased.keyed (expires) WHERE expires IS NOT NULL;
COMMIT;
";

/// Looks at the tables, and creates them where they are not there and may be created.
pub(super) fn ensure(
    session: &mut Session,
    creates: bool,
    deadline: Instant,
) -> Result<(), Failure> {
    let version = number(session, "SELECT current_setting('server_version_num')::int8", deadline)?;
    if version < OLDEST {
        return Err(Failure::Unusable(format!(
            "the database is PostgreSQL {}; a fleet needs 14 or newer",
            version / 10_000
        )));
    }
    let there = "SELECT (to_regclass('ceased.meta') IS NOT NULL)::int";
    if number(session, there, deadline)? == 0 {
        if !creates {
            return Err(Failure::Unusable(
                "the database has no tables of a fleet; `ceased fleet init` creates them, and so does the \
                 first node"
                    .to_owned(),
            ));
        }
        session.script(CREATE, deadline).map_err(|error| not_created(&error))?;
    }
    match number(session, "SELECT format FROM ceased.meta", deadline)? {
        FORMAT => Ok(()),
        format if format < FORMAT => Err(Failure::Unusable(format!(
            "the tables of the fleet have format {format}; this version of ceased writes {FORMAT} and converts \
             none: let the version that wrote them finish its tasks, end all nodes, `DROP SCHEMA ceased CASCADE` \
             in the database, and run `ceased fleet init`"
        ))),
        format => Err(Failure::Unusable(format!(
            "the tables of the fleet have format {format}, and this version of ceased knows {FORMAT}; \
             install the version that the other nodes have"
        ))),
    }
}

fn not_created(error: &PgError) -> Failure {
    match error.code() {
        Some("42501") => Failure::Unusable(format!(
            "the schema \"ceased\" is not there and this role may not create it; run `ceased fleet init` \
             with one that may: {error}"
        )),
        _ => failure(error),
    }
}

/// The number that a query in text form answers.
fn number(session: &mut Session, sql: &str, deadline: Instant) -> Result<i64, Failure> {
    let results = session.script(sql, deadline).map_err(|error| failure(&error))?;
    let text = results.first().and_then(|rows| rows.rows.first()?.text(0).ok()?);
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Failure::Unusable(format!("the database answers no number to {sql:?}")))
}
