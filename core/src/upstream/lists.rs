//! Lists and identity of upstreams as clients see them, and methods that reach one upstream.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::event::Outcome;
use crate::ids::{ConnId, InstanceId};
use crate::json::meta::SERVER_INFO;
use crate::outbox::Outbox;
use crate::outbox::requests::{Reply, Settled, Work};
use crate::policy::access::{Caller, Item};
use crate::policy::allow::Verdict;
use crate::protocol::revision::Results;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::send_queue::without_break;
use crate::server::stateless;
use crate::tool::{TaskSupport, Tool};
use crate::upstream::audience_states::audience_of;
use crate::upstream::awaited::Awaited;
use crate::upstream::effect::Effect;
use crate::upstream::gateway::Gateway;
use crate::upstream::learn::tells_changes;
use crate::upstream::list::{LISTS, PROMPTS, RESOURCES, TEMPLATES, TOOLS};
use crate::upstream::manifest::Freshness;
use crate::upstream::narrow::era_of;
use crate::upstream::rewrite::{member, quoted, text_member, with_member, without};
use crate::upstream::server::{Share, UpstreamServer};
use crate::upstream::server_task::EXTENSION;
use crate::upstream::spoken::Era;
use crate::upstream::table::{Key, Server, Upstreams, own_name};
use crate::upstream::uri;
use crate::upstream::watch::{SUBSCRIBE, UNSUBSCRIBE};

