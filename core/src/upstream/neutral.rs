//! Messages of methods that this engine does not know, between a client and the server that shows
//! through to it (UPS-17); and the fates of questions that the server or the client tells of.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::connection::Counterpart;
use crate::event::Outcome;
use crate::ids::{CallId, ConnId, InstanceId, JobId, RequestId};
use crate::outbox::requests::Reply;
use crate::outgoing::call::{CallFor, OutgoingCall};
use crate::protocol::capabilities::ELICITATION;
use crate::protocol::revision::Results;
use crate::protocol::role::Side;
use crate::rpc::params::Params;
use crate::upstream::gateway::Gateway;
use crate::upstream::list::{LISTS, SKILLS, SKILLS_EXTENSION};
use crate::upstream::questions::{capabilities_of, with_extension};
use crate::upstream::rewrite::{
    elements, member, members, params_for_other_hop, quoted, text_member, text_of, with_member,
    without,
};
use crate::upstream::table::{InstanceKey, RelayedProgress};

/// Notification that an elicitation by URL is over.
const ELICITED: &str = "notifications/elicitation/complete";
/// Error of a call that wants elicitations by URL first.
const URL_ELICITATION_REQUIRED: i64 = -32042;
/// Elicitations by URL that are remembered of an instance at most; the oldest one is forgotten.
const ELICITED_MAX: usize = 256;
/// Bytes of the longest name of an elicitation that is remembered.
const ELICITED_BYTES: usize = 1024;
/// Beginning of the progress tokens for requests of servers.
const TOKEN: &str = "ceased-question-";

