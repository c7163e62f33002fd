//! The statements. Each one of a batch is a transition of one row that happens under a condition, or
//! not at all; its result says which.

use crate::postgres::Statement;

/// First of every batch: fences, renews and numbers it. It fails with 22012 for a node that is no member,
/// since no row or no result would not end the rest of the batch. And for a batch that comes after its next one:
/// bytes of a broken connection that the server reads late.
pub(super) const FENCE: Statement = Statement {
    name: "fence",
    sql: "WITH renewed AS (UPDATE ceased.node SET batch = batch + 1, expires = clock_timestamp() + lease
        WHERE epoch = $1::int8 AND state = 'live' AND batch = $2::int8 RETURNING batch)
    SELECT coalesce((SELECT batch FROM renewed), 1 / (SELECT count(*) FROM renewed))",
};

/// The number of the last batch that was carried out; no row for an epoch that is over. A batch under way
/// holds the row, and is counted when it is done.
pub(super) const LAST_BATCH: Statement = Statement {
    name: "last_batch",
    sql: "SELECT batch FROM ceased.node WHERE epoch = $1::int8 AND state = 'live' FOR UPDATE",
};

/// Ends the earlier epochs of a key.
pub(super) const SUCCEED: Statement = Statement {
    name: "succeed",
    sql: "UPDATE ceased.node SET state = 'dead' WHERE key = $1::uuid AND state = 'live'",
};

/// A node that takes no further work.
pub(super) const DRAIN: Statement =
    Statement { name: "drain", sql: "UPDATE ceased.node SET drains = true WHERE epoch = $1::int8" };

/// The server and its settings.
pub(super) const DATABASE: Statement = Statement {
    name: "database",
    sql: "SELECT current_setting('server_version'), current_database(), current_user,
        current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication),
        current_setting('fsync'), current_setting('full_page_writes')",
};

/// A new epoch.
pub(super) const JOIN: Statement = Statement {
    name: "join",
    sql: "INSERT INTO ceased.node (epoch, key, name, version, state, lease, expires)
    VALUES (nextval('ceased.epoch'), $1::uuid, $2::text, $4::text, 'live', make_interval(secs => $3::int8 / 1000.0),
        clock_timestamp() + make_interval(secs => $3::int8 / 1000.0))
    RETURNING epoch",
};

/// The end of an epoch by its own node.
pub(super) const LEAVE: Statement = Statement {
    name: "leave",
    sql: "UPDATE ceased.node SET state = 'left' WHERE epoch = $1::int8",
};

/// Locks the rows of owners: of these tasks, and these. All transactions lock rows in the order of owners and
/// then tasks, so that none waits for one that waits for it.
pub(super) const OWNERS: Statement = Statement {
    name: "owners",
    sql: "SELECT FROM ceased.owner JOIN (
        SELECT identity FROM ceased.task WHERE id = ANY ($1::uuid[]) UNION SELECT unnest($2::text[])
    ) AS of USING (identity) ORDER BY identity COLLATE \"C\" FOR UPDATE OF owner",
};

/// A task, if its owner has room. The place is taken under the lock of the owner's row, which is held
/// until the commit: so places become visible in their order.
pub(super) const NEW: Statement = Statement {
    name: "new",
    sql: "WITH room AS (
        INSERT INTO ceased.owner AS o (identity, live, stored, bytes, next_position)
        SELECT $2::text, ($5::int2 < 2)::int::int8, ($5::int2 >= 2)::int::int8,
            coalesce(octet_length($10::text), 0), 2
            WHERE $11::int8 > 0 AND $12::int8 > 0
        ON CONFLICT (identity) DO UPDATE SET live = o.live + excluded.live, stored = o.stored + excluded.stored,
            bytes = o.bytes + excluded.bytes, next_position = o.next_position + 1
            WHERE o.live < $11::int8 AND o.stored < $12::int8 AND o.bytes < $13::int8
        RETURNING next_position - 1 AS position
    )
    INSERT INTO ceased.task (id, identity, position, node, status, tool, message, expires, ttl_ms,
        outcome_kind, outcome, receipt)
    SELECT $1::uuid, $2::text, position, $3::int8, $5::int2, $4::text, $6::text,
        clock_timestamp() + make_interval(secs => $7::int8 / 1000.0), $8::int8, $9::int2, $10::text, $14::text FROM room
    RETURNING version, (extract(epoch FROM updated) * 1000)::int8, position",
};

