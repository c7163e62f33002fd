//! Inputs: the events of a host as data that owns its parts.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{bits, bytes};
use crate::acp::protocol::{AcpForm, AcpRole, HostStopReason, Speaker};
use crate::action::Action;
use crate::engine::Engine;
use crate::event::{AfterInput, Event, Outcome};
use crate::identity::{Identity, Rights};
use crate::ids::{AskId, CheckId, ConnId, InstanceId, JobId, StatusId};
use crate::log_level::LogLevel;
use crate::outgoing::call::{Caller, OutgoingRequest};
use crate::policy::allow::Grants;
use crate::protocol::role::Role;
use crate::settings::Settings;
use crate::tasks::durable::{LoadId, Seq, TaskOutcome, TaskRecord, Unstored};
use crate::tasks::shared::SharedEvent;
use crate::time::{Instant, Now};
use crate::upstream::approval::Approval;
use crate::upstream::interface::{ProcessEvidence, RemoteNews, UpstreamEvent};
use crate::upstream::manifest::Manifest;

/// One input of an engine: an [`Event`] with its fields in order, or bytes taken from a send queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants and fields are those of Event")]
pub enum Input {
    Opened(ConnId, Identity, Role, #[serde(default)] Rights),
    Granted(ConnId, Grants, Option<Box<str>>),
    OpenedAcp(ConnId, Identity, AcpForm, AcpRole),
    Frame(ConnId, #[serde(with = "bytes")] Vec<u8>),
    TooLong(ConnId, String),
    NotJsonRpc(ConnId, #[serde(with = "bytes")] Vec<u8>),
    Finished(ConnId, AfterInput),
    Closed(ConnId),
    Blocked(ConnId),
    Drained(ConnId),
    Progress(
        JobId,
        #[serde(with = "bits")] f64,
        #[serde(with = "bits::option")] Option<f64>,
        Option<String>,
    ),
    Output(JobId, String),
    Log(JobId, LogLevel, Box<RawValue>),
    Asked(JobId, AskId, Option<ConnId>, OutgoingRequest),
    Escalated(JobId),
    ResourceUpdated(String),
    Call(ConnId, AskId, OutgoingRequest),
    CancelCall(Caller, Option<String>),
    CancelJob(JobId, HostStopReason),
    Notify(Speaker, String, Option<Box<RawValue>>),
    Lingering(JobId),
    Outlasted(JobId, Outcome),
    Done(JobId, Outcome),
    OutputRead(StatusId, Option<Box<RawValue>>),
    HostStatusCollected(StatusId, Box<RawValue>),
    Restored(TaskRecord),
    Durable(Seq),
    Unstored(Seq, Unstored),
    StoreFailed(Unstored),
    Loaded(LoadId, Option<TaskOutcome>),
    Shared(SharedEvent),
    Upstream(UpstreamInput),
    Configured(Arc<Settings>),
    Retire,
    Drain(Instant),
    Turn,
    Tick,
    /// Not an event: the host took this many bytes from a send queue.
    Taken(ConnId, usize),
}

/// An [`UpstreamEvent`] that owns its parts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants and fields are those of UpstreamEvent")]
pub enum UpstreamInput {
    Started { instance: InstanceId, conn: ConnId },
    Known { server: String, manifest: Box<Manifest> },
    Approved { server: String, approval: Option<Box<Approval>> },
    Examined { instance: InstanceId, check: CheckId, processes: ProcessEvidence },
    StraysEnded { instance: InstanceId, check: CheckId, ended: u32, left: u32 },
    Remote { instance: InstanceId, news: RemoteNews<'static> },
    Ended { instance: InstanceId, status: String, stderr: String },
}

impl Input {
    /// The input that an event is.
    #[must_use]
    pub fn new(event: &Event<'_>) -> Self {
        match event {
            Event::Opened { conn, identity, rights, role } => {
                Self::Opened(*conn, identity.clone(), *role, *rights)
            }
            Event::Granted { conn, grants, profile } => {
                Self::Granted(*conn, Grants::clone(grants), profile.clone())
            }
            Event::OpenedAcp { conn, identity, form, side } => {
                Self::OpenedAcp(*conn, identity.clone(), *form, *side)
            }
            Event::Frame { conn, frame } => Self::Frame(*conn, frame.to_vec()),
            Event::TooLong { conn, skeleton } => Self::TooLong(*conn, (*skeleton).to_owned()),
            Event::NotJsonRpc { conn, bytes } => Self::NotJsonRpc(*conn, bytes.to_vec()),
            Event::Finished { conn, then } => Self::Finished(*conn, *then),
            Event::Closed { conn } => Self::Closed(*conn),
            Event::Blocked { conn } => Self::Blocked(*conn),
            Event::Drained { conn } => Self::Drained(*conn),
            Event::Progress { job, progress, total, message } => {
                Self::Progress(*job, *progress, *total, message.map(ToOwned::to_owned))
            }
            Event::Output { job, line } => Self::Output(*job, (*line).to_owned()),
            Event::Log { job, level, data } => Self::Log(*job, *level, (*data).to_owned()),
            Event::Asked { job, ask, conn, request } => {
                Self::Asked(*job, *ask, *conn, request.clone())
            }
            Event::Escalated { job } => Self::Escalated(*job),
            Event::ResourceUpdated { uri } => Self::ResourceUpdated((*uri).to_owned()),
            Event::Call { conn, ask, request } => Self::Call(*conn, *ask, request.clone()),
            Event::CancelCall { caller, reason } => {
                Self::CancelCall(*caller, reason.map(ToOwned::to_owned))
            }
            Event::CancelJob { job, cause } => Self::CancelJob(*job, *cause),
            Event::Notify { from, method, params } => {
                Self::Notify(*from, (*method).to_owned(), params.map(ToOwned::to_owned))
            }
            Event::Lingering { job } => Self::Lingering(*job),
            Event::Outlasted { job, outcome } => Self::Outlasted(*job, outcome.clone()),
            Event::Done { job, outcome } => Self::Done(*job, outcome.clone()),
            Event::OutputRead { read, output } => {
                Self::OutputRead(*read, output.map(ToOwned::to_owned))
            }
            Event::HostStatusCollected { survey, host } => {
                Self::HostStatusCollected(*survey, (*host).to_owned())
            }
            Event::Restored { record } => Self::Restored(record.clone()),
            Event::Durable { upto } => Self::Durable(*upto),
            Event::Unstored { seq, why } => Self::Unstored(*seq, *why),
            Event::StoreFailed { why } => Self::StoreFailed(*why),
            Event::Loaded { load, outcome } => Self::Loaded(*load, outcome.clone()),
            Event::Shared(event) => Self::Shared(event.clone()),
            Event::Upstream(event) => Self::Upstream(UpstreamInput::new(event)),
            Event::Configured { settings } => Self::Configured(Arc::clone(settings)),
            Event::Retire => Self::Retire,
            Event::Drain { by } => Self::Drain(*by),
            Event::Turn => Self::Turn,
            Event::Tick => Self::Tick,
        }
    }

    /// The event that the input is; `None` for [`Input::Taken`].
    #[must_use]
    pub fn event(&self) -> Option<Event<'_>> {
        Some(match self {
            Self::Opened(conn, identity, role, rights) => {
                let identity = identity.clone();
                Event::Opened { conn: *conn, identity, rights: *rights, role: *role }
            }
            Self::Granted(conn, grants, profile) => {
                let grants = Arc::new(grants.clone());
                Event::Granted { conn: *conn, grants, profile: profile.clone() }
            }
            Self::OpenedAcp(conn, identity, form, side) => {
                let identity = identity.clone();
                Event::OpenedAcp { conn: *conn, identity, form: *form, side: *side }
            }
            Self::Frame(conn, frame) => Event::Frame { conn: *conn, frame },
            Self::TooLong(conn, skeleton) => Event::TooLong { conn: *conn, skeleton },
            Self::NotJsonRpc(conn, bytes) => Event::NotJsonRpc { conn: *conn, bytes },
            Self::Finished(conn, then) => Event::Finished { conn: *conn, then: *then },
            Self::Closed(conn) => Event::Closed { conn: *conn },
            Self::Blocked(conn) => Event::Blocked { conn: *conn },
            Self::Drained(conn) => Event::Drained { conn: *conn },
            Self::Progress(job, progress, total, message) => {
                let (progress, total, message) = (*progress, *total, message.as_deref());
                Event::Progress { job: *job, progress, total, message }
            }
            Self::Output(job, line) => Event::Output { job: *job, line },
            Self::Log(job, level, data) => Event::Log { job: *job, level: *level, data },
            Self::Asked(job, ask, conn, request) => {
                Event::Asked { job: *job, ask: *ask, conn: *conn, request: request.clone() }
            }
            Self::Escalated(job) => Event::Escalated { job: *job },
            Self::ResourceUpdated(uri) => Event::ResourceUpdated { uri },
            Self::Call(conn, ask, request) => {
                Event::Call { conn: *conn, ask: *ask, request: request.clone() }
            }
            Self::CancelCall(caller, reason) => {
                Event::CancelCall { caller: *caller, reason: reason.as_deref() }
            }
            Self::CancelJob(job, cause) => Event::CancelJob { job: *job, cause: *cause },
            Self::Notify(from, method, params) => {
                Event::Notify { from: *from, method, params: params.as_deref() }
            }
            Self::Lingering(job) => Event::Lingering { job: *job },
            Self::Outlasted(job, outcome) => {
                Event::Outlasted { job: *job, outcome: outcome.clone() }
            }
            Self::Done(job, outcome) => Event::Done { job: *job, outcome: outcome.clone() },
            Self::OutputRead(read, output) => {
                Event::OutputRead { read: *read, output: output.as_deref() }
            }
            Self::HostStatusCollected(survey, host) => {
                Event::HostStatusCollected { survey: *survey, host }
            }
            Self::Restored(record) => Event::Restored { record: record.clone() },
            Self::Durable(upto) => Event::Durable { upto: *upto },
            Self::Unstored(seq, why) => Event::Unstored { seq: *seq, why: *why },
            Self::StoreFailed(why) => Event::StoreFailed { why: *why },
            Self::Loaded(load, outcome) => Event::Loaded { load: *load, outcome: outcome.clone() },
            Self::Shared(event) => Event::Shared(event.clone()),
            Self::Upstream(input) => Event::Upstream(input.event()),
            Self::Configured(settings) => Event::Configured { settings: Arc::clone(settings) },
            Self::Retire => Event::Retire,
            Self::Drain(by) => Event::Drain { by: *by },
            Self::Turn => Event::Turn,
            Self::Tick => Event::Tick,
            Self::Taken(..) => return None,
        })
    }

    /// Feeds the input to an engine.
    pub fn apply(&self, engine: &mut Engine, now: Now, actions: &mut Vec<Action>) {
        match (self.event(), self) {
            (Some(event), _) => engine.handle(now, event, actions),
            (None, Self::Taken(conn, count)) => {
                if let Some(queue) = engine.send_queue(*conn) {
                    queue.advance(*count);
                }
            }
            (None, _) => {}
        }
    }
}

impl UpstreamInput {
    fn new(event: &UpstreamEvent<'_>) -> Self {
        match *event {
            UpstreamEvent::Started { instance, conn } => Self::Started { instance, conn },
            UpstreamEvent::Known { server, manifest } => {
                Self::Known { server: server.to_owned(), manifest: Box::new(manifest.clone()) }
            }
            UpstreamEvent::Approved { server, approval } => Self::Approved {
                server: server.to_owned(),
                approval: approval.map(|approval| Box::new(approval.clone())),
            },
            UpstreamEvent::Examined { instance, check, processes } => {
                Self::Examined { instance, check, processes }
            }
            UpstreamEvent::StraysEnded { instance, check, ended, left } => {
                Self::StraysEnded { instance, check, ended, left }
            }
            UpstreamEvent::Remote { instance, ref news } => {
                Self::Remote { instance, news: news.clone().into_owned() }
            }
            UpstreamEvent::Ended { instance, status, stderr } => {
                Self::Ended { instance, status: status.to_owned(), stderr: stderr.to_owned() }
            }
        }
    }

    fn event(&self) -> UpstreamEvent<'_> {
        match self {
            &Self::Started { instance, conn } => UpstreamEvent::Started { instance, conn },
            Self::Known { server, manifest } => UpstreamEvent::Known { server, manifest },
            Self::Approved { server, approval } => {
                UpstreamEvent::Approved { server, approval: approval.as_deref() }
            }
            &Self::Examined { instance, check, processes } => {
                UpstreamEvent::Examined { instance, check, processes }
            }
            &Self::StraysEnded { instance, check, ended, left } => {
                UpstreamEvent::StraysEnded { instance, check, ended, left }
            }
            Self::Remote { instance, news } => {
                UpstreamEvent::Remote { instance: *instance, news: news.clone() }
            }
            Self::Ended { instance, status, stderr } => {
                UpstreamEvent::Ended { instance: *instance, status, stderr }
            }
        }
    }
}
