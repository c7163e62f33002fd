//! The engine: takes one event, changes its tables, returns actions.
//!
//! All branching on protocol rules is in the files below this one, one for each group of methods.
//! Nothing here waits, fails or asks for the time. Rare cases are kept out of line, so that the code
//! of a usual call is small and contiguous.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::action::Action;
use crate::collections::det_map::Seed;
use crate::collections::timer_queue::{Armed, Timer, TimerQueue};
use crate::connection::{Counterpart, SessionPhase};
use crate::counters::Counters;
use crate::event::Event;
use crate::identity::Identity;
use crate::ids::{ConnId, IdSource, JobId, RequestId, StatusId, TaskId};
use crate::jobs::Jobs;
use crate::jobs::job::JobState;
use crate::jobs::messages::ProgressReport;
use crate::outbox::Outbox;
use crate::outbox::requests::Topic;
use crate::outgoing::OutgoingRequests;
use crate::outgoing::call::Caller;
use crate::policy::account::{Account, Accounts};
use crate::policy::rate::Rates;
use crate::protocol::revision::Dialect;
use crate::protocol::trace_context::TraceContext;
use crate::provider::OfferKind;
use crate::reason::CloseReason;
use crate::rpc::send_queue::SendQueue;
use crate::server::host_request::HostRequest;
use crate::server::keyed_calls::KeyedCalls;
use crate::server::suspended_calls::SuspendedCalls;
use crate::settings::Settings;
use crate::supervisor::table::Agents;
use crate::tasks::lookups::{Resumed, TaskLookups};
use crate::tasks::shared::SharedEvent;
use crate::tasks::task::Tasks;
use crate::time::{Instant, Now};
use crate::upstream::awaited::AwaitedAnswer;
use crate::upstream::effect::GatewayEffect;
use crate::upstream::interface::UpstreamEvent;
use crate::upstream::mirror::Mirror;
use crate::upstream::server::UpstreamServer;
use crate::upstream::table::Upstreams;

/// Timers that one tick takes at most, so that a million tasks that expire together delay no peer
/// for long.
const TICK_MAX: usize = 128;

/// Facts about a job, for the record of its end.
#[derive(Debug, Clone, Copy)]
pub struct JobFacts<'a> {
    /// Identity that owns it.
    pub owner: &'a Identity,
    /// Trace context of its request.
    pub trace: Option<&'a Arc<TraceContext>>,
    /// Whether it was told to stop.
    pub is_stopping: bool,
}

/// The state machine. The [crate documentation](crate) has an example that drives it.
pub struct Engine {
    pub(crate) settings: Arc<Settings>,
    pub(crate) id_source: Box<dyn IdSource>,
    pub(crate) now: Now,
    /// Connections, and everything that leaves the engine.
    pub(crate) outbox: Outbox,
    /// Seed of the hashes of its tables.
    pub(crate) seed: Seed,
    /// Bytes that are held for each identity.
    pub(crate) accounts: Accounts,
    pub(crate) jobs: Jobs,
    /// Calls by the key their requestor gave them.
    pub(crate) keyed: KeyedCalls,
    /// Rates of requests about tasks, by identity.
    pub(crate) task_ops: Rates,
    /// Jobs that wait for a retry.
    pub(crate) suspended: SuspendedCalls,
    pub(crate) tasks: Tasks,
    /// Questions to the table that several engines share.
    pub(crate) lookups: TaskLookups,
    pub(crate) timers: TimerQueue,
    /// Requests of ours.
    pub(crate) outgoing: OutgoingRequests,
    /// Requests that wait for data of the host.
    pub(crate) surveys: BTreeMap<StatusId, HostRequest>,
    /// Servers behind this one, their instances, and the jobs that are relayed to them.
    pub(crate) upstreams: Upstreams,
    /// Agents behind clients that speak ACP.
    pub(crate) agents: Agents,
    pub(crate) next_survey: u64,
    pub(crate) drain: Option<Drain>,
    /// No further work is taken.
    pub(crate) retires: bool,
    /// The loosest limits so far: a reload does not evict admitted peers.
    pub(crate) loosest: LoosestLimits,
}

/// How much may be under way at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoosestLimits {
    pub(crate) running: usize,
    pub(crate) running_per_identity: usize,
    pub(crate) inflight: usize,
}