impl Gateway<'_> {
    /// An answer of an instance has no readable id (UPS-14): it fails the only request that it can
    /// belong to. Of several calls none can be told, and the instance is replaced.
    pub(crate) fn on_unreadable_answer(&mut self, id: InstanceId, problem: &str) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let mut calls = instance.calls.iter();
        let has_lists = !instance.reading.open_lists().is_empty();
        match (calls.next().copied(), calls.next()) {
            (None, _) => self.on_unreadable_list(id, problem),
            (Some(job), None) if !has_lists => {
                let error = ErrorObject::new(code::LIMIT_REACHED, String::from(problem));
                self.end_relayed(job, Outcome::Error(error));
            }
            (Some(_), _) => self.drain_instance(id, "an answer passed a limit"),
        }
    }

    /// A session begins: requests and changes of servers wait until its client is initialized, and
    /// `initialize` for the server that shows through.
    pub(crate) fn begin_session(&mut self, reply: Reply) {
        self.upstreams.hold_early(reply.conn);
        self.renew_own_instances(reply.conn);
        self.start_eager_for(reply.conn);
        match self.upstreams.shown_through(self.outbox, reply.conn) {
            Some(_) => self.await_upstreams(reply, Awaited::Initialize),
            None => self.effect(Effect::Answer { reply, awaited: Awaited::Initialize }),
        }
    }

    /// Answers a request from the known lists of the upstreams, or lets it wait for them.
    pub(crate) fn await_upstreams(&mut self, reply: Reply, awaited: Awaited) {
        self.wake_upstreams(reply.conn);
        if let Awaited::List(at) = awaited {
            self.refresh_list(reply.conn, at);
        }
        if self.upstreams.is_waiting(self.outbox, reply.conn, &awaited) {
            if self.outbox.is_full(reply.conn) {
                return self.outbox.refuse_inflight(reply);
            }
            let (conn, id) = (reply.conn, reply.id.clone());
            let Some(connection) = self.outbox.connection_mut(conn) else { return };
            connection.requests.open(reply, Work::Upstream(awaited));
            self.upstreams.waiters.insert((conn, id));
            return;
        }
        self.answer_from_upstreams(reply, awaited);
    }

    /// Starts the servers without lists, or with lists of an earlier process only.
    pub(crate) fn wake_upstreams(&mut self, conn: ConnId) {
        let identity = self.outbox.identity_of(conn);
        let unknown: Vec<_> = self
            .upstreams
            .seen_servers(self.outbox, conn)
            .filter(|server| !server.is_verified)
            .filter(|server| !self.upstreams.is_learning_for(self.outbox, &server.server, conn))
            .map(|server| Arc::clone(&server.server))
            .collect();
        for server in unknown {
            match server.share {
                Share::Connection | Share::Identity => {
                    _ = self.instance_for(&server, conn, &identity);
                }
                Share::Call => {
                    self.note_calls_in(&server, &Key::Call, era_of(self.outbox, conn));
                    self.keep_warm(&server);
                }
            }
        }
    }

    /// Something was learnt of an upstream, or it failed: answers the requests that waited for it.
    pub(crate) fn answer_waiters(&mut self) {
        let waiting: Vec<_> = self.upstreams.waiters.iter().cloned().collect();
        for (conn, request) in waiting {
            let work = self.outbox.connection(conn).and_then(|of| of.requests.work(&request));
            let Some(Work::Upstream(awaited)) = work.cloned() else {
                self.upstreams.waiters.remove(&(conn, request));
                continue;
            };
            if self.upstreams.is_waiting(self.outbox, conn, &awaited) {
                continue;
            }
            self.upstreams.waiters.remove(&(conn, request.clone()));
            let Some(connection) = self.outbox.connection_mut(conn) else { continue };
            if let Some(reply) = connection.requests.settle(&request, Settled::Upstream) {
                self.answer_from_upstreams(reply, awaited);
                self.outbox.close_if_finished(conn);
            }
        }
    }

    fn answer_from_upstreams(&mut self, reply: Reply, awaited: Awaited) {
        // UPS-08: with one server its failure is the answer; of several the others are shown.
        let shown = self.upstreams.shown_through(self.outbox, reply.conn);
        let is_unknown = |server: &&Server| match awaited {
            Awaited::List(at) => !server.known[at],
            Awaited::Initialize | Awaited::Discover | Awaited::Listen(_) => {
                server.manifest.is_none()
            }
        };
        if let Some(only) = shown.filter(is_unknown) {
            let error = match only.failure.as_deref().or(only.counts.last_error.as_deref()) {
                Some(failure) => ErrorObject::new(code::INTERNAL_ERROR, String::from(failure)),
                None => {
                    let message = alloc::format!("server {:?} does not run", only.server.name);
                    ErrorObject::new(code::INTERNAL_ERROR, message)
                }
            };
            return self.outbox.fail(reply, &error);
        }
        match awaited {
            Awaited::List(at) => self.answer_list(reply, at),
            Awaited::Initialize | Awaited::Discover | Awaited::Listen(_) => {
                self.effect(Effect::Answer { reply, awaited });
            }
        }
    }

    fn answer_list(&mut self, reply: Reply, at: usize) {
        let list = &LISTS[at];
        let mut elements = String::new();
        if at == TOOLS {
            let caller = self.outbox.caller(reply.conn);
            let sees = |tool: &Tool| caller.sees(Item::Tool(tool));
            let own = self.settings.catalog.list(reply.dialect.tool_members, sees);
            let own = own.strip_prefix(b"\"tools\":[").and_then(|own| own.strip_suffix(b"]}"));
            elements.push_str(core::str::from_utf8(own.unwrap_or_default()).unwrap_or_default());
        }
        let others = self.upstreams.listed_elements(self.outbox, at, reply.conn);
        if !elements.is_empty() && !others.is_empty() {
            elements.push(',');
        }
        elements.push_str(&others);
        let typed = reply.dialect.results == Results::Typed;
        let freshness =
            typed.then(|| self.upstreams.freshness_of_list(self.outbox, at, reply.conn));
        self.answer(reply, |json| {
            json.raw("{");
            if let Some(freshness) = &freshness {
                json.raw(freshness).raw(",");
            }
            json.string(list.member).raw(":[").raw(&elements).raw("]}");
        });
    }
}

impl Upstreams {
    /// Whether a connection sees the outputs of jobs as resources: not beside those of the servers
    /// or the profile that it is limited to, nor of one that shows through.
    pub(crate) fn owns_outputs(&self, outbox: &Outbox, conn: ConnId) -> bool {
        let is_whole =
            outbox.scope_of(conn).is_none() && self.shown_through(outbox, conn).is_none();
        outbox.settings().outputs && is_whole
    }

