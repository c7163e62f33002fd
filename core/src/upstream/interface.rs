//! Interface of upstreams: orders of the engine about their processes, and reports of the host
//! about them.
//!
//! Frames of an instance that runs arrive as [`Event::Frame`](crate::event::Event::Frame) of its
//! connection, and frames to it leave through the send queue of that connection. The engine never
//! emits [`Action::Close`](crate::action::Action::Close) for it: it ends the instance.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use crate::births::Births;
use crate::identity::Identity;
use crate::ids::{CallId, CheckId, ConnId, InstanceId};
use crate::upstream::approval::{Approval, ToolChange};
use crate::upstream::manifest::Manifest;
use crate::upstream::server::UpstreamServer;

/// Something to be done with the process tree of an upstream.
#[derive(Debug)]
pub enum UpstreamAction {
    /// Start an instance, and report [`UpstreamEvent::Started`] when its pipes are connected, or
    /// [`UpstreamEvent::Ended`] when it cannot be started.
    Start {
        /// Its number.
        instance: InstanceId,
        /// The server.
        server: Arc<UpstreamServer>,
        /// Identity whose requests it serves; `None` for an instance without a client yet.
        owner: Option<Identity>,
        /// The connection whose requests it serves, if it is the only one.
        client: Option<ConnId>,
    },
    /// Look at the processes of an instance, and report [`UpstreamEvent::Examined`].
    Examine {
        /// The instance of the server.
        instance: InstanceId,
        /// The check that wants to know.
        check: CheckId,
        /// The processes that are counted.
        births: Births,
    },
    /// SIGTERM, after `kill_grace` SIGKILL, to these processes of the instance; report [`UpstreamEvent::StraysEnded`] when none is left, or when SIGKILL does not
    /// help.
    EndStrays {
        /// The instance of the server.
        instance: InstanceId,
        /// The check that wants it.
        check: CheckId,
        /// The processes.
        births: Births,
        /// Between SIGTERM and SIGKILL.
        kill_grace: Duration,
    },
    /// EOF on its standard input, SIGTERM, after `kill_grace` SIGKILL to the whole tree; report
    /// [`UpstreamEvent::Ended`] when no process is left. Its connection is closed by that event.
    End {
        /// The instance of the server.
        instance: InstanceId,
        /// Between SIGTERM and SIGKILL.
        kill_grace: Duration,
    },
    /// Nothing more of a call of an instance without processes is of use: close its response.
    Forget {
        /// The instance of the server.
        instance: InstanceId,
        /// Its number on the connection of the instance.
        call: CallId,
    },
    /// Tell an operator that something is wrong with the lists of a server.
    Warn {
        /// Name of the server.
        server: Box<str>,
        /// A text for a log.
        what: Box<str>,
    },
    /// Tools of a server differ from the approved ones.
    ToolsDiffer {
        /// Name of the server.
        server: Box<str>,
        /// The tools that differ.
        changes: Box<[ToolChange]>,
    },
    /// Keep the approved tools of a server (UPS-19).
    SaveApproval {
        /// The server.
        server: Arc<UpstreamServer>,
        /// Its approved tools.
        approval: Box<Approval>,
    },
    /// Keep the description and lists of a server, for its next start.
    SaveManifest {
        /// The server.
        server: Arc<UpstreamServer>,
        /// Its identity and lists.
        manifest: Box<Manifest>,
    },
}

/// Something that happened to an upstream.
#[derive(Debug)]
pub enum UpstreamEvent<'a> {
    /// The process runs, and its pipes are this connection.
    Started {
        /// The instance of the server.
        instance: InstanceId,
        /// A number never used before.
        conn: ConnId,
    },
    /// The manifest of a server from its last run, as [`UpstreamAction::SaveManifest`] had it
    /// kept. Without effect if more is known by now.
    Known {
        /// Name of the server.
        server: &'a str,
        /// Its identity and lists.
        manifest: &'a Manifest,
    },
    /// Approved tools of a server, as [`UpstreamAction::SaveApproval`] had them kept; `None` if they
    /// cannot be read, and no list is approved by itself. Comes before its manifests.
    Approved {
        /// Name of the server.
        server: &'a str,
        /// Its approved tools.
        approval: Option<&'a Approval>,
    },
    /// Answer to [`UpstreamAction::Examine`].
    Examined {
        /// The instance of the server.
        instance: InstanceId,
        /// The check that asked for it.
        check: CheckId,
        /// Living processes and CPU time, from the kernel.
        processes: ProcessEvidence,
    },
    /// Answer to [`UpstreamAction::EndStrays`].
    StraysEnded {
        /// The instance of the server.
        instance: InstanceId,
        /// The check that asked for it.
        check: CheckId,
        /// Processes that were ended.
        ended: u32,
        /// Processes that SIGKILL did not end.
        left: u32,
    },
    /// News of an instance without processes: a server by URL.
    Remote {
        /// The instance of the server.
        instance: InstanceId,
        /// The news.
        news: RemoteNews<'a>,
    },
    /// No process of the instance is left, whatever the cause; of a server by URL, no connection.
    Ended {
        /// The instance of the server.
        instance: InstanceId,
        /// How its first process ended, such as `exit code 1`, or why it could not be started.
        status: &'a str,
        /// The last lines of its standard error.
        stderr: &'a str,
    },
}

