//! Tasks on a disk: how many lives a second through the daemon's own loop, beside SQLite with the
//! same settings writing the same bytes in batches of the same sizes and nothing else; and how long
//! a start takes with many tasks in the store.
//!
//! `cargo bench -p ceased --bench durable`

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

mod kit;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ceased::store::durable::{RecordedOutcome, StoreWrite, TaskOutcome, TaskRecord};
use ceased::store::{Due, Sqlite, Store, StoreError};
use ceased::{Daemon, HandlerTool, Job, TaskId, TaskSupport, ToolResult};
use ceased_core::event::Identity;
use ceased_core::json::Json;
use ceased_core::task::Status;
use ceased_core::time::Wall;
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use uuid::Uuid;

/// Lives in one round.
const LIVES: usize = 4000;
const ROUNDS: usize = 3;

fn main() {
    // `cargo test` runs it too; there is nothing to time then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    for outstanding in [1, 16, 128] {
        for _ in 0..ROUNDS {
            round(outstanding);
        }
    }
    for tasks in [10_000, 100_000] {
        start_with(tasks);
    }
}

/// A store that notes how much it was given at once.
struct Noting {
    store: Sqlite,
    batches: Arc<Mutex<Vec<Vec<usize>>>>,
}

impl Store for Noting {
    fn restore(
        &mut self,
        resident: usize,
        each: &mut dyn FnMut(TaskRecord),
    ) -> Result<(), StoreError> {
        self.store.restore(resident, each)
    }

    fn commit(&mut self, writes: &[StoreWrite], due: Due) -> Result<(), StoreError> {
        self.batches.lock().unwrap().push(writes.iter().map(bytes).collect());
        self.store.commit(writes, due)
    }

    fn load(&mut self, task: TaskId) -> Result<Option<TaskOutcome>, StoreError> {
        self.store.load(task)
    }

    fn tidy(&mut self) -> Result<bool, StoreError> {
        self.store.tidy()
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.store.reopen()
    }
}

/// About how much a write puts into its row.
fn bytes(write: &StoreWrite) -> usize {
    let StoreWrite::Put(record) = write else { return 0 };
    let outcome = match &record.outcome {
        RecordedOutcome::Here(Ok(result)) => result.get().len(),
        RecordedOutcome::Here(Err(_)) | RecordedOutcome::Open => 0,
        RecordedOutcome::Stored { bytes } => *bytes,
    };
    120 + record.tool.len() + outcome
}

fn round(outstanding: usize) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let batches = Arc::default();
    let store = Sqlite::open(dir.path(), 1 << 20).unwrap();
    let store = Noting { store, batches: Arc::clone(&batches) };
    let echo = HandlerTool::new("echo", |_: &Job| Ok(ToolResult::text("hello")))
        .task_support(TaskSupport::Optional)
        .build()
        .unwrap();
    let daemon = Daemon::new().tool(echo).store(store).limits(generous()).start().unwrap();
    let took = lives(&daemon, outstanding);
    daemon.shut_down().unwrap();
    let batches = std::mem::take(&mut *batches.lock().unwrap());
    let writes: usize = batches.iter().map(Vec::len).sum();
    let bare = bare(&batches);
    let a_second = LIVES as f64 / took.as_secs_f64();
    println!(
        "{outstanding:>3} outstanding: {a_second:>7.0} tasks/s; {writes} writes in {} batches; bare \
         SQLite takes {bare:.2?} for them, the daemon {took:.2?}: {:.2} of it",
        batches.len(),
        bare.as_secs_f64() / took.as_secs_f64(),
    );
}

fn generous() -> ceased::Limits {
    ceased::Limits { stored_tasks_max: 1_000_000, task_ops_per_second: None, ..Default::default() }
}