    /// Schema of the arguments of a tool, as JSON text, for checks of the host: of its own tools, and
    /// of those of upstreams that name headers in it (HTTP-09).
    pub(crate) fn input_schema<'a>(
        &'a self,
        outbox: &'a Outbox,
        name: &str,
        conn: ConnId,
    ) -> Option<&'a str> {
        let caller = outbox.caller(conn);
        if let Some(tool) = caller.tool(&outbox.settings().catalog, name) {
            return Some(&tool.input_schema);
        }
        let servers = self.servers.iter().flat_map(|server| {
            let eras = [Era::Session, Era::Modern];
            eras.map(|era| self.state_for(server, caller.identity, era))
        });
        let server = { servers }
            .find(|it| it.tools.get(name).is_some_and(|tool| sees_tool(&caller, it, tool)))?;
        let named = |listed: &&str| {
            listed.contains("x-mcp-header") && text_member(listed, "name").as_deref() == Some(name)
        };
        member(server.listed.iter().map(|listed| &**listed).find(named)?, "inputSchema")
    }

    /// Scopes that the token of a peer lacks for a tool of this name.
    pub(crate) fn lacking_scopes(
        &self,
        outbox: &Outbox,
        conn: ConnId,
        name: &str,
    ) -> Vec<Box<str>> {
        let caller = outbox.caller(conn);
        if let Some(own) = outbox.settings().catalog.get(name)
            && caller.may_see(Item::Tool(own))
        {
            return lacking(caller.verdict(Item::Tool(own)));
        }
        let is_near = |item: Item<'_>| caller.may_see(item);
        let found = self.tool_if(name, &caller, era_of(outbox, conn), &is_near);
        found.map_or_else(Vec::new, |(server, tool)| {
            lacking(caller.verdict(Item::ServerTool(&server.server, own_name(&tool))))
        })
    }

    /// The server of a request, by the name or URI in its params.
    pub(crate) fn server_of(
        &self,
        outbox: &Outbox,
        method: &str,
        params: &str,
        conn: ConnId,
    ) -> Option<&Server> {
        let (named, uri) = names(method, params);
        let servers = || self.seen_servers(outbox, conn);
        let is_plain = self.shown_through(outbox, conn).is_some();
        if let Some(name) = uri.as_deref().and_then(uri::server_of) {
            return servers().find(|server| &*server.server.name == name);
        }
        let has_prompt = |server: &&Server, name: &str| {
            let short = name.strip_prefix(&*server.server.prefix);
            let short = if is_plain { Some(name) } else { short };
            short.is_some_and(|short| {
                let all = server.manifest.iter().flat_map(|manifest| &manifest.prompts);
                all.clone().any(|prompt| text_member(prompt, "name").as_deref() == Some(short))
            })
        };
        let has_resource = |server: &&Server, uri: &str| {
            let manifest = server.manifest.iter();
            let all = manifest.flat_map(|of| of.resources.iter().chain(&of.templates));
            all.clone().any(|listed| {
                text_member(listed, "uri").as_deref() == Some(uri)
                    || text_member(listed, "uriTemplate").as_deref() == Some(uri)
            })
        };
        let listed = servers().find(|server| match (&named, &uri) {
            (Some(name), _) => has_prompt(server, name),
            (None, Some(uri)) => has_resource(server, uri),
            (None, None) => false,
        });
        // A server may know more than it lists, such as resources of a template.
        let capability = match method {
            "prompts/get" => "prompts",
            "resources/read" | SUBSCRIBE | UNSUBSCRIBE => "resources",
            _ => "completions",
        };
        let is_able = |server: &&Server| {
            let identity = server.manifest.as_ref().map(|manifest| &*manifest.identity);
            let said = identity.and_then(|identity| member(identity, "capabilities"));
            said.is_none_or(|said| member(said, capability).is_some())
        };
        let able = || servers().filter(is_able);
        // A template whose beginning matches says more than the order of the servers.
        let by_template = |server: &&Server| uri.as_deref().is_some_and(|uri| fits(server, uri));
        listed.or_else(|| able().find(by_template)).or_else(|| able().next())
    }

    /// Whether an instance is on its way to tell a client of the lists of a server.
    fn is_learning_for(&self, outbox: &Outbox, server: &UpstreamServer, conn: ConnId) -> bool {
        let audience = audience_of(outbox, server, conn);
        self.is_learning(&server.name, audience.as_ref())
    }

    /// Whether a request of a connection waits for servers that have not told of themselves.
    pub(crate) fn is_waiting(&self, outbox: &Outbox, conn: ConnId, awaited: &Awaited) -> bool {
        let is_unknown = |server: &Server| {
            server.manifest.is_none() && self.is_learning_for(outbox, &server.server, conn)
        };
        match (awaited, self.shown_through(outbox, conn)) {
            (Awaited::Initialize | Awaited::Discover, None) => false,
            (Awaited::List(at), _) => self
                .seen_servers(outbox, conn)
                .any(|server| self.awaits_list(outbox, server, conn, *at)),
            (Awaited::Initialize | Awaited::Discover | Awaited::Listen(_), _) => {
                self.seen_servers(outbox, conn).any(is_unknown)
            }
        }
    }

    /// The members of a list that say how long it may be cached: as its servers say, of several the
    /// shortest time. Where nothing is said a change is told, or the list is never fresh.
    fn freshness_of_list(&self, outbox: &Outbox, at: usize, conn: ConnId) -> String {
        let is_plain = self.shown_through(outbox, conn).is_some();
        let ours = (!is_plain).then_some(stateless::TTL_MS);
        let of = |server: &Server| {
            let manifest = server.manifest.as_ref();
            let said = manifest.and_then(|manifest| manifest.freshness[at].ttl_ms);
            said.unwrap_or_else(|| {
                match manifest.is_some_and(|it| tells_changes(&it.identity, at)) {
                    true => stateless::TTL_MS,
                    false => 0,
                }
            })
        };
        let ttl = self.seen_servers(outbox, conn).map(of).chain(ours).min().unwrap_or(0);
        // The lists of several servers differ between clients.
        let is_public = is_plain && outbox.caller(conn).is_unlimited() && {
            let manifests =
                self.seen_servers(outbox, conn).filter_map(|server| server.manifest.as_ref());
            { manifests }.all(|manifest| manifest.freshness[at].is_public)
        };
        stateless::cacheable(ttl, is_public)
    }

    /// Elements of a list of all servers that a connection sees, separated by commas.
    pub(crate) fn listed_elements(&self, outbox: &Outbox, at: usize, conn: ConnId) -> String {
        let mut elements = self.offered_elements(outbox, at, conn);
        // Elements that this engine offers itself come first.
        let key = LISTS[at].key;
        let mut seen: BTreeSet<Box<str>> =
            crate::upstream::rewrite::elements(&alloc::format!("[{elements}]"))
                .into_iter()
                .filter_map(|element| text_member(element, key))
                .collect();
        let caller = outbox.caller(conn);
        let is_plain = self.shown_through(outbox, conn).is_some();
        // A tool of the host comes before one of a server with the same name.
        let catalog = &outbox.settings().catalog;
        let has_own = catalog.iter().next().is_some();
        let is_shown = |server: &Server, element: &str| {
            let Some(name) = text_member(element, "name") else { return true };
            let is_own = has_own && caller.tool(catalog, &name).is_some();
            !is_own && server.tools.get(&name).is_some_and(|it| sees_tool(&caller, server, it))
        };
        let is_limited = has_own || !caller.is_unlimited();
        for server in self.seen_servers(outbox, conn) {
            let Some(manifest) = &server.manifest else { continue };
            let listed = match at {
                TOOLS => server.listed.as_slice(),
                _ => (LISTS[at].read)(manifest),
            };
            for element in listed {
                if at == TOOLS && is_limited && !is_shown(server, element) {
                    continue;
                }
                let shown = shown_element(server, at, is_plain, element, &seen);
                // UPS-11: a name of an earlier server reaches that one alone.
                if text_member(&shown, key).is_some_and(|name| !seen.insert(name)) {
                    continue;
                }
                if !elements.is_empty() {
                    elements.push(',');
                }
                elements.push_str(&shown);
            }
        }
        elements
    }

    /// Members of `initialize` and `server/discover` after those that are always there: whatever a
    /// server declares or, while nothing is known of it, may declare.
    pub(crate) fn offered_capabilities(&self, outbox: &Outbox, conn: ConnId) -> String {
        let servers = || self.seen_servers(outbox, conn);
        let any = |capability: &'static str| {
            let offers = self.has_offers(outbox, capability, conn);
            offers
                || servers().any(|server| match &server.manifest {
                    Some(manifest) => {
                        let said = member(&manifest.identity, "capabilities").unwrap_or("{}");
                        member(said, capability).is_some()
                    }
                    None => true,
                })
        };
        let mut text = String::new();
        if any("resources") {
            let subscribes = servers().any(|server| server.server.share != Share::Call)
                || self.has_offers(outbox, "resources", conn);
            text.push_str(match subscribes {
                true => ",\"resources\":{\"subscribe\":true,\"listChanged\":true}",
                false => ",\"resources\":{\"listChanged\":true}",
            });
        } else if self.owns_outputs(outbox, conn) {
            text.push_str(",\"resources\":{}");
        }
        text.push_str(if any("prompts") { ",\"prompts\":{\"listChanged\":true}" } else { "" });
        text.push_str(if any("completions") { ",\"completions\":{}" } else { "" });
        text
    }

    /// Members of `initialize` and `server/discover` that a transparent server decides: its
    /// capabilities as far as they are relayed, its name and its instructions.
    pub(crate) fn shown_identity(&self, outbox: &Outbox, conn: ConnId) -> Option<Shown> {
        let server = self.shown_through(outbox, conn)?;
        let manifest = server.manifest.as_ref()?;
        let said = member(&manifest.identity, "capabilities").unwrap_or("{}");
        let mut capabilities = without(said, &["tasks", "extensions"]);
        if member(said, "resources").is_some() && server.server.share == Share::Call {
            // The process that would tell of an update ends with its call.
            capabilities = with_member(&capabilities, "resources", r#"{"listChanged":true}"#);
        }
        let info = server_info(&manifest.identity).map(Into::into);
        let instructions = member(&manifest.identity, "instructions").map(Into::into);
        let has_tasks = match server.known[TOOLS] {
            true => server.tools.values().any(|tool| tool.task_support != TaskSupport::Forbidden),
            // Its tools are not listed yet: as the settings or the server itself say.
            false => server
                .server
                .task_support
                .map_or_else(|| declares_tasks(said), |support| support != TaskSupport::Forbidden),
        };
        let fresh = Freshness::of(&manifest.identity);
        let freshness = fresh.ttl_ms.map(|ttl| stateless::cacheable(ttl, fresh.is_public));
        Some(Shown { capabilities, info, instructions, has_tasks, freshness })
    }

    /// Name and version of a transparent server, as JSON text.
    pub(crate) fn shown_server_info(&self, outbox: &Outbox, conn: ConnId) -> Option<&str> {
        server_info(&self.shown_through(outbox, conn)?.manifest.as_ref()?.identity)
    }

    /// Name and version of this server, or of the one that shows through, where the revision of a
    /// request wants them in its result (MOD-02).
    #[inline]
    pub(crate) fn name_for(&self, outbox: &Outbox, reply: &Reply) -> Option<Arc<[u8]>> {
        match reply.dialect.results {
            Results::Bare => None,
            Results::Typed => Some(self.name_shown(outbox, reply.conn)),
        }
    }

    fn name_shown(&self, outbox: &Outbox, conn: ConnId) -> Arc<[u8]> {
        match self.shown_server_info(outbox, conn) {
            // Its line may contain carriage returns between values.
            Some(info) => info.bytes().map(without_break).collect(),
            None => outbox.server_info(),
        }
    }
}