/// The tasks and bytes of an owner, to name the limit that it has reached.
pub(super) const ROOM: Statement = Statement {
    name: "room",
    sql: "SELECT live, stored, bytes FROM ceased.owner WHERE identity = $1::text",
};

/// Another status without an end. Its node alone gives it, by numbered batches: no version is compared, which
/// an answer that was lost with the connection would leave behind.
pub(super) const CHANGE: Statement = Statement {
    name: "change",
    sql: "UPDATE ceased.task SET status = $3::int2, message = $4::text, asks = $5::text, version = version + 1,
        updated = greatest(updated, clock_timestamp())
    WHERE id = $1::uuid AND node = $2::int8 AND status < 2
    RETURNING version, (extract(epoch FROM updated) * 1000)::int8, position",
};

/// An end by the node of the task.
pub(super) const END: Statement = Statement {
    name: "end",
    sql: "WITH ended AS (
        UPDATE ceased.task SET status = $3::int2, message = $4::text, asks = NULL, outcome_kind = $5::int2,
            outcome = $6::text, receipt = $7::text, version = version + 1, updated = greatest(updated, clock_timestamp())
        WHERE id = $1::uuid AND node = $2::int8 AND status < 2
        RETURNING version, updated, position, identity
    ), counted AS (
        UPDATE ceased.owner SET live = live - 1, stored = stored + 1, bytes = bytes + octet_length($6::text)
        FROM ended WHERE owner.identity = ended.identity
    )
    SELECT version, (extract(epoch FROM updated) * 1000)::int8, position FROM ended",
};

/// An end by any node, for the identity that owns the task.
pub(super) const CANCEL: Statement = Statement {
    name: "cancel",
    sql: "WITH ended AS (
        UPDATE ceased.task SET status = $3::int2, message = $4::text, asks = NULL, outcome_kind = $5::int2,
            outcome = $6::text, version = version + 1, updated = greatest(updated, clock_timestamp())
        WHERE id = $1::uuid AND identity = $2::text AND status < 2
        RETURNING version, updated, position, identity
    ), counted AS (
        UPDATE ceased.owner SET live = live - 1, stored = stored + 1, bytes = bytes + octet_length($6::text)
        FROM ended WHERE owner.identity = ended.identity
    )
    SELECT version, (extract(epoch FROM updated) * 1000)::int8, position FROM ended",
};

/// A receipt.
pub(super) const RECEIPT: Statement = Statement {
    name: "receipt",
    sql: "UPDATE ceased.task SET receipt = $2::text, version = version + 1 WHERE id = $1::uuid AND status >= 2
    RETURNING version, (extract(epoch FROM updated) * 1000)::int8, position",
};

/// A removal by the node of the task.
pub(super) const DELETE: Statement = Statement {
    name: "delete",
    sql: "WITH gone AS (
        DELETE FROM ceased.task WHERE id = $1::uuid AND node = $2::int8
        RETURNING id, identity, (status < 2)::int::int8 AS live, coalesce(octet_length(outcome), 0)::int8 AS size
    ), unkeyed AS (
        DELETE FROM ceased.keyed USING gone WHERE keyed.task = gone.id
    ), counted AS (
        UPDATE ceased.owner SET live = owner.live - gone.live, stored = stored - (1 - gone.live), bytes = bytes - size
        FROM gone WHERE owner.identity = gone.identity
    )
    SELECT live FROM gone",
};

/// The key that seals cursors.
pub(super) const CURSOR_KEY: Statement =
    Statement { name: "cursor_key", sql: "SELECT cursor_key FROM ceased.meta" };

/// Nodes, the newest first, with the number of their tasks.
pub(super) const NODES: Statement = Statement {
    name: "nodes",
    sql: "SELECT epoch, name, state, (extract(epoch FROM lease) * 1000)::int8,
        (extract(epoch FROM expires - clock_timestamp()) * 1000)::int8,
        (SELECT count(*) FROM ceased.task WHERE task.node = node.epoch AND status < 2), drains::int, version
    FROM ceased.node ORDER BY epoch DESC LIMIT 1000",
};

