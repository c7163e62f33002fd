//! Resources that clients are subscribed to, and their updates.
//!
//! A subscription belongs to a session and to the server, not to one process: it is made again on
//! every new instance, and an instance that is watched does not rest.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::connection::SessionPhase;
use crate::event::Outcome;
use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId, JobId, RequestId};
use crate::json::meta::write_with_meta;
use crate::outbox::Outbox;
use crate::outbox::requests::{Reply, RequestWork};
use crate::outbox::typed_result::SUBSCRIPTION_ID;
use crate::policy::account::ChargedText;
use crate::protocol::revision::{MCP_2026_07_28, Methods};
use crate::protocol::role::Side;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::rpc::send_queue::Tag;
use crate::tool::Tool;
use crate::upstream::audience_states::audience_of;
use crate::upstream::gateway::Gateway;
use crate::upstream::lifecycle::Assigned;
use crate::upstream::rewrite::{member, quoted, text_member, with_member, without};
use crate::upstream::server::{Share, UpstreamServer};
use crate::upstream::table::{Instance, InstanceKey, ResourceKey, Upstreams, Watcher};
use crate::upstream::targets::RequestTarget;
use crate::upstream::uri;

pub(crate) const SUBSCRIBE: &str = "resources/subscribe";
pub(crate) const UNSUBSCRIBE: &str = "resources/unsubscribe";
/// Name of the host in the table of watched resources; no server has it.
pub(crate) const HOST: &str = "";

impl Upstreams {
    /// Resources that a client is subscribed to, by its session and by its subscriptions.
    pub(crate) fn watches_of(&self, client: ConnId) -> usize {
        let all = self.watched.values().flat_map(|watchers| watchers.keys());
        all.filter(|watcher| watcher.conn == client).count()
    }

    /// The server of a resource, and the URI that it knows: the first that lists it, else the one that
    /// a wrapped URI names, else the first that has resources.
    fn server_of_uri(
        &self,
        outbox: &Outbox,
        shown: &str,
        conn: ConnId,
    ) -> Option<(Arc<UpstreamServer>, Box<str>)> {
        let params = with_member("{}", "uri", &quoted(shown));
        let target = self.target_of(outbox, SUBSCRIBE, &params, conn)?;
        Some((Arc::clone(&target.server.server), target.own.unwrap_or_else(|| shown.into())))
    }

    /// A client watches a resource, which it knows by the URI `shown`.
    fn note_watcher(
        &mut self,
        outbox: &Outbox,
        key: ResourceKey,
        watcher: Watcher,
        shown: Box<str>,
    ) {
        let Some(connection) = outbox.connection(watcher.conn) else { return };
        let shown = ChargedText::new(connection.account(), shown, key.1.len());
        self.watched.entry(key).or_default().insert(watcher, shown);
    }

    /// The named resources whose updates a client can listen to: those of the host, and those of
    /// servers that tell of updates.
    pub(crate) fn watchable(
        &self,
        outbox: &Outbox,
        conn: ConnId,
        uris: &BTreeSet<Box<str>>,
    ) -> BTreeSet<Box<str>> {
        let tells = |shown: &str| {
            self.has_offer(outbox, conn, shown) || {
                let server = self.server_of_uri(outbox, shown, conn);
                let server = server.filter(|(server, _)| server.share != Share::Call);
                server.is_some_and(|(server, _)| self.tells_of_updates(outbox, &server, conn))
            }
        };
        uris.iter().filter(|shown| tells(shown)).cloned().collect()
    }

    fn tells_of_updates(&self, outbox: &Outbox, server: &UpstreamServer, conn: ConnId) -> bool {
        let audience = audience_of(outbox, server, conn);
        let state = self.state(&server.name, audience.as_ref());
        let manifest = state.and_then(|server| server.manifest.as_ref());
        let said = manifest.and_then(|manifest| member(&manifest.identity, "capabilities"));
        let said = said.and_then(|said| member(said, "resources"));
        said.and_then(|said| member(said, "subscribe")) == Some("true")
    }

