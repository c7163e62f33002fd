//! The oracle: a naive model of what every peer may see and every worker may be told, written from
//! the ledger. Linear searches, no table but what a rule speaks of, no code of the core.
//!
//! It is handed the same inputs as the engine and says what must come of each: the messages of
//! every peer and the orders to the host, as short texts in no particular order.

mod jobs;
mod requests;
mod tasks;
mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ceased_core::event::{AfterInput, LogLevel};
use ceased_core::settings::Settings;

use super::dialects::{Rules, UNSETTLED};
use super::mark::Mark;
use crate::slow::Id;
use crate::trace::Input;

/// What must come of one input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// Messages, by connection.
    pub told: BTreeMap<u64, Vec<String>>,
    /// Orders to the host.
    pub orders: Vec<String>,
}

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is open.
    No,
    /// Its peer has sent everything.
    Finished(AfterInput),
    /// The host was told to close it.
    Closing {
        /// What is left may still be sent.
        flushes: bool,
    },
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Its own job, by nonce.
    Job(u64),
    /// The end of a task, by nonce.
    Task(u64),
}

/// A request without an answer.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Its id.
    pub id: Id,
    /// Its id as it was written.
    pub token: String,
    /// What it waits for.
    pub what: What,
    /// The batch it came in.
    batch: Option<u64>,
}

#[derive(Debug, Clone)]
struct Batch {
    number: u64,
    open: usize,
    answers: Vec<String>,
}

/// A peer.
#[derive(Debug)]
pub struct Conn {
    /// Who it is.
    pub identity: String,
    /// What was agreed on; nothing before initialize.
    pub rules: Option<&'static Rules>,
    /// Where it stands.
    pub ended: Ended,
    /// Its requests without an answer.
    pub pending: Vec<Pending>,
    level: LogLevel,
    batches: Vec<Batch>,
    stall: Option<u64>,
    linger: Option<u64>,
    probes: u64,
}

impl Conn {
    /// Answers that wait for the rest of their batch.
    #[must_use]
    pub fn collected(&self) -> usize {
        self.batches.iter().map(|batch| batch.answers.len()).sum()
    }

    fn rules(&self) -> &'static Rules {
        self.rules.unwrap_or(&UNSETTLED)
    }
}

/// Whom the outcome of a job is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum For {
    Request(Id),
    Task,
    Nobody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    Running,
    Lingering,
    Stopping { step: &'static str, why: &'static str },
}

/// Work that was asked for.
#[derive(Debug)]
pub struct Job {
    /// The number the call gave it.
    pub nonce: u64,
    conn: u64,
    /// Who asked for it.
    owner: String,
    whose: For,
    /// Whether it works, or worked, for a task.
    pub of_task: bool,
    tool: String,
    /// Between the first step and the second, and whether that is a signal.
    wait: u64,
    command: bool,
    timeout: Option<u64>,
    stage: Stage,
    timer: Option<u64>,
    token: Option<String>,
    last: Option<f64>,
    held: Option<String>,
}

impl Job {
    /// Whether it was told to stop.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        matches!(self.stage, Stage::Stopping { .. })
    }

    /// Whether the host runs it.
    #[must_use]
    pub const fn runs(&self) -> bool {
        !matches!(self.stage, Stage::Queued)
    }
}

/// A task that was handed out.
#[derive(Debug)]
pub struct Task {
    /// The number of the call that created it.
    pub nonce: u64,
    /// Whose it is.
    pub owner: String,
    /// Its status.
    pub status: &'static str,
    message: String,
    created: u64,
    updated: u64,
    created_at: u64,
    ttl: u64,
    timer: u64,
    overdue: bool,
    creator: u64,
    /// Its place among all tasks there ever were.
    place: u64,
    waiters: Vec<(u64, Id)>,
    outcome: Option<String>,
}

