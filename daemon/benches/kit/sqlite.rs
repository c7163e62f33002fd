//! SQLite with the daemon's table, settings and statement; and a minimal server that keeps tasks
//! with it: one thread that reads, commits and answers.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use ceased::TaskId;
use ceased::store::Sqlite;
use ceased::store::durable::{RecordKey, RecordedOutcome, TaskRecord};
use rusqlite::{Connection, params};
use uuid::Uuid;

/// A write: key of the task, and whether it has ended.
pub(crate) type Noted = (RecordKey, bool);

/// A record of a started task, and one of an ended task.
pub(crate) type Samples = [TaskRecord; 2];

/// The statement with which the daemon's store writes a record.
const PUT: &str = "
    INSERT INTO task (id, owner, position, tool, status, status_message, created_ms, updated_ms,
        expires_ms, ttl_ns, sum, outcome_kind, outcome_sum, outcome)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
    ON CONFLICT (position) DO UPDATE SET id = ?1, owner = ?2, tool = ?4, status = ?5,
        status_message = ?6, created_ms = ?7, updated_ms = ?8, expires_ms = ?9, ttl_ns = ?10,
        sum = ?11, outcome_kind = ?12, outcome_sum = ?13, outcome = ?14";

/// The daemon's database without the daemon.
pub(crate) struct Bare {
    connection: Connection,
    _dir: tempfile::TempDir,
}

impl Bare {
    /// Creates an empty database in a directory of its own.
    pub(crate) fn open() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        drop(Sqlite::open(dir.path(), 0).unwrap());
        let connection = Connection::open(dir.path().join("tasks.db")).unwrap();
        for (name, value) in [
            ("locking_mode", "EXCLUSIVE"),
            ("journal_mode", "WAL"),
            ("synchronous", "FULL"),
            ("temp_store", "MEMORY"),
            ("cell_size_check", "ON"),
        ] {
            connection.pragma_update(None, name, value).unwrap();
        }
        Self { connection, _dir: dir }
    }

    /// A store that commits batches of such records.
    pub(crate) fn committing<'a>(
        &'a self,
        [begun, ended]: &'a Samples,
    ) -> impl FnMut(&[Noted]) + 'a {
        let RecordedOutcome::Here(Ok(result)) = &ended.outcome else { panic!("it has a result") };
        let [mut begin, mut put, mut commit] =
            ["BEGIN IMMEDIATE", PUT, "COMMIT"].map(|sql| self.connection.prepare(sql).unwrap());
        move |batch| {
            begin.execute([]).unwrap();
            for (key, has_ended) in batch {
                let record = if *has_ended { ended } else { begun };
                // Eight bytes, like the checksums of the store.
                let sum = i64::MAX - key.position as i64;
                let time = record.created.as_millis() as i64;
                let outcome = has_ended.then_some(result.get());
                put.execute(params![
                    key.task.uuid().as_bytes(),
                    "uid:1000",
                    key.position as i64,
                    &*record.tool,
                    record.status.as_str(),
                    record.status_message.as_deref(),
                    time,
                    time,
                    time,
                    record.ttl.as_nanos() as i64,
                    sum,
                    outcome.map(|_| 0),
                    outcome.map(|_| sum),
                    outcome,
                ])
                .unwrap();
            }
            commit.execute([]).unwrap();
        }
    }
}

/// Serves one peer until it disconnects: a task ends at once, and is answered when its result is on
/// disk. Returns the committed batches.
pub(crate) fn serve(mut peer: UnixStream, samples: &Samples) -> Vec<Vec<Noted>> {
    let bare = Bare::open();
    let mut commit = bare.committing(samples);
    let (mut batches, mut position) = (Vec::new(), 0);
    let (mut room, mut unread, mut out) = (vec![0; 1 << 18], Vec::new(), Vec::new());
    let mut ended = BTreeSet::new();
    loop {
        let read = peer.read(&mut room).unwrap();
        if read == 0 {
            return batches;
        }
        unread.extend_from_slice(&room[..read]);
        let whole = unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut created = Vec::new();
        for line in unread[..whole].split(|byte| *byte == b'\n') {
            let line = std::str::from_utf8(line).unwrap();
            let Some((_, rest)) = line.split_once("\"id\":") else { continue };
            let id = rest.split_once(',').unwrap().0;
            if let Some((_, task)) = line.split_once("\"taskId\":\"") {
                assert!(ended.remove(&task[..36].parse::<Uuid>().unwrap()), "it has ended");
                answer_result(&mut out, id, &task[..36]);
            } else if line.contains("\"tools/call\"") {
                let task = Uuid::new_v4();
                let key = RecordKey { task: TaskId::new(task), position };
                position += 1;
                created.push((key, true));
                answer_creation(&mut out, id, task);
            } else {
                writeln!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{line}}}").unwrap();
            }
        }
        unread.drain(..whole);
        if !created.is_empty() {
            commit(&created);
            ended.extend(created.iter().map(|(key, _)| key.task.uuid()));
            batches.push(created);
        }
        peer.write_all(&out).unwrap();
        out.clear();
    }
}

fn answer_creation(out: &mut Vec<u8>, id: &str, task: Uuid) {
    writeln!(
        out,
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"task\":{{\"taskId\":\"{task}\",\
         \"status\":\"working\",\"createdAt\":\"2026-01-01T00:00:00.000Z\",\
         \"lastUpdatedAt\":\"2026-01-01T00:00:00.000Z\",\"ttl\":600000,\"pollInterval\":5000}}}}}}"
    )
    .unwrap();
}

fn answer_result(out: &mut Vec<u8>, id: &str, task: &str) {
    writeln!(
        out,
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\
         \"text\":\"hello\"}}],\"isError\":false,\"_meta\":{{\
         \"io.modelcontextprotocol/related-task\":{{\"taskId\":\"{task}\"}}}}}}}}"
    )
    .unwrap();
}