    /// Notes that a resource of the host is watched.
    pub(crate) fn watch_of_host(&mut self, outbox: &Outbox, uri: &str, watcher: Watcher) {
        self.note_watcher(outbox, (HOST.into(), uri.into()), watcher, uri.into());
    }

    /// The watchers of a resource.
    pub(crate) fn watchers_of(&self, server: &str, own: &str) -> Vec<Watcher> {
        let watched = self.watched.get(&(server.into(), own.into()));
        watched.iter().flat_map(|of| of.keys().cloned()).collect()
    }

    /// A resource is no longer watched by one of its watchers.
    pub(crate) fn forget_watch(&mut self, server: &str, own: &str, watcher: &Watcher) {
        let key = (server.into(), own.into());
        if let Some(watchers) = self.watched.get_mut(&key) {
            watchers.remove(watcher);
            if watchers.is_empty() {
                self.watched.remove(&key);
            }
        }
    }

    /// Whether an instance of a server takes requests of a client now.
    pub(crate) fn has_session(
        &self,
        outbox: &Outbox,
        server: &UpstreamServer,
        client: ConnId,
    ) -> bool {
        self.instances.values().any(|of| {
            of.server.name == server.name && of.is_in_session() && serves(outbox, of, client)
        })
    }

    /// Instances of a server that serve these requests and are in a session.
    fn instances_with(&self, server: &str, key: &InstanceKey) -> Vec<InstanceId> {
        let all = self.instances.iter().filter(|(_, instance)| {
            &*instance.server.name == server
                && instance.key == *key
                && instance.is_in_session()
                && !instance.is_abandoned
        });
        all.map(|(id, _)| *id).collect()
    }

    /// Resources of an instance that its clients are subscribed to.
    pub(super) fn watched_by<'a>(
        &'a self,
        outbox: &'a Outbox,
        instance: &'a Instance,
    ) -> impl Iterator<Item = &'a str> {
        let of_server = |key: &&ResourceKey| key.0 == instance.server.name;
        self.watched
            .iter()
            .filter(move |(key, _)| of_server(key))
            .filter(|(_, watchers)| {
                watchers.keys().any(|watcher| serves(outbox, instance, watcher.conn))
            })
            .map(|(key, _)| &*key.1)
    }

    /// Whether a client of an instance watches this resource.
    fn watches(&self, outbox: &Outbox, id: InstanceId, own: &str) -> bool {
        let instance = self.instances.get(&id);
        instance
            .is_some_and(|instance| self.watched_by(outbox, instance).any(|watched| watched == own))
    }

    /// Whether an instance has to run because its clients watch resources.
    pub(super) fn is_watched(&self, outbox: &Outbox, id: InstanceId) -> bool {
        let instance = self.instances.get(&id);
        instance.is_some_and(|instance| self.watched_by(outbox, instance).next().is_some())
    }
}

