//! Works: requests of the client that the agent works on, and turns that outlast their request.

use alloc::boxed::Box;

use crate::action::Cancel;
use crate::ids::{JobId, RequestId};
use crate::protocol::trace_context::TraceContext;
use crate::supervisor::choices::Choices;
use crate::supervisor::piece_kind::PieceKind;
use crate::supervisor::stop::TurnStop;
use crate::time::Instant;

/// An id with its token on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkId {
    pub(super) id: RequestId,
    pub(super) token: Box<str>,
}

impl WorkId {
    pub(super) fn new(id: &RequestId, token: &str) -> Self {
        Self { id: id.clone(), token: token.into() }
    }
}

/// One request of the client, or a turn of version 2 that outlasts its request.
#[derive(Debug)]
pub(super) struct AgentWork {
    /// Number, never used before.
    pub(super) number: u64,
    /// Number among the jobs of the engine, which gives it after the input that began the work.
    pub(super) job: Option<JobId>,
    /// Id of the request; `None` once a turn of version 2 has its request answered.
    pub(super) id: Option<WorkId>,
    pub(super) method: Box<str>,
    /// Session that the params name.
    pub(super) session: Option<Box<str>>,
    /// Params, for the requests that a later agent may need.
    pub(super) params: Option<Box<str>>,
    /// Choices that the agent tells while it opens the session.
    pub(super) choices: Choices,
    pub(super) since: Instant,
    /// Trace context of its sender, where spans are recorded.
    pub(super) trace: Option<Box<TraceContext>>,
    /// Whether processes that were born since then belong to this work.
    pub(super) is_alone: bool,
    /// Whether a turn of version 2 was seen to run or to rest since it was sent.
    pub(super) is_settled: bool,
    /// When the agent last showed that it works on it.
    pub(super) active: Instant,
    pub(super) stop: Option<TurnStop>,
}

impl AgentWork {
    /// Whether it is a turn.
    pub(super) fn is_turn(&self) -> bool {
        &*self.method == "session/prompt"
    }

    /// Whether it opens a session that its params name.
    pub(super) fn opens(&self, session: &str) -> bool {
        matches!(&*self.method, "session/load" | "session/resume") && self.is_of(session)
    }

    /// Whether the agent may start processes for it, which then cannot be told from those of
    /// another such work.
    pub(super) fn may_start_processes(&self) -> bool {
        matches!(
            &*self.method,
            "session/prompt" | "session/new" | "session/load" | "session/resume" | "session/fork"
        )
    }

    pub(super) fn is_of(&self, session: &str) -> bool {
        self.session.as_deref() == Some(session)
    }
}

/// How far a work is, for views.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkState {
    /// The agent does not have it yet, for this reason.
    Waiting(&'static str),
    /// The agent works on it.
    Running,
    /// It is being stopped.
    Cancelling,
}

impl WorkState {
    /// The word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting(_) => "waiting",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
        }
    }
}

/// A work, or a request that waits to become one, as views show it.
#[derive(Debug)]
pub(crate) struct WorkView<'a> {
    pub(crate) job: Option<JobId>,
    /// Its request, if that was not answered.
    pub(crate) request: Option<&'a RequestId>,
    pub(crate) method: &'a str,
    pub(crate) since: Instant,
    pub(crate) state: WorkState,
    /// The cancel, if it is not of the client.
    pub(crate) cancel: Option<&'a Cancel>,
    /// Kind and id, if it is a piece of a turn, or background work.
    pub(crate) object: Option<(PieceKind, &'a str)>,
}
