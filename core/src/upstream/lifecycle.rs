//! Instances from their start to their end: order of starts, idle exit, backoff, replacement.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::action::Action;
use crate::collections::timer_queue::Timer;
use crate::connection::SessionPhase;
use crate::event::Outcome;
use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId, JobId};
use crate::jobs::job::JobState;
use crate::policy::access::Item;
use crate::protocol::role::Side;
use crate::rpc::error::{ErrorObject, code};
use crate::upstream::audience::ListAudience;
use crate::upstream::effect::GatewayEffect;
use crate::upstream::gateway::Gateway;
use crate::upstream::interface::{Proof, UpstreamAction, UpstreamEvent};
use crate::upstream::server::{Share, StartWhen, UpstreamServer};
use crate::upstream::spoken::{Revision, SpokenEra};
use crate::upstream::table::{Instance, InstanceKey, InstancePhase, KnownServer};

/// Wait after the first failed start; it doubles with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Longest wait after a failed start.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// An instance for a request, or why there is none now.
pub(crate) enum Assigned {
    To(InstanceId),
    /// As many instances run as may: one has to end first.
    Full,
    /// It failed to start, and may not be started again yet (UPS-08).
    Failed(ErrorObject),
}

impl Gateway<'_> {
    pub(crate) fn on_event(&mut self, event: &UpstreamEvent<'_>) {
        match *event {
            UpstreamEvent::Started { instance, conn } => self.on_instance_started(instance, conn),
            UpstreamEvent::Known { server, manifest } => self.on_manifest(server, manifest),
            UpstreamEvent::Approved { server, approval } => self.on_approval(server, approval),
            UpstreamEvent::Examined { check, processes, .. } => self.on_examined(check, processes),
            UpstreamEvent::StraysEnded { check, ended, left, .. } => {
                self.on_strays_ended(check, ended, left);
            }
            UpstreamEvent::Remote { instance, ref news } => self.on_remote_news(instance, news),
            UpstreamEvent::Ended { instance, status, stderr } => {
                self.on_instance_ended(instance, status, stderr);
            }
        }
    }

    /// Takes over the servers of new settings. Instances of a server that is no longer the same
    /// finish their requests.
    pub(crate) fn configure(&mut self) {
        let wanted = self.settings.servers.clone();
        let mut before = core::mem::take(&mut self.upstreams.servers);
        for server in wanted {
            let same = before.iter().position(|old| Arc::ptr_eq(&old.server, &server));
            let kept = match same {
                Some(at) => before.swap_remove(at),
                None => {
                    let mut new = KnownServer::new(server);
                    // The counts belong to the name.
                    let old = before.iter().find(|old| old.server.name == new.server.name);
                    new.counts = old.map(|old| old.counts.clone()).unwrap_or_default();
                    new
                }
            };
            self.upstreams.servers.push(kept);
        }
        let all = &self.upstreams.servers;
        // UPS-19: the host hands over the approvals of the servers that it has now.
        self.upstreams.pins.retain(|name, _| {
            let is_old = |of: &KnownServer| of.server.name == *name;
            all.iter().any(is_old) && !before.iter().any(is_old)
        });
        self.upstreams.personal.retain(|name, states| {
            states.retain(|_, state| all.iter().any(|of| of.server == state.server));
            !states.is_empty() && all.iter().any(|of| of.server.name == *name)
        });
        let gone: Vec<InstanceId> = self
            .upstreams
            .instances
            .iter()
            .filter(|(_, instance)| before.iter().any(|old| old.server == instance.server))
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.drain_instance(id, "the configuration has changed");
        }
        for job in before.into_iter().flat_map(|old| old.waiting) {
            self.assign(job);
        }
        self.upstreams.starts_eager =
            self.upstreams.servers.iter().any(|server| server.server.start == StartWhen::Eager);
    }

    /// Starts the servers that start with the engine, and those of the sessions that there are.
    pub(crate) fn start_eager(&mut self) {
        if !core::mem::take(&mut self.upstreams.starts_eager) || self.drains {
            return;
        }
        for server in self.eager_servers() {
            self.keep_warm(&server);
        }
        let ready: Vec<ConnId> = self
            .outbox
            .connections()
            .iter()
            .filter(|(_, peer)| peer.phase == SessionPhase::Ready)
            .filter(|(_, peer)| matches!(peer.side, Side::Server))
            .map(|(conn, _)| *conn)
            .collect();
        ready.into_iter().for_each(|conn| self.start_eager_for(conn));
    }

    fn eager_servers(&self) -> Vec<Arc<UpstreamServer>> {
        let all = self.upstreams.servers.iter().map(|server| &server.server);
        all.filter(|server| server.start == StartWhen::Eager).cloned().collect()
    }

    /// A client has told of itself: the servers that start with it are started.
    pub(crate) fn start_eager_for(&mut self, client: ConnId) {
        if self.upstreams.is_empty() || self.drains {
            return;
        }
        let identity = self.outbox.identity_of(client);
        for server in self.eager_servers() {
            let is_seen = self.outbox.caller(client).sees(Item::Server(&server));
            if server.share != Share::Call && is_seen {
                // A server that cannot start now is asked again by the first request.
                let _: Assigned = self.instance_for(&server, client, &identity);
            }
        }
    }

    /// The requests that share an instance with those of a client.
    pub(crate) fn key_of(
        &self,
        server: &UpstreamServer,
        client: ConnId,
        owner: &Identity,
    ) -> InstanceKey {
        let is_lone = |conn: ConnId| self.outbox.connection(conn).is_some_and(|of| of.is_lone);
        match server.share {
            // The connections of a client without a session come and go with its requests.
            Share::Connection if is_lone(client) => InstanceKey::Owner(owner.clone()),
            Share::Connection => InstanceKey::Client(client),
            Share::Identity => InstanceKey::Owner(owner.clone()),
            Share::Call => InstanceKey::Call,
        }
    }

    /// The instance for requests of a connection, which is started if there is none.
    pub(crate) fn instance_for(
        &mut self,
        server: &Arc<UpstreamServer>,
        client: ConnId,
        owner: &Identity,
    ) -> Assigned {
        let key = self.key_of(server, client, owner);
        let era = self.wanted_era(&key, client);
        self.note_calls_in(server, &key, era);
        let found = self.find_instance(server, &key, era);
        if let Some(id) = found.filter(|_| key != InstanceKey::Call) {
            return Assigned::To(id);
        }
        let has_its_share = self.has_its_share(server, owner);
        // A warm instance becomes one of its caller.
        if let Some(id) = found.filter(|_| !has_its_share) {
            return Assigned::To(id);
        }
        let audience = ListAudience::of(server, owner, era);
        let Some(state) = self.upstreams.state(&server.name, audience.as_ref()) else {
            let message = format!("server {:?} is not configured any more", server.name);
            return Assigned::Failed(ErrorObject::new(code::INTERNAL_ERROR, message));
        };
        if self.now.at < state.not_before {
            let wait = (state.not_before - self.now.at).as_millis();
            let why = state.failure.as_deref().unwrap_or("it failed to start");
            let message = format!("{why}; it may start again in {wait} ms");
            return Assigned::Failed(ErrorObject::new(code::INTERNAL_ERROR, message));
        }
        if has_its_share {
            self.make_room(&server.name, Some(owner));
            return Assigned::Full;
        }
        if self.upstreams.count(&server.name) >= server.max_instances.max(1) {
            self.make_room(&server.name, None);
            return Assigned::Full;
        }
        // One for a call in the other era is not needed any more.
        let unfit = self.upstreams.open_for(server, &key).map(|(id, _)| id).next();
        let instance = Instance::new(Arc::clone(server), key, era);
        let id = self.upstreams.insert(Instance { audience, ..instance });
        if let Some(unfit) = unfit {
            self.end_instance(unfit, "the next call is of a client of another era");
        }
        self.start_queued();
        Assigned::To(id)
    }

    /// Notes the era of the clients that instances for single calls are kept warm for.
    pub(crate) fn note_calls_in(
        &mut self,
        server: &UpstreamServer,
        key: &InstanceKey,
        era: SpokenEra,
    ) {
        if let Some(state) = self.upstreams.server_mut(&server.name)
            && *key == InstanceKey::Call
        {
            state.calls_in = era;
        }
    }

    /// The deadline of an instance has passed.
    pub(crate) fn on_upstream_timer(&mut self, id: InstanceId) {
        let now = self.now.at;
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.timer = None;
        match instance.phase {
            InstancePhase::Probing if now < instance.start_by => self.send_initialize(id),
            InstancePhase::Starting | InstancePhase::Probing | InstancePhase::Initializing => {
                // One more start would have no time left, but the next goes without the probe.
                self.blame_probe(id);
                self.end_instance(id, "it did not finish its handshake within start_timeout");
            }
            InstancePhase::Ready if instance.is_idle() => {
                self.end_instance(id, "it was idle for idle_exit");
            }
            InstancePhase::Draining => self.end_instance(id, "its drain deadline has passed"),
            InstancePhase::Queued | InstancePhase::Ready | InstancePhase::Ending => {}
        }
    }

    /// An instance refuses its handshake or does not go on: it is ended, and its requests are
    /// answered with that, unless the probe may be the cause.
    pub(crate) fn fail_instance(&mut self, id: InstanceId, why: impl Into<Cow<'static, str>>) {
        match self.blame_probe(id) {
            true => self.start_again(id),
            false => self.end_instance(id, why),
        }
    }

    /// Whether a failing handshake may be the fault of `server/discover`, which then no further
    /// process of the server gets: one whose first message is not `initialize` may end, refuse
    /// everything after it, or say nothing at all.
    fn blame_probe(&mut self, id: InstanceId) -> bool {
        let Some(instance) = self.upstreams.instances.get(&id) else { return false };
        // Requests to a server by URL do not depend on the ones before them.
        let is_blamed = instance.is_probed
            && !instance.server.is_remote
            && instance.discovered.is_none()
            && instance.server.revision == Revision::Auto
            && matches!(instance.phase, InstancePhase::Probing | InstancePhase::Initializing);
        let name = instance.server.name.clone();
        if let Some(server) = self.upstreams.server_mut(&name).filter(|_| is_blamed) {
            server.era = Some(SpokenEra::Session);
        }
        is_blamed
    }

    /// Ends an instance that another one follows at once, which takes over its requests.
    pub(crate) fn start_again(&mut self, id: InstanceId) {
        if let Some(instance) = self.upstreams.instances.get_mut(&id) {
            instance.starts_again = true;
        }
        self.end_instance(id, "its handshake begins anew");
    }

    /// Has the host end an instance. Its requests are answered when it has ended.
    pub(crate) fn end_instance(&mut self, id: InstanceId, why: impl Into<Cow<'static, str>>) {
        let drain = self.drains;
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        self.timers.disarm(&mut instance.timer, Timer::Upstream(id));
        instance.why.get_or_insert_with(|| why.into());
        match instance.phase {
            InstancePhase::Ending => {}
            InstancePhase::Queued => {
                instance.phase = InstancePhase::Ending;
                self.on_instance_ended(id, "not started", "");
            }
            InstancePhase::Starting
            | InstancePhase::Probing
            | InstancePhase::Initializing
            | InstancePhase::Ready
            | InstancePhase::Draining => {
                let failed = instance.is_starting() && !instance.starts_again;
                instance.phase = InstancePhase::Ending;
                let kill_grace = instance.server.kill_grace;
                let (name, audience) = (instance.server.name.clone(), instance.audience.clone());
                if failed && !drain && !instance.is_abandoned {
                    self.note_failed_start(&name, audience.as_ref());
                }
                let end = UpstreamAction::End { instance: id, kill_grace };
                self.outbox.push(Action::Upstream(end));
            }
        }
    }

    fn note_failed_start(&mut self, name: &str, audience: Option<&ListAudience>) {
        let now = self.now.at;
        if let Some(server) = self.upstreams.state_mut(name, audience) {
            server.failures = server.failures.saturating_add(1);
            let wait = BACKOFF_FIRST.saturating_mul(1 << (server.failures - 1).min(16));
            server.not_before = now + wait.min(BACKOFF_MAX);
        }
    }

    /// No new requests for an instance: it finishes those that it has, within the deadline
    /// (UPS-06).
    pub(crate) fn drain_instance(&mut self, id: InstanceId, why: &'static str) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        if !instance.is_open() {
            return;
        }
        if instance.is_starting() {
            return self.end_instance(id, why);
        }
        instance.phase = InstancePhase::Draining;
        instance.why = Some(why.into());
        let at = self.now.at + instance.server.drain;
        self.timers.arm(&mut instance.timer, Timer::Upstream(id), at);
        let waiting = core::mem::take(&mut instance.waiting);
        let (server, key) = (Arc::clone(&instance.server), instance.key.clone());
        self.end_if_drained(id);
        self.succeed_watched(&server, &key);
        waiting.into_iter().for_each(|job| self.assign(job));
    }

    /// Ends a draining instance, or one whose client is gone, whose other requests are over.
    pub(crate) fn end_if_drained(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let leaves = instance.phase == InstancePhase::Draining || instance.is_abandoned;
        if !leaves || !instance.waiting.is_empty() {
            return;
        }
        let stops = |job: &JobId| {
            let state = self.jobs.get(*job).map(|job| job.state());
            state.is_none_or(|state| matches!(state, JobState::Stopping { .. }))
        };
        let replaced = |job: &JobId| {
            let check = self.upstreams.jobs.get(job).and_then(|relayed| relayed.check.as_ref());
            check.is_none_or(|(_, check)| check.replaces())
        };
        let is_over = match instance.is_abandoned {
            true => instance.calls.iter().all(stops),
            false => instance.calls.iter().all(|job| stops(job) && replaced(job)),
        };
        if is_over {
            self.end_instance(id, "it was replaced");
        }
    }

    /// Starts the time to the end of an instance that works on nothing.
    pub(crate) fn rest_if_idle(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        if instance.phase != InstancePhase::Ready {
            return;
        }
        let span = instance.server.idle_exit;
        let span = span.filter(|_| instance.is_idle() && instance.key != InstanceKey::Call);
        let span = span.filter(|_| !self.upstreams.is_watched(self.outbox, id));
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        match span {
            Some(span) => {
                self.timers.arm(&mut instance.timer, Timer::Upstream(id), self.now.at + span);
            }
            None => self.timers.disarm(&mut instance.timer, Timer::Upstream(id)),
        }
    }

    /// Keeps as many instances ready for single calls as the settings want.
    pub(crate) fn keep_warm(&mut self, server: &Arc<UpstreamServer>) {
        let warm = |instance: &&Instance| {
            instance.key == InstanceKey::Call && instance.is_open() && instance.is_idle()
        };
        let of = |instance: &&Instance| instance.server == *server;
        let ready = self.upstreams.instances.values().filter(of).filter(warm).count();
        let room = server.max_instances.saturating_sub(self.upstreams.count(&server.name));
        let wants = server.share == Share::Call && !self.drains;
        let backs_off =
            self.upstreams.server(&server.name).is_none_or(|state| self.now.at < state.not_before);
        let era = self.upstreams.server(&server.name).map(|state| state.calls_in);
        let Some(era) = era.filter(|_| wants && !backs_off) else { return };
        for _ in 0..server.warm.saturating_sub(ready).min(room) {
            self.upstreams.insert(Instance::new(Arc::clone(server), InstanceKey::Call, era));
        }
        self.start_queued();
    }

    /// A client is gone: its own instances have nothing more to do (UPS-07).
    pub(crate) fn client_gone(&mut self, conn: ConnId, identity: &Identity) {
        self.upstreams.waiters.retain(|(of, _)| *of != conn);
        self.upstreams.levels.remove(&conn);
        self.lose_early(conn);
        self.forget_watches(conn, identity);
        let own: Vec<InstanceId> = self
            .upstreams
            .instances
            .iter_mut()
            .filter(|(_, instance)| instance.key == InstanceKey::Client(conn))
            .map(|(id, instance)| {
                instance.is_abandoned = true;
                *id
            })
            .collect();
        own.into_iter().for_each(|id| self.end_if_drained(id));
    }

    /// Ends every instance, all in parallel: the daemon shuts down (UPS-07).
    pub(crate) fn end_all_instances(&mut self) {
        let all: Vec<InstanceId> = self.upstreams.instances.keys().copied().collect();
        for id in all {
            self.end_instance(id, "the daemon is shutting down");
        }
    }

    /// No process of an instance is left. Each of its requests is answered once (UPS-06, UPS-08).
    pub(crate) fn on_instance_ended(&mut self, id: InstanceId, status: &str, stderr: &str) {
        let is_blamed = self.blame_probe(id);
        let Some(mut instance) = self.upstreams.instances.remove(&id) else { return };
        self.timers.disarm(&mut instance.timer, Timer::Upstream(id));
        self.timers.disarm(&mut instance.reading.timer, Timer::Lists(id));
        self.upstreams.elicited.remove(&id);
        let name = instance.server.name.clone();
        let error = self.death(&instance, status, stderr);
        let again = instance.starts_again || is_blamed;
        let was_starting = instance.is_starting() && instance.phase != InstancePhase::Queued;
        let audience = instance.audience.clone();
        if let Some(server) = self.upstreams.server_mut(&name).filter(|_| !again)
            && instance.why.is_none()
        {
            server.counts.note_death(&error.message);
        }
        if let Some(server) = self.upstreams.state_mut(&name, audience.as_ref())
            && !again
            && (server.failures > 0 || was_starting)
        {
            server.failure = Some(String::from(&*error.message));
        }
        if was_starting && !again && !instance.is_abandoned {
            self.note_failed_start(&name, audience.as_ref());
        }
        self.end_calls(&instance, &error);
        if let Some(conn) = instance.conn {
            self.effect(GatewayEffect::Remove(conn));
        }
        let state = self.upstreams.state(&name, audience.as_ref());
        let failed = state.is_none_or(|server| server.failures > 0);
        for job in core::mem::take(&mut instance.waiting) {
            match failed && !again {
                true => self.end_relayed(job, Outcome::Error(error.clone())),
                false => self.assign(job),
            }
        }
        let server = self.upstreams.server(&name).filter(|of| of.server == instance.server);
        if again && server.is_some() && !instance.is_abandoned && !self.drains {
            let (server, key, era) = (&instance.server, &instance.key, instance.era);
            if self.find_instance(server, key, era).is_none() {
                let next = Instance::new(Arc::clone(server), key.clone(), era);
                self.upstreams.insert(Instance { audience, ..next });
            }
        }
        self.start_queued();
        self.assign_waiting(&name);
        self.answer_waiters();
        self.keep_warm(&instance.server);
        if !instance.is_abandoned {
            self.succeed_watched(&instance.server, &instance.key);
        }
    }

    fn end_calls(&mut self, instance: &Instance, error: &ErrorObject) {
        for job in &instance.calls {
            let stops = self.jobs.get(*job).map(|job| job.state());
            if matches!(stops, Some(JobState::Stopping { .. })) {
                let relayed = self.upstreams.jobs.get(job);
                let check = relayed.and_then(|relayed| relayed.check.as_ref());
                let replaced = check.is_some_and(|(_, check)| check.replaces());
                let proof = match check {
                    // REM-03: no process of it was here.
                    Some((_, check)) if instance.server.is_remote => {
                        if instance.is_session_ended {
                            Proof::SessionEnded
                        } else {
                            check.remote_proof()
                        }
                    }
                    Some(_) | None if replaced && instance.calls.len() > 1 => Proof::Replaced,
                    Some(_) | None => Proof::Ended,
                };
                self.upstreams.prove(*job, &instance.server.name, proof);
                self.end_relayed(*job, Outcome::Stopped);
            } else {
                self.end_relayed(*job, Outcome::Error(error.clone()));
            }
        }
    }

    fn death(&self, instance: &Instance, status: &str, stderr: &str) -> ErrorObject {
        let name = &instance.server.name;
        let status = self.outbox.clean(status);
        if instance.server.is_remote {
            let message = match &instance.why {
                Some(why) => format!("the connection to server {name:?} was ended: {why}"),
                None => format!("server {name:?} cannot be reached: {status}"),
            };
            return ErrorObject::new(code::INTERNAL_ERROR, message);
        }
        let mut message = match &instance.why {
            Some(why) => format!("server {name:?} was ended: {why} ({status})"),
            None if instance.is_starting() => {
                format!("server {name:?} ended before its handshake was done: {status}")
            }
            None => format!("server {name:?} ended: {status}"),
        };
        let last: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
        if !last.is_empty() {
            let text = last[last.len().saturating_sub(5)..].join(" | ");
            message.push_str("; its last lines: ");
            message.push_str(&self.outbox.clean(&text));
        }
        let mut data = Vec::new();
        let mut json = crate::json::writer::Writer::new(&mut data);
        json.raw("{").member("server", name).raw(",").member("status", &status).raw(",");
        json.member("stderr", stderr).raw("}");
        let data = String::from_utf8(data).unwrap_or_default();
        ErrorObject::new(code::INTERNAL_ERROR, message).with_data(data)
    }
}
