//! Tasks on disk: throughput of whole task lives (creation to result) through the daemon's loop,
//! beside bare loops over SQLite that execute only the daemon's statements with its rows and
//! transaction sizes; and the startup time with many tasks in the store.
//!
//! A bare loop *of lives* writes each task twice, at its start and its end. One *of rows* writes
//! the rows that the daemon wrote, which is one for a short task.
//!
//! `cargo bench -p ceased --bench durable`, or with `-- lives 1 16`, `-- start`, for a part of it;
//! `-- lives x8 16` has rounds of eight times as many tasks.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

mod kit;
#[path = "kit/sqlite.rs"]
mod sqlite;

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ceased::store::durable::{RecordKey, RecordedOutcome, StoreWrite, TaskOutcome, TaskRecord};
use ceased::store::{Due, Sqlite, Store, StoreError};
use ceased::{Daemon, HandlerTool, Job, TaskId, TaskSupport, ToolResult};
use ceased_core::identity::Identity;
use ceased_core::json::raw::Json;
use ceased_core::tasks::status::Status;
use ceased_core::time::Wall;
use serde_json::json;
use uuid::Uuid;

use self::sqlite::{Bare, Noted, Samples};

const ROUNDS: usize = 15;

fn main() {
    // `cargo test` runs the benchmark too, without `--bench`.
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let times = arguments.iter().any(|argument| argument == "--bench");
    arguments.retain(|argument| argument != "--bench");
    let wants = |part: &str| times && (arguments.is_empty() || arguments[0] == part);
    if wants("lives") {
        let (times, numbers): (Vec<&String>, Vec<&String>) =
            arguments.iter().skip(1).partition(|argument| argument.starts_with('x'));
        let times = times.first().map_or(1, |times| times[1..].parse().unwrap());
        let chosen: Vec<usize> = numbers.iter().map(|n| n.parse().unwrap()).collect();
        let all = [1, 16, 128];
        let each = if chosen.is_empty() { &all[..] } else { &chosen };
        each.iter().for_each(|n| lives_with(*n, times));
    }
    if wants("start") {
        [10_000, 100_000].into_iter().for_each(start_with);
    }
}

/// The batches passed to the daemon's store.
#[derive(Default)]
struct Notes {
    batches: Vec<Vec<Noted>>,
    /// A record of an ended task.
    ended: Option<TaskRecord>,
}

/// A store that records the sizes of its batches.
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
            let record = write.record()?;
            let ended = record.status.is_terminal();
            if ended {
                notes.ended.get_or_insert_with(|| record.clone());
            }
            Some((record.key(), ended))
        });
        notes.batches.push(noted.collect());
        self.store.commit(writes, due)
    }

    fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, StoreError> {
        self.store.load(key)
    }

    fn tidy(&mut self) -> Result<bool, StoreError> {
        self.store.tidy()
    }

    fn needs_tidying(&self) -> bool {
        self.store.needs_tidying()
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.store.reopen()
    }
}

/// Result of rounds of lives.
struct Round {
    /// Seconds per round.
    daemon: f64,
    of_lives: f64,
    of_rows: f64,
    store: f64,
    server: f64,
    server_rows: f64,
    /// Tasks per transaction of the daemon.
    batch: f64,
}

/// Runs rounds of lives with this many outstanding, through the daemon and through a minimal
/// server, each beside bare loops with its transactions, alternately; prints medians.
fn lives_with(outstanding: usize, times: usize) {
    let lives = times * if outstanding == 1 { 500 } else { 3_000 };
    let rounds: Vec<Round> = (0..ROUNDS).map(|_| round(outstanding, lives)).collect();
    let median = |figure: fn(&Round) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[ROUNDS / 2]
    };
    let speed = |took: fn(&Round) -> f64| lives as f64 / median(took);
    println!(
        "{outstanding:>3} outstanding: {:.0} tasks/s, {:.0} a transaction\n    \
         {:.2} of a bare loop of lives ({:.0}/s)\n    \
         {:.2} of a bare loop of rows ({:.0}/s); the store alone {:.2} ({:.0}/s)\n    \
         a bare server: {:.0}/s, {:.2} of a bare loop of its rows",
        speed(|round| round.daemon),
        median(|round| round.batch),
        median(|round| round.of_lives / round.daemon),
        speed(|round| round.of_lives),
        median(|round| round.of_rows / round.daemon),
        speed(|round| round.of_rows),
        median(|round| round.of_rows / round.store),
        speed(|round| round.store),
        speed(|round| round.server),
        median(|round| round.server_rows / round.server),
    );
}

