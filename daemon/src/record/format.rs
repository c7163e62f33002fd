//! The form of a recording: one JSON object a line, first the settings, then the events.

use std::sync::Arc;

use ceased_core::acp::protocol::{AcpForm, AcpRole, HostStopReason, Speaker};
use ceased_core::event::{AfterInput, Event};
use ceased_core::ids::{AskId, ConnId, JobId, StatusId};
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::Caller;
use ceased_core::protocol::role::Role;
use ceased_core::tasks::durable::{LoadId, Seq, Unstored};
use ceased_core::time::Instant;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::parts::{Because, Dialled, Ended, Question, Record, Then, Voice, Who};
use super::settings::Recipe;
use super::upstream::UpstreamHappened;

/// One line of a recording.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// The first line: the settings of the engine, and the ids it drew.
    Made { settings: Box<Recipe>, ids: Vec<Uuid> },
    /// An event and everything that came of it.
    Event {
        /// Nanoseconds on the monotonic clock.
        at: u64,
        /// Milliseconds on the wall clock.
        wall: u64,
        event: Box<Happened>,
        /// Ids drawn meanwhile.
        ids: Vec<Uuid>,
        /// Actions, as texts.
        actions: Vec<String>,
        /// Written bytes, by connection.
        out: Vec<(u64, Bytes)>,
    },
    /// So many bytes were taken from a send queue.
    Taken { conn: u64, count: usize },
}

/// Bytes, as text where they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Bytes {
    Text(String),
    Raw(Vec<u8>),
}

impl Bytes {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes);
        text.map_or_else(|_| Self::Raw(bytes.to_vec()), |text| Self::Text(text.to_owned()))
    }

    pub(super) fn len(&self) -> usize {
        self.get().len()
    }

    fn get(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Raw(bytes) => bytes,
        }
    }
}

/// An [`Event`] as data.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Happened {
    Opened {
        conn: u64,
        identity: Who,
        /// How we dialled; nothing where the peer is the client.
        #[serde(default)]
        client: Option<Dialled>,
    },
    Frame {
        conn: u64,
        frame: Bytes,
    },
    Overlong {
        conn: u64,
    },
    Alien {
        conn: u64,
        bytes: Bytes,
    },
    Finished {
        conn: u64,
        then: Then,
    },
    Closed {
        conn: u64,
    },
    Blocked {
        conn: u64,
    },
    Drained {
        conn: u64,
    },
    /// Numbers as their bits, since JSON has no infinity.
    Progress {
        job: u64,
        progress: u64,
        total: Option<u64>,
        message: Option<String>,
    },
    Output {
        job: u64,
        line: String,
    },
    OutputRead {
        read: u64,
        output: Option<Box<RawValue>>,
    },
    Log {
        job: u64,
        level: usize,
        data: Box<RawValue>,
    },
    Asked {
        job: u64,
        ask: u64,
        #[serde(default)]
        conn: Option<u64>,
        request: Question,
    },
    Call {
        conn: u64,
        ask: u64,
        request: Question,
    },
    CancelCall {
        job: Option<u64>,
        ask: u64,
        reason: Option<String>,
    },
    OpenedAcp {
        conn: u64,
        identity: Who,
        /// Whether it cancels as first proposed.
        proposed: bool,
        /// Whether we are the agent.
        agent: bool,
    },
    CancelJob {
        job: u64,
        cause: Because,
    },
    Notify {
        from: Voice,
        method: String,
        params: Option<Box<RawValue>>,
    },
    Lingering {
        job: u64,
    },
    Escalated {
        job: u64,
    },
    ResourceUpdated {
        uri: String,
    },
    Restored {
        record: Box<Record>,
    },
    Durable {
        upto: u64,
    },
    Unstored {
        seq: u64,
        /// Whether there is no room, or else the store is broken.
        full: bool,
    },
    StoreFailed {
        /// Whether there is no room, or else the store is broken.
        full: bool,
    },
    Loaded {
        load: u64,
        outcome: Option<Ended>,
    },
    Outlasted {
        job: u64,
        outcome: Ended,
    },
    Done {
        job: u64,
        outcome: Ended,
    },
    Configured {
        settings: Box<Recipe>,
    },
    Drain {
        by: u64,
    },
    Surveyed(u64, Box<RawValue>),
    Upstream(UpstreamHappened),
    Turn,
    Tick,
}

