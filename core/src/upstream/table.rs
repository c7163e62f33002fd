//! Tables of upstreams: servers, their instances, and the jobs that are relayed to them.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::collections::timer_queue::Armed;
use crate::identity::Identity;
use crate::ids::{AskId, CallId, CheckId, ConnId, InstanceId, JobId, RequestId};
use crate::log_level::LogLevel;
use crate::outbox::requests::Topic;
use crate::policy::access::{Caller, Item};
use crate::policy::account::ChargedText;
use crate::time::Instant;
use crate::tool::{TaskSupport, Tool};
use crate::upstream::approval::{Pins, ServerPins};
use crate::upstream::audience::ListAudience;
use crate::upstream::check::CancelCheck;
use crate::upstream::early_messages::EarlyMessages;
use crate::upstream::effect::GatewayEffect;
use crate::upstream::interface::{Proof, UpstreamReceipt};
use crate::upstream::list::{LISTS, TOOLS};
use crate::upstream::manifest::Manifest;
use crate::upstream::mirror::Mirror;
use crate::upstream::question::ServerQuestion;
use crate::upstream::reading::ListReading;
use crate::upstream::server::{Pin, UpstreamServer};
use crate::upstream::server_counts::ServerCounts;
use crate::upstream::server_task::ServerTask;
use crate::upstream::spoken::SpokenEra;
use crate::upstream::subscription::Subscription;
use crate::upstream::warnings::Warnings;

/// Everything the engine knows of upstreams.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    /// Servers in the order of the settings, which is the order of lists.
    pub(crate) servers: Vec<KnownServer>,
    /// Servers as their audiences know them, by name; `servers` has the state that is known to all.
    pub(crate) personal: BTreeMap<Box<str>, BTreeMap<ListAudience, KnownServer>>,
    /// Approved tools of servers, by name.
    pub(crate) pins: BTreeMap<Box<str>, ServerPins>,
    /// Number of the last difference from an approved tool.
    pub(crate) last_pins: u64,
    pub(crate) instances: BTreeMap<InstanceId, Instance>,
    /// Relayed jobs that the host would otherwise run.
    pub(crate) jobs: BTreeMap<JobId, RelayedJob>,
    pub(crate) checks: BTreeMap<CheckId, JobId>,
    /// Requests of clients that wait for the identity or the lists of servers.
    pub(crate) waiters: BTreeSet<(ConnId, RequestId)>,
    /// Requests of servers that were passed to the only client of an instance: the connection and the
    /// id of the server's request, by the request to the client.
    pub(crate) asked: BTreeMap<(ConnId, CallId), (ConnId, RequestId)>,
    /// Clients that were asked to visit a URL, oldest first, with the instance's name for the
    /// elicitation.
    pub(crate) elicited: BTreeMap<InstanceId, VecDeque<(Box<str>, ConnId)>>,
    /// Requests of servers that want progress, by the number in their tokens.
    pub(crate) progress: BTreeMap<u64, RelayedProgress>,
    pub(crate) last_progress: u64,
    /// Notifications of clients to the connections of servers, until the requests of this turn are
    /// sent.
    pub(crate) passing: Vec<(ConnId, String)>,
    /// Resources that clients are subscribed to, by the server and its own URI: each watcher with
    /// the URI that it knows.
    pub(crate) watched: BTreeMap<ResourceKey, BTreeMap<Watcher, ChargedText>>,
    /// Messages for sessions that are not initialized, by their clients.
    pub(crate) early: BTreeMap<ConnId, EarlyMessages>,
    /// Log levels that sessions have asked for.
    pub(crate) levels: BTreeMap<ConnId, LogLevel>,
    /// Facts for the receipts of jobs that are about to end.
    pub(crate) receipts: BTreeMap<JobId, UpstreamReceipt>,
    /// Whether servers that start with the engine are still to be started.
    pub(crate) starts_eager: bool,
    /// The identity whose instance was started last.
    pub(crate) last_started: Option<Identity>,
    /// Armed while an instance waits for its start.
    pub(crate) slow_timer: Option<Armed>,
    next_instance: u64,
    next_check: u64,
    /// Consequences that are not carried out yet.
    pub(crate) effects: VecDeque<GatewayEffect>,
}

