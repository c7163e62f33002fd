//! Actions: everything the engine wants done.

use crate::reason::{CloseReason, StopReason};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde_json::value::RawValue;

use crate::identity::{Identity, Rights};
use crate::ids::{ConnId, InstanceId, JobId, RequestId, StatusId, TaskId};
use crate::json::raw::Json;
use crate::outgoing::call::{Answer, Caller, Refusal};
use crate::outgoing::remote_task::RemoteState;
use crate::policy::abuse::AbusePattern;
use crate::protocol::revision::Dialect;
use crate::protocol::trace_context::TraceContext;
use crate::tasks::durable::{LoadId, RecordKey, Seq, StoreWrite, Unstored};
use crate::tasks::shared::Lookup;
use crate::tasks::status::Status;
use crate::time::Instant;
use crate::tool::{StopStep, Tool};
use crate::upstream::interface::{UpstreamAction, UpstreamReceipt};

/// Something to be done by the host, in the order given.
///
/// Deliberately not `#[non_exhaustive]`: a host must carry out every action, and a host that ignores
/// a new one would not keep the promises of the engine. A new action is a new major version.
#[derive(Debug)]
pub enum Action {
    /// Run this job and report [`Done`](crate::event::Event::Done) when nothing of it is left.
    Start {
        /// Its id.
        job: JobId,
        /// The tool to run.
        tool: Arc<Tool>,
        /// The arguments: the JSON text of an object that passed the tool's check.
        arguments: Json,
        /// The task it works for, if any. `None` as well while a call that becomes a task is not
        /// one for certain (DUR-01), unless its tool [changes nothing](Tool::read_only).
        task: Option<TaskId>,
    },
    /// Take one step to stop this job.
    Stop {
        /// The job to stop.
        job: JobId,
        /// The step: flag, SIGTERM, SIGKILL or give up.
        step: StopStep,
        /// Why the job is stopped.
        why: StopReason,
    },
    /// A call has ended; said once for each.
    Tell {
        /// Caller that made it.
        caller: Caller,
        /// The answer, or the reason for which there is none.
        answer: Answer,
    },
    /// The peer is busy with a call.
    TellProgress {
        /// Caller that made it.
        caller: Caller,
        /// The params of the peer's progress notification.
        params: Box<RawValue>,
    },
    /// An ACP peer sent a notification the host wants to hear of.
    Notified {
        /// The connection.
        conn: ConnId,
        /// The method.
        method: Box<str>,
        /// The `params` member.
        params: Option<Box<RawValue>>,
    },
    /// A call was not cancelled, and nothing was sent.
    RefuseCancel {
        /// Caller that made it.
        caller: Caller,
        /// Why not.
        refusal: Refusal,
    },
    /// Carry this write out after all before it, and report [`Durable`] when it is on disk or
    /// [`Unstored`] when it was not carried out. With
    /// [`TaskPolicy::durable`](crate::limits::TaskPolicy::durable) alone (DUR-01).
    ///
    /// [`Durable`]: crate::event::Event::Durable
    /// [`Unstored`]: crate::event::Event::Unstored
    Store {
        /// Its number.
        seq: Seq,
        /// The write.
        write: Box<StoreWrite>,
    },
    /// Read the outcome of this task, which is in the store and not in memory, and report
    /// [`Loaded`](crate::event::Event::Loaded).
    Load {
        /// The load's number.
        load: LoadId,
        /// Of which task, and where its record is.
        key: RecordKey,
    },
    /// Read records of the table that several engines share, as it is from now on, and report
    /// [`Found`](crate::tasks::shared::SharedEvent::Found). With
    /// [`TaskPolicy::shared`](crate::limits::TaskPolicy::shared) alone.
    LookUp(Box<Lookup>),
    /// The send queue of this connection is no longer empty.
    Flush {
        /// The connection.
        conn: ConnId,
    },
    /// Send the content of the send queue if the reason allows it, close the connection, and report
    /// [`Closed`](crate::event::Event::Closed).
    Close {
        /// The connection.
        conn: ConnId,
        /// Why the connection is closed.
        why: CloseReason,
    },
    /// A peer asks for the status of the host. To be answered by exactly one
    /// [`Surveyed`](crate::event::Event::HostStatusCollected), soon.
    CollectHostStatus {
        /// Its number.
        survey: StatusId,
        /// The jobs whose processes the viewer may see.
        jobs: Vec<JobId>,
        /// The instances of servers that the viewer may see.
        instances: Vec<InstanceId>,
        /// Identity whose ended jobs the viewer may see; `None`: all (TSK-39).
        viewer: Option<Identity>,
        /// Whether the viewer asks for the calls that have ended.
        ended: bool,
    },
    /// A peer reads the output of jobs. To be answered by exactly one
    /// [`OutputRead`](crate::event::Event::OutputRead), soon. With
    /// [`Settings::outputs`](crate::settings::Settings::outputs) alone.
    ReadOutput(Box<OutputQuery>),
    /// An operator orders something of the host, and was answered.
    Operate {
        /// The connection.
        conn: ConnId,
        /// Whose order it is.
        identity: Identity,
        /// The order.
        order: OperatorOrder,
    },
    /// Do this with the process tree of an upstream.
    Upstream(UpstreamAction),
    /// Something an operator may want to read.
    Audit(AuditEvent),
    /// Nothing is left to do: flush and exit.
    Exit,
}

