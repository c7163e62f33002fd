//! Lists of servers: read after the handshake, after a change, and where a client asks for a list
//! whose changes its server does not tell (UPS-09, UPS-10).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::action::Action;
use crate::collections::timer_queue::Timer;
use crate::ids::{CallId, ConnId, InstanceId};
use crate::json::raw::Raw;
use crate::outbox::Outbox;
use crate::outbox::requests::Topic;
use crate::protocol::revision::{Dialect, MCP_2026_07_28};
use crate::time::Instant;
use crate::upstream::audience::ListAudience;
use crate::upstream::audience_states::{audience_of, clients_of};
use crate::upstream::effect::GatewayEffect;
use crate::upstream::gateway::Gateway;
use crate::upstream::interface::UpstreamAction;
use crate::upstream::list::{LISTS, PROMPTS, TOOLS};
use crate::upstream::listen::declared_lists;
use crate::upstream::manifest::Manifest;
use crate::upstream::reading::{ListBounds, ListRead, PageStep};
use crate::upstream::rewrite::member;
use crate::upstream::server::{Share, UpstreamServer};
use crate::upstream::table::{Instance, InstanceKey, InstancePhase, KnownServer, Upstreams};
use crate::upstream::watch::serves;

/// Shortest time that the lists of a server have, and the longest for which those of other servers
/// wait for them.
const LIST_WAIT: Duration = Duration::from_secs(5);
/// How long a client waits for a list that is known and asked for again.
const REFRESH_WAIT: Duration = Duration::from_secs(2);

/// The topic under which changes of a list are told.
const fn topic(at: usize) -> Topic {
    match at {
        TOOLS => Topic::Tools,
        PROMPTS => Topic::Prompts,
        _ => Topic::Resources,
    }
}

/// Whether a server with this identity has a list, as far as it says. Servers that declare nothing
/// may have tools all the same.
fn declares(identity: &str, at: usize) -> bool {
    at == TOOLS || LISTS[at].is_declared(member(identity, "capabilities").unwrap_or("{}"))
}

/// Whether a server with this identity tells of the changes of a list.
pub(crate) fn tells_changes(identity: &str, at: usize) -> bool {
    declared_lists(member(identity, "capabilities").unwrap_or("{}")).contains(&topic(at))
}

