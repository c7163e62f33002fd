//! A world for the pure engine: a clock that moves when told, peers that are lines of text, jobs
//! that end when told. It acts as an honest host and watches, after every event, what must hold
//! whatever a test is about.

mod acp;
mod job;
mod peer;
mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::{Action, AuditEvent};
use ceased_core::counters::Counters;
use ceased_core::engine::Engine;
use ceased_core::event::Event;
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, IdSource, JobId, StatusId, TaskId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::outgoing::call::{Answer, Caller, Refusal};
use ceased_core::reason::CloseReason;
use ceased_core::reason::StopReason;
use ceased_core::settings::Settings;
use ceased_core::stats::Sizes;
use ceased_core::tasks::durable::{LoadId, RecordKey, Seq, StoreWrite};
use ceased_core::time::{Instant, Now, Wall};
use ceased_core::tool::StopStep;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

pub use self::job::{raw_json, result_of};
use self::peer::Peer;
use crate::tools;
use crate::trace::{Input, Trace};

/// Every revision that is negotiated, oldest first.
pub const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The id of an error about a request whose id could not be read. JSON-RPC says null; the newest
/// schema forbids it and allows no id at all.
#[must_use]
pub fn unreadable(revision: &str) -> Option<Value> {
    (revision != NEWEST).then_some(Value::Null)
}

/// The newest revision the engine speaks, the one with tasks.
pub const NEWEST: &str = "2025-11-25";
/// 2025-11-01T00:00:00Z, where every world begins.
pub const WALL_START: u64 = 1_761_955_200_000;

/// A generator of ids that a test can rig: first the ids it was given, then counted ones.
#[derive(Debug, Clone, Default)]
pub struct Rigged {
    first: VecDeque<Uuid>,
    count: u128,
}

impl Rigged {
    /// Gives these ids first; the very first becomes the engine's cursor key.
    #[must_use]
    pub fn new(first: impl IntoIterator<Item = Uuid>) -> Self {
        Self { first: first.into_iter().collect(), count: 0 }
    }
}

impl IdSource for Rigged {
    fn uuid(&mut self) -> Uuid {
        self.first.pop_front().unwrap_or_else(|| {
            self.count += 1;
            // A version 4 UUID with a number in it.
            Uuid::from_u128((0xced0_0000_0000_4000_8000 << 48) | self.count)
        })
    }
}

/// A job the engine started and that has not ended.
#[derive(Debug, Clone)]
pub struct Running {
    /// The name of its tool.
    pub tool: String,
    /// Its arguments as JSON text.
    pub arguments: String,
    /// Its task.
    pub task: Option<TaskId>,
    /// The last step taken to stop it.
    pub step: Option<StopStep>,
}

