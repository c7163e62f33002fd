//! Jobs: the work behind a request or a task, and how far stopping it has come.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::action::Cancel;
use crate::collections::lazy_box::{IsEmpty, LazyBox};
use crate::collections::slot_map::Record;
use crate::collections::timer_queue::Armed;
use crate::identity::Identity;
use crate::ids::{AskId, ConnId, JobId, RequestId, RequestState, TaskId};
use crate::json::raw::Json;
use crate::outgoing::call::{OutgoingRequest, PendingOutgoing};
use crate::protocol::request_meta::RequestContext;
use crate::reason::StopReason;
use crate::time::Instant;
use crate::tool::{StopStep, Tool};

/// One piece of work.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) tool: Arc<Tool>,
    /// Identity that asked for it.
    pub(crate) owner: Identity,
    /// Where it came from, for as long as that connection lives.
    pub(crate) conn: ConnId,
    /// Terms of its request, or of its session.
    pub(crate) terms: RequestContext,
    /// The task it works for, also after that was cancelled.
    pub(crate) task: Option<TaskId>,
    /// Receiver of its outcome.
    pub(crate) purpose: Purpose,
    pub(crate) state: JobState,
    /// When it was asked for.
    pub(crate) since: Instant,
    pub(crate) progress: LazyBox<Progress>,
    /// Its unanswered questions to peers.
    pub(crate) asks: LazyBox<BTreeMap<AskId, PendingOutgoing>>,
    /// When it is stopped if nobody asks for it again.
    pub(crate) orphan_timer: Option<Armed>,
    pub(crate) cancel: Wish,
    /// Whether its request is an `initialize` of ACP that declares cancellation.
    pub(crate) declares: bool,
    /// Whether it outlasts the last step of its ladder: nobody waits for it.
    pub(crate) outlasts: bool,
    /// Its timeout while it runs, the next step of its ladder while it stops.
    pub(crate) timer: Option<Armed>,
}

/// First cancel of a job.
#[derive(Debug, Default)]
pub(crate) enum Wish {
    #[default]
    Nobody,
    /// Its owner, who said no more, on the connection it came from: by cancelling this request, or
    /// its task.
    Owner(Option<RequestId>),
    /// A cancel by another identity, or with a reason.
    Said(Box<Cancel>),
}

/// A million of them may be there.
const _: () = assert!(size_of::<Job>() <= 200);

impl Record for Job {
    type Key = JobId;

    fn key(&self) -> &JobId {
        &self.id
    }
}

impl Job {
    /// A job that runs, for nobody yet.
    pub(crate) fn new(
        id: JobId,
        tool: Arc<Tool>,
        owner: Identity,
        conn: ConnId,
        terms: RequestContext,
        since: Instant,
    ) -> Self {
        Self {
            id,
            tool,
            owner,
            conn,
            terms,
            task: None,
            purpose: Purpose::Nobody,
            state: JobState::Running,
            since,
            progress: LazyBox::default(),
            asks: LazyBox::default(),
            orphan_timer: None,
            cancel: Wish::Nobody,
            declares: false,
            outlasts: false,
            timer: None,
        }
    }

    /// Notes who wishes it to stop, unless somebody did before.
    pub(crate) fn note_cancel(&mut self, cancel: Cancel) {
        if matches!(self.cancel, Wish::Nobody) {
            let own = cancel.reason.is_none() && cancel.conn == self.conn;
            self.cancel = match own && cancel.by == self.owner {
                true => Wish::Owner(cancel.request),
                false => Wish::Said(Box::new(cancel)),
            };
        }
    }

    /// Forgets a cancel that was for another request than the job works for now.
    pub(crate) fn forget_cancel(&mut self) {
        self.cancel = Wish::Nobody;
    }

    /// First cancel of the job.
    pub(crate) fn cancel(&self) -> Option<Cancel> {
        let (by, conn) = (self.owner.clone(), self.conn);
        match &self.cancel {
            Wish::Nobody => None,
            Wish::Owner(request) => {
                Some(Cancel { by, conn, request: request.clone(), reason: None })
            }
            Wish::Said(cancel) => Some(Cancel::clone(cancel)),
        }
    }

