//! One job: the work behind a request or a task, how far it is, and the receiver of its outcome.
//!
//! Both state machines of a job are in this file: [`JobState::after`] and [`Purpose::after`] are
//! total, and nothing else changes a state or a purpose.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::mem;

use crate::action::Cancel;
use crate::collections::lazy_box::{IsEmpty, LazyBox};
use crate::collections::slot_map::Record;
use crate::collections::timer_queue::Armed;
use crate::identity::Identity;
use crate::ids::{AskId, ConnId, JobId, RequestId, RequestState, TaskId};
use crate::json::raw::Json;
use crate::outgoing::call::{OutgoingRequest, PendingOutgoing};
use crate::policy::account::{Account, Charge};
use crate::protocol::request_meta::RequestContext;
use crate::protocol::trace_context::TraceContext;
use crate::reason::StopReason;
use crate::time::Instant;
use crate::tool::{StopPolicy, StopStep, Tool};

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
    purpose: Purpose,
    state: JobState,
    /// When it was asked for.
    pub(crate) since: Instant,
    pub(crate) progress: LazyBox<JobProgress>,
    /// Its unanswered questions to peers.
    pub(crate) asks: LazyBox<BTreeMap<AskId, PendingOutgoing>>,
    /// End of the time that it has without its connection.
    pub(crate) orphan_timer: Option<Armed>,
    cancel: FirstCancel,
    /// Bytes of its arguments and names, until it is gone.
    charge: Charge,
    /// Whether its request is an `initialize` of ACP that declares cancellation.
    pub(crate) declares: bool,
    /// Whether it outlasts the last step of its stop sequence: no request waits for it.
    outlasts: bool,
    /// Whether it holds no place of a running job, since it waits for an answer.
    asking: bool,
    /// Whether it has waited for one before: it runs on beyond the number of running jobs.
    has_asked: bool,
    /// Its timeout while it runs, the next step of its stop policy while it stops.
    pub(crate) timer: Option<Armed>,
}

/// First cancel of a job.
#[derive(Debug, Default)]
enum FirstCancel {
    #[default]
    Nobody,
    /// Its owner, without a reason, on the connection of the job: by cancelling this request, or
    /// its task.
    Owner(Option<RequestId>),
    /// A cancel by another identity, or with a reason.
    Said(Box<Cancel>),
}

/// A million of them may be there.
const _: () = assert!(size_of::<Job>() <= 216);

impl Record for Job {
    type Key = JobId;

    fn key(&self) -> &JobId {
        &self.id
    }
}

impl Job {
    /// A job that is about to be taken in.
    pub(crate) fn new(
        id: JobId,
        tool: Arc<Tool>,
        owner: Identity,
        (conn, terms): (ConnId, RequestContext),
        since: Instant,
        (purpose, state): (Purpose, JobState),
    ) -> Self {
        Self {
            id,
            tool,
            owner,
            conn,
            terms,
            task: None,
            purpose,
            state,
            since,
            progress: LazyBox::default(),
            asks: LazyBox::default(),
            orphan_timer: None,
            cancel: FirstCancel::Nobody,
            charge: Charge::NONE,
            declares: false,
            outlasts: false,
            asking: false,
            has_asked: false,
            timer: None,
        }
    }

    /// Charges the account of its owner with the texts it holds now. The host holds the arguments while
    /// the job runs, so that they are charged until it is gone.
    pub(crate) fn charge_to(&mut self, account: &Account) {
        self.charge = account.charge(self.bytes());
    }

    /// Bytes that are charged.
    pub(crate) const fn charged(&self) -> usize {
        self.charge.bytes()
    }

    /// Bytes of its texts.
    pub(crate) fn bytes(&self) -> usize {
        let route = self.tool.route.as_ref();
        let texts = [&self.progress.token, &self.progress.given];
        self.arguments().map_or(0, |arguments| arguments.get().len())
            + route.map_or(0, |route| route.name.len() + route.method.len())
            + texts.into_iter().flatten().map(|text| text.len()).sum::<usize>()
            + self.trace().map_or(0, |trace| trace.bytes())
    }

    /// Trace context of its request, or of the span that the host records.
    pub(crate) fn trace(&self) -> Option<&Arc<TraceContext>> {
        self.progress.trace.as_ref()
    }

