//! `[[agent]]` as written, checked.

use std::time::Duration;

use ceased_core::upstream::server::{OnIgnoredCancel, Watchdogs};

use super::agent::{Agent, clash_of};
use super::check::Checker;
use super::defaults::most_of;
use super::forms::TimeOrOff;
use super::kinds::{Count, HOUR, MS, Time};
use super::launch::Launch;
use super::server::Server;
use super::server_table::{
    DRAIN, GRACE, GRACE_MAX, INSTANCES_MAX, ON_IGNORED_CANCEL, START_TIMEOUT, command, name,
};
use super::{Daemon, identities, raw};

/// Clients of an agent: each has a process tree, which for an agent has hundreds of MiB.
const INSTANCES: usize = 16;

/// All agents of the file.
pub(super) fn agents(
    raw: Vec<(usize, raw::Agent)>,
    servers: &[Server],
    daemon: &Daemon,
    check: &mut Checker<'_>,
) -> Vec<Agent> {
    let mut agents: Vec<Agent> = Vec::new();
    for (at, raw) in raw {
        let place = raw.name.at().unwrap_or(at);
        let Some(agent) = agent(at, &raw, daemon, check) else { continue };
        if let Some((what, hint)) = clash_of(&agent, &agents, agents.len(), servers) {
            check.problem(place, what, hint);
        }
        agents.push(agent);
    }
    agents
}

fn agent(at: usize, raw: &raw::Agent, daemon: &Daemon, check: &mut Checker<'_>) -> Option<Agent> {
    let name = name(at, &raw.name, check);
    let command = command(at, &raw.command, check);
    let instances = Count(1..=INSTANCES_MAX);
    let max_instances = raw.max_instances.or(INSTANCES, &instances, check);
    let own = &raw.max_instances_per_identity;
    let (graces, limits) = (Time(Duration::ZERO..=GRACE_MAX), TimeOrOff("30m"));
    let replaces = OnIgnoredCancel::Replace;
    Some(Agent {
        launch: Launch::of(&raw.environment, &raw.confinement, daemon.isolation, check),
        allow: identities::allow(&raw.allow, check),
        start_timeout: raw.start_timeout.or(START_TIMEOUT, &Time(MS..=HOUR), check),
        max_instances,
        max_instances_per_identity: own.or(most_of(max_instances), &instances, check),
        watchdogs: Watchdogs {
            turn: raw.turn_timeout.or(None, &limits, check),
            stall: raw.stall_timeout.or(None, &limits, check),
        },
        cancel_grace: raw.cancel_grace.or(GRACE, &graces, check),
        kill_grace: raw.kill_grace.or(GRACE, &graces, check),
        drain: raw.drain.or(DRAIN, &Time(Duration::ZERO..=24 * HOUR), check),
        on_ignored_cancel: raw.on_ignored_cancel.or(replaces, &ON_IGNORED_CANCEL, check),
        name: name?,
        command: command?,
    })
}
