//! The oracle: a naive model of the view of every peer and the orders to every worker, written from
//! the ledger. Linear searches, only tables that a rule names, no code of the core.
//!
//! It is handed the same inputs as the engine and returns the effects of each: the messages of
//! every peer and the orders to the host, as short texts in no particular order.

mod able;
mod acp;
mod again;
mod asks;
mod beats;
mod calls;
mod client;
mod jobs;
mod modern;
mod parked;
mod rates;
mod remote;
mod requests;
mod state;
mod tasks;
mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::able::Able;
use self::again::Keyed;
pub(super) use self::again::RUN;
use self::asks::Place;
use self::calls::Out;
use self::parked::Parked;
use self::rates::Bucket;
pub use self::state::Task;
use self::state::{Batch, Conn, Drain, Ended, For, Job, Pending, Stage, What};

use ceased_core::event::AfterInput;
use ceased_core::ids::ConnId;
use ceased_core::log_level::LogLevel;
use ceased_core::protocol::role::Role;
use ceased_core::settings::Settings;
use serde_json::value::RawValue;

use super::mark::Mark;
use crate::slow::Id;
use crate::trace::Input;

/// The effects of one input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// Messages, by connection.
    pub told: BTreeMap<u64, Vec<String>>,
    /// Which of them are taken back when that request is cancelled before they are sent (MOD-04).
    pub recallable: BTreeMap<u64, Vec<(String, Id)>>,
    /// Orders to the host.
    pub orders: Vec<String>,
    /// Calls that became tasks because their connection is gone, in this order.
    pub detached: Vec<u64>,
}

