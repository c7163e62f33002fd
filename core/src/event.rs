//! Events: everything that can happen to the engine.

use crate::identity::{Identity, Rights};
use crate::log_level::LogLevel;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use serde_json::value::RawValue;

use crate::acp::protocol::{AcpForm, AcpRole, HostStopReason, Speaker};
use crate::ids::{AskId, ConnId, JobId, StatusId};
use crate::json::raw::Json;
use crate::outgoing::call::{Caller, OutgoingRequest};
use crate::policy::allow::Grants;
use crate::protocol::role::Role;
use crate::rpc::error::ErrorObject;
use crate::settings::Settings;
use crate::tasks::durable::{LoadId, Seq, TaskOutcome, TaskRecord, Unstored};
use crate::tasks::shared::SharedEvent;
use crate::time::Instant;
use crate::upstream::interface::UpstreamEvent;

/// Outcome of a job.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    /// A result: the JSON text of an object. A tool's own failure is a result with `isError`.
    Result(Json),
    /// A JSON-RPC error.
    Error(ErrorObject),
    /// The call was wrong in a way that a model can correct, such as its arguments: a result with
    /// `isError` where the revision has it so (SEP-1303), else a JSON-RPC error.
    Refused(ErrorObject),
    /// It stopped because it was told to, and has nothing to hand in.
    Stopped,
}

/// Treatment of the requests of a peer that has closed its side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum AfterInput {
    /// They are answered: the host will learn when the peer is gone altogether.
    Answer,
    /// They are answered, and the peer is pinged this often meanwhile, in ACP by a notification of
    /// ours: on such a transport one that is gone shows only when it is written to.
    AnswerAndProbe(Duration),
    /// They are answered for this long: counted from the end of the input, from each answer, and
    /// from the end of an upstream's start. The rest are then cancelled, and get
    /// no answer.
    AnswerWithin(Duration),
}

