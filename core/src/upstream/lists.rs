//! Lists and identity of upstreams as clients see them, and methods that reach one upstream.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::engine::Engine;
use crate::event::Outcome;
use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId};
use crate::protocol::revision::Results;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::server::requests::{Reply, Settled, Work};
use crate::server::stateless;
use crate::tool::{TaskSupport, Tool};
use crate::upstream::awaited::Awaited;
use crate::upstream::list::LISTS;
use crate::upstream::rewrite::{member, quoted, text_member, with_member, without};
use crate::upstream::server::Share;
use crate::upstream::table::Server;

/// Methods that reach one upstream, beside `tools/call`.
const RELAYED: [&str; 3] = ["prompts/get", "resources/read", "completion/complete"];

impl Engine {
    /// The only server, if it shows through.
    pub(crate) fn transparent(&self) -> Option<&Server> {
        match self.upstreams.servers.as_slice() {
            [only] if only.server.transparent => Some(only),
            _ => None,
        }
    }

    /// Whether resources are the outputs of jobs: a transparent server has its own.
    pub(crate) fn owns_outputs(&self) -> bool {
        self.settings.outputs && self.transparent().is_none()
    }

    /// A server asks something of its client. UPS-01: `ping` is answered here.
    pub(crate) fn on_request_of_upstream(&mut self, reply: Reply, method: &str) {
        if method == "ping" {
            return self.answer(reply, |json| {
                json.raw("{}");
            });
        }
        // UPS-12: not declared to the server.
        self.unknown_method(reply, method);
    }

    /// A line of an instance was too long (UPS-14): it fails the only request that it can belong
    /// to. Of several no one can be told, and the instance is replaced.
    pub(crate) fn on_overlong_answer(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let mut calls = instance.calls.iter();
        match (calls.next().copied(), calls.next()) {
            (Some(job), None) => {
                let max = self.settings.limits.frames.frame_bytes_max;
                let message = alloc::format!(
                    "limit reached: message_bytes = {max}: the answer of the server was skipped"
                );
                let error = ErrorObject::new(code::LIMIT_REACHED, message);
                self.end_relayed(job, Outcome::Error(error));
            }
            (Some(_), Some(_)) => {
                self.drain_instance(id, "an answer was longer than message_bytes");
            }
            (None, _) => {}
        }
    }

    /// Answers a request that upstreams have a part in; hands it back where they have none.
    pub(crate) fn on_upstream_method(
        &mut self,
        reply: Reply,
        method: &str,
        params: Option<&Params<'_>>,
    ) -> Option<Reply> {
        if self.upstreams.is_empty() {
            return Some(reply);
        }
        if let Some(at) = LISTS.iter().position(|list| list.method == method) {
            if at > 1 && self.settings.outputs && self.transparent().is_none() {
                return Some(reply);
            }
            let cursor = params::find(params, ["cursor"]);
            match cursor {
                Ok([None]) => self.await_upstreams(reply, Awaited::List(at)),
                Ok([Some(_)]) => {
                    let message = alloc::format!("unknown cursor: {method} has one page");
                    self.fail(reply, &ErrorObject::invalid_params(message));
                }
                Err(error) => self.fail(reply, &error),
            }
            return None;
        }
        if !RELAYED.contains(&method) {
            return Some(reply);
        }
        match self.route_of(method, params, &self.identity_of(reply.conn)) {
            Some(tool) => self.call_upstream(reply, tool, params),
            None => {
                let message = alloc::format!("no server offers what this {method} names");
                self.fail(reply, &ErrorObject::invalid_params(message));
            }
        }
        None
    }