impl Gateway<'_> {
    /// A session subscribes to a resource, or ends that.
    /// Answers it, or returns the request to the server.
    pub(crate) fn on_watch(
        &mut self,
        reply: Reply,
        method: &str,
        params: Option<&Params<'_>>,
    ) -> Option<(Reply, Tool, String)> {
        let shown = match params::find(params, ["uri"]).and_then(|[uri]| params::text("uri", uri)) {
            Ok(uri) => uri,
            Err(error) => return self.fail(reply, &error),
        };
        let identity = self.outbox.identity_of(reply.conn);
        let server = self.upstreams.server_of_uri(self.outbox, &shown, reply.conn);
        let Some((server, own)) = server else {
            let message = format!("no server offers the resource {:?}", self.outbox.clean(&shown));
            return self.fail(reply, &ErrorObject::invalid_params(message));
        };
        if server.share == Share::Call {
            let message = "a server whose instances serve one call each has no subscriptions";
            return self.fail(reply, &ErrorObject::new(code::METHOD_NOT_FOUND, message));
        }
        let max = self.settings.limits.subscriptions_max;
        if method == UNSUBSCRIBE {
            self.upstreams.forget_watch(&server.name, &own, &Watcher::session(reply.conn));
            let key = (server.name.clone(), own.clone());
            let instance = self.key_of(&server, reply.conn, &identity);
            let others = self.upstreams.watched.get(&key).is_some_and(|watchers| {
                watchers.keys().any(|other| is_served_by(self.outbox, &instance, other.conn))
            });
            if others {
                self.answer(reply, |json| _ = json.raw("{}"));
                return None;
            }
        } else if self.upstreams.watches_of(reply.conn) >= max {
            let what = "resources are subscribed to on this connection: unsubscribe from some";
            self.outbox.refuse(reply, "subscriptions_per_connection", max, what);
            return None;
        }
        let Some(of) = self.upstreams.server(&server.name) else {
            self.outbox.forget(reply);
            return None;
        };
        let target = RequestTarget { server: of, own: (*own != *shown).then(|| own.clone()) };
        let tool = target.tool(method, &shown);
        let passed = with_member(params.map_or("{}", Params::get), "uri", &quoted(&own));
        Some((reply, tool, passed))
    }

    /// Answers a request with an error, so that nothing is left of it.
    fn fail<T>(&mut self, reply: Reply, error: &ErrorObject) -> Option<T> {
        self.outbox.fail(reply, error);
        None
    }

    /// A relayed job has ended; a subscription that the server has confirmed is kept.
    pub(crate) fn note_watched(&mut self, job: JobId, outcome: &Outcome) {
        let Some(entry) = self.jobs.get(job) else { return };
        let Some(route) = entry.tool.route.clone() else { return };
        let client = entry.conn;
        let is_open = self.outbox.connections().contains_key(&client);
        if &*route.method == SUBSCRIBE && matches!(outcome, Outcome::Result(_)) && is_open {
            let key = (route.server.clone(), route.own_uri().into());
            let watcher = Watcher::session(client);
            self.upstreams.note_watcher(self.outbox, key, watcher, route.name.clone());
        }
    }

    /// A subscription begins to watch these resources. Instances are started if need be, and asked
    /// for the updates of resources that no client of theirs watches yet.
    pub(crate) fn watch_listened(
        &mut self,
        conn: ConnId,
        request: &RequestId,
        uris: &BTreeSet<Box<str>>,
    ) {
        let identity = self.outbox.identity_of(conn);
        let mut fresh: Vec<(Arc<UpstreamServer>, Box<str>)> = Vec::new();
        for shown in uris {
            let watcher = Watcher { conn, listen: Some(request.clone()) };
            if self.upstreams.has_offer(self.outbox, conn, shown) {
                self.upstreams.watch_of_host(self.outbox, shown, watcher);
                continue;
            }
            let server = self.upstreams.server_of_uri(self.outbox, shown, conn);
            let Some((server, own)) = server else { continue };
            let instances_of = self.key_of(&server, conn, &identity);
            let instances = self.upstreams.instances_with(&server.name, &instances_of);
            let is_new = !instances.iter().any(|id| self.upstreams.watches(self.outbox, *id, &own));
            let key = (server.name.clone(), own.clone());
            self.upstreams.note_watcher(self.outbox, key, watcher, shown.clone());
            if is_new {
                fresh.push((server, own));
            }
        }
        for (server, own) in fresh {
            // One that cannot start now is started by the next request, and asked then.
            if let Assigned::To(id) = self.instance_for(&server, conn, &identity) {
                self.tell_watch(id, SUBSCRIBE, &own);
                self.rest_if_idle(id);
            }
        }
    }

    /// Tells an instance that a resource is watched from now on, or is not any more; a new one is
    /// told after its handshake.
    fn tell_watch(&mut self, id: InstanceId, method: &str, own: &str) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        if !instance.is_in_session() {
            return;
        }
        match instance.conn.map(|conn| self.outbox.dialect(conn)) {
            Some(dialect) if dialect == &MCP_2026_07_28 => self.listen_upstream(id),
            Some(_) => {
                let params = with_member("{}", "uri", &quoted(own));
                self.ask_instance(id, method, &params, false);
            }
            None => {}
        }
    }

    /// A client is gone: resources that it alone has watched are not watched any more.
    pub(crate) fn forget_watches(&mut self, client: ConnId, identity: &Identity) {
        let shared = InstanceKey::Owner(identity.clone());
        self.unwatch(&[shared], |watcher| watcher.conn == client);
    }

    /// A subscription of a client has ended, and with it its watches.
    pub(crate) fn forget_listened(&mut self, client: ConnId, request: &RequestId) {
        // With its connection everything that it watches ends.
        let Some(identity) = self.outbox.identity(client).cloned() else { return };
        let keys = [InstanceKey::Owner(identity), InstanceKey::Client(client)];
        self.unwatch(&keys, |watcher| {
            watcher.conn == client && watcher.listen.as_ref() == Some(request)
        });
    }

    /// Forgets watchers; the instances with these keys are told of resources without any other
    /// watcher.
    fn unwatch(&mut self, keys: &[InstanceKey], is_gone: impl Fn(&Watcher) -> bool) {
        let all = self.upstreams.watched.iter();
        let gone: Vec<(ResourceKey, Watcher)> = { all }
            .flat_map(|(key, watchers)| {
                let gone = watchers.keys().filter(|watcher| is_gone(watcher));
                gone.map(|watcher| (key.clone(), watcher.clone()))
            })
            .collect();
        for ((server, own), watcher) in gone {
            self.upstreams.forget_watch(&server, &own, &watcher);
            for key in keys {
                for id in self.upstreams.instances_with(&server, key) {
                    if !self.upstreams.watches(self.outbox, id, &own) {
                        self.tell_watch(id, UNSUBSCRIBE, &own);
                    }
                    self.rest_if_idle(id);
                }
            }
        }
    }

    /// A new instance is told of the subscriptions of its clients.
    pub(crate) fn watch_again(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        if instance.conn.is_none_or(|conn| self.outbox.dialect(conn) == &MCP_2026_07_28) {
            return self.listen_upstream(id);
        }
        let watched: Vec<Box<str>> =
            self.upstreams.watched_by(self.outbox, instance).map(Into::into).collect();
        for own in watched {
            let params = with_member("{}", "uri", &quoted(&own));
            self.ask_instance(id, SUBSCRIBE, &params, false);
        }
    }

    /// An instance has ended or takes nothing new: another one takes over its subscriptions.
    pub(crate) fn succeed_watched(&mut self, server: &Arc<UpstreamServer>, key: &InstanceKey) {
        if self.drains || self.upstreams.open_for(server, key).next().is_some() {
            return;
        }
        let watched = self.upstreams.watched.iter().filter(|((name, _), _)| *name == server.name);
        let mut watchers = watched.flat_map(|(_, watchers)| watchers.keys());
        let client = watchers.find(|watcher| is_served_by(self.outbox, key, watcher.conn));
        let client = client.map(|watcher| watcher.conn);
        if let Some(client) = client.filter(|client| self.outbox.connections().contains_key(client))
        {
            let identity = self.outbox.identity_of(client);
            let server = self.upstreams.server(&server.name).map(|of| Arc::clone(&of.server));
            if let Some(server) = server
                && let Assigned::Failed(_) = self.instance_for(&server, client, &identity)
            {
                // It starts with the next request, when its backoff is over.
            }
        }
    }

    /// A resource was updated: the clients that are subscribed to it, or to one that contains it,
    /// are told, and no other.
    pub(crate) fn on_updated(&mut self, id: InstanceId, params: Option<&Params<'_>>) {
        let params = params.map_or("{}", Params::get);
        let Some(own) = text_member(params, "uri") else { return };
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let name = instance.server.name.clone();
        let mut told: BTreeSet<(Watcher, bool)> = BTreeSet::new();
        for ((server, watched), watchers) in &self.upstreams.watched {
            if *server != name || !own.starts_with(&**watched) {
                continue;
            }
            for (watcher, shown) in watchers {
                let is_told = told.iter().any(|(other, _)| other == watcher);
                if !is_told && serves(self.outbox, instance, watcher.conn) {
                    told.insert((watcher.clone(), **shown != **watched));
                }
            }
        }
        let params = without_subscription(params);
        for (watcher, wrapped) in told {
            let shown = match wrapped {
                true => uri::wrapped(&name, &own),
                false => own.clone().into(),
            };
            tell_watcher(self.outbox, &watcher, &with_member(&params, "uri", &quoted(&shown)));
        }
    }

    /// Clients with a session that an instance serves.
    pub(crate) fn sessions_of(&self, id: InstanceId) -> Vec<ConnId> {
        let Some(instance) = self.upstreams.instances.get(&id) else { return Vec::new() };
        let is_session = |client: &ConnId| {
            self.outbox.connection(*client).is_some_and(|peer| {
                peer.phase == SessionPhase::Ready
                    && peer.dialect.methods == Methods::Tools
                    && matches!(peer.side, Side::Server)
            })
        };
        match &instance.key {
            InstanceKey::Client(client) => [*client].into_iter().filter(is_session).collect(),
            InstanceKey::Owner(_) => {
                let all = self.outbox.connections().keys().copied().filter(is_session);
                all.filter(|client| serves(self.outbox, instance, *client)).collect()
            }
            InstanceKey::Call => {
                let jobs = instance.calls.iter().filter_map(|job| self.jobs.get(*job));
                jobs.map(|job| job.conn).filter(is_session).collect()
            }
        }
    }
}