/// Columns of a task.
macro_rules! columns {
    () => {
        "id, identity, position, node, version, status, tool, message,
        (extract(epoch FROM created) * 1000)::int8, (extract(epoch FROM updated) * 1000)::int8,
        (extract(epoch FROM expires) * 1000)::int8, ttl_ms, asks, octet_length(outcome)::int8, receipt,
        (SELECT count(*) FROM ceased.node AS own WHERE own.epoch = node AND own.state = 'live')"
    };
}

/// A task of any identity.
pub(super) const ROW: Statement = Statement {
    name: "row",
    sql: concat!("SELECT ", columns!(), " FROM ceased.task WHERE id = $1::uuid"),
};

/// A task of an identity.
pub(super) const OWN_ROW: Statement = Statement {
    name: "own_row",
    sql: concat!(
        "SELECT ",
        columns!(),
        " FROM ceased.task WHERE id = $1::uuid AND identity = $2::text"
    ),
};

/// Tasks of an identity behind a position.
pub(super) const PAGE: Statement = Statement {
    name: "page",
    sql: concat!(
        "SELECT ",
        columns!(),
        " FROM ceased.task WHERE identity = $1::text AND position > $2::int8 ORDER BY position LIMIT $3::int8"
    ),
};

/// Columns of a task with the name of its node and its age.
macro_rules! placed {
    () => {
        concat!(
            "SELECT ",
            columns!(),
            ", (SELECT name FROM ceased.node AS own WHERE own.epoch = node),
            (extract(epoch FROM clock_timestamp() - created) * 1000)::int8 FROM ceased.task "
        )
    };
}

/// Tasks of all: the newest without an end, then those with one that are kept longest.
pub(super) const NEWEST_OF_ALL: Statement = Statement {
    name: "newest_of_all",
    sql: concat!(
        "(",
        placed!(),
        "WHERE status < 2 ORDER BY created DESC LIMIT $1::int8) UNION ALL (",
        placed!(),
        "WHERE status >= 2 ORDER BY expires DESC LIMIT $1::int8) LIMIT $1::int8"
    ),
};

/// Tasks of an identity, the newest first.
pub(super) const NEWEST: Statement = Statement {
    name: "newest",
    sql: concat!(placed!(), "WHERE identity = $1::text ORDER BY position DESC LIMIT $2::int8"),
};

/// Tasks that are not in these versions any more, or are gone: then the id before is alone.
pub(super) const CHANGED: Statement = Statement {
    name: "changed",
    sql: concat!(
        "SELECT ",
        columns!(),
        ", known.task FROM unnest($1::uuid[], $2::int8[]) AS known (task, seen) LEFT JOIN ceased.task ON id = known.task
        WHERE version IS DISTINCT FROM seen LIMIT $3::int8"
    ),
};

/// The outcome of a task of an identity.
pub(super) const OUTCOME: Statement = Statement {
    name: "outcome",
    sql: "SELECT outcome_kind, outcome FROM ceased.task WHERE id = $1::uuid AND identity = $2::text",
};

/// A watch.
pub(super) const WATCH: Statement = Statement {
    name: "watch",
    sql: "INSERT INTO ceased.watch VALUES ($1::uuid, $2::int8) ON CONFLICT DO NOTHING",
};

/// Nodes, other than one, that run or watch one of these tasks. After the change and not beside it: a watch that is
/// stored between the two would be seen by neither this nor the look that comes after it.
pub(super) const CONCERNED: Statement = Statement {
    name: "concerned",
    sql: "SELECT node FROM ceased.watch WHERE task = ANY ($2::uuid[]) AND node <> $1::int8
    UNION SELECT node FROM ceased.task WHERE id = ANY ($2::uuid[]) AND node <> $1::int8",
};

/// No watch.
pub(super) const UNWATCH: Statement = Statement {
    name: "unwatch",
    sql: "DELETE FROM ceased.watch WHERE task = $1::uuid AND node = $2::int8",
};

