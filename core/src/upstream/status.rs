//! Servers and their instances in `ceased/status`.

use alloc::vec::Vec;

use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId};
use crate::json::writer::Writer;
use crate::stats::ServerStats;
use crate::upstream::server::Share;
use crate::upstream::table::{Instance, Key, Phase, Server};

/// Instances that one status lists at most.
const LISTED_MAX: usize = 1000;

impl Phase {
    /// Word of a view.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting | Self::Probing | Self::Initializing => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Ending => "ending",
        }
    }
}

impl Share {
    /// Word of the configuration.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Identity => "identity",
            Self::Call => "call",
        }
    }
}

impl Engine {
    /// Whether the peer of a connection may know of an instance: it serves the peer's own requests,
    /// or the peer is an operator (TSK-39).
    fn may_see_instance(&self, viewer: ConnId, instance: &Instance) -> bool {
        if self.outbox.is_operator(viewer) {
            return true;
        }
        let own = self.outbox.identity(viewer).filter(|own| **own != Identity::Anonymous);
        match &instance.key {
            Key::Client(conn) if *conn == viewer => true,
            Key::Client(conn) => own.is_some() && self.outbox.identity(*conn) == own,
            Key::Owner(owner) => own == Some(owner),
            // A warm instance belongs to everyone and to no one.
            Key::Call => instance
                .calls
                .iter()
                .any(|job| self.jobs.get(*job).is_some_and(|job| self.may_see(viewer, job))),
        }
    }

    /// The instances that the peer of a connection may know of.
    pub(crate) fn visible_instances(&self, viewer: ConnId) -> Vec<InstanceId> {
        let all = self.upstreams.instances.iter();
        let seen = all.filter(|(_, instance)| self.may_see_instance(viewer, instance));
        seen.take(LISTED_MAX).map(|(id, _)| *id).collect()
    }

    /// Numbers of each server, for monitoring (TSK-38).
    #[must_use]
    pub fn server_stats(&self) -> Vec<ServerStats> {
        let all = self.upstreams.servers.iter().map(|state| {
            let of = |it: &&Instance| it.server.name == state.server.name;
            let instances = self.upstreams.instances.values().filter(of).count();
            let counts = &state.counts;
            ServerStats {
                server: state.server.name.clone(),
                instances,
                starts: counts.starts,
                restarts: counts.restarts,
                deaths: counts.deaths,
                replaced: counts.replaced,
                strays_ended: counts.strays_ended,
                calls: counts.calls,
            }
        });
        all.collect()
    }

    /// The servers that the viewer may use, with its instances; for an operator all.
    pub(crate) fn write_servers(&self, json: &mut Writer<'_>, viewer: ConnId) {
        if self.upstreams.is_empty() {
            return;
        }
        let instances = self.visible_instances(viewer);
        let identity = self.outbox.identity_of(viewer);
        let is_operator = self.outbox.is_operator(viewer);
        let seen = |server: &&Server| is_operator || server.server.allow.permits(&identity);
        json.raw(",\"servers\":[");
        let servers = self.upstreams.servers.iter().filter(seen);
        for (position, server) in servers.enumerate() {
            json.raw(if position == 0 { "" } else { "," });
            self.write_server(json, server, &instances, &identity, is_operator);
        }
        json.raw("]");
    }

    fn write_server(
        &self,
        json: &mut Writer<'_>,
        state: &Server,
        instances: &[InstanceId],
        viewer: &Identity,
        is_operator: bool,
    ) {
        let server = &state.server;
        // TSK-39: instances of other identities are not shown.
        let of = Some(viewer).filter(|_| !is_operator);
        let states: Vec<&Server> = self.upstreams.states(&server.name, of).collect();
        let has_failed = states.iter().any(|state| state.failure.is_some());
        json.raw("{").member("server", &server.name);
        json.raw(",").member("prefix", &server.prefix);
        json.raw(",").member("share", server.share.as_str());
        let own = instances.iter().filter_map(|id| Some((*id, self.upstreams.instances.get(id)?)));
        // Draining instances of an entry that has changed are of its name, too.
        let own: Vec<_> = own.filter(|(_, it)| it.server.name == server.name).collect();
        let has = |phase: &str| own.iter().any(|(_, it)| it.phase.as_str() == phase);
        let word = if has("ready") {
            "ready"
        } else if has("starting") || has("queued") {
            "starting"
        } else if has("draining") || has("ending") {
            "draining"
        } else if has_failed {
            "failed"
        } else {
            "idle"
        };
        json.raw(",").member("state", word);
        let known = states.iter().filter(|state| state.manifest.is_some());
        if let Some(tools) = known.map(|state| state.tools.len()).max() {
            json.raw(",\"tools\":").display(tools);
        }
        // Texts of a server can tell of the requests of others.
        let failure = states.iter().find_map(|state| state.failure.as_deref());
        let error = failure.or(state.counts.last_error.as_deref());
        if let Some(error) = error.filter(|_| is_operator) {
            json.raw(",").member("lastError", error);
        }
        // They name tools of servers that others may not use.
        let warnings = || states.iter().flat_map(|state| state.warnings.iter());
        if is_operator && warnings().next().is_some() {
            json.raw(",\"warnings\":[");
            for (position, warning) in warnings().enumerate() {
                json.raw(if position == 0 { "" } else { "," }).string(warning);
            }
            json.raw("]");
        }
        let not_before = states.iter().map(|state| state.not_before).max();
        if let Some(not_before) = not_before.filter(|at| self.now.at < *at) {
            let wait = (not_before - self.now.at).as_millis();
            json.raw(",\"mayStartInMs\":").display(wait);
        }
        if is_operator {
            let counts = &state.counts;
            for (name, count) in [
                ("starts", counts.starts),
                ("restarts", counts.restarts),
                ("deaths", counts.deaths),
                ("replaced", counts.replaced),
                ("straysEnded", counts.strays_ended),
                ("calls", counts.calls),
            ] {
                json.raw(",").string(name).raw(":").display(count);
            }
            json.raw(",\"waiting\":").display(state.waiting.len());
        }
        json.raw(",\"instances\":[");
        for (position, (id, instance)) in own.into_iter().enumerate() {
            json.raw(if position == 0 { "" } else { "," });
            self.write_instance(json, id, instance);
        }
        json.raw("]}");
    }

    fn write_instance(&self, json: &mut Writer<'_>, id: InstanceId, instance: &Instance) {
        json.raw("{\"instance\":").display(id.get());
        json.raw(",").member("state", instance.phase.as_str());
        match &instance.key {
            Key::Client(conn) => {
                json.raw(",\"connection\":\"").display(conn).raw("\"");
                if let Some(identity) = self.outbox.identity(*conn) {
                    json.raw(",").member("identity", &alloc::format!("{identity}"));
                }
            }
            Key::Owner(owner) => {
                json.raw(",").member("identity", &alloc::format!("{owner}"));
            }
            Key::Call => {}
        }
        if let Some(why) = &instance.why {
            json.raw(",").member("why", why);
        }
        json.raw(",\"jobs\":[");
        for (position, job) in instance.calls.iter().enumerate() {
            json.raw(if position == 0 { "" } else { "," }).display(job.get());
        }
        json.raw("],\"waiting\":").display(instance.waiting.len()).raw("}");
    }
}