impl Happened {
    pub(super) fn new(event: &Event<'_>) -> Self {
        match event {
            Event::Opened { conn, identity, role } => {
                let identity = Who::new(identity);
                Self::Opened { conn: conn.get(), identity, client: Dialled::new(role) }
            }
            Event::Frame { conn, frame } => {
                Self::Frame { conn: conn.get(), frame: Bytes::new(frame) }
            }
            Event::TooLong { conn } => Self::Overlong { conn: conn.get() },
            Event::NotJsonRpc { conn, bytes } => {
                Self::Alien { conn: conn.get(), bytes: Bytes::new(bytes) }
            }
            Event::Finished { conn, then } => {
                let then = match then {
                    AfterInput::Answer => Then::Answer,
                    AfterInput::AnswerAndProbe(every) => Then::Probe(*every),
                    AfterInput::AnswerWithin(grace) => Then::Within(*grace),
                };
                Self::Finished { conn: conn.get(), then }
            }
            Event::Closed { conn } => Self::Closed { conn: conn.get() },
            Event::Blocked { conn } => Self::Blocked { conn: conn.get() },
            Event::Drained { conn } => Self::Drained { conn: conn.get() },
            Event::Progress { job, progress, total, message } => Self::Progress {
                job: job.get(),
                progress: progress.to_bits(),
                total: total.map(f64::to_bits),
                message: message.map(str::to_owned),
            },
            Event::OutputRead { read, output } => {
                Self::OutputRead { read: read.get(), output: output.map(ToOwned::to_owned) }
            }
            Event::Output { job, line } => {
                Self::Output { job: job.get(), line: (*line).to_owned() }
            }
            Event::Log { job, level, data } => {
                let level = LogLevel::ALL.iter().position(|known| known == level).unwrap_or(0);
                Self::Log { job: job.get(), level, data: (*data).to_owned() }
            }
            Event::Asked { job, ask, conn, request } => {
                let conn = conn.map(ConnId::get);
                Self::Asked {
                    job: job.get(),
                    ask: ask.get(),
                    conn,
                    request: Question::new(request),
                }
            }
            Event::Call { conn, ask, request } => {
                Self::Call { conn: conn.get(), ask: ask.get(), request: Question::new(request) }
            }
            Event::CancelCall { caller, reason } => {
                let (job, ask) = match caller {
                    Caller::Job { job, ask } => (Some(job.get()), ask.get()),
                    Caller::Host(ask) => (None, ask.get()),
                };
                Self::CancelCall { job, ask, reason: reason.map(str::to_owned) }
            }
            Event::OpenedAcp { conn, identity, form, side } => Self::OpenedAcp {
                conn: conn.get(),
                identity: Who::new(identity),
                proposed: *form == AcpForm::Proposed,
                agent: *side == AcpRole::Agent,
            },
            Event::CancelJob { job, cause } => {
                let cause = match cause {
                    HostStopReason::Feature => Because::Feature,
                    HostStopReason::Limit => Because::Limit,
                    HostStopReason::Host => Because::Host,
                };
                Self::CancelJob { job: job.get(), cause }
            }
            Event::Notify { from, method, params } => {
                let from = match from {
                    Speaker::Job(job) => Voice::Job(job.get()),
                    Speaker::Host(conn) => Voice::Host(conn.get()),
                };
                let params = params.map(ToOwned::to_owned);
                Self::Notify { from, method: (*method).to_owned(), params }
            }
            Event::Lingering { job } => Self::Lingering { job: job.get() },
            Event::Escalated { job } => Self::Escalated { job: job.get() },
            Event::ResourceUpdated { uri } => Self::ResourceUpdated { uri: (*uri).to_owned() },
            Event::Outlasted { job, outcome } => {
                Self::Outlasted { job: job.get(), outcome: Ended::new(outcome) }
            }
            Event::Done { job, outcome } => {
                Self::Done { job: job.get(), outcome: Ended::new(outcome) }
            }
            Event::Restored { record } => Self::Restored { record: Box::new(Record::new(record)) },
            Event::Durable { upto } => Self::Durable { upto: upto.get() },
            Event::Unstored { seq, why } => {
                Self::Unstored { seq: seq.get(), full: *why == Unstored::Full }
            }
            Event::StoreFailed { why } => Self::StoreFailed { full: *why == Unstored::Full },
            Event::Loaded { load, outcome } => {
                Self::Loaded { load: load.get(), outcome: outcome.as_ref().map(Ended::of_task) }
            }
            Event::Configured { settings } => {
                Self::Configured { settings: Box::new(Recipe::new(settings)) }
            }
            Event::HostStatusCollected { survey, host } => {
                Self::Surveyed(survey.get(), (*host).to_owned())
            }
            Event::Drain { by } => Self::Drain { by: by.as_nanos() },
            Event::Upstream(event) => Self::Upstream(UpstreamHappened::new(event)),
            Event::Turn => Self::Turn,
            Event::Tick => Self::Tick,
        }
    }

