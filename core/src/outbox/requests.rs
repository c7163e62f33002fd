//! Open requests of one connection, and the right to answer each of them once.
//!
//! ```text
//!   received ──open──► waits for a job, a task, the host, or its cancel
//!                        ├─ settle ───► its `Reply`: answered, once
//!                        ├─ cancel ───► no `Reply`: never answered (CAN-08)
//!                        └─ take_all ─► its `Reply`: cut off by a disconnect or a shutdown
//! ```
//!
//! Every way in and out of the table is in this file. A [`Reply`] cannot be copied, can only be
//! made of a request that was just read, and leaves the table by `settle` or `take_all` alone; so
//! a cancelled request has no response even if its job finishes.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::collections::det_map::{Seed, Table};
use crate::ids::{ConnId, JobId, RequestId, StatusId, TaskId};
use crate::policy::account::{Account, Charge};
use crate::protocol::capabilities::PeerCapabilities;
use crate::protocol::revision::Dialect;
use crate::protocol::trace_context::TraceContext;
use crate::rpc::message::WireId;
use crate::tasks::shared::LookupId;
use crate::time::Instant;
use crate::upstream::awaited::AwaitedAnswer;
use crate::upstream::question::AskedOf;

/// Requests of one connection that wait for an answer, by the peer's id.
#[derive(Debug)]
pub(crate) struct Requests {
    open: Table<RequestId, PendingRequest>,
    /// Bytes of their ids, and of the URIs of subscriptions.
    charge: Charge,
}

/// A request that waits for an answer.
#[derive(Debug)]
struct PendingRequest {
    reply: Reply,
    work: RequestWork,
}

impl PendingRequest {
    /// Bytes that it holds beside its size.
    fn bytes(&self) -> usize {
        let texts = match &self.work {
            RequestWork::Listen(listening) => listening.uris.iter().map(|uri| uri.len()).sum(),
            RequestWork::Lookup(asked) => asked.params.as_ref().map_or(0, |params| params.len()),
            RequestWork::Job(_)
            | RequestWork::Task(..)
            | RequestWork::Survey(_)
            | RequestWork::Upstream(_)
            | RequestWork::Question(_) => 0,
        };
        self.reply.name_bytes() + texts
    }
}

/// Condition that an answer waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestWork {
    /// A job of its own.
    Job(JobId),
    /// Something about a task: its end (TSK-15), or a state that is not on disk yet (DUR-01).
    Task(TaskId, TaskView),
    /// Its cancel: it is a subscription (MOD-08).
    Listen(Box<Listening>),
    /// Status of the host.
    Survey(StatusId),
    /// Identity or lists of upstreams.
    Upstream(AwaitedAnswer),
    /// A client, to which a request of a server was passed.
    Question(AskedOf),
    /// The table that several engines share.
    Lookup(Box<LookupRequest>),
}

/// A request about tasks that waits for the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LookupRequest {
    /// The question.
    pub(crate) lookup: LookupId,
    /// The method of the request.
    pub(crate) method: TaskMethod,
    /// Its params, as JSON text.
    pub(crate) params: Option<Box<str>>,
}

/// A method about tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskMethod {
    /// `tasks/get` of a session.
    Get,
    /// `tasks/result`.
    Result,
    /// `tasks/list`.
    List,
    /// `tasks/cancel`.
    Cancel,
    /// `tasks/get` of such a client without a session (EXT-02).
    Detailed(PeerCapabilities),
    /// `tasks/update`.
    Update,
    /// `subscriptions/listen` that names tasks.
    Listen,
    /// `tools/call` with an idempotency key that is being claimed.
    Call,
    /// `tools/call` whose idempotency key names a task.
    Handle,
}

impl TaskMethod {
    /// The method of a session with this name.
    pub(crate) fn of_session(name: &str) -> Option<Self> {
        match name {
            "tasks/get" => Some(Self::Get),
            "tasks/result" => Some(Self::Result),
            "tasks/list" => Some(Self::List),
            "tasks/cancel" => Some(Self::Cancel),
            _ => None,
        }
    }

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get | Self::Detailed(_) => "tasks/get",
            Self::Result => "tasks/result",
            Self::List => "tasks/list",
            Self::Cancel => "tasks/cancel",
            Self::Update => "tasks/update",
            Self::Listen => "subscriptions/listen",
            Self::Call | Self::Handle => "tools/call",
        }
    }

    /// Whether the answer needs the outcome of the task.
    pub(crate) const fn needs_outcome(self) -> bool {
        match self {
            Self::Result | Self::Detailed(_) | Self::Handle => true,
            Self::Get | Self::List | Self::Cancel | Self::Update | Self::Listen | Self::Call => {
                false
            }
        }
    }
}

