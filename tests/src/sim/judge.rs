//! The judge: an honest host around the real engine, its real inboxes and outboxes, that holds
//! what the engine does against what the oracle says must come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ceased_core::action::Action;
use ceased_core::engine::{Engine, Sizes};
use ceased_core::event::{AfterInput, Identity, LogLevel, Outcome};
use ceased_core::frame::{Frame, Inbox};
use ceased_core::id::{ConnId, JobId, Mint};
use ceased_core::message::ErrorObject;
use ceased_core::role::Role;
use ceased_core::time::{Instant, Now, Wall};
use ceased_core::tool::Step as StopStep;
use serde_json::json;
use uuid::Uuid;

use super::compare;
use super::fault::Fault;
use super::oracle::Oracle;
use super::step::{How, Op, Step, Then};
use super::swarm::Swarm;
use crate::trace::Input;
use crate::world::{raw_json, result_of};

/// How many jobs that have ended are remembered, to report late.
const ENDED_MAX: usize = 32;

/// Ids made of the number of the call they are for, so that leaving one call out of a history
/// does not rename the tasks of the others.
struct Numbered {
    hint: Arc<AtomicU64>,
    again: u64,
    last: (u64, u64),
    collides: bool,
}

impl Mint for Numbered {
    fn uuid(&mut self) -> Uuid {
        let hint = self.hint.load(Ordering::Relaxed);
        let id =
            |number: u64| Uuid::from_u128(0xced0_0000_0000_4000_8000 << 48 | u128::from(number));
        // TSK-08: every fifth id is the one before it, once.
        if self.collides && hint.is_multiple_of(5) && self.again != hint {
            self.again = hint;
            return id(self.last.0 * 16 + self.last.1);
        }
        self.last = if self.last.0 == hint { (hint, self.last.1 + 1) } else { (hint, 0) };
        id(hint * 16 + self.last.1)
    }
}

/// The host's end of a connection.
pub(super) struct Link {
    inbox: Inbox,
    /// Bytes the peer takes at a time.
    pub(super) window: usize,
    /// The peer has closed its side.
    pub(super) finished: bool,
    flush: bool,
    blocked: bool,
    closing: Option<bool>,
    /// What the engine wrote and what the peer was given, as sums over the bytes.
    pub(super) written: (u64, u64),
    pub(super) taken: (u64, u64),
    /// The last cursor this peer was given.
    pub(super) cursor: Option<String>,
}

/// What may be there at most, whatever was reloaded.
pub(super) struct Loosest {
    pub(super) running_max: usize,
    pub(super) queued_max: usize,
    pub(super) live_tasks_max: usize,
    pub(super) write_buffer_bytes: usize,
}

/// See the [module](self).
pub struct Judge {
    pub(super) engine: Engine,
    /// The oracle, unless only the engine is run.
    pub oracle: Option<Oracle>,
    pub(super) now: Now,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) jobs: BTreeMap<u64, JobId>,
    pub(super) nonces: BTreeMap<JobId, u64>,
    /// Jobs the host runs.
    pub(super) running: BTreeSet<u64>,
    /// Jobs that have ended or were given up.
    pub(super) ended: VecDeque<u64>,
    pub(super) names: BTreeMap<String, u64>,
    settings: Vec<Arc<ceased_core::settings::Settings>>,
    hint: Arc<AtomicU64>,
    /// A sum over everything the engine did.
    pub hash: u64,
    /// Events handed to the engine.
    pub events: u64,
    /// The engine has said that it is done.
    pub over: bool,
    /// Hold every so many-th message against the published schemas; never when 0.
    pub(super) validate: u64,
    pub(super) seen: u64,
}