/// Identity of a transparent server, as JSON text.
pub(crate) struct Shown {
    pub(crate) capabilities: String,
    /// Whether one of its tools runs as a task.
    pub(crate) has_tasks: bool,
    pub(crate) info: Option<Box<str>>,
    pub(crate) instructions: Option<Box<str>>,
    /// How long the answer to `server/discover` may be cached, if the server says so.
    pub(crate) freshness: Option<String>,
}

impl Shown {
    /// The capabilities, with one of ours if its tools run as tasks.
    pub(crate) fn capabilities_with(&self, ours: Option<(&str, &str)>) -> String {
        match ours.filter(|_| self.has_tasks) {
            Some((name, value)) => with_member(&self.capabilities, name, value),
            None => self.capabilities.clone(),
        }
    }
}

/// Whether a server with these capabilities runs tools as tasks.
fn declares_tasks(capabilities: &str) -> bool {
    let extension = || member(capabilities, "extensions").and_then(|all| member(all, EXTENSION));
    member(capabilities, "tasks").is_some() || extension().is_some()
}

/// Name and version in the answer to `initialize` or `server/discover`.
fn server_info(identity: &str) -> Option<&str> {
    let in_meta = || member(identity, "_meta").and_then(|meta| member(meta, SERVER_INFO));
    member(identity, "serverInfo").or_else(in_meta)
}