/// A message to the node of a task, if it is there and not too many wait for that task.
pub(super) const SEND: Statement = Statement {
    name: "send",
    sql: "INSERT INTO ceased.inbox (node, kind, task, body)
    SELECT node, $3::int2, id, $4::bytea FROM ceased.task JOIN ceased.node ON epoch = node
    WHERE id = $1::uuid AND identity = $2::text AND status < 2 AND state = 'live'
        AND (SELECT count(*) < $5::int8 AND coalesce(sum(octet_length(body)), 0) < $6::int8
            FROM ceased.inbox WHERE inbox.node = epoch AND inbox.task = id)",
};

/// Claims a key, if its owner has room and no call has it: none that runs or is a task, and no answer. That
/// of a node which left in good order was stopped with it.
pub(super) const CLAIM: Statement = Statement {
    name: "claim",
    sql: "WITH held AS (
        SELECT count(*) AS keys, coalesce(sum(octet_length(outcome)), 0) AS bytes
        FROM ceased.keyed WHERE identity = $1::text AND key <> $2::text
    )
    INSERT INTO ceased.keyed AS old (identity, key, wish, node, claim)
    SELECT $1::text, $2::text, $3::bytea, $4::int8, $5::int8 FROM held WHERE keys < $6::int8 AND bytes < $7::int8
    ON CONFLICT (identity, key) DO UPDATE SET wish = excluded.wish, node = excluded.node, claim = excluded.claim,
        task = NULL, outcome_kind = NULL, outcome = NULL, expires = NULL
        WHERE old.expires < clock_timestamp() OR (old.outcome IS NULL
            AND EXISTS (SELECT FROM ceased.node WHERE epoch = old.node AND state = 'left')
            AND NOT EXISTS (SELECT FROM ceased.task WHERE task.id = old.task))",
};

/// The call of a key: whether it is this claim's, whether it is the same call, its task if that is there,
/// whether its node is a member, its answer, and the number of keys of its owner.
pub(super) const KEY: Statement = Statement {
    name: "key",
    sql: "SELECT (node = $4::int8 AND claim = $5::int8)::int, (wish = $3::bytea)::int,
        (SELECT id FROM ceased.task WHERE task.id = keyed.task),
        (SELECT count(*) FROM ceased.node WHERE epoch = keyed.node AND state = 'live'), outcome_kind, outcome,
        (SELECT count(*) FROM ceased.keyed AS own WHERE own.identity = $1::text)
    FROM (SELECT 1) AS one LEFT JOIN ceased.keyed ON identity = $1::text AND key = $2::text",
};

/// The call of a key is a task, or over, or as though it had not been.
pub(super) const KEY_TASK: Statement = Statement {
    name: "key_task",
    sql: "UPDATE ceased.keyed SET task = $5::uuid
    WHERE identity = $1::text AND key = $2::text AND node = $3::int8 AND claim = $4::int8",
};

/// The answer of a call with a key.
pub(super) const KEY_OVER: Statement = Statement {
    name: "key_over",
    sql: "UPDATE ceased.keyed SET outcome_kind = $5::int2, outcome = $6::text,
        expires = clock_timestamp() + make_interval(secs => $7::int8 / 1000.0)
    WHERE identity = $1::text AND key = $2::text AND node = $3::int8 AND claim = $4::int8",
};

/// A key that is free again.
pub(super) const KEY_FREE: Statement = Statement {
    name: "key_free",
    sql: "DELETE FROM ceased.keyed
    WHERE identity = $1::text AND key = $2::text AND node = $3::int8 AND claim = $4::int8",
};

/// Messages that were taken.
pub(super) const TAKEN: Statement = Statement {
    name: "taken",
    sql: "DELETE FROM ceased.inbox WHERE node = $1::int8 AND number = ANY ($2::int8[])",
};

/// Messages to a node, up to so many bytes; one in any case.
pub(super) const INBOX: Statement = Statement {
    name: "inbox",
    sql: "SELECT number, kind, task, body FROM (
        SELECT number, kind, task, body,
            sum(octet_length(body)) OVER (ORDER BY number) - octet_length(body) AS before
        FROM ceased.inbox WHERE node = $1::int8 ORDER BY number LIMIT $2::int8
    ) AS first WHERE before < $3::int8 ORDER BY number",
};

/// Ends memberships. A renewal under way holds the row, and is seen when it is done.
pub(super) const BURY: Statement = Statement {
    name: "bury",
    sql: "UPDATE ceased.node SET state = 'dead'
    WHERE $2::bool AND state = 'live' AND expires + interval '1 second' < clock_timestamp() AND epoch <> $1::int8
    RETURNING epoch",
};

