//! What a configuration means for a daemon, at its start and at a reload.

use std::num::NonZeroU32;
use std::sync::Arc;

use ceased_core::identity::Identity;
use ceased_core::limits::{FrameLimits, Limits, TaskPolicy};
use ceased_core::policy::abuse::SuspicionPolicy;
use ceased_core::settings::{ServerInfo, Settings};
use ceased_transports::{Address, SocketMode};
use rustix::process::getuid;

use crate::access::Access;
use crate::config::{self, Config, Level, Listen};
use crate::event_loop::{Guards, ListenSpec, Reload, Reloaded};
use crate::observability::logging::SetLevel;
use crate::observability::metrics::Thresholds;
use crate::scarcity;
use crate::store::open::{OnDisk, StoreLocation};
use crate::token_file::TokenFileError;
use crate::tools::catalog;
use ceased_process::Isolation;

/// Reads the configuration that a reload applies.
pub(crate) type LoadConfig = Arc<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// What the configuration holds now; for a reload of a daemon started with `started`, which
/// listens where the configuration says only if `listens`. `level` is that of the log where the file
/// has none.
pub(crate) fn reload(
    load: LoadConfig,
    started: Config,
    listens: bool,
    level: Level,
    set_level: SetLevel,
) -> Reload {
    Arc::new(move || {
        let config = load()?;
        let doors = || config.listen.iter().map(entrance).collect::<Result<Vec<_>, _>>();
        let listen = listens.then(doors).transpose().map_err(|error| error.to_string())?;
        let catalog = catalog::catalog(config.tools.iter().map(catalog::configured).collect());
        let (set_level, level) = (Arc::clone(&set_level), config.log.level.unwrap_or(level));
        Ok(Reloaded {
            set_level: Box::new(move || set_level(level)),
            settings: Arc::new(Settings {
                server: ServerInfo::default(),
                limits: scarcity::within_files(limits(&config)),
                tasks: task_policy(&config),
                catalog: catalog.map_err(|error| error.to_string())?,
                operators: operators(),
                ..Settings::default()
            }),
            listen,
            shutdown_grace: config.daemon.shutdown_grace,
            eof_grace: config.daemon.eof_grace,
            authenticate_within: config.limits.authenticate_within,
            guards: guards(&config),
            thresholds: thresholds(&config),
            needs_restart: needs_restart(&started, &config),
        })
    })
}

/// Operators: the administrator, and the user this runs as.
pub(super) fn operators() -> Vec<Identity> {
    vec![Identity::User(0), Identity::User(getuid().as_raw())]
}

/// The keys that are read at the start only and have another value now.
///
/// The tables with such keys are taken apart whole, so that a new key has to be put on either side.
pub(super) fn needs_restart(started: &Config, now: &Config) -> Vec<&'static str> {
    let is_stdio = |config: &Config| config.listen.contains(&Listen::Stdio);
    let config::Daemon {
        state_dir,
        store,
        store_reserve,
        damaged_store,
        store_retry: _,
        workers: _,
        queue: _,
        shutdown_grace: _,
        on_disconnect: _,
        isolation: _,
        eof_grace: _,
        roots: _,
        heartbeat: _,
    } = &now.daemon;
    let config::Log { audit, level: _ } = &now.log;
    let config::Metrics { listen: metrics } = &now.metrics;
    let was = &started.daemon;
    let keys = [
        ("daemon.state_dir", was.state_dir != *state_dir),
        ("daemon.store", was.store != *store),
        ("daemon.store_reserve", was.store_reserve != *store_reserve),
        ("daemon.damaged_store", was.damaged_store != *damaged_store),
        ("log.audit", started.log.audit != *audit),
        ("metrics.listen", started.metrics.listen != *metrics),
        ("[[listen]] of transport \"stdio\"", is_stdio(started) != is_stdio(now)),
    ];
    keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}

pub(super) const fn thresholds(config: &Config) -> Thresholds {
    let alerts = &config.alerts;
    Thresholds { high_water: alerts.high_water, slow_stop: alerts.slow_stop }
}

/// The names of the tools that are to have a pid namespace.
pub(super) fn isolated(config: &Config) -> Vec<String> {
    let is_isolated = |run: &config::Run| match run {
        config::Run::Command(command) => command.isolation == Isolation::Pid,
        config::Run::Builtin(_) => false,
    };
    let tools = config.tools.iter().filter(|tool| is_isolated(&tool.run));
    tools.map(|tool| tool.name.clone()).collect()
}