impl Gateway<'_> {
    /// The handshake of an instance is done: its identity is known, and its lists are read.
    pub(crate) fn read_lists(&mut self, id: InstanceId, dialect: &Dialect, identity: &str) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let (name, audience) = (instance.server.name.clone(), instance.audience.clone());
        let wait = match instance.server.transparent {
            true => instance.start_by.max(self.now.at + LIST_WAIT),
            // Lists of other servers wait for them.
            false => self.now.at + LIST_WAIT,
        };
        let Some(server) = self.upstreams.state_mut(&name, audience.as_ref()) else { return };
        server.take_identity(dialect.revision, identity);
        for at in (0..LISTS.len()).filter(|at| !declares(identity, *at)) {
            server.take_list(at, ListRead::default());
        }
        // UPS-19: the tools that are offered may depend on the revision.
        self.note_changes(&name, audience.as_ref());
        self.want_lists(id, (0..LISTS.len()).filter(|at| declares(identity, *at)), wait);
        self.answer_waiters();
    }

    fn want_lists(
        &mut self,
        id: InstanceId,
        lists: impl IntoIterator<Item = usize>,
        deadline: Instant,
    ) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        lists.into_iter().for_each(|at| instance.reading.want(at, deadline));
        self.ask_for_lists(id);
    }

    /// Asks for the first page of the lists whose turn it is, and forgets requests that were given
    /// up.
    fn ask_for_lists(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        let given_up = instance.reading.take_given_up();
        if let Some(conn) = instance.conn {
            given_up.into_iter().for_each(|call| _ = self.outgoing.take(conn, call));
        }
        loop {
            let Some(instance) = self.upstreams.instances.get(&id) else { return };
            let Some((at, _)) = instance.reading.next() else { break };
            let claim =
                instance.conn.is_some_and(|conn| self.outbox.dialect(conn) == &MCP_2026_07_28);
            let Some(call) = self.ask_instance(id, LISTS[at].method, "{}", claim) else { return };
            let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
            instance.reading.open(at, call);
        }
        self.arm_reading(id);
    }

    fn arm_reading(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        match instance.reading.deadline() {
            Some(at) => self.timers.arm(&mut instance.reading.timer, Timer::Lists(id), at),
            None => self.timers.disarm(&mut instance.reading.timer, Timer::Lists(id)),
        }
    }

    /// One page of a list arrives; an error counts as its end.
    pub(crate) fn on_list_page(
        &mut self,
        id: InstanceId,
        at: usize,
        call: CallId,
        outcome: Result<Raw<'_>, Raw<'_>>,
    ) {
        let bounds = self.list_bounds();
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        let claim = instance.conn;
        match instance.reading.take(at, call, outcome.ok().map(Raw::get), bounds) {
            PageStep::Unasked => {}
            PageStep::Next(cursor) => {
                let claim = claim.is_some_and(|conn| self.outbox.dialect(conn) == &MCP_2026_07_28);
                let params = format!("{{\"cursor\":{cursor}}}");
                let asked = self.ask_instance(id, LISTS[at].method, &params, claim);
                if let (Some(call), Some(instance)) = (asked, self.upstreams.instances.get_mut(&id))
                {
                    instance.reading.next_page(at, call);
                }
            }
            PageStep::Again => self.ask_for_lists(id),
            PageStep::Ended(read) => {
                self.take_list(id, at, read);
                self.ask_for_lists(id);
                self.end_reading(id);
            }
        }
    }

    /// Bounds of one list: a server's lists together have at most the bytes of one message.
    fn list_bounds(&self) -> ListBounds {
        let limits = &self.settings.limits;
        ListBounds {
            elements: limits.remote_list_max,
            bytes: limits.frames.frame_bytes_max / LISTS.len(),
        }
    }

    /// An answer of an instance cannot be read, and may be that of a list.
    pub(crate) fn on_unreadable_list(&mut self, id: InstanceId, problem: &str) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        if let Some((at, read)) = instance.reading.end_unreadable(problem) {
            self.take_list(id, at, read);
        }
        self.ask_for_lists(id);
        self.end_reading(id);
    }

    /// Ends the list that a request asked for a page of, since the answer cannot be read; false if
    /// it asked for none.
    pub(crate) fn end_list_of(&mut self, id: InstanceId, call: CallId, problem: &str) -> bool {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return false };
        let Some((at, read)) = instance.reading.end_call(call, problem) else { return false };
        self.take_list(id, at, read);
        self.ask_for_lists(id);
        self.end_reading(id);
        true
    }

    /// The deadline of a list has passed: it counts as ended.
    pub(crate) fn on_lists_timer(&mut self, id: InstanceId) {
        let now = self.now.at;
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.reading.timer = None;
        for (at, read) in instance.reading.expire(now) {
            self.take_list(id, at, read);
        }
        self.ask_for_lists(id);
        self.end_reading(id);
    }

    /// A list has ended: clients are answered from it, and told if it is another (UPS-09).
    fn take_list(&mut self, id: InstanceId, at: usize, read: ListRead) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let (of, audience) = (Arc::clone(&instance.server), instance.audience.clone());
        let Some(server) = self.upstreams.state_mut(&of.name, audience.as_ref()) else { return };
        let left_out = (read.nameless > 0).then(|| {
            format!("{} elements without a {} are left out", read.nameless, LISTS[at].key)
        });
        let problem = read.problem.as_deref().or(left_out.as_deref());
        let warning = server.warnings.note_list(at, problem);
        let was_known = server.known[at];
        // A list that is known is better than one that did not come.
        let is_kept = was_known && (read.is_refused || read.problem.is_some());
        let is_whole = !read.is_refused && read.problem.is_none();
        let has_changed = !is_kept && server.take_list(at, read);
        let of_headers = server.warnings.note_unfit(&server.unfit);
        for what in warning.into_iter().chain(of_headers) {
            self.warn_of_server(&of, what);
        }
        if at == TOOLS {
            self.pin_tools(&of, audience.as_ref(), is_whole);
            if has_changed {
                self.note_shadowed_tools();
            }
            // UPS-19: calls have waited for the list.
            self.send_waiting(id);
        }
        self.answer_waiters();
        if has_changed && was_known {
            if let Some(instance) = self.upstreams.instances.get_mut(&id) {
                instance.reading.announced.insert(topic(at));
            }
            let clients = clients_of(self.outbox, &of, audience.as_ref());
            self.effect(GatewayEffect::Announce { topic: topic(at), clients });
        }
    }

    fn warn_of_server(&mut self, server: &UpstreamServer, what: Box<str>) {
        let server = server.name.clone();
        self.outbox.push(Action::Upstream(UpstreamAction::Warn { server, what }));
    }

    /// Looks for tools of servers whose names are taken by the host or by an earlier server.
    fn note_shadowed_tools(&mut self) {
        let catalog = &self.settings.catalog;
        let mut taken: BTreeSet<Box<str>> =
            catalog.iter().map(|tool| Box::from(&*tool.name)).collect();
        let mut new = Vec::new();
        let all = self.upstreams.servers.iter().map(|server| Arc::clone(&server.server));
        for server in all.collect::<Vec<_>>() {
            let states = self.upstreams.states(&server.name, None);
            let names: BTreeSet<Box<str>> =
                states.flat_map(|state| state.tools.keys().cloned()).collect();
            let shadowed: Vec<Box<str>> = names.intersection(&taken).cloned().collect();
            taken.extend(names);
            let state = self.upstreams.server_mut(&server.name);
            if let Some(what) = state.and_then(|state| state.warnings.note_shadowed(&shadowed)) {
                new.push((server, what));
            }
        }
        new.into_iter().for_each(|(server, what)| self.warn_of_server(&server, what));
    }

    /// Nothing more of an instance is read for now: its lists are kept, and the changes that it
    /// said itself are passed on.
    fn end_reading(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        if instance.reading.is_active() {
            return;
        }
        let said = core::mem::take(&mut instance.said_changed);
        let announced = core::mem::take(&mut instance.reading.announced);
        let (of, audience) = (Arc::clone(&instance.server), instance.audience.clone());
        let Some(server) = self.upstreams.state_mut(&of.name, audience.as_ref()) else { return };
        server.is_verified = true;
        if core::mem::take(&mut server.is_unsaved)
            && let Some(mut manifest) = server.manifest.clone().map(Box::new)
        {
            manifest.audience = audience.map_or_else(Box::default, |of| format!("{of}").into());
            self.outbox
                .push(Action::Upstream(UpstreamAction::SaveManifest { server: of, manifest }));
        }
        self.answer_waiters();
        self.pass_changes(id, said.into_iter().filter(|topic| !announced.contains(topic)));
    }

    /// Tells the clients of an instance of the changes that it says itself; the list that it gives
    /// afterwards may be the same (UPS-10).
    fn pass_changes(&mut self, id: InstanceId, said: impl IntoIterator<Item = Topic>) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let all = self.outbox.connections().keys().copied();
        let clients: Vec<ConnId> =
            all.filter(|conn| serves(self.outbox, instance, *conn)).collect();
        for topic in said {
            self.effect(GatewayEffect::Announce { topic, clients: clients.clone() });
        }
    }

    /// The host has the manifest of a server from an earlier process (UPS-09).
    pub(crate) fn on_manifest(&mut self, server: &str, manifest: &Manifest) {
        let audience = ListAudience::parse(&manifest.audience);
        if audience.is_none() && !manifest.audience.is_empty() {
            return;
        }
        let Some(state) = self.upstreams.state_mut(server, audience.as_ref()) else { return };
        if state.manifest.is_none() {
            let server = Arc::clone(&state.server);
            state.take_manifest(manifest.clone());
            self.pin_tools(&server, audience.as_ref(), true);
            self.note_shadowed_tools();
            self.answer_waiters();
        }
    }

    /// An instance says that one of its lists has changed: all are read again.
    pub(crate) fn on_list_changed(&mut self, id: InstanceId, topic: Topic) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        if !instance.is_in_session() {
            return;
        }
        instance.said_changed.insert(topic);
        let (name, audience) = (instance.server.name.clone(), instance.audience.clone());
        let known = self.upstreams.state(&name, audience.as_ref());
        let known = known.and_then(|server| server.manifest.as_ref());
        let Some(known) = known else { return };
        let lists: Vec<usize> =
            (0..LISTS.len()).filter(|at| declares(&known.identity, *at)).collect();
        self.want_lists(id, lists, self.now.at + LIST_WAIT);
    }

    /// Asks the servers of a client for a list again, where they do not tell of its changes.
    pub(crate) fn refresh_list(&mut self, client: ConnId, at: usize) {
        let is_plain = self.upstreams.shown_through(self.outbox, client).is_some();
        let stale = self.upstreams.seen_servers(self.outbox, client).filter(|server| {
            let identity = server.manifest.as_ref().map_or("{}", |manifest| &*manifest.identity);
            server.known[at] && (is_plain || declares(identity, at))
        });
        let asked: Vec<InstanceId> = stale
            .filter_map(|server| self.upstreams.teller_of(self.outbox, server, client))
            .filter(|(_, instance)| !instance.subscription.lists.contains(&topic(at)))
            .filter(|(_, instance)| !instance.reading.is_reading(at))
            .filter(|(_, instance)| !instance.reading.is_late(at))
            .map(|(id, _)| id)
            .collect();
        let deadline = self.now.at + REFRESH_WAIT;
        asked.into_iter().for_each(|id| self.want_lists(id, [at], deadline));
    }
}