/// A resource: the name of its server, and the URI that the server knows.
pub(crate) type ResourceKey = (Box<str>, Box<str>);

/// A request of a server that wants progress.
#[derive(Debug)]
pub(crate) struct RelayedProgress {
    /// The connection of the server.
    pub(crate) conn: ConnId,
    pub(crate) request: RequestId,
    /// The token of the server, as JSON text.
    pub(crate) token: Box<str>,
    /// The client that was asked, which alone tells of progress.
    pub(crate) client: Option<ConnId>,
}

/// A session or a subscription that is told of updates of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Watcher {
    pub(crate) conn: ConnId,
    /// The `subscriptions/listen` of the client; `None` for its session.
    pub(crate) listen: Option<RequestId>,
}

impl Watcher {
    /// The session of a client.
    pub(crate) const fn session(conn: ConnId) -> Self {
        Self { conn, listen: None }
    }
}

/// One server of the settings.
#[derive(Debug)]
pub(crate) struct KnownServer {
    pub(crate) server: Arc<UpstreamServer>,
    /// Its latest description and lists.
    pub(crate) manifest: Option<Manifest>,
    /// Its offered tools, by the name that clients use.
    pub(crate) tools: BTreeMap<Box<str>, Arc<Tool>>,
    /// Task support that the server itself declares for its tools, if any.
    pub(crate) support: BTreeMap<Box<str>, TaskSupport>,
    /// Arguments of its tools that headers of HTTP repeat, by the name that the server knows.
    pub(crate) mirrors: BTreeMap<Box<str>, Vec<Mirror>>,
    /// Tools that are left out, since their headers cannot be sent, with the reasons.
    pub(crate) unfit: BTreeMap<Box<str>, Box<str>>,
    /// Elements of `tools/list` as clients see them.
    pub(crate) listed: Vec<Box<str>>,
    /// Tools that are approved, and those that differ.
    pub(crate) pins: Pins,
    /// Lists that are known, by their position; others count as empty.
    pub(crate) known: [bool; LISTS.len()],
    /// Lists that are not whole or were not told, and names that are left out.
    pub(crate) warnings: Warnings,
    /// Whether the manifest differs from the one that the host keeps.
    pub(crate) is_unsaved: bool,
    /// Whether the manifest is one of this process rather than of an earlier one.
    pub(crate) is_verified: bool,
    /// The only era that it speaks, as far as a handshake has shown one.
    pub(crate) era: Option<SpokenEra>,
    /// Era of the latest client with instances for single calls.
    pub(crate) calls_in: SpokenEra,
    /// Starts that failed one after the other.
    pub(crate) failures: u32,
    /// When it may start again.
    pub(crate) not_before: Instant,
    /// Why it did not start last time.
    pub(crate) failure: Option<String>,
    /// Jobs that wait for one of its instances to be free.
    pub(crate) waiting: VecDeque<JobId>,
    pub(crate) counts: ServerCounts,
}

/// Requests that an instance serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InstanceKey {
    /// Those of one connection.
    Client(ConnId),
    /// Those of one identity.
    Owner(Identity),
    /// One call.
    Call,
}

/// How far an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstancePhase {
    /// Waits for its turn to start (UPS-09).
    Queued,
    /// The host starts it.
    Starting,
    /// `server/discover` was sent, and nothing else.
    Probing,
    /// `initialize` was sent.
    Initializing,
    /// It takes requests.
    Ready,
    /// It finishes its requests and takes no new ones (UPS-06).
    Draining,
    /// The host ends it.
    Ending,
}