/// Every life is a task's creation and its result.
fn lives(daemon: &ceased::Running, outstanding: usize) -> Duration {
    let writer = daemon.connect().unwrap();
    let mut reader = BufReader::new(writer.try_clone().unwrap());
    let mut writer = std::io::BufWriter::new(writer);
    let mut send = |message: Value, flush: bool| {
        writeln!(writer, "{message}").unwrap();
        if flush {
            writer.flush().unwrap();
        }
    };
    let info = json!({"name": "bench", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}), true);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), true);
    let create = |id: usize| {
        let params = json!({"name": "echo", "arguments": {}, "task": {"ttl": 600_000}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let since = Instant::now();
    let mut created = outstanding.min(LIVES);
    (1..=created).for_each(|id| send(create(id), id == created));
    let mut ended = 0;
    while ended < LIVES {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
        let message: Value = serde_json::from_str(&line).unwrap();
        if message.get("id").is_none() {
            continue;
        }
        let flush = reader.buffer().is_empty();
        assert!(message.get("result").is_some(), "{line}");
        if let Some(task) = message["result"]["task"]["taskId"].as_str() {
            let params = json!({"taskId": task});
            send(
                json!({"jsonrpc": "2.0", "id": "r", "method": "tasks/result", "params": params}),
                flush,
            );
        } else {
            ended += 1;
            if created < LIVES {
                created += 1;
                send(create(created), flush);
            } else {
                send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), flush);
            }
        }
    }
    since.elapsed()
}

/// The same number of bytes in the same batches, by SQLite alone, set up as the store does.
fn bare(batches: &[Vec<usize>]) -> Duration {
    let dir = tempfile::tempdir_in(".").unwrap();
    let mut connection = Connection::open(dir.path().join("bare.db")).unwrap();
    for (name, value) in [
        ("locking_mode", "EXCLUSIVE"),
        ("journal_mode", "WAL"),
        ("synchronous", "FULL"),
        ("temp_store", "MEMORY"),
    ] {
        connection.pragma_update(None, name, value).unwrap();
    }
    connection
        .execute_batch("CREATE TABLE row (id BLOB NOT NULL PRIMARY KEY, text TEXT NOT NULL) STRICT")
        .unwrap();
    let text = "x".repeat(64 * 1024);
    let since = Instant::now();
    for batch in batches {
        let transaction = connection.transaction().unwrap();
        for bytes in batch {
            // Random keys, as the ids of tasks are.
            transaction
                .prepare_cached("INSERT INTO row VALUES (randomblob(16), ?1)")
                .unwrap()
                .execute(params![&text[..*bytes]])
                .unwrap();
        }
        transaction.commit().unwrap();
    }
    since.elapsed()
}

/// Starts the built daemon on a store with so many ended tasks.
fn start_with(tasks: usize) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let config = "[daemon]\nstate_dir = \"state\"\n[limits]\nstored_tasks_per_identity = 1000000\n";
    let daemon = kit::Daemon::start_in(dir, config, &[]);
    let dir = daemon.into_dir();
    fill(&dir.path().join("state"), tasks);
    let since = Instant::now();
    let daemon = kit::Daemon::start_in(dir, config, &[]);
    let _peer = kit::Peer::connect(&daemon);
    println!("{tasks:>7} tasks in the store: accepts after {:.0?}", since.elapsed());
}

fn fill(state: &Path, tasks: usize) {
    let mut store = Sqlite::open(&state.join("tasks"), 1 << 20).unwrap();
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    let now = Wall::from_millis(since.as_millis().try_into().unwrap());
    let ttl = Duration::from_secs(24 * 3600);
    let result = json!({"content": [{"type": "text", "text": "hello"}], "isError": false});
    let record = |position: usize| TaskRecord {
        id: TaskId::new(Uuid::new_v4()),
        owner: Identity::User(rustix::process::getuid().as_raw()),
        position: position as u64,
        tool: "echo".into(),
        status: Status::Completed,
        status_message: None,
        created: now,
        updated: now,
        ttl,
        expires: now + ttl,
        outcome: RecordedOutcome::Here(Ok(Json::written(result.to_string()))),
    };
    let writes: Vec<StoreWrite> =
        (1..=tasks).map(|position| StoreWrite::Put(record(position))).collect();
    writes.chunks(4096).for_each(|chunk| store.commit(chunk, Due::Owed).unwrap());
}