    /// What it asks and may be answered by whoever looks: not what was sent to its own peer alone.
    pub(crate) fn questions(&self) -> impl Iterator<Item = (AskId, &OutgoingRequest)> {
        self.asks.iter().filter_map(|(ask, asked)| match asked {
            PendingOutgoing::Waiting(question) | PendingOutgoing::Offered(_, _, question) => {
                Some((*ask, question))
            }
            PendingOutgoing::Sent(..) => None,
        })
    }

    /// Whether it waits for what it asked of whoever looks (TSK-28).
    pub(crate) fn needs_input(&self) -> bool {
        self.questions().next().is_some()
    }
}

/// Receiver of the outcome of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A request of the job's connection.
    Answer(RequestId),
    /// Its task.
    Task,
    /// The request that comes back with the input and this state (MOD-07).
    Retry(RequestState),
    /// No receiver: its connection is gone, and it runs on for a time in case the call is repeated.
    Orphan,
    /// No receiver: its request was cancelled, or its connection or task is gone.
    Nobody,
}

/// How far a job is.
///
/// ```text
///   Held, or at once
///     ▼
///   Queued ──Turn──► Running ──────cancel, timeout───────► Stopping ──┐ next step
///     │               │   └──► Lingering ──cancel, LINGER──►│    ▲────┘
///     └─ cancel       └─ Done      └─ Done                  └─ Done, or Abandon
/// ```
#[derive(Debug)]
pub(crate) enum JobState {
    /// Waits for its task to be on disk, with its arguments (DUR-01).
    Held(Json),
    /// Waits for its turn, with its arguments.
    Queued(Json),
    /// The host runs it.
    Running,
    /// Its first process has exited; the others have a moment to do the same.
    Lingering,
    /// It was told to stop and is not gone yet.
    Stopping {
        /// The last step taken.
        step: StopStep,
        /// On whose behalf.
        why: StopReason,
        /// Since when.
        since: Instant,
    },
}

/// How far a job is, where the end is, what it is doing.
pub(crate) type Value = (f64, Option<f64>, Option<Box<str>>);

/// Progress of a job, and its receiver.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The requestor's token as JSON, if it wants to know.
    pub(crate) token: Option<Box<str>>,
    /// The latest of all, for views.
    pub(crate) latest: Option<Value>,
    /// The last value passed on; the next must be larger (TSK-33).
    pub(crate) last: Option<f64>,
    /// The latest value held back because the peer does not read.
    pub(crate) held: Option<Value>,
    /// The last line of output.
    pub(crate) line: Option<Box<str>>,
    /// The value that the next heartbeat exceeds.
    pub(crate) own: Own,
    /// When the next heartbeat is due.
    pub(crate) heartbeat: Option<Armed>,
}

/// The last value that a job reported itself and that was passed on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Own {
    pub(crate) value: f64,
    pub(crate) total: Option<f64>,
    /// Heartbeats since.
    pub(crate) beats: u32,
}

impl Own {
    const NOTHING: Self = Self { value: 0.0, total: None, beats: 0 };
}

impl IsEmpty for Progress {
    const NOTHING: &'static Self = &Self {
        token: None,
        latest: None,
        last: None,
        held: None,
        line: None,
        own: Own::NOTHING,
        heartbeat: None,
    };

    fn is_nothing(&self) -> bool {
        self.token.is_none()
            && self.latest.is_none()
            && self.line.is_none()
            && self.heartbeat.is_none()
    }
}

impl LazyBox<Progress> {
    /// Sets the progress token of the request that the job works for now.
    pub(crate) fn tell(&mut self, token: Option<Box<str>>) {
        match (token, self.some()) {
            (None, None) => {}
            (token, Some(progress)) => progress.token = token,
            (token, None) => self.token = token,
        }
    }

    /// Forgets held progress: it was sent, or has no receiver any more.
    pub(crate) fn forget_held(&mut self) {
        if let Some(progress) = self.some() {
            progress.held = None;
        }
    }
}