impl Gateway<'_> {
    /// The client of an instance: its only one, or for single calls the one that has told of itself.
    pub(crate) fn client_of(&self, id: InstanceId) -> Option<ConnId> {
        let instance = self.upstreams.instances.get(&id)?;
        match &instance.key {
            InstanceKey::Client(client) => Some(*client),
            InstanceKey::Owner(_) => None,
            InstanceKey::Call => {
                let mut all = self.outbox.connections().iter();
                all.find(|(_, peer)| peer.aside.client_info.is_some()).map(|(conn, _)| *conn)
            }
        }
    }

    /// Name and version that a server is told of its client, as JSON text: those of the client, or
    /// of this engine for a server that several clients share.
    pub(crate) fn info_of(&self, client: Option<ConnId>) -> String {
        let client = client.and_then(|client| self.outbox.connection(client));
        match client.and_then(|client| client.aside.client_info.as_deref()) {
            Some(info) => info.into(),
            None => {
                let us = &self.settings.server;
                format!("{{\"name\":{},\"version\":{}}}", quoted(&us.name), quoted(&us.version))
            }
        }
    }

    /// Capabilities that an instance without sessions is told of with a request of the engine's own.
    pub(crate) fn declared_for(&self, id: InstanceId, method: &str) -> String {
        let instance = self.upstreams.instances.get(&id);
        let declared = match instance.map(|instance| &instance.key) {
            Some(InstanceKey::Client(client)) => capabilities_of(self.outbox, *client, false),
            Some(InstanceKey::Owner(_) | InstanceKey::Call) | None => "{}".into(),
        };
        match method == LISTS[SKILLS].method {
            true => with_extension(&declared, SKILLS_EXTENSION),
            false => declared,
        }
    }

    /// A notification of a client that is not for this engine: it follows the requests that were
    /// read before it.
    pub(crate) fn pass_to_server(
        &mut self,
        conn: ConnId,
        method: &str,
        params: Option<&Params<'_>>,
    ) {
        let Some(peer) = self.outbox.connection(conn) else { return };
        if peer.counterpart() != Counterpart::Peer || !matches!(peer.side, Side::Server) {
            return;
        }
        let Some(shown) = self.upstreams.shown_through(self.outbox, conn) else { return };
        let server = alloc::sync::Arc::clone(&shown.server);
        let key = self.key_of(&server, conn, &self.outbox.identity_of(conn));
        let id = self.find_instance(&server, &key, self.wanted_era(&key, conn));
        let instance = id.and_then(|id| self.upstreams.instances.get(&id));
        if let Some(to) = instance.filter(|of| of.is_in_session()).and_then(|of| of.conn) {
            let params = params.map(|params| params_for_other_hop(params.get(), None, false));
            self.upstreams.passing.push((to, notification(method, params.as_deref())));
        }
    }

    /// The requests of a turn are sent: the notifications that follow them are, and servers start
    /// that start with the engine.
    pub(crate) fn end_turn(&mut self) {
        if self.upstreams.starts_eager {
            self.start_eager();
        }
        for (to, frame) in core::mem::take(&mut self.upstreams.passing) {
            self.notify(to, &frame);
        }
    }

    /// A notification of an instance that is not for this engine.
    pub(crate) fn pass_to_clients(
        &mut self,
        id: InstanceId,
        method: &str,
        params: Option<&Params<'_>>,
    ) {
        let text = params.map(Params::get);
        let asked = self.elicited(id, method, text.unwrap_or("{}"));
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let clients = match (&instance.key, asked) {
            (_, Some(client)) => [client].into(),
            (InstanceKey::Client(client), None) if method == ELICITED => [*client].into(),
            (InstanceKey::Client(client), None) => self.shown_to(&[*client]),
            (InstanceKey::Owner(_) | InstanceKey::Call, None) => {
                self.shown_to(&self.sessions_of(id))
            }
        };
        let max = self.settings.limits.calls_max;
        for client in clients {
            let frame = notification(method, text);
            match self.upstreams.early.get_mut(&client) {
                Some(early) if early.notes.len() < max => early.notes.push(frame),
                Some(_) => {}
                None => self.notify(client, &frame),
            }
        }
    }

    /// Sends a notification to a client or a server, unless it does not read.
    pub(super) fn notify(&mut self, to: ConnId, frame: &str) {
        let room = self.settings.limits.write_buffer_bytes;
        let peer = self.outbox.connection(to);
        if peer.is_some_and(|peer| peer.send_queue.len() < room) {
            self.outbox.send(to, |json| _ = json.raw(frame));
        }
    }

    /// Those of the clients to which a server shows through.
    fn shown_to(&self, clients: &[ConnId]) -> Vec<ConnId> {
        let is_shown = |client: &&ConnId| {
            self.upstreams.shown_through(self.outbox, **client).is_some()
                && self.outbox.connections().contains_key(client)
        };
        clients.iter().filter(is_shown).copied().collect()
    }

    /// The client to which a request of a server passes as it is: the one that the request is for, if
    /// the server shows through to it.
    pub(super) fn shown_client(&self, id: InstanceId, job: Option<JobId>) -> Option<ConnId> {
        let of_job = job.and_then(|job| self.jobs.get(job)).map(|job| job.conn);
        let client = match &self.upstreams.instances.get(&id)?.key {
            InstanceKey::Client(client) => Some(*client),
            InstanceKey::Owner(_) | InstanceKey::Call => of_job,
        };
        self.shown_to(&client.into_iter().collect::<Vec<_>>()).pop()
    }

    /// The client that was asked for an elicitation by URL, which is over now.
    fn elicited(&mut self, id: InstanceId, method: &str, params: &str) -> Option<ConnId> {
        let elicitation = text_member(params, "elicitationId").filter(|_| method == ELICITED)?;
        let of = self.upstreams.elicited.get_mut(&id)?;
        let at = of.iter().position(|(name, _)| *name == elicitation)?;
        let (_, client) = of.remove(at)?;
        self.outbox.connections().contains_key(&client).then_some(client)
    }

    fn note_elicitation(&mut self, id: InstanceId, elicitation: Box<str>, client: ConnId) {
        if elicitation.len() > ELICITED_BYTES {
            return;
        }
        let of = self.upstreams.elicited.entry(id).or_default();
        of.retain(|(name, _)| *name != elicitation);
        if of.len() >= ELICITED_MAX {
            of.pop_front();
        }
        of.push_back((elicitation, client));
    }

    /// A server asks a client to visit a URL: that client is told of the end.
    pub(super) fn note_question(
        &mut self,
        id: InstanceId,
        (method, params): (&str, &str),
        client: ConnId,
    ) {
        if method == ELICITATION
            && let Some(elicitation) = text_member(params, "elicitationId")
        {
            self.note_elicitation(id, elicitation, client);
        }
    }

    /// A call has failed since its client has to visit URLs first.
    pub(crate) fn note_outcome(&mut self, job: JobId, outcome: &Outcome) {
        let Outcome::Error(error) = outcome else { return };
        let data = error.data.as_deref().filter(|_| error.code == URL_ELICITATION_REQUIRED);
        let all = data.and_then(|data| member(data, "elicitations")).map(elements);
        let id = self.upstreams.jobs.get(&job).and_then(|relayed| relayed.instance);
        let client = self.jobs.get(job).map(|job| job.conn);
        let (Some(all), Some((id, client))) = (all, id.zip(client)) else { return };
        for elicitation in all.iter().filter_map(|it| text_member(it, "elicitationId")) {
            self.note_elicitation(id, elicitation, client);
        }
    }

    /// The params of a request of a server with a progress token of ours, if the server wants
    /// progress.
    pub(super) fn with_token(
        &mut self,
        reply: &Reply,
        (asked, client): (&str, Option<ConnId>),
        passed: String,
    ) -> String {
        let token = member(asked, "_meta").and_then(|meta| member(meta, "progressToken"));
        // A token of ours names the call that the request is about.
        let is_ours = |token: &&str| {
            let call = CallId::read(token);
            call.is_some_and(|call| self.outgoing.call(reply.conn, call).is_some())
        };
        let Some(token) = token.filter(|token| !is_ours(token)) else { return passed };
        let outbox = &*self.outbox;
        let is_open = |conn: ConnId, request: &RequestId| {
            outbox.connection(conn).is_some_and(|of| of.requests.contains(request))
        };
        self.upstreams.progress.retain(|_, of| is_open(of.conn, &of.request));
        self.upstreams.last_progress += 1;
        let number = self.upstreams.last_progress;
        let (request, token) = (reply.id.clone(), token.into());
        let progress = RelayedProgress { conn: reply.conn, request, token, client };
        self.upstreams.progress.insert(number, progress);
        let meta = member(&passed, "_meta").unwrap_or("{}");
        let meta = with_member(meta, "progressToken", &format!("\"{TOKEN}{number}\""));
        with_member(&passed, "_meta", &meta)
    }

    /// A client tells of progress with a request of a server, or a server with a relayed request.
    /// False if it is about neither.
    pub(crate) fn on_progress(&mut self, conn: ConnId, params: &Params<'_>) -> bool {
        let Some(token) = member(params.get(), "progressToken") else { return false };
        if self.on_question_progress(conn, token, params.get()) {
            return true;
        }
        let Some(id) = CallId::read(token) else { return false };
        // The token of a call stays valid while the task it became runs.
        let call = match self.outgoing.remote(conn, id) {
            Some(remote) => Some(&remote.call),
            None => self.outgoing.call(conn, id),
        };
        let Some(CallFor::Relayed(job)) = call.map(OutgoingCall::receiver) else { return false };
        self.on_relayed_progress(job, params);
        true
    }

    fn on_question_progress(&mut self, from: ConnId, token: &str, params: &str) -> bool {
        let Some(text) = text_of(token) else { return false };
        let Some(number) = text.strip_prefix(TOKEN).and_then(|it| it.parse().ok()) else {
            return false;
        };
        if let Some(of) = self.upstreams.progress.get(&number)
            && of.client == Some(from)
            && let Some(connection) = self.outbox.connection(of.conn)
            && connection.requests.contains(&of.request)
        {
            let params = with_member(params, "progressToken", &of.token);
            let (to, frame) = (of.conn, notification("notifications/progress", Some(&params)));
            self.notify(to, &frame);
        }
        true
    }

    /// A page of a list of the server that shows through, as a client of a revision gets it.
    pub(super) fn shown_page(&self, job: JobId, page: String) -> String {
        let Some(of) = self.jobs.get(job) else { return page };
        let Some(route) = of.tool.route.as_deref() else { return page };
        let Some(at) = LISTS.iter().position(|list| *list.method == *route.method) else {
            return page;
        };
        let Some(shown) = self.upstreams.shown_through(self.outbox, of.conn) else { return page };
        let page = shown.shown_page(&page).into_owned();
        let is_fresh = member(&page, "ttlMs").is_some();
        match of.terms.dialect().results {
            Results::Bare if is_fresh => without(&page, &["ttlMs", "cacheScope"]),
            Results::Typed if !is_fresh => {
                let freshness = self.upstreams.freshness_of_list(self.outbox, at, of.conn);
                members(&format!("{{{freshness}}}"))
                    .into_iter()
                    .fold(page, |page, (name, value)| with_member(&page, name, value))
            }
            Results::Bare | Results::Typed => page,
        }
    }
}

/// A notification as JSON text.
fn notification(method: &str, params: Option<&str>) -> String {
    let params = params.map(|params| format!(",\"params\":{params}")).unwrap_or_default();
    format!("{{\"jsonrpc\":\"2.0\",\"method\":{}{params}}}", quoted(method))
}
