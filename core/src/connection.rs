//! Connections: one peer each, what it asked for and what it is still to be told.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::acp::protocol::AcpPeer;
use crate::collections::det_map::{Seed, Table};
use crate::collections::lazy_box::{IsEmpty, LazyBox};
use crate::collections::timer_queue::Armed;
use crate::event::AfterInput;
use crate::identity::Identity;
use crate::ids::{CallId, ConnId, JobId, RequestId, StatusId, TaskId};
use crate::log_level::LogLevel;
use crate::outgoing::call::{Call, CallFor};
use crate::outgoing::remote_task::RemoteTask;
use crate::protocol::capabilities::PeerCapabilities;
use crate::protocol::capabilities::TaskCapabilities;
use crate::protocol::revision::{Dialect, UnreadableId};
use crate::protocol::role::Side;
use crate::reason::CloseReason;
use crate::rpc::frame::Outbox;
use crate::rpc::message::WireId;
use crate::rpc::recall::Handle;
use crate::time::Instant;

/// How far a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing but `ping` and `initialize` (RPC-04).
    Fresh,
    /// `initialize` was answered.
    Ready,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It does not.
    Open,
    /// The peer has sent everything; it is closed once everything is answered.
    Finished(AfterInput),
    /// The host was told to close it; nothing is read or written any more.
    Closing(CloseReason),
}

/// One peer. There may be very many that say nothing, so what only those have that do is in boxes
/// of its own.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) identity: Identity,
    /// When it was opened.
    pub(crate) since: Instant,
    /// Whether it counts towards the limits: it was not refused, and did not give way.
    pub(crate) is_admitted: bool,
    /// When it made its last request; when it was opened while it has made none.
    pub(crate) last_request: Instant,
    /// Requests it has made.
    pub(crate) requests_made: u64,
    pub(crate) side: Side,
    /// Dialect of its session.
    pub(crate) dialect: &'static Dialect,
    /// How what cannot be read is refused, going by what was spoken so far.
    pub(crate) unreadable_id: UnreadableId,
    pub(crate) phase: Phase,
    pub(crate) ending: Ending,
    pub(crate) log_level: LogLevel,
    pub(crate) outbox: LazyBox<Outbox>,
    /// Requests that wait for an answer, by the peer's id.
    pub(crate) requests: Table<RequestId, Pending>,
    /// Jobs whose latest progress is held back because the peer does not read.
    pub(crate) held_progress: LazyBox<BTreeSet<JobId>>,
    /// Capabilities that the peer declared at initialize.
    pub(crate) peer: PeerCapabilities,
    /// Roles of both sides, on a connection that speaks ACP.
    pub(crate) acp: Option<AcpPeer>,
    /// Rare data.
    pub(crate) aside: LazyBox<ColdState>,
}

/// Rare data: batches, requests of ours, a peer that does not read, an end
/// that is waited for.
#[derive(Debug, Default)]
pub(crate) struct ColdState {
    /// Batches whose answers are being collected.
    pub(crate) batches: BTreeMap<BatchId, BatchAnswer>,
    /// Bytes of answers in `batches`.
    pub(crate) collected: usize,
    /// What subscriptions do not know the latest of, because the peer does not read.
    pub(crate) behind: BTreeMap<RequestId, BTreeSet<Topic>>,
    pub(crate) catch_up_timer: Option<Armed>,
    pub(crate) stall_timer: Option<Armed>,
    pub(crate) linger_timer: Option<Armed>,
    /// Requests of ours that wait for an answer.
    pub(crate) calls: BTreeMap<CallId, Call>,
    /// Tasks at the peer that are followed, by the call that created them.
    pub(crate) remote_tasks: BTreeMap<CallId, RemoteTask>,
    /// Pings sent to find out whether the peer is still there.
    pub(crate) probes: u64,
    /// What only the peer could have named, had it been told.
    pub(crate) lost_handles: Vec<Handle>,
}

impl IsEmpty for ColdState {
    const NOTHING: &'static Self = &Self {
        batches: BTreeMap::new(),
        collected: 0,
        behind: BTreeMap::new(),
        catch_up_timer: None,
        stall_timer: None,
        linger_timer: None,
        calls: BTreeMap::new(),
        remote_tasks: BTreeMap::new(),
        probes: 0,
        lost_handles: Vec::new(),
    };

    fn is_nothing(&self) -> bool {
        let timers = [&self.catch_up_timer, &self.stall_timer, &self.linger_timer];
        self.batches.is_empty()
            && self.behind.is_empty()
            && timers.iter().all(|timer| timer.is_none())
            && self.calls.is_empty()
            && self.remote_tasks.is_empty()
            && self.probes == 0
            && self.lost_handles.is_empty()
    }
}