/// One running server.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) server: Arc<UpstreamServer>,
    pub(crate) key: InstanceKey,
    /// Era of the clients that it starts for.
    pub(crate) era: SpokenEra,
    /// The clients that its lists and its failures are for; `None` for all.
    pub(crate) audience: Option<ListAudience>,
    pub(crate) phase: InstancePhase,
    pub(crate) conn: Option<ConnId>,
    /// Jobs that were assigned and not sent.
    pub(crate) waiting: VecDeque<JobId>,
    /// Jobs whose request was sent and that have not ended, cancelled ones included.
    pub(crate) calls: BTreeSet<JobId>,
    /// The next deadline: of the handshake, of idleness or of draining.
    pub(crate) timer: Option<Armed>,
    /// Latest end of the handshake.
    pub(crate) start_by: Instant,
    /// From then on its start takes long.
    pub(crate) slow_at: Instant,
    /// Whether `server/discover` was its first message.
    pub(crate) is_probed: bool,
    /// The answer to `server/discover` that came while `initialize` was under way.
    pub(crate) discovered: Option<Box<str>>,
    /// The error of `initialize`, while `server/discover` is asked after it.
    pub(crate) refusal: Option<Box<str>>,
    /// Whether another instance follows it at once: the handshake has another beginning.
    pub(crate) starts_again: bool,
    /// Its lists, while they are read.
    pub(crate) reading: ListReading,
    /// Lists that it has said to have changed, and whose clients are told after they were read.
    pub(crate) said_changed: BTreeSet<Topic>,
    /// Its changes and updates, if it has no sessions.
    pub(crate) subscription: Subscription,
    /// Whether it declares log messages.
    pub(crate) has_logging: bool,
    /// The log level that it was asked for.
    pub(crate) log_level: Option<LogLevel>,
    /// Whether its client is gone.
    pub(crate) is_abandoned: bool,
    /// Whether a server by URL has accepted the end of its session.
    pub(crate) is_session_ended: bool,
    /// Why the engine ends it, for errors.
    pub(crate) why: Option<Cow<'static, str>>,
}

/// A relayed job.
#[derive(Debug)]
pub(crate) struct RelayedJob {
    /// The instance that it was assigned to.
    pub(crate) instance: Option<InstanceId>,
    /// Params for the upstream; taken when they are sent.
    pub(crate) params: Option<Box<str>>,
    pub(crate) sent: Option<SentRequest>,
    pub(crate) check: Option<(CheckId, CancelCheck)>,
    pub(crate) timer: Option<Armed>,
    /// Its questions to its client that wait for an answer.
    pub(crate) questions: BTreeMap<AskId, ServerQuestion>,
    /// The last number of a question.
    pub(crate) last_ask: u64,
    /// Inputs that a result of its server asks for.
    pub(crate) inputs: Option<Box<Inputs>>,
    /// Whether its server is told that the call may become a task.
    pub(crate) declares_tasks: bool,
    /// Capabilities of its client, as a server without sessions was told with the call.
    pub(crate) capabilities: Box<str>,
    /// The task that its server, which has no sessions, made of the call.
    pub(crate) task: Option<Box<ServerTask>>,
    /// Whether it was sent a second time, since a server by URL lost it (REM-04).
    pub(crate) is_repeated: bool,
}

/// Inputs of a client on their way to a server without sessions, whose request is sent again with
/// them.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// `requestState` of the last result, as JSON text.
    pub(crate) state: Option<Box<str>>,
    /// Members of `inputResponses` so far, as JSON text.
    pub(crate) responses: String,
    /// How often the server has asked.
    pub(crate) rounds: u32,
}

/// A request that was handed to the send queue of its instance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentRequest {
    pub(crate) call: CallId,
    /// Its frame in the send queue.
    pub(crate) frame: u64,
    pub(crate) since: Instant,
    /// Whether another request was in flight at some time.
    pub(crate) is_shared: bool,
}

impl Instance {
    pub(crate) fn new(server: Arc<UpstreamServer>, key: InstanceKey, era: SpokenEra) -> Self {
        Self {
            server,
            key,
            era,
            audience: None,
            phase: InstancePhase::Queued,
            conn: None,
            waiting: VecDeque::new(),
            calls: BTreeSet::new(),
            timer: None,
            start_by: Instant::ZERO,
            slow_at: Instant::ZERO,
            is_probed: false,
            discovered: None,
            refusal: None,
            starts_again: false,
            reading: ListReading::default(),
            said_changed: BTreeSet::new(),
            subscription: Subscription::default(),
            has_logging: false,
            log_level: None,
            is_abandoned: false,
            is_session_ended: false,
            why: None,
        }
    }

