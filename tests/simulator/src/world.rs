//! A world for the pure engine: a clock, peers and jobs under the test's control. It acts as a
//! correct host and checks general invariants after every event.

mod acp;
mod job;
mod peer;
mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::{Action, AuditEvent, OperatorOrder, OutputQuery};
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
use ceased_core::tasks::shared::Lookup;
use ceased_core::time::{Instant, Now, Wall};
use ceased_core::tool::StopStep;
use ceased_core::upstream::interface::UpstreamAction;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

pub use self::job::{raw_json, result_of};
use self::peer::Peer;
use crate::tools;
use crate::trace::{Input, Trace};

/// Every revision that is negotiated, oldest first.
pub const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Id of an error response to a request with an unreadable id. JSON-RPC prescribes null; the newest
/// schema forbids null and allows a missing id.
#[must_use]
pub fn unreadable(revision: &str) -> Option<Value> {
    (revision != NEWEST).then_some(Value::Null)
}

/// Newest session revision, the one with tasks.
pub const NEWEST: &str = "2025-11-25";
/// 2025-11-01T00:00:00Z, the start of every world.
pub const WALL_START: u64 = 1_761_955_200_000;

/// An id source under the test's control: first the given ids, then counted ones.
#[derive(Debug, Clone, Default)]
pub struct Rigged {
    first: VecDeque<Uuid>,
    count: u128,
}

impl Rigged {
    /// Starts with these ids; the very first becomes the engine's cursor key.
    #[must_use]
    pub fn new(first: impl IntoIterator<Item = Uuid>) -> Self {
        Self { first: first.into_iter().collect(), count: 0 }
    }
}

impl IdSource for Rigged {
    fn uuid(&mut self) -> Uuid {
        self.first.pop_front().unwrap_or_else(|| {
            self.count += 1;
            // A version 4 UUID that contains a number.
            Uuid::from_u128((0xced0_0000_0000_4000_8000 << 48) | self.count)
        })
    }
}

/// A job that the engine has started and that has not ended.
#[derive(Debug, Clone)]
pub struct Running {
    /// The name of its tool.
    pub tool: String,
    /// Its arguments as JSON text.
    pub arguments: String,
    /// Its task.
    pub task: Option<TaskId>,
    /// The last step of its stop policy.
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
    /// Running jobs by id.
    pub running: BTreeMap<JobId, Running>,
    /// Every job started, in order.
    pub started: Vec<JobId>,
    /// Every stop step, in order.
    pub stops: Vec<(JobId, StopStep, StopReason)>,
    /// Outcomes of outgoing calls, in order.
    pub told: Vec<(Caller, Answer)>,
    /// Looks at the output of jobs, in order.
    pub reads: Vec<OutputQuery>,
    /// Actions about upstreams, in order.
    pub upstream: Vec<UpstreamAction>,
    /// Callers whose peers reported progress.
    pub told_progress: Vec<Caller>,
    /// Notifications of ACP peers to the host, in order: connection, method, params.
    pub notified: Vec<(ConnId, String, Option<String>)>,
    /// Cancels that the engine refused to send.
    pub refused_cancels: Vec<(Caller, Refusal)>,
    /// Every status request, in order, until [`World::surveyed`] answers it.
    pub surveys: Vec<(StatusId, Vec<JobId>, Option<Identity>)>,
    /// Every write requested by the engine, in order.
    pub stored: Vec<(Seq, StoreWrite)>,
    /// Every load requested by the engine, in order.
    pub loads: Vec<(LoadId, RecordKey)>,
    /// Questions to a table that several engines share.
    pub lookups: Vec<Lookup>,
    /// Every audit event, in order.
    pub notes: Vec<AuditEvent>,
    /// Orders of operators.
    pub orders: Vec<(ConnId, Identity, OperatorOrder)>,
    /// Every connection closed by the engine, in order.
    pub closed: Vec<(ConnId, CloseReason)>,
    /// Number of exit actions.
    pub exits: usize,
    /// Whether answers are matched with requests and validated against the published schemas. Off
    /// in tests that send unreadable bytes.
    pub strict: bool,
    /// Inputs so far, if the test records them.
    pub trace: Option<Trace>,
    /// Actions and messages of the engine, line by line, if the test records them.
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
    pub fn made_of(settings: Arc<Settings>, id_source: Rigged) -> Self {
        Self {
            engine: Engine::new(settings, Box::new(id_source)),
            now: Now { at: Instant::ZERO, wall: Wall::from_millis(WALL_START) },
            peers: BTreeMap::new(),
            next_conn: 1,
            next_ask: 1,
            seen: BTreeSet::new(),
            running: BTreeMap::new(),
            started: Vec::new(),
            stops: Vec::new(),
            told: Vec::new(),
            reads: Vec::new(),
            upstream: Vec::new(),
            told_progress: Vec::new(),
            notified: Vec::new(),
            refused_cancels: Vec::new(),
            surveys: Vec::new(),
            stored: Vec::new(),
            loads: Vec::new(),
            lookups: Vec::new(),
            notes: Vec::new(),
            orders: Vec::new(),
            closed: Vec::new(),
            exits: 0,
            strict: true,
            trace: None,
            transcript: None,
        }
    }