impl Upstreams {
    /// The ready instance of a server that a client's requests reach.
    fn teller_of(
        &self,
        outbox: &Outbox,
        server: &KnownServer,
        client: ConnId,
    ) -> Option<(InstanceId, &Instance)> {
        let serves = |instance: &Instance| match server.server.share {
            Share::Call => instance.key == InstanceKey::Call,
            Share::Connection | Share::Identity => serves(outbox, instance, client),
        };
        let all = self.instances.iter().map(|(id, instance)| (*id, instance));
        { all }.find(|(_, instance)| {
            instance.phase == InstancePhase::Ready
                && instance.server.name == server.server.name
                && serves(instance)
        })
    }

    /// Whether a list of a server is on its way that a client is to be answered with.
    pub(super) fn awaits_list(
        &self,
        outbox: &Outbox,
        server: &KnownServer,
        client: ConnId,
        at: usize,
    ) -> bool {
        if !server.known[at] {
            let audience = audience_of(outbox, &server.server, client);
            return self.is_learning_list(&server.server.name, audience.as_ref(), at);
        }
        let tells = |(_, of): (InstanceId, &Instance)| {
            of.reading.is_reading(at) && !of.subscription.lists.contains(&topic(at))
        };
        // A list that did not come last time delays no answer.
        !server.warnings.has_list(at) && self.teller_of(outbox, server, client).is_some_and(tells)
    }
}
