//! Connections: one peer each, with its open requests and its pending notifications.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::acp::protocol::AcpPeer;
use crate::collections::det_map::Seed;
use crate::collections::lazy_box::{IsEmpty, LazyBox};
use crate::collections::timer_queue::Armed;
use crate::event::AfterInput;
use crate::identity::{Identity, Rights};
use crate::ids::{ConnId, InstanceId, JobId, RequestId};
use crate::log_level::LogLevel;
use crate::outbox::requests::{BatchId, Requests, Topic};
use crate::policy::account::{Account, Charge, ChargedText};
use crate::policy::allow::Grants;
use crate::protocol::capabilities::{PeerCapabilities, TaskCapabilities};
use crate::protocol::revision::{Dialect, UnreadableId};
use crate::protocol::role::Side;
use crate::reason::CloseReason;
use crate::rpc::send_queue::{Handle, SendQueue};
use crate::time::Instant;
use crate::upstream::scope::Scope;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counterpart {
    /// A client, or a server that the host has connected.
    Peer,
    /// A client whose frames pass to its agent.
    AgentClient,
    /// An instance of a server behind this one.
    Instance(InstanceId),
    /// The agent of the client with this connection.
    Agent(ConnId),
}

impl Counterpart {
    /// Whether it is a process that the engine has started, and no peer.
    pub(crate) const fn is_behind(self) -> bool {
        match self {
            Self::Instance(_) | Self::Agent(_) => true,
            Self::Peer | Self::AgentClient => false,
        }
    }
}

/// A counterpart without its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CounterpartKind {
    Peer,
    AgentClient,
    Instance,
    Agent,
}

/// How far a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionPhase {
    /// Nothing but `ping` and `initialize` (RPC-04).
    Fresh,
    /// `initialize` was answered.
    Ready,
}

/// The ending of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// It does not.
    Open,
    /// The peer has sent everything; it is closed once everything is answered.
    Finished(AfterInput),
    /// The host was told to close it; nothing is read or written any more.
    Closing(CloseReason),
}

/// One peer. Very many may be idle, so the fields that only active peers need are in boxes
/// of its own.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) identity: Identity,
    pub(crate) rights: Rights,
    /// Kind of the counterpart, whose number is rare data.
    kind: CounterpartKind,
    /// When it was opened.
    pub(crate) since: Instant,
    /// Whether it carries single requests of a client without a session, which may come by others
    /// as well.
    pub(crate) is_lone: bool,
    /// Whether it counts towards the limits: it was not refused, and did not give way.
    pub(crate) is_admitted: bool,
    /// When it made its last request; when it was opened while it has made none.
    pub(crate) last_request: Instant,
    /// Requests it has made.
    pub(crate) requests_made: u64,
    pub(crate) side: Side,
    /// Dialect of its session.
    pub(crate) dialect: &'static Dialect,
    /// Id in the error for an unreadable frame, by the revision that was spoken so far.
    pub(crate) unreadable_id: UnreadableId,
    pub(crate) phase: SessionPhase,
    pub(crate) ending: ConnectionEnd,
    pub(crate) log_level: LogLevel,
    pub(crate) send_queue: LazyBox<SendQueue>,
    /// Requests that wait for an answer.
    pub(crate) requests: Requests,
    /// Jobs whose latest progress is held back because the peer does not read.
    pub(crate) held_progress: LazyBox<BTreeSet<JobId>>,
    /// Capabilities that the peer declared at initialize.
    pub(crate) peer: PeerCapabilities,
    /// Roles of both sides, on a connection that speaks ACP.
    pub(crate) acp: Option<AcpPeer>,
    /// The part that it sees, if it does not see everything.
    pub(crate) scope: Option<Box<Scope>>,
    /// Rare data.
    pub(crate) aside: LazyBox<ColdState>,
}

