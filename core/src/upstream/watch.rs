//! Resources that clients are subscribed to, and their updates.
//!
//! A subscription belongs to a session and to the server, not to one process: it is made again on
//! every new instance, and an instance that is watched does not rest.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::connection::Phase as SessionPhase;
use crate::engine::Engine;
use crate::event::Outcome;
use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId, JobId};
use crate::protocol::revision::{MCP_2026_07_28, Methods};
use crate::protocol::role::Side;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::server::requests::Reply;
use crate::tool::TaskSupport;
use crate::upstream::lifecycle::Assigned;
use crate::upstream::rewrite::{quoted, text_member, with_member};
use crate::upstream::server::{Share, UpstreamServer};
use crate::upstream::table::{Instance, Key, ResourceKey};
use crate::upstream::uri;

pub(crate) const SUBSCRIBE: &str = "resources/subscribe";
pub(crate) const UNSUBSCRIBE: &str = "resources/unsubscribe";

impl Engine {
    /// A session subscribes to a resource, or ends that.
    pub(crate) fn on_watch(&mut self, reply: Reply, method: &str, params: Option<&Params<'_>>) {
        let shown = match params::find(params, ["uri"]).and_then(|[uri]| params::text("uri", uri)) {
            Ok(uri) => uri,
            Err(error) => return self.fail(reply, &error),
        };
        let identity = self.identity_of(reply.conn);
        let Some(server) = self.server_of_uri(&shown, reply.conn) else {
            let message = format!("no server offers the resource {:?}", self.clean(&shown));
            return self.fail(reply, &ErrorObject::invalid_params(message));
        };
        if server.share == Share::Call {
            let message = "a server whose instances serve one call each has no subscriptions";
            return self.fail(reply, &ErrorObject::new(code::METHOD_NOT_FOUND, message));
        }
        let own: Box<str> = uri::own(&shown).into();
        let max = self.settings.limits.subscriptions_max;
        if method == UNSUBSCRIBE {
            self.forget_watch(&server.name, &own, reply.conn);
            let key = (server.name.clone(), own.clone());
            let others = self.upstreams.watched.get(&key).is_some_and(|clients| {
                clients.keys().any(|other| self.shares(&server, *other, &identity))
            });
            if others {
                return self.answer(reply, |json| {
                    json.raw("{}");
                });
            }
        } else if self.watches_of(reply.conn) >= max {
            let what = "resources are subscribed to on this connection: unsubscribe from some";
            return self.refuse(reply, "subscriptions_per_connection", max, what);
        }
        let Some(of) = self.upstreams.server(&server.name) else { return self.forget(reply) };
        let tool = of.relayed(method, method, &shown, TaskSupport::Forbidden);
        let passed = with_member(params.map_or("{}", Params::get), "uri", &quoted(&own));
        self.call_upstream_with(reply, tool, params, &passed);
    }

    /// Whether a client other than the sender uses the same instance of a server.
    fn shares(&self, server: &UpstreamServer, other: ConnId, identity: &Identity) -> bool {
        server.share == Share::Identity && self.identity_of(other) == *identity
    }

    pub(crate) fn watches_of(&self, client: ConnId) -> usize {
        self.upstreams.watched.values().filter(|clients| clients.contains_key(&client)).count()
    }

    /// The server of a resource: the one that a wrapped URI names, else the first that lists it,
    /// else the first that has resources.
    pub(crate) fn server_of_uri(&self, shown: &str, conn: ConnId) -> Option<Arc<UpstreamServer>> {
        let params = with_member("{}", "uri", &quoted(shown));
        let server = self.server_of(SUBSCRIBE, &params, conn)?;
        Some(Arc::clone(&server.server))
    }

    /// A relayed job has ended; a subscription that the server has confirmed is kept.
    pub(crate) fn note_watched(&mut self, job: JobId, outcome: &Outcome) {
        let Some(entry) = self.jobs.get(job) else { return };
        let Some(route) = entry.tool.route.clone() else { return };
        let client = entry.conn;
        let is_open = self.connections.contains_key(&client);
        if &*route.method == SUBSCRIBE && matches!(outcome, Outcome::Result(_)) && is_open {
            let key = (route.server.clone(), uri::own(&route.name).into());
            self.upstreams.watched.entry(key).or_default().insert(client, route.name.clone());
        }
    }

    pub(crate) fn forget_watch(&mut self, server: &str, own: &str, client: ConnId) {
        let key = (server.into(), own.into());
        if let Some(clients) = self.upstreams.watched.get_mut(&key) {
            clients.remove(&client);
            if clients.is_empty() {
                self.upstreams.watched.remove(&key);
            }
        }
    }

    /// A client is gone: topics that it alone has watched are not watched any more.
    pub(crate) fn forget_watches(&mut self, client: ConnId, identity: &Identity) {
        let all = self.upstreams.watched.iter();
        let own: Vec<ResourceKey> = { all }
            .filter(|(_, of)| of.contains_key(&client))
            .map(|(key, _)| key.clone())
            .collect();
        for (server, own) in own {
            self.forget_watch(&server, &own, client);
            let key = Key::Owner(identity.clone());
            let of = self.upstreams.instances.iter();
            let shared = { of }.find(|(_, instance)| {
                instance.server.name == server && instance.key == key && instance.is_in_session()
            });
            let Some((id, instance)) = shared.map(|(id, instance)| (*id, instance)) else {
                continue;
            };
            if !self.watched_by(instance).any(|watched| *watched == *own) {
                let params = with_member("{}", "uri", &quoted(&own));
                self.ask_instance(id, UNSUBSCRIBE, &params, false);
            }
            self.rest_if_idle(id);
        }
    }