    /// The event again.
    ///
    /// # Errors
    /// When the settings of a reload make no sense.
    pub(super) fn get(&self) -> Result<Event<'_>, String> {
        let (conn_of, job_of) = (ConnId::new, JobId::new);
        Ok(match self {
            Self::Opened { conn, identity, client } => {
                let identity = identity.get();
                let role = client.as_ref().map_or(Role::Server, Dialled::get);
                Event::Opened { conn: conn_of(*conn), identity, role }
            }
            Self::Frame { conn, frame } => {
                Event::Frame { conn: conn_of(*conn), frame: frame.get() }
            }
            Self::Overlong { conn } => Event::TooLong { conn: conn_of(*conn) },
            Self::Alien { conn, bytes } => {
                Event::NotJsonRpc { conn: conn_of(*conn), bytes: bytes.get() }
            }
            Self::Finished { conn, then } => {
                let then = match then {
                    Then::Answer => AfterInput::Answer,
                    Then::Probe(every) => AfterInput::AnswerAndProbe(*every),
                    Then::Within(grace) => AfterInput::AnswerWithin(*grace),
                };
                Event::Finished { conn: conn_of(*conn), then }
            }
            Self::Closed { conn } => Event::Closed { conn: conn_of(*conn) },
            Self::Blocked { conn } => Event::Blocked { conn: conn_of(*conn) },
            Self::Drained { conn } => Event::Drained { conn: conn_of(*conn) },
            Self::Progress { job, progress, total, message } => Event::Progress {
                job: job_of(*job),
                progress: f64::from_bits(*progress),
                total: total.map(f64::from_bits),
                message: message.as_deref(),
            },
            Self::OutputRead { read, output } => {
                Event::OutputRead { read: StatusId::new(*read), output: output.as_deref() }
            }
            Self::Output { job, line } => Event::Output { job: job_of(*job), line },
            Self::Log { job, level, data } => {
                let level = LogLevel::ALL.get(*level).copied().unwrap_or(LogLevel::Debug);
                Event::Log { job: job_of(*job), level, data }
            }
            Self::Asked { job, ask, conn, request } => {
                let (job, ask) = (job_of(*job), AskId::new(*ask));
                Event::Asked { job, ask, conn: conn.map(conn_of), request: request.get() }
            }
            Self::Call { conn, ask, request } => {
                let (conn, ask) = (conn_of(*conn), AskId::new(*ask));
                Event::Call { conn, ask, request: request.get() }
            }
            Self::CancelCall { job, ask, reason } => {
                let ask = AskId::new(*ask);
                let caller =
                    job.map_or(Caller::Host(ask), |job| Caller::Job { job: job_of(job), ask });
                Event::CancelCall { caller, reason: reason.as_deref() }
            }
            Self::OpenedAcp { conn, identity, proposed, agent } => Event::OpenedAcp {
                conn: conn_of(*conn),
                identity: identity.get(),
                form: if *proposed { AcpForm::Proposed } else { AcpForm::Published },
                side: if *agent { AcpRole::Agent } else { AcpRole::Client },
            },
            Self::CancelJob { job, cause } => {
                let cause = match cause {
                    Because::Feature => HostStopReason::Feature,
                    Because::Limit => HostStopReason::Limit,
                    Because::Host => HostStopReason::Host,
                };
                Event::CancelJob { job: job_of(*job), cause }
            }
            Self::Notify { from, method, params } => {
                let from = match from {
                    Voice::Job(job) => Speaker::Job(job_of(*job)),
                    Voice::Host(conn) => Speaker::Host(conn_of(*conn)),
                };
                Event::Notify { from, method, params: params.as_deref() }
            }
            Self::Lingering { job } => Event::Lingering { job: job_of(*job) },
            Self::Escalated { job } => Event::Escalated { job: job_of(*job) },
            Self::ResourceUpdated { uri } => Event::ResourceUpdated { uri },
            Self::Outlasted { job, outcome } => {
                Event::Outlasted { job: job_of(*job), outcome: outcome.get() }
            }
            Self::Done { job, outcome } => {
                Event::Done { job: job_of(*job), outcome: outcome.get() }
            }
            Self::Restored { record } => Event::Restored { record: record.get()? },
            Self::Durable { upto } => Event::Durable { upto: Seq::new(*upto) },
            Self::Unstored { seq, full } => {
                let why = if *full { Unstored::Full } else { Unstored::Broken };
                Event::Unstored { seq: Seq::new(*seq), why }
            }
            Self::StoreFailed { full } => {
                let why = if *full { Unstored::Full } else { Unstored::Broken };
                Event::StoreFailed { why }
            }
            Self::Loaded { load, outcome } => Event::Loaded {
                load: LoadId::new(*load),
                outcome: outcome.as_ref().map(Ended::get_of_task).transpose()?,
            },
            Self::Configured { settings } => {
                Event::Configured { settings: Arc::new(settings.get()?) }
            }
            Self::Surveyed(survey, host) => {
                Event::HostStatusCollected { survey: StatusId::new(*survey), host }
            }
            Self::Drain { by } => Event::Drain { by: Instant::from_nanos(*by) },
            Self::Upstream(event) => Event::Upstream(event.get()),
            Self::Turn => Event::Turn,
            Self::Tick => Event::Tick,
        })
    }
}
