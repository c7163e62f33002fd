//! Tasks on a disk: how many lives a second through the daemon's own loop, beside a bare loop over
//! SQLite that does nothing but the daemon's statements with the daemon's rows in transactions of
//! the daemon's sizes; and how long a start takes with many tasks in the store.
//!
//! `cargo bench -p ceased --bench durable`, or with `-- lives 1 16`, `-- start`, for a part of it.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

mod kit;

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::net::UnixStream;
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
use serde_json::json;
use uuid::Uuid;

const ROUNDS: usize = 5;

fn main() {
    // `cargo test` runs it too; there is nothing to time then.
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let times = arguments.iter().any(|argument| argument == "--bench");
    arguments.retain(|argument| argument != "--bench");
    let wants = |part: &str| times && (arguments.is_empty() || arguments[0] == part);
    if wants("lives") {
        let chosen: Vec<usize> = arguments.iter().skip(1).map(|n| n.parse().unwrap()).collect();
        let all = [1, 16, 128];
        (if chosen.is_empty() { &all[..] } else { &chosen }).iter().for_each(|n| lives_with(*n));
    }
    if wants("start") {
        [10_000, 100_000].into_iter().for_each(start_with);
    }
}

/// One write as the daemon ordered it: about which task, and whether that has ended.
type Noted = ([u8; 16], bool);

/// What the daemon's store was handed.
#[derive(Default)]
struct Notes {
    batches: Vec<Vec<Noted>>,
    /// A record of a task that has begun, and one of a task that has ended.
    samples: [Option<TaskRecord>; 2],
}

impl Notes {
    fn record(&self, (task, ended): Noted) -> TaskRecord {
        let sample = self.samples[usize::from(ended)].clone().unwrap();
        TaskRecord { id: TaskId::new(Uuid::from_bytes(task)), ..sample }
    }
}

/// A store that notes how much it was handed at once.
struct Noting {
    store: Sqlite,
    notes: Arc<Mutex<Notes>>,
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
        let notes = &mut *self.notes.lock().unwrap();
        let noted = writes.iter().filter_map(|write| {
            let StoreWrite::Put(record) = write else { return None };
            let ended = record.status.is_terminal();
            notes.samples[usize::from(ended)].get_or_insert_with(|| record.clone());
            Some((*record.id.uuid().as_bytes(), ended))
        });
        notes.batches.push(noted.collect());
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

/// Rounds of lives with so many outstanding, and of the bare loop, in turns; medians.
fn lives_with(outstanding: usize) {
    let lives = if outstanding == 1 { 2_000 } else { 8_000 };
    let mut rounds: Vec<[f64; 5]> = (0..ROUNDS)
        .map(|_| {
            let (daemon, notes) = daemon(outstanding, lives);
            let writes: usize = notes.batches.iter().map(Vec::len).sum();
            let (store, bare) = (store(&notes), bare(&notes));
            let ratio = bare.as_secs_f64() / daemon.as_secs_f64();
            let per_batch = writes as f64 / notes.batches.len() as f64;
            println!(
                "{outstanding:>3} outstanding: {lives} tasks in {daemon:.3?}, {writes} writes, \
                 {per_batch:.1} a batch; the store alone {store:.3?}, bare {bare:.3?}: {ratio:.2}"
            );
            let speed = |took: Duration| lives as f64 / took.as_secs_f64();
            [ratio, speed(daemon), speed(bare), per_batch, speed(store)]
        })
        .collect();
    let mut median = |column: usize| {
        rounds.sort_by(|a, b| a[column].total_cmp(&b[column]));
        rounds[ROUNDS / 2][column]
    };
    println!(
        "{outstanding:>3} outstanding, medians: {:.0} tasks/s, {:.1} writes a batch; the store \
         alone {:.0}/s; bare {:.0}/s; {:.2} of it",
        median(1),
        median(3),
        median(4),
        median(2),
        median(0),
    );
}

fn daemon(outstanding: usize, lives: usize) -> (Duration, Notes) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let notes = Arc::<Mutex<Notes>>::default();
    let store = Sqlite::open(dir.path(), 1 << 20).unwrap();
    let store = Noting { store, notes: Arc::clone(&notes) };
    let echo = HandlerTool::new("echo", |_: &Job| Ok(ToolResult::text("hello")))
        .task_support(TaskSupport::Optional)
        .build()
        .unwrap();
    let limits = ceased::Limits {
        stored_tasks_max: 1_000_000,
        task_ops_per_second: None,
        ..Default::default()
    };
    let daemon = Daemon::new().tool(echo).store(store).limits(limits).start().unwrap();
    let took = Client::connect(&daemon).live(outstanding, lives);
    daemon.shut_down().unwrap();
    (took, std::mem::take(&mut *notes.lock().unwrap()))
}