    /// Its state in the life of a job.
    pub(crate) const fn state(&self) -> &JobState {
        &self.state
    }

    /// The arguments of a job that has not begun; the host has those of the others.
    pub(crate) const fn arguments(&self) -> Option<&Json> {
        match &self.state {
            JobState::Held(arguments) | JobState::Queued(arguments) => Some(arguments),
            JobState::Running | JobState::Lingering | JobState::Stopping { .. } => None,
        }
    }

    /// Whether the host was told to run it.
    pub(crate) const fn has_begun(&self) -> bool {
        !matches!(self.state, JobState::Held(_) | JobState::Queued(_))
    }

    /// Receiver of its outcome.
    pub(crate) const fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// Id of the request that waits for it, or that was cancelled.
    pub(crate) fn request(&self) -> Option<&RequestId> {
        match (&self.purpose, &self.cancel) {
            (Purpose::Answer(request), _) => Some(request),
            (_, FirstCancel::Owner(request)) => request.as_ref(),
            (_, FirstCancel::Said(cancel)) => cancel.request.as_ref(),
            (_, FirstCancel::Nobody) => None,
        }
    }

    /// Whether it outlasts the last step of its stop policy.
    pub(crate) const fn outlasts(&self) -> bool {
        self.outlasts
    }

    /// Whether it is counted as one that waits for an answer.
    pub(crate) const fn is_asking(&self) -> bool {
        self.asking
    }

    /// Whether it is a request that a server works on, without a question to its requestor.
    pub(crate) fn is_at_server(&self) -> bool {
        let runs = matches!(self.state, JobState::Running | JobState::Lingering);
        runs && !self.asking && self.tool.route.is_some()
    }

    /// Whether it has waited for an answer.
    pub(crate) const fn has_asked(&self) -> bool {
        self.has_asked
    }

    /// Counts it as one that waits for an answer, or not.
    pub(super) const fn set_asking(&mut self, asking: bool) {
        (self.asking, self.has_asked) = (asking, true);
    }

    /// Whether it runs and waits for an answer to a question that any viewer may answer.
    pub(crate) fn waits_for_answer(&self) -> bool {
        matches!(self.state, JobState::Running | JobState::Lingering) && self.needs_input()
    }

    /// Applies an input and returns its consequences.
    pub(super) fn advance(&mut self, input: JobInput, now: Instant) -> JobEffect {
        let state = mem::replace(&mut self.state, JobState::Lingering);
        let (state, effect) = state.after(input, self.tool.stop_policy, now);
        self.state = state;
        effect
    }

    /// Gives its outcome another receiver, and returns the one before.
    pub(super) fn redirect(&mut self, change: PurposeChange) -> Purpose {
        let purpose = self.purpose.after(change);
        mem::replace(&mut self.purpose, purpose)
    }

    /// Notes that it outlasts the last step of its stop policy.
    pub(super) const fn note_outlasting(&mut self) {
        self.outlasts = true;
    }

    /// Records the origin of the first wish to stop it.
    pub(crate) fn note_cancel(&mut self, cancel: Cancel) {
        if matches!(self.cancel, FirstCancel::Nobody) {
            let own = cancel.reason.is_none() && cancel.conn == self.conn;
            self.cancel = match own && cancel.by == self.owner {
                true => FirstCancel::Owner(cancel.request),
                false => FirstCancel::Said(Box::new(cancel)),
            };
        }
    }

    /// First cancel of the job.
    pub(crate) fn cancel(&self) -> Option<Cancel> {
        let (by, conn) = (self.owner.clone(), self.conn);
        match &self.cancel {
            FirstCancel::Nobody => None,
            FirstCancel::Owner(request) => {
                Some(Cancel { by, conn, request: request.clone(), reason: None })
            }
            FirstCancel::Said(cancel) => Some(Cancel::clone(cancel)),
        }
    }

    /// Questions that any viewer may answer: not those sent to its own peer alone.
    pub(crate) fn questions(&self) -> impl Iterator<Item = (AskId, &OutgoingRequest)> {
        self.asks.iter().filter_map(|(ask, asked)| match asked {
            PendingOutgoing::Waiting(question) | PendingOutgoing::Offered(_, _, question) => {
                Some((*ask, question))
            }
            PendingOutgoing::Sent(..) => None,
        })
    }