    /// Whether it has not finished its handshake.
    pub(crate) const fn is_starting(&self) -> bool {
        matches!(
            self.phase,
            InstancePhase::Queued
                | InstancePhase::Starting
                | InstancePhase::Probing
                | InstancePhase::Initializing
        )
    }

    /// Whether new requests may be assigned to it.
    pub(crate) const fn is_open(&self) -> bool {
        self.is_starting() || matches!(self.phase, InstancePhase::Ready)
    }

    /// Whether one more request may be sent now.
    pub(crate) fn has_room(&self) -> bool {
        let max = self.server.max_calls.unwrap_or(usize::MAX);
        // UPS-19: a call waits for the list that it is compared with.
        let is_compared = self.server.pin != Pin::Refuse || !self.reading.is_reading(TOOLS);
        self.phase == InstancePhase::Ready && is_compared && self.calls.len() < max.max(1)
    }

    /// Whether it has finished a handshake and is not being ended.
    pub(crate) const fn is_in_session(&self) -> bool {
        matches!(self.phase, InstancePhase::Ready | InstancePhase::Draining)
    }

    /// Whether it works on nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.waiting.is_empty()
    }
}

impl Upstreams {
    /// Whether there are none, so that requests are served without a look at them.
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub(crate) fn server(&self, name: &str) -> Option<&KnownServer> {
        self.servers.iter().find(|server| &*server.server.name == name)
    }

    pub(crate) fn server_mut(&mut self, name: &str) -> Option<&mut KnownServer> {
        self.servers.iter_mut().find(|server| &*server.server.name == name)
    }

    /// Takes in a new instance.
    pub(crate) fn insert(&mut self, instance: Instance) -> InstanceId {
        let id = self.number_instance();
        self.instances.insert(id, instance);
        id
    }

    /// A number for a new process of an upstream.
    pub(crate) fn number_instance(&mut self) -> InstanceId {
        self.next_instance += 1;
        InstanceId::new(self.next_instance)
    }

    /// The number of a new check of a job.
    pub(crate) fn number_check(&mut self, job: JobId) -> CheckId {
        self.next_check += 1;
        let id = CheckId::new(self.next_check);
        self.checks.insert(id, job);
        id
    }

