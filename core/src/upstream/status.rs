//! Servers and their instances in `ceased/status`.

use alloc::vec::Vec;

use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId, JobId};
use crate::jobs::Jobs;
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::policy::access::Item;
use crate::server::cancel::may_see;
use crate::stats::ServerStats;
use crate::upstream::server::Share;
use crate::upstream::table::{Instance, InstanceKey, InstancePhase, KnownServer, Upstreams};

/// Instances that one status lists at most.
const LISTED_MAX: usize = 1000;

impl InstancePhase {
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

/// Whether the peer of a connection may know of an instance: it serves the peer's own requests,
/// or the peer is an operator (TSK-39).
fn may_see_instance(outbox: &Outbox, jobs: &Jobs, viewer: ConnId, instance: &Instance) -> bool {
    if outbox.is_operator(viewer) {
        return true;
    }
    let own = outbox.identity(viewer).filter(|own| **own != Identity::Anonymous);
    let is_own = |job: &JobId| jobs.get(*job).is_some_and(|job| may_see(outbox, viewer, job));
    match &instance.key {
        InstanceKey::Client(conn) if *conn == viewer => true,
        InstanceKey::Client(conn) => own.is_some() && outbox.identity(*conn) == own,
        InstanceKey::Owner(owner) => own == Some(owner),
        // An instance without a call is shown to operators alone.
        InstanceKey::Call => instance.calls.iter().any(is_own),
    }
}

impl Upstreams {
    /// The instances that the peer of a connection may know of.
    pub(crate) fn visible_instances(
        &self,
        outbox: &Outbox,
        jobs: &Jobs,
        viewer: ConnId,
    ) -> Vec<InstanceId> {
        let all = self.instances.iter();
        let seen = all.filter(|(_, instance)| may_see_instance(outbox, jobs, viewer, instance));
        seen.take(LISTED_MAX).map(|(id, _)| *id).collect()
    }

    /// Numbers of each server, for monitoring (TSK-38).
    pub(crate) fn server_stats(&self) -> Vec<ServerStats> {
        let all = self.servers.iter().map(|state| {
            let of = |it: &&Instance| it.server.name == state.server.name;
            let instances = self.instances.values().filter(of).count();
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
    pub(crate) fn write_servers(
        &self,
        json: &mut Writer<'_>,
        outbox: &Outbox,
        jobs: &Jobs,
        viewer: ConnId,
    ) {
        if self.is_empty() {
            return;
        }
        let instances = self.visible_instances(outbox, jobs, viewer);
        let identity = outbox.identity_of(viewer);
        // TSK-39: nothing of other identities is shown.
        let of = Some(&identity).filter(|_| !outbox.is_operator(viewer));
        let caller = outbox.caller(viewer);
        let seen = |it: &&KnownServer| of.is_none() || caller.sees(Item::Server(&it.server));
        json.raw(",\"servers\":[");
        for (position, server) in self.servers.iter().filter(seen).enumerate() {
            json.raw(if position == 0 { "" } else { "," });
            self.write_server(json, outbox, server, &instances, of);
        }
        json.raw("]");
    }

    /// One server, as it is shown to an identity, or to an operator.
    fn write_server(
        &self,
        json: &mut Writer<'_>,
        outbox: &Outbox,
        state: &KnownServer,
        instances: &[InstanceId],
        of: Option<&Identity>,
    ) {
        let server = &state.server;
        let states: Vec<&KnownServer> = self.states(&server.name, of).collect();
        let own = instances.iter().filter_map(|id| Some((*id, self.instances.get(id)?)));
        // Draining instances of an entry that has changed are of its name, too.
        let own: Vec<_> = own.filter(|(_, it)| it.server.name == server.name).collect();
        json.raw("{").member("server", &server.name);
        json.raw(",").member("prefix", &server.prefix);
        json.raw(",").member("share", server.share.as_str());
        json.raw(",").member("state", word_of(&own, &states));
        let known = states.iter().filter(|state| state.manifest.is_some());
        if let Some(tools) = known.map(|state| state.tools.len()).max() {
            json.raw(",\"tools\":").display(tools);
        }
        if of.is_none() {
            write_problems(json, state, &states);
        }
        let (not_before, now) = (states.iter().map(|state| state.not_before).max(), outbox.now());
        if let Some(not_before) = not_before.filter(|at| now < *at) {
            json.raw(",\"mayStartInMs\":").display((not_before - now).as_millis());
        }
        if of.is_none() {
            write_counts(json, state);
        }
        json.raw(",\"instances\":[");
        for (position, (id, instance)) in own.into_iter().enumerate() {
            json.raw(if position == 0 { "" } else { "," });
            write_instance(json, outbox, id, instance);
        }
        json.raw("]}");
    }
}

/// The word for a server with these instances, in these states.
fn word_of(instances: &[(InstanceId, &Instance)], states: &[&KnownServer]) -> &'static str {
    let has = |phase: &str| instances.iter().any(|(_, it)| it.phase.as_str() == phase);
    if has("ready") {
        "ready"
    } else if has("starting") || has("queued") {
        "starting"
    } else if has("draining") || has("ending") {
        "draining"
    } else if states.iter().any(|state| state.failure.is_some()) {
        "failed"
    } else {
        "idle"
    }
}

/// Texts for operators alone: they can tell of the requests of others, and name tools of servers
/// that others may not use.
fn write_problems(json: &mut Writer<'_>, state: &KnownServer, states: &[&KnownServer]) {
    let failure = states.iter().find_map(|state| state.failure.as_deref());
    if let Some(error) = failure.or(state.counts.last_error.as_deref()) {
        json.raw(",").member("lastError", error);
    }
    let warnings = || states.iter().flat_map(|state| state.warnings.iter());
    if warnings().next().is_some() {
        json.raw(",\"warnings\":[");
        for (position, warning) in warnings().enumerate() {
            json.raw(if position == 0 { "" } else { "," }).string(warning);
        }
        json.raw("]");
    }
}

fn write_counts(json: &mut Writer<'_>, state: &KnownServer) {
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

fn write_instance(json: &mut Writer<'_>, outbox: &Outbox, id: InstanceId, instance: &Instance) {
    json.raw("{\"instance\":").display(id.get());
    json.raw(",").member("state", instance.phase.as_str());
    match &instance.key {
        InstanceKey::Client(conn) => {
            json.raw(",\"connection\":\"").display(conn).raw("\"");
            if let Some(identity) = outbox.identity(*conn) {
                json.raw(",").member("identity", &alloc::format!("{identity}"));
            }
        }
        InstanceKey::Owner(owner) => {
            json.raw(",").member("identity", &alloc::format!("{owner}"));
        }
        InstanceKey::Call => {}
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