fn round(outstanding: usize, lives: usize) -> Round {
    let (daemon, batches, samples) = daemon(outstanding, lives);
    let batch = batches.iter().map(Vec::len).sum::<usize>() as f64 / batches.len() as f64;
    let (store, of_rows) = (store(&batches, &samples), bare(&batches, &samples));
    let of_lives = bare(&twice(lives, batch.round() as usize), &samples);
    let (server, its_batches) = bare_server(outstanding, lives, &samples);
    let server_rows = bare(&its_batches, &samples);
    let [daemon, of_lives, of_rows, store, server, server_rows] =
        [daemon, of_lives, of_rows, store, server, server_rows].map(|took| took.as_secs_f64());
    Round { daemon, of_lives, of_rows, store, server, server_rows, batch }
}

/// This many lives, each in two transactions of this size.
fn twice(lives: usize, size: usize) -> Vec<Vec<Noted>> {
    let key = |number| RecordKey { task: TaskId::new(Uuid::new_v4()), position: number as u64 };
    let keys: Vec<RecordKey> = (0..lives).map(key).collect();
    let both = |tasks: &[RecordKey]| {
        [false, true].map(|ended| tasks.iter().map(|key| (*key, ended)).collect())
    };
    keys.chunks(size.max(1)).flat_map(both).collect()
}

fn daemon(outstanding: usize, lives: usize) -> (Duration, Vec<Vec<Noted>>, Samples) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let notes = Arc::<Mutex<Notes>>::default();
    let store = Sqlite::open(dir.path(), 1 << 20).unwrap();
    let store = Noting { store, notes: Arc::clone(&notes) };
    let echo = HandlerTool::new("echo", |_: &Job| Ok(ToolResult::text("hello")))
        .task_support(TaskSupport::Optional)
        .read_only()
        .build()
        .unwrap();
    let limits = ceased::Limits {
        stored_tasks_max: 1_000_000,
        task_ops_per_second: None,
        ..Default::default()
    };
    let daemon = Daemon::new().tool(echo).store(store).limits(limits).start().unwrap();
    let took = Client::greet(daemon.connect().unwrap()).live(outstanding, lives);
    daemon.shut_down().unwrap();
    let Notes { batches, ended } = std::mem::take(&mut *notes.lock().unwrap());
    (took, batches, samples(ended.unwrap()))
}

/// A record of a started task, and one of an ended task like this one.
fn samples(ended: TaskRecord) -> Samples {
    let (status, outcome) = (Status::Working, RecordedOutcome::Open);
    [TaskRecord { status, outcome, ..ended.clone() }, ended]
}

/// A client with minimal overhead.
struct Client {
    reader: BufReader<UnixStream>,
    writer: BufWriter<UnixStream>,
    line: String,
}

impl Client {
    fn greet(stream: UnixStream) -> Self {
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

    /// Flushes pending requests and reads the next message.
    fn next(&mut self) -> &str {
        if self.reader.buffer().is_empty() {
            self.writer.flush().unwrap();
        }
        self.line.clear();
        assert!(self.reader.read_line(&mut self.line).unwrap() > 0, "it hung up");
        assert!(!self.line.contains("\"error\""), "{}", self.line);
        &self.line
    }

    /// Appends a request of this kind, with the kind at the start of its id.
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

    /// Runs lives: the creation of a task and its result.
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
fn store(batches: &[Vec<Noted>], samples: &Samples) -> Duration {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut store = Sqlite::open(dir.path(), 1 << 20).unwrap();
    let write = |(key, has_ended): &Noted| {
        let sample = samples[usize::from(*has_ended)].clone();
        StoreWrite::Put(TaskRecord { id: key.task, position: key.position, ..sample })
    };
    let batches: Vec<Vec<StoreWrite>> =
        batches.iter().map(|batch| batch.iter().map(write).collect()).collect();
    let since = Instant::now();
    for batch in &batches {
        store.commit(batch, Due::Owed).unwrap();
        if store.needs_tidying() {
            store.tidy().unwrap();
        }
    }
    since.elapsed()
}

/// These batches through SQLite only.
fn bare(batches: &[Vec<Noted>], samples: &Samples) -> Duration {
    let bare = Bare::open();
    let mut commit = bare.committing(samples);
    let since = Instant::now();
    batches.iter().for_each(|batch| commit(batch));
    since.elapsed()
}

/// The same lives through a minimal server; also returns its committed batches.
fn bare_server(outstanding: usize, lives: usize, samples: &Samples) -> (Duration, Vec<Vec<Noted>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| sqlite::serve(theirs, samples));
        let took = Client::greet(ours).live(outstanding, lives);
        (took, server.join().unwrap())
    })
}

/// Starts the built daemon on a store with this many ended tasks.
fn start_with(tasks: usize) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
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
        asks: None,
        work: None,
    };
    let writes: Vec<StoreWrite> =
        (1..=tasks).map(|position| StoreWrite::Put(record(position))).collect();
    writes.chunks(4096).for_each(|chunk| store.commit(chunk, Due::Owed).unwrap());
}