/// A peer that takes as little time as it can.
struct Client {
    reader: BufReader<UnixStream>,
    writer: BufWriter<UnixStream>,
    line: String,
}

impl Client {
    fn connect(daemon: &ceased::Running) -> Self {
        let stream = daemon.connect().unwrap();
        let reader = BufReader::with_capacity(1 << 16, stream.try_clone().unwrap());
        let mut client = Self { reader, writer: BufWriter::new(stream), line: String::new() };
        let info = json!({"name": "bench", "version": "1"});
        let version = "2025-11-25";
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": info});
        let initialize =
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        writeln!(client.writer, "{initialize}").unwrap();
        assert!(client.next().contains(version));
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        writeln!(client.writer, "{initialized}").unwrap();
        client
    }

    /// The next message, after everything that was said has left.
    fn next(&mut self) -> &str {
        if self.reader.buffer().is_empty() {
            self.writer.flush().unwrap();
        }
        self.line.clear();
        assert!(self.reader.read_line(&mut self.line).unwrap() > 0, "it hung up");
        assert!(!self.line.contains("\"error\""), "{}", self.line);
        &self.line
    }

    /// Says a request of this kind, with the kind at the beginning of its id.
    fn request(
        &mut self,
        kind: char,
        number: usize,
        method: &str,
        params: std::fmt::Arguments<'_>,
    ) {
        let head = format_args!(r#"{{"jsonrpc":"2.0","id":"{kind}{number}","method":"{method}""#);
        writeln!(self.writer, r#"{head},"params":{params}}}"#).unwrap();
    }

    fn create(&mut self, number: usize) {
        let params = r#"{"name":"echo","arguments":{},"task":{"ttl":600000}}"#;
        self.request('c', number, "tools/call", format_args!("{params}"));
    }

    /// Every life is a task's creation and its result.
    fn live(&mut self, outstanding: usize, lives: usize) -> Duration {
        let since = Instant::now();
        (0..outstanding).for_each(|number| self.create(number));
        let (mut created, mut ended, mut asked) = (outstanding, 0, 0);
        while ended < lives {
            let message = self.next();
            if message.contains(r#""id":"c"#) {
                let (_, rest) = message.split_once(r#""taskId":""#).unwrap();
                let task: Uuid = rest[..36].parse().unwrap();
                asked += 1;
                self.request('r', asked, "tasks/result", format_args!(r#"{{"taskId":"{task}"}}"#));
            } else if message.contains(r#""id":"r"#) {
                ended += 1;
                if created < lives {
                    self.create(created);
                    created += 1;
                }
            }
        }
        since.elapsed()
    }
}

/// The same records in the same batches through the daemon's store, without the daemon.
fn store(notes: &Notes) -> Duration {
    let dir = tempfile::tempdir_in(".").unwrap();
    let mut store = Sqlite::open(dir.path(), 1 << 20).unwrap();
    let write = |noted: &Noted| StoreWrite::Put(notes.record(*noted));
    let batches: Vec<Vec<StoreWrite>> =
        notes.batches.iter().map(|batch| batch.iter().map(write).collect()).collect();
    let since = Instant::now();
    batches.iter().for_each(|batch| store.commit(batch, Due::Owed).unwrap());
    since.elapsed()
}

/// The statement with which the daemon's store writes a record.
const PUT: &str = "
    INSERT INTO task (id, owner, position, tool, status, status_message, created_ms, updated_ms,
        expires_ms, ttl_ns, sum, outcome_kind, outcome_sum, outcome)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
    ON CONFLICT (id) DO UPDATE SET owner = ?2, position = ?3, tool = ?4, status = ?5,
        status_message = ?6, created_ms = ?7, updated_ms = ?8, expires_ms = ?9, ttl_ns = ?10,
        sum = ?11, outcome_kind = ?12, outcome_sum = ?13, outcome = ?14";

/// The same rows in the same batches by SQLite alone: the daemon's tables and its settings, and
/// nothing else in the loop.
fn bare(notes: &Notes) -> Duration {
    let dir = tempfile::tempdir_in(".").unwrap();
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
    let [begun, ended] = notes.samples.each_ref().map(|sample| sample.as_ref().unwrap());
    let RecordedOutcome::Here(Ok(result)) = &ended.outcome else { panic!("it has a result") };
    let [mut begin, mut put, mut commit] =
        ["BEGIN IMMEDIATE", PUT, "COMMIT"].map(|sql| connection.prepare(sql).unwrap());
    let since = Instant::now();
    for batch in &notes.batches {
        begin.execute([]).unwrap();
        for (task, has_ended) in batch {
            let record = if *has_ended { ended } else { begun };
            // Eight bytes, as the store's sums have.
            let sum = i64::MAX - i64::from(task[0]);
            let time = record.created.as_millis() as i64;
            let outcome = has_ended.then_some(result.get());
            put.execute(params![
                task,
                "uid:1000",
                record.position as i64,
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
