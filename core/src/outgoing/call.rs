//! Outgoing requests: content, caller, timeout and end.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use serde_json::value::RawValue;

use crate::collections::timer_queue::Armed;
use crate::ids::{AskId, CallId, ConnId, InstanceId, JobId, RequestId, TaskId};
use crate::json::raw::Raw;
use crate::time::Instant;

/// A request to a peer.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct OutgoingRequest {
    /// Name of the method.
    pub method: Box<str>,
    /// JSON text of an object, if any.
    pub params: Option<Box<RawValue>>,
    /// Timeout of the answer. Without one it is `parked_for` for a question of a plain call in a
    /// session, and the runtime of the calling job else.
    pub answer_timeout: Option<AnswerTimeout>,
    /// Key of the question where it is part of an answer, such as `inputRequests`; a number if there is
    /// none. The key belongs to one question of a job.
    pub key: Option<Box<str>>,
    /// Asks for a task at the peer, which is then followed to its end. The timeout covers all of
    /// it.
    pub task: Option<AskTask>,
}

/// Parameters of a task at a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct AskTask {
    /// Time for which the peer should keep the task, in whole milliseconds; without it the peer
    /// chooses.
    pub ttl: Option<Duration>,
}

/// Timeout of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct AnswerTimeout {
    /// Counted from the request.
    pub timeout: Duration,
    /// Whether progress restarts the timeout.
    pub extend_on_progress: bool,
    /// Maximum from the request on, regardless of progress.
    pub cap: Duration,
}

impl AnswerTimeout {
    /// A timeout that progress does not restart.
    pub(crate) const fn fixed(timeout: Duration) -> Self {
        Self { timeout, extend_on_progress: false, cap: timeout }
    }
}

/// Origin of an outgoing request, which receives its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Caller {
    /// A job; when the job is cancelled, so are its requests (ACP-05).
    Job {
        /// The job.
        job: JobId,
        /// Number of the request, chosen by the job.
        ask: AskId,
    },
    /// The host.
    Host(AskId),
}

/// Outcome of an outgoing request; each request has exactly one.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Result of the peer.
    Result(Box<RawValue>),
    /// Error object of the peer.
    Error(Box<RawValue>),
    /// Invalid answer of the peer, with the reason.
    Unusable(&'static str),
    /// Not sent, with the reason.
    Refused(Refusal),
    /// The peer did not answer in time and was told of the cancel, if possible.
    TimedOut,
    /// Cancelled by its caller, or together with the caller's own request (CAN-10).
    Cancelled,
    /// The connection ended.
    Lost,
}

impl Answer {
    /// The answer of a peer.
    pub(crate) fn of(outcome: Result<Raw<'_>, Raw<'_>>) -> Self {
        match outcome {
            Ok(result) => Self::Result(result.to_value()),
            Err(error) => Self::Error(error.to_value()),
        }
    }
}

/// Reason why a message was not sent. Nothing went on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The connection is absent, or cannot send.
    NoConnection,
    /// The peer did not declare that its requests can be cancelled (ACP-03).
    CancelNotDeclared,
    /// The session is not initialized yet.
    NotInitialized,
    /// The peer did not declare this method.
    NotDeclared,
    /// The peer did not declare tasks for this method (TSK-02).
    NoTasks,
    /// The params contain `task`; use [`OutgoingRequest::task`] instead.
    TaskInParams,
    /// The server has not listed this tool as able to run as a task (TSK-04). Remedy: `tools/list`
    /// first.
    ToolWithoutTasks,
    /// The server has listed this tool as running only as a task (TSK-04).
    ToolOnlyAsTask,
    /// The job has ended or is being stopped.
    NoJob,
    /// The job or connection has its maximum of waiting requests.
    TooMany,
    /// No such request is in progress: unknown, answered, cancelled or timed out (CAN-02, CAN-03).
    NotInProgress,
    /// This request cannot be cancelled (CAN-04, ACP-04).
    Protected,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoConnection => "the peer is not connected",
            Self::CancelNotDeclared => "the peer did not declare that requests can be cancelled",
            Self::NotInitialized => "the session is not initialized",
            Self::NotDeclared => "the peer did not declare that it answers this",
            Self::NoTasks => "the peer did not declare tasks for this",
            Self::TaskInParams => "params.task is not for the caller: set the task of the call",
            Self::ToolWithoutTasks => "the tool is not listed as one that runs as a task",
            Self::ToolOnlyAsTask => "the tool is listed as one that runs as a task only",
            Self::NoJob => "the job is over or being stopped",
            Self::TooMany => "too many calls wait already",
            Self::NotInProgress => "no such call is in progress",
            Self::Protected => "this request cannot be cancelled",
        })
    }
}

/// Effect of cancelling an outgoing request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelEffect {
    /// A cancel is sent, and the peer will not answer: the request ends now (CAN-10).
    Forget,
    /// A cancel is sent, and the peer will answer: the answer is awaited (ACP-03).
    Await,
    /// Nothing goes on the wire.
    Refuse(Refusal),
}

