//! Lists and identity of upstreams as clients see them, and methods that reach one upstream.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::event::Outcome;
use crate::ids::{ConnId, InstanceId};
use crate::outbox::Outbox;
use crate::outbox::requests::{Reply, RequestWork, Settled};
use crate::policy::access::{Caller, Item};
use crate::policy::allow::Verdict;
use crate::protocol::revision::Results;
use crate::rpc::error::{ErrorObject, code};
use crate::server::stateless;
use crate::tool::Tool;
use crate::upstream::audience_states::audience_of;
use crate::upstream::awaited::AwaitedAnswer;
use crate::upstream::effect::GatewayEffect;
use crate::upstream::gateway::Gateway;
use crate::upstream::learn::tells_changes;
use crate::upstream::list::{LISTS, PROMPTS, RESOURCES, SKILLS, TEMPLATES, TOOLS};
use crate::upstream::mirror::Mirror;
use crate::upstream::narrow::era_of;
use crate::upstream::rewrite::{elements, member, quoted, text_member, with_member};
use crate::upstream::server::{Share, UpstreamServer};
use crate::upstream::spoken::SpokenEra;
use crate::upstream::table::{InstanceKey, KnownServer, Upstreams, own_name};
use crate::upstream::targets::uris_of;
use crate::upstream::uri;

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
            Some(_) => self.await_upstreams(reply, AwaitedAnswer::Initialize),
            None => {
                self.effect(GatewayEffect::Answer { reply, awaited: AwaitedAnswer::Initialize });
            }
        }
    }

    /// Answers a request from the known lists of the upstreams, or lets it wait for them.
    pub(crate) fn await_upstreams(&mut self, reply: Reply, awaited: AwaitedAnswer) {
        self.wake_upstreams(reply.conn);
        if let AwaitedAnswer::List(at) = awaited {
            self.refresh_list(reply.conn, at);
        }
        if self.upstreams.is_waiting(self.outbox, reply.conn, &awaited) {
            if self.outbox.is_full(reply.conn) {
                return self.outbox.refuse_inflight(reply);
            }
            let (conn, id) = (reply.conn, reply.id.clone());
            let Some(connection) = self.outbox.connection_mut(conn) else { return };
            connection.requests.open(reply, RequestWork::Upstream(awaited));
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
                    self.note_calls_in(&server, &InstanceKey::Call, era_of(self.outbox, conn));
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
            let Some(RequestWork::Upstream(awaited)) = work.cloned() else {
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

    fn answer_from_upstreams(&mut self, reply: Reply, awaited: AwaitedAnswer) {
        // UPS-08: with one server its failure is the answer; of several the others are shown.
        let shown = self.upstreams.shown_through(self.outbox, reply.conn);
        let is_unknown = |server: &&KnownServer| match awaited {
            AwaitedAnswer::List(at) => !server.known[at],
            AwaitedAnswer::Initialize | AwaitedAnswer::Discover | AwaitedAnswer::Listen(_) => {
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
            AwaitedAnswer::List(at) => self.answer_list(reply, at),
            AwaitedAnswer::Initialize | AwaitedAnswer::Discover | AwaitedAnswer::Listen(_) => {
                self.effect(GatewayEffect::Answer { reply, awaited });
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
            let eras = [SpokenEra::Session, SpokenEra::Modern];
            eras.map(|era| self.state_for(server, caller.identity, era))
        });
        let server = { servers }
            .find(|it| it.tools.get(name).is_some_and(|tool| sees_tool(&caller, it, tool)))?;
        let named = |listed: &&str| {
            listed.contains("x-mcp-header") && text_member(listed, "name").as_deref() == Some(name)
        };
        member(server.listed.iter().map(|listed| &**listed).find(named)?, "inputSchema")
    }

    /// Arguments that headers of HTTP repeat, of a call on the connection of a server by URL; `tool`
    /// is the name that the server knows.
    pub(crate) fn mirrors(&self, conn: ConnId, tool: &str) -> &[Mirror] {
        let instance = self.instances.values().find(|instance| instance.conn == Some(conn));
        let server = instance.and_then(|it| self.state(&it.server.name, it.audience.as_ref()));
        server.and_then(|server| server.mirrors.get(tool)).map_or(&[], Vec::as_slice)
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

    /// Whether an instance is on its way to tell a client of the lists of a server.
    fn is_learning_for(&self, outbox: &Outbox, server: &UpstreamServer, conn: ConnId) -> bool {
        let audience = audience_of(outbox, server, conn);
        self.is_learning(&server.name, audience.as_ref())
    }

    /// Whether a request of a connection waits for servers that have not told of themselves.
    pub(crate) fn is_waiting(
        &self,
        outbox: &Outbox,
        conn: ConnId,
        awaited: &AwaitedAnswer,
    ) -> bool {
        let is_unknown = |server: &KnownServer| {
            server.manifest.is_none() && self.is_learning_for(outbox, &server.server, conn)
        };
        match (awaited, self.shown_through(outbox, conn)) {
            (AwaitedAnswer::Initialize | AwaitedAnswer::Discover, None) => false,
            (AwaitedAnswer::List(at), _) => self
                .seen_servers(outbox, conn)
                .any(|server| self.awaits_list(outbox, server, conn, *at)),
            (AwaitedAnswer::Initialize | AwaitedAnswer::Discover | AwaitedAnswer::Listen(_), _) => {
                self.seen_servers(outbox, conn).any(is_unknown)
            }
        }
    }

    /// The members of a list that say how long it may be cached: as its servers say, of several the
    /// shortest time. Where nothing is said a change is told, or the list is never fresh.
    pub(crate) fn freshness_of_list(&self, outbox: &Outbox, at: usize, conn: ConnId) -> String {
        let is_plain = self.shown_through(outbox, conn).is_some();
        let ours = (!is_plain).then_some(stateless::TTL_MS);
        let of = |server: &KnownServer| {
            let manifest = server.manifest.as_ref();
            let said = manifest.and_then(|manifest| manifest.freshness_of(at).ttl_ms);
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
            { manifests }.all(|manifest| manifest.freshness_of(at).is_public)
        };
        stateless::cacheable(ttl, is_public)
    }

    /// Elements of a list of all servers that a connection sees, separated by commas.
    pub(crate) fn listed_elements(&self, outbox: &Outbox, at: usize, conn: ConnId) -> String {
        let mut listed = self.offered_elements(outbox, at, conn);
        // Elements that this engine offers itself come first.
        let key = LISTS[at].key;
        let mut seen: BTreeSet<Box<str>> = elements(&alloc::format!("[{listed}]"))
            .into_iter()
            .filter_map(|element| text_member(element, key))
            .collect();
        let caller = outbox.caller(conn);
        let is_plain = self.shown_through(outbox, conn).is_some();
        // A tool of the host comes before one of a server with the same name.
        let catalog = &outbox.settings().catalog;
        let has_own = catalog.iter().next().is_some();
        let is_shown = |server: &KnownServer, element: &str| {
            let Some(name) = text_member(element, "name") else { return true };
            let is_own = has_own && caller.tool(catalog, &name).is_some();
            !is_own && server.tools.get(&name).is_some_and(|it| sees_tool(&caller, server, it))
        };
        let is_limited = has_own || !caller.is_unlimited();
        let mut earlier = BTreeSet::new();
        for server in self.seen_servers(outbox, conn) {
            let Some(manifest) = &server.manifest else { continue };
            let all = match at {
                TOOLS => server.listed.as_slice(),
                _ => (LISTS[at].read)(manifest),
            };
            for element in all {
                if at == TOOLS && is_limited && !is_shown(server, element) {
                    continue;
                }
                let shown = shown_element(server, at, is_plain, element, &earlier);
                // UPS-11: a name of an earlier server reaches that one alone.
                if text_member(&shown, key).is_some_and(|name| !seen.insert(name)) {
                    continue;
                }
                if !listed.is_empty() {
                    listed.push(',');
                }
                listed.push_str(&shown);
            }
            if !is_plain && at != PROMPTS {
                earlier.extend(uris_of(manifest));
            }
        }
        listed
    }
}

/// The scopes that a verdict asks for.
fn lacking(verdict: Verdict<'_>) -> Vec<Box<str>> {
    match verdict {
        Verdict::Lacks(scopes) => scopes.into_iter().map(Box::from).collect(),
        Verdict::Granted | Verdict::Absent => Vec::new(),
    }
}

/// Whether a caller sees a tool of a server.
pub(super) fn sees_tool(caller: &Caller<'_>, server: &KnownServer, tool: &Tool) -> bool {
    caller.sees(Item::ServerTool(&server.server, own_name(tool)))
}

/// An element of a list as clients see it: tools and prompts with the prefix unless the server
/// shows through, and URIs that an earlier server has as well with the name of this one (UPS-11,
/// UPS-18).
fn shown_element<'a>(
    server: &KnownServer,
    at: usize,
    is_plain: bool,
    element: &'a str,
    earlier: &BTreeSet<Box<str>>,
) -> Cow<'a, str> {
    let (name, prefix) = (&server.server.name, &*server.server.prefix);
    let with_name = |text: String| Cow::Owned(with_member(element, "name", &quoted(&text)));
    let shared = |uri: &str| earlier.contains(uri).then(|| uri::wrapped(name, uri));
    match at {
        TOOLS if is_plain && !prefix.is_empty() => {
            let name = text_member(element, "name");
            let short = name.as_deref().and_then(|name| name.strip_prefix(prefix));
            short.map_or(Cow::Borrowed(element), |name| with_name(name.into()))
        }
        TOOLS => tool_with_uris(element, &shared),
        PROMPTS if !is_plain && !prefix.is_empty() => {
            let name = text_member(element, "name");
            name.map_or(Cow::Borrowed(element), |name| with_name(alloc::format!("{prefix}{name}")))
        }
        RESOURCES => with_uri(element, "uri", &shared),
        TEMPLATES => with_uri(element, "uriTemplate", &shared),
        SKILLS => skill_with_uris(element, &shared),
        _ => Cow::Borrowed(element),
    }
}

/// An object with the URI of a member as clients know it.
fn with_uri<'a>(
    object: &'a str,
    name: &'static str,
    shown: &impl Fn(&str) -> Option<String>,
) -> Cow<'a, str> {
    match text_member(object, name).and_then(|uri| shown(&uri)) {
        Some(uri) => Cow::Owned(with_member(object, name, &quoted(&uri))),
        None => Cow::Borrowed(object),
    }
}