/// See the [module](self).
#[derive(Debug, Clone)]
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
    /// Names of tasks on the wire.
    names: BTreeMap<u64, String>,
    next_place: u64,
    /// Calls that wait for a retry.
    parked: Vec<Parked>,
    /// Calls with a key.
    keyed: Vec<Keyed>,
    /// How often each call was run, by the number in its arguments.
    runs: BTreeMap<u64, u64>,
    next_run: u64,
    /// Rates of requests about tasks, by identity.
    buckets: BTreeMap<String, Bucket>,
    /// Calls the host made: where they are.
    host_calls: BTreeMap<u64, u64>,
    next_out: u64,
    /// Timers whose order counts that were armed, ever.
    armed: u64,
    drain: Option<Drain>,
    /// The messages that the next frame removes, by their request (MOD-04).
    pub recalled: BTreeMap<Id, Vec<String>>,
    /// Lines for the connection that is lost next, never sent.
    pub unsent: Vec<String>,
    /// Whose job was started last.
    last_turn: Option<String>,
    /// Identity whose job passed a gate last, while a job is at the gate.
    last_at_gate: BTreeMap<String, String>,
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
            parked: Vec::new(),
            keyed: Vec::new(),
            runs: BTreeMap::new(),
            next_run: 0,
            buckets: BTreeMap::new(),
            host_calls: BTreeMap::new(),
            next_out: 1,
            armed: 0,
            drain: None,
            recalled: BTreeMap::new(),
            unsent: Vec::new(),
            last_turn: None,
            last_at_gate: BTreeMap::new(),
            expected: Expected::default(),
            marks: BTreeSet::new(),
        }
    }

    /// The effects of `input`. `unsent` is how many bytes wait for the connection it is about,
    /// or for the one its job reports to: how much a peer has read is not for the oracle to know.
    pub fn input(&mut self, now: u64, wall: u64, input: &Input, unsent: usize) -> Expected {
        (self.now, self.wall) = (now, wall);
        let crowded = unsent >= self.settings.limits.write_buffer_bytes;
        match input {
            Input::Opened(conn, identity, role, _) => {
                self.open(conn.get(), &identity.to_string(), *role);
            }
            Input::Frame(conn, frame) => self.frame(conn.get(), frame, unsent),
            Input::TooLong(conn, skeleton) => self.skipped(conn.get(), skeleton, -32600),
            Input::NotJsonRpc(conn, bytes) => self.alien(conn.get(), bytes),
            Input::Finished(conn, then) => self.finish(conn.get(), *then),
            Input::Closed(conn) => self.gone(conn.get()),
            Input::Blocked(conn) => {
                let at = now + nanos(self.settings.limits.write_stall);
                if let Some(conn) = self.conns.get_mut(&conn.get()) {
                    self.armed += 1;
                    conn.stall = Some((at, self.armed));
                }
            }
            Input::Drained(conn) => self.drained(conn.get()),
            Input::Progress(job, progress, total, message) => {
                self.progress(job.get(), *progress, *total, message.as_deref(), crowded);
            }
            Input::Output(job, line) => self.output(job.get(), line),
            Input::Log(job, level, data) => self.log(job.get(), *level, data.get(), crowded),
            Input::Asked(job, call, conn, ask) => {
                self.ask(job.get(), call.get(), conn.map(ConnId::get), ask);
            }
            Input::Call(conn, call, ask) => self.host_asks(conn.get(), call.get(), ask),
            Input::CancelCall(caller, _) => self.unask(*caller),
            Input::Lingering(job) => self.lingering(job.get()),
            Input::Outlasted(job, outcome) => self.outlasted(job.get(), outcome),
            Input::Done(job, outcome) => self.done(job.get(), outcome),
            Input::Configured(settings) => self.configure(settings),
            Input::OpenedAcp(conn, identity, form, side) => {
                self.open_acp(conn.get(), &identity.to_string(), *form, *side);
            }
            Input::CancelJob(job, cause) => self.cancel_job(job.get(), *cause),
            Input::Notify(from, method, params) => {
                self.notify(*from, method, params.as_deref().map(RawValue::get));
            }
            Input::Restored(_)
            | Input::Durable(_)
            | Input::Unstored(..)
            | Input::Shared(_)
            | Input::Retire
            | Input::StoreFailed(_)
            | Input::Loaded(..) => {
                unreachable!("the simulator has no store")
            }
            Input::Escalated(_)
            | Input::ResourceUpdated(_)
            | Input::Granted(..)
            | Input::OutputRead(..)
            | Input::HostStatusCollected(..)
            | Input::Upstream(_) => {
                unreachable!("the simulator has no resources, profiles, outputs and upstreams")
            }
            Input::Drain(by) => self.drain(by.as_nanos()),
            Input::Turn => self.turn(),
            Input::Tick => self.tick(),
            Input::Taken(..) => {}
        }
        self.exit_if_drained();
        self.recalled.clear();
        self.unsent.clear();
        std::mem::take(&mut self.expected)
    }

    /// Whose messages a report of this job becomes.
    #[must_use]
    pub fn reports_to(&self, nonce: u64) -> Option<u64> {
        self.jobs.iter().find(|job| job.nonce == nonce).map(|job| job.conn)
    }

    /// Name of a task on the wire; the judge has read it in the answer to its creation.
    pub fn name(&mut self, nonce: u64, id: &str) {
        self.names.insert(nonce, id.to_owned());
    }

    /// A cursor was handed out for the rest of the last list.
    pub fn remember_cursor(&mut self, conn: u64, cursor: &str, after: Option<u64>) {
        let Some(identity) = self.conns.get(&conn).map(|conn| conn.identity.clone()) else {
            return;
        };
        let place = self.tasks.iter().find(|task| Some(task.nonce) == after);
        let place = place.map_or(0, |task| task.place);
        self.cursors.insert(cursor.to_owned(), (identity, place));
    }

    /// A cursor that was given to another identity.
    #[must_use]
    pub fn foreign_cursor(&self, identity: &str) -> Option<&str> {
        let foreign = |(_, (owner, _)): &(&String, &(String, u64))| owner != identity;
        self.cursors.iter().rfind(foreign).map(|(cursor, _)| cursor.as_str())
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

    /// Requests that wait for nothing but their cancel.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        let pending = self.conns.values().flat_map(|conn| &conn.pending);
        pending.filter(|pending| pending.what == What::Cancel).count()
    }

    /// Questions of this job that any viewer may answer.
    #[must_use]
    pub fn open_questions(&self, nonce: u64) -> Vec<u64> {
        let job = self.jobs.iter().find(|job| job.nonce == nonce);
        job.map(|job| job.questions().map(|(call, _)| call).collect()).unwrap_or_default()
    }

    /// The state of the world.
    #[must_use]
    pub const fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Whether a shutdown has begun.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// A peer was given up because too much waits for it, which the oracle does not count.
    pub fn give_up(&mut self, conn: u64) {
        if let Some(entry) = self.conns.get_mut(&conn) {
            entry.ended = Ended::Closing { flushes: false };
        }
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.insert(mark);
    }

    fn order(&mut self, order: String) {
        self.expected.orders.push(order);
    }

    /// Marks the messages that a cancel of that request removes while they are unsent (MOD-04).
    fn tell_for(&mut self, conn: u64, what: String, request: Option<&Id>) {
        if let Some(request) = request {
            let recallable = self.expected.recallable.entry(conn).or_default();
            recallable.push((what.clone(), request.clone()));
        }
        self.tell(conn, what);
    }

    fn tell(&mut self, conn: u64, what: String) {
        let open = |conn: &Conn| !matches!(conn.ended, Ended::Closing { .. });
        if self.conns.get(&conn).is_some_and(open) {
            self.expected.told.entry(conn).or_default().push(what);
        }
    }

    fn open(&mut self, conn: u64, identity: &str, role: Role) {
        let limits = &self.settings.limits;
        let admitted = self.conns.values().filter(|conn| conn.is_admitted);
        let own = admitted.clone().filter(|conn| conn.identity == identity).count();
        let full = if admitted.count() >= limits.connections_max {
            Some("connections")
        } else {
            (own >= limits.connections_per_identity_max).then_some("connections_per_identity")
        };
        let fresh = Conn {
            identity: identity.to_owned(),
            is_admitted: full.is_none(),
            rules: None,
            ended: Ended::No,
            level: LogLevel::Info,
            pending: Vec::new(),
            batches: Vec::new(),
            stall: None,
            linger: None,
            lingering: 0,
            probes: 0,
            able: Able::default(),
            stateless: false,
            calls: Vec::new(),
            remote: Vec::new(),
            client: None,
            acp: None,
        };
        self.conns.insert(conn, fresh);
        if let Role::Client(role) = role {
            return self.begin_session(conn, role, full.is_some());
        }
        if let Some(limit) = full {
            self.mark(match limit {
                "connections" => Mark::TooManyConnections,
                _ => Mark::TooManyOfOneIdentity,
            });
            self.tell(conn, format!("null:E -31003 {limit}"));
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

    /// The number of a timer that is armed now: of those that are due at the same time it comes
    /// after the others.
    const fn arm(&mut self) -> u64 {
        self.armed += 1;
        self.armed
    }

    fn close_if_finished(&mut self, conn: u64) {
        self.close_if_finished_as(conn, "Finished");
    }

    fn close_if_finished_as(&mut self, conn: u64, why: &'static str) {
        if self.drain.as_ref().is_some_and(|drain| drain.tells) {
            return;
        }
        let idle =
            |conn: &Conn| matches!(conn.ended, Ended::Finished(_)) && conn.pending.is_empty();
        if self.conns.get(&conn).is_some_and(idle) {
            self.close(conn, why, true);
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
            AfterInput::AnswerWithin(grace) => Some(now + nanos(grace)),
        };
        let remote = std::mem::take(&mut entry.remote).into_iter().map(|remote| remote.out);
        let lost = std::mem::take(&mut entry.calls).into_iter().chain(remote).collect();
        if !entry.pending.is_empty() {
            self.mark(Mark::FinishedWhileWaiting);
        }
        // It has half-closed, so requests to it are not answered any more.
        self.lose_calls(lost);
        self.end_subscriptions(conn);
        if let Some(entry) = self.conns.get_mut(&conn) {
            entry.lingering = entry.pending.len();
        }
        self.close_if_finished(conn);
    }

    /// A peer is gone: its calls stop, its waits end, its tasks go on.
    fn gone(&mut self, conn: u64) {
        let Some(entry) = self.conns.remove(&conn) else { return };
        self.abandon_requests(conn, entry.pending);
        let remote = entry.remote.into_iter().map(|remote| remote.out);
        self.lose_calls(entry.calls.into_iter().chain(remote).collect());
        self.unpark_unknown(conn);
    }

    /// By their ids, whatever came first.
    fn abandon_requests(&mut self, conn: u64, mut pending: Vec<Pending>) {
        pending.sort_by(|one, other| one.id.cmp(&other.id));
        for Pending { id, token, what, batch, listens, .. } in pending {
            match what {
                What::Job(job) => self.requestor_gone(job),
                What::Task(task) => self.forget_waiter(task, conn, &id),
                What::Cancel => self.unlisten(conn, &id, listens),
            }
            let answer = self.cut_off(conn, &token, "Disconnected");
            self.settle(conn, batch, answer);
        }
    }

    fn configure(&mut self, settings: &Arc<Settings>) {
        self.settings = Arc::clone(settings);
        let ready =
            |conn: &Conn| conn.rules.is_some() && conn.client.is_none() && conn.acp.is_none();
        let ready: Vec<u64> =
            self.conns.iter().filter(|(_, conn)| ready(conn)).map(|(at, _)| *at).collect();
        for conn in ready {
            self.tell(conn, "changed".to_owned());
        }
        self.tell_of_tools();
    }
}

/// A span in nanoseconds.
#[must_use]
pub fn nanos(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