/// The name and the URI in the params of a request.
fn names(method: &str, params: &str) -> (Option<Box<str>>, Option<Box<str>>) {
    let named = match method {
        "prompts/get" => text_member(params, "name"),
        "completion/complete" => member(params, "ref").and_then(|of| text_member(of, "name")),
        _ => None,
    };
    let uri = text_member(params, "uri")
        .or_else(|| member(params, "ref").and_then(|of| text_member(of, "uri")));
    (named, uri)
}

/// The scopes that a verdict asks for.
fn lacking(verdict: Verdict<'_>) -> Vec<Box<str>> {
    match verdict {
        Verdict::Lacks(scopes) => scopes.into_iter().map(Box::from).collect(),
        Verdict::Granted | Verdict::Absent => Vec::new(),
    }
}

/// Whether a caller sees a tool of a server.
pub(super) fn sees_tool(caller: &Caller<'_>, server: &Server, tool: &Tool) -> bool {
    caller.sees(Item::ServerTool(&server.server, own_name(tool)))
}

/// Whether a URI begins as one of the templates of a server.
fn fits(server: &Server, uri: &str) -> bool {
    let templates = server.manifest.iter().flat_map(|manifest| &manifest.templates);
    { templates }.any(|template| {
        let template = text_member(template, "uriTemplate").unwrap_or_default();
        let fixed = template.split('{').next().unwrap_or_default();
        !fixed.is_empty() && uri.starts_with(fixed)
    })
}