impl ColdState {
    /// How many tasks at the peer are followed, or will be: what was asked for as one and has no
    /// answer yet may be one already.
    pub(crate) fn tasks_asked_for(&self) -> usize {
        let asked = |call: &&Call| call.with_task && call.whom != CallFor::Nobody;
        self.remote_tasks.len() + self.calls.values().filter(asked).count()
    }

    /// Starts collecting the answers of a batch of `open` messages.
    pub(crate) fn open_batch(&mut self, open: usize) -> BatchId {
        let last = self.batches.last_key_value();
        let batch = BatchId(last.map_or(0, |(BatchId(last), _)| last + 1));
        self.batches.insert(batch, BatchAnswer { open, bytes: Vec::new() });
        batch
    }
}

impl Connection {
    pub(crate) fn new(identity: Identity, seed: Seed) -> Self {
        Self {
            identity,
            since: Instant::ZERO,
            is_admitted: true,
            last_request: Instant::ZERO,
            requests_made: 0,
            side: Side::Server,
            dialect: Dialect::UNSETTLED,
            unreadable_id: Dialect::UNSETTLED.unreadable_id,
            phase: Phase::Fresh,
            ending: Ending::Open,
            log_level: LogLevel::Info,
            outbox: LazyBox::default(),
            requests: Table::new(seed),
            held_progress: LazyBox::default(),
            peer: PeerCapabilities {
                elicitation: false,
                sampling: false,
                roots: false,
                tasks: TaskCapabilities::NONE,
            },
            acp: None,
            aside: LazyBox::default(),
        }
    }

    /// The subscriptions of this connection.
    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = (&RequestId, &Listening)> {
        self.requests.iter().filter_map(|(id, pending)| match &pending.work {
            Work::Listen(listening) => Some((id, &**listening)),
            Work::Job(_) | Work::Task(..) | Work::Survey(_) => None,
        })
    }

    /// A request of ours that waits for an answer.
    pub(crate) fn call_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.aside.some()?.calls.get_mut(&id)
    }

    /// Takes out a request of ours that waits for an answer.
    pub(crate) fn take_call(&mut self, id: CallId) -> Option<Call> {
        self.aside.some()?.calls.remove(&id)
    }

    /// A task at the peer that is followed.
    pub(crate) fn remote_mut(&mut self, id: CallId) -> Option<&mut RemoteTask> {
        self.aside.some()?.remote_tasks.get_mut(&id)
    }
}

/// A request that waits for an answer.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) reply: Reply,
    pub(crate) work: Work,
}

/// Condition that an answer waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    /// A job of its own.
    Job(JobId),
    /// What may be said of a task: its end (TSK-15), or what is not on disk yet (DUR-01).
    Task(TaskId, TaskView),
    /// Its cancel: it is a subscription (MOD-08).
    Listen(Box<Listening>),
    /// Status of the host.
    Survey(StatusId),
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
    /// A task has changed.
    Task(TaskId),
}

impl Listening {
    pub(crate) fn wants(&self, topic: Topic) -> bool {
        match topic {
            Topic::Tools => self.tools,
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
    /// The id as it was written, where that is not the only way to write it (RPC-01).
    pub(crate) token: Option<Box<str>>,
    pub(crate) batch: Option<BatchId>,
    /// The revision the request speaks: the session's, or its own.
    pub(crate) dialect: &'static Dialect,
}

impl Reply {
    pub(crate) fn new(
        conn: ConnId,
        wire: WireId<'_>,
        batch: Option<BatchId>,
        dialect: &'static Dialect,
    ) -> Self {
        let token = wire.odd_token().map(Into::into);
        Self { conn, id: wire.id, token, batch, dialect }
    }
}

/// A batch of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BatchId(u64);

/// The answers of a batch so far.
#[derive(Debug)]
pub(crate) struct BatchAnswer {
    /// Messages not settled yet.
    pub(crate) open: usize,
    /// Answers, each followed by a comma.
    pub(crate) bytes: Vec<u8>,
}