/// Whether a client is one of those that an instance serves.
pub(super) fn serves(outbox: &Outbox, instance: &Instance, client: ConnId) -> bool {
    is_served_by(outbox, &instance.key, client)
}

fn is_served_by(outbox: &Outbox, key: &InstanceKey, client: ConnId) -> bool {
    match key {
        InstanceKey::Client(own) => *own == client,
        InstanceKey::Owner(owner) => {
            outbox.connection(client).is_some_and(|peer| peer.identity == *owner)
        }
        InstanceKey::Call => false,
    }
}

/// Tells a session or a subscription of an update.
pub(crate) fn tell_watcher(outbox: &mut Outbox, watcher: &Watcher, params: &str) {
    const UPDATED: &str = "notifications/resources/updated";
    let Some(request) = &watcher.listen else {
        return notify_client(outbox, watcher.conn, UPDATED, params);
    };
    let Some(peer) = outbox.connection(watcher.conn) else { return };
    let Some((reply, RequestWork::Listen(_))) = peer.requests.get(request) else { return };
    if peer.send_queue.len() >= outbox.settings().limits.write_buffer_bytes {
        return;
    }
    let mut id = Vec::new();
    crate::json::writer::Writer::new(&mut id).id(&reply.id, reply.token());
    let tag = Tag { request: Some(request), recall: true, handle: None };
    outbox.send_for(watcher.conn, tag, |json| {
        json.raw("{\"jsonrpc\":\"2.0\",").member("method", UPDATED).raw(",\"params\":");
        write_with_meta(json, params, &[(SUBSCRIPTION_ID, &id)]);
        json.raw("}");
    });
}

/// Sends a notification of a server to a client, unless the client does not read.
pub(super) fn notify_client(outbox: &mut Outbox, client: ConnId, method: &str, params: &str) {
    let room = outbox.settings().limits.write_buffer_bytes;
    let reads = |waiting: usize| waiting < room;
    if !outbox.connection(client).is_some_and(|peer| reads(peer.send_queue.len())) {
        return;
    }
    outbox.send(client, |json| {
        json.raw("{\"jsonrpc\":\"2.0\",").member("method", method).raw(",\"params\":");
        json.raw(params).raw("}");
    });
}

/// Params of a notification without the subscription of this engine at the server.
fn without_subscription(params: &str) -> String {
    let Some(meta) = member(params, "_meta") else { return params.into() };
    match &*without(meta, &[SUBSCRIPTION_ID]) {
        "{}" => without(params, &["_meta"]),
        meta => with_member(params, "_meta", meta),
    }
}