/// The work that has come to its end, so that the request waiting for it may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// This job has handed in its outcome, or will not.
    Job(JobId),
    /// The state of this task may be shown, or the task is gone.
    Task(TaskId),
    /// The host has reported its status.
    Survey(StatusId),
    /// The subscription ends from this side.
    Listen,
    /// The upstreams have told of themselves, or will not.
    Upstream,
    /// The client has answered, or will not.
    Question(AskedOf),
    /// The table has answered.
    Lookup(LookupId),
}

/// A request that was cancelled. Its right to an answer is gone (CAN-08).
#[derive(Debug)]
pub(crate) struct CancelledRequest {
    /// The work to stop.
    pub(crate) work: RequestWork,
    /// The batch of the request, in which it counts as settled.
    pub(crate) batch: Option<BatchId>,
    /// Facts for its span, if the host records one.
    pub(crate) traced: Option<Box<Traced>>,
}

impl RequestWork {
    /// Whether this end is the one that the request waits for.
    fn is_settled_by(&self, settled: Settled) -> bool {
        match (self, settled) {
            (Self::Job(job), Settled::Job(ended)) => *job == ended,
            (Self::Task(task, _), Settled::Task(shown)) => *task == shown,
            (Self::Survey(survey), Settled::Survey(collected)) => *survey == collected,
            (Self::Listen(_), Settled::Listen) => true,
            (Self::Upstream(_), Settled::Upstream) => true,
            (Self::Question(of), Settled::Question(answered)) => *of == answered,
            (Self::Lookup(asked), Settled::Lookup(answered)) => asked.lookup == answered,
            (
                Self::Job(_)
                | Self::Task(..)
                | Self::Survey(_)
                | Self::Listen(_)
                | Self::Upstream(_)
                | Self::Question(_)
                | Self::Lookup(_),
                _,
            ) => false,
        }
    }
}

impl Requests {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { open: Table::new(seed), charge: Charge::NONE }
    }

    /// Charges them to this account.
    pub(crate) fn charge_to(&mut self, account: &Account) {
        self.charge.assign(account);
    }

    /// The account of their peer.
    pub(crate) const fn account(&self) -> &Account {
        self.charge.account()
    }

    /// Bytes that are charged.
    pub(crate) const fn charged(&self) -> usize {
        self.charge.bytes()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn contains(&self, id: &RequestId) -> bool {
        self.open.contains_key(id)
    }

    /// Bytes of the requests that are open.
    pub(crate) fn bytes(&self) -> usize {
        self.open.sum(PendingRequest::bytes)
    }

    /// The work that a request waits for.
    pub(crate) fn work(&self, id: &RequestId) -> Option<&RequestWork> {
        self.open.get(id).map(|pending| &pending.work)
    }

    /// A request and the work it waits for.
    pub(crate) fn get(&self, id: &RequestId) -> Option<(&Reply, &RequestWork)> {
        self.open.get(id).map(|pending| (&pending.reply, &pending.work))
    }

    /// Every request with its work, sorted by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RequestId, &Reply, &RequestWork)> {
        self.open.iter().map(|(id, pending)| (id, &pending.reply, &pending.work))
    }

    /// The subscriptions, sorted by id.
    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = (&RequestId, &Listening)> {
        self.open.iter().filter_map(|(id, pending)| match &pending.work {
            RequestWork::Listen(listening) => Some((id, &**listening)),
            RequestWork::Job(_)
            | RequestWork::Task(..)
            | RequestWork::Survey(_)
            | RequestWork::Upstream(_)
            | RequestWork::Lookup(_)
            | RequestWork::Question(_) => None,
        })
    }

    /// Takes a request in that waits for this work. Its id must be free (RPC-02).
    pub(crate) fn open(&mut self, reply: Reply, work: RequestWork) {
        let pending = PendingRequest { reply, work };
        self.charge.grow(pending.bytes());
        self.open.insert(pending.reply.id.clone(), pending);
    }

    /// Takes a request out to be answered, if it waits for this and was not cancelled.
    ///
    /// An id may be used again after a cancel: the work decides, not the id alone.
    #[must_use = "a request is answered exactly once (RPC-03)"]
    pub(crate) fn settle(&mut self, id: &RequestId, settled: Settled) -> Option<Reply> {
        if !self.open.get(id)?.work.is_settled_by(settled) {
            return None;
        }
        let pending = self.open.remove(id)?;
        self.charge.shrink(pending.bytes());
        Some(pending.reply)
    }

    /// Takes a request out that its requestor cancels, unless `is_kept` says that the cancel does
    /// not apply to it.
    pub(crate) fn cancel(
        &mut self,
        id: &RequestId,
        is_kept: impl FnOnce(&Reply, &RequestWork) -> bool,
    ) -> Option<CancelledRequest> {
        let PendingRequest { reply, work } = self.open.get(id)?;
        if is_kept(reply, work) {
            return None;
        }
        // CAN-08: the only right to answer is dropped here.
        let pending = self.open.remove(id)?;
        self.charge.shrink(pending.bytes());
        let PendingRequest { reply, work } = pending;
        Some(CancelledRequest { work, batch: reply.batch, traced: reply.traced })
    }

    /// Takes every request out, sorted by id: the connection or the daemon ends.
    pub(crate) fn take_all(&mut self) -> Vec<(RequestId, Reply, RequestWork)> {
        self.charge.set(0);
        let all = self.open.take().into_iter();
        all.map(|(id, PendingRequest { reply, work })| (id, reply, work)).collect()
    }

    /// A task is gone: a subscription listens to it no longer.
    pub(crate) fn forget_topic(&mut self, id: &RequestId, task: TaskId) {
        if let Some(PendingRequest { work: RequestWork::Listen(listening), .. }) =
            self.open.get_mut(id)
        {
            listening.tasks.remove(&task);
        }
    }
}