/// See the [module](self).
pub struct World {
    engine: Engine,
    now: Now,
    peers: BTreeMap<ConnId, Peer>,
    next_conn: u64,
    next_ask: u64,
    seen: BTreeSet<JobId>,
    /// Jobs that run, by id.
    pub running: BTreeMap<JobId, Running>,
    /// Every job started, in order.
    pub started: Vec<JobId>,
    /// Every step taken, in order.
    pub stops: Vec<(JobId, StopStep, StopReason)>,
    /// How every call ended, in order.
    pub told: Vec<(Caller, Answer)>,
    /// Whose peers told of progress.
    pub told_progress: Vec<Caller>,
    /// What ACP peers told the host, in order: who, the method, the params.
    pub notified: Vec<(ConnId, String, Option<String>)>,
    /// Cancels that were not sent.
    pub refused_cancels: Vec<(Caller, Refusal)>,
    /// Every survey, in order, until it is answered by [`World::surveyed`].
    pub surveys: Vec<(StatusId, Vec<JobId>, Option<Identity>)>,
    /// Every write the engine wanted, in order.
    pub stored: Vec<(Seq, StoreWrite)>,
    /// Every load the engine wanted, in order.
    pub loads: Vec<(LoadId, RecordKey)>,
    /// Every note, in order.
    pub notes: Vec<AuditEvent>,
    /// Every connection the engine closed, in order.
    pub closed: Vec<(ConnId, CloseReason)>,
    /// How often the engine said it is done.
    pub exits: usize,
    /// Whether answers are matched with requests and held against the published schemas. Off for
    /// tests that send bytes nobody can read.
    pub strict: bool,
    /// Inputs so far, if a test wants to know.
    pub trace: Option<Trace>,
    /// What the engine did and said, line by line, if a test wants to know.
    pub transcript: Option<Vec<String>>,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// A world with default limits.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Limits::default(), TaskPolicy::default())
    }

    /// A world with these limits and this policy.
    #[must_use]
    pub fn with(limits: Limits, tasks: TaskPolicy) -> Self {
        Self::made_of(tools::settings(limits, tasks), Rigged::default())
    }

    /// A world with these settings and ids.
    #[must_use]
    pub fn made_of(settings: Arc<Settings>, mint: Rigged) -> Self {
        Self {
            engine: Engine::new(settings, Box::new(mint)),
            now: Now { at: Instant::ZERO, wall: Wall::from_millis(WALL_START) },
            peers: BTreeMap::new(),
            next_conn: 1,
            next_ask: 1,
            seen: BTreeSet::new(),
            running: BTreeMap::new(),
            started: Vec::new(),
            stops: Vec::new(),
            told: Vec::new(),
            told_progress: Vec::new(),
            notified: Vec::new(),
            refused_cancels: Vec::new(),
            surveys: Vec::new(),
            stored: Vec::new(),
            loads: Vec::new(),
            notes: Vec::new(),
            closed: Vec::new(),
            exits: 0,
            strict: true,
            trace: None,
            transcript: None,
        }
    }

    /// Hands one thing in, does what the engine wants, and checks what must always hold.
    ///
    /// # Panics
    /// When something that must always hold does not.
    pub fn feed(&mut self, input: Input) {
        if let Some(trace) = &mut self.trace {
            trace.inputs.push((self.now, input.clone()));
        }
        let before: Vec<(ConnId, usize)> = self.pending();
        let mut actions = Vec::new();
        input.apply(&mut self.engine, self.now, &mut actions);
        self.engine.check();
        let flushed: Vec<ConnId> = actions
            .iter()
            .filter_map(
                |action| if let Action::Flush { conn } = action { Some(*conn) } else { None },
            )
            .collect();
        for conn in &flushed {
            assert!(
                self.engine.send_queue(*conn).is_some(),
                "{conn} is flushed and gone: {input:?}"
            );
        }
        for (conn, waiting) in before {
            let filled = self.engine.send_queue(conn).is_some_and(|queue| !queue.is_empty());
            let times = flushed.iter().filter(|flushed| **flushed == conn).count();
            let wanted = usize::from(waiting == 0 && filled);
            let cleared = self.engine.send_queue(conn).is_none_or(|queue| queue.is_empty());
            assert!(times == wanted || cleared, "{conn}: {times} flushes for {input:?}");
        }
        let exit = actions.iter().position(|action| matches!(action, Action::Exit));
        assert!(exit.is_none_or(|at| at + 1 == actions.len()), "there is more after the end");
        for action in actions {
            self.act(action);
        }
        self.deliver();
        self.finish_closing();
    }

    /// Answers a survey with what the host knows: the JSON text of an object.
    ///
    /// # Panics
    /// When it is no JSON, or something that must always hold does not.
    pub fn surveyed(&mut self, survey: StatusId, host: &str) {
        let host = RawValue::from_string(host.to_owned()).expect("JSON");
        let mut actions = Vec::new();
        let event = Event::HostStatusCollected { survey, host: &host };
        self.engine.handle(self.now, event, &mut actions);
        self.engine.check();
        actions.into_iter().for_each(|action| self.act(action));
        self.deliver();
        self.finish_closing();
    }

    fn pending(&mut self) -> Vec<(ConnId, usize)> {
        let conns: Vec<ConnId> = self.peers.keys().copied().collect();
        conns
            .into_iter()
            .filter_map(|conn| self.engine.send_queue(conn).map(|queue| (conn, queue.len())))
            .collect()
    }

    fn act(&mut self, action: Action) {
        if let Some(line) = self.transcript.as_mut().and(describe(&action)) {
            self.transcript.get_or_insert_default().push(line);
        }
        match action {
            Action::Start { job, tool, arguments, task } => {
                assert!(self.seen.insert(job), "{job} is started twice");
                let tool = tool.name.to_string();
                let arguments = arguments.get().to_owned();
                self.running.insert(job, Running { tool, arguments, task, step: None });
                self.started.push(job);
            }
            Action::Stop { job, step, why } => {
                let running = self.running.get_mut(&job);
                let running = running.unwrap_or_else(|| panic!("{job} is stopped and not running"));
                let again = running.step == Some(StopStep::Kill) && step == StopStep::Kill;
                assert!(again || running.step < Some(step), "{job}: {step:?} after {running:?}");
                running.step = Some(step);
                self.stops.push((job, step, why));
                if step == StopStep::Abandon {
                    self.running.remove(&job);
                }
            }
            Action::Tell { caller, answer } => self.told.push((caller, answer)),
            Action::TellProgress { caller, .. } => self.told_progress.push(caller),
            Action::Notified { conn, method, params } => {
                self.notified.push((conn, method.into(), params.map(|raw| raw.get().to_owned())));
            }
            Action::RefuseCancel { caller, refusal } => {
                self.refused_cancels.push((caller, refusal));
            }
            Action::Store { seq, write } => self.stored.push((seq, *write)),
            Action::Load { load, key } => self.loads.push((load, key)),
            Action::Flush { .. } => {}
            Action::Close { conn, why } => {
                let peer = self.peers.get_mut(&conn).expect("a closed connection was open");
                let before = peer.closing.replace(why);
                // A peer that does not take our last words is closed without them.
                let harder = before.is_some_and(|was| was.flushes() && !why.flushes());
                assert!(before.is_none() || harder, "{conn} is closed twice");
                self.closed.push((conn, why));
                let left = self.engine.send_queue(conn).is_some_and(|queue| !queue.is_empty());
                assert!(why.flushes() || !left, "{conn} keeps bytes nobody will send");
            }
            Action::CollectHostStatus { survey, jobs, viewer } => {
                self.surveys.push((survey, jobs, viewer));
            }
            Action::Audit(note) => self.notes.push(note),
            Action::Exit => self.exits += 1,
        }
    }

    /// Gives every peer that reads what waits for it.
    fn deliver(&mut self) {
        let conns: Vec<ConnId> =
            self.peers.iter().filter(|(_, peer)| peer.reads).map(|(conn, _)| *conn).collect();
        for conn in conns {
            let Some(queue) = self.engine.send_queue(conn) else { continue };
            let bytes: Vec<u8> = queue.runs().flatten().copied().collect();
            if !bytes.is_empty() {
                self.take(conn, bytes.len());
                self.read(conn, bytes);
            }
        }
    }

    /// A peer takes so many bytes.
    ///
    /// # Panics
    /// When fewer wait for it.
    pub fn take(&mut self, conn: ConnId, count: usize) {
        if let Some(trace) = &mut self.trace {
            trace.inputs.push((self.now, Input::Taken(conn, count)));
        }
        self.engine.send_queue(conn).expect("it is open").advance(count);
    }

    fn read(&mut self, conn: ConnId, bytes: Vec<u8>) {
        let text = String::from_utf8(bytes).expect("what is sent is UTF-8");
        let text = text.strip_suffix('\n').expect("what is sent ends with a line end").to_owned();
        for line in text.split('\n') {
            assert!(!line.contains('\r') && !line.is_empty(), "one message is one line: {line:?}");
            if let Err(error) = serde_json::from_str::<&RawValue>(line) {
                panic!("not JSON ({error}): {line}");
            }
            // An id with half a surrogate pair, or beyond all numbers, is given back as it came.
            let message: Value = serde_json::from_str(line).unwrap_or_default();
            if let Some(transcript) = &mut self.transcript {
                transcript.push(format!("{conn}< {line}"));
            }
            let peer = self.peers.get_mut(&conn).expect("who reads was opened");
            if self.strict {
                peer.take_note_of(&message);
            }
            peer.lines.push_back(line.to_owned());
        }
    }

    /// As a host: what is to be closed is closed once what may be sent was sent.
    fn finish_closing(&mut self) {
        let ready = |peer: &Peer| {
            !peer.gone && peer.closing.is_some_and(|why| peer.reads || !why.flushes())
        };
        let done: Vec<ConnId> =
            self.peers.iter().filter(|(_, peer)| ready(peer)).map(|(conn, _)| *conn).collect();
        for conn in done {
            self.lose(conn);
        }
    }

    /// The connection is gone, for whatever reason.
    pub fn lose(&mut self, conn: ConnId) {
        let peer = self.peers.get_mut(&conn).expect("who is lost was opened");
        if !std::mem::replace(&mut peer.gone, true) {
            self.feed(Input::Closed(conn));
        }
    }

    // ------------------------------------------------------------------------------- time

    /// Lets time pass; ticks are handed in when they are due and at no other time.
    ///
    /// # Panics
    /// When a tick at a deadline leaves that deadline as it was.
    pub fn advance(&mut self, span: Duration) {
        let end = self.now.at + span;
        while let Some((due, timer)) = self.engine.deadline() {
            if due > end {
                break;
            }
            self.move_clock_to(due);
            self.feed(Input::Tick);
            let next = self.engine.deadline();
            assert!(next.is_none_or(|next| next != (due, timer)), "{timer:?} is due again at once");
        }
        self.move_clock_to(end);
    }

    /// Lets time pass without a tick, as when the machine was suspended.
    pub fn sleep_through(&mut self, span: Duration) {
        self.move_clock_to(self.now.at + span);
    }

    fn move_clock_to(&mut self, at: Instant) {
        let passed = u64::try_from(at.since(self.now.at).as_millis()).expect("not that long");
        // A deadline in the past is due now; the clock never goes back.
        self.now.at = self.now.at.max(at);
        self.now.wall = Wall::from_millis(self.now.wall.as_millis() + passed);
    }

    /// Sets the wall clock, and that alone.
    pub fn set_wall(&mut self, millis: u64) {
        self.now.wall = Wall::from_millis(millis);
    }

    /// What time it is.
    #[must_use]
    pub const fn now(&self) -> Now {
        self.now
    }

    /// When the engine wants its next tick, from now.
    #[must_use]
    pub fn due_in(&self) -> Option<Duration> {
        self.engine.deadline().map(|(due, _)| due.since(self.now.at))
    }

    // ------------------------------------------------------------------------------- looking in

    /// Whether requests of a connection wait for their answers.
    #[must_use]
    pub fn has_open_requests(&self, conn: ConnId) -> bool {
        self.engine.has_open_requests(conn)
    }

    /// Owner of a job.
    #[must_use]
    pub fn owner(&self, job: JobId) -> Option<&Identity> {
        self.engine.owner(job)
    }

    /// Whether a job was told to stop.
    #[must_use]
    pub fn is_stopping(&self, job: JobId) -> bool {
        self.engine.is_stopping(job)
    }

    /// Whether its engine wants a turn.
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        self.engine.wants_turn()
    }

    /// What the engine holds.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.engine.sizes()
    }

    /// What the engine counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        self.engine.counters()
    }

    /// Bytes that wait for a peer; nothing for one that is gone.
    #[must_use]
    pub fn waiting(&mut self, conn: ConnId) -> usize {
        self.engine.send_queue(conn).map_or(0, |queue| queue.len())
    }

    /// Whether the engine still knows a connection.
    #[must_use]
    pub fn is_open(&mut self, conn: ConnId) -> bool {
        self.engine.send_queue(conn).is_some()
    }

    /// The last job started.
    ///
    /// # Panics
    /// When none was.
    #[must_use]
    pub fn last_started(&self) -> JobId {
        *self.started.last().expect("a job was started")
    }

    /// The steps taken to stop one job.
    #[must_use]
    pub fn steps(&self, job: JobId) -> Vec<(StopStep, StopReason)> {
        let of_job = self.stops.iter().filter(|(stopped, ..)| *stopped == job);
        of_job.map(|(_, step, why)| (*step, *why)).collect()
    }
}