    /// The open instances of a server that serve these requests; for single calls the free ones.
    pub(crate) fn open_for<'a>(
        &'a self,
        server: &'a UpstreamServer,
        key: &'a InstanceKey,
    ) -> impl Iterator<Item = (InstanceId, &'a Instance)> {
        let serves = |instance: &&Instance| {
            instance.server.name == server.name
                && instance.key == *key
                && instance.is_open()
                && (*key != InstanceKey::Call || instance.is_idle())
        };
        let all = self.instances.iter().map(|(id, instance)| (*id, instance));
        all.filter(move |(_, instance)| serves(instance))
    }

    /// Instances of a server, ending ones included.
    pub(crate) fn count(&self, server: &str) -> usize {
        self.instances.values().filter(|instance| &*instance.server.name == server).count()
    }

    /// Instances that the host is starting or that are in their handshake.
    pub(crate) fn all_starting(&self) -> impl Iterator<Item = &Instance> {
        let starts = |instance: &&Instance| {
            matches!(
                instance.phase,
                InstancePhase::Starting | InstancePhase::Probing | InstancePhase::Initializing
            )
        };
        self.instances.values().filter(starts)
    }

    /// Number of instances that start.
    pub(crate) fn starting(&self) -> usize {
        self.all_starting().count()
    }

    /// Whether a server has an instance that is on its way to tell its identity or lists.
    pub(crate) fn is_learning(&self, server: &str, audience: Option<&ListAudience>) -> bool {
        self.instances.values().any(|instance| {
            let tells =
                instance.is_starting() || instance.starts_again || instance.reading.is_active();
            tells && &*instance.server.name == server && instance.audience.as_ref() == audience
        })
    }

    /// Whether a server has an instance that is on its way to tell this list.
    pub(crate) fn is_learning_list(
        &self,
        server: &str,
        audience: Option<&ListAudience>,
        at: usize,
    ) -> bool {
        self.instances.values().any(|instance| {
            let tells =
                instance.is_starting() || instance.starts_again || instance.reading.is_reading(at);
            tells && &*instance.server.name == server && instance.audience.as_ref() == audience
        })
    }

    /// The tool that a caller knows by this name.
    pub(crate) fn tool(
        &self,
        name: &str,
        caller: &Caller<'_>,
        era: SpokenEra,
    ) -> Option<Arc<Tool>> {
        let tool = self.tool_if(name, caller, era, &|item| caller.sees(item))?;
        Some(tool.1)
    }

    /// The tool that a caller knows by this name, or would if only the items that satisfy `is_in`
    /// were there, and its server.
    pub(crate) fn tool_if<'a>(
        &'a self,
        name: &str,
        caller: &Caller<'_>,
        era: SpokenEra,
        is_in: &dyn Fn(Item<'_>) -> bool,
    ) -> Option<(&'a KnownServer, Arc<Tool>)> {
        let is_plain = caller.scope.is_some_and(|scope| scope.only().is_some());
        let seen = |server: &&KnownServer| is_in(Item::Server(&server.server));
        let whole = |server: &KnownServer| match is_plain {
            true => Cow::Owned(alloc::format!("{}{name}", server.server.prefix)),
            false => Cow::Borrowed(name),
        };
        let state = |server| self.state_for(server, caller.identity, era);
        let mut servers = self.servers.iter().filter(seen).map(state);
        let known = servers.find_map(|server| {
            let tool = server.tools.get(&*whole(server))?;
            let item = Item::ServerTool(&server.server, own_name(tool));
            is_in(item).then(|| (server, Arc::clone(tool)))
        });
        if known.is_some() {
            return known;
        }
        // The server judges a name itself before it has listed its tools, and where it shows
        // through: a client gets the answer that it would get without this engine (UPS-10). Of
        // several prefixes the longest one says most.
        let own = |server: &KnownServer| {
            let whole = whole(server);
            let short = whole.strip_prefix(&*server.server.prefix)?;
            let is_open = !server.known[TOOLS] || server.server.transparent || is_plain;
            let is_offered = server.server.filter.offers(short)
                && is_in(Item::ServerTool(&server.server, short));
            (is_open && is_offered).then(|| String::from(short))
        };
        let open = self.servers.iter().filter(seen).map(state);
        let open = open.filter_map(|server| Some((server, own(server)?)));
        // The first of equally long ones.
        let (server, short) =
            open.min_by_key(|(server, _)| usize::MAX - server.server.prefix.len())?;
        let support = server.server.task_support.unwrap_or_default();
        Some((server, Arc::new(server.relayed(name, "tools/call", &short, support))))
    }

    /// Notes an established fact about a job, for its receipt.
    pub(crate) fn prove(&mut self, job: JobId, server: &str, proof: Proof) {
        let instance = self.jobs.get(&job).and_then(|relayed| relayed.instance);
        let receipt = UpstreamReceipt { server: server.into(), instance, proof, object: None };
        self.receipts.insert(job, receipt);
    }

    /// Timers that are armed here.
    pub(crate) fn armed(&self) -> usize {
        self.instances.values().filter(|instance| instance.timer.is_some()).count()
            + self.instances.values().filter(|it| it.reading.timer.is_some()).count()
            + self.jobs.values().filter(|relayed| relayed.timer.is_some()).count()
            + { self.jobs.values().filter_map(|relayed| relayed.task.as_ref()) }
                .filter(|task| task.timer.is_some())
                .count()
            + usize::from(self.slow_timer.is_some())
    }
}

/// The name that the server of a tool knows it by.
pub(crate) fn own_name(tool: &Tool) -> &str {
    tool.route.as_ref().map_or(&*tool.name, |route| &*route.name)
}
