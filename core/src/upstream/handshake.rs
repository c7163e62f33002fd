//! Handshake with an instance: the probe, `initialize`, and reading its lists.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::collections::timer_queue::Timer;
use crate::connection::{Connection, Counterpart, SessionPhase};
use crate::identity::Identity;
use crate::ids::{CallId, ConnId, InstanceId};
use crate::json::meta::CLIENT_INFO;
use crate::json::raw::Raw;
use crate::outgoing::call::{CallFor, OutgoingCall, OutgoingRequest};
use crate::protocol::capabilities::TaskCapabilities;
use crate::protocol::revision::{ALL, Dialect, MCP_2026_07_28};
use crate::protocol::role::{ClientSide, Declared, Offers, ServerCapabilities, Side};
use crate::tool::Catalog;
use crate::upstream::gateway::Gateway;
use crate::upstream::list::LISTS;
use crate::upstream::listen::declared_lists;
use crate::upstream::rewrite::{elements, error_of, member, text_member};
use crate::upstream::spoken::{Revision, SpokenEra};
use crate::upstream::table::InstancePhase;

/// How long `server/discover` waits for an answer before `initialize` is sent as well: servers of
/// the session revisions may ignore a request that comes before it.
const PROBE: Duration = Duration::from_secs(1);

impl Gateway<'_> {
    /// The process of an instance runs, and its pipes are connected.
    pub(crate) fn on_instance_started(&mut self, id: InstanceId, conn: ConnId) {
        let now = self.now.at;
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.conn = Some(conn);
        let mut connection = Connection::new(Identity::Anonymous, self.seed);
        connection.set_counterpart(Counterpart::Instance(id));
        connection.is_admitted = false;
        connection.since = now;
        connection.last_request = now;
        connection.side = Side::Client(Box::new(ClientSide {
            declared: Declared::of(Offers::default(), &Catalog::default(), false),
            server: ServerCapabilities::default(),
            tools: BTreeMap::new(),
        }));
        self.outbox.insert(conn, connection);
        if instance.phase != InstancePhase::Starting {
            return;
        }
        let (server, wanted) = (Arc::clone(&instance.server), instance.era);
        match self.opening_era(&server, wanted) {
            SpokenEra::Session => self.send_initialize(id),
            SpokenEra::Modern => self.send_probe(id),
        }
    }

    /// Asks for the revision without sessions: first, or after `initialize` was refused.
    fn send_probe(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.phase = InstancePhase::Probing;
        instance.is_probed = instance.refusal.is_none();
        let falls_back = instance.is_probed && instance.server.revision == Revision::Auto;
        let wait = if falls_back { PROBE } else { instance.server.start_timeout };
        let at = (self.now.at + wait).min(instance.start_by);
        self.timers.arm(&mut instance.timer, Timer::Upstream(id), at);
        self.ask_instance(id, "server/discover", "{}", true);
    }

    /// Begins a session (UPS-01: one `initialize` each start).
    pub(crate) fn send_initialize(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.phase = InstancePhase::Initializing;
        self.timers.arm(&mut instance.timer, Timer::Upstream(id), instance.start_by);
        let declared = self.declared_to(id);
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let revision = self.asked_revision(instance);
        let info = self.info_of(self.client_of(id));
        let params = format!(
            "{{\"protocolVersion\":\"{revision}\",\"capabilities\":{declared},\"clientInfo\":{info}}}"
        );
        self.ask_instance(id, "initialize", &params, false);
    }

    /// Sends a request of the engine itself to an instance. Returns its number.
    pub(crate) fn ask_instance(
        &mut self,
        id: InstanceId,
        method: &str,
        params: &str,
        claim: bool,
    ) -> Option<CallId> {
        let conn = self.upstreams.instances.get(&id)?.conn?;
        let request = OutgoingRequest {
            key: None,
            method: method.into(),
            params: None,
            answer_timeout: None,
            task: None,
        };
        let call = OutgoingCall::new(CallFor::Upstream(id), &request, (None, false), None);
        let number = self.outgoing.insert(conn, call);
        let meta = match claim {
            true => self.claim_meta(&self.declared_for(id, method), self.client_of(id)),
            false => String::new(),
        };
        self.outbox.send(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"id\":").display(number.get()).raw(",\"method\":");
            json.string(method).raw(",\"params\":");
            match (claim, params) {
                (false, params) => json.raw(params),
                (true, "{}") => json.raw("{\"_meta\":").raw(&meta).raw("}"),
                (true, params) => {
                    json.raw("{\"_meta\":").raw(&meta).raw(",").raw(params.trim_start_matches('{'))
                }
            };
            json.raw("}");
        });
        Some(number)
    }

    /// The `_meta` of a request of the revision without sessions (MOD-01), on behalf of a client with
    /// these capabilities.
    pub(crate) fn claim_meta(&self, capabilities: &str, client: Option<ConnId>) -> String {
        let (version, info) = (MCP_2026_07_28.revision, self.info_of(client));
        format!(
            "{{\"io.modelcontextprotocol/protocolVersion\":\"{version}\",\"{CLIENT_INFO}\":{info},\
             \"io.modelcontextprotocol/clientCapabilities\":{capabilities}}}"
        )
    }

    /// An instance answers a request of the engine.
    pub(crate) fn on_instance_answer(
        &mut self,
        id: InstanceId,
        call: CallId,
        method: &str,
        outcome: Result<Raw<'_>, Raw<'_>>,
    ) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        match (method, instance.phase, outcome) {
            ("server/discover", InstancePhase::Probing, Ok(result))
                if speaks_modern(result.get()) =>
            {
                self.settle_instance(id, &MCP_2026_07_28, result.get());
            }
            ("server/discover", InstancePhase::Probing, answer) => {
                let error = answer.err().map(|error| error_of(error.get()).message);
                self.take_probe_refusal(id, error.as_deref());
            }
            // The session that is being begun decides, unless it fails.
            ("server/discover", InstancePhase::Initializing, Ok(result))
                if speaks_modern(result.get()) =>
            {
                instance.discovered = Some(result.get().into());
            }
            ("initialize", InstancePhase::Initializing, Ok(result)) => {
                self.take_initialize_answer(id, result.get());
            }
            ("initialize", InstancePhase::Initializing, Err(error)) => {
                self.take_initialize_refusal(id, &error_of(error.get()).message);
            }
            (_, InstancePhase::Ready | InstancePhase::Draining, outcome) => {
                if let Some(at) = LISTS.iter().position(|list| list.method == method) {
                    self.on_list_page(id, at, call, outcome);
                } else if ["ping", "server/discover"].contains(&method) {
                    self.on_pong(id);
                }
            }
            _ => {}
        }
    }

    /// A server does not speak the revision without sessions.
    fn take_probe_refusal(&mut self, id: InstanceId, error: Option<&str>) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        let error = error.unwrap_or("its answer does not name it");
        match instance.refusal.take() {
            Some(refusal) => self.fail_instance(id, format!("it refuses initialize: {refusal}")),
            None if instance.server.revision == Revision::Stateless => {
                let revision = MCP_2026_07_28.revision;
                let why = format!("it does not speak {revision}, its `revision`: {error}");
                self.fail_instance(id, why);
            }
            None => self.send_initialize(id),
        }
    }

    fn take_initialize_answer(&mut self, id: InstanceId, result: &str) {
        let revision = text_member(result, "protocolVersion").unwrap_or_default();
        let Some(dialect) = Dialect::chosen_by_server(&revision) else {
            let known: Vec<&str> = ALL.iter().map(|dialect| dialect.revision).collect();
            let why = format!(
                "it answers initialize with the revision {revision:?}; known ones are {}",
                known.join(", ")
            );
            return self.fail_instance(id, why);
        };
        if let Some(conn) = self.upstreams.instances.get(&id).and_then(|instance| instance.conn) {
            self.outbox.send(conn, |json| {
                json.raw(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
            });
        }
        self.settle_instance(id, dialect, result);
    }

    /// A server refuses `initialize`: because another message came before it, because it has no
    /// sessions, or for a reason of its own.
    fn take_initialize_refusal(&mut self, id: InstanceId, error: &str) {
        let error = self.outbox.clean(error);
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        if let Some(result) = instance.discovered.take() {
            return self.settle_instance(id, &MCP_2026_07_28, &result);
        }
        if !instance.is_probed && instance.server.revision == Revision::Auto {
            instance.refusal = Some(error.into());
            return self.send_probe(id);
        }
        self.fail_instance(id, format!("it refuses initialize: {error}"));
    }

    /// Notes the era that a handshake has shown to be the only one of a server.
    fn note_era(&mut self, id: InstanceId, dialect: &'static Dialect) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        let only = match (dialect == &MCP_2026_07_28, instance.refusal.take()) {
            (true, Some(_)) => Some(SpokenEra::Modern),
            (false, _) if instance.is_probed && instance.discovered.is_none() => {
                Some(SpokenEra::Session)
            }
            (true, None) | (false, _) => None,
        };
        let name = instance.server.name.clone();
        if let (Some(era), Some(server)) = (only, self.upstreams.server_mut(&name)) {
            server.era = Some(era);
        }
    }

    /// The handshake is done: requests that wait go out, and the lists are read.
    fn settle_instance(&mut self, id: InstanceId, dialect: &'static Dialect, identity: &str) {
        self.note_era(id, dialect);
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.phase = InstancePhase::Ready;
        self.timers.disarm(&mut instance.timer, Timer::Upstream(id));
        let (name, conn) = (instance.server.name.clone(), instance.conn);
        let audience = instance.audience.clone();
        if let Some(connection) = conn.and_then(|conn| self.outbox.connection_mut(conn)) {
            connection.dialect = dialect;
            connection.unreadable_id = dialect.unreadable_id;
            connection.phase = SessionPhase::Ready;
            let tasks = member(identity, "capabilities").and_then(|said| member(said, "tasks"));
            let tasks = tasks.and_then(|tasks| serde_json::from_str(tasks).ok());
            connection.peer.tasks = TaskCapabilities::read(tasks, dialect);
        }
        if let Some(server) = self.upstreams.state_mut(&name, audience.as_ref()) {
            server.failures = 0;
            server.failure = None;
        }
        let said = member(identity, "capabilities").unwrap_or("{}");
        if let Some(instance) = self.upstreams.instances.get_mut(&id) {
            instance.has_logging = member(said, "logging").is_some();
            instance.subscription.lists = declared_lists(said);
        }
        self.set_instance_level(id);
        self.watch_again(id);
        self.read_lists(id, dialect, identity);
        self.send_waiting(id);
        self.rest_if_idle(id);
        self.start_queued();
    }
}

/// Whether an answer to `server/discover` names the revision without sessions.
fn speaks_modern(result: &str) -> bool {
    let versions = member(result, "supportedVersions").map(elements).unwrap_or_default();
    versions.iter().any(|version| version.trim_matches('"') == MCP_2026_07_28.revision)
}
