//! Calls: what we asked of a peer, on whose behalf, and how long we wait.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use serde_json::value::RawValue;

use crate::collections::timer_queue::Armed;
use crate::ids::{AskId, CallId, ConnId, InstanceId, JobId};
use crate::time::Instant;

/// A request to a peer.
#[derive(Debug, Clone)]
pub struct OutgoingRequest {
    /// The method.
    pub method: Box<str>,
    /// Its params: the JSON text of an object.
    pub params: Option<Box<RawValue>>,
    /// How long to wait for the answer. Without it, as long as the asking job may run.
    pub patience: Option<AnswerTimeout>,
    /// The answer is to come of a task at the peer, which is then followed to its end. Patience is
    /// for all of it.
    pub task: Option<AskTask>,
}

/// How a task is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AskTask {
    /// How long the peer is to keep it; whole milliseconds. Its own choice without.
    pub ttl: Option<Duration>,
}

/// How long to wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerTimeout {
    /// From the request on.
    pub timeout: Duration,
    /// Whether progress starts the timeout anew.
    pub extend_on_progress: bool,
    /// From the request on, whatever progress there is.
    pub cap: Duration,
}

/// Maker of a call, which is told how the call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// A job, in the course of its work; when the job is cancelled, so are its calls (ACP-05).
    Job {
        /// Which.
        job: JobId,
        /// Its own number for the question.
        ask: AskId,
    },
    /// The host itself.
    Host(AskId),
}

/// How a call ended. Every call ends in exactly one of these.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The peer's result.
    Result(Box<RawValue>),
    /// The peer's error object.
    Error(Box<RawValue>),
    /// The peer answered what is no answer to this; what is wrong with it.
    Unusable(&'static str),
    /// It was not sent.
    Refused(Refusal),
    /// The peer did not answer in time and was told that we no longer wait, if it can be told.
    TimedOut,
    /// It was cancelled by whoever made it, or together with what it was made for (CAN-10).
    Cancelled,
    /// The connection ended.
    Lost,
}

/// Why something was not sent. Nothing went on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such connection, or nothing can be sent on it.
    NoConnection,
    /// The peer did not declare that its requests can be cancelled (ACP-03).
    CancelNotDeclared,
    /// The session is not initialized yet.
    NotInitialized,
    /// The peer did not declare that it answers this method.
    NotDeclared,
    /// The peer did not declare tasks for this method (TSK-02).
    NoTasks,
    /// The params have a member `task`: ask for one with [`OutgoingRequest::task`] instead.
    TaskInParams,
    /// The server has not listed this tool as one that runs as a task (TSK-04). List its tools
    /// first.
    ToolWithoutTasks,
    /// The server has listed this tool as one that runs as a task only (TSK-04).
    ToolOnlyAsTask,
    /// The job has ended or is being stopped.
    NoJob,
    /// That many calls of this job or connection wait already.
    TooMany,
    /// There is no such call in progress: it was never made, or was answered, cancelled or timed
    /// out (CAN-02, CAN-03).
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

/// Receiver of the answer to a request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallFor {
    /// The caller that made the request.
    Caller(Caller),
    /// No receiver: the task that the call creates is cancelled as soon as it has an id (CAN-05).
    Nobody,
    /// The engine, which asks where the task created by that call stands.
    Poll(CallId),
    /// The engine, which asks for the result of the task created by that call.
    Fetch(CallId),
    /// No receiver: a `tasks/cancel` has done its work by being sent.
    Cancel,
    /// The engine, which asks an upstream of itself or whether it is alive.
    Upstream(InstanceId),
    /// A job that is relayed to an upstream.
    Relayed(JobId),
}

/// A call that waits for its answer.
#[derive(Debug)]
pub(crate) struct Call {
    whom: CallFor,
    pub(crate) method: Box<str>,
    /// Name of the tool, for a call of one.
    pub(crate) label: Option<Box<str>>,
    /// Whether it asked for a task.
    pub(crate) with_task: bool,
    /// Whether it is an `initialize` of ACP by which we declare that we cancel.
    pub(crate) declares: bool,
    pub(crate) patience: Option<AnswerTimeout>,
    /// The latest end, if there is one.
    pub(crate) cap: Option<Instant>,
    pub(crate) timer: Option<Armed>,
    wanted: Wanted,
}

impl Call {
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
            patience: request.patience,
            cap,
            timer: None,
            wanted: Wanted::Yes,
        }
    }

    /// Receiver of its answer.
    pub(crate) const fn whom(&self) -> CallFor {
        self.whom
    }

    /// Whether its answer is still wanted.
    pub(crate) const fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Takes the caller from a call for a task, if it has one.
    pub(super) const fn disown(&mut self) -> Option<Caller> {
        match (self.with_task, self.whom) {
            (true, CallFor::Caller(caller)) => {
                self.whom = CallFor::Nobody;
                Some(caller)
            }
            (true | false, _) => None,
        }
    }

    /// Notes that it was cancelled and its answer is still due.
    pub(super) const fn note_cancelled(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }
}

/// Whether the answer to a call is still wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It is.
    Yes,
    /// The call was cancelled. Its one answer is waited for a while (ACP-03).
    Cancelled,
    /// It did not come in time, the call was cancelled. Its one answer is waited for a while.
    Overdue,
}

/// Where a question of a job is.
#[derive(Debug)]
pub(crate) enum PendingOutgoing {
    /// On its way to the peer that the job named, as this call.
    Sent(ConnId, CallId),
    /// A task's: it goes to the next peer that waits for the task's result (TSK-30), and is shown
    /// to whoever looks at the task (EXT-05). Or a call's that makes no requests: it goes out with
    /// the answer, and comes back with the retry (MOD-07).
    Waiting(OutgoingRequest),
    /// On its way to one of those who want the outcome; put to the next when that one does no more
    /// (TSK-30, ACP-05).
    Offered(ConnId, CallId, OutgoingRequest),
}
