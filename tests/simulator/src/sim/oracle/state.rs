//! The state of the world: connections, their requests, jobs, tasks.

use std::collections::BTreeMap;

use ceased_core::event::AfterInput;
use ceased_core::log_level::LogLevel;
use ceased_core::tool::OnDisconnect;

use super::able::Able;
use super::acp::Party;
use super::asks::Place;
use super::beats::Beats;
use super::calls::Out;
use super::client::Client;
use super::modern::{Claim, Listens};
use super::remote::Remote;
use crate::sim::dialects::{Rules, UNSETTLED};
use crate::slow::Id;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is open.
    No,
    /// Its peer has sent everything.
    Finished(AfterInput),
    /// The host was told to close it.
    Closing {
        /// Unsent lines may still be sent.
        flushes: bool,
    },
}

/// The awaited event of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Its own job, by nonce.
    Job(u64),
    /// The end of a task, by nonce.
    Task(u64),
    /// Its cancel: it is a subscription (MOD-08).
    Cancel,
}

/// A request without an answer.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Its id.
    pub id: Id,
    /// Its id as it was written.
    pub token: String,
    /// Its awaited event.
    pub what: What,
    /// The batch it came in.
    pub(super) batch: Option<u64>,
    /// It spoke for itself (MOD-01).
    pub(super) modern: bool,
    /// Its topics, if it is a subscription.
    pub(super) listens: Option<Listens>,
}

#[derive(Debug, Clone)]
pub(in crate::sim) struct Batch {
    pub(super) number: u64,
    pub(super) open: usize,
    pub(super) answers: Vec<String>,
}

/// A peer.
#[derive(Debug, Clone)]
pub struct Conn {
    /// Its identity.
    pub identity: String,
    /// Whether it counts towards the limits.
    pub is_admitted: bool,
    /// The negotiated rules; none before initialize.
    pub rules: Option<&'static Rules>,
    /// Where it stands.
    pub ended: Ended,
    /// Its requests without an answer.
    pub pending: Vec<Pending>,
    pub(super) level: LogLevel,
    pub(super) batches: Vec<Batch>,
    /// When it is given up if it takes nothing, and how many others may have been before.
    pub(super) stall: Option<(u64, u64)>,
    pub(super) linger: Option<u64>,
    pub(super) probes: u64,
    /// Requests without an answer at the beginning of the period of grace.
    pub(super) lingering: usize,
    /// Declared capabilities of its peer.
    pub(super) able: Able,
    /// A request spoke for itself before any session (MOD-01).
    pub(super) stateless: bool,
    /// Requests of ours without an answer, in the order they were sent.
    pub(super) calls: Vec<Out>,
    /// Tasks at the peer, in the order of the requests that created them.
    pub(super) remote: Vec<Remote>,
    /// The session, if we are the client in it.
    pub(super) client: Option<Client>,
    /// Relation of both sides, if it speaks ACP.
    pub(super) acp: Option<Party>,
}

impl Conn {
    /// Answers that wait for the rest of their batch.
    #[must_use]
    pub fn collected(&self) -> usize {
        self.batches.iter().map(|batch| batch.answers.len()).sum()
    }

    /// Whether we are the client here.
    #[must_use]
    pub const fn is_served(&self) -> bool {
        self.client.is_some()
    }

    pub(super) fn rules(&self) -> &'static Rules {
        self.rules.unwrap_or(&UNSETTLED)
    }
}

/// Receiver of the outcome of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sim) enum For {
    Request(Id),
    Task,
    /// The request that comes back with the input (MOD-07).
    Retry,
    /// No receiver, for a time after the end of its connection.
    Orphan,
    Nobody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) enum Stage {
    Queued,
    Running,
    Lingering,
    Stopping { step: &'static str, why: &'static str },
}

/// Work that was asked for.
#[derive(Debug, Clone)]
pub struct Job {
    /// The number the call gave it.
    pub nonce: u64,
    pub(super) conn: u64,
    pub(super) owner: String,
    pub(super) whose: For,
    /// The self-description of its request; nothing in a session.
    pub(super) claim: Option<Claim>,
    /// Its unanswered questions.
    pub(super) asks: BTreeMap<u64, Place>,
    /// It asked something since the last turn, to be said in the answer to its call.
    pub(super) asking: bool,
    /// Whether it works, or worked, for a task.
    pub of_task: bool,
    pub(super) tool: String,
    /// The gates of its tool, by name, with the number of jobs that may be behind each.
    pub(super) gates: Vec<(String, usize)>,
    /// Whether its request is an `initialize` of ACP that declares cancellation.
    pub(super) declares: bool,
    /// Between the first step and the second, and whether that is a signal.
    pub(super) wait: u64,
    pub(super) command: bool,
    pub(super) timeout: Option<u64>,
    pub(super) on_disconnect: OnDisconnect,
    /// Time of its stop after the end of its connection.
    pub(super) orphan: Option<u64>,
    pub(super) stage: Stage,
    /// Whether it outlasts the last step against it.
    pub(super) outlasts: bool,
    /// When it is due, and how many timers were armed by then.
    pub(super) timer: Option<(u64, u64)>,
    pub(super) token: Option<String>,
    pub(super) last: Option<f64>,
    pub(super) held: Option<String>,
    pub(super) beats: Beats,
}

impl Job {
    /// Whether it was told to stop.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        matches!(self.stage, Stage::Stopping { .. })
    }

    /// Whether the host runs it.
    #[must_use]
    pub const fn runs(&self) -> bool {
        !matches!(self.stage, Stage::Queued)
    }

    /// Whether it waits for an answer, and takes no place of a running job.
    pub(super) fn waits(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Lingering) && self.needs_input()
    }

    /// Whether it takes a place of a running job.
    pub(super) fn works(&self) -> bool {
        self.runs() && !self.waits()
    }
}

/// A task that was handed out.
#[derive(Debug, Clone)]
pub struct Task {
    /// The number of the call that created it.
    pub nonce: u64,
    /// Whose it is.
    pub owner: String,
    /// Its status.
    pub status: &'static str,
    pub(super) message: String,
    pub(super) created: u64,
    pub(super) updated: u64,
    pub(super) created_at: u64,
    pub(super) ttl: u64,
    /// When it is due, and how many timers were armed by then.
    pub(super) timer: (u64, u64),
    pub(super) overdue: bool,
    /// Told of every change, if the session it was created in lives.
    pub(super) creator: Option<u64>,
    pub(super) listeners: Vec<(u64, Id)>,
    /// Its place among all tasks there ever were.
    pub(super) place: u64,
    pub(super) waiters: Vec<(u64, Id)>,
    pub(super) outcome: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(in crate::sim) struct Drain {
    pub(super) kill: Option<u64>,
    pub(super) end: Option<u64>,
    /// No connection closes before all were told.
    pub(super) tells: bool,
    pub(super) over: bool,
    pub(super) said: bool,
}