    /// Whether a client is one of those that an instance serves.
    pub(crate) fn serves(&self, instance: &Instance, client: ConnId) -> bool {
        match &instance.key {
            Key::Client(own) => *own == client,
            Key::Owner(owner) => {
                self.connections.get(&client).is_some_and(|peer| peer.identity == *owner)
            }
            Key::Call => false,
        }
    }

    /// Resources of an instance that its clients are subscribed to.
    fn watched_by<'a>(&'a self, instance: &'a Instance) -> impl Iterator<Item = &'a str> {
        let of_server = |key: &&ResourceKey| key.0 == instance.server.name;
        self.upstreams
            .watched
            .iter()
            .filter(move |(key, _)| of_server(key))
            .filter(|(_, clients)| clients.keys().any(|client| self.serves(instance, *client)))
            .map(|(key, _)| &*key.1)
    }

    /// Whether an instance has to run because its clients watch resources.
    pub(crate) fn is_watched(&self, id: InstanceId) -> bool {
        let instance = self.upstreams.instances.get(&id);
        instance.is_some_and(|instance| self.watched_by(instance).next().is_some())
    }

    /// A new instance is told of the subscriptions of its clients.
    pub(crate) fn watch_again(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        if instance.conn.is_none_or(|conn| self.dialect(conn) == &MCP_2026_07_28) {
            return;
        }
        let watched: Vec<Box<str>> = self.watched_by(instance).map(Into::into).collect();
        for own in watched {
            let params = with_member("{}", "uri", &quoted(&own));
            self.ask_instance(id, SUBSCRIBE, &params, false);
        }
    }

    /// An instance has ended or takes nothing new: another one takes over its subscriptions.
    pub(crate) fn succeed_watched(&mut self, server: &Arc<UpstreamServer>, key: &Key) {
        if self.drain.is_some() || self.upstreams.find(server, key).is_some() {
            return;
        }
        let clients = self.upstreams.watched.iter();
        let clients = clients.filter(|((name, _), _)| *name == server.name);
        let client =
            { clients }.flat_map(|(_, clients)| clients.keys().copied()).find(|client| match key {
                Key::Client(own) => own == client,
                Key::Owner(owner) => self.identity_of(*client) == *owner,
                Key::Call => false,
            });
        if let Some(client) = client.filter(|client| self.connections.contains_key(client)) {
            let identity = self.identity_of(client);
            let server = self.upstreams.server(&server.name).map(|of| Arc::clone(&of.server));
            if let Some(server) = server
                && let Assigned::Failed(_) = self.instance_for(&server, client, &identity)
            {
                // It starts with the next request, when its backoff is over.
            }
        }
    }

    /// A resource was updated: the sessions that are subscribed to it, or to one that contains it,
    /// are told, and no other.
    pub(crate) fn on_updated(&mut self, id: InstanceId, params: Option<&Params<'_>>) {
        let params = params.map_or("{}", Params::get);
        let Some(own) = text_member(params, "uri") else { return };
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let name = instance.server.name.clone();
        let mut told: Vec<(ConnId, bool)> = Vec::new();
        for ((server, watched), clients) in &self.upstreams.watched {
            if *server != name || !own.starts_with(&**watched) {
                continue;
            }
            for (client, shown) in clients {
                let is_told = told.iter().any(|(other, _)| other == client);
                if !is_told && self.serves(instance, *client) {
                    told.push((*client, uri::is_wrapped(shown)));
                }
            }
        }
        for (client, wrapped) in told {
            let shown = match wrapped {
                true => uri::wrapped(&name, &own),
                false => own.clone().into(),
            };
            let params = with_member(params, "uri", &quoted(&shown));
            self.notify_client(client, "notifications/resources/updated", &params);
        }
    }

    /// Sends a notification of a server to a client, unless the client does not read.
    pub(crate) fn notify_client(&mut self, client: ConnId, method: &str, params: &str) {
        let room = self.settings.limits.write_buffer_bytes;
        let reads = |waiting: usize| waiting < room;
        if !self.connections.get(&client).is_some_and(|peer| reads(peer.send_queue.len())) {
            return;
        }
        self.send(client, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",").member("method", method).raw(",\"params\":");
            json.raw(params).raw("}");
        });
    }

    /// Clients with a session that an instance serves.
    pub(crate) fn sessions_of(&self, id: InstanceId) -> Vec<ConnId> {
        let Some(instance) = self.upstreams.instances.get(&id) else { return Vec::new() };
        let is_session = |client: &ConnId| {
            self.connections.get(client).is_some_and(|peer| {
                peer.phase == SessionPhase::Ready
                    && peer.dialect.methods == Methods::Tools
                    && matches!(peer.side, Side::Server)
            })
        };
        match &instance.key {
            Key::Client(client) => [*client].into_iter().filter(is_session).collect(),
            Key::Owner(_) => {
                let all = self.connections.keys().copied().filter(is_session);
                all.filter(|client| self.serves(instance, *client)).collect()
            }
            Key::Call => {
                let jobs = instance.calls.iter().filter_map(|job| self.jobs.get(*job));
                jobs.map(|job| job.conn).filter(is_session).collect()
            }
        }
    }
}