    /// Feeds one input, performs the engine's actions, and checks the invariants.
    ///
    /// # Panics
    /// When an invariant does not hold.
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
                "flush of the closed connection {conn}: {input:?}"
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
        assert!(exit.is_none_or(|at| at + 1 == actions.len()), "an action follows the exit");
        for action in actions {
            self.act(action);
        }
        self.deliver();
        self.finish_closing();
    }

    /// The host has read output: JSON text, or nothing that the peer may read.
    pub fn output_read(&mut self, read: StatusId, output: Option<&str>) {
        let output = output.map(|text| RawValue::from_string(text.to_owned()).expect("JSON"));
        let mut actions = Vec::new();
        let event = Event::OutputRead { read, output: output.as_deref() };
        self.engine.handle(self.now, event, &mut actions);
        self.engine.check();
        actions.into_iter().for_each(|action| self.act(action));
        self.deliver();
        self.finish_closing();
    }

    /// Answers a status request with the host's part, the JSON text of an object.
    ///
    /// # Panics
    /// When the text is no JSON, or an invariant does not hold.
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
                let running =
                    running.unwrap_or_else(|| panic!("stop of {job}, which does not run"));
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
            Action::LookUp(lookup) => self.lookups.push(*lookup),
            Action::Flush { .. } => {}
            Action::Close { conn, why } => {
                let peer = self.peers.get_mut(&conn).expect("a closed connection was open");
                let before = peer.closing.replace(why);
                // A peer that does not read is closed without its last frames.
                let harder = before.is_some_and(|was| was.flushes() && !why.flushes());
                assert!(before.is_none() || harder, "{conn} is closed twice");
                self.closed.push((conn, why));
                let left = self.engine.send_queue(conn).is_some_and(|queue| !queue.is_empty());
                assert!(why.flushes() || !left, "{conn} is closed with unsent bytes");
            }
            Action::CollectHostStatus { survey, jobs, viewer, .. } => {
                self.surveys.push((survey, jobs, viewer));
            }
            Action::ReadOutput(query) => self.reads.push(*query),
            Action::Operate { conn, identity, order } => self.orders.push((conn, identity, order)),
            Action::Upstream(action) => self.upstream.push(action),
            Action::Audit(note) => self.notes.push(note),
            Action::Exit => self.exits += 1,
        }
    }

    /// Delivers pending bytes to every peer that reads.
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

    /// A peer reads this many bytes.
    ///
    /// # Panics
    /// When fewer bytes are pending.
    pub fn take(&mut self, conn: ConnId, count: usize) {
        if let Some(trace) = &mut self.trace {
            trace.inputs.push((self.now, Input::Taken(conn, count)));
        }
        self.engine.send_queue(conn).expect("an open connection has a send queue").advance(count);
    }

    fn read(&mut self, conn: ConnId, bytes: Vec<u8>) {
        let text = String::from_utf8(bytes).expect("a frame is UTF-8");
        let text = text.strip_suffix('\n').expect("a frame ends with a line end").to_owned();
        for line in text.split('\n') {
            assert!(!line.contains('\r') && !line.is_empty(), "one message is one line: {line:?}");
            if let Err(error) = serde_json::from_str::<&RawValue>(line) {
                panic!("not JSON ({error}): {line}");
            }
            // An id with half a surrogate pair, or beyond all number types, is echoed as written.
            let message: Value = serde_json::from_str(line).unwrap_or_default();
            if let Some(transcript) = &mut self.transcript {
                transcript.push(format!("{conn}< {line}"));
            }
            let peer = self.peers.get_mut(&conn).expect("the peer exists");
            if self.strict {
                peer.take_note_of(&message);
            }
            peer.lines.push_back(line.to_owned());
        }
    }

    /// As a host, closes connections after their last frames.
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

    /// A connection is lost for any reason.
    pub fn lose(&mut self, conn: ConnId) {
        let peer = self.peers.get_mut(&conn).expect("the peer exists");
        if !std::mem::replace(&mut peer.gone, true) {
            self.feed(Input::Closed(conn));
        }
    }

    // ------------------------------------------------------------------------------- time

    /// Advances the clock; ticks are fed exactly when they are due.
    ///
    /// # Panics
    /// When a tick does not change its deadline.
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

    /// Advances the clock without a tick, as after a suspend of the machine.
    pub fn sleep_through(&mut self, span: Duration) {
        self.move_clock_to(self.now.at + span);
    }

    fn move_clock_to(&mut self, at: Instant) {
        let passed = u64::try_from(at.since(self.now.at).as_millis()).expect("not that long");
        // A deadline in the past is due now; the clock never goes back.
        self.now.at = self.now.at.max(at);
        self.now.wall = Wall::from_millis(self.now.wall.as_millis() + passed);
    }

    /// Sets the wall clock only.
    pub fn set_wall(&mut self, millis: u64) {
        self.now.wall = Wall::from_millis(millis);
    }

    /// The current time.
    #[must_use]
    pub const fn now(&self) -> Now {
        self.now
    }

    /// Time until the engine's next deadline.
    #[must_use]
    pub fn due_in(&self) -> Option<Duration> {
        self.engine.deadline().map(|(due, _)| due.since(self.now.at))
    }

    // ------------------------------------------------------------------------------- inspection

    /// Whether a connection has unanswered requests.
    #[must_use]
    pub fn has_open_requests(&self, conn: ConnId) -> bool {
        self.engine.has_open_requests(conn)
    }

    /// Owner of a job.
    #[must_use]
    pub fn owner(&self, job: JobId) -> Option<&Identity> {
        self.engine.owner(job)
    }

    /// Whether a job is being stopped.
    #[must_use]
    pub fn is_stopping(&self, job: JobId) -> bool {
        self.engine.is_stopping(job)
    }

    /// Whether the engine requests a turn.
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        self.engine.wants_turn()
    }

    /// Whether the engine has jobs, or ends that are not written yet.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.engine.has_work()
    }

    /// Sizes of the engine's tables.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.engine.sizes()
    }

    /// Counters of the engine.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        self.engine.counters()
    }

    /// Bytes that wait for a peer; nothing for one that is gone.
    #[must_use]
    pub fn waiting(&mut self, conn: ConnId) -> usize {
        self.engine.send_queue(conn).map_or(0, |queue| queue.len())
    }

    /// Bytes that are held for an identity.
    #[must_use]
    pub fn held_bytes(&self, identity: &Identity) -> usize {
        self.engine.held_bytes(identity)
    }

    /// Whether the engine has this connection.
    #[must_use]
    pub fn is_open(&mut self, conn: ConnId) -> bool {
        self.engine.send_queue(conn).is_some()
    }

    /// The job started last.
    ///
    /// # Panics
    /// When no job was started.
    #[must_use]
    pub fn last_started(&self) -> JobId {
        *self.started.last().expect("a job was started")
    }

    /// The stop steps of one job.
    #[must_use]
    pub fn steps(&self, job: JobId) -> Vec<(StopStep, StopReason)> {
        let of_job = self.stops.iter().filter(|(stopped, ..)| *stopped == job);
        of_job.map(|(_, step, why)| (*step, *why)).collect()
    }
}

/// An action as one line of a transcript; `None` for actions that are visible otherwise.
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
        Action::RefuseCancel { caller, refusal } => format!("refused cancel {caller:?}: {refusal}"),
        Action::Store { seq, write } => format!("store {seq:?} {write:?}"),
        Action::Load { load, key } => format!("load {load:?} {}", key.task),
        Action::LookUp(lookup) => format!("look up {lookup:?}"),
        Action::Flush { .. } => return None,
        Action::Close { conn, why } => format!("close {conn} {why:?}"),
        Action::CollectHostStatus { survey, jobs, viewer, .. } => {
            format!("survey {survey:?} {jobs:?} {viewer:?}")
        }
        Action::ReadOutput(query) => {
            format!("read {:?} for {}", query.request, query.viewer.identity)
        }
        Action::Operate { conn, identity, order } => format!("operate {conn} {identity} {order:?}"),
        Action::Upstream(action) => format!("upstream {action:?}"),
        Action::Audit(note) => format!("note {note:?}"),
        Action::Exit => "exit".to_owned(),
    })
}
