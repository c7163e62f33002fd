//! Traces: the inputs of an engine, as data for a replay (DET-01).

use std::sync::Arc;

use ceased_core::acp::protocol::{AcpForm, AcpRole, HostStopReason, Speaker};
use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::{AfterInput, Event, Outcome};
use ceased_core::identity::Identity;
use ceased_core::ids::{AskId, ConnId, JobId};
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::{Caller, OutgoingRequest};
use ceased_core::protocol::role::Role;
use ceased_core::settings::Settings;
use ceased_core::tasks::durable::{LoadId, Seq, TaskOutcome, TaskRecord, Unstored};
use ceased_core::time::{Instant, Now};
use serde_json::value::RawValue;

use crate::world::Rigged;

/// One input from a host.
#[derive(Debug, Clone)]
pub enum Input {
    /// See [`Event`].
    Opened(ConnId, Identity, Role),
    /// See [`Event`].
    Frame(ConnId, Vec<u8>),
    /// See [`Event`].
    Overlong(ConnId),
    /// See [`Event`].
    Alien(ConnId, Vec<u8>),
    /// See [`Event`].
    Finished(ConnId, AfterInput),
    /// See [`Event`].
    Closed(ConnId),
    /// See [`Event`].
    Blocked(ConnId),
    /// See [`Event`].
    Drained(ConnId),
    /// See [`Event`].
    Progress(JobId, f64, Option<f64>, Option<String>),
    /// See [`Event`].
    Output(JobId, String),
    /// See [`Event`].
    Log(JobId, LogLevel, Box<RawValue>),
    /// See [`Event`].
    Asked(JobId, AskId, OutgoingRequest),
    /// [`Event::Asked`] of that connection.
    AskedOf(JobId, AskId, ConnId, OutgoingRequest),
    /// See [`Event`].
    OpenedAcp(ConnId, Identity, AcpForm, AcpRole),
    /// See [`Event`].
    CancelJob(JobId, HostStopReason),
    /// See [`Event`].
    Notify(Speaker, String, Option<Box<RawValue>>),
    /// See [`Event`].
    Call(ConnId, AskId, OutgoingRequest),
    /// See [`Event`].
    CancelCall(Caller, Option<String>),
    /// See [`Event`].
    Lingering(JobId),
    /// See [`Event`].
    Outlasted(JobId, Outcome),
    /// See [`Event`].
    Done(JobId, Outcome),
    /// See [`Event`].
    Restored(TaskRecord),
    /// See [`Event`].
    Durable(Seq),
    /// See [`Event`].
    Unstored(Seq, Unstored),
    /// The host reports that the store has failed.
    StoreFailed(Unstored),
    /// See [`Event`].
    Loaded(LoadId, Option<TaskOutcome>),
    /// See [`Event`].
    Configured(Arc<Settings>),
    /// See [`Event`].
    Drain(Instant),
    /// See [`Event`].
    Turn,
    /// See [`Event`].
    Tick,
    /// Not an event: the host took this many bytes from a send queue.
    Taken(ConnId, usize),
}