pub(super) fn guards(config: &Config) -> Guards {
    let limits = &config.limits;
    let own = limits.partial_bytes_per_identity;
    let half = (limits.partial_bytes / 2).max(limits.message_bytes);
    Guards {
        frame_time: limits.frame_time,
        partial_bytes: limits.partial_bytes,
        partial_bytes_per_identity: own.unwrap_or(half),
    }
}

/// What one identity may have of something by default: all but an eighth, and all but one of four
/// to seven. Fewer than four are not divided: a part kept for others would leave too little.
const fn most_of(all: usize) -> usize {
    match all {
        0..4 => all,
        4..8 => all - 1,
        8.. => all - all / 8,
    }
}

pub(super) fn address(listen: &Listen) -> Address {
    match listen {
        Listen::Unix { path, mode, .. } => Address::Unix {
            path: path.clone(),
            mode: SocketMode::from_bits(*mode).unwrap_or_default(),
        },
        Listen::Tcp { address, .. } => Address::Tcp(*address),
        Listen::Stdio => Address::Stdio,
    }
}

/// Where peers come in, and who may.
pub(super) fn entrance(listen: &Listen) -> Result<ListenSpec, TokenFileError> {
    let group = match listen {
        Listen::Unix { group, .. } => *group,
        Listen::Tcp { .. } | Listen::Stdio => None,
    };
    Ok(ListenSpec { address: address(listen), group, access: Access::of(listen)? })
}

/// Where a configured daemon keeps its tasks.
pub(super) fn keep(daemon: &config::Daemon) -> StoreLocation {
    match daemon.store {
        config::Keeping::Auto | config::Keeping::Disk => StoreLocation::Disk(on_disk(daemon)),
        config::Keeping::Memory => StoreLocation::Memory,
    }
}

pub(super) fn on_disk(daemon: &config::Daemon) -> OnDisk {
    OnDisk {
        dir: daemon.state_dir.clone(),
        reserve: daemon.store_reserve as u64,
        damaged: daemon.damaged_store,
    }
}

pub(super) fn limits(config: &Config) -> Limits {
    let limits = &config.limits;
    Limits {
        frames: FrameLimits { frame_bytes_max: limits.message_bytes },
        depth_max: limits.json_depth,
        connections_max: limits.connections,
        connections_per_identity_max: limits
            .connections_per_identity
            .unwrap_or_else(|| most_of(limits.connections)),
        operator_connections: limits.operator_connections,
        inflight_max: limits.inflight_per_connection,
        running_max: config.daemon.workers,
        running_per_identity_max: limits
            .workers_per_identity
            .unwrap_or_else(|| most_of(config.daemon.workers)),
        queued_max: config.daemon.queue,
        queued_per_identity_max: limits
            .queue_per_identity
            .unwrap_or(config.daemon.queue - config.daemon.queue / 8),
        keys_max: limits.idempotency_keys_per_identity,
        keys_for: limits.idempotency_ttl,
        task_ops_per_second: NonZeroU32::new(limits.task_ops_per_second),
        live_tasks_max: limits.tasks_per_identity,
        stored_tasks_max: limits.stored_tasks_per_identity,
        stored_bytes_max: limits.stored_bytes_per_identity,
        resident_result_bytes: limits.resident_result_bytes,
        write_buffer_bytes: limits.write_buffer_bytes,
        write_stall: limits.write_stall,
        suspicion: SuspicionPolicy {
            window: config.alerts.window,
            unknown_tasks: config.alerts.unknown_tasks,
            fast_polls: config.alerts.fast_polls,
        },
        asks_max: limits.asks_per_job,
        parked_max: limits.parked_per_identity,
        parked_for: limits.parked_for,
        subscriptions_max: limits.subscriptions_per_connection,
        subscribed_tasks_max: limits.tasks_per_subscription,
        ..Limits::default()
    }
}

pub(super) fn task_policy(config: &Config) -> TaskPolicy {
    let tasks = &config.tasks;
    TaskPolicy {
        // A server has a store or not; see [`Daemon::build`].
        durable: false,
        store_retry: config.daemon.store_retry,
        default_ttl: tasks.default_ttl,
        max_ttl: tasks.max_ttl,
        anonymous_ttl: tasks.anonymous_ttl,
        on_ttl: tasks.on_ttl,
        late_result: tasks.late_result,
        poll_interval: tasks.poll_interval,
        page_size: tasks.page_size,
        status_notifications: tasks.status_notifications,
    }
}

#[cfg(test)]
mod tests;