impl Judge {
    /// A world in which nothing has happened.
    #[must_use]
    pub fn new(swarm: &Swarm, with_oracle: bool, validate: u64) -> Self {
        let hint = Arc::new(AtomicU64::new(0));
        let collides = swarm.faults.has(Fault::Collide);
        let mint = Numbered { hint: Arc::clone(&hint), again: 0, last: (0, 0), collides };
        let settings = Arc::clone(&swarm.settings[0]);
        Self {
            engine: Engine::new(Arc::clone(&settings), Box::new(mint)),
            oracle: with_oracle.then(|| Oracle::new(settings)),
            now: Now { at: Instant::ZERO, wall: Wall::from_millis(crate::world::WALL_START) },
            links: BTreeMap::new(),
            jobs: BTreeMap::new(),
            nonces: BTreeMap::new(),
            running: BTreeSet::new(),
            ended: VecDeque::new(),
            names: BTreeMap::new(),
            settings: swarm.settings.clone(),
            hint,
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            over: false,
            validate,
            seen: 0,
        }
    }

    /// Does one thing.
    ///
    /// # Panics
    /// When the engine does anything but what it must.
    pub fn apply(&mut self, step: &Step) {
        if self.over {
            return;
        }
        self.now.at = self.now.at.max(Instant::from_nanos(step.at));
        self.now.wall = Wall::from_millis(step.wall);
        match &step.op {
            Op::Open { conn, user } => self.open(*conn, *user),
            Op::Bytes { conn, text } => self.bytes(*conn, text),
            Op::Finish { conn, then } => self.finish_input(*conn, *then),
            Op::Vanish { conn } => self.lose(*conn),
            Op::Window { conn, bytes } => {
                if let Some(link) = self.links.get_mut(conn) {
                    link.window = *bytes;
                }
            }
            Op::Progress { job, to, talks } => {
                let message = talks.then(|| format!("at {to}"));
                let total = talks.then_some(100.0);
                let event = |id| Input::Progress(id, f64::from(*to), total, message.clone());
                self.report(*job, event);
            }
            Op::Log { job, level } => {
                let level = LogLevel::ALL[level % LogLevel::ALL.len()];
                self.report(*job, |id| {
                    Input::Log(id, level, raw_json(&format!("[\"said\",{job}]")))
                });
            }
            Op::Linger { job } => self.report(*job, Input::Lingering),
            Op::Done { job, how } => self.done(*job, *how),
            Op::Reload { settings } => {
                let settings = Arc::clone(&self.settings[settings % self.settings.len()]);
                self.feed(Input::Configured(settings));
            }
            Op::Drain { within } => {
                self.feed(Input::Drain(self.now.at + Duration::from_nanos(*within)));
            }
            Op::Turn => self.turn(),
            Op::Tick => self.feed(Input::Tick),
        }
    }

    fn open(&mut self, conn: u64, user: u32) {
        if self.links.contains_key(&conn) {
            return;
        }
        let settings = self.settings[0].limits.frames;
        let link = Link {
            inbox: Inbox::new(settings),
            window: usize::MAX,
            finished: false,
            flush: false,
            blocked: false,
            closing: None,
            written: (0, 0),
            taken: (0, 0),
            cursor: None,
        };
        self.links.insert(conn, link);
        let identity = if user < 3 { Identity::User(user) } else { Identity::Anonymous };
        self.feed(Input::Opened(ConnId::new(conn), identity, Role::Server));
    }

    fn bytes(&mut self, conn: u64, text: &str) {
        let Some(link) = self.links.get_mut(&conn).filter(|link| !link.finished) else { return };
        let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect();
        let id = ConnId::new(conn);
        let mut inputs = Vec::new();
        link.inbox.feed(&bytes, &mut |frame| inputs.push(input_of(id, &frame)));
        inputs.into_iter().for_each(|input| self.feed(input));
    }

    fn finish_input(&mut self, conn: u64, then: Then) {
        let Some(link) = self.links.get_mut(&conn).filter(|link| !link.finished) else { return };
        link.finished = true;
        let id = ConnId::new(conn);
        let mut inputs = Vec::new();
        link.inbox.finish(&mut |frame| inputs.push(input_of(id, &frame)));
        inputs.into_iter().for_each(|input| self.feed(input));
        let then = match then {
            Then::Answer => AfterInput::Answer,
            Then::Probe => AfterInput::AnswerAndProbe(Duration::from_secs(1)),
            Then::Until(span) => AfterInput::AnswerUntil(self.now.at + Duration::from_nanos(span)),
        };
        self.feed(Input::Finished(id, then));
    }