    /// Whether it waits for an answer to a question that any viewer may answer (TSK-28).
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
    /// No receiver: its connection is gone, and it runs on for a time. Its outcome answers the call
    /// again if that has a key.
    Orphan,
    /// No receiver: its request was cancelled, or its connection or task is gone.
    NoReceiver,
}

/// A change of the receiver of a job's outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PurposeChange {
    /// The retry of the call waits for it from now on.
    AnswerNow(RequestId),
    /// Its request was answered with a question (MOD-07).
    Suspend(RequestState),
    /// Its connection is gone, and its tool runs on for a time.
    Orphan,
    /// Its connection is gone, and it becomes a task.
    BecomeTask,
    /// Its request was cancelled or answered, or its task is gone.
    Release,
}

impl Purpose {
    /// The receiver after `change`.
    ///
    /// ```text
    ///   Answer ──Suspend──► Retry ──AnswerNow──► Answer
    ///      ├─────Orphan───► Orphan
    ///      ├─────BecomeTask──► Task
    ///      └──┬──────────────────┘ from every state
    ///      Release ──► no receiver, which stays: CAN-08, TSK-33
    /// ```
    fn after(&self, change: PurposeChange) -> Self {
        match (self, change) {
            (Self::NoReceiver, _) | (_, PurposeChange::Release) => Self::NoReceiver,
            (Self::Answer(_), PurposeChange::Suspend(state)) => Self::Retry(state),
            (Self::Answer(_), PurposeChange::Orphan) => Self::Orphan,
            (Self::Answer(_), PurposeChange::BecomeTask) => Self::Task,
            (Self::Retry(_), PurposeChange::AnswerNow(request)) => Self::Answer(request),
            (Self::Answer(_) | Self::Orphan | Self::Task, PurposeChange::AnswerNow(_))
            | (
                Self::Retry(_) | Self::Orphan | Self::Task,
                PurposeChange::Suspend(_) | PurposeChange::Orphan | PurposeChange::BecomeTask,
            ) => self.clone(),
        }
    }
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
        /// Why the job is stopped.
        why: StopReason,
        /// Begin of the stop.
        since: Instant,
    },
}

/// Something that happens to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobInput {
    /// Its task is on disk.
    Stored,
    /// Its turn has come, and there is room.
    Turn,
    /// Its first process has exited and others have not.
    MainExited,
    /// It is to stop.
    Stop(StopReason),
    /// Its timer is due: its timeout, the end of its lingering, or the next step of its stop policy.
    TimerDue,
    /// A shutdown has no time left for the steps of its stop policy.
    KillNow,
}

/// Consequence of an input. The engine carries it out.
#[derive(Debug)]
pub(crate) enum JobEffect {
    /// Nothing: the state has no use for the input.
    Ignored,
    /// It waits for its turn.
    Enqueue,
    /// The host runs it with these arguments.
    Run(Json),
    /// Its other processes get a moment to exit.
    Linger,
    /// It has not begun: it is removed.
    Drop,
    /// The host takes this step; the first one also cancels its questions.
    Step {
        /// The step.
        step: StopStep,
        /// Why the job is stopped.
        why: StopReason,
        /// Whether it is the first.
        is_first: bool,
    },
}