#[derive(Debug)]
struct Drain {
    kill: Option<u64>,
    end: Option<u64>,
    over: bool,
    said: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Oracle {
    settings: Arc<Settings>,
    now: u64,
    wall: u64,
    /// Every connection, by its number.
    pub conns: BTreeMap<u64, Conn>,
    /// Work that has not ended, in the order it was asked for.
    pub jobs: Vec<Job>,
    /// Tasks that have not expired, in the order of creation.
    pub tasks: Vec<Task>,
    /// Cursors handed out: whose, and the place to go on from.
    cursors: BTreeMap<String, (String, u64)>,
    /// What tasks are called on the wire.
    names: BTreeMap<u64, String>,
    next_place: u64,
    drain: Option<Drain>,
    /// Whose job was started last.
    last_turn: Option<String>,
    expected: Expected,
    /// Interesting things that happened.
    pub marks: BTreeSet<Mark>,
}

impl Oracle {
    /// The model of an engine in which nothing has happened.
    #[must_use]
    pub fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            now: 0,
            wall: 0,
            conns: BTreeMap::new(),
            jobs: Vec::new(),
            tasks: Vec::new(),
            cursors: BTreeMap::new(),
            names: BTreeMap::new(),
            next_place: 1,
            drain: None,
            last_turn: None,
            expected: Expected::default(),
            marks: BTreeSet::new(),
        }
    }

    /// What must come of `input`. `unsent` is how many bytes wait for the connection it is about,
    /// or for the one its job reports to: how much a peer has read is not for the oracle to know.
    pub fn input(&mut self, now: u64, wall: u64, input: &Input, unsent: usize) -> Expected {
        (self.now, self.wall) = (now, wall);
        let crowded = unsent >= self.settings.limits.write_buffer_bytes;
        match input {
            Input::Opened(conn, identity, _) => self.open(conn.get(), &identity.to_string()),
            Input::Frame(conn, frame) => self.frame(conn.get(), frame, crowded),
            Input::Overlong(conn) => self.unreadable(conn.get(), -32600, None),
            Input::Alien(conn, bytes) => self.alien(conn.get(), bytes),
            Input::Finished(conn, then) => self.finish(conn.get(), *then),
            Input::Closed(conn) => self.gone(conn.get()),
            Input::Blocked(conn) => {
                let at = now + nanos(self.settings.limits.write_stall);
                if let Some(conn) = self.conns.get_mut(&conn.get()) {
                    conn.stall = Some(at);
                }
            }
            Input::Drained(conn) => self.drained(conn.get()),
            Input::Progress(job, progress, total, message) => {
                self.progress(job.get(), *progress, *total, message.as_deref(), crowded);
            }
            Input::Log(job, level, data) => self.log(job.get(), *level, data.get(), crowded),
            Input::Asked(..) | Input::Call(..) | Input::CancelCall(..) => {
                unreachable!("the simulator's hosts and jobs ask nobody")
            }
            Input::Lingering(job) => self.lingering(job.get()),
            Input::Done(job, outcome) => self.done(job.get(), outcome),
            Input::Configured(settings) => self.configure(settings),
            Input::OpenedAcp(..)
            | Input::AskedOf(..)
            | Input::CancelJob(..)
            | Input::Notify(..) => {
                unreachable!("the simulator speaks MCP")
            }
            Input::Restored(_) | Input::Durable(_) | Input::Unstored(..) | Input::Loaded(..) => {
                unreachable!("the simulator has no store")
            }
            Input::Drain(by) => self.drain(by.as_nanos()),
            Input::Turn => self.turn(),
            Input::Tick => self.tick(),
            Input::Taken(..) => {}
        }
        self.exit_if_drained();
        std::mem::take(&mut self.expected)
    }

    /// Whose messages a report of this job becomes.
    #[must_use]
    pub fn reports_to(&self, nonce: u64) -> Option<u64> {
        self.jobs.iter().find(|job| job.nonce == nonce).map(|job| job.conn)
    }

    /// What a task is called on the wire; the judge has read it in the answer to its creation.
    pub fn name(&mut self, nonce: u64, id: &str) {
        self.names.insert(nonce, id.to_owned());
    }

    /// A cursor was handed out for what the last list did not show.
    pub fn remember_cursor(&mut self, conn: u64, cursor: &str, after: Option<u64>) {
        let Some(identity) = self.conns.get(&conn).map(|conn| conn.identity.clone()) else {
            return;
        };
        let place = self.tasks.iter().find(|task| Some(task.nonce) == after);
        let place = place.map_or(0, |task| task.place);
        self.cursors.insert(cursor.to_owned(), (identity, place));
    }

    /// The name of a task that may still exist.
    #[must_use]
    pub fn name_of(&self, nonce: u64) -> Option<&str> {
        self.names.get(&nonce).map(String::as_str)
    }

    /// How much there is: connections, requests, jobs, tasks.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize, usize, usize) {
        let requests = self.conns.values().map(|conn| conn.pending.len()).sum();
        (self.conns.len(), requests, self.jobs.len(), self.tasks.len())
    }

    /// What holds now.
    #[must_use]
    pub const fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Whether a shutdown has begun.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.insert(mark);
    }

    fn order(&mut self, order: String) {
        self.expected.orders.push(order);
    }

    fn tell(&mut self, conn: u64, what: String) {
        let open = |conn: &Conn| !matches!(conn.ended, Ended::Closing { .. });
        if self.conns.get(&conn).is_some_and(open) {
            self.expected.told.entry(conn).or_default().push(what);
        }
    }

    fn open(&mut self, conn: u64, identity: &str) {
        let max = self.settings.limits.connections_max;
        let full = self.conns.len() >= max;
        let fresh = Conn {
            identity: identity.to_owned(),
            rules: None,
            ended: Ended::No,
            level: LogLevel::Info,
            pending: Vec::new(),
            batches: Vec::new(),
            stall: None,
            linger: None,
            probes: 0,
        };
        self.conns.insert(conn, fresh);
        if full {
            self.mark(Mark::TooManyConnections);
            self.tell(conn, "null:E -31003 connections".to_owned());
            self.close(conn, "TooMany", true);
        }
    }

    /// The host must close a connection; one that still had something to say only loses it.
    fn close(&mut self, conn: u64, why: &str, flushes: bool) {
        let Some(entry) = self.conns.get_mut(&conn) else { return };
        if let Ended::Closing { flushes: before } = entry.ended
            && (!before || flushes)
        {
            return;
        }
        entry.ended = Ended::Closing { flushes };
        self.order(format!("close c{conn} {why}"));
    }

    fn close_if_finished(&mut self, conn: u64) {
        let idle =
            |conn: &Conn| matches!(conn.ended, Ended::Finished(_)) && conn.pending.is_empty();
        if self.conns.get(&conn).is_some_and(idle) {
            self.close(conn, "Finished", true);
        }
    }

    fn finish(&mut self, conn: u64, then: AfterInput) {
        let now = self.now;
        let Some(entry) = self.conns.get_mut(&conn) else { return };
        if entry.ended != Ended::No {
            return;
        }
        entry.ended = Ended::Finished(then);
        entry.linger = match then {
            AfterInput::Answer => None,
            AfterInput::AnswerAndProbe(every) => Some(now + nanos(every)),
            AfterInput::AnswerUntil(at) => Some(at.as_nanos()),
        };
        if !entry.pending.is_empty() {
            self.mark(Mark::FinishedWhileWaiting);
        }
        self.close_if_finished(conn);
    }

    /// A peer is gone: its calls stop, its waits end, its tasks go on.
    fn gone(&mut self, conn: u64) {
        let Some(entry) = self.conns.remove(&conn) else { return };
        self.abandon_requests(conn, entry.pending);
    }

    fn abandon_requests(&mut self, conn: u64, pending: Vec<Pending>) {
        for Pending { id, what, batch, .. } in pending {
            match what {
                What::Job(job) => {
                    self.mark(Mark::DisconnectStopsCall);
                    self.disown(job, "Disconnected");
                }
                What::Task(task) => self.forget_waiter(task, conn, &id),
            }
            self.settle(conn, batch, None);
        }
    }

    fn configure(&mut self, settings: &Arc<Settings>) {
        self.settings = Arc::clone(settings);
        let ready: Vec<u64> =
            self.conns.iter().filter(|(_, conn)| conn.rules.is_some()).map(|(at, _)| *at).collect();
        for conn in ready {
            self.tell(conn, "changed".to_owned());
        }
    }
}

/// A span in nanoseconds.
#[must_use]
pub fn nanos(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