    fn lose(&mut self, conn: u64) {
        if self.links.remove(&conn).is_some() {
            self.feed(Input::Closed(ConnId::new(conn)));
        }
    }

    fn report(&mut self, job: u64, input: impl FnOnce(JobId) -> Input) {
        if let Some(id) = self.jobs.get(&job).copied() {
            self.feed(input(id));
        }
    }

    fn done(&mut self, job: u64, how: How) {
        let Some(id) = self.jobs.get(&job).copied() else { return };
        if self.running.remove(&job) {
            self.forget(job);
        }
        let said = |bad: bool| {
            let text = format!("r{job}");
            result_of(&json!({"content": [{"type": "text", "text": text}], "isError": bad}))
        };
        let outcome = match how {
            How::Good => said(false),
            How::Bad => said(true),
            How::Error => Outcome::Error(ErrorObject::new(-32000, "boom")),
            How::Odd => Outcome::Result(raw_json(&format!("[{job}]"))),
            How::Stopped => Outcome::Stopped,
        };
        self.feed(Input::Done(id, outcome));
    }

    /// Keeps the name of a job for reports that come late, for a while.
    fn forget(&mut self, job: u64) {
        self.ended.push_back(job);
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
            && let Some(id) = self.jobs.remove(&oldest)
        {
            self.nonces.remove(&id);
        }
    }

    /// As a host: what has arrived was handed in, what waits is sent, what is over is closed.
    pub(super) fn turn(&mut self) {
        self.feed(Input::Turn);
        let conns: Vec<u64> = self.links.keys().copied().collect();
        for conn in conns {
            self.send(conn);
            let id = ConnId::new(conn);
            let Some(link) = self.links.get(&conn) else { continue };
            let empty = self.engine.outbox(id).is_none_or(|outbox| outbox.is_empty());
            if link.closing.is_some_and(|flushes| !flushes || empty) {
                self.lose(conn);
            }
        }
    }

