//! Handshake with an instance: the probe, `initialize`, and reading its lists.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::collections::timer_queue::Timer;
use crate::connection::{Connection, Phase as SessionPhase};
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::{CallId, ConnId, InstanceId};
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outgoing::call::{Call, CallFor, OutgoingRequest};
use crate::protocol::capabilities::TaskCapabilities;
use crate::protocol::revision::{Dialect, MCP_2026_07_28};
use crate::protocol::role::{ClientSide, Declared, Offers, ServerCapabilities, Side};
use crate::tool::Catalog;
use crate::upstream::list::LISTS;
use crate::upstream::listen::declared_lists;
use crate::upstream::rewrite::{elements, member, text_member};
use crate::upstream::table::{Era, Phase};

/// How long `server/discover` waits for an answer before `initialize` is sent as well: servers of
/// the session revisions may ignore a request that comes before it.
const PROBE: Duration = Duration::from_secs(1);

impl Engine {
    /// The process of an instance runs, and its pipes are connected.
    pub(crate) fn on_instance_started(&mut self, id: InstanceId, conn: ConnId) {
        let now = self.now.at;
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.conn = Some(conn);
        self.upstreams.by_conn.insert(conn, id);
        let mut connection = Connection::new(Identity::Anonymous, self.seed);
        connection.is_admitted = false;
        connection.since = now;
        connection.last_request = now;
        connection.side = Side::Client(Box::new(ClientSide {
            declared: Declared::of(Offers::default(), &Catalog::default(), false),
            server: ServerCapabilities::default(),
            tools: BTreeMap::new(),
        }));
        let before = self.connections.insert(conn, Box::new(connection));
        assert!(before.is_none(), "a connection id is given once");
        if instance.phase != Phase::Starting {
            return;
        }
        let name = instance.server.name.clone();
        match self.upstreams.server(&name).and_then(|server| server.era) {
            Some(Era::Session) => self.send_initialize(id),
            Some(Era::Modern) | None => self.send_probe(id),
        }
    }

    fn send_probe(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.phase = Phase::Probing;
        let at = (self.now.at + PROBE).min(instance.start_by);
        self.timers.arm(&mut instance.timer, Timer::Upstream(id), at);
        self.ask_instance(id, "server/discover", "{}", true);
    }

    /// Begins a session (UPS-01: one `initialize` each start).
    pub(crate) fn send_initialize(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.phase = Phase::Initializing;
        self.timers.arm(&mut instance.timer, Timer::Upstream(id), instance.start_by);
        let declared = self.declared_to(id);
        let mut params = Vec::new();
        let mut json = Writer::new(&mut params);
        json.raw("{").member("protocolVersion", Dialect::NEWEST_WITH_INITIALIZE.revision);
        json.raw(",\"capabilities\":").raw(&declared).raw(",\"clientInfo\":{");
        json.member("name", &self.settings.server.name).raw(",");
        json.member("version", &self.settings.server.version).raw("}}");
        let params = String::from_utf8(params).unwrap_or_default();
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
        let call = Call::new(CallFor::Upstream(id), &request, (None, false), None);
        let number = self.outgoing.insert(conn, call);
        let meta = if claim { self.claim_meta("{}") } else { String::new() };
        self.send(conn, |json| {
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
    pub(crate) fn claim_meta(&self, capabilities: &str) -> String {
        let mut meta = Vec::new();
        let mut json = Writer::new(&mut meta);
        json.raw("{\"io.modelcontextprotocol/protocolVersion\":").string(MCP_2026_07_28.revision);
        json.raw(",\"io.modelcontextprotocol/clientInfo\":{");
        json.member("name", &self.settings.server.name).raw(",");
        json.member("version", &self.settings.server.version);
        json.raw("},\"io.modelcontextprotocol/clientCapabilities\":").raw(capabilities).raw("}");
        String::from_utf8(meta).unwrap_or_default()
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
            ("server/discover", Phase::Probing, Ok(result)) if speaks_modern(result.get()) => {
                self.settle_instance(id, &MCP_2026_07_28, result.get());
            }
            ("server/discover", Phase::Probing, _) => self.send_initialize(id),
            // The session that is being begun decides, unless it fails.
            ("server/discover", Phase::Initializing, Ok(result)) if speaks_modern(result.get()) => {
                instance.discovered = Some(result.get().into());
            }
            ("initialize", Phase::Initializing, Ok(result)) => {
                let revision = text_member(result.get(), "protocolVersion");
                match revision.as_deref().and_then(Dialect::find) {
                    Some(dialect) => {
                        if let Some(conn) = instance.conn {
                            self.send(conn, |json| {
                                json.raw(
                                    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                                );
                            });
                        }
                        self.settle_instance(id, dialect, result.get());
                    }
                    None => {
                        self.fail_start(id, "it answers initialize with an unknown revision");
                    }
                }
            }
            ("initialize", Phase::Initializing, Err(_)) => match instance.discovered.take() {
                Some(result) => self.settle_instance(id, &MCP_2026_07_28, &result),
                None => self.fail_start(id, "it refuses initialize"),
            },
            (_, Phase::Ready | Phase::Draining, outcome) => {
                if let Some(at) = LISTS.iter().position(|list| list.method == method) {
                    self.on_list_page(id, at, call, outcome);
                } else if ["ping", "server/discover"].contains(&method) {
                    self.on_pong(id);
                }
            }
            _ => {}
        }
    }

    /// The handshake is done: requests that wait go out, and the lists are read.
    fn settle_instance(&mut self, id: InstanceId, dialect: &'static Dialect, identity: &str) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.phase = Phase::Ready;
        self.timers.disarm(&mut instance.timer, Timer::Upstream(id));
        let (name, conn) = (instance.server.name.clone(), instance.conn);
        if let Some(connection) = conn.and_then(|conn| self.connections.get_mut(&conn)) {
            connection.dialect = dialect;
            connection.unreadable_id = dialect.unreadable_id;
            connection.phase = SessionPhase::Ready;
            let tasks = member(identity, "capabilities").and_then(|said| member(said, "tasks"));
            let tasks = tasks.and_then(|tasks| serde_json::from_str(tasks).ok());
            connection.peer.tasks = TaskCapabilities::read(tasks, dialect);
        }
        if let Some(server) = self.upstreams.server_mut(&name) {
            server.failures = 0;
            server.failure = None;
            server.era = Some(if dialect == &MCP_2026_07_28 { Era::Modern } else { Era::Session });
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