/// Ends the tasks of nodes that are gone, some at a time; those that another node ends at this moment are
/// left to it. It locks their owners first, as [`OWNERS`].
pub(super) const REAP: Statement = Statement {
    name: "reap",
    sql: "WITH found AS (
        SELECT task.id, task.identity FROM ceased.task JOIN ceased.node ON node.epoch = task.node
        WHERE task.status < 2 AND node.state <> 'live' ORDER BY task.identity, task.id LIMIT $1::int8
    ), held AS (
        SELECT identity FROM ceased.owner WHERE identity IN (SELECT identity FROM found)
        ORDER BY identity COLLATE \"C\" FOR UPDATE
    ), lost AS (
        SELECT task.id FROM ceased.task JOIN found ON found.id = task.id JOIN held ON held.identity = task.identity
        WHERE task.status < 2 ORDER BY task.identity, task.id FOR UPDATE OF task SKIP LOCKED
    ), ended AS (
        UPDATE ceased.task SET status = $2::int2, message = $3::text, asks = NULL, outcome_kind = $4::int2,
            outcome = $5::text, version = version + 1, updated = greatest(updated, clock_timestamp())
        FROM lost WHERE task.id = lost.id AND task.status < 2 RETURNING task.id, task.identity
    ), counted AS (
        UPDATE ceased.owner SET live = live - many, stored = stored + many, bytes = bytes + many * octet_length($5::text)
        FROM (SELECT identity, count(*) AS many FROM ended GROUP BY identity) AS per
        WHERE owner.identity = per.identity
    )
    SELECT id FROM ended",
};

/// Rows of nodes that are gone and have nothing left.
pub(super) const FORGET: Statement = Statement {
    name: "forget",
    sql: "WITH gone AS (
        DELETE FROM ceased.node WHERE state <> 'live' AND expires < clock_timestamp() - interval '1 hour'
            AND NOT EXISTS (SELECT FROM ceased.task WHERE task.node = node.epoch AND status < 2)
        RETURNING epoch
    ), unkeyed AS (
        DELETE FROM ceased.keyed USING gone WHERE keyed.node = gone.epoch AND keyed.outcome IS NULL
            AND NOT EXISTS (SELECT FROM ceased.task WHERE task.id = keyed.task)
    ), unread AS (DELETE FROM ceased.inbox USING gone WHERE inbox.node = gone.epoch)
    DELETE FROM ceased.watch USING gone WHERE watch.node = gone.epoch",
};

/// Deletes tasks whose time is over, some at a time. It locks their owners first, as [`OWNERS`].
pub(super) const EXPIRE: Statement = Statement {
    name: "expire",
    sql: "WITH found AS (
        SELECT id, identity FROM ceased.task WHERE expires < clock_timestamp() AND status >= 2
        ORDER BY identity, id LIMIT $1::int8
    ), held AS (
        SELECT identity FROM ceased.owner WHERE identity IN (SELECT identity FROM found)
        ORDER BY identity COLLATE \"C\" FOR UPDATE
    ), over AS (
        SELECT task.id FROM ceased.task JOIN found ON found.id = task.id JOIN held ON held.identity = task.identity
        ORDER BY task.identity, task.id FOR UPDATE OF task SKIP LOCKED
    ), gone AS (
        DELETE FROM ceased.task USING over WHERE task.id = over.id
        RETURNING task.id, task.identity, octet_length(outcome) AS size
    ), unkeyed AS (
        DELETE FROM ceased.keyed USING gone WHERE keyed.task = gone.id
    ), old_keys AS (
        DELETE FROM ceased.keyed WHERE (identity, key) IN (
            SELECT identity, key FROM ceased.keyed WHERE expires < clock_timestamp() LIMIT $1::int8
            FOR UPDATE SKIP LOCKED)
    ), counted AS (
        UPDATE ceased.owner SET stored = stored - many, bytes = bytes - size
        FROM (SELECT identity, count(*) AS many, coalesce(sum(size), 0)::int8 AS size FROM gone GROUP BY identity) AS per
        WHERE owner.identity = per.identity
    )
    SELECT count(*) FROM gone",
};