/// A look at the output of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputQuery {
    /// Its number.
    pub read: StatusId,
    /// Wanted output.
    pub request: OutputRequest,
    /// Peer that looks.
    pub viewer: Viewer,
}

/// Output that a peer wants to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputRequest {
    /// The outputs that it may read.
    List,
    /// All that is kept of one.
    Whole(OutputOf),
    /// The bytes after these positions in the two streams of one job.
    Part {
        /// The call or task that printed it.
        of: OutputOf,
        /// Places in standard output and in standard error.
        from: [u64; 2],
        /// Limits the answer to output of this last time.
        since: Option<Duration>,
    },
    /// A link by which the viewer opens the live view of the host as itself.
    View,
    /// The login of the viewer at a server by URL, or for an operator that of all.
    Login {
        /// Name of the server.
        server: Box<str>,
        /// The wish.
        wish: LoginWish,
    },
    /// Standard error of an instance of a server from a place on.
    Server {
        /// Name of the server.
        name: Box<str>,
        /// The instance; the oldest one that is kept if `None`.
        instance: Option<InstanceId>,
        /// The place.
        from: u64,
        /// Limits the answer to output of this last time.
        since: Option<Duration>,
    },
}

/// The wish of a peer about its login at a server by URL.
#[derive(Clone, PartialEq, Eq)]
pub enum LoginWish {
    /// To be told where to log in.
    Begin,
    /// To keep these tokens, as JSON text.
    Keep(Box<str>),
    /// To end it.
    End,
}

impl fmt::Debug for LoginWish {
    /// Without the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Begin => "Begin",
            Self::Keep(_) => "Keep(..)",
            Self::End => "End",
        })
    }
}

/// The job of an output: by its number, by its task, or by both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputOf {
    /// Number of the job, if it was named or its task has one.
    pub job: Option<JobId>,
    /// The task that was named.
    pub task: Option<TaskId>,
}

/// A peer that reads the output of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    /// Its identity.
    pub identity: Identity,
    /// Its rights under that identity.
    pub rights: Rights,
    /// Its connection.
    pub conn: ConnId,
    /// Whether it is an operator, which may see everything.
    pub sees_all: bool,
}

/// An order of an operator to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorOrder {
    /// Read the configuration again.
    Reload,
    /// Take no further work, and shut down when the running work has ended.
    Drain,
    /// Shut down.
    ShutDown,
    /// Replace the instances of a server, which the engine does itself.
    Restart,
    /// Approve the tools of a server as they are now, which the engine does itself.
    Approve,
}

impl OperatorOrder {
    /// The method that gives the order.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Reload => "ceased/reload",
            Self::Drain => "ceased/drain",
            Self::ShutDown => "ceased/shutdown",
            Self::Restart => "ceased/restart",
            Self::Approve => "ceased/approve",
        }
    }
}

/// They are moved about a lot.
const _: () = assert!(size_of::<Action>() <= 112);