/// A tool whose user interface is a resource, by both spellings of MCP Apps.
fn tool_with_uris<'a>(tool: &'a str, shown: &impl Fn(&str) -> Option<String>) -> Cow<'a, str> {
    let Some(meta) = member(tool, "_meta").filter(|meta| meta.contains("esourceUri")) else {
        return Cow::Borrowed(tool);
    };
    let mut own = with_uri(meta, "ui/resourceUri", shown).into_owned();
    if let Some(ui) = member(meta, "ui") {
        own = with_member(&own, "ui", &with_uri(ui, "resourceUri", shown));
    }
    match own == meta {
        true => Cow::Borrowed(tool),
        false => Cow::Owned(with_member(tool, "_meta", &own)),
    }
}

/// A skill with its files.
fn skill_with_uris<'a>(skill: &'a str, shown: &impl Fn(&str) -> Option<String>) -> Cow<'a, str> {
    let own = with_uri(skill, "uri", shown);
    let Some(files) = member(skill, "resources").filter(|files| files.starts_with('[')) else {
        return own;
    };
    let files = elements(files).into_iter().map(|file| with_uri(file, "uri", shown));
    let files: Vec<Cow<'_, str>> = files.collect();
    match matches!(own, Cow::Owned(_)) || files.iter().any(|file| matches!(file, Cow::Owned(_))) {
        true => {
            Cow::Owned(with_member(&own, "resources", &alloc::format!("[{}]", files.join(","))))
        }
        false => own,
    }
}