/// News of an instance without processes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(rename_all = "snake_case"))]
pub enum RemoteNews<'a> {
    /// The fate of the cancel of a call.
    Cancel {
        /// The call.
        call: CallId,
        /// The fate.
        fate: CancelFate,
    },
    /// No answer to a call comes any more.
    CallLost {
        /// The call.
        call: CallId,
        /// Whether the server has not begun it: it was not sent, or refused before it began.
        is_unbegun: bool,
        /// The cause, as a clause for people.
        why: Cow<'a, str>,
    },
    /// The server has forgotten the session: it takes no new calls in it (REM-04).
    SessionLost,
    /// The server has accepted the end of the session.
    SessionEnded,
}

impl RemoteNews<'_> {
    /// The same with a text of its own.
    #[must_use]
    pub fn into_owned(self) -> RemoteNews<'static> {
        match self {
            Self::Cancel { call, fate } => RemoteNews::Cancel { call, fate },
            Self::CallLost { call, is_unbegun, why } => {
                RemoteNews::CallLost { call, is_unbegun, why: Cow::Owned(why.into_owned()) }
            }
            Self::SessionLost => RemoteNews::SessionLost,
            Self::SessionEnded => RemoteNews::SessionEnded,
        }
    }
}

/// Fate of the cancel of a call at a server by URL (REM-03).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(rename_all = "snake_case"))]
pub enum CancelFate {
    /// The call had not been sent, and is not.
    Unsent,
    /// The server has accepted the notification.
    Told,
    /// The notification did not reach the server, or was refused.
    Failed,
    /// This side has closed the response stream of the call, which is the cancel.
    StreamClosed,
    /// The server has ended the response stream of the call without an answer.
    StreamEnded,
}

/// Facts about the processes of an instance; unknown ones are `None` instead of guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessEvidence {
    /// Living processes that were born since the start of the call.
    pub born: Option<u32>,
    /// CPU time of the tree so far.
    pub cpu: Option<Duration>,
    /// Time that its live threads have waited for a CPU so far.
    #[cfg_attr(feature = "trace", serde(default))]
    pub waited: Option<Duration>,
}

/// Established fact about the work of a cancelled request (UPS-16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The request was never written to the server.
    Unsent,
    /// The cancel reached the server; nothing more is known.
    Told,
    /// The server answered the cancelled request.
    Answered,
    /// No process of the call is alive, the server answers a ping, no progress arrives, and an
    /// instance without other requests uses no CPU.
    Quiet,
    /// So many processes that were born during the call were ended.
    ChildrenEnded(u32),
    /// Other requests moved to a fresh instance; this one was ended.
    Replaced,
    /// The instance was ended with its whole tree.
    Ended,
    /// The response stream of the call was closed, which is the cancel for a server by URL; nothing
    /// more is known.
    StreamClosed,
    /// The server has accepted the end of the session of the call; nothing more is known.
    SessionEnded,
    /// Nothing is known, not even that the cancel reached the server.
    Unknown,
}

impl Proof {
    /// The word of the receipt.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unsent => "unsent",
            Self::Told => "told",
            Self::Answered => "answered",
            Self::Quiet => "quiet",
            Self::ChildrenEnded(_) => "children_ended",
            Self::Replaced => "replaced",
            Self::Ended => "ended",
            Self::StreamClosed => "stream_closed",
            Self::SessionEnded => "session_ended",
            Self::Unknown => "unknown",
        }
    }
}

/// The part of a receipt that is about an upstream (UPS-16).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamReceipt {
    /// Name of the server.
    pub server: Box<str>,
    /// The instance that worked on the request; `None` if no instance had it yet.
    pub instance: Option<InstanceId>,
    /// The strongest established fact.
    pub proof: Proof,
    /// Kind and id of the tool call or terminal that was stopped, if it is not a request (SUP-06).
    pub object: Option<(&'static str, Box<str>)>,
}