/// Something an operator may want to read. Texts of peers are capped and free of control
/// characters (CAN-12).
#[derive(Debug, Clone, PartialEq)]
pub enum AuditEvent {
    /// A plain call was cancelled by its requestor (CAN-12).
    CallCancelled {
        /// The connection.
        conn: ConnId,
        /// Identity of the peer.
        identity: Identity,
        /// Id of the request.
        request: RequestId,
        /// The method of the request.
        tool: Arc<str>,
        /// The job behind it; `None` for a blocked `tasks/result` and for a subscription.
        job: Option<JobId>,
        /// The method that asked for it: a protocol may have several.
        method: &'static str,
        /// Reason that the requestor gave.
        reason: Option<Box<str>>,
    },
    /// A task was cancelled (CAN-12).
    TaskCancelled {
        /// The connection.
        conn: ConnId,
        /// Identity of the peer.
        identity: Identity,
        /// Id of the task.
        task: TaskId,
        /// The job behind it.
        job: Option<JobId>,
        /// Name of its tool.
        tool: Arc<str>,
        /// The method that asked for it: a task can be cancelled by the number of its job, too,
        /// and by the request that was to create it.
        method: &'static str,
        /// Reason that the requestor gave.
        reason: Option<Box<str>>,
    },
    /// A job was cancelled by its number (CAN-12).
    JobCancelled {
        /// The connection.
        conn: ConnId,
        /// Identity of the peer.
        identity: Identity,
        /// The job.
        job: JobId,
        /// Name of its tool.
        tool: Arc<str>,
        /// Reason that the requestor gave.
        reason: Option<Box<str>>,
    },
    /// A cancellation named nothing that could be cancelled, or was malformed (CAN-09, CAN-14).
    CancelIgnored {
        /// The connection.
        conn: ConnId,
    },
    /// A job has ended after it was told to stop, or before it began.
    Ceased(Box<Receipt>),
    /// A job that was told to stop outlasts its last step. It goes on being stopped, and a second
    /// receipt follows when it has ended.
    Outlasted(Box<Receipt>),
    /// A relayed job has ended; its receipt follows if it was told to stop.
    RelayEnded(Box<RelayEnd>),
    /// A request that no job worked on has been answered or given up. Told only where the host
    /// records spans (OBS-01).
    RequestEnded(Box<RequestEnd>),
    /// A handler does not look at its cancellation flag; its thread is lost until it does.
    Abandoned {
        /// The job.
        job: JobId,
        /// Name of its tool.
        tool: Arc<str>,
    },
    /// A task at a peer began, changed or is over (TSK-42).
    RemoteTask {
        /// The connection.
        conn: ConnId,
        /// The peer's id for it.
        task: String,
        /// The method of the call it came of.
        method: Box<str>,
        /// The tool of that call, if it named one.
        label: Option<String>,
        /// Where it stands.
        state: RemoteState,
    },
    /// The store does not take writes: no task is created until it does again (DUR-01).
    StoreFailed {
        /// Why the store takes no writes.
        why: Unstored,
    },
    /// The store has taken everything it had not taken before.
    StoreRecovered,
    /// A limit refused something.
    Refused {
        /// The connection.
        conn: ConnId,
        /// Identity that was refused.
        identity: Identity,
        /// Which limit, by its name in the configuration.
        limit: &'static str,
    },
    /// A task was created (TSK-41).
    TaskCreated {
        /// The connection.
        conn: ConnId,
        /// Identity of the peer.
        identity: Identity,
        /// Id of the task.
        task: TaskId,
        /// The job behind it.
        job: JobId,
        /// Name of the tool.
        tool: Arc<str>,
        /// How many tasks of this identity have not ended, with this one.
        live: usize,
    },
    /// A task has ended (TSK-41).
    TaskEnded {
        /// Owner of the task.
        identity: Identity,
        /// Id of the task.
        task: TaskId,
        /// Name of the tool.
        tool: Arc<str>,
        /// The status it ended in.
        status: Status,
    },
    /// The result of a task was read (TSK-41).
    TaskRetrieved {
        /// The connection.
        conn: ConnId,
        /// Identity of the recipient.
        identity: Identity,
        /// Id of the task.
        task: TaskId,
        /// Name of the tool.
        tool: Arc<str>,
        /// The method that asked for it.
        method: &'static str,
    },
    /// The ttl of a task was over, and it is forgotten (TSK-41).
    TaskExpired {
        /// Owner of the task.
        identity: Identity,
        /// Id of the task.
        task: TaskId,
        /// Name of the tool.
        tool: Arc<str>,
        /// Where it stood.
        status: Status,
    },
    /// An identity did something too often; said once a window (TSK-41).
    Suspicious {
        /// On which connection it did it last.
        conn: ConnId,
        /// Identity that shows the pattern.
        identity: Identity,
        /// The pattern.
        pattern: AbusePattern,
        /// How often, within the window.
        count: u32,
        /// How long that window is.
        window: Duration,
    },
}