/// Rare data: batches, a peer that does not read, an end that is waited for.
#[derive(Debug, Default)]
pub(crate) struct ColdState {
    /// Batches whose answers are being collected.
    pub(crate) batches: BTreeMap<BatchId, BatchAnswer>,
    /// Bytes of answers in `batches`.
    pub(crate) collected: Charge,
    /// Topics whose latest state a subscription lacks, because the peer does not read.
    pub(crate) behind: BTreeMap<RequestId, BTreeSet<Topic>>,
    pub(crate) catch_up_timer: Option<Armed>,
    pub(crate) stall_timer: Option<Armed>,
    pub(crate) linger_timer: Option<Armed>,
    /// Pings sent to find out whether the peer is still there.
    pub(crate) probes: u64,
    /// Open requests when `linger_timer` was armed.
    pub(crate) lingering: usize,
    /// Names that only the peer could have used, in frames that were never sent.
    pub(crate) lost_handles: Vec<Handle>,
    /// Capabilities that the client declared, as JSON text, for servers behind us.
    pub(crate) declared: Option<ChargedText>,
    /// Name and version that the client states, as JSON text, for the same servers.
    pub(crate) client_info: Option<ChargedText>,
    /// Groups and scopes of its token.
    pub(crate) grants: Option<Arc<Grants>>,
    /// Number of the counterpart, where it is an instance or an agent.
    number: u64,
}

impl IsEmpty for ColdState {
    const EMPTY: &'static Self = &Self {
        batches: BTreeMap::new(),
        collected: Charge::NONE,
        behind: BTreeMap::new(),
        catch_up_timer: None,
        stall_timer: None,
        linger_timer: None,
        probes: 0,
        lingering: 0,
        lost_handles: Vec::new(),
        declared: None,
        client_info: None,
        grants: None,
        number: 0,
    };

    fn is_empty_value(&self) -> bool {
        let timers = [&self.catch_up_timer, &self.stall_timer, &self.linger_timer];
        self.batches.is_empty()
            && self.behind.is_empty()
            && timers.iter().all(|timer| timer.is_none())
            && self.probes == 0
            && self.lingering == 0
            && self.lost_handles.is_empty()
            && self.declared.is_none()
            && self.client_info.is_none()
            && self.grants.is_none()
            && self.number == 0
    }
}

impl ColdState {
    /// Starts collecting the answers of a batch of `open` messages.
    pub(crate) fn open_batch(&mut self, open: usize, account: &Account) -> BatchId {
        self.collected.assign(account);
        let last = self.batches.last_key_value().map(|(last, _)| *last);
        let batch = BatchId::after(last);
        self.batches.insert(batch, BatchAnswer { open, bytes: Vec::new() });
        batch
    }
}

/// Counterpart.
impl Connection {
    /// The other end.
    #[inline]
    pub(crate) fn counterpart(&self) -> Counterpart {
        match self.kind {
            CounterpartKind::Peer => Counterpart::Peer,
            CounterpartKind::AgentClient => Counterpart::AgentClient,
            CounterpartKind::Instance => Counterpart::Instance(InstanceId::new(self.aside.number)),
            CounterpartKind::Agent => Counterpart::Agent(ConnId::new(self.aside.number)),
        }
    }

    /// Sets the other end.
    pub(crate) fn set_counterpart(&mut self, counterpart: Counterpart) {
        let (kind, number) = match counterpart {
            Counterpart::Peer => (CounterpartKind::Peer, None),
            Counterpart::AgentClient => (CounterpartKind::AgentClient, None),
            Counterpart::Instance(id) => (CounterpartKind::Instance, Some(id.get())),
            Counterpart::Agent(client) => (CounterpartKind::Agent, Some(client.get())),
        };
        self.kind = kind;
        if let Some(number) = number {
            self.aside.number = number;
        }
    }
}

impl Connection {
    pub(crate) fn new(identity: Identity, seed: Seed) -> Self {
        Self {
            identity,
            rights: Rights::Full,
            kind: CounterpartKind::Peer,
            since: Instant::ZERO,
            is_lone: false,
            is_admitted: true,
            last_request: Instant::ZERO,
            requests_made: 0,
            side: Side::Server,
            dialect: Dialect::UNSETTLED,
            unreadable_id: Dialect::UNSETTLED.unreadable_id,
            phase: SessionPhase::Fresh,
            ending: ConnectionEnd::Open,
            log_level: LogLevel::Info,
            send_queue: LazyBox::default(),
            requests: Requests::new(seed),
            held_progress: LazyBox::default(),
            peer: PeerCapabilities {
                elicitation: false,
                sampling: false,
                roots: false,
                tasks: TaskCapabilities::NONE,
            },
            acp: None,
            scope: None,
            aside: LazyBox::default(),
        }
    }

    /// The account of its identity.
    pub(crate) const fn account(&self) -> &Account {
        self.requests.account()
    }
}

/// The answers of a batch so far.
#[derive(Debug)]
pub(crate) struct BatchAnswer {
    /// Messages not settled yet.
    pub(crate) open: usize,
    /// Answers, each followed by a comma.
    pub(crate) bytes: Vec<u8>,
}