impl JobState {
    /// The state after `input`, and its consequence. Total: an input without a meaning in a state
    /// changes nothing.
    fn after(self, input: JobInput, stop_policy: StopPolicy, now: Instant) -> (Self, JobEffect) {
        let stop = |why| {
            let step = stop_policy.first();
            let effect = JobEffect::Step { step, why, is_first: true };
            (Self::Stopping { step, why, since: now }, effect)
        };
        match (self, input) {
            (Self::Held(arguments), JobInput::Stored) => {
                (Self::Queued(arguments), JobEffect::Enqueue)
            }
            (Self::Queued(arguments), JobInput::Turn) => (Self::Running, JobEffect::Run(arguments)),
            (state @ (Self::Held(_) | Self::Queued(_)), JobInput::Stop(_)) => {
                (state, JobEffect::Drop)
            }
            (Self::Running, JobInput::MainExited) => (Self::Lingering, JobEffect::Linger),
            (Self::Running | Self::Lingering, JobInput::Stop(why)) => stop(why),
            (Self::Running, JobInput::TimerDue) => stop(StopReason::TimedOut),
            (Self::Lingering, JobInput::TimerDue) => stop(StopReason::LeftBehind),
            // A requestor's reason is worth more in a view than the daemon's own.
            (Self::Stopping { step, why, since }, JobInput::Stop(later)) => {
                let why = if why.is_no_cancel() { later } else { why };
                (Self::Stopping { step, why, since }, JobEffect::Ignored)
            }
            (Self::Stopping { step, why, since }, JobInput::TimerDue) => {
                match stop_policy.after(step) {
                    Some((_, step)) => {
                        let effect = JobEffect::Step { step, why, is_first: false };
                        (Self::Stopping { step, why, since }, effect)
                    }
                    None => (Self::Stopping { step, why, since }, JobEffect::Ignored),
                }
            }
            (Self::Stopping { step, why, since }, JobInput::KillNow) => match stop_policy {
                StopPolicy::Command { .. } => {
                    let step = StopStep::Kill;
                    let effect = JobEffect::Step { step, why, is_first: false };
                    (Self::Stopping { step, why, since }, effect)
                }
                StopPolicy::Handler { .. } | StopPolicy::Relay => {
                    (Self::Stopping { step, why, since }, JobEffect::Ignored)
                }
            },
            (state @ Self::Held(_), JobInput::Turn)
            | (state @ Self::Queued(_), JobInput::Stored)
            | (
                state @ (Self::Held(_) | Self::Queued(_)),
                JobInput::MainExited | JobInput::TimerDue | JobInput::KillNow,
            )
            | (
                state @ (Self::Running | Self::Lingering),
                JobInput::Stored | JobInput::Turn | JobInput::KillNow,
            )
            | (state @ Self::Lingering, JobInput::MainExited)
            | (
                state @ Self::Stopping { .. },
                JobInput::Stored | JobInput::Turn | JobInput::MainExited,
            ) => (state, JobEffect::Ignored),
        }
    }
}

/// Progress of a job: value, total, message.
pub(crate) type ProgressValue = (f64, Option<f64>, Option<Box<str>>);

/// Progress of a job, its receiver, and rare data of its request.
#[derive(Debug, Default)]
pub(crate) struct JobProgress {
    /// The requestor's token as JSON, if it wants to know.
    pub(crate) token: Option<Box<str>>,
    /// The latest of all, for views.
    pub(crate) latest: Option<ProgressValue>,
    /// The last value passed on; the next is larger (TSK-33).
    pub(crate) last: Option<f64>,
    /// The latest value held back because the peer does not read.
    pub(crate) held: Option<ProgressValue>,
    /// The last line of output.
    pub(crate) line: Option<Box<str>>,
    /// The value that the next heartbeat exceeds.
    pub(crate) own: Own,
    /// When the next heartbeat is due.
    pub(crate) heartbeat: Option<Armed>,
    /// `inputResponses` that came with the call itself, for questions with a key.
    pub(crate) given: Option<Box<str>>,
    /// Trace context of the request, or of the span that the host records.
    pub(crate) trace: Option<Arc<TraceContext>>,
}

/// The last value that a job reported itself and that was passed on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Own {
    pub(crate) value: f64,
    pub(crate) total: Option<f64>,
    /// Heartbeats, and reports that did not grow, since.
    pub(crate) beats: u32,
}

impl Own {
    const EMPTY: Self = Self { value: 0.0, total: None, beats: 0 };
}

impl IsEmpty for JobProgress {
    const EMPTY: &'static Self = &Self {
        token: None,
        latest: None,
        last: None,
        held: None,
        line: None,
        own: Own::EMPTY,
        heartbeat: None,
        given: None,
        trace: None,
    };

    fn is_empty_value(&self) -> bool {
        self.given.is_none()
            && self.token.is_none()
            && self.latest.is_none()
            && self.line.is_none()
            && self.heartbeat.is_none()
            && self.trace.is_none()
    }
}

impl LazyBox<JobProgress> {
    /// Sets the progress token of the request that the job works for now.
    pub(crate) fn tell(&mut self, token: Option<Box<str>>) {
        match (token, self.some()) {
            (None, None) => {}
            (token, Some(progress)) => progress.token = token,
            (token, None) => self.token = token,
        }
    }

    /// Takes everything that belongs to one request; the trace is the job's until its end.
    pub(crate) fn take_told(&mut self) -> JobProgress {
        let mut told = self.take();
        if let Some(trace) = told.trace.take() {
            self.trace = Some(trace);
        }
        told
    }