/// Something that happened.
///
/// Deliberately not `#[non_exhaustive]`, like [`Action`](crate::Action): recorders and replayers must
/// handle every event, and must not compile until they do.
#[derive(Debug)]
pub enum Event<'a> {
    /// A peer connected.
    Opened {
        /// A number never used before.
        conn: ConnId,
        /// Identity of the peer.
        identity: Identity,
        /// Rights of the peer under that identity.
        rights: Rights,
        /// Which side we are.
        role: Role,
    },
    /// The token of a peer names these groups and scopes from now on, and the peer sees one profile
    /// alone, or everything. Comes before the frame that they count for.
    Granted {
        /// The connection.
        conn: ConnId,
        /// Groups and scopes of its token.
        grants: Arc<Grants>,
        /// Name of the profile.
        profile: Option<Box<str>>,
    },
    /// A peer connected that speaks ACP. It is for the host to hold it to its order of methods.
    OpenedAcp {
        /// A number never used before.
        conn: ConnId,
        /// Identity of the peer.
        identity: Identity,
        /// In which form it cancels.
        form: AcpForm,
        /// Which side we are.
        side: AcpRole,
    },
    /// One line arrived.
    Frame {
        /// Connection of the sender.
        conn: ConnId,
        /// The line, without its end.
        frame: &'a [u8],
    },
    /// A line passed the limit and is skipped.
    TooLong {
        /// Connection of the sender.
        conn: ConnId,
        /// First level of the message, with `{}` for long members; empty if there is none.
        skeleton: &'a str,
    },
    /// The first bytes of a connection start no JSON-RPC message.
    NotJsonRpc {
        /// Connection of the sender.
        conn: ConnId,
        /// Beginning of the first line.
        bytes: &'a [u8],
    },
    /// A peer closed its side and may still read ours.
    Finished {
        /// The connection.
        conn: ConnId,
        /// Treatment of its running requests.
        then: AfterInput,
    },
    /// A peer is gone.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// A peer has not taken all that was offered, though perhaps some of it.
    Blocked {
        /// The connection.
        conn: ConnId,
    },
    /// A peer that was blocked has taken everything.
    Drained {
        /// The connection.
        conn: ConnId,
    },
    /// A job got further.
    Progress {
        /// The job.
        job: JobId,
        /// How far; must grow to be passed on (TSK-33).
        progress: f64,
        /// Where the end is.
        total: Option<f64>,
        /// Description of the current step.
        message: Option<&'a str>,
    },
    /// A job printed something. Enough once a second for each job: the line is the message of its
    /// heartbeat, and the status message of its task.
    Output {
        /// The job.
        job: JobId,
        /// The last line that it printed.
        line: &'a str,
    },
    /// A job has something to say.
    Log {
        /// The job.
        job: JobId,
        /// Severity of the message.
        level: LogLevel,
        /// Any JSON value.
        data: &'a RawValue,
    },
    /// A job asks a peer something.
    Asked {
        /// The job.
        job: JobId,
        /// Its own number for the question.
        ask: AskId,
        /// Connection to ask; `None` for the one that made the job's call, or waits for its task.
        conn: Option<ConnId>,
        /// The request.
        request: OutgoingRequest,
    },
    /// A job has asked everything that it asks beforehand: its call becomes a task, if its client
    /// follows tasks and its tool says so ([`Tool::asks_first`](crate::tool::Tool::asks_first)).
    Escalated {
        /// The job.
        job: JobId,
    },
    /// A resource of the host has another content now.
    ResourceUpdated {
        /// URI of the resource.
        uri: &'a str,
    },
    /// The host asks a peer something.
    Call {
        /// Connection of the peer.
        conn: ConnId,
        /// The host's number for the call.
        ask: AskId,
        /// The request.
        request: OutgoingRequest,
    },
    /// The maker of a call does not want the answer any more.
    CancelCall {
        /// Maker of the call.
        caller: Caller,
        /// Why, for the peer.
        reason: Option<&'a str>,
    },
    /// The host cancels a job of its own accord. Its request is answered nevertheless.
    CancelJob {
        /// The job.
        job: JobId,
        /// Why the host stops it.
        cause: HostStopReason,
    },
    /// A notification for an ACP peer. One of a job whose request was answered is dropped.
    Notify {
        /// Sender of the notification.
        from: Speaker,
        /// The method.
        method: &'a str,
        /// The `params` member.
        params: Option<&'a RawValue>,
    },
    /// The first process of a job has exited and others of it have not: they are to be stopped.
    Lingering {
        /// The job.
        job: JobId,
    },
    /// A job that was told to stop outlasts its last step: processes of it cannot be killed, or not
    /// now. Its request or its task gets this outcome; the job goes on being stopped until it is
    /// [`Done`](Event::Done). Heard once for a job.
    Outlasted {
        /// The job.
        job: JobId,
        /// Its outcome so far.
        outcome: Outcome,
    },
    /// A job has ended; nothing of it is left (STOP-01).
    Done {
        /// The job.
        job: JobId,
        /// Its outcome.
        outcome: Outcome,
    },
    /// Output of a job, for the peer that asked.
    OutputRead {
        /// For which [`ReadOutput`](crate::action::Action::ReadOutput).
        read: StatusId,
        /// The requested output, as JSON text: a string for the whole output, an object for a part,
        /// an array of resources for a list. `None` when there is nothing that this peer may read.
        output: Option<&'a RawValue>,
    },
    /// Status that only the host knows, for the peer that asked.
    HostStatusCollected {
        /// For which [`Survey`](crate::action::Action::CollectHostStatus).
        survey: StatusId,
        /// The JSON text of an object.
        host: &'a RawValue,
    },
    /// The store has this task from before a restart. Comes before any connection is opened; in
    /// whatever order (DUR-01).
    Restored {
        /// All that is known of it.
        record: TaskRecord,
    },
    /// Every write up to this one is on disk, but for those reported [`Event::Unstored`]. A
    /// [`Turn`](Event::Turn) is due after it: jobs may start.
    Durable {
        /// The last of them.
        upto: Seq,
    },
    /// One write was not carried out, as far as the store knows. Comes before a
    /// [`Durable`](Event::Durable) that goes past it.
    Unstored {
        /// Number of the write.
        seq: Seq,
        /// Why it was not carried out.
        why: Unstored,
    },
    /// The store was found unable to keep anything, without a write: its files are gone, for
    /// instance. New tasks are refused until it takes writes again, which is tried from now on.
    StoreFailed {
        /// Why the store takes no writes.
        why: Unstored,
    },
    /// Answer to [`Action::Load`](crate::action::Action::Load).
    Loaded {
        /// Number of the load.
        load: LoadId,
        /// Outcome of the task; `None` when the store cannot tell.
        outcome: Option<TaskOutcome>,
    },
    /// News of the table that several engines share.
    Shared(SharedEvent),
    /// Something happened to an upstream.
    Upstream(UpstreamEvent<'a>),
    /// The configuration was read again. Running jobs are not touched.
    Configured {
        /// The new settings.
        settings: Arc<Settings>,
    },
    /// Take no further work from now on; the work that there is goes on, and questions are answered.
    Retire,
    /// Shut down: cancel running jobs, answer their requests, and end by this time.
    Drain {
        /// The latest end.
        by: Instant,
    },
    /// Everything that arrived by now was handed in: jobs may start. Tasks whose jobs were started
    /// by an earlier turn and that are not stored yet are handed to the store, with the outcome of
    /// them; so a host that runs short jobs at once hands in another turn after that, and one that
    /// does not loses nothing by it ([`Engine::wants_turn`](crate::engine::Engine::wants_turn)).
    ///
    /// Nothing starts before, so that a cancel that arrives together with its request wins.
    Turn,
    /// A deadline has passed. Takes a bounded number of due timers: the deadline tells whether
    /// something is left.
    Tick,
}