/// The receipt of a cancel: the end of a job that was told to stop.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Receipt {
    /// The job.
    pub job: JobId,
    /// Name of its tool.
    pub tool: Arc<str>,
    /// Whose it was.
    pub owner: Identity,
    /// The connection it came from.
    pub conn: ConnId,
    /// The task it worked for.
    pub task: Option<TaskId>,
    /// Why it was stopped.
    pub why: StopReason,
    /// The cancel that asked for it; `None` for a stop by the daemon.
    pub cancel: Option<Cancel>,
    /// The last step taken; `None` for a job that had not begun.
    pub stage: Option<StopStep>,
    /// When it was told to stop.
    pub since: Instant,
    /// The trace context of its request.
    pub trace: Option<Arc<TraceContext>>,
    /// Server, instance and proof of a relayed request.
    pub upstream: Option<Box<UpstreamReceipt>>,
}

impl AuditEvent {
    /// A request was cancelled by its requestor, which has said so by `method`.
    pub(crate) fn call_cancelled(
        cancel: Cancel,
        (tool, job): (Arc<str>, Option<JobId>),
        method: &'static str,
    ) -> Self {
        let Cancel { by: identity, conn, request, reason } = cancel;
        let request = request.unwrap_or(RequestId::Null);
        Self::CallCancelled { conn, identity, request, tool, job, method, reason }
    }
}

/// The end of a relayed job.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RelayEnd {
    /// The job.
    pub job: JobId,
    /// Name of its tool, as clients know it; the method of another request.
    pub tool: Arc<str>,
    /// Name of its server.
    pub server: Box<str>,
    /// Whose it was.
    pub owner: Identity,
    /// The task it worked for.
    pub task: Option<TaskId>,
    /// The method of its request.
    pub method: Box<str>,
    /// Id of its request, if one waits for it.
    pub request: Option<RequestId>,
    /// The connection it came from.
    pub conn: ConnId,
    /// The revision of its request.
    pub dialect: &'static Dialect,
    /// The trace context of its request.
    pub trace: Option<Arc<TraceContext>>,
    /// Its outcome.
    pub outcome: RelayOutcome,
    /// Whether it was told to stop, so that a receipt follows.
    pub is_stopped: bool,
    /// When it was asked for.
    pub asked: Instant,
    /// When its request was written to the server.
    pub sent: Option<Instant>,
}

/// The end of a request that no job worked on: one that the engine answers itself, or that an agent
/// works on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RequestEnd {
    /// The connection it came from.
    pub conn: ConnId,
    /// Whose it was.
    pub owner: Identity,
    /// Its method.
    pub method: Box<str>,
    /// Its id; `None` for a turn that has outlasted its request.
    pub request: Option<RequestId>,
    /// The revision of its request; `None` with an agent.
    pub dialect: Option<&'static Dialect>,
    /// Name of the agent that worked on it.
    pub agent: Option<Box<str>>,
    /// The trace context of its sender.
    pub trace: Option<Box<TraceContext>>,
    /// Its outcome.
    pub outcome: RequestOutcome,
    /// When it arrived.
    pub asked: Instant,
    /// When it was told to stop.
    pub stopped: Option<Instant>,
}

/// How a request ended that no job worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// With a result.
    Answered,
    /// With an error of this code, if it is known.
    Failed(Option<i64>),
    /// It was cancelled.
    Cancelled,
}

/// How a relayed job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayOutcome {
    /// With a result that is no error.
    Ok,
    /// With a result that is an error of the tool.
    Failed,
    /// With an error of the protocol.
    Error,
    /// Stopped.
    Stopped,
}

/// A wish to stop a job. Texts are capped and free of control characters (CAN-12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancel {
    /// Identity that asked for it.
    pub by: Identity,
    /// On which connection it came.
    pub conn: ConnId,
    /// The request that was cancelled, if it was a plain call.
    pub request: Option<RequestId>,
    /// Reason that the requestor gave.
    pub reason: Option<Box<str>>,
}