/// Form of the answer to a request about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskView {
    /// That it was created (TSK-07, EXT-02).
    Handle,
    /// Its outcome, once it has ended (TSK-14).
    Outcome,
    /// How it is (TSK-12).
    State,
    /// How it is, with all there is to know, for such a client (EXT-02).
    Detailed(PeerCapabilities),
    /// That this request cancelled it (TSK-24, EXT-04).
    Cancelled,
    /// That it had ended before this request could cancel it (TSK-23, EXT-04).
    TooLate,
}

impl TaskView {
    /// The method of the request, for a log.
    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Handle => "tools/call",
            Self::Outcome => "tasks/result",
            Self::State | Self::Detailed(_) => "tasks/get",
            Self::Cancelled | Self::TooLate => "tasks/cancel",
        }
    }
}

/// Subjects of a subscription (MOD-08).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Listening {
    /// Whether it wants to know of other tools.
    pub(crate) tools: bool,
    /// Whether it wants to know of other prompts.
    pub(crate) prompts: bool,
    /// Whether it wants to know of other resources.
    pub(crate) resources: bool,
    /// The resources whose updates it wants to know of.
    pub(crate) uris: BTreeSet<Box<str>>,
    /// The tasks it wants to know of.
    pub(crate) tasks: BTreeSet<TaskId>,
    /// Input that its client can give; shown with a task.
    pub(crate) peer: PeerCapabilities,
}

/// Something a subscription may be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// There may be other tools now.
    Tools,
    /// There may be other prompts now.
    Prompts,
    /// There may be other resources now.
    Resources,
    /// A task has changed.
    Task(TaskId),
}

impl Topic {
    /// The notification that a list may be another; `None` for a task.
    pub(crate) const fn method(self) -> Option<&'static str> {
        match self {
            Self::Tools => Some("notifications/tools/list_changed"),
            Self::Prompts => Some("notifications/prompts/list_changed"),
            Self::Resources => Some("notifications/resources/list_changed"),
            Self::Task(_) => None,
        }
    }

    /// The list that a notification names.
    pub(crate) fn of_method(method: &str) -> Option<Self> {
        let all = [Self::Tools, Self::Prompts, Self::Resources];
        all.into_iter().find(|topic| topic.method() == Some(method))
    }
}

impl Listening {
    pub(crate) fn wants(&self, topic: Topic) -> bool {
        match topic {
            Topic::Tools => self.tools,
            Topic::Prompts => self.prompts,
            Topic::Resources => self.resources,
            Topic::Task(id) => self.tasks.contains(&id),
        }
    }
}