impl LoosestLimits {
    pub(crate) fn of(settings: &Settings) -> Self {
        let limits = &settings.limits;
        Self {
            running: limits.running_max,
            running_per_identity: limits.running_per_identity_max,
            inflight: limits.inflight_max,
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            running: self.running.max(other.running),
            running_per_identity: self.running_per_identity.max(other.running_per_identity),
            inflight: self.inflight.max(other.inflight),
        }
    }
}

/// A shutdown under way.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    pub(crate) kill_timer: Option<Armed>,
    pub(crate) end_timer: Option<Armed>,
    /// Its time is over: whatever is left is the host's to end with itself.
    pub(crate) over: bool,
    pub(crate) exit_said: bool,
}

impl Engine {
    /// An engine without connections, jobs or tasks.
    #[must_use]
    pub fn new(settings: Arc<Settings>, mut id_source: Box<dyn IdSource>) -> Self {
        let cursor_key = id_source.uuid();
        let seed = Seed::drawn(cursor_key);
        let loosest = LoosestLimits::of(&settings);
        let places = settings.limits.places();
        let (durable, shared) = (settings.tasks.durable, settings.tasks.shared);
        let mut engine = Self {
            outbox: Outbox::new(Arc::clone(&settings), seed),
            settings,
            id_source,
            now: Now::default(),
            seed,
            accounts: Accounts::default(),
            jobs: Jobs::new(seed, places),
            keyed: KeyedCalls::default(),
            task_ops: Rates::default(),
            suspended: SuspendedCalls::default(),
            tasks: Tasks::new(cursor_key, seed, durable, shared),
            lookups: TaskLookups::default(),
            timers: TimerQueue::default(),
            outgoing: OutgoingRequests::new(),
            surveys: BTreeMap::new(),
            upstreams: Upstreams::default(),
            agents: Agents::default(),
            next_survey: 1,
            drain: None,
            retires: false,
            loosest,
        };
        engine.gateway().configure();
        engine.carry_out_effects();
        engine
    }

    /// Takes one event and appends its consequences to `actions`.
    ///
    /// # Panics
    /// When the host breaks its side, which no peer can make it do: a time that goes back, a
    /// connection opened twice, a question with the [`AskId`](crate::ids::AskId) of one of the same asker that still
    /// waits, a job that is done before it was started.
    pub fn handle(&mut self, now: Now, event: Event<'_>, actions: &mut Vec<Action>) {
        assert!(now.at >= self.now.at, "the monotonic clock went back");
        self.now = now;
        self.outbox.begin(now.at, actions);
        match event {
            Event::Opened { conn, identity, rights, role } => {
                self.on_opened(conn, (identity, rights), role);
            }
            Event::Granted { conn, grants, profile } => self.outbox.grant(conn, grants, profile),
            Event::OpenedAcp { conn, identity, form, side } => {
                self.on_opened_acp(conn, identity, form, side);
            }
            Event::Frame { conn, frame } => self.on_frame(conn, frame),
            Event::TooLong { conn, skeleton } => self.on_overlong(conn, skeleton),
            Event::NotJsonRpc { conn, bytes } => self.on_alien(conn, bytes),
            Event::Finished { conn, then } => self.on_finished(conn, then),
            Event::Closed { conn } => self.on_closed(conn),
            Event::Blocked { conn } => self.on_blocked(conn),
            Event::Drained { conn } => self.on_drained(conn),
            Event::Progress { job, progress, total, message } => {
                let (timers, hearers) = (&mut self.timers, (&mut self.outbox, &mut self.tasks));
                self.jobs.on_progress(
                    timers,
                    hearers,
                    job,
                    ProgressReport { progress, total, message },
                );
            }
            Event::Output { job, line } => {
                self.jobs.on_output(&mut self.outbox, &mut self.tasks, job, line);
            }
            Event::Log { job, level, data } => {
                self.jobs.on_log(&mut self.outbox, &mut self.tasks, job, (level, data));
            }
            Event::Asked { job, ask, conn, request } => {
                self.outgoing().on_asked(job, ask, conn, request);
            }
            Event::Call { conn, ask, request } => self.outgoing().on_call(conn, ask, &request),
            Event::CancelCall { caller, reason } => self.outgoing().on_cancel_call(caller, reason),
            Event::CancelJob { job, cause } => self.cancel_with_response(job, cause.into()),
            Event::Notify { from, method, params } => self.on_notify(from, method, params),
            Event::Lingering { job } => self.job_machine().on_lingering(job),
            Event::Outlasted { job, outcome } => self.on_outlasted(job, outcome),
            Event::Done { job, outcome } => self.on_done(job, outcome),
            Event::Restored { record } => self.task_machine().on_restored(record),
            Event::Durable { upto } => self.task_machine().on_durable(upto),
            Event::Unstored { seq, why } => self.task_machine().on_unstored(seq, why),
            Event::StoreFailed { why } => self.task_machine().on_store_failed(why),
            Event::Loaded { load, outcome } => self.task_machine().on_loaded(load, outcome),
            Event::OutputRead { read, output } => self.on_output_read(read, output),
            Event::HostStatusCollected { survey, host } => self.on_surveyed(survey, host),
            Event::Shared(event) => self.on_shared(event),
            Event::Upstream(event) => self.on_upstream(&event),
            Event::Configured { settings } => self.on_configured(settings),
            Event::Escalated { job } => self.escalate(job),
            Event::ResourceUpdated { uri } => self.on_resource_updated(uri),
            Event::Retire => self.task_machine().on_retire(),
            Event::Drain { by } => self.on_drain(by),
            Event::Turn => self.on_turn(),
            Event::Tick => self.on_tick(),
        }
        self.end_message();
        if self.keyed.has_news() || self.tasks.has_news() {
            self.lookups.tell_news(&mut self.outbox, &mut self.tasks, &mut self.keyed);
        }
        // The last thing there is to do, so that a host may stop at it.
        self.exit_if_drained();
        self.outbox.end(actions);
    }

