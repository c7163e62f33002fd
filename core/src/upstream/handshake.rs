//! Handshake with an instance: the probe, `initialize`, and reading its lists.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::action::Action;
use crate::collections::timer_queue::Timer;
use crate::connection::{Connection, Phase as SessionPhase};
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId};
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outgoing::call::{Call, CallFor, OutgoingRequest};
use crate::protocol::capabilities::TaskCapabilities;
use crate::protocol::revision::{Dialect, MCP_2026_07_28};
use crate::protocol::role::{ClientSide, Declared, Offers, ServerCapabilities, Side};
use crate::server::requests::Topic;
use crate::tool::Catalog;
use crate::upstream::interface::UpstreamAction;
use crate::upstream::list::{LISTS, PROMPTS, RESOURCES, TEMPLATES, TOOLS};
use crate::upstream::listen::declared_lists;
use crate::upstream::manifest::Manifest;
use crate::upstream::rewrite::{elements, member, text_member};
use crate::upstream::table::{Era, Phase, Reading};

/// How long `server/discover` waits for an answer before `initialize` is sent as well: servers of
/// the session revisions may ignore a request that comes before it.
const PROBE: Duration = Duration::from_secs(1);
/// Pages of one list that are read at most.
const PAGES_MAX: usize = 1000;

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

    /// Sends a request of the engine itself to an instance.
    pub(crate) fn ask_instance(&mut self, id: InstanceId, method: &str, params: &str, claim: bool) {
        let Some(conn) = self.upstreams.instances.get(&id).and_then(|instance| instance.conn)
        else {
            return;
        };
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
                    self.on_list_page(id, at, outcome.ok());
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
        let manifest = Manifest {
            revision: dialect.revision.into(),
            identity: identity.into(),
            ..Manifest::default()
        };
        let said = member(identity, "capabilities").unwrap_or("{}");
        if let Some(instance) = self.upstreams.instances.get_mut(&id) {
            instance.has_logging = member(said, "logging").is_some();
            instance.subscription.lists = declared_lists(said);
        }
        self.set_instance_level(id);
        self.watch_again(id);
        self.read_lists(id, manifest);
        self.send_waiting(id);
        self.rest_if_idle(id);
        self.start_queued();
    }

    /// Reads every list that the server declares, one after the other.
    pub(crate) fn read_lists(&mut self, id: InstanceId, manifest: Manifest) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.reading = Some(Reading { list: 0, pages: 0, manifest });
        instance.reads_again = false;
        self.read_next_list(id, 0);
    }

    fn read_next_list(&mut self, id: InstanceId, from: usize) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        let Some(reading) = &mut instance.reading else { return };
        let capabilities = member(&reading.manifest.identity, "capabilities").unwrap_or("{}");
        let next =
            (from..LISTS.len()).find(|at| member(capabilities, LISTS[*at].capability).is_some());
        match next {
            Some(at) => {
                (reading.list, reading.pages) = (at, 1);
                let claim = &*reading.manifest.revision == MCP_2026_07_28.revision;
                self.ask_instance(id, LISTS[at].method, "{}", claim);
            }
            None => self.end_reading(id),
        }
    }

    /// One page of a list arrives; an error counts as its end (UPS-10: all pages are read).
    fn on_list_page(&mut self, id: InstanceId, at: usize, result: Option<Raw<'_>>) {
        let max = self.settings.limits.remote_tools_max;
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        let Some(reading) = &mut instance.reading else { return };
        if reading.list != at {
            return;
        }
        let list = &LISTS[at];
        let page = result.map_or("{}", Raw::get);
        let all = (list.elements)(&mut reading.manifest);
        for element in member(page, list.member).map(elements).unwrap_or_default() {
            if all.len() < max {
                all.push(element.into());
            }
        }
        let has_room = all.len() < max && reading.pages < PAGES_MAX;
        match member(page, "nextCursor").filter(|cursor| cursor.starts_with('"') && has_room) {
            Some(cursor) => {
                reading.pages += 1;
                let claim = &*reading.manifest.revision == MCP_2026_07_28.revision;
                let params = alloc::format!("{{\"cursor\":{cursor}}}");
                self.ask_instance(id, list.method, &params, claim);
            }
            None => self.read_next_list(id, at + 1),
        }
    }

    fn end_reading(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        let Some(Reading { manifest, .. }) = instance.reading.take() else { return };
        if instance.reads_again {
            let fresh = Manifest {
                tools: Vec::new(),
                prompts: Vec::new(),
                resources: Vec::new(),
                templates: Vec::new(),
                ..manifest
            };
            return self.read_lists(id, fresh);
        }
        let said = core::mem::take(&mut instance.said_changed);
        let of = alloc::sync::Arc::clone(&instance.server);
        let Some(server) = self.upstreams.server_mut(&of.name) else { return };
        server.is_verified = true;
        if server.manifest.as_ref() != Some(&manifest) {
            let changed =
                server.manifest.as_ref().map_or(Vec::new(), |old| changed(old, &manifest));
            let of_clients = server.server.allow.clone();
            server.take_manifest(manifest.clone());
            let manifest = Box::new(manifest);
            self.out.push(Action::Upstream(UpstreamAction::SaveManifest { server: of, manifest }));
            self.answer_waiters();
            // UPS-09: clients were answered from another manifest.
            changed.iter().for_each(|topic| self.announce_list(*topic, &of_clients));
            self.pass_changes(id, said.into_iter().filter(|topic| !changed.contains(topic)));
        } else {
            self.answer_waiters();
            self.pass_changes(id, said);
        }
    }

    /// Tells the clients of an instance of the changes that it says itself; the list that it gives
    /// afterwards may be the same (UPS-10).
    fn pass_changes(&mut self, id: InstanceId, said: impl IntoIterator<Item = Topic>) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let all = self.connections.keys().copied();
        let audience: Vec<ConnId> = all.filter(|conn| self.serves(instance, *conn)).collect();
        said.into_iter().for_each(|topic| self.announce_list_to(topic, &audience));
    }

    /// The host has the manifest of a server from an earlier process (UPS-09).
    pub(crate) fn on_manifest(&mut self, server: &str, manifest: &Manifest) {
        let Some(server) = self.upstreams.server_mut(server) else { return };
        if server.manifest.is_none() {
            server.take_manifest(manifest.clone());
            self.answer_waiters();
        }
    }

    /// An instance says that one of its lists has changed.
    pub(crate) fn on_list_changed(&mut self, id: InstanceId, topic: Topic) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.said_changed.insert(topic);
        if instance.reading.is_some() {
            instance.reads_again = true;
            return;
        }
        let name = instance.server.name.clone();
        let known = self.upstreams.server(&name).and_then(|server| server.manifest.as_ref());
        let Some(known) = known else { return };
        let manifest = Manifest {
            revision: known.revision.clone(),
            identity: known.identity.clone(),
            ..Manifest::default()
        };
        self.read_lists(id, manifest);
    }
}

/// Lists that differ between two manifests.
fn changed(old: &Manifest, new: &Manifest) -> Vec<Topic> {
    let differs = |at: usize| (LISTS[at].read)(old) != (LISTS[at].read)(new);
    let all = [
        (Topic::Tools, differs(TOOLS)),
        (Topic::Prompts, differs(PROMPTS)),
        (Topic::Resources, differs(RESOURCES) || differs(TEMPLATES)),
    ];
    all.into_iter().filter(|(_, differs)| *differs).map(|(topic, _)| topic).collect()
}

/// Whether an answer to `server/discover` names the revision without sessions.
fn speaks_modern(result: &str) -> bool {
    let versions = member(result, "supportedVersions").map(elements).unwrap_or_default();
    versions.iter().any(|version| version.trim_matches('"') == MCP_2026_07_28.revision)
}