impl Input {
    /// Feeds the input to an engine.
    pub fn apply(&self, engine: &mut Engine, now: Now, actions: &mut Vec<Action>) {
        let event = match self {
            Self::Opened(conn, identity, role) => {
                Event::Opened { conn: *conn, identity: identity.clone(), role: *role }
            }
            Self::Frame(conn, frame) => Event::Frame { conn: *conn, frame },
            Self::Overlong(conn) => Event::TooLong { conn: *conn },
            Self::Alien(conn, bytes) => Event::NotJsonRpc { conn: *conn, bytes },
            Self::Finished(conn, then) => Event::Finished { conn: *conn, then: *then },
            Self::Closed(conn) => Event::Closed { conn: *conn },
            Self::Blocked(conn) => Event::Blocked { conn: *conn },
            Self::Drained(conn) => Event::Drained { conn: *conn },
            Self::Progress(job, progress, total, message) => Event::Progress {
                job: *job,
                progress: *progress,
                total: *total,
                message: message.as_deref(),
            },
            Self::Output(job, line) => Event::Output { job: *job, line },
            Self::Log(job, level, data) => Event::Log { job: *job, level: *level, data },
            Self::Asked(job, ask, request) => {
                Event::Asked { job: *job, ask: *ask, conn: None, request: request.clone() }
            }
            Self::AskedOf(job, ask, conn, request) => {
                let (conn, request) = (Some(*conn), request.clone());
                Event::Asked { job: *job, ask: *ask, conn, request }
            }
            Self::OpenedAcp(conn, identity, form, side) => {
                let identity = identity.clone();
                Event::OpenedAcp { conn: *conn, identity, form: *form, side: *side }
            }
            Self::CancelJob(job, cause) => Event::CancelJob { job: *job, cause: *cause },
            Self::Notify(from, method, params) => {
                Event::Notify { from: *from, method, params: params.as_deref() }
            }
            Self::Call(conn, ask, request) => {
                Event::Call { conn: *conn, ask: *ask, request: request.clone() }
            }
            Self::CancelCall(caller, reason) => {
                Event::CancelCall { caller: *caller, reason: reason.as_deref() }
            }
            Self::Lingering(job) => Event::Lingering { job: *job },
            Self::Outlasted(job, outcome) => {
                Event::Outlasted { job: *job, outcome: outcome.clone() }
            }
            Self::Done(job, outcome) => Event::Done { job: *job, outcome: outcome.clone() },
            Self::Restored(record) => Event::Restored { record: record.clone() },
            Self::Durable(upto) => Event::Durable { upto: *upto },
            Self::Unstored(seq, why) => Event::Unstored { seq: *seq, why: *why },
            Self::StoreFailed(why) => Event::StoreFailed { why: *why },
            Self::Loaded(load, outcome) => Event::Loaded { load: *load, outcome: outcome.clone() },
            Self::Configured(settings) => Event::Configured { settings: Arc::clone(settings) },
            Self::Drain(by) => Event::Drain { by: *by },
            Self::Turn => Event::Turn,
            Self::Tick => Event::Tick,
            Self::Taken(conn, count) => {
                if let Some(queue) = engine.send_queue(*conn) {
                    queue.advance(*count);
                }
                return;
            }
        };
        engine.handle(now, event, actions);
    }
}

/// Inputs of an engine with their times.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// The inputs in order.
    pub inputs: Vec<(Now, Input)>,
}

impl Trace {
    /// Feeds all inputs to a fresh engine and returns, line by line, its actions and the bytes of
    /// every send queue after every event.
    #[must_use]
    pub fn replay(&self, settings: &Arc<Settings>, mint: Rigged) -> Vec<String> {
        let mut engine = Engine::new(Arc::clone(settings), Box::new(mint));
        let mut conns = Vec::new();
        let mut said = Vec::new();
        for (now, input) in &self.inputs {
            if let Input::Opened(conn, ..) | Input::OpenedAcp(conn, ..) = input {
                conns.push(*conn);
            }
            let mut actions = Vec::new();
            input.apply(&mut engine, *now, &mut actions);
            said.push(format!("{input:?} -> {actions:?}"));
            for conn in &conns {
                if let Some(queue) = engine.send_queue(*conn) {
                    let unsent: Vec<u8> = queue.runs().flatten().copied().collect();
                    said.push(format!("{conn} {}", String::from_utf8_lossy(&unsent)));
                }
            }
            said.push(format!("{:?} {:?}", engine.counters(), engine.deadline()));
        }
        said
    }
}

/// FNV-1a over lines: one number to print and compare.
#[must_use]
pub fn hash(lines: &[String]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in lines.iter().flat_map(|line| line.bytes().chain([b'\n'])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}