    /// Forgets held progress: it was sent, or has no receiver any more.
    pub(crate) fn forget_held(&mut self) {
        if let Some(progress) = self.some() {
            progress.held = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const POLICY: StopPolicy = StopPolicy::Command { kill_grace: Duration::from_secs(2) };

    fn text() -> Json {
        Json::written("{}".into())
    }

    fn states() -> [JobState; 5] {
        let (why, since) = (StopReason::LeftBehind, Instant::ZERO);
        [
            JobState::Held(text()),
            JobState::Queued(text()),
            JobState::Running,
            JobState::Lingering,
            JobState::Stopping { step: StopStep::Terminate, why, since },
        ]
    }

    /// State of a job and consequence, in a word each.
    fn words((state, effect): &(JobState, JobEffect)) -> (&'static str, &'static str) {
        let state = match state {
            JobState::Held(_) => "held",
            JobState::Queued(_) => "queued",
            JobState::Running => "running",
            JobState::Lingering => "lingering",
            JobState::Stopping { why, .. } => why.as_str(),
        };
        let effect = match effect {
            JobEffect::Ignored => "",
            JobEffect::Enqueue => "enqueue",
            JobEffect::Run(_) => "run",
            JobEffect::Linger => "linger",
            JobEffect::Drop => "drop",
            JobEffect::Step { step, .. } => step.as_str(),
        };
        (state, effect)
    }

    /// The whole table of a command: each state with each input.
    #[test]
    fn every_state_takes_every_input() {
        let table = |input| states().map(|s| words(&s.after(input, POLICY, Instant::ZERO)));
        let still = |at: usize| ["held", "queued", "running", "lingering", "left behind"][at];
        let expect = |input, changes: &[(usize, &'static str, &'static str)]| {
            let mut expected: [_; 5] = core::array::from_fn(|at| (still(at), ""));
            for (at, state, effect) in changes {
                expected[*at] = (*state, *effect);
            }
            assert_eq!(table(input), expected, "{input:?}");
        };
        expect(JobInput::Stored, &[(0, "queued", "enqueue")]);
        expect(JobInput::Turn, &[(1, "running", "run")]);
        expect(JobInput::MainExited, &[(2, "lingering", "linger")]);
        expect(
            JobInput::Stop(StopReason::Requested),
            &[
                (0, "held", "drop"),
                (1, "queued", "drop"),
                (2, "requested", "SIGTERM"),
                (3, "requested", "SIGTERM"),
                (4, "requested", ""),
            ],
        );
        expect(
            JobInput::TimerDue,
            &[
                (2, "timed out", "SIGTERM"),
                (3, "left behind", "SIGTERM"),
                (4, "left behind", "SIGKILL"),
            ],
        );
        expect(JobInput::KillNow, &[(4, "left behind", "SIGKILL")]);
    }

    /// OBS-01: a trace outlasts the request that brought it, as when the call waits for an input.
    #[test]
    fn trace_outlasts_its_request() {
        let mut progress = LazyBox::<JobProgress>::default();
        progress.trace = Some(Arc::new(TraceContext::default()));
        progress.token = Some("1".into());
        let told = progress.take_told();
        assert!(told.token.is_some() && progress.token.is_none());
        assert!(told.trace.is_none() && progress.trace.is_some());
        progress.shrink();
        assert!(progress.trace.is_some());
    }

    /// CAN-08, TSK-33: a job without a receiver never gets one again.
    #[test]
    fn released_job_stays_without_a_receiver() {
        let state = RequestState::new(uuid::Uuid::from_u128(7));
        let id = RequestId::Number(1);
        let purposes = [
            Purpose::Answer(id.clone()),
            Purpose::Task,
            Purpose::Retry(state),
            Purpose::Orphan,
            Purpose::NoReceiver,
        ];
        for purpose in purposes {
            assert_eq!(purpose.after(PurposeChange::Release), Purpose::NoReceiver, "{purpose:?}");
        }
        for change in [
            PurposeChange::AnswerNow(id),
            PurposeChange::Suspend(state),
            PurposeChange::Orphan,
            PurposeChange::BecomeTask,
            PurposeChange::Release,
        ] {
            assert_eq!(Purpose::NoReceiver.after(change), Purpose::NoReceiver);
        }
    }
}
