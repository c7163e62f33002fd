//! Interface of upstreams: orders of the engine about their processes, and reports of the host
//! about them.
//!
//! Frames of an instance that runs arrive as [`Event::Frame`](crate::event::Event::Frame) of its
//! connection, and frames to it leave through the send queue of that connection. The engine never
//! emits [`Action::Close`](crate::action::Action::Close) for it: it ends the instance.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use crate::identity::Identity;
use crate::ids::{CheckId, ConnId, InstanceId};
use crate::time::Instant;
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
        /// Start of the call: processes born since then are counted.
        since: Instant,
    },
    /// SIGTERM, after `kill_grace` SIGKILL, to every process that was born in the instance since
    /// then; report [`UpstreamEvent::StraysEnded`] when none is left, or when SIGKILL does not
    /// help.
    EndStrays {
        /// The instance of the server.
        instance: InstanceId,
        /// The check that wants it.
        check: CheckId,
        /// Start of the call.
        since: Instant,
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
    /// Tell an operator that something is wrong with the lists of a server.
    Warn {
        /// Name of the server.
        server: Box<str>,
        /// A text for a log.
        what: Box<str>,
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
    /// No process of the instance is left, whatever the cause.
    Ended {
        /// The instance of the server.
        instance: InstanceId,
        /// How its first process ended, such as `exit code 1`, or why it could not be started.
        status: &'a str,
        /// The last lines of its standard error.
        stderr: &'a str,
    },
}

/// Facts about the processes of an instance; unknown ones are `None` instead of guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessEvidence {
    /// Living processes that were born since the start of the call.
    pub born: Option<u32>,
    /// CPU time of the tree so far.
    pub cpu: Option<Duration>,
}

/// Established fact about the work of a cancelled request (UPS-16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The request was never written to the server.
    Unsent,
    /// The cancel was written; nothing more is known.
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
}