/// An action as one line of a transcript; none for what a transcript shows anyway.
fn describe(action: &Action) -> Option<String> {
    Some(match action {
        Action::Start { job, tool, arguments, task } => {
            let task = task.map(|task| format!(" for {task}")).unwrap_or_default();
            format!("start {job} {} {}{task}", tool.name, arguments.get())
        }
        Action::Stop { job, step, why } => format!("stop {job} {step:?} ({})", why.as_str()),
        Action::Tell { caller, answer } => format!("tell {caller:?} {answer:?}"),
        Action::TellProgress { caller, params } => format!("progress {caller:?} {params}"),
        Action::Notified { conn, method, params } => format!("notified {conn} {method} {params:?}"),
        Action::RefuseCancel { caller, refusal } => format!("no cancel {caller:?}: {refusal}"),
        Action::Store { seq, write } => format!("store {seq:?} {write:?}"),
        Action::Load { load, key } => format!("load {load:?} {}", key.task),
        Action::Flush { .. } => return None,
        Action::Close { conn, why } => format!("close {conn} {why:?}"),
        Action::CollectHostStatus { survey, jobs, viewer } => {
            format!("survey {survey:?} {jobs:?} {viewer:?}")
        }
        Action::Audit(note) => format!("note {note:?}"),
        Action::Exit => "exit".to_owned(),
    })
}