    /// The server of a request by the name or URI in it, as a pseudo-tool.
    fn route_of(&self, method: &str, params: Option<&Params<'_>>, peer: &Identity) -> Option<Tool> {
        let text = params.map_or("{}", Params::get);
        let named = match method {
            "prompts/get" => text_member(text, "name"),
            "completion/complete" => member(text, "ref").and_then(|of| text_member(of, "name")),
            _ => None,
        };
        let uri = text_member(text, "uri")
            .or_else(|| member(text, "ref").and_then(|of| text_member(of, "uri")));
        let servers = || {
            let all = self.upstreams.servers.iter();
            all.filter(|server| server.server.allow.permits(peer))
        };
        let has_prompt = |server: &&Server, name: &str| {
            let short = name.strip_prefix(&*server.server.prefix);
            short.is_some_and(|short| {
                let all = server.manifest.iter().flat_map(|manifest| &manifest.prompts);
                all.clone().any(|prompt| text_member(prompt, "name").as_deref() == Some(short))
            })
        };
        let has_resource = |server: &&Server, uri: &str| {
            let all = server.manifest.iter().flat_map(|manifest| &manifest.resources);
            all.clone().any(|listed| text_member(listed, "uri").as_deref() == Some(uri))
        };
        let listed = servers().find(|server| match (&named, &uri) {
            (Some(name), _) => has_prompt(server, name),
            (None, Some(uri)) => has_resource(server, uri),
            (None, None) => false,
        });
        // A server may know more than it lists, such as resources of a template.
        let capability = match method {
            "prompts/get" => "prompts",
            "resources/read" => "resources",
            _ => "completions",
        };
        let able = servers().find(|server| {
            let identity = server.manifest.as_ref().map(|manifest| &*manifest.identity);
            let said = identity.and_then(|identity| member(identity, "capabilities"));
            said.is_none_or(|said| member(said, capability).is_some())
        });
        let server = listed.or(able)?;
        let short =
            named.as_deref().map(|name| name.strip_prefix(&*server.server.prefix).unwrap_or(name));
        let name = if method == "prompts/get" { short.unwrap_or_default() } else { "" };
        Some(server.relayed(method, method, name, TaskSupport::Forbidden))
    }

    /// Answers a request from the known lists of the upstreams, or lets it wait for them.
    pub(crate) fn await_upstreams(&mut self, reply: Reply, awaited: Awaited) {
        let identity = self.identity_of(reply.conn);
        self.wake_upstreams(reply.conn, &identity);
        if self.is_waiting_for_upstreams(&identity, awaited) {
            if self.is_full(reply.conn) {
                return self.refuse_inflight(reply);
            }
            let (conn, id) = (reply.conn, reply.id.clone());
            let Some(connection) = self.connections.get_mut(&conn) else { return };
            connection.requests.open(reply, Work::Upstream(awaited));
            self.upstreams.waiters.insert((conn, id));
            return;
        }
        self.answer_from_upstreams(reply, awaited);
    }

    /// Starts the servers without lists, or with lists of an earlier process only.
    fn wake_upstreams(&mut self, conn: ConnId, identity: &Identity) {
        let unknown: Vec<_> = self
            .upstreams
            .servers
            .iter()
            .filter(|server| !server.is_verified && server.server.allow.permits(identity))
            .filter(|server| !self.upstreams.is_learning(&server.server.name))
            .map(|server| Arc::clone(&server.server))
            .collect();
        for server in unknown {
            match server.share {
                Share::Connection | Share::Identity => {
                    _ = self.instance_for(&server, conn, identity);
                }
                Share::Call => self.keep_warm(&server),
            }
        }
    }

    fn is_waiting_for_upstreams(&self, identity: &Identity, awaited: Awaited) -> bool {
        let waits = |server: &Server| {
            server.manifest.is_none()
                && server.server.allow.permits(identity)
                && self.upstreams.is_learning(&server.server.name)
        };
        match (awaited, self.transparent()) {
            (Awaited::Initialize | Awaited::Discover, None) => false,
            _ => self.upstreams.servers.iter().any(waits),
        }
    }

    /// Something was learnt of an upstream, or it failed: answers the requests that waited for it.
    pub(crate) fn answer_waiters(&mut self) {
        let waiting: Vec<_> = self.upstreams.waiters.iter().cloned().collect();
        for (conn, request) in waiting {
            let work = self.connections.get(&conn).and_then(|of| of.requests.work(&request));
            let Some(Work::Upstream(awaited)) = work.cloned() else {
                self.upstreams.waiters.remove(&(conn, request));
                continue;
            };
            if self.is_waiting_for_upstreams(&self.identity_of(conn), awaited) {
                continue;
            }
            self.upstreams.waiters.remove(&(conn, request.clone()));
            let Some(connection) = self.connections.get_mut(&conn) else { continue };
            if let Some(reply) = connection.requests.settle(&request, Settled::Upstream) {
                self.answer_from_upstreams(reply, awaited);
                self.close_if_finished(conn);
            }
        }
    }