/// The right to answer one request, once. Consumed by answering, refusing or forgetting it.
#[derive(Debug)]
#[must_use = "a request is answered exactly once (RPC-03)"]
pub(crate) struct Reply {
    pub(crate) conn: ConnId,
    pub(crate) id: RequestId,
    /// The id as it was written, where that is not the only way to write it (RPC-01). Rare, so that
    /// it has as little room as possible.
    token: Option<Box<OddToken>>,
    pub(crate) batch: Option<BatchId>,
    /// The revision the request speaks: the session's, or its own.
    pub(crate) dialect: &'static Dialect,
    /// Facts for its span, if the host records one.
    pub(crate) traced: Option<Box<Traced>>,
    /// Private, so that [`Reply::new`] alone makes one.
    _once: Once,
}

/// An id as it was written.
#[derive(Debug)]
struct OddToken(Box<str>);

/// Facts about a request for its span (OBS-01).
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) method: Box<str>,
    pub(crate) trace: Option<Box<TraceContext>>,
    pub(crate) asked: Instant,
}

/// Keeps others from making a [`Reply`].
#[derive(Debug)]
struct Once;

impl Reply {
    /// The right to answer a request that was just read.
    pub(crate) fn new(
        conn: ConnId,
        wire: WireId<'_>,
        batch: Option<BatchId>,
        dialect: &'static Dialect,
    ) -> Self {
        let token = wire.odd_token().map(|token| Box::new(OddToken(token.into())));
        Self { conn, id: wire.id, token, batch, dialect, traced: None, _once: Once }
    }

    /// The id as it was written, where that is not the only way to write it.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_ref().map(|token| &*token.0)
    }

    /// Bytes of the texts of its id.
    pub(crate) fn name_bytes(&self) -> usize {
        self.id.bytes() + self.token().map_or(0, str::len)
    }
}

/// A batch of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BatchId(u64);

impl BatchId {
    /// The number after the one of `last`, or the first.
    pub(crate) fn after(last: Option<Self>) -> Self {
        Self(last.map_or(0, |Self(last)| last + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(id: i64) -> Reply {
        let wire = WireId::of(RequestId::Number(id));
        Reply::new(ConnId::new(1), wire, None, Dialect::UNSETTLED)
    }

    fn is_answered(requests: &mut Requests, settled: Settled) -> bool {
        requests.settle(&RequestId::Number(1), settled).is_some()
    }

    /// CAN-08: the job of a cancelled request finds no right to answer, even if another request
    /// has the same id by then.
    #[test]
    fn cancelled_request_is_not_settled() {
        let (id, job, later) = (RequestId::Number(1), JobId::new(1), JobId::new(2));
        let mut requests = Requests::new(Seed::default());
        requests.open(reply(1), RequestWork::Job(job));
        assert!(requests.cancel(&id, |_, _| true).is_none(), "kept");
        let cancelled = requests.cancel(&id, |_, _| false);
        assert_eq!(cancelled.map(|cancelled| cancelled.work), Some(RequestWork::Job(job)));
        assert!(!is_answered(&mut requests, Settled::Job(job)));
        requests.open(reply(1), RequestWork::Job(later));
        assert!(!is_answered(&mut requests, Settled::Job(job)));
        assert!(is_answered(&mut requests, Settled::Job(later)));
        assert!(requests.is_empty());
    }

    /// RPC-03: each kind of work is settled by its own end and by no other.
    #[test]
    fn request_is_settled_by_its_own_work_alone() {
        let task = TaskId::new(uuid::Uuid::from_u128(7));
        let ends = [
            Settled::Job(JobId::new(1)),
            Settled::Task(task),
            Settled::Survey(StatusId::new(1)),
            Settled::Listen,
        ];
        let works = [
            RequestWork::Job(JobId::new(1)),
            RequestWork::Task(task, TaskView::State),
            RequestWork::Survey(StatusId::new(1)),
            RequestWork::Listen(Box::default()),
        ];
        for (at, work) in works.iter().enumerate() {
            for (end_at, end) in ends.iter().enumerate() {
                let mut requests = Requests::new(Seed::default());
                requests.open(reply(1), work.clone());
                assert_eq!(is_answered(&mut requests, *end), at == end_at, "{work:?} {end:?}");
            }
        }
    }
}
