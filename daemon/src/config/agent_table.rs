//! `[[agent]]` as written, checked.

use std::time::Duration;

use ceased_core::upstream::server::{OnIgnoredCancel, Watchdogs};

use super::agent::{Agent, clash_of};
use super::check::{Checker, Key};
use super::defaults::most_of;
use super::kinds::{HOUR, MS, YEAR};
use super::launch::Launch;
use super::server::Server;
use super::server_table::{DRAIN, GRACE, GRACE_MAX, INSTANCES_MAX, START_TIMEOUT, command, name};
use super::units::parse_duration;
use super::{Daemon, identities, raw};

const TABLE: &str = "[[agent]]";
/// Clients of an agent: each has a process tree, which for an agent has hundreds of MiB.
const INSTANCES: usize = 16;

const fn key(name: &'static str) -> Key {
    Key { table: TABLE, name }
}

/// All agents of the file.
pub(super) fn agents(
    raw: Vec<(usize, raw::Agent)>,
    servers: &[Server],
    daemon: &Daemon,
    check: &mut Checker<'_>,
) -> Vec<Agent> {
    let mut agents: Vec<Agent> = Vec::new();
    for (at, raw) in raw {
        let place = raw.name.as_ref().map_or(at, |it| it.span().start);
        let Some(agent) = agent(at, &raw, daemon, check) else { continue };
        if let Some((what, hint)) = clash_of(&agent, &agents, agents.len(), servers) {
            check.problem(place, what, hint);
        }
        agents.push(agent);
    }
    agents
}

fn agent(at: usize, raw: &raw::Agent, daemon: &Daemon, check: &mut Checker<'_>) -> Option<Agent> {
    let name = name(TABLE, at, raw.name.as_ref(), check);
    let command = command(TABLE, at, raw.command.as_ref(), check);
    let launch = Launch::of(TABLE, &raw.environment, &raw.confinement, daemon.isolation, check);
    let instances = raw.max_instances.as_ref();
    let max_instances = check.whole(key("max_instances"), instances, INSTANCES, 1..=INSTANCES_MAX);
    let share = check.whole(
        key("max_instances_per_identity"),
        raw.max_instances_per_identity.as_ref(),
        most_of(max_instances),
        1..=INSTANCES_MAX,
    );
    let on_ignored_cancel = check.choice(
        key("on_ignored_cancel"),
        raw.on_ignored_cancel.as_ref(),
        OnIgnoredCancel::Replace,
        &[("replace", OnIgnoredCancel::Replace), ("leave", OnIgnoredCancel::Leave)],
    );
    let watchdogs = Watchdogs {
        turn: time_limit("turn_timeout", raw.turn_timeout.as_ref(), check),
        stall: time_limit("stall_timeout", raw.stall_timeout.as_ref(), check),
    };
    let mut time = |name, raw: &Option<_>, default, range| {
        check.duration(key(name), raw.as_ref(), default, range)
    };
    let start_timeout = time("start_timeout", &raw.start_timeout, START_TIMEOUT, MS..=HOUR);
    let zero = Duration::ZERO;
    let cancel_grace = time("cancel_grace", &raw.cancel_grace, GRACE, zero..=GRACE_MAX);
    let kill_grace = time("kill_grace", &raw.kill_grace, GRACE, zero..=GRACE_MAX);
    let drain = time("drain", &raw.drain, DRAIN, zero..=24 * HOUR);
    Some(Agent {
        allow: identities::allow(TABLE, raw.allow.as_ref(), check),
        name: name?,
        command: command?,
        launch,
        start_timeout,
        max_instances,
        max_instances_per_identity: share,
        watchdogs,
        cancel_grace,
        kill_grace,
        drain,
        on_ignored_cancel,
    })
}

/// A time limit of a turn; "off" is none.
fn time_limit(
    name: &'static str,
    raw: Option<&raw::Text>,
    check: &mut Checker<'_>,
) -> Option<Duration> {
    let raw = raw?;
    let text = raw.get_ref();
    match parse_duration(text) {
        _ if text == "off" => None,
        Ok(span) if (MS..=YEAR).contains(&span) => Some(span),
        Ok(_) | Err(_) => {
            let hint = "it takes 1ms to 365d, such as \"30m\", or \"off\"";
            check.bad_value(key(name), raw.span().start, &format!("{text:?}"), hint);
            None
        }
    }
}
