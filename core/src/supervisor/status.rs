//! Agents, their clients and turns in `ceased/status`, and their numbers for monitoring.

use alloc::vec::Vec;

use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId};
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::settings::Settings;
use crate::stats::AgentStats;
use crate::supervisor::table::{Agents, Supervised};
use crate::supervisor::work::WorkState;

/// Clients that one status lists at most.
const LISTED_MAX: usize = 1000;
/// Requests of one client that a status lists at most.
const WORKS_MAX: usize = 32;

impl Agents {
    /// Clients of agents that the peer of a connection may know of: those of its identity, or for
    /// an operator all (TSK-39).
    pub(super) fn seen_clients<'a>(
        &'a self,
        outbox: &'a Outbox,
        viewer: ConnId,
    ) -> impl Iterator<Item = (&'a ConnId, &'a Supervised)> {
        let is_operator = outbox.is_operator(viewer);
        let own = outbox.identity(viewer).filter(|own| **own != Identity::Anonymous);
        let seen = move |entry: &Supervised| is_operator || own == Some(&entry.identity);
        self.clients.iter().filter(move |(_, entry)| seen(entry))
    }

    /// Requests of a connection that wait for their answers, here or at its agent.
    pub(crate) fn waiting_requests(&self, outbox: &Outbox, conn: ConnId) -> usize {
        let agent = self.clients.get(&conn);
        outbox.open_requests(conn) + agent.map_or(0, |it| it.supervision.open_requests())
    }

    /// The processes of agents that the peer of a connection may know of.
    pub(crate) fn visible_agents<'a>(
        &'a self,
        outbox: &'a Outbox,
        viewer: ConnId,
    ) -> impl Iterator<Item = InstanceId> + 'a {
        self.seen_clients(outbox, viewer).filter_map(|(_, entry)| entry.instance).take(LISTED_MAX)
    }

    /// Numbers of each agent, for monitoring (TSK-38).
    pub(crate) fn stats(&self, settings: &Settings) -> Vec<AgentStats> {
        let all = settings.agents.iter().map(|agent| {
            let counts = self.counts.get(&agent.name).copied().unwrap_or_default();
            let clients = self.clients.values().filter(|it| it.server.name == agent.name);
            let open = clients.clone().map(|it| it.supervision.open_works());
            AgentStats {
                agent: agent.name.clone(),
                clients: clients.clone().count(),
                processes: clients.clone().filter(|it| it.instance.is_some()).count(),
                requests: open.sum(),
                starts: counts.starts,
                deaths: counts.deaths,
                replaced: counts.replaced,
                stops: counts.stops,
            }
        });
        all.collect()
    }

    /// The agents that the viewer may use, and those that its clients still have after a reload.
    pub(crate) fn write_agents(&self, json: &mut Writer<'_>, outbox: &Outbox, viewer: ConnId) {
        let caller = outbox.caller(viewer);
        let is_operator = outbox.is_operator(viewer);
        let offered = outbox.settings().agents.iter();
        let offered = offered.filter(|it| is_operator || caller.is_in(&it.allow));
        let used = self.seen_clients(outbox, viewer).map(|(_, entry)| &entry.server);
        let mut names: Vec<&str> = Vec::new();
        for agent in offered.chain(used) {
            if !names.contains(&&*agent.name) {
                names.push(&agent.name);
            }
        }
        if names.is_empty() {
            return;
        }
        json.raw(",\"agents\":[");
        for (position, name) in names.into_iter().enumerate() {
            json.raw(if position == 0 { "{" } else { ",{" });
            self.write_agent(json, outbox, name, viewer);
            json.raw("}");
        }
        json.raw("]");
    }

    fn write_agent(&self, json: &mut Writer<'_>, outbox: &Outbox, name: &str, viewer: ConnId) {
        json.member("agent", name);
        let configured = outbox.settings().agents.iter().find(|it| *it.name == *name);
        if let Some(agent) = configured {
            json.raw(",\"maxInstances\":").display(agent.max_instances);
        }
        if outbox.is_operator(viewer) {
            let counts = self.counts.get(name).copied().unwrap_or_default();
            for (name, count) in [
                ("starts", counts.starts),
                ("deaths", counts.deaths),
                ("replaced", counts.replaced),
                ("stops", counts.stops),
            ] {
                json.raw(",").string(name).raw(":").display(count);
            }
        }
        json.raw(",\"clients\":[");
        let clients = self.seen_clients(outbox, viewer).take(LISTED_MAX);
        let clients = clients.filter(|(_, entry)| *entry.server.name == *name);
        for (position, (conn, entry)) in clients.enumerate() {
            json.raw(if position == 0 { "{" } else { ",{" });
            write_client(json, outbox, *conn, entry);
            json.raw("}");
        }
        json.raw("]");
    }
}

fn write_client(json: &mut Writer<'_>, outbox: &Outbox, conn: ConnId, entry: &Supervised) {
    let now = outbox.now();
    json.raw("\"connection\":\"").display(conn).raw("\",");
    json.member("identity", &alloc::format!("{}", entry.identity));
    json.raw(",").member("state", entry.supervision.state());
    json.raw(",\"elapsedMs\":").display((now - entry.since).as_millis());
    if let Some(instance) = entry.instance {
        json.raw(",\"instance\":").display(instance.get());
    }
    json.raw(",\"requests\":[");
    for (position, work) in entry.supervision.works().take(WORKS_MAX).enumerate() {
        json.raw(if position == 0 { "{" } else { ",{" });
        if let Some(job) = work.job {
            json.raw("\"job\":").display(job.get()).raw(",");
        }
        if let Some(request) = work.request {
            json.raw("\"requestId\":").id(request, None).raw(",");
        }
        // The client chooses it.
        json.member("method", &outbox.clean(work.method));
        if let Some((_, id)) = work.object {
            json.raw(",").member("object", &outbox.clean(id));
        }
        json.raw(",\"elapsedMs\":").display((now - work.since).as_millis());
        json.raw(",").member("state", work.state.as_str());
        if let WorkState::Waiting(cause) = work.state {
            json.raw(",").member("waiting", cause);
        }
        if let Some(cancel) = work.cancel {
            json.raw(",").member("by", &alloc::format!("{}", cancel.by));
        }
        json.raw("}");
    }
    json.raw("]");
}