    /// Time and reason of the next [`Event::Tick`].
    #[must_use]
    pub fn deadline(&self) -> Option<(Instant, Timer)> {
        self.timers.next()
    }

    /// Whether an [`Event::Turn`] has something to do. A host that hands in more after its last
    /// one, as when it carries out actions, hands in another before it waits.
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        self.jobs.pools().is_ready()
            || self.suspended.has_asking()
            || self.upstreams.starts_eager
            || self.agents.wants_turn()
            || self.tasks.writes().has_fresh()
    }

    /// Whether nothing is to be read from a connection now: the client of this agent does not read
    /// earlier frames of the agent.
    #[must_use]
    pub fn is_paused(&self, conn: ConnId) -> bool {
        let Counterpart::Agent(client) = self.outbox.counterpart(conn) else { return false };
        let mark = self.settings.limits.write_buffer_bytes;
        self.outbox.connection(client).is_some_and(|it| it.send_queue.len() >= mark)
    }

    /// The bytes to send on a connection; `None` once it is closed.
    pub fn send_queue(&mut self, conn: ConnId) -> Option<&mut SendQueue> {
        Some(&mut *self.outbox.connection_mut(conn)?.send_queue)
    }

    /// Whether requests of a connection wait for their answers.
    #[must_use]
    pub fn has_open_requests(&self, conn: ConnId) -> bool {
        self.agents.waiting_requests(&self.outbox, conn) > 0
    }

    /// Whether a request of a connection waits for its answer.
    #[must_use]
    pub fn has_open_request(&self, conn: ConnId, id: &RequestId) -> bool {
        self.outbox.connection(conn).is_some_and(|connection| connection.requests.contains(id))
    }

    /// The revision of a session; `None` before `initialize` was accepted.
    #[must_use]
    pub fn session_dialect(&self, conn: ConnId) -> Option<&'static Dialect> {
        let connection = self.outbox.connection(conn)?;
        (connection.phase == SessionPhase::Ready).then_some(connection.dialect)
    }

    /// Identity that owns a job that is not gone yet.
    #[must_use]
    pub fn owner(&self, job: JobId) -> Option<&Identity> {
        self.jobs.get(job).map(|job| &job.owner)
    }

    /// Facts about a job that is not gone yet, for the record of its end.
    #[must_use]
    pub fn job_facts(&self, job: JobId) -> Option<JobFacts<'_>> {
        let job = self.jobs.get(job)?;
        let is_stopping = matches!(job.state(), JobState::Stopping { .. });
        Some(JobFacts { owner: &job.owner, trace: job.trace(), is_stopping })
    }

    /// The connection that a job that is not gone yet came by, and its task.
    #[must_use]
    pub fn origin(&self, job: JobId) -> Option<(ConnId, Option<TaskId>)> {
        self.jobs.get(job).map(|job| (job.conn, job.task))
    }

    /// The revision in which the outcome of a job that is not gone yet is told.
    #[must_use]
    pub fn dialect_of(&self, job: JobId) -> Option<&'static Dialect> {
        self.jobs.get(job).map(|job| job.terms.dialect())
    }

    /// The trace context of a job that is not gone yet.
    #[must_use]
    pub fn trace(&self, job: JobId) -> Option<&Arc<TraceContext>> {
        self.jobs.get(job)?.trace()
    }

    /// Id of the request that a job that is not gone yet works for.
    #[must_use]
    pub fn request(&self, job: JobId) -> Option<&RequestId> {
        self.jobs.get(job)?.request()
    }

    /// Time at which a job was asked for.
    #[must_use]
    pub fn asked_at(&self, job: JobId) -> Option<Instant> {
        self.jobs.get(job).map(|job| job.since)
    }

    /// The connection that a job came from, which may be gone.
    #[must_use]
    pub fn connection(&self, job: JobId) -> Option<ConnId> {
        self.jobs.get(job).map(|job| job.conn)
    }

    /// Whether a job was told to stop and is not gone yet.
    #[must_use]
    pub fn is_stopping(&self, job: JobId) -> bool {
        self.job_facts(job).is_some_and(|job| job.is_stopping)
    }

    /// The account of the identity of a connection; `None` once it is closed.
    #[must_use]
    pub fn account(&self, conn: ConnId) -> Option<Account> {
        self.outbox.connection(conn).map(|connection| connection.account().clone())
    }

    /// Bytes that are held for an identity.
    #[must_use]
    pub fn held_bytes(&self, identity: &Identity) -> usize {
        self.accounts.own(identity)
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        self.outbox.counters()
    }

    /// The existing servers, in the order of the configuration.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<UpstreamServer>> {
        self.upstreams.servers.iter().map(|known| &known.server)
    }

    /// Identity of the peer of a connection.
    #[must_use]
    pub fn identity(&self, conn: ConnId) -> Option<&Identity> {
        self.outbox.identity(conn)
    }

    /// Schema of the arguments of a tool, as JSON text, for checks of the host: of its own tools, and
    /// of those of upstreams that name headers in it (HTTP-09).
    #[must_use]
    pub fn input_schema(&self, name: &str, conn: ConnId) -> Option<&str> {
        self.upstreams.input_schema(&self.outbox, name, conn)
    }

    /// Arguments that headers repeat in a call on the connection of a server by URL; `tool` is the
    /// name that the server knows (REM-01).
    #[must_use]
    pub fn mirrors(&self, conn: ConnId, tool: &str) -> &[Mirror] {
        self.upstreams.mirrors(conn, tool)
    }

    /// Scopes that the token of a peer lacks for a request, by its method and the name in its
    /// params; empty if more scopes would not help, or none are needed (AUTH-01).
    #[must_use]
    pub fn lacking_scopes(&self, conn: ConnId, method: &str, name: Option<&str>) -> Vec<Box<str>> {
        match name.filter(|_| method == "tools/call") {
            Some(name) => self.upstreams.lacking_scopes(&self.outbox, conn, name),
            None => Vec::new(),
        }
    }

    /// An event of a process behind this engine: of an agent, or of a server.
    fn on_upstream(&mut self, event: &UpstreamEvent<'_>) {
        match self.supervisor().on_event(event) {
            Some(Some(conn)) => self.remove_connection(conn),
            Some(None) => {}
            None => self.gateway().on_event(event),
        }
    }

    /// News of the table that several engines share. A subscription may begin with it.
    fn on_shared(&mut self, event: SharedEvent) {
        if let Some(Resumed { reply, method, params, mut granted }) =
            self.task_machine().on_shared(event)
        {
            let conn = reply.conn;
            self.go_on_with(reply, method, &params, &mut granted);
            // Its call was refused before its key was looked at.
            self.keyed.give_back(granted);
            self.task_machine().end_answer(conn);
        }
    }

    fn on_configured(&mut self, settings: Arc<Settings>) {
        self.loosest = self.loosest.or(LoosestLimits::of(&settings));
        self.jobs.bound(settings.limits.places());
        self.outbox.configure(Arc::clone(&settings));
        let before = core::mem::replace(&mut self.settings, settings);
        let had_servers = !self.upstreams.is_empty();
        self.gateway().configure();
        self.agents.keep_counts(&self.settings.agents);
        self.announce_list(Topic::Tools);
        let has_servers = had_servers || !self.upstreams.is_empty();
        for (topic, kinds) in [
            (Topic::Prompts, &[OfferKind::Prompt] as &[OfferKind]),
            (Topic::Resources, &[OfferKind::Resource, OfferKind::Template]),
        ] {
            if has_servers || !before.provider.is_same(&self.settings.provider, kinds) {
                self.announce_list(topic);
            }
        }
    }

    /// Runs due timers, at most [`TICK_MAX`] of them: the deadline stays due for the rest. A peer
    /// that seems not to read comes first of a tick or in a later one, so that the host can try it
    /// once more.
    fn on_tick(&mut self) {
        for taken in 0..TICK_MAX {
            if taken > 0 && matches!(self.timers.next(), Some((_, Timer::Stall(_)))) {
                break;
            }
            let Some(timer) = self.timers.pop(self.now.at) else { break };
            match timer {
                Timer::Job(id) => self.on_job_timer(id),
                Timer::Task(id) => self.task_machine().on_task_timer(id),
                Timer::Stall(conn) => {
                    if let Some(connection) = self.outbox.connection_mut(conn) {
                        connection.aside.stall_timer = None;
                    }
                    self.outbox.give_up(conn, CloseReason::Stalled);
                }
                Timer::CatchUp(conn) => self.news().on_catch_up_timer(conn),
                Timer::Linger(conn) => self.on_linger_timer(conn),
                Timer::Suspended(state) => self.on_suspended_timer(state),
                Timer::Orphan(id) => self.on_orphan_timer(id),
                Timer::Keyed(id) => self.keyed.on_timer(id),
                Timer::Call(conn, call) => self.outgoing().on_call_timer(conn, call),
                Timer::Poll(conn, call) => self.outgoing().on_poll_timer(conn, call),
                Timer::Store => self.task_machine().on_store_timer(),
                Timer::Lease => self.task_machine().on_lease_timer(),
                Timer::DrainKill => {
                    if let Some(drain) = &mut self.drain {
                        drain.kill_timer = None;
                    }
                    self.kill_everything();
                }
                Timer::DrainEnd => self.end_drain(),
                Timer::Heartbeat(id) => {
                    let (timers, outbox) = (&mut self.timers, &mut self.outbox);
                    self.jobs.on_heartbeat_timer(timers, outbox, &mut self.tasks, id);
                }
                Timer::Relayed(id) => self.gateway().on_relayed_timer(id),
                Timer::ServerTask(id) => self.gateway().on_server_task_timer(id),
                Timer::Upstream(id) => self.gateway().on_upstream_timer(id),
                Timer::Lists(id) => self.gateway().on_lists_timer(id),
                Timer::SlowStart => self.gateway().on_slow_start(),
                Timer::Agent(client) => self.supervisor().on_timer(client),
            }
        }
    }

    /// Carries out the effects of the gateway, and the effects of those.
    fn carry_out_effects(&mut self) {
        while let Some(effect) = self.upstreams.effects.pop_front() {
            self.carry_out_effect(effect);
        }
    }

    fn carry_out_effect(&mut self, effect: GatewayEffect) {
        match effect {
            GatewayEffect::End { job, outcome } => {
                self.on_done(job, outcome);
                self.upstreams.receipts.remove(&job);
            }
            GatewayEffect::Escalate(job) => self.escalate(job),
            GatewayEffect::AskForJob { job, ask, request } => {
                self.outgoing().on_asked(job, ask, None, request);
            }
            GatewayEffect::Withdraw { job, ask, reason } => {
                // The job may have ended with the same message, and its questions with it.
                if self.jobs.get(job).is_some_and(|job| job.asks.contains_key(&ask)) {
                    self.outgoing().on_cancel_call(Caller::Job { job, ask }, reason.as_deref());
                }
            }
            GatewayEffect::Announce { topic, clients } => self.announce_list_to(topic, &clients),
            GatewayEffect::Answer { reply, awaited } => {
                let conn = reply.conn;
                match awaited {
                    AwaitedAnswer::Initialize => self.answer_initialize(reply),
                    AwaitedAnswer::Discover => self.discover(reply),
                    AwaitedAnswer::Listen(asked) => self.listen_after(reply, &asked),
                    // The gateway answers it itself.
                    AwaitedAnswer::List(_) => self.outbox.forget(reply),
                }
                self.outbox.close_if_finished(conn);
            }
            GatewayEffect::Remove(conn) => self.remove_connection(conn),
        }
    }

    /// Carries out the effects of a message, and ends servers and agents that have read too little.
    #[inline]
    pub(crate) fn end_message(&mut self) {
        while !self.upstreams.effects.is_empty() || self.outbox.has_unread() {
            self.carry_out_effects();
            if let Some(conn) = self.outbox.take_unread() {
                self.end_unread(conn);
            }
        }
    }
}