/// A request that reaches one server: its pseudo-tool, and its params with the server's own names.
pub(crate) fn relayed_request(
    server: &Server,
    is_plain: bool,
    method: &str,
    params: &str,
) -> (Tool, String) {
    let short = |name: &str| {
        let prefix = if is_plain { "" } else { &*server.server.prefix };
        String::from(name.strip_prefix(prefix).unwrap_or(name))
    };
    let mut passed = String::from(params);
    if let Some(shown) = text_member(params, "uri").filter(|shown| uri::is_wrapped(shown)) {
        passed = with_member(&passed, "uri", &quoted(uri::own(&shown)));
    }
    if let Some(of) = member(params, "ref") {
        let mut own = String::from(of);
        if let Some(name) = text_member(of, "name") {
            own = with_member(&own, "name", &quoted(&short(&name)));
        }
        if let Some(shown) = text_member(of, "uri").filter(|shown| uri::is_wrapped(shown)) {
            own = with_member(&own, "uri", &quoted(uri::own(&shown)));
        }
        if own != of {
            passed = with_member(&passed, "ref", &own);
        }
    }
    let name = match method {
        "prompts/get" => short(&text_member(params, "name").unwrap_or_default()),
        _ => String::new(),
    };
    (server.relayed(method, method, &name, TaskSupport::Forbidden), passed)
}

/// An element of a list as clients see it: tools and prompts with the prefix unless the server
/// shows through, and a resource that an
/// earlier server has as well under a wrapped URI (UPS-11).
fn shown_element<'a>(
    server: &Server,
    at: usize,
    is_plain: bool,
    element: &'a str,
    seen: &BTreeSet<Box<str>>,
) -> Cow<'a, str> {
    let member = match at {
        TOOLS if is_plain && !server.server.prefix.is_empty() => {
            let name = text_member(element, "name");
            let short = name.as_deref().and_then(|name| name.strip_prefix(&*server.server.prefix));
            return match short {
                Some(name) => Cow::Owned(with_member(element, "name", &quoted(name))),
                None => Cow::Borrowed(element),
            };
        }
        PROMPTS if !is_plain && !server.server.prefix.is_empty() => {
            return match text_member(element, "name") {
                Some(name) => {
                    let name = alloc::format!("{}{name}", server.server.prefix);
                    Cow::Owned(with_member(element, "name", &quoted(&name)))
                }
                None => Cow::Borrowed(element),
            };
        }
        RESOURCES => "uri",
        TEMPLATES => "uriTemplate",
        _ => return Cow::Borrowed(element),
    };
    let Some(own) = text_member(element, member) else { return Cow::Borrowed(element) };
    match uri::shown(&server.server.name, &own, seen.contains(&own)) {
        Cow::Owned(shown) => Cow::Owned(with_member(element, member, &quoted(&shown))),
        Cow::Borrowed(_) => Cow::Borrowed(element),
    }
}