/// Cause of an outgoing request at its peer.
#[derive(Debug, Default)]
pub(crate) struct CallCause {
    /// The task whose job asks, if the peer knows it (TSK-29).
    pub(crate) task: Option<TaskId>,
    /// The peer's own request during which a job asks.
    pub(crate) request: Option<RequestId>,
}

/// Receiver of the answer to an outgoing request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallFor {
    /// The caller of the request.
    Caller(Caller),
    /// No receiver: the task is cancelled as soon as its id arrives (CAN-05).
    NoReceiver,
    /// The engine: status poll of the task created by that request.
    Poll(CallId),
    /// The engine: `tasks/result` of the task created by that request.
    Fetch(CallId),
    /// No receiver: a `tasks/cancel` or `tasks/update` needs no answer.
    Cancel,
    /// The engine, which asks an upstream of itself or whether it is alive.
    Upstream(InstanceId),
    /// A job that is relayed to an upstream.
    Relayed(JobId),
    /// An upstream, whose request was passed to its client.
    Question,
    /// A relayed job, whose task at an upstream is cancelled.
    RelayedCancel(JobId),
    /// The engine that runs this task and has asked a question in the table: its peer waits here.
    Elsewhere(TaskId),
    /// A relayed job, about whose task an upstream without sessions is asked.
    RelayedPoll(JobId),
}

/// An outgoing request that waits for its answer.
#[derive(Debug)]
pub(crate) struct OutgoingCall {
    whom: CallFor,
    pub(crate) method: Box<str>,
    /// Name of the tool, for `tools/call`.
    pub(crate) label: Option<Box<str>>,
    /// Whether the request asked for a task.
    pub(crate) with_task: bool,
    /// Whether the request is an `initialize` of ACP that declares cancellation.
    pub(crate) declares: bool,
    pub(crate) answer_timeout: Option<AnswerTimeout>,
    /// Latest end, if any.
    pub(crate) cap: Option<Instant>,
    pub(crate) timer: Option<Armed>,
    wanted: CallWanted,
}

impl CallFor {
    /// The caller of the host that waits, if it is one.
    pub(crate) fn caller(self) -> Option<Caller> {
        match self {
            Self::Caller(caller) => Some(caller),
            Self::NoReceiver
            | Self::Poll(_)
            | Self::Fetch(_)
            | Self::Cancel
            | Self::Upstream(_)
            | Self::Question
            | Self::Elsewhere(_)
            | Self::RelayedCancel(_)
            | Self::RelayedPoll(_)
            | Self::Relayed(_) => None,
        }
    }
}

impl OutgoingCall {
    /// A call whose answer is wanted.
    pub(crate) fn new(
        whom: CallFor,
        request: &OutgoingRequest,
        (label, declares): (Option<Box<str>>, bool),
        cap: Option<Instant>,
    ) -> Self {
        Self {
            whom,
            method: request.method.clone(),
            label,
            with_task: request.task.is_some(),
            declares,
            answer_timeout: request.answer_timeout,
            cap,
            timer: None,
            wanted: CallWanted::Yes,
        }
    }

    /// Receiver of the answer.
    pub(crate) const fn receiver(&self) -> CallFor {
        self.whom
    }

    /// Whether the answer is still wanted.
    pub(crate) const fn wanted(&self) -> CallWanted {
        self.wanted
    }

    /// Removes the caller from a request for a task, if there is one.
    pub(super) const fn take_task_caller(&mut self) -> Option<Caller> {
        match (self.with_task, self.whom) {
            (true, CallFor::Caller(caller)) => {
                self.whom = CallFor::NoReceiver;
                Some(caller)
            }
            (true | false, _) => None,
        }
    }

    /// Records that the request was cancelled and its answer is still due.
    pub(super) const fn note_cancelled(&mut self, wanted: CallWanted) {
        self.wanted = wanted;
    }
}

/// Whether an answer is still wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallWanted {
    /// The caller waits.
    Yes,
    /// Cancelled; the peer's one answer is awaited for a while (ACP-03).
    Cancelled,
    /// Timed out and cancelled; the peer's one answer is awaited for a while.
    Overdue,
}

/// State of a job's outgoing request.
#[derive(Debug)]
pub(crate) enum PendingOutgoing {
    /// Sent as this call to the peer that the job named.
    Sent(ConnId, CallId),
    /// Not sent. For a task: goes to the next peer that waits for the task's result (TSK-30) and is
    /// listed by `tasks/get` (EXT-05). For a call of a revision without requests to clients: goes
    /// out with the answer, and its response comes with the retry (MOD-07).
    Waiting(OutgoingRequest),
    /// Sent to a receiver of the outcome; goes to the next receiver when this one leaves (TSK-30,
    /// ACP-05).
    Offered(ConnId, CallId, OutgoingRequest),
}