    fn answer_from_upstreams(&mut self, reply: Reply, awaited: Awaited) {
        // UPS-08: with one server its failure is the answer; of several the others are shown.
        if let [only] = self.upstreams.servers.as_slice()
            && only.manifest.is_none()
        {
            let error = match &only.failure {
                Some(failure) => ErrorObject::new(code::INTERNAL_ERROR, failure.clone()),
                None => {
                    let message = alloc::format!("server {:?} does not run", only.server.name);
                    ErrorObject::new(code::INTERNAL_ERROR, message)
                }
            };
            if only.server.transparent {
                return self.fail(reply, &error);
            }
        }
        match awaited {
            Awaited::Initialize => self.answer_initialize(reply),
            Awaited::Discover => self.discover(reply),
            Awaited::List(at) => self.answer_list(reply, at),
        }
    }

    fn answer_list(&mut self, reply: Reply, at: usize) {
        let identity = self.identity_of(reply.conn);
        let list = &LISTS[at];
        let mut elements = String::new();
        if at == 0 {
            let own = self.settings.catalog.list(reply.dialect.tool_members, &identity);
            let own = own.strip_prefix(b"\"tools\":[").and_then(|own| own.strip_suffix(b"]}"));
            elements.push_str(core::str::from_utf8(own.unwrap_or_default()).unwrap_or_default());
        }
        let permitted = |server: &&Server| server.server.allow.permits(&identity);
        for server in self.upstreams.servers.iter().filter(permitted) {
            let Some(manifest) = &server.manifest else { continue };
            let all = if at == 0 { server.listed.as_slice() } else { (list.read)(manifest) };
            for element in all {
                if !elements.is_empty() {
                    elements.push(',');
                }
                match (at, text_member(element, "name")) {
                    (1, Some(name)) if !server.server.prefix.is_empty() => {
                        let name = alloc::format!("{}{name}", server.server.prefix);
                        elements.push_str(&with_member(element, "name", &quoted(&name)));
                    }
                    _ => elements.push_str(element),
                }
            }
        }
        let results = reply.dialect.results;
        self.answer(reply, |json| {
            json.raw("{");
            if results == Results::Typed {
                json.raw(stateless::CACHEABLE_BY_ONE).raw(",");
            }
            json.string(list.member).raw(":[").raw(&elements).raw("]}");
        });
    }

    /// Members of `initialize` and `server/discover` that a transparent server decides: its
    /// capabilities as far as they are relayed, its name and its instructions.
    pub(crate) fn shown_identity(&self) -> Option<Shown> {
        let manifest = self.transparent()?.manifest.as_ref()?;
        let said = member(&manifest.identity, "capabilities").unwrap_or("{}");
        let mut capabilities = without(said, &["tasks", "extensions", "resources", "logging"]);
        capabilities = with_member(&capabilities, "logging", "{}");
        if member(said, "resources").is_some() {
            let resources = r#"{"listChanged":true}"#;
            capabilities = with_member(&capabilities, "resources", resources);
        }
        let in_meta = member(&manifest.identity, "_meta")
            .and_then(|meta| member(meta, "io.modelcontextprotocol/serverInfo"));
        let info = member(&manifest.identity, "serverInfo").or(in_meta).map(Into::into);
        let instructions = member(&manifest.identity, "instructions").map(Into::into);
        Some(Shown { capabilities, info, instructions })
    }
}

/// Identity of a transparent server, as JSON text.
pub(crate) struct Shown {
    pub(crate) capabilities: String,
    pub(crate) info: Option<Box<str>>,
    pub(crate) instructions: Option<Box<str>>,
}

impl Shown {
    /// The capabilities up to their closing brace, after which others are written; never empty.
    pub(crate) fn open_capabilities(&self) -> &str {
        self.capabilities.strip_suffix('}').unwrap_or("{\"logging\":{}")
    }
}