    fn send(&mut self, conn: u64) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let writable = link.blocked && link.window > 0;
        if !std::mem::take(&mut link.flush) && !writable {
            return;
        }
        let id = ConnId::new(conn);
        let outbox = self.engine.outbox(id).expect("who is linked has an outbox");
        let count = outbox.len().min(link.window);
        for byte in &outbox.pending()[..count] {
            compare::sum(&mut link.taken, *byte);
        }
        outbox.advance(count);
        if !outbox.is_empty() {
            link.blocked = true;
            self.feed(Input::Blocked(id));
        } else {
            assert_eq!(link.written, link.taken, "c{conn} got something else than was written");
            if std::mem::take(&mut link.blocked) {
                self.feed(Input::Drained(id));
            }
        }
    }

    /// Hands one event to the engine and to the oracle and compares.
    fn feed(&mut self, input: Input) {
        if let Input::Frame(_, frame) = &input {
            self.hint.store(number_in(frame), Ordering::Relaxed);
        }
        let before: Vec<(u64, usize)> = self.lengths();
        let mut actions = Vec::new();
        input.apply(&mut self.engine, self.now, &mut actions);
        self.engine.check();
        self.events += 1;
        let fresh = compare::fresh(self, &before, &actions);
        for action in &actions {
            self.note(action);
        }
        if self.oracle.is_some() {
            compare::compare(self, &input, &before, &actions, &fresh);
        }
        for action in actions {
            self.act(&action);
        }
    }

    fn lengths(&mut self) -> Vec<(u64, usize)> {
        let engine = &mut self.engine;
        let len = |conn: &u64| (*conn, engine.outbox(ConnId::new(*conn)).map_or(0, |o| o.len()));
        self.links.keys().map(len).collect()
    }

    /// A job that starts gets its name.
    fn note(&mut self, action: &Action) {
        if let Action::Start { job, arguments, .. } = action {
            let nonce = number_in(arguments.get().as_bytes());
            assert!(!self.nonces.contains_key(job), "{job} is started twice");
            self.jobs.insert(nonce, *job);
            self.nonces.insert(*job, nonce);
            self.running.insert(nonce);
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Stop { job, step: StopStep::Abandon, .. } => {
                let nonce = self.nonces[job];
                if self.running.remove(&nonce) {
                    self.forget(nonce);
                }
            }
            Action::Flush { conn } => {
                self.links.get_mut(&conn.get()).expect("it is linked").flush = true;
            }
            Action::Close { conn, why } => {
                let link = self.links.get_mut(&conn.get()).expect("it is linked");
                link.closing = Some(why.flushes());
                link.flush |= why.flushes();
            }
            Action::Exit => self.over = true,
            Action::Start { .. }
            | Action::Stop { .. }
            | Action::Tell { .. }
            | Action::TellProgress { .. }
            | Action::Notified { .. }
            | Action::RefuseCancel { .. }
            | Action::Store { .. }
            | Action::Load { .. }
            | Action::Note(_) => {}
        }
    }

    /// Whether a job was told to stop.
    #[must_use]
    pub fn is_stopping(&self, job: u64) -> bool {
        let jobs = self.oracle.iter().flat_map(|oracle| &oracle.jobs);
        jobs.into_iter().any(|other| other.nonce == job && other.is_stopping())
    }

    /// When the engine wants to be woken.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.engine.deadline().map(|(at, _)| at.as_nanos())
    }

    /// The loosest of the limits that may have held so far.
    pub(super) fn limits(&self) -> Loosest {
        let of = |pick: fn(&ceased_core::limits::Limits) -> usize| {
            self.settings.iter().map(|settings| pick(&settings.limits)).max().unwrap_or(0)
        };
        Loosest {
            running_max: of(|limits| limits.running_max),
            queued_max: of(|limits| limits.queued_max),
            live_tasks_max: of(|limits| limits.live_tasks_max),
            write_buffer_bytes: of(|limits| limits.write_buffer_bytes),
        }
    }

    /// Phase two: no more faults. Everybody reads, every job obeys, and within a bounded number of
    /// turns everything must be gone: first what somebody waits for, then what has a ttl.
    ///
    /// # Panics
    /// When something is left that nobody owns.
    pub fn finish(&mut self) {
        self.over = false;
        self.links.values_mut().for_each(|link| link.window = usize::MAX);
        let rounds = self.engine.sizes().jobs + 3;
        for _ in 0..rounds {
            self.turn();
            let running: Vec<u64> = self.running.iter().copied().collect();
            running.into_iter().for_each(|job| self.done(job, How::Stopped));
        }
        let Sizes { requests, jobs, .. } = self.engine.sizes();
        assert_eq!(
            (requests, jobs),
            (0, 0),
            "requests and jobs left after {rounds} turns (RPC-03)"
        );
        let conns: Vec<u64> = self.links.keys().copied().collect();
        conns.into_iter().for_each(|conn| self.lose(conn));
        for _ in 0..self.engine.sizes().tasks * 2 + 4 {
            let Some((due, _)) = self.engine.deadline() else { break };
            self.now.at = self.now.at.max(due);
            self.feed(Input::Tick);
            let next = self.engine.deadline();
            assert!(next.is_none_or(|(at, _)| at > self.now.at), "a tick leaves work undone (E3)");
        }
        assert_eq!(self.engine.sizes(), Sizes::default(), "something is left that nobody owns");
        assert_eq!(self.engine.deadline(), None, "a timer is left that nobody owns");
    }
}

fn input_of(conn: ConnId, frame: &Frame<'_>) -> Input {
    match frame {
        Frame::Line(line) => Input::Frame(conn, line.to_vec()),
        Frame::Overlong => Input::Overlong(conn),
        Frame::Alien(bytes) => Input::Alien(conn, bytes.to_vec()),
    }
}

/// The number of the call in a text that holds one.
fn number_in(text: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(text);
    let rest = text.split_once("\"n\":").map_or("", |(_, rest)| rest);
    rest.chars()
        .map_while(|c| c.to_digit(10))
        .fold(0, |number, digit| number.wrapping_mul(10).wrapping_add(u64::from(digit)))
}
