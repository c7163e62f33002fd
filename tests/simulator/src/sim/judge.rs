//! The judge: an honest host around the real engine, its real inboxes and send queues, that holds
//! the engine's actions against the oracle's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ceased_core::acp::protocol::{AcpForm, AcpRole, Speaker};
use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::{AfterInput, Outcome};
use ceased_core::identity::Rights;
use ceased_core::ids::{AskId, ConnId, JobId};
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::Caller;
use ceased_core::protocol::role::Role;
use ceased_core::rpc::frame::Inbox;
use ceased_core::stats::Sizes;
use ceased_core::time::{Instant, Now, Wall};
use ceased_core::tool::StopStep;
use serde_json::json;

use super::compare;
use super::fault::Fault;
use super::id_source::Numbered;
use super::inputs::{as_client, ask_of, cause_of, identity, input_of, number_in};
use super::link::{Calls, Link};
use super::loosest::Loosest;
use super::mark::Mark;
use super::oracle::Oracle;
use super::step::{How, Op, Step, Then};
use super::swarm::Swarm;
use crate::trace::Input;
use crate::world::raw_json;

/// How many jobs that have ended are remembered, to report late.
const ENDED_MAX: usize = 32;

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
    /// Jobs that answer `initialize` of ACP.
    beginnings: BTreeSet<u64>,
    pub(super) names: BTreeMap<String, u64>,
    pub(super) calls: Calls,
    /// The jobs that were started, in order.
    pub(super) starts: VecDeque<u64>,
    /// Values of the characters of steps that are no bytes, in order.
    pub(super) said: VecDeque<Vec<u8>>,
    turns: u64,
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
        let id_source = Numbered { hint: Arc::clone(&hint), again: 0, last: (0, 0), collides };
        let settings = Arc::clone(&swarm.settings[0]);
        Self {
            engine: Engine::new(Arc::clone(&settings), Box::new(id_source)),
            oracle: with_oracle.then(|| Oracle::new(settings)),
            now: Now { at: Instant::ZERO, wall: Wall::from_millis(crate::world::WALL_START) },
            links: BTreeMap::new(),
            jobs: BTreeMap::new(),
            nonces: BTreeMap::new(),
            running: BTreeSet::new(),
            ended: VecDeque::new(),
            beginnings: BTreeSet::new(),
            names: BTreeMap::new(),
            calls: Calls::default(),
            starts: VecDeque::new(),
            said: VecDeque::new(),
            turns: 0,
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
    /// When the engine deviates from the oracle.
    pub fn apply(&mut self, step: &Step) {
        if self.over {
            return;
        }
        self.now.at = self.now.at.max(Instant::from_nanos(step.at));
        self.now.wall = Wall::from_millis(step.wall);
        match &step.op {
            Op::Open { conn, user } => self.open(*conn, *user, Role::Server),
            Op::OpenAcp { conn, user, published, agent } => {
                self.open_acp(*conn, *user, *published, *agent);
            }
            Op::CancelJob { job, cause } => {
                let cause = cause_of(*cause);
                self.report(*job, |id| Input::CancelJob(id, cause));
            }
            Op::Notify { from, number } => self.notify(*from, *number),
            Op::Connect { conn, user, call, offers, answer_timeout } => {
                self.open(*conn, *user, as_client(*call, *offers, *answer_timeout));
            }
            Op::Bytes { conn, text } => self.bytes(*conn, text),
            Op::Finish { conn, then } => self.finish_input(*conn, *then),
            Op::Vanish { conn } => self.lose(*conn),
            Op::Window { conn, bytes } => {
                if let Some(link) = self.links.get_mut(conn) {
                    link.window = *bytes;
                }
            }
            Op::Progress { job, to, talks } => self.progress(*job, *to, *talks),
            Op::Log { job, level } => {
                let (level, said) = (LogLevel::ALL[level % 8], format!("[\"said\",{job}]"));
                self.report(*job, |id| Input::Log(id, level, raw_json(&said)));
            }
            Op::Linger { job } => self.report(*job, Input::Lingering),
            Op::Ask { job, call, wish, to } => {
                let (ask, number) = (ask_of(*call, wish), AskId::new(*call));
                let conn = to.map(ConnId::new);
                self.report(*job, |id| Input::Asked(id, number, conn, ask));
            }
            Op::Call { conn, call, wish } => {
                let ask = ask_of(*call, wish);
                self.feed(Input::Call(ConnId::new(*conn), AskId::new(*call), ask));
            }
            Op::Unask { job, call } => self.unask(*job, AskId::new(*call)),
            Op::Outlast { job, how } => {
                if let Some(id) = self.jobs.get(job).copied() {
                    let outcome = self.outcome(*job, *how);
                    self.feed(Input::Outlasted(id, outcome));
                }
            }
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

    fn open(&mut self, conn: u64, user: u32, role: Role) {
        if self.link(conn) {
            self.feed(Input::Opened(ConnId::new(conn), identity(user), role, Rights::Full));
        }
    }

    fn open_acp(&mut self, conn: u64, user: u32, published: bool, agent: bool) {
        let form = if published { AcpForm::Published } else { AcpForm::Proposed };
        let side = if agent { AcpRole::Agent } else { AcpRole::Client };
        if self.link(conn) {
            self.feed(Input::OpenedAcp(ConnId::new(conn), identity(user), form, side));
        }
    }

    /// A new connection; not if it is there.
    fn link(&mut self, conn: u64) -> bool {
        if self.links.contains_key(&conn) {
            return false;
        }
        let settings = self.settings[0].limits.frames;
        let link = Link::new(Inbox::new(settings));
        self.links.insert(conn, link);
        true
    }

    fn bytes(&mut self, conn: u64, text: &str) {
        let bytes = self.bytes_of(text);
        let Some(link) = self.links.get_mut(&conn).filter(|link| !link.finished) else { return };
        let id = ConnId::new(conn);
        let mut inputs = Vec::new();
        link.inbox.feed(&bytes, &mut |frame| inputs.push(input_of(id, &frame)));
        inputs.into_iter().for_each(|input| self.feed(input));
    }

    /// The bytes of a text on the wire; the second time the same as the first.
    fn bytes_of(&mut self, text: &str) -> Vec<u8> {
        let plain = text.chars().all(|c| u8::try_from(c).is_ok());
        if !plain && self.oracle.is_none() {
            return self.said.pop_front().unwrap_or_default();
        }
        let mut bytes = Vec::with_capacity(text.len());
        text.chars().for_each(|c| self.calls.bytes_of(c, &mut bytes));
        if !plain {
            self.said.push_back(bytes.clone());
        }
        bytes
    }

    fn notify(&mut self, from: Result<u64, u64>, number: u64) {
        let params = Some(raw_json(&json!({"of": number}).to_string()));
        let said = |from| Input::Notify(from, "session/update".to_owned(), params);
        match from {
            Ok(job) => self.report(job, |id| said(Speaker::Job(id))),
            Err(conn) => self.feed(said(Speaker::Host(ConnId::new(conn)))),
        }
    }

    fn unask(&mut self, job: Option<u64>, ask: AskId) {
        let caller = match job {
            None => Caller::Host(ask),
            Some(job) => {
                let Some(job) = self.jobs.get(&job).copied() else { return };
                Caller::Job { job, ask }
            }
        };
        self.feed(Input::CancelCall(caller, Some("no more need".to_owned())));
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
            Then::Within(span) => AfterInput::AnswerWithin(Duration::from_nanos(span)),
        };
        self.feed(Input::Finished(id, then));
    }

    fn lose(&mut self, conn: u64) {
        let Some(link) = self.links.remove(&conn) else { return };
        if let Some(oracle) = &mut self.oracle {
            oracle.unsent = link.lost.into_iter().chain(link.unsent.texts()).collect();
        }
        self.calls.forget(conn);
        self.feed(Input::Closed(ConnId::new(conn)));
    }

    fn report(&mut self, job: u64, input: impl FnOnce(JobId) -> Input) {
        if let Some(id) = self.jobs.get(&job).copied() {
            self.feed(input(id));
        }
    }

    fn progress(&mut self, job: u64, to: i32, talks: bool) {
        let message = talks.then(|| format!("at {to}"));
        let total = talks.then_some(100.0);
        if talks {
            self.report(job, |id| Input::Output(id, format!("line {to}")));
        }
        self.report(job, |id| Input::Progress(id, f64::from(to), total, message));
    }

    fn done(&mut self, job: u64, how: How) {
        let Some(id) = self.jobs.get(&job).copied() else { return };
        if self.running.remove(&job) {
            self.forget(job);
        }
        let outcome = self.outcome(job, how);
        self.feed(Input::Done(id, outcome));
    }

    fn outcome(&mut self, job: u64, how: How) -> Outcome {
        how.outcome(job, self.beginnings.remove(&job))
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

    /// As a host: arrived input was handed in, output is sent, ended connections are closed.
    pub(super) fn turn(&mut self) {
        self.feed(Input::Turn);
        let conns: Vec<u64> = self.links.keys().copied().collect();
        for conn in conns {
            self.send(conn);
            let id = ConnId::new(conn);
            let Some(link) = self.links.get(&conn) else { continue };
            let empty = self.engine.send_queue(id).is_none_or(|queue| queue.is_empty());
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
        let queue = self.engine.send_queue(id).expect("a linked connection is open");
        let count = queue.len().min(link.window);
        if self.oracle.is_some() {
            let unsent: Vec<u8> = queue.runs().flatten().copied().take(count).collect();
            link.unsent.take(&unsent);
        }
        queue.advance(count);
        if !queue.is_empty() {
            link.blocked = true;
            self.feed(Input::Blocked(id));
        } else if std::mem::take(&mut link.blocked) {
            self.feed(Input::Drained(id));
        }
    }

    /// Hands one event to the engine and to the oracle and compares.
    fn feed(&mut self, input: Input) {
        if let Input::Frame(_, frame) = &input {
            self.hint.store(number_in(frame), Ordering::Relaxed);
        }
        if matches!(input, Input::Turn) {
            // An id that is drawn now is no task's.
            self.turns += 1;
            self.hint.store((1 << 40) + 5 * self.turns + 1, Ordering::Relaxed);
        }
        let lengths: Vec<(u64, usize)> = self.lengths();
        let before = self.recall(&input, &lengths);
        let mut actions = Vec::new();
        input.apply(&mut self.engine, self.now, &mut actions);
        self.engine.check();
        self.events += 1;
        let fresh = compare::fresh(self, &lengths, &actions);
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

    /// MOD-04: the unsent frames that this input removes; the number of bytes left then.
    fn recall(&mut self, input: &Input, lengths: &[(u64, usize)]) -> Vec<(u64, usize)> {
        let mut before = lengths.to_vec();
        let Input::Frame(conn, frame) = input else { return before };
        let Some(oracle) = &mut self.oracle else { return before };
        let link = self.links.get_mut(&conn.get()).filter(|link| link.closing.is_none());
        let Some(link) = link else { return before };
        for request in oracle.recalled_by(conn.get(), frame) {
            let said = link.unsent.recall(&request);
            if !said.is_empty() {
                oracle.marks.insert(Mark::Recalled);
                oracle.recalled.entry(request).or_default().extend(said);
            }
        }
        let len = link.unsent.len();
        before.iter_mut().filter(|(at, _)| *at == conn.get()).for_each(|(_, was)| *was = len);
        before
    }

    fn lengths(&mut self) -> Vec<(u64, usize)> {
        let engine = &mut self.engine;
        let len =
            |conn: &u64| (*conn, engine.send_queue(ConnId::new(*conn)).map_or(0, |o| o.len()));
        self.links.keys().map(len).collect()
    }

    /// A job that starts gets its name.
    fn note(&mut self, action: &Action) {
        if let Action::Start { job, tool, arguments, .. } = action {
            let nonce = self.name_started(number_in(arguments.get().as_bytes()));
            assert!(!self.nonces.contains_key(job), "{job} is started twice");
            self.jobs.insert(nonce, *job);
            self.nonces.insert(*job, nonce);
            self.running.insert(nonce);
            if &*tool.name == "initialize" {
                self.beginnings.insert(nonce);
            }
        }
    }

    /// Name of a job that starts, whose arguments have this number; the second time the same.
    fn name_started(&mut self, number: u64) -> u64 {
        let Some(oracle) = &self.oracle else { return self.starts.pop_front().unwrap_or(number) };
        let nonce = oracle.waiting_run(number).unwrap_or(number);
        self.starts.push_back(nonce);
        nonce
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
            | Action::CollectHostStatus { .. }
            | Action::ReadOutput(_)
            | Action::Operate { .. }
            | Action::Store { .. }
            | Action::Load { .. }
            | Action::LookUp(_)
            | Action::Upstream(_)
            | Action::Audit(_) => {}
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
        Loosest::of(&self.settings)
    }

    /// Phase two: no more faults. All peers read, every job obeys, and within a bounded number of
    /// turns everything must be gone: first awaited things, then those with a ttl.
    ///
    /// # Panics
    /// When something is left without an owner.
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
        let listen = self.oracle.as_ref().map_or(requests, Oracle::subscriptions);
        assert_eq!((requests, jobs), (listen, 0), "left after {rounds} turns (RPC-03)");
        let conns: Vec<u64> = self.links.keys().copied().collect();
        conns.into_iter().for_each(|conn| self.lose(conn));
        let Sizes { tasks, timers, .. } = self.engine.sizes();
        for _ in 0..(tasks + timers) * 2 + 4 {
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
